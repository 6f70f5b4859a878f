//! Text, binary and memory hold the same workload; arbitrary bytes are refused or read, never a panic.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use windtunnel_workload::goal::{self, ReadOptions};
use windtunnel_workload::{OpKind, Workload};

fn parse(bytes: &[u8]) -> Result<Workload, goal::GoalError> {
    goal::parse(bytes, Path::new("input"), ReadOptions::default())
}

fn text_of(workload: &Workload) -> Vec<u8> {
    let mut text = Vec::new();
    goal::encode_text(workload, &mut text).unwrap();
    text
}

fn binary_of(workload: &Workload) -> Vec<u8> {
    let mut binary = Vec::new();
    goal::encode_binary(workload, &mut binary).unwrap();
    binary
}

fn golden() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/golden/goal"))
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn golden_files_have_the_recorded_counts_and_survive_both_forms() {
    let folder = golden();
    let index: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("index.json")).unwrap()).unwrap();
    let cases = index["cases"].as_array().unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let file = case["file"].as_str().unwrap();
        let workload = goal::open(folder.join(file)).unwrap();
        let stats = goal::stats(&workload);
        let found = serde_json::json!({
            "send": stats.sends, "recv": stats.receives, "calc": stats.calcs,
            "requires": stats.requires, "irequires": stats.irequires,
        });
        assert_eq!(found, case["ops"], "{file}");
        assert_eq!(stats.ranks, case["ranks"].as_u64().unwrap(), "{file}");
        let run = &case["runs"][0];
        assert_eq!(u64::from(stats.cpus), run["ncpus"].as_u64().unwrap(), "{file}");
        assert_eq!(u64::from(stats.nics), run["nnics"].as_u64().unwrap(), "{file}");
        let check = goal::check(&workload);
        assert!(check.is_complete(), "{file}: {:?}", check.unmatched);
        assert_eq!(parse(&binary_of(&workload)).unwrap(), workload, "{file}");
        assert_eq!(parse(&text_of(&workload)).unwrap(), workload, "{file}");
    }
}

#[test]
fn written_files_are_read_back_and_nothing_stays_beside_them() {
    let folder = std::env::temp_dir().join(format!("windtunnel-goal-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let workload = parse(b"num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\nrecv 8b from 0\n}\n").unwrap();
    for name in ["a.goal", "a.goal.gz", "a.bin", "a.bin.gz"] {
        let path = folder.join(name);
        let write = if name.contains("goal") { goal::write_text } else { goal::write_binary };
        write(&workload, path.as_path()).unwrap();
        assert_eq!(goal::open(&path).unwrap(), workload, "{name}");
        let before = std::fs::read(&path).unwrap();
        write(&workload, path.as_path()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), before, "{name}: same workload, same bytes");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 4);
    let nowhere = goal::write_text(&workload, folder.join("missing/a.goal")).unwrap_err();
    assert!(nowhere.to_string().contains("a.goal: "), "{nowhere}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A receive is written with the size of the send that it takes, in program order, wildcards after the exact ones.
#[test]
fn receives_are_written_with_the_size_of_their_send() {
    let text = "num_ranks 2\n\nrank 0 {\nl0: send 10b to 1 tag 1\nl1: send 20b to 1 tag 1\nl2: send 30b to 1 tag 2\n}\n\n\
                rank 1 {\nl0: recv 30b from -1 tag -1\nl1: recv 10b from 0 tag 1\nl2: recv 20b from 0 tag 1\n}\n";
    let workload = parse(text.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(text_of(&workload)).unwrap(), text);
}

/// Statements of one rank of `ranks`, with edges to earlier operations only, in GOAL text.
fn rank_text(ranks: u32) -> impl Strategy<Value = String> {
    let operation = prop_oneof![
        (0..5_000u64, 0..4u8).prop_map(|(ns, cpu)| format!("calc {ns} cpu {cpu}")),
        (any::<u64>(), 0..ranks, 0..=u32::MAX - 1, any::<u8>(), 0..3u8).prop_map(
            |(size, to, tag, cpu, nic)| format!("send {size}b to {to} tag {tag} nic {nic} cpu {cpu}")
        ),
        (0..9u64, prop::option::of(0..ranks), prop::option::of(0..9u32)).prop_map(|(size, from, tag)| {
            let from = from.map_or("-1".to_owned(), |from| from.to_string());
            let tag = tag.map_or("-1".to_owned(), |tag| tag.to_string());
            format!("recv {size}b from {from} tag {tag}")
        }),
    ];
    let edges = vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<bool>()), 0..30);
    (vec(operation, 0..25), edges, any::<bool>()).prop_map(|(operations, edges, edges_first)| {
        let mut definitions = String::new();
        for (index, operation) in operations.iter().enumerate() {
            writeln!(definitions, "op_{index}: {operation}").unwrap();
        }
        let mut dependencies = String::new();
        if operations.len() > 1 {
            for (a, b, irequires) in edges {
                let (a, b) = (a.index(operations.len()), b.index(operations.len()));
                if a != b {
                    let relation = if irequires { "irequires" } else { "requires" };
                    writeln!(dependencies, "op_{} {relation} op_{}", a.max(b), a.min(b)).unwrap();
                }
            }
        }
        if edges_first { dependencies + &definitions } else { definitions + &dependencies }
    })
}

