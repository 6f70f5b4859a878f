//! A JSON document of one large array, element by element.
//!
//! [`Elements`] hands out each element of one array (`traceEvents`, `nodes`, or the document itself if that is an array) as
//! the bytes it has in the file, and keeps the other members of the object. Only one element is in memory at a time. The
//! ends of elements are found by a scan for quotes and brackets; what is inside is checked by who parses the element.

use std::io::Read;

use memchr::{memchr2, memchr3};

use crate::error::{ImportError, Place};
use crate::window::{LONGEST, Window};

/// A document under way.
pub struct Elements<'a> {
    window: Window<'a>,
    key: &'a str,
    state: State,
    /// Other members: key and text of the value.
    pub members: Vec<(String, Vec<u8>)>,
    /// Whether the array was seen.
    pub found: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Begin,
    /// In the document's object.
    Object,
    /// In the array; `bool`: whether the array is the document.
    Array(bool),
    Done,
}

impl<'a> Elements<'a> {
    /// The elements of member `key`.
    pub fn new(input: Box<dyn Read + Send + 'a>, name: &'a str, key: &'a str) -> Self {
        Self { window: Window::new(input, name), key, state: State::Begin, members: Vec::new(), found: false }
    }

    /// The next element and the byte of the document at which it begins, or `None` at the end of the document.
    ///
    /// # Errors
    /// [`ImportError`]: no JSON, or a file that ends too soon.
    pub fn element(&mut self) -> Result<Option<(u64, &[u8])>, ImportError> {
        loop {
            match self.state {
                State::Begin => match self.token("a JSON object or array")? {
                    b'{' => self.state = State::Object,
                    b'[' => {
                        self.found = true;
                        self.state = State::Array(true);
                    }
                    found => return Err(self.unexpected("a JSON object or array", found)),
                },
                State::Object => {
                    match self.token("a key")? {
                        b',' => continue,
                        b'}' => {
                            self.state = State::Done;
                            continue;
                        }
                        b'"' => {}
                        found => return Err(self.unexpected("a key in quotes", found)),
                    }
                    self.window.at -= 1;
                    let end = self.end_of_value("a key")?;
                    let key = String::from_utf8_lossy(&self.window.buffer[self.window.at + 1..end - 1])
                        .into_owned();
                    self.window.at = end;
                    match self.token("`:`")? {
                        b':' => {}
                        found => return Err(self.unexpected("`:`", found)),
                    }
                    let first = self.token("a value")?;
                    if key == self.key && first == b'[' {
                        self.found = true;
                        self.state = State::Array(false);
                        continue;
                    }
                    self.window.at -= 1;
                    let end = self.end_of_value("a value")?;
                    self.members.push((key, self.window.buffer[self.window.at..end].to_vec()));
                    self.window.at = end;
                }
                State::Array(whole) => {
                    match self.token("an element, or `]`")? {
                        b',' => continue,
                        b']' => {
                            self.state = if whole { State::Done } else { State::Object };
                            continue;
                        }
                        _ => self.window.at -= 1,
                    }
                    let end = self.end_of_value("an element")?;
                    let start = std::mem::replace(&mut self.window.at, end);
                    let byte = self.window.before + start as u64;
                    return Ok(Some((byte, &self.window.buffer[start..end])));
                }
                State::Done => return Ok(None),
            }
        }
    }

    /// The text of another member.
    pub fn member(&self, key: &str) -> Option<&[u8]> {
        self.members.iter().find(|(known, _)| known == key).map(|(_, text)| &text[..])
    }

    fn unexpected(&self, expected: &str, found: u8) -> ImportError {
        let found = char::from(found).escape_default();
        ImportError::new(self.window.name, expected, format!("`{found}`"))
            .at(Place::Byte(self.window.byte() - 1))
    }

    /// The next byte that is no white space.
    fn token(&mut self, expected: &str) -> Result<u8, ImportError> {
        loop {
            while let Some(&byte) = self.window.buffer.get(self.window.at) {
                self.window.at += 1;
                if !byte.is_ascii_whitespace() {
                    return Ok(byte);
                }
            }
            if !self.window.refill()? {
                return Err(ImportError::cut(self.window.name, self.window.byte(), expected));
            }
        }
    }

