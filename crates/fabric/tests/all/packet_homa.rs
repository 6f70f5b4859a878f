//! Homa against its paper: line rate, SRPT, short messages under load, overcommitment, and its priorities.

use windtunnel_fabric::packet::transport::{Homa, NoTransport, Tally, Transport};
use windtunnel_fabric::packet::{Completion, Engine, PacketError, PacketSettings, QueueSettings};

use crate::common::even_packets;
use crate::packets::{drain, engine, send, star};

/// Payload of a full packet, and its time at 100 Gbps with headers, in picoseconds.
const FULL: u64 = 4_096;
const PACKET: u64 = 4_160 * 80;

/// (start in ps, sender, receiver, packets)
type Sent = (u64, u32, u32, u64);

/// Hosts on one switch at 100 Gbps, cables of 100 m; completions by token, which is the place in `sent`.
fn run<T: Transport>(hosts: u32, transport: T, sent: &[Sent]) -> (Vec<Completion>, Engine<T>) {
    let mut engine = engine(&star(hosts, 100, 100_000), even_packets(), transport);
    for (token, &(at, from, to, packets)) in (0..).zip(sent) {
        send(&mut engine, at, from, to, packets * FULL, token);
    }
    let mut done = drain(&mut engine);
    assert_eq!(done.len(), sent.len());
    done.sort_by_key(|completion| completion.token);
    (done, engine)
}

/// When the last packet of a message arrives that is alone on the fabric: line rate from the first bit on.
fn idle(packets: u64) -> u64 {
    run(2, NoTransport::default(), &[(0, 0, 1, packets)]).0[0].at.ps()
}

fn tally<T: Transport>(engine: &Engine<T>) -> Tally {
    engine.tally().expect("a dispatcher")
}

/// RTTbytes cover the way there and the way of a grant back, so a message alone never waits for one.
#[test]
fn a_message_alone_takes_as_long_as_at_line_rate() {
    for packets in [1, 3, 10, 2_000] {
        let (done, engine) = run(2, Homa::default(), &[(0, 0, 1, packets)]);
        assert_eq!(done[0].at.ps(), idle(packets), "{packets} packets");
        let tally = tally(&engine);
        assert_eq!(tally.get("sent_unasked") + tally.get("sent_granted"), packets);
        assert_eq!(tally.get("sent_again") + tally.get("reminders_sent") + tally.get("resends_sent"), 0);
    }
    // One packet less than a round trip holds, and each round trip has a gap.
    let few = Homa { rtt_packets: Some(2), ..Homa::default() };
    assert!(run(2, few, &[(0, 0, 1, 2_000)]).0[0].at.ps() > idle(2_000) * 11 / 10);
}

/// All bytes of an incast go through one port: it is never idle once the first packet is there, and loses nothing where it holds the first
/// round trip of all senders.
#[test]
fn an_incast_keeps_its_port_busy() {
    for senders in [2, 8, 40] {
        let sent: Vec<Sent> = (0..senders).map(|from| (0, from, senders, 200)).collect();
        let homa = Homa { port_buffer: 4_000_000, ..Homa::default() };
        let (done, engine) = run(senders + 1, homa, &sent);
        let last = done.iter().map(|completion| completion.at.ps()).max().expect("messages");
        let least = idle(1) + (200 * u64::from(senders) - 1) * PACKET;
        assert!(last >= least && last < least + least / 50, "{senders} senders: {last} of {least}");
        assert_eq!(tally(&engine).get("data_lost_in_network"), 0);
    }
}

/// Five messages of different sizes to one receiver, the longest first in every list: they end in the order of their sizes, each when all
/// shorter ones and itself fit through, but for what all send unasked and what is overcommitted.
#[test]
fn the_least_left_ends_first() {
    let sizes = [900, 700, 500, 300, 100];
    let sent: Vec<Sent> = (0..).zip(sizes).map(|(from, packets)| (0, from, 5, packets)).collect();
    let (done, engine) = run(6, Homa::default(), &sent);
    assert!(done.windows(2).all(|pair| pair[0].at > pair[1].at));
    let rtt = u64::from(Homa::default().overcommitment.unwrap_or(7)) * 12;
    for (place, completion) in done.iter().enumerate() {
        let shorter: u64 = sizes[place..].iter().sum();
        let ideal = idle(1) + (shorter - 1) * PACKET;
        let at = completion.at.ps();
        assert!(at >= ideal && at <= ideal + rtt * PACKET, "{} packets: {at} of {ideal}", sizes[place]);
    }
    assert_eq!(tally(&engine).get("sent_again"), 0);
}