fn file_text() -> impl Strategy<Value = String> {
    (1..6u32).prop_flat_map(|ranks| {
        vec(rank_text(ranks), ranks as usize).prop_map(move |blocks| {
            let mut text = format!("num_ranks {ranks}\n");
            for (rank, block) in blocks.iter().enumerate() {
                write!(text, "rank {rank} {{\n{block}}}\n").unwrap();
            }
            text
        })
    })
}

/// Places to overwrite, and what with: bytes that mean something in either form are likelier than others.
fn mutations() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(b"0123456789{}:/*-b \n\t\x00\x01\x02\x03\xff".to_vec()),
    ];
    vec((any::<prop::sample::Index>(), byte), 1..6)
}

fn mutated(mut bytes: Vec<u8>, mutations: &[(prop::sample::Index, u8)], cut: prop::sample::Index) -> Vec<u8> {
    for (at, byte) in mutations {
        let at = at.index(bytes.len());
        bytes[at] = *byte;
    }
    if mutations.len().is_multiple_of(3) {
        bytes.truncate(cut.index(bytes.len()));
    }
    bytes
}

/// Every edge joins operations of its program and every peer exists: what a replay relies on.
fn is_sound(workload: &Workload) {
    for program in &workload.programs {
        let n = program.ops.len() as u32;
        let mut counted = vec![0; n as usize];
        for op in 0..n {
            for &next in program.requires.of(op).iter().chain(program.irequires.of(op)) {
                counted[next as usize] += 1;
            }
        }
        assert_eq!(counted, program.prerequisites);
        program.check_acyclic().unwrap();
        for op in &program.ops {
            if let OpKind::Send { peer, .. } | OpKind::Receive { peer: Some(peer), .. } = op.kind {
                assert!((workload.resolve(windtunnel_kernel::RankId(0), peer).0 as usize) < workload.ranks());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn text_binary_and_memory_agree(text in file_text()) {
        let workload = parse(text.as_bytes()).unwrap();
        is_sound(&workload);
        let binary = binary_of(&workload);
        prop_assert_eq!(&parse(&binary).unwrap(), &workload);
        let written = text_of(&workload);
        let again = parse(&written).unwrap();
        prop_assert_eq!(&again, &workload);
        prop_assert_eq!(text_of(&again), written);
        prop_assert_eq!(binary_of(&again), binary);
    }

    #[test]
    fn damaged_text_is_refused_or_read(
        text in file_text(), mutations in mutations(), cut in any::<prop::sample::Index>(),
    ) {
        if let Ok(workload) = parse(&mutated(text.into_bytes(), &mutations, cut)) {
            is_sound(&workload);
        }
    }

    #[test]
    fn damaged_binary_is_refused_or_read(
        text in file_text(), mutations in mutations(), cut in any::<prop::sample::Index>(),
    ) {
        let binary = binary_of(&parse(text.as_bytes()).unwrap());
        match parse(&mutated(binary, &mutations, cut)) {
            Ok(workload) => is_sound(&workload),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read(head in 0..4, bytes in vec(any::<u8>(), 0..400)) {
        let head: &[u8] = match head {
            0 => b"",
            1 => b"\x7f\x10\0\0\0\0\0\0\x01\0\0\0\0\0",
            2 => b"num_ranks 1\nrank 0 {\n",
            _ => b"\x1f\x8b\x08\0\0\0\0\0\0\x03",
        };
        let _ = parse(&[head, &bytes].concat());
    }
}
