//! All-to-alls as one group where that agrees with message by message, and how far from it the run may be.
//!
//! An exchange whose messages all begin as their sender comes, and have one rate where nobody else sends
//! ([`Fabric::prepare_in_step`]), is one flow if its members come together. Three things then differ from message by message, and
//! their sum bounds by how much a member's end does:
//!
//! - *skew*: who comes first waits for the last, whose messages nobody can have before;
//! - *spread*: who has the shortest ways waits for the longest;
//! - *delay*: what another flow costs one of the messages is waited for by all. By message a member whose messages meet nobody may end
//!   as early as on an idle fabric, and the one that is delayed no later.
//!
//! Skew and spread shift the beginning of what comes next. A flow that begins later among k others, which share a link with it, may end
//! k + 1 times as much later, though the link as a whole is done as early; so these two count [`SHIFTED`] times.
//!
//! **The bound of a rank.** If what an operation waits for ends by at most e earlier or later, so does the operation. So each rank carries
//! the largest sum of such differences along what led to it: a message brings its sender's, a group its members' largest, an
//! exchange adds its own. It never shrinks.
//!
//! **The decision.** Members wait for one another for a hundredth of the exchange's own time at most ([`TOLERANCE`]); who then has not
//! come, comes late, and all go message by message. So do they if the bound would pass a hundredth of the time that the
//! job has taken. A communicator whose members came apart is not asked again for some exchanges, ever more of them.

use rustc_hash::FxHashMap;
use windtunnel_fabric::{CoupledId, Fabric, InStep};
use windtunnel_kernel::{Bytes, EndpointId, RankId, Span, Time};
use windtunnel_workload::collectives::{Algorithm, CollectiveKind, Plan};
use windtunnel_workload::machine::Join;
use windtunnel_workload::replay::Replay;

use crate::coupler::Member;

/// Part of an exchange's own time by which its members may come apart, and of a job's time that its bound may come to.
const TOLERANCE: f64 = 0.01;
/// How much larger than a shift of a beginning that of an end may be, where flows share links. One that begins among k others: k + 1.
const SHIFTED: u64 = 8;
/// Rounding of instants and rates: parts of an exchange's own time, and what a few sums of picoseconds come to.
const ROUNDING: f64 = 1e-9;
const TICKS: Span = Span::from_ps(10);
/// Exchanges of a communicator that are not asked, after members came apart once, and at most.
const FIRST_REST: u32 = 1;
const LONGEST_REST: u32 = 64;

/// Why an exchange went message by message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ByMessage {
    /// Its messages have several rates even where nobody else sends, or the paths may change.
    Rates,
    /// Its members came apart, or had done so lately.
    Apart,
    /// The bound would have passed its limit.
    Bound,
    /// Not all its messages begin at once: a member has more peers than messages outstanding.
    Outstanding,
    /// It is not direct, or members have unequal amounts.
    Algorithm,
    /// Several jobs meet.
    Jobs,
}

impl ByMessage {
    /// In the order of a report.
    pub const ALL: [Self; 6] =
        [Self::Rates, Self::Apart, Self::Bound, Self::Outstanding, Self::Algorithm, Self::Jobs];

    /// Its name in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rates => "rates",
            Self::Apart => "apart",
            Self::Bound => "bound",
            Self::Outstanding => "outstanding",
            Self::Algorithm => "algorithm",
            Self::Jobs => "jobs",
        }
    }

    /// Why an exchange of this plan never asked.
    fn of(plan: &Plan) -> Self {
        if plan.kind() == CollectiveKind::AllToAllV || plan.algorithm() != Algorithm::Direct {
            Self::Algorithm
        } else if plan.at_once().is_none() {
            Self::Outstanding
        } else {
            Self::Jobs
        }
    }
}

/// What became of the all-to-alls of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exchanged {
    /// Those that ran whole.
    pub whole: u64,
    /// Messages for which these stand.
    pub messages: u64,
    /// Those that went message by message, by [`ByMessage`].
    pub by_message: [u64; 6],
    /// By what part of it an iteration may take longer or less long than message by message.
    pub error: f64,
}

