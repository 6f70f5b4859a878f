//! SIRD against its paper: the bound on credit, line rate, what senders say of themselves, and what the network says.

use std::sync::Arc;

use windtunnel_fabric::packet::transport::{NoTransport, Sird, Tally, Transport};
use windtunnel_fabric::packet::{Completion, Engine, PacketError, PacketSettings, QueueSettings};
use windtunnel_topology::Topology;

use crate::common::even_packets;
use crate::packets::{drain, engine, send, star, two_leaves};

const FULL: u64 = 4_096;
const PACKET: u64 = 4_160 * 80;

/// (start in ps, sender, receiver, packets)
type Sent = (u64, u32, u32, u64);

fn run<T: Transport>(topology: &Arc<Topology>, transport: T, sent: &[Sent]) -> (Vec<Completion>, Engine<T>) {
    let mut engine = engine(topology, even_packets(), transport);
    for (token, &(at, from, to, packets)) in (0..).zip(sent) {
        send(&mut engine, at, from, to, packets * FULL, token);
    }
    let mut done = drain(&mut engine);
    assert_eq!(done.len(), sent.len());
    done.sort_by_key(|completion| completion.token);
    (done, engine)
}

fn idle(packets: u64) -> u64 {
    run(&star(2, 100, 100_000), NoTransport::default(), &[(0, 0, 1, packets)]).0[0].at.ps()
}

fn tally<T: Transport>(engine: &Engine<T>) -> Tally {
    engine.tally().expect("a dispatcher")
}

fn last(done: &[Completion]) -> u64 {
    done.iter().map(|completion| completion.at.ps()).max().expect("messages")
}

/// A message of at most UnschT takes no longer than at line rate; a longer one asks for credit first, and then goes at the pace of credit.
#[test]
fn short_messages_leave_unasked_and_long_ones_on_credit() {
    let topology = star(2, 100, 100_000);
    for packets in [1, 4, 8] {
        assert_eq!(run(&topology, Sird::default(), &[(0, 0, 1, packets)]).0[0].at.ps(), idle(packets));
    }
    let time = |packets| last(&run(&topology, Sird::default(), &[(0, 0, 1, packets)]).0);
    let each = (time(4_000) - time(2_000)) as f64 / 2_000.0;
    assert!((each * 0.99 / PACKET as f64 - 1.0).abs() < 0.002, "{each} ps a packet");
    // The request and the first credit.
    assert!(time(1_000) < idle(1_000) * 102 / 100 + idle(1));
    let tally = tally(&run(&topology, Sird::default(), &[(0, 0, 1, 1_000)]).1);
    assert_eq!(
        (tally.get("sent_unasked"), tally.get("sent_on_credit"), tally.get("requests_sent")),
        (0, 1_000, 1)
    );
    assert_eq!(tally.get("sent_congested"), 0, "a sender with one receiver is not congested by others");
}

/// Credit that is out is at most B: so the receiver's port never holds more than what B has beyond what is on its way, and it is never idle.
#[test]
fn an_incast_is_bounded_by_the_bucket() {
    for senders in [2, 8, 40] {
        let sent: Vec<Sent> = (0..senders).map(|from| (0, from, senders, 300)).collect();
        let (done, engine) = run(&star(senders + 1, 100, 100_000), Sird::default(), &sent);
        let tally = tally(&engine);
        assert!(tally.get("credit_out_most") <= tally.get("credit_limit"), "{tally:?}");
        let deepest = engine.port_reports().iter().map(|report| report.max_depth).max().expect("ports");
        assert!(deepest <= tally.get("credit_limit") * 4_160, "{deepest}");
        // Paced below line rate, hardly a packet waits (§4).
        assert!(deepest <= 4 * 4_160 + 40 * 64, "{senders} senders: {deepest}");
        let least = idle(1) + (300 * u64::from(senders) - 1) * PACKET;
        assert!(last(&done) < least * 100 / 99 + least / 50, "{senders} senders: {} of {least}", last(&done));
        assert_eq!(tally.get("credits_taken_back"), 0);
    }
}

/// §6's outcast: a sender with long messages for three receivers. Its receivers learn that it holds more than SThr, so that it holds little
/// more than that; without the bit each keeps its whole bucket there, and more so the more there are.
#[test]
fn a_congested_sender_holds_little_credit() {
    let held = |receivers: u32, threshold: f64| {
        let sent: Vec<Sent> = (1..=receivers).map(|to| (0, 0, to, 4_000)).collect();
        let sird = Sird { sender_threshold: threshold, ..Sird::default() };
        let mut engine = engine(&star(receivers + 1, 100, 400_000), even_packets(), sird);
        for &(at, from, to, packets) in &sent {
            send(&mut engine, at, from, to, packets * FULL, u64::from(to));
        }
        drain(&mut engine);
        let tally = tally(&engine);
        (tally.get("credit_held_most"), tally.get("credit_limit") * 2 / 3, tally.get("bucket_cut_most"))
    };
    for receivers in [3, 6] {
        let (blind, bdp, cut) = held(receivers, 1e6);
        assert!(cut == 0 && blind >= (u64::from(receivers) - 1) * bdp * 8 / 10, "{blind} of {bdp}");
        let (_, _, cut) = held(receivers, 0.5);
        assert!(cut > bdp / 4, "buckets fall: by {cut} of {bdp}");
    }
}

