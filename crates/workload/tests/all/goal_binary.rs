//! GOAL binary: the bytes of a hand-made file, and what each damage is called.

use std::path::Path;

use windtunnel_workload::Workload;
use windtunnel_workload::goal::{self, GoalError, Place, ReadOptions};

fn parse(bytes: &[u8]) -> Result<Workload, GoalError> {
    goal::parse(bytes, Path::new("job.bin"), ReadOptions::default())
}

/// Two ranks; rank 0: a calc, a send that requires it and a calc that irequires the send; rank 1: a wildcard receive.
const TEXT: &[u8] =
    b"num_ranks 2\nrank 0 {\na: calc 1000 cpu 1\nb: send 258b to 1 tag 7 cpu 2 nic 3\nb requires a\n\
                      c: calc 5\nc irequires b\n}\nrank 1 {\nrecv 258b from -1 tag -1\n}\n";

/// Where the blocks of [`TEXT`]'s binary form stand.
const RANK_0: usize = 14 + 2 * 16;
const NODES_0: usize = RANK_0 + 8 + 4;
const EDGES_0: usize = NODES_0 + 3 * 39;
const RANK_1: usize = EDGES_0 + 2 * 4;

fn binary() -> Vec<u8> {
    let mut bytes = Vec::new();
    goal::encode_binary(&parse(TEXT).unwrap(), &mut bytes).unwrap();
    bytes
}

/// The layout, written out by hand.
#[test]
fn the_bytes_are_those_of_the_format() {
    let mut expected: Vec<u8> = Vec::new();
    let mut word = |value: u64, bytes: usize| expected.extend(&value.to_le_bytes()[..bytes]);
    word(4223, 8);
    word(2, 4);
    word(2, 1);
    word(3, 1);
    for (start, end) in [(RANK_0, RANK_1), (RANK_1, RANK_1 + 8 + 4 + 39)] {
        word(start as u64 - 8, 8);
        word(end as u64 - 8, 8);
    }
    word(3, 4);
    word(1, 4);
    word(0, 4);
    // prerequisites, type, peer, size, tag, stream, NIC, requires: count and first, irequires: count and first
    for node in [
        [0, 3, 0, 1000, 0, 1, 0, 1, 0, 0, 1],
        [1, 1, 1, 258, 7, 2, 3, 0, 1, 1, 1],
        [1, 3, 0, 5, 0, 0, 0, 0, 2, 0, 2],
    ] {
        for (value, bytes) in node.into_iter().zip([4, 1, 4, 8, 4, 1, 1, 4, 4, 4, 4]) {
            word(value, bytes);
        }
    }
    word(1, 4);
    word(2, 4);
    word(1, 4);
    word(1, 4);
    word(0, 4);
    let any = u64::from(u32::MAX);
    for (value, bytes) in
        [0, 2, any, 258, any, 0, 0, 0, 0, 0, 0].into_iter().zip([4, 1, 4, 8, 4, 1, 1, 4, 4, 4, 4])
    {
        word(value, bytes);
    }
    assert_eq!(binary(), expected);
    assert_eq!(parse(&expected).unwrap(), parse(TEXT).unwrap());
}

/// Blocks need not stand in rank order, nor next to each other, nor edges in the order of the operations.
#[test]
fn blocks_and_edges_may_stand_in_any_order() {
    let plain = binary();
    let mut moved = plain[..RANK_0].to_vec();
    let place = |bytes: &mut [u8], rank: usize, start: usize, end: usize| {
        bytes[14 + 16 * rank..][..8].copy_from_slice(&(start as u64 - 8).to_le_bytes());
        bytes[22 + 16 * rank..][..8].copy_from_slice(&(end as u64 - 8).to_le_bytes());
    };
    moved.extend(&plain[RANK_1..]);
    let end_1 = moved.len();
    moved.extend(b"gap");
    let start_0 = moved.len();
    moved.extend(&plain[RANK_0..RANK_1]);
    let end_0 = moved.len();
    place(&mut moved, 0, start_0, end_0);
    place(&mut moved, 1, RANK_0, end_1);
    // Swap the two edges of rank 0 and the operations' pointers to them.
    let (edges, nodes) = (end_0 - 8, start_0 + NODES_0 - RANK_0);
    moved[edges..end_0].rotate_left(4);
    moved[nodes + 27] = 1;
    moved[nodes + 39 + 35] = 0;
    assert_eq!(parse(&moved).unwrap(), parse(TEXT).unwrap());
}

