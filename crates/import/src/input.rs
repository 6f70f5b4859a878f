//! Files, folders and archives as a list of recordings in natural order of their names.
//!
//! A folder stands for its files, a `.tar` (compressed or not) for its members. Anything may be compressed by gzip. Memory
//! is bounded by what is really there: no announced length is believed before the bytes have come. Members of an archive that is
//! not compressed are read where they lie.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::error::{ImportError, Place};

/// One recording.
#[derive(Clone, Debug)]
pub struct Input {
    /// Its path, or `archive:member`.
    pub name: String,
    content: Content,
}

/// How a file that gzip made begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];

#[derive(Clone, Debug)]
enum Content {
    File(PathBuf),
    /// A part of a file, from a byte on and so long: a member of an archive that is not compressed.
    Part(PathBuf, u64, u64),
    Bytes(std::sync::Arc<[u8]>),
}

/// Longest file that is taken whole into memory, by readers that need all of it.
const WHOLE: u64 = 4 << 30;

/// How a recording can be read at any place.
pub(crate) enum Kept<'a> {
    /// A file from a byte on.
    File(&'a Path, u64),
    Bytes(&'a [u8]),
    /// It has to be unpacked first.
    Packed,
}

impl Input {
    /// Bytes in memory under a name, for tests and for archives.
    pub fn bytes(name: impl Into<String>, bytes: impl Into<std::sync::Arc<[u8]>>) -> Self {
        Self { name: name.into(), content: Content::Bytes(bytes.into()) }
    }

    /// Its bytes, unpacked.
    ///
    /// # Errors
    /// [`ImportError`] where the file cannot be opened.
    pub fn open(&self) -> Result<Box<dyn Read + Send + '_>, ImportError> {
        let mut raw = self.raw()?;
        let head = head(&mut raw, 6, &self.name)?;
        refuse_packing(&head, &self.name)?;
        let gzip = head.starts_with(&GZIP);
        let whole = std::io::Cursor::new(head).chain(raw);
        Ok(if gzip {
            Box::new(BufReader::with_capacity(1 << 18, MultiGzDecoder::new(whole)))
        } else {
            Box::new(whole)
        })
    }

    /// Its bytes as they lie there.
    fn raw(&self) -> Result<Box<dyn Read + Send + '_>, ImportError> {
        Ok(match &self.content {
            Content::File(path) => {
                let file = File::open(path).map_err(|error| ImportError::io(&self.name, 0, &error))?;
                Box::new(BufReader::with_capacity(1 << 18, file))
            }
            Content::Part(path, first, length) => {
                let fail = |error: std::io::Error| ImportError::io(&self.name, 0, &error);
                let mut file = File::open(path).map_err(fail)?;
                file.seek(SeekFrom::Start(*first)).map_err(fail)?;
                Box::new(BufReader::with_capacity(1 << 18, file.take(*length)))
            }
            Content::Bytes(bytes) => Box::new(&bytes[..]),
        })
    }

    /// Its first bytes, unpacked, at most `most`.
    ///
    /// # Errors
    /// [`ImportError`] where the file cannot be read.
    pub fn head(&self, most: usize) -> Result<Vec<u8>, ImportError> {
        head(&mut self.open()?, most, &self.name)
    }

    /// Where it is, and its bytes, for those who do not read it from its begin to its end.
    ///
    /// # Errors
    /// [`ImportError`] where the file cannot be read.
    pub(crate) fn kept(&self) -> Result<(Kept<'_>, u64), ImportError> {
        let (path, first, length) = match &self.content {
            Content::Bytes(bytes) => {
                let packed = bytes.starts_with(&GZIP);
                return Ok((if packed { Kept::Packed } else { Kept::Bytes(bytes) }, bytes.len() as u64));
            }
            Content::Part(path, first, length) => (path, *first, Some(*length)),
            // Of a pipe nothing is there twice.
            Content::File(path) => {
                let known = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
                (path, 0, known.map(|of| of.len()))
            }
        };
        let Some(length) = length else { return Ok((Kept::Packed, 0)) };
        let head = head(&mut self.raw()?, 6, &self.name)?;
        refuse_packing(&head, &self.name)?;
        Ok((if head.starts_with(&GZIP) { Kept::Packed } else { Kept::File(path, first) }, length))
    }

    /// All of it, for kinds whose parts refer to each other all over the file.
    ///
    /// # Errors
    /// [`ImportError`] where the file cannot be read, or has more than 4 GiB.
    pub fn whole(&self) -> Result<Vec<u8>, ImportError> {
        let long = |found: String| {
            ImportError::new(&self.name, "at most 4 GiB of a recording that is read whole", found).hint(
                "record fewer steps, or give each rank a file of its own; plain files of the kinds kineto, nccl-profiler, nsys, inspector, \
                 storage, liballprof and simgrid may be of any length",
            )
        };
        // One that is too long as it lies there is not read first.
        if let (Kept::File(..), length) = self.kept()?
            && length > WHOLE
        {
            return Err(long(format!("{length} bytes")));
        }
        let mut bytes = Vec::new();
        let read = self.open()?.take(WHOLE + 1).read_to_end(&mut bytes);
        read.map_err(|error| ImportError::io(&self.name, bytes.len() as u64, &error))?;
        if bytes.len() as u64 > WHOLE {
            return Err(long("more, unpacked".to_owned()));
        }
        Ok(bytes)
    }

    /// Its name without the one of the source that it belongs to.
    pub fn leaf_of(&self, sources: &[PathBuf]) -> &str {
        let whole = sources.iter().filter_map(|source| self.name.strip_prefix(&*source.to_string_lossy()));
        whole.min_by_key(|rest| rest.len()).filter(|rest| !rest.is_empty()).unwrap_or_else(|| self.leaf())
    }

    /// The last part of its name, without the folder or archive.
    pub fn leaf(&self) -> &str {
        self.name.rsplit(['/', ':']).next().unwrap_or(&self.name)
    }
}

