//! One Parquet file: groups of rows as they come, and a footer that says where they are.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::encode::{bits, hybrid, text};
use crate::gathered::{Gathered, NULL, Texts};
use crate::thrift::Writer;

const MAGIC: &[u8; 4] = b"PAR1";

/// Rows of a page, at most.
const PAGE_ROWS: usize = 1 << 16;

/// Values of lists in a page, from which on it takes no further row.
const PAGE_VALUES: usize = 1 << 17;

/// Of Zstandard, fast: the next levels cost twice the time for some hundredths of the size.
const LEVEL: i32 = 1;

// Numbers of `parquet.thrift`.
const INT32: i32 = 1;
const INT64: i32 = 2;
const DOUBLE: i32 = 5;
const BYTE_ARRAY: i32 = 6;
const OPTIONAL: i32 = 1;
const REPEATED: i32 = 2;
const PLAIN: i32 = 0;
const RLE: i32 = 3;
const RLE_DICTIONARY: i32 = 8;
const ZSTD: i32 = 6;
const UTF8: i32 = 0;
const LIST: i32 = 3;
const UINT_32: i32 = 13;
const UINT_64: i32 = 14;
const DATA_PAGE: i32 = 0;
const DICTIONARY_PAGE: i32 = 2;

/// Where the values of a column of a group are, and what is known of them.
struct Chunk {
    begin: u64,
    dictionary: bool,
    first_page: u64,
    values: u64,
    plain_bytes: u64,
    bytes: u64,
    nulls: u64,
    /// Least and largest, as plain values.
    bounds: Option<(Vec<u8>, Vec<u8>)>,
}

struct Group {
    rows: u64,
    chunks: Vec<Chunk>,
}

/// A file under way.
pub(crate) struct PartFile {
    file: BufWriter<File>,
    at: u64,
    rows: u64,
    groups: Vec<Group>,
    compressor: zstd::bulk::Compressor<'static>,
}

impl PartFile {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 16, File::create(path)?);
        file.write_all(MAGIC)?;
        let compressor = zstd::bulk::Compressor::new(LEVEL)?;
        Ok(Self { file, at: MAGIC.len() as u64, rows: 0, groups: Vec::new(), compressor })
    }

    /// Rows of the groups that are in the file.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Writes a group of `rows` rows.
    pub(crate) fn group(&mut self, rows: usize, columns: &[(String, Gathered)]) -> io::Result<()> {
        let chunks = columns.iter().map(|(_, column)| self.chunk(rows, column)).collect::<io::Result<_>>()?;
        self.groups.push(Group { rows: rows as u64, chunks });
        self.rows += rows as u64;
        Ok(())
    }

    /// Writes the footer.
    pub(crate) fn finish(mut self, columns: &[(String, Gathered)]) -> io::Result<()> {
        let footer = footer(self.rows, columns, &self.groups);
        self.file.write_all(&footer)?;
        self.file.write_all(&(footer.len() as u32).to_le_bytes())?;
        self.file.write_all(MAGIC)?;
        self.file.flush()
    }

    fn chunk(&mut self, rows: usize, column: &Gathered) -> io::Result<Chunk> {
        let mut chunk = Chunk {
            begin: self.at,
            dictionary: false,
            first_page: self.at,
            values: 0,
            plain_bytes: 0,
            bytes: 0,
            nulls: 0,
            bounds: bounds(column),
        };
        if let Gathered::Text(texts) = column
            && has_dictionary(texts)
        {
            let mut names = Vec::new();
            texts.names.iter().for_each(|name| text(name, &mut names));
            let count = texts.names.len() as i32;
            self.page(&mut chunk, DICTIONARY_PAGE, &names, |header| {
                header.inner(7, |header| {
                    header.i32(1, count);
                    header.i32(2, PLAIN);
                });
            })?;
            chunk.dictionary = true;
            chunk.first_page = self.at;
        }
        let (mut from, mut value) = (0, 0);
        while from < rows {
            let to = page_end(column, from, rows);
            let page = Page::of(column, from, to, &mut value, chunk.dictionary);
            chunk.values += page.values as u64;
            chunk.nulls += page.nulls as u64;
            self.page(&mut chunk, DATA_PAGE, &page.bytes, |header| {
                header.inner(5, |header| {
                    header.i32(1, page.values as i32);
                    header.i32(2, if page.coded { RLE_DICTIONARY } else { PLAIN });
                    header.i32(3, RLE);
                    header.i32(4, RLE);
                });
            })?;
            from = to;
        }
        Ok(chunk)
    }

    fn page(
        &mut self,
        chunk: &mut Chunk,
        kind: i32,
        bytes: &[u8],
        special: impl FnOnce(&mut Writer),
    ) -> io::Result<()> {
        let compressed = self.compressor.compress(bytes)?;
        let mut header = Writer::default();
        header.i32(1, kind);
        header.i32(2, bytes.len() as i32);
        header.i32(3, compressed.len() as i32);
        special(&mut header);
        let header = header.end();
        self.file.write_all(&header)?;
        self.file.write_all(&compressed)?;
        let written = (header.len() + compressed.len()) as u64;
        self.at += written;
        chunk.bytes += written;
        chunk.plain_bytes += (header.len() + bytes.len()) as u64;
        Ok(())
    }
}

