//! Which event queue: nanoseconds per (pop, push) pair, by queue and load; and what a digest adds to an event.
//!
//! `cargo bench -p windtunnel-kernel --bench queue`. Loads: the hold model (pop the earliest, push one an exponential
//! or a bimodal delay later) at a steady number of events, and bursts (each event of an instant pushes one for the same
//! instant and one for a common later instant, as the steps of a collective do).
#![allow(clippy::disallowed_methods, reason = "a bench reads the wall clock")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Instant;

use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::queue::{CalendarQueue, EventKey, EventOrder, EventQueue, Sequenced};
use windtunnel_kernel::{RandomStream, Time};

/// As large as an event of the packet engine: a packet, a place, flags.
type Event = [u32; 5];

trait Queue<K> {
    fn push(&mut self, key: K, event: Event);
    fn pop(&mut self) -> Option<(K, Event)>;
}

macro_rules! queues {
    ($($queue:ident),+) => {$(
        impl<K: EventOrder> Queue<K> for $queue<Event, K> {
            fn push(&mut self, key: K, event: Event) {
                Self::push(self, key, event);
            }
            fn pop(&mut self) -> Option<(K, Event)> {
                Self::pop(self)
            }
        }
    )+};
}
queues!(EventQueue, CalendarQueue);

#[derive(Default)]
struct Binary<K: Ord>(BinaryHeap<Reverse<(K, Event)>>);

impl<K: Ord> Queue<K> for Binary<K> {
    fn push(&mut self, key: K, event: Event) {
        self.0.push(Reverse((key, event)));
    }
    fn pop(&mut self) -> Option<(K, Event)> {
        self.0.pop().map(|item| item.0)
    }
}

/// Makes keys.
trait Make: Copy {
    fn make(time: u64, number: u64) -> Self;
}

impl Make for Sequenced {
    fn make(time: u64, number: u64) -> Self {
        Self { time: Time::from_ps(time), number }
    }
}

impl Make for EventKey {
    fn make(time: u64, number: u64) -> Self {
        Self {
            time: Time::from_ps(time),
            class: 0,
            receiver: number as u32 & 0xfff,
            sender: number as u32 & 0xff,
            count: number,
        }
    }
}

/// How far in the future an event is pushed.
#[derive(Clone, Copy)]
enum Load {
    /// 4 KB packets at 400 Gbps: serialisation, serialisation and 1 us of cable, acknowledgements, pacing, a time-out.
    Packets,
    Exponential,
    Bimodal,
    Bursts,
}

const LOADS: [(Load, &str); 4] = [
    (Load::Packets, "packets"),
    (Load::Exponential, "exponential"),
    (Load::Bimodal, "bimodal"),
    (Load::Bursts, "bursts"),
];

impl Load {
    fn delay(self, draws: &mut RandomStream) -> u64 {
        match (self, draws.below(1_000)) {
            (Self::Packets, 0..5) => 200_000_000,
            (Self::Packets, 5..300) => 83_240,
            (Self::Packets, 300..750) => 1_083_240,
            (Self::Packets, 750..900) => 1_001_280,
            (Self::Packets, _) => 83_240 + draws.below(2_000_000),
            (Self::Exponential, _) => 1 + (draws.exponential() * 1e6) as u64,
            (Self::Bimodal, 0..100) => 50_000_000 + draws.below(1_000_000),
            (Self::Bimodal, _) => 10_000 + draws.below(1_000),
            (Self::Bursts, _) => 1_000_000,
        }
    }
}

/// Nanoseconds per pop and push, best of `rounds`.
fn measure<K: Make + EventOrder, Q: Queue<K>>(make: impl Fn() -> Q, load: Load, n: u64, rounds: u32) -> f64 {
    let pops = (4 * n).clamp(400_000, 4_000_000);
    let mut draws = RandomStream::new(1, "queue-bench", n);
    let delays: Vec<u64> = (0..1 << 16).map(|_| load.delay(&mut draws)).collect();
    (0..rounds)
        .map(|_| {
            let mut queue = make();
            let mut number = 0;
            let mut push = |queue: &mut Q, time| {
                queue.push(K::make(time, number), [number as u32 & 1; 5]);
                number += 1;
            };
            for i in 0..n {
                // Hosts do not start in step.
                let phase = delays[(i * 7 + 3) as usize & 0xffff] % 83_240;
                let time = if matches!(load, Load::Bursts) { 0 } else { delays[i as usize & 0xffff] + phase };
                push(&mut queue, time);
            }
            let mut hold = |from: u64, to: u64| {
                for i in from..to {
                    let (key, event) = queue.pop().expect("a push follows each pop");
                    // In bursts every other pop stays in the instant.
                    let stays = matches!(load, Load::Bursts) && event[0] == 0;
                    let delay = if stays { 0 } else { delays[i as usize & 0xffff] };
                    push(&mut queue, key.time().ps() + delay);
                }
            };
            // The steady state: each event has been replaced.
            hold(0, pops / 2);
            let start = Instant::now();
            hold(pops / 2, pops + pops / 2);
            let nanoseconds = start.elapsed().as_nanos() as f64 / pops as f64;
            black_box(&queue.pop());
            nanoseconds
        })
        .fold(f64::INFINITY, f64::min)
}

fn rows<K: Make + EventOrder + Ord>(name: &str) {
    for (load, label) in LOADS {
        for n in [1_000, 10_000, 100_000, 1_000_000] {
            let binary = measure::<K, _>(|| Binary(BinaryHeap::new()), load, n, 2);
            let heap = measure::<K, _>(EventQueue::<Event, K>::new, load, n, 3);
            let calendar = measure::<K, _>(CalendarQueue::<Event, K>::new, load, n, 3);
            println!(
                "{name:<9} {label:<11} {n:>7} events: binary heap {binary:>6.1}, 4-ary heap with lane {heap:>6.1}, \
                 calendar {calendar:>6.1} ns per pop and push; heap / calendar {:.2}",
                heap / calendar
            );
        }
    }
}

/// `queue one QUEUE LOAD EVENTS`: one measurement, for a profiler.
fn one(arguments: &[String]) -> Option<f64> {
    let [queue, load, events] = arguments else { return None };
    let load = LOADS.iter().find(|(_, label)| label == load)?.0;
    let n = events.parse().ok()?;
    match queue.as_str() {
        "heap" => Some(measure::<EventKey, _>(EventQueue::<Event>::new, load, n, 1)),
        "calendar" => Some(measure::<EventKey, _>(CalendarQueue::<Event>::new, load, n, 1)),
        _ => None,
    }
}

/// Nanoseconds to digest an event.
fn digest() -> f64 {
    let mut digest = EventDigest::new();
    let events = 10_000_000;
    let start = Instant::now();
    for number in 0..events {
        digest.record(EventKey::make(number * 83_240, number), number);
    }
    let nanoseconds = start.elapsed().as_nanos() as f64 / events as f64;
    black_box(digest.value());
    nanoseconds
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let Some(nanoseconds) = arguments.split_first().and_then(|(_, rest)| one(rest)) {
        println!("{nanoseconds:.1} ns per pop and push");
        return;
    }
    println!("digest: {:.1} ns per event", digest());
    rows::<EventKey>("EventKey");
    rows::<Sequenced>("Sequenced");
}
