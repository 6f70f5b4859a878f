//! Reader of GOAL text.
//!
//! The input is a stream of any size, cut into pieces of whole lines; a scanner walks the bytes of a piece once. Nothing
//! is allocated per statement: labels live in one table that each rank reuses, edges in two lists, and a rank's
//! [`Program`] is built when its block closes.
//!
//! Accepted beyond what LogGOPSim's `txt2bin` takes: indentation, comments anywhere, options in any order, labels used
//! before they are defined, blocks in any order, `}` behind a statement. Refused where `txt2bin` goes on silently: a
//! label defined twice, `cpu` or `nic` above 255, peers that do not exist, cycles.

mod blocks;

use std::io::Read;
use std::path::Path;

use rustc_hash::FxHashMap;
use windtunnel_kernel::{Bytes, NicId, RankId, Span, StreamId, Tag, nearest};

use super::cursor::{Cursor, WORD};
use super::error::{GoalError, GoalErrorKind as Kind, Place};
use super::labels::Labels;
use super::{LONGEST_CALC_NS, ReadOptions, WILDCARD};
use crate::{Dimension, OpKind, Operation, Peer, Program, Workload};

/// Bytes asked from the input at once; small enough to stay in the second-level cache.
const PIECE: usize = 1 << 18;
/// Longest line.
const LONGEST_LINE: usize = 1 << 20;

const STATEMENTS: [&str; 3] = ["send", "recv", "calc"];
const RELATIONS: [&str; 2] = ["requires", "irequires"];
const OPTIONS: [&str; 3] = ["tag", "cpu", "nic"];

/// Reads a GOAL text to its end. `path` names it in errors.
///
/// # Errors
/// [`GoalError`] with line and column.
pub fn read_text(input: impl Read, path: &Path, options: ReadOptions) -> Result<Workload, GoalError> {
    let mut input = input;
    let mut reader = Reader::new(path, options);
    let mut buffer = vec![0; PIECE];
    let mut filled = 0;
    loop {
        if filled == buffer.len() {
            if buffer.len() > LONGEST_LINE {
                return Err(reader.fail(reader.line, 1, Kind::LineTooLong { limit: LONGEST_LINE }));
            }
            buffer.resize(buffer.len() * 2, 0);
        }
        let read = match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(super::read_failure(path, &error)),
        };
        let end = filled + read;
        let Some(newline) = memchr::memrchr(b'\n', &buffer[filled..end]) else {
            filled = end;
            continue;
        };
        let whole = filled + newline + 1;
        reader.piece(&buffer[..whole], false)?;
        buffer.copy_within(whole..end, 0);
        filled = end - whole;
    }
    buffer.truncate(filled);
    buffer.push(b'\n');
    reader.piece(&buffer, true)?;
    reader.finish()
}

#[derive(Clone, Copy)]
enum Verb {
    Send,
    Receive,
}

struct Options {
    tag: Option<u32>,
    cpu: u8,
    nic: u8,
}

/// A dependency on a label that is not defined yet.
struct Forward {
    /// Which list, which entry in it, and which end.
    irequires: bool,
    edge: u32,
    is_prerequisite: bool,
    /// The label, in [`Labels::kept`].
    start: u32,
    length: u32,
    line: u64,
    column: u64,
}

struct Reader<'a> {
    path: &'a Path,
    keep_labels: bool,

    line: u64,
    line_start: usize,
    /// Line and column of a block comment that is open at the end of a piece.
    comment: Option<(u64, u64)>,
    last_piece: bool,

    ranks: Option<(u32, u64)>,
    /// Programs in the order of the file, their rank and first line.
    programs: Vec<Program>,
    order: Vec<u32>,
    opened_at: FxHashMap<u32, u64>,

    /// Rank of the open block and the line that opened it.
    open: Option<(u32, u64)>,
    labels: Labels,
    ops: Vec<Operation>,
    /// (prerequisite, dependent).
    requires: Vec<(u32, u32)>,
    irequires: Vec<(u32, u32)>,
    forward: Vec<Forward>,
}