#[test]
fn each_damage_has_its_own_name_and_offset() {
    let edited = |at: usize, value: &[u8]| {
        let mut bytes = binary();
        bytes[at..at + value.len()].copy_from_slice(value);
        bytes
    };
    let length = binary().len();
    let cases: Vec<(Vec<u8>, String)> = vec![
        (
            edited(0, &[0x80]),
            "byte 0: expected the magic number 4223 of a GOAL binary, found 4224\n\nhint: the file is neither GOAL \
             text, gzip nor GOAL binary"
                .into(),
        ),
        (
            edited(0, &[0, 0, 0, 0, 0, 0, 0x10, 0x7f]),
            "byte 0: expected the magic number 4223 of a GOAL binary, found 9155818042444218368\n\nhint: the file is \
             big-endian; GOAL is little-endian"
                .into(),
        ),
        (
            edited(0, &2342u64.to_le_bytes()),
            "byte 0: magic number 2342: a `--save-mem` run of LogGOPSim has used this file up\n\nhint: convert the GOAL \
             text again"
                .into(),
        ),
        (
            binary()[..5].to_vec(),
            "byte 0: the file ends at byte 5, the magic number needs it to reach byte 8\n\nhint: the file was cut off or \
             is damaged"
                .into(),
        ),
        (
            binary()[..10].to_vec(),
            "byte 8: the file ends at byte 10, the header needs it to reach byte 14\n\nhint: the file was cut off or is \
             damaged"
                .into(),
        ),
        (
            binary()[..20].to_vec(),
            "byte 8: the file ends at byte 20, the jump table needs it to reach byte 46\n\nhint: the file was cut off or \
             is damaged"
                .into(),
        ),
        (edited(8, &[0; 4]), "byte 8: a workload needs at least one rank, found `num_ranks 0`".into()),
        (
            binary()[..length - 1].to_vec(),
            format!(
                "byte 30: the jump table puts rank 1 at bytes {RANK_1} to {length}, the data are at bytes 46 to {}\n\n\
                 hint: the file was cut off or is damaged",
                length - 1
            ),
        ),
        (
            edited(14, &[0xff; 8]),
            format!(
                "byte 14: the jump table puts rank 0 at bytes 18446744073709551615 to {RANK_1}, the data are at bytes \
                 46 to {length}\n\nhint: the file was cut off or is damaged"
            ),
        ),
        (edited(30, &(RANK_0 as u64).to_le_bytes()), "byte 30: the blocks of ranks 0 and 1 overlap".into()),
        (
            edited(RANK_0, &[4]),
            format!(
                "byte {RANK_0}: the block of rank 0 has 137 bytes, its 4 operations and 1 roots need 168"
            ),
        ),
        (
            edited(RANK_0, &[2]),
            format!("byte {}: the block of rank 0 ends with 3 bytes that are no whole edge", EDGES_0 - 39),
        ),
        (
            edited(NODES_0 + 4, &[9]),
            format!("byte {}: operation 0 of rank 0: type 9 is none of 1 (send), 2 (receive), 3 (calc)", NODES_0 + 4),
        ),
        (
            edited(NODES_0 + 39 + 5, &[2]),
            format!("byte {}: operation 1 of rank 0: peer 2 does not exist, the ranks are 0 to 1", NODES_0 + 44),
        ),
        (
            edited(NODES_0 + 39 + 17, &[0xff; 4]),
            format!(
                "byte {}: operation 1 of rank 0: a send has the tag 4294967295, which stands for any tag",
                NODES_0 + 56
            ),
        ),
        (
            edited(NODES_0 + 9, &[0xff; 8]),
            format!(
                "byte {}: operation 0 of rank 0: a calc of 18446744073709551615 ns is longer than the 200 days that \
                 network time may span",
                NODES_0 + 9
            ),
        ),
        (
            edited(NODES_0 + 21, &[9]),
            format!("byte {}: operation 0 of rank 0: stream 9 is above the 2 that the header states", NODES_0 + 21),
        ),
        (
            edited(NODES_0 + 22, &[9]),
            format!("byte {}: operation 0 of rank 0: NIC 9 is above the 3 that the header states", NODES_0 + 22),
        ),
        (
            edited(NODES_0 + 27, &[7]),
            format!(
                "byte {}: operation 0 of rank 0: its edges 7 to 8 (exclusive) are outside the appendix of 2",
                NODES_0 + 23
            ),
        ),
        (
            edited(NODES_0 + 39 * 2 + 23, &[1, 0, 0, 0, 0]),
            format!(
                "byte {}: operation 2 of rank 0: the operations up to here claim more edges than the 2 of the appendix",
                NODES_0 + 39 * 2 + 23
            ),
        ),
        (
            edited(NODES_0, &[1]),
            format!("byte {NODES_0}: operation 0 of rank 0: it states 1 prerequisites, 0 edges lead to it"),
        ),
        (
            edited(RANK_0 + 8, &[2]),
            format!("byte {}: root 0 of rank 0 is operation 2, which has prerequisites", RANK_0 + 8),
        ),
        (
            edited(RANK_0 + 8, &[8]),
            format!("byte {}: root 0 of rank 0 is operation 8, which does not exist", RANK_0 + 8),
        ),
        (
            edited(EDGES_0 + 4, &[3]),
            format!("byte {}: edge 1 of rank 0 leads to operation 3 of 3", EDGES_0 + 4),
        ),
        (
            edited(EDGES_0 + 4, &[0]),
            format!(
                "byte {NODES_0}: the dependencies of rank 0 form a cycle of operations: 0 requires 1 requires 0\n\n\
                 hint: none of these operations could ever start"
            ),
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(parse(&bytes).unwrap_err().to_string(), format!("job.bin: {expected}"));
    }
    let error = parse(&edited(0, &[0x80])).unwrap_err();
    assert_eq!((error.place, error.line()), (Place::Byte(0), None));
}

#[test]
fn a_root_that_is_missing_or_double_is_found() {
    let text = b"num_ranks 1\nrank 0 {\ncalc 1\ncalc 2\n}\n";
    let mut bytes = Vec::new();
    goal::encode_binary(&parse(text).unwrap(), &mut bytes).unwrap();
    bytes[14 + 16 + 12] = 0;
    assert_eq!(
        parse(&bytes).unwrap_err().to_string(),
        "job.bin: byte 34: rank 0 lists 2 roots and has 2 operations without a prerequisite, not the same ones"
    );
}
