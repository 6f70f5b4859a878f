//! Other hosts for the same GPUs: what is kept, what is counted, and what is refused.

use std::path::Path;

use windtunnel_kernel::{BitRate, Bytes, RankId, Span, StreamId, Tag};
use windtunnel_workload::collectives::{CollectiveKind, CollectiveSpec};
use windtunnel_workload::edit::{Grouping, Inside, RegroupError, Regrouped, regroup, regroup_ranks};
use windtunnel_workload::goal::{self, ReadOptions};
use windtunnel_workload::lower::to_messages;
use windtunnel_workload::program::{Binding, Communicator};
use windtunnel_workload::{CommSlot, Dimension, OpKind, Program, ProgramBuilder, Workload};

/// Sixteen GPUs: computation, an all-reduce of 16 MB on a stream of its own, computation.
fn gpus() -> Workload {
    let mut builder = ProgramBuilder::new();
    let before = builder.calc(Span::from_ns(700), StreamId(0), 0);
    let spec = CollectiveSpec::new(CollectiveKind::AllReduce, Bytes::new(16 << 20));
    let sum = builder.collective(CommSlot(0), spec, Dimension::Dp, StreamId(1), 0);
    let after = builder.calc(Span::from_ns(300), StreamId(0), 0);
    builder.requires(sum, before);
    builder.requires(after, sum);
    let mut workload = Workload { programs: vec![builder.finish().unwrap()], ..Workload::default() };
    let ranks = (0..16).map(RankId).collect();
    workload.communicators.push(Communicator { name: "world".to_owned(), ranks });
    for index in 0..16 {
        workload.add_rank(0, &[Binding { communicator: 0, index }]);
    }
    workload
}

fn packed(gpus: u32, of_node: u32) -> Vec<Vec<u32>> {
    (0..gpus).collect::<Vec<_>>().chunks(of_node as usize).map(<[u32]>::to_vec).collect()
}

fn grouping(from: u32, nodes: Vec<Vec<u32>>) -> Grouping {
    let inside = Inside::Copy { rate: BitRate::from_gbps(3_600), latency: Span::from_ns(500) };
    Grouping { from, streams: None, nodes, nics: None, inside }
}

fn sent(workload: &Workload) -> (u64, u64) {
    let stats = goal::stats(workload);
    (stats.sends, stats.bytes.get())
}

/// Bytes between each pair of the groups of GPUs, from the messages of single GPUs: slow and plain.
fn between(messages: &Workload, nodes: &[Vec<u32>]) -> Vec<u64> {
    let node_of = |gpu: u32| nodes.iter().position(|node| node.contains(&gpu)).unwrap();
    let mut bytes_of = vec![0; nodes.len() * nodes.len()];
    for rank in 0..messages.ranks() as u32 {
        for op in &messages.program(RankId(rank)).ops {
            if let OpKind::Send { peer, bytes, .. } = op.kind {
                let to = messages.resolve(RankId(rank), peer).0;
                bytes_of[node_of(rank) * nodes.len() + node_of(to)] += bytes.get();
            }
        }
    }
    bytes_of
}

#[test]
fn bytes_and_operations_are_kept_and_counted() {
    let messages = to_messages(&gpus(), |_| {}).unwrap();
    let (sends, bytes) = sent(&messages);
    let mixed = (0..4).map(|node| (0..4).map(|gpu| gpu * 4 + node).collect()).collect();
    for nodes in [packed(16, 1), packed(16, 4), packed(16, 8), packed(16, 16), mixed] {
        let (grouped, account) = regroup(&messages, &grouping(1, nodes.clone())).unwrap();
        assert_eq!(grouped.ranks(), nodes.len());
        assert_eq!(account.messages_between + account.messages_inside, sends);
        assert_eq!(account.bytes_between + account.bytes_inside, bytes);
        assert_eq!(sent(&grouped), (account.messages_between, account.bytes_between));
        assert_eq!(grouped.operations(), messages.operations());
        assert_eq!(account.edges_as_messages, 0);
        assert!(goal::check(&grouped).is_complete());
        let expected = between(&messages, &nodes);
        let lone: Vec<Vec<u32>> = (0..nodes.len() as u32).map(|node| vec![node]).collect();
        let mut found = between(&grouped, &lone);
        for (place, bytes) in found.iter_mut().enumerate().filter(|(place, _)| place % (nodes.len() + 1) == 0)
        {
            assert_eq!(*bytes, 0);
            *bytes = expected[place];
        }
        assert_eq!(found, expected);
    }
    // One GPU a node is what there was.
    assert!(regroup(&messages, &grouping(1, packed(16, 1))).unwrap().0 == messages);
}

#[test]
fn eight_gpus_on_two_nodes_become_four_on_four_and_one_on_sixteen() {
    let messages = to_messages(&gpus(), |_| {}).unwrap();
    let (two, _) = regroup(&messages, &grouping(1, packed(16, 8))).unwrap();
    // A recording of nodes of eight GPUs: what is inside them is copies already, and stays with its GPU.
    let (same, account) = regroup(&two, &grouping(8, packed(16, 8))).unwrap();
    assert_eq!(
        account,
        Regrouped {
            messages_between: account.messages_between,
            bytes_between: account.bytes_between,
            ..Regrouped::default()
        }
    );
    assert!(same == two);
    let (four, account) = regroup(&two, &grouping(8, packed(16, 4))).unwrap();
    assert_eq!(four.ranks(), 4);
    // What the halves of a node had to wait for is told by messages now.
    assert!(account.edges_as_messages > 0);
    assert_eq!(four.operations(), two.operations() + 2 * account.edges_as_messages);
    assert_eq!(account.bytes_between, sent(&two).1);
    assert_eq!(sent(&four).1, sent(&two).1 + account.edges_as_messages);
    assert!(goal::check(&four).is_complete());
    let (all, account) = regroup(&two, &grouping(8, packed(16, 1))).unwrap();
    assert_eq!(all.ranks(), 16);
    // A receive of a node's GPU waits for its copy by one edge; sixteen GPUs need one message for each pair that copied.
    assert!(account.edges_as_messages >= sent(&messages).0 - sent(&two).0);
    assert!(goal::check(&all).is_complete());
}

