//! The scenario beside this crate, with the transport that it names.

use serde_json::Value;
use windtunnel_scenario::api::{Failure, RunRequest, names, run};
use windtunnel_scenario::modules::Modules;
use windtunnel_scenario::table::Discard;

const TEXT: &str = include_str!("../scenario.yaml");

fn summary(overrides: &[(&str, &str)], modules: Modules) -> Result<Value, String> {
    let request = RunRequest {
        text: TEXT.to_owned(),
        source: "scenario.yaml".to_owned(),
        overrides: overrides.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect(),
        modules,
        ..RunRequest::default()
    };
    match run(&request, &mut Discard, &mut Discard) {
        Ok(summary) => Ok(serde_json::from_str(&summary).expect("a summary is JSON")),
        Err(Failure::Input(error)) => Err(error.to_string()),
        Err(Failure::Run(_, message)) => Err(message),
        Err(Failure::Cluster(error)) => Err(error.to_string()),
    }
}

fn own(overrides: &[(&str, &str)]) -> Value {
    summary(overrides, own_transport::modules()).expect("a run")
}

fn number(summary: &Value, pointer: &str) -> f64 {
    summary.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} of {summary}"))
}

/// Alone on its path a message takes its packets at line rate, and the way of the last one.
#[test]
fn it_fills_an_idle_path() {
    let summary = own(&[("jobs[0].workload.flows", "{pattern: incast, bytes: 8 MB, ranks: 2}")]);
    let packets = 8e6 / 4_084.0;
    let wire = (8e6 + 66.0 * f64::ceil(packets)) * 8.0 / 400e9;
    let time = number(&summary, "/flows/fct_max_s");
    assert!(time > wire && time < wire * 1.03, "{time} s for {wire} s on the wire");
    assert_eq!(summary["network"]["packets_dropped"], 0);
}

#[test]
fn its_parameters_reach_it_and_matter() {
    let halved = own(&[]);
    let tenth = own(&[("network.parameters", "{decrease: 0.1}")]);
    assert!(number(&halved, "/network/ecn_marked") > 0.0);
    assert!(number(&tenth, "/network/ecn_marked") > number(&halved, "/network/ecn_marked"));
    assert_eq!(number(&halved, "/network/bytes_delivered"), 16.0 * 8e6);
    let evidence = halved["evidence"].as_array().expect("a list");
    assert!(evidence.iter().any(|row| row["constant"] == "transport aimd" && row["source"] == "brought along by the program"));
    assert_eq!(own(&[])["flows"], halved["flows"]);
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for (overrides, expected) in [
        (
            [("network.parameters", "{decrease: 2}")],
            "scenario.yaml: network.parameters: `aimd`: `decrease` is 2, expected a part above 0 and up to 1",
        ),
        (
            [("network.parameters", "{decraese: 1}")],
            "scenario.yaml: network.parameters: `aimd`: unknown parameter `decraese`, expected `decrease`",
        ),
        (
            [("network.transport", "amid")],
            "scenario.yaml: network.transport: no transport `amid`\n\nhint: did you mean `aimd`?",
        ),
        (
            [("network.transport", "dctcp")],
            "scenario.yaml: network.parameters.decrease: `dctcp` has no such parameter\n\nhint: expected `g`, \
             `initial_window`, `max_window`, `reorder`",
        ),
    ] {
        assert_eq!(summary(&overrides, own_transport::modules()).expect_err("refused"), expected);
    }
    let error = summary(&[], Modules::default()).expect_err("nobody brings it along");
    assert!(error.starts_with("scenario.yaml: network.transport: no transport `aimd`"), "{error}");
}

const SPRAY: (&str, &str) = ("network.load_balancer", "spray");
const EVADING: (&str, &str) = ("network.path_chooser", "{name: evading}");

/// With a transport of this crate, and with one of Windtunnel's own.
#[test]
fn its_load_balancer_chooses_paths() {
    let ours = [("network.parameters", "{}"), ("network.transport", "dctcp")];
    let few = ("network.paths", "8");
    for transport in [&[][..], &ours[..]] {
        let with = |more: &[(&str, &str)]| own(&[transport, &[SPRAY, few], more].concat());
        let (in_turn, evading) = (with(&[]), with(&[EVADING]));
        assert_ne!(in_turn["flows"], evading["flows"]);
        assert_eq!(number(&evading, "/network/bytes_delivered"), 16.0 * 8e6);
        let evidence = evading["evidence"].as_array().expect("a list");
        assert!(evidence.iter().any(|row| row["constant"] == "path chooser evading"));
        // What was never marked is left out by nobody.
        let quiet = ("network.ecn", "{kmin: 1 GB, kmax: 2 GB}");
        assert_eq!(with(&[quiet])["flows"], with(&[quiet, EVADING])["flows"]);
    }
}

