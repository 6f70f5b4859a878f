//! A recording seen through a window: what has not been handed out is in memory, however long the file is.
//!
//! Life cycle: opened at the first byte, refilled by [`CHUNK`] bytes as whoever looks through it asks, until the end. Invariants:
//! `buffer[at..]` has not been handed out, and `before + at` bytes have. Who looks bounds what is kept by [`LONGEST`].

use std::io::Read;

use crate::error::ImportError;

/// Longest piece (an element, a line) that is kept: a line of a vector collective names each of a quarter of a million ranks in less.
pub(crate) const LONGEST: usize = 64 << 20;
/// Bytes that are read at once.
pub(crate) const CHUNK: usize = 1 << 18;

/// Bytes under way.
pub(crate) struct Window<'a> {
    input: Box<dyn Read + Send + 'a>,
    pub name: &'a str,
    pub buffer: Vec<u8>,
    /// What of `buffer` has not been handed out.
    pub at: usize,
    /// Bytes of the file before `buffer`.
    pub before: u64,
    ended: bool,
}

impl<'a> Window<'a> {
    pub(crate) fn new(input: Box<dyn Read + Send + 'a>, name: &'a str) -> Self {
        Self { input, name, buffer: Vec::with_capacity(CHUNK), at: 0, before: 0, ended: false }
    }

    /// Bytes handed out so far.
    pub(crate) fn byte(&self) -> u64 {
        self.before + self.at as u64
    }

    /// What has been read and not handed out.
    pub(crate) fn left(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    /// Reads more behind what is left; false at the end.
    ///
    /// # Errors
    /// [`ImportError`] where the file cannot be read or unpacked, with the byte.
    pub(crate) fn refill(&mut self) -> Result<bool, ImportError> {
        if self.ended {
            return Ok(false);
        }
        self.buffer.drain(..self.at);
        self.before += self.at as u64;
        self.at = 0;
        let had = self.buffer.len();
        let read = (&mut self.input).take(CHUNK as u64).read_to_end(&mut self.buffer);
        let read = read.map_err(|error| ImportError::io(self.name, self.before + had as u64, &error))?;
        self.ended = read == 0;
        Ok(read > 0)
    }
}
