//! Packet fidelity runs what flow fidelity runs, and where nothing is congested they agree within 3%.

use serde_json::Value;
use windtunnel_scenario::api::{RunRequest, compare_events, run};
use windtunnel_scenario::error::Failure;
use windtunnel_scenario::table::Discard;

fn scenario(fidelity: &str, network: &str, host: &str, workload: &str) -> String {
    format!(
        "
windtunnel: 1
name: packets
seed: 1
fidelity: {fidelity}
topology:
  shape: clos
  hosts: 8
  tiers:
    - {{ports_down: 4, rate: 400 Gbps, length: 20 m}}
    - {{ports_down: 8, rate: 400 Gbps, length: 50 m}}
  host: {host}
network: {{{network}}}
jobs:
  - name: job
    workload: {{{workload}}}
"
    )
}

fn summary(text: String) -> Result<Value, String> {
    let request = RunRequest { text, source: "packets.yaml".to_owned(), ..RunRequest::default() };
    let summary = run(&request, &mut Discard, &mut Discard).map_err(|failure| match failure {
        Failure::Input(error) => error.to_string(),
        Failure::Run(_, message) => message,
        Failure::Cluster(error) => error.to_string(),
    })?;
    serde_json::from_str(&summary).map_err(|error| error.to_string())
}

fn iteration(fidelity: &str, network: &str, host: &str, workload: &str) -> f64 {
    let summary = summary(scenario(fidelity, network, host, workload)).expect("a run");
    summary["jobs"][0]["iteration_time_s"]["mean"].as_f64().expect("an iteration")
}

const LONE: &str = "{gpus: 1, nics: 1}";

/// What a collective of `bytes` takes in packets against flows, as a part more, both by steps: a coupled group of flows
/// pays its slowest edge's latency at every step.
fn against_flow(kind: &str, host: &str, packets: &str, flows: &str, bytes: &str) -> f64 {
    let workload = format!("collective: {{kind: {kind}, form: steps, bytes: {bytes}}}");
    iteration("packet", packets, host, &workload) / iteration("flow", flows, host, &workload) - 1.0
}

const COLLECTIVES: [&str; 6] = [
    "all_reduce, algorithm: ring",
    "all_reduce, algorithm: recursive",
    "all_gather, algorithm: ring",
    "reduce_scatter, algorithm: ring",
    "reduce_scatter, algorithm: recursive",
    "all_to_all, algorithm: pairwise",
];

/// Every case of `networks` and `sizes` agrees within `limit`.
fn agree(networks: &[&str], flows: &str, sizes: &[&str], limit: f64) {
    for kind in COLLECTIVES {
        for network in networks {
            for bytes in sizes {
                let more = against_flow(kind, LONE, network, flows, bytes);
                assert!(more.abs() < limit, "{kind}, {network}, {bytes}: {:+.2}%", more * 100.0);
            }
        }
    }
}

/// One flow per path: D-mod-k gives each destination its own uplink. What packets take longer is the time of one at each
/// switch, and a window that grows.
#[test]
fn uncongested_collectives_take_as_long_as_flows() {
    let path = "load_balancer: destination_modulo";
    let network = |more: &str| format!("{path}, {more}");
    let fixed = [network("transport: none"), network("transport: uec"), network("transport: dcqcn")];
    agree(&fixed.each_ref().map(String::as_str), path, &["8 MiB", "64 MiB"], 0.03);
    agree(&[&network("transport: dctcp")], path, &["32 MiB"], 0.03);
}

/// Without a packet's time at each switch they agree whatever the size: what is left are acknowledgements.
#[test]
fn packets_that_cut_through_take_as_long_as_fluids() {
    let path = "load_balancer: destination_modulo";
    let network = format!("{path}, transport: uec, forwarding: cut_through");
    agree(&[&network], path, &["1 MiB", "16 MiB"], 0.005);
}

/// Sprayed packets fill hashed paths alike if messages are long: the share of a path is a draw.
#[test]
fn sprayed_packets_take_as_long_as_sprayed_fluids() {
    let flows = "load_balancer: spray";
    agree(&["load_balancer: spray, paths: 65536, transport: none"], flows, &["128 MiB"], 0.03);
}

