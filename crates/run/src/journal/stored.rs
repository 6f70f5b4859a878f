//! What a journal keeps, as bytes: integers with their lowest byte first, the bits of floating-point numbers, lists after their
//! lengths. A structure names all its fields, so one that gains a field does not compile until the journal keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use windtunnel_kernel::{CalendarTime, EndpointId, Span, Time};

use crate::table::Column;

/// What can be kept and taken back.
pub(crate) trait Stored: Sized {
    /// Appends it to `out`.
    fn store(&self, out: &mut Vec<u8>);

    /// Takes it off the front of `input`; `None` if that is something else.
    fn load(input: &mut &[u8]) -> Option<Self>;
}

/// As many bytes off the front of `input`.
fn bytes<'a>(input: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = input.split_at_checked(count)?;
    *input = rest;
    Some(taken)
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Stored for $number {
            fn store(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn load(input: &mut &[u8]) -> Option<Self> {
                Some(Self::from_le_bytes(bytes(input, size_of::<Self>())?.try_into().ok()?))
            }
        }
    )*};
}

numbers!(u8, u32, u64, f64);

impl Stored for usize {
    fn store(&self, out: &mut Vec<u8>) {
        (*self as u64).store(out);
    }

    fn load(input: &mut &[u8]) -> Option<Self> {
        Self::try_from(u64::load(input)?).ok()
    }
}

