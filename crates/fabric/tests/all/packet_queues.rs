//! Data queues of a port against closed forms: shares by weights, the latency of priority, the rate of a shaper, drops and
//! marks by color, the packets that meters let pass, and whose turn it is at a NIC.

use std::sync::Arc;

use proptest::prelude::*;
use windtunnel_fabric::packet::transport::{NoTransport, Recovery};
use windtunnel_fabric::packet::{
    BufferSettings, Color, ColorProfile, Completion, Discipline, DropProfile, EcnSettings, Engine, MarkAt,
    Meter, OpenRequest, PacketError, PacketSettings, PfcSettings, Pull, QueueSettings, Shaper, Xoff, Xon,
};
use windtunnel_kernel::{BitRate, Bytes, Span, Time};
use windtunnel_topology::{ClosSpec, HostSpec, Tier, Topology, TopologySpec};

use crate::packets::drain;

const HEADER: u64 = 64;
const PAYLOAD: u64 = 4_096;
const FULL: u64 = PAYLOAD + HEADER;
/// Picoseconds a byte at 400 Gbps.
const PS: u64 = 20;
/// Time of a full packet.
const S: u64 = FULL * PS;
const CABLE: u64 = 1_000_000;

fn star(hosts: u32) -> Arc<Topology> {
    let rate = BitRate::from_gbps(400);
    let tier = Tier { length_mm: 200_000, ..Tier::new(hosts, rate) };
    let spec = ClosSpec::new(hosts, HostSpec::new(1, 1, rate), vec![tier]);
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a star"))
}

/// Class i goes to queue i.
fn settings(discipline: Discipline, queues: Vec<QueueSettings>) -> PacketSettings {
    let classes = (0..queues.len() as u8).collect();
    PacketSettings { ack_every: 0, discipline, queues, classes, ..crate::common::even_packets() }
}

fn weighted(weights: &[u32]) -> Vec<QueueSettings> {
    weights.iter().map(|&weight| QueueSettings { weight, ..QueueSettings::default() }).collect()
}

fn engine(hosts: u32, settings: PacketSettings) -> Engine<NoTransport> {
    Engine::new(star(hosts), settings, NoTransport::default()).expect("settings that work")
}

fn send(engine: &mut Engine<NoTransport>, at: u64, from: u32, to: u32, bytes: u64, class: u8) {
    let entropy = u32::from(class);
    let pair = engine.open(&OpenRequest { from, to, entropy, keep: false, route: [&[], &[]] });
    engine.classify(pair, class);
    engine.send(Time::from_ps(at), pair, Bytes::new(bytes), u64::from(class));
}

/// Completion time of each class.
fn ends(done: &[Completion], classes: usize) -> Vec<u64> {
    let of = |class| done.iter().filter(|done| done.token == class).map(|done| done.at.ps()).max();
    (0..classes as u64).map(|class| of(class).expect("it arrives")).collect()
}

/// Hosts 1, 2 and 3 send to 0 in queues of their own, weights 1, 2 and 5, each message as long as its weight says: with
/// turns by weight they end within one round of each other, and the link is never idle.
#[test]
fn shares_follow_weights() {
    let weights = [1, 2, 5];
    for discipline in [Discipline::WeightedRoundRobin, Discipline::DeficitRoundRobin] {
        let mut engine = engine(4, settings(discipline, weighted(&weights)));
        let rounds = 100;
        for (class, weight) in (0u8..).zip(weights) {
            send(&mut engine, 0, u32::from(class) + 1, 0, rounds * u64::from(weight) * PAYLOAD, class);
        }
        let ends = ends(&drain(&mut engine), 3);
        let last = S + CABLE + 8 * rounds * S + CABLE;
        assert_eq!(ends.iter().max(), Some(&last), "{discipline:?}: no gap");
        assert!(ends.iter().all(|&end| end + 16 * S > last), "{discipline:?}: {ends:?} of {last}");
    }
}