/// Inside hosts of four GPUs, and between them one NIC each.
#[test]
fn hosts_with_scale_up_domains_agree_too() {
    let host = "{gpus: 4, nics: 4}";
    for network in ["transport: none", "transport: dctcp", "transport: uec, load_balancer: spray"] {
        let more = against_flow(COLLECTIVES[0], host, network, "load_balancer: spray", "64 MiB");
        assert!(more.abs() < 0.03, "{network}: {:+.2}%", more * 100.0);
    }
}

#[test]
fn what_packets_did_is_in_the_summary() {
    let workload = "flows: {pattern: incast, bytes: 4 MB}";
    let summary = summary(scenario("packet", "transport: dctcp, buffers: [{size: 2 MB}]", LONE, workload));
    let summary = summary.expect("a run");
    let network = &summary["network"];
    let count = |value: &Value| value.as_u64().expect("a count");
    // 7 messages of 4,000,000 B in packets of 4,084 B payload.
    let packets = 7 * 4_000_000u64.div_ceil(4_084);
    let again = count(&network["retransmissions"]);
    assert!(count(&network["packets_delivered"]) >= packets);
    assert!(again >= count(&network["packets_dropped"]));
    assert!(count(&network["ecn_marked"]) > 0 && network["mean_queueing_delay_s"].as_f64() > Some(0.0));
    assert_eq!(count(&network["bytes_delivered"]), 28_000_000);
    // Two links to a host on the same leaf, four to another: three of the seven are near.
    let hops = packets / 7 * (3 * 2 + 4 * 4);
    assert!(count(&summary["data_packet_hops"]) >= hops, "{summary}");
    assert!(count(&summary["packet_hops"]) > count(&summary["data_packet_hops"]));
    assert_eq!(network["links_most_loaded"][0]["tier"], "nic-down");
}

#[test]
fn settings_that_cannot_work_are_refused_with_their_place() {
    let workload = "flows: {pattern: permutation, bytes: 1 MB}";
    for (network, expected) in [
        ("transport: dctpc", "no transport `dctpc`\n\nhint: did you mean `dctcp`?"),
        ("load_balancer: ideal", "`ideal` shares no path"),
        ("ecn: {kmin: 2 MB, kmax: 1 MB}", "`ecn.kmin` is 2000000 B"),
        ("ack_every: 0", "needs acknowledgements"),
        ("buffers: [{size: 1 MB, reserve: 200 KB}]", "reserves 200000 B for each of"),
        ("buffers: [{size: 1 MB, alpha: 0}]", "`buffers.alpha` is 0"),
        ("load_balancer: spray, paths: 48", "expected a power of two"),
        ("mtu: 100 KB", "`mtu` is 100000 B"),
        ("queue_pairs: 0", "`queue_pairs` is 0"),
    ] {
        let error = summary(scenario("packet", network, LONE, workload)).expect_err(network);
        assert!(error.contains("network") && error.contains(expected), "{network}: {error}");
    }
}

/// Queue pairs spread a message over paths that one would crowd.
#[test]
fn queue_pairs_spread_messages() {
    let workload = "flows: {pattern: permutation, bytes: 16 MB}";
    let of =
        |pairs: u32| iteration("packet", &format!("transport: dctcp, queue_pairs: {pairs}"), LONE, workload);
    let (one, many) = (of(1), of(16));
    assert!(many < one, "{many} against {one}");
}

/// What has failed is gone around, by queue pairs with one path and by packets with many; what nothing joins is named.
#[test]
fn packets_go_around_what_has_failed() {
    let text = |fidelity: &str, network: &str, failed: &str| {
        scenario(fidelity, network, "{gpus: 1, nics: 1}", "flows: {pattern: all-to-all, bytes: 1 MB}")
            .replace("  host:", &format!("  planes: 2\n  failed: [{failed}]\n  host:"))
    };
    let dead = "plane0/spine0, plane1/leaf0 -> plane1/spine1";
    for network in ["transport: none", "transport: none, load_balancer: spray", "transport: dctcp"] {
        let packet = summary(text("packet", network, dead)).expect("a run");
        assert_eq!(packet["network"]["bytes_delivered"], 56_000_000, "{network}");
        assert_eq!(packet["network"]["packets_dropped"], 0, "{network}");
        let names: Vec<&str> = packet["network"]["links_most_loaded"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|link| link["name"].as_str())
            .collect();
        assert!(!names.iter().any(|name| name.contains("plane0/spine0")), "{names:?}");
    }
    let cut = "plane0/leaf0, plane1/leaf0";
    let error = summary(text("packet", "transport: none", cut)).expect_err("nothing joins leaf0");
    let flow = summary(text("flow", "transport: none", cut)).expect_err("nothing joins leaf0");
    assert_eq!(error, flow);
}

