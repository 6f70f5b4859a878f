//! Groups that change within the iterations of their jobs: fast-forwarded against every iteration.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;
use windtunnel_scenario::api::{self, RunRequest};
use windtunnel_scenario::table::Discard;

fn run(text: &str, full: bool) -> Value {
    let request = RunRequest {
        text: text.to_owned(),
        source: "a.yaml".to_owned(),
        base: Path::new(".").to_owned(),
        full,
        ..RunRequest::default()
    };
    match api::run(&request, &mut Discard, &mut Discard) {
        Ok(summary) => serde_json::from_str(&summary).expect("a summary is JSON"),
        Err(api::Failure::Input(error)) => panic!("{error}"),
        Err(api::Failure::Run(_, message)) => panic!("{message}"),
        Err(api::Failure::Cluster(error)) => panic!("{error}"),
    }
}

/// Hosts of one GPU on leaves of four, a fourth as wide upwards.
fn cluster(seed: u64, jobs: &str) -> String {
    format!(
        "windtunnel: 1\nname: carried\nseed: {seed}\nfidelity: flow\ntopology:\n  shape: clos\n  hosts: 32\n  tiers:\n    \
         - {{ports_down: 4, oversubscription: 4, rate: 100 Gbps, length: 5 m}}\n    - {{ports_down: 8, rate: 100 Gbps, \
         length: 50 m}}\n  host: {{gpu: H100-SXM, gpus: 1, nics: 1, nic: ConnectX-7}}\nnetwork: {{load_balancer: spray}}\nresults: \
         {{operations: none, flows: none}}\njobs:\n{jobs}"
    )
}

/// An all-to-all of `mb` between `ranks` hosts of as many leaves, again and again.
fn job(name: &str, (ranks, mb, iterations): (u32, u32, u32), submit_us: u64, more: &str) -> String {
    format!(
        "  - {{name: {name}, workload: {{collective: {{kind: all_to_all, bytes: {mb} MB, ranks: {ranks}}}}}, iterations: \
         {iterations}, submit: {submit_us} us, placement: random{more}}}\n"
    )
}

/// Seconds from start to finish.
fn time(summary: &Value, job: usize) -> f64 {
    let at = |key: &str| summary["jobs"][job][key].as_f64().expect("it ended");
    at("finish_s") - at("start_s")
}

/// Mean iterations come to the time of each job.
fn adds_up(summary: &Value) {
    for job in summary["jobs"].as_array().expect("a list") {
        let of = |key: &str| job[key].as_f64().expect("it ended");
        let mean = job["iteration_time_s"]["mean"].as_f64().expect("it ended");
        let told = mean * (of("iterations") + of("undone_iterations")) + of("outside_iterations_s");
        let took = of("finish_s") - of("start_s");
        assert!((told / took - 1.0).abs() < 2e-6, "{}: {told} of {took}", job["name"]);
    }
}

/// How much longer the first job takes than where every iteration is simulated, over that.
fn error(text: &str) -> f64 {
    time(&run(text, false), 0) / time(&run(text, true), 0) - 1.0
}

#[test]
fn an_iteration_sees_all_who_come_and_go_while_it_lasts() {
    for seed in 1..=3 {
        // Iterations of some 80 ms beside 60 jobs of as much in all, one every 15 ms.
        let mut jobs = job("long", (8, 400, 12), 0, "");
        for index in 0..60u64 {
            let come = 3_000 + index * 15_000 + seed * 700 * (index % 5);
            write!(jobs, "{}", job(&format!("short-{index}"), (6, 140, 5), come, ""))
                .expect("a string takes all");
        }
        let text = cluster(seed, &jobs);
        let alone = time(&run(&cluster(seed, &job("long", (8, 400, 12), 0, "")), false), 0);
        let full = time(&run(&text, true), 0);
        assert!(full > 1.1 * alone, "{seed}: nobody meets anybody: {full} {alone}");
        adds_up(&run(&text, false));
        let off = error(&text);
        assert!(off.abs() < 0.01, "{seed}: {off}");
    }
}

