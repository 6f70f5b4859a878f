//! What a sending half does about packets that do not arrive: gaps, refusals, silence.

use windtunnel_kernel::Time;

use super::engine::Engine;
use super::packets::{Packet, flag};
use super::pairs::Pairs;
use super::receiver::Feedback;
use super::timeline::Class;
use super::transport::{Endpoint, Loss, LossKind, Nack, News, Recovery, Transport};

impl<T: Transport> Engine<T> {
    /// A packet has arrived without its payload.
    pub(super) fn nacked(&mut self, id: u32, now: u64) {
        let Packet { sequence, path, flags, stamp, to, .. } = self.packets[id];
        let Some(flow) = self.answered(id, now) else { return };
        if let Some(credits) = self.credits.get_mut() {
            credits.nacked(flow, self.settings.mtu.get());
        }
        let sender = &mut self.pairs.senders[flow as usize];
        sender.heard = now;
        // It may have been sent again meanwhile, after a time-out.
        let stale = sender.rack.as_mut().is_some_and(|rack| !rack.strike(stamp, sequence));
        let known =
            stale || sequence < sender.una || sender.beyond.has(sequence) || sender.is_pending(sequence);
        if !known {
            sender.resend.add(sender.una, sequence);
            let bytes = self.wire_bytes(flow, std::iter::once(sequence));
            let sender = &mut self.pairs.senders[flow as usize];
            sender.lost = (sender.lost + bytes).min(sender.sent.saturating_sub(sender.received));
            let nack = Nack {
                now: Time::from_ps(now),
                sent: Time::from_ps(stamp),
                sequence,
                next: sender.next,
                bytes,
                path,
                plane: to % self.fabric.topology.planes(),
                echo: flags & flag::MARKED != 0,
                last_hop: flags & flag::LAST_HOP != 0,
                in_flight: sender.in_flight(),
            };
            self.endpoint.on_nack(&mut sender.cc, &nack);
            self.remember(flow, &News::Trimmed(&nack));
        }
        self.rearm(flow, now);
        self.ready(flow, now);
    }

    /// Tells a sending half of a loss.
    pub(super) fn lose(&mut self, flow: u32, loss: &Loss) {
        self.endpoint.on_loss(&mut self.pairs.senders[flow as usize].cc, loss);
        self.remember(flow, &News::Lost(loss));
    }

    /// What is kept of the pair of NICs of a sending half, and the half, learn of something.
    #[inline]
    pub(super) fn remember(&mut self, flow: u32, news: &News<'_>) {
        let Pairs { senders, memories, .. } = &mut self.pairs;
        if let Some(memory) = memories.of(flow) {
            self.endpoint.remember(memory, &mut senders[flow as usize].cc, news);
        }
    }

    /// Bytes on the wire of packets of a queue pair in rising order, none of them acknowledged in order.
    pub(super) fn wire_bytes(&self, flow: u32, sequences: impl Iterator<Item = u32>) -> u64 {
        self.pairs.wire_bytes(flow, sequences, self.settings.header.get())
    }

    /// An acknowledgement tells of packets that were taken for lost and have not been sent again: they were not.
    #[cold]
    pub(super) fn take_back(&mut self, flow: u32, expected: u32, feedback: &Feedback) {
        let sender = &self.pairs.senders[flow as usize];
        let told = (0..u128::BITS).filter(|bit| feedback.bits >> bit & 1 == 1).map(|bit| feedback.base + bit);
        let told = told.filter(|&sequence| sequence >= expected.max(sender.una) && sequence < sender.next);
        let found = (sender.una..expected)
            .chain(told)
            .filter(|&sequence| sender.is_pending(sequence) && !sender.beyond.has(sequence));
        let bytes = self.wire_bytes(flow, found);
        let sender = &mut self.pairs.senders[flow as usize];
        sender.lost = sender.lost.saturating_sub(bytes);
    }

    /// Marks as lost what lies `reorder` packets or more before the highest that has arrived.
    pub(super) fn find_gaps(&mut self, flow: u32, now: u64, reorder: u32) {
        let sender = &mut self.pairs.senders[flow as usize];
        let Some(end) = sender.beyond.end.checked_sub(reorder) else { return };
        let from = sender.una.max(sender.again_end);
        let missing = |&sequence: &u32| !sender.beyond.has(sequence) && !sender.resend.has(sequence);
        if !(from..end).any(|sequence| missing(&sequence)) {
            return;
        }
        let sender = &self.pairs.senders[flow as usize];
        let missing = |&sequence: &u32| !sender.beyond.has(sequence) && !sender.resend.has(sequence);
        let bytes = self.wire_bytes(flow, (from..end).filter(missing));
        let sender = &mut self.pairs.senders[flow as usize];
        sender.lost = (sender.lost + bytes).min(sender.sent - sender.received);
        if sender.again >= sender.again_end {
            sender.again = from;
        }
        sender.again_end = end;
        let (sequence, next) = (from, sender.next);
        let loss = Loss { now: Time::from_ps(now), kind: LossKind::Gap, sequence, next, bytes, again: false };
        self.lose(flow, &loss);
    }

    /// Everything from the first packet missing on is sent again.
    pub(super) fn go_back(&mut self, flow: u32, now: u64, kind: LossKind) {
        let sender = &mut self.pairs.senders[flow as usize];
        let bytes = sender.in_flight();
        sender.lost = sender.sent - sender.received.min(sender.sent);
        (sender.again, sender.again_end) = (sender.una, sender.next);
        sender.resend.clear();
        if let Some(rack) = &mut sender.rack {
            rack.clear();
        }
        let (sequence, next) = (sender.una, sender.next);
        let loss = Loss { now: Time::from_ps(now), kind, sequence, next, bytes, again: false };
        self.lose(flow, &loss);
    }

