//! Exports of Nsight Systems with payloads of NCCL (`tests/corpus/nsys.py` made them).

use windtunnel_import::input::Input;
use windtunnel_import::{Coverage, Options, Treatment};
use windtunnel_kernel::RankId;
use windtunnel_workload::collectives::CollectiveKind;
use windtunnel_workload::{OpKind, Workload};

use crate::account::row;

fn import(name: &str) -> (Workload, Coverage) {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/nsys").join(name);
    let input = Input::bytes(name, std::fs::read(file).unwrap());
    crate::small::import("nsys", &[input], &Options::default()).unwrap()
}

/// Kinds and sizes of a rank's collectives.
fn collectives(workload: &Workload, rank: u32) -> Vec<(CollectiveKind, u64)> {
    workload.program(RankId(rank)).specs.iter().map(|spec| (spec.kind, spec.bytes.get())).collect()
}

fn messages(workload: &Workload) -> (u64, usize) {
    let of = |rank: u32| workload.program(RankId(rank)).ops.iter();
    let sent =
        of(0).find_map(|op| if let OpKind::Send { bytes, .. } = op.kind { Some(bytes.get()) } else { None });
    (sent.unwrap_or(0), of(1).filter(|op| matches!(op.kind, OpKind::Receive { .. })).count())
}

const ALL: [(CollectiveKind, u64); 4] = [
    (CollectiveKind::AllReduce, 4_096_000),
    // NCCL counts one member's part.
    (CollectiveKind::AllGather, 2_000),
    (CollectiveKind::Broadcast { root: 1 }, 5_000),
    (CollectiveKind::ReduceScatter, 14_000),
];

#[test]
fn payloads_say_sizes_roots_and_other_ranks() {
    let (workload, coverage) = import("new.sqlite");
    assert_eq!(collectives(&workload, 0), ALL);
    assert_eq!(messages(&workload), (9_000, 1));
    assert_eq!(coverage.of("collective: all-reduce", Treatment::Mapped), 2);
    assert_eq!(workload.communicators[0].name, "0x4d");
}

#[test]
fn payloads_before_2_25_1_have_no_communicator_and_are_guesses() {
    let (workload, coverage) = import("old.sqlite");
    assert_eq!(collectives(&workload, 0), ALL);
    assert_eq!(messages(&workload), (9_000, 1));
    let why = "before NCCL 2.25.1 calls name no communicator: taken for the world";
    assert_eq!(row(&coverage, "collective: all-reduce", why), (2, 2 * 4_096_000));
}

#[test]
fn hashes_tell_communicators_apart_and_their_making_says_places() {
    let (workload, coverage) = import("pairs.sqlite");
    let members: Vec<(String, Vec<u32>)> = workload
        .communicators
        .iter()
        .map(|group| (group.name.clone(), group.ranks.iter().map(|rank| rank.0).collect()))
        .collect();
    assert_eq!(members, [("0x46".to_owned(), vec![1, 0]), ("0x47".to_owned(), vec![3, 2])]);
    let kinds = [CollectiveKind::AllReduce, CollectiveKind::Broadcast { root: 1 }];
    assert_eq!(collectives(&workload, 0), [(kinds[0], 1_000_000), (kinds[1], 5_000)]);
    assert_eq!(collectives(&workload, 2), [(kinds[0], 2_000_000), (kinds[1], 5_000)]);
    // One that a single rank names.
    let why = "its communicator's members are not all recorded: its recorded time stays";
    assert_eq!(row(&coverage, "communication of nccl", why).0, 1);
}

#[test]
fn calls_of_a_group_are_launched_at_its_end() {
    let (workload, coverage) = import("groups.sqlite");
    let all = collectives(&workload, 0);
    // The matrix of an exchange in all: 100 B to rank 0 and 200 B to rank 1 from both.
    assert_eq!(all, [(CollectiveKind::AllReduce, 4_096), (CollectiveKind::AllToAllV, 600)]);
    assert_eq!(workload.program(RankId(0)).specs[1].matrix.as_deref(), Some(&[100, 200, 100, 200][..]));
    let why = "launched with other calls by a group: its recorded time stays";
    assert_eq!(row(&coverage, "communication of nccl", why).0, 2);
}

#[test]
fn ranges_of_steps_can_be_cut_out() {
    let (workload, coverage) = import("two_gpus.sqlite");
    let steps = windtunnel_workload::edit::steps(&workload);
    assert_eq!(steps, ["step#0", "step#1", "step#2", "step#3", "step#4", "step#5"]);
    assert_eq!(coverage.of("step", Treatment::Mapped), 12);
    let (cut, left_out) = windtunnel_workload::edit::slice(&workload, "step#1", "step#2").unwrap();
    let calls = |workload: &Workload| {
        let ops = workload.program(RankId(0)).ops.iter();
        ops.filter(|op| matches!(op.kind, OpKind::Collective { .. })).count()
    };
    assert_eq!((calls(&workload), calls(&cut), left_out), (6, 2, 0));
}

#[test]
fn an_export_without_payloads_is_not_told_to_record_shapes() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/nsys/new.sqlite");
    let mut content = std::fs::read(file).unwrap();
    // Columns that are not there are empty.
    let column = b"binaryData blob";
    let at = content.windows(column.len()).position(|part| part == column).unwrap();
    content[at..at + 6].copy_from_slice(b"nodata");
    let (_, coverage) =
        crate::small::import("nsys", &[Input::bytes("n", content)], &Options::default()).unwrap();
    let text = coverage.json().to_string();
    assert!(!text.contains("record_shapes") && text.contains("--include-blobs=true"), "{text}");
}