/// Whether texts are written once each: where they are not nearly all different.
fn has_dictionary(texts: &Texts) -> bool {
    !texts.names.is_empty() && texts.names.len() * 2 <= texts.codes.len()
}

fn page_end(column: &Gathered, from: usize, rows: usize) -> usize {
    let most = rows.min(from + PAGE_ROWS);
    let Gathered::List { lengths, .. } = column else { return most };
    let mut values = 0;
    for (row, &length) in lengths[from..most].iter().enumerate() {
        values += length as usize;
        if values >= PAGE_VALUES {
            return from + row + 1;
        }
    }
    most
}

/// A page's levels and values, before compression.
struct Page {
    bytes: Vec<u8>,
    values: usize,
    nulls: usize,
    /// Whether values are indices of a dictionary.
    coded: bool,
}

impl Page {
    /// Rows `from` to `to`; of lists, `value` counts the values before them.
    fn of(column: &Gathered, from: usize, to: usize, value: &mut usize, coded: bool) -> Self {
        let mut page = Self { bytes: Vec::new(), values: to - from, nulls: 0, coded };
        match column {
            Gathered::U32(values) => {
                page.definitions(to - from, |_| true);
                page.bytes.extend(values[from..to].iter().flat_map(|value| value.to_le_bytes()));
            }
            Gathered::U64 { values, known } if known.is_empty() => {
                page.definitions(to - from, |_| true);
                page.bytes.extend(values[from..to].iter().flat_map(|value| value.to_le_bytes()));
            }
            Gathered::U64 { values, known } => {
                page.definitions(to - from, |row| known[from + row]);
                let rows = values[from..to].iter().zip(&known[from..to]).filter(|(_, known)| **known);
                page.bytes.extend(rows.flat_map(|(value, _)| value.to_le_bytes()));
            }
            Gathered::F64(values) => {
                page.definitions(to - from, |row| !values[from + row].is_nan());
                let known = values[from..to].iter().filter(|value| !value.is_nan());
                page.bytes.extend(known.flat_map(|value| value.to_le_bytes()));
            }
            Gathered::Text(texts) => {
                let codes = &texts.codes[from..to];
                page.definitions(to - from, |row| codes[row] != NULL);
                let known = codes.iter().copied().filter(|&code| code != NULL);
                if coded {
                    let width = bits(texts.names.len() as u32 - 1).max(1);
                    page.bytes.push(width as u8);
                    hybrid(&known.collect::<Vec<_>>(), width, &mut page.bytes);
                } else {
                    known.for_each(|code| text(&texts.names[code as usize], &mut page.bytes));
                }
            }
            Gathered::List { values, lengths } => page.lists(values, &lengths[from..to], value),
        }
        page
    }

    /// Levels of rows that are known or not, with their length before them.
    fn definitions(&mut self, rows: usize, known: impl Fn(usize) -> bool) {
        let levels: Vec<u32> = (0..rows).map(|row| u32::from(known(row))).collect();
        self.nulls = levels.iter().filter(|&&level| level == 0).count();
        self.levels(&levels, 1);
    }

    fn levels(&mut self, levels: &[u32], width: u32) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        hybrid(levels, width, &mut self.bytes);
        let length = (self.bytes.len() - at - 4) as u32;
        self.bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Three-level lists: 3 defines a value, 1 a list that is empty; 0 begins a row, 1 goes on with it.
    fn lists(&mut self, values: &[f64], lengths: &[u32], value: &mut usize) {
        let (mut begins, mut defined) = (Vec::new(), Vec::new());
        for &length in lengths {
            begins.push(0);
            begins.extend(std::iter::repeat_n(1, (length as usize).saturating_sub(1)));
            defined.push(if length == 0 { 1 } else { 3 });
            defined.extend(std::iter::repeat_n(3, (length as usize).saturating_sub(1)));
        }
        self.levels(&begins, 1);
        self.levels(&defined, 2);
        self.values = begins.len();
        let count: usize = lengths.iter().map(|&length| length as usize).sum();
        self.bytes.extend(values[*value..*value + count].iter().flat_map(|value| value.to_le_bytes()));
        *value += count;
    }
}

