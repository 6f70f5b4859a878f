//! A reader of SQLite 3 files: tables as rows, nothing else (no index, no query, no journal).
//!
//! The format is that of sqlite.org/fileformat2: pages, table B-trees of interior pages (type 5) and leaves (13), records whose head
//! names the type of each column, long ones with overflow pages. A page is visited once at most, so a file whose pages point in a
//! circle ends in an error. Pages are read as they are asked for ([`Blocks`]): memory does not grow with the file but for a bit a page.

use std::collections::BTreeMap;

use crate::blocks::{Blocks, Part};
use crate::error::{ImportError, Place};
use crate::input::Input;

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Float(f64),
    Text(String),
    Blob(Vec<u8>),
}

impl Cell {
    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            Self::Float(value) => Some(*value as i64),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

/// A table: where its tree begins and what its columns are called.
#[derive(Clone, Debug)]
struct Table {
    root: u64,
    columns: Vec<String>,
    /// The column that is the row's number, if it has one.
    row_number: Option<usize>,
}

/// A file.
pub(crate) struct Database<'a> {
    file: &'a str,
    blocks: Blocks<'a>,
    page: u64,
    usable: u64,
    tables: BTreeMap<String, Table>,
}

impl<'a> Database<'a> {
    /// Reads the list of tables.
    pub(crate) fn open(input: &'a Input) -> Result<Self, ImportError> {
        let file = input.name.as_str();
        let blocks = Blocks::of(input)?;
        let head = blocks.part(0, 100)?.filter(|head| head.starts_with(b"SQLite format 3\0"));
        let head = head.ok_or_else(|| {
            ImportError::new(file, "an SQLite file", "something else, or less than its head")
                .at(Place::Byte(0))
        })?;
        let page = match u16::from_be_bytes([head[16], head[17]]) {
            1 => 65_536,
            size => u64::from(size),
        };
        let usable = page.saturating_sub(u64::from(head[20]));
        if !page.is_power_of_two() || usable < 480 {
            return Err(
                ImportError::new(file, "a page size of 512 to 65536", page.to_string()).at(Place::Byte(16))
            );
        }
        let mut database = Self { file, blocks, page, usable, tables: BTreeMap::new() };
        let mut tables = BTreeMap::new();
        database.walk(1, None, &mut |row| {
            let text = |at: usize| row.get(at).and_then(Cell::text).unwrap_or_default().to_owned();
            if text(0) == "table" {
                let (columns, row_number) = columns(&text(4));
                let root = row.get(3).and_then(Cell::int).unwrap_or(0).max(0) as u64;
                tables.insert(text(1), Table { root, columns, row_number });
            }
            Ok(())
        })?;
        database.tables = tables;
        Ok(database)
    }

    /// Whether there is a table.
    pub(crate) fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// Goes through the rows of `table`: `visit` gets the columns named, `Null` for those that this version does not have. A table
    /// that is not there has no rows.
    pub(crate) fn rows(
        &self,
        table: &str,
        names: &[&str],
        mut visit: impl FnMut(&[Cell]),
    ) -> Result<(), ImportError> {
        let Some(table) = self.tables.get(table) else { return Ok(()) };
        let places: Vec<Option<usize>> = names
            .iter()
            .map(|name| table.columns.iter().position(|column| column.eq_ignore_ascii_case(name)))
            .collect();
        let mut row = Vec::with_capacity(names.len());
        self.walk(table.root, table.row_number, &mut |cells| {
            row.clear();
            row.extend(
                places
                    .iter()
                    .map(|place| place.and_then(|place| cells.get(place)).cloned().unwrap_or(Cell::Null)),
            );
            visit(&row);
            Ok(())
        })
    }

