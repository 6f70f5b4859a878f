//! Jobs that lose their GPUs in mid-episode, at flow and packet fidelity, fast-forwarded and with every iteration simulated.

use std::path::Path;

use serde_json::Value;
use windtunnel_scenario::api::{self, RunRequest};
use windtunnel_scenario::table::Discard;

fn outcome(text: &str, full: bool, threads: Option<usize>) -> Result<Value, String> {
    let request = RunRequest {
        text: text.to_owned(),
        source: "a.yaml".to_owned(),
        base: Path::new(".").to_owned(),
        full,
        threads,
        ..RunRequest::default()
    };
    match api::run(&request, &mut Discard, &mut Discard) {
        Ok(summary) => Ok(serde_json::from_str(&summary).expect("a summary is JSON")),
        Err(api::Failure::Input(error)) => Err(error.to_string()),
        Err(api::Failure::Run(_, message)) => Err(message),
        Err(api::Failure::Cluster(error)) => Err(error.to_string()),
    }
}

fn run(text: &str, full: bool) -> Value {
    outcome(text, full, Some(1)).unwrap_or_else(|message| panic!("{message}"))
}

/// Eight hosts of one GPU on two leaves that one spine joins. Hosts 0 to 3 and 4 to 7 share nothing but that.
fn cluster(fidelity: &str, transport: &str, more: &str, jobs: &str) -> String {
    format!(
        "windtunnel: 1\nname: interrupted\nseed: 3\nfidelity: {fidelity}\ntopology:\n  shape: clos\n  hosts: 8\n  tiers:\n    - \
         {{ports_down: 4, oversubscription: 4, rate: 100 Gbps, length: 20 m}}\n    - {{ports_down: 2, rate: 100 Gbps, length: \
         20 m}}\n  host: {{gpu: H100-SXM, gpus: 1, nics: 1, nic: ConnectX-5}}\nnetwork: {{mtu: 4096 B, header: 66 B, transport: \
         {transport}}}\ncluster:\n  reaction_delay: 20 us\n  episodes: {{phase: aligned}}\n{more}results: {{operations: none, flows: \
         none}}\njobs:\n{jobs}"
    )
}

fn job(name: &str, ranks: u32, iterations: u32, more: &str) -> String {
    format!(
        "  - {{name: {name}, workload: {{collective: {{kind: all_reduce, algorithm: ring, bytes: 200 KB, ranks: {ranks}}}}}, iterations: \
         {iterations}{more}}}\n"
    )
}

fn finish(summary: &Value, job: usize) -> f64 {
    summary["jobs"][job]["finish_s"].as_f64().expect("it ends")
}

fn sums_are_exact(summary: &Value) {
    let cluster = &summary["cluster"];
    let sum = |group: &str, parts: &[&str]| -> f64 {
        parts.iter().map(|part| cluster[group][part].as_f64().expect("a number")).sum()
    };
    let makespan = cluster["makespan_s"].as_f64().expect("a number");
    let all = sum("gpu_seconds", &["busy", "idle", "stranded", "failed", "draining"]);
    assert!((all - 8.0 * makespan).abs() < 1e-9, "{cluster}");
    let parts = sum("busy_gpu_seconds", &["work", "loading", "checkpoint", "restart", "lost"]);
    assert!((parts - sum("gpu_seconds", &["busy"])).abs() < 1e-9, "{cluster}");
}

const OUT: &str = "  maintenance: [{part: host1, at: 500 us, for: 1 s}]\n";

/// Without a checkpoint all is done again on other GPUs, once the cluster has reacted; with one, what came after it.
#[test]
fn what_is_lost_in_mid_episode_is_done_again() {
    for (fidelity, transport) in
        [("flow", "none"), ("packet", "none"), ("packet", "dcqcn"), ("packet", "eqds")]
    {
        for full in [false, true] {
            // The second job keeps the run one of several.
            let jobs = |more: &str| job("a", 2, 40, more) + &job("b", 2, 10, "");
            let whole = run(&cluster(fidelity, transport, "", &jobs("")), full);
            let each = finish(&whole, 0) / 40.0;
            let broken = run(&cluster(fidelity, transport, OUT, &jobs("")), full);
            let expected = 0.52e-3 + 40.0 * each;
            let found = finish(&broken, 0);
            assert!(
                (found / expected - 1.0).abs() < 1e-2,
                "{fidelity} {transport} {full}: {found} {expected}"
            );
            assert_eq!(finish(&broken, 1), finish(&whole, 1), "{fidelity} {transport} {full}");
            sums_are_exact(&broken);
            // Five iterations and a write that takes no time that shows.
            let kept = ", checkpoint: {iterations: 5, write: 1 us}";
            let kept = run(&cluster(fidelity, transport, OUT, &jobs(kept)), full);
            let done = (0.5e-3 / (5.0 * each + 1e-6)).floor() * 5.0;
            let expected = 0.52e-3 + (40.0 - done) * each + 8e-6;
            let found = finish(&kept, 0);
            assert!(
                (found / expected - 1.0).abs() < 1e-2,
                "{fidelity} {transport} {full}: {found} {expected}"
            );
            sums_are_exact(&kept);
        }
    }
}