/// Short messages that come while four long ones fill their receiver's port: each waits for at most one full packet at each port, for
/// scheduled packets have lower priorities (§3.4). Under first come first served they stand behind all that is on its way.
#[test]
fn short_messages_pass_long_ones() {
    let mut sent: Vec<Sent> = (0..4).map(|from| (0, from, 5, 4_000)).collect();
    sent.extend((0..100).map(|number| (500_000_000 + number * 20_000_000, 4, 5, 1 + number % 3)));
    let slowest = |homa: Homa| {
        let (done, _) = run(6, homa, &sent);
        let slowdown = |completion: &Completion| {
            let packets = sent[completion.token as usize].3;
            (completion.at.ps() - completion.start.ps()) as f64 / idle(packets) as f64
        };
        done[4..].iter().map(slowdown).fold(0.0, f64::max)
    };
    // Two ports, each with a packet begun.
    let bound = (idle(1) + 2 * PACKET) as f64 / idle(1) as f64;
    let found = slowest(Homa::default());
    assert!(found <= bound, "{found} of at most {bound}");
    let one = slowest(Homa { levels: 2, overcommitment: Some(7), ..Homa::default() });
    assert!(one <= bound, "scheduled packets are below unasked ones with two priorities too: {one}");
}

/// §3.5: a receiver that grants to one message at a time is idle while that message's sender serves a shorter one to another receiver.
#[test]
fn overcommitment_fills_links_that_senders_leave() {
    // Host 0 has short messages for hosts 2 to 5, one after another, and one of 2,000 for host 6; host 1 has a longer one for host 6.
    let mut sent: Vec<Sent> =
        (0..40).map(|number| (number * 100 * PACKET, 0, 2 + (number % 4) as u32, 95)).collect();
    sent.push((0, 0, 6, 300));
    sent.push((0, 1, 6, 3_000));
    let last = |homa: Homa| run(7, homa, &sent).0[41].at.ps();
    let (usual, one) = (last(Homa::default()), last(Homa { overcommitment: Some(1), ..Homa::default() }));
    let least = idle(1) + 3_299 * PACKET;
    assert!(usual < least + least / 50, "{usual} of {least}");
    assert!(one > least + least / 5, "{one} of {least}");
}

/// Ports that hold six packets lose most of an incast's first round; receivers ask for what is missing, and all arrives once.
#[test]
fn losses_are_mended_by_time_outs() {
    let homa = Homa { port_buffer: 25_000, ..Homa::default() };
    let sent: Vec<Sent> = (0..20).map(|from| (0, from, 20, 60)).collect();
    let (_, engine) = run(21, homa, &sent);
    let tally = tally(&engine);
    let lost = tally.get("data_lost_in_network");
    assert!(lost > 0 && tally.get("resends_sent") > 0, "{tally:?}");
    assert_eq!(engine.totals().bytes_delivered, 20 * 60 * FULL);
    let sent = tally.get("sent_unasked") + tally.get("sent_granted");
    assert_eq!(sent, 20 * 60 + tally.get("sent_again") + tally.get("reminders_sent"));
}

/// Only short messages: all that arrives was sent unasked, and after 64 of them all priorities but one are for that.
#[test]
fn priorities_follow_what_arrives() {
    let short: Vec<Sent> =
        (0..200).map(|number| (number * 1_000_000, (number % 4) as u32, 5, 1 + number % 8)).collect();
    assert_eq!(tally(&run(6, Homa::default(), &short).1).get("unscheduled_levels"), 7);
    let long: Vec<Sent> = (0..80).map(|number| (0, number % 4, 5, 400)).collect();
    assert_eq!(tally(&run(6, Homa::default(), &long).1).get("unscheduled_levels"), 1);
}

/// A recording: two messages that share a receiver, one that shares a sender. Times follow from the rules above and were worked out once.
#[test]
fn a_small_case_is_as_recorded() {
    let sent = [(0, 0, 2, 40), (0, 1, 2, 20), (1_000_000, 0, 3, 5)];
    let (done, engine) = run(4, Homa::default(), &sent);
    let found: Vec<u64> = done.iter().map(|completion| completion.at.ps()).collect();
    assert_eq!(found, GOLDEN);
    assert_eq!(tally(&engine).get("grants_sent"), GRANTS);
}

const GOLDEN: [u64; 3] = [21_300_800, 10_984_000, 4_328_000];
const GRANTS: u64 = 42;

#[test]
fn settings_that_cannot_work_are_refused() {
    let queues = [0, 1].map(|priority| QueueSettings { priority, ..QueueSettings::default() });
    let settings = PacketSettings { queues: queues.to_vec(), ..even_packets() };
    let error = Engine::new(star(2, 100, 0), settings, Homa::default()).expect_err("refused");
    assert!(matches!(error, PacketError::Dispatch { transport: "homa", .. }), "{error}");
    assert!(error.to_string().contains("has 2 priorities, expected `levels`: 8"), "{error}");
}
