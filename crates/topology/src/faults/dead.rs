//! Which ports are dead: the sparse overlay that all repairs read.

mod mark;

use std::collections::BTreeSet;

use super::row::ones;
use crate::link::LinkId;
use crate::port::SwitchId;

/// Failed cables and switches, and what follows for ports.
///
/// A port is dead if its cable or the switch at either end failed; both ends agree. Memory: four bytes a switch once
/// something failed, and a few words for every switch with a dead port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dead {
    /// The lower of a cable's two links.
    cables: BTreeSet<LinkId>,
    switches: BTreeSet<u32>,
    /// Of each switch where its row begins in `words`, 0 without dead ports.
    slots: Vec<u32>,
    /// Rows of equal length one after another, a bit for every dead port. The first one is empty for ever.
    words: Vec<u64>,
    /// Words of a row.
    stride: u32,
    /// Switches with a row, in the order of their rows.
    owners: Vec<u32>,
    /// See [`Shape::tally`].
    tally: Vec<u32>,
}

/// Dead ports of consecutive switches, counted from 0: of a part of a fabric that has a rule of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadPart<'a> {
    slots: &'a [u32],
    words: &'a [u64],
    /// The part's share of [`Shape::tally`]; empty before it was made.
    pub(crate) tally: &'a [u32],
}

impl DeadPart<'_> {
    /// Dead ports `first..first + count` of a switch, 1 to 64 of them: a bit each. Without a branch that depends on
    /// whether there are any.
    #[inline]
    pub(crate) fn bits(&self, switch: u32, first: u32, count: u32) -> u64 {
        let row = self.slots.get(switch as usize).copied().unwrap_or(0);
        let (word, shift) = ((row + first / 64) as usize, first % 64);
        let at = |word: usize| self.words.get(word).copied().unwrap_or(0);
        let mut bits = at(word) >> shift;
        if shift + count > 64 {
            bits |= at(word + 1) << (64 - shift);
        }
        bits & ones(count)
    }
}

impl Dead {
    /// The switches from `first` on, with the tally from `tally` on.
    #[inline]
    pub(crate) fn part(&self, first: u32, tally: usize) -> DeadPart<'_> {
        DeadPart {
            slots: self.slots.get(first as usize..).unwrap_or(&[]),
            words: &self.words,
            tally: self.tally.get(tally..).unwrap_or(&[]),
        }
    }

    /// Nothing failed.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.cables.is_empty() && self.switches.is_empty()
    }

    /// Dead ports of a switch, a bit each from port 0 of the first word on; missing words are zero.
    #[inline]
    pub(crate) fn row(&self, switch: u32) -> &[u64] {
        match self.slots.get(switch as usize) {
            None | Some(0) => &[],
            Some(&row) => &self.words[row as usize..][..self.stride as usize],
        }
    }

    /// Switches with dead ports, and their [rows](Self::row); those that have recovered may still be among them. In the
    /// order in which they first failed.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u32, &[u64])> {
        self.owners.iter().map(|&switch| (switch, self.row(switch)))
    }

    /// Whether the cable of a port is dead.
    #[inline]
    pub(crate) fn port(&self, switch: u32, port: u32) -> bool {
        self.row(switch).get(port as usize / 64).is_some_and(|word| word >> (port % 64) & 1 == 1)
    }

    /// Whether a switch itself failed.
    #[inline]
    pub(crate) fn switch(&self, switch: u32) -> bool {
        !self.switches.is_empty() && self.switches.contains(&switch)
    }

    /// Failed cables, by the lower of their two links, in order.
    pub(crate) fn cables(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.cables.iter().copied()
    }

    /// Failed switches in order.
    pub(crate) fn switches(&self) -> impl Iterator<Item = SwitchId> + '_ {
        self.switches.iter().map(|&switch| SwitchId(switch))
    }
}
