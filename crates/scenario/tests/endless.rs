//! A few lines that no machine finishes are refused before anything is allocated, with the figure and the key; and what
//! only looks endless is done in a bounded memory.
//!
//! A binary of its own: it counts the memory of its process, in which no other test may run beside it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use windtunnel_kernel::memory::{self, CountingAllocator};
use windtunnel_scenario::api::{RunRequest, explain, run};
use windtunnel_scenario::error::Failure;
use windtunnel_scenario::table::{Discard, ProgressSink};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Memory is counted for the process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const SCENARIO: &str = "
windtunnel: 1
name: endless
fidelity: flow
topology: {shape: clos, hosts: 8, tiers: [{ports_down: 8, rate: 100 Gbps, length: 5 m}], host: {gpus: 1, nics: 1}}
jobs: [{name: a, workload: {flows: {pattern: incast, bytes: 1 MiB, ranks: 8}}}]
";

fn request(overrides: &[(&str, &str)]) -> RunRequest {
    RunRequest {
        text: SCENARIO.to_owned(),
        source: "a.yaml".to_owned(),
        overrides: overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..RunRequest::default()
    }
}

/// What is said of it, without a run and in little memory.
fn refused(overrides: &[(&str, &str)]) -> String {
    memory::reset_peak();
    let error = match explain(&request(overrides)) {
        Err(Failure::Input(error)) => error.to_string(),
        other => panic!("{overrides:?}: {other:?}"),
    };
    assert!(memory::peak() < 1 << 28, "{overrides:?} took {} B", memory::peak());
    error
}

#[test]
fn what_never_ends_is_refused_with_its_figure() {
    let _alone = alone();
    let gpu = ("topology.host", "{gpus: 8, nics: 8, gpu: H100-SXM, nic: ConnectX-7}");
    let model = "[{name: m, workload: {model: llama3-8b, global_batch: 1000000000, micro_batch: 1, sequence: 2048}, \
                 parallelism: {tp: 2, dp: 4}}]";
    let far = "[{ports_down: 8, rate: 100 Gbps, length: 1e12 km}]";
    let day = "[{name: a, gpus: 8, duration: 100 d}]";
    let two = "[{name: a, gpus: 8, duration: 10 d}, {name: b, gpus: 8, duration: 10 d}]";
    let cases: [(&[(&str, &str)], &str); 14] = [
        (
            &[("cluster", "{scheduler: gang, slice: 0.001 ns}")],
            "cluster.slice: expected a time slice of at least 1 ms, found 1 ps",
        ),
        (
            &[("cluster", "{faults: [{class: host, mtbf: 1 ns, repair: 1 s}]}")],
            "cluster.faults[0].mtbf: expected a mean time between faults of at least 1 s, found 1 ns",
        ),
        (
            &[gpu, ("topology.tiers", "[{ports_down: 64, rate: 400 Gbps}]"), ("jobs", model)],
            "jobs[0].workload.global_batch: 250000000 micro-batches go through every pipeline in an iteration",
        ),
        (
            &[("fidelity", "packet"), ("impairments", "{background: [{bytes: 1 B, load: 0.9}]}")],
            "impairments.background[0].load: messages this small at this load fill 1.76 of every NIC",
        ),
        (
            &[
                ("topology.tiers", "[{ports_down: 1000000000, rate: 100 Gbps}]"),
                ("topology.hosts", "1000000000"),
            ],
            "topology: 1000000000 GPUs and 2000000000 links need 224 GB of memory at least",
        ),
        (
            &[
                ("fidelity", "packet"),
                ("topology.tiers", "[{ports_down: 1000000000, rate: 100 Gbps}]"),
                ("topology.hosts", "1000000000"),
            ],
            "topology: 1000000000 GPUs and 2000000000 links need 480 GB of memory at least",
        ),
        (
            &[
                ("topology.tiers", "[{ports_down: 100000, rate: 100 Gbps}]"),
                ("topology.hosts", "100000"),
                ("jobs", "[{name: a, workload: {flows: {pattern: all-to-all, bytes: 1 B}}}]"),
            ],
            "jobs[0].workload.flows: 9999900000 messages and 100000 ranks need 6400 GB of memory at least",
        ),
        (&[("jobs", "[{name: a, workload: {flows: {pattern: ring, bytes: 1 EB}}}]")], "`EB` is not one of"),
        (
            &[("fidelity", "job"), ("jobs", "{like: philly, count: 4000000000}")],
            "jobs.count: 4000000000 jobs need ",
        ),
        (
            &[
                ("topology.hosts", "1"),
                ("topology.host", "{gpus: 30000000, nics: 1}"),
                ("jobs", "[{name: a, workload: {flows: {pattern: ring, bytes: 1 B}}}]"),
            ],
            "jobs[0].workload.flows: 30000000 messages and 30000000 ranks need 115 GB of memory at least",
        ),
        (
            &[
                ("fidelity", "job"),
                ("jobs", day),
                ("cluster", "{faults: [{class: gpu, mtbf: 1 s, repair: 1 s}]}"),
            ],
            "cluster.faults: expected at most 10000000 faults in the 100.0 days that the jobs take at least, found 34560000, \
             most of class gpu",
        ),
        (
            &[("fidelity", "job"), ("jobs", two), ("cluster", "{scheduler: gang, slice: 1 ms}")],
            "cluster.slice: expected at most 100000000 time slices, found 864000000 in the 10.0 days in which jobs take turns",
        ),
        (
            &[("fidelity", "packet"), ("results", "{queues: 1 ps}")],
            "results.queues: expected at least 1 ns from one sample to the next, found 1 ps",
        ),
        (
            &[("fidelity", "packet"), ("topology.tiers", far)],
            "topology: expected paths that packets go there and back in 50 days, found one of 231 days",
        ),
    ];
    for (overrides, said) in cases {
        let error = refused(overrides);
        assert!(error.contains(said), "{error}");
    }
}

