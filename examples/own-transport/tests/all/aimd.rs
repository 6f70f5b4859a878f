//! The law in whole runs, against what arithmetic says.

use windtunnel_scenario::api::names;
use windtunnel_scenario::modules::Modules;

use crate::ask::{number, own, summary};

/// Seconds that a message of 8 MB is on the wire: packets of 4,150 B, of which 4,084 B are payload, at 400 Gbps.
fn on_the_wire() -> f64 {
    (8e6 + 66.0 * f64::ceil(8e6 / 4_084.0)) * 8.0 / 400e9
}

/// Alone on its path a message takes its packets at line rate, and the way of the last one.
#[test]
fn it_fills_an_idle_path() {
    let summary = own(&[("jobs[0].workload.flows", "{pattern: incast, bytes: 8 MB, ranks: 2}")]);
    let (time, wire) = (number(&summary, "/flows/fct_max_s"), on_the_wire());
    assert!(time > wire && time < wire * 1.03, "{time} s for {wire} s on the wire");
    assert_eq!(summary["network"]["packets_dropped"], 0);
}

/// Three senders into one port: it is never idle before the last one ends, and all of them last nearly as long. One after the other
/// they would last two thirds of that in the mean.
#[test]
fn three_share_a_port() {
    let summary = own(&[("jobs[0].workload.flows", "{pattern: incast, bytes: 8 MB, ranks: 4}")]);
    let (mean, last) = (number(&summary, "/flows/fct_mean_s"), number(&summary, "/flows/fct_max_s"));
    let wire = 3.0 * on_the_wire();
    assert!(last > wire && last < wire * 1.03, "{last} s for {wire} s on the wire");
    assert!(mean > 0.9 * last, "{mean} s in the mean, the last {last} s");
}

/// A mark that takes less leaves more in the queue, and so more is marked.
#[test]
fn its_parameters_reach_it_and_matter() {
    let marked =
        |parameters: &str| number(&own(&[("network.parameters", parameters)]), "/network/ecn_marked");
    let halved = marked("{decrease: 0.5}");
    assert!(halved > 0.0);
    assert!(marked("{decrease: 0.1}") > halved);
    assert!(marked("{increase: 4}") > halved);
}

#[test]
fn all_arrives_and_a_second_run_is_the_same() {
    let summary = own(&[]);
    assert_eq!(number(&summary, "/network/bytes_delivered"), 16.0 * 8e6);
    let evidence = summary["evidence"].as_array().expect("a list");
    let ours = |row: &serde_json::Value| {
        row["constant"] == "transport aimd" && row["source"] == "brought along by the program"
    };
    assert!(evidence.iter().any(ours));
    assert_eq!(own(&[])["flows"], summary["flows"]);
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for (overrides, expected) in [
        (
            [("network.parameters", "{decrease: 2}")],
            "scenario.yaml: network.parameters: `aimd`: `decrease` is 2, expected a part above 0 and up to 1",
        ),
        (
            [("network.parameters", "{increase: 0}")],
            "scenario.yaml: network.parameters: `aimd`: `increase` is 0, expected packets a round trip, above 0 and up to 100",
        ),
        (
            [("network.parameters", "{decraese: 1}")],
            "scenario.yaml: network.parameters: `aimd`: unknown parameter `decraese`, expected `decrease` or `increase`",
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

#[test]
fn it_is_listed_before_ours() {
    let listed = names("transports", &own_transport::modules()).expect("a kind of name");
    assert_eq!(listed[0].0, "aimd");
    assert!(listed.iter().any(|(name, line)| name == "dctcp" && !line.is_empty()));
    assert!(listed.iter().all(|(_, line)| !line.is_empty()));
}
