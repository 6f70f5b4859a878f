//! A schedule in one line, for several layouts at once.
//!
//! Every pass of every pipeline rank is a [`Step`]; parents stand before their children, and what a rank does stands in its
//! order. So a run over the line needs no queue of events: a pass begins when its rank is free and its input has come, and all
//! that is asked of a step is a maximum and a sum, for [`LANES`] layouts side by side. Inputs on their way lie in slots, which are
//! used again: as many as are on their way at once.
//!
//! Times are picoseconds in floating point, exact up to 2^53 (2.5 hours).

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::pass::Hosted;
use crate::schedules::{Action, ActionKind, Schedule};

/// Layouts that are run at once.
pub const LANES: usize = 16;

/// A time of each.
pub type Lane = [f64; LANES];

const ZERO: Lane = [0.0; LANES];

/// When parameters are gathered that no pass has kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gathering {
    /// Never, or before the step begins.
    None,
    /// In the first pass over each chunk.
    Once,
    /// In the first of a run of passes of one kind over a chunk.
    EachRun,
    /// In every pass.
    EachPass,
}

/// After which passes gradients leave while others go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reducing {
    /// None: after the step.
    Late,
    /// The last over each chunk.
    Last,
    /// All that complete them.
    Every,
}

/// What a step takes, by kind; `Gathered` passes wait for their parameters meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Forward,
    Backward,
    Input,
    Weight,
    Pair,
    GatheredForward,
    GatheredBackward,
    GatheredInput,
}

const KINDS: usize = 8;
/// Passes of a rank that stand behind one another in the line, at most, if their inputs have left. What a rank's passes read and
/// write stays at hand meanwhile: 64 stages of 8 chunks take 29 us a layout, and 83 us with passes of all ranks in turn.
const TURN: usize = 8;
/// No slot.
const NONE: u32 = u32::MAX;
/// The output leaves for the rank before.
const DOWN: u16 = 1;
/// Parameters gathered since the start of the step bound this pass.
const BOUND: u16 = 2;
/// Gradients leave.
pub(super) const REDUCES: u16 = 4;
/// What it does is done together with the next: nothing passes here.
const HELD: u16 = 8;

/// A pass.
#[derive(Clone, Copy, Debug)]
struct Step {
    rank: u16,
    flags: u16,
    /// Row of its time: (rank, chunk, kind).
    cost: u32,
    input: u32,
    output: u32,
}

/// A schedule in one line.
#[derive(Clone, Debug)]
pub struct Course {
    ranks: u32,
    chunks: u32,
    slots: usize,
    steps: Vec<Step>,
    /// Kinds of passes that it has, a bit each.
    kinds: u8,
    /// By rank: how many micro-batches of each chunk are alive whole, and how many between their two gradients, where that is most;
    /// nowhere are more of all.
    peaks: Vec<Vec<Vec<u32>>>,
    /// By rank: chunks in the order of their first pass.
    entered: Vec<Vec<u32>>,
}

/// What the passes of a stage take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Forward, backward, input gradient, weight gradient; parameters are at hand.
    pub passes: [f64; 4],
    /// The first three where parameters are gathered meanwhile.
    pub gathered: [f64; 3],
    /// What a host that launches passes makes of them.
    pub hosts: [Option<Hosted>; 4],
    /// Forward and backward interleaved.
    pub pair: f64,
    /// The first forward pass ends no sooner than this after the start of the step.
    pub bound: f64,
    /// The last of its gradients are reduced no sooner than this after the start of the pass that completes them.
    pub reduced: f64,
    /// What reducing them takes in all.
    pub reduce: f64,
}

/// What a message to a neighbour takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Side {
    /// For which its link is busy.
    pub busy: f64,
    /// From its last byte to its arrival.
    pub latency: f64,
}