/// What is just large enough to be done is not refused.
#[test]
fn what_ends_is_not_refused() {
    let _alone = alone();
    for overrides in [
        &[("cluster", "{scheduler: gang, slice: 1 ms}")][..],
        &[("cluster", "{faults: [{class: host, mtbf: 1 s, repair: 1 s}]}")],
        &[("fidelity", "packet"), ("impairments", "{background: [{bytes: 1 B, load: 0.5}]}")],
        &[("fidelity", "packet"), ("impairments", "{background: [{bytes: 64 KB, load: 0.9}]}")],
        &[("fidelity", "packet"), ("results", "{queues: 1 ns}")],
        &[("fidelity", "packet"), ("topology.tiers", "[{ports_down: 8, rate: 100 Gbps, length: 1e11 km}]")],
        &[
            ("fidelity", "job"),
            ("jobs", "[{name: a, gpus: 8, duration: 100 d}]"),
            ("cluster", "{faults: [{class: gpu, mtbf: 1 h, repair: 1 h}], scheduler: gang, slice: 1 ms}"),
        ],
    ] {
        assert!(explain(&request(overrides)).is_ok(), "{overrides:?}");
    }
}

/// Keeps the least fraction told after time has passed, and the most before.
#[derive(Default)]
struct Told {
    before: f64,
    calls: u64,
}

impl ProgressSink for Told {
    fn progress(&mut self, fraction: Option<f64>, simulated_s: f64, _: u64) -> bool {
        if simulated_s == 0.0 {
            self.before = self.before.max(fraction.unwrap_or(0.0));
        }
        self.calls += 1;
        true
    }
}

/// Stops the run once time has passed.
#[derive(Default)]
struct Enough(u64);

impl ProgressSink for Enough {
    fn progress(&mut self, _: Option<f64>, simulated_s: f64, _: u64) -> bool {
        self.0 += 1;
        simulated_s == 0.0
    }
}

/// Eight GPUs of which each works for a second and is repaired for another are whole for a 256th of the time: between two starts of
/// the job there are hundreds of faults.
#[test]
fn a_run_that_does_nothing_but_fail_can_be_stopped() {
    let _alone = alone();
    let faults = ("cluster", "{faults: [{class: gpu, mtbf: 1 s, repair: 1 s}]}");
    let life = "checkpoint: {every: 10 ms, write: 1 ms}";
    let work = "workload: {flows: {pattern: ring, bytes: 1 MiB, ranks: 8}}, iterations: 1000000000";
    let timed = format!("[{{name: a, gpus: 8, duration: 10 d, {life}}}]");
    let one = format!("[{{name: a, {work}, {life}}}]");
    let two = format!("[{{name: a, {work}, {life}}}, {{name: b, {work}, {life}}}]");
    for (fidelity, jobs, full) in [("job", &timed, false), ("flow", &one, false), ("flow", &two, true)] {
        let overrides = [("fidelity", fidelity), ("jobs", jobs.as_str()), faults];
        let request = RunRequest { full, ..request(&overrides) };
        let mut told = Enough::default();
        let summary = run(&request, &mut Discard, &mut told)
            .unwrap_or_else(|failure| panic!("{fidelity}, {full}: {failure:?}"));
        let summary: Value = serde_json::from_str(&summary).expect("a summary is JSON");
        assert!(told.0 > 0 && summary["partial"] == true, "{fidelity}, {full}");
    }
}

