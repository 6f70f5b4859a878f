//! The parallel executor against the sequential one: same digests, progress, outcomes, errors; no hang.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::phold::{ENTITIES, LOOKAHEAD, Phold, deal, digest, log};
use proptest::prelude::*;
use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::executor::{
    Control, Crew, End, Envelope, ExecutorError, Outbox, Outcome, Parallel, Process, Progress, Sequential,
};
use windtunnel_kernel::partition::{Edge, PartitionOptions, partition};
use windtunnel_kernel::queue::EventKey;
use windtunnel_kernel::random::combine;
use windtunnel_kernel::{Span, Time, mix64};

const UNTIL: Time = Time::from_ps(300_000);

fn executor(threads: usize) -> Parallel {
    Parallel::new(NonZeroUsize::new(threads).unwrap())
}

/// Windows of a few events: the leader leaves the others behind now and then, and nothing else changes.
#[test]
fn a_leader_alone_makes_no_difference() {
    let until = Time::from_ps(2_000_000);
    let mut one = deal(1, u64::from);
    let outcome = Sequential::run(&mut one, LOOKAHEAD, until, |_| Control::Continue).unwrap();
    let mut alone = 0;
    // As slow a control as makes any number of threads slower than one.
    let slow = |_: &Progress| {
        std::thread::sleep(std::time::Duration::from_micros(50));
        Control::Continue
    };
    for threads in 2..=4 {
        let mut processes = deal(7, u64::from);
        let mut parallel = executor(threads);
        let found = parallel.run(&mut processes, LOOKAHEAD, until, slow).unwrap();
        assert_eq!((digest(&processes), found.progress.events), (digest(&one), outcome.progress.events));
        let statistics = parallel.statistics();
        assert!(statistics.windows_alone < statistics.windows);
        alone += statistics.windows_alone;
    }
    assert!(alone > 0);
}

/// Entities spread over up to `count` processes at random.
fn scatter(seed: u64, count: u64) -> Vec<Phold> {
    let mut own = vec![Vec::new(); count as usize];
    for entity in 0..ENTITIES {
        own[(mix64(combine(seed, u64::from(entity))) % count) as usize].push(entity);
    }
    own.into_iter().map(Phold::new).collect()
}

/// Runs and returns what was told on the way, too.
fn watched(
    run: impl FnOnce(&mut [Phold], &mut dyn FnMut(&Progress) -> Control) -> Result<Outcome, ExecutorError>,
    processes: &mut [Phold],
) -> (Result<Outcome, ExecutorError>, Vec<Progress>) {
    let mut seen = Vec::new();
    let outcome = run(processes, &mut |progress| {
        seen.push(*progress);
        Control::Continue
    });
    (outcome, seen)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn neither_threads_nor_partitions_matter(seed: u64, count in 1..12u64, budget in 1..50u64, stop in 1..300_000u64) {
        let mut one = deal(1, u64::from);
        let events = Sequential::run(&mut one, LOOKAHEAD, UNTIL, |_| Control::Continue).unwrap().progress.events;
        let expected = digest(&one);

        let pausing = || {
            let mut processes = scatter(seed, count);
            for process in &mut processes {
                process.budget = budget;
            }
            processes
        };
        let mut many = pausing();
        let (outcome, told) = watched(|p, control| Sequential::run(p, LOOKAHEAD, UNTIL, control), &mut many);
        prop_assert_eq!(digest(&many), expected);
        prop_assert_eq!(outcome.unwrap().progress.events, events);

        for threads in 1..=4 {
            let mut many = pausing();
            let mut parallel = if seed % 2 == 0 { executor(threads) } else { executor(threads).keep_together() };
            let found = watched(|p, control| parallel.run(p, LOOKAHEAD, UNTIL, control), &mut many);
            prop_assert_eq!(digest(&many), expected, "{} threads", threads);
            prop_assert_eq!((log(&many).value(), log(&many).events()), (log(&one).value(), events));
            prop_assert_eq!(log(&many).first_divergence(&log(&one)), None);
            prop_assert_eq!(&found, &(outcome, told.clone()), "{} threads", threads);

            // Stopped on the way and run on, by the same executor.
            let mut many = pausing();
            let mut parallel = executor(threads);
            let first = parallel.run(&mut many, LOOKAHEAD, Time::from_ps(stop), |_| Control::Continue).unwrap();
            prop_assert_eq!((first.end, first.progress.time), (End::Stop, Time::from_ps(stop)));
            let second = parallel.run(&mut many, LOOKAHEAD, UNTIL, |_| Control::Continue).unwrap();
            prop_assert_eq!(digest(&many), expected, "{} threads", threads);
            prop_assert_eq!(first.progress.events + second.progress.events, events);
            let statistics = parallel.statistics();
            prop_assert_eq!(statistics.events, events);
            prop_assert_eq!(statistics.windows, first.progress.windows + second.progress.windows);
            prop_assert_eq!(statistics.mail, first.progress.mail + second.progress.mail);
            prop_assert_eq!(statistics.threads.iter().map(|thread| thread.events).sum::<u64>(), events);
            prop_assert!(statistics.critical_events <= events);
            prop_assert!(statistics.critical_events >= events.div_ceil(threads as u64));
        }
    }
}

