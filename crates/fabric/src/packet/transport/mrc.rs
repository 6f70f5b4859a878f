//! MRC, Multipath Reliable Connection (OCP, revision 1.0): a queue pair over all planes of its NIC and many paths of each.
//!
//! | what | rule |
//! |---|---|
//! | paths | entropy values, in equal parts on all planes; a loss retires one, a probe's answer brings it back ([`Profile`]) |
//! | congestion | NSCC with the constants of Ultra Ethernet 1.0 ([`Nscc`]) over the bandwidth of all planes; marks and trims move load off a path |
//! | window of sequence numbers | units of 128 packets from the first not acknowledged to the last sent |
//! | losses | trimmed packets by NACK; others once one sent later has arrived and they are overdue; else by the time-out |
//! | time-out | 1.024 µs · 2^t; so many retries as long as the first, then each twice as long as the one before |
//!
//! ```text
//! EV: good ── a packet on it is lost (not trimmed) ──▶ assumed bad ── probes in a row unanswered ──▶ denied
//!      ▲                                                  │  ▲                                        │
//!      └───────────────────── a probe is answered ────────┘  └──────────── after a while ─────────────┘
//! ```
//!
//! A loss that later packets show is held against its path, not against the window: a path that drops without trimming is broken.
//! A time-out is congestion's too. What the specification calls the profile of a queue pair is kept for each pair of NICs, so queue
//! pairs that come and go between two NICs (a collective's messages) are one to it.
//!
//! **From public headers and abstracts**: states, floor, probes, units, times, the law. **Ours**: how often an EV is probed, when it is
//! denied and for how long, the floor's default, and that EVs of a plane are passed over by marks as UEC's path numbers are.

use std::collections::VecDeque;

use windtunnel_kernel::{Span, Time};

use super::nscc::{Nscc, NsccFlow};
use super::profile::{Health, Name, Profile};
use super::{
    Absent, Ack, Answer, Arrived, Endpoint, Lane, Loss, LossKind, Nack, News, PathChoice, PathFacts, Present,
    Probe, Probed, Recovery, Replied, Reply, Unfit, Uses,
};

/// Packets of a unit of the window of sequence numbers.
pub(super) const UNIT: u32 = 128;
/// Its units where they follow the path: at least so many, and so many bandwidth–delay products.
const LEAST_UNITS: u32 = 8;
const PRODUCTS: u64 = 4;
/// The unit of time-outs.
const TICK: Span = Span::from_ps(1_024_000);
/// The greatest exponent.
const GREATEST: u32 = 24;
/// Round trips that the time-out holds at least, where its exponent follows the path.
const ROUND_TRIPS: u64 = 4;
/// As many exponential retries as this are retries for ever.
const FOREVER: u32 = 25;
/// Kind of a probe.
const LOOK: u8 = 1;

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mrc {
    /// The congestion law.
    pub nscc: Nscc,
    /// Entropy values of a queue pair, on all planes together.
    pub evs: u32,
    /// Of them, how many stay in use whatever is lost; a quarter if not set.
    pub floor: Option<u32>,
    /// Units of 128 packets; after the path if not set.
    pub units: Option<u32>,
    /// t of the time-out; after the path if not set.
    pub exponent: Option<u32>,
    /// Retries as long as the first time-out.
    pub linear: u32,
    /// Retries that double after these; 25: for ever.
    pub exponential: u32,
    /// Time from a probe of an EV to the next.
    pub probe_every: Span,
    /// Probes in a row without an answer that deny an EV.
    pub deny_after: u32,
    /// How long it is denied.
    pub denied_for: Span,
    /// What becomes of losses.
    pub recovery: Recovery,
    /// Least time-out.
    pub timeout: Span,
}

