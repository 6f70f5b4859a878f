//! The line against the timed execution of schedules, and against itself lane by lane.

use windtunnel_kernel::Span;

use super::pass::Point;
use super::*;
use crate::schedules::timed::execute;
use crate::schedules::{ActionKind, Costs, Schedule, ScheduleName, ScheduleSettings};

fn all(name: ScheduleName, chunks: Option<u16>, ranks: u32, microbatches: u32) -> Option<Schedule> {
    let settings = ScheduleSettings { chunks, ..ScheduleSettings::new(name) };
    Schedule::new(&settings, ranks, microbatches).ok()
}

/// Costs of a stage, different for each.
fn costs(stage: u32) -> Costs {
    let stage = u64::from(stage);
    Costs::new(
        Span::from_ps(100 + stage * 7 % 13),
        Span::from_ps(90 + stage * 5 % 11),
        Span::from_ps(80 + stage * 3 % 7),
    )
}

fn sheet(course: &Course, schedule: &Schedule, latency: f64, lanes: usize) -> Sheet {
    let mut sheet = Sheet::new(course);
    for rank in 0..course.ranks() {
        for chunk in 0..course.chunks() {
            let costs = costs(schedule.placement.stage(rank, chunk as u16));
            let of = |kind| costs.of(kind).ps() as f64;
            let passes = [
                of(ActionKind::Forward),
                of(ActionKind::Backward),
                of(ActionKind::BackwardInput),
                of(ActionKind::BackwardWeight),
            ];
            for lane in 0..lanes {
                let scale = 1.0 + lane as f64;
                let times = Times {
                    passes: passes.map(|time| time * scale),
                    pair: (passes[0] + passes[1]) * scale,
                    ..Times::default()
                };
                sheet.stage(lane, rank, chunk, &times);
            }
        }
        for lane in 0..lanes {
            let side = Side { busy: 0.0, latency: latency * (1.0 + lane as f64) };
            sheet.sides(lane, rank, side, side);
        }
    }
    sheet
}

#[test]
fn a_line_takes_what_the_schedule_takes_when_it_is_executed() {
    for name in [
        ScheduleName::Gpipe,
        ScheduleName::OneForwardOneBackward,
        ScheduleName::Interleaved,
        ScheduleName::ZbH1,
        ScheduleName::Zb1p,
        ScheduleName::Zbv,
        ScheduleName::DoraPp,
    ] {
        for (ranks, microbatches) in [(1, 3), (2, 8), (4, 12), (5, 25)] {
            let Some(schedule) = all(name, None, ranks, microbatches) else { continue };
            let course = Course::new(&schedule, Gathering::None, Reducing::Last);
            let sheet = sheet(&course, &schedule, 40.0, 3);
            let expected = execute(&schedule, costs, |_, _| Span::from_ps(40)).unwrap();
            for (lane, ends) in course.run(&sheet, 3, &mut Scratch::default()).iter().enumerate() {
                let scale = 1.0 + lane as f64;
                for rank in 0..ranks {
                    let last = expected.actions[rank as usize].last().unwrap().1.ps() as f64;
                    assert_eq!(
                        ends.passes[rank as usize],
                        last * scale,
                        "{name} {ranks} {microbatches} {rank}"
                    );
                }
                assert_eq!(course.makespans(&sheet)[lane], expected.makespan.ps() as f64 * scale);
            }
        }
    }
}

#[test]
fn the_peak_of_a_course_is_that_of_its_schedule() {
    for (name, chunks) in [
        (ScheduleName::Interleaved, 3),
        (ScheduleName::DoraPp, 2),
        (ScheduleName::Zbv, 2),
        (ScheduleName::ZbH1, 1),
    ] {
        let schedule = all(name, Some(chunks), 4, 12).unwrap();
        let course = Course::new(&schedule, Gathering::None, Reducing::Last);
        let sizes: Vec<u64> = (0..u64::from(chunks)).map(|chunk| 10 + 7 * chunk % 5).collect();
        let kept: Vec<u64> = sizes.iter().map(|size| size / 3).collect();
        for rank in 0..4 {
            for kept in [&sizes, &kept] {
                let expected = schedule.peak_activation(rank, &sizes, kept);
                assert_eq!(course.peak(rank, &sizes, kept), expected, "{name} {rank}");
            }
        }
    }
}

