//! DCSIM against its paper: the theorems on a single port, the counterexample of figure 3, and what holds on every healthy fabric.

use std::sync::Arc;

use windtunnel_fabric::dispatched;
use windtunnel_fabric::packet::transport::{
    Dcsim, Dispatcher, Dispatching, FabricFacts, FlowFacts, Heard, Joined, Landed, LinePort, Lines, Load,
    NicFacts, Note, Outbox, Parcel, Sent, Tally,
};
use windtunnel_fabric::packet::{
    BufferSettings, Engine, Forwarding, PacketError, PacketSettings, ParallelSettings,
};
use windtunnel_kernel::random::combine;
use windtunnel_kernel::{BitRate, Bytes, Span};
use windtunnel_topology::{ClosSpec, Topology, TopologySpec};

use crate::packets::{drain, engine, send, star, two_leaves};

const MTU: u64 = 9_000;
const HEADER: u64 = 40;
const NOTE: u64 = 64;

fn settings() -> PacketSettings {
    PacketSettings {
        mtu: Bytes::new(MTU),
        header: Bytes::new(HEADER),
        control: Bytes::new(NOTE),
        seed: 1,
        ..PacketSettings::default()
    }
}

fn packets(count: u64) -> u64 {
    count * (MTU - HEADER)
}

/// The paper's fabric: a fat tree of 800 Gbps whose cables and switches take 650 ns together, 7.8 µs there and back.
fn fat_tree(k: u32) -> Arc<Topology> {
    let mut spec = ClosSpec::fat_tree(k, BitRate::from_gbps(800));
    for tier in &mut spec.tiers {
        (tier.length_mm, tier.switch_latency) = (130_000, Span::ZERO);
    }
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree"))
}

/// Keeps both the SIM line and the DATA line of a port of [`Dcsim`]'s from running dry, and notes when each leaves: theorems 1 and 3.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Backlog(Dcsim);

#[derive(Clone, Debug, Default)]
struct BacklogNic {
    /// When each transmission began, and whether it was a DATA.
    left: Vec<(u64, bool)>,
}

dispatched!(Backlog);

impl Dispatcher for Backlog {
    type Used = Dispatching;
    type Nic = BacklogNic;
    const NAME: &'static str = "backlog";

    fn lines(&self, port: &LinePort, fabric: &FabricFacts) -> Lines {
        self.0.lines(port, fabric)
    }

    fn open_nic(&self, _: &mut BacklogNic, _: &NicFacts) {}

    fn open(&self, _: &mut BacklogNic, _: &FlowFacts) {}

    fn accept(&self, _: &mut BacklogNic, _: &FlowFacts) {}

    fn abandon(&self, _: &mut BacklogNic, _: u32, _: bool) {}

    fn on_message(&self, _: &mut BacklogNic, message: &Joined, out: &mut Outbox) {
        for sequence in message.first..message.first + message.packets {
            let parcel = Parcel {
                flow: message.flow,
                back: false,
                load: Load::Data(sequence),
                line: 3,
                path: 0,
                rank: 0,
            };
            out.send(parcel);
            out.send(Parcel { load: Load::Note(Note::default()), line: 0, ..parcel });
        }
    }

    fn on_note(&self, _: &mut BacklogNic, _: &Heard, _: &mut Outbox) {}

    fn on_data(&self, _: &mut BacklogNic, _: &Landed, _: &mut Outbox) {}

    fn on_sent(&self, nic: &mut BacklogNic, sent: &Sent, _: &mut Outbox) {
        nic.left.push((sent.now.ps(), matches!(sent.load, Load::Data(_))));
    }

    fn tell(&self, nic: &BacklogNic, tally: &mut Tally) {
        for (place, &(time, data)) in nic.left.iter().enumerate() {
            // Names are static: one for each of the first transmissions.
            tally.add(if data { "data" } else { "sims" }, 1);
            if (2_000..3_000).contains(&place) {
                tally.add(if data { "data_later" } else { "sims_later" }, 1);
                let next = nic.left[place + 1];
                tally.add("pairs_alike", u64::from(next.1 == data));
                let takes = if data { MTU } else { NOTE } * 10;
                tally.add("idle_ps", next.0 - time - takes);
            }
            tally.raise("last_sim_ps", if data { 0 } else { time });
        }
    }
}

