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
mod iterations;
mod meet;
mod running;
mod ticket;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use windtunnel_fabric::{Fabric, Notice, NoticeKind};
use windtunnel_kernel::executor::{Envelope, Outbox, Process};
use windtunnel_kernel::{EndpointId, RankId, Time};
use windtunnel_workload::Token;
use windtunnel_workload::collectives::{SizeRule, Tuner};
use windtunnel_workload::replay::{
    Connections, Coupling, Exchanges, Replay, ReplayError, ReplayOptions, StuckOperation,
};

use self::bridge::Bridge;
use self::exchanges::Exchanges as Merging;
pub use self::exchanges::{ByMessage, Exchanged};
use self::groups::Complete;
use self::running::Running;
pub use self::running::{IterationEnd, Observer, ShardJob};
use self::ticket::COUPLED;
pub use self::ticket::is_of;
use crate::coupler::{Coupler, Member};
use crate::variation::Variation;

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
    connections: Connections,
    /// See [`Shard::domains`].
    domain: u32,
    /// See [`Shard::domains`].
    several_sites: bool,
    /// Until when exchanges wait for their members: instant, job, run and the run's stamp.
    timers: BinaryHeap<Reverse<(Time, usize, u32, u64)>>,
    /// See [`Shard::pause_every`].
    slice: u64,
    /// Whether some operation ends beyond the horizon.
    beyond: bool,
}

/// Events handled before the executor is asked again, so that a run can be watched and stopped: see
/// [`Shard::pause_every`].
const SLICE: u64 = 1 << 12;

/// The scale-up domain of each rank, where ranks do not fill domains of so many endpoints in order or it matters which they fill.
fn homes(placement: &[EndpointId], domain: u32, which: bool) -> Option<Arc<[u32]>> {
    let home = |endpoint: EndpointId| endpoint.0 / domain;
    let in_order = (1..)
        .zip(placement.windows(2))
        .all(|(rank, pair): (u32, _)| (home(pair[0]) == home(pair[1])) != rank.is_multiple_of(domain));
    (which || !in_order).then(|| placement.iter().map(|&endpoint| home(endpoint)).collect())
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
            connections: Connections::default(),
            domain: 1,
            several_sites: false,
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
        let homes = homes(&job.placement, self.domain, self.several_sites);
        let (connections, repeats) = (self.connections, job.iterations > 1);
        let options =
            ReplayOptions { job: job.number, coupling, exchanges, connections, homes, tuner, repeats };
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

    /// Takes `job` off: nobody hears of it any more. What it had in the fabric has to go too.
    pub fn forget(&mut self, job: usize) {
        self.jobs[job].gone = true;
        self.satisfied_now = self.satisfied();
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

    /// Scale-up domains have so many endpoints, one after the other. What collectives of the jobs that enter from now on take
    /// follows where their ranks stand, if these do not fill domains in order; in a topology that may have
    /// `several_sites` ([`Sites`](windtunnel_workload::collectives::nccl::Sites)) always.
    pub fn domains(&mut self, endpoints: u32, several_sites: bool) {
        self.domain = endpoints.max(1);
        self.several_sites = several_sites;
    }

    /// How all-to-alls of the jobs that enter from now on run.
    pub fn exchange(&mut self, exchanges: Exchanges) {
        self.exchanges = exchanges;
    }

    /// What messages outside communicators of the jobs that enter from now on go by.
    pub fn connect(&mut self, connections: Connections) {
        self.connections = connections;
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
}
