//! A reader of Python's pickles that holds data alone: dictionaries, lists, tuples, texts, numbers.
//!
//! A pickle is a program for a stack machine, and one with the instruction `REDUCE` calls any function that it names. Here no name is
//! ever looked up: what would name, call or build anything is refused, and nothing else has an effect beyond the result. The result is
//! a list of values that refer to each other by number, so that a value which is shared a million times takes its room once, and no
//! depth of nesting is walked by recursion.

use crate::bytes::Bytes;
use crate::error::{ImportError, Place};

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// A whole number; longer ones are cut to this.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text, or bytes as one.
    Text(String),
    /// A list, a tuple or a set.
    List(Vec<u32>),
    /// A dictionary.
    Dict(Vec<(u32, u32)>),
}

/// All values, and which of them is the result.
#[derive(Clone, Debug)]
pub struct Values {
    nodes: Vec<Node>,
    root: u32,
}

/// One value among them.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    all: &'a Values,
    at: u32,
}

impl Values {
    /// The result.
    pub fn root(&self) -> Value<'_> {
        Value { all: self, at: self.root }
    }

    /// From JSON.
    ///
    /// # Errors
    /// [`ImportError`] for text that is none.
    pub fn from_json(file: &str, text: &[u8]) -> Result<Self, ImportError> {
        let value: serde_json::Value = serde_json::from_slice(text).map_err(|error| {
            if error.is_eof() {
                return ImportError::cut(file, text.len() as u64, "the end of a JSON document");
            }
            ImportError::new(file, "JSON", error.to_string()).at(Place::Line(error.line() as u64))
        })?;
        let mut values = Self { nodes: Vec::new(), root: 0 };
        values.root = values.add_json(value);
        Ok(values)
    }

    // Parsing has bounded the depth (128), so that recursion is safe.
    fn add_json(&mut self, value: serde_json::Value) -> u32 {
        let node = match value {
            serde_json::Value::Null => Node::None,
            serde_json::Value::Bool(value) => Node::Bool(value),
            serde_json::Value::Number(number) => {
                number.as_i64().map_or_else(|| Node::Float(number.as_f64().unwrap_or(0.0)), Node::Int)
            }
            serde_json::Value::String(text) => Node::Text(text),
            serde_json::Value::Array(list) => {
                Node::List(list.into_iter().map(|value| self.add_json(value)).collect())
            }
            serde_json::Value::Object(map) => Node::Dict(
                map.into_iter()
                    .map(|(key, value)| {
                        self.nodes.push(Node::Text(key));
                        (self.nodes.len() as u32 - 1, self.add_json(value))
                    })
                    .collect(),
            ),
        };
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }
}

impl<'a> Value<'a> {
    /// What it is.
    pub fn node(self) -> &'a Node {
        &self.all.nodes[self.at as usize]
    }

    /// The value of a key; `None` is the absence of both.
    pub fn get(self, key: &str) -> Option<Self> {
        let Node::Dict(entries) = self.node() else { return None };
        let found = entries
            .iter()
            .find(|(name, _)| matches!(&self.all.nodes[*name as usize], Node::Text(text) if text == key));
        found.map(|&(_, at)| Self { all: self.all, at })
    }

    /// The elements of a list, none of anything else.
    pub fn items(self) -> impl Iterator<Item = Value<'a>> {
        let list: &[u32] = if let Node::List(list) = self.node() { list } else { &[] };
        list.iter().map(move |&at| Value { all: self.all, at })
    }

    /// How many elements or keys it has.
    pub fn len(self) -> usize {
        match self.node() {
            Node::List(list) => list.len(),
            Node::Dict(list) => list.len(),
            _ => 0,
        }
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// How many values there are in all, each counted once however often it is referred to.
    pub fn total(self) -> usize {
        self.all.nodes.len()
    }

    /// Keys and values of a dictionary.
    pub fn entries(self) -> impl Iterator<Item = (Value<'a>, Value<'a>)> {
        let list: &[(u32, u32)] = if let Node::Dict(list) = self.node() { list } else { &[] };
        list.iter().map(move |&(key, at)| (Value { all: self.all, at: key }, Value { all: self.all, at }))
    }

    /// A whole number.
    pub fn int(self) -> Option<i64> {
        match self.node() {
            Node::Int(value) => Some(*value),
            Node::Float(value) => Some(*value as i64),
            _ => None,
        }
    }

    /// A number.
    pub fn float(self) -> Option<f64> {
        match self.node() {
            Node::Int(value) => Some(*value as f64),
            Node::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// A text.
    pub fn text(self) -> Option<&'a str> {
        if let Node::Text(text) = self.node() { Some(text) } else { None }
    }

    /// A truth value.
    pub fn truth(self) -> bool {
        matches!(self.node(), Node::Bool(true))
    }
}

/// What lies on the stack.
#[derive(Clone, Copy)]
enum Item {
    Mark,
    Value(u32),
}

struct Machine<'a> {
    bytes: Bytes<'a>,
    nodes: Vec<Node>,
    stack: Vec<Item>,
    memo: Vec<Option<u32>>,
}

