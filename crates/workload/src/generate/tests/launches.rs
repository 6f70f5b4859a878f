//! Hosts that launch kernels one by one.

use super::*;

/// Layers of `cost` forward and twice that backward, each after a launch of `launch`, twice that backward.
fn launched(layers: u32, cost: u64, launch: u64) -> ChunkWork {
    let with_launch = |times: u64| {
        move |unit| {
            [
                Piece::Launch { span: Span::from_ps(times * launch), waits: false },
                calc(times * cost),
                Piece::UnitDone(unit),
            ]
        }
    };
    ChunkWork {
        forward: (0..layers).flat_map(with_launch(1)).collect(),
        backward: (0..layers).rev().flat_map(with_launch(2)).collect(),
        ..stage(layers, cost)
    }
}

#[test]
fn a_slow_host_is_the_pace_of_a_fast_gpu() {
    let makespan = |layout: &Layout, stages: u32, cost, launch| {
        let works: Vec<ChunkWork> = (0..stages).map(|_| launched(3 / stages, cost, launch)).collect();
        execute(&generate(layout, &works).unwrap().workload, &FREE).makespan
    };
    let alone = Layout { microbatches: 5, ..Layout::default() };
    // 3 layers, 5 micro-batches, one part forward and two backward: whichever is slower, and nothing of the other.
    for (cost, launch) in [(10, 1), (10, 10), (10, 25), (1, 25)] {
        assert_eq!(makespan(&alone, 1, cost, launch), 3 * 5 * 3 * cost.max(launch), "{cost} {launch}");
    }
    // Two stages of a layer, one micro-batch. The second stage's passes are launched while it waits for the first (d), so
    // they take the GPU's time from the arrival on: forward d + g, backward no sooner than its launch's end, 3d.
    let two = Layout { pp: 2, ..Layout::default() };
    let (g, d) = (10, 25);
    assert_eq!(makespan(&two, 2, g, d), 3 * d + 2 * g);
    // A host that waits for every exchange launches each of the four passes in turn: d, d, 2d, 2d.
    let blocking = Layout { blocking_exchange: true, ..two };
    assert_eq!(makespan(&blocking, 2, g, d), 6 * d);
    assert_eq!(makespan(&blocking, 2, d, g), 6 * d);
}

/// A host that waits for the GPU begins to launch when the GPU comes: what it launches takes the longer of the two after
/// what came before, however far the host could have run ahead.
#[test]
fn a_host_that_waits_for_the_gpu_is_not_ahead_of_it() {
    let pass = |waits: bool| {
        vec![calc(10), Piece::Launch { span: Span::from_ps(25), waits }, calc(15), Piece::UnitDone(0)]
    };
    let makespan = |waits| {
        let work =
            ChunkWork { forward: pass(waits), backward: vec![calc(1), Piece::UnitDone(0)], ..stage(1, 10) };
        let layout = Layout { microbatches: 4, ..Layout::default() };
        execute(&generate(&layout, &[work]).unwrap().workload, &FREE).makespan
    };
    // Waiting: 10 before each launch. Ahead: the GPU is the slower one.
    assert_eq!(makespan(true), 4 * (10 + 25 + 1));
    assert_eq!(makespan(false), 4 * (10 + 15 + 1));
}
