//! A wrong value under `network:`, of what packets alone meet and of what shows them, is told at every fidelity and by
//! `--explain`, in the same words.

use windtunnel_scenario::api::{RunRequest, explain, run};
use windtunnel_scenario::error::Failure;
use windtunnel_scenario::table::Discard;

const SCENARIO: &str = "
windtunnel: 1
name: keys
fidelity: packet
topology:
  shape: clos
  hosts: 8
  tiers:
    - {ports_down: 4, rate: 400 Gbps, length: 5 m}
    - {ports_down: 4, rate: 400 Gbps, length: 50 m}
  host: {gpus: 1, nics: 1}
jobs: [{name: a, workload: {flows: {pattern: ring, bytes: 64 KiB, ranks: 8}}}]
";

/// The four fidelities.
const ALL: [&str; 4] = ["job", "message", "flow", "packet"];

fn request(fidelity: &str, network: &str) -> RunRequest {
    with(fidelity, "network", network)
}

fn with(fidelity: &str, key: &str, value: &str) -> RunRequest {
    RunRequest {
        text: SCENARIO.to_owned(),
        source: "a.yaml".to_owned(),
        overrides: vec![(key.to_owned(), value.to_owned())],
        fidelity: Some(fidelity.to_owned()),
        ..RunRequest::default()
    }
}

fn ran(request: &RunRequest) -> Result<String, Failure> {
    run(request, &mut Discard, &mut Discard)
}

