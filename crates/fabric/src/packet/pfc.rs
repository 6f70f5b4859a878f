//! Priority flow control: what each ingress holds, pause frames, the watchdog, and pauses that wait for one another.
//!
//! **Life cycle.** A lossless packet is charged to its ingress: the far end of the port it came by, which names it. Up to
//! xoff it takes shared buffer. One that does not fit goes to the ingress's headroom, and a pause frame leaves by the port
//! of the same cable, before all that waits there, after what is in service. Its event, `PAUSE` at the upstream port, is
//! all that the other end learns: that port starts nothing of the queue from that instant on (a service that begins at it
//! is not stopped). What is sent gives its bytes back, headroom first; when headroom is empty and the rest is down to xon,
//! a frame that resumes goes the same way.
//!
//! **Exactness.** Bytes are given back when a port is touched, which may be late, so what is known is an upper bound. An
//! ingress that the bound would pause has the switch's ports served first; and as long as a switch pauses any ingress,
//! each of its ports has an event at the end of its transmission, so a resume leaves when bytes are given back.
//!
//! **Invariants.** Sums over queues and ingresses of a switch's lossless bytes are equal. `pausing` lists the ingresses
//! with `paused`. Pause frames of one cable arrive in the order in which they were decided.
//!
//! **Control packets** are no ingress's. What paused senders have sent may fill the shared part for long, so where there are pauses
//! every port keeps room for some of them aside; without, acknowledgements would be lost of data that are not.
//!
//! **Failure modes.** Headroom set below what the cable needs drops packets (counted as drops of the egress). Pauses that
//! wait for one another in a cycle end the run, unless a watchdog breaks them.
//!
//! IEEE 802.1Qbb-2011; Guo et al., "RDMA over commodity Ethernet at scale", SIGCOMM 2016 (deadlocks, watchdog); Hu et al.,
//! "Deadlocks in datacenter networks: why do they form, and how to avoid them", HotNets 2016.

use std::collections::{BTreeMap, BTreeSet};

use windtunnel_kernel::Bytes;
use windtunnel_topology::{LinkId, SwitchId};

use super::engine::Engine;
use super::link::Marking;
use super::meter::Meters;
use super::packets::NONE;
use super::port::CONTROL;
use super::queue_settings::{Color, PfcSettings, QueueSettings, Reach, Xoff, Xon};
use super::queues::{Queues, share};
use super::settings::PacketError;
use super::statistics::PauseCounters;
use super::switch::Switch;
use super::timeline::{Class, Key};
use super::transport::Transport;

/// Control packets for which every port keeps room. They overtake data, so few wait at once.
const CONTROLS: u64 = 16;

/// Pauses in numbers.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    settings: PfcSettings,
    xoff: Limit,
    /// Headroom by upstream port.
    headroom: Vec<u32>,
    /// Ports that wait for one another, once there are such.
    pub cycle: Vec<(u32, u8)>,
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    Bytes(u64),
    /// α in units of 2^-16.
    Share(u64),
}

impl Guard {
    /// What an ingress may hold in the shared part, with `free` bytes there.
    fn xoff(&self, free: u64) -> u64 {
        match self.xoff {
            Limit::Bytes(bytes) => bytes,
            Limit::Share(alpha) => share(free, alpha),
        }
    }

    /// What it may hold when it is resumed.
    fn xon(&self, free: u64) -> u64 {
        match self.settings.xon {
            Xon::At(bytes) => bytes.get().min(self.xoff(free)),
            Xon::Below(offset) => self.xoff(free).saturating_sub(offset.get()),
        }
    }
}

/// Bytes of one queue that came by one port and are held at its far end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ingress {
    pub shared: u32,
    pub headroom: u32,
    pub paused: bool,
}

/// A pause or resume to be sent to an upstream port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    upstream: u32,
    queue: u8,
    pause: bool,
}

/// A port and one of its queues.
pub(super) type Paused = (u32, u8);