impl Default for Mrc {
    /// 128 EVs, a floor of a quarter, windows and time-outs after the path, 7 linear retries and then for ever, probes each 20 µs, denied
    /// after 50 for 1 ms.
    fn default() -> Self {
        Self {
            nscc: Nscc::default(),
            evs: 128,
            floor: None,
            units: None,
            exponent: None,
            linear: 7,
            exponential: FOREVER,
            probe_every: Span::from_us(20),
            deny_after: 50,
            denied_for: Span::from_us(1_000),
            recovery: Recovery::Rack,
            timeout: Span::from_us(1),
        }
    }
}

/// What it asks of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Asks;

impl Uses for Asks {
    type Credit = Absent;
    type Telemetry = Absent;
    type Probes = Present;
    type Planes = Present;
    type Memory = Profile;
}

/// An EV that is probed.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    name: Name,
    /// When the next probe is due, or the EV is let back to being probed.
    due: Time,
    /// Probes in a row without an answer.
    unanswered: u32,
    denied: bool,
}

/// State of a queue pair.
#[derive(Clone, Debug)]
pub struct MrcFlow {
    nscc: NsccFlow,
    turn: u32,
    tracked: u32,
    /// The first time-out, and those in a row.
    tick: Span,
    silences: u32,
    suspects: Vec<Suspect>,
    /// Probes to be sent, and judgements that the profile has not been told.
    probes: VecDeque<Name>,
    judged: Vec<(Name, Health)>,
}

impl MrcFlow {
    /// Begins to probe an EV, first at `due`.
    fn suspect(&mut self, name: Name, due: Time) {
        if self.suspects.iter().all(|suspect| suspect.name != name) {
            self.suspects.push(Suspect { name, due, unanswered: 0, denied: false });
        }
    }

    /// Tells the profile what was found while it was not at hand, and learns what others have found.
    fn settle(&mut self, profile: &mut Profile) {
        for (name, health) in self.judged.drain(..) {
            profile.judge(name, health);
        }
        self.suspects.retain(|suspect| profile.health(suspect.name) != Health::Good);
    }
}

super::built_in::built_in! {
    Mrc: "Multipath Reliable Connection: all planes, paths retired by losses, NSCC", recovery: recovery, timeout: timeout,
    parameters: {
        "evs" => Count(evs), "entropy values of a queue pair, in equal parts on all planes";
        "min_active" => Packets(floor), "how many stay in use whatever is lost; a quarter if left out";
        "window_units" => Packets(units), "window of sequence numbers in units of 128 packets; after the path if left out";
        "timeout_exponent" => Packets(exponent), "t of the time-out of 1.024 µs · 2^t, at most 24; after the path if left out";
        "linear_retries" => Count(linear), "retries after the first time-out each, at most 7";
        "exponential_retries" => Count(exponential), "retries after that, each after twice the time, at most 25, which is for ever";
        "probe_interval" => Time(probe_every), "time between probes of an entropy value that is assumed bad";
        "deny_after" => Count(deny_after), "probes in a row without an answer that deny an entropy value";
        "denied_for" => Time(denied_for), "how long it is denied before it is probed again";
        "max_window" => Positive(nscc.largest), "largest window, also the first, in bandwidth–delay products of all planes";
        "target_delay" => Positive(nscc.target), "queueing delay that is aimed at, in base round trips";
        "feedback" => Word(nscc.feedback), "what the law goes by: the last acknowledgement, or the median of the last eight";
    }
    check: check,
}

fn check(mrc: &Mrc) -> Result<(), Unfit> {
    let unfit = |key, message: String| Err(Unfit { key, message });
    if mrc.floor.is_some_and(|floor| floor > mrc.evs) {
        return unfit("min_active", format!("expected at most `evs`: {}", mrc.evs));
    }
    let limits = [
        ("timeout_exponent", mrc.exponent, GREATEST),
        ("linear_retries", Some(mrc.linear), 7),
        ("exponential_retries", Some(mrc.exponential), FOREVER),
    ];
    match limits.into_iter().find(|&(_, found, most)| found.is_some_and(|found| found > most)) {
        Some((key, _, most)) => unfit(key, format!("expected at most {most}")),
        None => Ok(()),
    }
}

