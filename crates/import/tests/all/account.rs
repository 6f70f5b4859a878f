//! The account of what was read: each thing once, whatever becomes of it.

use windtunnel_import::input::{Input, expand};
use windtunnel_import::{Coverage, Missing, Options, Treatment};

use crate::small::{import, samples};

/// How many of a row and how many bytes, whatever its verdict.
pub(crate) fn row(coverage: &Coverage, kind: &str, reason: &str) -> (u64, u64) {
    let json = coverage.json();
    let rows = json["rows"].as_array().unwrap().iter();
    let own = rows.filter(|row| row["kind"] == kind && row["reason"] == reason);
    own.fold((0, 0), |(count, bytes), row| {
        (count + row["operations"].as_u64().unwrap(), bytes + row["bytes"].as_u64().unwrap())
    })
}

/// Things and bytes in all; what is said of files and not of what is in them does not count.
fn read(coverage: &Coverage) -> (u64, u64) {
    let json = coverage.json();
    let rows = json["rows"].as_array().unwrap().iter();
    let of_files = ["rank", "clock of a rank", "communicator"];
    let things = rows.filter(|row| !of_files.iter().any(|kind| row["kind"] == *kind));
    things.fold((0, 0), |(count, bytes), row| {
        let own = row["bytes"].as_u64().unwrap();
        assert!(own < 1 << 60, "{row}");
        (count + row["operations"].as_u64().unwrap(), bytes + own)
    })
}

/// All small recordings.
fn recordings() -> Vec<(&'static str, Vec<Input>)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = [
        ("nsys", "tests/corpus/nsys/two_gpus.sqlite"),
        ("nsys", "tests/corpus/nsys/new.sqlite"),
        ("nsys", "tests/corpus/nsys/old.sqlite"),
        ("nsys", "tests/corpus/nsys/pairs.sqlite"),
        ("nsys", "tests/corpus/nsys/groups.sqlite"),
        ("flight-recorder", "tests/corpus/flight-recorder/protocol2"),
        ("mpi", "../../examples/traces/mpi-stencil"),
        ("nccl-profiler", "../../examples/traces/nccl-profiler"),
    ];
    let files = corpus.map(|(kind, path)| (kind, expand(&[folder.join(path)]).unwrap()));
    let step =
        ["step-rank0.json", "step-rank1.json"].map(|file| folder.join("../../examples/traces").join(file));
    samples().into_iter().chain(files).chain([("kineto", expand(&step).unwrap())]).collect()
}

#[test]
fn what_was_read_is_the_sum_of_the_verdicts_whatever_they_are() {
    for (kind, inputs) in recordings() {
        let name = inputs[0].name.clone();
        let (_, coverage) = import(kind, &inputs, &Options::default()).unwrap();
        let whole = read(&coverage);
        let json = coverage.json();
        for figure in ["operations", "bytes"] {
            let verdicts =
                Treatment::ALL.iter().map(|verdict| json["totals"][verdict.name()][figure].as_u64().unwrap());
            assert_eq!(
                json["totals"]["read"][figure].as_u64().unwrap(),
                verdicts.sum::<u64>(),
                "{kind} {name}"
            );
        }
        // What becomes of a part of the files is another verdict of the same things, and not another thing.
        // Of the profiler plugin's files several are of one rank, and what lies between them is nothing of one of them.
        if inputs.len() > 1 && !matches!(kind, "dumpi" | "otf2" | "nccl-profiler") {
            for missing in [Missing::Alone, Missing::Same] {
                let options = Options { missing, ..Options::default() };
                let apart = inputs
                    .iter()
                    .filter_map(|input| import(kind, std::slice::from_ref(input), &options).ok());
                let apart: Vec<(u64, u64)> = apart.map(|(_, coverage)| read(&coverage)).collect();
                if apart.len() == inputs.len() {
                    let sum = apart.iter().fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
                    assert_eq!(sum, whole, "{kind} {name}: {missing:?}");
                }
            }
        }
    }
}

#[test]
fn every_event_of_a_kineto_trace_is_in_one_row() {
    for (_, inputs) in recordings().into_iter().filter(|(kind, _)| *kind == "kineto") {
        let events: usize = inputs
            .iter()
            .map(|input| {
                let json: serde_json::Value = serde_json::from_slice(&input.whole().unwrap()).unwrap();
                json["traceEvents"].as_array().unwrap().len()
            })
            .sum();
        let (_, coverage) = import("kineto", &inputs, &Options::default()).unwrap();
        assert_eq!(read(&coverage).0, events as u64, "{}", inputs[0].name);
    }
}

#[test]
fn a_collective_with_missing_members_changes_its_verdict_and_is_not_counted_again() {
    let (_, inputs) = samples().swap_remove(0);
    let options = Options { missing: Missing::Alone, ..Options::default() };
    let (_, coverage) = import("kineto", &inputs[..1], &options).unwrap();
    let why = "members are missing: its recorded time stays";
    assert_eq!(row(&coverage, "collective: all-reduce", why), (1, 1 << 20));
    let verdicts = Treatment::ALL.map(|verdict| coverage.of("collective: all-reduce", verdict));
    assert_eq!(verdicts.iter().sum::<u64>(), 1);
}
