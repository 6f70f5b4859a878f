//! Erasure coding of messages: after each block of data packets parity packets leave, and any packets of a block that are as many as its
//! data packets restore the others (a maximum-distance-separable code, as Reed and Solomon's).
//!
//! Life cycle: a [`Coding`] is set for a run; the packet model cuts messages into blocks by it, and the models that have no
//! packets count the bytes of parity ([`wire_bytes`]). Invariants: a block has 64 packets at most, so that one acknowledgement tells of
//! all; the last block of a message is shorter, and its parity is in proportion, rounded up, so a message of one packet has one
//! of parity. Failure modes: [`CodingError`] for a block that is empty or too long.
//!
//! Source: SDR-RDMA (Khalilov et al. 2025, arXiv 2505.05366), which sets erasure coding against selective repeat over long distances.
//! The default block, 32 packets with 8 of parity, is this project's choice: a fifth of what is sent.

use windtunnel_kernel::Bytes;

/// Packets of a block, at most.
pub const LONGEST: u16 = 64;

/// How many packets of parity follow how many of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coding {
    data: u16,
    parity: u16,
}

/// A block that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodingError {
    /// Nothing to send, or nothing beside it.
    #[error("expected at least 1 packet of data and 1 of parity in a block, found {data} and {parity}")]
    Empty {
        /// Of data.
        data: u16,
        /// Of parity.
        parity: u16,
    },
    /// More packets than an acknowledgement tells of.
    #[error("expected at most {LONGEST} packets in a block, found {data} of data and {parity} of parity")]
    Long {
        /// Of data.
        data: u16,
        /// Of parity.
        parity: u16,
    },
}

/// A block of a message: its first packet, counted from that of the message, how many of its packets are data, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// First packet.
    pub first: u32,
    /// Packets of data, the first ones; as many of any kind restore the others.
    pub data: u32,
    /// Packets in all.
    pub packets: u32,
}

impl Default for Coding {
    /// 8 packets of parity after 32 of data.
    fn default() -> Self {
        Self { data: 32, parity: 8 }
    }
}

impl Coding {
    /// Blocks of so many packets.
    ///
    /// # Errors
    /// [`CodingError`] for none of one kind, or more than [`LONGEST`] in all.
    pub const fn new(data: u16, parity: u16) -> Result<Self, CodingError> {
        if data == 0 || parity == 0 {
            return Err(CodingError::Empty { data, parity });
        }
        if data > LONGEST || parity > LONGEST - data {
            return Err(CodingError::Long { data, parity });
        }
        Ok(Self { data, parity })
    }

    /// Packets of data of a whole block, and of parity.
    pub const fn sizes(self) -> [u16; 2] {
        [self.data, self.parity]
    }

    /// Packets of parity of a message with `data` packets.
    pub const fn parity(self, data: u64) -> u64 {
        let (of, by) = (self.data as u64, self.parity as u64);
        data / of * by + (data % of * by).div_ceil(of)
    }

    /// The block of packet `index` of a message that has `packets` in all.
    pub fn block(self, index: u32, packets: u32) -> Block {
        let whole = u32::from(self.data + self.parity);
        let first = index / whole * whole;
        let held = whole.min(packets - first);
        // Packets of both kinds grow by one at least with each of data, so one number of these fits.
        let least = held * u32::from(self.data) / whole;
        let all = |data: &u32| *data + self.parity(u64::from(*data)) as u32;
        let data = (least.saturating_sub(1)..=least + 1)
            .find(|data| all(data) == held)
            .expect("the last block has as many packets as its data asks for");
        Block { first, data, packets: held }
    }

    /// Packets of a message of `packets` in all up to its last of data.
    pub fn needed(self, packets: u32) -> u32 {
        let last = self.block(packets - 1, packets);
        last.first + last.data
    }
}

/// Packets of a message of `bytes`, a full one of which carries `payload`: with its parity.
pub fn packets(bytes: u64, payload: u64, coding: Option<Coding>) -> u64 {
    let data = bytes.div_ceil(payload);
    data + coding.map_or(0, |coding| coding.parity(data))
}

/// Bytes on the wire of a message of `bytes` beyond the scale-up domain: with the headers of its packets, and its parity.
pub fn wire_bytes(bytes: u64, mtu: Bytes, header: Bytes, coding: Option<Coding>) -> u64 {
    let payload = mtu.get() - header.get();
    let data = bytes.div_ceil(payload);
    let parity = coding.map_or(0, |coding| coding.parity(data));
    bytes + parity * payload.min(bytes) + (data + parity) * header.get()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The blocks of a message written out.
    fn blocks(coding: Coding, data: u32) -> Vec<Block> {
        let [of, _] = coding.sizes().map(u32::from);
        let mut found = Vec::new();
        let (mut first, mut left) = (0, data);
        while left > 0 {
            let here = left.min(of);
            let packets = here + coding.parity(u64::from(here)) as u32;
            found.push(Block { first, data: here, packets });
            first += packets;
            left -= here;
        }
        found
    }

    proptest! {
        #[test]
        fn each_packet_is_in_its_block(data in 1..40u16, parity in 1..24u16, message in 1..400u32) {
            let coding = Coding::new(data, parity).expect("64 packets at most");
            let all = blocks(coding, message);
            let packets = all.iter().map(|block| block.packets).sum::<u32>();
            prop_assert_eq!(u64::from(packets), super::packets(u64::from(message) * 1_000, 1_000, Some(coding)));
            for block in &all {
                for index in block.first..block.first + block.packets {
                    prop_assert_eq!(coding.block(index, packets), *block);
                }
            }
            let last = all.last().expect("a message has a packet");
            prop_assert_eq!(coding.needed(packets), last.first + last.data);
        }
    }

    #[test]
    fn parity_is_on_the_wire() {
        let (mtu, header) = (Bytes::new(4_150), Bytes::new(66));
        let of = |bytes, coding| wire_bytes(bytes, mtu, header, coding);
        assert_eq!(of(8, None), 8 + 66);
        // The parity of a small packet is as small.
        assert_eq!(of(8, Some(Coding::default())), 2 * (8 + 66));
        assert_eq!(of(32 * 4_084, Some(Coding::default())), 40 * 4_150);
        assert_eq!(of(33 * 4_084, Some(Coding::default())), 42 * 4_150);
    }

    #[test]
    fn blocks_that_cannot_be_are_refused() {
        assert!(Coding::new(0, 8).is_err() && Coding::new(8, 0).is_err());
        assert!(
            Coding::new(56, 8).is_ok()
                && Coding::new(57, 8).is_err()
                && Coding::new(u16::MAX, u16::MAX).is_err()
        );
    }
}
