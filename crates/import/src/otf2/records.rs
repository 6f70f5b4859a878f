//! The bytes of OTF2's files: chunks, records, compressed numbers, definitions.
//!
//! A chunk is a byte 3, one that says the order of bytes, two counts of 8 bytes, and records; the end of a chunk is 2 (the next begins
//! at a multiple of the chunk's size), that of a file 1. A record is its type, its length (one byte, or 255 and eight) and its fields; a
//! time stamp (5) in files of events has no length, nor have events of one number. Numbers are a count of bytes and as many bytes, the
//! lowest first; 255 stands for a number that is not defined.

use std::collections::BTreeMap;

use crate::bytes::Bytes;
use crate::error::ImportError;

/// A record: its type, its instant in ticks, its fields.
pub(super) struct Record<'a> {
    pub kind: u8,
    pub ticks: u64,
    pub fields: Bytes<'a>,
}

const LITTLE_ENDIAN: u8 = 0x42;
const CHUNK_HEADER: u8 = 3;
const TIME_STAMP: u8 = 5;
/// Events of one number, which have no length: entering and leaving a region, and what happens to a request.
const OF_ONE_NUMBER: [u8; 6] = [12, 13, 16, 17, 20, 21];

/// A number; `None` where it is not defined.
pub(super) fn number(bytes: &mut Bytes<'_>) -> Result<Option<u64>, ImportError> {
    let size = bytes.u8()?;
    if size == 0xff {
        return Ok(None);
    }
    if size > 8 {
        return Err(bytes.fault("a number of at most 8 bytes", format!("one of {size}")));
    }
    let mut value = 0u64;
    for (at, byte) in bytes.take(u64::from(size))?.iter().enumerate() {
        value |= u64::from(*byte) << (8 * at);
    }
    Ok(Some(value))
}

/// The same where a missing one is nobody.
pub(super) fn id(bytes: &mut Bytes<'_>) -> Result<u64, ImportError> {
    Ok(number(bytes)?.unwrap_or(u64::MAX))
}

