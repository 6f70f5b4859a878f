//! One shard: a fabric and the replays of the jobs that run on it, advanced together.
//!
//! Message and flow models have exactly one shard. The shard moves the fabric's clock event by event and hands what
//! became known to the replays, which ask for more. Life cycle: [`Shard::new`], [`Shard::enter`] once per job,
//! [`Shard::handle`] (or an executor, to which it is a
//! process) until enough is seen. Invariants: a job's rank is told about its
//! own requests only; requests never lie before the clock. Failure: the fabric runs dry while operations remain;
//! [`Shard::stuck`] then names them.

mod bridge;
mod exchanges;
mod groups;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use windtunnel_fabric::{Fabric, Notice, NoticeKind, Ticket};
use windtunnel_kernel::executor::{Envelope, Outbox, Process};
use windtunnel_kernel::{EndpointId, RankId, Span, Time};
use windtunnel_workload::collectives::{SizeRule, Tuner};
use windtunnel_workload::replay::{Coupling, Exchanges, Replay, ReplayError, ReplayOptions, StuckOperation};
use windtunnel_workload::{Token, Workload};

use self::bridge::Bridge;
pub use self::exchanges::{ByMessage, Exchanged};
use self::exchanges::{Course, Exchanges as Merging};
use self::groups::{Complete, Coupled, ask, start_group, start_meeting};
use crate::coupler::{Coupler, Member};
use crate::explain::{self, CriticalPath};
use crate::variation::Variation;

/// A job as a shard runs it.
#[derive(Clone, Debug)]
pub struct ShardJob {
    /// Its number in the run: part of what load balancers hash.
    pub number: u64,
    /// What it does.
    pub workload: Arc<Workload>,
    /// GPU of each rank.
    pub placement: Arc<[EndpointId]>,
    /// The first so many ranks stand on GPUs of their own; those after them where other jobs' ranks may stand too, and
    /// receive nothing there but from ranks of the first kind.
    pub own: usize,
    /// Iterations to run before its ranks stop.
    pub iterations: u64,
    /// Of these the first so many are no part of what [`Shard::stop_after`] asks for.
    pub replayed: u64,
    /// Whether anything is asked of it: what is not runs as long as the others do.
    pub awaited: bool,
    /// When its ranks start.
    pub start: Time,
    /// Iterations done before this shard began; part of the key of its noise.
    pub done_before: u64,
    /// Whether each rank is simulated; empty: all are. A rank that is not stands for an equal one that is, so every
    /// collective that has members of both kinds must run coupled (folding).
    pub simulated: Arc<[bool]>,
}

impl ShardJob {
    fn is_simulated(&self, rank: RankId) -> bool {
        self.simulated.get(rank.0 as usize).copied().unwrap_or(true)
    }
}

/// An iteration that all ranks have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IterationEnd {
    /// Which, counted from 0 within the shard.
    pub iteration: u64,
    /// End of the iteration before (the job's start for the first).
    pub start: Time,
    /// End of the last rank.
    pub finish: Time,
    /// By how much that is later than the mean of all ranks' ends.
    pub lag: Span,
    /// Where the time between the two went.
    pub path: CriticalPath,
}

/// What a run tells its observer, in a fixed order.
pub trait Observer {
    /// A rank of `job` has ended `iteration`; its operations' records can be read until it starts the next.
    fn rank_iteration(&mut self, job: usize, rank: RankId, iteration: u64, replay: &Replay);
    /// All ranks of `job` have.
    fn iteration(&mut self, job: usize, end: &IterationEnd, replay: &Replay);
}

/// Iterations of a job that some rank has not ended yet.
#[derive(Debug)]
struct Open {
    ranks: usize,
    latest: Time,
    /// Of the ends of its ranks, in picoseconds.
    sum: u128,
    path: Option<CriticalPath>,
}

