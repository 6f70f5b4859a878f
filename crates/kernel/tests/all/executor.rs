//! The sequential executor under PHOLD, and the wrong models that it must catch.

use crate::phold::{ENTITIES, LOOKAHEAD, Phold, deal, digest};
use proptest::prelude::*;
use windtunnel_kernel::executor::{
    Control, End, Envelope, ExecutorError, Outbox, Outcome, Process, Progress, Sequential,
};
use windtunnel_kernel::queue::EventKey;
use windtunnel_kernel::random::combine;
use windtunnel_kernel::{Span, Time};

fn run(processes: &mut [Phold], until: Time) -> Outcome {
    Sequential::run(processes, LOOKAHEAD, until, |_| Control::Continue).unwrap()
}

const UNTIL: Time = Time::from_ps(1_000_000);

/// Digest and events of a single process: one heap of all events, no windows and no mail.
fn reference() -> (u64, u64) {
    let mut one = deal(1, u64::from);
    let outcome = run(&mut one, UNTIL);
    assert_eq!((outcome.end, outcome.progress.windows, outcome.progress.mail), (End::Stop, 1, 0));
    (digest(&one), outcome.progress.events)
}

#[test]
fn any_number_of_processes_gives_one_digest() {
    let (expected, events) = reference();
    // A change of this constant is a change of the order of events, and so of every result.
    assert_eq!(expected, 8_561_159_895_269_025_111);
    assert!(events > 40_000, "{events}");
    for count in [2, 7, ENTITIES] {
        let mut processes = deal(count, u64::from);
        let outcome = run(&mut processes, UNTIL);
        assert_eq!((digest(&processes), outcome.progress.events), (expected, events), "{count} processes");
        assert!(outcome.progress.windows > 500 && outcome.progress.mail > 10_000, "{outcome:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn neither_order_nor_pauses_nor_stops_matter(seed: u64, count in 1..=9u32, budget in 1..50u64, stop in 1..1_000_000u64) {
        let mut processes = deal(count, |process| combine(seed, u64::from(process)));
        for process in &mut processes {
            process.budget = budget;
        }
        let first = run(&mut processes, Time::from_ps(stop));
        prop_assert_eq!((first.end, first.progress.time), (End::Stop, Time::from_ps(stop)));
        let second = run(&mut processes, UNTIL);
        let found = (digest(&processes), first.progress.events + second.progress.events);
        prop_assert_eq!(found, reference());
    }
}

#[test]
fn a_cancelled_run_goes_on_where_it_ended() {
    let mut processes = deal(3, u64::from);
    let mut seen: Vec<Progress> = Vec::new();
    let control = |progress: &Progress| {
        seen.push(*progress);
        if seen.len() == 10 { Control::Cancel } else { Control::Continue }
    };
    let outcome = Sequential::run(&mut processes, LOOKAHEAD, UNTIL, control).unwrap();
    assert_eq!((outcome.end, outcome.progress), (End::Cancelled, seen[9]));
    assert!(seen.windows(2).all(|pair| pair[0].time < pair[1].time && pair[0].events < pair[1].events));
    assert_eq!(seen[9].windows, 10);
    let rest = run(&mut processes, UNTIL);
    assert_eq!((digest(&processes), outcome.progress.events + rest.progress.events), reference());
}

#[test]
fn a_window_is_as_long_as_the_lookahead_and_a_stop_is_not_reached() {
    struct Horizons(u32, Vec<Time>, Vec<Time>);
    impl Process for Horizons {
        type Message = ();
        fn entities(&self) -> Vec<u32> {
            vec![self.0]
        }
        fn next_time(&mut self) -> Time {
            self.1.last().copied().unwrap_or(Time::NEVER)
        }
        fn advance(&mut self, horizon: Time, _: &mut Outbox<()>) -> u64 {
            self.2.push(horizon);
            let before = self.1.len();
            while self.next_time() < horizon {
                self.1.pop();
            }
            (before - self.1.len()) as u64
        }
        fn receive(&mut self, _: Envelope<()>) {}
    }
    let process = |id, times: &[u64]| {
        Horizons(id, times.iter().rev().map(|&time| Time::from_ps(time)).collect(), vec![])
    };
    let mut pair = [process(0, &[5, 12, 40]), process(1, &[15, 16, 50])];
    let outcome =
        Sequential::run(&mut pair, Span::from_ps(10), Time::from_ps(50), |_| Control::Continue).unwrap();
    // Windows [5, 15), [15, 25), [40, 50).
    assert_eq!(
        (&pair[0].2, &pair[1].2),
        (&vec![Time::from_ps(15), Time::from_ps(50)], &vec![Time::from_ps(25)])
    );
    assert_eq!(
        (outcome.end, outcome.progress.events, outcome.progress.time),
        (End::Stop, 5, Time::from_ps(50))
    );
    let outcome = Sequential::run(&mut pair, Span::from_ps(10), Time::NEVER, |_| Control::Continue).unwrap();
    assert_eq!((outcome.end, outcome.progress.events, outcome.progress.time), (End::Idle, 1, Time::NEVER));
    let mut lone = [process(0, &[5, 12, 40])];
    Sequential::run(&mut lone, Span::ZERO, Time::from_ps(41), |_| Control::Continue).unwrap();
    assert_eq!(lone[0].2, [Time::from_ps(41)], "a single process has no windows and needs no lookahead");
}

fn error(processes: &mut [Phold], lookahead: Span) -> ExecutorError {
    Sequential::run(processes, lookahead, UNTIL, |_| Control::Continue).unwrap_err()
}

#[test]
fn wrong_models_are_caught() {
    let none = error(&mut deal(2, u64::from), Span::ZERO);
    assert_eq!(none.to_string(), "expected a lookahead above zero among 2 processes, found 0 ps");

    let mut hasty = deal(2, u64::from);
    for process in &mut hasty {
        process.delay = LOOKAHEAD.ps() - 1;
    }
    let ExecutorError::Lookahead { key, sent, lookahead } = error(&mut hasty, LOOKAHEAD) else { panic!() };
    assert_eq!((key.time - sent, lookahead), (Span::from_ps(LOOKAHEAD.ps() - 1), LOOKAHEAD));
    let shown = ExecutorError::Lookahead {
        key: EventKey { time: Time::from_ps(1_500), class: 0, receiver: 2, sender: 1, count: 9 },
        sent: Time::from_ps(700),
        lookahead: LOOKAHEAD,
    };
    assert_eq!(
        shown.to_string(),
        "expected mail from entity 1 at least 1 ns after it was sent at 700 ps, found arrival at entity 2 at 1.5 ns"
    );

    let mut shared = deal(2, u64::from);
    let entity = shared[0].own[3];
    shared[1].own.push(entity);
    assert_eq!(error(&mut shared, LOOKAHEAD), ExecutorError::SharedEntity { entity, first: 0, second: 1 });

    let mut missing = deal(2, u64::from);
    missing[1].own.pop();
    assert!(matches!(error(&mut missing, LOOKAHEAD), ExecutorError::UnknownReceiver { .. }));

    let mut stuck = deal(2, u64::from);
    stuck[1].budget = 0;
    let ExecutorError::Stalled { process: 1, .. } = error(&mut stuck, LOOKAHEAD) else { panic!() };
}

#[test]
fn a_key_used_twice_is_caught() {
    struct Twice(u32, bool);
    impl Process for Twice {
        type Message = u8;
        fn entities(&self) -> Vec<u32> {
            vec![self.0]
        }
        fn next_time(&mut self) -> Time {
            if self.1 { Time::NEVER } else { Time::from_ps(3) }
        }
        fn advance(&mut self, _: Time, outbox: &mut Outbox<u8>) -> u64 {
            self.1 = true;
            let key =
                EventKey { time: Time::from_ps(30), receiver: 1 - self.0, sender: 7, ..EventKey::default() };
            for message in 0..2 {
                assert_eq!(outbox.post(Time::from_ps(3), Envelope { key, message }), None);
            }
            1
        }
        fn receive(&mut self, _: Envelope<u8>) {}
    }
    let error = Sequential::run(&mut [Twice(0, false), Twice(1, true)], Span::from_ps(5), UNTIL, |_| {
        Control::Continue
    });
    assert_eq!(
        error.unwrap_err().to_string(),
        "expected a new count for each event of entity 7, found 0 twice at 30 ps"
    );
}

#[test]
fn a_run_without_processes_is_idle() {
    let outcome = Sequential::run::<Phold>(&mut [], Span::ZERO, UNTIL, |_| Control::Continue).unwrap();
    assert_eq!((outcome.end, outcome.progress.events), (End::Idle, 0));
}
