//! What a sending half does: messages, packets, acknowledgements.

use std::cmp::Reverse;

use windtunnel_kernel::random::combine;
use windtunnel_kernel::{Bytes, Span, Time};
use windtunnel_topology::Itinerary;

use super::credit::Spent;
use super::engine::{Dispatched, Engine, PlanesOf, ProbesOf};
use super::handles::QueuePair;
use super::message::{Incoming, NO_MESSAGE, Outgoing, Sizes};
use super::packets::{Kind, NONE, Packet, flag};
use super::rack::Told;
use super::sender::Turn;
use super::settings::Balancer;
use super::timeline::Class;
use super::transport::{Ack, Endpoint, Feature, LossKind, News, PathChoice, Recovery, Transport};

/// Whether the packet about to leave asks for an answer at once, `unasked` before it not having asked.
///
/// The receiver answers `every` packets together (0: none). A window of few packets asks for more: each quarter of it, so that
/// three quarters are under way while the rest is answered, which fill a path where the window is 4/3 of its bandwidth–delay
/// product (that of Ultra Ethernet is 1.5). And the packet that exhausts a window asks where fewer are in flight than are
/// answered together. Ultra Ethernet 1.0 has a bit for it (`pds.flags.ar`), which htsim sets on the packet that exhausts the
/// window (uet-htsim 40ccb05).
#[inline]
fn is_to_ask(full: u64, every: u32, window: u64, in_flight: u64, unasked: u16) -> bool {
    let together = full * u64::from(every);
    let exhausts = in_flight < together && in_flight.saturating_add(full) > window;
    let quarter = window < 4 * together && 4 * full * (u64::from(unasked) + 2) > window;
    exhausts || quarter
}

impl<T: Transport> Engine<T> {
    /// Hands a message of `bytes` over to a queue pair at `at`, not before the clock; `token` comes back in its
    /// [`Completion`](super::Completion).
    pub fn send(&mut self, at: Time, pair: QueuePair, bytes: Bytes, token: u64) {
        let message = self.incoming_of(at, bytes, token);
        self.pairs.expect(pair.receiver, message);
        self.hand_over(at, pair.sender, &message);
    }

    /// A message as its receiver is told of it.
    pub(super) fn incoming_of(&self, at: Time, bytes: Bytes, token: u64) -> Incoming {
        let bytes = bytes.get().max(1);
        let packets = u32::try_from(self.settings.packets(Bytes::new(bytes)))
            .expect("a message of fewer than 2^32 packets");
        let needed = self.settings.coding.map_or(packets, |coding| coding.needed(packets));
        Incoming { token, bytes, start: at, packets, needed, next: NO_MESSAGE }
    }

    /// Hands a message over to a sending half.
    pub(super) fn hand_over(&mut self, at: Time, flow: u32, message: &Incoming) {
        let &Incoming { bytes, packets, .. } = message;
        let sizes = Sizes::new(bytes, self.settings.payload(), self.settings.coding);
        let message =
            self.pairs.outgoing.insert(Outgoing { bytes, sizes, first: 0, packets, flow, next: NO_MESSAGE });
        let port = self.pairs.senders[flow as usize].port;
        let nic = &mut self.pairs.nics[port as usize];
        nic.starts.push(Reverse((at.ps(), nic.handed, message)));
        nic.handed += 1;
        self.timeline.schedule(at.ps(), Class::Start, port);
    }

    /// Messages whose time has come join their queue pairs.
    pub(super) fn start_messages(&mut self, p: u32, now: u64) {
        while let Some(&Reverse((at, _, message))) = self.pairs.nics[p as usize].starts.peek()
            && at <= now
        {
            self.pairs.nics[p as usize].starts.pop();
            if Dispatched::<T>::ask(|| self.dispatch_message(message, p, now)).is_none() {
                self.start_message(message, now);
            }
        }
        // All that begin at one instant are known before any of them has its turn.
        Dispatched::<T>::ask(|| self.dispatch_port(p, now));
    }

