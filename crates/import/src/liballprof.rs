//! liballprof's traces (collprof 0.9), the input of Schedgen and ATLAHS: text, one file a rank, one call a line.
//!
//! `MPI_NAME:start:argument:…:end`, times in µs; a datatype is `id,size,extent`, a communicator `id,rank,size`.

use windtunnel_kernel::registry::Entry;
use windtunnel_workload::collectives::CollectiveKind;

use crate::coverage::{Coverage, Treatment};
use crate::draft::Draft;
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::mpi::{Envelope, Said, Script, Tags};
use crate::{Options, Reader};

/// liballprof traces.
pub struct Liballprof;

impl Reader for Liballprof {
    fn entry(&self) -> &'static Entry {
        const {
            &Entry::new(
                "liballprof",
                "liballprof MPI traces (collprof 0.9), as Schedgen and ATLAHS read them",
            )
        }
    }

    fn detects(&self, head: &[u8], _name: &str) -> bool {
        head.starts_with(b"# collprof") || head.starts_with(b"# htor")
    }

    fn read(
        &self,
        inputs: &[Input],
        _options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let mut draft =
            Draft { source: inputs[0].name.clone(), world: Some(inputs.len() as u32), ..Draft::default() };
        let mut tags = Tags::default();
        for (index, input) in (0..).zip(inputs) {
            let text = input.whole()?;
            let text = String::from_utf8_lossy(&text);
            // The program's own words say who it is; else the order of the files does.
            let said = text.lines().find_map(identity);
            let rank = said.map_or(index, |(rank, _)| rank);
            if let Some((_, size)) = said.filter(|&(_, size)| size != inputs.len() as u32) {
                let expected = format!("a file of each of {size} ranks, as `MPI_COMM_WORLD` has");
                return Err(ImportError::new(&input.name, expected, format!("{} files", inputs.len())).hint(
                    "where they are of several programs, `--only TEXT` takes those whose name has TEXT",
                ));
            }
            if draft.ranks.contains_key(&rank) {
                return Err(ImportError::new(&input.name, "one file a rank", format!("rank {rank} again"))
                    .hint("where the files are of several programs, `--only TEXT` takes those of one"));
            }
            let mut script = Script::new(rank, &mut tags);
            let mut ended = false;
            for (line, text) in (1..).zip(text.lines()) {
                if text.is_empty() || text.starts_with('#') {
                    continue;
                }
                let place = LineOf { file: &input.name, line, fields: text.split(':').collect() };
                ended |= place.fields[0] == "MPI_Finalize";
                place.replay(&mut script, &mut draft, inputs.len() as u32, coverage)?;
            }
            if !ended {
                return Err(ImportError::cut(&input.name, text.len() as u64, "`MPI_Finalize`"));
            }
            let program = script.finish(coverage);
            draft.ranks.insert(rank, program.of_file(&input.name));
        }
        Ok(draft)
    }
}

/// Rank and size of `MPI_COMM_WORLD` (number 0), where a call is made on it.
fn identity(line: &str) -> Option<(u32, u32)> {
    let fields: Vec<&str> = line.split(':').collect();
    let at = match fields[0].strip_prefix("MPI_")? {
        "Comm_size" | "Comm_rank" | "Barrier" => 2,
        "Bcast" => 6,
        "Send" | "Isend" | "Recv" | "Irecv" | "Allreduce" => 7,
        _ => return None,
    };
    let mut parts = fields.get(at)?.split(',');
    let (id, rank, size) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (id == "0" && rank < size).then_some((rank, size))
}

const CUT: &str =
    "a last line that was being written may be cut: let the program end before its files are copied";

struct LineOf<'a> {
    file: &'a str,
    line: u64,
    fields: Vec<&'a str>,
}