/// What is known of pauses. What several processes know may be put together.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    guard: Option<Guard>,
    /// Queues that are paused, and bytes that wait there by where they came from; with the switch that they are at.
    waits: BTreeMap<Paused, (u32, BTreeMap<Paused, u64>)>,
    /// Ingresses that have paused their sender: switch, size of its shared part, what it holds.
    held: BTreeMap<Paused, (u32, u64, Ingress)>,
}

impl Pauses {
    /// Adds what another process knows.
    pub(super) fn add(&mut self, other: Self) {
        self.guard = self.guard.take().or(other.guard);
        self.waits.extend(other.waits);
        self.held.extend(other.held);
    }

    /// Ports (with their queue) each of which is paused until the next one has sent what it holds, and the last until the
    /// first has; empty if every pause can end.
    ///
    /// The largest set of paused ports is sought whose pauses would stay if everything else had been sent: what an ingress
    /// holds in queues of the set keeps it above xon.
    pub(super) fn cycle(&self) -> Vec<Paused> {
        let Some(guard) = &self.guard else { return Vec::new() };
        let mut stuck: BTreeSet<Paused> =
            self.waits.keys().copied().filter(|port| self.held.contains_key(port)).collect();
        loop {
            // What would still be held, by ingress and by switch.
            let mut left: BTreeMap<Paused, u64> = BTreeMap::new();
            let mut used: BTreeMap<u32, u64> = BTreeMap::new();
            for (switch, came) in
                self.waits.iter().filter(|(at, _)| stuck.contains(at)).map(|(_, found)| found)
            {
                for (&by, &bytes) in came {
                    *left.entry(by).or_default() += bytes;
                    *used.entry(*switch).or_default() += bytes;
                }
            }
            let before = stuck.len();
            stuck.retain(|port| {
                let (Some(&left), Some(&(switch, shared, ingress))) = (left.get(port), self.held.get(port))
                else {
                    return false;
                };
                let gone = u64::from(ingress.shared + ingress.headroom).saturating_sub(left);
                let headroom = u64::from(ingress.headroom).saturating_sub(gone);
                let free = shared.saturating_sub(used.get(&switch).copied().unwrap_or(0));
                headroom > 0 || left > guard.xon(free)
            });
            if stuck.len() == before {
                break;
            }
        }
        // Follow from any of them what it waits for until one comes again.
        let Some(&first) = stuck.first() else { return Vec::new() };
        let mut way = vec![first];
        loop {
            let last = way[way.len() - 1];
            let mut found =
                self.waits.iter().filter(|(at, (_, came))| stuck.contains(at) && came.contains_key(&last));
            let Some((&next, _)) = found.next() else { return way };
            if let Some(place) = way.iter().position(|&seen| seen == next) {
                return way.split_off(place);
            }
            way.push(next);
        }
    }
}

impl Queues {
    /// Takes shared buffer of `switch` for a packet if its ingress may hold it.
    fn fits(&mut self, switch: &mut Switch, queue: usize, upstream: u32, wire: u16) -> bool {
        let place = self.place(upstream, queue);
        let Some(guard) = &self.guard else { return false };
        let reserve = self.rules[queue].reserve;
        let ingress = &mut self.ingress[place];
        let held = ingress.shared + u32::from(wire);
        let (had, has) = (ingress.shared.saturating_sub(reserve), held.saturating_sub(reserve));
        let more = u64::from(has - had);
        let free = switch.free();
        let counted = match guard.xoff {
            Limit::Bytes(_) => held,
            Limit::Share(_) => has,
        };
        if has > 0 && (u64::from(counted) > guard.xoff(free) || more > free) {
            return false;
        }
        ingress.shared = held;
        switch.used += more;
        true
    }

    /// Time after which it is looked up whether a pause can end; `None` where none is looked at.
    pub(super) fn patience(&self) -> Option<u64> {
        let guard = self.guard.as_ref()?;
        guard.settings.watchdog.is_none().then_some(guard.settings.patience.ps())
    }

