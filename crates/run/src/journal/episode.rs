//! Episodes in the journal: what one is known by, and what is kept of it.

use windtunnel_cluster::calendar::Episode;
use windtunnel_kernel::CalendarTime;

use super::stored::{Stored, structures};
use crate::episode::{Simulator, Stop};
use crate::record::{Counts, Record};
use crate::simulated::Simulated;
use crate::summary::{FlowSummary, NetworkSummary};

/// What a run has counted by the end of an episode, but for what its calendar tells.
struct Counted {
    events: u64,
    packet_hops: Option<(u64, u64)>,
    fold: u64,
    simulated_ns: u64,
    network: NetworkSummary,
    flows: FlowSummary,
    counts: Counts,
    flow_rows: u64,
}

structures! {
    Counted { events, packet_hops, fold, simulated_ns, network, flows, counts, flow_rows }
}

/// The number of the question what comes of `episode`, which begins at `start`, if its jobs do `iterations` at first.
fn question(start: CalendarTime, episode: &Episode, iterations: u64) -> u32 {
    let mut bytes = Vec::new();
    start.store(&mut bytes);
    episode.store(&mut bytes);
    iterations.store(&mut bytes);
    crc32fast::hash(&bytes)
}

impl Simulator<'_> {
    /// What the journal knows of `episode`, as if it had just been simulated.
    ///
    /// # Errors
    /// A journal of another run, or a sink that refuses rows.
    pub(crate) fn known(
        &mut self,
        start: CalendarTime,
        episode: &Episode,
        iterations: u64,
    ) -> Result<Option<Simulated>, Stop> {
        let Some(journal) = self.options.journal.as_deref() else { return Ok(None) };
        let question = question(start, episode, iterations);
        let Some((simulated, counted)) = journal.answer::<(Simulated, Counted)>(question, self.sink)? else {
            return Ok(None);
        };
        let Counted { events, packet_hops, fold, simulated_ns, network, flows, counts, flow_rows } = counted;
        let (iterations, started) =
            (std::mem::take(&mut self.record.iterations), std::mem::take(&mut self.record.started));
        self.record =
            Record { iterations, started, events, packet_hops, fold, simulated_ns, network, flows, counts };
        (self.flow_rows, self.episode) = (flow_rows, episode.number);
        Ok(Some(simulated))
    }

    /// Keeps what came of `episode`, and the rows since the last one.
    pub(crate) fn keep(
        &mut self,
        start: CalendarTime,
        episode: &Episode,
        iterations: u64,
        simulated: &Simulated,
    ) {
        let Some(journal) = self.options.journal.as_deref().filter(|_| !simulated.cancelled) else { return };
        let Record {
            iterations: _,
            started: _,
            events,
            packet_hops,
            fold,
            simulated_ns,
            network,
            flows,
            counts,
        } = &self.record;
        let counted = Counted {
            events: *events,
            packet_hops: *packet_hops,
            fold: *fold,
            simulated_ns: *simulated_ns,
            network: network.clone(),
            flows: flows.clone(),
            counts: *counts,
            flow_rows: self.flow_rows,
        };
        let mut answer = Vec::new();
        simulated.store(&mut answer);
        counted.store(&mut answer);
        journal.keep(question(start, episode, iterations), &answer);
        if let Some(trouble) = journal.trouble() {
            self.progress.remark(&trouble);
        }
    }
}
