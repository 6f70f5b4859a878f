//! Words of dead ports: a bit each, missing words are zero.

/// Bits `first..first + count` of a row, 1 to 64 of them.
#[inline]
pub(crate) fn window(row: &[u64], first: u32, count: u32) -> u64 {
    let (word, shift) = (first as usize / 64, first % 64);
    let Some(&low) = row.get(word) else { return 0 };
    let mut bits = low >> shift;
    if shift > 0
        && let Some(&high) = row.get(word + 1)
    {
        bits |= high << (64 - shift);
    }
    bits & ones(count)
}

/// How many bits of `first..first + count` of a row are set; `count` may be any number.
#[inline]
pub(crate) fn count_ones(row: &[u64], first: u32, count: u32) -> u32 {
    if row.is_empty() {
        return 0;
    }
    let parts = (0..count).step_by(64);
    parts.map(|done| window(row, first + done, (count - done).min(64)).count_ones()).sum()
}

/// The lowest `count` bits, 1 to 64 of them.
#[inline]
pub(crate) const fn ones(count: u32) -> u64 {
    u64::MAX >> (64 - count)
}

/// Where the zero number `index` of a word is; quick where ones are few.
#[inline]
pub(crate) const fn nth_zero(mut word: u64, index: u32) -> u32 {
    let mut place = index;
    while word != 0 && word.trailing_zeros() <= place {
        place += 1;
        word &= word - 1;
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cross_words() {
        let row = [1 << 63 | 1, 0b101];
        assert_eq!(window(&row, 0, 1), 1);
        assert_eq!(window(&row, 63, 4), 0b1011);
        assert_eq!(window(&row, 64, 64), 0b101);
        assert_eq!(window(&row, 66, 64), 1);
        assert_eq!(window(&row, 128, 64), 0);
        assert_eq!(window(&[], 0, 64), 0);
        assert_eq!(count_ones(&row, 0, 200), 4);
        assert_eq!(count_ones(&row, 1, 66), 3);
    }

    #[test]
    fn zeros_are_counted() {
        for word in [0, 1, 0b1011, u64::MAX << 7, 0xaaaa_aaaa_aaaa_aaaa, 1 << 63] {
            let zeros: Vec<u32> = (0..64).filter(|bit| word >> bit & 1 == 0).collect();
            for (index, &zero) in zeros.iter().enumerate() {
                assert_eq!(nth_zero(word, index as u32), zero, "{word:b}");
            }
        }
    }
}
