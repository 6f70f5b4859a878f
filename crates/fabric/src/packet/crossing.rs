//! An engine as one of several processes: what joins it to the others.
//!
//! A process owns NICs and switches with their egress ports. A port whose far end lives elsewhere is *away*: a packet
//! whose transmission begins there leaves the slab and is loaded with the time at which it reaches the far end
//! ([`Engine::export`]); there it joins the cable half of the same port ([`Engine::import`]) and has its event under the
//! same key as in one process. An away port of a switch has no event of its own: ports that have something waiting are
//! looked at when the window ends, and everything whose turn came is started, which is exact (see
//! `docs/packet-model.md`, "One event per hop"). An away port of a NIC, or where ports have several queues, wakes up at the
//! end of each transmission. A pause frame is mail too: its event at the port that it is for.
//!
//! **Invariant.** A transmission that begins in a window arrives after it, because windows are no longer than the least
//! delay of a cable between processes.
//!
//! **Mail** is one load from a process to another in a window, with all packets that leave for it, in the order in which they
//! left: those of one port are in the order of time, which is all that its cable asks for, so nothing is sorted, and a
//! packet is copied twice. Loads go back and forth empty, for their allocations. Entities are processes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prefetch_index::prefetch_index;
use windtunnel_kernel::executor::{Envelope, Outbox, Process};
use windtunnel_kernel::partition::{Edge, Partition, PartitionOptions, partition};
use windtunnel_kernel::queue::EventKey;
use windtunnel_kernel::{Span, Time};
use windtunnel_topology::{Peer, SwitchId};

use super::border::{Crossing, Gone, Load};
use super::engine::Engine;
use super::packets::{Kind, NONE, Packet};
use super::settings::ParallelSettings;
use super::timeline::{Class, Key};
use super::transport::{Endpoint, Recovery, Transport};

/// Parcels that are looked ahead while a load is taken in: what they need is some of these on its way.
const FORESEEN: usize = 4;

impl<T: Transport> Engine<T> {
    /// Spreads NICs and switches over processes: the process of each NIC, then of each switch, and the rest of what was
    /// found. The weight of a NIC or switch is the number of its ports: packets arrive there.
    pub(super) fn partition(&self, parallel: &ParallelSettings) -> Partition {
        let topology = &self.fabric.topology;
        let (nics, planes) = (topology.nics(), topology.planes());
        let delay = |port: u32| Span::from_ps(self.fabric.kind(port).delay);
        let mut edges = Vec::new();
        for nic in 0..nics {
            for plane in 0..planes {
                let leaf = topology.target(nic, plane).switch.0;
                edges.push(Edge { a: nic, b: nics + leaf, delay: delay(nic * planes + plane) });
            }
        }
        let mut weights = vec![u64::from(2 * planes); nics as usize];
        for (number, switch) in (0u32..).zip(&self.fabric.switches) {
            let mut cables = 0;
            for port in 0..switch.count {
                let far = match topology.peer(SwitchId(number), port) {
                    Some(Peer::Switch { switch, .. }) => nics + switch.0,
                    Some(Peer::Nic { nic, .. }) => nic,
                    None => continue,
                };
                cables += 1;
                edges.push(Edge { a: nics + number, b: far, delay: delay(switch.first + port) });
            }
            weights.push(cables);
        }
        let mut options = PartitionOptions::for_threads(parallel.threads);
        options.threshold = parallel.threshold;
        // Of packets that cross, each costs half an event more: no more processes than threads (`benches/packet.rs`).
        options.processes = parallel.processes.unwrap_or(parallel.threads);
        partition(&weights, &edges, &options)
    }