impl LineOf<'_> {
    fn fault(&self, expected: &str, found: &str) -> ImportError {
        ImportError::new(self.file, expected, format!("`{found}`")).at(Place::Line(self.line))
    }

    fn field(&self, index: usize, what: &str) -> Result<&str, ImportError> {
        self.fields.get(index).copied().ok_or_else(|| {
            let found = "the end of the line";
            ImportError::new(self.file, what, found).at(Place::Line(self.line)).hint(CUT)
        })
    }

    fn number(&self, index: usize, what: &str) -> Result<i64, ImportError> {
        let text = self.field(index, what)?;
        text.split(',').next().unwrap_or(text).parse().map_err(|_| self.fault(what, text))
    }

    /// The rank of a root; whether it is a member is seen when all are there.
    fn root(&self, index: usize) -> Result<u32, ImportError> {
        Ok(u32::try_from(self.number(index, "a root")?).unwrap_or(u32::MAX))
    }

    /// A time in µs as ns.
    fn time(&self, index: usize) -> Result<i64, ImportError> {
        let text = self.field(index, "a time in microseconds")?;
        crate::kineto::nanoseconds(text)
            .filter(|at| at.unsigned_abs() <= crate::kineto::LATEST)
            .ok_or_else(|| self.fault("a time in microseconds", text))
    }

    /// count × size of the datatype behind it.
    fn bytes(&self, count: usize) -> Result<u64, ImportError> {
        let elements = self.number(count, "a count")?;
        let datatype = self.field(count + 1, "a datatype `id,size,extent`")?;
        let size = datatype.split(',').nth(1).and_then(|size| size.parse::<u64>().ok());
        let size = size.ok_or_else(|| self.fault("a datatype `id,size,extent`", datatype))?;
        Ok(u64::try_from(elements).unwrap_or(0).saturating_mul(size))
    }

    /// Whether a communicator is the world; another one's members are not in the trace.
    fn world(&self, index: usize, world: u32) -> Result<bool, ImportError> {
        let text = self.field(index, "a communicator `id,rank,size`")?;
        let size = text.split(',').nth(2).and_then(|size| size.parse::<u32>().ok());
        Ok(size.ok_or_else(|| self.fault("a communicator `id,rank,size`", text))? == world)
    }

    fn replay(
        &self,
        script: &mut Script<'_>,
        draft: &mut Draft,
        world: u32,
        coverage: &mut Coverage,
    ) -> Result<(), ImportError> {
        let name = self.fields[0];
        let Some(call) = name.strip_prefix("MPI_") else {
            return Err(self.fault("a call such as `MPI_Send:…`", name));
        };
        if call == "Init" || call == "Init_thread" {
            script.start_at(self.time(self.fields.len() - 1)?);
            coverage.count("other calls", Treatment::Mapped, "begin and end of MPI", 0, 0);
            return Ok(());
        }
        let start = self.time(1)?;
        let end = if call == "Finalize" { start } else { self.time(self.fields.len() - 1)? };
        script.call(start, end, coverage);
        let length = (end - start).max(0) as u64;
        let ranks: Vec<u32> = (0..world).collect();
        // Where the communicator and the sizes of each collective stand.
        let collective = match call {
            "Bcast" => Some((CollectiveKind::Broadcast { root: self.root(5)? }, self.bytes(3)?, 6)),
            "Barrier" => Some((CollectiveKind::Barrier, 0, 2)),
            "Allreduce" | "Scan" | "Exscan" => Some((CollectiveKind::AllReduce, self.bytes(4)?, 7)),
            "Reduce" => Some((CollectiveKind::Reduce { root: self.root(7)? }, self.bytes(4)?, 8)),
            "Allgather" => {
                Some((CollectiveKind::AllGather, self.bytes(3)?.saturating_mul(u64::from(world)), 8))
            }
            "Alltoall" => {
                Some((CollectiveKind::AllToAll, self.bytes(3)?.saturating_mul(u64::from(world)), 8))
            }
            _ => None,
        };
        if let Some((kind, bytes, communicator)) = collective {
            if self.world(communicator, world)? {
                script.collective(draft, "MPI_COMM_WORLD", &ranks, Said::new(kind, bytes, length), coverage);
            } else {
                script.compute(length, coverage);
                coverage.count(
                    &format!("collective: {}", kind.name()),
                    Treatment::Dropped,
                    "its communicator's members are not in the trace: its time stays",
                    bytes,
                    length,
                );
            }
            return Ok(());
        }
        let any = |value: i64| u32::try_from(value).ok();
        match call {
            "Send" | "Ssend" | "Bsend" | "Rsend" | "Isend" | "Issend" => {
                let request = if call.starts_with('I') { Some(self.number(8, "a request")?) } else { None };
                let (peer, tag) = (self.number(5, "a destination")?, self.number(6, "a tag")?);
                let to = Envelope {
                    communicator: self.communicator(7)?,
                    peer: any(peer),
                    tag: Some(tag),
                    bytes: self.bytes(3)?,
                };
                script.send(&to, request, coverage);
            }
            "Recv" | "Irecv" => {
                let request = if call == "Irecv" { Some(self.number(8, "a request")?) } else { None };
                let (peer, tag) = (self.number(5, "a source")?, self.number(6, "a tag")?);
                let from = Envelope {
                    communicator: self.communicator(7)?,
                    peer: any(peer),
                    tag: Some(tag).filter(|tag| *tag >= 0),
                    bytes: self.bytes(3)?,
                };
                script.receive(&from, request, coverage);
            }
            "Sendrecv" => {
                let communicator = self.communicator(12)?;
                let to = Envelope {
                    communicator,
                    peer: any(self.number(5, "a destination")?),
                    tag: Some(self.number(6, "a tag")?),
                    bytes: self.bytes(3)?,
                };
                let tag = self.number(11, "a tag")?;
                let from = Envelope {
                    communicator,
                    peer: any(self.number(10, "a source")?),
                    tag: Some(tag).filter(|tag| *tag >= 0),
                    bytes: self.bytes(8)?,
                };
                script.send(&to, Some(i64::MIN), coverage);
                script.receive(&from, Some(i64::MIN + 1), coverage);
                script.wait(&[i64::MIN, i64::MIN + 1], coverage);
            }
            "Wait" => script.wait(&[self.number(2, "a request")?], coverage),
            "Waitall" => {
                let list = self.field(3, "requests")?;
                let requests: Option<Vec<i64>> =
                    list.split(',').filter(|text| !text.is_empty()).map(|text| text.parse().ok()).collect();
                script.wait(&requests.ok_or_else(|| self.fault("requests", list))?, coverage);
            }
            "Comm_size" | "Comm_rank" | "Wtime" | "Finalize" | "Initialized" | "Get_count"
            | "Type_commit" | "Type_free" | "Op_create" | "Op_free" | "Type_contiguous" | "Type_vector"
            | "Comm_dup" | "Comm_free" | "Cart_create" | "Cart_get" | "Cart_shift" | "Cart_coords"
            | "Cart_rank" | "Dims_create" | "Get_processor_name" => {
                coverage.count(
                    "other calls",
                    Treatment::Mapped,
                    "no communication: their time is computation",
                    0,
                    length,
                );
                script.compute(length, coverage);
            }
            _ => {
                coverage.count(
                    &format!("call of MPI_{call}"),
                    Treatment::Dropped,
                    "not modelled: its time stays",
                    0,
                    length,
                );
                script.compute(length, coverage);
            }
        }
        Ok(())
    }

    fn communicator(&self, index: usize) -> Result<&str, ImportError> {
        let text = self.field(index, "a communicator `id,rank,size`")?;
        Ok(text.split(',').next().unwrap_or(text))
    }
}