/// Least and largest value of a column of numbers, as plain bytes; readers leave groups out by them.
fn bounds(column: &Gathered) -> Option<(Vec<u8>, Vec<u8>)> {
    fn of<T: Copy, const N: usize>(
        pair: Option<(T, T)>,
        plain: fn(T) -> [u8; N],
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        pair.map(|(least, largest)| (plain(least).to_vec(), plain(largest).to_vec()))
    }
    fn ends<T: Copy + PartialOrd>(values: impl Iterator<Item = T>) -> Option<(T, T)> {
        values.fold(None, |ends, value| {
            let (least, largest) = ends.unwrap_or((value, value));
            Some((if value < least { value } else { least }, if value > largest { value } else { largest }))
        })
    }
    match column {
        Gathered::U32(values) => of(ends(values.iter().copied()), u32::to_le_bytes),
        Gathered::U64 { values, known } => {
            let known = |row: usize| known.get(row).is_none_or(|known| *known);
            of(
                ends(values.iter().enumerate().filter(|(row, _)| known(*row)).map(|(_, value)| *value)),
                u64::to_le_bytes,
            )
        }
        Gathered::F64(values) => {
            // The specification: a zero bound is the one that excludes neither zero.
            let signed = |(least, largest): (f64, f64)| {
                (if least == 0.0 { -0.0 } else { least }, if largest == 0.0 { 0.0 } else { largest })
            };
            of(ends(values.iter().copied().filter(|value| !value.is_nan())).map(signed), f64::to_le_bytes)
        }
        Gathered::Text(_) | Gathered::List { .. } => None,
    }
}

const fn physical(column: &Gathered) -> i32 {
    match column {
        Gathered::U32(_) => INT32,
        Gathered::U64 { .. } => INT64,
        Gathered::F64(_) | Gathered::List { .. } => DOUBLE,
        Gathered::Text(_) => BYTE_ARRAY,
    }
}

fn footer(rows: u64, columns: &[(String, Gathered)], groups: &[Group]) -> Vec<u8> {
    let mut meta = Writer::default();
    meta.i32(1, 2);
    let schema = schema(columns);
    meta.structs(2, &schema, |out, element| element(out));
    meta.i64(3, rows as i64);
    meta.structs(4, groups, |out, group| {
        let chunks: Vec<_> = group.chunks.iter().zip(columns).collect();
        out.structs(1, &chunks, |out, (chunk, (name, column))| {
            out.i64(2, chunk.begin as i64);
            out.inner(3, |out| chunk_meta(out, chunk, name, column));
        });
        out.i64(2, group.chunks.iter().map(|chunk| chunk.plain_bytes as i64).sum());
        out.i64(3, group.rows as i64);
    });
    meta.binary(6, concat!("windtunnel ", env!("CARGO_PKG_VERSION")).as_bytes());
    // Every column is ordered as its type is.
    meta.structs(7, columns, |out, _| out.inner(1, |_| ()));
    meta.end()
}

type Element<'a> = Box<dyn Fn(&mut Writer) + 'a>;

fn schema(columns: &[(String, Gathered)]) -> Vec<Element<'_>> {
    let mut elements: Vec<Element<'_>> = vec![Box::new(|out| {
        out.binary(4, b"root");
        out.i32(5, columns.len() as i32);
    })];
    for (name, column) in columns {
        if let Gathered::List { .. } = column {
            elements.push(Box::new(|out| {
                out.i32(3, OPTIONAL);
                out.binary(4, name.as_bytes());
                out.i32(5, 1);
                out.i32(6, LIST);
                out.inner(10, |logical| logical.inner(3, |_| ()));
            }));
            elements.push(Box::new(|out| {
                out.i32(3, REPEATED);
                out.binary(4, b"list");
                out.i32(5, 1);
            }));
        }
        elements.push(Box::new(|out| {
            out.i32(1, physical(column));
            out.i32(3, OPTIONAL);
            let list = matches!(column, Gathered::List { .. });
            out.binary(4, if list { b"element" } else { name.as_bytes() });
            let whole = |out: &mut Writer, old: i32, bits: i8| {
                out.i32(6, old);
                out.inner(10, |logical| {
                    logical.inner(10, |logical| {
                        logical.i8(1, bits);
                        logical.bool(2, false);
                    });
                });
            };
            match column {
                Gathered::U32(_) => whole(out, UINT_32, 32),
                Gathered::U64 { .. } => whole(out, UINT_64, 64),
                Gathered::Text(_) => {
                    out.i32(6, UTF8);
                    out.inner(10, |logical| logical.inner(1, |_| ()));
                }
                Gathered::F64(_) | Gathered::List { .. } => (),
            }
        }));
    }
    elements
}

fn chunk_meta(out: &mut Writer, chunk: &Chunk, name: &str, column: &Gathered) {
    out.i32(1, physical(column));
    out.i32s(2, if chunk.dictionary { &[PLAIN, RLE, RLE_DICTIONARY] } else { &[PLAIN, RLE] });
    let list = matches!(column, Gathered::List { .. });
    let path = [name, "list", "element"];
    out.texts(3, if list { &path } else { &path[..1] });
    out.i32(4, ZSTD);
    out.i64(5, chunk.values as i64);
    out.i64(6, chunk.plain_bytes as i64);
    out.i64(7, chunk.bytes as i64);
    out.i64(9, chunk.first_page as i64);
    if chunk.dictionary {
        out.i64(11, chunk.begin as i64);
    }
    if !list {
        out.inner(12, |out| {
            out.i64(3, chunk.nulls as i64);
            if let Some((least, largest)) = &chunk.bounds {
                out.binary(5, largest);
                out.binary(6, least);
            }
        });
    }
}
