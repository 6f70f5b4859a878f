//! Random streams keyed by (seed, domain, entity), never shared and never dependent on thread order.
//!
//! The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11),
//! counter-based: a stream is a key and a counter, so any draw can be had without the ones before it. The bit mixer is
//! the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA'14), variant 13 of Stafford. Both are pinned by
//! known-answer tests: a change of a constant is a change of every seeded result.

use crate::math;

/// SplitMix64's finaliser: a bijection of 64 bits with full avalanche.
#[inline]
pub const fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// SplitMix64's increment.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Folds `next` into the hash `state`; order matters.
#[inline]
pub const fn combine(state: u64, next: u64) -> u64 {
    combine_scattered(state, scatter(next))
}

/// What [`combine`] makes of `next` alone, for those who fold the same one often.
#[inline]
pub const fn scatter(next: u64) -> u64 {
    mix64(next.wrapping_add(GOLDEN))
}

/// `combine(state, next)`, given `scatter(next)`.
#[inline]
pub const fn combine_scattered(state: u64, scattered: u64) -> u64 {
    mix64(state.wrapping_add(GOLDEN) ^ scattered)
}

/// One Philox4x32-10 block: 128 random bits for a 128-bit counter under a 64-bit key.
pub const fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    let mut round = 0;
    while round < 10 {
        let p0 = 0xD251_1F53_u64 * c0 as u64;
        let p1 = 0xCD9E_8D57_u64 * c2 as u64;
        (c0, c1, c2, c3) = ((p1 >> 32) as u32 ^ c1 ^ k0, p1 as u32, (p0 >> 32) as u32 ^ c3 ^ k1, p0 as u32);
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
        round += 1;
    }
    [c0, c1, c2, c3]
}

/// A stream of draws for one entity.
#[derive(Clone, Debug)]
pub struct RandomStream {
    key: [u32; 2],
    entity: u64,
    block: u64,
    buffer: [u64; 2],
    left: u8,
}

impl RandomStream {
    /// The stream of `entity` in `domain` (a name such as `"kernel-noise"`) under the run's `seed`.
    pub fn new(seed: u64, domain: &str, entity: u64) -> Self {
        let mut key = mix64(seed);
        for &byte in domain.as_bytes() {
            key = combine(key, u64::from(byte));
        }
        Self { key: [key as u32, (key >> 32) as u32], entity, block: 0, buffer: [0; 2], left: 0 }
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        if self.left == 0 {
            let counter = [
                self.block as u32,
                (self.block >> 32) as u32,
                self.entity as u32,
                (self.entity >> 32) as u32,
            ];
            let [a, b, c, d] = philox4x32(counter, self.key);
            self.buffer = [u64::from(a) | u64::from(b) << 32, u64::from(c) | u64::from(d) << 32];
            self.block += 1;
            self.left = 2;
        }
        self.left -= 1;
        self.buffer[1 - usize::from(self.left)]
    }

    /// A uniform double in [0, 1) with 53 bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A uniform integer in [0, n) by multiply-shift; its bias is below n / 2^64.
    ///
    /// # Panics
    /// If `n` is zero.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "a draw from an empty range");
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// A standard normal draw (Box–Muller, the cosine branch: two uniforms a draw).
    pub fn normal(&mut self) -> f64 {
        let radius = math::sqrt(-2.0 * math::ln(1.0 - self.uniform()));
        radius * math::cos(std::f64::consts::TAU * self.uniform())
    }

    /// An exponential draw of mean 1.
    pub fn exponential(&mut self) -> f64 {
        -math::ln(1.0 - self.uniform())
    }

    /// A random permutation of 0..n (Fisher–Yates).
    pub fn permutation(&mut self, n: usize) -> Vec<u32> {
        let mut items: Vec<u32> = (0..n as u32).collect();
        for i in (1..n).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
        items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From kat_vectors of the Random123 distribution.
    #[test]
    fn philox_known_answers() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox4x32([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    /// SplitMix64 seeded with 1234567: the published first outputs.
    #[test]
    fn mixer_known_answers() {
        let mut state = 1_234_567u64;
        let mut next = || {
            state = state.wrapping_add(GOLDEN);
            mix64(state)
        };
        assert_eq!([next(), next(), next()], [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn streams_are_keyed_by_seed_domain_and_entity() {
        let first = |seed, domain, entity| RandomStream::new(seed, domain, entity).next_u64();
        let reference = first(1, "noise", 7);
        assert_eq!(reference, first(1, "noise", 7));
        assert_ne!(reference, first(2, "noise", 7));
        assert_ne!(reference, first(1, "faults", 7));
        assert_ne!(reference, first(1, "noise", 8));
    }

    #[test]
    fn draws_have_their_moments() {
        let mut stream = RandomStream::new(3, "moments", 0);
        let n = 200_000;
        let normals: Vec<f64> = (0..n).map(|_| stream.normal()).collect();
        let mean = normals.iter().sum::<f64>() / f64::from(n);
        let variance = normals.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / f64::from(n);
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
        let mean = (0..n).map(|_| stream.exponential()).sum::<f64>() / f64::from(n);
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn a_permutation_holds_every_item_once() {
        let mut items = RandomStream::new(1, "permutation", 0).permutation(1000);
        assert_ne!(items, (0..1000).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<_>>());
    }
}
