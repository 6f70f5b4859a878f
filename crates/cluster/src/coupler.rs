//! Coupled collectives: gathers the arrivals of a communicator's members and starts the group when the last has come.
//!
//! Life cycle of a group run: the first join of (communicator, sequence) opens it, each member adds its arrival, the last
//! one hands it to the fabric, the fabric's end closes it and releases every member. Sequences of a communicator open in
//! order but members may run ahead, so several may be open at once. A run may be broken up before its last member comes: those
//! who have come leave it, and those who come later are told. Invariant: every open run has at least one member and fewer than
//! all, or is running, or is broken up and has members to come.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use windtunnel_fabric::CoupledId;
use windtunnel_kernel::{Bytes, RankId, Span, Time};
use windtunnel_workload::Token;
use windtunnel_workload::collectives::{Algorithm, CollectiveKind};

/// A member's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which rank.
    pub rank: RankId,
    /// Its own name for the operation.
    pub token: Token,
    /// When it came.
    pub ready: Time,
}

/// One run of a coupled collective.
#[derive(Debug, Default)]
struct Run {
    members: Vec<Member>,
    /// Members to come in all, of a meeting.
    size: usize,
    /// Latest arrival so far.
    start: Time,
    /// A name of its own while it waits for members, 0 otherwise: places are used again.
    stamp: u64,
    /// Members that had come to a run that was broken up; 0 of others.
    left: usize,
}

/// What a member finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// Others are to come.
    Waits,
    /// It is the last one.
    Last,
    /// The run was broken up.
    Late,
}

/// Runs of one communicator that wait for members; the front has sequence `first`.
#[derive(Debug, Default)]
struct Waiting {
    first: u64,
    runs: VecDeque<u32>,
}

/// The coupled collectives of one job.
#[derive(Debug, Default)]
pub struct Coupler {
    waiting: Vec<Waiting>,
    runs: Vec<Run>,
    free: Vec<u32>,
    /// Runs opened so far.
    opened: u64,
    /// What each communicator's plans run as.
    groups: Vec<Vec<Known>>,
    /// Meetings that wait for members, by tag and first member.
    meetings: FxHashMap<(u64, u32), u32>,
    /// What meets, prepared, by communicator, first member, stride and whether it is a ring.
    met: FxHashMap<(u32, u32, u32, bool), CoupledId>,
}

/// A plan of a communicator, prepared.
#[derive(Clone, Copy, Debug)]
struct Known {
    plan: u32,
    group: Group,
}

/// Prepared edges with what they carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The fabric's name for the edges.
    pub id: CoupledId,
    /// Algorithm and kind: groups of a communicator that agree in both have the same edges.
    pub shape: (Algorithm, CollectiveKind),
    /// What the unit edge carries.
    pub bytes: Bytes,
    /// Dependent steps.
    pub steps: u32,
    /// What passes before its first byte, from the last arrival on.
    pub before: Span,
    /// Its time on an idle fabric, that included.
    pub span: Span,
    /// Whether the scenario asks for the coupled form whatever the arrivals.
    pub forced: bool,
}

/// In the window: nobody has come yet, or everybody has.
const UNOPENED: u32 = u32::MAX;
const DONE: u32 = u32::MAX - 1;

impl Coupler {
    /// For a job with `communicators`.
    pub fn new(communicators: usize) -> Self {
        Self {
            waiting: (0..communicators).map(|_| Waiting::default()).collect(),
            groups: vec![Vec::new(); communicators],
            ..Self::default()
        }
    }

