//! MPI programs in the forms of our own tracer and of Score-P, written here by hand.

use windtunnel_import::input::Input;
use windtunnel_import::{Options, Treatment};
use windtunnel_kernel::RankId;
use windtunnel_workload::OpKind;
use windtunnel_workload::collectives::CollectiveKind;

use crate::small::import;

/// LEB128.
fn leb(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

fn record(operation: u64, gap: u64, length: u64, arguments: &[i64], into: &mut Vec<u8>) {
    for value in [operation, gap, length, arguments.len() as u64] {
        leb(value, into);
    }
    for &argument in arguments {
        leb(((argument << 1) ^ (argument >> 63)) as u64, into);
    }
}

/// A rank of two: 0 sends 4,096 bytes without waiting, both compute 7 us, wait, and add up 64 bytes. Rank 1 comes 5 us later to that.
pub(crate) fn traced(rank: u32) -> Vec<u8> {
    let mut file = b"WTMPI\0\0\x01".to_vec();
    leb(u64::from(rank), &mut file);
    leb(2, &mut file);
    record(2, 0, 10_000, &[9_000], &mut file);
    record(1, 0, 0, &[0, 0, 1], &mut file);
    record(5 + u64::from(rank), 1_000, 500, &[0, 1 - i64::from(rank), 5, 4_096, 77], &mut file);
    // Two tests without success took 300 ns of the 7,300 between the calls.
    record(8, 7_300, 900, &[2, 300, 77], &mut file);
    record(9, 2_000 + 5_000 * u64::from(rank), 6_000, &[4, 0, 0, 64, 0], &mut file);
    record(11, 0, 0, &[], &mut file);
    file
}

pub(crate) fn tracer_sample() -> Vec<Input> {
    (0..2).map(|rank| Input::bytes(format!("windtunnel-mpi.{rank}.wtm"), traced(rank))).collect()
}

#[test]
fn a_traced_program_keeps_what_it_computed_and_who_came_last() {
    let (workload, coverage) =
        import("mpi", &tracer_sample(), &Options { strict: true, ..Options::default() }).unwrap();
    let program = workload.program(RankId(0));
    let computed: u64 = program
        .ops
        .iter()
        .filter_map(|op| if let OpKind::Calc { duration, .. } = op.kind { Some(duration.ps()) } else { None })
        .sum();
    assert_eq!(computed, (1_000 + 7_000 + 2_000) * 1_000);
    assert!(
        program.ops.iter().any(|op| matches!(op.kind, OpKind::Send { bytes, .. } if bytes.get() == 4_096))
    );
    assert_eq!((program.specs[0].kind, program.specs[0].bytes.get()), (CollectiveKind::AllReduce, 64));
    assert_eq!(coverage.of("test without success", Treatment::Mapped), 4);
    let late = coverage.arrivals("MPI_COMM_WORLD", 1).unwrap();
    assert_eq!((late.last, late.held_up_ns), (1, 5_000));
}

#[test]
fn a_file_of_another_run_or_none_is_refused() {
    let both = tracer_sample();
    let refused = |inputs: &[Input]| import("mpi", inputs, &Options::default()).unwrap_err().to_string();
    assert!(refused(&both[..1]).contains("missing: rank 1"));
    assert!(refused(&[both[0].clone(), both[0].clone()]).contains("rank 0 again"));
    let mut other = traced(1);
    other[9] = 3;
    assert!(refused(&[both[0].clone(), Input::bytes("x", other)]).contains("several runs"));
    let mut newer = traced(0);
    newer[7] = 9;
    assert!(refused(&[Input::bytes("x", newer)]).contains("version 9"));
}

/// A number as OTF2 has it.
fn number(value: u64) -> Vec<u8> {
    let bytes = value.to_le_bytes();
    let size = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
    [&[size as u8], &bytes[..size]].concat()
}

fn numbers(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|&value| number(value)).collect()
}

fn fields(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, content.len() as u8], content].concat()
}

fn chunk(records: &[Vec<u8>]) -> Vec<u8> {
    [&b"\x03B"[..], &[0; 16], &records.concat(), &[2, 1]].concat()
}