/// Packets of 4,160 B in one queue and of 1,088 B in the other, equal weights, as many bytes of each, which end together by
/// deficits; by packets the short ones get 1,088 / 5,248 of the link.
#[test]
fn deficits_count_bytes_and_turns_count_packets() {
    let short = 1_024 + HEADER;
    let run = |discipline| {
        let mut settings = settings(discipline, weighted(&[1, 1]));
        settings.classes = vec![0, 1];
        let mut engine = engine(8, settings);
        send(&mut engine, 0, 1, 0, 400 * PAYLOAD, 0);
        // Messages of one short packet each, from several hosts so that they always wait.
        let count = 400 * FULL / short;
        for index in 0..count {
            send(&mut engine, 0, 2 + (index % 6) as u32, 0, 1_024, 1);
        }
        (ends(&drain(&mut engine), 2), count)
    };
    let (by_bytes, count) = run(Discipline::DeficitRoundRobin);
    let last = short * PS + CABLE + (400 * FULL + count * short) * PS + CABLE;
    assert!(by_bytes.iter().all(|&end| end <= last + S && end + 8 * S > last), "{by_bytes:?} of {last}");
    let (by_packets, _) = run(Discipline::WeightedRoundRobin);
    // While both wait, 400 long packets leave with 400 short ones.
    let alone = S + CABLE + 400 * (FULL + short) * PS + CABLE;
    assert!(by_packets[0].abs_diff(alone) < 8 * S, "{by_packets:?}, expected {alone}");
    assert_eq!(by_packets.iter().max().map(|end| end.abs_diff(last) < 4 * S), Some(true));
}

/// Shreedhar and Varghese 1995: a queue that runs empty loses what it has saved. Queue 1 sends a single packet now and then, each
/// a quarter of its quantum, and then 40 at once, beside a queue that always waits: those get their quantum each round and no more, so
/// that both queues have had as much when they end, but for one round.
#[test]
fn idle_queues_save_no_deficit() {
    let weight = 4_u64;
    let mut engine = engine(4, settings(Discipline::DeficitRoundRobin, weighted(&[weight as u32; 2])));
    // Two of them, so that it never runs empty, and has nothing to lose itself.
    for from in [1, 3] {
        send(&mut engine, 0, from, 0, 200 * PAYLOAD, 0);
    }
    for index in 0..20 {
        send(&mut engine, (10 + 4 * index) * S, 2, 0, PAYLOAD, 1);
    }
    let (burst, packets) = (120 * S, 40);
    send(&mut engine, burst, 2, 0, packets * PAYLOAD, 1);
    let done = drain(&mut engine);
    let last = done.iter().filter(|done| done.token == 1).map(|done| done.at.ps()).max().expect("the burst");
    // It begins to wait a packet and a cable later; of its rounds all but the first are complete.
    let earliest = burst + S + CABLE + (2 * packets - 2 * weight) * S;
    let latest = burst + S + CABLE + (2 * packets + 2 * weight) * S + CABLE;
    assert!((earliest..=latest).contains(&last), "{last}, expected {earliest} to {latest}");
}

/// A packet of the high queue waits for the one in service and no other: to the picosecond.
#[test]
fn priority_waits_for_one_packet() {
    for (discipline, high) in [(Discipline::Strict, [0, 0]), (Discipline::Fifo, [1, 0])] {
        let mut queues = weighted(&[1, 1]);
        for (queue, priority) in queues.iter_mut().zip(high) {
            queue.priority = priority;
        }
        let mut engine = engine(4, settings(discipline, queues));
        // Two hosts fill the low queue; the high packet comes when a packet has been in service for 7,000 ps.
        for from in [1, 2] {
            send(&mut engine, 0, from, 0, 200 * PAYLOAD, 1);
        }
        let sent = 50 * S + 7_000;
        send(&mut engine, sent, 3, 0, PAYLOAD, 0);
        let done = drain(&mut engine);
        let joined = sent + S + CABLE;
        // The first service began when the first packets came, S + CABLE: ends are whole packets after it.
        let begins = (joined - S - CABLE).div_ceil(S) * S + S + CABLE;
        let high = done.iter().find(|done| done.token == 0).expect("it arrives");
        assert_eq!(high.at, Time::from_ps(begins + S + CABLE), "{discipline:?}");
    }
}

