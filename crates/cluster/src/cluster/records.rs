//! What faults and maintenance did, as it is told.

use super::JobId;
use crate::faults::{Class, Component};

/// Why something was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A fault of this class.
    Fault(Class),
    /// Maintenance.
    Maintenance,
}

impl Reason {
    /// All.
    pub const ALL: [Self; 9] = [
        Self::Fault(Class::Gpu),
        Self::Fault(Class::Host),
        Self::Fault(Class::Nic),
        Self::Fault(Class::Cable),
        Self::Fault(Class::Switch),
        Self::Fault(Class::Software),
        Self::Fault(Class::Rack),
        Self::Fault(Class::Pod),
        Self::Maintenance,
    ];

    /// Name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fault(class) => class.name(),
            Self::Maintenance => "maintenance",
        }
    }

    pub(super) const fn index(self) -> usize {
        match self {
            Self::Fault(class) => class as usize,
            Self::Maintenance => 8,
        }
    }
}

/// A fault, or maintenance, and what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRecord {
    /// When, in nanoseconds.
    pub at: u64,
    /// When it was over.
    pub until: u64,
    /// What.
    pub component: Component,
    /// Why.
    pub reason: Reason,
    /// GPUs that it took out.
    pub gpus: u32,
    /// Jobs that it interrupted or moved.
    pub jobs: u32,
    /// The first of them.
    pub job: Option<JobId>,
    /// GPU-nanoseconds of work that it undid.
    pub lost: u128,
}

/// What all faults of a kind did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Faults.
    pub faults: u64,
    /// Jobs that they interrupted.
    pub interruptions: u64,
    /// GPU-nanoseconds of work that they undid.
    pub lost: u128,
}

/// What has happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    pub(super) tallies: [Tally; 9],
    pub(super) records: Vec<FaultRecord>,
    /// Whether the scheduler knows of the spares.
    pub(super) opened: bool,
}

impl Log {
    /// Records that nobody has taken.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Those from number `from` on.
    pub(super) fn since(&self, from: usize) -> &[FaultRecord] {
        &self.records[from.min(self.records.len())..]
    }

    pub(super) fn enter(&mut self, record: FaultRecord) {
        let tally = &mut self.tallies[record.reason.index()];
        tally.faults += 1;
        tally.interruptions += u64::from(record.jobs);
        tally.lost += record.lost;
        self.records.push(record);
    }
}
