//! Programs of ranks: bytes with their protocol's flags, partners, and files written rank by rank.

use std::sync::Arc;

use windtunnel_kernel::{BitRate, Bytes, RankId, Span, StreamId};

use super::{Decomposition, Rules};
use crate::collectives::nccl::hosts::dgx_h100;
use crate::collectives::nccl::{Constants, Hardware, Library, Machine, Settings};
use crate::collectives::{CollectiveKind, CollectiveSpec};
use crate::goal::{self, ByRank, ReadOptions};
use crate::program::{Binding, Communicator};
use crate::{CommSlot, Dimension, OpKind, ProgramBuilder, Workload, compact};

fn library(sums: bool, environment: &[(&str, &str)]) -> Library {
    let mut settings = Settings::default();
    for (name, value) in environment {
        settings.set(name, value).unwrap();
    }
    let hardware = Hardware { scale_up_sums: sums, ..dgx_h100() };
    Library(Arc::new(Machine {
        hardware,
        settings,
        rules: Vec::new(),
        constants: Constants::default(),
        hosts_of_domain: 1,
        payload: 1.0,
        latency: [Span::ZERO; 2],
        sites: None,
        kinds: None,
    }))
}

/// `n` ranks that compute, call a collective, send to the next one, and compute.
fn calls(n: u32, domain: u32, kind: CollectiveKind, bytes: u64, library: Option<Library>) -> Workload {
    let mut builder = ProgramBuilder::new();
    let before = builder.calc(Span::from_ns(5), StreamId(0), 0);
    let spec = CollectiveSpec { domain, library, ..CollectiveSpec::new(kind, Bytes::new(bytes)) };
    let call = builder.collective(CommSlot(0), spec, Dimension::Dp, StreamId(1), 0);
    let after = builder.calc(Span::from_ns(7), StreamId(0), 0);
    builder.requires(call, before);
    builder.requires(after, call);
    let mut workload = Workload { programs: vec![builder.finish().unwrap()], ..Workload::default() };
    let ranks = (0..n).map(RankId).collect();
    workload.communicators.push(Communicator { name: String::new(), ranks });
    for index in 0..n {
        workload.add_rank(0, &[Binding { communicator: 0, index }]);
    }
    workload
}

fn whole(made: &Decomposition<'_>) -> Workload {
    Workload::from_programs((0..made.ranks() as u32).map(|rank| made.made(RankId(rank)).program).collect())
}

fn all_reduce(environment: &[(&str, &str)], bytes: u64, domain: u32) -> (u64, Workload, String) {
    let workload = calls(8, domain, CollectiveKind::AllReduce, bytes, Some(library(false, environment)));
    let made = Decomposition::new(&workload, Rules::default()).unwrap();
    let row = *made.rows().keys().next().unwrap();
    let messages = whole(&made);
    let sent = goal::stats(&messages).bytes.get();
    (sent, messages, format!("{}/{}/{}", row.algorithm, row.protocol, row.channels))
}

#[test]
fn protocols_put_their_flags_on_the_wire() {
    // A ring of 8 moves 14 times the buffer in all; parts of 960 B for each rank and channel are whole lines of every protocol.
    let bytes = 960 * 8 * 4 * 16;
    for (protocol, wire) in [("simple", 1.0), ("ll", 2.0), ("ll128", 128.0 / 120.0)] {
        let environment = [
            ("NCCL_ALGO", "ring"),
            ("NCCL_PROTO", protocol),
            ("NCCL_MIN_NCHANNELS", "4"),
            ("NCCL_MAX_NCHANNELS", "4"),
        ];
        let (sent, messages, told) = all_reduce(&environment, bytes, 8);
        assert_eq!(told, format!("ring/{protocol}/4"));
        assert_eq!(sent as f64, 14.0 * bytes as f64 * wire);
        assert!(goal::check(&messages).is_complete());
    }
}

#[test]
fn environment_and_tuner_decide() {
    let (sent, messages, told) = all_reduce(&[("NCCL_ALGO", "tree"), ("NCCL_PROTO", "simple")], 1 << 20, 2);
    assert!(told.starts_with("tree/simple/"), "{told}");
    assert_eq!(sent, (2 * 7) << 20);
    assert!(goal::check(&messages).is_complete());
    // A buffer of a sixteenth has slices of a sixteenth: so many times the messages of as many bytes.
    let count = |buffer| {
        let environment = [
            ("NCCL_ALGO", "ring"),
            ("NCCL_PROTO", "simple"),
            ("NCCL_MAX_NCHANNELS", "1"),
            ("NCCL_BUFFSIZE", buffer),
        ];
        goal::stats(&all_reduce(&environment, 64 << 20, 8).1).sends
    };
    assert_eq!(count("4194304"), 8 * 14 * 8);
    assert_eq!(count("262144"), 16 * count("4194304"));
    // Small all-reduces go by LL and few channels, as the tuner has it.
    let (_, _, told) = all_reduce(&[], 64, 8);
    assert!(told.contains("/ll/1"), "{told}");
}