/// Goes through a file in chunks of `chunk` bytes. `events`: time stamps, and regions without lengths.
pub(super) fn each(
    file: &str,
    all: &[u8],
    chunk: u64,
    events: bool,
    mut visit: impl FnMut(Record<'_>) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    let mut bytes = Bytes::new(file, all);
    let mut ticks = 0;
    let mut begin = 0u64;
    chunk_header(&mut bytes)?;
    loop {
        if bytes.is_empty() {
            return Err(ImportError::cut(file, bytes.place(), "the end mark of an OTF2 file"));
        }
        let kind = bytes.u8()?;
        match kind {
            1 => return Ok(()),
            0 | 2 => {
                if kind == 2 && all.get(bytes.place() as usize) == Some(&1) {
                    return Ok(());
                }
                begin = begin.saturating_add(chunk);
                if begin >= all.len() as u64 || begin < bytes.place() {
                    let expected = "another chunk, or the end mark of an OTF2 file";
                    return Err(ImportError::cut(file, bytes.place(), expected));
                }
                bytes.seek(begin)?;
                chunk_header(&mut bytes)?;
            }
            TIME_STAMP if events => ticks = u64::from_le_bytes(bytes.array()?),
            _ if events && OF_ONE_NUMBER.contains(&kind) => {
                let before = bytes;
                let _number = id(&mut bytes)?;
                visit(Record { kind, ticks, fields: before })?;
            }
            _ => {
                let length = match bytes.u8()? {
                    0xff => u64::from_le_bytes(bytes.array()?),
                    length => u64::from(length),
                };
                visit(Record { kind, ticks, fields: Bytes::new(file, bytes.take(length)?) })?;
            }
        }
    }
}

fn chunk_header(bytes: &mut Bytes<'_>) -> Result<(), ImportError> {
    let (mark, order) = (bytes.u8()?, bytes.u8()?);
    if mark != CHUNK_HEADER {
        return Err(bytes.fault("the head of a chunk (3)", mark.to_string()));
    }
    if order != LITTLE_ENDIAN {
        return Err(bytes
            .fault("numbers with their lowest byte first (0x42)", format!("{order:#04x}"))
            .hint("`otf2-rewrite` on a machine of today writes it so"));
    }
    bytes.take(16)?;
    Ok(())
}

/// What the anchor file says.
#[derive(Clone, Copy)]
pub(super) struct Anchor {
    pub event_chunk: u64,
    pub definition_chunk: u64,
}

/// Reads `traces.otf2`.
pub(super) fn anchor(file: &str, all: &[u8]) -> Result<Anchor, ImportError> {
    let mut bytes = Bytes::new(file, all);
    let head = bytes.array::<7>()?;
    if head != *b"\x03BOTF2\0" {
        return Err(bytes.fault("the head of an OTF2 anchor file", "something else"));
    }
    let [major, minor, _, _, _] = bytes.array::<5>()?;
    if !(1..=3).contains(&major) {
        return Err(bytes.fault("OTF2 of version 1 to 3", format!("version {major}.{minor}")));
    }
    let (event_chunk, definition_chunk) =
        (u64::from_le_bytes(bytes.array()?), u64::from_le_bytes(bytes.array()?));
    if event_chunk < 64 || definition_chunk < 64 {
        return Err(bytes
            .fault("sizes of chunks of at least 64 bytes", event_chunk.min(definition_chunk).to_string()));
    }
    Ok(Anchor { event_chunk, definition_chunk })
}

/// What the global definitions say.
#[derive(Default)]
pub(super) struct Definitions {
    /// Ticks a second.
    pub resolution: u64,
    pub strings: BTreeMap<u64, String>,
    /// Name of a region: a string's number.
    pub regions: BTreeMap<u64, u64>,
    /// Type, paradigm and members of a group.
    pub groups: BTreeMap<u64, (u8, u8, Vec<u64>)>,
    /// Group of a communicator.
    pub communicators: BTreeMap<u64, u64>,
}

impl Definitions {
    /// Reads `traces.def`.
    pub(super) fn read(file: &str, all: &[u8], chunk: u64) -> Result<Self, ImportError> {
        let mut found = Self::default();
        each(file, all, chunk, false, |mut record| {
            let fields = &mut record.fields;
            match record.kind {
                5 => found.resolution = id(fields)?,
                10 => {
                    let key = id(fields)?;
                    let mut text = Vec::new();
                    while !fields.is_empty() {
                        match fields.u8()? {
                            0 => break,
                            letter => text.push(letter),
                        }
                    }
                    found.strings.insert(key, String::from_utf8_lossy(&text).into_owned());
                }
                15 => {
                    let (key, name) = (id(fields)?, id(fields)?);
                    found.regions.insert(key, name);
                }
                18 => {
                    let (key, _name, _old) = (id(fields)?, id(fields)?, fields.u8()?);
                    let count = id(fields)?;
                    let mut members = Vec::new();
                    for _ in 0..count {
                        members.push(id(fields)?);
                    }
                    found.groups.insert(key, (fields.u8()?, fields.u8()?, members));
                }
                22 => {
                    let (key, _name, group) = (id(fields)?, id(fields)?, id(fields)?);
                    found.communicators.insert(key, group);
                }
                _ => {}
            }
            Ok(())
        })?;
        if found.resolution == 0 || found.resolution > 1_000_000_000_000 {
            let seen = found.resolution.to_string();
            return Err(ImportError::new(file, "a clock of 1 to 10^12 ticks a second", seen));
        }
        Ok(found)
    }

    pub(super) fn region(&self, key: u64) -> &str {
        self.regions.get(&key).and_then(|name| self.strings.get(name)).map_or("", |name| name)
    }
}

/// What a location's own definitions say: the global number of its communicators, and the first offset of its clock in ticks.
pub(super) fn local(file: &str, all: &[u8], chunk: u64) -> Result<(BTreeMap<u64, u64>, i64), ImportError> {
    const COMMUNICATORS: u8 = 6;
    let (mut numbers, mut offset) = (BTreeMap::new(), None);
    each(file, all, chunk, false, |mut record| {
        let fields = &mut record.fields;
        match record.kind {
            5 if fields.u8()? == COMMUNICATORS => {
                let (count, pairs) = (id(fields)?, fields.u8()? != 0);
                for at in 0..count {
                    let key = if pairs { id(fields)? } else { at };
                    numbers.insert(key, id(fields)?);
                }
            }
            6 => {
                let _time = u64::from_le_bytes(fields.array()?);
                offset.get_or_insert(id(fields)? as i64);
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok((numbers, offset.unwrap_or(0)))
}
