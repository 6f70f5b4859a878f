//! What the calendar is given: the jobs as they are submitted, and how the cluster is run.

use windtunnel_kernel::{CalendarTime, Span};

use crate::cluster::Listener;
use crate::faults::Upkeep;
use crate::free::Locator;
use crate::life::Life;
use crate::placement::{Locality, Placement};

/// A job as it is submitted.
#[derive(Clone)]
pub struct JobRequest {
    /// GPUs that it needs.
    pub gpus: usize,
    /// Iterations to do.
    pub iterations: u64,
    /// When it is submitted.
    pub submit: CalendarTime,
    /// How its GPUs are chosen.
    pub placement: &'static dyn Placement,
    /// Its iteration time on an ideal fabric, from which its phase is drawn.
    pub ideal_iteration: Span,
    /// How long a scheduler expects it to run.
    pub estimate: Span,
    /// Nanoseconds from its submission in which it should have ended; [`u64::MAX`]: whenever it does.
    pub deadline: u64,
    /// Higher goes first, where the scheduler looks at it.
    pub priority: i32,
    /// How close together its GPUs must be.
    pub locality: Locality,
    /// What it pays on its way, and what of its work is safe.
    pub life: Life,
    /// Where its data come over the network: the requests in which they do, at least 1. They are simulated in episodes as
    /// iterations are, and `life.loading` is an estimate.
    pub loads: Option<u64>,
}

/// How the cluster is run.
pub struct Settings<'a> {
    /// Number of GPUs.
    pub endpoints: u32,
    /// Of which on each host.
    pub endpoints_per_host: u32,
    /// Hosts that hold data and compute nothing, in ascending order.
    pub storage: &'a [u32],
    /// Iterations simulated in an episode after the warm-up one.
    pub episode_iterations: u32,
    /// Whether jobs enter an episode at a drawn phase.
    pub draw_phases: bool,
    /// A group that stays the same for fewer iterations of its slowest job carries what is unfinished into its next episode
    /// ([`Rerun`]); 0: none does.
    pub carry_below: u64,
    /// Whether iterations are simulated, and not parts of a duration: then nothing is written in a last one.
    pub iterates: bool,
    /// From a job's end to the next decision.
    pub reaction_delay: Span,
    /// What fails and is drained.
    pub upkeep: Option<&'a Upkeep<'a>>,
    /// Regions of equally many hosts; a job runs in one.
    pub regions: u32,
    /// Leaves and pods.
    pub locator: Option<&'a dyn Locator>,
    /// Seed.
    pub seed: u64,
    /// Jobs that wait at most: the next is submitted when one starts.
    pub queue: Option<u32>,
    /// The run ends once so many jobs have ended.
    pub ends: Option<u64>,
    /// Who hears what happens.
    pub listener: Option<&'a dyn Listener>,
}
