//! The file of a journal: parts one after the other, each with its length, its check and its kind.

use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::Kind;

/// What a file begins with: the format's name and number.
const MAGIC: &[u8; 24] = b"windtunnel journal  1.0\n";

/// Bytes before those of a part: its length, its check, its kind.
const HEAD: usize = 8 + 4 + 1;

/// The file, read as far as it goes and then written.
#[derive(Debug)]
pub(super) struct File {
    reader: BufReader<fs::File>,
    writer: BufWriter<fs::File>,
    /// Bytes that are left to be taken.
    left: u64,
    /// Episodes that were answered when it was opened.
    episodes: u64,
    /// Why nothing is written any more, and whether that was told.
    trouble: Option<(String, bool)>,
}

impl File {
    /// An empty file at `path`; `None` if another process holds it.
    pub(super) fn create(path: &Path) -> io::Result<Option<Self>> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if !lock(&file)? {
            return Ok(None);
        }
        file.set_len(0)?;
        let mut file = Self::of(file, 0)?;
        file.writer.write_all(MAGIC)?;
        Ok(Some(file))
    }

    /// The file at `path`, without what was torn at its end; `None` if another process holds it.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if !lock(&file)? {
            return Ok(None);
        }
        let (whole, episodes) = whole(&file)?;
        file.set_len(whole.max(MAGIC.len() as u64))?;
        let mut file = Self::of(file, whole)?;
        file.reader.seek(SeekFrom::Start(MAGIC.len() as u64))?;
        file.left = whole.saturating_sub(MAGIC.len() as u64);
        file.episodes = episodes;
        Ok(Some(file))
    }

    fn of(file: fs::File, at: u64) -> io::Result<Self> {
        let reader = BufReader::new(file.try_clone()?);
        // Both have one place in the file: it is read to its end before anything is written.
        let mut writer = BufWriter::new(file);
        writer.seek(SeekFrom::Start(at))?;
        Ok(Self { reader, writer, left: 0, episodes: 0, trouble: None })
    }

    /// Episodes that were answered when it was opened.
    pub(super) const fn episodes(&self) -> u64 {
        self.episodes
    }

    /// The next part that was there; `None` once there are no more.
    pub(super) fn take(&mut self) -> Option<(Kind, Vec<u8>)> {
        if self.left == 0 {
            return None;
        }
        // It was checked when the file was opened.
        let part = part(&mut self.reader, self.left).ok().flatten()?;
        self.left -= (HEAD + part.1.len()) as u64;
        if self.left == 0 {
            let end = self.reader.stream_position().and_then(|end| self.writer.seek(SeekFrom::Start(end)));
            self.trouble = end.err().map(|error| (error.to_string(), false));
        }
        Some(part)
    }

    /// Adds a part; one that concludes others is handed to the system at once.
    pub(super) fn put(&mut self, kind: Kind, bytes: &[u8]) {
        if self.trouble.is_some() {
            return;
        }
        let written = self.written(kind, bytes);
        self.trouble = written.err().map(|error| (error.to_string(), false));
    }

    fn written(&mut self, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(&(bytes.len() as u64).to_le_bytes())?;
        self.writer.write_all(&check(kind as u8, bytes).to_le_bytes())?;
        self.writer.write_all(&[kind as u8])?;
        self.writer.write_all(bytes)?;
        if kind.concludes() { self.writer.flush() } else { Ok(()) }
    }

    /// Why nothing is written any more; once.
    pub(super) fn trouble(&mut self) -> Option<String> {
        let (why, told) = self.trouble.as_mut()?;
        (!std::mem::replace(told, true)).then(|| why.clone())
    }
}

/// Takes the lock of a file; `false` if another process has it.
fn lock(file: &fs::File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        // A file system without locks: two runs of one name are the user's to keep apart.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn check(kind: u8, bytes: &[u8]) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    hash.update(&[kind]);
    hash.update(bytes);
    hash.finalize()
}

/// Bytes from the file's begin to the end of the last part that concludes others, with nothing torn before it, and the episodes
/// answered in them; 0 if it is no journal.
fn whole(file: &fs::File) -> io::Result<(u64, u64)> {
    let length = file.metadata()?.len();
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(0))?;
    let mut magic = [0; MAGIC.len()];
    if length < magic.len() as u64 {
        return Ok((0, 0));
    }
    reader.read_exact(&mut magic)?;
    if magic != *MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no journal of this version"));
    }
    let mut at = magic.len() as u64;
    let (mut whole, mut episodes) = (at, 0);
    while let Some((kind, bytes)) = part(&mut reader, length - at)? {
        at += (HEAD + bytes.len()) as u64;
        if kind.concludes() {
            whole = at;
        }
        episodes += u64::from(kind == Kind::Episode);
    }
    Ok((whole, episodes))
}

/// The next part, of which there are `left` bytes at most with all that follow; `None` if it is torn or something else.
fn part(reader: &mut impl Read, left: u64) -> io::Result<Option<(Kind, Vec<u8>)>> {
    let mut head = [0; HEAD];
    if left < HEAD as u64 {
        return Ok(None);
    }
    reader.read_exact(&mut head)?;
    let (length, rest) = head.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("eight bytes"));
    let (checked, kind) = rest.split_at(4);
    if length > left - HEAD as u64 {
        return Ok(None);
    }
    let mut bytes = vec![0; length as usize];
    reader.read_exact(&mut bytes)?;
    let sound = check(kind[0], &bytes).to_le_bytes() == *checked;
    Ok(Kind::of(kind[0]).filter(|_| sound).map(|kind| (kind, bytes)))
}
