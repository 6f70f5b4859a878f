//! What became of the all-to-alls of a run that may merge them, and what that may have changed.

use std::collections::BTreeMap;

use serde::Serialize;
use windtunnel_cluster::shard::{ByMessage, Exchanged};

use super::summary::NetworkSummary;

/// All-to-alls under `network.exchange: auto`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ExchangeSummary {
    /// Those that ran as one flow.
    pub whole: u64,
    /// Messages for which these stand.
    pub messages: u64,
    /// Those that went message by message.
    pub by_message: u64,
    /// These by what kept them from running as one flow.
    pub because: BTreeMap<&'static str, u64>,
    /// By what part of it an iteration time may differ from that with every message, at most.
    pub error_bound: f64,
}

impl ExchangeSummary {
    fn add(&mut self, other: &Self) {
        self.whole += other.whole;
        self.messages += other.messages;
        self.by_message += other.by_message;
        for (&why, &count) in &other.because {
            *self.because.entry(why).or_insert(0) += count;
        }
        self.error_bound = self.error_bound.max(other.error_bound);
    }
}

impl From<&Exchanged> for ExchangeSummary {
    fn from(exchanged: &Exchanged) -> Self {
        let counts = ByMessage::ALL.iter().map(|why| (why.name(), exchanged.by_message[*why as usize]));
        Self {
            whole: exchanged.whole,
            messages: exchanged.messages,
            by_message: exchanged.by_message.iter().sum(),
            because: counts.filter(|&(_, count)| count > 0).collect(),
            error_bound: exchanged.error,
        }
    }
}

impl NetworkSummary {
    /// Adds the all-to-alls of a job in an episode, or those of another run's part.
    pub(crate) fn add_exchanges(&mut self, more: &ExchangeSummary) {
        if more.whole + more.by_message > 0 {
            self.exchanges.get_or_insert_default().add(more);
        }
    }
}
