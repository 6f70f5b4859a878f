//! Trimming and credit: what is trimmed is sent again and nothing else, credit comes no faster than the link, an incast ends
//! as soon as its bytes fit through.

use windtunnel_fabric::packet::transport::{
    Dcqcn, Eqds, Hpcc, Ndp, NoTransport, Nscc, Rccc, Recovery, Transport,
};
use windtunnel_fabric::packet::{
    BufferSettings, Completion, EcnSettings, Engine, MarkAt, OpenRequest, PacketSettings, PfcSettings,
    PortReport, QueuePair, QueueSettings, TrimSettings,
};
use windtunnel_kernel::{BitRate, Bytes, Span, Time};

use crate::packets::star;

const PAYLOAD: u64 = 4_096;
/// Of a full packet and of a header at 100 Gbps.
const FULL: u64 = 4_160 * 80;
const HEADER: u64 = 64 * 80;
const US: u64 = 1_000_000;

fn settings(packets: u64) -> PacketSettings {
    let queue = Some(Bytes::new(packets * 4_160));
    PacketSettings { trimming: Some(TrimSettings { queue, rate: None }), ..crate::common::even_packets() }
}

fn open<T: Transport>(engine: &mut Engine<T>, from: u32, keep: bool) -> QueuePair {
    engine.open(&OpenRequest { from, to: 0, entropy: from, keep, route: [&[], &[]] })
}

/// Hosts 1 to n send `packets` each to host 0 at once.
fn incast<T: Transport>(
    n: u32,
    packets: u64,
    length_mm: u64,
    settings: PacketSettings,
    transport: T,
) -> Engine<T> {
    let mut engine =
        Engine::new(star(n + 1, 100, length_mm), settings, transport).expect("settings that work");
    for from in 1..=n {
        let pair = open(&mut engine, from, false);
        engine.send(Time::ZERO, pair, Bytes::new(packets * PAYLOAD), u64::from(from));
    }
    engine
}

fn finish<T: Transport>(engine: &mut Engine<T>) -> Vec<Completion> {
    let mut done = Vec::new();
    while engine.next_time() != Time::NEVER {
        engine.run(Time::NEVER, u64::MAX, &mut done);
    }
    assert_eq!((engine.packets_live(), engine.unfinished()), (0, Vec::new()), "{}", T::NAME);
    done
}

/// Credit of one NIC port: over any stretch no more than its share of the link and one grant, and no less while all have
/// demand.
fn paced<T: Transport>(transport: T, quantum: u64, share: f64) {
    let (n, packets) = (8, 2_000);
    let mut engine = incast(n, packets, 200_000, settings(20), transport);
    let (mut done, mut granted) = (Vec::new(), Vec::new());
    // Half of the time that the bytes take.
    for step in 1..=u64::from(n) * packets * FULL / 2 / US {
        while engine.next_time() <= Time::from_ps(step * US) {
            engine.run(Time::from_ps(step * US), u64::MAX, &mut done);
        }
        granted.push(engine.totals().credit as f64);
    }
    // Bytes in a microsecond.
    let rate = 12_500.0 * share;
    for (first, &from) in granted.iter().enumerate() {
        for (last, &to) in granted.iter().enumerate().skip(first) {
            let most = (last - first) as f64 * rate + quantum as f64;
            assert!(to - from <= most, "{}: {} B in {} us", T::NAME, to - from, last - first);
        }
    }
    let begun = granted.iter().position(|&bytes| bytes > 0.0).expect("grants");
    let found = granted[granted.len() - 1] - granted[begun];
    let expected = (granted.len() - 1 - begun) as f64 * rate;
    assert!((found - expected).abs() <= quantum as f64, "{}: {found} B, expected {expected}", T::NAME);
}

#[test]
fn credit_comes_at_its_share_of_the_link() {
    paced(Ndp::default(), 4_160, 1.0);
    paced(Eqds::default(), 4_160, 0.99);
    paced(Rccc::default(), 4 * 4_160, 0.99);
}

