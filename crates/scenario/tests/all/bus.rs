//! What joins NICs to their hosts: a rate and a latency, at every fidelity with a network.

use std::path::Path;

use serde_json::Value;
use windtunnel_scenario::api::{self, RunRequest};
use windtunnel_scenario::table::Discard;

fn run(text: &str) -> Result<Value, String> {
    let request = RunRequest {
        text: text.to_owned(),
        source: "a.yaml".to_owned(),
        base: Path::new(".").to_owned(),
        ..RunRequest::default()
    };
    match api::run(&request, &mut Discard, &mut Discard) {
        Ok(summary) => Ok(serde_json::from_str(&summary).expect("a summary is JSON")),
        Err(api::Failure::Input(error)) => Err(error.to_string()),
        Err(api::Failure::Run(_, message)) => panic!("{message}"),
        Err(api::Failure::Cluster(error)) => panic!("{error}"),
    }
}

/// Hosts of a GPU each on one switch, so that every link is a NIC's.
fn text(fidelity: &str, rate: &str, host: &str, more: &str) -> String {
    format!(
        "windtunnel: 1\nname: bus\nfidelity: {fidelity}\ntopology:\n  shape: clos\n  hosts: 5\n  tiers: [{{ports_down: 5, rate: {rate}, \
         length: 10 m}}]\n  host: {{gpus: 1, nics: 1{host}}}\njobs:\n  - name: a\n    workload: {{collective: {{kind: all_to_all, \
         algorithm: pairwise, bytes: 8 MB}}}}\n    iterations: 1\n{more}"
    )
}

fn picoseconds(text: &str) -> f64 {
    let summary = run(text).unwrap_or_else(|error| panic!("{error}"));
    (summary["jobs"][0]["finish_s"].as_f64().expect("it ended") * 1e12).round()
}

#[test]
fn a_narrow_bus_is_a_slower_nic() {
    for fidelity in ["message", "flow", "packet"] {
        let narrow = picoseconds(&text(fidelity, "400 Gbps", ", nic_bus: {rate: 100 Gbps}", ""));
        let slow = picoseconds(&text(fidelity, "100 Gbps", "", ""));
        let fast = picoseconds(&text(fidelity, "400 Gbps", "", ""));
        assert_eq!(narrow, slow, "{fidelity}");
        assert!(narrow > fast * 3.5, "{fidelity}: {narrow} {fast}");
        // One that is wider than the NIC makes no difference.
        assert_eq!(
            fast,
            picoseconds(&text(fidelity, "400 Gbps", ", nic_bus: {rate: 512 Gbps}", "")),
            "{fidelity}"
        );
    }
}

#[test]
fn each_step_pays_a_hand_over_at_either_end() {
    for fidelity in ["message", "flow", "packet"] {
        let without = picoseconds(&text(fidelity, "400 Gbps", ", nic_bus: {rate: 400 Gbps}", ""));
        let with =
            picoseconds(&text(fidelity, "400 Gbps", ", nic_bus: {rate: 400 Gbps, latency: 250 ns}", ""));
        // Four steps of a pairwise exchange of five ranks, one after the other.
        // Acknowledgements of packets meet the next step's at other times.
        let slack = if fidelity == "packet" { 20_000.0 } else { 0.0 };
        assert!((with - without - 4.0 * 2.0 * 250_000.0).abs() <= slack, "{fidelity}: {with} {without}");
    }
}

#[test]
fn the_slower_of_bus_and_nic_counts() {
    let both = |bus: &str, nic: &str| {
        let variation = format!("variation: {{nics: [{{rate: {nic}}}]}}\n");
        ["message", "flow"].map(|fidelity| {
            picoseconds(&text(fidelity, "400 Gbps", &format!(", nic_bus: {{rate: {bus} Gbps}}"), &variation))
        })
    };
    let slow = |rate: &str| {
        ["message", "flow"].map(|fidelity| picoseconds(&text(fidelity, &format!("{rate} Gbps"), "", "")))
    };
    assert_eq!(both("200", "0.25"), slow("100"));
    assert_eq!(both("100", "0.5"), slow("100"));
}

/// A ring of messages over hosts of a GPU each, in several shapes: the slowest NIC takes as long at message fidelity as at the others.
#[test]
fn slow_nics_are_slow_at_every_fidelity() {
    let clos = "shape: clos, hosts: 8, tiers: [{ports_down: 8, rate: 100 Gbps, length: 5 m}]";
    let torus = "shape: torus, dimensions: [{size: 8, rate: 100 Gbps, length: 5 m}], nic_link: {rate: 100 Gbps, length: 5 m}";
    for shape in [clos, torus] {
        let of = |fidelity: &str, nics: &str| {
            picoseconds(&format!(
                "windtunnel: 1\nname: slow\nfidelity: {fidelity}\ntopology: {{{shape}, host: {{gpus: 1, nics: 1}}}}\nvariation: \
                 {{nics: [{nics}]}}\njobs: [{{name: a, workload: {{flows: {{pattern: ring, bytes: 1 MiB}}}}}}]\n"
            ))
        };
        let whole = of("message", "");
        for (nics, times) in [
            ("{host: 3, rate: 0.25}", 4.0),
            ("{host: 3, rate: 0.25}, {host: 4, rate: 0.5}", 4.0),
            ("{host: 3, rate: 0.8}, {host: 4, rate: 0.5}", 2.0),
            ("{host: 0, nic: 0, rate: 0.1}", 10.0),
            ("{rate: 0.5}", 2.0),
        ] {
            let found = of("message", nics);
            assert!((found / whole / times - 1.0).abs() < 0.02, "{nics} of {shape}: {found} {whole}");
            let flow = of("flow", nics);
            assert!((found / flow - 1.0).abs() < 0.02, "{nics} of {shape}: {found} {flow}");
        }
    }
    // Eight rates, one more than are told apart: the slowest is one of them.
    let nics: Vec<String> =
        (0..8).map(|host| format!("{{host: {host}, rate: {}}}", 0.25 + f64::from(host) / 20.0)).collect();
    let many = |fidelity: &str| {
        picoseconds(&format!(
            "windtunnel: 1\nname: slow\nfidelity: {fidelity}\ntopology: {{{clos}, host: {{gpus: 1, nics: 1}}}}\nvariation: {{nics: \
             [{}]}}\njobs: [{{name: a, workload: {{flows: {{pattern: ring, bytes: 1 MiB}}}}}}]\n",
            nics.join(", ")
        ))
    };
    assert!((many("message") / many("flow") - 1.0).abs() < 0.02);
}

#[test]
fn one_set_of_constants_has_no_slow_nic() {
    let more = "network: {loggops: {L: 1 us, o: 0 ns, g: 0 ns, G: 0.08, S: 64 KiB}}\nvariation: {nics: [{host: 3, rate: 0.25}]}\n";
    let error = run(&text("message", "400 Gbps", "", more)).expect_err("it is refused");
    assert!(
        error.starts_with("a.yaml: variation.nics: `network.loggops` is one set of constants"),
        "{error}"
    );
    assert!(run(&text("flow", "400 Gbps", "", more)).is_ok());
}

#[test]
fn a_bus_without_a_rate_is_refused() {
    let error = run(&text("flow", "400 Gbps", ", nic_bus: {rate: 0 Gbps}", "")).expect_err("it is refused");
    assert!(error.contains("topology.host.nic_bus.rate: expected a rate above 0, found 0"), "{error}");
    let error = run(&text("flow", "400 Gbps", ", nic_bus: {latency: 1 us}", "")).expect_err("it is refused");
    assert!(error.contains("rate"), "{error}");
}
