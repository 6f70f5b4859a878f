//! What is kept of a rank's recording, whoever recorded it: operations of the device, calls of the host, annotations.

use std::collections::BTreeMap;

use super::calls::{Arguments, Dims, PgConfig};

/// An operation of the device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceOp {
    /// Its stream, an index into [`Trace::streams`].
    pub stream: u32,
    pub start: i64,
    pub end: i64,
    /// The call that launched it; negative where it is not said.
    pub correlation: i64,
    /// Index into [`Trace::names`].
    pub name: u32,
    /// Index into [`Trace::arguments`], of a collective that says what it is.
    pub arguments: Option<u32>,
    pub copy: bool,
    /// What a copy moves.
    pub bytes: u64,
}

/// What a call of the host means to the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostKind {
    /// Launches what has its correlation.
    Launch,
    /// Waits for one stream; which one may be said by a `cuda_sync` event.
    StreamSync,
    /// Waits for an event.
    EventSync,
    /// Waits for all streams.
    DeviceSync,
    /// Makes a stream wait.
    StreamWait,
    /// Marks a place of a stream.
    Record,
    /// A boundary of a step; index into [`Trace::steps`], and whether it is the end.
    Step(u32, bool),
}

/// A call of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCall {
    pub kind: HostKind,
    pub start: i64,
    pub end: i64,
    pub thread: u32,
    pub correlation: i64,
}

impl HostCall {
    /// Whether it goes into the account when programs are built: what is read whole is counted by its reader.
    pub(crate) fn counts(&self) -> bool {
        !matches!(self.kind, HostKind::Step(..) | HostKind::StreamWait | HostKind::Record)
    }
}

/// A `cuda_sync` event: which stream waited for which.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyncRecord {
    pub correlation: i64,
    pub stream: Option<u32>,
    pub waited: Option<u32>,
    pub record: Option<i64>,
}

/// An annotation of a collective on the host (`nccl:all_reduce`), with the shape of its input.
#[derive(Clone, Debug)]
pub(crate) struct Annotation {
    pub name: u32,
    pub start: i64,
    pub end: i64,
    pub thread: u32,
    pub dims: Option<Dims>,
    /// The other rank of a message, where it is said.
    pub peer: Option<i64>,
    /// What the library said of the call itself (Nsight's payloads).
    pub payload: Option<Payload>,
}

/// What NCCL says of a call as Nsight records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    /// The communicator's hash; before NCCL 2.25.1 it said none.
    pub communicator: Option<u64>,
    /// Bytes as the call counts them: of one member.
    pub bytes: u64,
    /// The root, a place in the communicator.
    pub root: Option<u32>,
    /// The other rank of a message, a place in the communicator.
    pub peer: Option<u32>,
}

/// A file.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub file: String,
    pub rank: Option<u32>,
    pub world: Option<u32>,
    pub groups: Vec<PgConfig>,
    pub device: Vec<DeviceOp>,
    pub host: Vec<HostCall>,
    pub syncs: Vec<SyncRecord>,
    pub annotations: Vec<Annotation>,
    pub steps: Vec<(String, i64, i64)>,
    pub names: Vec<String>,
    pub arguments: Vec<Arguments>,
    pub streams: Vec<(String, i64)>,
    pub threads: Vec<String>,
    pub events: u64,
    /// Whether calls are Nsight's, with payloads or without.
    pub nsight: bool,
    /// Members of communicators by their hash; those that are not all known are absent.
    pub communicators: BTreeMap<u64, Vec<u32>>,
    /// First and last instant of anything with a length.
    pub span: Option<(i64, i64)>,
}

impl Trace {
    /// Moves its clock.
    pub(crate) fn shift(&mut self, by: i64) {
        let move_by = |time: &mut i64| *time = time.saturating_add(by);
        for op in &mut self.device {
            move_by(&mut op.start);
            move_by(&mut op.end);
        }
        for call in &mut self.host {
            move_by(&mut call.start);
            move_by(&mut call.end);
        }
        for annotation in &mut self.annotations {
            move_by(&mut annotation.start);
            move_by(&mut annotation.end);
        }
        for (_, start, end) in &mut self.steps {
            move_by(start);
            move_by(end);
        }
        if let Some((first, last)) = &mut self.span {
            move_by(first);
            move_by(last);
        }
    }
}