/// The port to the receiver is busy from the first packet's arrival to the end: with all payload once, and the header of
/// each packet that was trimmed. No payload is lost but what was trimmed, and that is sent again once.
#[test]
fn an_ndp_incast_ends_when_its_bytes_fit_through() {
    for (n, packets) in [(4, 400), (16, 100), (60, 20)] {
        // Cables of 100 ns: the queue of 8 packets lasts longer than a pull and its packet take.
        let mut engine = incast(n, packets, 20_000, settings(8), Ndp { packets: Some(16), ..Ndp::default() });
        let last = finish(&mut engine).last().expect("messages").at.ps();
        let totals = engine.totals();
        assert_eq!((totals.drops, totals.timeouts), (0, 0));
        assert!(totals.trims > 0 && totals.retransmissions == totals.trims, "{totals:?}");
        let all = u64::from(n) * packets;
        assert_eq!((totals.data_packets, totals.bytes_delivered), (all, all * PAYLOAD));
        // Up and down, and what the port sends.
        let least = FULL + 200_000 + all * FULL;
        let busy = least + totals.trims * HEADER;
        assert!(last >= least, "{last} of at least {least}");
        // Acknowledgements and pulls of its receiver wait for no data; a gap at the end while the last are pulled.
        let late = last.saturating_sub(busy) as f64 / busy as f64;
        assert!(late < 0.02, "{n} to 1: {last}, expected {busy}: {late}");
    }
}

/// Queue pairs that are used again and again, by messages that begin while the last packets of the ones before are on their way, keep
/// what goes round of credit: three senders that fill 0.95 of a port with short messages never fall behind.
#[test]
fn messages_that_follow_each_other_closely_keep_their_credit() {
    fn behind<T: Transport>(transport: T, settings: PacketSettings) -> f64 {
        let (packets, rounds) = (12, 400);
        let mut engine = Engine::new(star(4, 100, 100_000), settings, transport).expect("settings that work");
        let period = 3 * packets * FULL * 100 / 95;
        for from in 1..=3 {
            let pair = open(&mut engine, from, true);
            for round in 0..rounds {
                // Not in step with each other: each one's period differs from the others' by little.
                let at = round * (period + u64::from(from) * 20_000) + u64::from(from) * 300_000;
                engine.send(Time::from_ps(at), pair, Bytes::new(packets * PAYLOAD), at);
            }
        }
        let done = finish(&mut engine);
        let late = |done: &Completion| (done.at.ps() - done.token) as f64 / period as f64;
        done.iter().map(late).fold(0.0, f64::max)
    }
    for trim_at in [6, 40] {
        let late = behind(Ndp::default(), settings(trim_at));
        assert!(late < 3.0, "ndp: a message took {late} of the periods at which they come");
    }
    let late = behind(Eqds::default(), settings(40));
    assert!(late < 3.0, "eqds: a message took {late} of the periods at which they come");
}

/// Receivers' credit fills 0.99 of the link whatever the number of senders.
#[test]
fn incasts_on_credit_fill_their_share_of_the_link() {
    fn share<T: Transport>(n: u32, transport: T) {
        let packets = 4_000 / u64::from(n);
        let mut engine = incast(n, packets, 200_000, settings(40), transport);
        let last = finish(&mut engine).last().expect("messages").at.ps();
        let totals = engine.totals();
        assert_eq!((totals.drops, totals.timeouts), (0, 0), "{} {n} to 1", T::NAME);
        assert_eq!(totals.retransmissions, totals.trims);
        let used = (u64::from(n) * packets * FULL) as f64 / last as f64;
        assert!((0.97..=1.0).contains(&used), "{} {n} to 1: {used} of the link", T::NAME);
    }
    for n in [1, 2, 8] {
        share(n, Eqds::default());
        share(n, Rccc::default());
    }
}

