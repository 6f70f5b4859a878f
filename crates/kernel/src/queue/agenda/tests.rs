//! The agenda against a sorted set, and the loads that calendars stumble over.

use super::*;
use crate::queue::EventQueue;
use crate::queue::load::calls;
use proptest::prelude::*;

fn agree(calls: Vec<(u8, usize, u64, u32)>) -> Result<(), TestCaseError> {
    const ENTITIES: u32 = 300;
    let mut agenda = Agenda::new(ENTITIES as usize);
    // A look at the width now and then, also in short runs.
    agenda.look = 16;
    let mut set = std::collections::BTreeSet::new();
    let mut waits = [false; ENTITIES as usize];
    let mut now = 0;
    for (kind, times, delay, salt) in calls {
        for i in 0..times as u64 {
            let draw = crate::mix64(u64::from(salt) ^ i);
            match kind {
                0 | 1 => {
                    let entity = (draw >> 32) as u32 % ENTITIES;
                    // Some of one instant, some spread.
                    let spread = if salt % 3 == 0 { 0 } else { draw % (delay / 2 + 1) };
                    if !std::mem::replace(&mut waits[entity as usize], true) {
                        agenda.push(entity, Time::from_ps(now + delay + spread));
                        set.insert((now + delay + spread, entity));
                    }
                }
                2 => {
                    let upcoming = agenda.ahead([0]).map(|[next]| next);
                    let expected = set.pop_first();
                    if agenda.late.is_empty() && upcoming.is_some() {
                        prop_assert_eq!(upcoming, expected.map(|event| event.1));
                    }
                    if let Some((time, _)) = expected.filter(|event| event.0 > 0) {
                        prop_assert_eq!(agenda.pop_until(Time::from_ps(time - 1)), None);
                    }
                    prop_assert_eq!(
                        agenda.pop(),
                        expected.map(|(time, entity)| (Time::from_ps(time), entity))
                    );
                    if let Some((time, entity)) = expected {
                        now = time;
                        waits[entity as usize] = false;
                    }
                }
                _ => {
                    let expected = set.first().map_or(Time::NEVER, |&(time, _)| Time::from_ps(time));
                    prop_assert_eq!(agenda.next_time(), expected);
                }
            }
            prop_assert_eq!((agenda.len(), agenda.is_empty()), (set.len(), set.is_empty()));
        }
    }
    while let Some((time, entity)) = set.pop_first() {
        prop_assert_eq!(agenda.pop(), Some((Time::from_ps(time), entity)));
    }
    prop_assert_eq!(agenda.pop(), None);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn an_agenda_pops_what_a_sorted_set_pops(calls in calls()) {
        agree(calls)?;
    }
}

/// Long enough for the width to follow the load from microseconds to picoseconds and back.
#[test]
fn the_width_follows_the_load() {
    let mut agenda = Agenda::new(5_000);
    let mut heap = EventQueue::new();
    for entity in 0..5_000u32 {
        let time = Time::from_ps(u64::from(entity % 977) * 1_000);
        agenda.push(entity, time);
        heap.push(crate::queue::Sequenced { time, number: u64::from(entity) }, ());
    }
    let mut widths = Vec::new();
    for scale in [1_000_000, 100, 10_000_000] {
        for i in 0..30_000 {
            let (key, ()) = heap.pop().unwrap();
            assert_eq!(agenda.pop(), Some((key.time, key.number as u32)));
            let time = Time::from_ps(key.time.ps() + scale * (1 + i % 13));
            agenda.push(key.number as u32, time);
            heap.push(crate::queue::Sequenced { time, ..key }, ());
        }
        widths.push(agenda.shift);
    }
    assert!(widths[0] > widths[1] + 5 && widths[2] > widths[1] + 5, "{widths:?}");
}

