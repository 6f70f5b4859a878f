//! Calls of a rank become operations.

use rustc_hash::FxHashMap;
use windtunnel_workload::collectives::CollectiveKind;

use super::communicators::{Communicators, Tests};
use super::line::LineOf;
use crate::coverage::{Coverage, Treatment};
use crate::draft::Draft;
use crate::error::ImportError;
use crate::mpi::{Envelope, Said, Script};

/// Why a call on a communicator is left out.
const UNKNOWN: &str = "its communicator's members are not in the trace: its time stays";

/// A rank under way.
pub(super) struct Replay<'a> {
    pub(super) script: Script<'a>,
    pub(super) draft: &'a mut Draft,
    pub(super) communicators: &'a mut Communicators,
    pub(super) tests: Tests,
    /// Persistent requests.
    pub(super) persistent: FxHashMap<i64, (bool, Side)>,
}

/// The other side of a message.
#[derive(Clone)]
pub(super) struct Side {
    name: String,
    peer: Option<u32>,
    tag: Option<i64>,
    bytes: u64,
}

impl Side {
    fn envelope(&self) -> Envelope<'_> {
        Envelope { communicator: &self.name, peer: self.peer, tag: self.tag, bytes: self.bytes }
    }
}

impl Replay<'_> {
    /// Name and members of the communicator at `index`, if they are known.
    fn members(
        &mut self,
        line: &LineOf<'_>,
        index: usize,
    ) -> Result<Option<(String, Vec<u32>)>, ImportError> {
        let id = line.communicator(index)?;
        let world = self.communicators.world;
        Ok(self.communicators.members(self.script.number, id).map(|members| {
            let is_world =
                members.len() == world as usize && (0..).zip(&members).all(|(at, &rank)| at == rank);
            let name =
                if is_world { "MPI_COMM_WORLD".to_owned() } else { crate::assemble::ranks_text(&members) };
            (name, members)
        }))
    }

    /// A message by the places of peer, communicator and count; `None`: the communicator's members are not known.
    fn side(
        &mut self,
        line: &LineOf<'_>,
        (peer, tag): (usize, usize),
        communicator: usize,
        count: usize,
        sends: bool,
    ) -> Result<Option<Side>, ImportError> {
        let (value, tag) = (line.number(peer, "a rank")?, line.number(tag, "a tag")?);
        let bytes = line.bytes(count)?;
        let Some((name, members)) = self.members(line, communicator)? else { return Ok(None) };
        let nobody = if self.communicators.mpich { value == -1 } else { value < -1 };
        let peer = match usize::try_from(value) {
            Ok(place) => Some(members.get(place).copied().ok_or_else(|| {
                line.fault(&format!("a rank below {} of its communicator", members.len()), &value.to_string())
            })?),
            // Of a receive the rank itself stands for nobody, and none for any.
            Err(_) => (nobody && !sends).then_some(self.script.number),
        };
        let tag = Some(tag).filter(|tag| *tag >= 0);
        Ok(Some(Side { name, peer, tag, bytes }))
    }

    fn drop_call(&mut self, what: &str, why: &str, bytes: u64, length: u64, coverage: &mut Coverage) {
        coverage.count(what, Treatment::Dropped, why, bytes, length);
        self.script.compute(length, coverage);
    }

    /// Requests of an array: a list, or the address of the first of `count`.
    fn requests(&self, line: &LineOf<'_>, count: usize, at: usize) -> Result<Vec<i64>, ImportError> {
        let count = line.number(count, "a count")?.max(0);
        let text = line.field(at, "requests")?;
        let list: Option<Vec<i64>> =
            text.split(',').filter(|text| !text.is_empty()).map(|text| text.parse().ok()).collect();
        let list = list.ok_or_else(|| line.fault("requests", text))?;
        let (&[first], true) = (&list[..], count > 1) else { return Ok(list) };
        // A request is a pointer (OpenMPI) or an integer (MPICH): where one lies between two pointers they are integers.
        let away: Vec<i64> =
            self.script.pending().into_iter().map(|request| request.saturating_sub(first)).collect();
        let short = away.iter().any(|&far| far > 0 && far % 8 == 4 && far / 4 < count);
        let size = if short { 4 } else { 8 };
        let inside = |far: &i64| *far >= 0 && far % size == 0 && far / size < count;
        Ok(away.into_iter().filter(inside).map(|far| far.saturating_add(first)).collect())
    }

    pub(super) fn call(&mut self, line: &LineOf<'_>, coverage: &mut Coverage) -> Result<(), ImportError> {
        let name = line.fields[0];
        let Some(call) = name.strip_prefix("MPI_") else {
            return Err(line.fault("a call such as `MPI_Send:…`", name));
        };
        if call == "Init" || call == "Init_thread" {
            self.script.start_at(line.time(line.fields.len() - 1)?);
            coverage.count("other calls", Treatment::Mapped, "begin and end of MPI", 0, 0);
            return Ok(());
        }
        let start = line.time(1)?;
        let end = if call == "Finalize" { start } else { line.time(line.fields.len() - 1)? };
        self.script.call(start, end, coverage);
        let length = end.saturating_sub(start).max(0) as u64;
        if self.collective(call, line, length, coverage)? {
            return Ok(());
        }
        match call {
            "Send" | "Ssend" | "Bsend" | "Rsend" | "Isend" | "Issend" | "Ibsend" | "Irsend" | "Recv"
            | "Irecv" => {
                let sends = call.ends_with("end");
                let request = if call.starts_with('I') { Some(line.number(8, "a request")?) } else { None };
                match self.side(line, (5, 6), 7, 3, sends)? {
                    None => self.drop_call(
                        if sends { "send" } else { "receive" },
                        UNKNOWN,
                        line.bytes(3)?,
                        length,
                        coverage,
                    ),
                    Some(to) if sends => self.script.send(&to.envelope(), request, coverage),
                    Some(from) => self.script.receive(&from.envelope(), request, coverage),
                }
            }
            "Sendrecv" | "Sendrecv_replace" => {
                let (to, from) = if call == "Sendrecv" {
                    (self.side(line, (5, 6), 12, 3, true)?, self.side(line, (10, 11), 12, 8, false)?)
                } else {
                    (self.side(line, (5, 6), 9, 3, true)?, self.side(line, (7, 8), 9, 3, false)?)
                };
                let (Some(to), Some(from)) = (to, from) else {
                    self.drop_call("send and receive", UNKNOWN, line.bytes(3)?, length, coverage);
                    return Ok(());
                };
                self.script.send(&to.envelope(), Some(i64::MIN), coverage);
                self.script.receive(&from.envelope(), Some(i64::MIN + 1), coverage);
                self.script.wait(&[i64::MIN, i64::MIN + 1], coverage);
            }
            "Send_init" | "Ssend_init" | "Bsend_init" | "Rsend_init" | "Recv_init" => {
                let sends = call != "Recv_init";
                let request = line.number(8, "a request")?;
                match self.side(line, (5, 6), 7, 3, sends)? {
                    None => self.drop_call("persistent request", UNKNOWN, line.bytes(3)?, length, coverage),
                    Some(side) => {
                        self.persistent.insert(request, (sends, side));
                        coverage.count(
                            "other calls",
                            Treatment::Mapped,
                            "a request to be begun later",
                            0,
                            length,
                        );
                        self.script.compute(length, coverage);
                    }
                }
            }
            "Start" | "Startall" => {
                let started =
                    if call == "Start" { vec![line.number(2, "a request")?] } else { self.started(line)? };
                for request in started {
                    let Some((sends, side)) = self.persistent.get(&request).cloned() else { continue };
                    if sends {
                        self.script.send(&side.envelope(), Some(request), coverage);
                    } else {
                        self.script.receive(&side.envelope(), Some(request), coverage);
                    }
                }
            }
            "Wait" => self.script.wait(&[line.number(2, "a request")?], coverage),
            "Waitall" => self.script.wait(&self.requests(line, 2, 3)?, coverage),
            "Waitany" | "Waitsome" => {
                let all = self.requests(line, 2, 3)?;
                let index = line.number(4, "an index")?;
                let found =
                    usize::try_from(index).ok().filter(|_| call == "Waitany").and_then(|at| all.get(at));
                match found {
                    Some(&one) => self.script.wait(&[one], coverage),
                    None => {
                        // The trace has the address of the index.
                        let first = self.script.pending().into_iter().find(|request| all.contains(request));
                        let (which, why) = if call == "Waitany" {
                            (
                                first.into_iter().collect(),
                                "which was done first is not in the trace: the one begun first",
                            )
                        } else {
                            (all, "which were done is not in the trace: all")
                        };
                        self.script.wait_as(&which, Treatment::Guessed, why, coverage);
                    }
                }
            }
            "Test" | "Testall" | "Testany" | "Testsome" => self.test(call, line, length, coverage)?,
            "Probe" | "Mprobe" => {
                let why = "waiting, as the receive behind it";
                coverage.count("probe", Treatment::Mapped, why, 0, length);
            }
            "Comm_size" | "Comm_rank" | "Wtime" | "Finalize" | "Initialized" | "Finalized" | "Get_count"
            | "Iprobe" | "Type_commit" | "Type_free" | "Op_create" | "Op_free" | "Type_contiguous"
            | "Type_vector" | "Type_size" | "Comm_dup" | "Comm_split" | "Comm_create" | "Comm_group"
            | "Comm_free" | "Group_incl" | "Group_free" | "Request_free" | "Cart_create" | "Cart_get"
            | "Cart_shift" | "Cart_coords" | "Cart_rank" | "Cart_sub" | "Dims_create"
            | "Get_processor_name" => {
                let why = "no communication: their time is computation";
                coverage.count("other calls", Treatment::Mapped, why, 0, length);
                self.script.compute(length, coverage);
            }
            _ => self.drop_call(
                &format!("call of MPI_{call}"),
                "not modelled: its time stays",
                0,
                length,
                coverage,
            ),
        }
        Ok(())
    }

    /// Persistent requests of an array that are begun.
    fn started(&self, line: &LineOf<'_>) -> Result<Vec<i64>, ImportError> {
        let (count, first) = (line.number(2, "a count")?.max(0), line.number(3, "requests")?);
        let text = line.field(3, "requests")?;
        if text.contains(',') || count < 2 {
            return Ok(text.split(',').filter_map(|text| text.parse().ok()).collect());
        }
        let inside = |far: i64| (0..count.saturating_mul(8)).contains(&far);
        let mut all: Vec<i64> =
            self.persistent.keys().copied().filter(|request| inside(request.saturating_sub(first))).collect();
        all.sort_unstable();
        all.truncate(usize::try_from(count).unwrap_or(0));
        Ok(all)
    }

    fn test(
        &mut self,
        call: &str,
        line: &LineOf<'_>,
        length: u64,
        coverage: &mut Coverage,
    ) -> Result<(), ImportError> {
        let all =
            if call == "Test" { vec![line.number(2, "a request")?] } else { self.requests(line, 2, 3)? };
        let flag = line.number(
            match call {
                "Test" => 3,
                "Testany" => 5,
                _ => 4,
            },
            "a flag",
        )?;
        match (call, flag) {
            ("Test" | "Testall", 1) => self.script.wait(&all, coverage),
            (_, 0) => {
                coverage.count(
                    "test without success",
                    Treatment::Mapped,
                    "waiting, as the wait behind it",
                    0,
                    length,
                );
            }
            _ if self.tests.done.contains(&line.line) => {
                let why = "whether it found its requests done is not in the trace: the last test did";
                self.script.wait_as(&all, Treatment::Guessed, why, coverage);
            }
            _ => {
                let why =
                    "whether it found its requests done is not in the trace: another test or a wait follows";
                coverage.count("test without success", Treatment::Guessed, why, 0, length);
            }
        }
        Ok(())
    }

    /// Whether the call is a collective, which is added then.
    fn collective(
        &mut self,
        call: &str,
        line: &LineOf<'_>,
        length: u64,
        coverage: &mut Coverage,
    ) -> Result<bool, ImportError> {
        let blocking = match call.strip_prefix('I') {
            Some(rest) if !rest.starts_with(char::is_uppercase) => {
                let mut letters = rest.chars();
                letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
            }
            _ => None,
        };
        let base = blocking.as_deref().unwrap_or(call);
        let behind = if blocking.is_some() { 3 } else { 2 };
        let vector = line.fields.len().saturating_sub(behind);
        let communicator = match base {
            "Barrier" => 2,
            "Bcast" => 6,
            "Allreduce" | "Scan" | "Exscan" | "Reduce_scatter_block" => 7,
            "Reduce" | "Allgather" | "Alltoall" => 8,
            "Gather" | "Scatter" => 9,
            "Reduce_scatter" | "Allgatherv" | "Alltoallv" | "Gatherv" | "Scatterv" => vector,
            _ => return Ok(false),
        };
        let n = u64::from(line.communicator(communicator)?.size);
        let of_all = |bytes: u64| bytes.saturating_mul(n);
        let ranks_n = usize::try_from(n).unwrap_or(usize::MAX);
        let parts = |index: usize, datatype: usize| -> Result<Option<Vec<u64>>, ImportError> {
            let size = line.size(datatype)?;
            let list = line.list(index, ranks_n);
            Ok(list.map(|list| list.into_iter().map(|count| count.saturating_mul(size)).collect()))
        };
        let total = |parts: &[u64]| parts.iter().fold(0u64, |sum, part| sum.saturating_add(*part));
        let (mut splits, mut as_another) = (None, None);
        let scan = "a scan, as an all-reduce";
        let sum = match base {
            "Barrier" => Some((CollectiveKind::Barrier, 0)),
            "Bcast" => Some((CollectiveKind::Broadcast { root: line.root(5)? }, line.bytes(3)?)),
            "Allreduce" => Some((CollectiveKind::AllReduce, line.bytes(4)?)),
            "Scan" | "Exscan" => {
                as_another = Some(scan);
                Some((CollectiveKind::AllReduce, line.bytes(4)?))
            }
            "Reduce" => Some((CollectiveKind::Reduce { root: line.root(7)? }, line.bytes(4)?)),
            "Allgather" => Some((CollectiveKind::AllGather, of_all(line.bytes(3)?))),
            "Alltoall" => Some((CollectiveKind::AllToAll, of_all(line.bytes(3)?))),
            "Reduce_scatter_block" => Some((CollectiveKind::ReduceScatter, of_all(line.bytes(4)?))),
            "Reduce_scatter" => {
                let (at, _) = line.counts(4, 1, 2, vector)?;
                parts(at, vector - 2)?.map(|parts| (CollectiveKind::ReduceScatter, total(&parts)))
            }
            "Allgatherv" => {
                let (at, _) = line.counts(6, 2, 1, vector)?;
                let parts = parts(at, vector - 1)?;
                if parts.is_none() {
                    as_another = Some("what the others bring is not in the trace: as much as this rank");
                }
                let bytes = parts.map_or(of_all(line.bytes(3)?), |parts| total(&parts));
                Some((CollectiveKind::AllGather, bytes))
            }
            "Alltoallv" => {
                let (at, each) = line.counts(3, 4, 3, vector)?;
                splits = parts(at, 3 + 2 * each)?;
                splits.as_ref().map(|parts| (CollectiveKind::AllToAll, total(parts)))
            }
            _ => None,
        };
        let is_rooted = matches!(base, "Gather" | "Scatter" | "Gatherv" | "Scatterv");
        let known = self.members(line, communicator)?;
        let what = match (&sum, base) {
            (Some((kind, _)), _) => format!("collective: {}", kind.name()),
            (None, "Gather" | "Gatherv") => "collective: gather".to_owned(),
            (None, "Scatter" | "Scatterv") => "collective: scatter".to_owned(),
            _ => format!("call of MPI_{call}"),
        };
        let Some((name, members)) = known else {
            self.drop_call(&what, UNKNOWN, sum.map_or(0, |(_, bytes)| bytes), length, coverage);
            return Ok(true);
        };
        if let Some((kind, bytes)) = sum {
            let request = match blocking {
                Some(_) => Some(line.number(communicator + 1, "a request")?),
                None => None,
            };
            let said = Said { splits, as_another, ..Said::new(kind, bytes, length) };
            self.script.begin_collective(self.draft, &name, &members, said, request, coverage);
        } else if is_rooted {
            let place = line.root(communicator - 1)? as usize;
            let root = *members.get(place).ok_or_else(|| {
                line.fault(&format!("a root below {}", members.len()), line.fields[communicator - 1])
            })?;
            let at_root = root == self.script.number;
            let into = base.starts_with('G');
            let listed = match base {
                "Gatherv" => parts(line.counts(6, 2, 2, vector)?.0, vector - 2)?,
                "Scatterv" => parts(line.counts(3, 2, 5, vector)?.0, vector - 5)?,
                _ => None,
            };
            let own = match (base, at_root) {
                ("Gatherv", _) | ("Gather", false) | ("Scatter", true) => line.bytes(3)?,
                ("Scatterv", _) => line.bytes(vector - 3)?,
                _ => line.bytes(6)?,
            };
            let parts = listed.filter(|_| at_root).unwrap_or_else(|| vec![own]);
            self.script.rooted(&name, &members, root, &parts, into, coverage);
        } else {
            self.drop_call(&what, "its sizes are not in the trace: its time stays", 0, length, coverage);
        }
        Ok(true)
    }
}
