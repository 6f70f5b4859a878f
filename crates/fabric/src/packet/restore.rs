//! What erasure coding restores at a receiving half ([`crate::coding`]).
//!
//! Life cycle: each packet that arrives for the first time may make its block whole; then those of the block that are missing, and were
//! sent before one that has arrived, count as arrived: acknowledgements tell of them, and their bytes leave the window of the
//! sender. So do the blocks behind it, one after the other. A message is whole with its last packet of data.
//!
//! Invariants: nothing is restored that may not have been sent: a packet beyond all that have arrived is waited for, and as it is
//! parity, no message is. What is restored and comes after all counts neither as fresh nor as a copy. Failure modes: parity that is lost
//! behind the last message of a queue pair shows by nothing that came later, and is sent again after a time-out.

use std::collections::BTreeSet;

use super::message::{NO_MESSAGE, Sizes};
use super::pairs::Pairs;
use super::settings::PacketSettings;
use super::transport::Endpoint;
use crate::coding::{Block, Coding};

/// Packets behind the first missing one after which one that was restored is no longer waited for.
const FORGOTTEN: u32 = 1 << 20;

/// What a receiving half has restored.
#[derive(Clone, Debug, Default)]
pub(super) struct Restored {
    /// What has not come by itself until now.
    missing: BTreeSet<u32>,
    /// The message that was reported last: its first packet, its packets, and its bytes.
    last: (u32, u32, u64),
}

impl<E: Endpoint> Pairs<E> {
    /// Whether packet `sequence`, which arrives now, had been restored.
    pub(super) fn is_late(&mut self, flow: u32, sequence: u32) -> bool {
        let receiver = &self.receivers[flow as usize];
        // Most packets come in their turn, and need not be looked for.
        (sequence < receiver.expected || receiver.beyond.has(sequence))
            && self.restored.get_mut(&flow).is_some_and(|restored| restored.missing.remove(&sequence))
    }

    /// A message of so many packets and bytes, the first of which is `first`, has been reported: its parity may still come.
    pub(super) fn reported(&mut self, flow: u32, first: u32, packets: u32, bytes: u64) {
        self.restored.entry(flow).or_default().last = (first, packets, bytes);
    }

    /// Restores what the arrival of `sequence` allows; whether that was anything.
    pub(super) fn restore(
        &mut self,
        coding: Coding,
        flow: u32,
        sequence: u32,
        settings: &PacketSettings,
    ) -> bool {
        let receiver = &self.receivers[flow as usize];
        let top = receiver.beyond.end.max(sequence + 1);
        let mut any = false;
        if sequence >= receiver.expected {
            any |= self.restore_block(coding, flow, sequence, top, settings);
        }
        loop {
            let first = self.receivers[flow as usize].expected;
            if first >= top || !self.restore_block(coding, flow, first, top, settings) {
                return any;
            }
            any = true;
        }
    }

    /// Restores what is missing below `top` of the block of `sequence`, at least the first missing one, if that has enough; whether that
    /// was anything.
    fn restore_block(
        &mut self,
        coding: Coding,
        flow: u32,
        sequence: u32,
        top: u32,
        settings: &PacketSettings,
    ) -> bool {
        let Some((message, block, sizes)) = self.block_of(coding, flow, sequence, settings) else {
            return false;
        };
        let receiver = &mut self.receivers[flow as usize];
        let (first, end) = (message + block.first, message + block.first + block.packets);
        let from = first.max(receiver.expected);
        let beyond = receiver.beyond.word_at(from) & (u64::MAX >> (64 - (end - from)));
        if from - first + beyond.count_ones() < block.data {
            return false;
        }
        let (full, header) = (settings.mtu.get() as u16, settings.header.get());
        let mut any = false;
        for lost in (from..end.min(top)).filter(|lost| beyond >> (lost - from) & 1 == 0) {
            let wire = (sizes.payload_of(lost - message) + header) as u16;
            if receiver.file(lost, wire, full).1 {
                (receiver.low, receiver.high) = (receiver.low.min(lost), receiver.high.max(lost));
            }
            receiver.received += u64::from(wire);
            let missing = &mut self.restored.entry(flow).or_default().missing;
            missing.insert(lost);
            while missing.first().is_some_and(|&oldest| lost - oldest > FORGOTTEN) {
                missing.pop_first();
            }
            any = true;
        }
        any
    }

    /// The first packet of the message that `sequence` is of, its block there, and what its packets carry.
    fn block_of(
        &self,
        coding: Coding,
        flow: u32,
        sequence: u32,
        settings: &PacketSettings,
    ) -> Option<(u32, Block, Sizes)> {
        let receiver = &self.receivers[flow as usize];
        let found = |first: u32, packets: u32, bytes: u64| {
            let sizes = Sizes::new(bytes, settings.payload(), Some(coding));
            Some((first, coding.block(sequence - first, packets), sizes))
        };
        let (mut first, mut id) = (receiver.reported, receiver.first_awaited());
        if sequence < first {
            // A message before that one has been acknowledged to its end.
            let (first, packets, bytes) = self.restored.get(&flow)?.last;
            return found(first, packets, bytes);
        }
        while id != NO_MESSAGE {
            let message = &self.incoming[id];
            if sequence < first + message.packets {
                return found(first, message.packets, message.bytes);
            }
            first += message.packets;
            id = message.next;
        }
        None
    }
}