/// Runs on all entities of the model, partitioned by the kernel's own rule.
fn logged(threads: usize, tampered: Option<u32>, focus: &EventDigest) -> EventDigest {
    let edges: Vec<Edge> =
        (0..ENTITIES).flat_map(|a| (0..a).map(move |b| Edge { a, b, delay: LOOKAHEAD })).collect();
    let options = PartitionOptions { processes: 7, ..PartitionOptions::for_threads(threads) };
    let partition = partition(&[1; ENTITIES as usize], &edges, &options);
    assert_eq!((partition.weights.len(), partition.lookahead), (7, LOOKAHEAD));
    let mut processes: Vec<Phold> = (0..7)
        .map(|process| {
            Phold::new((0..ENTITIES).filter(|&e| partition.process[e as usize] == process).collect())
        })
        .collect();
    for process in &mut processes {
        process.log = focus.clone();
        if let Some(entity) = tampered {
            process.tamper(entity);
        }
    }
    executor(threads).run(&mut processes, partition.lookahead, UNTIL, |_| Control::Continue).unwrap();
    log(&processes)
}

#[test]
fn the_first_differing_time_of_two_runs_is_found() {
    let mut focus = EventDigest::new();
    for runs in 1.. {
        let (one, two) = (logged(1, None, &focus), logged(2, Some(17), &focus));
        assert_ne!(one.value(), two.value());
        let found = one.first_divergence(&two).unwrap();
        if found.is_instant() {
            // When the first event of entity 17 is handled.
            assert_eq!((found.from, runs), (Time::from_ps(170), 2));
            break;
        }
        focus = EventDigest::on(&found);
    }
    let whole = EventDigest::new();
    assert_eq!(logged(1, None, &whole).first_divergence(&logged(3, None, &whole)), None);
}

#[test]
fn a_cancelled_run_goes_on_where_it_ended() {
    let mut one = deal(1, u64::from);
    Sequential::run(&mut one, LOOKAHEAD, UNTIL, |_| Control::Continue).unwrap();
    let mut processes = deal(5, u64::from);
    let mut parallel = executor(3);
    let mut runs = 0;
    loop {
        let control =
            |progress: &Progress| if progress.windows < 7 { Control::Continue } else { Control::Cancel };
        let outcome = parallel.run(&mut processes, LOOKAHEAD, UNTIL, control).unwrap();
        runs += 1;
        match outcome.end {
            End::Cancelled => assert_eq!(outcome.progress.windows, 7),
            end => {
                assert_eq!(end, End::Stop);
                break;
            }
        }
    }
    assert!(runs > 10, "{runs}");
    assert_eq!(digest(&processes), digest(&one));
}

/// Run in short steps with the same threads, and looked at in between.
#[test]
fn a_crew_does_in_steps_what_one_run_does() {
    let mut one = deal(1, u64::from);
    let whole = Sequential::run(&mut one, LOOKAHEAD, UNTIL, |_| Control::Continue).unwrap().progress;
    for threads in 1..=4 {
        let threads = NonZeroUsize::new(threads).unwrap();
        for together in [false, true] {
            let mut crew = Crew::new(deal(7, u64::from), LOOKAHEAD, threads).unwrap();
            if together {
                crew = crew.keep_together();
            }
            let (mut events, mut runs, mut stop) = (0, 0, 0);
            loop {
                stop += 1 + 777 * (runs % 3);
                // Every other run ends after a window.
                let control = |_: &Progress| if runs % 2 == 0 { Control::Cancel } else { Control::Continue };
                let outcome = crew.run(Time::from_ps(stop).min(UNTIL), control).unwrap();
                (events, runs) = (events + outcome.progress.events, runs + 1);
                let mut earliest = Time::NEVER;
                for number in 0..crew.processes() {
                    earliest = earliest.min(crew.process(number).next_time());
                }
                assert!(earliest >= outcome.progress.time);
                if earliest >= UNTIL {
                    break;
                }
            }
            let processes: Vec<Phold> = (0..7).map(|number| crew.process(number).clone()).collect();
            assert_eq!((digest(&processes), events), (digest(&one), whole.events), "{threads} threads");
            let statistics = crew.statistics();
            assert_eq!(statistics.threads.iter().map(|thread| thread.events).sum::<u64>(), events);
            assert!(runs > 100 && statistics.windows > runs / 2);
        }
    }
    let none = Crew::new(deal(6, u64::from), Span::ZERO, NonZeroUsize::MIN);
    assert_eq!(none.err(), Some(ExecutorError::NoLookahead { processes: 6 }));
}

