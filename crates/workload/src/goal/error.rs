//! What can be wrong with a GOAL file, as data: where, what was found, what was expected, and a hint.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where in a file an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    File,
    /// A character of a text file; both count from 1, the column in bytes.
    Text {
        /// Line.
        line: u64,
        /// Column.
        column: u64,
    },
    /// An offset from the start of a binary file.
    Byte(u64),
}

/// An operation of a dependency cycle in a text file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CycleStep {
    /// Its label.
    pub label: String,
    /// The line that defines it.
    pub line: u64,
}

fn cycle_of_labels(steps: &[CycleStep]) -> String {
    let names: Vec<String> =
        steps.iter().map(|step| format!("`{}` (line {})", step.label, step.line)).collect();
    names.join(" requires ")
}

fn cycle_of_indices(operations: &[u32]) -> String {
    let names: Vec<String> = operations.iter().map(u32::to_string).collect();
    names.join(" requires ")
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoalErrorKind {
    /// The operating system refused.
    #[error("{0}")]
    Io(String),
    /// Compressed data end early or are damaged.
    #[error("the gzip data are damaged or cut off: {0}")]
    Gzip(String),
    /// Compressed by something that is not read here.
    #[error("the file is compressed with {0}, which is not read")]
    Compression(&'static str),
    /// Text, but not in UTF-8: in what, and what to do.
    #[error("{0}")]
    Encoding(&'static str, &'static str),

    /// The text does not begin with the number of ranks.
    #[error("expected `num_ranks N` before anything else, found {found}")]
    NumRanksMissing {
        /// What stands there.
        found: String,
    },
    /// A second `num_ranks`.
    #[error("`num_ranks` is already given in line {first_line}")]
    NumRanksRepeated {
        /// Where the first is.
        first_line: u64,
    },
    /// `num_ranks 0`.
    #[error("a workload needs at least one rank, found `num_ranks 0`")]
    NoRanks,
    /// Something else than the grammar asks for.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What may stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A word that is no keyword.
    #[error("expected {expected}, found `{found}`")]
    UnknownKeyword {
        /// What may stand there.
        expected: &'static str,
        /// The word.
        found: String,
        /// The keyword it looks like.
        nearest: Option<&'static str>,
    },
    /// A label that is defined twice in a rank.
    #[error("label `{label}` is already defined in line {first_line}")]
    DuplicateLabel {
        /// The label.
        label: String,
        /// Where the first definition is.
        first_line: u64,
    },
    /// A dependency on a label that the rank never defines.
    #[error("label `{label}` is not defined in rank {rank}")]
    UndefinedLabel {
        /// The label.
        label: String,
        /// The rank.
        rank: u32,
        /// A defined label that looks like it.
        nearest: Option<String>,
    },
    /// A peer beyond the last rank.
    #[error("peer {peer} does not exist, the ranks are 0 to {}", ranks - 1)]
    PeerOutOfRange {
        /// The peer.
        peer: u64,
        /// Number of ranks.
        ranks: u32,
    },
    /// A message size without its `b`.
    #[error("expected a size in bytes such as `{size}b`, found {found}")]
    SizeWithoutUnit {
        /// The number.
        size: u64,
        /// What stands where the `b` is due.
        found: String,
    },
    /// A number beyond what the field holds.
    #[error("{what} is at most {largest}, found `{found}`")]
    NumberTooLarge {
        /// The field, such as `a stream (`cpu`)`.
        what: &'static str,
        /// The digits.
        found: String,
        /// Largest allowed.
        largest: u64,
    },
    /// `-1` where a send names its peer or tag.
    #[error("a send needs a definite {0}, found `-1`")]
    WildcardInSend(&'static str),
    /// An option given twice.
    #[error("option `{0}` is given twice")]
    OptionRepeated(&'static str),
    /// `tag` or `nic` on a calc.
    #[error("a `calc` has no `{0}`")]
    CalcOption(&'static str),
    /// A rank block beyond `num_ranks`.
    #[error("rank {rank} does not exist, the ranks are 0 to {}", ranks - 1)]
    RankOutOfRange {
        /// The rank.
        rank: u64,
        /// Number of ranks.
        ranks: u32,
    },
    /// A second block of the same rank.
    #[error("rank {rank} already has a block in line {first_line}")]
    RankRepeated {
        /// The rank.
        rank: u32,
        /// Where the first is.
        first_line: u64,
    },
    /// The file ends and ranks have no block.
    #[error("{missing} of {ranks} ranks have no block, the first is rank {first}")]
    RanksMissing {
        /// How many.
        missing: u32,
        /// The lowest of them.
        first: u32,
        /// Number of ranks.
        ranks: u32,
    },
    /// A `rank` inside the block of another.
    #[error("expected a statement or `}}`, found `rank` inside the block of rank {rank} (line {opened})")]
    NestedRank {
        /// The open rank.
        rank: u32,
        /// Where it was opened.
        opened: u64,
    },
    /// A statement outside every block.
    #[error("expected `rank R {{`, found {found} outside every rank")]
    OutsideRank {
        /// What stands there.
        found: String,
    },
    /// The text ends inside a block.
    #[error("the file ends inside the block of rank {rank}, which was opened in line {opened}")]
    Truncated {
        /// The open rank.
        rank: u32,
        /// Where it was opened.
        opened: u64,
    },
    /// The text ends inside a comment.
    #[error("the file ends inside the comment opened in line {opened}")]
    CommentOpen {
        /// Where it was opened.
        opened: u64,
    },
    /// A line beyond reason.
    #[error("the line is longer than {limit} bytes")]
    LineTooLong {
        /// Limit.
        limit: usize,
    },
    /// Dependencies that go round, by label.
    #[error("the dependencies of rank {rank} form a cycle: {}", cycle_of_labels(steps))]
    Cycle {
        /// The rank.
        rank: u32,
        /// The operations, each requiring the next; the first is repeated at the end.
        steps: Vec<CycleStep>,
    },
    /// More operations or edges than 32 bits number.
    #[error("rank {rank} has more than 2^32 - 2 {what}")]
    TooMany {
        /// The rank.
        rank: u32,
        /// `operations` or `edges`.
        what: &'static str,
    },

    /// Neither text nor a GOAL binary.
    #[error("expected the magic number 4223 of a GOAL binary, found {found}")]
    WrongMagic {
        /// The first eight bytes, little-endian.
        found: u64,
    },
    /// LogGOPSim wrote its counters into the file.
    #[error("magic number 2342: a `--save-mem` run of LogGOPSim has used this file up")]
    Invalidated,
    /// A binary file too short for what it announces.
    #[error("the file ends at byte {length}, {what} needs it to reach byte {needs}")]
    TruncatedBinary {
        /// What does not fit.
        what: &'static str,
        /// First byte after it.
        needs: u64,
        /// Length of the file.
        length: u64,
    },
    /// A jump-table entry outside the file.
    #[error(
        "the jump table puts rank {rank} at bytes {start} to {end}, the data are at bytes {first} to {length}"
    )]
    BlockOutOfRange {
        /// The rank.
        rank: u32,
        /// Start, from the start of the file.
        start: u64,
        /// End, from the start of the file.
        end: u64,
        /// First byte after the jump table.
        first: u64,
        /// Length of the file.
        length: u64,
    },
    /// Two ranks share bytes.
    #[error("the blocks of ranks {first} and {second} overlap")]
    BlocksOverlap {
        /// The rank that begins first.
        first: u32,
        /// The other.
        second: u32,
    },
    /// A block too small for its operations.
    #[error(
        "the block of rank {rank} has {length} bytes, its {nodes} operations and {roots} roots need {needs}"
    )]
    BlockTooSmall {
        /// The rank.
        rank: u32,
        /// Bytes in the block.
        length: u64,
        /// Operations announced.
        nodes: u32,
        /// Roots announced.
        roots: u32,
        /// Bytes they take.
        needs: u64,
    },
    /// The bytes after the operations are no whole number of edges.
    #[error("the block of rank {rank} ends with {bytes} bytes that are no whole edge")]
    PartialEdge {
        /// The rank.
        rank: u32,
        /// Bytes left over, 1 to 3.
        bytes: u64,
    },
    /// A field of an operation has a value it cannot have.
    #[error("operation {operation} of rank {rank}: {reason}")]
    BadOperation {
        /// The rank.
        rank: u32,
        /// Index of the operation.
        operation: u32,
        /// What is wrong with it.
        reason: OperationFault,
    },
    /// A root that does not exist or waits for something, or one that is not listed.
    #[error("root {position} of rank {rank} is operation {root}, which {reason}")]
    BadRoot {
        /// The rank.
        rank: u32,
        /// Position in the list of roots.
        position: u32,
        /// The operation it names.
        root: u32,
        /// Why it cannot be one.
        reason: &'static str,
    },
    /// Operations without a prerequisite that are not in the list of roots.
    #[error(
        "rank {rank} lists {listed} roots and has {found} operations without a prerequisite, not the same ones"
    )]
    RootCount {
        /// The rank.
        rank: u32,
        /// Roots in the list.
        listed: u32,
        /// Operations without a prerequisite.
        found: u32,
    },
    /// An edge to an operation that does not exist.
    #[error("edge {edge} of rank {rank} leads to operation {target} of {nodes}")]
    EdgeOutOfRange {
        /// The rank.
        rank: u32,
        /// Position in the appendix.
        edge: u32,
        /// The operation it names.
        target: u32,
        /// Number of operations.
        nodes: u32,
    },
    /// Dependencies that go round, by index.
    #[error("the dependencies of rank {rank} form a cycle of operations: {}", cycle_of_indices(operations))]
    BinaryCycle {
        /// The rank.
        rank: u32,
        /// The operations, each requiring the next; the first is repeated at the end.
        operations: Vec<u32>,
    },

    /// A collective, which GOAL cannot express.
    #[error("operation {operation} of rank {rank} is a collective ({collective}), GOAL has none")]
    Collective {
        /// The rank.
        rank: u32,
        /// Index of the operation.
        operation: u32,
        /// Its kind.
        collective: String,
    },
    /// A tag that GOAL's 32 bits do not hold.
    #[error("operation {operation} of rank {rank} has tag {tag}, GOAL's are at most 4294967294")]
    TagTooLarge {
        /// The rank.
        rank: u32,
        /// Index of the operation.
        operation: u32,
        /// The tag.
        tag: u64,
    },
}

