//! Encodings of levels, indices and values (`parquet-format`, `Encodings.md`).

use crate::thrift::{number, varint};

/// Equal values from which on a run is cheaper than bits.
const RUN: usize = 8;

/// Bits that numbers up to `largest` need.
pub(crate) const fn bits(largest: u32) -> u32 {
    u32::BITS - largest.leading_zeros()
}

/// The hybrid of runs and packed bits: runs of at least eight equal values, and everything else in groups of eight.
pub(crate) fn hybrid(values: &[u32], width: u32, out: &mut Vec<u8>) {
    let mut at = 0;
    while at < values.len() {
        let equal = run(&values[at..], usize::MAX);
        if equal >= RUN {
            varint(out, (equal as u64) << 1);
            out.extend_from_slice(&values[at].to_le_bytes()[..width.div_ceil(8) as usize]);
            at += equal;
            continue;
        }
        let begin = at;
        while at < values.len() && run(&values[at..], RUN) < RUN {
            at += RUN;
        }
        let end = at.min(values.len());
        varint(out, (((end - begin).div_ceil(RUN) as u64) << 1) | 1);
        pack(&values[begin..end], width, out);
        at = end;
    }
}

/// How many values equal the first, up to `most`.
fn run(values: &[u32], most: usize) -> usize {
    values.iter().take(most).take_while(|&&value| value == values[0]).count()
}

/// Bits from the least on; the last group of eight is filled with zeros.
fn pack(values: &[u32], width: u32, out: &mut Vec<u8>) {
    let (mut held, mut count) = (0u64, 0u32);
    let filled = values.len().div_ceil(RUN) * RUN - values.len();
    for value in values.iter().copied().chain(std::iter::repeat_n(0, filled)) {
        held |= u64::from(value) << count;
        count += width;
        while count >= 8 {
            out.push(held as u8);
            held >>= 8;
            count -= 8;
        }
    }
    // Eight values of any width are whole bytes.
    debug_assert_eq!(count, 0);
}

/// A text with its length before it.
pub(crate) fn text(value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(value.as_bytes());
}

/// The first `count` values of such a hybrid; `None` if it ends before.
pub(crate) fn unpack(mut bytes: &[u8], width: u32, count: usize) -> Option<Vec<u32>> {
    let mut values = Vec::new();
    let whole = width.div_ceil(8) as usize;
    while values.len() < count {
        let head = number(&mut bytes)?;
        let left = count - values.len();
        let length = usize::try_from(head >> 1).ok()?;
        if head & 1 == 0 {
            let mut value = [0; 4];
            let (first, rest) = bytes.split_at_checked(whole)?;
            value.get_mut(..whole)?.copy_from_slice(first);
            bytes = rest;
            values.extend(std::iter::repeat_n(u32::from_le_bytes(value), length.min(left)));
        } else {
            let (packed, rest) = bytes.split_at_checked(length.checked_mul(width as usize)?)?;
            bytes = rest;
            let (mut held, mut known, mask) = (0u64, 0u32, (1u64 << width) - 1);
            let mut packed = packed.iter();
            for _ in 0..length.saturating_mul(RUN).min(left) {
                while known < width {
                    held |= u64::from(*packed.next()?) << known;
                    known += 8;
                }
                values.push((held & mask) as u32);
                held >>= width;
                known -= width;
            }
        }
        if length == 0 {
            return None;
        }
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The decoder as the specification tells it.
    fn decode(bytes: &[u8], width: usize, count: usize) -> Vec<u32> {
        let (mut at, mut values) = (0, Vec::new());
        while values.len() < count {
            let (mut head, mut shift) = (0usize, 0);
            loop {
                let byte = usize::from(bytes[at]);
                at += 1;
                head |= (byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            let bit = |b: usize| u32::from(bytes[at + b / 8] >> (b % 8) & 1);
            let number = |i: usize| (0..width).map(|b| bit(i * width + b) << b).sum::<u32>();
            if head & 1 == 0 {
                values.extend(std::iter::repeat_n(number(0), head >> 1));
                at += width.div_ceil(8);
            } else {
                values.extend((0..(head >> 1) * 8).map(number));
                at += (head >> 1) * width;
            }
        }
        values.truncate(count);
        values
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            runs in prop::collection::vec((0u32..1 << 11, 1usize..40), 0..30),
            width in 11u32..20,
        ) {
            let values: Vec<u32> = runs.iter().flat_map(|&(value, times)| std::iter::repeat_n(value, times)).collect();
            let mut bytes = Vec::new();
            hybrid(&values, width, &mut bytes);
            prop_assert_eq!(unpack(&bytes, width, values.len()), Some(values.clone()));
            prop_assert_eq!(decode(&bytes, width as usize, values.len()), values);
        }
    }

    #[test]
    fn bits_are_those_that_are_needed() {
        assert_eq!([0, 1, 2, 3, 4, 255, 256].map(bits), [0, 1, 2, 2, 3, 8, 9]);
    }
}