#[derive(Debug)]
struct Running {
    job: ShardJob,
    replay: Replay,
    coupler: Coupler,
    exchanges: Merging,
    /// Number of simulated ranks.
    ranks: usize,
    /// Jobs that were on its GPUs as it entered.
    before: Vec<u32>,
    /// Ranks on endpoints that it shares, by endpoint.
    shared: Vec<(EndpointId, RankId)>,
    /// Simulated members of each communicator.
    members: Vec<u32>,
    /// Iteration of each rank.
    iteration: Vec<u64>,
    /// Open iterations from `ended` on.
    open: std::collections::VecDeque<Open>,
    ended: u64,
    last_end: Time,
    /// Start of each rank's iteration.
    began: Vec<Time>,
    /// Iterations after which its ranks stop until they are released.
    hold: u64,
    /// Ranks that have stopped there.
    held: Vec<RankId>,
    /// Ranks that are [`RUN_AHEAD`] iterations ahead of the slowest, and since when, in the order in which they came.
    ahead: Vec<(RankId, Time)>,
    /// It was taken off before its end.
    gone: bool,
}

impl Running {
    /// Iterations after which it has been seen enough.
    fn enough(&self, enough: u64) -> u64 {
        if self.job.awaited { self.job.iterations.min(enough.saturating_add(self.job.replayed)) } else { 0 }
    }
}

/// Iterations by which a rank may be ahead of the slowest of its job. A rank that waits for nobody (one that only sends, or
/// has nothing to do) would otherwise begin all of them at once, each of which is held in memory until its messages have
/// arrived. Longer than what any episode is judged by, so it is only met where every iteration is simulated.
const RUN_AHEAD: u64 = 512;

/// A fabric with the jobs on it.
pub struct Shard<'a, F, O> {
    fabric: F,
    variation: &'a Variation,
    observer: O,
    jobs: Vec<Running>,
    /// Rank at each endpoint that is a job's own.
    rank_at: Vec<u32>,
    /// The last job to enter there, its own.
    job_at: Vec<u32>,
    /// Jobs that have entered and wait for GPUs on which others have not ended yet.
    waiting: Vec<usize>,
    notices: Vec<Notice>,
    members: Vec<Member>,
    complete: Vec<Complete>,
    /// Iterations after which a job has been seen enough.
    enough: u64,
    /// Whether every job has done enough; kept, because it is asked at every event.
    satisfied_now: bool,
    /// See [`Shard::keep_rings_coupled`].
    rings: bool,
    /// See [`Shard::couple`].
    coupling: Coupling,
    tuner: Arc<dyn Tuner + Send + Sync>,
    /// See [`Shard::exchange`].
    exchanges: Exchanges,
    /// Until when exchanges wait for their members: instant, job, run and the run's stamp.
    timers: BinaryHeap<Reverse<(Time, usize, u32, u64)>>,
    /// See [`Shard::pause_every`].
    slice: u64,
    /// Whether some operation ends beyond the horizon.
    beyond: bool,
}

/// Members of a group that are looked ahead as it ends: what they need is some of these on its way.
const FORESEEN: usize = 4;

/// A ticket names its job and the replay's token, or a run of a coupled group.
const COUPLED: u64 = 1 << 63;

/// Events handled before the executor is asked again, so that a run can be watched and stopped: see
/// [`Shard::pause_every`].
const SLICE: u64 = 1 << 12;

fn ticket(job: usize, token: Token) -> Ticket {
    Ticket((job as u64) << 32 | u64::from(token.0))
}

/// Whether a request is one of the job at this place of the shard.
pub const fn is_of(ticket: Ticket, job: usize) -> bool {
    (ticket.0 & !COUPLED) >> 32 == job as u64
}

/// A message or flow fabric is one process: it sends nobody mail, and its events are its own.
impl<F: Fabric, O: Observer> Process for Shard<'_, F, O> {
    type Message = std::convert::Infallible;

    fn entities(&self) -> Vec<u32> {
        Vec::new()
    }

    fn next_time(&mut self) -> Time {
        if self.satisfied_now { Time::NEVER } else { self.next_event() }
    }

    fn advance(&mut self, _: Time, _: &mut Outbox<Self::Message>) -> u64 {
        let before = self.fabric.events();
        self.handle(self.slice);
        (self.fabric.events() - before).max(1)
    }

    fn receive(&mut self, envelope: Envelope<Self::Message>) {
        match envelope.message {}
    }
}

