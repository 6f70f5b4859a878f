//! Operations as ranks recorded them, and the words in them, each once.

use rustc_hash::FxHashMap;

use crate::coverage::Treatment;

/// A process: host and number.
pub(super) type Process = (String, u64);

/// An operation as one rank recorded it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Index of its file.
    pub file: u32,
    /// Host and process that wrote it, an index into [`Records`].
    pub process: Option<u32>,
    /// Its communicator, an index of a name.
    pub communicator: u32,
    pub rank: u32,
    /// How many ranks the communicator has.
    pub ranks: u32,
    /// NCCL's name of the call, an index of a name.
    pub what: u32,
    /// The communicator's number for the call.
    pub number: Option<u64>,
    /// Bytes of one member, as the call counts them.
    pub bytes: u64,
    /// Recorded time in ns.
    pub length: u64,
    /// Start and end in ns, where they were recorded.
    pub span: Option<(i64, i64)>,
    /// The other rank of a message, a place in the communicator.
    pub peer: Option<u32>,
    /// The root, a place in the communicator, where it was recorded.
    pub root: Option<u32>,
    /// The group that launched it, another number for each of its file.
    pub group: Option<u32>,
    /// What a rank's records are sorted by.
    pub order: (i64, u64),
    /// What of it is not as it was, if anything.
    pub verdict: Option<(Treatment, &'static str)>,
}

/// Records of a job, and their words, each once.
#[derive(Default)]
pub(crate) struct Records {
    pub list: Vec<Record>,
    names: Vec<String>,
    processes: Vec<Process>,
    by_name: FxHashMap<String, u32>,
    by_process: FxHashMap<Process, u32>,
}

impl Records {
    /// The index of a name.
    pub(crate) fn name(&mut self, text: &str) -> u32 {
        if let Some(&known) = self.by_name.get(text) {
            return known;
        }
        let index = self.names.len() as u32;
        self.names.push(text.to_owned());
        self.by_name.insert(text.to_owned(), index);
        index
    }

    /// The index of a process.
    pub(crate) fn process(&mut self, host: &str, number: u64) -> u32 {
        let process = (host.to_owned(), number);
        if let Some(&known) = self.by_process.get(&process) {
            return known;
        }
        let index = self.processes.len() as u32;
        self.processes.push(process.clone());
        self.by_process.insert(process, index);
        index
    }

    /// The name that has an index.
    pub(crate) fn text(&self, name: u32) -> &str {
        &self.names[name as usize]
    }

    pub(super) fn process_of(&self, record: &Record) -> Option<&Process> {
        Some(&self.processes[record.process? as usize])
    }
}
