//! Clocks that are fast or slow.

/// How fast the clocks of NICs are; empty where all are right.
#[derive(Clone, Debug, Default)]
pub(in crate::packet) struct Clocks {
    /// Parts in 10^9, by NIC.
    fast: Vec<i64>,
}

const ONE: u64 = 1_000_000_000;

impl Clocks {
    pub(in crate::packet) fn new(nics: u32, clocks: &[(u32, i64)]) -> Self {
        if clocks.is_empty() {
            return Self::default();
        }
        let mut fast = vec![0; nics as usize];
        for &(nic, drift) in clocks {
            fast[nic as usize] += drift;
        }
        Self { fast }
    }

    #[inline]
    pub(in crate::packet) fn are_right(&self) -> bool {
        self.fast.is_empty()
    }

    /// Time that passes while the clock of `nic` counts `span`; `rest` is carried from one call to the next.
    pub(in crate::packet) fn real(&self, nic: u32, span: u64, rest: &mut u64) -> u64 {
        let pace = ONE.saturating_add_signed(self.fast[nic as usize]).max(1);
        let sum = u128::from(span) * u128::from(ONE) + u128::from(*rest);
        *rest = (sum % u128::from(pace)) as u64;
        (sum / u128::from(pace)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However a span is cut, what passes is what its sum takes, and two clocks come apart by their drift.
    #[test]
    fn clocks_come_apart_by_their_drift_exactly() {
        let clocks = Clocks::new(3, &[(0, 50_000), (1, -100_000)]);
        for (nic, fast) in [(0u32, 50_000i128), (1, -100_000), (2, 0)] {
            let (mut passed, mut counted, mut rest) = (0u128, 0u128, 0);
            for step in 0..100_000u64 {
                let span = 83_200 + step % 7;
                counted += u128::from(span);
                passed += u128::from(clocks.real(nic, span, &mut rest));
            }
            let pace = (1_000_000_000 + fast) as u128;
            assert_eq!(passed, counted * 1_000_000_000 / pace, "{fast} parts in 10^9");
        }
    }
}