    fn page(&self, number: u64) -> Result<Part, ImportError> {
        let start = number.checked_sub(1).and_then(|before| before.checked_mul(self.page));
        let part = match start {
            Some(start) => self.blocks.part(start, self.page)?,
            None => None,
        };
        part.ok_or_else(|| {
            ImportError::cut(self.file, self.blocks.length(), format!("page {number} of {} bytes", self.page))
        })
    }

    fn damaged(&self, number: u64, expected: &str) -> ImportError {
        let place = Place::Byte(number.saturating_sub(1).saturating_mul(self.page));
        ImportError::new(self.file, expected, "something else")
            .at(place)
            .hint("the export is damaged: export it again")
    }

    /// Visits the rows of a tree in order.
    fn walk(
        &self,
        root: u64,
        row_number: Option<usize>,
        visit: &mut dyn FnMut(&[Cell]) -> Result<(), ImportError>,
    ) -> Result<(), ImportError> {
        // A bit a page; the file is there, so its length is no promise.
        let pages = self.blocks.length() / self.page + 2;
        let mut seen = vec![0u64; (pages / 64 + 1) as usize];
        let mut pending = vec![root];
        while let Some(number) = pending.pop() {
            if number >= pages {
                return Err(self.damaged(number, "a page of the file"));
            }
            let (word, bit) = ((number / 64) as usize, 1u64 << (number % 64));
            if seen[word] & bit != 0 {
                return Err(self.damaged(number, "a page that is used once"));
            }
            seen[word] |= bit;
            let page = self.page(number)?;
            // The first page has the file's head before its own.
            let head = if number == 1 { 100 } else { 0 };
            let u16_at = |at: usize| {
                page.get(at..at + 2).map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]])))
            };
            let kind = page[head];
            let cells = u16_at(head + 3).unwrap_or(0);
            let first = head + if kind == 5 { 12 } else { 8 };
            let cell = |index: u64| u16_at(first + 2 * index as usize).filter(|&at| at < self.page);
            match kind {
                5 => {
                    let child = |at: usize| {
                        page.get(at..at + 4)
                            .map(|four| u64::from(u32::from_be_bytes([four[0], four[1], four[2], four[3]])))
                    };
                    pending.extend(child(head + 8));
                    for index in (0..cells).rev() {
                        let at = cell(index).ok_or_else(|| self.damaged(number, "a cell inside its page"))?;
                        pending.push(child(at as usize).ok_or_else(|| self.damaged(number, "a child page"))?);
                    }
                }
                13 => {
                    for index in 0..cells {
                        let at = cell(index).ok_or_else(|| self.damaged(number, "a cell inside its page"))?;
                        let row = self.record(number, &page, at as usize, row_number)?;
                        visit(&row)?;
                    }
                }
                _ => return Err(self.damaged(number, "a page of a table")),
            }
        }
        Ok(())
    }

    /// The record of a cell: its length, the row's number, the payload.
    fn record(
        &self,
        number: u64,
        page: &[u8],
        at: usize,
        row_number: Option<usize>,
    ) -> Result<Vec<Cell>, ImportError> {
        let bad = || self.damaged(number, "a record");
        let mut at = at;
        let length = varint(page, &mut at).ok_or_else(bad)?;
        let row = varint(page, &mut at).ok_or_else(bad)? as i64;
        // A length is believed up to that of the file: pages that point in a circle give no more.
        if length > self.blocks.length() {
            return Err(bad());
        }
        let most = self.usable - 35;
        let local = if length <= most {
            length
        } else {
            // Overflow: as much stays on the page as fills whole overflow pages.
            let least = (self.usable - 12) * 32 / 255 - 23;
            let kept = least + (length - least) % (self.usable - 4);
            if kept <= most { kept } else { least }
        };
        let part = page.get(at..at + local as usize).ok_or_else(bad)?;
        let mut joined;
        let payload = if local == length {
            part
        } else {
            joined = part.to_vec();
            let number_at = |bytes: &[u8], at: usize| {
                let four = bytes.get(at..at + 4)?;
                Some(u64::from(u32::from_be_bytes([four[0], four[1], four[2], four[3]])))
            };
            let mut next = number_at(page, at + local as usize).ok_or_else(bad)?;
            while (joined.len() as u64) < length {
                let content = self.page(next)?;
                let take = (length - joined.len() as u64).min(self.usable - 4) as usize;
                joined.extend_from_slice(content.get(4..4 + take).ok_or_else(bad)?);
                next = number_at(&content, 0).ok_or_else(bad)?;
            }
            &joined[..]
        };
        let mut head = 0;
        let end = varint(payload, &mut head).ok_or_else(bad)? as usize;
        let mut body = end;
        let mut row_cells = Vec::new();
        while head < end {
            let kind = varint(payload, &mut head).ok_or_else(bad)?;
            row_cells.push(cell(payload, &mut body, kind).ok_or_else(bad)?);
        }
        if let Some(place) = row_number.filter(|&place| row_cells.get(place) == Some(&Cell::Null)) {
            row_cells[place] = Cell::Int(row);
        }
        Ok(row_cells)
    }
}

