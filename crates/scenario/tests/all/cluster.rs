//! Job fidelity from the scenario's text to the summary: logs, shapes, schedulers, accounts.

use std::path::{Path, PathBuf};

use serde_json::Value;
use windtunnel_cluster::scheduler::SCHEDULERS;
use windtunnel_scenario::api::{self, RunRequest};
use windtunnel_scenario::table::{Batch, Column, Discard, TableSink};

/// Keeps the rows of jobs.
#[derive(Debug, Default)]
struct Rows(Vec<Batch>);

impl TableSink for Rows {
    fn rows(&mut self, table: &'static str, batch: Batch) -> Result<(), String> {
        if table == "jobs" {
            self.0.push(batch);
        }
        Ok(())
    }
}

fn run(text: &str, base: &Path, overrides: &[(&str, &str)]) -> Result<(Value, Rows), String> {
    let request = RunRequest {
        text: text.to_owned(),
        source: "a.yaml".to_owned(),
        base: base.to_owned(),
        overrides: overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..RunRequest::default()
    };
    let mut rows = Rows::default();
    match api::run(&request, &mut rows, &mut Discard) {
        Ok(summary) => Ok((serde_json::from_str(&summary).expect("a summary is JSON"), rows)),
        Err(api::Failure::Input(error)) => Err(error.to_string()),
        Err(api::Failure::Run(_, message)) => panic!("{message}"),
        Err(api::Failure::Cluster(error)) => panic!("{error}"),
    }
}

fn example() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/philly-month.yaml");
    std::fs::read_to_string(path).expect("the example is there")
}