    /// A sending half has something to send and nothing on its way. Where credit is granted it may begin anew, and one without any does
    /// not wait for ever for a PULL that was lost.
    #[inline]
    pub(super) fn begin_anew(&mut self, flow: u32, now: u64) {
        let Some(credits) = self.credits.get_mut() else { return };
        let sender = &mut self.pairs.senders[flow as usize];
        credits.restart(flow, sender.next);
        if sender.watch == u64::MAX && credits.is_broke(flow) {
            sender.heard = now;
            sender.watch = now + self.endpoint.timeout(&sender.cc).ps();
            let due = sender.watch;
            self.schedule_flow(due, Class::Silence, flow);
        }
    }

    /// Looks whether anything was heard since the watch was set.
    pub(super) fn silence(&mut self, flow: u32, now: u64) {
        let sender = &mut self.pairs.senders[flow as usize];
        if sender.watch != now {
            return;
        }
        let waits = self.credits.get().is_some() && sender.has_more();
        if sender.una == sender.next && !waits {
            // Nothing is under way; the next packet sets the watch again.
            sender.watch = u64::MAX;
            return;
        }
        let mut patience = self.endpoint.timeout(&sender.cc).ps();
        if let Some(credits) = self.credits.get() {
            patience = credits.patience(flow, sender.in_flight(), patience);
        }
        let due = sender.heard + patience;
        if due > now {
            // With a gap that no later packet shows, progress elsewhere must not hide it.
            let aged = match self.endpoint.recovery() {
                Recovery::TIMER => now >= sender.checked + patience,
                Recovery::Selective { .. } if now < sender.checked + patience => false,
                Recovery::Selective { .. } if sender.una >= sender.checkpoint => {
                    (sender.checkpoint, sender.checked) = (sender.next, now);
                    sender.resent.clear();
                    false
                }
                // One that is sent again and lost again: what was first sent after it has arrived.
                Recovery::Selective { .. } => sender.beyond.end > sender.checkpoint,
                Recovery::Rack | Recovery::GoBackN | Recovery::None => false,
            };
            let mut due = due;
            if self.endpoint.recovery() == Recovery::Rack {
                self.pull_for(flow, now);
                self.probe(flow, now);
                due = due.min(self.find_late(flow, now));
            }
            self.pairs.senders[flow as usize].watch = due;
            self.schedule_flow(due, Class::Silence, flow);
            if aged {
                self.find_aged(flow, now);
            } else if self.endpoint.recovery() == Recovery::Rack {
                self.rearm(flow, now);
                self.ready(flow, now);
            }
            return;
        }
        self.pull_for(flow, now);
        let sender = &mut self.pairs.senders[flow as usize];
        self.account.totals.time_out(now - sender.heard);
        sender.silent = sender.silent.saturating_add(1);
        if sender.silent >= self.endpoint.retries() && !sender.aside && now >= self.changes.last {
            let planes = self.fabric.topology.planes();
            let nics = [sender.port / planes, sender.to / planes];
            self.account.give_up(nics);
            if let Some(crossing) = &self.crossing {
                crossing.calls(now);
            }
            return;
        }
        if let Some(recycler) = &mut self.pairs.senders[flow as usize].recycler {
            recycler.failed(now);
        }
        self.go_back(flow, now, LossKind::Timeout);
        if let Some(credits) = self.credits.get_mut() {
            credits.rescue(flow);
        }
        let sender = &mut self.pairs.senders[flow as usize];
        sender.heard = now;
        (sender.checkpoint, sender.checked) = (sender.una, now);
        let due = now + self.endpoint.timeout(&sender.cc).ps();
        sender.watch = due;
        self.schedule_flow(due, Class::Silence, flow);
        self.rearm(flow, now);
        self.ready(flow, now);
    }

    /// Takes for lost what was sent a time-out ago and is not known to have arrived.
    pub(super) fn find_aged(&mut self, flow: u32, now: u64) {
        let sender = &mut self.pairs.senders[flow as usize];
        sender.resent.sort_unstable();
        let resent = std::mem::take(&mut sender.resent);
        let waiting = sender.again..sender.again_end;
        let (from, end) = (sender.una, sender.checkpoint);
        let waited = now - sender.checked;
        (sender.checkpoint, sender.checked) = (sender.next, now);
        let aged = |sequence: &u32| {
            !sender.beyond.has(*sequence)
                && !waiting.contains(sequence)
                && !sender.resend.has(*sequence)
                && resent.binary_search(sequence).is_err()
        };
        let aged: Vec<u32> = (from..end).filter(aged).collect();
        let Some(&sequence) = aged.first() else { return };
        self.pull_for(flow, now);
        self.account.totals.time_out(waited);
        let bytes = self.wire_bytes(flow, aged.iter().copied());
        let sender = &mut self.pairs.senders[flow as usize];
        for sequence in aged {
            sender.resend.add(sender.una, sequence);
        }
        sender.lost = (sender.lost + bytes).min(sender.sent.saturating_sub(sender.received));
        let (kind, next) = (LossKind::Timeout, sender.next);
        let loss = Loss { now: Time::from_ps(now), kind, sequence, next, bytes, again: false };
        self.lose(flow, &loss);
        self.rearm(flow, now);
        self.ready(flow, now);
    }
}