    /// A message joins its queue pair.
    fn start_message(&mut self, id: u32, now: u64) {
        let Outgoing { flow, bytes, .. } = self.pairs.outgoing[id];
        self.pull_for(flow, now);
        self.pairs.join(id);
        if let Some(credits) = self.credits.get_mut() {
            let Outgoing { packets, bytes, .. } = self.pairs.outgoing[id];
            credits.owe(flow, bytes + u64::from(packets) * self.settings.header.get());
        }
        let sender = &mut self.pairs.senders[flow as usize];
        if sender.una == sender.next {
            sender.heard = now;
            self.begin_anew(flow, now);
        }
        self.tell_of_message(flow, bytes, now);
        self.ready(flow, now);
    }

    /// Whether the window lets a queue pair with something to send do so.
    ///
    /// A window that has shrunk below what is in flight may leave fewer packets there than the receiver answers
    /// together, and both would wait: then one more goes out that asks for an answer.
    #[inline]
    pub(super) fn may_send(&self, flow: u32) -> bool {
        let sender = &self.pairs.senders[flow as usize];
        if self.credits.get().is_some_and(|credits| credits.is_broke(flow)) {
            return false;
        }
        if self.endpoint.holds(&sender.cc) {
            return false;
        }
        let in_flight = sender.in_flight();
        let full = self.settings.mtu.get();
        // What is sent again is in the window already.
        if sender.next - sender.una >= self.tracked(&sender.cc) && !sender.resends() {
            return false;
        }
        in_flight == 0
            || in_flight + full <= self.endpoint.window(&sender.cc)
            || (!sender.asked && in_flight < full * u64::from(self.settings.ack_every))
    }

    /// Packets from the first not acknowledged to the last sent that a queue pair may have.
    #[inline]
    fn tracked(&self, flow: &<T::Endpoint as Endpoint>::Flow) -> u32 {
        self.settings.in_flight.min(self.endpoint.tracked(flow))
    }

