//! Cutting, scaling and placing.

use windtunnel_kernel::{Bytes, RankId, Span, StreamId};

use super::{Part, Placing, Scale, matrix, place, scale, share, slice, steps, tell};
use crate::collectives::{CollectiveKind, CollectiveSpec};
use crate::program::{Binding, Communicator};
use crate::{CommSlot, Dimension, OpKind, ProgramBuilder, Workload};

/// Two ranks, three steps of a computation and an all-reduce; rank 1's first collective stands before its first mark.
fn recorded() -> Workload {
    let mut workload = Workload::default();
    workload.communicators.push(Communicator { name: "world".to_owned(), ranks: vec![RankId(0), RankId(1)] });
    for rank in 0..2u32 {
        let mut builder = ProgramBuilder::new();
        let mut last = None;
        for step in 0..3 {
            let names = [format!("step{step} begin"), "gemm".to_owned(), format!("step{step} end")];
            for (place, name) in names.iter().enumerate() {
                let label = builder.label(name);
                let op = builder.calc(Span::from_ps(if place == 1 { 1_000 } else { 0 }), StreamId(0), label);
                if let Some(last) = last {
                    builder.requires(op, last);
                }
                last = Some(op);
                // On rank 1 step 1's sum comes behind its end.
                if place == 1 && !(rank == 1 && step == 1) || place == 2 && rank == 1 && step == 1 {
                    let spec = CollectiveSpec::new(CollectiveKind::AllReduce, Bytes::new(1_024));
                    let op = builder.collective(CommSlot(0), spec, Dimension::Dp, StreamId(1), 0);
                    builder.requires(op, last.unwrap());
                }
            }
        }
        workload.programs.push(builder.finish().unwrap());
        workload.add_rank(rank, &[Binding { communicator: 0, index: rank }]);
    }
    workload
}

fn collectives(workload: &Workload, rank: u32) -> Vec<u32> {
    let ops = workload.program(RankId(rank)).ops.iter();
    ops.filter_map(|op| if let OpKind::Collective { sequence, .. } = op.kind { Some(sequence) } else { None })
        .collect()
}

#[test]
fn a_slice_keeps_what_all_members_have() {
    let workload = recorded();
    assert_eq!(steps(&workload), ["step0", "step1", "step2"]);
    let (cut, left_out) = slice(&workload, "step1", "step2").unwrap();
    assert_eq!((collectives(&cut, 0), collectives(&cut, 1), left_out), (vec![0, 1], vec![0, 1], 0));
    // Alone, step 1 has a sum on rank 0 only.
    let (cut, left_out) = slice(&workload, "step1", "step1").unwrap();
    assert_eq!((collectives(&cut, 0), collectives(&cut, 1), left_out), (vec![], vec![], 1));
    let error = slice(&workload, "step7", "step7").unwrap_err();
    assert_eq!(error.to_string(), "expected an operation `step7 begin` on every rank, found none on rank 0");
    assert!(slice(&workload, "step2", "step0").unwrap_err().to_string().contains("behind on rank 0"));
}

#[test]
fn scaling_changes_what_it_names() {
    let mut workload = recorded();
    let rules = Scale { compute: vec![("gem*".to_owned(), 0.5)], bytes: 2.0 };
    assert_eq!(scale(&mut workload, &rules), [6]);
    let told = tell(&workload);
    assert_eq!(told.computation[0], ("gemm".to_owned(), 6, Span::from_ps(3_000)));
    assert_eq!((told.collectives[0].bytes, told.collectives[0].count), (2_048, 3));
}

#[test]
fn workloads_side_by_side_keep_their_traffic() {
    let part = |from, start| Part { workload: recorded(), from, start: Span::from_ps(start) };
    let alone: u64 = matrix(&recorded()).unwrap().iter().sum();
    for placing in [Placing::Packed, Placing::RoundRobin, Placing::Random] {
        let both = place(vec![part(0, 0), part(2, 5)], placing, 7).unwrap();
        assert_eq!(both.ranks(), 4);
        assert_eq!(matrix(&both).unwrap().iter().sum::<u64>(), 2 * alone, "{placing:?}");
        for rank in (0..4).map(RankId) {
            let binding = both.binding(rank, CommSlot(0));
            assert_eq!(both.communicators[binding.communicator as usize].ranks[binding.index as usize], rank);
        }
    }
    let turns = place(vec![part(0, 0), part(2, 0)], Placing::RoundRobin, 0).unwrap();
    assert_eq!(turns.communicators[0].ranks, [RankId(0), RankId(2)]);
    let late = place(vec![part(0, 9)], Placing::Packed, 0).unwrap();
    let program = late.program(RankId(0));
    assert!(
        matches!(program.ops.last().unwrap().kind, OpKind::Calc { duration, .. } if duration == Span::from_ps(9))
    );
    assert_eq!(program.prerequisites[0], 1);
}

#[test]
fn ranks_that_are_shared_keep_workloads_apart() {
    let part = |from, start| Part { workload: recorded(), from, start: Span::from_ps(start) };
    let both = share(vec![part(0, 0), part(1, 7)]).unwrap();
    assert_eq!(both.ranks(), 3);
    let alone = recorded().program(RankId(0)).ops.len();
    assert_eq!(both.program(RankId(0)).ops.len(), alone);
    // Rank 1 has both, and the wait of the second.
    assert_eq!(both.program(RankId(1)).ops.len(), 2 * alone + 1);
    let (first, second) = (both.binding(RankId(1), CommSlot(0)), both.binding(RankId(1), CommSlot(1)));
    assert_eq!((first.communicator, first.index, second.communicator, second.index), (0, 1, 1, 0));
    assert_eq!(both.communicators[1].ranks, [RankId(1), RankId(2)]);
    let streams: Vec<u8> = tell(&both).streams.iter().map(|(stream, _)| *stream).collect();
    // Rank 2 has the second alone: its computation on stream 0 and its wait on 2; on rank 1 they stand behind stream 1.
    assert_eq!(streams, [0, 2, 4]);
    let traffic: u64 = matrix(&both).unwrap().iter().sum();
    assert_eq!(traffic, 2 * matrix(&recorded()).unwrap().iter().sum::<u64>());
    let far = share(vec![part(u32::MAX - 1, 0)]).unwrap_err();
    assert!(far.told(&["late.wtw"]).starts_with("`late.wtw` from rank 4294967294 on"), "{far}");
}
