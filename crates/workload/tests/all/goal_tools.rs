//! Counting, merging, and what GOAL cannot express.

use std::fmt::Write as _;
use std::path::Path;

use windtunnel_kernel::{Bytes, RankId, Span, StreamId, Tag};
use windtunnel_workload::collectives::{CollectiveKind, CollectiveSpec};
use windtunnel_workload::goal::{self, MergeError, ReadOptions};
use windtunnel_workload::handwritten;
use windtunnel_workload::{CommSlot, Dimension, OpKind, Peer, ProgramBuilder, Workload};

fn read(text: &str) -> Workload {
    goal::parse(text.as_bytes(), Path::new("x"), ReadOptions::default()).unwrap()
}

fn ring(ranks: u32) -> Workload {
    let mut text = format!("num_ranks {ranks}\n");
    for rank in 0..ranks {
        let (to, from) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        writeln!(text, "rank {rank} {{\na: send 8b to {to}\nb: recv 8b from {from}\nb irequires a\n}}")
            .unwrap();
    }
    read(&text)
}

#[test]
fn stats_count_and_bound() {
    let stats = goal::stats(&read(
        "num_ranks 3\nrank 0 {\na: calc 100\nb: calc 50 cpu 1\nc: calc 30\nb requires a\nc irequires b\nd: send 7b to 1 \
         nic 2\ne: send 9b to 1\n}\nrank 1 {\nrecv 7b from -1\nrecv 9b from 0 tag -1\ncalc 90\ncalc 90\n}\nrank 2 {\n}\n",
    ));
    assert_eq!((stats.ranks, stats.idle_ranks, stats.operations, stats.roots), (3, 1, 9, 7));
    assert_eq!((stats.sends, stats.receives, stats.calcs, stats.collectives), (2, 2, 5, 0));
    assert_eq!((stats.any_source, stats.any_tag, stats.requires, stats.irequires), (1, 1, 1, 1));
    assert_eq!(
        (stats.bytes, stats.largest_message, stats.cpus, stats.nics),
        (Bytes::new(16), Bytes::new(9), 2, 3)
    );
    assert_eq!(stats.calc, Span::from_ns(360));
    // Rank 0's chain is a then b: 150; c starts with b and ends at 130. Rank 1's stream is busy for 180.
    assert_eq!(stats.critical_path, Span::from_ns(180));
    assert_eq!(
        goal::Stats::of_rank(
            &read("num_ranks 1\nrank 0 {\na: calc 4\nb: calc 5 cpu 1\nb requires a\n}\n"),
            RankId(0)
        )
        .critical_path,
        Span::from_ns(9)
    );
}

#[test]
fn jobs_side_by_side_keep_to_themselves() {
    let merged = goal::merge(&[(ring(3), 4), (ring(2), 1)]).unwrap();
    assert_eq!(merged.ranks(), 7);
    let destination = |rank: u32| match merged.program(RankId(rank)).ops.first().map(|op| op.kind) {
        Some(OpKind::Send { peer, .. }) => Some(merged.resolve(RankId(rank), peer).0),
        _ => None,
    };
    assert_eq!(
        (0..7).map(destination).collect::<Vec<_>>(),
        [None, Some(2), Some(1), None, Some(5), Some(6), Some(4)]
    );
    let check = goal::check(&merged);
    assert!(check.is_complete() && check.matched == 5);
    assert_eq!(goal::merge(&[(ring(3), 0)]).unwrap(), ring(3));
    assert_eq!(
        goal::merge(&[(ring(2), 2), (ring(3), 0)]),
        Err(MergeError::Overlap { first: 1, second: 0, rank: 2 })
    );
    assert!(matches!(goal::merge(&[(ring(2), u32::MAX)]), Err(MergeError::TooHigh { job: 0, .. })));
}

#[test]
fn a_job_far_away_is_refused_before_the_ranks_between_are_made() {
    let error = goal::merge(&[(ring(3), 0), (ring(2), 4_000_000_000)]).unwrap_err();
    assert_eq!(error, MergeError::TooFar { job: 1, offset: 4_000_000_000, idle: 3_999_999_997 });
    assert_eq!(
        error.told(&["a.goal", "b.goal@4000000000"]),
        "`b.goal@4000000000` from rank 4000000000 on leaves 3999999997 ranks idle before it, expected at most 16777216"
    );
    let error = goal::merge(&[(ring(2), 2), (ring(3), 0)]).unwrap_err();
    assert_eq!(error.told(&["a.goal@2", "b.goal"]), "`b.goal` and `a.goal@2` both stand on rank 2");
}

#[test]
fn merged_jobs_keep_their_communicators() {
    let job = |name: &str| {
        let text = format!(
            "{{\"windtunnel_workload\": 1, \"ranks\": 3}}\n{{\"communicator\": \"{name}\", \"ranks\": [2, 0]}}\n\
             {{\"collective\": \"all_reduce\", \"communicator\": \"{name}\", \"bytes\": \"1 MiB\"}}\n"
        );
        handwritten::read_from(text.as_bytes(), Path::new(name), 1).unwrap()
    };
    let merged = goal::merge(&[(job("a"), 0), (job("b"), 3)]).unwrap();
    let binding = merged.binding(RankId(3), CommSlot(0));
    let communicator = &merged.communicators[binding.communicator as usize];
    assert_eq!(
        (communicator.name.as_str(), &communicator.ranks[..], binding.index),
        ("1/b", &[RankId(5), RankId(3)][..], 1)
    );
}

fn with(kind: OpKind, spec: Option<CollectiveSpec>) -> Workload {
    let mut builder = ProgramBuilder::new();
    builder.calc(Span::from_ps(1_001), StreamId(0), 0);
    match spec {
        Some(spec) => builder.collective(CommSlot(0), spec, Dimension::Dp, StreamId(0), 0),
        None => builder.push(kind, Dimension::Other, 0),
    };
    Workload::from_programs(vec![builder.finish().unwrap()])
}

#[test]
fn what_goal_cannot_express_is_named_and_nothing_is_written() {
    let path = std::env::temp_dir().join(format!("windtunnel-inexpressible-{}.goal", std::process::id()));
    let receive =
        |tag| OpKind::Receive { peer: Some(Peer::Rank(RankId(0))), tag: Some(Tag(tag)), stream: StreamId(0) };
    let collective = with(receive(0), Some(CollectiveSpec::new(CollectiveKind::AllReduce, Bytes::new(64))));
    let cases = [
        (collective, "operation 1 of rank 0 is a collective (AllReduce of 64 bytes), GOAL has none"),
        (
            with(receive(1 << 32), None),
            "operation 1 of rank 0 has tag 4294967296, GOAL's are at most 4294967294",
        ),
    ];
    for (workload, expected) in cases {
        assert_eq!(goal::write_text(&workload, &path).unwrap_err().message(), expected);
        assert_eq!(goal::write_binary(&workload, &path).unwrap_err().message(), expected);
        assert!(!path.exists());
    }
}

#[test]
fn picoseconds_round_up_to_nanoseconds() {
    let receive = OpKind::Receive { peer: None, tag: None, stream: StreamId(0) };
    let mut text = Vec::new();
    goal::encode_text(&with(receive, None), &mut text).unwrap();
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "num_ranks 1\n\nrank 0 {\nl0: calc 2\nl1: recv 0b from -1 tag -1\n}\n"
    );
}
