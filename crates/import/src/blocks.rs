//! A recording read at any place: blocks as they are asked for, of which a bounded number stays in memory.
//!
//! A block has its one slot among [`SLOTS`], so what is kept is a function of what was asked for alone. A file that is compressed is
//! unpacked whole.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::rc::Rc;

use crate::error::ImportError;
use crate::input::{Input, Kept};

/// Bytes of a block: the largest page of SQLite, so that a page lies in one block.
pub(crate) const BLOCK: u64 = 1 << 16;
/// 16 MiB of blocks.
const SLOTS: usize = 256;

enum Source<'a> {
    /// From a byte on.
    File(File, u64),
    Bytes(&'a [u8]),
    Unpacked(Vec<u8>),
}

/// A block, with its number.
type Slot = Option<(u64, Rc<[u8]>)>;

/// A recording.
pub(crate) struct Blocks<'a> {
    name: &'a str,
    source: Source<'a>,
    length: u64,
    slots: RefCell<Vec<Slot>>,
}

impl<'a> Blocks<'a> {
    /// Opens a recording.
    ///
    /// # Errors
    /// [`ImportError`] where it cannot be opened, or is compressed and more than 4 GiB.
    pub(crate) fn of(input: &'a Input) -> Result<Self, ImportError> {
        let fail = |error: std::io::Error| ImportError::io(&input.name, 0, &error);
        let (kept, mut length) = input.kept()?;
        let source = match kept {
            Kept::Packed => {
                let bytes = input.whole()?;
                length = bytes.len() as u64;
                Source::Unpacked(bytes)
            }
            Kept::Bytes(bytes) => Source::Bytes(bytes),
            Kept::File(path, first) => Source::File(File::open(path).map_err(fail)?, first),
        };
        Ok(Self { name: &input.name, source, length, slots: RefCell::new(vec![None; SLOTS]) })
    }

    /// Bytes of the recording.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// `length` bytes from `start` on, which lie in one block; `None` where the recording ends before.
    ///
    /// # Errors
    /// [`ImportError`] where the file cannot be read.
    pub(crate) fn part(&self, start: u64, length: u64) -> Result<Option<Part>, ImportError> {
        if start.checked_add(length).is_none_or(|end| end > self.length) {
            return Ok(None);
        }
        let block = self.block(start / BLOCK)?;
        let first = (start % BLOCK) as usize;
        let inside = first + length as usize <= block.len();
        Ok(inside.then_some(Part { block, first, length: length as usize }))
    }

    fn block(&self, number: u64) -> Result<Rc<[u8]>, ImportError> {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[number as usize % SLOTS];
        if let Some((_, known)) = slot.as_ref().filter(|(known, _)| *known == number) {
            return Ok(Rc::clone(known));
        }
        let start = number * BLOCK;
        let end = (start + BLOCK).min(self.length);
        let block: Rc<[u8]> = match &self.source {
            Source::Bytes(bytes) => bytes[start as usize..end as usize].into(),
            Source::Unpacked(bytes) => bytes[start as usize..end as usize].into(),
            Source::File(file, first) => {
                let mut file = file;
                let mut bytes = vec![0; (end - start) as usize];
                let read =
                    file.seek(SeekFrom::Start(first + start)).and_then(|_| file.read_exact(&mut bytes));
                read.map_err(|error| ImportError::io(self.name, start, &error))?;
                bytes.into()
            }
        };
        *slot = Some((number, Rc::clone(&block)));
        Ok(block)
    }
}

/// A part of a block, which stays while it is looked at.
pub(crate) struct Part {
    block: Rc<[u8]>,
    first: usize,
    length: usize,
}

impl std::ops::Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.block[self.first..self.first + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 40 MB: more than stays in memory.
    fn content() -> Vec<u8> {
        (0..40_000_003u64).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    fn check(input: &Input, content: &[u8]) {
        let blocks = Blocks::of(input).unwrap();
        assert_eq!(blocks.length(), content.len() as u64);
        // Near and far, there and back: slots are used again.
        for start in (0..9_000u64).map(|turn| turn * 7_777_777_777 % (content.len() as u64 / 512) * 512) {
            let part = blocks.part(start, 512).unwrap();
            assert_eq!(part.as_deref(), content.get(start as usize..start as usize + 512), "{start}");
        }
        let end = content.len() as u64;
        assert_eq!(&*blocks.part(end - 3, 3).unwrap().unwrap(), &content[content.len() - 3..]);
        for (start, length) in [(end - 3, 4), (end, 1), (u64::MAX, 2), (BLOCK - 1, 2)] {
            assert!(blocks.part(start, length).unwrap().is_none(), "{start}");
        }
        let kept: usize = blocks.slots.borrow().iter().flatten().map(|(_, block)| block.len()).sum();
        assert!(kept <= SLOTS * BLOCK as usize);
    }

    #[test]
    fn parts_are_those_of_the_file_wherever_it_is_kept() {
        let content = content();
        check(&Input::bytes("t", content.clone()), &content);
        let folder = std::env::temp_dir().join(format!("windtunnel-blocks-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let plain = folder.join("plain");
        std::fs::write(&plain, &content).unwrap();
        let packed = folder.join("packed.gz");
        let file = File::create(&packed).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &content).unwrap();
        encoder.finish().unwrap();
        // An archive of one member, whose head is as long as a block of tar.
        let archive = folder.join("archive.tar");
        let mut head = [0; 512];
        head[..6].copy_from_slice(b"member");
        head[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        head[156] = b'0';
        head[257..262].copy_from_slice(b"ustar");
        let padding = vec![0; 512 - content.len() % 512 + 1_024];
        std::fs::write(&archive, [&head[..], &content, &padding].concat()).unwrap();
        let inputs = crate::input::expand(&[plain, packed, archive]).unwrap();
        assert_eq!(inputs.len(), 3);
        for input in inputs {
            check(&input, &content);
            assert!(input.whole().unwrap() == content, "{}", input.name);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