    /// Whether a queue of port `p` has been paused for long.
    pub(super) fn is_paused_for_long(&self, p: u32, now: u64) -> bool {
        let Some(patience) = self.patience() else { return false };
        let paused = self.stations[p as usize].paused;
        (0..self.count).any(|queue| {
            paused & 1 << queue != 0 && self.each[self.place(p, queue)].paused_at + patience <= now
        })
    }

    /// These pauses wait for one another: the run is over.
    pub(super) fn end_by(&mut self, cycle: Vec<Paused>) {
        if let Some(guard) = &mut self.guard {
            guard.cycle = cycle;
        }
    }

    /// Times that queues of port `p` were paused until `now`, for how long, and packets dropped for it.
    pub(super) fn paused_at(&self, p: u32, now: u64) -> PauseCounters {
        let Some(station) = self.stations.get(p as usize) else { return PauseCounters::default() };
        let open = (0..self.count)
            .filter(|queue| station.paused & 1 << queue != 0)
            .map(|queue| now - self.each[self.place(p, queue)].paused_at);
        PauseCounters {
            pauses: u64::from(station.pauses),
            paused: station.paused_for + open.sum::<u64>(),
            dropped: u64::from(station.dropped),
        }
    }

    /// Whether pauses wait for one another, so that the run is over.
    #[inline]
    pub(super) fn are_stuck(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| !guard.cycle.is_empty())
    }
}

impl<T: Transport> Engine<T> {
    /// Makes queues and pauses, once ports and their kinds are known.
    pub(super) fn build_queues(&mut self) -> Result<(), PacketError> {
        let settings = &self.settings;
        if settings.queues.is_empty() && settings.pfc.is_none() {
            return Ok(());
        }
        let mut queues = Queues::new(&settings.queues, settings.discipline, settings.mtu);
        let reverse: Vec<u32> = (0..self.fabric.ports.len() as u32).map(|p| self.fabric.reverse(p)).collect();
        queues.make(reverse.into_iter());
        let of = |index: usize| settings.queues.get(index);
        for kind in &self.fabric.kinds {
            for index in 0..queues.count {
                for color in 0..Color::COUNT {
                    let own = of(index).and_then(|queue| queue.colors[color].ecn.or(queue.ecn));
                    queues.marking.push(match own {
                        Some(ecn) if kind.ecn_allowed => Marking::new(&ecn, kind.rate),
                        _ => kind.ecn,
                    });
                }
            }
        }
        let drops = |queue: &QueueSettings, color: usize| queue.colors[color].red.or(queue.red);
        let mut every =
            settings.queues.iter().flat_map(|queue| (0..Color::COUNT).map(move |color| (queue, color)));
        if every.any(|(queue, color)| drops(queue, color).is_some()) {
            // Those of links that slow down in mid-run are not asked for.
            let slowest = self.fabric.ports.iter().filter(|port| port.owner != NONE).map(|port| port.kind);
            let slowest = slowest.map(|kind| self.fabric.kinds[usize::from(kind)].rate).min();
            for (index, queue) in settings.queues.iter().enumerate() {
                // One for a color alone may be meant to drop all of that.
                let (Some(rate), Some(red)) = (slowest, queue.red) else { continue };
                let (kmax, mtu) = (Bytes::new(u64::from(Marking::new(&red, rate).kmax)), settings.mtu);
                if kmax < mtu {
                    return Err(PacketError::DropsAll { index, kmax, rate, mtu });
                }
            }
            for kind in &self.fabric.kinds {
                for queue in &settings.queues {
                    for color in 0..Color::COUNT {
                        let red = drops(queue, color).filter(|_| kind.of_switch);
                        queues.red.push(red.map_or(Marking::OFF, |red| Marking::new(&red, kind.rate)));
                    }
                }
            }
        }
        let meters = settings.queues.iter().map(|queue| queue.meter).collect();
        queues.meters = Meters::new(meters, self.pairs.nics.len());
        for nic in &mut self.pairs.nics {
            nic.ready.pull_by(settings.pull, &settings.queues);
        }
        queues.parked = vec![Vec::new(); self.pairs.nics.len()];
        queues.pausing = vec![Vec::new(); self.fabric.switches.len()];
        if let Some(pfc) = settings.pfc {
            let lossless = queues.rules.iter().filter(|rule| rule.lossless).count() as u64;
            let headroom = (0..self.fabric.ports.len() as u32)
                .map(|p| {
                    if self.fabric.ports[p as usize].far.as_switch().is_none() {
                        0
                    } else {
                        self.reach(p, &pfc, lossless)
                    }
                })
                .map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
                .collect();
            queues.ingress = vec![Ingress::default(); self.fabric.ports.len() * queues.count];
            queues.guard = Some(Guard {
                settings: pfc,
                xoff: match pfc.xoff {
                    Xoff::Static(bytes) => Limit::Bytes(bytes.get()),
                    Xoff::Dynamic(alpha) => Limit::Share((alpha * 65_536.0) as u64),
                },
                headroom,
                cycle: Vec::new(),
            });
        }
        self.queues = queues;
        self.set_headroom_aside()
    }