impl<'a> Reader<'a> {
    fn new(path: &'a Path, options: ReadOptions) -> Self {
        Self {
            path,
            keep_labels: options.labels,
            line: 1,
            line_start: 0,
            comment: None,
            last_piece: false,
            ranks: None,
            programs: Vec::new(),
            order: Vec::new(),
            opened_at: FxHashMap::default(),
            open: None,
            labels: Labels::new(),
            ops: Vec::new(),
            requires: Vec::new(),
            irequires: Vec::new(),
            forward: Vec::new(),
        }
    }

    #[cold]
    fn fail(&self, line: u64, column: u64, kind: Kind) -> GoalError {
        GoalError::new(self.path, Place::Text { line, column }, kind)
    }

    /// An error at byte `at` of the current piece.
    #[cold]
    fn fail_at(&self, at: usize, kind: Kind) -> GoalError {
        self.fail(self.line, self.column(at), kind)
    }

    fn column(&self, at: usize) -> u64 {
        (at - self.line_start) as u64 + 1
    }

    #[cold]
    fn unexpected(&self, cursor: &Cursor, expected: &'static str) -> GoalError {
        let found = cursor.found(self.last_piece);
        self.fail_at(cursor.at, Kind::Unexpected { expected, found })
    }

    /// Reads whole lines; comments may begin in one piece and end in another.
    fn piece(&mut self, bytes: &[u8], last: bool) -> Result<(), GoalError> {
        self.last_piece = last;
        self.line_start = 0;
        // The table of labels addresses its bytes by 32 bits; a piece adds at most its own length.
        if self.labels.stored() + bytes.len() >= u32::MAX as usize {
            let rank = self.open.map_or(0, |(rank, _)| rank);
            return Err(self.fail(self.line, 1, Kind::TooMany { rank, what: "bytes of labels" }));
        }
        let mut cursor = Cursor { bytes, at: 0 };
        if self.comment.is_some() {
            self.rest_of_comment(&mut cursor);
        }
        while cursor.at < bytes.len() {
            match cursor.peek() {
                b' ' | b'\t' | b'\r' => cursor.at += 1,
                b'\n' => self.newline(&mut cursor),
                b'/' => self.comment(&mut cursor)?,
                b'}' => {
                    self.close_block(cursor.at)?;
                    cursor.at += 1;
                }
                b'a'..=b'z' | b'A'..=b'Z' | b'_' => self.statement(&mut cursor)?,
                _ => return Err(self.unexpected(&cursor, "a statement or a label")),
            }
        }
        Ok(())
    }

    #[inline]
    fn newline(&mut self, cursor: &mut Cursor) {
        cursor.at += 1;
        self.line += 1;
        self.line_start = cursor.at;
    }

    fn comment(&mut self, cursor: &mut Cursor) -> Result<(), GoalError> {
        match cursor.bytes.get(cursor.at + 1) {
            Some(b'/') => {
                let rest = &cursor.bytes[cursor.at..];
                cursor.at += memchr::memchr(b'\n', rest).expect("a piece ends with a newline");
                Ok(())
            }
            Some(b'*') => {
                self.comment = Some((self.line, self.column(cursor.at)));
                cursor.at += 2;
                self.rest_of_comment(cursor);
                Ok(())
            }
            _ => Err(self.unexpected(cursor, "`//` or `/*`")),
        }
    }

    fn rest_of_comment(&mut self, cursor: &mut Cursor) {
        while let Some(offset) = memchr::memchr2(b'\n', b'*', &cursor.bytes[cursor.at..]) {
            cursor.at += offset;
            if cursor.peek() == b'\n' {
                self.newline(cursor);
            } else {
                cursor.at += 1;
                if cursor.peek() == b'/' {
                    cursor.at += 1;
                    self.comment = None;
                    return;
                }
            }
        }
        cursor.at = cursor.bytes.len();
    }