/// One queue shaped to 100 of 400 Gbps with a bucket of 4 packets: the bucket's packets leave at once, each further one when
/// its bytes are there. The other queue takes the rest.
#[test]
fn a_shaper_keeps_its_rate() {
    let rate = BitRate::from_gbps(100);
    let mut queues = weighted(&[1, 1]);
    queues[0].priority = 1;
    queues[0].shaper = Some(Shaper { rate, burst: Bytes::new(4 * FULL) });
    // Alone: packet n (from 0) may start when n + 1 - 4 packets' bytes have come since the first started, a packet's bytes
    // in 4 S, and not before the one before it has been sent.
    let run = |other: bool| {
        let mut engine = engine(3, settings(Discipline::Strict, queues.clone()));
        send(&mut engine, 0, 1, 0, 100 * PAYLOAD, 0);
        if other {
            send(&mut engine, 0, 2, 0, 300 * PAYLOAD, 1);
        }
        ends(&drain(&mut engine), 1 + usize::from(other))
    };
    let first = S + CABLE;
    assert_eq!(run(false)[0], first + (99 + 1 - 4) * 4 * S + S + CABLE);
    let both = run(true);
    // Packets of the other queue fill the gaps; the shaped one waits for one of them in service at most.
    let shaped = first + 96 * 4 * S + S + CABLE;
    assert!((shaped..=shaped + S).contains(&both[0]), "{both:?}, expected {shaped}");
    assert!(
        both[1].abs_diff(first + 400 * S + CABLE) < 4 * S,
        "{both:?}: three of four packets are the other's"
    );
}

/// A rate whose packets do not take whole picoseconds, over a long time: never above its line, never more than a packet
/// below.
#[test]
fn a_shaper_does_not_drift() {
    let rate = BitRate::from_bps(12_345_678_901);
    let mut queues = weighted(&[1]);
    queues[0].shaper = Some(Shaper { rate, burst: Bytes::new(FULL) });
    let mut engine = engine(2, settings(Discipline::Fifo, queues));
    let count = 5_000u64;
    send(&mut engine, 0, 1, 0, count * PAYLOAD, 0);
    let end = drain(&mut engine)[0].at.ps();
    let exact = u128::from((count - 1) * FULL) * 8_000_000_000_000 / u128::from(rate.bps());
    let begun = end - CABLE - S - (S + CABLE);
    assert!(
        u128::from(begun) >= exact && u128::from(begun) <= exact + u128::from(count),
        "{begun} of {exact}"
    );
}

/// Pauses stop one class and not the other: class 0 is lossless and crowded, class 1 is alone on its way.
#[test]
fn a_pause_stops_its_class_alone() {
    let queues =
        vec![QueueSettings::default(), QueueSettings { lossless: false, ..QueueSettings::default() }];
    let pfc = PfcSettings {
        xoff: Xoff::Static(Bytes::new(4 * FULL)),
        xon: Xon::At(Bytes::new(2 * FULL)),
        ..PfcSettings::default()
    };
    let settings = PacketSettings { pfc: Some(pfc), ..settings(Discipline::Fifo, queues) };
    let mut engine = engine(5, settings);
    for from in [1, 2, 3] {
        send(&mut engine, 0, from, 0, 100 * PAYLOAD, 0);
    }
    // Host 1 also sends to 4, in a class that is not paused, once its NIC is.
    let at = 20 * S + 3 * CABLE;
    send(&mut engine, at, 1, 4, 20 * PAYLOAD, 1);
    let done = drain(&mut engine);
    let other = done.iter().find(|done| done.token == 1).expect("it arrives");
    // At worst it takes turns with the paused class at the NIC.
    let alone = at + 20 * S + CABLE + S + CABLE;
    assert!(other.at.ps() <= alone + 21 * S, "{other:?}, expected at most {}", alone + 21 * S);
    assert_eq!(engine.totals().drops, 0);
    let paused: u64 = engine.port_reports().iter().map(|report| report.pauses).sum();
    assert!(paused > 0);
}