/// A port with 4,000 SIMs and DATA waiting, from the 2,000th transmission to the 3,000th: DATA, SIMs, pairs of one kind in a row, time idle.
fn backlog(dcsim: Dcsim) -> [u64; 4] {
    let mut engine = engine(&star(2, 800, 0), settings(), Backlog(dcsim));
    send(&mut engine, 0, 0, 1, packets(4_000), 1);
    drain(&mut engine);
    let tally = engine.tally().expect("a dispatcher");
    ["data_later", "sims_later", "pairs_alike", "idle_ps"].map(|name| tally.get(name))
}

/// Theorem 1: at C / (α + 1) SIMs and DATA alternate, and the line is never idle.
#[test]
fn sims_and_data_alternate_at_line_rate() {
    let dcsim = Dcsim { control_share: 1.0, ..Dcsim::default() };
    assert_eq!(backlog(dcsim), [500, 500, 0, 0]);
}

/// Theorem 3: at C / (α + 2.1) a bucket of one lets half as many SIMs pass, since each finds a DATA begun just before its token; two
/// tokens are as good as twelve. The time of 9,000 + 64 B fits 1.0078 times into that of a token, so one DATA in 128 follows another.
#[test]
fn a_bucket_of_two_is_enough() {
    let rate = |bucket| backlog(Dcsim { bucket: Some(bucket), ..Dcsim::default() });
    let [one, two, twelve] = [1, 2, 12].map(rate);
    assert_eq!((one[3], two[3], twelve[3]), (0, 0, 0), "the line is never idle");
    assert!((332..=334).contains(&one[1]), "a SIM for two DATA: {one:?}");
    assert_eq!(two, twelve);
    assert!((497..=499).contains(&two[1]), "{two:?}");
}

/// Equations 4 and 5 to the picosecond: the first DATA leaves RTT_max after the first SIM, and arrives by two links of 800 Gbps.
#[test]
fn data_leaves_rtt_max_after_its_sim() {
    let mut engine = engine(&star(2, 800, 130_000), settings(), Dcsim::default());
    send(&mut engine, 5_000, 0, 1, packets(1), 1);
    let done = drain(&mut engine);
    let tally = engine.tally().expect("a dispatcher");
    let rtt = 4 * 650_000 + 4 * (12 * 9_000 + 9_000 + (12 * 64 * 21 + 5) / 10 + 64) * 10;
    assert!(tally.get("rtt_max_ps").abs_diff(rtt) <= 40, "{} of {rtt}", tally.get("rtt_max_ps"));
    assert_eq!(done[0].at.ps(), 5_000 + tally.get("rtt_max_ps") + 2 * (90_000 + 650_000));
    assert_eq!(
        ["sims_sent", "sim_acks_in_time", "data_left", "data_acks_sent"].map(|name| tally.get(name)),
        [1; 4]
    );
    assert_eq!(tally.get("sim_round_trip_longest_ps"), 4 * (640 + 650_000));
}