    /// A statement from its first letter on: at most the rest of the line.
    fn statement(&mut self, cursor: &mut Cursor) -> Result<(), GoalError> {
        let start = cursor.at;
        let word = cursor.word();
        cursor.skip_blanks();
        if self.open.is_none() {
            return self.heading(cursor, start, word);
        }
        if cursor.peek() == b':' {
            cursor.at += 1;
            let line = self.block_line();
            let operation = self.ops.len() as u32;
            if let Err(first) = self.labels.define(word, operation, line) {
                let first_line = self.line - u64::from(line - first);
                let label = String::from_utf8_lossy(word).into_owned();
                return Err(self.fail_at(start, Kind::DuplicateLabel { label, first_line }));
            }
            cursor.skip_blanks();
            let at = cursor.at;
            let verb = cursor.word();
            return self.operation(cursor, at, verb);
        }
        if matches!(word, b"send" | b"recv" | b"calc") {
            return self.operation(cursor, start, word);
        }
        self.dependency(cursor, start, word)
    }

    /// Lines since the block was opened.
    fn block_line(&self) -> u32 {
        let opened = self.open.map_or(0, |(_, line)| line);
        u32::try_from(self.line - opened).unwrap_or(u32::MAX)
    }

    /// `num_ranks N` or `rank R {`.
    fn heading(&mut self, cursor: &mut Cursor, start: usize, word: &[u8]) -> Result<(), GoalError> {
        let Some((ranks, first_line)) = self.ranks else {
            if word != b"num_ranks" {
                cursor.at = start;
                let found = cursor.found(self.last_piece);
                return Err(self.fail_at(start, Kind::NumRanksMissing { found }));
            }
            let at = cursor.at;
            let largest = u64::from(WILDCARD) - 1;
            let ranks = self.number(cursor, "the number of ranks", "the number of ranks", largest)? as u32;
            if ranks == 0 {
                return Err(self.fail_at(at, Kind::NoRanks));
            }
            self.ranks = Some((ranks, self.line));
            return self.end_of_statement(cursor, "the end of the line");
        };
        match word {
            b"rank" => {}
            b"num_ranks" => return Err(self.fail_at(start, Kind::NumRanksRepeated { first_line })),
            _ => {
                cursor.at = start;
                let found = cursor.found(self.last_piece);
                return Err(self.fail_at(start, Kind::OutsideRank { found }));
            }
        }
        let at = cursor.at;
        let rank = self.number(cursor, "the number of a rank", "a rank", u64::MAX)?;
        if rank >= u64::from(ranks) {
            return Err(self.fail_at(at, Kind::RankOutOfRange { rank, ranks }));
        }
        let rank = rank as u32;
        cursor.skip_blanks();
        if cursor.peek() != b'{' {
            return Err(self.unexpected(cursor, "`{`"));
        }
        cursor.at += 1;
        if let Some(&first_line) = self.opened_at.get(&rank) {
            return Err(self.fail_at(at, Kind::RankRepeated { rank, first_line }));
        }
        self.opened_at.insert(rank, self.line);
        self.open = Some((rank, self.line));
        Ok(())
    }

    /// What follows the word `send`, `recv` or `calc` at `start`.
    fn operation(&mut self, cursor: &mut Cursor, start: usize, verb: &[u8]) -> Result<(), GoalError> {
        if self.ops.len() >= WILDCARD as usize - 1 {
            let rank = self.open.map_or(0, |(rank, _)| rank);
            return Err(self.fail_at(start, Kind::TooMany { rank, what: "operations" }));
        }
        let kind = match verb {
            b"send" => self.message(cursor, Verb::Send)?,
            b"recv" => self.message(cursor, Verb::Receive)?,
            b"calc" => self.calc(cursor)?,
            _ => {
                cursor.at = start;
                return Err(self.unknown(cursor, "`send`, `recv` or `calc`", verb, &STATEMENTS));
            }
        };
        self.ops.push(Operation { kind, dimension: Dimension::Other, label: 0 });
        Ok(())
    }

    fn calc(&mut self, cursor: &mut Cursor) -> Result<OpKind, GoalError> {
        let ns = self.number(cursor, "a time in nanoseconds", "a calc in nanoseconds", LONGEST_CALC_NS)?;
        let options = self.options(cursor, None)?;
        Ok(OpKind::Calc { duration: Span::from_ns(ns), stream: StreamId(options.cpu) })
    }

