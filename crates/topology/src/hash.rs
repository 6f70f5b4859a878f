//! Families of ECMP hashes: what a switch makes of a packet's five-tuple.
//!
//! **What is hashed.** A queue pair of RoCEv2 has the five-tuple (UDP; 10.0.0.0 + the sending NIC's number; 10.0.0.0 + the
//! receiving NIC's; a source port; destination port 4791). Queue pairs of one connection have consecutive source ports, as adapters
//! and NCCL give them, from 49,152 to 65,535 and round, which is Linux's range for RoCEv2 (`IB_ROCE_UDP_ENCAP_VALID_PORT_MIN`);
//! the first follows from the run's seed and the connection's entropy.
//!
//! | family | hash of the 13 bytes in the order in which the headers have them |
//! |---|---|
//! | `mixed` | none: the 64-bit mixer of [`choose()`](crate::choose()), another draw for each flow |
//! | `crc32` | CRC-32 of IEEE 802.3 (polynomial 0x04C11DB7, reflected; check value 0xCBF43926) |
//! | `crc16` | CRC-16 of XMODEM (CCITT's polynomial 0x1021, initially 0; check value 0x31C3) |
//! | `xor` | the exclusive or of all fields, 16 bits at a time |
//!
//! The port is the hash modulo the number of equal-cost ports. Which fields and which of these functions a switch takes is a setting
//! of its chip; modulo-n is of RFC 2991, CRC-16 the example of RFC 2992.
//!
//! **Structure.** CRCs and exclusive ors are linear: neighbouring source ports differ by fixed patterns. Where the patterns of
//! k bits are independent in the hash's low bits, 2^k consecutive queue pairs spread evenly over 2^k ports, which no independent draw
//! does; where they are not, they share few ports.
//!
//! **Switches that hash alike** choose alike: of the flows that a switch of the second tier gets, all have made the same choice
//! before, and make it again (polarisation). Another initial value does not help, because it adds a constant to a linear hash and so
//! only renames ports (Zhang et al., "Hashing linearity enables relative path control in data centers", USENIX ATC 2021). With seeds
//! each switch also has another function: a CRC goes on over some zero bits of the switch's own number ([`EVEN_32`], [`EVEN_16`]: those
//! after which consecutive ports are even), the exclusive or gives its bits from another offset, as chips let one set.

use windtunnel_kernel::mix64;
use windtunnel_kernel::random::{combine, combine_scattered};

use crate::choose::flow_hash;

/// Destination port of RoCEv2.
const ROCE: u16 = 4_791;
/// Protocol number of UDP.
const UDP: u8 = 17;
/// The lowest of the source ports, of which there are 2^14.
const FIRST_PORT: u16 = 0xC000;
/// Address of NIC 0.
const NETWORK: u32 = 10 << 24;

windtunnel_kernel::named! {
    /// What a switch hashes a packet's header by.
    #[derive(Default, Hash)]
    pub enum HashFamily: "hash" {
        #[default]
        Mixed = "mixed", "a 64-bit mixer: an independent draw for each flow and switch";
        Crc16 = "crc16", "CRC-16 (XMODEM)";
        Crc32 = "crc32", "CRC-32 (IEEE 802.3): spreads queue pairs with consecutive source ports evenly";
        Xor = "xor", "the exclusive or of all fields, 16 bits at a time";
    }
}

/// A family, and whether each switch has a seed of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EcmpHash {
    /// The family.
    pub family: HashFamily,
    /// Whether each switch has a seed of its own; without, switches of all tiers choose alike.
    pub switch_seeds: bool,
}

impl Default for EcmpHash {
    /// `mixed`, with a seed for each switch.
    fn default() -> Self {
        Self { family: HashFamily::Mixed, switch_seeds: true }
    }
}

impl EcmpHash {
    /// The part of a choice that all switches of a route share: see [`flow_hash`], which it is for the default.
    ///
    /// NICs are counted over the whole cluster; `entropy` names the queue pair.
    #[inline]
    pub fn flow_hash(self, seed: u64, src_nic: u64, dst_nic: u64, entropy: u32) -> u64 {
        match self {
            Self { family: HashFamily::Mixed, switch_seeds: true } => {
                flow_hash(seed, src_nic, dst_nic, entropy)
            }
            _ => self.structured(seed, src_nic as u32, dst_nic as u32, entropy),
        }
    }