/// A queue's reserve is there for it however full the shared part is; the other queue's threshold is its own.
#[test]
fn reserves_and_thresholds_are_per_queue() {
    let queues = vec![
        QueueSettings { lossless: false, alpha: Some(0.25), ..QueueSettings::default() },
        QueueSettings {
            lossless: false,
            reserve: Bytes::new(10 * FULL),
            alpha: Some(1e-4),
            ..QueueSettings::default()
        },
    ];
    let buffers = vec![BufferSettings { size: Bytes::new(170 * FULL), alpha: 1.0, reserve: Bytes::ZERO }];
    let settings = PacketSettings { buffers, ..settings(Discipline::Strict, queues) };
    let mut engine = engine(6, settings);
    // Queue 0 keeps the link to itself. Shared are 170 - 6 × 10 packets, so it holds x with x = 0.25 (110 - x): 22.
    for from in [1, 2, 3, 4] {
        send(&mut engine, 0, from, 0, 200 * PAYLOAD, 0);
    }
    // 12 packets of queue 1: 10 stay in the reserve, 2 find no room.
    send(&mut engine, 20 * S, 5, 0, 12 * PAYLOAD, 1);
    let mut done = Vec::new();
    let all = Time::from_ps(40 * S + CABLE);
    while engine.next_time() <= all {
        engine.run(all, 1 << 20, &mut done);
    }
    let report = engine.port_reports();
    let deepest = report.iter().map(|report| report.max_depth).max();
    assert_eq!(deepest, Some(32 * FULL));
    let drops_before = engine.totals().drops;
    assert!(drops_before > 2);
    while engine.next_time() != Time::NEVER {
        engine.run(Time::NEVER, 1 << 20, &mut done);
    }
    let hot = engine.port_reports().iter().map(|report| report.data_packets).max();
    // What left the port: all that was not dropped.
    assert_eq!(hot, Some(800 + 12 - engine.totals().drops));
}

/// Between kmin and kmax the share dropped grows with the queue, and certainly above.
#[test]
fn an_early_drop_profile_keeps_the_queue_short() {
    let profile = |pmax| EcnSettings {
        rate: BitRate::from_gbps(400),
        kmin: Bytes::new(10 * FULL),
        kmax: Bytes::new(40 * FULL),
        pmax,
        at: MarkAt::Enqueue,
    };
    let deepest = |red| {
        let queues = vec![QueueSettings { lossless: false, red, ..QueueSettings::default() }];
        let mut engine = engine(9, settings(Discipline::Fifo, queues));
        for from in 1..9 {
            send(&mut engine, 0, from, 0, 100 * PAYLOAD, 0);
        }
        let mut done = Vec::new();
        while engine.next_time() != Time::NEVER {
            engine.run(Time::NEVER, 1 << 20, &mut done);
        }
        let deepest = engine.port_reports().iter().map(|report| report.max_depth).max().unwrap_or(0);
        (deepest / FULL, engine.totals().drops)
    };
    assert_eq!(deepest(Some(profile(0.0))).0, 40, "only above kmax");
    let (depth, drops) = deepest(Some(profile(1.0)));
    // Seven of eight packets are too many: the queue settles where 7/8 are dropped, 36 packets.
    assert!((30..=40).contains(&depth) && drops > 600, "{depth} packets, {drops} drops");
    assert_eq!(deepest(None).1, 0);
}