    /// The end of the value that begins where the window does.
    fn end_of_value(&mut self, what: &str) -> Result<usize, ImportError> {
        let mut scan = Scan::default();
        loop {
            if let Some(end) = scan.go_on(self.window.left()) {
                return Ok(self.window.at + end);
            }
            if self.window.left().len() > LONGEST {
                let error =
                    ImportError::new(self.window.name, format!("{what} of at most 64 MiB"), "a longer one");
                return Err(error.at(Place::Byte(self.window.byte())));
            }
            if !self.window.refill()? {
                return Err(ImportError::cut(
                    self.window.name,
                    self.window.before + self.window.buffer.len() as u64,
                    format!("the end of {what}"),
                ));
            }
        }
    }
}

/// Looks for the end of a value; may be asked again with more behind the same bytes.
#[derive(Default)]
struct Scan {
    at: usize,
    depth: usize,
    in_string: bool,
}

impl Scan {
    fn go_on(&mut self, bytes: &[u8]) -> Option<usize> {
        let (open, close) = match bytes.first()? {
            b'{' => (b'{', b'}'),
            b'[' => (b'[', b']'),
            b'"' => (b'"', b'"'),
            _ => return self.scalar(bytes),
        };
        while self.at < bytes.len() {
            if self.in_string {
                match memchr2(b'"', b'\\', &bytes[self.at..]) {
                    None => self.at = bytes.len(),
                    Some(found) if bytes[self.at + found] == b'\\' => {
                        if self.at + found + 1 >= bytes.len() {
                            // The escaped byte has not come yet.
                            self.at += found;
                            return None;
                        }
                        self.at += found + 2;
                    }
                    Some(found) => {
                        self.at += found + 1;
                        self.in_string = false;
                        if self.depth == 0 {
                            return Some(self.at);
                        }
                    }
                }
                continue;
            }
            let Some(found) = memchr3(b'"', open, close, &bytes[self.at..]) else {
                self.at = bytes.len();
                return None;
            };
            self.at += found + 1;
            match bytes[self.at - 1] {
                b'"' => self.in_string = true,
                byte if byte == open => self.depth += 1,
                _ => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(self.at);
                    }
                }
            }
        }
        None
    }

    /// A number or a word ends before a separator.
    fn scalar(&mut self, bytes: &[u8]) -> Option<usize> {
        let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}') || byte.is_ascii_whitespace();
        let found = bytes[self.at..].iter().position(ends);
        self.at = bytes.len();
        found.map(|_| bytes.iter().position(ends).unwrap_or(bytes.len()).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Vec<String>, usize), ImportError> {
        let mut elements = Elements::new(Box::new(text.as_bytes()), "t", "list");
        let mut found = Vec::new();
        while let Some((byte, element)) = elements.element()? {
            assert!(text.as_bytes()[byte as usize..].starts_with(element), "byte {byte}");
            found.push(String::from_utf8_lossy(element).into_owned());
        }
        Ok((found, elements.members.len()))
    }

    #[test]
    fn elements_of_a_member_and_of_a_bare_array() {
        let (elements, members) =
            read(r#"{"a": {"x": "}"}, "list": [{"q": "\"]}"}, [1, [2]], 3.5, "s"], "b": true}"#).unwrap();
        assert_eq!(elements, [r#"{"q": "\"]}"}"#, "[1, [2]]", "3.5", "\"s\""]);
        assert_eq!(members, 2);
        assert_eq!(read("[{}, {} ]").unwrap().0, ["{}", "{}"]);
    }

    #[test]
    fn every_cut_is_an_error_with_its_place() {
        let text = r#"{"a": "x\\", "list": [{"q": [1]}, 2, "\""], "b": {"c": null}}"#;
        for cut in 0..text.len() {
            let error = read(&text[..cut]).unwrap_err();
            assert!(matches!(error.place, Place::Byte(at) if at <= cut as u64), "{cut}: {error}");
        }
    }
}