/// What a pass and the host that launches it make of one another, as [`Hosted`] has it.
#[derive(Clone, Copy, Debug)]
struct Host {
    behind: Lane,
    launches: Lane,
    gated: Lane,
}

/// Of a pass that no host launches.
const UNHOSTED: Host =
    Host { behind: [f64::NEG_INFINITY; LANES], launches: ZERO, gated: [f64::NEG_INFINITY; LANES] };

/// Times of up to [`LANES`] layouts with one course.
#[derive(Clone, Debug)]
pub struct Sheet {
    chunks: u32,
    /// Kinds of passes that are read, a bit each.
    kinds: u8,
    costs: Vec<Lane>,
    /// By row of `costs`, where a host launches passes: see [`Hosted`].
    hosts: Vec<Host>,
    bounds: Vec<Lane>,
    reduced: Vec<Lane>,
    reduce: Vec<Lane>,
    busy: Vec<Lane>,
    latency: Vec<Lane>,
}

/// When the ranks of a layout end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ends {
    /// Their last pass.
    pub passes: Vec<f64>,
    /// Their last exchange of gradients that goes on beside passes.
    pub reduced: Vec<f64>,
    /// By rank and chunk: the end of the pass that completed its gradients, if they leave beside passes.
    pub completed: Vec<f64>,
    /// By rank: for how long it waited for parameters, where that was followed.
    pub waited: Vec<f64>,
}

impl Sheet {
    /// Of `course`, with nothing on it.
    pub fn new(course: &Course) -> Self {
        let places = (course.ranks * course.chunks) as usize;
        Self {
            chunks: course.chunks,
            kinds: course.kinds,
            costs: vec![ZERO; places * KINDS],
            hosts: Vec::new(),
            bounds: vec![ZERO; places],
            reduced: vec![ZERO; places],
            reduce: vec![ZERO; places],
            busy: vec![ZERO; 2 * course.ranks as usize],
            latency: vec![ZERO; 2 * course.ranks as usize],
        }
    }

    /// Writes what the stage of `chunk` on `rank` takes in layout `lane`.
    pub fn stage(&mut self, lane: usize, rank: u32, chunk: u32, times: &Times) {
        let place = (rank * self.chunks + chunk) as usize;
        let [forward, backward, input, weight] = times.passes;
        let [gathered, gathered_backward, gathered_input] = times.gathered;
        let all = [forward, backward, input, weight, times.pair, gathered, gathered_backward, gathered_input];
        let rows = &mut self.costs[place * KINDS..(place + 1) * KINDS];
        // Each row is a line of cache of its own, of which most courses read two or three in eight.
        let mut kinds = self.kinds;
        while kinds != 0 {
            let kind = kinds.trailing_zeros() as usize;
            rows[kind][lane] = all[kind];
            kinds &= kinds - 1;
        }
        self.host(lane, place, times);
        self.bounds[place][lane] = times.bound;
        self.reduced[place][lane] = times.reduced;
        self.reduce[place][lane] = times.reduce;
    }

    fn host(&mut self, lane: usize, place: usize, times: &Times) {
        if self.hosts.is_empty() {
            if times.hosts.iter().all(Option::is_none) {
                return;
            }
            self.hosts = vec![UNHOSTED; self.costs.len()];
        }
        for (kind, host) in times.hosts.iter().enumerate() {
            let never = f64::NEG_INFINITY;
            let host = host.unwrap_or(Hosted { behind: never, launches: 0.0, gated: never });
            let gathered = (kind < 3).then_some(Kind::GatheredForward as usize + kind);
            for row in [Some(kind), gathered].into_iter().flatten() {
                let row = &mut self.hosts[place * KINDS + row];
                row.behind[lane] = host.behind;
                row.launches[lane] = host.launches;
                row.gated[lane] = host.gated;
            }
        }
    }

