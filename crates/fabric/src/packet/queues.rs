//! Several data queues per port: which goes next, and what each may hold.
//!
//! **Life cycle.** Only where queues or pauses are set: otherwise a port has one queue and [`switch`](super::switch) does
//! without this page. A packet carries the number of its queue (its message's traffic class, mapped once); it is admitted
//! (lossless: by [`pfc`](super::pfc), else against the queue's reserve and dynamic threshold), joins the queue's list, and
//! is chosen when the port is free: control first, then the highest priority that has something that may start, among
//! equals by the [`Discipline`]. Its bytes are held until its transmission ends.
//!
//! **Invariants.** A port is advanced to t before a queue of it changes at t (a packet joins, a pause, a resume), so what
//! could start earlier has started by the old state, and nothing else starts before t: `since` says so. `ends` is when the
//! bytes in service are given back; a pause frame may keep the port busy for longer.
//!
//! **Failure modes.** None: settings are checked before.

use windtunnel_kernel::{BitRate, Bytes};

use super::link::Marking;
use super::meter::Meters;
use super::packets::{NONE, Packet, Packets};
use super::pauses::{Frame, Guard, Ingress};
use super::port::List;
use super::queue_settings::{Color, Discipline, QueueSettings, Shaper};

/// What is the same for a queue at all ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    weight: u32,
    /// Bytes that a turn of deficit round robin adds.
    quantum: u64,
    shaper: Option<Shaper>,
    /// Time that a full bucket takes to fill.
    fill: u64,
    pub reserve: u32,
    /// α in units of 2^-16, if it has one of its own.
    pub alpha: Option<u64>,
    pub lossless: bool,
}

/// A queue of a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub waiting: List,
    /// Bytes that wait or are in service.
    pub held: u32,
    /// Bytes left of its turns.
    deficit: u64,
    /// When the bucket is full again.
    full_at: u64,
    /// When its pause began.
    pub paused_at: u64,
}

/// A level of equal priority at a port: whose turn it is, and what is left of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    at: u8,
    left: u32,
}

/// What a port has beside its [`Port`](super::port::Port).
#[derive(Clone, Copy, Debug)]
pub(super) struct Station {
    /// Nothing that waits starts before.
    pub since: u64,
    /// When the bytes in service are given back, how many (0: they are), whose they are and by which port they came.
    pub ends: u64,
    pub wire: u16,
    pub lane: u8,
    pub upstream: u32,
    /// Queues paused, and those that drop because of it: a bit for each.
    pub paused: u8,
    pub dropping: u8,
    /// Earliest event that only touches the port.
    pub touch: u64,
    /// Bytes held beyond the reserves of queues that pauses do not keep.
    pub over: u32,
    /// Pauses begun, time paused in those that have ended, packets that the watchdog dropped.
    pub pauses: u32,
    pub dropped: u32,
    pub paused_for: u64,
    /// The port of the same cable at the far end.
    pub reverse: u32,
}

impl Station {
    pub(super) const fn new(reverse: u32) -> Self {
        Self {
            since: 0,
            ends: 0,
            wire: 0,
            lane: 0,
            upstream: NONE,
            paused: 0,
            dropping: 0,
            touch: u64::MAX,
            over: 0,
            pauses: 0,
            dropped: 0,
            paused_for: 0,
            reverse,
        }
    }
}

/// All queues of all ports, and what pauses them.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues {
    /// Whether there are any; else each port has its one list.
    pub on: bool,
    pub count: usize,
    pub rules: Vec<Rule>,
    discipline: Discipline,
    /// Queues by priority, the highest first.
    levels: Vec<Vec<u8>>,
    turns: Vec<Turns>,
    /// By port, then queue.
    pub each: Vec<Queue>,
    pub stations: Vec<Station>,
    /// Marking and random drops by kind of link, then queue, then color.
    pub marking: Vec<Marking>,
    pub red: Vec<Marking>,
    /// What pauses are made of; none without PFC.
    pub guard: Option<Guard>,
    /// By upstream port, then queue: what came by it and is held at its far end.
    pub ingress: Vec<Ingress>,
    /// By switch: the ingresses that it has paused (upstream port, queue).
    pub pausing: Vec<Vec<(u32, u8)>>,
    /// By NIC port: queue pairs whose turn came while their queue was paused.
    pub parked: Vec<Vec<u32>>,
    /// Pause frames to be sent.
    pub frames: Vec<Frame>,
    pub meters: Meters,
}