#[test]
fn what_is_wrong_with_a_load_balancer_is_told() {
    let place = "scenario.yaml: network.path_chooser: ";
    for (overrides, expected) in [
        (
            vec![EVADING],
            "`evading` chooses paths where packets are sprayed\n\nhint: set `load_balancer: spray`",
        ),
        (
            vec![SPRAY, ("network.path_chooser", "{name: invading}")],
            "no path chooser `invading`\n\nhint: did you mean `evading`?",
        ),
        (
            vec![SPRAY, ("network.path_chooser", "{name: evading, parameters: {packets: -1}}")],
            "`evading`: `packets` is -1, expected a number of packets",
        ),
    ] {
        let error = summary(&overrides, own_transport::modules()).expect_err("refused");
        assert_eq!(error, format!("{place}{expected}"));
    }
    let ours = [SPRAY, EVADING, ("network.parameters", "{}"), ("network.transport", "dctcp")];
    let error = summary(&ours, Modules::default()).expect_err("nobody brings it along");
    assert!(
        error.starts_with(&format!("{place}no path chooser `evading`: this program brings none")),
        "{error}"
    );
}

const ADAPTIVE: (&str, &str) = ("network.load_balancer", "adaptive");
const DRILL: (&str, &str) = ("network.switch_balancer", "{name: drill}");
const TCN: (&str, &str) = ("network.stage", "{name: tcn, parameters: {after_ns: 500}}");

/// Hardly any two messages share a port, as they do by hashes; with a sample of one port and no memory worth the name they
/// do more often.
#[test]
fn its_switches_choose_ports() {
    let ours = [("network.parameters", "{}"), ("network.transport", "dctcp")];
    for transport in [&[][..], &ours[..]] {
        let with = |more: &[(&str, &str)]| own(&[transport, more].concat());
        let (hashed, drilled) = (with(&[]), with(&[ADAPTIVE, DRILL]));
        let slowest = |summary: &Value| number(summary, "/flows/fct_max_s");
        assert!(slowest(&drilled) < 0.8 * slowest(&hashed), "{} {}", slowest(&drilled), slowest(&hashed));
        let evidence = drilled["evidence"].as_array().expect("a list");
        assert!(evidence.iter().any(|row| row["constant"] == "switch balancer drill"));
        let one = ("network.switch_balancer", "{name: drill, parameters: {samples: 1}}");
        assert_ne!(with(&[ADAPTIVE, one])["flows"], drilled["flows"]);
    }
}

/// Packets wait for up to 500 ns unmarked: 6 packets of 4,150 B at 400 Gbps, where marking by length begins far above.
#[test]
fn its_stage_marks_and_goes_with_its_load_balancer() {
    let quiet = ("network.ecn", "{kmin: 1 GB, kmax: 2 GB}");
    let marked = |summary: &Value| number(summary, "/network/ecn_marked");
    assert_eq!(marked(&own(&[quiet])), 0.0);
    let staged = own(&[quiet, TCN]);
    assert!(marked(&staged) > 0.0);
    let (sprayed, both) = (own(&[quiet, TCN, SPRAY]), own(&[quiet, TCN, SPRAY, EVADING]));
    assert!(marked(&both) > 0.0);
    assert_ne!(sprayed["flows"], both["flows"]);
    for module in ["stage tcn", "path chooser evading"] {
        let evidence = both["evidence"].as_array().expect("a list");
        assert!(evidence.iter().any(|row| row["constant"] == module), "{module}");
    }
}

#[test]
fn what_does_not_go_together_is_told() {
    let place = "scenario.yaml: network.";
    let ours = ("network.transport", "dctcp");
    let none = ("network.parameters", "{}");
    for (overrides, expected) in [
        (
            vec![DRILL],
            "switch_balancer: `drill` chooses where switches do, packet by packet\n\nhint: set `load_balancer: \
             adaptive`",
        ),
        (
            vec![ADAPTIVE, ("network.switch_balancer", "{name: dril}")],
            "switch_balancer: no balancer of switches `dril`\n\nhint: did you mean `drill`?",
        ),
        (
            vec![ADAPTIVE, ("network.switch_balancer", "{name: drill, parameters: {samples: 0}}")],
            "switch_balancer: `drill`: `samples` is 0, expected a number of ports",
        ),
        (
            vec![("network.stage", "{name: tcn, parameters: {after: 1}}")],
            "stage: `tcn`: unknown parameter `after`, expected `after_ns`",
        ),
        (
            vec![ADAPTIVE, DRILL, TCN],
            "stage: `tcn` and `drill` are not registered together with `aimd`\n\nhint: `Modules::with` does that",
        ),
        (
            vec![none, ours, TCN],
            "stage: `tcn` is not registered together with the built-in transports\n\nhint: `Modules::together` does \
             that",
        ),
    ] {
        let error = summary(&overrides, own_transport::modules()).expect_err("refused");
        assert_eq!(error, format!("{place}{expected}"));
    }
}

#[test]
fn what_it_brings_is_listed() {
    let listed = names("modules", &own_transport::modules()).expect("a kind of name");
    let known: Vec<&str> = listed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(known, ["evading", "tcn", "drill"]);
    assert_eq!(listed[1].1, "network.stage: marks what has waited for long (TCN); with `aimd`");
    assert!(names("modules", &Modules::default()).expect("a kind of name").is_empty());
}

#[test]
fn it_is_listed_before_ours() {
    let listed = names("transports", &own_transport::modules()).expect("a kind of name");
    assert_eq!(listed[0].0, "aimd");
    assert!(listed.iter().any(|(name, line)| name == "dctcp" && !line.is_empty()));
    assert!(listed.iter().all(|(_, line)| !line.is_empty()));
}