    /// Writes what messages of `rank` take in layout `lane`: to the rank after, and to the one before.
    pub fn sides(&mut self, lane: usize, rank: u32, up: Side, down: Side) {
        for (offset, side) in [up, down].into_iter().enumerate() {
            self.busy[2 * rank as usize + offset][lane] = side.busy;
            self.latency[2 * rank as usize + offset][lane] = side.latency;
        }
    }
}

/// What a run over a course needs, to be used again.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    clock: Vec<Lane>,
    host: Vec<Lane>,
    reduced: Vec<Lane>,
    completed: Vec<Lane>,
    free: Vec<Lane>,
    slots: Vec<Lane>,
}

impl Course {
    /// The line of `schedule`.
    ///
    /// # Panics
    /// If the schedule waits for itself, which one that was built does not.
    pub fn new(schedule: &Schedule, gathering: Gathering, reducing: Reducing) -> Self {
        let placement = schedule.placement;
        let (ranks, chunks) = (placement.ranks, u32::from(placement.chunks));
        let mut line = Line {
            schedule,
            course: Self {
                ranks,
                chunks,
                slots: 0,
                steps: Vec::new(),
                kinds: 0,
                peaks: (0..ranks).map(|rank| peaks(schedule.actions(rank), chunks as usize)).collect(),
                entered: (0..ranks).map(|rank| entered(schedule.actions(rank))).collect(),
            },
            marks: (0..ranks).map(|rank| marks(schedule.actions(rank), gathering, reducing)).collect(),
            next: vec![0; ranks as usize],
            coming: FxHashMap::default(),
            unused: Vec::new(),
        };
        let total: usize = (0..ranks).map(|rank| schedule.actions(rank).len()).sum();
        line.course.steps.reserve(total);
        // About as if every pass took as long: inputs are taken soon after they have come, and few are on their way.
        let mut done = 0;
        while done < total {
            for rank in 0..ranks {
                for _ in 0..TURN {
                    line.advance(rank);
                }
            }
            let now = line.next.iter().sum();
            assert!(now > done, "a schedule that was built has no deadlock");
            done = now;
        }
        line.course
    }

    /// Pipeline ranks.
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Chunks of each.
    pub const fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Passes in all.
    pub fn passes(&self) -> usize {
        self.steps.len()
    }

    /// Chunks of `rank` in the order in which it first enters them.
    pub fn entered(&self, rank: u32) -> &[u32] {
        &self.entered[rank as usize]
    }

    /// Most that `rank` holds if a micro-batch takes `whole[chunk]` until its input gradient is over, and `kept[chunk]` from there to its
    /// weight gradient: see [`Schedule::peak_activation`].
    pub fn peak(&self, rank: u32, whole: &[u64], kept: &[u64]) -> u64 {
        let sizes = || whole.iter().zip(kept).flat_map(|(&whole, &kept)| [whole, kept.min(whole)]);
        let of = |counts: &Vec<u32>| {
            counts.iter().zip(sizes()).map(|(&count, size)| u64::from(count) * size).sum()
        };
        self.peaks[rank as usize].iter().map(of).max().unwrap_or(0)
    }

    /// Runs the layouts of `sheet`, all of them at once, in `scratch`; ends of the first `lanes`.
    pub fn run(&self, sheet: &Sheet, lanes: usize, scratch: &mut Scratch) -> Vec<Ends> {
        self.run_in(sheet, scratch);
        let of = |lane: usize| Ends {
            passes: scratch.clock.iter().map(|clock| clock[lane]).collect(),
            reduced: scratch.reduced.iter().map(|clock| clock[lane]).collect(),
            completed: scratch.completed.iter().map(|clock| clock[lane]).collect(),
            waited: Vec::new(),
        };
        (0..lanes).map(of).collect()
    }

    /// The latest end of each lane, of passes and gradients.
    pub fn makespans(&self, sheet: &Sheet) -> Lane {
        let mut scratch = Scratch::default();
        self.run_in(sheet, &mut scratch);
        let mut latest = ZERO;
        for clock in scratch.clock.iter().chain(&scratch.reduced) {
            latest = later(latest, *clock);
        }
        latest
    }

