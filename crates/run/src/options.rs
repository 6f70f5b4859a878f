//! What a caller asks of a run besides the scenario, and the digests that it may ask for.

use std::sync::{Arc, Mutex};

use windtunnel_backend::Library;
use windtunnel_kernel::Time;
use windtunnel_kernel::digest::EventDigest;
use windtunnel_plan::inputs::Input;

use crate::gate::Gate;
use crate::journal::Journal;
use crate::machine::Stopwatch;
use crate::native::Native;

/// What a caller asks of a run besides the scenario.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Name of the scenario's file, for messages.
    pub source: String,
    /// SHA-256 of the scenario's text, overrides and inputs.
    pub sha256: String,
    /// The files and sheets that it names.
    pub inputs: Vec<Input>,
    /// Simulate every iteration.
    pub full: bool,
    /// Runs since the scenario's text was taken: a user waits for the plan too.
    pub watch: Stopwatch,
    /// Threads; `None`: as many as there are, where it is worth it.
    pub threads: Option<usize>,
    /// Where digests of events go, if anybody wants them.
    pub digests: Option<Arc<Mutex<Digests>>>,
    /// Who moves the run's clock; `None`: it goes as fast as it can.
    pub gate: Option<Arc<Gate>>,
    /// What keeps the run's episodes, should it be killed.
    pub journal: Option<Arc<Journal>>,
    /// Which native code of the scenario may run.
    pub native: Native,
    /// The network model of a library, once it is loaded.
    pub library: Option<Library>,
}

impl RunOptions {
    /// Threads that a run may have.
    pub fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        self.threads.unwrap_or_else(cores)
    }
}

/// Digests of the events of a run at packet fidelity, one for each episode.
#[derive(Clone, Debug, Default)]
pub struct Digests {
    /// All events of all episodes, or those of a span of one.
    pub focus: Option<(usize, EventDigest)>,
    /// What was found.
    pub found: Vec<EventDigest>,
}

impl Digests {
    /// What the next episode is to keep.
    pub(crate) fn next(&self) -> EventDigest {
        match &self.focus {
            None => EventDigest::new(),
            Some((episode, focus)) if *episode == self.found.len() => focus.clone(),
            Some(_) => EventDigest::focused(Time::NEVER, Time::NEVER),
        }
    }
}
