//! Stages of switches by modules of another crate: against closed forms and against the built-in disciplines they repeat.

use std::sync::Arc;

use windtunnel_fabric::packet::transport::{
    Dctcp, NoTransport, StagePacket, StagePort, StageQueue, StageVerdict, Staged, SwitchStage, Transport,
};
use windtunnel_fabric::packet::{
    Completion, Discipline, Engine, OpenRequest, PacketSettings, QueueSettings, TrimSettings,
};
use windtunnel_kernel::{BitRate, Bytes, Span, Time};
use windtunnel_topology::{ClosSpec, HostSpec, Tier, Topology, TopologySpec};

const PAYLOAD: u64 = 4_096;
/// Picoseconds of a full packet at 400 Gbps.
const FULL: u64 = 4_160 * 20;

/// Eight hosts under one switch.
fn one_switch() -> Arc<Topology> {
    let rate = BitRate::from_gbps(400);
    let tiers = vec![Tier { length_mm: 10_000, ..Tier::new(8, rate) }];
    let spec = ClosSpec::new(8, HostSpec::new(1, 1, rate), tiers);
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("one switch"))
}

/// Each of `senders` sends `packets` to host 0 at once, sender n in traffic class n.
fn incast<T: Transport>(
    settings: PacketSettings,
    transport: T,
    senders: u32,
    packets: u64,
) -> (Engine<T>, Vec<Completion>) {
    let mut engine = Engine::new(one_switch(), settings, transport).expect("settings that work");
    for from in 1..=senders {
        let pair = engine.open(&OpenRequest { from, to: 0, entropy: 0, keep: true, route: [&[], &[]] });
        engine.classify(pair, from as u8);
        engine.send(Time(0), pair, Bytes(packets * PAYLOAD), u64::from(from));
    }
    let mut done = Vec::new();
    while engine.next_time() != Time::NEVER {
        engine.run(Time::NEVER, 1 << 20, &mut done);
    }
    assert_eq!(engine.packets_live(), 0);
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
    PacketSettings { ack_every: 0, ..PacketSettings::default() }
}

/// Two senders at line rate: of the i-th pair of packets the first waits i, the second i + 1 packet times.
#[test]
fn a_stage_marks_what_has_waited_too_long() {
    let (packets, limit) = (100, 30);
    let stage = Waited(StageVerdict::Mark, Span(limit * FULL));
    let (engine, done) = incast(unanswered(), Staged::new(NoTransport::default(), stage), 2, packets);
    assert_eq!(done.len(), 2);
    assert_eq!(engine.totals().marks, (packets - 1 - limit) + (packets - limit));
}

/// What is dropped as it leaves takes no time on the link: no packet that is sent has waited for longer than the limit.
#[test]
fn a_stage_drops_what_has_waited_too_long() {
    let (packets, limit) = (100, 30);
    for queues in [vec![], vec![QueueSettings { lossless: false, ..QueueSettings::default() }]] {
        let stage = Waited(StageVerdict::Drop, Span(limit * FULL));
        let settings = PacketSettings { queues, ..unanswered() };
        let (engine, done) = incast(settings, Staged::new(NoTransport::default(), stage), 2, packets);
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
    let (engine, _) = incast(unanswered(), Staged::new(NoTransport::default(), stage), 4, 50);
    let deepest = engine.port_reports().iter().map(|report| report.max_depth).max();
    assert_eq!(deepest, Some(u64::from(bound)));
    assert!(engine.totals().drops > 0);
    // A transport mends what is dropped.
    let (engine, done) = incast(PacketSettings::default(), Staged::new(Dctcp::default(), stage), 4, 500);
    assert_eq!(done.len(), 4);
    assert!(engine.totals().retransmissions > 0);
    // As the built-in trimming at the same length.
    let trimming =
        PacketSettings { trimming: Some(TrimSettings { queue: None }), ..PacketSettings::default() };
    let stage = Bound(bound, StageVerdict::Trim);
    let (engine, done) = incast(trimming, Staged::new(Dctcp::default(), stage), 4, 500);
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
        ..PacketSettings::default()
    };
    let strict = settings(Discipline::Strict, [0, 2, 1, 0]);
    let (_, expected) = incast(strict, Dctcp::default(), 3, 400);
    let own = settings(Discipline::Fifo, [0, 0, 1, 2]);
    let (_, found) = incast(own.clone(), Staged::new(Dctcp::default(), Last), 3, 400);
    assert_eq!(found, expected);
    assert!(found.windows(2).all(|pair| pair[0].token > pair[1].token), "the last class first");
    // All in one queue: as if there were one.
    let (_, one) = incast(own, Staged::new(Dctcp::default(), Requeue), 3, 400);
    let (_, fifo) = incast(settings(Discipline::Fifo, [1, 1, 1, 1]), Dctcp::default(), 3, 400);
    assert_eq!(one, fifo);
}