impl<'a, F: Fabric, O: Observer> Shard<'a, F, O> {
    /// A shard with `endpoints` and no job.
    pub fn new(fabric: F, endpoints: u32, variation: &'a Variation, observer: O) -> Self {
        Self {
            fabric,
            variation,
            observer,
            jobs: Vec::new(),
            rank_at: vec![u32::MAX; endpoints as usize],
            job_at: vec![u32::MAX; endpoints as usize],
            waiting: Vec::new(),
            notices: Vec::new(),
            members: Vec::new(),
            complete: Vec::new(),
            enough: u64::MAX,
            satisfied_now: false,
            rings: false,
            coupling: Coupling::default(),
            tuner: Arc::new(SizeRule),
            exchanges: Exchanges::default(),
            timers: BinaryHeap::new(),
            slice: SLICE,
            beyond: false,
        }
    }

    /// Adds a job and starts its ranks: when the job says, or, if others are on its GPUs, as the last of these ends.
    ///
    /// # Errors
    /// [`ReplayError`] when the workload contradicts itself.
    pub fn enter(&mut self, job: ShardJob) -> Result<usize, ReplayError> {
        let index = self.jobs.len();
        let ranks = job.workload.ranks();
        let (coupling, exchanges, tuner) = (self.coupling, self.exchanges, Arc::clone(&self.tuner));
        let options =
            ReplayOptions { job: job.number, coupling, exchanges, tuner, repeats: job.iterations > 1 };
        let replay = Replay::new(job.workload.clone(), &options)?;
        let placed = job.placement.iter().zip(0..).map(|(&endpoint, rank)| (endpoint, RankId(rank)));
        let mut before: Vec<u32> = Vec::new();
        for (endpoint, _) in placed.clone().take(job.own) {
            before.push(std::mem::replace(&mut self.job_at[endpoint.0 as usize], index as u32));
        }
        before.sort_unstable();
        before.dedup();
        before.retain(|&other| other != u32::MAX && !self.is_over(other as usize));
        let mut shared: Vec<(EndpointId, RankId)> = placed.skip(job.own).collect();
        shared.sort_unstable();
        let start = job.start;
        let simulated = (0..ranks as u32).filter(|&rank| job.is_simulated(RankId(rank))).count();
        let members = job.workload.communicators.iter();
        let members: Vec<u32> = members
            .map(|group| group.ranks.iter().filter(|&&rank| job.is_simulated(rank)).count() as u32)
            .collect();
        self.jobs.push(Running {
            job,
            replay,
            coupler: Coupler::new(members.len()),
            exchanges: Merging::new(ranks, start, exchanges == Exchanges::InStep),
            ranks: simulated,
            before,
            shared,
            members,
            iteration: vec![0; ranks],
            open: std::collections::VecDeque::new(),
            ended: 0,
            last_end: start,
            began: vec![start; ranks],
            hold: u64::MAX,
            held: Vec::new(),
            ahead: Vec::new(),
            gone: false,
        });
        self.satisfied_now = false;
        if self.jobs[index].before.is_empty() {
            self.start(index, start);
        } else {
            self.waiting.push(index);
        }
        Ok(index)
    }

    /// Starts the ranks of `job` at `at`.
    fn start(&mut self, job: usize, at: Time) {
        let running = &mut self.jobs[job];
        running.last_end = at;
        running.began.fill(at);
        running.exchanges.begin(at);
        let ShardJob { placement, own, .. } = &running.job;
        for (endpoint, rank) in placement.iter().take(*own).zip(0..) {
            self.rank_at[endpoint.0 as usize] = rank;
        }
        for rank in (0..placement.len() as u32).map(RankId) {
            if self.jobs[job].job.is_simulated(rank) {
                self.begin(job, rank, at);
            }
        }
    }

    /// Whether nothing more comes of `job`.
    fn is_over(&self, job: usize) -> bool {
        let running = &self.jobs[job];
        running.gone || running.ended == running.job.iterations
    }

    /// Starts jobs that waited for one that is over since `at`.
    fn let_start(&mut self, at: Time) {
        let waiting = std::mem::take(&mut self.waiting);
        let (free, waiting): (Vec<usize>, Vec<usize>) = waiting
            .into_iter()
            .partition(|&job| self.jobs[job].before.iter().all(|&other| self.is_over(other as usize)));
        self.waiting = waiting;
        for job in free {
            let start = self.jobs[job].job.start.max(at);
            self.start(job, start);
        }
    }

