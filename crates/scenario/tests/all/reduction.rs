//! All-reduces by switches, as scenarios ask for them: closed forms at every fidelity, against rings, in scale-up domains, with
//! late members, and what is refused.

use serde_json::Value;
use windtunnel_scenario::api::{RunRequest, compare_events, run};
use windtunnel_scenario::error::Failure;
use windtunnel_scenario::table::Discard;

const CLOS: &str = "shape: clos, hosts: 16, tiers: [{ports_down: 4, rate: 400 Gbps, length: 20 m}, \
                    {ports_down: 8, rate: 400 Gbps, length: 50 m}]";
const LONE: &str = "{gpus: 1, nics: 1}";
const NETWORK: &str = "mtu: 4160 B, header: 64 B, reduction: {}";

fn scenario(
    fidelity: &str,
    topology: &str,
    host: &str,
    network: &str,
    algorithm: &str,
    bytes: &str,
) -> String {
    format!(
        "
windtunnel: 1
name: reduction
seed: 1
fidelity: {fidelity}
topology: {{{topology}, host: {host}}}
network: {{{network}}}
jobs:
  - name: job
    workload: {{collective: {{kind: all_reduce, algorithm: {algorithm}, bytes: {bytes}}}}}
"
    )
}

fn request(text: String) -> RunRequest {
    RunRequest { text, source: "reduction.yaml".to_owned(), ..RunRequest::default() }
}

fn summary(text: String) -> Result<Value, String> {
    let summary = run(&request(text), &mut Discard, &mut Discard).map_err(|failure| match failure {
        Failure::Input(error) => error.to_string(),
        Failure::Run(_, message) => message,
        Failure::Cluster(error) => error.to_string(),
    })?;
    serde_json::from_str(&summary).map_err(|error| error.to_string())
}

fn time(text: String) -> f64 {
    summary(text).expect("a run")["jobs"][0]["iteration_time_s"]["mean"].as_f64().expect("an iteration")
}

/// One vector over a link, where a ring takes 2 (n - 1) / n of them.
#[test]
fn switches_take_half_of_what_a_ring_does() {
    let of = |fidelity: &str, algorithm: &str| {
        time(scenario(
            fidelity,
            CLOS,
            LONE,
            &format!("{NETWORK}, load_balancer: destination_modulo"),
            algorithm,
            "64 MB",
        ))
    };
    let vector = 64e6 * 8.0 / 400e9 * 4160.0 / 4096.0;
    for fidelity in ["flow", "packet"] {
        let (switches, ring) = (of(fidelity, "in_network"), of(fidelity, "ring"));
        assert!(
            (switches / vector - 1.0).abs() < 0.01,
            "{fidelity}: {switches} s, one vector takes {vector} s"
        );
        assert!(
            (ring / switches / (2.0 * 15.0 / 16.0) - 1.0).abs() < 0.03,
            "{fidelity}: ring {ring}, {switches}"
        );
    }
    assert!((of("packet", "in_network") / of("flow", "in_network") - 1.0).abs() < 0.03);
    // Without packets: one message of the vector between the two members furthest apart.
    let message = of("message", "in_network");
    assert!((message / vector - 1.0).abs() < 0.01, "{message}");
}

/// Rings inside hosts of 4 GPUs leave each the sum of a quarter; a quarter goes by each NIC.
#[test]
fn hosts_sum_inside_first() {
    let host = "{gpus: 4, nics: 4, rails: true, scale_up: {rate: 3200 Gbps}}";
    for fidelity in ["flow", "packet"] {
        let found = time(scenario(
            fidelity,
            &CLOS.replace("hosts: 16", "hosts: 8"),
            host,
            NETWORK,
            "in_network",
            "64 MB",
        ));
        let inside = 2.0 * 3.0 / 4.0 * 64e6 * 8.0 / 3200e9;
        let between = 16e6 * 8.0 / 400e9 * 4160.0 / 4096.0;
        assert!(
            (found / (inside + between) - 1.0).abs() < 0.02,
            "{fidelity}: {found} s, {inside} + {between}"
        );
    }
}