    /// The headroom of the far end of port `p`.
    fn reach(&self, p: u32, pfc: &PfcSettings, lossless: u64) -> u64 {
        if let Some(headroom) = pfc.headroom {
            return headroom.get();
        }
        let forth = self.fabric.kind(p);
        let back = &self.fabric.kinds[usize::from(self.fabric.ports[self.fabric.reverse(p) as usize].kind)];
        let largest = self.settings.mtu.max(self.settings.control).get() as u16;
        let way = back.serialise(largest) + lossless * back.serialise(pfc.frame.get() as u16) + back.delay;
        Reach { rate: forth.rate, delay: forth.delay, back: way + pfc.response.ps() }
            .headroom(self.settings.mtu)
    }

    /// Takes headroom, the queues' reserves and room for control packets out of each switch's shared part.
    fn set_headroom_aside(&mut self) -> Result<(), PacketError> {
        let lossless = self.queues.rules.iter().filter(|rule| rule.lossless).count() as u64;
        let mut headroom = vec![0u64; self.fabric.switches.len()];
        let mut ingresses = vec![0u64; self.fabric.switches.len()];
        if let Some(guard) = &self.queues.guard {
            for (port, &bytes) in self.fabric.ports.iter().zip(&guard.headroom) {
                if let Some(switch) = port.far.as_switch() {
                    headroom[switch as usize] += u64::from(bytes) * lossless;
                    ingresses[switch as usize] += 1;
                }
            }
        }
        let pfc = self.queues.guard.is_some();
        let reserved = |keeps: bool| -> u64 {
            let rules = self.queues.rules.iter().filter(|rule| (rule.lossless && pfc) == keeps);
            rules.map(|rule| u64::from(rule.reserve)).sum()
        };
        let (per_ingress, per_port) = (reserved(true), reserved(false));
        let for_control = if pfc { CONTROLS * self.settings.control.get() } else { 0 };
        for number in 0..self.fabric.switches.len() {
            let tier = self.fabric.topology.tier(SwitchId(number as u32));
            let switch = &mut self.fabric.switches[number];
            if !switch.is_limited() {
                continue;
            }
            let more = switch.reserve_least(for_control as u32);
            let aside = headroom[number]
                + per_ingress * ingresses[number]
                + (per_port + u64::from(more)) * u64::from(switch.count);
            let (size, ports) = (Bytes::new(switch.shared), ingresses[number] as u32);
            match switch.shared.checked_sub(aside) {
                Some(left) if left > 0 => switch.shared = left,
                _ => {
                    let each = Bytes::new(headroom[number] / ingresses[number].max(1));
                    return Err(PacketError::Headroom { tier, ports, each, aside: Bytes::new(aside), size });
                }
            }
            if let Some(Limit::Bytes(xoff)) = self.queues.guard.as_ref().map(|guard| guard.xoff)
                && xoff > switch.shared
            {
                return Err(PacketError::Xoff {
                    tier,
                    xoff: Bytes::new(xoff),
                    shared: Bytes::new(switch.shared),
                });
            }
        }
        Ok(())
    }

