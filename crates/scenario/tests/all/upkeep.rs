//! Faults, checkpoints, spares and maintenance from the scenario's text to the summary, at job and flow fidelity.

use std::path::{Path, PathBuf};

use serde_json::Value;
use windtunnel_scenario::api::{self, RunRequest};
use windtunnel_scenario::table::{Batch, Discard, TableSink};

/// Counts the rows of faults.
#[derive(Debug, Default)]
struct Faults(usize);

impl TableSink for Faults {
    fn rows(&mut self, table: &'static str, batch: Batch) -> Result<(), String> {
        self.0 += if table == "faults" { batch.len() } else { 0 };
        Ok(())
    }
}

fn run_in(base: &Path, text: &str) -> Result<(Value, usize), String> {
    let request = RunRequest {
        text: text.to_owned(),
        source: "a.yaml".to_owned(),
        base: base.to_owned(),
        ..RunRequest::default()
    };
    let mut rows = Faults::default();
    match api::run(&request, &mut rows, &mut Discard) {
        Ok(summary) => Ok((serde_json::from_str(&summary).expect("a summary is JSON"), rows.0)),
        Err(api::Failure::Input(error)) => Err(error.to_string()),
        Err(api::Failure::Run(_, message)) => Err(message),
        Err(api::Failure::Cluster(error)) => Err(error.to_string()),
    }
}

fn run(text: &str) -> Result<(Value, usize), String> {
    run_in(Path::new("."), text)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("a number, not {value}"))
}

fn job(hosts: u32, jobs: &str, cluster: &str) -> String {
    format!(
        "windtunnel: 1\nname: a\nseed: 3\nfidelity: job\ntopology: {{hosts: {hosts}, host: {{gpus: 8}}}}\n\
         jobs: {jobs}\ncluster: {cluster}\n"
    )
}