    /// The next packet of a queue pair that has one, transmitted by its leg from `start` on.
    pub(super) fn make_packet(&mut self, flow: u32, leg: u32, start: u64) -> u32 {
        let [plane, to] = self.plane_of(flow, leg);
        let sender = &mut self.pairs.senders[flow as usize];
        let fresh = sender.again >= sender.again_end && sender.resend.count == 0;
        let (sequence, message) = if fresh {
            (sender.next, sender.sending)
        } else {
            let sequence = if sender.again < sender.again_end {
                sender.again += 1;
                sender.again - 1
            } else {
                let sequence = sender.resend.first();
                sender.resend.take(sequence);
                sequence
            };
            if matches!(self.endpoint.recovery(), Recovery::Selective { .. }) {
                sender.resent.push(sequence);
            }
            self.account.totals.retransmissions += 1;
            let mut id = sender.oldest;
            while !self.pairs.outgoing[id].holds(sequence) {
                id = self.pairs.outgoing[id].next;
            }
            (sequence, id)
        };
        let facts = self.pairs.outgoing[message];
        let last = sequence + 1 == facts.first + facts.packets;
        if fresh {
            sender.next += 1;
            if last {
                sender.sending = facts.next;
            }
        }
        let wire = (facts.payload_of(sequence) + self.settings.header.get()) as u16;
        let (hash, path) = match self.settings.balancer {
            _ if sender.flags & flag::ROUTED != 0 => (sender.hash, 0),
            Balancer::Spray { paths } | Balancer::Source { paths } => {
                let (now, round) = (Time::from_ps(start), sender.round);
                let choice = PathChoice { now, round, paths, hash: sender.hash, plane };
                let path = match self.pairs.memories.of(flow) {
                    Some(memory) => self.endpoint.path_by(memory, &mut sender.cc, &choice),
                    None => self.endpoint.path(&mut sender.cc, &choice),
                };
                let path = path.unwrap_or_else(|| choice.in_turn(sender.round));
                (self.settings.balancer.path_hash(sender.hash, path), path)
            }
            Balancer::Reps { paths } => {
                let path = sender.recycler.as_mut().map_or(0, |recycler| recycler.next(paths));
                (combine(sender.hash, u64::from(path)), path)
            }
            _ => (sender.hash, 0),
        };
        sender.round = sender.round.wrapping_add(1);
        sender.sent += u64::from(wire);
        sender.data_sent += 1;
        self.endpoint.on_send(&mut sender.cc, Time::from_ps(start), wire);
        let gap = self.endpoint.gap(&sender.cc, wire).ps();
        (sender.gap, sender.last_wire) = (gap, wire);
        sender.eligible = start
            + if self.pairs.clocks.are_right() {
                gap
            } else {
                let nic = sender.port / self.fabric.topology.planes();
                self.pairs.clocks.real(nic, gap, &mut sender.rest)
            };
        let tracked = self.settings.in_flight.min(self.endpoint.tracked(&sender.cc));
        let most = sender.next - sender.una >= tracked;
        let probes = self.endpoint.recovery() == Recovery::Rack
            && sender.rack.as_mut().is_some_and(|rack| rack.sends(start, sequence, !fresh));
        sender.asked = last || most || probes || {
            let (window, in_flight) = (self.endpoint.window(&sender.cc), sender.in_flight());
            is_to_ask(self.settings.mtu.get(), self.settings.ack_every, window, in_flight, sender.unasked)
        };
        sender.unasked = if sender.asked { 0 } else { sender.unasked.saturating_add(1) };
        let packet = Packet {
            hash,
            next_time: 0,
            joined: start,
            stamp: start,
            next: NONE,
            flow: sender.peer_slot,
            sequence,
            detail: NONE,
            to,
            itinerary: Itinerary::DIRECT,
            wire,
            path,
            kind: Kind::Data,
            flags: sender.flags | if sender.asked { flag::ASKS } else { 0 },
            queue: sender.queue,
            color: sender.color,
        };
        if sender.watch == u64::MAX && self.endpoint.recovery() != Recovery::None {
            (sender.checkpoint, sender.checked) = (sequence, start);
            sender.resent.clear();
            sender.heard = sender.heard.max(start);
            sender.watch = (sender.heard + self.endpoint.timeout(&sender.cc).ps()).max(self.timeline.now());
            let due = sender.watch;
            self.schedule_flow(due, Class::Silence, flow);
        }
        if last && !self.settings.acknowledges() {
            // Nothing will be heard: what has been sent is done with.
            let sender = &mut self.pairs.senders[flow as usize];
            sender.una = sender.next;
            self.strike(flow);
        }
        let id = self.packets.insert(packet);
        if let Some(telemetry) = self.telemetry.get_mut() {
            telemetry.begin(id);
        }
        self.pay(flow, id, fresh);
        id
    }

    /// The plane that a leg of a sending half sends on, and the NIC port that its packets go to.
    #[inline]
    fn plane_of(&self, flow: u32, leg: u32) -> [u32; 2] {
        let to = self.pairs.senders[flow as usize].to;
        PlanesOf::<T>::ask(|| {
            let planes = self.fabric.topology.planes();
            let plane = self.pairs.senders[leg as usize].port % planes;
            [plane, to - to % planes + plane]
        })
        .unwrap_or([0, to])
    }

    /// Takes what data packet `id`, which is about to be sent, costs, and writes into it what its sender asks for.
    #[inline]
    fn pay(&mut self, flow: u32, id: u32, fresh: bool) {
        let Some(credits) = self.credits.get_mut() else { return };
        let (mtu, sender, packet) =
            (self.settings.mtu.get(), &self.pairs.senders[flow as usize], &mut self.packets[id]);
        let last = !sender.has_more();
        let again = u64::from(sender.resend.count + sender.again_end - sender.again) * mtu;
        let sent = Spent { sequence: packet.sequence, wire: packet.wire, fresh, last, again };
        let (asked, flags) = credits.spend(flow, mtu, &sent);
        packet.detail = asked;
        packet.flags |= flags | if last { flag::FINAL } else { 0 };
    }