    fn message(&mut self, cursor: &mut Cursor, verb: Verb) -> Result<OpKind, GoalError> {
        let size = self.number(cursor, "a size such as `8b`", "a size in bytes", u64::MAX)?;
        if cursor.peek() != b'b' || WORD[cursor.bytes[cursor.at + 1] as usize] {
            let found = cursor.found(self.last_piece);
            return Err(self.fail_at(cursor.at, Kind::SizeWithoutUnit { size, found }));
        }
        cursor.at += 1;
        cursor.skip_blanks();
        let at = cursor.at;
        let (preposition, expected) = match verb {
            Verb::Send => ("to", "`to`"),
            Verb::Receive => ("from", "`from`"),
        };
        if cursor.word() != preposition.as_bytes() {
            cursor.at = at;
            return Err(self.unexpected(cursor, expected));
        }
        cursor.skip_blanks();
        let at = cursor.at;
        let peer = if cursor.wildcard() {
            if matches!(verb, Verb::Send) {
                return Err(self.fail_at(at, Kind::WildcardInSend("destination")));
            }
            None
        } else {
            let peer = self.number(cursor, "a rank", "a rank", u64::MAX)?;
            let ranks = self.ranks.map_or(0, |(ranks, _)| ranks);
            if peer >= u64::from(ranks) {
                return Err(self.fail_at(at, Kind::PeerOutOfRange { peer, ranks }));
            }
            Some(Peer::Rank(RankId(peer as u32)))
        };
        let options = self.options(cursor, Some(verb))?;
        let stream = StreamId(options.cpu);
        let tag = options.tag.map(|tag| Tag(u64::from(tag)));
        Ok(match (peer, tag, verb) {
            (Some(peer), Some(tag), Verb::Send) => {
                OpKind::Send { peer, bytes: Bytes::new(size), tag, stream, nic: NicId(options.nic) }
            }
            (peer, tag, _) => OpKind::Receive { peer, tag, stream },
        })
    }

    /// `tag`, `cpu` and `nic` in any order, each at most once, up to the end of the statement.
    fn options(&self, cursor: &mut Cursor, verb: Option<Verb>) -> Result<Options, GoalError> {
        let mut options = Options { tag: Some(0), cpu: 0, nic: 0 };
        let mut seen = [false; 3];
        let (expected, words) = match verb {
            Some(_) => ("`tag`, `cpu`, `nic` or the end of the line", &OPTIONS[..]),
            None => ("`cpu` or the end of the line", &OPTIONS[1..2]),
        };
        loop {
            cursor.skip_blanks();
            let at = cursor.at;
            let word = cursor.word();
            let index = match word {
                b"" => break,
                b"tag" => 0,
                b"cpu" => 1,
                b"nic" => 2,
                _ => {
                    cursor.at = at;
                    return Err(self.unknown(cursor, expected, word, words));
                }
            };
            if verb.is_none() && index != 1 {
                return Err(self.fail_at(at, Kind::CalcOption(OPTIONS[index])));
            }
            if std::mem::replace(&mut seen[index], true) {
                return Err(self.fail_at(at, Kind::OptionRepeated(OPTIONS[index])));
            }
            cursor.skip_blanks();
            let at = cursor.at;
            match index {
                0 if cursor.wildcard() => {
                    if matches!(verb, Some(Verb::Send)) {
                        return Err(self.fail_at(at, Kind::WildcardInSend("tag")));
                    }
                    options.tag = None;
                }
                0 => {
                    let largest = u64::from(WILDCARD) - 1;
                    options.tag = Some(self.number(cursor, "a tag", "a tag", largest)? as u32);
                }
                1 => options.cpu = self.number(cursor, "a stream", "a stream (`cpu`)", 255)? as u8,
                _ => options.nic = self.number(cursor, "a NIC", "a NIC (`nic`)", 255)? as u8,
            }
        }
        self.end_of_statement(cursor, expected)?;
        Ok(options)
    }