    fn run_in(&self, sheet: &Sheet, scratch: &mut Scratch) {
        let ranks = self.ranks as usize;
        for (list, length) in [
            (&mut scratch.clock, ranks),
            (&mut scratch.host, ranks),
            (&mut scratch.reduced, ranks),
            (&mut scratch.completed, ranks * self.chunks as usize),
            (&mut scratch.free, 2 * ranks),
        ] {
            list.clear();
            list.resize(length, ZERO);
        }
        scratch.slots.clear();
        scratch.slots.resize(self.slots, ZERO);
        #[cfg(target_arch = "x86_64")]
        #[expect(unsafe_code, reason = "the processor has just been asked whether it has these instructions")]
        {
            if std::arch::is_x86_feature_detected!("avx512f") {
                // SAFETY: `avx512f` is there.
                unsafe { self.walk_widest(sheet, scratch) };
                return;
            }
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: `avx2` is there.
                unsafe { self.walk_wide(sheet, scratch) };
                return;
            }
        }
        self.walk(sheet, scratch);
    }

    /// [`Self::walk`] with eight times to a register: the same sums and maxima, so the same times.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    fn walk_widest(&self, sheet: &Sheet, scratch: &mut Scratch) {
        self.walk(sheet, scratch);
    }

    /// [`Self::walk`] with four times to a register: the same sums and maxima, so the same times, and 23,400 layouts of
    /// 64 stages and 8 chunks a second where it is 19,600 without.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn walk_wide(&self, sheet: &Sheet, scratch: &mut Scratch) {
        self.walk(sheet, scratch);
    }

    #[expect(clippy::inline_always, reason = "it takes on the instructions of its caller")]
    #[inline(always)]
    fn walk(&self, sheet: &Sheet, scratch: &mut Scratch) {
        let Scratch { clock, host, reduced, completed, free, slots } = scratch;
        for step in &self.steps {
            let rank = usize::from(step.rank);
            let mut at = clock[rank];
            if step.input != NONE {
                at = later(at, slots[step.input as usize]);
            }
            let mut start = at;
            if step.flags & HELD == 0 {
                let cost = sheet.costs[step.cost as usize];
                at = sum(at, cost);
                if let Some(hosted) = sheet.hosts.get(step.cost as usize) {
                    let launched = sum(host[rank], hosted.launches);
                    at = later(at, sum(host[rank], hosted.behind));
                    host[rank] = later(launched, sum(start, hosted.gated));
                    // A pass that the host holds up is taken to begin later: gradients leave as long before its end.
                    start = less(at, cost);
                }
            }
            if step.flags & (BOUND | REDUCES) != 0 {
                let place = step.cost as usize / KINDS;
                if step.flags & BOUND != 0 {
                    at = later(at, sheet.bounds[place]);
                }
                if step.flags & REDUCES != 0 {
                    let queued = sum(reduced[rank], sheet.reduce[place]);
                    let ready = sum(start, sheet.reduced[place]);
                    reduced[rank] = later(queued, ready);
                    completed[place] = at;
                }
            }
            clock[rank] = at;
            if step.output != NONE {
                let side = 2 * rank + usize::from(step.flags & DOWN);
                let left = sum(later(at, free[side]), sheet.busy[side]);
                free[side] = left;
                slots[step.output as usize] = sum(left, sheet.latency[side]);
            }
        }
    }
}

#[expect(clippy::inline_always, reason = "it takes on the instructions of its caller")]
#[inline(always)]
fn later(a: Lane, b: Lane) -> Lane {
    let mut out = ZERO;
    for lane in 0..LANES {
        out[lane] = if a[lane] > b[lane] { a[lane] } else { b[lane] };
    }
    out
}