/// What may start at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Serve(usize),
    /// A bucket lets something start then.
    Wait(u64),
    Nothing,
}

impl Queues {
    pub(super) fn new(settings: &[QueueSettings], discipline: Discipline, mtu: Bytes) -> Self {
        let one = [QueueSettings::default()];
        let settings = if settings.is_empty() { &one } else { settings };
        let rule = |queue: &QueueSettings| Rule {
            weight: queue.weight,
            quantum: u64::from(queue.weight) * mtu.get(),
            shaper: queue.shaper,
            fill: queue.shaper.map_or(0, |shaper| time_of(shaper.rate, shaper.burst.get())),
            reserve: u32::try_from(queue.reserve.get()).unwrap_or(u32::MAX),
            alpha: queue.alpha.map(|alpha| (alpha * 65_536.0) as u64),
            lossless: queue.lossless,
        };
        let mut priorities: Vec<u8> = settings.iter().map(|queue| queue.priority).collect();
        priorities.sort_unstable_by(|a, b| b.cmp(a));
        priorities.dedup();
        let of = |priority: &u8| {
            (0u8..)
                .zip(settings)
                .filter(|(_, queue)| queue.priority == *priority)
                .map(|(index, _)| index)
                .collect()
        };
        Self {
            on: true,
            count: settings.len(),
            rules: settings.iter().map(rule).collect(),
            discipline,
            levels: priorities.iter().map(of).collect(),
            ..Self::default()
        }
    }

    /// Makes the queues of ports whose reverse ports these are.
    pub(super) fn make(&mut self, reverse: impl Iterator<Item = u32>) {
        self.stations = reverse.map(Station::new).collect();
        let empty = Queue { waiting: List::EMPTY, held: 0, deficit: 0, full_at: 0, paused_at: 0 };
        self.each = vec![empty; self.stations.len() * self.count];
        self.turns = vec![Turns::default(); self.stations.len() * self.levels.len()];
    }

    /// The place of what packets of a color meet in a queue of a port of a kind.
    #[inline]
    pub(super) fn profile(&self, kind: u16, queue: usize, color: Color) -> usize {
        (usize::from(kind) * self.count + queue) * Color::COUNT + color as usize
    }

    #[inline]
    pub(super) fn place(&self, p: u32, queue: usize) -> usize {
        p as usize * self.count + queue
    }

    /// Whether a pause stops a queue of a port.
    #[inline]
    pub(super) fn stops(&self, p: u32, queue: u8) -> bool {
        self.stations[p as usize].paused & 1 << queue != 0
    }

    /// The lane of a packet: its queue, or one more for control.
    #[inline]
    pub(super) fn lane(&self, packet: &Packet) -> usize {
        if packet.kind.is_control() { self.count } else { usize::from(packet.queue) }
    }

    /// Whether something that waits at a port may start as soon as the port is free.
    pub(super) fn has_startable(&self, p: u32) -> bool {
        let paused = self.stations[p as usize].paused;
        (0..self.count)
            .any(|queue| paused & 1 << queue == 0 && !self.each[self.place(p, queue)].waiting.is_empty())
    }

    /// When the bucket of a queue lets its first packet start; `None` if it is empty or paused.
    fn may_start(&self, p: u32, queue: usize, packets: &Packets) -> Option<u64> {
        let Queue { waiting, full_at, .. } = self.each[self.place(p, queue)];
        if waiting.is_empty() || self.stations[p as usize].paused & 1 << queue != 0 {
            return None;
        }
        let rule = &self.rules[queue];
        let Some(shaper) = rule.shaper else { return Some(0) };
        // The bucket is full at `full_at`, and holds enough so much earlier as the rest takes to fill.
        let rest = rule.fill.saturating_sub(time_of(shaper.rate, u64::from(packets[waiting.head].wire)));
        Some(full_at.saturating_sub(rest))
    }