    /// The fabric.
    pub fn fabric(&self) -> &F {
        &self.fabric
    }

    /// The fabric, for draining what it observed.
    pub fn fabric_mut(&mut self) -> &mut F {
        &mut self.fabric
    }

    /// What observes.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// What observes.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// Time of the next event, also after every job has done enough: [`Time::NEVER`] if there is none.
    pub fn next_event(&mut self) -> Time {
        let timer = self.timers.peek().map_or(Time::NEVER, |&Reverse((at, ..))| at);
        self.fabric.next_time().min(timer)
    }

    /// When `job` ended its last iteration; `None` while it goes on.
    pub fn finished(&self, job: usize) -> Option<Time> {
        let running = &self.jobs[job];
        (running.ended == running.job.iterations).then_some(running.last_end)
    }

    /// Lets the ranks of `job` stop once they have ended `iterations`, more than any of them has, until [`Self::release`].
    pub fn hold_after(&mut self, job: usize, iterations: u64) {
        self.jobs[job].hold = iterations;
    }

    /// When the last rank of `job` stopped where they were to; `None` before.
    pub fn held(&self, job: usize) -> Option<Time> {
        let running = &self.jobs[job];
        (running.held.len() == running.ranks).then_some(running.last_end)
    }

    /// Lets the ranks of `job`, all of which have stopped, go on at `at`.
    pub fn release(&mut self, job: usize, at: Time) {
        let running = &mut self.jobs[job];
        running.hold = u64::MAX;
        // What they waited for is no part of their next iteration.
        running.last_end = at;
        let mut held = std::mem::take(&mut running.held);
        held.sort_unstable();
        for rank in held {
            self.begin(job, rank, at);
        }
    }

    /// Takes `job` off: nobody hears of it any more. What it had in the fabric has to go too.
    pub fn forget(&mut self, job: usize) {
        self.jobs[job].gone = true;
        self.satisfied_now = self.satisfied();
    }

    /// Iterations that some rank of `job` has begun.
    pub fn begun(&self, job: usize) -> u64 {
        let running = &self.jobs[job];
        running.iteration.iter().max().map_or(0, |&most| (most + 1).min(running.job.iterations))
    }

    /// Iterations that all ranks of `job` have ended.
    pub fn ended(&self, job: usize) -> u64 {
        self.jobs[job].ended
    }

    /// Of these those whose ends are no later than `at`; the last one may be known ahead.
    pub fn ended_by(&self, job: usize, at: Time) -> u64 {
        let running = &self.jobs[job];
        running.ended - u64::from(running.ended > 0 && running.last_end > at)
    }

    /// Lets `auto` keep rings and chains coupled however far apart their members come: right where a message holds nobody
    /// but the links it takes, as in the flow model. There both forms end together, because the block that the last
    /// member adds has to take every step of the ring after it and those steps are the group's own time; by steps the same
    /// end costs hundreds of messages. Under LogGOPS late members also queue at each other's streams, so rings go by steps
    /// (tests/all/late_members.rs of the scenario crate holds both to it).
    pub fn keep_rings_coupled(&mut self) {
        self.rings = true;
    }

    /// What `auto` stands for in collectives of the jobs that enter from now on.
    pub fn tune(&mut self, tuner: Arc<dyn Tuner + Send + Sync>) {
        self.tuner = tuner;
    }

    /// Where collectives of the jobs that enter from now on may run coupled.
    pub fn couple(&mut self, coupling: Coupling) {
        self.coupling = coupling;
    }

    /// How all-to-alls of the jobs that enter from now on run.
    pub fn exchange(&mut self, exchanges: Exchanges) {
        self.exchanges = exchanges;
    }

    /// What became of the all-to-alls of `job`.
    pub fn exchanged(&self, job: usize) -> Exchanged {
        let running = &self.jobs[job];
        running.exchanges.report(&running.replay)
    }

    /// Lets the executor look up after so many events of the hosts: fewer where each may stand for thousands in the
    /// network.
    pub fn pause_every(&mut self, events: u64) {
        self.slice = events;
    }

    /// Has seen enough once every job has done `iterations`, or all of its own.
    pub fn stop_after(&mut self, iterations: u64) {
        self.enough = iterations;
        self.satisfied_now = self.satisfied();
    }

