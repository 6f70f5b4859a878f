//! Background traffic: its load, its independence of everything else, and that nobody waits for it.

use std::sync::Arc;

use crate::networks::{arrivals, message};
use windtunnel_fabric::packet::transport::{Dctcp, NoTransport};
use windtunnel_fabric::packet::{
    Background, FabricPart, Impairments, PacketNetwork, PacketSettings, PartChange, PartState, Partners,
    Sizes,
};
use windtunnel_fabric::{Departure, Network};
use windtunnel_kernel::{BitRate, Span, Time};
use windtunnel_topology::{ClosSpec, HostSpec, Names, Tier, Topology, TopologySpec};

/// Four leaves of four hosts.
fn fabric() -> Arc<Topology> {
    let rate = BitRate::from_gbps(400);
    let spec = ClosSpec::new(16, HostSpec::new(1, 1, rate), vec![Tier::new(4, rate), Tier::new(4, rate)]);
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("two tiers"))
}

fn settings(load: f64, partners: Partners, seed: u64) -> PacketSettings {
    let sizes = Sizes::parse("0 0\n1000 0.5\n8000 1").expect("a distribution");
    let between = (Time::ZERO, Time::NEVER);
    PacketSettings {
        seed,
        background: vec![Background { sizes, load, partners, between }],
        ..crate::common::even_packets()
    }
}

fn departure(number: u32, from: u32, to: u32, bytes: u64) -> Departure {
    Departure { line: 1, ..message(number, from, to, bytes) }
}

/// Over 1 ms and 16 NICs, some 100,000 flows: what begins is the load within 2%, by draws that belong to the seed.
#[test]
fn the_load_is_what_was_set() {
    for (load, partners) in [(0.3, Partners::Uniform), (0.6, Partners::Rack)] {
        let topology = fabric();
        let run = |seed: u64, bytes: u64| {
            let settings = settings(load, partners, seed);
            let mut network =
                PacketNetwork::new(topology.clone(), settings, Dctcp::default()).expect("settings that work");
            network.depart(Time::ZERO, departure(0, 0, 9, bytes));
            let end = arrivals(&mut network).last().expect("the message arrives").0;
            // A second message long after brings the account up to its departure.
            network.depart(Time::from_ps(1_000_000_000), departure(1, 0, 9, 1));
            arrivals(&mut network);
            let used = network.background().expect("background traffic").clone();
            (end, used)
        };
        let (_, used) = run(1, 1_000);
        let measured = used.wire as f64 * 8e12 / (used.rate as f64 * used.until.ps() as f64);
        println!("{partners:?}: {measured} of {load}, {} flows", used.begun);
        assert!((measured / load - 1.0).abs() < 0.02, "{measured} of {load}, {} flows", used.begun);
        let lost = used.begun - used.completion.count();
        assert!(lost < used.begun / 50, "{lost} of {} flows are under way at the end", used.begun);
        assert!(used.until >= Time::from_ps(1_000_000_000));
        // The same flows, whatever else is sent; others by another seed.
        let (_, same) = run(1, 4_000_000);
        assert_eq!((same.begun, same.wire), (used.begun, used.wire));
        assert_ne!(run(2, 1_000).1.wire, used.wire);
    }
}

/// A message shares its links with the traffic: it takes longer than alone, and the more the more there is.
#[test]
fn a_message_waits_for_the_traffic() {
    let topology = fabric();
    let time = |load: Option<f64>| {
        let mut settings = settings(load.unwrap_or(0.5), Partners::Uniform, 3);
        if load.is_none() {
            settings.background.clear();
        }
        let mut network = PacketNetwork::new(topology.clone(), settings, Dctcp::default()).expect("settings");
        network.depart(Time::from_ps(5), departure(0, 0, 9, 20_000_000));
        let log = arrivals(&mut network);
        assert_eq!(log.len(), 1, "background traffic is told to nobody");
        assert_eq!((network.delivered().messages, network.delivered().bytes), (1, 20_000_000));
        log[0].0.ps()
    };
    let [alone, some, more] = [None, Some(0.2), Some(0.6)].map(time);
    assert!(alone < some && some < more, "{alone} {some} {more}");
}