impl Endpoint for Mrc {
    type Flow = MrcFlow;
    type Peer = ();
    type Uses = Asks;
    const NAME: &'static str = "mrc";

    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn open(&self, path: &PathFacts) -> MrcFlow {
        let whole = PathFacts { bdp: path.bdp * u64::from(path.planes), ..*path };
        let packets = (PRODUCTS * whole.bdp).div_ceil(u64::from(path.mtu));
        let after = (packets.div_ceil(u64::from(UNIT)) as u32).max(LEAST_UNITS);
        let least = path.base_rtt * ROUND_TRIPS;
        let exponent = self.exponent.unwrap_or_else(|| {
            (0..GREATEST).find(|&t| Span::from_ps(TICK.ps() << t) >= least).unwrap_or(GREATEST)
        });
        MrcFlow {
            nscc: self.nscc.open(&whole),
            turn: 0,
            tracked: self.units.unwrap_or(after).saturating_mul(UNIT),
            tick: Span::from_ps(TICK.ps() << exponent).max(self.timeout),
            silences: 0,
            suspects: Vec::new(),
            probes: VecDeque::new(),
            judged: Vec::new(),
        }
    }

    #[inline]
    fn window(&self, flow: &MrcFlow) -> u64 {
        self.nscc.window(&flow.nscc)
    }

    #[inline]
    fn tracked(&self, flow: &MrcFlow) -> u32 {
        flow.tracked
    }

    fn on_ack(&self, flow: &mut MrcFlow, ack: &Ack) {
        flow.silences = 0;
        self.nscc.on_ack(&mut flow.nscc, ack);
    }

    fn on_nack(&self, flow: &mut MrcFlow, nack: &Nack) {
        flow.silences = 0;
        self.nscc.on_nack(&mut flow.nscc, nack);
    }

    fn on_loss(&self, flow: &mut MrcFlow, loss: &Loss) {
        if loss.kind == LossKind::Timeout {
            flow.silences = flow.silences.saturating_add(1);
            self.nscc.on_loss(&mut flow.nscc, loss);
        }
    }

    /// The first so many are alike, then each is twice as long as the one before.
    fn timeout(&self, flow: &MrcFlow) -> Span {
        let doubled = flow.silences.saturating_sub(self.linear).min(FOREVER);
        Span::from_ps(flow.tick.ps().saturating_mul(1 << doubled).min(TICK.ps() << (GREATEST + 1)))
    }

    fn retries(&self) -> u8 {
        if self.exponential >= FOREVER { u8::MAX } else { (self.linear + self.exponential) as u8 }
    }

    /// Every packet is acknowledged, so that every EV is heard of.
    fn on_data(&self, (): &mut (), _: &Arrived) -> Answer {
        Answer { acknowledge: true, notify: false }
    }

    fn remember(&self, profile: &mut Profile, flow: &mut MrcFlow, news: &News<'_>) {
        match *news {
            News::Opened(facts) => {
                // A power of two, so that they can be taken in an order that changes.
                let on_each = 1 << (self.evs / facts.planes).max(1).ilog2();
                let floor = self.floor.unwrap_or(self.evs / 4);
                profile.open(facts.planes, on_each, floor, facts.base_rtt);
                profile.bad().for_each(|name| flow.suspect(name, Time::ZERO));
            }
            News::Acked(ack) => {
                let sent = Time::from_ps(ack.now.ps() - ack.rtt.ps());
                profile.arrived((ack.plane, ack.path), sent, ack.echo, ack.rtt);
            }
            News::Trimmed(nack) => profile.trimmed((nack.plane, nack.path), nack.sent, nack.last_hop),
            News::Lost(loss) => {
                profile.lost(loss.now, |name| flow.suspect(name, loss.now + self.probe_every));
            }
            News::Replied(reply) => profile.answered((reply.plane, reply.path)),
        }
        if !flow.suspects.is_empty() || !flow.judged.is_empty() {
            flow.settle(profile);
        }
    }