    /// Adds an arrival of one of `size` members: the run, and what it finds there.
    pub fn join(&mut self, communicator: u32, sequence: u64, size: usize, member: Member) -> (u32, Joined) {
        let waiting = &mut self.waiting[communicator as usize];
        let position = (sequence - waiting.first) as usize;
        while waiting.runs.len() <= position {
            waiting.runs.push_back(UNOPENED);
        }
        let mut index = waiting.runs[position];
        if index == UNOPENED {
            index = self.open();
            self.waiting[communicator as usize].runs[position] = index;
        }
        let run = &mut self.runs[index as usize];
        let joined = if run.left > 0 {
            run.left += 1;
            if run.left == size {
                run.left = 0;
                self.free.push(index);
                self.retire(communicator, position);
            }
            return (index, Joined::Late);
        } else {
            run.members.push(member);
            run.start = run.start.max(member.ready);
            if run.members.len() < size { Joined::Waits } else { Joined::Last }
        };
        if joined == Joined::Last {
            run.stamp = 0;
            self.retire(communicator, position);
        }
        (index, joined)
    }

    /// Nobody is to come any more.
    fn retire(&mut self, communicator: u32, position: usize) {
        let waiting = &mut self.waiting[communicator as usize];
        waiting.runs[position] = DONE;
        while waiting.runs.front() == Some(&DONE) {
            waiting.runs.pop_front();
            waiting.first += 1;
        }
    }

    /// The name of a run that waits for members; 0 of any other.
    pub fn stamp(&self, run: u32) -> u64 {
        self.runs[run as usize].stamp
    }

    /// Breaks up a run that waits for members: those who have come, in rank order. Those to come find themselves late.
    pub fn break_up(&mut self, run: u32, members: &mut Vec<Member>) {
        let entry = &mut self.runs[run as usize];
        members.clear();
        members.append(&mut entry.members);
        members.sort_unstable_by_key(|member| member.rank);
        entry.left = members.len();
        (entry.start, entry.stamp) = (Time::ZERO, 0);
    }

    /// Adds an arrival at the meeting called `name` (its tag and its first member); returns the run and its start if this was
    /// the last of its members, of which there are `size`, asked once a meeting.
    pub fn meet(
        &mut self,
        name: (u64, u32),
        size: impl FnOnce() -> usize,
        member: Member,
    ) -> Option<(u32, Time)> {
        let index = match self.meetings.get(&name) {
            Some(&index) => index,
            None => {
                let index = self.open();
                self.runs[index as usize].size = size();
                self.meetings.insert(name, index);
                index
            }
        };
        let run = &mut self.runs[index as usize];
        run.members.push(member);
        run.start = run.start.max(member.ready);
        if run.members.len() < run.size {
            return None;
        }
        run.stamp = 0;
        self.meetings.remove(&name);
        Some((index, self.runs[index as usize].start))
    }