#[expect(clippy::inline_always, reason = "it takes on the instructions of its caller")]
#[inline(always)]
fn sum(a: Lane, b: Lane) -> Lane {
    let mut out = ZERO;
    for lane in 0..LANES {
        out[lane] = a[lane] + b[lane];
    }
    out
}

#[expect(clippy::inline_always, reason = "it takes on the instructions of its caller")]
#[inline(always)]
fn less(a: Lane, b: Lane) -> Lane {
    let mut out = ZERO;
    for lane in 0..LANES {
        out[lane] = a[lane] - b[lane];
    }
    out
}

/// What is particular about each action of a rank: its flags, and whether it gathers.
pub(super) fn marks(actions: &[Action], gathering: Gathering, reducing: Reducing) -> Vec<(u16, bool)> {
    let chunks = actions.iter().map(|action| usize::from(action.chunk) + 1).max().unwrap_or(0);
    let mut seen = vec![false; chunks];
    let mut last = vec![usize::MAX; chunks];
    let completes = |kind| matches!(kind, ActionKind::Backward | ActionKind::BackwardWeight);
    for (index, action) in actions.iter().enumerate().filter(|(_, action)| completes(action.kind)) {
        last[usize::from(action.chunk)] = index;
    }
    let mut runs = [None; 2];
    actions
        .iter()
        .enumerate()
        .map(|(index, action)| {
            let chunk = usize::from(action.chunk);
            let first = action.kind == ActionKind::Forward && !std::mem::replace(&mut seen[chunk], true);
            let begins = action.kind != ActionKind::BackwardWeight
                && runs[usize::from(action.kind != ActionKind::Forward)].replace(chunk) != Some(chunk);
            let gathers = action.kind != ActionKind::BackwardWeight
                && match gathering {
                    Gathering::None => false,
                    Gathering::Once => first,
                    Gathering::EachRun => begins,
                    Gathering::EachPass => true,
                };
            let reduces = completes(action.kind)
                && match reducing {
                    Reducing::Late => false,
                    Reducing::Last => last[chunk] == index,
                    Reducing::Every => true,
                };
            let bound = if first { BOUND } else { 0 };
            (bound | if reduces { REDUCES } else { 0 }, gathers)
        })
        .collect()
}

fn entered(actions: &[Action]) -> Vec<u32> {
    let mut chunks = Vec::new();
    for action in actions {
        if !chunks.contains(&u32::from(action.chunk)) {
            chunks.push(u32::from(action.chunk));
        }
    }
    chunks
}

/// The greatest numbers of micro-batches alive, two for each chunk: from the start of their forward pass to the end of their input
/// gradient, and from there to the end of their weight gradient.
fn peaks(actions: &[Action], chunks: usize) -> Vec<Vec<u32>> {
    let mut found: Vec<Vec<u32>> = Vec::new();
    let mut now = vec![0u32; 2 * chunks];
    let mut ended: Vec<Action> = Vec::new();
    for action in actions {
        match action.kind {
            ActionKind::Forward => {
                now[2 * usize::from(action.chunk)] += 1;
                if !found.iter().any(|known| known.iter().zip(&now).all(|(known, now)| known >= now)) {
                    found.retain(|known| known.iter().zip(&now).any(|(known, now)| known > now));
                    found.push(now.clone());
                }
            }
            _ => ended.push(*action),
        }
        if !action.paired {
            for ended in ended.drain(..) {
                let whole = 2 * usize::from(ended.chunk);
                match ended.kind {
                    ActionKind::BackwardInput => {
                        now[whole] -= 1;
                        now[whole + 1] += 1;
                    }
                    ActionKind::BackwardWeight => now[whole + 1] -= 1,
                    _ => now[whole] -= 1,
                }
            }
        }
    }
    found
}

/// What is on its way: to whom, of which chunk and micro-batch, and whether it is a gradient.
type Message = (u32, u16, u32, bool);