/// What is wrong with an operation of a binary file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationFault {
    /// Neither send, receive nor calc.
    #[error("type {0} is none of 1 (send), 2 (receive), 3 (calc)")]
    Type(u8),
    /// A peer beyond the last rank.
    #[error("peer {peer} does not exist, the ranks are 0 to {}", ranks - 1)]
    Peer {
        /// The peer.
        peer: u32,
        /// Number of ranks.
        ranks: u32,
    },
    /// A send whose tag is the wildcard.
    #[error("a send has the tag 4294967295, which stands for any tag")]
    SendTag,
    /// A calc beyond the range of picoseconds.
    #[error("a calc of {0} ns is longer than the 200 days that network time may span")]
    Calc(u64),
    /// A stream beyond the maximum in the header.
    #[error("stream {cpu} is above the {largest} that the header states")]
    Stream {
        /// The stream.
        cpu: u8,
        /// The header's.
        largest: u8,
    },
    /// A NIC beyond the maximum in the header.
    #[error("NIC {nic} is above the {largest} that the header states")]
    Nic {
        /// The NIC.
        nic: u8,
        /// The header's.
        largest: u8,
    },
    /// Edges outside the appendix.
    #[error("its edges {first} to {end} (exclusive) are outside the appendix of {edges}")]
    Edges {
        /// First edge.
        first: u32,
        /// One past the last.
        end: u64,
        /// Number of edges in the appendix.
        edges: u64,
    },
    /// More edges in all operations together than the appendix has.
    #[error("the operations up to here claim more edges than the {edges} of the appendix")]
    SharedEdges {
        /// Number of edges in the appendix.
        edges: u64,
    },
    /// The counter of prerequisites disagrees with the edges.
    #[error("it states {stated} prerequisites, {counted} edges lead to it")]
    Prerequisites {
        /// In its record.
        stated: u32,
        /// By the edges.
        counted: u32,
    },
}

