//! Hosts that launch kernels one by one.

use super::*;
use crate::estimate::{Course, Gathering, Part, Reducing, Scratch, Sheet, Times, Tolls, pass, price};

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

/// Exchanges that take no time.
struct AtOnce;

impl Tolls for AtOnce {
    fn toll(
        &self,
        _: Role,
        _: CollectiveKind,
        _: Bytes,
        _: Option<crate::collectives::dispatcher::Routing>,
    ) -> f64 {
        0.0
    }

    fn part(&self, _: Role, _: CollectiveKind, _: Bytes) -> Part {
        Part::default()
    }

    fn inside(
        &self,
        _: Role,
        _: CollectiveKind,
        _: Bytes,
        _: Option<crate::collectives::dispatcher::Routing>,
    ) -> Part {
        Part::default()
    }
}

/// The cost model's end of the last pass.
fn estimated(layout: &Layout, works: &[ChunkWork]) -> f64 {
    let schedule = Schedule::new(&layout.schedule, layout.pp, layout.microbatches).unwrap();
    let course = Course::new(&schedule, Gathering::None, Reducing::Late);
    let mut sheet = Sheet::new(&course);
    let split = layout.schedule.name.splits_backward();
    let runs = pass::Runs { whole: !split, split };
    for rank in 0..course.ranks() {
        for chunk in 0..course.chunks() {
            let stage = schedule.placement.stage(rank, chunk as u16);
            let found = price(layout, stage, &works[stage as usize], runs, 1.0, &AtOnce).unwrap();
            let times = Times { passes: found.passes, hosts: found.hosts, ..Times::default() };
            sheet.stage(0, rank, chunk, &times);
        }
    }
    course.run(&sheet, 1, &mut Scratch::default())[0].passes.iter().copied().fold(0.0, f64::max)
}

proptest! {
    /// The cost model's passes and hosts against the programs that are made of the same lists.
    #[test]
    fn the_cost_model_has_hosts_where_they_are(
        pp in 1u32..4,
        microbatches in 1u32..6,
        lists in prop::collection::vec(prop::collection::vec((1u64..60, 0u64..60, any::<bool>()), 1..4), 3),
        blocking in any::<bool>(),
        split in any::<bool>(),
    ) {
        let works: Vec<ChunkWork> = (0..pp as usize)
            .map(|stage| {
                let list = &lists[stage];
                let pieces = |times: u64| -> Vec<Piece> {
                    let unit = |(unit, &(cost, launch, waits)): (usize, &(u64, u64, bool))| {
                        let launch = (launch > 0)
                            .then_some(Piece::Launch { span: Span::from_ps(times * launch), waits });
                        launch.into_iter().chain([calc(times * cost), Piece::UnitDone(unit as u32)])
                    };
                    list.iter().enumerate().flat_map(unit).collect()
                };
                let back = |times| {
                    let mut pieces = pieces(times);
                    let units = list.len() as u32;
                    for piece in &mut pieces {
                        if let Piece::UnitDone(unit) = piece {
                            *unit = units - 1 - *unit;
                        }
                    }
                    pieces
                };
                ChunkWork {
                    forward: pieces(1),
                    backward: back(2),
                    backward_input: back(1),
                    backward_weight: back(1),
                    ..super::stage(list.len() as u32, 1)
                }
            })
            .collect();
        let name = if split { ScheduleName::ZbH1 } else { ScheduleName::OneForwardOneBackward };
        let layout = Layout {
            pp,
            microbatches,
            blocking_exchange: blocking,
            schedule: ScheduleSettings::new(name),
            ..Layout::default()
        };
        prop_assume!(Schedule::new(&layout.schedule, pp, microbatches).is_ok());
        let expected = execute(&generate(&layout, &works).unwrap().workload, &FREE).makespan;
        let found = estimated(&layout, &works);
        prop_assert_eq!(found, expected as f64);
    }
}
