//! Stages of switches and load balancers in them by modules of another crate: against closed forms and against the built-in
//! disciplines and balancers that they repeat.

use crate::packets::{drain, engine, send_on, star, two_leaves};
use windtunnel_fabric::packet::transport::{
    Around, BalancerPacket, BalancerPort, BalancerSwitch, Balancing, Dctcp, NoTransport, Recovery,
    StagePacket, StagePort, StageQueue, StageVerdict, Staging, SwitchBalancer, SwitchStage, Transport,
};
use windtunnel_fabric::packet::{
    Balancer, Completion, Discipline, Engine, OpenRequest, PacketSettings, QueueSettings, TrimSettings,
};
use windtunnel_kernel::{Bytes, Span, Time};

const PAYLOAD: u64 = 4_096;
/// Picoseconds of a full packet at 400 Gbps.
const FULL: u64 = 4_160 * 20;

/// Each of `senders` sends `packets` to host 0 at once, sender n in traffic class n.
fn incast<T: Transport>(
    settings: PacketSettings,
    transport: T,
    senders: u32,
    packets: u64,
) -> (Engine<T>, Vec<Completion>) {
    let mut engine = engine(&star(8, 400, 10_000), settings, transport);
    for from in 1..=senders {
        let pair = engine.open(&OpenRequest { from, to: 0, entropy: 0, keep: true, route: [&[], &[]] });
        engine.classify(pair, from as u8);
        engine.send(Time::ZERO, pair, Bytes::new(packets * PAYLOAD), u64::from(from));
    }
    let done = drain(&mut engine);
    (engine, done)
}

#[derive(Clone, Copy, Debug)]
struct Waited(StageVerdict, Span);

impl SwitchStage for Waited {
    type State = u32;

    const NAME: &'static str = "waited";

    fn dequeue(&self, asked: &mut u32, port: &StagePort, packet: &StagePacket) -> StageVerdict {
        *asked += 1;
        assert!(port.port >= 8 && packet.age >= packet.waited && packet.wire == 4_160);
        if packet.waited > self.1 { self.0 } else { StageVerdict::Keep }
    }
}

fn unanswered() -> PacketSettings {
    PacketSettings { ack_every: 0, ..crate::common::even_packets() }
}

/// Two senders at line rate: of the i-th pair of packets the first waits i, the second i + 1 packet times.
#[test]
fn a_stage_marks_what_has_waited_too_long() {
    let (packets, limit) = (100, 30);
    let stage = Waited(StageVerdict::Mark, Span::from_ps(limit * FULL));
    let (engine, done) = incast(unanswered(), Staging(stage).around(NoTransport::default()), 2, packets);
    assert_eq!(done.len(), 2);
    assert_eq!(engine.totals().marks, (packets - 1 - limit) + (packets - limit));
}

/// What is dropped as it leaves takes no time on the link: no packet that is sent has waited for longer than the limit.
#[test]
fn a_stage_drops_what_has_waited_too_long() {
    let (packets, limit) = (100, 30);
    for queues in [vec![], vec![QueueSettings { lossless: false, ..QueueSettings::default() }]] {
        let stage = Waited(StageVerdict::Drop, Span::from_ps(limit * FULL));
        let settings = PacketSettings { queues, ..unanswered() };
        let (engine, done) = incast(settings, Staging(stage).around(NoTransport::default()), 2, packets);
        let totals = engine.totals();
        assert!(done.len() < 2 && totals.drops > 0);
        // The link is never idle: it sends a packet each packet time until the last ones have waited for the limit.
        let sent = totals.data_packets;
        assert!(sent.abs_diff(packets + limit) <= 1, "{sent} of {}", 2 * packets);
        assert_eq!(sent + totals.drops, 2 * packets);
    }
}

/// Keeps what a port holds below a bound, by drops or by trimming.
#[derive(Clone, Copy, Debug)]
struct Bound(u32, StageVerdict);

impl SwitchStage for Bound {
    type State = ();

    const NAME: &'static str = "bound";

    fn enqueue(&self, (): &mut (), port: &StagePort, packet: &StagePacket) -> StageVerdict {
        if port.held + u32::from(packet.wire) > self.0 { self.1 } else { StageVerdict::Keep }
    }
}

#[test]
fn a_stage_refuses_what_comes() {
    let bound = 20 * 4_160;
    let stage = Bound(bound, StageVerdict::Drop);
    let (engine, _) = incast(unanswered(), Staging(stage).around(NoTransport::default()), 4, 50);
    let deepest = engine.port_reports().iter().map(|report| report.max_depth).max();
    assert_eq!(deepest, Some(u64::from(bound)));
    assert!(engine.totals().drops > 0);
    // A transport mends what is dropped.
    let (engine, done) =
        incast(crate::common::even_packets(), Staging(stage).around(Dctcp::default()), 4, 500);
    assert_eq!(done.len(), 4);
    assert!(engine.totals().retransmissions > 0);
    // As the built-in trimming at the same length.
    let trimming = PacketSettings {
        trimming: Some(TrimSettings { queue: None, rate: None }),
        ..crate::common::even_packets()
    };
    let stage = Bound(bound, StageVerdict::Trim);
    let (engine, done) = incast(trimming, Staging(stage).around(Dctcp::default()), 4, 500);
    assert_eq!(done.len(), 4);
    assert!(engine.totals().trims > 0 && engine.totals().drops == 0);
}

/// The queue listed last goes first.
#[derive(Clone, Copy, Debug)]
struct Last;