/// A queue holds q packets, with the one being sent: n senders in step of w packets each bring n w packets while w − 1 are
/// sent.
#[test]
fn a_queue_trims_what_it_cannot_hold() {
    let (n, w, q) = (4, 20, 10);
    let transport =
        NoTransport { recovery: Recovery::Selective { reorder: u32::MAX }, ..NoTransport::default() };
    let mut engine = incast(n, w, 20_000, settings(q), transport);
    let mut done = Vec::new();
    // Until n w packets are in, copies of trimmed ones among them.
    let end = Time::from_ps(100_000 + w * FULL + FULL / 2);
    while engine.next_time() <= end {
        engine.run(end, u64::MAX, &mut done);
    }
    let trims = engine.totals().trims;
    let reports = engine.port_reports();
    assert_eq!(reports.iter().map(|report| report.trims).sum::<u64>(), trims);
    // What has been sent by then, but for the headers' time, and what is held.
    let headers = (trims * HEADER).div_ceil(FULL);
    let expected = u64::from(n) * w - (w - 1) - q;
    assert!((expected..=expected + headers).contains(&trims), "{trims}, expected {expected}");
    finish(&mut engine);
    assert_eq!(engine.totals().drops, 0);
}

/// What a shared buffer refuses is trimmed too, and other transports live with it.
#[test]
fn trimming_in_place_of_drops() {
    fn all<T: Transport>(transport: T) {
        let buffer = BufferSettings { size: Bytes::new(400_000), alpha: 1.0, reserve: Bytes::ZERO };
        let settings = PacketSettings {
            buffers: vec![buffer],
            trimming: Some(TrimSettings::default()),
            ..crate::common::even_packets()
        };
        let mut engine = incast(16, 500, 200_000, settings, transport);
        let done = finish(&mut engine);
        let totals = engine.totals();
        assert_eq!((done.len(), totals.drops), (16, 0), "{}", T::NAME);
        assert!(totals.trims > 0 && totals.retransmissions >= totals.trims, "{} {totals:?}", T::NAME);
    }
    all(Nscc::default());
    all(Ndp::default());
    all(Eqds::default());
    all(Rccc::default());
    all(NoTransport {
        window: 500_000,
        recovery: Recovery::Selective { reorder: 64 },
        ..NoTransport::default()
    });
    let timeout = Span::from_us(200);
    all(NoTransport { window: 50_000, recovery: Recovery::GoBackN, timeout });
}

/// A grant is of whole packets and of a quantum at most, however few bytes a sender still wants: a PULL for each packet or quantum
/// beyond what goes out unasked, and none for a few bytes.
#[test]
fn grants_are_whole_packets() {
    fn all<T: Transport>(transport: T, quantum: u64) {
        let full = PAYLOAD + 64;
        for (packets, tail) in [(3, 1), (9, 100), (40, 1), (40, 2_000), (41, PAYLOAD), (200, 17)] {
            let mut engine =
                Engine::new(star(2, 100, 200_000), settings(100), transport.clone()).expect("they work");
            let pair = open(&mut engine, 1, false);
            engine.send(Time::ZERO, pair, Bytes::new((packets - 1) * PAYLOAD + tail), 1);
            finish(&mut engine);
            let totals = engine.totals();
            let (grants, credit) = (totals.grants, totals.credit);
            assert_eq!(credit % full, 0, "{}: {packets} packets, {tail} B: {credit} B", T::NAME);
            assert!(
                credit <= grants * quantum * full && grants <= packets + 2,
                "{}: {grants} of {credit} B",
                T::NAME
            );
        }
    }
    all(Eqds::default(), 1);
    all(Rccc::default(), 4);
}

