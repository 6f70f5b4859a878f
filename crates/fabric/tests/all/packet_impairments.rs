//! Impairments against closed forms: what a link that goes down loses, who learns of it, what is lost in bursts, how clocks
//! come apart, and what samples of queues see.

use windtunnel_fabric::packet::transport::{
    Ack, Dctcp, Endpoint, Eqds, Ndp, NoTransport, PathFacts, Plain, Rccc, Recovery, Transport,
};
use windtunnel_fabric::packet::{
    Balancer, BufferSettings, Engine, FabricPart, GilbertElliott, Impairments, PacketSettings, PartChange,
    PartState, Share, TrimSettings,
};
use windtunnel_kernel::{Bytes, Span, Time, math};
use windtunnel_topology::{LinkId, Names, Topology};

use crate::packets::{drain, engine, send_on, two_leaves};

const PAYLOAD: u64 = 4_096;
/// Picoseconds of a full packet at 400 Gbps.
const FULL: u64 = 4_160 * 20;
const CABLE: u64 = 1_000_000;

fn link(topology: &Topology, name: &str) -> LinkId {
    Names::new(topology).link(name).expect("a link of this name")
}

fn settings(impairments: Impairments) -> PacketSettings {
    PacketSettings { impairments, ..crate::common::even_packets() }
}

fn change(at: u64, part: FabricPart, state: PartState) -> PartChange {
    PartChange { at: Time::from_ps(at), known: Time::from_ps(at), part, state }
}

/// Three hosts send to one through one leaf at line rate; its link goes down at T. Lost are the packets that its port has
/// begun and that have not arrived, those that wait there, and those that come until it is up again.
#[test]
fn a_link_that_goes_down_loses_what_is_on_it() {
    let topology = two_leaves(4, 4);
    let last = FabricPart::Cable(link(&topology, "leaf0 -> host3/nic0"));
    let packets = 100;
    // The first packets of all three reach the leaf at once; one after the other they leave.
    let first = FULL + CABLE;
    for (down, up) in [(first + 20 * FULL + 17, None), (first + 20 * FULL + 17, Some(first + 50 * FULL + 5))]
    {
        let changes =
            [Some(change(down, last, PartState::Down)), up.map(|up| change(up, last, PartState::Up))];
        let impairments =
            Impairments { changes: changes.into_iter().flatten().collect(), ..Impairments::default() };
        let mut engine = engine(
            &topology,
            PacketSettings { ack_every: 0, ..settings(impairments) },
            NoTransport::default(),
        );
        for host in 0..3 {
            send_on(&mut engine, 0, host, 3, packets * PAYLOAD);
        }
        let done = drain(&mut engine);
        // Packet k (from 0) is begun at first + k FULL and arrives FULL + CABLE later.
        let begun = |at: u64| (at - first) / FULL + 1;
        let arrived = |at: u64| (at - first - CABLE) / FULL;
        // At `down` all three NICs have delivered one packet each FULL; what came until then is lost but for `arrived`.
        let came = |at: u64| 3 * ((at - first) / FULL + 1);
        let totals = engine.totals();
        let (before, after) = match up {
            None => (arrived(down), 0),
            Some(up) => (arrived(down), 3 * packets - came(up)),
        };
        assert_eq!(begun(down), 21);
        assert_eq!(totals.data_packets, before + after, "{up:?}");
        assert_eq!((totals.link_down, totals.drops), (3 * packets - before - after, totals.link_down));
        assert!(done.is_empty(), "every message lost something");
    }
}