    /// The queues of a port whose first packet may start at `start`: which, that packet, and the bytes that wait in it.
    pub(super) fn startable<'a>(
        &'a self,
        p: u32,
        start: u64,
        packets: &'a Packets,
    ) -> impl Iterator<Item = (u8, u32, u32)> + 'a {
        (0..self.count).filter_map(move |queue| {
            self.may_start(p, queue, packets).filter(|&time| time <= start)?;
            let Queue { waiting, held, .. } = self.each[self.place(p, queue)];
            Some((queue as u8, waiting.head, held))
        })
    }

    /// The data queue of a number, or the last one.
    pub(super) fn nearest(&self, queue: u8) -> u8 {
        queue.min(self.count.saturating_sub(1) as u8)
    }

    /// Which queue is served at `start`.
    pub(super) fn choose(&mut self, p: u32, start: u64, packets: &Packets) -> Choice {
        let mut earliest = u64::MAX;
        for level in 0..self.levels.len() {
            let mut ready = 0u8;
            for place in 0..self.levels[level].len() {
                let queue = usize::from(self.levels[level][place]);
                match self.may_start(p, queue, packets) {
                    Some(time) if time <= start => ready |= 1 << queue,
                    Some(time) => earliest = earliest.min(time),
                    None => {}
                }
            }
            if ready != 0 {
                return Choice::Serve(self.next_of(p, level, ready, packets));
            }
        }
        if earliest == u64::MAX { Choice::Nothing } else { Choice::Wait(earliest) }
    }

    /// Which of the queues of a level that may start goes next.
    fn next_of(&mut self, p: u32, level: usize, ready: u8, packets: &Packets) -> usize {
        let first = p as usize * self.count;
        let may = |queue: u8| ready & 1 << queue != 0;
        let members = &self.levels[level];
        let turns = &mut self.turns[p as usize * self.levels.len() + level];
        match self.discipline {
            Discipline::Strict => ready.trailing_zeros() as usize,
            Discipline::Fifo => {
                let came = |queue: &u8| packets[self.each[first + usize::from(*queue)].waiting.head].joined;
                let oldest = members.iter().copied().filter(|&queue| may(queue)).min_by_key(came);
                usize::from(oldest.expect("one of them may start"))
            }
            Discipline::WeightedRoundRobin => {
                while turns.left == 0 || !may(members[usize::from(turns.at)]) {
                    turns.at = (turns.at + 1) % members.len() as u8;
                    turns.left = self.rules[usize::from(members[usize::from(turns.at)])].weight;
                }
                turns.left -= 1;
                usize::from(members[usize::from(turns.at)])
            }
            Discipline::DeficitRoundRobin => loop {
                let queue = usize::from(members[usize::from(turns.at)]);
                let state = &mut self.each[first + queue];
                if may(queue as u8) {
                    if turns.left == 0 {
                        state.deficit += self.rules[queue].quantum;
                        turns.left = 1;
                    }
                    let head = &packets[state.waiting.head];
                    let wire = u64::from(head.wire);
                    if state.deficit >= wire {
                        state.deficit -= wire;
                        if head.next == NONE {
                            // Nothing is saved up by who has nothing to send.
                            state.deficit = 0;
                            (turns.at, turns.left) = ((turns.at + 1) % members.len() as u8, 0);
                        }
                        return queue;
                    }
                }
                (turns.at, turns.left) = ((turns.at + 1) % members.len() as u8, 0);
            },
        }
    }

    /// Takes what a transmission of `wire` bytes at `start` costs out of the bucket.
    pub(super) fn spend(&mut self, p: u32, queue: usize, start: u64, wire: u16) {
        let Some(shaper) = self.rules[queue].shaper else { return };
        let place = self.place(p, queue);
        let full_at = &mut self.each[place].full_at;
        *full_at = (*full_at).max(start) + time_of(shaper.rate, u64::from(wire));
    }
}

/// ceil(bytes · 8 · 10^12 / rate) picoseconds.
fn time_of(rate: BitRate, bytes: u64) -> u64 {
    rate.serialise(Bytes::new(bytes)).ps()
}