/// A folder with a log of faults.
fn logged(name: &str, rows: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("windtunnel-operations-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
    std::fs::write(folder.join("faults.csv"), format!("time_s,component,repair_s\n{rows}"))
        .expect("and written");
    folder
}

/// arXiv:2407.21783, section 3.3.4 and table 5: 419 in 54 days at 16,384 GPUs.
#[test]
fn llama_3s_job_is_interrupted_as_often_as_it_was() {
    let text = job(
        2_080,
        "[{name: llama3, gpus: 16384, duration: 50 d, checkpoint: {every: 1 h, write: 30 s}}]",
        "{faults: [{like: llama3}], spares: {hosts: 32}, restart: 10 min}",
    );
    let (summary, rows) = run(&text).unwrap();
    let cluster = &summary["cluster"];
    let days = number(&cluster["makespan_s"]) / 86_400.0;
    let share = 16_640.0 / 16_384.0;
    let mut sum = 0.0;
    for (cause, count) in [("gpu", 268.0), ("host", 46.0), ("nic", 7.0), ("cable", 35.0), ("software", 63.0)]
    {
        let (found, expected) = (number(&cluster["faults"][cause]["count"]), count * share * days / 54.0);
        // Repairs of a day take a fifth of a permille off the time in which a GPU can fail: far below the bound.
        assert!((found - expected).abs() < 4.0 * expected.sqrt(), "{cause}: {found} of {expected}");
        sum += found;
    }
    assert_eq!(rows as f64, sum);
    // Spares fail too, and interrupt nobody.
    let hit = number(&cluster["interruptions"]);
    assert!((hit - 419.0 * days / 54.0).abs() < 4.0 * 419f64.sqrt(), "{hit}");
    let job = &summary["jobs"][0];
    assert_eq!(number(&job["interruptions"]), hit);
    // A restart each, and the work since the last checkpoint: of a stretch L that a fault of mean time M cuts short, on average
    // M - L / (e^(L/M) - 1), evenly spread or nearly.
    let (mean, stretch) = (54.0 * 86_400.0 / 419.0, 3_630.0f64);
    let expected = 600.0 + mean - stretch / (windtunnel_kernel::math::exp(stretch / mean) - 1.0);
    let lost = number(&job["lost_s"]) / hit;
    assert!((lost - expected).abs() < 4.0 * stretch / (12.0 * hit).sqrt(), "{lost} of {expected}");
    let states = cluster["gpu_seconds"].as_object().expect("a record");
    let all: f64 = states.values().filter_map(Value::as_f64).sum();
    assert!((all / (16_640.0 * number(&cluster["makespan_s"])) - 1.0).abs() < 1e-12);
    let busy: f64 =
        cluster["busy_gpu_seconds"].as_object().expect("a record").values().filter_map(Value::as_f64).sum();
    assert!((busy / number(&states["busy"]) - 1.0).abs() < 1e-12);
    assert!((number(&cluster["busy_gpu_seconds"]["work"]) / (16_384.0 * 50.0 * 86_400.0) - 1.0).abs() < 1e-9);
    assert!(
        (number(&cluster["goodput"]) - 50.0 * 16_384.0 * 86_400.0 / number(&states["busy"])).abs() < 1e-9
    );
}

#[test]
fn checkpoints_count_iterations_or_time_whichever_driver_runs_them() {
    let folder = logged("iterations", "7.2,host0/gpu3,0\n");
    let with = |checkpoint: &str| {
        let jobs = format!(
            "[{{name: a, gpus: 8, iterations: 10, duration: 10 s, checkpoint: {checkpoint}, restart: 2 s}}]"
        );
        let (summary, rows) = run_in(&folder, &job(1, &jobs, "{faults: [{log: faults.csv}]}")).unwrap();
        assert_eq!(rows, 1);
        let job = summary["jobs"][0].clone();
        (number(&job["finish_s"]), number(&job["lost_s"]), number(&job["checkpoint_s"]))
    };
    let near = |found: (f64, f64, f64), expected: (f64, f64, f64)| {
        let parts = [found.0 - expected.0, found.1 - expected.1, found.2 - expected.2];
        assert!(parts.iter().all(|part| part.abs() < 1e-6), "{found:?} {expected:?}");
    };
    // Writes after iterations 3 and 6, at 3 s and 6.5 s; at 7.2 s 6.2 are done and 6 safe. On at 7.201 s, with one write more.
    near(with("{iterations: 3, write: 500 ms}"), (7.201 + 2.0 + 4.0 + 0.5, 2.2, 1.5));
    near(with("{every: 3 s, write: 500 ms}"), (7.201 + 2.0 + 4.0 + 0.5, 2.2, 1.5));
    // 4 GB at 64 Gbps take 500 ms.
    near(with("{iterations: 3, bytes: 4 GB, rate: 64 Gbps}"), (7.201 + 2.0 + 4.0 + 0.5, 2.2, 1.5));
    // A write that has not finished at 7.2 s keeps nothing.
    near(with("{iterations: 4, write: 4 s}"), (7.201 + 2.0 + 10.0 + 8.0, 2.0 + 4.0, 3.2 + 8.0));
}

/// Two leaves under two spines, and all hosts talk to all.
fn flow(extra: &str, iterations: u32) -> String {
    format!(
        "windtunnel: 1\nname: a\nseed: 1\nfidelity: flow\ntopology:\n  shape: clos\n  hosts: 4\n  tiers:\n    \
         - {{ports_down: 2, rate: 100 Gbps}}\n    - {{ports_down: 2, rate: 100 Gbps}}\n  host: {{gpus: 1, nics: 1}}\n{extra}\n\
         network: {{load_balancer: spray}}\njobs:\n  - name: all\n    placement: packed\n    iterations: {iterations}\n    \
         workload: {{collective: {{kind: all_to_all, algorithm: pairwise, bytes: 1 GB}}}}\n    \
         checkpoint: {{iterations: 10, write: 1 ms}}\n"
    )
}

#[test]
fn a_broken_spine_slows_a_job_for_as_long_as_it_is_broken() {
    let iteration = |extra: &str| {
        let (summary, _) = run(&flow(extra, 5)).unwrap();
        number(&summary["jobs"][0]["iteration_time_s"]["mean"])
    };
    let (whole, broken) = (iteration(""), iteration("  failed: [spine1]"));
    assert!(broken > 1.2 * whole, "{whole} {broken}");
    let folder = logged("spine", "10,spine1,20\n");
    let text = flow("", 600) + "cluster: {faults: [{log: faults.csv}]}\n";
    let (summary, _) = run_in(&folder, &text).unwrap();
    let job = &summary["jobs"][0];
    assert_eq!((number(&job["interruptions"]), number(&job["lost_s"])), (0.0, 0.0));
    // A write every ten iterations, and in the 20 s of the fault fewer iterations by so many.
    let (at_rate, slow) = (whole + 1e-4, broken + 1e-4);
    let expected = 600.0 * at_rate + 20.0 * (1.0 - at_rate / slow);
    let found = number(&job["finish_s"]);
    assert!((found - expected).abs() < 2.0 * (whole + broken), "{found} of {expected}");
}

#[test]
fn a_broken_leaf_interrupts_what_it_cuts_off() {
    let folder = logged("leaf", "10,leaf1,20\n12,host0/nic0,0.5\n");
    let text = flow("", 400) + "cluster: {faults: [{log: faults.csv}]}\n";
    let (summary, rows) = run_in(&folder, &text).unwrap();
    let (job, cluster) = (&summary["jobs"][0], &summary["cluster"]);
    assert_eq!((number(&job["interruptions"]), rows), (1.0, 2));
    assert!(number(&job["lost_s"]) > 0.0);
    // Two hosts for 20 s and one for half of one.
    assert!((number(&cluster["gpu_seconds"]["failed"]) - 40.5).abs() < 1e-6);
    assert_eq!(number(&cluster["faults"]["switch"]["interruptions"]), 1.0);
}

#[test]
fn maintenance_of_a_switch_drains_its_hosts() {
    let cluster = |jobs: &str| {
        format!(
            "cluster: {{maintenance: [{{part: leaf1, at: 10 s, for: 20 s, notice: 5 s, jobs: {jobs}}}]}}\n"
        )
    };
    let of = |jobs: &str| {
        let text = flow("", 400) + &cluster(jobs);
        let (summary, rows) = run(&text).unwrap();
        assert_eq!(rows, 1);
        let (job, cluster) = (summary["jobs"][0].clone(), summary["cluster"].clone());
        (number(&job["lost_s"]), number(&job["preemptions"]), number(&cluster["gpu_seconds"]["draining"]))
    };
    let (lost, preemptions, draining) = of("stop");
    assert!(lost > 0.0 && preemptions == 0.0 && (draining - 40.0).abs() < 1e-6, "{lost} {draining}");
    assert_eq!(of("migrate"), (0.0, 1.0, 50.0));
}

#[test]
fn bad_operations_are_told_where_they_stand() {
    let jobs = "[{name: a, gpus: 8, duration: 1 h}]";
    let error = |cluster: &str| run(&job(4, jobs, cluster)).expect_err("it is refused");
    let starts = |cluster: &str, expected: &str| {
        let found = error(cluster);
        assert!(found.starts_with(expected), "{found}");
    };
    starts(
        "{maintenance: [{part: host1, at: 1 h, for: 2 h}, {part: host1/gpu2, at: 2 h, for: 2 h}]}",
        "a.yaml: cluster.maintenance[1]: `host1/gpu2` is out for maintenance already, by `maintenance[0]` of `host1` from \
         3600 s to 10800 s",
    );
    starts(
        "{maintenance: [{part: hots1, at: 1 h, for: 2 h}]}",
        "a.yaml: cluster.maintenance[0].part: no component `hots1`",
    );
    assert!(error("{maintenance: [{part: hots1, at: 1 h, for: 2 h}]}").ends_with("did you mean `host1`?"));
    starts(
        "{maintenance: [{part: host1, at: 1 h, for: 0 h}]}",
        "a.yaml: cluster.maintenance[0].for: expected a time above 0",
    );
    starts(
        "{faults: [{class: gpu, mtbf: 0 h, repair: 1 h}]}",
        "a.yaml: cluster.faults[0].mtbf: expected a time above 0",
    );
    starts(
        "{faults: [{class: gpus, mtbf: 1 h, repair: 1 h}]}",
        "a.yaml: cluster.faults[0].class: no class `gpus`",
    );
    starts(
        "{faults: [{class: switch, mtbf: 1 y, repair: 1 h}]}",
        "a.yaml: cluster.faults[0].class: there is no switch",
    );
    starts("{faults: [{like: llama4}]}", "a.yaml: cluster.faults[0].like: ");
    starts("{spares: {hosts: 4}}", "a.yaml: cluster.spares.hosts: 4 of 4 hosts are spares");
    let negative =
        run(&job(4, jobs, "{faults: [{class: gpu, mtbf: -5 h, repair: 1 h}]}")).expect_err("it is refused");
    assert!(negative.contains("expected a time such as `4 h`, found `-5 h`: it is below 0"), "{negative}");
    let folder = logged("holes", "1,host0,5\n,host1,5\n");
    let holes =
        run_in(&folder, &job(4, jobs, "{faults: [{log: faults.csv}]}")).expect_err("line 3 has a hole");
    assert!(holes.contains("faults.csv:3: `time_s` is empty"), "{holes}");
    let lenient = job(4, jobs, "{faults: [{log: faults.csv, lenient: true}]}");
    assert_eq!(run_in(&folder, &lenient).expect("the rest is good").1, 1);
}
