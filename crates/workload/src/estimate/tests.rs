//! The line against the timed execution of schedules, and against itself lane by lane.

use windtunnel_kernel::Span;

use super::data::{Meeting, Point, Stretch};
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
    Costs::new(Span(100 + stage * 7 % 13), Span(90 + stage * 5 % 11), Span(80 + stage * 3 % 7))
}

fn sheet(course: &Course, schedule: &Schedule, latency: f64, lanes: usize) -> Sheet {
    let mut sheet = Sheet::new(course);
    for rank in 0..course.ranks() {
        for chunk in 0..course.chunks() {
            let costs = costs(schedule.placement.stage(rank, chunk as u16));
            let of = |kind| costs.of(kind).0 as f64;
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
            let expected = execute(&schedule, costs, |_, _| Span(40)).unwrap();
            for (lane, ends) in course.run(&sheet, 3).iter().enumerate() {
                let scale = 1.0 + lane as f64;
                for rank in 0..ranks {
                    let last = expected.actions[rank as usize].last().unwrap().1.0 as f64;
                    assert_eq!(
                        ends.passes[rank as usize],
                        last * scale,
                        "{name} {ranks} {microbatches} {rank}"
                    );
                }
                assert_eq!(course.makespans(&sheet)[lane], expected.makespan.0 as f64 * scale);
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
    assert_eq!(course.run(&sheet, 1)[0].passes, [70.0, 35.0]);
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
    let ends = &course.run(&sheet, 1)[0];
    // The first forward ends at 50, then B, F, B from 80 on; its gradients are reduced at 105.
    assert_eq!((ends.passes[0], ends.reduced[0]), (100.0, 105.0));
    let every = Course::new(&schedule, Gathering::None, Reducing::Every);
    let slow = Times { reduced: 70.0, reduce: 60.0, ..times };
    sheet.stage(0, 0, 0, &slow);
    // 50 + 70, then 60 more.
    assert_eq!(every.run(&sheet, 1)[0].reduced[0], 180.0);
}

/// A stage whose passes gather `gather` before they compute for `forward` and `backward`; the second reduces `reduce`.
fn gathering(gather: f64, forward: f64, backward: f64, reduce: f64) -> StagePrice {
    let part = |work| Part { latency: 0.0, work };
    let then = |span, then| Stretch { span, meeting: Meeting::default(), then };
    let enter = then(0.0, Point::Enter([part(gather), Part::default()]));
    let leave = Point::Leave(Leaving { parts: [part(reduce), Part::default()], ..Leaving::default() });
    let stretches = [
        vec![enter, then(forward, Point::End)],
        vec![enter, then(backward, leave), then(0.0, Point::End)],
        Vec::new(),
        Vec::new(),
    ];
    StagePrice { stretches, ..StagePrice::default() }
}

/// The ends of a step of `ranks` with one chunk each, whose shards all share one link.
fn followed(name: ScheduleName, ranks: u32, microbatches: u32, stage: &StagePrice) -> Ends {
    let schedule = all(name, None, ranks, microbatches).unwrap();
    let mut classes = vec![Class::default(); Of::ALL.len() * ranks as usize];
    for class in &mut classes[..ranks as usize] {
        *class = Class { bit: 1.0, flow: 1.0, links: vec![(0, 1.0)] };
    }
    let crowded = Crowded {
        schedule: &schedule,
        gathering: Gathering::EachPass,
        reducing: Reducing::Every,
        prefetch: 1,
        prices: &vec![stage; ranks as usize],
        sides: &vec![[Part::default(); 2]; ranks as usize],
        shares: &Shares::new(ranks, &classes),
    };
    crowded.run()
}

#[test]
fn gathers_go_one_ahead_and_reductions_queue_among_them() {
    let stage = gathering(30.0, 20.0, 40.0, 10.0);
    let ends = followed(ScheduleName::OneForwardOneBackward, 1, 2, &stage);
    // Gathers to 30 and 60; F to 50; a third from 60 to 90; B from 60 to 100; its reduction to 110 and the fourth gather to 140;
    // F to 120; B from 140 to 180, and its reduction.
    assert_eq!((ends.passes[0], ends.reduced[0], ends.waited[0]), (180.0, 190.0, 60.0));
}

#[test]
fn ranks_share_a_link_for_their_gathers() {
    let stage = gathering(100.0, 10.0, 20.0, 0.0);
    let ends = followed(ScheduleName::Gpipe, 2, 1, &stage);
    // Both ask for two gathers at once: the first of each ends at 200, the second at 400.
    assert_eq!(ends.passes, [440.0, 420.0]);
    assert_eq!(ends.waited, [200.0, 180.0]);
}