    /// Whether every job has done enough.
    pub fn satisfied(&self) -> bool {
        self.jobs.iter().all(|running| running.gone || running.ended >= running.enough(self.enough))
    }

    /// Part of what is to be seen that has been, by the slowest rank of the job that has most left: others may be far
    /// ahead of it. Looks at every rank.
    pub fn progress(&self) -> f64 {
        let of_job = |running: &Running| {
            let iterations = running.enough(self.enough);
            let slowest = running.replay.slowest(|rank| running.job.is_simulated(rank));
            slowest / (iterations as f64).max(1.0)
        };
        let awaited = |running: &&Running| !running.gone && running.job.awaited;
        self.jobs.iter().filter(awaited).map(of_job).fold(1.0, f64::min)
    }

    /// Whether something ends later than [`Time::HORIZON`], once no event is left: what waits for it waits for ever.
    pub fn is_beyond(&mut self) -> bool {
        self.beyond || self.fabric.is_beyond()
    }

    /// Handles up to `events` events; `false` once enough is seen or no event is left.
    pub fn handle(&mut self, events: u64) -> bool {
        for _ in 0..events {
            if self.next_time() == Time::NEVER {
                return false;
            }
            self.step();
        }
        true
    }

    /// Handles the next event, also one after every job has done enough: what a network does behind what it has brought.
    pub fn step(&mut self) {
        // Who comes at that very instant is in time.
        if let Some(&Reverse((at, job, run, stamp))) = self.timers.peek()
            && at < self.fabric.next_time()
        {
            self.timers.pop();
            if self.jobs[job].coupler.stamp(run) == stamp {
                self.jobs[job].exchanges.timed_out(run);
                self.break_up(job, run, at);
            }
            return;
        }
        let mut notices = std::mem::take(&mut self.notices);
        self.fabric.step(&mut notices);
        // An event may touch two hosts; they are visited in ascending order, as LogGOPSim does.
        if notices.len() > 1 {
            notices.sort_by_key(|notice| notice.endpoint);
        }
        for notice in &notices {
            self.dispatch(notice);
        }
        notices.clear();
        self.notices = notices;
    }

    /// Lets messages under way arrive, once every job has done all its iterations.
    pub fn drain(&mut self) {
        if !self.jobs.iter().all(|running| running.gone || running.ended == running.job.iterations) {
            return;
        }
        let mut notices = Vec::new();
        while self.fabric.next_time() != Time::NEVER {
            self.fabric.step(&mut notices);
            notices.clear();
        }
    }

    /// Operations that wait for something that will not come, once no event is left: those that have not ended, and
    /// sends that are over for their sender but that nobody receives.
    pub fn stuck(&self) -> Vec<(usize, Vec<StuckOperation>)> {
        let of = |running: &Running| if running.gone { Vec::new() } else { running.replay.stuck() };
        let mut stuck: Vec<Vec<StuckOperation>> = self.jobs.iter().map(of).collect();
        for (from, ticket) in self.fabric.unreceived() {
            let (job, token) = ((ticket.0 >> 32) as usize, Token(ticket.0 as u32));
            let rank = self.rank_on(job, from);
            let known = |operation: &StuckOperation| operation.rank == rank && operation.operation == token.0;
            if !stuck[job].iter().any(known) {
                stuck[job].extend(self.jobs[job].replay.unreceived(rank, token));
            }
        }
        stuck.into_iter().enumerate().filter(|(_, operations)| !operations.is_empty()).collect()
    }

    /// The rank of `job` on an endpoint.
    fn rank_on(&self, job: usize, endpoint: EndpointId) -> RankId {
        let shared = &self.jobs[job].shared;
        match shared.binary_search_by_key(&endpoint, |&(at, _)| at) {
            Ok(place) => shared[place].1,
            Err(_) => RankId(self.rank_at[endpoint.0 as usize]),
        }
    }