impl Stored for bool {
    fn store(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn load(input: &mut &[u8]) -> Option<Self> {
        match u8::load(input)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Stored for String {
    fn store(&self, out: &mut Vec<u8>) {
        self.len().store(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn load(input: &mut &[u8]) -> Option<Self> {
        let length = usize::load(input)?;
        Self::from_utf8(bytes(input, length)?.to_vec()).ok()
    }
}

/// Names of tables, columns and causes, of which there are few.
impl Stored for &'static str {
    fn store(&self, out: &mut Vec<u8>) {
        self.len().store(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn load(input: &mut &[u8]) -> Option<Self> {
        /// Those that were taken back, each once.
        static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
        let length = usize::load(input)?;
        let name = std::str::from_utf8(bytes(input, length)?).ok()?;
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&name) = known.get(name) {
            return Some(name);
        }
        let name: &'static str = Box::leak(name.into());
        known.insert(name);
        Some(name)
    }
}

impl<T: Stored> Stored for Option<T> {
    fn store(&self, out: &mut Vec<u8>) {
        self.is_some().store(out);
        if let Some(value) = self {
            value.store(out);
        }
    }

    fn load(input: &mut &[u8]) -> Option<Self> {
        if bool::load(input)? { T::load(input).map(Some) } else { Some(None) }
    }
}

/// Places that are made ahead of a list's length, which may be anything in bytes that are no journal's.
const AHEAD: usize = 1 << 16;

impl<T: Stored> Stored for Vec<T> {
    fn store(&self, out: &mut Vec<u8>) {
        self.len().store(out);
        for one in self {
            one.store(out);
        }
    }

    fn load(input: &mut &[u8]) -> Option<Self> {
        let length = usize::load(input)?;
        let mut all = Self::with_capacity(length.min(AHEAD));
        for _ in 0..length {
            all.push(T::load(input)?);
        }
        Some(all)
    }
}

impl<T: Stored> Stored for Arc<[T]> {
    fn store(&self, out: &mut Vec<u8>) {
        self.len().store(out);
        for one in self.iter() {
            one.store(out);
        }
    }

    fn load(input: &mut &[u8]) -> Option<Self> {
        Vec::load(input).map(Self::from)
    }
}

impl<T: Stored, const N: usize> Stored for [T; N] {
    fn store(&self, out: &mut Vec<u8>) {
        for one in self {
            one.store(out);
        }
    }

    fn load(input: &mut &[u8]) -> Option<Self> {
        let all: Option<Vec<T>> = (0..N).map(|_| T::load(input)).collect();
        all?.try_into().ok()
    }
}

impl<A: Stored, B: Stored> Stored for (A, B) {
    fn store(&self, out: &mut Vec<u8>) {
        self.0.store(out);
        self.1.store(out);
    }

    fn load(input: &mut &[u8]) -> Option<Self> {
        Some((A::load(input)?, B::load(input)?))
    }
}

impl<K: Stored + Ord, V: Stored> Stored for BTreeMap<K, V> {
    fn store(&self, out: &mut Vec<u8>) {
        self.len().store(out);
        for (key, value) in self {
            key.store(out);
            value.store(out);
        }
    }

    fn load(input: &mut &[u8]) -> Option<Self> {
        Vec::<(K, V)>::load(input).map(|entries| entries.into_iter().collect())
    }
}

macro_rules! wrapped {
    ($($name:ident: $put:expr, $take:expr;)*) => {$(
        impl Stored for $name {
            fn store(&self, out: &mut Vec<u8>) {
                $take(*self).store(out);
            }

            fn load(input: &mut &[u8]) -> Option<Self> {
                Stored::load(input).map($put)
            }
        }
    )*};
}

wrapped! {
    Time: Self::from_ps, Self::ps;
    Span: Self::from_ps, Self::ps;
    CalendarTime: Self::from_ns, Self::ns;
    EndpointId: Self, |id: Self| id.0;
}

macro_rules! structures {
    ($($name:ident { $($field:ident),* $(,)? })*) => {$(
        impl $crate::journal::Stored for $name {
            fn store(&self, out: &mut Vec<u8>) {
                let Self { $($field),* } = self;
                $($crate::journal::Stored::store($field, out);)*
            }

            fn load(input: &mut &[u8]) -> Option<Self> {
                $(let $field = $crate::journal::Stored::load(input)?;)*
                Some(Self { $($field),* })
            }
        }
    )*};
}

pub(crate) use structures;

impl Stored for Column {
    fn store(&self, out: &mut Vec<u8>) {
        match self {
            Self::U32(values) => {
                out.push(0);
                values.store(out);
            }
            Self::U64(values) => {
                out.push(1);
                values.store(out);
            }
            Self::Sparse { values, known } => {
                out.push(2);
                values.store(out);
                known.store(out);
            }
            Self::F64(values) => {
                out.push(3);
                values.store(out);
            }
            Self::Text(values) => {
                out.push(4);
                values.store(out);
            }
            Self::Coded { names, codes } => {
                out.push(5);
                names.store(out);
                codes.store(out);
            }
            Self::Known { names, codes } => {
                out.push(6);
                names.store(out);
                codes.store(out);
            }
            Self::F64List { values, width } => {
                out.push(7);
                values.store(out);
                width.store(out);
            }
        }
    }

    fn load(input: &mut &[u8]) -> Option<Self> {
        Some(match u8::load(input)? {
            0 => Self::U32(Stored::load(input)?),
            1 => Self::U64(Stored::load(input)?),
            2 => Self::Sparse { values: Stored::load(input)?, known: Stored::load(input)? },
            3 => Self::F64(Stored::load(input)?),
            4 => Self::Text(Stored::load(input)?),
            5 => Self::Coded { names: Stored::load(input)?, codes: Stored::load(input)? },
            6 => Self::Known { names: Stored::load(input)?, codes: Stored::load(input)? },
            7 => Self::F64List { values: Stored::load(input)?, width: Stored::load(input)? },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::recorder::Iteration;
    use crate::table::Batch;

    fn back<T: Stored>(value: &T) -> Option<T> {
        let mut out = Vec::new();
        value.store(&mut out);
        let mut input = out.as_slice();
        T::load(&mut input).filter(|_| input.is_empty())
    }

    #[test]
    fn every_kind_of_column_comes_back() {
        let names = || vec!["a".to_owned(), String::new()];
        let columns = [
            Column::U32(vec![1, u32::MAX]),
            Column::U64(vec![u64::MAX, 0]),
            Column::Sparse { values: vec![7, 0], known: vec![true, false] },
            Column::F64(vec![-0.0, f64::INFINITY]),
            Column::Text(names()),
            Column::Coded { names: names(), codes: vec![1, 0] },
            Column::Known { names: names(), codes: vec![0, 2] },
            Column::F64List { values: vec![1.0, 2.0, 3.0, 4.0], width: 2 },
        ];
        let batch =
            columns.into_iter().fold(Batch::default(), |batch, column| batch.with("a column", column));
        assert_eq!(back(&batch), Some(batch));
        // One that is no number is what it was, to the bit.
        let odd = f64::from_bits(0x7ff8_dead_beef_0001);
        assert_eq!(back(&odd).map(f64::to_bits), Some(odd.to_bits()));
    }

    proptest! {
        #[test]
        fn lists_of_anything_come_back(all in any::<Vec<(u64, Option<(String, bool)>)>>()) {
            prop_assert_eq!(back(&all), Some(all));
        }

        /// Bytes that were torn are refused, wherever that was.
        #[test]
        fn what_is_torn_is_refused(
            iterations in prop::collection::vec((any::<u64>(), any::<u64>()), 1..9),
            cut in any::<prop::sample::Index>(),
        ) {
            let all: Vec<Iteration> =
                iterations.iter().map(|&(from, until)| Iteration::plain(0, from, until)).collect();
            prop_assert!(back(&all).is_some_and(|found| found == all));
            let mut out = Vec::new();
            all.store(&mut out);
            out.truncate(cut.index(out.len()));
            prop_assert_eq!(Vec::<Iteration>::load(&mut out.as_slice()), None);
        }
    }
}