/// What is wrong, and a part of what is said of it.
const WRONG: [(&str, &str); 66] = [
    ("{transport: dctpc}", "network.transport: no transport `dctpc`"),
    ("{transport: uec, parameters: {gain: 1}}", "network.parameters.gain: `uec` has no such parameter"),
    ("{transport: dctcp, parameters: {g: 16}}", "network.parameters.g: expected a number above 0"),
    ("{transport: swift, parameters: {fs_min_window: 200}}", "expected less than `fs_max_window`"),
    ("{transport: dcqcn, parameters: {cnp_interval: 50}}", "expected a time with a unit"),
    ("{transport: none, parameters: {window: 1}}", "`none` has no such parameter"),
    ("{transport: ndp}", "transport `ndp` needs `trimming`"),
    ("{transport: hpcc}", "transport `hpcc` needs `telemetry`"),
    ("{transport: dctcp, ack_every: 0}", "`ack_every` is 0"),
    ("{transport: dctcp, window: 64 KB}", "network.window: `dctcp` sets its own window"),
    ("{transport: none, window: 64 KB, ack_every: 0}", "`ack_every` is 0"),
    ("{transport: dctcp, recovery: none, ack_every: 0}", "`ack_every` is 0"),
    ("{congestion: dctpc}", "network.congestion: no congestion law `dctpc`"),
    ("{congestion: uec}", "network.congestion: no congestion law `uec`"),
    ("{congestion: ndp}", "transport `ndp` needs `trimming`"),
    ("{transport: uec, congestion: hpcc}", "transport `hpcc` needs `telemetry`"),
    ("{transport: eqds, recovery: go_back_n}", "network.recovery: `eqds` sends what its receiver grants"),
    ("{congestion: rccc, recovery: none}", "network.recovery: `rccc` sends what its receiver grants"),
    ("{transport: dcqcn, congestion: eqds}", "network.recovery: `eqds` sends what its receiver grants"),
    ("{recovery: {selective: {reorder: 0}}}", "network.recovery.selective.reorder: expected a whole number"),
    (
        "{recovery: rack, parameters: {reorder: 3}}",
        "network.parameters.reorder: expected `recovery: selective`",
    ),
    (
        "{recovery: {selective: {reorder: 3}}, parameters: {reorder: 3}}",
        "network.parameters.reorder: expected `recovery: selective`",
    ),
    ("{timeout: 0 us}", "network.timeout: expected more than 0"),
    ("{queue_pairs: 0}", "`queue_pairs` is 0"),
    ("{in_flight: 0}", "`in_flight` is 0"),
    ("{load_balancer: spray, paths: 3}", "`paths` is 3"),
    ("{load_balancer: reps, paths: 0}", "`paths` is 0"),
    ("{load_balancer: spray, paths: 131072}", "`paths` is 131072"),
    ("{parallel: {processes: 0}}", "network.parallel.processes: expected at least 1"),
    ("{mtu: 60 B, header: 66 B}", "network.mtu: `mtu` (60 B) must exceed `header` (66 B)"),
    ("{mtu: 66 B, header: 66 B}", "network.mtu: `mtu` (66 B) must exceed `header` (66 B)"),
    ("{mtu: 70 KB}", "`mtu` is 70000 B"),
    ("{control: 0 B}", "`control` is 0 B"),
    ("{ecn: {kmin: 2 MB, kmax: 1 MB}}", "`ecn.kmin` is 2000000 B"),
    ("{ecn: {rate: 0 Gbps}}", "`ecn.rate` is 0 bps"),
    ("{ecn: {pmax: 2}}", "`ecn.pmax` is 2"),
    ("{trimming: {queue: 4000 B}}", "`trimming.queue` is 4000 B"),
    ("{buffers: [{size: 64 KB, reserve: 64 KB}]}", "`buffers[0]` reserves 64000 B for each of 8 ports"),
    ("{buffers: [{size: 64 MB, alpha: 0}]}", "`buffers.alpha` is 0"),
    ("{pfc: {xoff: 100 KB, alpha: 1}}", "network.pfc.alpha: expected `xoff` or `alpha`, found both"),
    ("{pfc: {xon: 1 KB, xon_offset: 1 KB}}", "network.pfc.xon_offset: expected `xon` or `xon_offset`"),
    ("{pfc: {xoff: 4000 B}}", "`pfc.xoff` is 4000 B, expected at least `mtu`"),
    ("{pfc: {xoff: 50 KB, xon: 60 KB}}", "`pfc.xon` is 60000 B"),
    ("{pfc: {xoff: 50 KB, xon_offset: 60 KB}}", "`pfc.xon_offset` is 60000 B"),
    ("{pfc: {xoff: 80 MB}, buffers: [{size: 64 MB}]}", "`pfc.xoff` is 80000000 B, expected at most"),
    ("{pfc: {headroom: 32 MB}, buffers: [{size: 64 MB}]}", "`buffers[0]` keeps"),
    ("{pfc: {frame: 0 B}}", "`pfc.frame` is 0 B"),
    ("{pfc: {}, queues: [{name: a, lossless: false}]}", "no queue is lossless"),
    ("{queues: [{name: a, weight: 0}]}", "`queues[0].weight` is 0"),
    ("{queues: [{name: a, rate: 0 Gbps}]}", "`queues[0].rate` is 0 bps"),
    ("{queues: [{name: a, burst: 9 KB}]}", "network.queues[0].burst: a `burst` needs a `rate`"),
    ("{queues: [{name: a, rate: 1 Gbps, burst: 1 KB}]}", "`queues[0].burst` is 1000 B"),
    ("{queues: [{name: a, classes: [dp]}, {name: b, classes: [dp]}]}", "queue `a` takes this traffic"),
    ("{queues: [{name: a, red: {kmin: 2 KB, kmax: 4000 B, rate: 400 Gbps}}]}", "`queues[0].red.kmax`"),
    ("{queues: [{name: a, red: {kmin: 2 MB, kmax: 1 MB, rate: 400 Gbps}}]}", "`kmin` is 2000000 B"),
    ("{queues: [{name: a, meter: {cir: 0 Gbps, cbs: 9 KB, ebs: 9 KB}}]}", "`queues[0].meter.cir` is 0"),
    ("{queues: [{name: a, meter: {cir: 2 Gbps, cbs: 9 KB, pir: 1 Gbps, pbs: 9 KB}}]}", "meter.pir"),
    ("{queues: [{name: a, meter: {cir: 2 Gbps, cbs: 9 KB, pir: 3 Gbps}}]}", "expected `ebs`, or `pir`"),
    ("{colors: {dp: red}}", "network.colors: `colors` are for `queues`"),
    ("{nic_pull: wrr}", "network.nic_pull: NICs go by `queues`"),
    ("{path_chooser: {name: mine}}", "network.path_chooser: no path chooser `mine`"),
    ("{stage: {name: mine}}", "network.stage: no stage of switches `mine`"),
    ("{reduction: {operations: 0}}", "network.reduction.operations: expected at least 1"),
    ("{loggops: {L: 1 us, o: 1 us, g: 1 us, G: -1, S: 1 KB}}", "network.loggops.G: expected nanoseconds"),
    ("{loggops: {L: 1 us, o: 1 us, g: 1 us, G: 0, O: 1.0e+10, S: 1 KB}}", "network.loggops.O: expected"),
    ("{routes: [{from: host0/nic9, to: host7/nic0, via: [leaf0]}]}", "network.routes[0].from: no NIC"),
];