/// What is known of a communicator.
#[derive(Clone, Copy, Debug)]
struct Known {
    in_step: Option<InStep>,
    /// Exchanges that are not to be asked.
    rest: u32,
    /// As many as it was last time.
    rested: u32,
}

/// An exchange that waits for members.
#[derive(Clone, Copy, Debug)]
struct Open {
    communicator: u32,
    first: Time,
    last: Time,
    /// By how much these may differ.
    most: Span,
}

/// An exchange under way as one group.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    start: Time,
    /// Its own time.
    alone: Span,
    /// By how much its members' ends may differ, but for what delays it.
    bound: u64,
}

/// What an exchange is by itself.
#[derive(Clone, Copy, Debug)]
struct Own {
    /// Its time on an idle fabric.
    time: Span,
    /// By how much that differs from message by message.
    bound: Span,
}

/// What to do when a member has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// The others may yet come, if this is the first member up to an instant.
    Wait(Option<Time>),
    /// Go as one group.
    Whole(CoupledId, Bytes),
    /// Go message by message.
    ByMessage,
}

/// The exchanges of a job.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    /// By how much the ends of each rank's operations may differ, in picoseconds; empty where nothing is merged.
    pub bounds: Vec<u64>,
    start: Time,
    known: FxHashMap<u32, Known>,
    /// By communicator and plan.
    own: FxHashMap<(u32, u32), Own>,
    open: FxHashMap<u32, Open>,
    under_way: FxHashMap<u32, UnderWay>,
    done: Exchanged,
    /// End and bound of the first iteration and of the last one so far.
    first: Option<(Time, u64)>,
    last: (Time, u64),
}

impl Exchanges {
    /// Of a job with `ranks` that starts at `start`; some may be merged if `merges`.
    pub(super) fn new(ranks: usize, start: Time, merges: bool) -> Self {
        let bounds = if merges { vec![0; ranks] } else { Vec::new() };
        Self { bounds, start, ..Self::default() }
    }

    /// The job begins at `at`, later than it was to.
    pub(super) const fn begin(&mut self, at: Time) {
        self.start = at;
    }

    /// What to do as a member comes to `run`, of which these have come: all of them or not.
    pub(super) fn came<F: Fabric>(
        &mut self,
        fabric: &mut F,
        (replay, join): (&Replay, &Join),
        run: u32,
        members: &[Member],
        place: impl Fn(u32) -> EndpointId,
    ) -> Course {
        let plan = replay.plan(join);
        let all = members.len() == plan.members() as usize;
        let ready = members.last().map_or(Time::ZERO, |member| member.ready);
        if let Some(open) = self.open.get_mut(&run) {
            (open.first, open.last) = (open.first.min(ready), open.last.max(ready));
            if open.last - open.first > open.most {
                self.rest(join.communicator);
                return self.by_message(run, ByMessage::Apart);
            }
            if !all {
                return Course::Wait(None);
            }
        }
        let known = self.known.entry(join.communicator).or_insert_with(|| {
            let endpoints: Vec<EndpointId> = (0..plan.members()).map(place).collect();
            let entropy = replay.collective_entropy(join.communicator);
            Known { in_step: fabric.prepare_in_step(&endpoints, entropy), rest: 0, rested: 0 }
        });
        let Some(in_step) = known.in_step else { return self.by_message(run, ByMessage::Rates) };
        if known.rest > 0 {
            known.rest -= 1;
            return self.by_message(run, ByMessage::Apart);
        }
        let (bytes, even) = plan.at_once().expect("no other plan joins in step");
        let own = *self.own.entry((join.communicator, replay.plan_number(join))).or_insert_with(|| {
            let time = |bytes| fabric.coupled_span(in_step.group, Bytes::new(bytes), 1);
            let uneven = if even { Span::ZERO } else { time(bytes) - time(bytes - 1) };
            let time = time(bytes);
            Own { time, bound: (in_step.spread + uneven + time.scaled(ROUNDING) + TICKS) * SHIFTED }
        });
        let (first, last) = self.open.get(&run).map_or((ready, ready), |open| (open.first, open.last));
        let skew = (last - first) * SHIFTED;
        let before = self.of(members);
        let limit = (last + own.time).since(self.start).scaled(TOLERANCE).ps();
        let bound = before.saturating_add(own.bound.ps());
        let Some(left) = limit.checked_sub(bound).filter(|&left| left >= skew.ps()) else {
            return self.by_message(run, ByMessage::Bound);
        };
        if !all {
            let most = Span::from_ps(left / SHIFTED).min(own.time.scaled(TOLERANCE));
            self.open.insert(run, Open { communicator: join.communicator, first, last, most });
            return Course::Wait(Some(first + most));
        }
        self.open.remove(&run);
        if let Some(known) = self.known.get_mut(&join.communicator) {
            known.rested = 0;
        }
        let under_way = UnderWay { start: last, alone: own.time, bound: bound + skew.ps() };
        self.under_way.insert(run, under_way);
        self.done.whole += 1;
        let n = u64::from(plan.members());
        self.done.messages += n * (n - 1);
        Course::Whole(in_step.group, Bytes::new(bytes))
    }