/// A course under way.
struct Line<'a> {
    schedule: &'a Schedule,
    course: Course,
    marks: Vec<Vec<(u16, bool)>>,
    /// By rank: its next action.
    next: Vec<usize>,
    /// Slots of messages that have left.
    coming: FxHashMap<Message, u32>,
    unused: Vec<u32>,
}

impl Line<'_> {
    /// Takes the next action of `rank`, or pair of them, if its inputs have left.
    fn advance(&mut self, rank: u32) {
        let at = self.next[rank as usize];
        let actions = self.schedule.actions(rank);
        let Some(first) = actions.get(at) else { return };
        let group = at..(at + 1 + usize::from(first.paired)).min(actions.len());
        let needs = |action: &Action| self.input(rank, *action);
        if actions[group.clone()]
            .iter()
            .any(|action| needs(action).is_some_and(|message| !self.coming.contains_key(&message)))
        {
            return;
        }
        self.next[rank as usize] = group.end;
        self.take(rank, group);
    }

    /// The message that `action` of `rank` waits for, if it comes from another rank.
    fn input(&self, rank: u32, action: Action) -> Option<Message> {
        let (from, gradient) = self.schedule.sender(rank, action)?;
        (from != rank).then_some((rank, action.chunk, action.microbatch, gradient))
    }

    fn take(&mut self, rank: u32, group: Range<usize>) {
        let actions = &self.schedule.actions(rank)[group.clone()];
        let pair = actions.len() == 2;
        let mut outputs: Vec<Message> = Vec::new();
        for (offset, &action) in actions.iter().enumerate() {
            let (flags, gathers) = self.marks[rank as usize][group.start + offset];
            let kind = match (action.kind, gathers) {
                _ if pair => Kind::Pair,
                (ActionKind::Forward, false) => Kind::Forward,
                (ActionKind::Forward, true) => Kind::GatheredForward,
                (ActionKind::Backward, false) => Kind::Backward,
                (ActionKind::Backward, true) => Kind::GatheredBackward,
                (ActionKind::BackwardInput, false) => Kind::Input,
                (ActionKind::BackwardInput, true) => Kind::GatheredInput,
                (ActionKind::BackwardWeight, _) => Kind::Weight,
            };
            // Of a pair the time stands with the forward pass, and passes at the second.
            let chunk = if pair { actions[0].chunk } else { action.chunk };
            let place = rank * self.course.chunks + u32::from(chunk);
            let held = pair && offset == 0;
            self.course.kinds |= 1 << kind as u8;
            let input = self.input(rank, action).and_then(|message| self.coming.remove(&message));
            self.unused.extend(input);
            self.course.steps.push(Step {
                rank: rank as u16,
                flags: if held { flags & !REDUCES | HELD } else { flags },
                cost: place * KINDS as u32 + kind as u32,
                input: input.unwrap_or(NONE),
                output: NONE,
            });
            if let Some((to, chunk, gradient)) =
                self.schedule.receiver(rank, action).filter(|&(to, ..)| to != rank)
            {
                outputs.push((to, chunk, action.microbatch, gradient));
            }
        }
        for (index, message) in outputs.into_iter().enumerate() {
            let slot = self.unused.pop().unwrap_or_else(|| {
                self.course.slots += 1;
                self.course.slots as u32 - 1
            });
            let down = if message.0 + 1 == rank
                || (rank == 0 && message.0 + 1 == self.course.ranks && message.0 > 1)
            {
                DOWN
            } else {
                0
            };
            if index > 0 {
                // Both members of a pair end together: the second message has a step of its own.
                let last = *self.course.steps.last().expect("the pair has just been taken");
                self.course.steps.push(Step { flags: HELD, input: NONE, output: NONE, ..last });
            }
            let last = self.course.steps.last_mut().expect("the action has just been taken");
            last.flags |= down;
            last.output = slot;
            self.coming.insert(message, slot);
        }
    }
}
