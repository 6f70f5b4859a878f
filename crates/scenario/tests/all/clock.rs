//! A run whose clock somebody moves: it stands where it is told to, tells what has happened, and gives what it would have given.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use windtunnel_kernel::CalendarTime;
use windtunnel_run::gate::{Gate, Notice, State};
use windtunnel_scenario::api::{self, RunRequest};
use windtunnel_scenario::table::Discard;

/// Four jobs on eight GPUs: two begin, one waits, one comes later; a host fails twice an hour.
fn scenario(fidelity: &str, more: &str) -> String {
    let job = |name: &str, ranks: u32, iterations: u32, submit: u32| {
        format!(
            "  - {{name: {name}, workload: {{model: dlrm, global_batch: {}}}, parallelism: {{dp: {ranks}}}, iterations: \
             {iterations}, submit: {submit} ms}}\n",
            ranks * 512
        )
    };
    let jobs = [job("a", 4, 30, 0), job("b", 4, 60, 0), job("c", 2, 20, 1), job("d", 4, 25, 90)].concat();
    format!(
        "windtunnel: 1\nname: clock\nfidelity: {fidelity}\ntopology:\n  shape: clos\n  hosts: 8\n  tiers:\n    \
         - {{ports_down: 4, oversubscription: 2, rate: 100 Gbps}}\n    - {{ports_down: 2, rate: 100 Gbps}}\n  host: \
         {{gpu: H100-SXM, gpus: 1, nics: 1, nic: ConnectX-5}}\nmemory: ignore\nresults: {{operations: none, flows: none}}\n\
         {more}jobs:\n{jobs}"
    )
}

const FAULTS: &str = "cluster:\n  faults:\n    - {class: host, mtbf: 1 s, repair: 20 ms}\n";

fn request(text: &str, full: bool, gate: Option<Arc<Gate>>) -> RunRequest {
    RunRequest {
        text: text.to_owned(),
        source: "a.yaml".to_owned(),
        threads: Some(1),
        full,
        gate,
        ..RunRequest::default()
    }
}

fn summary(request: &RunRequest) -> Value {
    let text = api::run(request, &mut Discard, &mut Discard).unwrap_or_else(|failure| panic!("{failure:?}"));
    let mut summary: Value = serde_json::from_str(&text).expect("a summary is JSON");
    for key in ["wall_time_s", "cpu_time_s", "peak_memory_bytes", "peak_rss_bytes"] {
        summary[key] = Value::Null;
    }
    summary
}

/// Waits until the run is still.
fn still(gate: &Gate) -> State {
    loop {
        if let (state, true) = gate.wait(Duration::from_secs(1)) {
            return state;
        }
    }
}

const MS: u64 = 1_000_000;

/// What a job went through, one entry for each notice.
fn story(notices: &[Notice], job: &str) -> Vec<&'static str> {
    let of = |notice: &&Notice| notice.job.as_deref() == Some(job) && notice.what != "fault";
    notices.iter().filter(of).map(|notice| notice.what).collect()
}

#[test]
fn it_stands_where_it_is_told_to_and_gives_the_same() {
    for (fidelity, full, more) in [
        ("job", false, FAULTS),
        ("message", false, FAULTS),
        ("flow", false, FAULTS),
        ("flow", true, FAULTS),
        ("packet", false, ""),
    ] {
        let text = scenario(fidelity, more);
        let undisturbed = summary(&request(&text, full, None));
        let gate = Arc::new(Gate::default());
        let run = thread::spawn({
            let request = request(&text, full, Some(Arc::clone(&gate)));
            move || summary(&request)
        });
        let (mut until, mut all) = (0, Vec::new());
        loop {
            gate.advance(CalendarTime::from_ns(until));
            let state = still(&gate);
            if state.ended {
                break;
            }
            assert!(state.now.ns() <= until, "{fidelity}: {state:?} at {until}");
            assert!(state.next.is_some_and(|next| next.ns() > until), "{fidelity}: {state:?} at {until}");
            let notices = gate.take();
            assert!(notices.iter().all(|notice| notice.at.ns() <= until), "{fidelity}: {notices:?}");
            // It stands: a moment later nothing else has happened.
            assert_eq!(gate.wait(Duration::from_millis(1)), (state, true));
            assert_eq!(gate.take(), []);
            all.extend(notices);
            until += 7 * MS;
        }
        all.extend(gate.take());
        let given = run.join().expect("it ends");
        assert_eq!(given, undisturbed, "{fidelity}");
        assert!(until > 50 * MS, "{fidelity}: it was held {} times", until / 7 / MS);
        assert!(all.is_sorted_by_key(|notice| notice.at), "{all:?}");
        for job in ["a", "b", "c", "d"] {
            let story = story(&all, job);
            assert_eq!(story[..2], ["submitted", "started"], "{fidelity}: {job}");
            assert_eq!(story.last(), Some(&"ended"), "{fidelity}: {job}");
            // Whoever loses its GPUs begins again.
            let count = |what: &str| story.iter().filter(|&&one| one == what).count();
            assert_eq!(count("started"), 1 + count("interrupted"), "{fidelity}: {job}: {story:?}");
        }
        let of_summary = |key: &str| {
            let jobs = undisturbed["jobs"].as_array().expect("a list");
            jobs.iter().map(|job| job[key].as_u64().expect("a count")).sum::<u64>()
        };
        let interrupted = all.iter().filter(|notice| notice.what == "interrupted").count();
        assert_eq!(interrupted as u64, of_summary("interruptions"), "{fidelity}");
        for job in undisturbed["jobs"].as_array().expect("a list") {
            let ended =
                all.iter().find(|one| one.what == "ended" && one.job.as_deref() == job["name"].as_str());
            let finish = (job["finish_s"].as_f64().expect("it ended") * 1e9).round() as u64;
            assert_eq!(ended.map(|one| one.at.ns()), Some(finish), "{fidelity}: {}", job["name"]);
        }
    }
}

#[test]
fn it_goes_step_by_step_and_can_be_stopped() {
    let gate = Arc::new(Gate::default());
    let run = thread::spawn({
        let request = request(&scenario("flow", ""), false, Some(Arc::clone(&gate)));
        move || summary(&request)
    });
    let mut instants = vec![still(&gate).now];
    for _ in 0..3 {
        gate.step();
        let state = still(&gate);
        let notices = gate.take();
        assert!(notices.iter().all(|notice| notice.at <= state.now), "{notices:?}");
        instants.push(state.now);
    }
    assert!(instants.is_sorted_by(|a, b| a < b), "{instants:?}");
    gate.close();
    assert!(still(&gate).ended);
    let summary = run.join().expect("it ends");
    assert!(summary["jobs"].as_array().is_some());
    // One that fails has ended too.
    let gate = Arc::new(Gate::default());
    let broken = request("windtunnel: 1\nname: none\n", false, Some(Arc::clone(&gate)));
    assert!(api::run(&broken, &mut Discard, &mut Discard).is_err());
    assert!(still(&gate).ended);
}
