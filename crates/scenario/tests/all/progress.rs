//! What a run tells while it goes, and that its threads change nothing else.

use serde_json::Value;
use std::fmt::Write;
use windtunnel_scenario::api::{Failure, RunRequest, run};
use windtunnel_scenario::table::{Batch, Discard, Phase, ProgressSink, TableSink};

/// Keeps all that it is told.
#[derive(Default)]
struct Told {
    phases: Vec<Phase>,
    /// Phase, part of it and events.
    parts: Vec<(Phase, f64, u64)>,
    remarks: Vec<String>,
}

impl ProgressSink for Told {
    fn progress(&mut self, fraction: Option<f64>, _: f64, events: u64) -> bool {
        let phase = *self.phases.last().expect("a phase begins first");
        self.parts.push((phase, fraction.expect("every phase knows its part"), events));
        true
    }

    fn phase(&mut self, phase: Phase) {
        self.phases.push(phase);
    }

    fn remark(&mut self, line: &str) {
        self.remarks.push(line.to_owned());
    }
}

/// Keeps all rows, in order.
#[derive(Default)]
struct Rows(Vec<(&'static str, Batch)>);

impl Rows {
    /// By their text: what is not a number is not equal to itself.
    fn same(&self, other: &Self) -> bool {
        format!("{:?}", self.0) == format!("{:?}", other.0)
    }
}

impl TableSink for Rows {
    fn rows(&mut self, table: &'static str, batch: Batch) -> Result<(), String> {
        self.0.push((table, batch));
        Ok(())
    }
}

fn request(text: &str, threads: usize) -> RunRequest {
    RunRequest {
        text: text.to_owned(),
        source: "progress.yaml".to_owned(),
        threads: Some(threads),
        ..RunRequest::default()
    }
}

/// The summary without what tells of the machine.
fn without_machine(summary: &str) -> Value {
    let mut summary: Value = serde_json::from_str(summary).expect("a summary is JSON");
    for key in ["wall_time_s", "cpu_time_s", "peak_memory_bytes", "peak_rss_bytes", "events_per_second"] {
        summary.as_object_mut().expect("a mapping").remove(key);
    }
    summary
}

fn done(text: &str, threads: usize) -> (Value, Rows, Told) {
    let (mut rows, mut told) = (Rows::default(), Told::default());
    let summary = run(&request(text, threads), &mut rows, &mut told).expect("it runs");
    (without_machine(&summary), rows, told)
}

/// GPT-Neo on 16 hosts of one GPU; `fidelity` with its dots, `jobs` of equal size.
fn scenario(fidelity: &str, hosts: u32, jobs: u32, iterations: u32) -> String {
    let ranks = hosts / jobs;
    let mut text = format!(
        "windtunnel: 1\nname: progress\nfidelity: {fidelity}\nmemory: ignore\ntopology:\n  shape: clos\n  hosts: {hosts}\n  \
         tiers:\n    - {{ports_down: 4, rate: 100 Gbps}}\n    - {{ports_down: 16, rate: 100 Gbps}}\n  host: {{gpu: H100-SXM, \
         gpus: 1, nics: 1, nic: ConnectX-5}}\njobs:\n"
    );
    for job in 0..jobs {
        writeln!(
            text,
            "  - {{name: job{job}, workload: {{model: opt-350m, global_batch: {}, micro_batch: 1, sequence: 512}}, \
             parallelism: {{dp: {ranks}}}, iterations: {iterations}, submit: {job} ms}}",
            ranks * 2
        )
        .expect("a string takes all");
    }
    text
}

#[test]
fn the_ideal_run_beside_changes_nothing() {
    for (fidelity, hosts) in [("flow", 16), ("message", 8), ("packet", 4)] {
        let text = scenario(fidelity, hosts, 1, 2);
        let (alone, rows, _) = done(&text, 1);
        let (beside, more, told) = done(&text, 2);
        assert!(alone["jobs"][0]["ideal_iteration_time_s"].as_f64() > Some(0.0), "{fidelity}: {alone}");
        assert_eq!(alone, beside, "{fidelity}");
        assert!(rows.same(&more), "{fidelity}: rows differ");
        assert_eq!(told.phases[..2], [Phase::Preparing, Phase::Simulating], "{fidelity}");
    }
    // The times of several jobs are simulated before, shared out.
    let text = scenario("flow", 16, 2, 3).replacen("sequence: 512", "sequence: 256", 1);
    let ((one, rows, told), (two, more, _)) = (done(&text, 1), done(&text, 2));
    assert_eq!(one, two);
    assert!(rows.same(&more), "rows differ");
    let told: Vec<Phase> = told.phases.into_iter().filter(|&phase| phase != Phase::Ideal).collect();
    assert_eq!(told, [Phase::Preparing, Phase::Simulating]);
}

#[test]
fn what_is_wrong_is_told_alike_with_and_without_a_second_thread() {
    // Over hosts of one GPU there are no domains: the replay finds it, on either fabric.
    let text = scenario("flow", 16, 1, 2)
        .replace("parallelism: {dp: 16}", "parallelism: {dp: 16, collectives: {dp: {algorithm: binomial}}}");
    let fails = |threads| match run(&request(&text, threads), &mut Discard, &mut Discard) {
        Err(Failure::Input(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let message = fails(1);
    assert!(message.contains("`binomial` does not compute"), "{message}");
    assert_eq!(message, fails(2));
}

#[test]
fn the_part_of_a_calendar_never_falls() {
    // Long enough for some looks at the clock.
    let text = scenario("flow", 16, 4, 2_000).replace("opt-350m", "gpt-neo-2.7b");
    let mut told = Told::default();
    run(&request(&text, 1), &mut Discard, &mut told).expect("it runs");
    let parts: Vec<f64> =
        told.parts.iter().filter(|part| part.0 == Phase::Simulating).map(|part| part.1).collect();
    assert!(parts.is_sorted() && parts.iter().all(|part| (0.0..=1.0).contains(part)), "{parts:?}");
}

#[test]
fn threads_that_cannot_help_say_why() {
    let told = |text: &str, threads| done(text, threads).2.remarks;
    let flow = scenario("flow", 8, 1, 1);
    assert_eq!(told(&flow, 1), [""; 0]);
    assert_eq!(told(&flow, 2), [""; 0], "the second has the ideal run");
    let [line] = &told(&flow, 4)[..] else { panic!("one line") };
    assert_eq!(
        line,
        "`--threads 4`: 2 are of use, one thread simulates a network at flow fidelity, and another one the ideal fabric beside it"
    );
    let without = format!("{}results: {{ideal: false}}\n", scenario("message", 8, 1, 1));
    let [line] = &told(&without, 2)[..] else { panic!("one line") };
    assert_eq!(line, "`--threads 2` is of no use: one thread simulates a network at message fidelity");
    let packet = format!("{}results: {{ideal: false}}\n", scenario("packet", 4, 1, 1));
    assert_eq!(told(&packet, 2), [""; 0]);
    let no_latency = "windtunnel: 1\nname: bare\nfidelity: packet\ntopology:\n  shape: clos\n  hosts: 4\n  tiers: [{ports_down: 4, \
                      rate: 100 Gbps}]\n  host: {gpus: 1, nics: 1}\nresults: {ideal: false}\njobs:\n  - {name: a, workload: \
                      {collective: {kind: all_reduce, bytes: 1 MB}}}\n";
    let [line] = &told(no_latency, 2)[..] else { panic!("one line") };
    assert!(line.starts_with("`--threads 2` is of no use: hosts whose NIC has no latency"), "{line}");
    assert_eq!(told(&scenario("flow", 16, 2, 2), 4), [""; 0], "groups of jobs are shared out");
}
