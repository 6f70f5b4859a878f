//! What two threads bring: PHOLD in pods, with a packet engine's delays, against two independent runs side by side.
//!
//! `cargo bench -p windtunnel-kernel --bench phold [-- THREADS]`. A third of the events go to another pod, 1 us and a
//! serialisation away; the others stay in the pod, a serialisation away. An event pops, reads and writes its entity,
//! draws, works for a while and pushes: some 40 ns without work, some 100 ns, as a packet hop, with. Two runs side by side say what the machine gives: shared caches,
//! memory and clock, and neighbours. Best of three, all in one sitting.
#![allow(clippy::disallowed_methods, reason = "a bench reads the wall clock")]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Instant;

use windtunnel_kernel::executor::{Control, Envelope, Outbox, Parallel, Process};
use windtunnel_kernel::queue::{CalendarQueue, EventKey};
use windtunnel_kernel::{Span, Time, mix64};

const PODS: u32 = 16;
const LOOKAHEAD: Span = Span::from_ps(1_000_000);
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
    /// Rounds of a mixer per event.
    work: u32,
}

impl Pods {
    /// Pods from `first` to before `end`, `pod` entities each with `population` events.
    fn new(first: u32, end: u32, load: Load) -> Self {
        let Load { pod, population, work, .. } = load;
        let mut events = CalendarQueue::new();
        for receiver in first * pod..end * pod {
            for count in 0..u64::from(population) {
                let draw = mix64(u64::from(receiver) << 32 | count);
                let key = EventKey {
                    time: Time::from_ps(draw % LOOKAHEAD.ps()),
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
        Self { first: first * pod, pod, all: PODS * pod, entities, events, work }
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
            entity.digest =
                (0..self.work).fold(mix64(entity.digest ^ token ^ key.time.ps()), |sum, _| mix64(sum));
            let draw = entity.digest;
            entity.fill[(draw & 3) as usize] += hops;
            let away = draw.is_multiple_of(3);
            let receiver = if away {
                (draw >> 32) as u32 % self.all
            } else {
                key.receiver / self.pod * self.pod + (draw >> 32) as u32 % self.pod
            };
            let delay = SERIALISATION + if away { LOOKAHEAD.ps() } else { 0 };
            let next = EventKey {
                time: key.time + Span::from_ps(delay),
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

#[derive(Clone, Copy)]
struct Load {
    /// Entities in a pod.
    pod: u32,
    /// Events of an entity.
    population: u32,
    /// Rounds of a mixer per event.
    work: u32,
    microseconds: u32,
}

/// Seconds, events and the executor of one run of as many processes.
fn run(processes: u32, threads: usize, load: Load) -> (f64, u64, Parallel) {
    let bound = |process: u32| process * PODS / processes;
    let mut pods: Vec<Pods> =
        (0..processes).map(|process| Pods::new(bound(process), bound(process + 1), load)).collect();
    let mut parallel = Parallel::new(NonZeroUsize::new(threads).expect("a thread"));
    let until = Time::from_ps(u64::from(load.microseconds) * 1_000_000);
    let start = Instant::now();
    let outcome =
        parallel.run(&mut pods, LOOKAHEAD, until, |_| Control::Continue).expect("the model keeps the rules");
    let seconds = start.elapsed().as_secs_f64();
    black_box(pods.iter().flat_map(|pods| &pods.entities).fold(0, |sum, entity| mix64(sum ^ entity.digest)));
    (seconds, outcome.progress.events, parallel)
}

/// `phold PROCESSES THREADS POD POPULATION WORK MICROSECONDS`: one run, for a profiler.
fn one(numbers: &[u32]) -> bool {
    let &[processes, threads, pod, population, work, microseconds] = numbers else { return false };
    let load = Load { pod, population, work, microseconds };
    let (seconds, events, parallel) = run(processes, threads as usize, load);
    println!("{events} events, {:.1} ns each; {:?}", seconds * 1e9 / events as f64, parallel.statistics());
    true
}

/// Rounds of each measurement; they take turns, so that what the machine does meanwhile meets all alike.
const ROUNDS: usize = 5;

fn main() {
    let numbers: Vec<u32> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    if one(&numbers) {
        return;
    }
    let threads = numbers.first().map_or(2, |&threads| threads as usize);
    let load = |pod, population, work, microseconds| Load { pod, population, work, microseconds };
    for load in [load(32, 4, 0, 800), load(32, 4, 16, 400), load(256, 12, 0, 40), load(256, 12, 16, 20)] {
        println!(
            "{} entities, {} events pending, {} rounds of work, {} us:",
            PODS * load.pod,
            PODS * load.pod * load.population,
            load.work,
            load.microseconds
        );
        let (mut alone, mut beside) = (f64::INFINITY, f64::INFINITY);
        let counts = [threads as u32, 2 * threads as u32, 4 * threads as u32];
        let mut single = [f64::INFINITY; 3];
        let mut together: [Option<(f64, u64, Parallel)>; 3] = [None, None, None];
        for _ in 0..ROUNDS {
            alone = alone.min(run(1, 1, load).0);
            let slowest = std::thread::scope(|scope| {
                let runs: Vec<_> = (0..threads).map(|_| scope.spawn(|| run(1, 1, load).0)).collect();
                runs.into_iter().map(|run| run.join().expect("a run")).fold(0.0, f64::max)
            });
            beside = beside.min(slowest);
            for (index, &processes) in counts.iter().enumerate() {
                single[index] = single[index].min(run(processes, 1, load).0);
                let found = run(processes, threads, load);
                if together[index].as_ref().is_none_or(|best| found.0 < best.0) {
                    together[index] = Some(found);
                }
            }
        }
        let independent = threads as f64 * alone / beside;
        for ((processes, single), together) in counts.into_iter().zip(single).zip(&together) {
            let Some((seconds, events, parallel)) = together else { continue };
            let (events, statistics) = (*events as f64, parallel.statistics());
            if processes == counts[0] {
                println!(
                    "  one process, one thread: {:.2} M events/s; {threads} such runs side by side: speed-up {independent:.2}",
                    events / alone / 1e6
                );
            }
            println!(
                "  {processes:>2} processes: one thread {:.2} M events/s, {threads} threads {:.2} M events/s, speed-up {:.2} \
                 ({:.2} of side by side); {} windows, {:.0} events per window, {:.0}% of them mail, barrier share {:.1}%, \
                 parallelism {:.2}, {} redeals, {} windows alone",
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
                statistics.windows_alone,
            );
        }
    }
}