    fn dispatch(&mut self, notice: &Notice) {
        if notice.ticket.0 & COUPLED != 0 {
            if let NoticeKind::Finished { .. } = notice.kind {
                self.coupled_end(notice);
            }
            return;
        }
        if notice.at > Time::HORIZON {
            // It never ends.
            self.beyond = true;
            return;
        }
        let job = (notice.ticket.0 >> 32) as usize;
        let token = Token(notice.ticket.0 as u32);
        let rank = self.rank_on(job, notice.endpoint);
        let done = self.with(job, rank, |replay, machine| match notice.kind {
            NoticeKind::Started => {
                replay.started(rank, token, notice.at, machine);
                false
            }
            NoticeKind::Finished { remote } => replay.finished(rank, token, notice.at, remote, machine),
        });
        if done {
            self.go_on(job, rank);
        }
    }

    /// Runs `act` with the job's replay and the machine that stands for the fabric, then starts the coupled groups
    /// that it has completed.
    fn with<R>(
        &mut self,
        job: usize,
        rank: RankId,
        act: impl FnOnce(&mut Replay, &mut Bridge<'_, F>) -> R,
    ) -> R {
        let running = &mut self.jobs[job];
        let mut bridge = Bridge {
            fabric: &mut self.fabric,
            variation: self.variation,
            coupler: &mut running.coupler,
            bounds: &mut running.exchanges.bounds,
            complete: &mut self.complete,
            job,
            placement: &running.job.placement,
            members: &running.members,
            workload: &running.job.workload,
            simulated: &running.job.simulated,
            iteration: running.job.done_before + running.iteration[rank.0 as usize],
        };
        let result = act(&mut running.replay, &mut bridge);
        if !self.complete.is_empty() {
            self.start_groups(job);
        }
        result
    }

    /// Hands complete groups to the fabric, or tells their members to run by steps where they came too far apart.
    fn start_groups(&mut self, job: usize) {
        let mut complete = std::mem::take(&mut self.complete);
        for group in complete.drain(..) {
            let join = match group.what {
                Coupled::Join(join) => join,
                Coupled::Meet(meet) => {
                    start_meeting(&mut self.fabric, &mut self.jobs[job], job, group, &meet);
                    continue;
                }
                Coupled::Came(join) => {
                    match ask(&mut self.fabric, &mut self.jobs[job], job, group, &join) {
                        Course::Whole(..) | Course::Wait(None) => {}
                        Course::Wait(Some(until)) => {
                            let stamp = self.jobs[job].coupler.stamp(group.run);
                            self.timers.push(Reverse((until, job, group.run, stamp)));
                        }
                        Course::ByMessage => self.break_up(job, group.run, self.fabric.now()),
                    }
                    continue;
                }
                Coupled::Late(member) => {
                    self.by_steps(job, member, self.fabric.now());
                    continue;
                }
            };
            if start_group(&mut self.fabric, &mut self.jobs[job], job, group, join, self.rings) {
                continue;
            }
            let mut members = Vec::new();
            self.jobs[job].coupler.close(group.run, &mut members);
            for member in members {
                self.by_steps(job, member, self.fabric.now());
            }
        }
        // What the steps completed meanwhile has been handled inside; keep the allocation.
        if self.complete.is_empty() {
            self.complete = complete;
        }
    }

    /// Lets those who have come to a run go message by message, not before `now`.
    fn break_up(&mut self, job: usize, run: u32, now: Time) {
        let Running { coupler, exchanges, .. } = &mut self.jobs[job];
        let mut members = Vec::new();
        if coupler.stamp(run) == 0 {
            // All had come.
            coupler.close(run, &mut members);
        } else {
            coupler.break_up(run, &mut members);
        }
        for member in &members {
            exchanges.waited(member.rank, now.since(member.ready));
        }
        for member in members {
            self.by_steps(job, member, now);
        }
    }

    /// Lets a member go by steps, not before `now`.
    fn by_steps(&mut self, job: usize, member: Member, now: Time) {
        let Member { rank, token, ready } = member;
        let at = ready.max(now);
        if self.with(job, rank, |replay, machine| replay.run_by_steps(rank, token, at, machine)) {
            self.go_on(job, rank);
        }
    }

    fn begin(&mut self, job: usize, rank: RankId, at: Time) {
        let mut next = Some(at);
        // A rank with nothing to do ends as it begins.
        while let Some(at) = next.take() {
            self.jobs[job].began[rank.0 as usize] = at;
            if self.with(job, rank, |replay, machine| replay.begin(rank, at, machine)) {
                next = self.iteration_done(job, rank);
            }
        }
    }

    /// A rank has ended its iteration, and begins the next if it may.
    fn go_on(&mut self, job: usize, rank: RankId) {
        if let Some(at) = self.iteration_done(job, rank) {
            self.begin(job, rank, at);
        }
    }

    fn coupled_end(&mut self, notice: &Notice) {
        let job = ((notice.ticket.0 & !COUPLED) >> 32) as usize;
        let run = notice.ticket.0 as u32;
        let mut members = std::mem::take(&mut self.members);
        let start = self.jobs[job].coupler.start(run);
        self.jobs[job].coupler.close(run, &mut members);
        self.jobs[job].exchanges.ended(run, &members, notice.at);
        for (place, &Member { rank, token, .. }) in members.iter().enumerate() {
            if let Some(later) = members.get(place + FORESEEN) {
                self.jobs[job].replay.foresee(later.rank, later.token);
            }
            if self.with(job, rank, |replay, machine| replay.finished(rank, token, notice.at, start, machine))
            {
                self.go_on(job, rank);
            }
        }
        self.members = members;
    }

    /// Takes note that a rank has ended its iteration; when it begins the next, if it is to do that now.
    fn iteration_done(&mut self, job: usize, rank: RankId) -> Option<Time> {
        let running = &mut self.jobs[job];
        let at = running.replay.iteration_finish(rank);
        let iteration = running.iteration[rank.0 as usize];
        self.observer.rank_iteration(job, rank, iteration, &running.replay);
        let position = (iteration - running.ended) as usize;
        while running.open.len() <= position {
            running.open.push_back(Open { ranks: 0, latest: Time::ZERO, sum: 0, path: None });
        }
        let open = &mut running.open[position];
        open.ranks += 1;
        open.sum += u128::from(at.ps());
        let critical =
            open.path.as_ref().is_none_or(|path| at > open.latest || (at == open.latest && rank < path.rank));
        if critical {
            let program = running.job.workload.program(rank);
            let began = running.began[rank.0 as usize];
            let segments = explain::walk(program, began, at, |op| running.replay.record(rank, op));
            open.latest = at;
            open.path = Some(CriticalPath { rank, segments });
        }
        let ranks = running.ranks;
        // Iterations end in order: a rank does one after the other.
        while running.open.front().is_some_and(|open| open.ranks == ranks) {
            let open = running.open.pop_front().expect("the front was just seen");
            let mut path = open.path.expect("an iteration that a rank ended has a path");
            explain::clip(&mut path.segments, running.last_end);
            let (start, finish) = (running.last_end, open.latest);
            let lag = finish - Time::from_ps((open.sum / ranks as u128) as u64);
            let end = IterationEnd { iteration: running.ended, start, finish, lag, path };
            self.observer.iteration(job, &end, &running.replay);
            running.ended += 1;
            running.last_end = open.latest;
            running.exchanges.iteration(open.latest);
        }
        self.satisfied_now = self.satisfied();
        let running = &mut self.jobs[job];
        running.iteration[rank.0 as usize] += 1;
        let next = iteration + 1;
        let may = next < running.ended + RUN_AHEAD;
        let wait = if next == running.hold {
            running.held.push(rank);
            true
        } else if next < running.job.iterations && !may {
            running.ahead.push((rank, at));
            true
        } else {
            next >= running.job.iterations
        };
        self.let_follow(job);
        if !self.waiting.is_empty() && self.is_over(job) {
            let at = self.jobs[job].last_end.max(self.fabric.now());
            self.let_start(at);
        }
        (!wait).then_some(at)
    }

    /// Lets ranks go on that were too far ahead and are no longer.
    fn let_follow(&mut self, job: usize) {
        let running = &mut self.jobs[job];
        if running.ahead.is_empty() {
            return;
        }
        let most = running.ended + RUN_AHEAD;
        let Running { ahead, iteration, .. } = running;
        let free: Vec<(RankId, Time)> =
            ahead.extract_if(.., |(rank, _)| iteration[rank.0 as usize] < most).collect();
        let now = self.fabric.now();
        for (rank, at) in free {
            self.begin(job, rank, at.max(now));
        }
    }
}