/// Two spines. The cable to one goes down on the far side: the leaf that sends does not know until all do, and flows
/// through it lose packets until then, not after. With selective repeat all arrives.
#[test]
fn switches_route_around_after_convergence() {
    let topology = two_leaves(8, 2);
    let far = FabricPart::Cable(link(&topology, "spine0 -> leaf1"));
    let (down, convergence) = (50_000_000, Span::from_us(100));
    let impairments = Impairments {
        changes: vec![PartChange {
            known: Time::from_ps(down) + convergence,
            ..change(down, far, PartState::Down)
        }],
        ..Impairments::default()
    };
    for balancer in
        [Balancer::Ecmp, Balancer::Spray { paths: 64 }, Balancer::Adaptive, Balancer::Reps { paths: 64 }]
    {
        let settings = PacketSettings { balancer, ..settings(impairments.clone()) };
        let mut engine = engine(&topology, settings, Dctcp::default());
        for host in 0..8 {
            send_on(&mut engine, 0, host, 8 + host, 4_000_000);
        }
        let mut done = Vec::new();
        engine.run(Time::from_ps(down - 1), u64::MAX, &mut done);
        assert_eq!(engine.totals().link_down, 0, "{balancer:?}");
        while engine.now().ps() < down + convergence.ps() + 1_000_000_000 && engine.next_time() != Time::NEVER
        {
            let limit = Time::from_ps(down + convergence.ps() + 20_000_000);
            let before = engine.now() < limit;
            engine.run(limit.max(engine.now()), u64::MAX, &mut done);
            if before && engine.now() >= limit {
                break;
            }
        }
        let known = engine.totals().link_down;
        assert!(known > 0, "{balancer:?} met the link");
        let rest = drain(&mut engine);
        assert_eq!(done.len() + rest.len(), 8, "{balancer:?}: all messages arrive");
        assert_eq!(engine.totals().link_down, known, "{balancer:?} avoids the link");
    }
}

/// A sender on credit loses its link for 295 µs, and with it PULLs for all that it had asked for. Its receiver has granted
/// that and would say nothing more; one time-out later it tells again, and the rest comes at line rate.
#[test]
fn credit_that_was_lost_is_told_again() {
    fn ends<T: Transport>(transport: T) {
        let topology = two_leaves(4, 4);
        let cable = FabricPart::Cable(link(&topology, "host1/nic0 -> leaf0"));
        let (down, up) = (5_000_000, 300_000_000);
        let changes = vec![change(down, cable, PartState::Down), change(up, cable, PartState::Up)];
        let settings = PacketSettings {
            balancer: Balancer::Spray { paths: 64 },
            trimming: Some(TrimSettings::default()),
            buffers: vec![BufferSettings { size: Bytes::new(1_000_000), alpha: 1.0, reserve: Bytes::ZERO }],
            ..settings(Impairments { changes, ..Impairments::default() })
        };
        let mut engine = engine(&topology, settings, transport);
        let packets = 1_000;
        send_on(&mut engine, 0, 1, 2, packets * PAYLOAD);
        let done = drain(&mut engine);
        // Time-outs, of 1 ms where a turn is waited for, and all packets again.
        let most = up + packets * FULL + 2_000_000_000;
        assert!(done.len() == 1 && done[0].at.ps() < most, "{}: {done:?}", T::NAME);
    }
    ends(Eqds::default());
    ends(Rccc::default());
    ends(Ndp::default());
}

/// The near side of a cable is avoided at once, and a switch that is down takes all its cables with it until it is back.
#[test]
fn neighbours_know_at_once() {
    let topology = two_leaves(2, 2);
    let spine = Names::new(&topology).switch("spine1").expect("a spine");
    let impairments = Impairments {
        changes: vec![
            change(0, FabricPart::Switch(spine), PartState::Down),
            change(400_000_000, FabricPart::Switch(spine), PartState::Up),
        ],
        ..Impairments::default()
    };
    let settings = PacketSettings { balancer: Balancer::Spray { paths: 64 }, ..settings(impairments) };
    let mut engine = engine(&topology, settings, NoTransport::default());
    send_on(&mut engine, 1_000, 0, 2, 1_000 * PAYLOAD);
    send_on(&mut engine, 500_000_000, 1, 3, 1_000 * PAYLOAD);
    let mut done = Vec::new();
    engine.run(Time::from_ps(499_000_000), u64::MAX, &mut done);
    let through = |engine: &Engine<NoTransport>| {
        let up = link(&topology, "leaf0 -> spine1");
        engine.port_reports().iter().find(|report| report.link == up).map_or(0, |report| report.data_packets)
    };
    assert_eq!((through(&engine), engine.totals().drops), (0, 0));
    drain(&mut engine);
    assert!(
        (300..700).contains(&through(&engine)),
        "about half of the second message, by 64 path numbers: {}",
        through(&engine)
    );
}

