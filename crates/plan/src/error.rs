//! What is wrong with a scenario, as data; rendered once, by [`InputError`]'s `Display`.

use std::fmt;

use windtunnel_cluster::cluster::{ClusterError, JobId};
pub use windtunnel_kernel::nearest;

/// Bad input: where, what was found, what was expected, and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputError {
    /// `file:line:column`, or `file: path.of.the.key`, or just the file; empty if the message carries it.
    pub place: String,
    /// What was found and what was expected.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// What stands between a message and its hint.
const HINT: &str = "\n\nhint: ";

impl InputError {
    /// An error at `place`. A message rendered by another crate may end in a hint of its own (`\n\nhint: …`), which is
    /// taken as this one's.
    pub fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        let mut message = message.into();
        let hint = message.find(HINT).map(|start| message.split_off(start)[HINT.len()..].to_owned());
        Self { place: place.into(), message, hint }
    }

    /// With a hint, unless it has one already: who found the fault knows it best.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        write!(f, "{}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "{HINT}{hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for InputError {}

/// Why a run cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Operations wait for something that never comes.
    Stuck,
    /// Operations wait for packets that were dropped and are not sent again.
    Lost,
    /// No path is left between two GPUs.
    CutOff,
    /// Links pause each other in a circle.
    PauseCycle,
    /// A queue pair hears nothing any more.
    Silent,
    /// Something takes longer than is counted.
    Horizon,
    /// Jobs wait for GPUs or data that they never get.
    Starved,
    /// Whoever takes the tables takes no more.
    Sink,
    /// The network's model says so.
    Model,
    /// A run that goes on takes another way than it took before.
    Parted,
    /// More memory is needed than there is.
    Memory,
    /// The engine is at fault.
    Defect,
}

impl Why {
    /// As programs are told.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stuck => "stuck",
            Self::Lost => "lost",
            Self::CutOff => "cut off",
            Self::PauseCycle => "pause cycle",
            Self::Silent => "silent",
            Self::Horizon => "horizon",
            Self::Starved => "starved",
            Self::Sink => "sink",
            Self::Model => "model",
            Self::Parted => "parted",
            Self::Memory => "memory",
            Self::Defect => "defect",
        }
    }
}

/// Why something did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The input is at fault; exit status 2.
    Input(InputError),
    /// The run is, for that reason; exit status 1.
    Run(Why, String),
    /// One or the other, of a cluster that knows its jobs by number: [`Failure::named`] says which.
    Cluster(ClusterError),
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        Self::Cluster(error)
    }
}

/// A job of the cluster as the user knows it.
pub struct JobName {
    /// Where it stands: `file: jobs[2]`.
    pub place: String,
    /// What it is called: ``job `pretrain` ``; of a log, `job 7 (jobs.csv:9)`.
    pub name: String,
    /// With its number in order of submission, by which a scheduler knows it: ``job 7 (`pretrain`)``.
    pub numbered: String,
}

impl Failure {
    /// Of who takes the tables.
    pub const fn sink(message: String) -> Self {
        Self::Run(Why::Sink, message)
    }

    /// With the job that a cluster knows by its number called as `name` does. A job that fits nowhere is the input's fault,
    /// and so is a decision that makes no sense: only a scheduler or placement of the user's own makes one.
    pub fn named(self, name: impl Fn(JobId) -> JobName) -> Self {
        use ClusterError as E;
        let Self::Cluster(error) = self else { return self };
        let Some(job) = error.job() else { return Self::Input(InputError::new("", error.to_string())) };
        let JobName { place, name, numbered } = name(job);
        let text = |called: &str| error.to_string().replacen(&format!("job {job}"), called, 1);
        let (plain, numbered) = (text(&name), text(&numbered));
        match error {
            E::NoRoom { .. } => {
                let hint = "loosen `locality`, or have fewer `cluster.regions`";
                Self::Input(InputError::new(place, plain).hint(hint))
            }
            E::Outlasts { .. } | E::Policy(_) => Self::Input(InputError::new(place, plain)),
            E::Hopeless { .. } | E::NoData { .. } | E::Starved { .. } => {
                Self::Run(Why::Starved, InputError::new(place, plain).to_string())
            }
            E::GivenTaken { .. } | E::GivenCount { .. } => {
                Self::Input(InputError::new("--placement", numbered))
            }
            E::NotWaiting { .. }
            | E::NotRunning { .. }
            | E::NoRegion { .. }
            | E::Taken { .. }
            | E::WrongCount { .. } => Self::Input(InputError::new("--scheduler", numbered)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_one_hint_the_first() {
        let error = InputError::new("a.yaml: jobs", "found 3\n\nhint: try 4").hint("try 5");
        assert_eq!(error.to_string(), "a.yaml: jobs: found 3\n\nhint: try 4");
        assert_eq!(InputError::new("", "found 3").hint("try 5").to_string(), "found 3\n\nhint: try 5");
    }
}