    /// An acknowledgement has come back.
    pub(super) fn acknowledged(&mut self, id: u32, now: u64) {
        let packet = self.packets[id];
        let flow = packet.flow;
        let feedback = self.pairs.feedbacks.take(packet.detail);
        self.account.totals.acknowledgements += 1;
        self.packets.release(id);
        if let Some(telemetry) = self.telemetry.get_mut() {
            telemetry.set_aside(id);
        }
        let sender = &mut self.pairs.senders[flow as usize];
        sender.control_gone += 1;
        if sender.retired {
            return;
        }
        if let Some(telemetry) = self.telemetry.get_mut() {
            telemetry.read(flow);
        }
        self.pull_for(flow, now);
        let sender = &mut self.pairs.senders[flow as usize];
        let bytes = feedback.received.saturating_sub(sender.received);
        sender.received = sender.received.max(feedback.received);
        let copied = feedback.copied.wrapping_sub(sender.copied);
        // An older acknowledgement may come after a newer one.
        let copied = if copied > u32::MAX / 2 { 0 } else { copied };
        if copied > 0 {
            // What was sent again in vain had been taken for lost.
            sender.copied = feedback.copied;
            sender.lost = sender.lost.saturating_sub(u64::from(copied));
        }
        let expected = packet.sequence;
        let (una, end) = (sender.una, sender.beyond.end);
        if sender.resends() {
            self.take_back(flow, expected, &feedback);
        }
        let sender = &mut self.pairs.senders[flow as usize];
        if expected > sender.una {
            sender.beyond.clear_range(sender.una, expected.min(sender.beyond.end));
            sender.una = expected;
        }
        if bytes > 0 {
            sender.heard = now;
            sender.silent = 0;
        }
        if let Some(credits) = self.credits.get_mut() {
            credits.heard(flow);
        }
        // Of the packets told, those from the first not known to have arrived to the last sent.
        let below =
            |sequence: u32| u128::MAX.checked_shl(sequence.saturating_sub(feedback.base)).unwrap_or(0);
        let bits = feedback.bits & below(sender.una) & !below(sender.next);
        sender.beyond.mark_bits(sender.una, feedback.base, bits);
        let ack = Ack {
            now: Time::from_ps(now),
            bytes,
            packets: u32::from(feedback.packets),
            marked: u32::from(feedback.marked),
            expected,
            next: sender.next,
            rtt: Span::from_ps(now - packet.stamp),
            echo: feedback.echo,
            path: packet.path,
            plane: PlanesOf::<T>::ask(|| packet.to % self.fabric.topology.planes()).unwrap_or(0),
            in_flight: sender.in_flight(),
        };
        if let Some(recycler) = &mut sender.recycler {
            recycler.heard(packet.path, feedback.echo, feedback.packets - feedback.marked, now);
        }
        if let Some(telemetry) = self.telemetry.get() {
            let (before, hops) = telemetry.told(flow);
            self.endpoint.on_hops(&mut sender.cc, &ack, before, hops);
        }
        self.endpoint.on_ack(&mut sender.cc, &ack);
        self.remember(flow, &News::Acked(&ack));
        match self.endpoint.recovery() {
            Recovery::GoBackN if feedback.asks => self.go_back(flow, now, LossKind::Gap),
            Recovery::None | Recovery::GoBackN => {}
            Recovery::Selective { reorder } => self.find_gaps(flow, now, reorder),
            Recovery::Rack => {
                let told = Told {
                    stamp: packet.stamp,
                    una,
                    end,
                    beyond: bits.count_ones(),
                    copied: copied > 0,
                    news: bytes > u64::from(copied),
                };
                self.rack_heard(flow, now, &told);
            }
        }
        if self.pairs.senders[flow as usize].is_idle_with_more() {
            self.begin_anew(flow, now);
        }
        self.strike(flow);
        self.rearm(flow, now);
        self.ready(flow, now);
    }

    /// Forgets messages that are known to have arrived; a queue pair that is used once is done with its own.
    pub(super) fn strike(&mut self, flow: u32) {
        let Self { pairs, crossing, fabric, .. } = self;
        pairs.strike(flow, |to| match crossing {
            Some(crossing) => [crossing.number, crossing.home(fabric.nic_of(to))],
            None => [0; 2],
        });
    }