    /// `LABEL requires LABEL` or `LABEL irequires LABEL`, from behind the first label.
    fn dependency(&mut self, cursor: &mut Cursor, start: usize, label: &[u8]) -> Result<(), GoalError> {
        let at = cursor.at;
        let relation = cursor.word();
        let irequires = match relation {
            b"requires" => false,
            b"irequires" => true,
            _ => {
                // `sned 8b to 1` and `a require b` both come here: blame the word that is nearer to a keyword.
                let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
                if let (Some(open), b"rank") = (self.open, label) {
                    return Err(self.fail_at(start, Kind::NestedRank { rank: open.0, opened: open.1 }));
                }
                if (relation.is_empty() || nearest(&text(relation), RELATIONS).is_none())
                    && let Some(word) = nearest(&text(label), STATEMENTS)
                {
                    let kind = Kind::UnknownKeyword {
                        expected: "a statement",
                        found: text(label),
                        nearest: Some(word),
                    };
                    return Err(self.fail_at(start, kind));
                }
                cursor.at = at;
                let expected = "`:`, `requires` or `irequires`";
                return Err(self.unknown(cursor, expected, relation, &RELATIONS));
            }
        };
        cursor.skip_blanks();
        let second_at = cursor.at;
        let second = cursor.word();
        if second.first().is_none_or(u8::is_ascii_digit) {
            cursor.at = second_at;
            return Err(self.unexpected(cursor, "a label"));
        }
        let list = if irequires { &self.irequires } else { &self.requires };
        if list.len() >= WILDCARD as usize - 1 {
            let rank = self.open.map_or(0, |(rank, _)| rank);
            return Err(self.fail_at(start, Kind::TooMany { rank, what: "edges" }));
        }
        let edge = list.len() as u32;
        let dependent =
            self.labels.find(label).unwrap_or_else(|| self.later(label, start, irequires, edge, false));
        let prerequisite =
            self.labels.find(second).unwrap_or_else(|| self.later(second, second_at, irequires, edge, true));
        let list = if irequires { &mut self.irequires } else { &mut self.requires };
        list.push((prerequisite, dependent));
        self.end_of_statement(cursor, "the end of the line")
    }

    /// Remembers a label to be looked up when the block closes.
    #[cold]
    fn later(&mut self, label: &[u8], at: usize, irequires: bool, edge: u32, is_prerequisite: bool) -> u32 {
        let (line, column) = (self.line, self.column(at));
        let (start, length) = (self.labels.keep(label), label.len() as u32);
        self.forward.push(Forward { irequires, edge, is_prerequisite, start, length, line, column });
        u32::MAX
    }

    /// A statement is followed by the end of its line, a comment or the end of the block.
    #[inline]
    fn end_of_statement(&self, cursor: &mut Cursor, expected: &'static str) -> Result<(), GoalError> {
        cursor.skip_blanks();
        match cursor.peek() {
            b'\n' | b'}' | b'/' => Ok(()),
            _ => Err(self.unexpected(cursor, expected)),
        }
    }

    /// An unsigned decimal of at most `largest`, after blanks.
    #[inline]
    fn number(
        &self,
        cursor: &mut Cursor,
        expected: &'static str,
        what: &'static str,
        largest: u64,
    ) -> Result<u64, GoalError> {
        cursor.skip_blanks();
        let start = cursor.at;
        let mut value = 0u64;
        let mut fits = true;
        while let digit @ b'0'..=b'9' = cursor.peek() {
            let next = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            // Nineteen digits always fit; the checked way is needed only from the twentieth on.
            if cursor.at - start >= 19 {
                let exact = value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit - b'0')));
                fits &= exact.is_some();
            }
            value = next;
            cursor.at += 1;
        }
        if cursor.at == start {
            return Err(self.unexpected(cursor, expected));
        }
        if !fits || value > largest {
            let digits = &cursor.bytes[start..cursor.at.min(start + 40)];
            let found = String::from_utf8_lossy(digits).into_owned();
            return Err(self.fail_at(start, Kind::NumberTooLarge { what, found, largest }));
        }
        Ok(value)
    }

    /// A word that is none of `words`, at the cursor.
    #[cold]
    fn unknown(
        &self,
        cursor: &Cursor,
        expected: &'static str,
        word: &[u8],
        words: &'static [&'static str],
    ) -> GoalError {
        if word.is_empty() {
            return self.unexpected(cursor, expected);
        }
        let found = String::from_utf8_lossy(&word[..word.len().min(40)]).into_owned();
        let nearest = nearest(&found, words.iter().copied());
        self.fail_at(cursor.at, Kind::UnknownKeyword { expected, found, nearest })
    }
}
