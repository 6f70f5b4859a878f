use super::super::tests::{ack, gap, path};
use super::*;

const US: u64 = 1_000_000;

/// A path of one queue that lets `rate` packets a ms through, each of 4,000 B: the packets that have been sent and not acknowledged,
/// by when their acknowledgement comes and when they were sent.
struct Pipe {
    per_packet_ps: u64,
    free_ps: u64,
    base_ps: u64,
    next: u32,
    acked: u32,
    now_ps: u64,
    sendable_ps: u64,
    on_way: std::collections::VecDeque<(u64, u64)>,
    /// Largest round trip since it was last asked.
    longest_ps: u64,
}

impl Pipe {
    fn new(gbps: u64, rtt_us: u64) -> Self {
        Self {
            per_packet_ps: 32_000_000 / gbps / 1_000 * 1_000,
            free_ps: 0,
            base_ps: rtt_us * US,
            next: 0,
            acked: 0,
            now_ps: 0,
            sendable_ps: 0,
            on_way: std::collections::VecDeque::new(),
            longest_ps: 0,
        }
    }

    /// Sends and acknowledges until `until_us`; a packet in `lost_of` is lost, which shows when it would have been acknowledged.
    fn run(&mut self, bbr: &Bbr, flow: &mut BbrFlow, until_us: u64, lost_of: u32) {
        loop {
            let in_flight = self.on_way.len() as u64 * 4_000;
            let may = in_flight == 0 || in_flight + 4_000 <= bbr.window(flow);
            let sends = may.then(|| self.sendable_ps.max(self.now_ps));
            let hears = self.on_way.front().map(|&(at, _)| at);
            let next = sends.into_iter().chain(hears).min().expect("something is to come");
            if next > until_us * US {
                return;
            }
            self.now_ps = next;
            if sends == Some(next) {
                bbr.on_send(flow, Time::from_ps(next), 4_000);
                self.sendable_ps = next + bbr.gap(flow, 4_000).ps();
                self.free_ps = self.free_ps.max(next) + self.per_packet_ps;
                self.on_way.push_back((self.free_ps + self.base_ps, next));
                self.next += 1;
                continue;
            }
            let (_, sent) = self.on_way.pop_front().expect("it was looked at");
            let in_flight = self.on_way.len() as u64 * 4_000;
            self.acked += 1;
            if lost_of > 0 && self.acked.is_multiple_of(lost_of) {
                let loss = Loss { now: Time::from_ps(next), ..gap(self.acked - 1, self.next) };
                bbr.on_loss(flow, &loss);
                continue;
            }
            self.longest_ps = self.longest_ps.max(next - sent);
            let heard = Ack {
                now: Time::from_ps(next),
                rtt: Span::from_ps(next - sent),
                expected: self.acked,
                next: self.next,
                in_flight,
                ..ack(0, 0, 1, 0)
            };
            bbr.on_ack(flow, &heard);
        }
    }

    fn delivered_until(&mut self, bbr: &Bbr, flow: &mut BbrFlow, until_us: u64, lost_of: u32) -> f64 {
        let before = (self.acked, self.now_ps);
        self.run(bbr, flow, until_us, lost_of);
        f64::from(self.acked - before.0) * self.per_packet_ps as f64 / (self.now_ps - before.1) as f64
    }
}

fn opened(bbr: &Bbr) -> BbrFlow {
    let mut flow = bbr.open(&path(100, 1_000));
    bbr.on_message(&mut flow, Time::ZERO, 1 << 50);
    flow
}

/// 10 Gbps behind a NIC of 100, 1 ms: Startup doubles a round, and ends in three rounds without growth; BtlBw and RTprop are the
/// path's, whose queue Drain empties.
#[test]
fn it_finds_rate_and_round_trip_of_the_path() {
    let bbr = Bbr::default();
    let (mut flow, mut pipe) = (opened(&bbr), Pipe::new(10, 1_000));
    pipe.run(&bbr, &mut flow, 4_000, 0);
    assert_eq!(flow.mode, Mode::Startup);
    pipe.run(&bbr, &mut flow, 25_000, 0);
    assert_eq!(flow.mode, Mode::ProbeBw);
    let (bandwidth, rtprop) = (flow.bandwidth.get() * 8e-9, flow.rtprop.seconds() * 1e6);
    assert!((bandwidth - 10.0).abs() < 0.2, "{bandwidth} Gbps");
    assert!((rtprop - 1_003.2).abs() < 0.1, "a packet and the way there and back: {rtprop}");
    pipe.longest_ps = 0;
    let carried = pipe.delivered_until(&bbr, &mut flow, 125_000, 0);
    assert!(carried > 0.97, "{carried} of the rate");
    // The gain of 5/4 for a round trip leaves a quarter of one in the queue.
    assert!(pipe.longest_ps < 1_350 * US, "{} us", pipe.longest_ps / US);
}

/// Losses are no signs of congestion: 1 in 100 costs a NewReno of this path, 312 packets in flight, all but 1.22/√0.01 = 12 of them.
#[test]
fn losses_at_random_cost_little() {
    let bbr = Bbr::default();
    let (mut flow, mut pipe) = (opened(&bbr), Pipe::new(10, 1_000));
    pipe.run(&bbr, &mut flow, 50_000, 0);
    let carried = pipe.delivered_until(&bbr, &mut flow, 250_000, 100);
    assert!(carried > 0.9, "{carried} of the rate");
}

