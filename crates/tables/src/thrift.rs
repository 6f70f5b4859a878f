//! Thrift's compact protocol, as far as Parquet's headers need it: structs are written field by field, in the order of their numbers.

/// Types of fields and of a list's elements.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    I32 = 5,
    Binary = 8,
    Struct = 12,
}

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I8: u8 = 3;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Bytes of a struct under way.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
    last: i16,
}

impl Writer {
    fn field(&mut self, number: i16, kind: u8) {
        let step = number - self.last;
        debug_assert!((1..=15).contains(&step), "fields come in order");
        self.bytes.push((step as u8) << 4 | kind);
        self.last = number;
    }

    fn zigzag(&mut self, value: i64) {
        varint(&mut self.bytes, ((value << 1) ^ (value >> 63)) as u64);
    }

    pub(crate) fn i8(&mut self, number: i16, value: i8) {
        self.field(number, I8);
        self.bytes.push(value as u8);
    }

    pub(crate) fn i32(&mut self, number: i16, value: i32) {
        self.field(number, I32);
        self.zigzag(value.into());
    }

    pub(crate) fn i64(&mut self, number: i16, value: i64) {
        self.field(number, I64);
        self.zigzag(value);
    }

    pub(crate) fn bool(&mut self, number: i16, value: bool) {
        self.field(number, if value { TRUE } else { FALSE });
    }

    pub(crate) fn binary(&mut self, number: i16, value: &[u8]) {
        self.field(number, BINARY);
        self.raw(value);
    }

    fn raw(&mut self, value: &[u8]) {
        varint(&mut self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    /// A struct as a field.
    pub(crate) fn inner(&mut self, number: i16, fill: impl FnOnce(&mut Self)) {
        self.field(number, STRUCT);
        self.nested(fill);
    }

    fn nested(&mut self, fill: impl FnOnce(&mut Self)) {
        let outer = std::mem::take(&mut self.last);
        fill(self);
        self.bytes.push(0);
        self.last = outer;
    }

    fn list(&mut self, number: i16, kind: Kind, length: usize) {
        self.field(number, LIST);
        if length < 15 {
            self.bytes.push((length as u8) << 4 | kind as u8);
        } else {
            self.bytes.push(0xf0 | kind as u8);
            varint(&mut self.bytes, length as u64);
        }
    }

    pub(crate) fn structs<T>(&mut self, number: i16, items: &[T], mut fill: impl FnMut(&mut Self, &T)) {
        self.list(number, Kind::Struct, items.len());
        for item in items {
            self.nested(|writer| fill(writer, item));
        }
    }

    pub(crate) fn i32s(&mut self, number: i16, items: &[i32]) {
        self.list(number, Kind::I32, items.len());
        for &item in items {
            self.zigzag(item.into());
        }
    }

    pub(crate) fn texts(&mut self, number: i16, items: &[&str]) {
        self.list(number, Kind::Binary, items.len());
        for item in items {
            self.raw(item.as_bytes());
        }
    }

    /// The whole struct.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

/// A number in groups of seven bits, the least first (LEB128).
pub(crate) fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// The number that `varint` wrote, taken from the front; `None` if it does not end or has more than 64 bits.
pub(crate) fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut found = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        found |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(found);
        }
    }
    None
}

/// What was written, as it is read back.
#[derive(Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Bool(bool),
    Whole(i64),
    Bytes(&'a [u8]),
    List(Vec<Self>),
    Struct(Vec<(i16, Self)>),
}

impl<'a> Value<'a> {
    pub(crate) fn field(&self, number: i16) -> Option<&Self> {
        let Self::Struct(fields) = self else { return None };
        fields.iter().find(|(known, _)| *known == number).map(|(_, value)| value)
    }

    pub(crate) const fn whole(&self) -> Option<i64> {
        if let Self::Whole(value) = self { Some(*value) } else { None }
    }

    pub(crate) const fn bytes(&self) -> Option<&'a [u8]> {
        if let Self::Bytes(value) = self { Some(value) } else { None }
    }

    pub(crate) fn list(&self) -> Option<&[Self]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }
}

/// The struct at the front of `bytes`; `None` if it is none.
pub(crate) fn value<'a>(bytes: &mut &'a [u8]) -> Option<Value<'a>> {
    item(bytes, STRUCT, 0)
}

/// Structs within structs, at most; Parquet's have five.
const DEEPEST: u32 = 16;

fn item<'a>(bytes: &mut &'a [u8], kind: u8, depth: u32) -> Option<Value<'a>> {
    let zigzag = |value: u64| (value >> 1) as i64 ^ -((value & 1) as i64);
    match kind {
        TRUE | FALSE => Some(Value::Bool(kind == TRUE)),
        I8 => {
            let (&byte, rest) = bytes.split_first()?;
            *bytes = rest;
            Some(Value::Whole((byte as i8).into()))
        }
        I32 | I64 => number(bytes).map(zigzag).map(Value::Whole),
        BINARY => {
            let length = usize::try_from(number(bytes)?).ok()?;
            let (value, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Some(Value::Bytes(value))
        }
        LIST if depth < DEEPEST => {
            let (&head, rest) = bytes.split_first()?;
            *bytes = rest;
            let length = if head >> 4 == 15 { number(bytes)? } else { u64::from(head >> 4) };
            let kind = head & 15;
            // Each of the items takes a byte at least.
            if matches!(kind, TRUE | FALSE) || length > bytes.len() as u64 {
                return None;
            }
            (0..length).map(|_| item(bytes, kind, depth + 1)).collect::<Option<_>>().map(Value::List)
        }
        STRUCT if depth < DEEPEST => {
            let (mut fields, mut last) = (Vec::new(), 0i16);
            loop {
                let (&head, rest) = bytes.split_first()?;
                *bytes = rest;
                if head == 0 {
                    return Some(Value::Struct(fields));
                }
                // A step of zero would say a number of its own, which none of ours needs.
                last = last.checked_add(i16::from(head >> 4)).filter(|_| head >> 4 > 0)?;
                fields.push((last, item(bytes, head & 15, depth + 1)?));
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::default();
        writer.i32(1, -1);
        writer.inner(4, |inner| inner.bool(1, true));
        writer.binary(5, b"ab");
        writer.i32s(6, &[0, 300]);
        let bytes = writer.end();
        let mut left = bytes.as_slice();
        let found = value(&mut left).unwrap();
        assert!(left.is_empty());
        assert_eq!(found.field(1).and_then(Value::whole), Some(-1));
        assert_eq!(found.field(4).and_then(|inner| inner.field(1)), Some(&Value::Bool(true)));
        assert_eq!(found.field(5).and_then(Value::bytes), Some(b"ab".as_slice()));
        assert_eq!(
            found.field(6).and_then(Value::list),
            Some([Value::Whole(0), Value::Whole(300)].as_slice())
        );
        assert_eq!(value(&mut &bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn fields_are_as_thrift_has_them() {
        let mut writer = Writer::default();
        writer.i32(1, -1);
        writer.i64(3, 300);
        writer.inner(4, |inner| inner.bool(1, true));
        writer.binary(5, b"ab");
        writer.i32s(6, &[0, 1]);
        // Headers (step << 4 | type); -1 is 1 and 300 is 600 by zigzag, 600 is d8 04.
        let expected = [0x15, 1, 0x26, 0xd8, 4, 0x1c, 0x11, 0, 0x18, 2, b'a', b'b', 0x19, 0x25, 0, 2, 0];
        assert_eq!(writer.end(), expected);
    }
}