/// A link at a quarter of its rate from T on: the packets that begin before take FULL, the others four times as long.
#[test]
fn a_rate_changes_from_an_instant_on() {
    let topology = two_leaves(2, 2);
    let nic = FabricPart::Cable(link(&topology, "host0/nic0 -> leaf0"));
    let (packets, down, up) = (100, 20 * FULL + 1, 200 * FULL);
    let impairments = Impairments {
        changes: vec![change(up, nic, PartState::Rate(1.0)), change(down, nic, PartState::Rate(0.25))],
        ..Impairments::default()
    };
    let mut engine = engine(&topology, settings(impairments), NoTransport::default());
    send_on(&mut engine, 0, 0, 1, packets * PAYLOAD);
    let done = drain(&mut engine);
    // 21 begin before; the next end at 21 + 4 k; the first that begins at or after 200 is at 21 + 180 = 201, the 66th.
    let sent = 21 * FULL + 45 * 4 * FULL + (packets - 66) * FULL;
    assert_eq!(done[0].at, Time::from_ps(sent + CABLE + FULL + CABLE));
}

/// Over 20 seeds: the share lost on a link with bursts lies in the 99% interval about the chain's mean.
#[test]
fn bursts_lose_their_mean_on_a_link() {
    let topology = two_leaves(2, 2);
    let model = GilbertElliott::bursts(0.02, 8.0);
    let lossy = link(&topology, "host0/nic0 -> leaf0");
    let share = |seed: u64, model: GilbertElliott| {
        let impairments = Impairments { losses: vec![(lossy, model)], ..Impairments::default() };
        let settings = PacketSettings { seed, ack_every: 0, ..settings(impairments) };
        let mut engine = engine(&topology, settings, NoTransport::default());
        let packets = 20_000;
        send_on(&mut engine, 0, 0, 1, packets * PAYLOAD);
        drain(&mut engine);
        let totals = engine.totals();
        assert_eq!((totals.corrupted, totals.data_packets), (totals.drops, packets - totals.drops));
        totals.drops as f64 / packets as f64
    };
    let within = |model: GilbertElliott| {
        let shares: Vec<f64> = (0..20).map(|seed| share(seed, model)).collect();
        let mean = shares.iter().sum::<f64>() / 20.0;
        let variance = shares.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 19.0;
        let half = 2.861 * math::sqrt(variance / 20.0);
        assert!((mean - model.mean(4_160)).abs() < half, "{mean} ± {half}, expected {}", model.mean(4_160));
    };
    within(model);
    within(GilbertElliott::independent(Share::Bits(1e-6)));
    assert_eq!(share(3, GilbertElliott::independent(Share::Packets(0.0))), 0.0);
    assert_eq!(share(3, GilbertElliott::independent(Share::Packets(1.0))), 1.0);
}

/// A packet every 200 ns by its host's clock, for ever.
#[derive(Clone, Debug)]
struct Paced;

impl Endpoint for Paced {
    type Flow = ();
    type Peer = ();
    type Uses = Plain;
    const NAME: &'static str = "paced";

    fn recovery(&self) -> Recovery {
        Recovery::None
    }

    fn open(&self, _: &PathFacts) {}

    fn window(&self, (): &()) -> u64 {
        u64::MAX
    }

    fn gap(&self, (): &(), _: u16) -> Span {
        Span::from_ns(200)
    }

    fn on_ack(&self, (): &mut (), _: &Ack) {}

    fn timeout(&self, (): &()) -> Span {
        Span::from_us(1_000)
    }
}

