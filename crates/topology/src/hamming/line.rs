//! One direction of a HammingMesh: a row of accelerators over all boards of a row, and its switch.
//!
//! Positions are (board, slot). `back` leads to the slot before, from slot 0 to the switch; `forth` to the next one,
//! from the last to the switch. All lines along a direction are alike, so what is legal and shortest is said of one.

use crate::divide::Divisor;

/// A board and a slot on it.
pub(super) type Position = (u32, u32);

#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Lines alike.
    pub(super) count: u32,
    /// Accelerators of a board along the line.
    pub(super) slots: Divisor,
    /// Boards along the line; above 1 it has a switch.
    pub(super) boards: Divisor,
    /// Steps on a board, at least 1 where it is divided by.
    steps: Divisor,
    /// First links: forth, back, to the switch, from the switch.
    pub(super) first: [u32; 4],
}

/// What a link along a line joins: a position and a way, or of a switch a board and its edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Accelerator { line: u32, at: Position, forth: bool },
    Switch { line: u32, port: u32 },
}

impl Line {
    pub(super) fn new(count: u32, slots: u32, boards: u32, first_link: u32) -> Self {
        let on_boards = count * boards * (slots - 1);
        let edges = if boards > 1 { 2 * count * boards } else { 0 };
        let first = [0, on_boards, 2 * on_boards, 2 * on_boards + edges].map(|link| first_link + link);
        let steps = Divisor::new((slots - 1).max(1));
        Self { count, slots: Divisor::new(slots), boards: Divisor::new(boards), steps, first }
    }

    /// One more than the last link.
    pub(super) fn end(&self) -> u32 {
        self.first[3] + (self.first[3] - self.first[2])
    }

    /// Switches of all lines.
    pub(super) fn switches(&self) -> u32 {
        if self.has_switch() { self.count } else { 0 }
    }

    #[inline]
    pub(super) fn has_switch(&self) -> bool {
        self.boards.get() > 1
    }

    #[inline]
    pub(super) fn last(&self) -> u32 {
        self.slots.get() - 1
    }

    /// Whether a way leads to the switch.
    #[inline]
    pub(super) fn is_edge(&self, slot: u32, forth: bool) -> bool {
        slot == if forth { self.last() } else { 0 }
    }

    /// Hops from a slot to an edge.
    #[inline]
    fn to_edge(&self, slot: u32, forth: bool) -> u32 {
        if forth { self.last() - slot } else { slot }
    }

    /// The short edge of a destination: the one that is nearer by two hops or more.
    #[inline]
    pub(super) fn short_edge(&self, slot: u32) -> Option<bool> {
        let (back, forth) = (slot, self.last() - slot);
        (self.has_switch() && back.abs_diff(forth) >= 2).then_some(forth < back)
    }

    /// Whether shortest ways to `to` begin back, and forth.
    #[inline]
    pub(super) fn ways(&self, at: Position, to: Position) -> [bool; 2] {
        let ((board, slot), (to_board, to_slot)) = (at, to);
        if board != to_board {
            let (back, forth) = (slot, self.last() - slot);
            return [back <= forth, forth <= back];
        }
        if slot == to_slot {
            return [false; 2];
        }
        let ahead = to_slot > slot;
        let across = slot.abs_diff(to_slot);
        // Round by the switch: out at the edge behind, in at the one beyond the destination.
        let edges = self.to_edge(slot, !ahead) + self.to_edge(to_slot, ahead);
        let round = if self.has_switch() { edges + 2 } else { u32::MAX };
        let (straight, other) = (across <= round, round <= across);
        if ahead { [other, straight] } else { [straight, other] }
    }

    /// Whether shortest ways from the switch lead to the first edge of the destination's board, and to the last.
    #[inline]
    pub(super) fn down(&self, to_slot: u32) -> [bool; 2] {
        let (back, forth) = (to_slot, self.last() - to_slot);
        [back <= forth, forth <= back]
    }

    /// Whether a hop from an accelerator is legal.
    pub(super) fn may_leave(&self, at: Position, forth: bool, to: Position) -> bool {
        let ((board, slot), (to_board, to_slot)) = (at, to);
        if board != to_board {
            return true;
        }
        let short = self.short_edge(to_slot);
        if self.is_edge(slot, forth) {
            // Into the switch.
            return short == Some(!forth);
        }
        // Not from the destination's own place away from its short edge.
        slot != to_slot || short != Some(!forth)
    }

    /// Whether a hop from the switch is legal.
    pub(super) fn may_enter(&self, board: u32, forth: bool, to: Position) -> bool {
        board == to.0 && self.short_edge(to.1).is_none_or(|short| short == forth)
    }

    /// Hops of the longest of the shortest ways.
    pub(super) fn farthest(&self) -> u32 {
        if self.has_switch() { 2 * (self.last() / 2) + 2 } else { self.last() }
    }

    /// Accelerators of all boards.
    pub(super) fn length(&self) -> u32 {
        self.boards.get() * self.slots.get()
    }

    /// Cables of the switch and of boards that are cut where the line is halved (an odd one beside the middle): the
    /// switch is on the side with more of its cables.
    pub(super) fn cut(&self) -> (u32, u32) {
        let (boards, odd) = (self.boards.get(), self.boards.get() % 2 == 1);
        match (self.has_switch(), self.last()) {
            // A board of one accelerator is on one side with both its edges.
            (true, 0) => (boards - u32::from(odd), 0),
            (true, _) => (boards, u32::from(odd)),
            (false, last) => (0, last.min(1)),
        }
    }

    /// Number of the link that leaves an accelerator.
    pub(super) fn link(&self, line: u32, (board, slot): Position, forth: bool) -> u32 {
        let board = line * self.boards.get() + board;
        if self.is_edge(slot, forth) {
            return self.first[2] + board * 2 + u32::from(forth);
        }
        let low = if forth { slot } else { slot - 1 };
        self.first[usize::from(!forth)] + board * self.steps.get() + low
    }

    /// Number of the link that leaves a port of a switch.
    pub(super) fn link_down(&self, line: u32, port: u32) -> u32 {
        self.first[3] + line * self.boards.get() * 2 + port
    }

    /// What leaves by a link of this direction.
    pub(super) fn source(&self, link: u32) -> Source {
        let kind = self.first.partition_point(|&first| first <= link) - 1;
        let index = link - self.first[kind];
        match kind {
            0 | 1 => {
                let (board, low) = self.steps.split(index);
                let (line, board) = self.boards.split(board);
                let forth = kind == 0;
                Source::Accelerator { line, at: (board, if forth { low } else { low + 1 }), forth }
            }
            2 => {
                let (line, board) = self.boards.split(index / 2);
                let forth = index % 2 == 1;
                let slot = if forth { self.last() } else { 0 };
                Source::Accelerator { line, at: (board, slot), forth }
            }
            _ => {
                let (line, board) = self.boards.split(index / 2);
                Source::Switch { line, port: board * 2 + index % 2 }
            }
        }
    }
}