#[test]
fn switches_that_sum_are_replaced_and_named() {
    let workload = calls(8, 8, CollectiveKind::AllReduce, 1 << 30, Some(library(true, &[])));
    let made = Decomposition::new(&workload, Rules::default()).unwrap();
    let (row, &count) = made.rows().first_key_value().unwrap();
    assert!(row.instead && count == 1 && row.algorithm == "ring", "{row:?}");
    // Nothing is left where nothing else is allowed.
    let only = calls(8, 8, CollectiveKind::AllReduce, 1 << 30, Some(library(true, &[("NCCL_ALGO", "nvls")])));
    let error = Decomposition::new(&only, Rules::default()).err().unwrap();
    assert!(error.to_string().starts_with("rank 0, operation 1: no algorithm is left"), "{error}");
}

/// A library whose network's switches sum too.
fn summing_network(environment: &[(&str, &str)]) -> Library {
    let Library(machine) = library(true, environment);
    let mut machine = Arc::unwrap_or_clone(machine);
    machine.hardware.network_sums = true;
    machine.settings.collnet = true;
    Library(Arc::new(machine))
}

#[test]
fn ranks_stand_for_switches_where_asked() {
    let rules = Rules { switches: true, ..Rules::default() };
    let bytes = 64u64 << 20;
    for (kind, algorithm, n, domain, switches, moved) in [
        // Of NVLS the buffer and a share go out of each of 8 ranks, and as much comes back.
        (CollectiveKind::AllReduce, "nvls", 8, 8, (1, 0), 2 * (8 * bytes + bytes)),
        (CollectiveKind::AllGather, "nvls", 8, 8, (1, 0), bytes + 8 * bytes),
        (CollectiveKind::ReduceScatter, "nvls", 8, 8, (1, 0), 8 * bytes + bytes),
        // Of its tree over four domains that of each, and the buffer over three edges both ways.
        (CollectiveKind::AllReduce, "nvlstree", 32, 8, (4, 0), 4 * 2 * (8 * bytes + bytes) + 2 * 3 * bytes),
        // Of CollNet seven links of each of four domains both ways, and the buffer to the network and back from each.
        (CollectiveKind::AllReduce, "collnetdirect", 32, 8, (0, 1), 4 * 2 * (7 * bytes + bytes)),
        (CollectiveKind::AllReduce, "collnetchain", 32, 8, (0, 1), 4 * 2 * (7 * bytes + bytes)),
    ] {
        let library = summing_network(&[("NCCL_ALGO", algorithm), ("NCCL_MAX_NCHANNELS", "8")]);
        let workload = calls(n, domain, kind, bytes, Some(library));
        let made = Decomposition::new(&workload, rules).unwrap();
        let row = *made.rows().keys().next().unwrap();
        assert_eq!((row.algorithm, row.instead), (algorithm, false));
        assert_eq!((made.switches().of_domains(), made.switches().of_network()), switches);
        assert_eq!(made.ranks() as u32, n + switches.0 + switches.1);
        let messages = whole(&made);
        assert_eq!(goal::stats(&messages).bytes.get(), moved, "{algorithm}");
        assert!(goal::check(&messages).is_complete(), "{algorithm}");
        assert_eq!(made.written(), messages.operations());
        // Sizes that receives have are those of what is sent to them.
        let received: u64 =
            (0..made.ranks() as u32).flat_map(|rank| made.made(RankId(rank)).receive_sizes).sum();
        assert_eq!(received, moved);
    }
}