    fn structured(self, seed: u64, src_nic: u32, dst_nic: u32, entropy: u32) -> u64 {
        let tuple = FiveTuple::new(seed, src_nic, dst_nic, entropy);
        let (hash, kind) = match self.family {
            HashFamily::Mixed => {
                ((flow_hash(seed, u64::from(src_nic), u64::from(dst_nic), entropy) >> 32) as u32, WHOLE)
            }
            HashFamily::Crc32 => (crc32(&tuple.bytes()), BY_32),
            HashFamily::Crc16 => (u32::from(crc16(&tuple.bytes())), BY_16),
            HashFamily::Xor => (u32::from(tuple.folded()), FOLDED),
        };
        TAG | u64::from(self.switch_seeds) << SEEDED | kind << KIND | u64::from(hash)
    }

    /// Entropy of queue pair `part` of a connection: another source port, the next one where there are any.
    #[inline]
    pub fn part(self, entropy: u32, part: u32) -> u32 {
        match (self.family, part) {
            (_, 0) => entropy,
            (HashFamily::Mixed, part) => combine(u64::from(entropy), u64::from(part)) as u32,
            (_, part) => entropy.wrapping_add(part),
        }
    }
}

/// What is hashed.
#[derive(Clone, Copy, Debug)]
struct FiveTuple {
    from: u32,
    to: u32,
    source_port: u16,
}

impl FiveTuple {
    fn new(seed: u64, src_nic: u32, dst_nic: u32, entropy: u32) -> Self {
        let port = entropy.wrapping_add(mix64(seed) as u32) as u16;
        let address = |nic: u32| NETWORK.wrapping_add(nic);
        Self { from: address(src_nic), to: address(dst_nic), source_port: port | FIRST_PORT }
    }

    /// As the headers have it: protocol, source, destination, source port, destination port.
    fn bytes(self) -> [u8; 13] {
        let mut bytes = [UDP; 13];
        bytes[1..5].copy_from_slice(&self.from.to_be_bytes());
        bytes[5..9].copy_from_slice(&self.to.to_be_bytes());
        bytes[9..11].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[11..].copy_from_slice(&ROCE.to_be_bytes());
        bytes
    }

    fn folded(self) -> u16 {
        let halves = |address: u32| (address >> 16) as u16 ^ address as u16;
        u16::from(UDP) ^ halves(self.from) ^ halves(self.to) ^ self.source_port ^ ROCE
    }
}

/// CRC-16 of XMODEM: polynomial 0x1021, highest bit first, initially 0.
pub fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(
            crc ^ u16::from(byte) << 8,
            |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            },
        )
    })
}

/// CRC-32 of IEEE 802.3: polynomial 0x04C11DB7, lowest bit first, initially and finally inverted.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(
            crc ^ u32::from(byte),
            |crc, _| {
                if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0xEDB8_8320 }
            },
        )
    })
}

/// The upper 24 bits of a flow hash that is not the mixer's. The mixer's own never has them: see [`untagged`].
const TAG: u64 = 0x00A5_C37E << 40;
const MASK: u64 = 0x00FF_FFFF << 40;
/// Bits of a tagged flow hash: whether switches have seeds, and what the lower 32 bits are.
const SEEDED: u32 = 34;
const KIND: u32 = 32;
const WHOLE: u64 = 0;
const BY_32: u64 = 1;
const BY_16: u64 = 2;
const FOLDED: u64 = 3;

/// Whether a path is named: the lower 16 bits are its number, those above follow from the flow.
const NUMBERED: u32 = 35;

/// The flow hash of a packet whose sender names its path: `number` of those that a flow of the given
/// [`flow_hash`] has.
///
/// Every switch takes the port (r + number) mod n of its n equal ones, where r follows from the flow and the switch. So as many
/// consecutive numbers as the first switch has ports up lead by as many different paths, each by another port of every switch: a
/// source route (such as SRv6's) by rule, of which nobody keeps a table. Equal numbers of different flows are different paths.
pub const fn numbered(flow_hash: u64, number: u16) -> u64 {
    TAG | 1 << NUMBERED | combine(flow_hash, 0) >> 48 << 16 | number as u64
}