    /// Makes an engine of the whole fabric process `number`. It keeps a place for every port, of which it uses its own and
    /// the cable halves of those that lead to it.
    pub(super) fn settle_in(&mut self, number: u32, homes: &Arc<[u32]>, first_done: &Arc<AtomicU64>) {
        self.crossing = Some(Box::new(Crossing {
            number,
            homes: Arc::clone(homes),
            waiting: Vec::new(),
            due: Vec::new(),
            next: u64::MAX,
            fars: Vec::new(),
            loads: vec![Load::new(); 1 + homes.iter().copied().max().unwrap_or(0) as usize],
            spare: Vec::new(),
            checks: BinaryHeap::new(),
            left: 0,
            gone: Vec::new(),
            first_done: Arc::clone(first_done),
        }));
        let mut fars = Vec::with_capacity(self.fabric.ports.len());
        for p in 0..self.fabric.ports.len() as u32 {
            let [owner, far] = self.ends(p);
            self.fabric.ports[p as usize].away = owner == number && far != number;
            fars.push(far);
        }
        if let Some(crossing) = &mut self.crossing {
            crossing.fars = fars;
        }
    }

    /// Processes of a port and of its far end.
    fn ends(&self, p: u32) -> [u32; 2] {
        let Some(crossing) = &self.crossing else { return [0; 2] };
        let (nics, planes) = (self.fabric.topology.nics(), self.fabric.topology.planes());
        let port = &self.fabric.ports[p as usize];
        let owner = if port.owner == NONE { p / planes } else { nics + port.owner };
        let far = match port.far.as_switch() {
            Some(switch) => nics + switch,
            None => {
                let switch = SwitchId(port.owner);
                match self.fabric.topology.peer(switch, p - self.fabric.switches[switch.0 as usize].first) {
                    Some(Peer::Nic { nic, .. }) => nic,
                    // Nothing is there.
                    _ => owner,
                }
            }
        };
        [owner, far].map(|node| crossing.homes[node as usize])
    }

    /// Whether port `p` is this process's.
    pub(super) fn owns(&self, p: u32) -> bool {
        self.crossing.as_ref().is_none_or(|crossing| self.ends(p)[0] == crossing.number)
    }

    /// Whether it is the process that counts what all of them do.
    pub(super) fn is_first(&self) -> bool {
        self.crossing.as_ref().is_none_or(|crossing| crossing.number == 0)
    }

    /// Packets that have left by away port `p` in this window.
    pub(super) fn leaving(&mut self, p: u32) -> impl Iterator<Item = &mut Packet> {
        let crossing = self.crossing.as_mut().expect("only one of several processes has ports that are away");
        let load = &mut crossing.loads[crossing.fars[p as usize] as usize];
        load.parcels.iter_mut().filter(move |parcel| parcel.next == p)
    }

    /// Process of a NIC port.
    pub(super) fn home(&self, nic_port: u32) -> u32 {
        let nic = self.fabric.nic_of(nic_port);
        self.crossing.as_ref().map_or(0, |crossing| crossing.home(nic))
    }

    /// Process of a switch.
    pub(super) fn home_of_switch(&self, switch: u32) -> u32 {
        let nics = self.fabric.topology.nics();
        self.crossing.as_ref().map_or(0, |crossing| crossing.homes[(nics + switch) as usize])
    }

    /// What was dropped here and is counted elsewhere, since the last call.
    pub(super) fn take_gone(&mut self) -> Vec<(u32, Gone)> {
        self.crossing.as_mut().map_or_else(Vec::new, |crossing| std::mem::take(&mut crossing.gone))
    }

    /// Counts a packet that is no more at the half it went to, which lives here.
    pub(super) fn count_gone(&mut self, gone: Gone) {
        if gone.back {
            self.pairs.senders[gone.half as usize].control_gone += 1;
        } else {
            let receiver = &mut self.pairs.receivers[gone.half as usize];
            receiver.data_gone += 1;
            if !gone.own && !receiver.aside && self.endpoint.recovery() == Recovery::None {
                self.account.lose_for_good();
            }
        }
    }