/// The two ways of running agree where jobs meet, one is interrupted, and a third waits for its GPUs; without windows, which an
/// episode begins anew and a run from end to end keeps.
#[test]
fn every_iteration_simulated_comes_to_the_same() {
    for (fidelity, near) in [("flow", 0.03), ("packet", 0.06)] {
        let jobs = job("a", 4, 60, ", checkpoint: {iterations: 10, write: 5 us}, placement: random")
            + &job("b", 4, 50, ", placement: random")
            + &job("c", 3, 30, ", placement: random");
        let text = cluster(fidelity, "none", OUT, &jobs);
        let (quick, full) = (run(&text, false), run(&text, true));
        sums_are_exact(&quick);
        sums_are_exact(&full);
        for job in 0..3 {
            let (a, b) = (finish(&quick, job), finish(&full, job));
            assert!((a / b - 1.0).abs() < near, "{fidelity}, job {job}: {a} {b}");
        }
        // Whatever the threads.
        let two = outcome(&text, true, Some(2)).unwrap_or_else(|message| panic!("{message}"));
        assert_eq!(two["jobs"], full["jobs"], "{fidelity}");
    }
}

/// Four leaves of two hosts below two spines, one job over all.
fn fabric(fidelity: &str, transport: &str, balancer: &str, more: &str, jobs: &str) -> String {
    format!(
        "windtunnel: 1\nname: rerouted\nseed: 3\nfidelity: {fidelity}\ntopology:\n  shape: clos\n  hosts: 8\n  tiers:\n    - \
         {{ports_down: 2, rate: 100 Gbps, length: 20 m}}\n    - {{ports_down: 4, rate: 100 Gbps, length: \
         20 m}}\n  host: {{gpu: H100-SXM, gpus: 1, nics: 1, nic: ConnectX-5}}\nnetwork: {{mtu: 4096 B, header: 66 B, transport: \
         {transport}, load_balancer: {balancer}, timeout: 100 us}}\ncluster:\n  reaction_delay: 20 us\n  episodes: {{phase: aligned}}\n{more}results: \
         {{operations: none, flows: none}}\njobs:\n{jobs}"
    )
}

/// One of two spines goes out and comes back: no job is interrupted; what was on it is sent again, and meanwhile all share the other.
#[test]
fn packets_go_round_a_spine_that_goes_out_in_mid_run() {
    // In the middle of a step, with packets of every transport under way.
    let out = "  maintenance: [{part: spine0, at: 1004 us, for: 3 ms}]\n";
    let jobs = job("a", 4, 40, "") + &job("b", 4, 40, "");
    for (transport, balancer) in [("dcqcn", "ecmp"), ("uec", "spray"), ("dctcp", "ecmp")] {
        let text = |more: &str| fabric("packet", transport, balancer, more, &jobs);
        let (whole, broken) = (run(&text(""), true), run(&text(out), true));
        let kinds = broken["network"]["link_down"].as_u64().expect("a count");
        assert!(kinds > 0, "{transport}: nothing was on the spine");
        assert_eq!(whole["network"]["link_down"], 0);
        sums_are_exact(&broken);
        for number in 0..2 {
            let (before, after) = (finish(&whole, number), finish(&broken, number));
            // For 3 ms half of the paths, and a few time-outs.
            assert!(before < after && after < before + 4e-3, "{transport} {number}: {before} {after}");
            assert_eq!(broken["jobs"][number]["interruptions"], whole["jobs"][number]["interruptions"]);
        }
        for threads in [2, 3] {
            let again =
                outcome(&text(out), true, Some(threads)).unwrap_or_else(|message| panic!("{message}"));
            assert_eq!(again["jobs"], broken["jobs"], "{transport} on {threads} threads");
            assert_eq!(again["network"], broken["network"], "{transport} on {threads} threads");
        }
    }
}

/// A leaf goes out with its hosts: the job on them begins anew elsewhere once the cluster has reacted, the other one goes on.
#[test]
fn a_leaf_goes_out_with_its_jobs() {
    let out = "  maintenance: [{part: leaf0, at: 1 ms, for: 1 s}]\n";
    let jobs = job("a", 2, 60, "") + &job("b", 2, 60, "");
    for fidelity in ["flow", "packet"] {
        let of = |more: &str| run(&fabric(fidelity, "none", "ecmp", more, &jobs), true);
        let (whole, broken) = (of(""), of(out));
        sums_are_exact(&broken);
        assert_eq!(broken["jobs"][0]["interruptions"], 1, "{fidelity}: {}", broken["jobs"][0]);
        let (found, expected) = (finish(&broken, 0), 1.02e-3 + finish(&whole, 0));
        assert!((found / expected - 1.0).abs() < 0.01, "{fidelity}: {found} {expected}");
        assert_eq!(finish(&broken, 1), finish(&whole, 1), "{fidelity}");
    }
}

#[test]
fn what_full_runs_cannot_do_is_refused() {
    let jobs = job("a", 2, 4, "") + &job("b", 2, 4, "");
    let out = "  maintenance: [{part: leaf0, at: 1 ms, for: 1 s}]\n";
    let text = fabric("packet", "none", "destination_modulo", out, &jobs);
    let message = outcome(&text, true, None).expect_err("it is refused");
    assert!(message.contains("`load_balancer: destination_modulo` has one path for a pair"), "{message}");
    let message = outcome(&cluster("message", "none", "", &jobs), true, None).expect_err("it is refused");
    assert!(message.contains("at `fidelity: flow` and `packet` only"), "{message}");
}