/// Reads a pickle of protocol 1 to 5; 0 is text, and nothing writes dumps in it.
///
/// # Errors
/// [`ImportError`]: an instruction that would call or build something, damaged or cut data.
pub fn read(file: &str, all: &[u8]) -> Result<Values, ImportError> {
    let mut machine =
        Machine { bytes: Bytes::new(file, all), nodes: Vec::new(), stack: Vec::new(), memo: Vec::new() };
    loop {
        let at = machine.bytes.place();
        if machine.step()? {
            let root = machine.pop()?;
            return Ok(Values { nodes: machine.nodes, root });
        }
        debug_assert!(machine.bytes.place() > at, "every instruction has a byte");
    }
}

impl Machine<'_> {
    fn fault(&self, expected: &str, found: impl Into<String>) -> ImportError {
        self.bytes.fault(expected, found)
    }

    fn push(&mut self, node: Node) {
        self.nodes.push(node);
        self.stack.push(Item::Value(self.nodes.len() as u32 - 1));
    }

    fn pop(&mut self) -> Result<u32, ImportError> {
        match self.stack.pop() {
            Some(Item::Value(value)) => Ok(value),
            Some(Item::Mark) => Err(self.fault("a value on the stack", "a mark")),
            None => Err(self.fault("a value on the stack", "nothing")),
        }
    }

    /// What lies above the last mark, which is taken away.
    fn marked(&mut self) -> Result<Vec<u32>, ImportError> {
        let mark = self.stack.iter().rposition(|item| matches!(item, Item::Mark));
        let mark = mark.ok_or_else(|| self.fault("a mark on the stack", "none"))?;
        let values = self
            .stack
            .drain(mark..)
            .filter_map(|item| if let Item::Value(value) = item { Some(value) } else { None });
        Ok(values.collect())
    }

    fn top(&mut self) -> Result<&mut Node, ImportError> {
        match self.stack.last() {
            Some(&Item::Value(at)) => Ok(&mut self.nodes[at as usize]),
            _ => Err(self.fault("a value on the stack", "none")),
        }
    }

    fn append(&mut self, values: Vec<u32>) -> Result<(), ImportError> {
        if let Node::List(list) = self.top()? {
            list.extend(values);
            return Ok(());
        }
        Err(self.fault("a list to append to", "something else"))
    }

    fn set(&mut self, values: &[u32]) -> Result<(), ImportError> {
        if !values.len().is_multiple_of(2) {
            return Err(self.fault("keys with values", "a key alone"));
        }
        if let Node::Dict(entries) = self.top()? {
            entries.extend(values.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            return Ok(());
        }
        Err(self.fault("a dictionary", "something else"))
    }

    fn text(&mut self, length: u64) -> Result<(), ImportError> {
        let text = String::from_utf8_lossy(self.bytes.take(length)?).into_owned();
        self.push(Node::Text(text));
        Ok(())
    }

    fn remember(&mut self, at: u64) -> Result<(), ImportError> {
        // No place beyond what instructions could have filled one after the other.
        if at > self.nodes.len() as u64 + 1_024 {
            return Err(self.fault("a place of the memo near those before", at.to_string()));
        }
        let &Some(&Item::Value(value)) = &self.stack.last() else {
            return Err(self.fault("a value to remember", "none"));
        };
        if self.memo.len() <= at as usize {
            self.memo.resize(at as usize + 1, None);
        }
        self.memo[at as usize] = Some(value);
        Ok(())
    }

    fn recall(&mut self, at: u64) -> Result<(), ImportError> {
        let found = usize::try_from(at).ok().and_then(|at| self.memo.get(at).copied().flatten());
        let found = found.ok_or_else(|| self.fault("a place of the memo that was filled", at.to_string()))?;
        self.stack.push(Item::Value(found));
        Ok(())
    }

    fn u32(&mut self) -> Result<u64, ImportError> {
        Ok(u64::from(u32::from_le_bytes(self.bytes.array()?)))
    }

    fn u64(&mut self) -> Result<u64, ImportError> {
        Ok(u64::from_le_bytes(self.bytes.array()?))
    }

    /// A number of `length` bytes, two's complement; the lowest 64 bits of it.
    fn long(&mut self, length: u64) -> Result<(), ImportError> {
        let bytes = self.bytes.take(length)?;
        let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut low = [if negative { 0xff } else { 0 }; 8];
        let kept = bytes.len().min(8);
        low[..kept].copy_from_slice(&bytes[..kept]);
        self.push(Node::Int(i64::from_le_bytes(low)));
        Ok(())
    }

    /// One instruction; true at the end.
    fn step(&mut self) -> Result<bool, ImportError> {
        let instruction = self.bytes.u8()?;
        match instruction {
            b'.' => return Ok(true),
            0x80 => drop(self.bytes.u8()?),
            0x95 => drop(self.u64()?),
            b'(' => self.stack.push(Item::Mark),
            b'0' => drop(self.stack.pop()),
            b'1' => drop(self.marked()?),
            b'2' => {
                let value = self.pop()?;
                self.stack.extend([Item::Value(value), Item::Value(value)]);
            }
            b'N' => self.push(Node::None),
            0x88 | 0x89 => self.push(Node::Bool(instruction == 0x88)),
            b'J' => {
                let value = i32::from_le_bytes(self.bytes.array()?);
                self.push(Node::Int(i64::from(value)));
            }
            b'K' => {
                let value = self.bytes.u8()?;
                self.push(Node::Int(i64::from(value)));
            }
            b'M' => {
                let value = u16::from_le_bytes(self.bytes.array()?);
                self.push(Node::Int(i64::from(value)));
            }
            0x8a => {
                let length = u64::from(self.bytes.u8()?);
                self.long(length)?;
            }
            0x8b => {
                let length = self.u32()?;
                self.long(length)?;
            }
            b'G' => {
                let value = f64::from_be_bytes(self.bytes.array()?);
                self.push(Node::Float(value));
            }
            b'X' | b'B' | b'T' => {
                let length = self.u32()?;
                self.text(length)?;
            }
            0x8c | b'C' | b'U' => {
                let length = u64::from(self.bytes.u8()?);
                self.text(length)?;
            }
            0x8d | 0x8e | 0x96 => {
                let length = self.u64()?;
                self.text(length)?;
            }
            b']' | b')' | 0x8f => self.push(Node::List(Vec::new())),
            b'}' => self.push(Node::Dict(Vec::new())),
            b'l' | b't' | 0x91 => {
                let values = self.marked()?;
                self.push(Node::List(values));
            }
            b'd' => {
                let values = self.marked()?;
                self.push(Node::Dict(Vec::new()));
                self.set(&values)?;
            }
            0x85..=0x87 => {
                let mut values = Vec::with_capacity(3);
                for _ in 0..instruction - 0x84 {
                    values.push(self.pop()?);
                }
                values.reverse();
                self.push(Node::List(values));
            }
            b'a' => {
                let value = self.pop()?;
                self.append(vec![value])?;
            }
            b'e' | 0x90 => {
                let values = self.marked()?;
                self.append(values)?;
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set(&[key, value])?;
            }
            b'u' => {
                let values = self.marked()?;
                self.set(&values)?;
            }
            0x94 => {
                let at = self.memo.len() as u64;
                self.remember(at)?;
            }
            b'q' => {
                let at = u64::from(self.bytes.u8()?);
                self.remember(at)?;
            }
            b'r' => {
                let at = self.u32()?;
                self.remember(at)?;
            }
            b'h' => {
                let at = u64::from(self.bytes.u8()?);
                self.recall(at)?;
            }
            b'j' => {
                let at = self.u32()?;
                self.recall(at)?;
            }
            b'c' | 0x93 | b'R' | b'i' | b'o' | 0x81 | 0x92 | b'b' | b'P' | b'Q' | 0x82..=0x84 => {
                let error = self.fault(
                    "data alone",
                    format!("instruction {instruction:#04x}, which names, calls or builds something"),
                );
                return Err(error.hint("no dump of PyTorch needs it: do not open this file with Python"));
            }
            b'p' | b'g' | b'I' | b'L' | b'F' | b'S' | b'V' => {
                let found = format!("instruction {instruction:#04x} of protocol 0");
                return Err(self
                    .fault("a pickle of protocol 1 to 5", found)
                    .hint("PyTorch writes protocol 2"));
            }
            other => return Err(self.fault("an instruction of a pickle", format!("{other:#04x}"))),
        }
        Ok(false)
    }
}