/// All the work is in the processes of one thread at first, and later in others.
#[test]
fn processes_change_hands_when_the_load_drifts() {
    const PROCESSES: u32 = 8;
    /// One entity that has an event each 10 ps, in one of two phases, and tells its neighbour.
    #[derive(Clone)]
    struct Shifting {
        own: u32,
        now: Time,
        handled: u64,
        count: u64,
        seen: u64,
        mail: Vec<(EventKey, u64)>,
    }
    impl Shifting {
        fn new(own: u32) -> Self {
            Self { own, now: Time::ZERO, handled: 0, count: 0, seen: 0, mail: Vec::new() }
        }
        /// Busy in the first half of the run, or in the second.
        fn step(&self) -> Span {
            let early = self.own < PROCESSES / 2;
            Span::from_ps(if early == (self.now.ps() < 500_000) { 10 } else { 1_000 })
        }
    }
    impl Process for Shifting {
        type Message = u64;
        fn entities(&self) -> Vec<u32> {
            vec![self.own]
        }
        fn next_time(&mut self) -> Time {
            self.mail.first().map_or(self.now, |mail| mail.0.time.min(self.now))
        }
        fn advance(&mut self, horizon: Time, outbox: &mut Outbox<u64>) -> u64 {
            let before = self.handled;
            while self.next_time() < horizon {
                self.handled += 1;
                if self.mail.first().is_some_and(|mail| mail.0.time <= self.now) {
                    let (key, token) = self.mail.remove(0);
                    self.seen = combine(combine(self.seen, key.time.ps()), token);
                    continue;
                }
                let key = EventKey {
                    time: self.now + Span::from_ps(1_000),
                    receiver: (self.own + 1) % PROCESSES,
                    sender: self.own,
                    count: self.count,
                    ..EventKey::default()
                };
                self.count += 1;
                assert_eq!(outbox.post(self.now, Envelope { key, message: self.seen }), None);
                self.now += self.step();
            }
            self.handled - before
        }
        fn receive(&mut self, envelope: Envelope<u64>) {
            let at = self.mail.partition_point(|mail| mail.0 < envelope.key);
            self.mail.insert(at, (envelope.key, envelope.message));
        }
    }
    let run = |threads| {
        let mut processes: Vec<Shifting> = (0..PROCESSES).map(Shifting::new).collect();
        let mut parallel = executor(threads).keep_together();
        let outcome = parallel
            .run(&mut processes, Span::from_ps(1_000), Time::from_ps(1_000_000), |_| Control::Continue)
            .unwrap();
        let seen: Vec<u64> = processes.iter().map(|process| process.seen).collect();
        (outcome, seen, parallel.statistics().clone())
    };
    let (outcome, seen, alone) = run(1);
    assert_eq!(alone.redeals, 0);
    for threads in 2..=4 {
        let (other, other_seen, statistics) = run(threads);
        assert_eq!((other, &other_seen), (outcome, &seen), "{threads} threads");
        assert!(statistics.redeals >= 1, "{threads} threads: {statistics:?}");
        // Dealt at first, the busy half would sit on half of the threads: a parallelism of threads / 2.
        let parallelism = statistics.parallelism();
        assert!(parallelism > 0.75 * threads as f64, "{threads} threads: {parallelism}");
    }
}

/// The error, from either executor with any number of threads.
fn errors(processes: impl Fn() -> Vec<Phold>) -> ExecutorError {
    let expected = Sequential::run(&mut processes(), LOOKAHEAD, UNTIL, |_| Control::Continue).unwrap_err();
    for threads in 1..=4 {
        let found = executor(threads).run(&mut processes(), LOOKAHEAD, UNTIL, |_| Control::Continue);
        assert_eq!(found, Err(expected), "{threads} threads");
    }
    expected
}

