//! Episodes at flow fidelity: groups, memo, threads, whole exchanges, and fast-forwarding against every iteration.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;
use windtunnel_scenario::api::{self, RunRequest};
use windtunnel_scenario::table::{Batch, Column, Discard, TableSink};

/// Keeps the tables.
#[derive(Debug, Default)]
struct Tables(Vec<(&'static str, Batch)>);

impl TableSink for Tables {
    fn rows(&mut self, table: &'static str, batch: Batch) -> Result<(), String> {
        self.0.push((table, batch));
        Ok(())
    }
}

impl Tables {
    fn column(&self, table: &str, column: &str) -> Vec<f64> {
        let batches = self.0.iter().filter(|(name, _)| *name == table);
        let values = batches.flat_map(|(_, batch)| {
            let found = batch.columns.iter().find(|(name, _)| *name == column).expect("the column is there");
            match &found.1 {
                Column::F64(values) => values.clone(),
                Column::U32(values) => values.iter().map(|&value| f64::from(value)).collect(),
                Column::U64(values) => values.iter().map(|&value| value as f64).collect(),
                other => panic!("no numbers: {other:?}"),
            }
        });
        values.collect()
    }
}

fn request(text: &str, overrides: &[(&str, &str)]) -> RunRequest {
    RunRequest {
        text: text.to_owned(),
        source: "a.yaml".to_owned(),
        base: Path::new(".").to_owned(),
        overrides: overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..RunRequest::default()
    }
}

fn run_request(request: &RunRequest) -> (Value, Tables) {
    let mut tables = Tables::default();
    let summary = match api::run(request, &mut tables, &mut Discard) {
        Ok(summary) => summary,
        Err(api::Failure::Input(error)) => panic!("{error}"),
        Err(api::Failure::Run(_, message)) => panic!("{message}"),
        Err(api::Failure::Cluster(error)) => panic!("{error}"),
    };
    (serde_json::from_str(&summary).expect("a summary is JSON"), tables)
}

fn run(text: &str, overrides: &[(&str, &str)]) -> (Value, Tables) {
    run_request(&request(text, overrides))
}

/// A leaf of four hosts of one GPU each, leaves twice as narrow upwards. Collectives take what their messages take: links are
/// what jobs wait for.
fn cluster(jobs: &str) -> String {
    format!(
        "windtunnel: 1\nname: episodes\nseed: 4\nfidelity: flow\ntopology:\n  shape: clos\n  hosts: 64\n  tiers:\n    \
         - {{ports_down: 4, oversubscription: 2, rate: 100 Gbps}}\n    - {{ports_down: 16, rate: 100 Gbps}}\n  host: \
         {{gpu: H100-SXM, gpus: 1, nics: 1, nic: ConnectX-5}}\nnetwork: {{exchange: hosts, collectives: {{tuner: size}}}}\nmemory: ignore\nresults: \
         {{operations: none, flows: none}}\njobs:\n{jobs}"
    )
}

fn job(name: &str, ranks: u32, iterations: u32, submit_ms: u32, placement: &str) -> String {
    format!(
        "  - {{name: {name}, workload: {{model: dlrm, global_batch: {}}}, parallelism: {{dp: {ranks}}}, iterations: \
         {iterations}, submit: {submit_ms} ms, placement: {placement}}}\n",
        ranks * 4096
    )
}

/// Twenty jobs of 2 to 12 hosts that come one after the other and share spines.
fn twenty(iterations: u32) -> String {
    let mut jobs = String::new();
    for index in 0..20u32 {
        let ranks = [4, 8, 2, 12, 6][index as usize % 5];
        let iterations = iterations + index * 37 % 11 * iterations / 20;
        write!(jobs, "{}", job(&format!("job-{index}"), ranks, iterations, index * iterations / 2, "random"))
            .expect("a string takes all");
    }
    cluster(&jobs)
}

fn finishes(summary: &Value) -> Vec<f64> {
    let jobs = summary["jobs"].as_array().expect("a list");
    jobs.iter().map(|job| job["finish_s"].as_f64().expect("it ended")).collect()
}

/// What of a summary may depend on the machine taken out.
fn comparable(mut summary: Value) -> Value {
    for key in
        ["wall_time_s", "cpu_time_s", "peak_memory_bytes", "peak_rss_bytes", "scenario_sha256", "evidence"]
    {
        summary[key] = Value::Null;
    }
    summary
}

#[test]
fn jobs_without_a_common_link_run_as_if_alone() {
    // Four ranks on a leaf each: packed fills leaf after leaf.
    let both = cluster(&(job("a", 4, 50, 0, "packed") + &job("b", 4, 90, 1, "packed")));
    let (summary, _) = run(&both, &[]);
    let alone = run(&cluster(&job("a", 4, 50, 0, "packed")), &[]).0;
    assert_eq!(summary["jobs"][0]["finish_s"], alone["jobs"][0]["finish_s"]);
    let episodes = &summary["cluster"]["episodes"];
    // The second job stands on its leaf as the first on another.
    assert_eq!(
        (episodes["begun"].as_u64(), episodes["simulated"].as_u64()),
        (Some(2), Some(1)),
        "{episodes}"
    );
}

#[test]
fn the_memo_changes_no_result_and_neither_do_threads() {
    // Jobs that meet come so often that what is unfinished is carried from episode to episode: none is like another.
    memo_and_threads(&twenty(300), Are::Meeting);
    let alone: String =
        (0..12u32).map(|index| job(&format!("job-{index}"), 4, 50 + index, index * 7, "packed")).collect();
    memo_and_threads(&cluster(&alone), Are::Alone);
}

/// Where the jobs of a cluster are.
#[derive(PartialEq)]
enum Are {
    Alone,
    Meeting,
}

fn memo_and_threads(text: &str, jobs: Are) {
    let threads = |threads: usize, memo: &str| {
        let overrides = [("cluster.episodes.memo", memo)];
        RunRequest { threads: Some(threads), ..request(text, &overrides) }
    };
    let (one, tables) = run_request(&threads(1, "exact"));
    let (two, others) = run_request(&threads(2, "exact"));
    assert_eq!(comparable(one.clone()), comparable(two));
    for table in ["usage", "congestion", "heat"] {
        let rows = |tables: &Tables| {
            tables
                .0
                .iter()
                .filter(|(name, _)| *name == table)
                .map(|(_, batch)| batch.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(rows(&tables), rows(&others), "{table}");
    }
    let (off, _) = run_request(&threads(2, "off"));
    assert_eq!(finishes(&one), finishes(&off));
    let episodes = &one["cluster"]["episodes"];
    assert_eq!(episodes["memo_hits"].as_u64() > Some(0), jobs == Are::Alone, "{episodes}");
    // Bins add up to the GPUs, congestion lies inside the run.
    let sums = ["busy", "idle", "stranded", "failed", "draining"].map(|state| tables.column("usage", state));
    for bin in 0..sums[0].len() {
        let sum: f64 = sums.iter().map(|state| state[bin]).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{bin}: {sum}");
    }
    let end = one["cluster"]["makespan_s"].as_f64().expect("a time");
    assert!(tables.column("congestion", "until_s").into_iter().all(|until| until <= end + 1e-9));
    let slowed = tables.column("congestion", "slowdown").into_iter().any(|slowdown| slowdown > 1.05);
    assert_eq!(slowed, jobs == Are::Meeting);
}

#[test]
fn fast_forwarding_agrees_with_every_iteration() {
    // Hosts for all at once: a job that waits is placed where others have ended, and of two that end in another order than in
    // the reference the next one stands elsewhere.
    let text = twenty(400).replace("hosts: 64", "hosts: 128").replace("ports_down: 16", "ports_down: 32");
    let text = text + "variation: {kernel_noise: {distribution: normal, cv: 0.03}}\n";
    let fast = run(&text, &[]).0;
    let full = run_request(&RunRequest { full: true, ..request(&text, &[]) }).0;
    let starts = |summary: &Value| -> Vec<f64> {
        summary["jobs"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|job| job["start_s"].as_f64().unwrap())
            .collect()
    };
    let spans = |summary: &Value| -> Vec<f64> {
        finishes(summary).iter().zip(starts(summary)).map(|(finish, start)| finish - start).collect()
    };
    let simulated = |summary: &Value| -> u64 {
        summary["jobs"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|job| job["simulated_iterations"].as_u64().unwrap())
            .sum()
    };
    let all: u64 =
        full["jobs"].as_array().expect("a list").iter().map(|job| job["iterations"].as_u64().unwrap()).sum();
    assert_eq!(starts(&fast), starts(&full));
    assert_eq!(simulated(&full), all);
    assert!(simulated(&fast) < all, "{} of {all}", simulated(&fast));
    // Each within its own band with a confidence of 95%, so one of twenty may be beyond; over seeds their deviation is 0.8%.
    let errors: Vec<f64> =
        spans(&fast).into_iter().zip(spans(&full)).map(|(fast, full)| fast / full - 1.0).collect();
    let bands: Vec<f64> = fast["jobs"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|job| job["time_band_s"].as_f64().unwrap())
        .collect();
    let limits = bands.iter().zip(spans(&full)).map(|(band, span)| band / span);
    let beyond = errors.iter().zip(limits).filter(|(error, limit)| error.abs() > *limit).count();
    assert!(beyond <= 1 && errors.iter().all(|error| error.abs() < 0.03), "{errors:?} {bands:?}");
    assert!(bands.iter().zip(spans(&full)).all(|(band, span)| *band < 0.15 * span), "{bands:?}");
    let deviation = (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt();
    assert!(deviation < 0.011, "{deviation}: {errors:?}");
}

/// Two hosts on one switch: each sends the other half of what its ranks have, at line rate.
#[test]
fn a_whole_exchange_takes_the_time_of_its_bytes() {
    let text = |exchange: &str| {
        format!(
            "windtunnel: 1\nname: exchange\nfidelity: flow\ntopology:\n  shape: clos\n  hosts: 4\n  tiers: [{{ports_down: \
             4, rate: 100 Gbps, length: 0 m}}]\n  host: {{gpus: 4, nics: 1, scale_up: {{rate: 4000 GB/s, latency: 1 \
             ns}}}}\n  switch: {{latency: 0 ns}}\nnetwork: {{exchange: {exchange}, mtu: 4096 B, header: 96 B}}\njobs:\n  - \
             {{name: a, workload: {{collective: {{kind: all_to_all, algorithm: direct, bytes: 64 MB}}}}}}\n"
        )
    };
    let time = |exchange: &str| {
        run(&text(exchange), &[]).0["jobs"][0]["iteration_time_s"]["mean"].as_f64().expect("a time")
    };
    // 16 ranks, blocks of 4 MB: a host has 4 x 12 of them for others.
    let wire = 48.0 * 4e6 * 4096.0 / 4000.0;
    let expected = wire * 8.0 / 100e9;
    let (hosts, messages) = (time("hosts"), time("messages"));
    assert!((hosts / expected - 1.0).abs() < 1e-3, "{hosts} {expected}");
    assert!((hosts / messages - 1.0).abs() < 0.01, "{hosts} {messages}");
}

const DRAWN: &str = "  like: philly
  count: 400
  load: 20
  queue: 30
  ends: 60
  scale: {max_gpus: 16, max_duration: 1 h}
  workloads:
    - {name: dlrm, workload: {model: dlrm}, batch_per_replica: 4096}
";

#[test]
fn jobs_of_a_shape_have_operations_a_queue_and_an_end() {
    let (summary, tables) = run(&cluster(DRAWN), &[]);
    let cluster = &summary["cluster"];
    assert_eq!(cluster["finished"].as_u64(), Some(60));
    assert_eq!(summary["jobs"], Value::Array(Vec::new()));
    assert!(cluster["samples_per_s_per_gpu"].as_f64() > Some(0.0));
    // All that were submitted have a row; 30 wait at the end, unless one has just come.
    let (start, finish) = (tables.column("jobs", "start_s"), tables.column("jobs", "finish_s"));
    assert_eq!(finish.iter().filter(|finish| !finish.is_nan()).count(), 60);
    assert_eq!(start.iter().filter(|start| start.is_nan()).count(), 30);
    let total: f64 = cluster["gpu_seconds"].as_object().unwrap().values().filter_map(Value::as_f64).sum();
    let end = summary["simulated_time_s"].as_f64().unwrap();
    assert!((total / (64.0 * end) - 1.0).abs() < 1e-9, "{total} {end}");
}

#[test]
fn what_cannot_be_drawn_is_refused_with_its_key() {
    let error = |from: &str, to: &str| {
        let text = cluster(&DRAWN.replace(from, to));
        match api::run(&request(&text, &[]), &mut Discard, &mut Discard) {
            Err(api::Failure::Input(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert!(error("queue: 30", "queue: 0").starts_with("a.yaml: jobs.queue: expected room"));
    assert!(
        error(", batch_per_replica: 4096", "").contains("jobs.workloads[0].batch_per_replica: a model needs")
    );
    let text = error("{model: dlrm}", "{model: dlrm, global_batch: 4}");
    assert!(text.contains("jobs.workloads[0].workload.global_batch: jobs of a source differ"), "{text}");
    let text = error("{model: dlrm}", "{model: llama3-8b, sequence: 2048}, parallelism: {tp: 8}");
    assert!(text.contains("jobs.workloads: no workload fits a job of 1 GPU"), "{text}");
    let text = error("name: dlrm", "name: dlrm, share: 0");
    assert!(text.contains("jobs.workloads[0].share: expected a number above 0"), "{text}");
}

/// Ranks that wait for nobody begin the next iteration while others are in this one, more and more until they are held up.
#[test]
fn iterations_that_drift_are_followed_until_they_do_not() {
    let text = |kind: &str, algorithm: &str, ranks: u32| {
        format!(
            "windtunnel: 1\nname: drift\nfidelity: flow\ntopology: {{shape: clos, hosts: 8, tiers: [{{ports_down: 2, rate: 400 Gbps}}, \
             {{ports_down: 4, rate: 400 Gbps}}], host: {{gpus: 1, nics: 1, nic: ConnectX-7}}}}\njobs: [{{name: a, workload: {{collective: \
             {{kind: {kind}, algorithm: {algorithm}, bytes: 1 MB, ranks: {ranks}}}}}, iterations: 100}}]\n"
        )
    };
    for (kind, algorithm) in [
        ("all_gather", "pat"),
        ("all_gather", "bruck"),
        ("all_to_all", "bruck"),
        ("reduce", "binomial"),
        ("reduce", "double_binary_tree"),
        ("all_reduce", "ring"),
    ] {
        for (ranks, fidelity) in [(5, "flow"), (8, "flow"), (8, "message"), (5, "packet")] {
            let text = text(kind, algorithm, ranks);
            let overrides = [("fidelity", fidelity)];
            let fast = finishes(&run(&text, &overrides).0)[0];
            let whole = run_request(&RunRequest { full: true, ..request(&text, &overrides) }).0;
            let every = finishes(&whole)[0];
            assert!(
                (fast / every - 1.0).abs() < 0.02,
                "{kind} {algorithm} {ranks} {fidelity}: {fast} {every}"
            );
        }
    }
}

#[test]
fn jobs_of_a_few_iterations_tell_how_long_those_took() {
    // The second one goes on in the middle of its first iteration, alone.
    let text = "windtunnel: 1\nname: few\nseed: 5\nfidelity: packet\ntopology: {shape: clos, hosts: 8, tiers: [{ports_down: 4, \
                oversubscription: 2, rate: 100 Gbps}, {ports_down: 4, rate: 100 Gbps}], host: {gpus: 1, nics: 1, nic: ConnectX-5}}\njobs:\n  \
                - {name: first, workload: {collective: {kind: all_reduce, algorithm: ring, bytes: 4 MiB, ranks: 4}}, placement: \
                random, iterations: 2}\n  - {name: second, workload: {collective: {kind: all_to_all, algorithm: pairwise, bytes: 16 \
                MiB, ranks: 4}}, placement: random, iterations: 2}\n";
    for fidelity in ["message", "flow", "packet"] {
        let (summary, _) = run(text, &[("fidelity", fidelity)]);
        for job in summary["jobs"].as_array().expect("a list") {
            let took = (job["finish_s"].as_f64().unwrap() - job["start_s"].as_f64().unwrap()) / 2.0;
            let told =
                job["iteration_time_s"]["mean"].as_f64().unwrap_or_else(|| panic!("{fidelity}: {job}"));
            assert!((told / took - 1.0).abs() < 0.25, "{fidelity}: {told} {took}");
        }
    }
}