fn head(input: &mut dyn Read, most: usize, name: &str) -> Result<Vec<u8>, ImportError> {
    let mut head = Vec::with_capacity(most.min(1 << 16));
    let read = input.take(most as u64).read_to_end(&mut head);
    read.map_err(|error| ImportError::io(name, head.len() as u64, &error))?;
    Ok(head)
}

fn refuse_packing(head: &[u8], name: &str) -> Result<(), ImportError> {
    let packing = match head {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "xz",
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => "bzip2",
        [b'P', b'K', 3, 4, ..] => "a zip archive",
        _ => return Ok(()),
    };
    Err(ImportError::new(name, "a plain file, or one compressed by gzip", packing).hint("unpack it first"))
}

/// The recordings that `sources` name.
///
/// # Errors
/// [`ImportError`] where a path cannot be read, or there is no file.
pub fn expand(sources: &[PathBuf]) -> Result<Vec<Input>, ImportError> {
    let mut inputs = Vec::new();
    for source in sources {
        add(source, &mut inputs)?;
    }
    if inputs.is_empty() {
        let names: Vec<String> = sources.iter().map(|path| path.display().to_string()).collect();
        return Err(ImportError::new(names.join(", "), "at least one recording", "no file"));
    }
    Ok(inputs)
}

fn add(path: &Path, inputs: &mut Vec<Input>) -> Result<(), ImportError> {
    let name = path.display().to_string();
    let fail = |error: std::io::Error| ImportError::io(&name, 0, &error);
    if path.is_dir() {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path).map_err(fail)? {
            let entry = entry.map_err(fail)?.path();
            let hidden = entry.file_name().is_some_and(|leaf| leaf.to_string_lossy().starts_with('.'));
            if !hidden {
                entries.push(entry);
            }
        }
        entries.sort_by_key(|entry| natural(&entry.display().to_string()));
        return entries.iter().try_for_each(|entry| add(entry, inputs));
    }
    let input = Input { name: name.clone(), content: Content::File(path.to_owned()) };
    let is_tar = input.head(512)?.get(257..262) == Some(b"ustar");
    if is_tar {
        let mut members = members(&input)?;
        members.sort_by_key(|member| natural(&member.name));
        inputs.append(&mut members);
    } else {
        inputs.push(input);
    }
    Ok(())
}

