//! What lies below the bindings: the file's defaults, runs without tables, and a run that is stopped.

use serde_json::Value;
use windtunnel_kernel::{Bytes, Span};
use windtunnel_scenario::api::{self, Failure, RunRequest, Why};
use windtunnel_scenario::load;
use windtunnel_scenario::schema::{Fold, MemoryPolicy, Scenario};
use windtunnel_scenario::table::{Batch, Discard, ProgressSink, TableSink};

const SMALLEST: &str = "
windtunnel: 1
name: smallest
fidelity: flow
topology:
  shape: clos
  hosts: 4
  tiers: [{ports_down: 4, rate: 100 Gbps}]
  host: {gpus: 1}
jobs:
  - name: a
    workload: {collective: {kind: all_reduce, algorithm: ring, form: steps, bytes: 1 MiB}}
";

fn request(text: &str, overrides: &[(&str, &str)]) -> RunRequest {
    RunRequest {
        text: text.to_owned(),
        source: "smallest.yaml".to_owned(),
        overrides: overrides.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect(),
        ..RunRequest::default()
    }
}

fn run(overrides: &[(&str, &str)]) -> Value {
    let text = api::run(&request(SMALLEST, overrides), &mut Discard, &mut Discard).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The summary without what the machine says of itself.
fn results(mut summary: Value) -> Value {
    let keys = summary.as_object_mut().unwrap();
    for key in ["wall_time_s", "cpu_time_s", "peak_memory_bytes", "peak_rss_bytes", "scenario_sha256"] {
        keys.remove(key).unwrap_or_else(|| panic!("`{key}` is missing"));
    }
    summary
}

#[test]
fn what_is_left_out_has_the_documented_value() {
    let read: Scenario = load::scenario(SMALLEST, "smallest.yaml", &[]).unwrap();
    assert_eq!(read.seed, 0);
    assert_eq!((read.network.mtu.0, read.network.header.0), (Bytes::new(4_150), Bytes::new(66)));
    assert_eq!(read.network.load_balancer.of.entry.name, "ecmp");
    assert_eq!((read.memory, read.fold), (MemoryPolicy::Refuse, Fold::Auto));
    assert_eq!(read.cluster.scheduler, "fcfs");
    assert_eq!(read.cluster.episodes.iterations, 3);
    assert_eq!(read.cluster.reaction_delay.0, Span::from_ns(1_000_000));
    assert_eq!(read.results.ideal, None);
    let job = &read.jobs.list()[0];
    assert_eq!((job.placement.as_str(), job.iterations), ("packed", 1));
    assert_eq!((read.topology.planes, read.topology.tiers[0].bundle), (None, 1));
    assert_eq!(read.topology.tiers[0].oversubscription, 1.0);
}

#[test]
fn the_defaults_written_out_change_nothing() {
    let written = [
        ("seed", "0"),
        ("network.mtu", "4150 B"),
        ("network.header", "66 B"),
        ("network.load_balancer", "ecmp"),
        ("memory", "refuse"),
        ("fold", "auto"),
        ("cluster.scheduler", "fcfs"),
        ("cluster.reaction_delay", "1 ms"),
        ("topology.planes", "1"),
        ("jobs[0].placement", "packed"),
        ("jobs[0].iterations", "1"),
    ];
    assert_eq!(results(run(&written)), results(run(&[])));
}

#[test]
fn a_run_repeats_itself_with_any_number_of_threads() {
    let first = results(run(&[]));
    for threads in [1, 2, 4] {
        let asked = RunRequest { threads: Some(threads), ..request(SMALLEST, &[]) };
        let text = api::run(&asked, &mut Discard, &mut Discard).unwrap();
        assert_eq!(results(serde_json::from_str(&text).unwrap()), first);
    }
}

#[test]
fn the_hash_is_of_all_that_decides_the_results() {
    let hash = |overrides: &[(&str, &str)]| run(overrides)["scenario_sha256"].as_str().unwrap().to_owned();
    assert_eq!(hash(&[]), hash(&[]));
    assert_ne!(hash(&[]), hash(&[("seed", "1")]));
    let seeded = RunRequest { seed: Some(1), ..request(SMALLEST, &[]) };
    let text = api::run(&seeded, &mut Discard, &mut Discard).unwrap();
    assert_ne!(serde_json::from_str::<Value>(&text).unwrap()["scenario_sha256"], hash(&[]));
}

/// Counts what it is given.
#[derive(Default)]
struct Tables(Vec<(&'static str, usize)>);

impl TableSink for Tables {
    fn rows(&mut self, table: &'static str, batch: Batch) -> Result<(), String> {
        let lengths = batch.columns.iter().map(|(_, column)| column.len());
        assert!(lengths.clone().all(|length| length == batch.len()), "{table} is ragged");
        assert!(batch.len() <= Batch::ROWS);
        self.0.push((table, batch.len()));
        Ok(())
    }
}

#[test]
fn every_message_is_a_row_unless_rows_are_not_wanted() {
    // 2 (n - 1) steps of 4 ranks.
    for (fidelity, table) in [("flow", "flows"), ("message", "messages")] {
        let mut tables = Tables::default();
        let asked = RunRequest { fidelity: Some(fidelity.to_owned()), ..request(SMALLEST, &[]) };
        api::run(&asked, &mut tables, &mut Discard).unwrap();
        let rows =
            |name: &str| -> usize { tables.0.iter().filter(|row| row.0 == name).map(|row| row.1).sum() };
        assert_eq!((rows(table), rows("iterations"), rows("jobs")), (24, 1, 1), "{fidelity}: {:?}", tables.0);
        let mut none = Tables::default();
        api::run(&request(SMALLEST, &[("results.flows", "none")]), &mut none, &mut Discard).unwrap();
        assert!(none.0.iter().all(|row| row.0 != "flows"), "{:?}", none.0);
    }
}

/// Refuses its first rows.
struct Full;

impl TableSink for Full {
    fn rows(&mut self, _: &'static str, _: Batch) -> Result<(), String> {
        Err("no space left on device".to_owned())
    }
}

#[test]
fn a_sink_that_refuses_ends_the_run() {
    let error = api::run(&request(SMALLEST, &[]), &mut Full, &mut Discard).unwrap_err();
    assert_eq!(error, Failure::Run(Why::Sink, "no space left on device".to_owned()));
}

/// Stops a run at its first chance.
struct Stop;

impl ProgressSink for Stop {
    fn progress(&mut self, _: Option<f64>, _: f64, _: u64) -> bool {
        false
    }
}

#[test]
fn a_stopped_run_is_partial_and_complete_in_its_keys() {
    let long = [
        ("jobs[0].iterations", "100000000"),
        ("cluster.episodes.iterations", "100000000"),
        ("results.ideal", "false"),
    ];
    let text = api::run(&request(SMALLEST, &long), &mut Discard, &mut Stop).unwrap();
    let stopped: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(stopped["partial"], true);
    assert_eq!(stopped["jobs"][0]["state"], "interrupted");
    assert_eq!(stopped["jobs"][0]["finish_s"], Value::Null);
    assert!(stopped["jobs"][0]["simulated_iterations"].as_u64().unwrap() > 0);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&stopped), keys(&run(&[])));
    assert_eq!(keys(&stopped["jobs"][0]), keys(&run(&[])["jobs"][0]));
}

#[test]
fn bad_input_is_data() {
    let error = api::run(&request(SMALLEST, &[("jobs[0].iterations", "0")]), &mut Discard, &mut Discard);
    let Err(Failure::Input(error)) = error else { panic!("{error:?}") };
    assert_eq!(error.place, "smallest.yaml: jobs[0].iterations");
    assert_eq!(error.message, "expected at least 1 iteration, found 0");
    let asked = RunRequest { threads: Some(0), ..request(SMALLEST, &[]) };
    assert!(matches!(api::run(&asked, &mut Discard, &mut Discard), Err(Failure::Input(_))));
}

#[test]
fn the_schema_describes_every_key() {
    let schema: Value = serde_json::from_str(&api::schema()).unwrap();
    let mut missing = Vec::new();
    let mut check = |name: &str, object: &Value| {
        for (key, value) in object["properties"].as_object().into_iter().flatten() {
            if value.get("description").is_none() {
                missing.push(format!("{name}.{key}"));
            }
        }
    };
    check("scenario", &schema);
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        check(name, definition);
    }
    assert_eq!(missing, Vec::<String>::new());
}