#[test]
fn copies_take_the_links_time_and_dropped_messages_none() {
    let text = "num_ranks 2\nrank 0 {\na: calc 100\nb: send 4500b to 1 tag 3 cpu 1\nb requires a\n}\n\
                rank 1 {\na: recv 4500b from 0 tag 3 cpu 1\nb: calc 10\nb requires a\n}\n";
    let two = goal::parse(text.as_bytes(), Path::new("x"), ReadOptions::default()).unwrap();
    let chain = |inside| {
        let grouping = Grouping { inside, ..grouping(1, packed(2, 2)) };
        let (one, account) = regroup(&two, &grouping).unwrap();
        assert_eq!((account.messages_inside, account.bytes_inside, one.ranks()), (1, 4_500, 1));
        assert!(one.programs[0].ops.iter().all(|op| matches!(op.kind, OpKind::Calc { .. })));
        goal::stats(&one).critical_path
    };
    // 4,500 B at 3.6 Tbit/s take 10 ns.
    let copy = Inside::Copy { rate: BitRate::from_gbps(3_600), latency: Span::from_ns(500) };
    assert_eq!(chain(copy), Span::from_ns(100 + 500 + 10 + 10));
    assert_eq!(chain(Inside::Drop), Span::from_ns(110));
}

#[test]
fn messages_of_equal_tags_do_not_cross() {
    // GPUs 0 and 1 both send to GPU 2 with tag 0; GPU 2 takes that of GPU 1 from anywhere.
    let text = "num_ranks 3\nrank 0 {\nsend 7b to 2 tag 0\n}\nrank 1 {\nsend 9b to 2 tag 0\n}\n\
                rank 2 {\nrecv 7b from 0 tag 0\nrecv 9b from -1 tag -1\n}\n";
    let three = goal::parse(text.as_bytes(), Path::new("x"), ReadOptions::default()).unwrap();
    let (two, account) = regroup(&three, &grouping(1, vec![vec![0, 1], vec![2]])).unwrap();
    assert_eq!(account.wildcards, 1);
    let tag = |program: &Program| -> Vec<Option<Tag>> {
        let tag = |kind| match kind {
            OpKind::Send { tag, .. } => Some(tag),
            OpKind::Receive { tag, .. } => tag,
            _ => None,
        };
        program.ops.iter().map(|op| tag(op.kind)).collect()
    };
    assert_eq!(tag(&two.programs[0]), tag(&two.programs[1]));
    assert_ne!(tag(&two.programs[0])[0], tag(&two.programs[0])[1]);
}

#[test]
fn ranks_are_renumbered_and_collectives_stay() {
    let mut workload = gpus();
    workload.programs[0].specs[0].domain = 8;
    let striped: Vec<Vec<u32>> = (0..4).map(|node| (0..4).map(|gpu| gpu * 4 + node).collect()).collect();
    let changed = regroup_ranks(&workload, &striped).unwrap();
    // The group goes 0, 4, 8, … over the hosts, so no two neighbours share one.
    assert_eq!(changed.communicators[0].ranks[..5], [0, 4, 8, 12, 1].map(RankId));
    assert_eq!(changed.programs[0].specs[0].domain, 1);
    assert_eq!(regroup_ranks(&workload, &packed(16, 4)).unwrap().programs[0].specs[0].domain, 4);
    for rank in (0..16).map(RankId) {
        let binding = changed.binding(rank, CommSlot(0));
        assert_eq!(changed.communicators[0].ranks[binding.index as usize], rank);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let messages = to_messages(&gpus(), |_| {}).unwrap();
    let refused = |grouping: &Grouping| regroup(&messages, grouping).unwrap_err();
    assert_eq!(refused(&grouping(1, packed(15, 5))), RegroupError::Places { gpus: 16, gpu: 15, times: 0 });
    assert_eq!(refused(&grouping(1, vec![vec![0, 0]])), RegroupError::Places { gpus: 16, gpu: 0, times: 2 });
    assert_eq!(refused(&grouping(3, packed(48, 3))), RegroupError::Streams { streams: 2, from: 3 });
    let narrow = Grouping { streams: Some(1), ..grouping(1, packed(16, 1)) };
    assert!(refused(&narrow).to_string().contains("stream 1 is beyond 1 GPUs of 1 streams"));
    let text = "num_ranks 2\nrank 0 {\nsend 7b to 1\n}\nrank 1 {\n}\n";
    let alone = goal::parse(text.as_bytes(), Path::new("x"), ReadOptions::default()).unwrap();
    let error = regroup(&alone, &grouping(1, packed(2, 2))).unwrap_err();
    assert!(error.to_string().starts_with("rank 0, operation 0: the send has no partner"));
}