    /// A control packet has come back: the sending half, whose port has been pulled to `now`, unless that is done.
    pub(super) fn answered(&mut self, id: u32, now: u64) -> Option<u32> {
        self.account.totals.notices += 1;
        let flow = self.packets[id].flow;
        self.packets.release(id);
        let sender = &mut self.pairs.senders[flow as usize];
        sender.control_gone += 1;
        if sender.retired {
            return None;
        }
        self.pull_for(flow, now);
        Some(flow)
    }

    /// A notification of congestion has come.
    pub(super) fn notified(&mut self, id: u32, now: u64) {
        let Some(flow) = self.answered(id, now) else { return };
        let sender = &mut self.pairs.senders[flow as usize];
        self.endpoint.on_notify(&mut sender.cc, Time::from_ps(now));
        // A packet already paced keeps its time: DCQCN's increases act from one transmission to the next, and a cut that
        // acted in between would outweigh them.
        let waits = sender.turn == Turn::Paced;
        self.rearm(flow, now);
        if !waits {
            self.ready(flow, now);
        }
    }

    /// The transport's timer.
    pub(super) fn timer(&mut self, flow: u32, now: u64) {
        let sender = &mut self.pairs.senders[flow as usize];
        if sender.timer != now {
            return;
        }
        self.pull_for(flow, now);
        let sender = &mut self.pairs.senders[flow as usize];
        sender.timer = u64::MAX;
        self.endpoint.on_timer(&mut sender.cc, Time::from_ps(now));
        self.rearm(flow, now);
        self.ready(flow, now);
    }

    /// Sets the endpoint's timer to what it says, and sends what it wants to send of its own. A prober that has nothing to send waits for
    /// its next message, or a path that stays broken would keep a run going that has ended.
    #[inline]
    pub(super) fn rearm(&mut self, flow: u32, now: u64) {
        let sender = &mut self.pairs.senders[flow as usize];
        let rests = ProbesOf::<T>::ask(|| sender.una == sender.limit).unwrap_or(false);
        if let Some(due) = self.endpoint.timer(&sender.cc).filter(|_| !rests) {
            let due = due.ps().max(now);
            if sender.timer != due {
                sender.timer = due;
                self.schedule_flow(due, Class::Timer, flow);
            }
        }
        self.send_probes(flow, now);
    }
}

#[cfg(test)]
mod tests {
    use super::is_to_ask;

    /// Packets of 4,000 B, four answered together: every packet of a window of 5 asks, every second of one of 8, every third of one of
    /// 15; a window of 16 has four answers under way by itself.
    #[test]
    fn each_quarter_of_a_window_of_few_packets_asks() {
        let ask_at = |packets: u64, every| {
            (0..100)
                .find(|&unasked| is_to_ask(4_000, every, packets * 4_000, 0, unasked))
                .map(|before| before + 1)
        };
        let found = [1, 4, 5, 7, 8, 11, 12, 15, 16, 100].map(|packets| ask_at(packets, 4));
        let due = [1, 1, 1, 1, 2, 2, 3, 3].map(Some);
        assert_eq!((&found[..8], &found[8..]), (&due[..], &[None, None][..]));
        assert_eq!((ask_at(63, 16), ask_at(64, 16), ask_at(3, 1)), (Some(15), None, Some(1)));
        assert_eq!(
            (ask_at(5, 0), ask_at(u64::MAX / 4_000, 16)),
            (None, None),
            "no acknowledgements, no window"
        );
    }

    /// The packet that exhausts a window asks where fewer are in flight than are answered together.
    #[test]
    fn the_packet_that_exhausts_a_window_asks() {
        let window = 66_000;
        assert!(is_to_ask(4_000, 17, window, 64_000, 0) && !is_to_ask(4_000, 16, window, 64_000, 0));
        assert!(!is_to_ask(4_000, 17, window, 60_000, 0));
    }
}
