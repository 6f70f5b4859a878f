//! What goes beside the transport: load balancers and a stage of switches.

use windtunnel_scenario::api::names;
use windtunnel_scenario::modules::Modules;

use crate::ask::{number, own, summary};
use serde_json::Value;

#[test]
fn a_misspelt_name_gets_the_nearest() {
    let error = summary(&[("network.transport", "amid")], own_transport::modules()).expect_err("refused");
    assert_eq!(error, "scenario.yaml: network.transport: no transport `amid`\n\nhint: did you mean `aimd`?");
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
