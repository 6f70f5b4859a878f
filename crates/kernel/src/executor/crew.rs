//! Threads that stay: for a model that is run in many short steps, between which its owner looks at it.
//!
//! **Life cycle.** A crew takes its processes over and starts its threads once. Between runs the threads wait at the
//! barrier, first spinning, then asleep, and all processes lie in the pool, where the owner may look at and change them
//! ([`Crew::process`]). A run hands them out again, and is otherwise one of [`Parallel`]. A run of one window costs a few
//! microseconds more than its events where the threads have not fallen asleep. The threads go home with the crew.
//!
//! **Failure modes** are those of [`Parallel`]; after an error or a panic the processes are in the middle of a window and
//! must not be run on.

use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;

use super::parallel::{Leader, Parallel};
use super::process::{Control, ExecutorError, Outcome, Process, Progress, homes};
use super::shared::{SendHome, Shared};
use super::statistics::RunStatistics;
use crate::units::{Span, Time};

/// Processes with threads that stay. See the module page.
pub struct Crew<P: Process> {
    shared: Arc<Shared<P>>,
    leader: Leader<P>,
    balance: Parallel,
    workers: Vec<JoinHandle<()>>,
}

/// A process that its owner looks at between runs.
#[derive(Debug)]
pub struct Loan<'a, P>(MutexGuard<'a, Option<P>>);

impl<P> Deref for Loan<'_, P> {
    type Target = P;

    #[inline]
    fn deref(&self) -> &P {
        self.0.as_ref().expect("between runs all processes are in the pool")
    }
}

impl<P> DerefMut for Loan<'_, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut P {
        self.0.as_mut().expect("between runs all processes are in the pool")
    }
}

impl<P> Crew<P>
where
    P: Process + Send + 'static,
    P::Message: Send,
{
    /// A crew of `threads`, of which the caller's is one, for `processes` that send each other mail at least `lookahead`
    /// ahead.
    ///
    /// # Errors
    /// [`ExecutorError`] for an entity of two processes, or several processes without a lookahead.
    pub fn new(processes: Vec<P>, lookahead: Span, threads: NonZeroUsize) -> Result<Self, ExecutorError> {
        if processes.len() > 1 && lookahead == Span::ZERO {
            return Err(ExecutorError::NoLookahead { processes: processes.len() });
        }
        let threads = threads.get().min(processes.len()).max(1);
        let homes = homes(&processes)?;
        let mut balance = Parallel::new(NonZeroUsize::new(threads).expect("at least one"));
        balance.deal(processes.len(), threads);
        let shared = Arc::new(Shared::new(processes, balance.owners(), threads));
        let leader = Leader::new(&shared, homes, lookahead);
        let workers = (1..threads)
            .map(|thread| {
                let mut worker = leader.worker(thread);
                std::thread::spawn(move || worker.serve())
            })
            .collect();
        shared.barrier.gather();
        Ok(Self { shared, leader, balance, workers })
    }

    /// Keeps all threads at work even where one alone would be faster; to measure what threads cost.
    #[must_use]
    pub fn keep_together(mut self) -> Self {
        self.balance.together = true;
        self
    }

    /// How many processes there are.
    pub fn processes(&self) -> usize {
        self.shared.pool.len()
    }

    /// A process, to be looked at or changed between runs. Not two of one process at once.
    #[inline]
    pub fn process(&self, number: usize) -> Loan<'_, P> {
        Loan(self.shared.pool[number].lock().expect("nothing panics under this mutex"))
    }

    /// What all runs so far cost.
    pub fn statistics(&self) -> &RunStatistics {
        &self.balance.statistics
    }

    /// Runs until all events before `until` have been handled; `control` is asked after every window, on the caller's
    /// thread.
    ///
    /// # Errors
    /// As [`Parallel::run`].
    ///
    /// # Panics
    /// With the panic of a process or of `control`.
    pub fn run(
        &mut self,
        until: Time,
        control: impl FnMut(&Progress) -> Control,
    ) -> Result<Outcome, ExecutorError> {
        let begun = super::statistics::now();
        let result = self.leader.run(&mut self.balance, until, control);
        self.balance.statistics.elapsed += begun.elapsed();
        result
    }
}

impl<P: Process> Drop for Crew<P> {
    fn drop(&mut self) {
        drop(SendHome(&*self.shared));
        for worker in self.workers.drain(..) {
            // Workers catch the panics of processes.
            let _ = worker.join();
        }
    }
}

impl<P: Process> std::fmt::Debug for Crew<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crew").field("processes", &self.shared.pool.len()).finish_non_exhaustive()
    }
}