    fn path_by(&self, profile: &mut Profile, flow: &mut MrcFlow, choice: &PathChoice) -> Option<u16> {
        Some(profile.next(&mut flow.turn, choice))
    }

    fn takes_plane(&self, profile: &mut Profile, _: &mut MrcFlow, plane: u32, _: Time) -> bool {
        profile.carries(plane)
    }

    fn timer(&self, flow: &MrcFlow) -> Option<Time> {
        flow.suspects.iter().map(|suspect| suspect.due).min()
    }

    fn on_timer(&self, flow: &mut MrcFlow, now: Time) {
        for suspect in flow.suspects.iter_mut().filter(|suspect| suspect.due <= now) {
            if suspect.denied {
                // The controller lets it in again.
                (suspect.denied, suspect.unanswered) = (false, 0);
                flow.judged.push((suspect.name, Health::AssumedBad));
            } else if suspect.unanswered >= self.deny_after {
                (suspect.denied, suspect.due) = (true, now + self.denied_for);
                flow.judged.push((suspect.name, Health::Denied));
                continue;
            }
            suspect.unanswered += 1;
            suspect.due = now + self.probe_every;
            flow.probes.push_back(suspect.name);
        }
    }

    fn probe(&self, flow: &mut MrcFlow, _: Time) -> Option<Probe> {
        let (plane, path) = flow.probes.pop_front()?;
        Some(Probe { kind: LOOK, path, plane, lane: Lane::Control, ..Probe::default() })
    }

    fn on_probe(&self, (): &mut (), _: &Probed) -> Option<Reply> {
        Some(Reply { kind: LOOK, ..Reply::default() })
    }