/// Figure 3. B = 2 SIMs and 2 DATA at a port, a bucket of one, packets passed on from their header. At the right switch's port to D three
/// SIMs come first (one leaves, two wait); a slot later one has left, and A's SIM takes its place while B's is dropped; after another slot
/// C's enters, which had waited behind B's at the left switch. RTT_max later nothing of B's stands before C's DATA: it comes a slot earlier
/// than its SIM did, finds the queue full, and is dropped.
#[test]
fn the_counterexample_drops_exactly_one_data() {
    let slot = (9_000 * 10 + 1_344) * 2;
    let note = 64 * 20;
    let settings =
        PacketSettings { forwarding: Forwarding::CutThrough, header: Bytes::new(64), ..settings() };
    let dcsim = Dcsim { sim_buffer: Some(2), data_buffer: Some(2), bucket: Some(1), ..Dcsim::default() };
    let mut engine = engine(&two_leaves(5, 1), settings, dcsim);
    let (b, c, d, a, fillers) = (0, 1, 5, 6, [7, 8, 9]);
    // What comes from the left crosses two links more.
    let far = 2 * (note + 1_000_000);
    let (start, bytes) = (10_000_000, 9_000 - 64);
    for (number, &filler) in (0..).zip(&fillers) {
        send(&mut engine, start + far + number, filler, d, bytes, u64::from(filler));
    }
    send(&mut engine, start + far + slot + 100, a, d, bytes, 6);
    send(&mut engine, start + slot + 200, b, d, bytes, 10);
    send(&mut engine, start + slot + 250, c, d, bytes, 1);
    let done = drain(&mut engine);
    let tally = engine.tally().expect("a dispatcher");
    assert_eq!((tally.get("notes_lost"), tally.get("data_lost_in_network")), (1, 1), "{tally:?}");
    assert_eq!((tally.get("data_overdue"), tally.get("sims_given_up"), done.len()), (1, 1, 6));
    assert_eq!(done[5].token, 1, "it is C's DATA that is sent again");
}

/// Each host sends `count` packets to each other.
fn all_to_all(
    topology: &Arc<Topology>,
    settings: PacketSettings,
    dcsim: Dcsim,
    count: u64,
) -> (Engine<Dcsim>, u64) {
    let mut engine = engine(topology, settings, dcsim);
    let nics = topology.nics();
    for from in 0..nics {
        for to in (0..nics).filter(|&to| to != from) {
            send(&mut engine, 0, from, to, packets(count), u64::from(from * nics + to));
        }
    }
    let done = drain(&mut engine);
    assert_eq!(done.len() as u32, nics * (nics - 1));
    let last = done.iter().map(|completion| completion.at.ps()).max().expect("messages");
    (engine, last)
}

/// What holds in every run without loss: each SIM-ACK that is used sends one DATA, no SIM-ACK is late, none takes longer than RTT_max,
/// nothing times out but SIMs that were dropped.
fn check(tally: &Tally, data: u64) {
    let get = |name| tally.get(name);
    assert_eq!((get("data_lost_in_network"), get("data_lost_in_hosts")), (0, 0), "{tally:?}");
    assert_eq!(
        [get("sim_acks_in_time"), get("data_bound"), get("data_left"), get("data_packets_arrived")],
        [data; 4]
    );
    assert_eq!([get("sim_acks_late"), get("sim_acks_unused"), get("data_overdue")], [0; 3]);
    assert!(get("sim_round_trip_longest_ps") <= get("rtt_max_ps"), "{tally:?}");
    assert_eq!(get("sims_sent"), get("sim_acks_in_time") + get("sims_given_up"));
    assert_eq!(get("notes_lost"), get("sims_given_up"));
}

/// An all-to-all of 16 hosts over three levels, and the same over cables of a quarter of the fabric's rate above the leaves (4:1).
#[test]
fn nothing_is_lost_and_no_answer_is_late() {
    let (engine, _) = all_to_all(&fat_tree(4), settings(), Dcsim::default(), 20);
    check(&engine.tally().expect("a dispatcher"), 16 * 15 * 20);
    let (engine, _) = all_to_all(&two_leaves(8, 2), settings(), Dcsim::default(), 20);
    check(&engine.tally().expect("a dispatcher"), 16 * 15 * 20);
    assert!(engine.tally().expect("a dispatcher").get("sims_given_up") > 0, "SIMs find full ports");
}

