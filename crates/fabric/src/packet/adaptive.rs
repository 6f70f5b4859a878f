//! Adaptive routing: which port of a switch a packet takes that goes where the least waits, or where a balancer of another crate says; and
//! packets that take all equal ports in turn.

use windtunnel_kernel::Time;
use windtunnel_kernel::random::combine;
use windtunnel_topology::{PortSet, SwitchId};

use super::engine::{AtPorts, Engine};
use super::packets::{Packet, flag};
use super::settings::Balancer;
use super::transport::{BalancerPacket, BalancerPort, BalancerSwitch, Feature, SwitchPolicy, Transport};

const ADAPTIVE: u64 = 0x6164_6170;
const TURN: u64 = 0x7475_726e;

/// 64 random bits of a packet at a switch.
fn adaptive_draw(packet: &Packet, switch: u32) -> u64 {
    combine(packet.hash ^ ADAPTIVE, u64::from(packet.sequence) << 32 | u64::from(switch))
}

impl<T: Transport> Engine<T> {
    /// The port of `switch` that a packet takes which came by `from`, by [`Balancer::sees_ports`]; `None` if it cannot go on.
    pub(super) fn choose_port(&mut self, from: u32, switch: u32, id: u32, now: u64) -> Option<u32> {
        let packet = &self.packets[id];
        if packet.flags & flag::FRESH != 0 && self.lead.rules.is_empty() {
            self.show_queues(switch, packet.to, packet.hash, now);
        }
        let packet = &mut self.packets[id];
        let (at, first) = (SwitchId(switch), self.fabric.switches[switch as usize].first);
        let target = &self.fabric.targets[packet.to as usize];
        let fresh = packet.flags & flag::FRESH != 0;
        packet.flags &= !flag::FRESH;
        let held = |port: u32| u64::from(self.fabric.ports[(first + port) as usize].held);
        let mut ports = std::mem::take(&mut self.lead.balance.ports);
        let forwards = match &mut self.lead.forwarder {
            Some(forwarder) => {
                if fresh {
                    packet.itinerary = forwarder.enter(at, target, packet.hash, held);
                }
                let (verdict, itinerary) = forwarder.equal_cost(at, target, packet.itinerary, &mut ports);
                packet.itinerary = itinerary;
                verdict.forwards()
            }
            None => {
                if fresh {
                    packet.itinerary = self.fabric.topology.enter(at, target, packet.hash, held);
                }
                packet.itinerary = self.fabric.topology.equal_cost(at, target, packet.itinerary, &mut ports);
                true
            }
        };
        let count = ports.len() as usize;
        let chosen = match count {
            _ if !forwards => None,
            0 => None,
            1 => Some(first + ports.nth(0)),
            _ if self.settings.balancer == Balancer::RoundRobin => {
                let turns = &mut self.lead.balance.turns;
                while turns.len() <= from as usize {
                    turns.push(combine(combine(TURN, self.settings.seed), turns.len() as u64) as u32);
                }
                let turn = &mut turns[from as usize];
                *turn = turn.wrapping_add(1);
                Some(first + ports.nth(*turn % count as u32))
            }
            _ => {
                let asked = AtPorts::<T>::ask(|| self.balanced(switch, id, &ports, now));
                asked.or_else(|| self.least_of(switch, id, &ports, now))
            }
        };
        self.lead.balance.ports = ports;
        chosen
    }

    /// The one of several ports that holds the fewest bytes.
    fn least_of(&mut self, switch: u32, id: u32, ports: &PortSet, now: u64) -> Option<u32> {
        let first = self.fabric.switches[switch as usize].first;
        let draw = adaptive_draw(&self.packets[id], switch);
        let start = ((u128::from(draw) * u128::from(ports.len())) >> 64) as usize;
        let turn = ports.iter().skip(start).chain(ports.iter().take(start));
        let mut best = (u32::MAX, None);
        for port in turn {
            let load = self.load(first + port, now);
            if load < best.0 {
                best = (load, Some(first + port));
                if load == 0 {
                    break;
                }
            }
        }
        best.1
    }

    /// The one of several ports that a balancer of another crate chooses.
    fn balanced(&mut self, switch: u32, id: u32, ports: &PortSet, now: u64) -> u32 {
        let first = self.fabric.switches[switch as usize].first;
        let mut known = std::mem::take(&mut self.lead.balance.known);
        known.clear();
        for port in ports.iter().map(|port| first + port) {
            let held = self.load(port, now);
            let rate = self.fabric.kind(port).rate;
            known.push(BalancerPort { port, rate, held });
        }
        let packet = &self.packets[id];
        let asked = BalancerPacket {
            flow: packet.hash,
            sequence: packet.sequence,
            wire: packet.wire,
            control: packet.kind.is_control(),
            marked: packet.flags & flag::MARKED != 0,
            draw: adaptive_draw(packet, switch),
        };
        let at = BalancerSwitch { switch, now: Time::from_ps(now) };
        let place = self.policy.choose(&at, &asked, &known) % known.len();
        let port = known[place].port;
        self.lead.balance.known = known;
        port
    }

    /// Bytes that a switch's port holds now.
    #[inline]
    fn load(&mut self, p: u32, now: u64) -> u32 {
        if self.queues.on {
            self.serve(p, now);
            return self.fabric.ports[p as usize].held;
        }
        if self.fabric.ports[p as usize].waits() {
            self.advance(p, now);
        }
        let port = &self.fabric.ports[p as usize];
        if port.free_at <= now { 0 } else { port.held }
    }
}
