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

use super::engine::Engine;
use super::link::Marking;
use super::meter::Meters;
use super::packets::{Kind, NONE, Packet, Packets};
use super::pfc::{Frame, Guard, Ingress};
use super::port::{CONTROL, List};
use super::queue_settings::{Color, Discipline, QueueSettings, Shaper};
use super::telemetry::RECORD;
use super::timeline::Class;
use super::transport::Transport;

/// Sets the draws of trimming apart from others.
const CUT: u64 = 0x6375_7400;

/// Sets the draws of early drops apart from others.
const EARLY: u64 = 0x7265_6400;

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
    alpha: Option<u64>,
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
struct Turns {
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
    over: u32,
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
enum Choice {
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
    fn profile(&self, kind: u16, queue: usize, color: Color) -> usize {
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
    fn has_startable(&self, p: u32) -> bool {
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
    fn choose(&mut self, p: u32, start: u64, packets: &Packets) -> Choice {
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
    fn spend(&mut self, p: u32, queue: usize, start: u64, wire: u16) {
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

impl<T: Transport> Engine<T> {
    /// A packet that came by `upstream` joins a queue of a switch's port: [`Engine::enqueue`] where there are queues.
    pub(super) fn join(&mut self, p: u32, id: u32, now: u64) {
        self.find_place(p, id, now);
        self.send_frames(now);
    }

    fn find_place(&mut self, p: u32, id: u32, now: u64) {
        self.serve(p, now);
        if self.stage_takes(p, id, now) {
            return;
        }
        let packet = &mut self.packets[id];
        packet.joined = now;
        if self.telemetry.get().is_some() && packet.kind == Kind::Data {
            packet.wire = packet.wire.saturating_add(RECORD);
        }
        let wire = packet.wire;
        let upstream = packet.next_time as u32;
        let lane = self.queues.lane(packet);
        if lane < self.queues.count {
            packet.color = self.queues.meters.color(upstream, lane, wire, now, packet.color);
        }
        let color = packet.color;
        let dropping = self.queues.stations[p as usize].dropping;
        if lane < self.queues.count && dropping & 1 << lane != 0 {
            self.queues.stations[p as usize].dropped += 1;
            self.drop_packet(p, id);
            return;
        }
        if lane < self.queues.count && self.drops_early(p, lane, id) {
            self.drop_packet(p, id);
            return;
        }
        if self.is_too_long(p, lane, wire) {
            self.cut(p, lane, id, now);
            return;
        }
        if !self.admit(p, lane, upstream, wire, now) {
            if self.settings.trimming.is_some() && self.may_drop(lane) {
                self.cut(p, lane, id, now);
            } else {
                self.drop_packet(p, id);
            }
            return;
        }
        let port = &mut self.fabric.ports[p as usize];
        port.held += u32::from(wire);
        port.counters.deepest = port.counters.deepest.max(port.held);
        if lane < self.queues.count {
            let place = self.queues.place(p, lane);
            let queue = &mut self.queues.each[place];
            queue.held += u32::from(wire);
            let depth = queue.held;
            let marking = self.queues.marking[self.queues.profile(port.kind, lane, color)];
            if !marking.at_dequeue && depth > marking.kmin {
                self.mark_by(p, id, depth, &marking);
            }
            self.queues.each[place].waiting.push(id, &mut self.packets);
        } else {
            port.waiting[CONTROL].push(id, &mut self.packets);
        }
        self.queues.stations[p as usize].since = now;
        self.serve(p, now);
    }

    /// Whether the queue's drop profile takes a packet.
    fn drops_early(&self, p: u32, lane: usize, id: u32) -> bool {
        if self.queues.red.is_empty() {
            return false;
        }
        let packet = &self.packets[id];
        let red =
            &self.queues.red[self.queues.profile(self.fabric.ports[p as usize].kind, lane, packet.color)];
        let depth = self.queues.each[self.queues.place(p, lane)].held + u32::from(packet.wire);
        red.marks(depth, || self.draw(EARLY, p, packet))
    }

    /// Whether packets of a lane are dropped, or trimmed, where they find no room: data that no pauses keep.
    fn may_drop(&self, lane: usize) -> bool {
        lane < self.queues.count && !(self.queues.rules[lane].lossless && self.queues.guard.is_some())
    }

    /// Whether a packet would make its queue longer than trimming lets it be.
    fn is_too_long(&self, p: u32, lane: usize, wire: u16) -> bool {
        let limit = self.fabric.kind(p).trim;
        limit != u32::MAX
            && self.may_drop(lane)
            && self.queues.each[self.queues.place(p, lane)].held + u32::from(wire) > limit
    }

    /// [`Engine::trim`] where there are queues: the packet that comes is cut, or with probability 1/2 the last of its queue,
    /// if it is as long.
    #[cold]
    fn cut(&mut self, p: u32, lane: usize, id: u32, now: u64) {
        let waiting = self.queues.each[self.queues.place(p, lane)].waiting;
        let packet = &self.packets[id];
        if !waiting.is_empty()
            && self.packets[waiting.tail].wire == packet.wire
            && self.draw(CUT, p, packet) >> 31 == 1
        {
            self.packets.exchange(id, waiting.tail);
            if let Some(telemetry) = self.telemetry.get_mut() {
                telemetry.exchange(id, waiting.tail);
            }
        }
        self.trim_to_header(p, id, now);
    }

    /// Whether there is room; then it is taken.
    fn admit(&mut self, p: u32, lane: usize, upstream: u32, wire: u16, now: u64) -> bool {
        if lane < self.queues.count && self.queues.rules[lane].lossless && self.queues.guard.is_some() {
            return self.admit_ingress(p, lane, upstream, wire, now);
        }
        if self.take(p, lane, wire) {
            return true;
        }
        self.refresh_queues(self.fabric.ports[p as usize].owner, now);
        self.take(p, lane, wire)
    }

    /// Takes room for a packet that may be dropped: within the queue's reserve, or the port's, or as the dynamic threshold
    /// allows. Control packets need room alone.
    fn take(&mut self, p: u32, lane: usize, wire: u16) -> bool {
        let switch = &mut self.fabric.switches[self.fabric.ports[p as usize].owner as usize];
        let station = &mut self.queues.stations[p as usize];
        let wire = u32::from(wire);
        let more = match self.queues.rules.get(lane) {
            Some(rule) => {
                let held = self.queues.each[p as usize * self.queues.count + lane].held;
                (held + wire).saturating_sub(rule.reserve) - held.saturating_sub(rule.reserve)
            }
            None => wire,
        };
        let (had, has) = (switch.excess(station.over), switch.excess(station.over + more));
        if switch.is_limited() && has > had {
            let alpha = match self.queues.rules.get(lane) {
                Some(rule) => Some((rule, rule.alpha.unwrap_or(switch.alpha))),
                None => None,
            };
            let free = switch.free();
            if has - had > free {
                return false;
            }
            if let Some((rule, alpha)) = alpha {
                let held = self.queues.each[p as usize * self.queues.count + lane].held + wire;
                let own = u64::from(held.saturating_sub(rule.reserve)).min(has);
                if own > share(free, alpha) {
                    return false;
                }
            }
        }
        station.over += more;
        switch.used += has - had;
        true
    }

    /// Starts everything on a switch's port whose turn has come by `now`, and gives back what has been sent. Resumes that
    /// this brings about are for [`Engine::send_frames`].
    pub(super) fn serve(&mut self, p: u32, now: u64) {
        self.start_all(p, now);
        self.look_again(p, now);
    }

    fn start_all(&mut self, p: u32, now: u64) {
        loop {
            self.give_back(p, now);
            let port = &mut self.fabric.ports[p as usize];
            let station = &mut self.queues.stations[p as usize];
            let start = port.free_at.max(station.since);
            if start > now {
                return;
            }
            if !port.waiting[CONTROL].is_empty() {
                let id = port.waiting[CONTROL].pop(&self.packets);
                self.begin_service(p, id, self.queues.count, start);
                continue;
            }
            let wanted = self.stage_choice(p, start);
            let choice = match wanted {
                Some(queue) => Choice::Serve(queue),
                None => self.queues.choose(p, start, &self.packets),
            };
            match choice {
                Choice::Nothing => return,
                Choice::Wait(until) => self.queues.stations[p as usize].since = until,
                Choice::Serve(queue) => {
                    let place = self.queues.place(p, queue);
                    let id = self.queues.each[place].waiting.pop(&self.packets);
                    let depth = self.queues.each[place].held;
                    let (kind, color) = (self.fabric.ports[p as usize].kind, self.packets[id].color);
                    let marking = self.queues.marking[self.queues.profile(kind, queue, color)];
                    if marking.at_dequeue && depth > marking.kmin {
                        self.mark_by(p, id, depth, &marking);
                    }
                    let (wire, upstream) = (self.packets[id].wire, self.packets[id].next_time as u32);
                    let rest = |engine: &Self| engine.fabric.ports[p as usize].held - u32::from(wire);
                    if self.stage_drops(p, id, start, rest) {
                        self.give_up(p, queue, upstream, wire, now);
                        self.drop_packet(p, id);
                        continue;
                    }
                    self.begin_service(p, id, queue, start);
                }
            }
        }
    }

    fn begin_service(&mut self, p: u32, id: u32, lane: usize, start: u64) {
        let packet = &self.packets[id];
        let (wire, upstream) = (packet.wire, packet.next_time as u32);
        if lane < self.queues.count {
            self.queues.spend(p, lane, start, wire);
        }
        self.begin(p, id, start);
        let ends = self.fabric.ports[p as usize].free_at;
        let station = &mut self.queues.stations[p as usize];
        (station.ends, station.wire, station.lane, station.upstream) = (ends, wire, lane as u8, upstream);
    }

    /// Gives back the bytes of a transmission that has ended.
    fn give_back(&mut self, p: u32, now: u64) {
        let station = &mut self.queues.stations[p as usize];
        if station.wire == 0 || station.ends > now {
            return;
        }
        let (wire, lane, upstream) = (station.wire, usize::from(station.lane), station.upstream);
        station.wire = 0;
        self.give_up(p, lane, upstream, wire, now);
    }

    /// A packet is held no longer at port `p`.
    pub(super) fn give_up(&mut self, p: u32, lane: usize, upstream: u32, wire: u16, now: u64) {
        let owner = self.fabric.ports[p as usize].owner as usize;
        let wide = u32::from(wire);
        self.fabric.ports[p as usize].held -= wide;
        let mut less = wide;
        if lane < self.queues.count {
            let place = self.queues.place(p, lane);
            let held = &mut self.queues.each[place].held;
            *held -= wide;
            let rule = self.queues.rules[lane];
            if rule.lossless && self.queues.guard.is_some() {
                self.release_ingress(owner, lane, upstream, wire, now);
                return;
            }
            let after = *held;
            less = (after + wide).saturating_sub(rule.reserve) - after.saturating_sub(rule.reserve);
        }
        let station = &mut self.queues.stations[p as usize];
        let switch = &mut self.fabric.switches[owner];
        let before = switch.excess(station.over);
        station.over -= less;
        switch.used -= before - switch.excess(station.over);
        self.resume_all(owner, now);
    }

    /// Sees to it that a port is touched when something is due that no packet's arrival brings about: a start with nothing
    /// on the cable, or, where an ingress waits for it, any start and any end of a transmission: a bucket may let one begin
    /// and end before what is on the cable arrives.
    pub(super) fn look_again(&mut self, p: u32, now: u64) {
        let port = &self.fabric.ports[p as usize];
        let station = &self.queues.stations[p as usize];
        let waited_for = !self.queues.pausing[port.owner as usize].is_empty();
        let mut due = u64::MAX;
        if (port.flight.is_empty() || waited_for)
            && (!port.waiting[CONTROL].is_empty() || self.queues.has_startable(p))
        {
            due = port.free_at.max(station.since);
        }
        if station.wire != 0 && waited_for {
            due = due.min(station.ends);
        }
        if due != u64::MAX && (station.touch > due || station.touch < now) {
            self.queues.stations[p as usize].touch = due;
            self.timeline.schedule(due, Class::Touch, p);
        }
    }

    /// Something is due at a switch's port.
    pub(super) fn touched(&mut self, p: u32, now: u64) {
        let station = &mut self.queues.stations[p as usize];
        if station.touch <= now {
            station.touch = u64::MAX;
        }
        self.serve(p, now);
        self.watch_pause(p, now);
        self.send_frames(now);
    }

    /// Advances all ports of a switch, so that what it holds is exact.
    pub(super) fn refresh_queues(&mut self, switch: u32, now: u64) {
        for p in self.fabric.ports_of(switch) {
            if self.fabric.ports[p as usize].held > 0 {
                self.serve(p, now);
            }
        }
    }
}

/// α times what is free.
#[inline]
pub(super) fn share(free: u64, alpha: u64) -> u64 {
    ((u128::from(free) * u128::from(alpha)) >> 16) as u64
}