/// An archive of two ranks, 1 tick a ns: 0 sends 4,096 bytes to 1, both add up 64 bytes.
pub(crate) fn archive() -> Vec<Input> {
    let anchor =
        [&b"\x03BOTF2\0\x03\x00\x00\x00\x00"[..], &(1u64 << 20).to_le_bytes(), &(1u64 << 18).to_le_bytes()]
            .concat();
    let text = |id: u64, text: &str| fields(10, &[&number(id)[..], text.as_bytes(), &[0]].concat());
    let region = |id: u64, name: u64| fields(15, &numbers(&[id, name]));
    let group = |id: u64, kind: u8| {
        fields(18, &[&numbers(&[id, 0])[..], &[0], &numbers(&[2, 0, 1]), &[kind, 4, 0]].concat())
    };
    let definitions = chunk(&[
        fields(5, &numbers(&[1_000_000_000, 0, 0])),
        text(1, "MPI_Init"),
        text(2, "MPI_Send"),
        text(3, "MPI_Recv"),
        text(4, "MPI_Allreduce"),
        text(5, "main"),
        region(1, 1),
        region(2, 2),
        region(3, 3),
        region(4, 4),
        region(5, 5),
        group(0, 4),
        group(1, 5),
        fields(22, &[&numbers(&[7, 0, 1])[..], &[0xff]].concat()),
    ]);
    // Local communicator 0 is 7 of all.
    let own = chunk(&[fields(5, &[&[6][..], &number(1), &[0], &number(7)].concat())]);
    let events = |rank: u64| {
        let at = |time: u64| [&[5][..], &time.to_le_bytes()].concat();
        let enter = |region: u64| [&[12][..], &number(region)].concat();
        let leave = |region: u64| [&[13][..], &number(region)].concat();
        let message = fields(14 + 4 * rank as u8, &numbers(&[1 - rank, 0, 5, 4_096]));
        let sum = fields(23, &[&[11][..], &number(0), &[0xff], &numbers(&[128, 128])].concat());
        chunk(&[
            at(100),
            enter(1),
            at(1_000),
            leave(1),
            enter(5),
            at(3_000),
            enter(2 + rank),
            message,
            at(4_000),
            leave(2 + rank),
            at(9_000),
            enter(4),
            fields(22, &[]),
            sum,
            at(9_500),
            leave(4),
            leave(5),
        ])
    };
    let file = |name: &str, content: Vec<u8>| Input::bytes(format!("a/{name}"), content);
    vec![
        file("traces/0.evt", events(0)),
        file("traces/1.evt", events(1)),
        file("traces/0.def", own.clone()),
        file("traces/1.def", own),
        file("traces.def", definitions),
        file("traces.otf2", anchor),
    ]
}

#[test]
fn an_archive_of_score_p_keeps_times_and_sizes() {
    let (workload, _) = import("otf2", &archive(), &Options { strict: true, ..Options::default() }).unwrap();
    assert_eq!(workload.ranks(), 2);
    for rank in 0..2 {
        let program = workload.program(RankId(rank));
        let computed: u64 = program
            .ops
            .iter()
            .filter_map(
                |op| if let OpKind::Calc { duration, .. } = op.kind { Some(duration.ps()) } else { None },
            )
            .sum();
        assert_eq!(computed, (2_000 + 5_000) * 1_000);
        // 128 bytes over both members are a vector of 64.
        assert_eq!((program.specs[0].kind, program.specs[0].bytes.get()), (CollectiveKind::AllReduce, 64));
    }
    let ops = &workload.program(RankId(0)).ops;
    assert!(ops.iter().any(|op| matches!(op.kind, OpKind::Send { bytes, .. } if bytes.get() == 4_096)));
    let messages = windtunnel_workload::lower::to_messages(&workload, |_| {}).unwrap();
    assert!(windtunnel_workload::goal::check(&messages).is_complete());
}

#[test]
fn an_archive_without_a_part_is_refused() {
    let whole = archive();
    let refused = |inputs: &[Input]| import("otf2", inputs, &Options::default()).unwrap_err().to_string();
    assert!(refused(&whole[..5]).contains("traces.otf2"));
    assert!(refused(&whole[1..]).contains("traces/0.evt"));
}
