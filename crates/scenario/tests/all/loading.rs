//! Jobs that load their data over the fabric: closed forms, shared storage hosts, a job at work beside, and what is counted.

use std::path::Path;

use serde_json::Value;
use windtunnel_scenario::api::{self, RunRequest};
use windtunnel_scenario::table::Discard;

fn request(text: &str, overrides: &[(&str, &str)], full: bool) -> RunRequest {
    RunRequest {
        text: text.to_owned(),
        source: "a.yaml".to_owned(),
        base: Path::new(".").to_owned(),
        overrides: overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        full,
        ..RunRequest::default()
    }
}

fn run(text: &str, overrides: &[(&str, &str)], full: bool) -> Value {
    match api::run(&request(text, overrides, full), &mut Discard, &mut Discard) {
        Ok(summary) => serde_json::from_str(&summary).expect("a summary is JSON"),
        Err(api::Failure::Input(error)) => panic!("{error}"),
        Err(api::Failure::Run(_, message)) => panic!("{message}"),
        Err(api::Failure::Cluster(error)) => panic!("{error}"),
    }
}

fn refused(text: &str, overrides: &[(&str, &str)]) -> String {
    match api::run(&request(text, overrides, false), &mut Discard, &mut Discard) {
        Ok(_) => panic!("it runs"),
        Err(api::Failure::Input(error)) => error.to_string(),
        Err(api::Failure::Run(_, message)) => message,
        Err(api::Failure::Cluster(error)) => error.to_string(),
    }
}

/// Hosts of one GPU and one NIC on one leaf, the last two with data.
fn cluster(fidelity: &str, jobs: &str) -> String {
    format!(
        "windtunnel: 1\nname: loading\nseed: 3\nfidelity: {fidelity}\ntopology:\n  shape: clos\n  hosts: 8\n  tiers:\n    - \
         {{ports_down: 8, rate: 100 Gbps, length: 20 m}}\n  host: {{gpu: H100-SXM, gpus: 1, nics: 1, nic: \
         ConnectX-5}}\nnetwork: {{mtu: 4096 B, header: 66 B, transport: none}}\ncluster:\n  episodes: {{phase: aligned}}\n  storage: \
         {{hosts: [host6, host7], request: 4030 KB}}\nresults: {{operations: none, flows: none}}\njobs:\n{jobs}"
    )
}

/// Payload of so many packets of 4,030 B, in MB of a request of 1,000 packets.
fn job(name: &str, ranks: u32, from: &str, requests: u32, iterations: u32) -> String {
    format!(
        "  - {{name: {name}, workload: {{collective: {{kind: all_reduce, algorithm: ring, bytes: 4030 KB, ranks: {ranks}}}}}, iterations: \
         {iterations}, data: {{bytes: {} KB, from: [{from}]}}}}\n",
        4030 * requests * ranks
    )
}

/// Seconds that so many requests of 1,000 packets of 4,096 B take at 100 Gbps.
fn wire(requests: f64) -> f64 {
    requests * 1_000.0 * 4_096.0 * 8.0 / 100e9
}

fn loading(summary: &Value) -> f64 {
    summary["cluster"]["busy_gpu_seconds"]["loading"].as_f64().expect("a number")
}

fn sums_are_exact(summary: &Value, gpus: f64) {
    let cluster = &summary["cluster"];
    let of = |group: &str, part: &str| cluster[group][part].as_f64().expect("a number");
    let all = ["busy", "idle", "stranded", "failed", "draining"];
    let sum: f64 = all.iter().map(|part| of("gpu_seconds", part)).sum();
    let makespan = cluster["makespan_s"].as_f64().expect("a number");
    assert!((sum - gpus * makespan).abs() < 1e-9, "{cluster}");
    let parts = ["work", "loading", "checkpoint", "restart", "lost"];
    let busy: f64 = parts.iter().map(|part| of("busy_gpu_seconds", part)).sum();
    assert!((busy - of("gpu_seconds", "busy")).abs() < 1e-9, "{cluster}");
}

/// From the last byte's leaving its NIC to its arrival.
fn latency(summary: &Value) -> f64 {
    loading(summary) - wire(100.0)
}

