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

#[cfg(test)]
mod tests {
    use super::*;

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