impl SwitchStage for Last {
    type State = ();

    const NAME: &'static str = "last";

    fn next(&self, (): &mut (), _: &StagePort, queues: &[StageQueue]) -> Option<usize> {
        assert!(queues.windows(2).all(|pair| pair[0].queue < pair[1].queue));
        Some(queues.len() - 1)
    }
}

/// Puts every packet into queue 1.
#[derive(Clone, Copy, Debug)]
struct Requeue;

impl SwitchStage for Requeue {
    type State = ();

    const NAME: &'static str = "requeue";

    fn enqueue(&self, (): &mut (), _: &StagePort, _: &StagePacket) -> StageVerdict {
        StageVerdict::Queue(1)
    }
}

/// As the built-in strict priority with the queues listed the other way round, to the picosecond.
#[test]
fn a_discipline_of_ones_own_repeats_a_built_in_one() {
    let queue = QueueSettings { lossless: false, ..QueueSettings::default() };
    let settings = |discipline, classes: [u8; 4]| PacketSettings {
        queues: vec![queue.clone(); 3],
        discipline,
        classes: classes.to_vec(),
        ..crate::common::even_packets()
    };
    let strict = settings(Discipline::Strict, [0, 2, 1, 0]);
    let (_, expected) = incast(strict, Dctcp::default(), 3, 400);
    let own = settings(Discipline::Fifo, [0, 0, 1, 2]);
    let (_, found) = incast(own.clone(), Staging(Last).around(Dctcp::default()), 3, 400);
    assert_eq!(found, expected);
    assert!(found.windows(2).all(|pair| pair[0].token > pair[1].token), "the last class first");
    // All in one queue: as if there were one.
    let (_, one) = incast(own, Staging(Requeue).around(Dctcp::default()), 3, 400);
    let (_, fifo) = incast(settings(Discipline::Fifo, [1, 1, 1, 1]), Dctcp::default(), 3, 400);
    assert_eq!(one, fifo);
}

/// What `adaptive` does.
#[derive(Clone, Copy, Debug)]
struct Least;

impl SwitchBalancer for Least {
    type State = ();

    const NAME: &'static str = "least";

    fn choose(
        &self,
        (): &mut (),
        _: &BalancerSwitch,
        packet: &BalancerPacket,
        ports: &[BalancerPort],
    ) -> usize {
        let start = ((u128::from(packet.draw) * ports.len() as u128) >> 64) as usize;
        let turn = (start..ports.len()).chain(0..start);
        turn.min_by_key(|&place| ports[place].held).expect("at least two")
    }
}

/// Packets take the ports in turn, whatever waits there.
#[derive(Clone, Copy, Debug)]
struct Turns(usize);

impl SwitchBalancer for Turns {
    type State = usize;

    const NAME: &'static str = "turns";

    fn choose(
        &self,
        turn: &mut usize,
        _: &BalancerSwitch,
        _: &BalancerPacket,
        ports: &[BalancerPort],
    ) -> usize {
        assert!(ports.len() == 4 && ports.is_sorted_by_key(|port| port.port));
        *turn += self.0;
        *turn
    }
}

#[test]
fn a_balancer_that_does_as_adaptive_does_gives_the_same_run() {
    fn run<T: Transport>(transport: T) -> impl PartialEq + std::fmt::Debug {
        let settings = PacketSettings { balancer: Balancer::Adaptive, ..crate::common::even_packets() };
        let mut engine = engine(&two_leaves(8, 4), settings, transport);
        for from in 0..16 {
            send_on(&mut engine, u64::from(from) * 1_000, from, (from * 3 + 8) % 16, 400_000);
        }
        let done = drain(&mut engine);
        assert_eq!(done.len(), 16);
        (done, engine.totals(), engine.port_reports())
    }
    let transport = Dctcp { recovery: Recovery::Selective { reorder: u32::MAX }, ..Dctcp::default() };
    let built_in = run(transport);
    assert_eq!(format!("{built_in:?}"), format!("{:?}", run(Balancing(Least).around(transport))));
    assert_ne!(format!("{built_in:?}"), format!("{:?}", run(Balancing(Turns(4)).around(transport))));
}

/// Four hosts send over the four spines in turn, a quarter each, or all over one: then that link sends all their packets one
/// after the other.
#[test]
fn a_balancer_keeps_state_by_switch() {
    let (packets, cable) = (100, 1_000_000);
    let settings = || PacketSettings { balancer: Balancer::Adaptive, ..unanswered() };
    for (step, expected) in [(1, [packets; 4]), (4, [4 * packets, 0, 0, 0])] {
        let transport = Balancing(Turns(step)).around(NoTransport::default());
        let topology = two_leaves(4, 4);
        let mut engine = engine(&topology, settings(), transport);
        for from in 0..4 {
            send_on(&mut engine, 0, from, from + 4, packets * PAYLOAD);
        }
        let done = drain(&mut engine);
        let reports = engine.port_reports();
        let mut over: Vec<u64> = (4..8)
            .map(|port| topology.out_link(topology.target(0, 0).switch, port).expect("a cable to a spine"))
            .map(|link| {
                reports.iter().find(|report| report.link == link).map_or(0, |report| report.data_packets)
            })
            .collect();
        over.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(over, expected);
        if step == 4 {
            let last = done.last().expect("it ends").at.ps();
            assert_eq!(last, FULL + cable + 4 * packets * FULL + 3 * cable + 2 * FULL);
        }
    }
}