#[test]
fn neighbours_notice_what_a_writer_leaves_free() {
    let beside = job("beside", (16, 20, 40), 0, "");
    let writer = job("writer", (16, 20, 30), 500, ", checkpoint: {every: 10 ms, write: 90 ms}");
    let idle = job("writer", (16, 20, 30), 500, "");
    let off = error(&cluster(1, &(beside.clone() + &writer)));
    assert!(off.abs() < 0.02, "{off}");
    // As if it did not write the other would have taken longer.
    let (with, without) =
        (run(&cluster(1, &(beside.clone() + &writer)), false), run(&cluster(1, &(beside + &idle)), false));
    assert!(time(&with, 0) < 0.95 * time(&without, 0), "{} {}", time(&with, 0), time(&without, 0));
}

#[test]
fn who_writes_for_long_is_met_again_when_that_is_over() {
    // Iterations of a quarter of a millisecond; one job writes for 600 of them at a time.
    let beside = job("beside", (16, 1, 3_000), 0, "");
    let writer = job("writer", (16, 1, 300), 500, ", checkpoint: {every: 40 ms, write: 150 ms}");
    let text = cluster(1, &(beside + &writer));
    let (fast, full) = (run(&text, false), run(&text, true));
    for of in [0, 1] {
        let off = time(&fast, of) / time(&full, of) - 1.0;
        assert!(off.abs() < 0.02, "{of}: {off}");
    }
    adds_up(&fast);
    // Nothing of what the other one does meanwhile is simulated to its end.
    let simulated = fast["jobs"][0]["simulated_iterations"].as_u64().expect("it is counted");
    assert!(simulated < 300, "{simulated}");
}

#[test]
fn a_job_tells_how_far_its_time_may_be_off() {
    let long = job("long", (16, 20, 400), 0, "");
    let other = job("other", (16, 13, 500), 1_300, "");
    let band = |summary: &Value| summary["jobs"][0]["time_band_s"].as_f64().expect("it ended");
    let (fast, full) =
        (run(&cluster(1, &(long.clone() + &other)), false), run(&cluster(1, &(long.clone() + &other)), true));
    let by_size = cluster(1, &long)
        .replace("{load_balancer: spray}", "{load_balancer: spray, collectives: {tuner: size}}");
    assert!(by_size.contains("tuner"), "the rule is in the scenario");
    assert_eq!((band(&full), band(&run(&by_size, false))), (0.0, 0.0));
    // Under NCCL's the ranks of one iteration begin as they ended the one before: two lengths take turns, a nanosecond or two apart of
    // 5.5 ms. So the band of a lone job is some parts in ten million of its time, and holds what it is off by.
    let alone = run(&cluster(1, &long), false);
    let off = (time(&alone, 0) - time(&run(&cluster(1, &long), true), 0)).abs();
    assert!(
        off <= band(&alone) && band(&alone) < 4e-7 * time(&alone, 0),
        "{off} {} of {}",
        band(&alone),
        time(&alone, 0)
    );
    let (band, off) = (band(&fast), (time(&fast, 0) - time(&full, 0)).abs());
    assert!(off <= band && band < 0.1 * time(&full, 0), "{off} {band} of {}", time(&full, 0));
}

#[test]
fn nothing_is_written_in_a_last_iteration() {
    // Nine iterations alone; a write is due in every part of the last one.
    let idle = time(&run(&cluster(1, &job("alone", (16, 20, 9), 0, "")), false), 0);
    for tenths in 81..90 {
        let every = idle * f64::from(tenths) / 90.0;
        let text = cluster(
            1,
            &job("alone", (16, 20, 9), 0, &format!(", checkpoint: {{every: {every} s, write: 5 ms}}")),
        );
        for full in [false, true] {
            let summary = run(&text, full);
            assert!((time(&summary, 0) / idle - 1.0).abs() < 1e-6, "{tenths}: {} {idle}", time(&summary, 0));
            assert_eq!(summary["jobs"][0]["checkpoint_s"].as_f64(), Some(0.0));
        }
        // In the one before it is written.
        let text = text.replace(&format!("every: {every} s"), &format!("every: {} s", every - idle / 9.0));
        assert!((time(&run(&text, false), 0) - idle - 5e-3).abs() < 1e-6, "{tenths}");
    }
}