/// What a congested sender cannot use goes to others: a receiver that both a congested and an idle sender have messages for is kept busy.
#[test]
fn credit_goes_to_senders_that_can_use_it() {
    // Host 0 has messages for hosts 2 to 7, host 1 one for host 2 alone.
    let mut sent: Vec<Sent> = (2..8).map(|to| (0, 0, to, 600)).collect();
    sent.push((0, 1, 2, 3_000));
    let (done, _) = run(&star(8, 100, 100_000), Sird::default(), &sent);
    let least = idle(1) + 3_599 * PACKET;
    let at = done[6].at.ps();
    assert!(at < least * 103 / 100, "{at} of {least}");
}

/// Shorter messages to one receiver end first, by credit for the least left; in turn, messages of one size end together.
#[test]
fn receivers_follow_their_policy() {
    let sizes = [400, 300, 200, 100];
    let sent: Vec<Sent> = (0..).zip(sizes).map(|(from, packets)| (0, from, 4, packets)).collect();
    let topology = star(5, 100, 100_000);
    let (done, _) = run(&topology, Sird::default(), &sent);
    for (place, completion) in done.iter().enumerate() {
        let ideal = sizes[place..].iter().sum::<u64>() * PACKET * 100 / 99;
        let (at, more) = (completion.at.ps(), 2 * idle(1) + 24 * PACKET);
        assert!(at + PACKET > ideal && at < ideal + more, "{} packets: {at} of {ideal}", sizes[place]);
    }
    let mut sird = Sird::default();
    sird.receiver_policy.at = 1;
    let equal: Vec<Sent> = (0..4).map(|from| (0, from, 4, 300)).collect();
    let (done, _) = run(&topology, sird, &equal);
    let first = done.iter().map(|completion| completion.at.ps()).min().expect("messages");
    assert!(last(&done) - first < 40 * PACKET, "in turn: {first} to {}", last(&done));
}

/// Sixteen senders behind two cables: the cables' queues mark above NThr, buckets fall, and packets wait there for less than half as long as
/// with marks out of reach. (The first round trip is before any mark, and the deepest queue is of then.)
#[test]
fn the_network_has_a_say() {
    let sent: Vec<Sent> = (0..16).map(|from| (0, from, 16 + from, 1_500)).collect();
    let topology = two_leaves(16, 2);
    let waits = |network_threshold| {
        let port_buffer = u32::MAX;
        let (_, engine) = run(&topology, Sird { network_threshold, port_buffer, ..Sird::default() }, &sent);
        let waited: u64 = engine.port_reports().iter().map(|report| report.queueing.ps()).sum();
        (waited, engine.totals().marks, tally(&engine).get("bucket_cut_most"))
    };
    let (near, marks, cut) = waits(1.25);
    let (far, none, whole) = waits(1e4);
    assert!(marks > 0 && cut > 0 && none == 0 && whole == 0, "{marks} marks, cut by {cut}");

    assert!(near < far / 2, "{near} beside {far}");
}

#[test]
fn losses_are_mended_by_time_outs() {
    let sird = Sird { port_buffer: 12_000, ..Sird::default() };
    let sent: Vec<Sent> = (0..20).map(|from| (0, from, 20, 6 + 40 * u64::from(from % 2))).collect();
    let (_, engine) = run(&star(21, 100, 100_000), sird, &sent);
    let tally = tally(&engine);
    assert!(tally.get("data_lost_in_network") > 0 && tally.get("requests_sent") > 10, "{tally:?}");
    assert_eq!(engine.totals().bytes_delivered, 10 * (6 + 46) * FULL);
}

/// A recording: two messages that share a receiver, one that shares a sender.
#[test]
fn a_small_case_is_as_recorded() {
    let sent = [(0, 0, 2, 40), (0, 1, 2, 20), (1_000_000, 0, 3, 5)];
    let (done, engine) = run(&star(4, 100, 100_000), Sird::default(), &sent);
    let found: Vec<u64> = done.iter().map(|completion| completion.at.ps()).collect();
    assert_eq!(found, GOLDEN);
    assert_eq!(tally(&engine).get("credits_sent"), 60);
}

const GOLDEN: [u64; 3] = [23_657_442, 10_678_242, 3_996_800];

#[test]
fn settings_that_cannot_work_are_refused() {
    let queues = vec![QueueSettings::default()];
    let settings = PacketSettings { queues, ..even_packets() };
    let error = Engine::new(star(2, 100, 0), settings.clone(), Sird::default()).expect_err("refused");
    assert!(matches!(error, PacketError::Dispatch { transport: "sird", .. }), "{error}");
    assert!(error.to_string().contains("has 1 priorities, expected 3"), "{error}");
    assert!(Engine::new(star(2, 100, 0), settings, Sird { priorities: false, ..Sird::default() }).is_ok());
}
