//! A line of a trace: a call, its arguments between colons.

use crate::error::{ImportError, Place};

const CUT: &str =
    "a last line that was being written may be cut: let the program end before its files are copied";

pub(super) struct LineOf<'a> {
    pub(super) file: &'a str,
    pub(super) line: u64,
    pub(super) fields: Vec<&'a str>,
}

impl LineOf<'_> {
    pub(super) fn fault(&self, expected: &str, found: &str) -> ImportError {
        ImportError::new(self.file, expected, format!("`{found}`")).at(Place::Line(self.line))
    }

    pub(super) fn field(&self, index: usize, what: &str) -> Result<&str, ImportError> {
        self.fields.get(index).copied().ok_or_else(|| {
            let found = "the end of the line";
            ImportError::new(self.file, what, found).at(Place::Line(self.line)).hint(CUT)
        })
    }

    pub(super) fn number(&self, index: usize, what: &str) -> Result<i64, ImportError> {
        let text = self.field(index, what)?;
        text.split(',').next().unwrap_or(text).parse().map_err(|_| self.fault(what, text))
    }

    /// The rank of a root; whether it is a member is seen when all are there.
    pub(super) fn root(&self, index: usize) -> Result<u32, ImportError> {
        Ok(u32::try_from(self.number(index, "a root")?).unwrap_or(u32::MAX))
    }

    /// A time in µs as ns.
    pub(super) fn time(&self, index: usize) -> Result<i64, ImportError> {
        let text = self.field(index, "a time in microseconds")?;
        crate::kineto::nanoseconds(text)
            .filter(|at| at.unsigned_abs() <= crate::kineto::LATEST)
            .ok_or_else(|| self.fault("a time in microseconds", text))
    }

    /// count × size of the datatype behind it.
    pub(super) fn bytes(&self, count: usize) -> Result<u64, ImportError> {
        let elements = self.number(count, "a count")?;
        Ok(u64::try_from(elements).unwrap_or(0).saturating_mul(self.size(count + 1)?))
    }

    /// Where a vector of counts stands that begins at `from`: a list, the address of one, or both, as the tracer was built; `arrays` of
    /// them and `others` arguments lie between `from` and the communicator.
    pub(super) fn counts(
        &self,
        from: usize,
        arrays: usize,
        others: usize,
        communicator: usize,
    ) -> Result<(usize, usize), ImportError> {
        let fields = communicator.checked_sub(from + others).filter(|fields| fields.is_multiple_of(arrays));
        match fields.map(|fields| fields / arrays) {
            Some(each @ (1 | 2)) => Ok((from + each - 1, each)),
            _ => Err(self.fault(&format!("the arguments of {}", self.fields[0]), &self.fields.join(":"))),
        }
    }

    /// Numbers with commas between, if there are `n`.
    pub(super) fn list(&self, index: usize, n: usize) -> Option<Vec<u64>> {
        let parts = self.fields.get(index)?.split(',').map(str::parse::<u64>);
        let list: Vec<u64> = parts.collect::<Result<_, _>>().ok()?;
        (list.len() == n).then_some(list)
    }

    /// Bytes of an element of a datatype.
    pub(super) fn size(&self, index: usize) -> Result<u64, ImportError> {
        let datatype = self.field(index, "a datatype `id,size,extent`")?;
        let size = datatype.split(',').nth(1).and_then(|size| size.parse::<u64>().ok());
        size.ok_or_else(|| self.fault("a datatype `id,size,extent`", datatype))
    }

    /// A communicator: its id, the own rank in it, its size.
    pub(super) fn communicator(&self, index: usize) -> Result<Id, ImportError> {
        let text = self.field(index, "a communicator `id,rank,size`")?;
        let mut parts = text.split(',');
        let mut next = || parts.next()?.parse::<u64>().ok();
        let id = next().zip(next()).zip(next());
        id.and_then(|((handle, rank), size)| {
            let (rank, size) = (u32::try_from(rank).ok()?, u32::try_from(size).ok()?);
            Some(Id { handle, rank, size })
        })
        .ok_or_else(|| self.fault("a communicator `id,rank,size`", text))
    }

    /// Where the communicator of a call stands, if it has one.
    pub(super) fn place_of_communicator(&self) -> Option<usize> {
        let call = self.fields[0].strip_prefix("MPI_")?;
        let end = self.fields.len();
        match call {
            "Comm_size" | "Comm_rank" | "Comm_split" | "Comm_dup" | "Cart_create" | "Barrier"
            | "Ibarrier" => Some(2),
            "Sendrecv" => Some(12),
            "Sendrecv_replace" => Some(9),
            _ if call.ends_with("end") || call.ends_with("ecv") || call.ends_with("_init") => Some(7),
            "Bcast"
            | "Allreduce"
            | "Scan"
            | "Exscan"
            | "Reduce"
            | "Reduce_scatter"
            | "Reduce_scatter_block"
            | "Allgather"
            | "Allgatherv"
            | "Alltoall"
            | "Alltoallv"
            | "Gather"
            | "Gatherv"
            | "Scatter"
            | "Scatterv" => end.checked_sub(2),
            _ if call.starts_with('I') => end.checked_sub(3),
            _ => None,
        }
    }
}

/// A communicator as a rank names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id {
    pub(super) handle: u64,
    pub(super) rank: u32,
    pub(super) size: u32,
}