/// Two hosts count the same time by clocks that differ by 150 parts in a million: what they have sent comes apart by that.
#[test]
fn clocks_come_apart() {
    let topology = two_leaves(4, 4);
    let impairments = Impairments { clocks: vec![(0, 50_000), (1, -100_000)], ..Impairments::default() };
    let mut engine = engine(&topology, settings(impairments), Paced);
    let packets = 50_000;
    for host in 0..2 {
        send_on(&mut engine, 0, host, 2 + host, packets * PAYLOAD);
    }
    let done = drain(&mut engine);
    let counted = (packets - 1) * 200_000;
    let arrives = |fast: i64| counted * 1_000_000_000 / (1_000_000_000 + fast) as u64 + 2 * (FULL + CABLE);
    let at = |token: u64| done.iter().find(|done| done.token == token).expect("a completion").at.ps();
    assert_eq!([at(0), at(1)], [arrives(50_000), arrives(-100_000)].map(|at| at));
}

/// Two hosts send to one: the queue grows by a packet in each packet time and drains as fast after. Sampling sees that line,
/// sums up to what was sent, and changes nothing.
#[test]
fn samples_draw_the_queue() {
    let topology = two_leaves(4, 4);
    let run = |sample_every: Option<Span>| {
        let settings = PacketSettings { sample_every, ack_every: 0, ..crate::common::even_packets() };
        let mut engine = engine(&topology, settings, NoTransport::default());
        for host in 0..2 {
            send_on(&mut engine, 0, host, 3, 100 * PAYLOAD);
        }
        let done = drain(&mut engine);
        let mut samples = Vec::new();
        engine.take_samples(&mut samples);
        (done, engine.port_reports(), samples)
    };
    let every = 5 * FULL;
    let (done, reports, samples) = run(Some(Span::from_ps(every)));
    let (same, as_well, none) = run(None);
    assert_eq!((&done, &reports), (&same, &as_well));
    assert!(none.is_empty());
    let down = link(&topology, "leaf0 -> host3/nic0");
    let of_port: Vec<_> = samples.iter().filter(|sample| sample.link == down).collect();
    let first = FULL + CABLE;
    for sample in &of_port {
        let at = sample.at.ps();
        let came = 2 * ((at - first) / FULL + 1).min(100);
        let gone = ((at - first) / FULL).min(200);
        assert_eq!(u64::from(sample.bytes), (came - gone) * 4_160, "at {at}");
    }
    assert!(of_port.len() >= 30, "{}", of_port.len());
    let sent: u64 = of_port.iter().map(|sample| sample.sent).sum();
    let all = reports.iter().find(|report| report.link == down).expect("a report").bytes;
    assert!(all - sent <= 5 * 4_160, "{sent} of {all}: the last interval is not over");
}

/// What cannot be is refused.
#[test]
fn impairments_that_cannot_be_are_refused() {
    let topology = two_leaves(2, 2);
    let spine = FabricPart::Switch(Names::new(&topology).switch("spine0").expect("a spine"));
    let nic = link(&topology, "host0/nic0 -> leaf0");
    let losing = |model| Impairments { losses: vec![(nic, model)], ..Impairments::default() };
    let changing = |state| Impairments { changes: vec![change(1, spine, state)], ..Impairments::default() };
    for (impairments, expected) in [
        (
            losing(GilbertElliott::independent(Share::Packets(1.5))),
            "`impairments.good` is 1.5, expected 0 to 1",
        ),
        (losing(GilbertElliott::bursts(0.9, 2.0)), "`impairments.to_bad` is"),
        (changing(PartState::Rate(0.0)), "`impairments.rate` is 0"),
        (changing(PartState::Rate(2.0)), "`impairments.rate` is 2"),
        (
            Impairments { clocks: vec![(0, -1_000_000_000)], ..Impairments::default() },
            "`impairments.clocks` is -1",
        ),
    ] {
        let error =
            Engine::new(topology.clone(), settings(impairments), NoTransport::default()).expect_err(expected);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    let fixed =
        PacketSettings { balancer: Balancer::DestinationModulo, ..settings(changing(PartState::Down)) };
    let error = Engine::new(topology, fixed, NoTransport::default()).expect_err("a path for each pair");
    assert!(error.to_string().contains("expected another balancer"), "{error}");
}