/// Threads cannot be seen in the events, and the figures of a run do not tell them either.
#[test]
fn threads_make_no_difference() {
    let workload = "collective: {kind: all_to_all, algorithm: pairwise, form: steps, bytes: 4 MB}";
    for network in ["load_balancer: spray", "transport: dcqcn, ecn: {kmin: 20 KB, kmax: 60 KB}"] {
        let text = scenario("packet", network, LONE, workload);
        let request = |threads| RunRequest {
            text: text.clone(),
            source: "packets.yaml".to_owned(),
            threads: Some(threads),
            ..RunRequest::default()
        };
        let difference = compare_events(&request(1), [1, 3]).unwrap_or_else(|_| panic!("{network}: a run"));
        assert_eq!(difference, None, "{network}");
        let figures = |threads| {
            let text = run(&request(threads), &mut Discard, &mut Discard).unwrap_or_else(|_| panic!("a run"));
            let mut summary: Value = serde_json::from_str(&text).expect("JSON");
            let figures = summary.as_object_mut().expect("an object");
            for machine in ["wall_time_s", "cpu_time_s", "peak_memory_bytes", "peak_rss_bytes"] {
                figures.remove(machine);
            }
            summary
        };
        assert_eq!(figures(1), figures(2), "{network}");
    }
}

/// A link is used for what it carries of what it could in the simulated time, whatever the network does behind the jobs' end.
#[test]
fn links_are_used_for_what_they_carry_over_the_simulated_time() {
    let transports = ["none", "uec", "dctcp", "dcqcn", "swift", "newreno", "mprdma", "rccc"];
    let networks = transports.map(|transport| ("packet", format!("transport: {transport}"), 0.2));
    let lossy = ("packet", "transport: dctcp, buffers: [{size: 200 KB}]".to_owned(), 0.0);
    for (fidelity, network, least) in [("flow", String::new(), 0.2), lossy].into_iter().chain(networks) {
        for pattern in ["ring", "incast"] {
            let workload = format!("flows: {{pattern: {pattern}, bytes: 1 MiB}}");
            let summary = summary(scenario(fidelity, &network, LONE, &workload)).expect("a run");
            let said = format!("{fidelity}, {network}, {pattern}: {}", summary["network"]);
            let seconds = summary["simulated_time_s"].as_f64().expect("a time");
            let links = summary["network"]["links_most_loaded"].as_array().expect("links");
            for link in links {
                let [bytes, used] = ["bytes", "utilisation"].map(|key| link[key].as_f64().expect("a figure"));
                // All links have one rate; the time is rounded up to a nanosecond.
                assert!((used / (bytes * 8.0 / (400e9 * seconds)) - 1.0).abs() < 1e-4, "{said}");
                assert!(used <= 1.0, "{said}");
            }
            // Timers that nobody waits for run for a millisecond, and these jobs for tens of microseconds.
            assert!(links[0]["utilisation"].as_f64() > Some(least), "{said}");
        }
    }
}

/// A NIC's cable that is out from the start costs a ring over all planes what the other planes lack, and no more: whoever sends by it
/// hears nothing, and takes the others.
#[test]
fn a_cable_out_from_the_start_ends_no_ring_over_planes() {
    let text = |failed: &str| {
        format!(
            "
windtunnel: 1
name: planes
fidelity: packet
topology:
  shape: clos
  hosts: 4
  planes: 2
  tiers: [{{ports_down: 2, rate: 800 Gbps, length: 20 m}}, {{ports_down: 4, rate: 100 Gbps, length: 50 m}}]
  host: {{gpus: 1, nics: 1}}
  failed: [{failed}]
network: {{transport: mrc, load_balancer: source}}
jobs:
  - {{name: ring, workload: {{collective: {{kind: all_reduce, algorithm: ring, bytes: 64 KiB}}}}}}
"
        )
    };
    let took = |failed: &str| {
        let summary = summary(text(failed)).expect("a run");
        summary["jobs"][0]["iteration_time_s"]["mean"].as_f64().expect("an iteration")
    };
    let (whole, broken) = (took(""), took("host2/nic0 -> plane1/leaf1"));
    assert!(whole < broken && broken < 20.0 * whole, "{whole} {broken}");
}
