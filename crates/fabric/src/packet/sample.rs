//! Queues over time: at every multiple of an interval what each port holds, and what it has sent since the last.
//!
//! A sample is taken before the first event after its instant: ports are then advanced to the instant, which changes nothing
//! that happens (they would be at their next touch). Ports that hold nothing and have sent nothing are left out, and a
//! quiet network is not looked at until something happens. Samples wait here until they are taken. Of several processes each
//! looks at the ports that it owns, before it starts what is due at ports that are away and no event of its own has seen.

use windtunnel_kernel::Time;
use windtunnel_topology::{LinkId, SwitchId};

use super::engine::Engine;
use super::sampler::QueueSample;
use super::transport::Transport;

impl<T: Transport> Engine<T> {
    /// Takes the samples that are due before an event at `time`.
    #[inline]
    pub(super) fn sample_before(&mut self, time: u64) {
        if time > self.account.sampler.due {
            self.sample(time);
        }
    }

    #[cold]
    fn sample(&mut self, time: u64) {
        while self.account.sampler.due < time {
            let at = self.account.sampler.due;
            if self.account.sampler.ports.due == at {
                let quiet = self.sample_ports(at);
                self.account.sampler.ports.go_on(quiet, time);
            }
            if self.account.sampler.pairs.due == at {
                let quiet = self.sample_pairs(at);
                self.account.sampler.pairs.go_on(quiet, time);
            }
            let sampler = &mut self.account.sampler;
            sampler.due = sampler.ports.due.min(sampler.pairs.due);
        }
    }

    /// Looks at all ports; whether there was nothing to see.
    fn sample_ports(&mut self, at: u64) -> bool {
        let own = self.crossing.as_ref().map_or(0, |crossing| crossing.number);
        let before = self.account.sampler.found.len();
        let nics = self.pairs.nics.len() as u32;
        for p in 0..nics {
            if self.home(p) != own {
                continue;
            }
            let planes = self.fabric.topology.planes();
            let link = self.fabric.topology.nic_link(p / planes, p % planes);
            self.sample_port(p, link, at);
        }
        for switch in 0..self.fabric.switches.len() as u32 {
            if self.home_of_switch(switch) != own {
                continue;
            }
            let (first, count) =
                (self.fabric.switches[switch as usize].first, self.fabric.switches[switch as usize].count);
            for port in 0..count {
                if let Some(link) = self.fabric.topology.out_link(SwitchId(switch), port) {
                    self.sample_port(first + port, link, at);
                }
            }
        }
        self.account.sampler.found.len() == before
    }

    fn sample_port(&mut self, p: u32, link: LinkId, at: u64) {
        self.settle_port(p, at);
        let port = &self.fabric.ports[p as usize];
        let bytes = if self.queues.on || port.free_at > at { port.held } else { 0 };
        let last = &mut self.account.sampler.sent[p as usize];
        let sent = port.counters.bytes - *last;
        if bytes > 0 || sent > 0 {
            *last = port.counters.bytes;
            self.account.sampler.found.push((p, QueueSample { at: Time::from_ps(at), link, bytes, sent }));
        }
    }

    /// Appends the samples since the last call, by time and then by port.
    pub fn take_samples(&mut self, samples: &mut Vec<QueueSample>) {
        samples.extend(self.account.sampler.found.drain(..).map(|(_, sample)| sample));
    }

    /// Appends the samples of instants before `clock`, with their ports, by time and then by port.
    pub(super) fn take_samples_before(&mut self, clock: u64, samples: &mut Vec<(u32, QueueSample)>) {
        self.sample_before(clock);
        let ripe = self.account.sampler.found.partition_point(|(_, sample)| sample.at.ps() < clock);
        samples.extend(self.account.sampler.found.drain(..ripe));
    }
}