fn done(overrides: &[(&str, &str)], full: bool) -> (Value, u64) {
    memory::reset_peak();
    let request = RunRequest { full, ..request(overrides) };
    let mut told = Told::default();
    let summary =
        run(&request, &mut Discard, &mut told).unwrap_or_else(|failure| panic!("{overrides:?}: {failure:?}"));
    assert!(told.before < 0.5, "{} of it done at time 0", told.before);
    (serde_json::from_str(&summary).expect("a summary is JSON"), memory::peak())
}

/// Seven ranks that only send to one: an iteration of theirs costs them no time.
#[test]
fn ranks_that_only_send_have_a_bounded_number_of_iterations_under_way() {
    let _alone = alone();
    for fidelity in ["message", "flow", "packet"] {
        for pattern in ["incast", "outcast"] {
            let flows = format!("{{pattern: {pattern}, bytes: 64 KiB, ranks: 8}}");
            let with = |iterations: &str| {
                let overrides = [
                    ("fidelity", fidelity),
                    ("jobs[0].workload.flows", flows.as_str()),
                    ("jobs[0].iterations", iterations),
                    ("results", "{ideal: false, operations: none, flows: none}"),
                ];
                done(&overrides, false)
            };
            let ((many, most), (few, least)) = (with("1000000000"), with("100000"));
            let [more, fewer] = [&many, &few].map(|summary| summary["events"].as_f64().expect("a number"));
            assert!(
                (more / fewer - 1.0).abs() < 0.1,
                "{pattern} at {fidelity}: {more} events against {fewer}"
            );
            assert!(most < least + (1 << 20), "{pattern} at {fidelity}: {most} B against {least} B");
            assert!(most < 1 << 27, "{pattern} at {fidelity}: {most} B");
            let each = |summary: &Value, iterations: f64| {
                summary["jobs"][0]["finish_s"].as_f64().expect("it finishes") / iterations
            };
            let (many, few) = (each(&many, 1e9), each(&few, 1e5));
            assert!((many / few - 1.0).abs() < 1e-3, "{pattern} at {fidelity}: {many} s against {few} s");
        }
    }
}

/// However many iterations are simulated, an incast ends with its receiver's link: at line rate.
#[test]
fn a_bound_on_running_ahead_costs_no_time() {
    let _alone = alone();
    let flows = ("jobs[0].workload.flows", "{pattern: incast, bytes: 64 KiB, ranks: 8}");
    let results = ("results", "{ideal: false, operations: none, flows: none}");
    for (fidelity, count) in [("flow", 3_000.0), ("message", 3_000.0)] {
        let count_text = format!("{count}");
        let (summary, _) =
            done(&[("fidelity", fidelity), flows, results, ("jobs[0].iterations", &count_text)], true);
        let each = summary["jobs"][0]["finish_s"].as_f64().expect("it finishes") / count;
        let wire = 7.0 * 65_536.0 * (4_150.0 / 4_084.0) * 8.0 / 100e9;
        assert!((each / wire - 1.0).abs() < 0.01, "{fidelity}: {each} s against {wire} s");
    }
}

/// A rank that has nothing to do does not count for its job's end, nor recurse through its iterations.
#[test]
fn ranks_with_nothing_to_do_wait_for_the_others() {
    let _alone = alone();
    let flows = ("jobs[0].workload.flows", "{file: pair.csv, ranks: 8}");
    let folder = std::env::temp_dir().join(format!("windtunnel-endless-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a writable folder");
    std::fs::write(folder.join("pair.csv"), "source,destination,bytes\n0,1,65536\n")
        .expect("a writable folder");
    let overrides = [flows, ("jobs[0].iterations", "1000000")];
    let request = RunRequest { base: folder.clone(), ..request(&overrides) };
    let summary = run(&request, &mut Discard, &mut Discard);
    std::fs::remove_dir_all(&folder).expect("it was just made");
    let summary: Value = serde_json::from_str(&summary.expect("a run")).expect("a summary is JSON");
    assert_eq!(summary["jobs"][0]["state"], "finished");
}