/// The same of what needs packets: the key, its value, and a part of what is said of it.
const WRONG_OF_PACKETS: [(&str, &str, &str); 12] = [
    ("impairments", "{loss: [{on: all, rate: 2}]}", "impairments.loss[0].rate: expected a share"),
    ("impairments", "{loss: [{on: leaf9, rate: 0.1}]}", "impairments.loss[0].on: "),
    (
        "impairments",
        "{loss: [{on: all, rate: 0.1, burst: 0}]}",
        "impairments.loss[0].burst: expected at least",
    ),
    ("impairments", "{bit_errors: [{on: all, rate: 2}]}", "impairments.bit_errors[0].rate: expected a share"),
    ("impairments", "{down: [{part: leaf9, at: 1 us}]}", "impairments.down[0].part: "),
    (
        "impairments",
        "{slow: [{part: leaf0, at: 1 us, rate: 0}]}",
        "impairments.slow[0].rate: expected a part",
    ),
    ("impairments", "{background: [{load: 2, bytes: 1 KB}]}", "impairments.background[0].load: expected"),
    (
        "results",
        "{queue_pairs: {every: 1 us, pairs: []}}",
        "results.queue_pairs.pairs: expected at least one",
    ),
    (
        "results",
        "{queue_pairs: {every: 1 ps, pairs: [{from: host0/nic0, to: host1/nic0}]}}",
        "results.queue_pairs.every: too short",
    ),
    (
        "results",
        "{packets: {pairs: [{from: host0/nic9, to: host1/nic0}]}}",
        "results.packets.pairs[0].from: no NIC `host0/nic9`",
    ),
    ("results", "{packets: {on: all, limit: 0}}", "results.packets.limit: expected at least 1"),
    ("results", "{packets: {limit: 9}}", "results.packets: expected `pairs` or `on`"),
];

#[test]
fn a_wrong_value_is_told_in_the_same_words_at_every_fidelity() {
    let network = WRONG.map(|(value, said)| ("network", value, said));
    for (key, value, said) in network.into_iter().chain(WRONG_OF_PACKETS) {
        let mut texts: Vec<(String, String)> = Vec::new();
        for fidelity in ALL {
            let request = with(fidelity, key, value);
            for (how, result) in [("run", ran(&request)), ("--explain", explain(&request))] {
                match result {
                    Err(Failure::Input(error)) => {
                        texts.push((format!("{fidelity} {how}"), error.to_string()));
                    }
                    other => panic!("{value} at {fidelity}, {how}: expected bad input, found {other:?}"),
                }
            }
        }
        let (_, first) = &texts[0];
        assert!(first.contains(said), "{value}: {first}");
        for (at, text) in &texts {
            assert_eq!(text, first, "{value} at {at}");
        }
    }
}

/// The same scenario with what is right in place of what is wrong runs everywhere.
#[test]
fn what_is_right_runs_at_every_fidelity() {
    for network in [
        "{}",
        "{transport: uec, parameters: {max_window: 2}, load_balancer: spray, paths: 128}",
        "{transport: none, window: 64 KB, ack_every: 1}",
        "{transport: none, ack_every: 0}",
        "{congestion: nscc, recovery: rack, load_balancer: spray}",
        "{transport: uec, congestion: dctcp, trimming: {queue: 64 KB}, load_balancer: spray}",
        "{congestion: swift, recovery: {selective: {reorder: 16}}}",
        "{congestion: cubic, recovery: none}",
        "{transport: eqds, recovery: selective, parameters: {reorder: 64}}",
        "{transport: ndp, trimming: {queue: 64 KB}}",
        "{transport: hpcc, telemetry: true}",
        "{pfc: {}, queues: [{name: a}], buffers: [{size: 64 MB}]}",
        "{loggops: {L: 1 us, o: 1 us, g: 1 us, G: 0.02, S: 1 MB}}",
        "{queues: [{name: a, meter: {cir: 300 Gbps, cbs: 9 KB, pir: 400 Gbps, pbs: 9 KB}}]}",
    ] {
        for fidelity in ALL {
            let done = ran(&request(fidelity, network));
            assert!(done.is_ok(), "{network} at {fidelity}: {done:?}");
        }
    }
}

