//! What tests of the packet engine share: fabrics, a queue pair for each message, running to the end.

use std::sync::Arc;

use windtunnel_fabric::packet::transport::Transport;
use windtunnel_fabric::packet::{Completion, Engine, OpenRequest, PacketSettings};
use windtunnel_kernel::{BitRate, Bytes, Time};
use windtunnel_topology::{ClosSpec, HostSpec, Tier, Topology, TopologySpec};

/// Hosts of one NIC each on one switch.
pub fn star(hosts: u32, gbps: u64, length_mm: u64) -> Arc<Topology> {
    let rate = BitRate::from_gbps(gbps);
    let tier = Tier { length_mm, ..Tier::new(hosts, rate) };
    let spec = ClosSpec::new(hosts, HostSpec::new(1, 1, rate), vec![tier]);
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a star"))
}

/// Two leaves of `down` hosts each, with one cable of 200 m at 400 Gbps to each of `up` spines.
pub fn two_leaves(down: u32, up: u32) -> Arc<Topology> {
    let rate = BitRate::from_gbps(400);
    let far = |tier: Tier| Tier { length_mm: 200_000, ..tier };
    let leaf = Tier { oversubscription: f64::from(down) / f64::from(up), ..Tier::new(down, rate) };
    let spec = ClosSpec::new(2 * down, HostSpec::new(1, 1, rate), vec![far(leaf), far(Tier::new(2, rate))]);
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fabric"))
}

pub fn engine<T: Transport>(topology: &Arc<Topology>, settings: PacketSettings, transport: T) -> Engine<T> {
    Engine::new(topology.clone(), settings, transport).expect("settings that work")
}

/// Opens a queue pair for one message.
pub fn send<T: Transport>(engine: &mut Engine<T>, at: u64, from: u32, to: u32, bytes: u64, token: u64) {
    let flow = engine.open(&OpenRequest { from, to, entropy: token as u32, keep: false, route: [&[], &[]] });
    engine.send(Time::from_ps(at), flow, Bytes::new(bytes), token);
}

/// Opens a queue pair that stays; the sender names the message.
pub fn send_on<T: Transport>(engine: &mut Engine<T>, at: u64, from: u32, to: u32, bytes: u64) {
    let request = OpenRequest { from, to, entropy: 0, keep: true, route: [&[], &[]] };
    let flow = engine.open(&request);
    engine.send(Time::from_ps(at), flow, Bytes::new(bytes), u64::from(from));
}

/// Runs to the end; completions in order of time.
pub fn drain<T: Transport>(engine: &mut Engine<T>) -> Vec<Completion> {
    let mut done = Vec::new();
    while engine.next_time() != Time::NEVER {
        engine.run(Time::NEVER, 1 << 20, &mut done);
    }
    assert_eq!(engine.packets_live(), 0, "every packet is gone in the end");
    done
}