/// The variants lose nothing either, and finish; Async is not slower.
#[test]
fn variants_finish() {
    let default = Dcsim::default();
    let data = 16 * 15 * 8;
    let run = |dcsim| {
        let (engine, last) = all_to_all(&fat_tree(4), settings(), dcsim, 8);
        let tally = engine.tally().expect("a dispatcher");
        assert_eq!(
            (tally.get("data_lost_in_network"), tally.get("data_packets_arrived")),
            (0, data),
            "{dcsim:?}"
        );
        (last, tally)
    };
    let (usual, _) = run(default);
    let (fast, _) = run(Dcsim { asynchronous: true, ..default });
    assert!(fast < usual, "{fast} of {usual}");
    let (half, _) = run(Dcsim { fraction: 0.5, ..default });
    assert!(half < usual && half >= fast, "{half}");
    let (_, pairs) = run(Dcsim { data_per_sim: 2, ..default });
    assert_eq!(pairs.get("sim_acks_in_time"), data / 2);
    run(Dcsim { binds_late: true, ..default });
    run(Dcsim { drift_ppm: 40.0, ..default });
    // An incast without SIMs loses packets, which are sent again with SIMs.
    let (engine, _) = all_to_all(&fat_tree(4), settings(), Dcsim { blind_packets: Some(8), ..default }, 8);
    let blind = engine.tally().expect("a dispatcher");
    assert_eq!((blind.get("data_blind"), blind.get("sims_sent") > 0), (data, true), "{blind:?}");
    assert!(blind.get("data_lost_in_network") > 0);
}

/// A port that loses packets: they are sent again after a time without an acknowledgement, with SIMs of their own, and all arrive.
#[test]
fn losses_are_mended() {
    let dcsim = Dcsim { data_buffer: Some(1), sim_buffer: Some(12), ..Dcsim::default() };
    let (engine, _) = all_to_all(&fat_tree(4), settings(), dcsim, 20);
    let tally = engine.tally().expect("a dispatcher");
    let lost = tally.get("data_lost_in_network");
    assert!(lost > 0 && tally.get("data_overdue") >= lost, "{tally:?}");
    assert_eq!(tally.get("data_left"), 16 * 15 * 20 + tally.get("data_overdue"));
}

/// Results do not depend on processes.
#[test]
fn processes_change_nothing() {
    let run = |processes| {
        let parallel = ParallelSettings { threads: 1, processes: Some(processes), threshold: None };
        let settings = PacketSettings { parallel, nic_latency: Span::from_ns(500), ..settings() };
        let topology = fat_tree(4);
        let mut engines = windtunnel_fabric::packet::Engines::new(
            topology.clone(),
            settings,
            Dcsim::default(),
            Span::from_ns(500),
        )
        .expect("engines");
        for from in 0..16 {
            for to in (0..16).filter(|&to| to != from) {
                let request = windtunnel_fabric::packet::OpenRequest {
                    from,
                    to,
                    entropy: combine(u64::from(from), u64::from(to)) as u32,
                    keep: false,
                    route: [&[], &[]],
                };
                let pair = engines.open(windtunnel_kernel::Time::ZERO, &request);
                engines.send(
                    windtunnel_kernel::Time::ZERO,
                    pair,
                    Bytes::new(packets(10)),
                    u64::from(from * 16 + to),
                );
            }
        }
        let mut done = Vec::new();
        while engines.next_time() != windtunnel_kernel::Time::NEVER {
            engines.run(windtunnel_kernel::Time::NEVER, 1 << 20, &mut done);
        }
        let mut figures: Vec<_> = engines.tally().expect("dispatchers").figures().collect();
        figures.sort_unstable();
        (done, figures)
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let refused = |settings, dcsim| {
        let error = Engine::new(star(2, 800, 130_000), settings, dcsim).expect_err("refused");
        assert!(matches!(error, PacketError::Dispatch { transport: "dcsim", .. }), "{error}");
        error.to_string()
    };
    let dcsim = Dcsim::default();
    let short = Dcsim { rtt_max: Some(Span::from_us(2)), ..dcsim };
    assert_eq!(
        refused(settings(), short),
        "transport `dcsim`: `rtt_max` is 2 us, but a SIM and its SIM-ACK that meet one DATA at each port take 2.96256 us (of which the \
         propagation is 2.6 us), and SIMs that take longer are taken for lost: expected at least that; left out, it is 7.347072 us"
    );
    let buffers = vec![BufferSettings { size: Bytes::new(60_000), alpha: 1.0, reserve: Bytes::ZERO }];
    let wide = Dcsim { sim_buffer: Some(12), ..dcsim };
    assert!(refused(PacketSettings { buffers, ..settings() }, wide).contains("holds 3 DATA"));
}