    /// Takes room for a lossless packet at its ingress; pauses its sender if that is headroom.
    pub(super) fn admit_ingress(&mut self, p: u32, queue: usize, upstream: u32, wire: u16, now: u64) -> bool {
        // What a switch sends of a reduction came by no port.
        if upstream == NONE {
            return true;
        }
        let owner = self.fabric.ports[p as usize].owner;
        if self.queues.fits(&mut self.fabric.switches[owner as usize], queue, upstream, wire) {
            return true;
        }
        self.refresh_queues(owner, now);
        if self.queues.fits(&mut self.fabric.switches[owner as usize], queue, upstream, wire) {
            return true;
        }
        let place = self.queues.place(upstream, queue);
        let limit = self.queues.guard.as_ref().map_or(0, |guard| guard.headroom[upstream as usize]);
        let ingress = &mut self.queues.ingress[place];
        let room = ingress.headroom + u32::from(wire) <= limit;
        if room {
            ingress.headroom += u32::from(wire);
        }
        if !ingress.paused {
            ingress.paused = true;
            let queue = queue as u8;
            self.queues.frames.push(Frame { upstream, queue, pause: true });
            self.queues.pausing[owner as usize].push((upstream, queue));
            if self.queues.pausing[owner as usize].len() == 1 {
                for port in self.fabric.ports_of(owner) {
                    self.look_again(port, now);
                }
            }
        }
        room
    }

    /// A lossless packet is held no longer.
    pub(super) fn release_ingress(&mut self, owner: usize, queue: usize, upstream: u32, wire: u16, now: u64) {
        if upstream == NONE {
            return;
        }
        let place = self.queues.place(upstream, queue);
        let reserve = self.queues.rules[queue].reserve;
        let ingress = &mut self.queues.ingress[place];
        let from_headroom = ingress.headroom.min(u32::from(wire));
        ingress.headroom -= from_headroom;
        let before = ingress.shared.saturating_sub(reserve);
        ingress.shared -= u32::from(wire) - from_headroom;
        self.fabric.switches[owner].used -= u64::from(before - ingress.shared.saturating_sub(reserve));
        self.resume_all(owner, now);
    }

    /// Resumes the ingresses of a switch that may go on.
    #[inline]
    pub(super) fn resume_all(&mut self, owner: usize, now: u64) {
        if self.queues.pausing[owner].is_empty() {
            return;
        }
        self.resume_some(owner, now);
    }

    fn resume_some(&mut self, owner: usize, _now: u64) {
        let Queues { guard, ingress, pausing, frames, count, .. } = &mut self.queues;
        let Some(guard) = guard else { return };
        let xon = guard.xon(self.fabric.switches[owner].free());
        pausing[owner].retain(|&(upstream, queue)| {
            let state = &mut ingress[upstream as usize * *count + usize::from(queue)];
            let goes_on = state.headroom == 0 && (u64::from(state.shared) <= xon || state.shared == 0);
            if goes_on {
                state.paused = false;
                frames.push(Frame { upstream, queue, pause: false });
            }
            !goes_on
        });
    }

    /// Sends the pause frames that have been decided, in that order.
    #[inline]
    pub(super) fn send_frames(&mut self, now: u64) {
        let mut sent = 0;
        while let Some(&frame) = self.queues.frames.get(sent) {
            sent += 1;
            self.send_frame(frame, now);
        }
        self.queues.frames.clear();
    }

