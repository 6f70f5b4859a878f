//! A run that was killed goes on with its journal, and gives what it would have given undisturbed.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value;
use windtunnel_scenario::api::{self, Failure, Keep, RunRequest};
use windtunnel_scenario::table::{Batch, Discard, ProgressSink, TableSink};

/// Keeps the tables.
#[derive(Debug, Default)]
struct Tables(Vec<(&'static str, Batch)>);

impl TableSink for Tables {
    fn rows(&mut self, table: &'static str, batch: Batch) -> Result<(), String> {
        self.0.push((table, batch));
        Ok(())
    }
}

/// A folder of this test's own, and in it a journal.
fn place(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("resumed");
    fs::create_dir_all(&folder).expect("a folder can be made");
    folder.join(name)
}

/// Jobs that meet behind leaves half as wide upwards, come while others run, and lose hosts.
fn scenario(fidelity: &str, results: &str) -> String {
    let mut jobs = String::new();
    for index in 0..7_u32 {
        let (ranks, iterations) = ([4, 6, 2, 8][index as usize % 4], 12 + index * 5 % 7);
        writeln!(
            jobs,
            "  - {{name: job-{index}, workload: {{model: dlrm, global_batch: {}}}, parallelism: {{dp: {ranks}}}, iterations: \
             {iterations}, submit: {} ms, placement: random}}",
            ranks * 128,
            index * 8
        )
        .expect("a string takes all");
    }
    format!(
        "windtunnel: 1\nname: resumed\nseed: 4\nfidelity: {fidelity}\ntopology:\n  shape: clos\n  hosts: 16\n  tiers:\n    \
         - {{ports_down: 4, oversubscription: 2, rate: 100 Gbps}}\n    - {{ports_down: 4, rate: 100 Gbps}}\n  host: \
         {{gpu: H100-SXM, gpus: 1, nics: 1, nic: ConnectX-5}}\nmemory: ignore\nresults: {results}\ncluster:\n  faults:\n    - \
         {{class: host, mtbf: 1 s, repair: 1 ms}}\njobs:\n{jobs}"
    )
}

fn request(text: &str, journal: Option<Keep>, threads: usize) -> RunRequest {
    RunRequest {
        text: text.to_owned(),
        source: "a.yaml".to_owned(),
        base: place("."),
        threads: Some(threads),
        journal,
        ..RunRequest::default()
    }
}

fn fresh(path: &Path) -> Keep {
    Keep::Fresh { path: path.to_owned(), request: "what was asked for".to_owned() }
}

fn run(request: &RunRequest) -> Result<(Value, String), Failure> {
    let mut tables = Tables::default();
    let summary = api::run(request, &mut tables, &mut Discard)?;
    let mut summary: Value = serde_json::from_str(&summary).expect("a summary is JSON");
    for key in ["wall_time_s", "cpu_time_s", "peak_memory_bytes", "peak_rss_bytes"] {
        summary[key] = Value::Null;
    }
    // What is unknown is no number, which is equal to nothing.
    Ok((summary, format!("{tables:?}")))
}

/// What a run gives that goes on with `journal`, cut after so many bytes, and how many bytes that has then.
fn after(text: &str, journal: &[u8], cut: usize, path: &Path, threads: usize) -> ((Value, String), usize) {
    fs::write(path, &journal[..cut]).expect("a file can be written");
    let found = run(&request(text, Some(Keep::GoingOn(path.to_owned())), threads)).expect("it goes on");
    (found, fs::read(path).expect("it is there").len())
}

#[test]
fn wherever_it_was_killed_it_gives_the_same() {
    let rows = "{operations: pipeline, flows: all}";
    for (fidelity, results) in [
        ("job", "{operations: none}"),
        ("message", rows),
        ("flow", rows),
        ("packet", "{operations: none, flows: all, queues: 20 us}"),
    ] {
        let (text, path) = (scenario(fidelity, results), place(&format!("{fidelity}.journal")));
        let undisturbed = run(&request(&text, None, 1)).expect("it runs");
        let kept = run(&request(&text, Some(fresh(&path)), 2)).expect("it runs");
        assert!(kept == undisturbed, "{fidelity}: a journal changes nothing");
        let journal = fs::read(&path).expect("it is there");
        // The first line is written before anything else, the request in one piece with it.
        let begin = 24 + 13 + "what was asked for".len();
        assert!(journal.len() > begin + if fidelity == "job" { 0 } else { 2_000 }, "{}", journal.len());
        let steps = if fidelity == "packet" { 3 } else { 8 };
        for step in 0..=steps {
            let cut = begin + (journal.len() - begin) * step / steps;
            let (found, length) = after(&text, &journal, cut, &path, 1 + step % 2);
            assert!(found == undisturbed, "{fidelity}: after {cut} of {} bytes", journal.len());
            // What was known was not simulated again, and is not kept twice.
            assert_eq!(length, journal.len(), "{fidelity}: after {cut} of {} bytes", journal.len());
        }
    }
}

/// Takes remarks.
#[derive(Default)]
struct Remarks(Vec<String>);

impl ProgressSink for Remarks {
    fn progress(&mut self, _: Option<f64>, _: f64, _: u64) -> bool {
        true
    }

    fn remark(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }
}

/// A run that is one simulation from end to end says that it begins anew, and gives the same; so does one whose journal knows nothing.
#[test]
fn a_run_that_begins_anew_says_so() {
    let (text, path) = (scenario("flow", "{operations: none}"), place("whole.journal"));
    let asked = |full, journal| RunRequest { full, ..request(&text, journal, 1) };
    let told = |full, journal| {
        let mut remarks = Remarks::default();
        let summary = api::run(&asked(full, Some(journal)), &mut Tables::default(), &mut remarks);
        (serde_json::from_str::<Value>(&summary.expect("it runs")).expect("a summary is JSON"), remarks.0)
    };
    let (undisturbed, none) = told(true, fresh(&path));
    assert!(none.is_empty(), "{none:?}");
    let (again, remarks) = told(true, Keep::GoingOn(path.clone()));
    assert_eq!(again["jobs"], undisturbed["jobs"]);
    assert!(remarks[0].contains("`--full` of several jobs is one simulation from end to end"), "{remarks:?}");
    told(false, fresh(&path));
    let journal = fs::read(&path).expect("it is there");
    let (_, none) = told(false, Keep::GoingOn(path.clone()));
    assert!(none.is_empty(), "{none:?}");
    fs::write(&path, &journal[..24 + 13 + "what was asked for".len()]).expect("a file can be written");
    let (_, remarks) = told(false, Keep::GoingOn(path));
    assert!(remarks[0].ends_with(
        "no episode of the run had ended when it was stopped; the run goes on from its beginning"
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A byte that the disk has changed ends the journal there, or makes it none; never a wrong figure.
    #[test]
    fn a_changed_byte_is_noticed(at in any::<prop::sample::Index>(), flip in 1_u8..) {
        let (text, path) = (scenario("flow", "{operations: none, flows: none}"), place("changed.journal"));
        let undisturbed = run(&request(&text, Some(fresh(&path)), 1)).expect("it runs");
        let mut journal = fs::read(&path).expect("it is there");
        let at = at.index(journal.len());
        journal[at] ^= flip;
        fs::write(&path, &journal).expect("a file can be written");
        match run(&request(&text, Some(Keep::GoingOn(path)), 1)) {
            Ok(found) => prop_assert!(found == undisturbed),
            Err(Failure::Input(_)) => {}
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }
}

/// The message of a run that is refused.
fn refused(text: &str, path: &Path) -> String {
    match run(&request(text, Some(Keep::GoingOn(path.to_owned())), 1)) {
        Err(Failure::Input(error)) => error.to_string(),
        other => panic!("it is refused, not {other:?}"),
    }
}

#[test]
fn a_journal_of_something_else_is_refused_and_left_alone() {
    let path = place("other.journal");
    let text = scenario("flow", "{operations: none, flows: none}");
    run(&request(&text, Some(fresh(&path)), 1)).expect("it runs");
    let journal = fs::read(&path).expect("it is there");
    let other = refused(&text.replace("seed: 4", "seed: 5"), &path);
    assert!(other.contains("`the scenario` has changed since the run was begun"), "{other}");
    assert!(other.contains("hint: run the scenario anew, without `--resume`"), "{other}");
    assert_eq!(fs::read(&path).expect("it is there"), journal);
    // Comments and the order of keys are nothing.
    let reordered =
        text.replace("windtunnel: 1\nname: resumed\n", "# a comment\nname: resumed\nwindtunnel: 1\n");
    run(&request(&reordered, Some(Keep::GoingOn(path.clone())), 1)).expect("it goes on");

    let nowhere = refused(&text, &place("nowhere.journal"));
    assert!(nowhere.contains("it cannot be read: "), "{nowhere}");
    let none = place("none.journal");
    for bytes in ["", "a text that is longer than the line that a journal begins with\n"] {
        fs::write(&none, bytes).expect("a file can be written");
        let found = refused(&text, &none);
        assert!(found.contains("none.journal: "), "{found}");
    }

    // While a run writes it.
    let held = windtunnel_run::journal::Journal::open(&path).expect("it is one");
    let busy = refused(&text, &path);
    assert!(busy.contains("another run writes it"), "{busy}");
    drop(held);
    run(&request(&text, Some(Keep::GoingOn(path)), 1)).expect("it goes on");
}