/// Busy, idle and the rest are the GPUs times the time; every job has ended.
fn assert_conserved(cluster: &Value, gpus: f64) {
    let sum: f64 =
        cluster["gpu_seconds"].as_object().expect("a record").values().filter_map(Value::as_f64).sum();
    let all = gpus * cluster["makespan_s"].as_f64().expect("a time");
    assert!((sum / all - 1.0).abs() < 1e-12, "{sum} {all}");
    assert_eq!(cluster["finished"], cluster["jobs"]);
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("windtunnel-cluster-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
    folder
}

#[test]
fn the_example_runs_under_every_scheduler() {
    let waits = SCHEDULERS.map(|built_in| {
        let scheduler = built_in.entry.name;
        let overrides = [("cluster.scheduler", scheduler), ("jobs.count", "6000")];
        let (summary, rows) = run(&example(), Path::new("."), &overrides).unwrap();
        assert_conserved(&summary["cluster"], 512.0);
        assert_eq!(rows.0.iter().map(Batch::len).sum::<usize>(), 6_000);
        assert_eq!(summary["jobs"], Value::Array(Vec::new()));
        (scheduler, summary["cluster"]["waiting_s"]["mean"].as_f64().expect("jobs waited"))
    });
    let wait = |name: &str| waits.iter().find(|(known, _)| *known == name).expect("it ran").1;
    for better in ["sjf", "easy", "conservative"] {
        assert!(wait(better) <= wait("fcfs"), "{waits:?}");
    }
}

#[test]
fn whole_hosts_strand_gpus_and_regions_and_leaves_bound_jobs() {
    let stranded = |overrides: &[(&str, &str)]| {
        let all = [&[("jobs.count", "8000"), ("jobs.load", "4")], overrides].concat();
        let (summary, _) = run(&example(), Path::new("."), &all).unwrap();
        assert_conserved(&summary["cluster"], 512.0);
        summary["cluster"]["gpu_seconds"]["stranded"].as_f64().expect("a number")
    };
    assert_eq!(stranded(&[]), 0.0);
    assert!(stranded(&[("jobs.locality", "fewest-hosts")]) > 0.0);
    assert!(stranded(&[("cluster", "{scheduler: mast, regions: 4}")]) > 0.0);
    let tiers = "{shape: clos, hosts: 64, tiers: [{ports_down: 16, rate: 1 Gbps}, {ports_down: 4, rate: 1 Gbps}], \
                 host: {gpus: 8}}";
    let leaves = [("topology", tiers), ("jobs.locality", "leaf"), ("jobs.placement", "topology-aware")];
    assert!(stranded(&leaves) > 0.0);
    let small = [("cluster", "{scheduler: mast, regions: 8}"), ("jobs.scale", "{gpus: 128, max_gpus: 128}")];
    let error = run(&example(), Path::new("."), &small).unwrap_err();
    assert!(error.starts_with("a.yaml: jobs: job 0 needs 128 GPUs (`anywhere`), more than"), "{error}");
}

const LOG: &str = "timestamp,duration,num_gpus,gpu_time,cluster\n\
                   2017-10-09 07:00:00,100,8,800,a\n\
                   2017-10-09 07:00:10,100,16,1600,a\n\
                   2017-10-09 07:00:20,40,8,320,b\n";

const CLUSTER: &str = "windtunnel: 1\nname: a\nfidelity: job\ntopology: {hosts: 2, host: {gpus: 8}}\n\
                       cluster: {reaction_delay: 0 s}\njobs: {log: jobs.csv, format: philly}\n";

#[test]
fn a_log_gives_each_job_its_row() {
    let folder = folder("rows");
    std::fs::write(folder.join("jobs.csv"), LOG).unwrap();
    let rows = |scheduler: &str| {
        let (summary, rows) = run(CLUSTER, &folder, &[("cluster.scheduler", scheduler)]).unwrap();
        assert_conserved(&summary["cluster"], 16.0);
        assert_eq!(summary["cluster"]["gpu_seconds"]["busy"], 2_720.0);
        let column = |name: &str| {
            let (_, column) = rows.0[0].columns.iter().find(|(known, _)| *known == name).expect("a column");
            column.clone()
        };
        (column("job"), column("start_s"), column("line"))
    };
    // The second waits for the whole cluster; by EASY the third slips in before it.
    let fcfs = (vec![0, 1, 2], vec![0.0, 100.0, 200.0], vec![2, 3, 4]);
    let easy = (vec![2, 0, 1], vec![20.0, 0.0, 100.0], vec![4, 2, 3]);
    for (scheduler, (jobs, starts, lines)) in [("fcfs", fcfs), ("easy", easy)] {
        assert_eq!(
            rows(scheduler),
            (Column::U64(jobs), Column::F64(starts), Column::U32(lines)),
            "{scheduler}"
        );
    }
    let scaled = [("jobs.scale", "{gpus: 4, max_gpus: 16, duration: 2, arrivals: 10}")];
    let (summary, _) = run(CLUSTER, &folder, &scaled).unwrap();
    assert_eq!(summary["cluster"]["makespan_s"], 480.0);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn holes_stop_a_run_or_are_counted() {
    let folder = folder("holes");
    std::fs::write(folder.join("jobs.csv"), format!("{LOG}2017-10-09 07:00:20,,8,320,b\n,5,0,0,b\n"))
        .unwrap();
    let error = run(CLUSTER, &folder, &[]).unwrap_err();
    assert!(error.contains("jobs.csv:5: `duration` is missing"), "{error}");
    let (summary, _) = run(CLUSTER, &folder, &[("jobs.lenient", "true")]).unwrap();
    let skipped = &summary["cluster"]["skipped"];
    assert_eq!((&skipped["rows"], &skipped["reasons"][0]["first_line"]), (&Value::from(2), &Value::from(5)));
    assert_eq!(summary["cluster"]["jobs"], 3);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn jobs_that_outlast_the_calendar_are_refused() {
    let folder = folder("long");
    // Nanoseconds of 64 bits end after 584 years: three of these one after another never did.
    std::fs::write(folder.join("jobs.csv"), format!("{LOG}2017-10-09 07:00:20,9000000000,8,320,b\n"))
        .unwrap();
    let error = run(CLUSTER, &folder, &[]).unwrap_err();
    assert!(error.contains("the job of jobs.csv:5 takes 285 years, expected less than 100"), "{error}");
    let capped = [("jobs.scale", "{max_duration: 30 d}")];
    let (summary, _) = run(CLUSTER, &folder, &capped).unwrap();
    assert_eq!(summary["cluster"]["finished"], 4);
    let error = run(CLUSTER, &folder, &[("jobs.count", "0")]).unwrap_err();
    assert!(error.contains("jobs.count: expected at least 1 job, found 0"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn listed_jobs_need_no_workload() {
    let listed = CLUSTER.replace(
        "{log: jobs.csv, format: philly}",
        "[{name: low, gpus: 16, duration: 100 s}, {name: high, gpus: 4, duration: 10 s, submit: 50 s, priority: 1}]",
    );
    let finish = |overrides: &[(&str, &str)]| {
        let (summary, _) = run(&listed, Path::new("."), overrides).unwrap();
        assert_conserved(&summary["cluster"], 16.0);
        let finish = |job: usize| summary["jobs"][job]["finish_s"].as_f64().expect("it ended");
        (finish(0), finish(1), summary["cluster"]["goodput"].as_f64().expect("something ran"))
    };
    assert_eq!(finish(&[]), (100.0, 110.0, 1.0));
    let preempted = finish(&[("cluster.scheduler", "priority"), ("cluster.restart", "5 s")]);
    // Stopped at 50 s for 10 s, then 5 s lost and 50 s left.
    assert_eq!((preempted.0, preempted.1), (115.0, 60.0));
    assert!((preempted.2 - 1_640.0 / 1_720.0).abs() < 1e-12);
}

#[test]
fn deadlines_are_met_or_told() {
    // Four GPUs: the first job until 10 s, then the other two at once or one after the other.
    let text = "windtunnel: 1\nname: due\nfidelity: job\ntopology: {hosts: 1, host: {gpus: 4}}\ncluster: {reaction_delay: 0 s}\njobs:\n  \
                - {name: first, gpus: 4, duration: 10 s}\n  - {name: long, gpus: 4, duration: 20 s, submit: 1 s, deadline: 60 s}\n  - \
                {name: urgent, gpus: 4, duration: 5 s, submit: 2 s, deadline: 14 s}\n";
    let base = Path::new(".");
    let (summary, rows) = run(text, base, &[]).expect("it runs");
    let late = |summary: &Value| -> Vec<Option<f64>> {
        let jobs = summary["jobs"].as_array().expect("a list");
        jobs.iter().map(|job| job["late_s"].as_f64()).collect()
    };
    assert_eq!(late(&summary), [None, Some(0.0), Some(35.0 - 16.0)]);
    let deadlines = &summary["cluster"]["deadlines"];
    assert_eq!((deadlines["jobs"].as_u64(), deadlines["missed"].as_u64()), (Some(2), Some(1)));
    assert_eq!(deadlines["late_s"]["mean"].as_f64(), Some(19.0));
    assert!(rows.0[0].columns.iter().any(|(name, _)| *name == "late_s"));
    let (summary, _) = run(text, base, &[("cluster.scheduler", "edf")]).expect("it runs");
    assert_eq!(late(&summary), [None, Some(0.0), Some(0.0)]);
    assert_eq!(summary["cluster"]["deadlines"]["missed"].as_u64(), Some(0));
    // Of a source: more time, fewer that are late; without, nothing is told.
    let missed = |times: &str| {
        let overrides = [
            ("jobs.load", "3"),
            ("jobs.count", "4000"),
            ("jobs.deadline", times),
            ("cluster.scheduler", "edf"),
        ];
        let (summary, _) = run(&example(), base, &overrides).expect("it runs");
        summary["cluster"]["deadlines"]["missed"].as_u64()
    };
    let [tight, loose] = [missed("1.5").expect("told"), missed("20").expect("told")];
    assert!(tight > loose, "{tight} {loose}");
    assert_eq!(missed("null"), None);
    for (key, bad) in [("jobs.deadline", "0"), ("jobs.deadline", "-2")] {
        let message = run(&example(), base, &[(key, bad)]).expect_err("it is refused");
        assert!(message.starts_with("a.yaml: jobs.deadline: expected a number above 0"), "{message}");
    }
    let message = run(text, base, &[("jobs[1].deadline", "0 s")]).expect_err("it is refused");
    assert!(message.starts_with("a.yaml: jobs[1].deadline: expected a time above 0"), "{message}");
}