#[test]
fn a_load_takes_its_bytes_over_its_bottleneck() {
    let one = cluster("flow", &job("a", 1, "host6", 100, 2));
    let summary = run(&one, &[], false);
    // Two cables of 20 m, a switch and what hosts add: some microseconds beyond what the wire takes.
    let beyond = latency(&summary);
    assert!((0.0..5e-6).contains(&beyond), "{beyond}");
    sums_are_exact(&summary, 6.0);
    // As long again for twice the bytes, to the picosecond by which the calendar rounds up to a nanosecond.
    let twice = run(&cluster("flow", &job("a", 1, "host6", 200, 2)), &[], false);
    assert!((loading(&twice) - wire(200.0) - beyond).abs() <= 1.000_001e-9, "{}", loading(&twice));
    // Four GPUs from one host: its NIC is the bottleneck, and they wait all four.
    let four = run(&cluster("flow", &job("a", 4, "host6", 50, 2)), &[], false);
    assert!((loading(&four) / 4.0 - wire(200.0) - beyond).abs() <= 3e-9, "{}", loading(&four));
    // From two hosts in half the time; to one GPU from two at that GPU's rate.
    let both = run(&cluster("flow", &job("a", 4, "host6, host7", 50, 2)), &[], false);
    assert!((loading(&both) / 4.0 - wire(100.0) - beyond).abs() <= 3e-9, "{}", loading(&both));
    let one = run(&cluster("flow", &job("a", 1, "host6, host7", 100, 2)), &[], false);
    assert!((loading(&one) - wire(100.0) - beyond).abs() <= 3e-9, "{}", loading(&one));
    // A slower disk is the bottleneck.
    let slow =
        run(&cluster("flow", &job("a", 1, "host6", 100, 2)), &[("cluster.storage.rate", "25 Gbps")], false);
    assert!((loading(&slow) - wire(400.0) - beyond).abs() <= 3e-9, "{}", loading(&slow));
}

#[test]
fn every_request_simulated_comes_to_the_same() {
    for (ranks, from) in [(1, "host6"), (3, "host6, host7"), (4, "host7")] {
        let text = cluster("flow", &(job("a", ranks, from, 40, 3) + &job("b", 2, "host7", 30, 5)));
        let (quick, full) = (run(&text, &[], false), run(&text, &[], true));
        let (a, b) = (loading(&quick), loading(&full));
        assert!((a / b - 1.0).abs() < 5e-3, "{ranks} from {from}: {a} {b}");
        sums_are_exact(&quick, 6.0);
        sums_are_exact(&full, 6.0);
        for (quick, full) in
            quick["jobs"].as_array().expect("a list").iter().zip(full["jobs"].as_array().expect("a list"))
        {
            let (a, b) =
                (quick["finish_s"].as_f64().expect("it ends"), full["finish_s"].as_f64().expect("it ends"));
            assert!((a / b - 1.0).abs() < 5e-3, "{ranks} from {from}: {a} {b}");
            // Requests are no iterations.
            assert_eq!(full["simulated_iterations"], full["iterations"]);
        }
    }
}

#[test]
fn two_jobs_that_share_a_storage_host_take_twice_as_long() {
    for full in [false, true] {
        let alone = run(&cluster("flow", &job("a", 1, "host6", 100, 1)), &[], full);
        let beyond = latency(&alone);
        let text = cluster("flow", &(job("a", 1, "host6", 100, 1) + &job("b", 1, "host6", 100, 1)));
        let both = run(&text, &[], full);
        assert!((loading(&both) / 2.0 - wire(200.0) - beyond).abs() <= 3e-9, "{full}: {}", loading(&both));
        // Of unequal ones the smaller at half the rate to its end, the larger at the whole of it from there on.
        let text = cluster("flow", &(job("a", 1, "host6", 300, 1) + &job("b", 1, "host6", 100, 1)));
        let both = run(&text, &[], full);
        let expected = wire(200.0) + wire(400.0);
        assert!((loading(&both) / expected - 1.0).abs() < 1e-3, "{full}: {} {expected}", loading(&both));
        sums_are_exact(&both, 6.0);
    }
    // From one each nobody waits for the other.
    let text = cluster("flow", &(job("a", 1, "host6", 100, 1) + &job("b", 1, "host7", 100, 1)));
    let apart = run(&text, &[], false);
    assert!((loading(&apart) / 2.0 - wire(100.0)).abs() < 5e-6, "{}", loading(&apart));
}

/// Two leaves that one cable joins; a job at work has a rank on either, and the data of another come over that cable.
fn shared(fidelity: &str, more: &str, jobs: &str) -> String {
    format!(
        "windtunnel: 1\nname: loading\nseed: 3\nfidelity: {fidelity}\ntopology:\n  shape: clos\n  hosts: 8\n  tiers:\n    - \
         {{ports_down: 4, oversubscription: 4, rate: 100 Gbps, length: 20 m}}\n    - {{ports_down: 2, rate: 100 Gbps, length: \
         20 m}}\n  host: {{gpu: H100-SXM, gpus: 1, nics: 1, nic: ConnectX-5}}\nnetwork: {{mtu: 4096 B, header: 66 B, transport: \
         dctcp}}\ncluster:\n  reaction_delay: 20 us\n  episodes: {{phase: aligned}}\n  storage: {{hosts: [host0, host1, host2], \
         request: 403 KB}}\n{more}results: {{operations: none, flows: none}}\njobs:\n{jobs}"
    )
}

/// One rank on host 3, the only one of the first leaf that computes, and one on host 4: its ring goes over the cable both ways.
fn works(iterations: u32) -> String {
    format!(
        "  - {{name: works, workload: {{collective: {{kind: all_reduce, algorithm: ring, bytes: 403 KB, ranks: 2}}}}, iterations: \
         {iterations}}}\n"
    )
}

