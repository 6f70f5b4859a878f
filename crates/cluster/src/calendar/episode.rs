//! Episodes: who takes part in one, what its simulation saw, and the trait of whoever simulates them.

use windtunnel_kernel::{CalendarTime, EndpointId, Span, Time};

use crate::cluster::ClusterError;
use crate::faults::Component;

/// A job in an episode.
#[derive(Clone, Debug)]
pub struct EpisodeJob {
    /// Index of the job.
    pub job: usize,
    /// GPU of each rank.
    pub placement: Vec<EndpointId>,
    /// When it enters, from the episode's start: what is left of its restart, and its phase.
    pub start: Time,
    /// Of that its phase.
    pub phase: Span,
    /// Iterations after which it has ended.
    pub left: u64,
    /// Iterations that it had done before, rounded down.
    pub done_before: u64,
    /// It loads its data, and its iterations are the requests of that.
    pub loading: bool,
    /// Time since its first start.
    pub age: Span,
    /// Iterations that it enters with before the one that it is in as the episode begins, and which were done before.
    pub redone: u64,
    /// When that one began, from the simulation's start.
    pub boundary: Time,
}

impl EpisodeJob {
    /// How long it pauses before it goes on, as after a restart.
    pub fn pause(&self) -> Span {
        Span::from_ps(self.start.ps() - self.phase.ps())
    }
}

/// Jobs that may meet on a link, from a change of their group to the next.
#[derive(Clone, Debug)]
pub struct Episode {
    /// Number, counted over the run.
    pub number: u32,
    /// In the order in which they started.
    pub jobs: Vec<EpisodeJob>,
    /// How long it will last if none of its jobs ends, as far as that is known.
    pub horizon: Span,
    /// What of the time before its start is simulated again, for what was unfinished then.
    pub rerun: Option<Rerun>,
}

/// Time before an episode that its simulation begins with: each of its jobs enters at the begin of an iteration, so the one that
/// is in its longest is where it was as the episode begins.
#[derive(Clone, Debug)]
pub struct Rerun {
    /// How much of it.
    pub before: Span,
    /// Jobs that were there, and have left; with the iterations that they did.
    pub gone: Vec<EpisodeJob>,
}

impl Episode {
    /// When the last of its jobs enters, from its start; iterations that begin before are not those of the whole group.
    pub fn entered(&self) -> Time {
        // What a rerun goes through again was with others.
        let change = self.rerun.as_ref().map_or(Time::ZERO, |rerun| Time::ZERO + rerun.before);
        self.jobs.iter().map(|job| job.start).fold(change, Time::max)
    }

    /// How far the simulation is when the episode begins: the last phase is over.
    pub fn gathered(&self) -> Span {
        if let Some(rerun) = &self.rerun {
            return rerun.before;
        }
        self.jobs.iter().map(|job| job.phase).max().unwrap_or(Span::ZERO)
    }
}

/// What an episode's simulation saw of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EpisodeJobResult {
    /// End of each iteration, from the episode's start.
    pub ends: Vec<Time>,
    /// How well their mean is known.
    pub certainty: Certainty,
}

/// How well the pace of a job in an episode is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Certainty {
    /// How long the episode may last before that is too little for it; `None`: however long.
    pub good_for: Option<Span>,
    /// By what part of it the mean of these iterations may be off that of many, with a confidence of 95%; `None`: too few were seen
    /// to tell.
    pub error: Option<f64>,
}

/// What a job did in an episode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worked {
    /// Index of the job.
    pub job: usize,
    /// How long it went on: all of the episode but the checkpoints that it wrote on the way.
    pub span: Span,
    /// Iterations that it did; in an episode that carries on also what the one before did of the first of them.
    pub iterations: f64,
    /// What of these is of one that did not end.
    pub begun: f64,
}

/// A job that runs, for [`EpisodeRunner::groups`].
#[derive(Clone, Copy, Debug)]
pub struct Resident<'a> {
    /// Index of the job.
    pub job: usize,
    /// Times that it was started: a job that goes on elsewhere is another resident.
    pub starts: u32,
    /// GPU of each rank.
    pub placement: &'a [EndpointId],
    /// Whether it loads its data: a resident other than the job at work.
    pub loading: bool,
}

/// How far the calendar has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// The present.
    pub now: CalendarTime,
    /// Jobs that have ended.
    pub ended: u64,
    /// Of so many that are to end.
    pub jobs: u64,
    /// What those at work have done of their jobs, in jobs, if they go on as they do.
    pub under_way: f64,
}

impl Reached {
    /// What part of a run is done, `inner` of the simulation in hand included. A job that begins and one that ends cost a
    /// simulation each.
    pub fn part(&self, inner: f64) -> f64 {
        let jobs = self.jobs.max(1) as f64;
        let done = ((self.ended as f64 + self.under_way) / jobs).min(1.0);
        let simulations = 2.0 * (jobs - self.ended as f64).max(0.0) + 1.0;
        done + (1.0 - done) * inner / simulations
    }
}

/// Simulates episodes.
pub trait EpisodeRunner {
    /// Why it cannot go on.
    type Error: From<ClusterError>;

    /// Splits the running jobs, given in the order in which they started, into groups that share nothing: each lists
    /// places in `residents`, ascending, and the groups are in order of their first members. All in one if not said.
    ///
    /// # Errors
    /// Whatever stops the run; the calendar passes it on.
    fn groups(&mut self, residents: &[Resident<'_>]) -> Result<Vec<Vec<usize>>, Self::Error> {
        Ok(vec![(0..residents.len()).collect()])
    }

    /// Simulates each of the `episodes`, which begin at `start` and do not touch each other, until each of its jobs has
    /// done `iterations` iterations or all it has left. The others go on meanwhile.
    ///
    /// # Errors
    /// As [`Self::groups`].
    fn run(
        &mut self,
        start: CalendarTime,
        episodes: &[Episode],
        iterations: u64,
    ) -> Result<Vec<Vec<EpisodeJobResult>>, Self::Error>;

    /// An episode that was simulated lasted `span` of network time; what was simulated beyond it never happened. `worked` has what its
    /// jobs did in it; one that only loaded, or of which nothing is known, is not there.
    ///
    /// # Errors
    /// As [`Self::groups`].
    fn lasted(&mut self, episode: u32, span: Span, worked: &[Worked]) -> Result<(), Self::Error>;

    /// From the next episodes on these cables and switches are out, and no others but those that always are. All groups
    /// begin anew.
    fn fabric(&mut self, out: &[Component]) {
        let _ = out;
    }

    /// The calendar has come to a change.
    ///
    /// # Errors
    /// As [`Self::groups`].
    fn reached(&mut self, reached: Reached) -> Result<(), Self::Error> {
        let _ = reached;
        Ok(())
    }
}