/// A number of up to 9 bytes, the highest bits first.
fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for place in 0..9 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if place == 8 {
            return Some(value << 8 | u64::from(byte));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn cell(payload: &[u8], at: &mut usize, kind: u64) -> Option<Cell> {
    let mut take = |length: u64| -> Option<&[u8]> {
        let part = payload.get(*at..at.checked_add(usize::try_from(length).ok()?)?)?;
        *at += length as usize;
        Some(part)
    };
    let signed = |part: &[u8]| {
        let negative = part.first().is_some_and(|byte| byte & 0x80 != 0);
        part.iter().fold(if negative { -1i64 } else { 0 }, |value, &byte| value << 8 | i64::from(byte))
    };
    Some(match kind {
        0 => Cell::Null,
        1..=4 => Cell::Int(signed(take(kind)?)),
        5 => Cell::Int(signed(take(6)?)),
        6 => Cell::Int(signed(take(8)?)),
        7 => Cell::Float(f64::from_be_bytes(take(8)?.try_into().ok()?)),
        8 | 9 => Cell::Int(kind as i64 - 8),
        10 | 11 => return None,
        kind if kind.is_multiple_of(2) => Cell::Blob(take((kind - 12) / 2)?.to_vec()),
        kind => Cell::Text(String::from_utf8_lossy(take((kind - 13) / 2)?).into_owned()),
    })
}

/// The names of the columns of a `CREATE TABLE`, and which of them is the row's number.
fn columns(sql: &str) -> (Vec<String>, Option<usize>) {
    // Comments first: they hold commas.
    let mut plain = String::new();
    for line in sql.lines() {
        plain.push_str(line.split("--").next().unwrap_or(""));
        plain.push(' ');
    }
    let Some((_, body)) = plain.split_once('(') else { return (Vec::new(), None) };
    let body = body.rsplit_once(')').map_or(body, |(body, _)| body);
    let (mut parts, mut depth, mut part) = (Vec::new(), 0i32, String::new());
    for c in body.chars() {
        match c {
            ',' if depth == 0 => parts.push(std::mem::take(&mut part)),
            _ => {
                depth += i32::from(c == '(') - i32::from(c == ')');
                part.push(c);
            }
        }
    }
    parts.push(part);
    let mut row_number = None;
    let mut names = Vec::new();
    for part in &parts {
        let mut words = part.split_whitespace();
        let Some(name) = words.next() else { continue };
        if ["PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "CONSTRAINT"]
            .iter()
            .any(|word| name.eq_ignore_ascii_case(word))
        {
            continue;
        }
        let upper = part.to_ascii_uppercase();
        if upper.contains("INTEGER") && upper.contains("PRIMARY KEY") {
            row_number = Some(names.len());
        }
        names.push(name.trim_matches(['"', '`', '[', ']']).to_owned());
    }
    (names, row_number)
}
