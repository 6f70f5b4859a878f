//! A cursor over bytes that never reads beyond them and never believes a length before the bytes are there.

use crate::error::{ImportError, Place};

/// Bytes and a place in them.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a> {
    pub file: &'a str,
    all: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(file: &'a str, all: &'a [u8]) -> Self {
        Self { file, all, at: 0 }
    }

    pub(crate) fn place(&self) -> u64 {
        self.at as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.all.len()
    }

    pub(crate) fn seek(&mut self, at: u64) -> Result<(), ImportError> {
        if at > self.all.len() as u64 {
            return Err(self.fault(format!("an offset of at most {}", self.all.len()), at.to_string()));
        }
        self.at = at as usize;
        Ok(())
    }

    pub(crate) fn take(&mut self, length: u64) -> Result<&'a [u8], ImportError> {
        let left = (self.all.len() - self.at) as u64;
        if length > left {
            return Err(ImportError::cut(
                self.file,
                self.all.len() as u64,
                format!("{length} bytes from byte {} on", self.at),
            ));
        }
        let part = &self.all[self.at..self.at + length as usize];
        self.at += length as usize;
        Ok(part)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ImportError> {
        let part = self.take(N as u64)?;
        Ok(part.try_into().expect("as long as asked for"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, ImportError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16_be(&mut self) -> Result<u16, ImportError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32_be(&mut self) -> Result<u32, ImportError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64_be(&mut self) -> Result<u64, ImportError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// A number in groups of seven bits, the lowest first (Protocol Buffers).
    pub(crate) fn varint(&mut self) -> Result<u64, ImportError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.fault("a number of at most 10 bytes", "a longer one"))
    }

    pub(crate) fn fault(&self, expected: impl Into<String>, found: impl Into<String>) -> ImportError {
        ImportError::new(self.file, expected, found).at(Place::Byte(self.at as u64))
    }

    /// The next field of a message of Protocol Buffers.
    pub(crate) fn field(&mut self) -> Result<Option<Field<'a>>, ImportError> {
        if self.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Number(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Number(u64::from(u32::from_le_bytes(self.array()?))),
            other => {
                return Err(self.fault("a wire type of Protocol Buffers (0, 1, 2 or 5)", other.to_string()));
            }
        };
        Ok(Some(Field { number: key >> 3, value }))
    }
}

/// A field of a message.
pub(crate) struct Field<'a> {
    pub number: u64,
    pub value: Value<'a>,
}

/// Its value, as the wire has it.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Number(value) => value,
            Self::Bytes(_) => 0,
        }
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Self::Number(_) => &[],
            Self::Bytes(bytes) => bytes,
        }
    }

    pub(crate) fn text(self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// The numbers of a repeated field, packed or one by one.
    pub(crate) fn numbers(self, file: &str, into: &mut Vec<u64>) -> Result<(), ImportError> {
        match self {
            Self::Number(value) => into.push(value),
            Self::Bytes(bytes) => {
                let mut packed = Bytes::new(file, bytes);
                while !packed.is_empty() {
                    into.push(packed.varint()?);
                }
            }
        }
        Ok(())
    }
}