/// Numbers of zero bits after which the lowest 1 to 6 bits of a source port give as many independent bits at the low end of a CRC of the
/// five-tuple, so that 2, 4, … 64 consecutive ports spread evenly. A test finds them anew.
const EVEN_32: [u8; 32] = [
    0, 8, 13, 20, 49, 55, 63, 70, 75, 86, 92, 99, 101, 108, 110, 113, 119, 125, 138, 148, 158, 170, 175, 177,
    179, 192, 200, 206, 210, 213, 219, 224,
];
const EVEN_16: [u8; 32] = [
    3, 19, 26, 32, 36, 39, 42, 51, 54, 72, 79, 82, 88, 94, 97, 111, 120, 130, 139, 149, 163, 167, 171, 178,
    184, 196, 198, 203, 206, 209, 216, 221,
];

/// `mixed` as it is, but for one of 2^24, whose highest bit changes.
#[inline]
pub(crate) const fn untagged(mixed: u64) -> u64 {
    if is_tagged(mixed) { mixed ^ 1 << 63 } else { mixed }
}

/// Whether a flow hash is of another family than the mixer.
#[inline]
pub(crate) const fn is_tagged(flow_hash: u64) -> bool {
    flow_hash & MASK == TAG
}

/// [`crc32`] going on over `zeros` bits.
const fn more_32(mut crc: u32, zeros: u8) -> u32 {
    let mut left = zeros;
    while left > 0 {
        crc = if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0xEDB8_8320 };
        left -= 1;
    }
    crc
}

/// [`crc16`] going on over `zeros` bits.
const fn more_16(mut crc: u16, zeros: u8) -> u16 {
    let mut left = zeros;
    while left > 0 {
        crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
        left -= 1;
    }
    crc
}

