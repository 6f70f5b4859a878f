//! Episodes of one instant do not touch each other; they are shared out to threads, and what they came to is
//! put together in their order.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use windtunnel_cluster::calendar::{Episode, Reached};
use windtunnel_kernel::{CalendarTime, Span};
use windtunnel_plan::Plan;
use windtunnel_plan::error::Failure;
use windtunnel_plan::settings::Fidelity;

use super::RunOptions;
use super::episode::{Simulator, Stop};
use super::journal::Kept;
use super::record::Record;
use super::simulated::Simulated;
use crate::table::{Batch, ProgressSink, TableSink};

/// What came of an episode: what was seen, what is recorded of it, the rows of its tables, and rows of flows so far.
type Outcome = (Result<Simulated, Stop>, Record, Buffer, u64);

/// Why some of the threads that were asked for have nothing to do, as a line for people.
pub(crate) fn no_help(plan: &Plan, options: &RunOptions) -> Option<String> {
    let asked = options.threads.filter(|&threads| threads > 1)?;
    let (fidelity, several) = (plan.fidelity, plan.jobs.len() > 1);
    let network = &plan.network;
    let why = match fidelity {
        Fidelity::Job if several => return None,
        Fidelity::Job => "job fidelity simulates no network".to_owned(),
        // Groups of jobs that do not meet are shared out.
        Fidelity::Flow if several && !options.full => return None,
        Fidelity::Packet if network.backend.is_some() => {
            "a network model of one's own is simulated by one thread".to_owned()
        }
        Fidelity::Packet if network.packet.settings.nic_latency == Span::ZERO => {
            "hosts whose NIC has no latency act on the network at once, so one thread simulates it: give hosts a `nic` \
             with a data sheet"
                .to_owned()
        }
        Fidelity::Packet if network.packet.settings.parallel.processes == Some(1) => {
            "`network.parallel.processes` is 1".to_owned()
        }
        Fidelity::Packet => return None,
        Fidelity::Flow | Fidelity::Message => {
            format!("one thread simulates a network at {} fidelity", fidelity.name())
        }
    };
    match super::ideal::goes_beside(plan, options) {
        true if asked == 2 => None,
        true => Some(format!(
            "`--threads {asked}`: 2 are of use, {why}, and another one the ideal fabric beside it"
        )),
        false => Some(format!("`--threads {asked}` is of no use: {why}")),
    }
}

/// Simulates `episodes` in as many threads as the run may have, but for those that the journal knows; what they saw, in their order.
pub(crate) fn simulate(
    simulator: &mut Simulator<'_>,
    reached: Reached,
    start: CalendarTime,
    episodes: &[&Episode],
    iterations: u64,
) -> Result<Vec<Simulated>, Stop> {
    let mut seen = Vec::with_capacity(episodes.len());
    while let Some(&episode) = episodes.get(seen.len()) {
        let Some(simulated) = simulator.known(start, episode, iterations)? else { break };
        seen.push(simulated);
    }
    let episodes = &episodes[seen.len()..];
    let threads = simulator.options.workers().min(episodes.len());
    let several = simulator.plan.jobs.len() > 1;
    let events = simulator.record.events;
    if threads <= 1 || simulator.plan.fidelity != Fidelity::Flow {
        for episode in episodes {
            let mut clock = Clocked { inner: simulator.progress, reached, events };
            let mut kept = Kept { journal: simulator.options.journal.as_deref(), inner: simulator.sink };
            let mut inner = Simulator {
                progress: if several { &mut clock } else { clock.inner },
                sink: &mut kept,
                record: std::mem::replace(&mut simulator.record, Record::new(0)),
                faults: simulator.faults.clone(),
                ..*simulator
            };
            let outcome = inner.run(start, episode, iterations);
            let (record, rows) = (inner.record, inner.flow_rows);
            (simulator.record, simulator.flow_rows) = (record, rows);
            let simulated = outcome?;
            simulator.keep(start, episode, iterations, &simulated);
            seen.push(simulated);
        }
        return Ok(seen);
    }
    let (plan, options, rows) = (simulator.plan, simulator.options, simulator.flow_rows);
    let faults = &simulator.faults;
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    let mut outcomes: Vec<Option<Outcome>> = (0..episodes.len()).map(|_| None).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, stop) = (sender.clone(), &next, &stop);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&episode) = episodes.get(index) else { break };
                    let (mut sink, mut progress) = (Buffer::default(), Quiet(stop));
                    let mut simulator = Simulator {
                        plan,
                        options,
                        sink: &mut sink,
                        progress: &mut progress,
                        record: Record::new(0),
                        flow_rows: rows,
                        episode: 0,
                        faults: faults.clone(),
                    };
                    let outcome = simulator.run(start, episode, iterations);
                    let (record, rows) = (simulator.record, simulator.flow_rows);
                    // The receiver waits until all senders have gone.
                    let _ = sender.send((index, (outcome, record, sink, rows)));
                }
            });
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(Duration::from_millis(200)) {
                Ok((index, outcome)) => outcomes[index] = Some(outcome),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let mut clock = Clocked { inner: simulator.progress, reached, events };
                    let ended = outcomes.iter().flatten().count();
                    if !clock.progress(Some(ended as f64 / episodes.len() as f64), 0.0, 0) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    for (&episode, outcome) in episodes.iter().zip(outcomes) {
        let (simulated, record, buffer, _) = outcome.expect("every episode was taken by a thread");
        simulator.record.add(record);
        let mut kept = Kept { journal: options.journal.as_deref(), inner: simulator.sink };
        for (table, batch) in buffer.0 {
            simulator.flow_rows += if table == "flows" { batch.len() as u64 } else { 0 };
            kept.rows(table, batch).map_err(|message| Stop::Failed(Failure::sink(message)))?;
        }
        let simulated = simulated?;
        simulator.keep(start, episode, iterations, &simulated);
        seen.push(simulated);
    }
    Ok(seen)
}

/// Tells of the calendar instead of an episode.
pub(crate) struct Clocked<'a> {
    /// Who is told.
    pub inner: &'a mut dyn ProgressSink,
    /// How far the calendar has come.
    pub reached: Reached,
    /// Events of the episodes before.
    pub events: u64,
}

impl ProgressSink for Clocked<'_> {
    fn progress(&mut self, fraction: Option<f64>, _: f64, events: u64) -> bool {
        let fraction = self.reached.part(fraction.unwrap_or(0.0));
        self.inner.progress(Some(fraction), self.reached.now.ns() as f64 / 1e9, self.events.max(events))
    }
}

/// Tells nobody, and stops when another thread was told to.
struct Quiet<'a>(&'a AtomicBool);

impl ProgressSink for Quiet<'_> {
    fn progress(&mut self, _: Option<f64>, _: f64, _: u64) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

/// Keeps rows until they can be told in order.
#[derive(Default)]
struct Buffer(Vec<(&'static str, Batch)>);

impl TableSink for Buffer {
    fn rows(&mut self, table: &'static str, batch: Batch) -> Result<(), String> {
        self.0.push((table, batch));
        Ok(())
    }
}
