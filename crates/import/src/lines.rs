//! A recording of lines, through a window: only the line under way is in memory, however long the file is.

use std::borrow::Cow;

use memchr::memchr;

use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::window::{LONGEST, Window};

/// Lines under way.
pub(crate) struct Lines<'a> {
    window: Window<'a>,
    number: u64,
}

impl<'a> Lines<'a> {
    /// The lines of a recording, unpacked.
    ///
    /// # Errors
    /// [`ImportError`] where it cannot be opened.
    pub(crate) fn of(input: &'a Input) -> Result<Self, ImportError> {
        Ok(Self { window: Window::new(input.open()?, &input.name), number: 0 })
    }

    /// Bytes read so far.
    pub(crate) fn byte(&self) -> u64 {
        self.window.byte()
    }

    /// The next line without its end, and its number from 1; as [`str::lines`] cuts them.
    ///
    /// # Errors
    /// [`ImportError`] where the file cannot be read, or a line is longer than 64 MiB.
    pub(crate) fn bytes(&mut self) -> Result<Option<(u64, &[u8])>, ImportError> {
        let window = &mut self.window;
        let mut scanned = window.at;
        let (end, next) = loop {
            if let Some(found) = memchr(b'\n', &window.buffer[scanned..]) {
                let end = scanned + found;
                let carriage = end > window.at && window.buffer[end - 1] == b'\r';
                break (end - usize::from(carriage), end + 1);
            }
            let kept = window.left().len();
            if kept > LONGEST {
                return Err(ImportError::new(window.name, "a line of at most 64 MiB", "a longer one")
                    .at(Place::Line(self.number + 1)));
            }
            if window.refill()? {
                scanned = kept;
            } else if kept == 0 {
                return Ok(None);
            } else {
                break (window.buffer.len(), window.buffer.len());
            }
        };
        let start = std::mem::replace(&mut window.at, next);
        self.number += 1;
        Ok(Some((self.number, &window.buffer[start..end])))
    }

    /// The same as text; what is no UTF-8 becomes U+FFFD.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub(crate) fn text(&mut self) -> Result<Option<(u64, Cow<'_, str>)>, ImportError> {
        Ok(self.bytes()?.map(|(line, bytes)| (line, String::from_utf8_lossy(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::CHUNK;

    #[test]
    fn lines_are_those_of_the_standard_library() {
        let long = "x".repeat(CHUNK - 3);
        let texts = [
            String::new(),
            "a".to_owned(),
            "a\n".to_owned(),
            "\n\n a \r\nb\r\n\r\nc\r".to_owned(),
            format!("{long}\nabc\r\n{long}{long}\r\n\r\nend"),
            format!("{}\r\n", "y".repeat(CHUNK - 1)),
        ];
        for text in texts {
            let input = Input::bytes("t", text.clone().into_bytes());
            let mut lines = Lines::of(&input).unwrap();
            let mut found = Vec::new();
            while let Some((line, text)) = lines.text().unwrap() {
                assert_eq!(line, found.len() as u64 + 1);
                found.push(text.into_owned());
            }
            assert!(found.iter().eq(text.lines()), "{} lines of {} bytes", found.len(), text.len());
            assert_eq!(lines.byte(), text.len() as u64);
        }
    }

    #[test]
    fn a_line_without_an_end_is_refused_before_it_fills_the_memory() {
        let input = Input::bytes("t", [&b"a\n"[..], &vec![b'x'; LONGEST + 2 * CHUNK]].concat());
        let mut lines = Lines::of(&input).unwrap();
        assert!(lines.bytes().unwrap().is_some());
        let error = lines.bytes().unwrap_err();
        assert_eq!(error.to_string(), "t:2: expected a line of at most 64 MiB, found a longer one");
    }
}
