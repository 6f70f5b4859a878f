//! What two threads bring: PHOLD in pods, with a packet engine's delays, against two independent runs side by side.
//!
//! `cargo bench -p windtunnel-kernel --bench phold [-- THREADS]`. A third of the events go to another pod, 1 us and a
//! serialisation away; the others stay in the pod, a serialisation away. An event pops, reads and writes its entity,
//! draws and pushes: some 60 ns, a light packet hop. Two runs side by side say what the machine gives: shared caches,
//! memory and clock, and neighbours. Best of three, all in one sitting.
#![allow(clippy::disallowed_methods, reason = "a bench reads the wall clock")]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Instant;

use windtunnel_kernel::executor::{Envelope, Outbox, Parallel, Process, Verdict};
use windtunnel_kernel::queue::{CalendarQueue, EventKey};
use windtunnel_kernel::{Span, Time, mix64};

const PODS: u32 = 16;
const LOOKAHEAD: Span = Span(1_000_000);
const SERIALISATION: u64 = 83_240;

/// As much state as a port has.
#[derive(Clone, Copy, Default)]
struct Entity {
    digest: u64,
    caused: u64,
    fill: [u64; 6],
}

#[repr(align(128))]
struct Pods {
    first: u32,
    /// Entities in a pod, and of all pods.
    pod: u32,
    all: u32,
    entities: Vec<Entity>,
    events: CalendarQueue<[u64; 2]>,
}

impl Pods {
    /// Pods from `first` to before `end`, `pod` entities each with `population` events.
    fn new(first: u32, end: u32, pod: u32, population: u32) -> Self {
        let mut events = CalendarQueue::new();
        for receiver in first * pod..end * pod {
            for count in 0..u64::from(population) {
                let draw = mix64(u64::from(receiver) << 32 | count);
                let key = EventKey {
                    time: Time(draw % LOOKAHEAD.0),
                    receiver,
                    sender: receiver,
                    count,
                    ..EventKey::default()
                };
                events.push(key, [draw, 0]);
            }
        }
        let entity = Entity { caused: u64::from(population), ..Entity::default() };
        let entities = vec![entity; ((end - first) * pod) as usize];
        Self { first: first * pod, pod, all: PODS * pod, entities, events }
    }
}

impl Process for Pods {
    type Message = [u64; 2];

    fn entities(&self) -> Vec<u32> {
        (self.first..self.first + self.entities.len() as u32).collect()
    }

    fn next_time(&mut self) -> Time {
        self.events.peek().map_or(Time::NEVER, |key| key.time)
    }

    fn advance(&mut self, horizon: Time, outbox: &mut Outbox<Self::Message>) -> u64 {
        let mut handled = 0;
        while self.events.peek().is_some_and(|key| key.time < horizon) {
            let Some((key, [token, hops])) = self.events.pop() else { break };
            handled += 1;
            let entity = &mut self.entities[(key.receiver - self.first) as usize];
            entity.digest = mix64(entity.digest ^ token ^ key.time.0);
            let draw = entity.digest;
            entity.fill[(draw & 3) as usize] += hops;
            let away = draw % 3 == 0;
            let receiver = if away {
                (draw >> 32) as u32 % self.all
            } else {
                key.receiver / self.pod * self.pod + (draw >> 32) as u32 % self.pod
            };
            let delay = SERIALISATION + if away { LOOKAHEAD.0 } else { 0 };
            let next = EventKey {
                time: key.time + Span(delay),
                class: 0,
                receiver,
                sender: key.receiver,
                count: entity.caused,
            };
            entity.caused += 1;
            let mail = Envelope { key: next, message: [mix64(token), hops + 1] };
            if let Some(own) = outbox.post(key.time, mail) {
                self.events.push(own.key, own.message);
            }
        }
        handled
    }

    fn receive(&mut self, envelope: Envelope<Self::Message>) {
        self.events.push(envelope.key, envelope.message);
    }
}

/// Seconds, events and the executor of one run of as many processes.
fn run(processes: u32, pod: u32, population: u32, threads: usize, until: Time) -> (f64, u64, Parallel) {
    let bound = |process: u32| process * PODS / processes;
    let mut pods: Vec<Pods> = (0..processes)
        .map(|process| Pods::new(bound(process), bound(process + 1), pod, population))
        .collect();
    let mut parallel = Parallel::new(NonZeroUsize::new(threads).expect("a thread"));
    let start = Instant::now();
    let outcome =
        parallel.run(&mut pods, LOOKAHEAD, until, |_| Verdict::Continue).expect("the model keeps the rules");
    let seconds = start.elapsed().as_secs_f64();
    black_box(pods.iter().flat_map(|pods| &pods.entities).fold(0, |sum, entity| mix64(sum ^ entity.digest)));
    (seconds, outcome.progress.events, parallel)
}

/// `phold one PROCESSES THREADS POD POPULATION MICROSECONDS`: one run, for a profiler.
fn one(numbers: &[u32]) -> bool {
    let &[processes, threads, pod, population, microseconds] = numbers else { return false };
    let until = Time(u64::from(microseconds) * 1_000_000);
    let (seconds, events, parallel) = run(processes, pod, population, threads as usize, until);
    println!("{events} events, {:.1} ns each; {:?}", seconds * 1e9 / events as f64, parallel.statistics());
    true
}

fn main() {
    let numbers: Vec<u32> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    if one(&numbers) {
        return;
    }
    let threads: usize = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(2);
    for (pod, population, microseconds) in [(32, 4, 2_000), (256, 4, 500)] {
        let until = Time(microseconds * 1_000_000);
        let entities = PODS * pod;
        println!("{entities} entities, {} events pending, {microseconds} us:", entities * population);
        let one = |processes, threads| run(processes, pod, population, threads, until);
        let best = |of: &dyn Fn() -> f64| (0..3).map(|_| of()).fold(f64::INFINITY, f64::min);
        let alone = best(&|| one(1, 1).0);
        let beside = best(&|| {
            std::thread::scope(|scope| {
                let start = Instant::now();
                let runs: Vec<_> = (0..threads).map(|_| scope.spawn(|| one(1, 1).0)).collect();
                let slowest = runs.into_iter().map(|run| run.join().expect("a run")).fold(0.0, f64::max);
                black_box(start.elapsed());
                slowest
            })
        });
        let independent = threads as f64 * alone / beside;
        let events = one(1, 1).1 as f64;
        println!(
            "  one process, one thread: {:.2} M events/s; {threads} such runs side by side: speed-up {independent:.2}",
            events / alone / 1e6
        );
        for processes in [threads as u32, 2 * threads as u32, 4 * threads as u32, PODS] {
            let single = best(&|| one(processes, 1).0);
            let (seconds, _, parallel) = (0..3)
                .map(|_| one(processes, threads))
                .min_by(|a, b| a.0.total_cmp(&b.0))
                .expect("three runs");
            let statistics = parallel.statistics();
            println!(
                "  {processes:>2} processes: one thread {:.2} M events/s, {threads} threads {:.2} M events/s, speed-up {:.2} \
                 ({:.2} of side by side); {} windows, {:.0} events per window, {:.0}% of them mail, barrier share {:.1}%, \
                 parallelism {:.2}, {} redeals",
                events / single / 1e6,
                events / seconds / 1e6,
                alone / seconds,
                alone / seconds / independent,
                statistics.windows,
                statistics.events_per_window(),
                100.0 * statistics.mail as f64 / statistics.events as f64,
                100.0 * statistics.barrier_share(),
                statistics.parallelism(),
                statistics.redeals,
            );
        }
    }
}