/// NVLS inside a domain of 8: 9/8 of a vector over each link.
#[test]
fn switches_of_a_domain_sum_too() {
    let one = "shape: clos, hosts: 2, tiers: [{ports_down: 16, rate: 400 Gbps}]";
    let host = |more: &str| format!("{{gpus: 8, nics: 8, scale_up: {{rate: 3200 Gbps{more}}}}}");
    for fidelity in ["flow", "packet"] {
        let text = |more: &str| {
            scenario(fidelity, one, &host(more), "", "in_network", "64 MB")
                .replace("bytes: 64 MB", "bytes: 64 MB, ranks: 8")
        };
        let found = time(text(", reduction: true"));
        let expected = 64e6 * 9.0 / 8.0 * 8.0 / 3200e9;
        assert!((found / expected - 1.0).abs() < 0.01, "{fidelity}: {found} s, expected {expected} s");
        let error = summary(text("")).expect_err("nothing says that they can");
        assert!(
            error.contains("topology.host.scale_up.reduction") && error.contains("do not sum"),
            "{error}"
        );
    }
}

#[test]
fn threads_and_partitions_cannot_be_seen() {
    let network = format!("{NETWORK}, parallel: {{processes: 3, zeta: 10 ns}}");
    let text =
        scenario("packet", CLOS, "{gpus: 1, nics: 1, nic: ConnectX-7}", &network, "in_network", "2 MB");
    let difference = compare_events(&request(text), [1, 2]).unwrap_or_else(|_| panic!("a run"));
    assert_eq!(difference, None);
}

#[test]
fn fabrics_without_switches_that_sum_are_refused() {
    let torus = "shape: torus, dimensions: [{size: 4, rate: 400 Gbps}, {size: 4, rate: 400 Gbps}], \
                 nic_link: {rate: 400 Gbps}";
    let cases = [
        (CLOS, "", "network.reduction: job `job` has an all-reduce by `in_network`, but switches do not sum"),
        (
            torus,
            "reduction: {}",
            "topology.shape: job `job` has an all-reduce by `in_network`, which needs a tree",
        ),
        (CLOS, "reduction: {slots: 2}", "2 slots leave none for each of 4 reductions"),
        (CLOS, "reduction: {operations: 0}", "expected at least 1 reduction at once, found 0"),
    ];
    for (topology, network, expected) in cases {
        for fidelity in ["flow", "packet"] {
            let error = summary(scenario(fidelity, topology, LONE, network, "in_network", "1 MB"));
            let error = error.expect_err(network);
            assert!(error.contains(expected), "{error}");
        }
    }
    let text =
        scenario("flow", CLOS, LONE, NETWORK, "in_network", "1 MB").replace("all_reduce", "all_gather");
    let error = summary(text).expect_err("not an all-reduce");
    assert!(error.contains("`in_network` does not compute all-gather"), "{error}");
}

/// A longer time-out shows where silence alone tells of a loss.
#[test]
fn the_least_time_out_can_be_set() {
    let of = |timeout: &str| {
        let network = format!("transport: dctcp, buffers: [{{size: 60 KB}}]{timeout}");
        let text = scenario("packet", CLOS, LONE, &network, "ring", "1 MB");
        time(text.replace(
            "collective: {kind: all_reduce, algorithm: ring, bytes: 1 MB}",
            "flows: {pattern: incast, bytes: 1 MB}",
        ))
    };
    let (short, long) = (of(", timeout: 200 us"), of(", timeout: 67 ms"));
    assert!(short < 0.01 && long > 0.067, "{short} s and {long} s");
    let error = |network: &str| {
        summary(scenario("packet", CLOS, LONE, network, "ring", "1 MB")).expect_err("bad input")
    };
    assert!(error("timeout: 0 us").contains("network.timeout: expected more than 0"));
    assert!(error("parallel: {processes: 0}").contains("network.parallel.processes: expected at least 1"));
}