/// What NICs send arrives or is dropped: data, acknowledgements, and what tells of credit, trimming and congestion.
#[test]
fn all_that_is_sent_is_counted() {
    fn all<T: Transport>(settings: PacketSettings, transport: T) {
        let mut engine = incast(16, 200, 200_000, settings, transport);
        finish(&mut engine);
        // Hosts send by their NIC's port, and hear by the switch's.
        let sent = |report: &PortReport| report.data_packets + report.control_packets;
        let sent: u64 = engine.port_reports().iter().map(sent).sum();
        let totals = engine.totals();
        let arrived = totals.data_packets + totals.acknowledgements + totals.notices;
        assert_eq!(sent, 2 * arrived + totals.drops, "{}: {totals:?}", T::NAME);
    }
    all(settings(10), Ndp::default());
    all(settings(10), Eqds::default());
    all(settings(10), Rccc::default());
    all(settings(10), Nscc::default());
    let marked = EcnSettings {
        rate: BitRate::from_gbps(100),
        kmin: Bytes::new(10_000),
        kmax: Bytes::new(20_000),
        pmax: 1.0,
        at: MarkAt::Enqueue,
    };
    all(PacketSettings { ecn: Some(marked), ..crate::common::even_packets() }, Dcqcn::default());
}

/// The same with several data queues, and telemetry on lossless ones.
#[test]
fn data_queues_trim_and_tell() {
    fn all<T: Transport>(settings: &PacketSettings, transport: T, trims: bool) {
        let mut engine = incast(16, 200, 200_000, settings.clone(), transport);
        let done = finish(&mut engine);
        let totals = engine.totals();
        assert_eq!((done.len(), totals.drops, totals.timeouts), (16, 0, 0), "{} {totals:?}", T::NAME);
        assert_eq!((totals.trims > 0, totals.retransmissions), (trims, totals.trims), "{}", T::NAME);
    }
    let buffer = BufferSettings { size: Bytes::new(8_000_000), alpha: 1.0, reserve: Bytes::ZERO };
    let queue = QueueSettings { lossless: false, ..QueueSettings::default() };
    let trimming = PacketSettings { buffers: vec![buffer], queues: vec![queue; 2], ..settings(10) };
    all(&trimming, Ndp::default(), true);
    all(&trimming, Eqds::default(), true);
    all(&trimming, Rccc::default(), true);
    let lossless = PacketSettings {
        buffers: vec![buffer],
        queues: vec![QueueSettings::default(); 2],
        pfc: Some(PfcSettings::default()),
        telemetry: true,
        ..crate::common::even_packets()
    };
    all(&lossless, Hpcc::default(), false);
}

/// Queue pairs that stay open: each message after a pause begins as the first did, and messages handed over one after
/// another need not wait for a time-out.
#[test]
fn queue_pairs_on_credit_begin_anew() {
    fn messages<T: Transport>(transport: T) {
        let mut engine =
            Engine::new(star(2, 100, 200_000), settings(40), transport).expect("settings that work");
        let pair = open(&mut engine, 1, true);
        let bytes = Bytes::new(200 * PAYLOAD);
        for (token, at) in [0, 1_000, 2_000, 2_001, 2_010, 2_100].into_iter().enumerate() {
            engine.send(Time::from_ps(at * US), pair, bytes, token as u64);
        }
        let done = finish(&mut engine);
        assert_eq!((done.len(), engine.totals().timeouts), (6, 0), "{}", T::NAME);
        // 66.6 µs of transmission, and at most 4 round trips of 4.3 µs more.
        for completion in &done[..3] {
            let taken = completion.at.since(completion.start).ps();
            assert!(taken < 200 * FULL + 20 * US, "{}: {taken}", T::NAME);
        }
    }
    messages(Ndp::default());
    messages(Eqds::default());
    messages(Rccc::default());
}