    /// Those to come to `run` have not come in time.
    pub(super) fn timed_out(&mut self, run: u32) {
        if let Some(open) = self.open.get(&run) {
            self.rest(open.communicator);
            self.by_message(run, ByMessage::Apart);
        }
    }

    fn by_message(&mut self, run: u32, why: ByMessage) -> Course {
        self.open.remove(&run);
        self.done.by_message[why as usize] += 1;
        Course::ByMessage
    }

    fn rest(&mut self, communicator: u32) {
        let Some(known) = self.known.get_mut(&communicator) else { return };
        known.rested = (known.rested * 2).clamp(FIRST_REST, LONGEST_REST);
        known.rest = known.rested;
    }

    /// The largest bound of these.
    fn of(&self, members: &[Member]) -> u64 {
        let bound = |member: &Member| self.bounds.get(member.rank.0 as usize).copied();
        members.iter().filter_map(bound).max().unwrap_or(0)
    }

    /// A member waited in vain for so long.
    pub(super) fn waited(&mut self, rank: RankId, span: Span) {
        let bound = &mut self.bounds[rank.0 as usize];
        *bound = bound.saturating_add((span * SHIFTED).ps());
    }

    /// A group of these members, an exchange or another one, has ended.
    pub(super) fn ended(&mut self, run: u32, members: &[Member], at: Time) {
        if self.bounds.is_empty() {
            return;
        }
        let mut bound = self.of(members);
        if let Some(under_way) = self.under_way.remove(&run) {
            let delay = at.since(under_way.start + under_way.alone);
            bound = bound.max(under_way.bound.saturating_add(delay.ps()));
        }
        for member in members {
            self.bounds[member.rank.0 as usize] = bound;
        }
    }

    /// All ranks have ended an iteration.
    pub(super) fn iteration(&mut self, at: Time) {
        if let Some(&bound) = self.bounds.iter().max() {
            self.first.get_or_insert((at, bound));
            self.last = (at, bound);
        }
    }

    /// What became of them, with those of `replay` that never asked.
    pub(super) fn report(&self, replay: &Replay) -> Exchanged {
        let mut done = self.done.clone();
        for (plan, runs) in replay.exchanges_by_message() {
            done.by_message[ByMessage::of(plan) as usize] += runs;
        }
        let Some((first, at_first)) = self.first else { return done };
        let (last, at_last) = self.last;
        // Of one iteration all of it, of several what is behind the first: either end may differ.
        let (span, bound) = if last > first {
            (last - first, at_first.saturating_add(at_last))
        } else {
            (first.since(self.start), at_first)
        };
        // Of the time that it would be, which may be the lesser one.
        done.error = bound as f64 / (span.ps().saturating_sub(bound) as f64).max(1.0);
        done
    }
}