#[test]
fn errors_are_those_of_the_sequential_executor() {
    let hasty = errors(|| {
        let mut processes = deal(6, u64::from);
        for process in &mut processes {
            process.delay = LOOKAHEAD.ps() - 1;
        }
        processes
    });
    assert!(matches!(hasty, ExecutorError::Lookahead { .. }));
    let missing = errors(|| {
        let mut processes = deal(6, u64::from);
        processes[4].own.pop();
        processes
    });
    assert!(matches!(missing, ExecutorError::UnknownReceiver { .. }));
    let stuck = errors(|| {
        let mut processes = deal(6, u64::from);
        processes[2].budget = 0;
        processes[5].budget = 0;
        processes
    });
    assert!(matches!(stuck, ExecutorError::Stalled { process: 2, .. }));
    let shared = errors(|| {
        let mut processes = deal(6, u64::from);
        let entity = processes[0].own[3];
        processes[1].own.push(entity);
        processes
    });
    assert!(matches!(shared, ExecutorError::SharedEntity { first: 0, second: 1, .. }));
    let none = executor(2).run(&mut deal(6, u64::from), Span::ZERO, UNTIL, |_| Control::Continue);
    assert_eq!(none, Err(ExecutorError::NoLookahead { processes: 6 }));
}

/// Two processes that do something once: post two pieces of mail with one key, or panic.
struct Once {
    own: u32,
    done: bool,
    panics: bool,
    mail: u32,
}

impl Process for Once {
    type Message = u8;
    fn entities(&self) -> Vec<u32> {
        vec![self.own]
    }
    fn next_time(&mut self) -> Time {
        if self.done { Time::NEVER } else { Time::from_ps(3) }
    }
    fn advance(&mut self, _: Time, outbox: &mut Outbox<u8>) -> u64 {
        self.done = true;
        assert!(!self.panics, "process {} gives up", self.own);
        let key =
            EventKey { time: Time::from_ps(30), receiver: 3 - self.own, sender: 7, ..EventKey::default() };
        for message in 0..2 {
            assert_eq!(outbox.post(Time::from_ps(3), Envelope { key, message }), None);
        }
        1
    }
    fn receive(&mut self, _: Envelope<u8>) {
        self.mail += 1;
    }
}

fn four(panics: [bool; 4]) -> Vec<Once> {
    (0u32..).zip(panics).map(|(own, panics)| Once { own, done: false, panics, mail: 0 }).collect()
}

#[test]
fn a_key_used_twice_is_caught_even_in_the_last_window() {
    let expected =
        Sequential::run(&mut four([false; 4]), Span::from_ps(5), UNTIL, |_| Control::Continue).unwrap_err();
    assert!(matches!(expected, ExecutorError::RepeatedKey { key } if key.receiver == 0));
    // The stop, the cancel and the next window come when the mail has been posted and not yet been read.
    for until in [Time::from_ps(10), UNTIL] {
        for verdict in [Control::Continue, Control::Cancel] {
            for threads in 1..=4 {
                let found =
                    executor(threads).run(&mut four([false; 4]), Span::from_ps(5), until, |_| verdict);
                assert_eq!(found, Err(expected), "{threads} threads");
            }
        }
    }
}

#[test]
fn a_panic_ends_the_run_with_this_panic() {
    for threads in 1..=4 {
        // The lowest of two, whatever their threads.
        let run = || {
            executor(threads)
                .run(&mut four([false, true, false, true]), Span::from_ps(5), UNTIL, |_| Control::Continue)
        };
        let payload = catch_unwind(run).unwrap_err();
        assert_eq!(payload.downcast_ref::<String>().unwrap(), "process 1 gives up", "{threads} threads");
    }
}

#[test]
fn a_panic_of_the_control_ends_the_run_with_this_panic() {
    for threads in 1..=4 {
        let mut processes = deal(6, u64::from);
        let control = |progress: &Progress| -> Control {
            if progress.windows == 5 { panic!("seen enough") } else { Control::Continue }
        };
        let mut parallel = executor(threads);
        let run = AssertUnwindSafe(|| parallel.run(&mut processes, LOOKAHEAD, UNTIL, control));
        let payload = catch_unwind(run).unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"seen enough"), "{threads} threads");
    }
}

/// Far more threads than cores: waiting must not keep the core from who is waited for.
#[test]
fn more_threads_than_cores_make_progress() {
    let mut one = deal(1, u64::from);
    Sequential::run(&mut one, LOOKAHEAD, UNTIL, |_| Control::Continue).unwrap();
    let mut processes = deal(21, u64::from);
    let mut parallel = executor(16);
    parallel.run(&mut processes, LOOKAHEAD, UNTIL, |_| Control::Continue).unwrap();
    assert_eq!(digest(&processes), digest(&one));
    assert_eq!(parallel.statistics().threads.len(), 16);
}

#[test]
fn a_run_without_processes_is_idle() {
    let outcome = executor(4).run::<Phold>(&mut [], Span::ZERO, UNTIL, |_| Control::Continue).unwrap();
    assert_eq!((outcome.end, outcome.progress.events), (End::Idle, 0));
}