    fn send_frame(&mut self, frame: Frame, now: u64) {
        let by = self.queues.stations[frame.upstream as usize].reverse;
        self.serve(by, now);
        let Some(guard) = &self.queues.guard else { return };
        let (size, response) = (guard.settings.frame.get() as u16, guard.settings.response.ps());
        let port = &mut self.fabric.ports[by as usize];
        let kind = &self.fabric.kinds[usize::from(port.kind)];
        port.free_at = port.free_at.max(now) + kind.serialise(size);
        port.counters.bytes += u64::from(size);
        let heeded = port.free_at + kind.delay + response;
        self.look_again(by, now);
        let name = u32::from(frame.queue) << 1 | u32::from(frame.pause);
        if self.fabric.ports[by as usize].away {
            self.export_frame(by, now, (heeded, frame.upstream, name));
        } else {
            self.timeline.schedule_key(Key::named(heeded, Class::Pause, frame.upstream, name));
        }
    }

    /// A pause or resume has reached port `p`; `name` says which of what queue.
    pub(super) fn pause_event(&mut self, p: u32, name: u32, now: u64) {
        let (queue, pause) = ((name >> 1) as usize, name & 1 == 1);
        if self.fabric.ports[p as usize].down {
            return;
        }
        let nic = !self.fabric.is_of_switch(p);
        if nic {
            self.pull(p, now);
        } else {
            self.serve(p, now);
        }
        let place = self.queues.place(p, queue);
        let station = &mut self.queues.stations[p as usize];
        let bit = 1u8 << queue;
        if (station.paused & bit != 0) == pause {
            // Said again after its link was down.
            self.send_frames(now);
            return;
        }
        if pause {
            station.paused |= bit;
            station.pauses += 1;
            self.queues.each[place].paused_at = now;
            self.account.totals.pauses += 1;
            let Some(guard) = &self.queues.guard else { return };
            match guard.settings.watchdog {
                Some(patience) if !nic => self.timeline.schedule(now + patience.ps(), Class::Touch, p),
                Some(_) => {}
                None => {
                    let due = now + guard.settings.patience.ps();
                    self.check_later(due, p);
                }
            }
        } else {
            station.paused &= !bit;
            station.dropping &= !bit;
            station.paused_for += now - self.queues.each[place].paused_at;
            station.since = now;
            if nic {
                self.unpark(p, now);
                return;
            }
            self.serve(p, now);
        }
        self.send_frames(now);
    }

    /// The link of port `p` goes down: what waits is lost, and its pauses are over.
    pub(super) fn queues_down(&mut self, p: u32, now: u64) {
        for queue in 0..self.queues.count {
            let place = self.queues.place(p, queue);
            let paused_at = self.queues.each[place].paused_at;
            let station = &mut self.queues.stations[p as usize];
            if station.paused & 1 << queue != 0 {
                station.paused_for += now - paused_at;
            }
        }
        let station = &mut self.queues.stations[p as usize];
        (station.paused, station.dropping) = (0, 0);
        if !self.fabric.is_of_switch(p) {
            while !self.fabric.ports[p as usize].waiting[CONTROL].is_empty() {
                let id = self.fabric.ports[p as usize].waiting[CONTROL].pop(&self.packets);
                self.drop_down(p, id);
            }
            self.unpark(p, now);
            return;
        }
        for lane in 0..=self.queues.count {
            loop {
                let list = match self.queues.count - lane {
                    0 => &mut self.fabric.ports[p as usize].waiting[CONTROL],
                    _ => &mut self.queues.each[p as usize * self.queues.count + lane].waiting,
                };
                if list.is_empty() {
                    break;
                }
                let id = list.pop(&self.packets);
                let packet = &self.packets[id];
                let (upstream, wire) = (packet.next_time as u32, packet.wire);
                self.give_up(p, lane, upstream, wire, now);
                self.drop_down(p, id);
            }
        }
        self.look_again(p, now);
        self.send_frames(now);
    }

    /// The link of port `p` comes up. If what came by its cable still pauses the sender there, `p` says so again, as it
    /// does all the time.
    pub(super) fn queues_up(&mut self, p: u32, now: u64) {
        let station = &mut self.queues.stations[p as usize];
        station.since = now;
        let upstream = station.reverse;
        if self.queues.guard.is_none() || !self.fabric.is_of_switch(p) {
            return;
        }
        for queue in 0..self.queues.count {
            if self.queues.ingress[self.queues.place(upstream, queue)].paused {
                self.queues.frames.push(Frame { upstream, queue: queue as u8, pause: true });
            }
        }
        self.send_frames(now);
    }