    fn open(&mut self) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.runs.push(Run::default());
            self.runs.len() as u32 - 1
        });
        self.opened += 1;
        self.runs[index as usize].stamp = self.opened;
        index
    }

    /// The edges of what meets as `name` (communicator, first member, stride, whether in a ring), prepared by `make` the first time.
    pub fn met(&mut self, name: (u32, u32, u32, bool), make: impl FnOnce() -> CoupledId) -> CoupledId {
        *self.met.entry(name).or_insert_with(make)
    }

    /// Members of a run, in rank order.
    pub fn close(&mut self, run: u32, members: &mut Vec<Member>) {
        let entry = &mut self.runs[run as usize];
        members.clear();
        members.append(&mut entry.members);
        members.sort_unstable_by_key(|member| member.rank);
        entry.start = Time::ZERO;
        self.free.push(run);
    }

    /// Arrival of the first member of a run.
    pub fn first_arrival(&self, run: u32) -> Time {
        self.runs[run as usize].members.iter().map(|member| member.ready).min().unwrap_or_default()
    }

    /// Members of a run, in the order in which they came.
    pub fn members(&self, run: u32) -> &[Member] {
        &self.runs[run as usize].members
    }

    /// Start of a run that is under way.
    pub fn start(&self, run: u32) -> Time {
        self.runs[run as usize].start
    }

    /// The group as which the replay's plan number `plan` runs on `communicator`; made by `make` the first time, which is
    /// given the edges' id if another plan has prepared the same ones.
    pub fn group(
        &mut self,
        communicator: u32,
        plan: u32,
        make: impl FnOnce(&dyn Fn((Algorithm, CollectiveKind)) -> Option<CoupledId>) -> Group,
    ) -> Group {
        let known = &mut self.groups[communicator as usize];
        if let Some(entry) = known.iter().find(|entry| entry.plan == plan) {
            return entry.group;
        }
        let same = |shape| known.iter().find(|entry| entry.group.shape == shape).map(|entry| entry.group.id);
        let group = make(&same);
        known.push(Known { plan, group });
        group
    }

    /// Runs that wait for members, but for those that were broken up: (communicator, sequence, members that have come).
    pub fn stuck(&self) -> Vec<(u32, u64, Vec<RankId>)> {
        let mut stuck = Vec::new();
        for (communicator, waiting) in self.waiting.iter().enumerate() {
            for (offset, &run) in waiting.runs.iter().enumerate() {
                if run < DONE && self.runs[run as usize].left == 0 {
                    let mut ranks: Vec<RankId> =
                        self.runs[run as usize].members.iter().map(|member| member.rank).collect();
                    ranks.sort_unstable();
                    stuck.push((communicator as u32, waiting.first + offset as u64, ranks));
                }
            }
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(rank: u32, ready: u64) -> Member {
        Member { rank: RankId(rank), token: Token(rank), ready: Time::from_ps(ready) }
    }

    #[test]
    fn those_who_come_to_a_run_that_was_broken_up_are_late() {
        let mut coupler = Coupler::new(1);
        let (run, _) = coupler.join(0, 0, 3, member(2, 5));
        coupler.join(0, 0, 3, member(0, 7));
        let stamp = coupler.stamp(run);
        assert!(stamp > 0);
        let mut members = Vec::new();
        coupler.break_up(run, &mut members);
        assert_eq!(members, [member(0, 7), member(2, 5)]);
        assert_eq!(coupler.stamp(run), 0);
        assert!(coupler.stuck().is_empty(), "who left does not wait");
        assert_eq!(coupler.join(0, 1, 3, member(0, 9)).1, Joined::Waits, "the next one is another");
        assert_eq!(coupler.join(0, 0, 3, member(1, 9)), (run, Joined::Late));
        assert_eq!(coupler.waiting[0].first, 1);
        // Its place is used again, by another name.
        let (again, _) = coupler.join(0, 2, 3, member(0, 11));
        assert_eq!((again, coupler.stamp(again) > stamp), (run, true));
    }

    #[test]
    fn runs_start_with_their_last_member_in_any_order_of_sequences() {
        let mut coupler = Coupler::new(1);
        let (first, joined) = coupler.join(0, 0, 2, member(0, 5));
        assert_eq!(joined, Joined::Waits);
        assert_eq!(coupler.join(0, 1, 2, member(0, 9)).1, Joined::Waits);
        let (second, joined) = coupler.join(0, 1, 2, member(1, 3));
        assert_eq!((joined, coupler.start(second)), (Joined::Last, Time::from_ps(9)));
        assert_eq!(coupler.first_arrival(second), Time::from_ps(3));
        assert_eq!(coupler.stuck(), vec![(0, 0, vec![RankId(0)])]);
        assert_eq!(coupler.join(0, 0, 2, member(1, 6)), (first, Joined::Last));
        assert_eq!(coupler.start(first), Time::from_ps(6));
        let mut members = Vec::new();
        coupler.close(second, &mut members);
        coupler.close(first, &mut members);
        assert_eq!(members, vec![member(0, 5), member(1, 6)]);
        assert!(coupler.stuck().is_empty() && coupler.waiting[0].runs.is_empty());
        assert_eq!(coupler.waiting[0].first, 2);
    }
}
