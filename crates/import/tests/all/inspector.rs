//! NCCL Inspector's lines of jobs with several communicators.

use std::fmt::Write;

use windtunnel_import::input::Input;
use windtunnel_import::{Coverage, ImportError, Options, Place, Treatment};
use windtunnel_kernel::RankId;
use windtunnel_workload::Workload;

use crate::small::import;

/// A record of a communicator (name, rank, size), written by a process of a host; a kernel from `at` for 50 us.
fn record(
    (name, rank, size): (&str, u32, u32),
    (host, pid): (&str, u32),
    number: u32,
    at: Option<u32>,
) -> String {
    let event = at.map_or(String::new(), |at| {
        format!(
            r#","event_trace_ts":{{"kernel_events":[{{"kernel_start_ts":{at},"kernel_stop_ts":{}}}]}}"#,
            at + 50
        )
    });
    format!(
        r#"{{"header":{{"id":"{name}","rank":{rank},"n_ranks":{size}}},"metadata":{{"inspector_output_format_version":"v4.0","dump_timestamp_us":5,"hostname":"{host}","pid":{pid}}},"coll_perf":{{"coll":"AllReduce","coll_sn":{number},"coll_msg_size_bytes":4096,"coll_exec_time_us":50{event}}}}}"#
    ) + "\n"
}

/// Four processes on two hosts, whose numbers do not follow the ranks; pairs of a host share a communicator.
fn job(world: bool, timed: bool) -> Vec<Input> {
    (0..4)
        .map(|rank: u32| {
            let (host, pid) = (if rank < 2 { "node9" } else { "node10" }, 500 - rank);
            let mut text = String::new();
            for step in 0..2 {
                let at = |offset: u32| timed.then_some(1_000 * step + offset);
                if world {
                    text += &record(("0xw", rank, 4), (host, pid), step, at(0));
                }
                let pair = if rank < 2 { "0xa" } else { "0xb" };
                text += &record((pair, rank % 2, 2), (host, pid), step, at(100));
            }
            Input::bytes(format!("{host}-pid{pid}.log"), text.into_bytes())
        })
        .collect()
}

fn read(inputs: &[Input]) -> Result<(Workload, Coverage), ImportError> {
    import("inspector", inputs, &Options::default())
}

fn groups(workload: &Workload) -> Vec<(String, Vec<u32>)> {
    let mut groups: Vec<(String, Vec<u32>)> = workload
        .communicators
        .iter()
        .map(|group| (group.name.clone(), group.ranks.iter().map(|rank| rank.0).collect()))
        .collect();
    groups.sort();
    groups
}

fn named(groups: &[(&str, &[u32])]) -> Vec<(String, Vec<u32>)> {
    groups.iter().map(|(name, ranks)| ((*name).to_owned(), ranks.to_vec())).collect()
}

#[test]
fn communicators_beside_that_of_all_ranks_have_its_processes() {
    for timed in [true, false] {
        let (workload, coverage) = read(&job(true, timed)).unwrap();
        assert_eq!(groups(&workload), named(&[("0xa", &[0, 1]), ("0xb", &[2, 3]), ("0xw", &[0, 1, 2, 3])]));
        assert_eq!(coverage.of("collective: all-reduce", Treatment::Mapped), 16);
        assert_eq!(coverage.total(Treatment::Dropped).operations, 0);
        assert_eq!(coverage.total(Treatment::Guessed).operations, 0);
        // 50 us to the pair's, 850 us to the next step's, and 50 us again, of each rank.
        assert_eq!(
            coverage.of("gap between collectives", Treatment::Approximated),
            if timed { 12 } else { 0 }
        );
        assert!(workload.program(RankId(3)).ops.len() >= 4);
    }
}

#[test]
fn without_a_communicator_of_all_ranks_processes_are_numbered_and_guessed() {
    let (workload, coverage) = read(&job(false, true)).unwrap();
    // node9 before node10; of a host by process: the communicator's rank 1 has the lower number.
    assert_eq!(groups(&workload), named(&[("0xa", &[1, 0]), ("0xb", &[3, 2])]));
    assert_eq!(coverage.of("rank", Treatment::Guessed), 4);
    // A file less may be one of another job as well.
    let error = read(&job(false, true)[..3]).unwrap_err();
    assert_eq!(error.found, "2 communicators of 2 ranks: 0xa, 0xb");
    assert!(error.hint.unwrap().contains("files of some processes are missing"));
}

#[test]
fn communicators_with_a_member_that_is_not_known_are_dropped() {
    let inputs = job(true, true);
    let options = Options { missing: windtunnel_import::Missing::Same, ..Options::default() };
    let (workload, coverage) = import("inspector", &inputs[..3], &options).unwrap();
    assert_eq!(workload.ranks(), 4);
    assert_eq!(coverage.of("collective: AllReduce", Treatment::Dropped), 2);
    // One process of two GPUs: which of its ranks the other communicator means is not recorded.
    let mut text = String::new();
    for rank in 0..2 {
        write!(text, "{}", record(("0xw", rank, 3), ("h", 1), 0, None)).unwrap();
    }
    text += &record(("0xw", 2, 3), ("h", 2), 0, None);
    text += &record(("0xp", 0, 2), ("h", 1), 0, None);
    text += &record(("0xp", 1, 2), ("h", 2), 0, None);
    let (workload, coverage) = read(&[Input::bytes("all.log", text.into_bytes())]).unwrap();
    assert_eq!(groups(&workload), named(&[("0xw", &[0, 1, 2])]));
    assert_eq!(coverage.of("collective: AllReduce", Treatment::Dropped), 2);
}

#[test]
fn what_is_missing_is_said_with_what_to_do() {
    let refused = |text: &str| read(&[Input::bytes("a.log", text.as_bytes().to_vec())]).unwrap_err();
    let line =
        r#"{"coll_perf":{"coll":"AllReduce","coll_sn":1,"coll_msg_size_bytes":1,"coll_exec_time_us":5}}"#;
    let error = refused(line);
    assert_eq!((&error.place, error.found.as_str()), (&Place::Line(1), "none"));
    assert!(error.expected.starts_with("a `header`") && error.hint.unwrap().contains("once a dump"));
    let error = refused("\n{\"dump_stats\":{\"dropped\":5}}\n");
    assert!(error.hint.unwrap().contains("NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES"));
}

#[test]
fn an_empty_file_is_called_one_by_every_reader() {
    for reader in windtunnel_import::READERS {
        let name = reader.entry().name;
        let inputs = [Input::bytes("a", Vec::new()), Input::bytes("b", Vec::new())];
        for (inputs, found) in [(&inputs[..1], "an empty file"), (&inputs, "2 empty files")] {
            let error = import(name, inputs, &Options::default()).unwrap_err();
            assert_eq!((error.found.as_str(), error.hint.is_some()), (found, true), "{name}");
        }
        assert_eq!(import(name, &[], &Options::default()).unwrap_err().found, "none");
    }
}