#[test]
fn queues_that_cannot_work_are_refused() {
    let refuse = |queue: QueueSettings| {
        let settings = settings(Discipline::Strict, vec![QueueSettings::default(), queue]);
        settings.check().map_err(|error| error.to_string())
    };
    let rate = BitRate::from_gbps(1);
    let shaper = |rate, burst| Some(Shaper { rate, burst: Bytes::new(burst) });
    let profile = EcnSettings {
        rate,
        kmin: Bytes::new(2_000),
        kmax: Bytes::new(1_000),
        pmax: 1.0,
        at: MarkAt::Enqueue,
    };
    let told = [
        refuse(QueueSettings { weight: 0, ..QueueSettings::default() }),
        refuse(QueueSettings { shaper: shaper(rate, 4_000), ..QueueSettings::default() }),
        refuse(QueueSettings { shaper: shaper(BitRate::ZERO, 8_000), ..QueueSettings::default() }),
        refuse(QueueSettings { red: Some(profile), ..QueueSettings::default() }),
        refuse(QueueSettings { alpha: Some(0.0), ..QueueSettings::default() }),
    ];
    assert_eq!(
        told.map(Result::unwrap_err),
        [
            "`queues[1].weight` is 0, expected at least 1",
            "`queues[1].burst` is 4000 B, expected at least `mtu`: 4160 B",
            "`queues[1].rate` is 0 bps, expected more",
            "`queues.red` of queue 1: `kmin` is 2000 B, expected at most `kmax`: 1000 B",
            "`queues.alpha` is 0, expected a number above 0, at most 1024",
        ]
    );
    let many = settings(Discipline::Strict, weighted(&[1; 9]));
    assert_eq!(many.check(), Err(PacketError::Queues { found: 9 }));
    let lost = PacketSettings { classes: vec![0, 2], ..settings(Discipline::Strict, weighted(&[1, 1])) };
    assert_eq!(lost.check(), Err(PacketError::NoQueue { class: 1, queue: 2, known: 2 }));
    // Sizes for ports of 1,600 Gbps, on a star of 400 Gbps: not even a packet alone would be let through.
    let red = |kmax| EcnSettings {
        rate: BitRate::from_gbps(1_600),
        kmin: Bytes::ZERO,
        kmax: Bytes::new(kmax),
        ..profile
    };
    let built = |kmax| {
        let queue = QueueSettings { red: Some(red(kmax)), ..QueueSettings::default() };
        let settings = settings(Discipline::Fifo, vec![queue]);
        Engine::new(star(2), settings, NoTransport::default()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(built(4 * 4_160), Ok(()));
    let told = "`queues[0].red.kmax` comes to 4159 B at ports of 400 Gbps, where all above is dropped, expected at least `mtu`: 4160 B";
    assert_eq!(built(4 * 4_159), Err(told.into()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Whatever the discipline, priorities, weights, shapers and buffers: what is sent arrives or is counted as dropped,
    /// nothing is left, and a second run is the same.
    #[test]
    fn queues_conserve_packets(
        sent in prop::collection::vec((0..20_000u64, 1..8u32, 0..4u8, 1..100_000u64), 1..40),
        discipline in prop_oneof![
            Just(Discipline::Fifo), Just(Discipline::Strict),
            Just(Discipline::WeightedRoundRobin), Just(Discipline::DeficitRoundRobin),
        ],
        queues in prop::collection::vec((0..3u8, 1..6u32, prop::option::of(50..400u64), any::<bool>()), 4),
        size in prop::option::of(200_000..2_000_000u64),
        pauses in any::<bool>(),
    ) {
        let queues: Vec<QueueSettings> = queues
            .into_iter()
            .enumerate()
            .map(|(index, (priority, weight, rate, lossless))| QueueSettings {
                priority,
                weight,
                shaper: rate.map(|gbps| Shaper { rate: BitRate::from_gbps(gbps), burst: Bytes::new(2 * FULL) }),
                lossless: lossless || index == 0,
                ..QueueSettings::default()
            })
            .collect();
        let all_lossless = queues.iter().all(|queue| queue.lossless);
        let pfc = PfcSettings {
            xoff: Xoff::Static(Bytes::new(8 * FULL)),
            xon: Xon::Below(Bytes::new(2 * FULL)),
            headroom: Some(Bytes::new(30 * FULL)),
            ..PfcSettings::default()
        };
        let pfc = (pauses && size.is_none()).then_some(pfc);
        let buffers = size.map(|size| BufferSettings { size: Bytes::new(size), alpha: 1.0, reserve: Bytes::new(5_000) });
        let buffers: Vec<_> = buffers.into_iter().collect();
        let settings = PacketSettings { ack_every: 1, buffers, pfc, ..settings(discipline, queues) };
        let run = |settings: PacketSettings| {
            let transport = NoTransport {
                recovery: Recovery::Selective { reorder: 3 },
                timeout: Span::from_us(200),
                window: 40 * FULL,
            };
            let mut engine = Engine::new(star(8), settings, transport).expect("they work");
            for (token, &(start, from, class, bytes)) in (0u64..).zip(&sent) {
                let pair = engine.open(&OpenRequest {
                    from, to: 0, entropy: token as u32, keep: false, route: [&[], &[]],
                });
                engine.classify(pair, class);
                engine.send(Time::from_ps(start * 1_000), pair, Bytes::new(bytes), token);
            }
            let done = drain(&mut engine);
            (done, engine.totals(), engine.port_reports())
        };
        let (done, totals, reports) = run(settings.clone());
        prop_assert_eq!(done.len(), sent.len());
        prop_assert_eq!(totals.bytes_delivered, sent.iter().map(|sent| sent.3).sum::<u64>());
        if settings.buffers.is_empty() && all_lossless {
            prop_assert_eq!(totals.drops, 0);
        }
        let again = run(settings.clone());
        prop_assert_eq!((&again.0, again.1, &again.2), (&done, totals, &reports));
    }
}

/// Drops, or marks, everything beyond so many bytes.
fn beyond(bytes: u64) -> DropProfile {
    let (kmin, kmax) = (Bytes::new(bytes), Bytes::new(bytes));
    DropProfile { rate: BitRate::from_gbps(400), kmin, kmax, pmax: 1.0, at: MarkAt::Enqueue }
}

fn lossy() -> QueueSettings {
    QueueSettings { lossless: false, ..QueueSettings::default() }
}

/// A green sender and a yellow one at line rate into one queue that serves one of the two. It grows by a packet each packet
/// time; once it is at what yellow packets may find, none of them comes in any more, and no green one is ever dropped.
#[test]
fn a_queue_drops_by_color() {
    let (packets, room) = (200, 20);
    for color in [Color::Yellow, Color::Red] {
        let mut queue = lossy();
        queue.colors[color as usize].red = Some(beyond(room * FULL));
        let settings =
            PacketSettings { colors: vec![Color::Green, color], ..settings(Discipline::Fifo, vec![queue]) };
        let mut engine = engine(3, PacketSettings { classes: vec![0, 0], ..settings });
        for class in 0..2 {
            send(&mut engine, 0, u32::from(class) + 1, 0, packets * PAYLOAD, class);
        }
        let done = drain(&mut engine);
        assert_eq!(done.iter().map(|done| done.token).collect::<Vec<_>>(), [0]);
        let totals = engine.totals();
        let passed = 2 * packets - totals.drops - packets;
        assert!(passed.abs_diff(room) <= 1, "{passed} yellow packets, room for {room}");
        assert_eq!(totals.data_packets, packets + passed);
    }
}

/// Red packets are marked where green ones are not.
#[test]
fn a_queue_marks_by_color() {
    let mut queue = lossy();
    queue.ecn = Some(beyond(1 << 30));
    queue.colors[Color::Red as usize] = ColorProfile { ecn: Some(beyond(0)), red: None };
    let settings = PacketSettings {
        colors: vec![Color::Green, Color::Red],
        classes: vec![0, 0],
        ..settings(Discipline::Fifo, vec![queue])
    };
    let mut engine = engine(3, settings);
    send(&mut engine, 0, 1, 0, 50 * PAYLOAD, 0);
    send(&mut engine, 0, 2, 0, 30 * PAYLOAD, 1);
    drain(&mut engine);
    assert_eq!(engine.totals().marks, 30);
}

/// How many of `packets` at line rate a queue drops that lets those of `colors` alone in.
fn dropped(meter: Meter, own: Color, packets: u64, colors: &[Color]) -> u64 {
    let mut queue = QueueSettings { meter: Some(meter), ..lossy() };
    for color in [Color::Green, Color::Yellow, Color::Red] {
        if !colors.contains(&color) {
            queue.colors[color as usize].red = Some(beyond(0));
        }
    }
    let settings = PacketSettings { colors: vec![own], ..settings(Discipline::Fifo, vec![queue]) };
    let mut engine = engine(2, settings);
    send(&mut engine, 0, 1, 0, packets * PAYLOAD, 0);
    drain(&mut engine);
    engine.totals().drops
}

/// A sender at 400 Gbps on a meter of 100: with C bytes of committed burst n packets may be green whose bytes are no more than C
/// and what has come since the first; with E of excess burst E bytes are yellow and no more, as the first bucket never overflows.
#[test]
fn a_single_rate_meter_colors_by_rfc_2697() {
    let (packets, burst, excess) = (1_000, 10 * FULL, 7 * FULL + 100);
    let meter =
        Meter::SingleRate { cir: BitRate::from_gbps(100), cbs: Bytes::new(burst), ebs: Bytes::new(excess) };
    let green = (burst + (packets - 1) * FULL / 4) / FULL;
    let yellow = excess / FULL;
    let of = |own, colors: &[Color]| packets - dropped(meter, own, packets, colors);
    assert_eq!(of(Color::Green, &[Color::Green]), green);
    assert_eq!(of(Color::Green, &[Color::Yellow]), yellow);
    assert_eq!(of(Color::Green, &[Color::Red]), packets - green - yellow);
    // Aware of colors: yellow packets never become green, and what the first bucket does not take fills the second.
    assert_eq!(of(Color::Yellow, &[Color::Green]), 0);
    assert_eq!(of(Color::Yellow, &[Color::Yellow]), (excess + (packets - 1) * FULL / 4) / FULL);
    assert_eq!(of(Color::Red, &[Color::Red]), packets);
}

/// A peak of 200 Gbps of which 50 are committed.
#[test]
fn a_two_rate_meter_colors_by_rfc_2698() {
    let (packets, burst, peak) = (1_000, 10 * FULL, 4 * FULL);
    let (cir, pir) = (BitRate::from_gbps(50), BitRate::from_gbps(200));
    let meter = Meter::TwoRate { cir, cbs: Bytes::new(burst), pir, pbs: Bytes::new(peak) };
    let within = (peak + (packets - 1) * FULL / 2) / FULL;
    let green = (burst + (packets - 1) * FULL / 8) / FULL;
    let of = |own, colors: &[Color]| packets - dropped(meter, own, packets, colors);
    assert_eq!(of(Color::Green, &[Color::Red]), packets - within);
    assert!(of(Color::Green, &[Color::Green]).abs_diff(green) <= 1);
    assert_eq!(of(Color::Green, &[Color::Green, Color::Yellow]), within);
    assert_eq!(of(Color::Yellow, &[Color::Green]), 0);
    assert_eq!(of(Color::Yellow, &[Color::Yellow]), within);
    assert_eq!(of(Color::Red, &[Color::Red]), packets);
}

/// Two messages of one NIC, of classes 0 and 1: when each ends, in packet times from the first packet on.
fn pulled(pull: Pull, queues: Vec<QueueSettings>, packets: u64) -> Vec<u64> {
    let settings = PacketSettings { pull, ..settings(Discipline::Fifo, queues) };
    let mut engine = engine(3, settings);
    for class in 0..2 {
        send(&mut engine, 0, 0, u32::from(class) + 1, packets * PAYLOAD, class);
    }
    let ends = ends(&drain(&mut engine), 2);
    ends.iter().map(|end| (end - 2 * CABLE - S) / S).collect()
}

/// The first message's packet is on its way when the second comes. By turns both end together; strictly the second queue's goes
/// first and the other waits for all of it; by weights of 1 and 3 three packets in four are the second's until it has no more.
#[test]
fn a_nic_takes_packets_by_the_queues_of_their_traffic() {
    let packets = 300;
    let weights = || weighted(&[1, 3]);
    let priorities = || {
        let mut queues = weighted(&[1, 1]);
        queues[1].priority = 1;
        queues
    };
    // The first queue pair was on the ring before the second: it has the second turn too.
    assert_eq!(pulled(Pull::RoundRobin, weights(), packets), [2 * packets - 2, 2 * packets]);
    assert_eq!(pulled(Pull::Strict, priorities(), packets), [2 * packets, packets + 1]);
    let by_weight = pulled(Pull::Weighted, weights(), packets);
    assert_eq!(by_weight[0], 2 * packets);
    assert!(by_weight[1].abs_diff(packets * 4 / 3 + 1) <= 1, "{by_weight:?}");
    // Priorities do not count by weights, nor weights by priority.
    assert_eq!(pulled(Pull::Weighted, priorities(), packets), [2 * packets - 1, 2 * packets]);
    assert_eq!(pulled(Pull::Strict, weights(), packets), by_weight);
}

#[test]
fn meters_and_turns_that_cannot_work_are_refused() {
    let of = |meter| {
        let queue = QueueSettings { meter: Some(meter), ..lossy() };
        settings(Discipline::Fifo, vec![queue]).check().expect_err("refused").to_string()
    };
    let (slow, fast, small, large) =
        (BitRate::from_gbps(1), BitRate::from_gbps(2), Bytes::new(1_000), Bytes::new(9_000));
    let small_burst = of(Meter::SingleRate { cir: slow, cbs: small, ebs: large });
    assert_eq!(small_burst, "`queues[0].meter.cbs` is 1000 B, expected at least `mtu`: 4160 B");
    let no_rate = of(Meter::SingleRate { cir: BitRate::ZERO, cbs: large, ebs: large });
    assert_eq!(no_rate, "`queues[0].meter.cir` is 0 bps, expected more");
    let low_peak = of(Meter::TwoRate { cir: fast, cbs: large, pir: slow, pbs: large });
    assert_eq!(low_peak, "`queues[0].meter.pir` is 1000000000 bps, expected at least `cir`: 2000000000 bps");
    let small_peak = of(Meter::TwoRate { cir: slow, cbs: large, pir: fast, pbs: small });
    assert_eq!(small_peak, "`queues[0].meter.pbs` is 1000 B, expected at least `mtu`: 4160 B");
    let without = PacketSettings { pull: Pull::Strict, ..crate::common::even_packets() };
    assert_eq!(without.check(), Err(PacketError::PullWithoutQueues));
}
