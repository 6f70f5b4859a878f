//! Division by a divisor fixed at set-up: one multiplication instead of the slowest integer instruction.
//!
//! With m = floor((2^64 - 1) / d) and any n < 2^32, floor(n / d) = floor(m (n + 1) / 2^64): writing n = q d + r and
//! m d = 2^64 - 1 - e with 0 <= e < d, the product is 2^64 q + m (r + 1) - (1 + e) q, whose last two terms lie in
//! [0, 2^64) because (1 + e) q <= d q <= n < 2^32 <= m and m (r + 1) <= m d < 2^64.

/// A 32-bit divisor, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divisor {
    magic: u64,
    value: u32,
}

impl Divisor {
    pub(crate) const fn new(value: u32) -> Self {
        assert!(value > 0, "a divisor is at least 1");
        Self { magic: u64::MAX / value as u64, value }
    }

    #[inline]
    pub(crate) const fn get(self) -> u32 {
        self.value
    }

    #[inline]
    pub(crate) const fn quotient(self, n: u32) -> u32 {
        ((self.magic as u128 * (n as u128 + 1)) >> 64) as u32
    }

    /// Quotient and remainder of `n`.
    #[inline]
    pub(crate) const fn split(self, n: u32) -> (u32, u32) {
        let quotient = self.quotient(n);
        (quotient, n - quotient * self.value)
    }

    #[inline]
    pub(crate) const fn remainder(self, n: u32) -> u32 {
        self.split(n).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_edges_divide_exactly() {
        let edges = [1, 2, 3, 5, 7, 64, 641, 65_535, 65_536, 65_537, 1 << 31, u32::MAX - 1, u32::MAX];
        for d in edges {
            for n in edges.into_iter().chain([0]).flat_map(|n| [n, n.wrapping_sub(1), n.wrapping_mul(d)]) {
                assert_eq!(Divisor::new(d).split(n), (n / d, n % d), "{n} / {d}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_division_is_exact(n: u32, d in 1..=u32::MAX) {
            prop_assert_eq!(Divisor::new(d).split(n), (n / d, n % d));
        }
    }
}