/// A name with its numbers as numbers, so that `rank10` comes behind `rank9`.
pub(crate) fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(text);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (number, after) = after.split_at(digits);
        parts.push((word.to_owned(), number.parse().unwrap_or(u64::MAX)));
        rest = after;
    }
    parts
}

/// The files of a tar archive (POSIX.1-1988 `ustar` headers of 512 bytes; pax and GNU long names are followed).
fn members(archive: &Input) -> Result<Vec<Input>, ImportError> {
    let mut input = archive.open()?;
    // Members of an archive that is not compressed stay where they are.
    let place = match (&archive.content, archive.kept()?) {
        (Content::File(path), (Kept::File(..), _)) => Some(path),
        _ => None,
    };
    let mut at = 0u64;
    let mut long_name: Option<String> = None;
    let mut members = Vec::new();
    loop {
        let header = take(&mut *input, 512, &archive.name, at)?;
        if header.len() < 512 || header.iter().all(|&byte| byte == 0) {
            return Ok(members);
        }
        at += 512;
        let text = |range: std::ops::Range<usize>| {
            let field = &header[range];
            let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
            String::from_utf8_lossy(&field[..end]).trim().to_owned()
        };
        let size = u64::from_str_radix(&text(124..136), 8).map_err(|_| {
            ImportError::new(&archive.name, "the size of an archive's member in octal digits", text(124..136))
                .at(Place::Byte(at - 512 + 124))
        })?;
        let stays = place.filter(|_| matches!(header[156], 0 | b'0'));
        let (bytes, came) = if stays.is_some() {
            let passed = std::io::copy(&mut (&mut input).take(size), &mut std::io::sink());
            (Vec::new(), passed.map_err(|error| ImportError::io(&archive.name, at, &error))?)
        } else {
            let bytes = take(&mut *input, size, &archive.name, at)?;
            let came = bytes.len() as u64;
            (bytes, came)
        };
        if came < size {
            return Err(ImportError::cut(&archive.name, at + came, format!("{size} bytes of a member")));
        }
        let first = at;
        let padding = (512 - size % 512) % 512;
        take(&mut *input, padding, &archive.name, at + size)?;
        at += size + padding;
        match header[156] {
            b'L' => {
                let name = String::from_utf8_lossy(&bytes);
                long_name = Some(name.trim_end_matches('\0').to_owned());
            }
            b'x' => {
                let pax = String::from_utf8_lossy(&bytes);
                long_name = pax.lines().find_map(|line| Some(line.split_once(" path=")?.1.to_owned()));
            }
            0 | b'0' => {
                let prefix = text(345..500);
                let short =
                    if prefix.is_empty() { text(0..100) } else { format!("{prefix}/{}", text(0..100)) };
                let name = long_name.take().unwrap_or(short);
                let hidden = name.rsplit('/').next().is_some_and(|leaf| leaf.starts_with('.'));
                if !hidden {
                    let name = format!("{}:{name}", archive.name);
                    members.push(match stays {
                        Some(path) => Input { name, content: Content::Part(path.clone(), first, size) },
                        None => Input::bytes(name, bytes),
                    });
                }
            }
            _ => long_name = None,
        }
    }
}

fn take(input: &mut dyn Read, most: u64, name: &str, at: u64) -> Result<Vec<u8>, ImportError> {
    let mut bytes = Vec::new();
    let read = input.take(most).read_to_end(&mut bytes);
    read.map_err(|error| ImportError::io(name, at + bytes.len() as u64, &error))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_long_to_be_read_whole_is_refused_before_it_is_read() {
        let path = std::env::temp_dir().join(format!("windtunnel-long-{}", std::process::id()));
        File::create(&path).unwrap().set_len(WHOLE + 1).unwrap();
        let input = Input { name: "long".to_owned(), content: Content::File(path.clone()) };
        let error = input.whole().unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error.found, "4294967297 bytes");
        assert!(error.hint.unwrap().contains("may be of any length"));
    }
}