fn loads(requests: u32, more: &str) -> String {
    format!(
        "  - {{name: loads, workload: {{collective: {{kind: all_reduce, algorithm: ring, bytes: 40 KB, ranks: 1}}}}, iterations: \
         2, data: {{bytes: {} KB, from: [host1]}}{more}}}\n",
        403 * requests
    )
}

fn finish(summary: &Value, job: usize) -> f64 {
    summary["jobs"][job]["finish_s"].as_f64().expect("it ends")
}

#[test]
fn a_load_and_a_job_at_work_share_their_link() {
    let wire = 100.0 * 4_096.0 * 8.0 / 100e9;
    for (fidelity, near) in [("flow", 0.02), ("packet", 0.2)] {
        let (iterations, requests) = if fidelity == "flow" { (400, 400) } else { (60, 60) };
        let each =
            finish(&run(&shared(fidelity, "", &works(iterations)), &[], false), 0) / f64::from(iterations);
        let load = loading(&run(&shared(fidelity, "", &loads(requests, "")), &[], false));
        // While both last the ring's bytes take twice as long, and its latencies, in which the load has all of the cable, as long.
        let slow = each + wire;
        let data = load * slow / each;
        let ring = data + (f64::from(iterations) - data / slow) * each;
        for full in [false, true] {
            let both = run(&shared(fidelity, "", &(works(iterations) + &loads(requests, ""))), &[], full);
            sums_are_exact(&both, 5.0);
            let found = [loading(&both) / data, finish(&both, 0) / ring];
            assert!(found.iter().all(|found| (found - 1.0).abs() < near), "{fidelity} {full}: {found:?}");
        }
    }
}

#[test]
fn fast_forwarding_agrees_where_a_load_meets_a_job() {
    for fidelity in ["flow", "packet"] {
        let (iterations, requests) = if fidelity == "flow" { (300, 200) } else { (60, 40) };
        let text = shared(fidelity, "", &(works(iterations) + &loads(requests, "")));
        let (quick, full) = (run(&text, &[], false), run(&text, &[], true));
        for job in 0..2 {
            let (a, b) = (finish(&quick, job), finish(&full, job));
            assert!((a / b - 1.0).abs() < 0.03, "{fidelity}, job {job}: {a} {b}");
        }
        let off = run(&text, &[("cluster.episodes.memo", "off")], false);
        assert_eq!([finish(&off, 0), finish(&off, 1)], [finish(&quick, 0), finish(&quick, 1)], "{fidelity}");
    }
}

#[test]
fn a_load_that_is_interrupted_begins_anew_and_waits_where_it_is_cut_off() {
    for full in [false, true] {
        // The second job keeps the run one of several; it shares nothing.
        let jobs = |more: &str| loads(400, more) + &works(3).replace("ranks: 2", "ranks: 1");
        let whole = run(&shared("flow", "", &jobs("")), &[], full);
        // Its host goes as half has come, and the cluster reacts 20 us later: all of it comes again, to another host.
        let half = loading(&whole) / 2.0;
        let us = (half * 1e6) as u64;
        let out = format!("  maintenance: [{{part: host3, at: {us} us, for: 1 h}}]\n");
        let broken = run(&shared("flow", &out, &jobs("")), &[], full);
        let expected = us as f64 * 1e-6 + loading(&whole);
        assert!((loading(&broken) / expected - 1.0).abs() < 1e-3, "{full}: {} {expected}", loading(&broken));
        assert_eq!(broken["jobs"][0]["state"], "finished");
        sums_are_exact(&broken, 5.0);
        // The storage host's cable goes for a while: what has come stays.
        let out = format!("  maintenance: [{{part: \"host1/nic0 -> leaf0\", at: {us} us, for: 3 ms}}]\n");
        let waits = run(&shared("flow", &out, &jobs("")), &[], full);
        let expected = loading(&whole) + 3e-3;
        assert!((loading(&waits) / expected - 1.0).abs() < 2e-3, "{full}: {} {expected}", loading(&waits));
        sums_are_exact(&waits, 5.0);
    }
}

#[test]
fn without_a_network_a_load_is_a_closed_form() {
    let jobs = "  - {name: a, gpus: 2, duration: 1 s, data: {bytes: 806 MB}}\n  - {name: b, gpus: 4, duration: 1 s, data: {bytes: \
                806 MB}}\n";
    let text = cluster("job", jobs);
    let summary = run(&text, &[], false);
    // 200,000 packets of 4,096 B over two NICs of 100 Gbps, at either end of the first job; of four, the storage hosts' two.
    let each = 200_000.0 * 4_096.0 * 8.0 / 200e9;
    assert!((loading(&summary) - (2.0 + 4.0) * each).abs() < 1e-8, "{} {each}", loading(&summary));
    sums_are_exact(&summary, 6.0);
    let evidence = summary["evidence"].as_array().expect("a list");
    assert!(
        evidence.iter().any(|row| row["constant"].as_str().is_some_and(|name| name == "data loading")),
        "{evidence:?}"
    );
    // A job has no more GPUs than computing hosts.
    let message = refused(&text, &[("jobs[1].gpus", "7")]);
    assert!(message.contains("the topology has 6"), "{message}");
}