#[test]
fn messages_in_one_direction_leave_one_after_the_other() {
    // Two stages, three micro-batches that take no time to compute: the link is busy for all three, in each direction.
    let schedule = all(ScheduleName::Gpipe, None, 2, 3).unwrap();
    let course = Course::new(&schedule, Gathering::None, Reducing::Last);
    let mut sheet = Sheet::new(&course);
    for rank in 0..2 {
        let side = Side { busy: 10.0, latency: 5.0 };
        sheet.sides(0, rank, side, side);
    }
    assert_eq!(course.run(&sheet, 1, &mut Scratch::default())[0].passes, [70.0, 35.0]);
}

#[test]
fn gradients_queue_behind_passes_and_gathers_bound_the_first() {
    let schedule = all(ScheduleName::OneForwardOneBackward, None, 1, 2).unwrap();
    let course = Course::new(&schedule, Gathering::None, Reducing::Last);
    let mut sheet = Sheet::new(&course);
    let times = Times {
        passes: [10.0, 20.0, 0.0, 0.0],
        bound: 50.0,
        reduced: 25.0,
        reduce: 15.0,
        ..Times::default()
    };
    sheet.stage(0, 0, 0, &times);
    let ends = &course.run(&sheet, 1, &mut Scratch::default())[0];
    // The first forward ends at 50, then B, F, B from 80 on; its gradients are reduced at 105.
    assert_eq!((ends.passes[0], ends.reduced[0]), (100.0, 105.0));
    let every = Course::new(&schedule, Gathering::None, Reducing::Every);
    let slow = Times { reduced: 70.0, reduce: 60.0, ..times };
    sheet.stage(0, 0, 0, &slow);
    // 50 + 70, then 60 more.
    assert_eq!(every.run(&sheet, 1, &mut Scratch::default())[0].reduced[0], 180.0);
}

#[test]
fn exchanges_inside_passes_share_links_with_gathers() {
    let schedule = all(ScheduleName::OneForwardOneBackward, None, 1, 1).unwrap();
    let part = |work| Part { latency: 0.0, work };
    let ends = |shared: bool, launch: f64| {
        let mut classes = vec![Class::default(); Of::ALL.len()];
        let of_tp = u32::from(!shared);
        classes[Of::Shard as usize] = Class { bit: 1.0, flow: 1.0, links: vec![(0, 1.0)] };
        classes[Of::Tp as usize] = Class { bit: 1.0, flow: 1.0, links: vec![(of_tp, 1.0)] };
        let shares = Shares::new(1, &classes);
        assert_eq!(shares.meets(), shared);
        let enter = Point::Enter([part(100.0), Part::default()]);
        let mut price = StagePrice::default();
        price.points[0] = vec![
            (0.0, enter),
            (0.0, Point::Launch { span: launch, gated: false }),
            (0.0, Point::Ask { of: Of::Tp, part: part(100.0), number: 0 }),
            (0.0, Point::Await(0)),
            (0.0, enter),
            (50.0, Point::End),
        ];
        price.asked[0] = 1;
        price.points[1] = vec![(20.0, Point::End)];
        let crowded = Crowded {
            schedule: &schedule,
            gathering: Gathering::Once,
            reducing: Reducing::Last,
            prefetch: 1,
            prices: &[&price],
            sides: &[[Part::default(); 2]],
            shares: &shares,
        };
        let ends = crowded.run();
        (ends.passes[0], ends.waited[0])
    };
    // The first gather takes 100; the second goes beside the exchange, at half the rate each.
    assert_eq!(ends(true, 0.0), (100.0 + 200.0 + 50.0 + 20.0, 100.0));
    assert_eq!(ends(false, 0.0), (100.0 + 100.0 + 50.0 + 20.0, 100.0));
    // The host launches for longer than the pass computes: it ends with its launch, and the next begins.
    assert_eq!(ends(true, 400.0), (400.0 + 20.0, 100.0));
}