    /// Drops what waits in queues of port `p` that have been paused for too long.
    pub(super) fn watch_pause(&mut self, p: u32, now: u64) {
        let Some(limit) = self.queues.guard.as_ref().and_then(|guard| guard.settings.watchdog) else {
            return;
        };
        let limit = limit.ps();
        for queue in 0..self.queues.count {
            let place = self.queues.place(p, queue);
            let bit = 1u8 << queue;
            let station = &mut self.queues.stations[p as usize];
            let due = self.queues.each[place].paused_at.saturating_add(limit) <= now;
            if station.paused & !station.dropping & bit == 0 || !due {
                continue;
            }
            station.dropping |= bit;
            while !self.queues.each[place].waiting.is_empty() {
                let id = self.queues.each[place].waiting.pop(&self.packets);
                let packet = &self.packets[id];
                let (upstream, wire) = (packet.next_time as u32, packet.wire);
                self.queues.stations[p as usize].dropped += 1;
                self.give_up(p, queue, upstream, wire, now);
                self.drop_packet(p, id);
            }
        }
    }

    /// A queue of port `p` may have been paused for long: if its pause cannot end any more, the run does.
    pub(super) fn check_pause(&mut self, p: u32, now: u64) {
        if !self.queues.is_paused_for_long(p, now) {
            return;
        }
        let cycle = self.pauses().cycle();
        if cycle.is_empty() {
            self.check_later(now + self.queues.patience().unwrap_or(0), p);
        } else {
            self.queues.end_by(cycle);
        }
    }

    /// What this process knows of pauses.
    pub(super) fn pauses(&self) -> Pauses {
        let count = self.queues.count;
        let mut pauses = Pauses::default();
        let Some(guard) = &self.queues.guard else { return pauses };
        for (p, station) in (0u32..).zip(&self.queues.stations) {
            for queue in (0..count).filter(|queue| station.paused & 1 << queue != 0) {
                let mut came: BTreeMap<Paused, u64> = BTreeMap::new();
                let mut id = self.queues.each[self.queues.place(p, queue)].waiting.head;
                while id != NONE {
                    let packet = &self.packets[id];
                    *came.entry((packet.next_time as u32, packet.queue)).or_default() +=
                        u64::from(packet.wire);
                    id = packet.next;
                }
                pauses.waits.insert((p, queue as u8), (self.fabric.ports[p as usize].owner, came));
            }
        }
        for (switch, pausing) in self.queues.pausing.iter().enumerate() {
            for &(upstream, queue) in pausing {
                let ingress = self.queues.ingress[self.queues.place(upstream, usize::from(queue))];
                let shared = self.fabric.switches[switch].shared;
                pauses.held.insert((upstream, queue), (switch as u32, shared, ingress));
            }
        }
        pauses.guard = Some(guard.clone());
        pauses
    }

    /// Links whose pauses wait for one another, each for the next and the last for the first: nothing on them moves any
    /// more, and the engine has stopped. Empty while there are none.
    pub fn pause_cycle(&self) -> Vec<LinkId> {
        let cycle = self.queues.guard.iter().flat_map(|guard| &guard.cycle);
        cycle.map(|&(p, _)| self.fabric.link_of(p)).collect()
    }

    /// The headroom of the far end of each link to a switch, in bytes; empty without PFC.
    pub fn headrooms(&self) -> Vec<(LinkId, Bytes)> {
        let Some(guard) = &self.queues.guard else { return Vec::new() };
        let ingress =
            (0u32..).zip(&guard.headroom).filter(|&(p, _)| self.queues.stations[p as usize].reverse != NONE);
        ingress
            .filter(|&(p, _)| self.fabric.ports[p as usize].far.as_switch().is_some())
            .map(|(p, &bytes)| (self.fabric.link_of(p), Bytes::new(u64::from(bytes))))
            .collect()
    }
}
