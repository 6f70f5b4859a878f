//! What became of messages, for a fidelity whose network does not say it itself.

use windtunnel_kernel::{Bytes, EndpointId, Time};

use crate::flow::CompletionTimes;

/// A message that its receiver has taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRecord {
    /// Sender.
    pub source: EndpointId,
    /// Receiver.
    pub destination: EndpointId,
    /// Payload.
    pub bytes: Bytes,
    /// When its send started.
    pub start: Time,
    /// When the receiver's stream was free again.
    pub finish: Time,
    /// Traffic class.
    pub class: u8,
}

/// Counts of messages and, if wanted, a record of each until [`MessageLog::take_records`].
#[derive(Clone, Debug, Default)]
pub struct MessageLog {
    keep: bool,
    completion: CompletionTimes,
    bytes: u64,
    records: Vec<MessageRecord>,
}

impl MessageLog {
    /// A log that keeps records only if `keep`.
    pub fn new(keep: bool) -> Self {
        Self { keep, ..Self::default() }
    }

    pub(super) fn add(&mut self, record: MessageRecord) {
        self.completion.add(record.finish - record.start);
        self.bytes += record.bytes.0;
        if self.keep {
            self.records.push(record);
        }
    }

    /// From the start of the send to the end of the receiver's work.
    pub fn completion_times(&self) -> &CompletionTimes {
        &self.completion
    }

    /// Payload taken in.
    pub fn bytes_delivered(&self) -> u64 {
        self.bytes
    }

    /// Appends the records since the last call, in the order in which the messages were taken in.
    pub fn take_records(&mut self, records: &mut Vec<MessageRecord>) {
        records.append(&mut self.records);
    }
}
