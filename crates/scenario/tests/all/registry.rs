//! What scenarios choose by name: lists, the schema and the pages say the same of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;
use windtunnel_fabric::packet::TransportChoice;
use windtunnel_scenario::api;
use windtunnel_scenario::modules::Modules;

fn listed(kind: &str) -> Vec<(String, String)> {
    api::names(kind, &Modules::default()).expect(kind)
}

/// Words that the schema has for `$defs` of a name, with their descriptions.
fn words(schema: &Value, name: &str) -> Vec<(String, String)> {
    let alternatives =
        schema["$defs"][name].as_object().expect(name).values().next().and_then(Value::as_array);
    let text = |word: &Value, key: &str| word[key].as_str().map(str::to_owned);
    let word = |word: &Value| Some((text(word, "const")?, text(word, "description")?));
    alternatives.expect(name).iter().filter_map(word).collect()
}

#[test]
fn every_name_is_listed_once_with_a_line() {
    for kind in api::name_kinds() {
        let listed = listed(kind);
        let names: BTreeSet<&str> = listed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.len(), listed.len(), "{kind}");
        for (name, line) in &listed {
            assert!(!name.is_empty() && !line.is_empty() && !line.ends_with('.'), "{kind}: {name}: {line}");
        }
    }
}

/// The schema's words are the names that are listed, and no others but those under which a shape is known too.
#[test]
fn the_schema_has_the_names_that_are_listed() {
    let schema: Value = serde_json::from_str(&api::schema()).expect("a schema is JSON");
    for (kind, name) in [
        ("transports", "TransportName"),
        ("topologies", "ShapeName"),
        ("load-balancers", "LoadBalancerName"),
        ("disciplines", "DisciplineName"),
        ("algorithms", "AlgorithmName"),
        ("schedules", "ScheduleName"),
        ("schedulers", "SchedulerName"),
        ("placements", "PlacementName"),
        ("logs", "FormatName"),
    ] {
        let (words, listed) = (words(&schema, name), listed(kind));
        let found: BTreeSet<&str> = words.iter().map(|(name, _)| name.as_str()).collect();
        for (name, _) in &listed {
            assert!(found.contains(name.as_str()), "{kind}: {name}: {found:?}");
        }
        let others: Vec<&str> =
            found.into_iter().filter(|found| listed.iter().all(|(name, _)| name != found)).collect();
        // Other names of what is listed.
        let known = ["hyperx", "ub-mesh", "afab"];
        assert!(others.iter().all(|other| known.contains(other)), "{kind}: {others:?}");
    }
}

/// The page of transports has a row for each parameter, as the transports say it.
#[test]
fn the_page_of_transports_has_their_parameters() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/transports.md");
    let page = std::fs::read_to_string(page).expect("a page");
    let mut table = "| transport | key | meaning | may be | default |\n|---|---|---|---|---|\n".to_owned();
    for (mut transport, entry) in TransportChoice::all().into_iter().zip(TransportChoice::ENTRIES) {
        for parameter in transport.parameters() {
            let place = transport.place(parameter.key).expect(parameter.key);
            let (key, meaning) = (parameter.key, parameter.summary);
            let (expected, default) = (place.expected(), place.shown());
            writeln!(table, "| `{}` | `{key}` | {meaning} | {expected} | {default} |", entry.name)
                .expect("a text takes what is written");
        }
    }
    assert!(page.contains(&table), "docs/transports.md should have this table:\n{table}");
}
