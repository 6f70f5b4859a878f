//! Jobs that change their number of GPUs on a network.

use std::path::Path;

use serde_json::Value;
use windtunnel_scenario::api::{self, RunRequest};
use windtunnel_scenario::table::Discard;

fn outcome(text: &str, overrides: &[(&str, &str)], full: bool) -> Result<Value, api::Failure> {
    let request = RunRequest {
        text: text.to_owned(),
        source: "a.yaml".to_owned(),
        base: Path::new(".").to_owned(),
        overrides: overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        full,
        ..RunRequest::default()
    };
    let summary = api::run(&request, &mut Discard, &mut Discard)?;
    Ok(serde_json::from_str(&summary).expect("a summary is JSON"))
}

fn run(text: &str, overrides: &[(&str, &str)]) -> Value {
    match outcome(text, overrides, false) {
        Ok(summary) => summary,
        Err(api::Failure::Input(error)) => panic!("{error}"),
        Err(api::Failure::Run(_, message)) => panic!("{message}"),
        Err(api::Failure::Cluster(error)) => panic!("{error}"),
    }
}

fn refused(text: &str, overrides: &[(&str, &str)]) -> String {
    match outcome(text, overrides, false) {
        Err(api::Failure::Input(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// One GPU a host, all on one switch: no jobs meet. Collectives take what their messages take, so that the instants at which jobs
/// come lie between checkpoints.
fn cluster(hosts: u32, scheduler: &str, jobs: &str) -> String {
    format!(
        "windtunnel: 1\nname: elastic\nseed: 4\nfidelity: flow\ntopology:\n  shape: clos\n  hosts: {hosts}\n  tiers: [{{ports_down: \
         {hosts}, rate: 100 Gbps}}]\n  host: {{gpu: H100-SXM, gpus: 1, nics: 1, nic: ConnectX-5}}\nnetwork: {{collectives: {{tuner: size}}}}\nmemory: ignore\ncluster: \
         {{scheduler: {scheduler}, reaction_delay: 0 s}}\nresults: {{operations: none, flows: none}}\njobs:\n{jobs}"
    )
}

/// A recommendation model of a global batch of 48 × 1,024 samples.
fn job(name: &str, gpus: u32, iterations: u64, more: &str) -> String {
    format!(
        "  - {{name: {name}, workload: {{model: dlrm, global_batch: 49152}}, parallelism: {{dp: {gpus}}}, iterations: \
         {iterations}{more}}}\n"
    )
}

fn seconds(summary: &Value, job: usize, key: &str) -> f64 {
    summary["jobs"][job][key].as_f64().unwrap_or_else(|| panic!("{key} of {}", summary["jobs"][job]))
}

/// An iteration over so many GPUs.
fn iteration(gpus: u32) -> f64 {
    let alone = run(&cluster(16, "fcfs", &job("alone", gpus, 4, "")), &[]);
    alone["jobs"][0]["iteration_time_s"]["mean"].as_f64().expect("it ran")
}

#[test]
fn a_job_goes_on_as_fast_as_one_that_was_laid_out_over_as_many_gpus() {
    // Sixteen GPUs, of which another job takes four for a while. Of 26 tables one of twelve ranks has three, one of sixteen two.
    let (sixteen, twelve) = (iteration(16), iteration(12));
    assert!(twelve > sixteen * 1.02 && twelve < sixteen * 1.5, "{twelve} {sixteen}");
    let jobs = job("stretches", 16, 4_000, ", elastic: {min: 4}") + &job("comes", 4, 1_000, ", submit: 2 s");
    let summary = run(&cluster(16, "easy", &jobs), &[]);
    let (comes, lasts) = (seconds(&summary, 1, "start_s"), seconds(&summary, 1, "finish_s"));
    assert!((comes - 2.0).abs() < 1e-6, "{comes}");
    let done = 2.0 / sixteen + (lasts - comes) / twelve;
    let expected = lasts + (4_000.0 - done) * sixteen;
    let found = seconds(&summary, 0, "finish_s");
    // The ends of episodes are those of no iteration.
    assert!((found - expected).abs() < 2.0 * sixteen, "{found} {expected} {sixteen} {twelve}");
    assert_eq!(summary["jobs"][0]["preemptions"], 2);
    // What it held: its GPUs, but for those given away.
    let held = found * 16.0 - (lasts - comes) * 4.0;
    let cluster = &summary["cluster"];
    let mine = 49_152.0 * 4_000.0;
    let all = (mine + 49_152.0 * 1_000.0) / (held + (lasts - comes) * 4.0);
    let told = cluster["samples_per_s_per_gpu"].as_f64().expect("jobs ended");
    assert!((told / all - 1.0).abs() < 1e-6, "{told} {all}");
}

#[test]
fn it_starts_on_what_there_is_and_grows() {
    let jobs =
        job("first", 8, 2_000, "") + &job("starts", 12, 3_000, ", elastic: {min: 2, max: 16}, submit: 1 ms");
    let summary = run(&cluster(16, "easy", &jobs), &[]);
    // On the eight that are left; once the first has ended, on all sixteen.
    let (eight, sixteen) = (iteration(8), iteration(16));
    let first = seconds(&summary, 0, "finish_s");
    let expected = first + (3_000.0 - (first - 0.001) / eight) * sixteen;
    let found = seconds(&summary, 1, "finish_s");
    assert!((seconds(&summary, 1, "start_s") - 0.001).abs() < 1e-6);
    assert!((found - expected).abs() < 2.0 * eight, "{found} {expected}");
}

#[test]
fn every_iteration_agrees_with_a_few_of_them() {
    let text = cluster(
        16,
        "easy",
        &(job("stretches", 16, 120, ", elastic: {min: 4}, checkpoint: {iterations: 20, write: 20 ms}")
            + &job("comes", 8, 30, ", submit: 300 ms")
            + &job("meets", 4, 30, ", submit: 320 ms")),
    );
    for fidelity in ["flow", "packet"] {
        let overrides = [("fidelity", fidelity), ("network.transport", "dctcp")];
        let overrides = if fidelity == "flow" { &overrides[..1] } else { &overrides[..] };
        let fast = run(&text, overrides);
        let whole = match outcome(&text, overrides, true) {
            Ok(summary) => summary,
            other => panic!("{other:?}"),
        };
        for job in 0..3 {
            let (fast, whole) = (seconds(&fast, job, "finish_s"), seconds(&whole, job, "finish_s"));
            assert!((fast / whole - 1.0).abs() < 0.02, "{fidelity}, job {job}: {fast} {whole}");
        }
        assert!(whole["jobs"][0]["preemptions"].as_u64() >= Some(2), "{}", whole["jobs"][0]);
    }
}

#[test]
fn what_cannot_be_laid_out_anew_is_told() {
    let collective = "  - {name: a, workload: {collective: {kind: all_reduce, bytes: 1 MiB, ranks: 8}}, elastic: {min: 4}}\n";
    let message = refused(&cluster(16, "easy", collective), &[]);
    assert!(
        message.starts_with("a.yaml: jobs[0].elastic: ") && message.contains("train a `model`"),
        "{message}"
    );
    let message = refused(&cluster(16, "easy", &job("a", 16, 5, ", elastic: {min: 13}")), &[]);
    assert!(message.contains("from 13 to 16 than 16") && message.contains("hint: on 13: "), "{message}");
    let message = refused(&cluster(16, "gang", &job("a", 16, 5, ", elastic: {min: 8}")), &[]);
    assert!(message.contains("scheduler `gang`"), "{message}");
    let message = refused(&cluster(16, "easy", &job("a", 8, 5, ", elastic: {min: 9}")), &[]);
    assert!(message.contains("jobs[0].elastic.min: expected 1 to the 8 GPUs"), "{message}");
}

#[test]
fn jobs_of_a_source_stretch_by_shares() {
    let source = |elastic: &str| {
        let text = "jobs: {like: philly, count: 120, load: 1.2, scale: {gpus: 2, max_gpus: 12, max_duration: 10 min}";
        let text = format!(
            "{text}{elastic}, workloads: [{{name: w, workload: {{model: dlrm}}, batch_per_replica: 1024}}]}}\n"
        );
        cluster(16, "easy", "").replace("jobs:\n", &text)
    };
    let stiff = run(&source(""), &[]);
    let elastic = run(&source(", elastic: {min: 0.5, max: 2}"), &[]);
    let told = |summary: &Value, key: &str| summary["cluster"][key].as_f64().expect("it ran");
    assert_eq!((told(&stiff, "preemptions"), told(&elastic, "finished")), (0.0, 120.0));
    assert!(told(&elastic, "preemptions") > 100.0, "{}", elastic["cluster"]);
    // They fill gaps: the same work is done sooner.
    assert!(told(&elastic, "utilisation") > told(&stiff, "utilisation"));
    assert!(told(&elastic, "makespan_s") < told(&stiff, "makespan_s") * 0.95);
    for bad in ["{min: 0}", "{min: 1.5}", "{min: 0.5, max: 0.9}", "{min: 0.5, max: .inf}"] {
        let message = refused(&source(&format!(", elastic: {bad}")), &[]);
        assert!(message.starts_with("a.yaml: jobs.elastic.m"), "{bad}: {message}");
    }
    // Without a network any number will do.
    let jobs =
        "jobs: {like: philly, count: 500, load: 1, scale: {max_gpus: 16}, elastic: {min: 0.25, max: 4}}\n";
    let text = cluster(16, "mast", "").replace("jobs:\n", jobs).replace("fidelity: flow", "fidelity: job");
    let summary = run(&text, &[]);
    assert!(told(&summary, "preemptions") > 50.0, "{}", summary["cluster"]);
}