/// Flows begin between two instants; nobody waits for them, so that a network with nothing else is done at once.
#[test]
fn nobody_waits_for_background_traffic() {
    let topology = fabric();
    let mut settings = settings(0.5, Partners::Uniform, 3);
    settings.background[0].between = (Time::from_ps(1_000_000_000), Time::from_ps(2_000_000_000));
    let mut network = PacketNetwork::new(topology, settings, Dctcp::default()).expect("settings");
    assert_eq!(network.next_time(), Time::NEVER);
    network.depart(Time::from_ps(900_000_000), departure(0, 0, 9, 1_000));
    arrivals(&mut network);
    let begun = |network: &PacketNetwork<Dctcp>| network.background().expect("traffic").begun;
    assert_eq!(begun(&network), 0);
    network.depart(Time::from_ps(3_000_000_000), departure(1, 0, 9, 1_000));
    let all = begun(&network);
    assert!(all > 100);
    arrivals(&mut network);
    network.depart(Time::from_ps(4_000_000_000), departure(2, 0, 9, 1_000));
    assert_eq!(begun(&network), all);
    assert_eq!(network.background().expect("traffic").completion.count(), all);
    assert_eq!(
        network.next_time().min(Time::from_ps(4_000_100_000)),
        network.next_time(),
        "the message is under way"
    );
}

/// A message that can never arrive ends the run, however much traffic there is: lost without recovery, or sent to a host
/// whose link is down for ever. Traffic to that host alone does not.
#[test]
fn a_message_that_never_arrives_ends_the_run() {
    let topology = fabric();
    let cable = Names::new(&topology).link("host9/nic0 -> leaf2").expect("a link");
    let down = PartChange {
        at: Time::from_ps(3_000_000),
        known: Time::from_ps(3_000_000),
        part: FabricPart::Cable(cable),
        state: PartState::Down,
    };
    let impairments = Impairments { changes: vec![down], ..Impairments::default() };
    let with = |seed| PacketSettings {
        impairments: impairments.clone(),
        ..settings(0.005, Partners::Uniform, seed)
    };
    let mut network = PacketNetwork::new(topology.clone(), with(1), Dctcp::default()).expect("settings");
    network.depart(Time::ZERO, departure(0, 0, 9, 1_000_000));
    assert!(arrivals(&mut network).is_empty());
    assert!(network.engine().is_hopeless());
    let mut network =
        PacketNetwork::new(topology.clone(), with(1), NoTransport::default()).expect("settings");
    network.depart(Time::ZERO, departure(0, 0, 9, 1_000_000));
    assert!(arrivals(&mut network).is_empty());
    let mut network = PacketNetwork::new(topology, with(1), Dctcp::default()).expect("settings");
    network.depart(Time::from_ps(10_000_000_000), departure(0, 0, 8, 1_000_000));
    assert_eq!(arrivals(&mut network).len(), 1);
    assert!(!network.engine().is_hopeless());
    assert!(network.engine().totals().link_down > 0, "some traffic was for host 9");
}

/// Time passes for the traffic while nobody asks the network: what departs then meets it.
#[test]
fn the_clock_is_caught_up() {
    let topology = fabric();
    let settings = settings(0.6, Partners::Uniform, 5);
    let run = |stops: &[u64]| {
        let mut network =
            PacketNetwork::new(topology.clone(), settings.clone(), Dctcp::default()).expect("settings");
        for &stop in stops {
            network.depart(Time::from_ps(stop), departure(0, 1, 2, 1));
            arrivals(&mut network);
        }
        network.depart(Time::from_ps(1_000_000_000), departure(9, 0, 9, 500_000));
        arrivals(&mut network).last().expect("it arrives").0
    };
    let (direct, idle) = (run(&[]), {
        let mut alone = settings.clone();
        alone.background.clear();
        let mut network = PacketNetwork::new(topology.clone(), alone, Dctcp::default()).expect("settings");
        network.depart(Time::from_ps(1_000_000_000), departure(9, 0, 9, 500_000));
        arrivals(&mut network)[0].0
    });
    assert!(direct > idle, "it meets traffic under way");
    // A byte from a NIC to its neighbour, long before, changes next to nothing.
    let stopped = run(&[100_000_000, 500_000_000]);
    assert!(stopped.ps().abs_diff(direct.ps()) < Span::from_us(20).ps(), "{stopped:?} {direct:?}");
}