/// What one fidelity cannot do is told by that one alone: packets take real paths, and hosts choose them for packets.
#[test]
fn what_a_fidelity_cannot_do_is_refused_there() {
    let refused = |fidelity: &str, network: &str| ran(&request(fidelity, network)).is_err();
    let ideal = ALL.map(|fidelity| refused(fidelity, "{load_balancer: ideal}"));
    assert_eq!(ideal, [false, false, false, true]);
    let route = "{routes: [{from: host0/nic0, to: host7/nic0, via: [leaf0, spine0, leaf1]}]}";
    assert_eq!(ALL.map(|fidelity| refused(fidelity, route)), [true, true, true, false]);
    for (key, value) in [
        ("impairments", "{loss: [{on: all, rate: 0.001}]}"),
        ("results", "{packets: {on: all, limit: 9}}"),
        ("results", "{queue_pairs: {every: 1 us, pairs: [{from: host0/nic0, to: host1/nic0}]}}"),
    ] {
        let refused = ALL.map(|fidelity| match ran(&with(fidelity, key, value)) {
            Ok(_) => false,
            Err(error) => format!("{error:?}").contains("needs packets"),
        });
        assert_eq!(refused, [true, true, true, false], "{value}");
    }
}

/// The packet model rests on its buffers and transport; no other fidelity claims to.
#[test]
fn packets_alone_rest_on_buffers_and_transports() {
    for fidelity in ALL {
        let text = explain(&request(fidelity, "{pfc: {}}")).expect("a scenario that runs");
        assert_eq!(text.contains("transport dctcp"), fidelity == "packet", "{fidelity}: {text}");
        assert_eq!(text.contains(": buffer"), fidelity == "packet", "{fidelity}: {text}");
    }
}

/// Which recovery a run rests on, by the names of law and transport and the paths that packets take.
#[test]
fn recovery_goes_with_the_transport_and_its_paths() {
    let rests_on = |network: &str| {
        let summary = ran(&request("packet", network)).expect("a run");
        let summary: serde_json::Value = serde_json::from_str(&summary).expect("a summary");
        let rows = summary["evidence"].as_array().expect("rows").iter();
        let names = rows.filter_map(|row| row["constant"].as_str());
        let of = |what: &str| names.clone().find_map(|name| name.strip_prefix(what).map(str::to_owned));
        (of("transport ").expect("a transport"), of("recovery ").expect("a recovery"))
    };
    for (network, law, recovery) in [
        ("{}", "dctcp", "selective, 3 packets show a loss"),
        ("{load_balancer: spray}", "dctcp", "by time (RACK)"),
        ("{transport: dcqcn}", "dcqcn", "go-back-N"),
        ("{transport: dcqcn, load_balancer: adaptive}", "dcqcn", "by time (RACK)"),
        ("{transport: dcqcn, load_balancer: spray, recovery: go_back_n}", "dcqcn", "go-back-N"),
        ("{transport: hpcc, telemetry: true, load_balancer: reps}", "hpcc", "by time (RACK)"),
        ("{transport: swift, load_balancer: flowlet}", "swift", "selective, 3 packets show a loss"),
        ("{transport: cubic}", "cubic", "by time (RACK)"),
        ("{transport: newreno, parameters: {reorder: 5}}", "newreno", "selective, 5 packets show a loss"),
        ("{transport: newreno, recovery: selective}", "newreno", "selective, 3 packets show a loss"),
        ("{transport: mprdma}", "mprdma", "selective, 64 packets show a loss"),
        ("{transport: mprdma, load_balancer: spray}", "mprdma", "by time (RACK)"),
        ("{transport: mprdma, recovery: selective}", "mprdma", "selective, 64 packets show a loss"),
        ("{transport: uec, load_balancer: spray}", "uec", "by NACKs and time-outs"),
        ("{transport: uec, congestion: dctcp, load_balancer: spray}", "dctcp", "by NACKs and time-outs"),
        ("{transport: dcqcn, congestion: swift}", "swift", "go-back-N"),
        ("{congestion: nscc}", "uec", "by NACKs and time-outs"),
        (
            "{transport: dctcp, load_balancer: spray, recovery: selective}",
            "dctcp",
            "selective, 64 packets show a loss",
        ),
        (
            "{congestion: dctcp, recovery: {selective: {reorder: 9}}}",
            "dctcp",
            "selective, 9 packets show a loss",
        ),
    ] {
        assert_eq!(rests_on(network), (law.to_owned(), recovery.to_owned()), "{network}");
    }
}