/// Idle stretches widen the buckets, bursts fill what was lined up ahead: events are late, and the cursor goes back.
#[test]
fn bursts_after_idle_stretches_come_in_order() {
    for entities in [60, 90, 130, 200, 600u32] {
        let mut agenda = Agenda::new(entities as usize);
        let mut heap = EventQueue::new();
        let mut draw = u64::from(entities) << 32;
        let mut random = |below: u64| {
            draw += 1;
            crate::mix64(draw) % below
        };
        for entity in 0..entities {
            let time = Time::from_ps(random(50_000_000));
            agenda.push(entity, time);
            heap.push(crate::queue::Sequenced { time, number: u64::from(entity) }, ());
        }
        for i in 0..60_000u64 {
            let (key, ()) = heap.pop().unwrap();
            assert_eq!(agenda.pop(), Some((key.time, key.number as u32)), "pop {i} of {entities}");
            let delay = match (i / 500) % 5 {
                0 => 1_000_000 + random(50_000_000),
                1 if random(100) > 0 => random(20_000),
                1 => 5_000_000_000,
                2 => 83_200 * (1 + random(3)),
                3 => random(2_000_000),
                _ => 50_000_000 + random(1_000),
            };
            let time = Time::from_ps(key.time.ps() + delay);
            agenda.push(key.number as u32, time);
            heap.push(crate::queue::Sequenced { time, ..key }, ());
        }
    }
}

/// An event that came late for one cursor waits in its bucket after the cursor has gone back before it.
#[test]
fn nothing_is_late_for_a_cursor_that_went_back() {
    let mut agenda = Agenda::new(200);
    let at = |bucket: u64, ps: u64| Time::from_ps((bucket << agenda.shift) + ps);
    let (near, far): (Vec<_>, Vec<_>) =
        ((0..40).map(|i| at(2, 10 * i)).collect(), (0..62).map(|i| at(10, 100 * i)).collect());
    let (late, between) = (at(10, 1_050), at(5, 0));
    for (entity, &time) in (0u32..).zip(&near) {
        agenda.push(entity, time);
    }
    for (entity, &time) in (100u32..).zip(&far) {
        agenda.push(entity, time);
    }
    let mut popped: Vec<Time> = (0..37).map(|_| agenda.pop().unwrap().0).collect();
    agenda.push(50, late);
    assert_eq!(agenda.late.len(), 1, "too deep in the line");
    popped.push(agenda.pop().unwrap().0);
    agenda.push(51, between);
    assert_eq!((agenda.cursor, agenda.late.len()), (2, 0));
    popped.extend(std::iter::from_fn(|| agenda.pop()).map(|(time, _)| time));
    let mut all = [near, far, vec![late, between]].concat();
    all.sort_unstable();
    assert_eq!(popped, all);
}

/// Of any size, also where the low bits of the time begin anew.
#[test]
fn buckets_are_sorted() {
    for len in 0..40u32 {
        for salt in 0..100u64 {
            let start = if salt % 2 == 0 { 0 } else { (1 << 32) - 100 };
            let mut agenda = Agenda::new(len as usize);
            let time = |entity| start + crate::mix64(salt << 32 | u64::from(entity)) % 200;
            let mut expected: Vec<_> = (0..len).map(|entity| (Time::from_ps(time(entity)), entity)).collect();
            for &(time, entity) in &expected {
                agenda.push(entity, time);
            }
            expected.sort_unstable();
            let found: Vec<_> = std::iter::from_fn(|| agenda.pop()).collect();
            assert_eq!(found, expected);
        }
    }
}

/// Up to the last picosecond that there is, whatever the width.
#[test]
fn nothing_is_lost_at_the_end_of_time() {
    const ENTITIES: u32 = 200;
    for bits in [6, 20, 34, 50] {
        let mut agenda = Agenda::new(ENTITIES as usize);
        agenda.look = 16;
        let mut set = std::collections::BTreeSet::new();
        for entity in 0..ENTITIES {
            let before = crate::mix64(u64::from(entity) << 8 | bits) >> (64 - bits);
            agenda.push(entity, Time::from_ps(u64::MAX - before));
            set.insert((u64::MAX - before, entity));
        }
        for round in 0..5_000u64 {
            let Some((time, entity)) = set.pop_first() else { break };
            assert_eq!(agenda.pop(), Some((Time::from_ps(time), entity)), "{bits} bits");
            let delay = crate::mix64(round) >> (64 - bits) >> 4;
            if round < 4_000 {
                let time = time.saturating_add(delay);
                agenda.push(entity, Time::from_ps(time));
                set.insert((time, entity));
            }
        }
        assert_eq!((agenda.pop(), set.pop_first()), (None, None));
    }
}
