//! Where a switch asks a stage of another crate: see [`transport::SwitchStage`](super::transport::SwitchStage).

use windtunnel_kernel::{Span, Time};

use super::engine::{AtQueues, Engine};
use super::packets::{Kind, flag};
use super::queue_settings::MOST_QUEUES;
use super::transport::{
    Feature, Own, StagePacket, StagePort, StageQueue, StageVerdict, SwitchPolicy, Transport,
};

impl<T: Transport> Engine<T> {
    /// Whether anything is asked at queues: then a port is to be looked at as soon as can be, for a stage may know more than it does.
    #[inline]
    pub(super) fn asks_stage() -> bool {
        AtQueues::<T>::ask(|| ()).is_some()
    }

    /// Whether it is asked about a packet at port `p`: data and probes at switches.
    #[inline]
    fn is_staged(&self, p: u32, id: u32) -> bool {
        let kind = self.packets[id].kind;
        self.fabric.is_of_switch(p) && (!kind.is_control() || kind == Kind::Probe)
    }

    fn stage_writes(&mut self, id: u32, value: u32) {
        if self.packets[id].kind.is_own() {
            self.packets[id].detail = value;
        }
    }

    fn stage_view(&self, p: u32, id: u32, now: u64, held: u32) -> (StagePort, StagePacket) {
        let (port, packet) = (&self.fabric.ports[p as usize], &self.packets[id]);
        let at = StagePort {
            port: p,
            switch: port.owner,
            rate: self.fabric.kinds[usize::from(port.kind)].rate,
            now: Time::from_ps(now),
            held,
        };
        let what = StagePacket {
            wire: packet.wire,
            queue: packet.queue,
            marked: packet.flags & flag::MARKED != 0,
            waited: Span::ZERO,
            age: Span::from_ps(now.saturating_sub(packet.stamp)),
            own: packet.kind.is_own().then_some(Own { kind: packet.sequence as u8, value: packet.detail }),
        };
        (at, what)
    }

    fn stage_mark(&mut self, p: u32, id: u32) {
        self.fabric.ports[p as usize].counters.marks += 1;
        self.account.totals.marks += 1;
        self.packets[id].flags |= flag::MARKED;
    }

    /// A data packet is to join a queue of switch port `p`, which has been brought to `now`; whether it goes no further.
    #[inline]
    pub(super) fn stage_takes(&mut self, p: u32, id: u32, now: u64) -> bool {
        AtQueues::<T>::ask(|| self.is_staged(p, id) && self.ask_to_join(p, id, now)).unwrap_or(false)
    }

    fn ask_to_join(&mut self, p: u32, id: u32, now: u64) -> bool {
        let port = &self.fabric.ports[p as usize];
        // Without several queues what a port holds is not brought down before the next packet begins.
        let held = if port.free_at <= now && !port.waits() && !self.queues.on { 0 } else { port.held };
        let (at, packet) = self.stage_view(p, id, now, held);
        match self.policy.enqueue(&at, &packet) {
            StageVerdict::Keep => false,
            StageVerdict::Mark => {
                self.stage_mark(p, id);
                false
            }
            StageVerdict::Drop => {
                self.drop_packet(p, id);
                true
            }
            StageVerdict::Trim => {
                self.trim_to_header(p, id, now);
                true
            }
            StageVerdict::Queue(queue) => {
                self.packets[id].queue = self.queues.nearest(queue);
                false
            }
            StageVerdict::Write(value) => {
                self.stage_writes(id, value);
                false
            }
        }
    }

    /// A data packet's transmission is to begin at `start`, while its port holds `besides` it; whether it is dropped
    /// instead, which is for the caller to do.
    #[inline]
    pub(super) fn stage_drops(
        &mut self,
        p: u32,
        id: u32,
        start: u64,
        besides: impl FnOnce(&Self) -> u32,
    ) -> bool {
        AtQueues::<T>::ask(|| {
            let held = besides(self);
            self.is_staged(p, id) && self.ask_to_leave(p, id, start, held)
        })
        .unwrap_or(false)
    }

    fn ask_to_leave(&mut self, p: u32, id: u32, start: u64, held: u32) -> bool {
        let (at, packet) = self.stage_view(p, id, start, held);
        let packet = StagePacket { waited: Span::from_ps(start - self.packets[id].joined), ..packet };
        match self.policy.dequeue(&at, &packet) {
            StageVerdict::Keep | StageVerdict::Queue(_) => false,
            StageVerdict::Mark => {
                self.stage_mark(p, id);
                false
            }
            StageVerdict::Drop | StageVerdict::Trim => true,
            StageVerdict::Write(value) => {
                self.stage_writes(id, value);
                false
            }
        }
    }

    /// The data queue of port `p` that a stage wants served at `start`, if it says so.
    #[inline]
    pub(super) fn stage_choice(&mut self, p: u32, start: u64) -> Option<usize> {
        AtQueues::<T>::ask(|| self.ask_for_next(p, start)).flatten()
    }

    fn ask_for_next(&mut self, p: u32, start: u64) -> Option<usize> {
        let mut ready = [StageQueue { queue: 0, held: 0, wire: 0, waited: Span::ZERO }; MOST_QUEUES];
        let mut count = 0;
        for (queue, head, held) in self.queues.startable(p, start, &self.packets) {
            let packet = &self.packets[head];
            let waited = Span::from_ps(start - packet.joined);
            ready[count] = StageQueue { queue, held, wire: packet.wire, waited };
            count += 1;
        }
        if count == 0 {
            return None;
        }
        let port = &self.fabric.ports[p as usize];
        let at = StagePort {
            port: p,
            switch: port.owner,
            rate: self.fabric.kinds[usize::from(port.kind)].rate,
            now: Time::from_ps(start),
            held: port.held,
        };
        let place = self.policy.next(&at, &ready[..count])?;
        Some(usize::from(ready[place.min(count - 1)].queue))
    }
}
