//! The buffer of a switch: what is shared, what each port has of its own, and which packets it admits.

use super::error::PacketError;
use super::settings::BufferSettings;

/// A switch's buffer and ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Switch {
    /// Its ports are numbered from here.
    pub first: u32,
    pub count: u32,
    /// For each port alone.
    reserve: u32,
    /// α in units of 2^-16.
    pub alpha: u64,
    /// Size of the shared part; `u64::MAX` without a limit.
    pub shared: u64,
    /// Bytes in the shared part, at least.
    pub used: u64,
}

impl Switch {
    pub(super) fn new(
        first: u32,
        count: u32,
        tier: u8,
        buffers: &[BufferSettings],
    ) -> Result<Self, PacketError> {
        let settings = buffers.get(usize::from(tier)).or(buffers.last());
        let Some(&BufferSettings { size, alpha, reserve }) = settings else {
            return Ok(Self { first, count, reserve: 0, alpha: 0, shared: u64::MAX, used: 0 });
        };
        let reserved = u64::from(count).saturating_mul(reserve.get());
        // What a port holds is counted in 32 bits.
        let size_fits = size.get().min(1 << 32);
        match size_fits.checked_sub(reserved) {
            Some(shared) if shared > 0 => Ok(Self {
                first,
                count,
                reserve: reserve.get() as u32,
                alpha: (alpha * 65_536.0) as u64,
                shared,
                used: 0,
            }),
            _ => Err(PacketError::Reserve { tier, ports: count, reserve, size }),
        }
    }

    /// Has each port keep so much at least; by how much more that is.
    pub(super) fn reserve_least(&mut self, least: u32) -> u32 {
        let before = self.reserve;
        self.reserve = before.max(least);
        self.reserve - before
    }

    #[inline]
    pub(super) const fn is_limited(&self) -> bool {
        self.shared != u64::MAX
    }

    /// Bytes free in the shared part, at most.
    #[inline]
    pub(super) const fn free(&self) -> u64 {
        self.shared.saturating_sub(self.used)
    }

    /// Bytes of data that a port may hold while the others hold nothing; `None` without a limit.
    pub(super) fn most_alone(&self) -> Option<u64> {
        // x = α (shared - x), in units of 2^-16.
        let excess = u128::from(self.alpha) * u128::from(self.shared) / (65_536 + u128::from(self.alpha));
        self.is_limited().then(|| u64::from(self.reserve) + excess as u64)
    }

    #[inline]
    pub(super) fn excess(&self, held: u32) -> u64 {
        u64::from(held.saturating_sub(self.reserve))
    }

    /// A port holds `held` bytes, and `before` until now.
    #[inline]
    pub(super) fn change(&mut self, before: u32, held: u32) {
        self.used = self.used + self.excess(held) - self.excess(before);
    }

    /// Whether a port may hold `held` bytes, `before` of which it holds already.
    #[inline]
    pub(super) fn admits(&self, before: u32, held: u32, control: bool) -> bool {
        let free = self.free();
        // What fits the reserve is no excess.
        let (had, has) = (self.excess(before), self.excess(held));
        // A port's excess of data may reach alpha times what is free before the packet; control only needs room.
        has - had <= free && has <= ((free * self.alpha) >> 16 | mask(control))
    }
}

/// α times what is free.
#[inline]
pub(super) fn share(free: u64, alpha: u64) -> u64 {
    ((u128::from(free) * u128::from(alpha)) >> 16) as u64
}

/// All bits if `yes`, else none: a limit that does not hold then, without a branch that nobody could foresee.
#[inline]
pub(super) const fn mask(yes: bool) -> u64 {
    (yes as u64).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use windtunnel_kernel::Bytes;

    #[test]
    fn the_dynamic_threshold_is_alpha_times_what_is_free() {
        let buffer = BufferSettings { size: Bytes::new(100_000), alpha: 0.5, reserve: Bytes::new(1_000) };
        let mut switch = Switch::new(0, 10, 0, &[buffer]).expect("a buffer");
        // Shared: 90,000. A port alone reaches its reserve and 0.5 × the rest: x = 0.5 (90,000 - x).
        assert!(switch.admits(0, 1_000, false) && switch.admits(0, 46_000, false));
        assert!(!switch.admits(0, 46_001, false) && switch.admits(0, 46_001, true));
        // 1,000 + 0.5 / 1.5 × 90,000, when its own bytes are counted.
        assert_eq!(switch.most_alone(), Some(31_000));
        switch.used = 90_000;
        assert!(switch.admits(0, 1_000, false) && !switch.admits(1_000, 1_001, true));
        let buffer = BufferSettings { size: Bytes::new(10_000), ..buffer };
        assert!(Switch::new(0, 10, 0, &[buffer]).is_err(), "reserves leave nothing");
    }
}
