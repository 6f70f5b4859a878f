//! When the engine looks for packets that [RACK](super::rack) holds for lost, and what it does then.

use windtunnel_kernel::Time;

use super::engine::Engine;
use super::rack::Told;
use super::timeline::Class;
use super::transport::{Endpoint, Loss, LossKind, Transport};

impl<T: Transport> Engine<T> {
    /// An acknowledgement of a queue pair that finds losses by time.
    pub(super) fn rack_heard(&mut self, flow: u32, now: u64, told: &Told) {
        let sender = &mut self.pairs.senders[flow as usize];
        let next = sender.next;
        let Some(rack) = &mut sender.rack else { return };
        if rack.heard(now, told, next) {
            // What was taken for lost when the probe was made was lost.
            let loss = Loss {
                now: Time::from_ps(now),
                kind: LossKind::Gap,
                sequence: next - 1,
                next,
                bytes: 0,
                again: false,
            };
            rack.finds(now, &[(now, next - 1)], next);
            self.lose(flow, &loss);
        }
        let due = self.find_late(flow, now);
        let sender = &mut self.pairs.senders[flow as usize];
        if due < sender.watch {
            sender.watch = due;
            self.schedule_flow(due, Class::Silence, flow);
        }
    }

    /// Takes for lost what is overdue; when it has to look again if nothing is heard.
    pub(super) fn find_late(&mut self, flow: u32, now: u64) -> u64 {
        let sender = &mut self.pairs.senders[flow as usize];
        let Some(rack) = &mut sender.rack else { return u64::MAX };
        let mut lost = Vec::new();
        let mut due = rack.find(now, sender.una, &sender.beyond, &mut lost);
        if !lost.is_empty() {
            let again = rack.finds(now, &lost, sender.next);
            let mut lost: Vec<u32> = lost.into_iter().map(|(_, sequence)| sequence).collect();
            lost.sort_unstable();
            let bytes = self.wire_bytes(flow, lost.iter().copied());
            let sender = &mut self.pairs.senders[flow as usize];
            sender.lost = (sender.lost + bytes).min(sender.sent.saturating_sub(sender.received));
            let (kind, sequence, next) = (LossKind::Gap, lost[lost.len() - 1], sender.next);
            for sequence in lost {
                sender.resend.add(sender.una, sequence);
            }
            let loss = Loss { now: Time::from_ps(now), kind, sequence, next, bytes, again };
            self.lose(flow, &loss);
        }
        let sender = &self.pairs.senders[flow as usize];
        if let Some(rack) = &sender.rack
            && self.has_tail(flow)
        {
            due = due.min(rack.probes_at(sender.heard, self.endpoint.timeout(&sender.cc).ps()));
        }
        due.max(now + 1)
    }

    /// Whether something is under way, none of it known to have arrived or to be lost, so that only silence would show a loss.
    fn has_tail(&self, flow: u32) -> bool {
        let sender = &self.pairs.senders[flow as usize];
        let mends = sender.rack.as_ref().is_some_and(|rack| sender.una < rack.recover);
        self.credits.get().is_none()
            && sender.una < sender.next
            && sender.beyond.end <= sender.una
            && !sender.resends()
            && !mends
    }

    /// Sends the last packet once more if the tail has been silent for long enough. The NIC port has been pulled to `now`.
    pub(super) fn probe(&mut self, flow: u32, now: u64) {
        let tail = self.has_tail(flow);
        let sender = &mut self.pairs.senders[flow as usize];
        let timeout = self.endpoint.timeout(&sender.cc).ps();
        let Some(rack) = &mut sender.rack else { return };
        if !tail || now < rack.probes_at(sender.heard, timeout) {
            return;
        }
        let last = sender.next - 1;
        rack.sent.retain(|&(_, sequence)| sequence != last);
        (rack.probe, rack.probed) = (u64::MAX - 1, true);
        let bytes = self.wire_bytes(flow, std::iter::once(last));
        let sender = &mut self.pairs.senders[flow as usize];
        sender.resend.add(sender.una, last);
        sender.lost = (sender.lost + bytes).min(sender.sent.saturating_sub(sender.received));
        self.ready(flow, now);
    }
}