    /// A packet leaves by away port `p`, with everything it refers to: its transmission began at `sent`. What packets refer to
    /// besides is to be added here and in [`Self::import`].
    pub(super) fn export(&mut self, p: u32, id: u32, sent: u64, reaches: u64) {
        let packet = Packet { next_time: reaches, next: p, ..self.packets[id] };
        self.packets.release(id);
        let crossing = self.crossing.as_mut().expect("only one of several processes has ports that are away");
        let load = &mut crossing.loads[crossing.fars[p as usize] as usize];
        if packet.kind == Kind::Ack {
            load.feedbacks.push(self.pairs.feedbacks.take(packet.detail));
        }
        if let Some(telemetry) = self.telemetry.get_mut() {
            load.hops.push(telemetry.take(id));
        }
        (load.first, load.least) = (load.first.min(reaches), load.least.min(reaches - sent));
        load.parcels.push(packet);
        crossing.left += 1;
    }

    /// A pause frame for port `upstream`, decided at `now`, leaves by away port `p`.
    pub(super) fn export_frame(&mut self, p: u32, now: u64, (heeded, upstream, name): (u64, u32, u32)) {
        let crossing = self.crossing.as_mut().expect("only one of several processes has ports that are away");
        let load = &mut crossing.loads[crossing.fars[p as usize] as usize];
        (load.first, load.least) = (load.first.min(heeded), load.least.min(heeded - now));
        load.frames.push((heeded, upstream, name));
    }

    /// Has it looked at `due` whether a pause of port `p` can end.
    pub(super) fn check_later(&mut self, due: u64, p: u32) {
        match &mut self.crossing {
            Some(crossing) => crossing.checks.push(Reverse((due, p))),
            None => self.timeline.schedule(due, Class::Check, p),
        }
    }

    /// When that is due for the first time, where the caller looks.
    pub(super) fn first_check(&self) -> u64 {
        let first = self.crossing.as_ref().and_then(|crossing| crossing.checks.peek());
        first.map_or(u64::MAX, |&Reverse((due, _))| due)
    }

    /// Ports with queues that have been paused for long at `now`, for which it is due.
    pub(super) fn long_paused(&mut self, now: u64) -> Vec<u32> {
        let mut ports = Vec::new();
        while let Some(crossing) = &mut self.crossing
            && let Some(&Reverse((due, p))) = crossing.checks.peek()
            && due <= now
        {
            crossing.checks.pop();
            self.timeline.reach(due);
            if self.queues.is_paused_for_long(p, now) {
                ports.push(p);
            }
        }
        ports
    }

    /// Takes a load in; it is left empty.
    fn import(&mut self, load: &mut Load) {
        let (mut feedbacks, mut hops) = (load.feedbacks.drain(..), load.hops.drain(..));
        for (heeded, upstream, name) in load.frames.drain(..) {
            self.timeline.schedule_key(Key::named(heeded, Class::Pause, upstream, name));
        }
        for number in 0..load.parcels.len() {
            self.foresee_parcels(&load.parcels[number..]);
            let mut packet = load.parcels[number];
            let (port, reaches) = (packet.next, packet.next_time);
            if packet.kind == Kind::Ack {
                let feedback = feedbacks.next().expect("each acknowledgement brings its feedback");
                packet.detail = self.pairs.feedbacks.insert(feedback);
            }
            let id = self.packets.insert(packet);
            if let Some(telemetry) = self.telemetry.get_mut() {
                telemetry.put(id, hops.next().expect("each packet brings its telemetry"));
            }
            self.launch(port, id, reaches);
        }
        load.parcels.clear();
        (load.first, load.least) = (u64::MAX, u64::MAX);
    }

    /// Fetches parcels that are soon to be taken in, their places and ports, and the last packets on their cables.
    #[inline]
    fn foresee_parcels(&self, parcels: &[Packet]) {
        prefetch_index(parcels, 4 * FORESEEN);
        self.packets.prefetch_free(FORESEEN);
        if let Some(parcel) = parcels.get(2 * FORESEEN) {
            prefetch_index(&self.fabric.ports, parcel.next as usize);
        }
        if let Some(parcel) = parcels.get(FORESEEN) {
            self.packets.prefetch(self.fabric.ports[parcel.next as usize].flight.tail);
        }
    }