/// The choice of a switch among `n` for a tagged flow hash (0 if `n` is 0); `scattered` is what the kernel's hash makes of the
/// switch's number.
pub(crate) const fn choose_tagged(flow_hash: u64, scattered: u64, n: u64) -> u64 {
    if n == 0 {
        return 0;
    }
    let hash = flow_hash as u32;
    if flow_hash >> NUMBERED & 1 == 1 {
        let rotation = combine_scattered((hash >> 16) as u64, scattered) >> 32;
        return (rotation + (hash as u16) as u64) % n;
    }
    if flow_hash >> SEEDED & 1 == 0 {
        return hash as u64 % n;
    }
    let (constant, own) = (scattered as u32, (scattered >> 32) as usize % 32);
    let found = match flow_hash >> KIND & 3 {
        BY_32 => more_32(hash ^ constant, EVEN_32[own]),
        BY_16 => more_16(hash as u16 ^ constant as u16, EVEN_16[own]) as u32,
        _ => (hash as u16 ^ constant as u16).rotate_right(own as u32) as u32,
    };
    found as u64 % n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choose::{choose_hashed, choose_weighted_hashed};

    const FAMILIES: [HashFamily; 4] =
        [HashFamily::Mixed, HashFamily::Crc16, HashFamily::Crc32, HashFamily::Xor];

    fn hash(family: HashFamily, switch_seeds: bool) -> EcmpHash {
        EcmpHash { family, switch_seeds }
    }

    /// The check values of the catalogue of parametrised CRC algorithms (Cook), of the nine digits; those of one 0 and of nothing
    /// follow from the definitions.
    #[test]
    fn crcs_have_their_published_check_values() {
        assert_eq!((crc16(b"123456789"), crc32(b"123456789")), (0x31C3, 0xCBF4_3926));
        assert_eq!((crc16(&[]), crc32(&[])), (0, 0));
        assert_eq!((crc16(&[0, 1]), crc32(&[0])), (0x1021, 0xD202_EF8D));
    }

    /// The five-tuple of NICs 258 and 3, source port 49,157, hashed by independent implementations (Python's `zlib.crc32` and
    /// `binascii.crc_hqx`).
    #[test]
    fn known_answers() {
        let entropy = 5_u32.wrapping_sub(mix64(7) as u32);
        let found = |family| hash(family, false).flow_hash(7, 258, 3, entropy) as u32;
        assert_eq!(
            [found(HashFamily::Crc16), found(HashFamily::Crc32), found(HashFamily::Xor)],
            [0x7260, 0xC6F1_8E0D, 0xD3A2]
        );
    }

    #[test]
    fn the_default_is_the_mixer_to_the_bit() {
        for nic in 0..1_000 {
            let (plain, default) = (flow_hash(1, nic, 7, 3), EcmpHash::default().flow_hash(1, nic, 7, 3));
            assert_eq!((plain, is_tagged(plain)), (default, false));
        }
        assert_eq!(untagged(TAG | 5), (TAG | 5) ^ 1 << 63, "the one of 2^24");
        assert!(!is_tagged(untagged(TAG | 5)));
    }

    /// n consecutive numbers take each port of a switch once, whatever the switch and the flow, and flows begin at different ports.
    #[test]
    fn numbered_paths_take_every_port_once() {
        for n in [1, 3, 16, 64] {
            let mut firsts = std::collections::BTreeSet::new();
            for flow in 0..40 {
                for switch in [0, 7, 1 << 20] {
                    let port = |number: u32| {
                        choose_hashed(numbered(flow_hash(1, flow, 9, 0), number as u16), switch, n)
                    };
                    let mut ports: Vec<u32> = (5..5 + n).map(port).collect();
                    firsts.insert(ports[0]);
                    ports.sort_unstable();
                    assert_eq!(ports, (0..n).collect::<Vec<_>>(), "{n} ports, flow {flow}, switch {switch}");
                }
            }
            assert!(firsts.len() as u32 >= n.min(40) * 2 / 3, "{n}: {firsts:?}");
        }
    }

    /// Load of the fullest of `n` ports over the mean, for `parts` queue pairs from each of many pairs of NICs: the mean over the
    /// pairs. The first source port is drawn, or the next multiple of `parts`.
    fn fullest(hash: EcmpHash, switch: u64, parts: u32, n: u32, aligned: bool) -> f64 {
        let (seed, pairs) = (3, 200);
        let of = |pair: u64| {
            let mut loads = vec![0_u32; n as usize];
            let drawn = mix64(pair) as u32;
            let entropy =
                if aligned { (drawn / parts * parts).wrapping_sub(mix64(seed) as u32) } else { drawn };
            for part in 0..parts {
                let flow = hash.flow_hash(seed, pair, 1_000 + pair * 7, hash.part(entropy, part));
                loads[choose_hashed(flow, switch, n) as usize] += 1;
            }
            f64::from(loads.into_iter().max().unwrap_or(0)) * f64::from(n) / f64::from(parts)
        };
        (0..pairs).map(of).sum::<f64>() / pairs as f64
    }

    /// Source ports step: CRC-32 and XOR spread consecutive ones over as many ports, where independent draws fill the fullest to twice
    /// or thrice the mean. CRC-16 does worse than draws: the patterns of neighbouring ports depend on one another in its low bits.
    #[test]
    fn stepped_source_ports_are_even_where_the_hash_is() {
        for (parts, n, drawn) in [(8, 8, 2.60), (16, 16, 3.07), (32, 8, 1.76), (32, 32, 3.57)] {
            let at = |family| fullest(hash(family, false), 9, parts, n, false);
            let mixed = fullest(EcmpHash::default(), 9, parts, n, false);
            assert!((mixed - drawn).abs() < 0.15, "independent draws: {mixed}, expected {drawn}");
            assert_eq!(at(HashFamily::Xor), 1.0, "{parts} over {n}");
            let crc32 = at(HashFamily::Crc32);
            assert!(crc32 < 1.15, "crc32, {parts} over {n}: {crc32}");
            let crc16 = at(HashFamily::Crc16);
            assert!(crc16 > mixed, "crc16, {parts} over {n}: {crc16}");
        }
    }

    /// With seeds CRCs are even at every switch where the first port is a multiple of their number, and otherwise at most two rows that
    /// are: better than draws.
    #[test]
    fn seeds_keep_stepped_source_ports_even() {
        for (parts, n) in [(8, 8), (16, 16), (32, 8), (32, 32)] {
            let mixed = fullest(EcmpHash::default(), 9, parts, n, false);
            for family in [HashFamily::Crc16, HashFamily::Crc32] {
                for switch in 0..20 {
                    let at = |aligned| fullest(hash(family, true), switch, parts, n, aligned);
                    assert_eq!(at(true), 1.0, "{family:?} at switch {switch}, {parts} over {n}");
                    let found = at(false);
                    assert!(
                        found < 0.9 * mixed,
                        "{family:?} at switch {switch}, {parts} over {n}: {found} of {mixed}"
                    );
                }
            }
        }
    }

    /// Independent rows over the integers modulo 2.
    fn rank(mut rows: Vec<u32>) -> usize {
        let mut rank = 0;
        while let Some(row) = rows.pop() {
            if row != 0 {
                rank += 1;
                let lowest = row & row.wrapping_neg();
                rows.iter_mut().filter(|other| **other & lowest != 0).for_each(|other| *other ^= row);
            }
        }
        rank
    }

    /// The numbers of zero bits after which consecutive ports are even are the first 32 that there are.
    #[test]
    fn seeds_keep_consecutive_ports_even() {
        let tuple = |port: u16| FiveTuple { from: 1, to: 2, source_port: port }.bytes();
        let even = |after: &dyn Fn(u16) -> u32| {
            (1..=6).all(|bits| {
                let rows = (0..bits).map(|bit| (after(1 << bit) ^ after(0)) & ((1 << bits) - 1));
                rank(rows.collect()) == bits
            })
        };
        let found =
            |even_after: &dyn Fn(u8) -> bool| (0..=255).filter(|&zeros| even_after(zeros)).take(32).collect();
        let by_32: Vec<u8> = found(&|zeros| even(&|port| more_32(crc32(&tuple(port)), zeros)));
        let by_16: Vec<u8> = found(&|zeros| even(&|port| u32::from(more_16(crc16(&tuple(port)), zeros))));
        assert_eq!((&by_32[..], &by_16[..]), (&EVEN_32[..], &EVEN_16[..]));
    }

    /// Flows that one switch sends by its port 0 of 8 meet a second with 8 ports: without seeds all take its port 0, with seeds they
    /// take all 8.
    #[test]
    fn switches_that_hash_alike_polarise() {
        let used = |hash: EcmpHash, second: u64| {
            let mut loads = [0_u32; 8];
            for flow in 0..8_000 {
                let flow = hash.flow_hash(1, flow % 64, 64 + flow / 64, mix64(flow) as u32);
                if choose_hashed(flow, 5, 8) == 0 {
                    loads[choose_hashed(flow, second, 8) as usize] += 1;
                }
            }
            (loads.iter().filter(|&&load| load > 0).count(), loads)
        };
        for family in FAMILIES {
            for second in 6..40 {
                assert_eq!(used(hash(family, false), second).0, 1, "{family:?} without seeds");
            }
            let ports: Vec<usize> = (6..40).map(|second| used(hash(family, true), second).0).collect();
            let all = ports.iter().filter(|&&ports| ports == 8).count();
            // Two of 32 CRCs are the same now and then; an exclusive or shares bits with another where their offsets are near.
            let due = if family == HashFamily::Xor { 20 } else { 30 };
            assert!(all >= due, "{family:?} with seeds: {ports:?}");
        }
    }

    /// One flow draws one port of any number, by weights too, and no number of ports panics.
    #[test]
    fn choices_are_in_range_and_follow_weights() {
        for family in FAMILIES {
            for seeds in [false, true] {
                let mut counts = [0_u32; 3];
                for flow in 0..12_000_u32 {
                    let flow = hash(family, seeds).flow_hash(
                        1,
                        u64::from(flow % 100),
                        u64::from(flow),
                        mix64(flow.into()) as u32,
                    );
                    for n in [0, 1, 3, 7, 64, 1_000] {
                        assert!(choose_hashed(flow, 4, n) < n.max(1));
                    }
                    counts[choose_weighted_hashed(flow, 4, &[1, 1, 4]) as usize] += 1;
                }
                let [first, none, rest] = counts.map(f64::from);
                assert_eq!(none, 0.0);
                assert!((rest / first - 3.0).abs() < 0.35, "{family:?}, seeds {seeds}: {counts:?}");
            }
        }
    }
}