#[test]
fn a_switch_takes_part_in_the_calls_of_all_communicators_of_its_domain() {
    // Two groups of four on one host: one switch, whose calls of each come one after another.
    let library = library(true, &[("NCCL_ALGO", "nvls")]);
    let mut builder = ProgramBuilder::new();
    let spec = CollectiveSpec {
        domain: 4,
        library: Some(library),
        ..CollectiveSpec::new(CollectiveKind::AllReduce, Bytes::new(1 << 20))
    };
    let first = builder.collective(CommSlot(0), spec.clone(), Dimension::Dp, StreamId(1), 0);
    let second = builder.collective(CommSlot(0), spec, Dimension::Dp, StreamId(1), 0);
    builder.requires(second, first);
    let mut workload = Workload { programs: vec![builder.finish().unwrap()], ..Workload::default() };
    for group in 0..2 {
        let ranks = (0..4).map(|rank| RankId(4 * group + rank)).collect();
        workload.communicators.push(Communicator { name: String::new(), ranks });
    }
    for rank in 0..8 {
        workload.add_rank(0, &[Binding { communicator: rank / 4, index: rank % 4 }]);
    }
    let made = Decomposition::new(&workload, Rules { switches: true, ..Rules::default() }).unwrap();
    assert_eq!(made.ranks(), 9);
    let messages = whole(&made);
    assert!(goal::check(&messages).is_complete());
    assert_eq!(goal::stats(&messages).bytes.get(), (2 * 2 * 2 * (4 + 1)) << 20);
}

#[test]
fn reductions_take_their_time_and_calls_their_launch() {
    let environment = [("NCCL_ALGO", "ring"), ("NCCL_PROTO", "simple"), ("NCCL_MAX_NCHANNELS", "1")];
    let workload = calls(2, 2, CollectiveKind::AllReduce, 8_000, Some(library(false, &environment)));
    let time = |rules| goal::stats(&whole(&Decomposition::new(&workload, rules).unwrap())).critical_path;
    let plain = time(Rules::default());
    // Two ranks: half is summed, half is copied, 8,000 B at 8 Gbps in all.
    let rules = Rules { reduce: Some(BitRate::from_gbps(8)), ..Rules::default() };
    assert_eq!(time(rules), plain + Span::from_ns(8_000));
    let launched = time(Rules { launch: true, ..Rules::default() });
    assert_eq!(launched, plain + Span::from_seconds_ceil(6.6e-6 + 0.05e-6 + 1.8e-6));
}

#[test]
fn collectives_that_nccl_has_not_go_by_their_own_algorithm() {
    for (kind, library) in [
        (CollectiveKind::Barrier, Some(library(false, &[]))),
        (CollectiveKind::AllReduce, None),
        (CollectiveKind::AllToAll, None),
    ] {
        let workload = calls(6, 1, kind, 6_000, library);
        let made = Decomposition::new(&workload, Rules::default()).unwrap();
        assert_eq!(made.rows().keys().next().unwrap().protocol, "");
        let messages = crate::lower::to_messages(&workload, |_| {}).unwrap();
        assert_eq!(goal::stats(&whole(&made)).bytes, goal::stats(&messages).bytes);
        assert!(goal::check(&whole(&made)).is_complete());
    }
}

#[test]
fn files_written_rank_by_rank_are_those_of_the_whole() {
    let folder = std::env::temp_dir().join(format!("windtunnel-decompose-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let workload = calls(4, 4, CollectiveKind::AllGather, 1 << 20, Some(library(false, &[])));
    let made = Decomposition::new(&workload, Rules::default()).unwrap();
    let all = whole(&made);
    let at = |name: &str| folder.join(name);
    goal::write_by_rank(&made, at("a.bin")).unwrap();
    goal::write_binary(&all, at("b.bin")).unwrap();
    goal::write_by_rank(&made, at("a.goal")).unwrap();
    goal::write_text(&all, at("b.goal")).unwrap();
    for (one, other) in [("a.bin", "b.bin"), ("a.goal", "b.goal")] {
        assert!(std::fs::read(at(one)).unwrap() == std::fs::read(at(other)).unwrap(), "{one}");
    }
    compact::write_by_rank(&made, at("a.wtw")).unwrap();
    assert!(compact::read(at("a.wtw"), 1).unwrap() == all);
    assert!(goal::open_with(at("a.bin"), ReadOptions::default()).unwrap().operations() == all.operations());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn channels_have_streams_of_their_own() {
    let workload =
        calls(8, 8, CollectiveKind::AllReduce, 64 << 20, Some(library(false, &[("NCCL_ALGO", "ring")])));
    let made = Decomposition::new(&workload, Rules::default()).unwrap();
    let channels = made.rows().keys().next().unwrap().channels;
    let program = made.made(RankId(0)).program;
    let mut streams: Vec<u8> = program
        .ops
        .iter()
        .filter_map(|op| if let OpKind::Send { stream, .. } = op.kind { Some(stream.0) } else { None })
        .collect();
    streams.sort_unstable();
    streams.dedup();
    assert_eq!(streams.len() as u32, channels);
    assert!(streams.iter().all(|&stream| stream >= 8));
}