/// Where switches do not trim, what 40 senders send unasked waits in one deep queue, for far longer than 6 idle round trips. A
/// time-out of 6 full queues sends nothing again in vain; one that follows round trips where there is no limit at most what was
/// unasked, 1.5 bandwidth–delay products of 13.4 KB, before the first answer. The incast ends when its bytes have fit through.
#[test]
fn deep_queues_are_waited_for() {
    fn patient<T: Transport>(transport: &T, share: f64) {
        let (n, packets) = (40, 200);
        let deep = BufferSettings { size: Bytes::new(64_000_000), alpha: 1.0, reserve: Bytes::new(20_000) };
        let unasked = u64::from(n) * 5;
        for (buffers, most) in [(vec![deep], 0), (Vec::new(), unasked)] {
            let settings = PacketSettings { buffers, ..crate::common::even_packets() };
            let mut engine = incast(n, packets, 20_000, settings, transport.clone());
            let last = finish(&mut engine).last().expect("messages").at.ps();
            let totals = engine.totals();
            assert!(totals.retransmissions <= most, "{}: {totals:?}", T::NAME);
            let sent = u64::from(n) * packets;
            let used = ((sent + totals.retransmissions) * FULL) as f64 / last as f64;
            assert!((share - 0.01..=1.0).contains(&used), "{}: {used} of the link", T::NAME);
        }
    }
    patient(&Rccc::default(), 0.99);
    patient(&Nscc::default(), 1.0);
}

/// Messages shorter than what may be sent unasked, of which a sender has several at once: its speculation ends before the last have
/// begun, and what is left of them is granted although they had asked for little. The sender's port is never idle for a round trip.
#[test]
fn short_messages_that_share_a_port_wait_for_no_time_out() {
    fn scatter<T: Transport>(transport: T, window: u64) {
        let (n, packets) = (15u64, 48);
        let mut engine = Engine::new(star(n as u32 + 1, 100, 200_000), settings(40), transport)
            .expect("settings that work");
        for to in 1..=n as u32 {
            let request = OpenRequest { from: 0, to, entropy: to, keep: false, route: [&[], &[]] };
            let pair = engine.open(&request);
            engine.send(Time::ZERO, pair, Bytes::new(packets * PAYLOAD), u64::from(to));
        }
        let last = finish(&mut engine).last().expect("messages").at.ps();
        let totals = engine.totals();
        assert_eq!((totals.timeouts, totals.retransmissions), (0, 0), "{} {totals:?}", T::NAME);
        // A round trip of 4.3 us at most beside the transmission of all.
        let least = n * packets * FULL + 2_000_000;
        assert!((least..least + 5 * US).contains(&last), "{}: {last}, at least {least}", T::NAME);
        // No more than about a window each beyond what they had, though receivers have nobody else to grant to.
        let most = n * (packets * 4_160 + window) * 11 / 10;
        assert!(totals.credit <= most, "{}: {} B granted, at most {most}", T::NAME, totals.credit);
    }
    // 48 packets are 200 KB.
    let unasked = 150 * 4_160;
    scatter(Eqds { packets: Some(150), ..Eqds::default() }, unasked);
    scatter(Ndp { packets: Some(150), ..Ndp::default() }, unasked);
    scatter(Rccc { largest: 12.0, ..Rccc::default() }, 12 * 53_800);
    // Less than a message unasked.
    scatter(Eqds { packets: Some(20), ..Eqds::default() }, 20 * 4_160);
    scatter(Rccc::default(), 3 * 53_800 / 2);
}

/// Grants and first windows far beyond what there is to send are as good as that.
#[test]
fn credit_beyond_all_bounds_is_enough() {
    fn ends<T: Transport>(transport: T) -> u64 {
        let mut engine = incast(4, 300, 200_000, settings(20), transport);
        finish(&mut engine).iter().map(|completion| completion.at.ps()).max().expect("arrivals")
    }
    let vast = ends(Rccc { packets: 1 << 31, ..Rccc::default() });
    assert_eq!(vast, ends(Rccc { packets: 10_000, ..Rccc::default() }));
    for (vast, large) in [
        (ends(Rccc { largest: 1e300, ..Rccc::default() }), ends(Rccc { largest: 1e6, ..Rccc::default() })),
        (ends(Eqds { largest: 1e300, ..Eqds::default() }), ends(Eqds { largest: 1e6, ..Eqds::default() })),
    ] {
        assert_eq!(vast, large);
    }
}