/// A path that becomes slower is found out once the rounds of the filter have gone.
#[test]
fn a_rate_that_falls_is_followed() {
    let bbr = Bbr::default();
    let (mut flow, mut pipe) = (opened(&bbr), Pipe::new(10, 1_000));
    pipe.run(&bbr, &mut flow, 50_000, 0);
    pipe.per_packet_ps *= 2;
    pipe.run(&bbr, &mut flow, 120_000, 0);
    let bandwidth = flow.bandwidth.get() * 8e-9;
    assert!((bandwidth - 5.0).abs() < 0.2, "{bandwidth} Gbps");
    pipe.per_packet_ps /= 2;
    pipe.run(&bbr, &mut flow, 220_000, 0);
    let bandwidth = flow.bandwidth.get() * 8e-9;
    assert!((bandwidth - 10.0).abs() < 0.3, "cycles of 5/4 find more: {bandwidth} Gbps");
}

/// RTprop holds for a time; then 4 packets are in flight until a queue of one's own has gone.
#[test]
fn the_round_trip_is_measured_anew() {
    let bbr = Bbr { rtt_window: Span::from_us(30_000), probe_rtt: Span::from_us(2_000), ..Bbr::default() };
    let (mut flow, mut pipe) = (opened(&bbr), Pipe::new(10, 1_000));
    let mut probed = 0;
    for step in 1..2_000 {
        pipe.run(&bbr, &mut flow, 50 * step, 0);
        if flow.mode == Mode::ProbeRtt {
            assert!(bbr.window(&flow) <= 16_000);
            probed += 1;
        }
    }
    // Some three of 30 ms each, of a window to drain and 2 ms.
    assert!((60..300).contains(&probed), "{probed} of 2,000 looks");
    assert_eq!(flow.mode == Mode::ProbeRtt, bbr.window(&flow) <= 16_000);
}

/// §4.2.3.4: a time-out leaves a packet, and the window from before is back when what was sent by then has arrived.
#[test]
fn a_time_out_leaves_one_packet_for_a_while() {
    let bbr = Bbr::default();
    let (mut flow, mut pipe) = (opened(&bbr), Pipe::new(10, 1_000));
    pipe.run(&bbr, &mut flow, 50_000, 0);
    let before = flow.window;
    let silent = Loss { kind: LossKind::Timeout, bytes: 400_000, ..gap(pipe.acked, pipe.next) };
    bbr.on_loss(&mut flow, &silent);
    assert_eq!(bbr.window(&flow), 4_000);
    let part = Ack { expected: pipe.next - 1, next: pipe.next, ..ack(51_000, 1_003, 1, 0) };
    bbr.on_ack(&mut flow, &part);
    assert_eq!(bbr.window(&flow), 8_000);
    bbr.on_ack(&mut flow, &Ack { expected: pipe.next, ..part });
    assert!((flow.window / before - 1.0).abs() < 1e-3, "{} of {before}", flow.window);
}

/// What a sender had to send, and no more, says nothing about the path.
#[test]
fn a_sender_that_has_little_to_send_keeps_its_model() {
    let bbr = Bbr::default();
    let (mut flow, mut pipe) = (opened(&bbr), Pipe::new(10, 1_000));
    pipe.run(&bbr, &mut flow, 50_000, 0);
    let model = flow.bandwidth.get();
    flow.waiting = 0;
    // A packet each 10 ms, for longer than the filter remembers.
    for number in 0..100 {
        let at = Time::from_ps((100_000 + 10_000 * number) * US);
        flow.flight = 0;
        bbr.on_message(&mut flow, at, 3_900);
        bbr.on_send(&mut flow, at, 4_000);
        assert!(number == 0 || flow.pacing == model, "a pause ends a probe");
        let next = 1_000_000 + number as u32;
        bbr.on_ack(&mut flow, &Ack { expected: next, next, ..ack(101_003 + 10_000 * number, 1_003, 1, 0) });
    }
    assert_eq!(flow.bandwidth.get(), model);
}

/// Against all rates of the window, one by one: never more, and what was heard in the last quarter never less.
#[test]
fn the_filter_is_the_largest_of_its_rounds() {
    let mut seed = 7_u64;
    let mut largest = Largest::default();
    let mut heard: Vec<(u32, f64)> = Vec::new();
    for step in 0..20_000_u32 {
        seed = combine(seed, u64::from(step));
        let (round, rate) = (step / 3, 1.0 + (seed % 1_000) as f64 / (1.0 + f64::from(step % 2_000)));
        largest.hear(round, rate, 10);
        heard.push((round, rate));
        let most = |rounds: u32| {
            let kept = heard.iter().rev().take_while(|(then, _)| round - then <= rounds);
            kept.map(|&(_, rate)| rate).fold(0.0, f64::max)
        };
        assert!(largest.get() <= most(10), "round {round}: {} of {}", largest.get(), most(10));
        assert!(largest.get() >= most(2), "round {round}: {} of {}", largest.get(), most(2));
    }
}