    /// Something waits at away port `p` of a switch.
    #[cold]
    pub(super) fn look_later(&mut self, p: u32) {
        let port = &mut self.fabric.ports[p as usize];
        if !std::mem::replace(&mut port.armed, true) {
            let free_at = port.free_at;
            if let Some(crossing) = &mut self.crossing {
                crossing.waiting.push(p);
                crossing.next = crossing.next.min(free_at);
            }
        }
    }

    /// Starts what waits at away ports and whose turn comes before `horizon`; returns how many were looked at.
    ///
    /// One packet a port and pass, so that the next one is on its way from memory while other ports have their turn.
    fn flush(&mut self, horizon: u64) -> u64 {
        let Some(crossing) = &mut self.crossing else { return 0 };
        let mut waiting = std::mem::take(&mut crossing.waiting);
        let mut due = std::mem::take(&mut crossing.due);
        let looked = waiting.len() as u64;
        due.extend_from_slice(&waiting);
        for &p in &due {
            self.foresee_turn(p);
        }
        while !due.is_empty() {
            due.retain(|&p| {
                let is_due = self.fabric.ports[p as usize].is_due(horizon - 1);
                if is_due {
                    self.start_next(p);
                    self.foresee_turn(p);
                }
                is_due
            });
        }
        let mut next = u64::MAX;
        waiting.retain(|&p| {
            let port = &mut self.fabric.ports[p as usize];
            port.armed = port.waits();
            if port.armed {
                next = next.min(port.free_at);
            }
            port.armed
        });
        if let Some(crossing) = &mut self.crossing {
            (crossing.waiting, crossing.due, crossing.next) = (waiting, due, next);
        }
        looked
    }

    /// Fetches the packet that is next at port `p`.
    #[inline]
    fn foresee_turn(&self, p: u32) {
        for list in &self.fabric.ports[p as usize].waiting {
            self.packets.prefetch(list.head);
        }
    }
}

impl<T: Transport> Process for Engine<T> {
    type Message = Load;

    fn entities(&self) -> Vec<u32> {
        vec![self.crossing.as_ref().map_or(0, |crossing| crossing.number)]
    }

    fn next_time(&mut self) -> Time {
        let waiting = self.crossing.as_ref().map_or(u64::MAX, |crossing| crossing.next);
        Engine::next_time(self).min(Time::from_ps(waiting))
    }

    fn advance(&mut self, horizon: Time, outbox: &mut Outbox<Load>) -> u64 {
        let mut handled = 0;
        while !self.has_halted() && self.step(horizon.ps() - 1) {
            handled += 1;
        }
        self.sample_before(horizon.ps());
        handled += self.flush(horizon.ps());
        let Some(crossing) = &mut self.crossing else { return handled };
        let Crossing { loads, spare, number, .. } = &mut **crossing;
        for (receiver, load) in (0..).zip(loads).filter(|(_, load)| load.first != u64::MAX) {
            let message = std::mem::replace(load, spare.pop().unwrap_or(Load::new()));
            let time = Time::from_ps(message.first);
            let key = EventKey { time, class: 0, receiver, sender: *number, count: 0 };
            // As if all had been sent the least time before the first arrives: that is what the lookahead is held to.
            let sent = Time::from_ps(message.first - message.least);
            let own = outbox.post(sent, Envelope { key, message });
            debug_assert!(own.is_none(), "an away port leads elsewhere");
        }
        handled
    }

    fn receive(&mut self, envelope: Envelope<Load>) {
        let mut load = envelope.message;
        self.import(&mut load);
        if let Some(crossing) = &mut self.crossing
            && crossing.spare.len() < crossing.loads.len()
        {
            crossing.spare.push(load);
        }
    }
}