/// An error with its place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoalError {
    /// The file, or the name of the stream.
    pub path: PathBuf,
    /// Where in it.
    pub place: Place,
    /// What is wrong.
    pub kind: Box<GoalErrorKind>,
}

impl GoalError {
    pub(super) fn new(path: &Path, place: Place, kind: GoalErrorKind) -> Self {
        Self { path: path.to_owned(), place, kind: Box::new(kind) }
    }

    pub(super) fn io(path: &Path, error: &std::io::Error) -> Self {
        Self::new(path, Place::File, GoalErrorKind::Io(error.to_string()))
    }

    /// Line in a text file, from 1.
    pub fn line(&self) -> Option<u64> {
        match self.place {
            Place::Text { line, .. } => Some(line),
            _ => None,
        }
    }

    /// Column in bytes in a text file, from 1.
    pub fn column(&self) -> Option<u64> {
        match self.place {
            Place::Text { column, .. } => Some(column),
            _ => None,
        }
    }

    /// What is wrong, without place and hint.
    pub fn message(&self) -> String {
        self.kind.to_string()
    }

    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        use GoalErrorKind as K;
        let fixed = match &*self.kind {
            K::UnknownKeyword { nearest: Some(word), .. } => return Some(format!("did you mean `{word}`?")),
            K::UndefinedLabel { nearest: Some(label), .. } => {
                return Some(format!("did you mean `{label}`?"));
            }
            K::SizeWithoutUnit { size, .. } => return Some(format!("write `{size}b`: sizes are in bytes")),
            K::UndefinedLabel { .. } => "a label is known only inside the rank that defines it",
            K::Encoding(_, hint) => hint,
            K::Compression(_) => "decompress it first; gzip is read as it is",
            K::NumRanksMissing { .. } => "a GOAL text begins with a line such as `num_ranks 16`",
            K::DuplicateLabel { .. } => {
                "LogGOPSim silently keeps the first; give each operation its own label"
            }
            K::PeerOutOfRange { .. } | K::RankOutOfRange { .. } => {
                "ranks count from 0; `num_ranks` is one more than the highest"
            }
            K::NumberTooLarge { what, .. } if what.contains('`') => {
                "streams and NICs are 8-bit; other tools wrap silently, 300 becomes 44"
            }
            K::WildcardInSend(_) => "only a `recv` may take `-1` for any source or any tag",
            K::CalcOption(_) => "a calc takes only `cpu`",
            K::RanksMissing { .. } => "every rank needs a block, an idle one is `rank R { }`",
            K::Truncated { .. } => "a `}` is missing, or the file was cut off",
            K::Cycle { .. } | K::BinaryCycle { .. } => "none of these operations could ever start",
            K::WrongMagic { found } if found.swap_bytes() == 4223 => {
                "the file is big-endian; GOAL is little-endian"
            }
            K::WrongMagic { .. } => "the file is neither GOAL text, gzip nor GOAL binary",
            K::Invalidated => "convert the GOAL text again",
            K::TruncatedBinary { .. } | K::BlockOutOfRange { .. } => "the file was cut off or is damaged",
            K::Collective { .. } => "expand the collectives into messages first",
            _ => return None,
        };
        Some(fixed.to_owned())
    }
}

impl fmt::Display for GoalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.place {
            Place::File => write!(f, "{path}: {}", self.kind)?,
            Place::Text { line, column } => write!(f, "{path}:{line}:{column}: {}", self.kind)?,
            Place::Byte(offset) => write!(f, "{path}: byte {offset}: {}", self.kind)?,
        }
        match self.hint() {
            Some(hint) => write!(f, "\n\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for GoalError {}