    fn on_reply(&self, flow: &mut MrcFlow, reply: &Replied) {
        flow.suspects.retain(|suspect| suspect.name != (reply.plane, reply.path));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::path;
    use super::*;

    fn opened(mrc: &Mrc) -> (MrcFlow, Profile) {
        let facts = PathFacts { planes: 8, ..path(100, 10) };
        let (mut flow, mut profile) = (mrc.open(&facts), Profile::default());
        mrc.remember(&mut profile, &mut flow, &News::Opened(&facts));
        (flow, profile)
    }

    fn loss(us: u64, kind: LossKind) -> Loss {
        Loss { now: Time::from_ps(us * 1_000_000), kind, sequence: 0, next: 9, bytes: 4_000, again: false }
    }

    /// The window is of all planes, in sequence numbers 128 at a time.
    #[test]
    fn windows_count_all_planes() {
        let mrc = Mrc::default();
        let (flow, _) = opened(&mrc);
        // 8 planes of 125 KB, one and a half times; 4 of them are 1,000 packets of 4,000 B, in units.
        assert_eq!((mrc.window(&flow), mrc.tracked(&flow)), (1_500_000, 1_024));
        let (flow, _) = opened(&Mrc { units: Some(3), ..mrc });
        assert_eq!(mrc.tracked(&flow), 384);
    }

    /// 1.024 µs · 2^t holds four round trips of 10 µs from t = 6 on: seven of them alike after the first, then doubled.
    #[test]
    fn time_outs_are_linear_then_exponential() {
        let mrc = Mrc::default();
        let (mut flow, mut profile) = opened(&mrc);
        let mut waits = Vec::new();
        for turn in 0..11 {
            waits.push(mrc.timeout(&flow).ps() / TICK.ps());
            let loss = loss(1_000 * turn, LossKind::Timeout);
            mrc.on_loss(&mut flow, &loss);
            mrc.remember(&mut profile, &mut flow, &News::Lost(&loss));
        }
        assert_eq!(waits, [64, 64, 64, 64, 64, 64, 64, 64, 128, 256, 512]);
        let (flow, _) = opened(&Mrc { exponent: Some(10), ..mrc });
        assert_eq!(mrc.timeout(&flow), Span::from_ps(1_024_000 << 10));
        assert_eq!((mrc.retries(), Mrc { exponential: 3, ..mrc }.retries()), (u8::MAX, 10));
    }

    /// A loss shown by later packets leaves the window alone and sends its EV to be probed; an answer brings it back.
    #[test]
    fn a_lost_packet_retires_its_entropy_value_and_nothing_else() {
        let mrc = Mrc::default();
        let (mut flow, mut profile) = opened(&mrc);
        let choice = PathChoice { now: Time::ZERO, round: 0, paths: 64, hash: 3, plane: 5 };
        let ev = mrc.path_by(&mut profile, &mut flow, &choice).expect("an EV");
        assert!(ev < 16);
        let before = mrc.window(&flow);
        let lost = loss(30, LossKind::Gap);
        mrc.on_loss(&mut flow, &lost);
        mrc.remember(&mut profile, &mut flow, &News::Lost(&lost));
        assert_eq!((mrc.window(&flow), profile.health((5, ev))), (before, Health::AssumedBad));
        let due = mrc.timer(&flow).expect("a probe");
        assert_eq!(due, Time::from_ps(50_000_000));
        mrc.on_timer(&mut flow, due);
        let probe = mrc.probe(&mut flow, due).expect("one");
        assert_eq!((probe.plane, probe.path, mrc.probe(&mut flow, due)), (5, ev, None));
        let now = Time::from_ps(60_000_000);
        let reply =
            Replied { now, kind: LOOK, value: 0, rtt: Span::from_us(10), path: ev, plane: 5, echo: false };
        mrc.on_reply(&mut flow, &reply);
        mrc.remember(&mut profile, &mut flow, &News::Replied(&reply));
        assert_eq!((profile.health((5, ev)), mrc.timer(&flow)), (Health::Good, None));
    }

    #[test]
    fn probes_in_vain_deny_and_the_controller_lets_in_again() {
        let mrc = Mrc { deny_after: 3, ..Mrc::default() };
        let (mut flow, mut profile) = opened(&mrc);
        let choice = PathChoice { now: Time::ZERO, round: 0, paths: 64, hash: 3, plane: 0 };
        let ev = mrc.path_by(&mut profile, &mut flow, &choice).expect("an EV");
        mrc.remember(&mut profile, &mut flow, &News::Lost(&loss(30, LossKind::Gap)));
        let mut sent = 0;
        let mut states = Vec::new();
        for _ in 0..5 {
            let due = mrc.timer(&flow).expect("due");
            mrc.on_timer(&mut flow, due);
            sent += std::iter::from_fn(|| mrc.probe(&mut flow, due)).count();
            flow.settle(&mut profile);
            states.push(profile.health((0, ev)));
        }
        assert_eq!(states[2..], [Health::AssumedBad, Health::Denied, Health::AssumedBad]);
        assert_eq!(sent, 4);
        // Another queue pair between these NICs probes it too.
        let (mut other, _) = opened(&mrc);
        mrc.remember(&mut profile, &mut other, &News::Opened(&PathFacts { planes: 8, ..path(100, 10) }));
        assert_eq!(other.suspects.len(), 1);
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let key = |mrc: Mrc| check(&mrc).expect_err("refused").key;
        let mrc = Mrc::default();
        assert_eq!(key(Mrc { floor: Some(129), ..mrc }), "min_active");
        assert_eq!(key(Mrc { exponent: Some(25), ..mrc }), "timeout_exponent");
        assert_eq!(key(Mrc { linear: 8, ..mrc }), "linear_retries");
        assert!(check(&mrc).is_ok());
    }
}
