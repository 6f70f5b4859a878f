//! The rule of a HammingMesh, and its wiring.

use smallvec::smallvec;
use windtunnel_kernel::{BitRate, Span};

use super::line::Source;
use super::{At, COLUMNS, HammingMesh, Place, ROWS};
use crate::choose::choose_hashed;
use crate::faults::Dead;
use crate::link::{LinkTier, PathClass};
use crate::port::{PortSet, nth_bit};
use crate::racks::Racks;
use crate::shape::{Cable, Coordinates, Far, Shape, Site};

/// Ports of an accelerator towards others: back and forth along rows, then along columns.
const WAYS: u32 = 4;

/// The direction of a port of an accelerator, and whether it leads forth.
#[inline]
const fn way(port: u32) -> (usize, bool) {
    (port as usize / 2, port % 2 == 1)
}

impl Place {
    /// Along a direction.
    #[inline]
    const fn along(self, direction: usize) -> (u32, u32) {
        (self.board[direction], self.slot[direction])
    }
}

impl HammingMesh {
    /// Ports of an accelerator that begin a shortest path to another, a bit each.
    #[inline]
    fn ways(&self, from: Place, to: Place) -> u64 {
        let along = |direction: usize| {
            let [back, forth] = self.lines[direction].ways(from.along(direction), to.along(direction));
            u64::from(back) | (u64::from(forth) << 1)
        };
        along(ROWS) | (along(COLUMNS) << 2)
    }

    /// Whether a port leads between an accelerator and a switch.
    fn is_hub_port(&self, at: At, port: u32) -> bool {
        match at {
            At::Accelerator(place) => {
                let (direction, forth) = way(port);
                self.lines[direction].is_edge(place.slot[direction], forth)
            }
            At::Switch { .. } => true,
        }
    }
}

impl Shape for HammingMesh {
    fn name(&self) -> &'static str {
        "hammingmesh"
    }

    fn switches(&self) -> u32 {
        self.first_switch[COLUMNS] + self.lines[COLUMNS].switches()
    }

    fn ports(&self, switch: u32) -> u32 {
        match self.at(switch) {
            At::Accelerator(_) => WAYS + self.direct.nics.get(),
            At::Switch { direction, .. } => 2 * self.lines[direction].boards.get(),
        }
    }

    #[inline]
    fn peer(&self, switch: u32, port: u32) -> Option<Far> {
        match self.at(switch) {
            At::Accelerator(_) if port >= WAYS => {
                Some(Far::Nic { nic: self.direct.nic(switch, port - WAYS), plane: 0 })
            }
            At::Accelerator(mut place) => {
                let (direction, forth) = way(port);
                let line = &self.lines[direction];
                let (board, slot) = place.along(direction);
                if line.is_edge(slot, forth) {
                    let hub = self.first_switch[direction] + self.line(place, direction);
                    let port = 2 * board + u32::from(forth);
                    return line.has_switch().then_some(Far::Switch { switch: hub, port });
                }
                place.slot[direction] = if forth { slot + 1 } else { slot - 1 };
                Some(Far::Switch { switch: self.number(place), port: port ^ 1 })
            }
            At::Switch { direction, line } => {
                let (board, forth) = (port / 2, port % 2);
                let slot = forth * self.lines[direction].last();
                let place = self.on_line(direction, line, (board, slot));
                Some(Far::Switch { switch: self.number(place), port: 2 * direction as u32 + forth })
            }
        }
    }

    #[inline]
    fn attachment(&self, nic: u32, _plane: u32) -> (u32, u32) {
        let (accelerator, index) = self.direct.place(nic);
        (accelerator, WAYS + index)
    }

    fn cable(&self, switch: u32, port: u32) -> Cable {
        match self.at(switch) {
            At::Accelerator(_) if port >= WAYS => self.direct.nic,
            at if self.is_hub_port(at, port) => self.switch_cable,
            _ => self.board_cable,
        }
    }

    /// On boards the direction (0 along rows), else up to a switch or down from it.
    fn link_tier(&self, switch: u32, port: u32) -> LinkTier {
        match self.at(switch) {
            At::Switch { .. } => LinkTier::Down(0),
            At::Accelerator(_) if port >= WAYS => LinkTier::NicDown,
            at if self.is_hub_port(at, port) => LinkTier::Up(0),
            At::Accelerator(_) => LinkTier::Dimension(way(port).0 as u8),
        }
    }

    fn delay(&self, switch: u32) -> Span {
        match self.at(switch) {
            At::Accelerator(_) => self.direct.delay,
            At::Switch { .. } => self.switch_delay,
        }
    }

    fn fabric_links(&self) -> u32 {
        self.links
    }

    fn link(&self, switch: u32, port: u32) -> u32 {
        match self.at(switch) {
            At::Accelerator(place) => {
                let (direction, forth) = way(port);
                self.lines[direction].link(self.line(place, direction), place.along(direction), forth)
            }
            At::Switch { direction, line } => self.lines[direction].link_down(line, port),
        }
    }

    fn link_source(&self, link: u32) -> (u32, u32) {
        let direction = usize::from(link >= self.lines[COLUMNS].first[0]);
        match self.lines[direction].source(link) {
            Source::Accelerator { line, at, forth } => {
                let place = self.on_line(direction, line, at);
                (self.number(place), 2 * direction as u32 + u32::from(forth))
            }
            Source::Switch { line, port } => (self.first_switch[direction] + line, port),
        }
    }

    /// On boards one accelerator wide both edges are the same one's.
    fn parallel(&self, switch: u32, port: u32) -> Option<u32> {
        let at = self.at(switch);
        let direction = match at {
            At::Accelerator(_) => way(port).0,
            At::Switch { direction, .. } => direction,
        };
        (self.lines[direction].last() == 0 && self.is_hub_port(at, port)).then_some(port % 2)
    }

    #[inline]
    fn shortest(&self, at: u32, to: u32, ports: &mut PortSet) {
        let to = self.place(to);
        match self.at(at) {
            At::Accelerator(place) => {
                let ways = self.ways(place, to);
                (0..WAYS).filter(|port| ways >> port & 1 == 1).for_each(|port| ports.push(port));
            }
            At::Switch { direction, .. } => {
                let (board, slot) = to.along(direction);
                let [first, last] = self.lines[direction].down(slot);
                if first {
                    ports.push(2 * board);
                }
                if last {
                    ports.push(2 * board + 1);
                }
            }
        }
    }

    #[inline]
    fn pick(&self, at: u32, to: u32, flow_hash: u64) -> u32 {
        let place = self.place(to);
        let (first, bits) = match self.at(at) {
            At::Accelerator(from) => (0, self.ways(from, place)),
            At::Switch { direction, .. } => {
                let (board, slot) = place.along(direction);
                let [back, forth] = self.lines[direction].down(slot);
                (2 * board, u64::from(back) | (u64::from(forth) << 1))
            }
        };
        first + nth_bit::<WAYS>(bits, choose_hashed(flow_hash, u64::from(at), bits.count_ones()))
    }

    fn may_follow(&self, at: u32, port: u32, to: u32) -> bool {
        let to = self.place(to);
        match self.at(at) {
            At::Accelerator(place) => {
                let (direction, forth) = way(port);
                self.lines[direction].may_leave(place.along(direction), forth, to.along(direction))
            }
            At::Switch { direction, .. } => {
                self.lines[direction].may_enter(port / 2, port % 2 == 1, to.along(direction))
            }
        }
    }

    fn waypoint(&self, _from: u32, _to: u32, _hash: u64, _queue: impl Fn(u32) -> u64) -> Option<u32> {
        None
    }

    fn leaves_shortest(&self) -> bool {
        false
    }

    /// Cautious: all that is dead lies beside the rows of both ends' boards and beside their columns.
    fn is_clear(&self, dead: &Dead, at: u32, to: u32) -> bool {
        let to = self.place(to);
        // Boards in which shortest paths may be, along each direction: those of the ends.
        let from = match self.at(at) {
            At::Accelerator(place) => place,
            At::Switch { direction, line } => self.on_line(direction, line, to.along(direction)),
        };
        let among =
            |direction: usize, board: u32| board == from.board[direction] || board == to.board[direction];
        !dead.rows().any(|(switch, row)| {
            row.iter().any(|&word| word != 0)
                && match self.at(switch) {
                    At::Accelerator(place) => {
                        [ROWS, COLUMNS].iter().all(|&direction| among(direction, place.board[direction]))
                    }
                    // A row switch is met if its row of boards is.
                    At::Switch { direction, line } => {
                        among(1 - direction, self.lines[1 - direction].slots.quotient(line))
                    }
                }
        })
    }

    /// On one board, in one row or column of boards, beyond.
    fn class(&self, a: u32, b: u32) -> PathClass {
        let (a, b) = (self.place(a).board, self.place(b).board);
        match (a[ROWS] == b[ROWS], a[COLUMNS] == b[COLUMNS]) {
            (true, true) => PathClass::SameLeaf,
            (false, false) => PathClass::Beyond,
            _ => PathClass::SamePod,
        }
    }

    fn tier(&self, switch: u32) -> u8 {
        match self.at(switch) {
            At::Accelerator(_) => 0,
            At::Switch { direction, .. } => direction as u8 + 1,
        }
    }

    fn tier_name(&self, tier: u8) -> String {
        ["accelerator", "row", "column"][usize::from(tier)].to_owned()
    }

    /// `accelerator1.2/0.3` (row and column of the board, then on it), `row5`, `column7`.
    fn switch_name(&self, switch: u32) -> String {
        match self.at(switch) {
            At::Accelerator(Place { board, slot }) => {
                format!("accelerator{}.{}/{}.{}", board[COLUMNS], board[ROWS], slot[COLUMNS], slot[ROWS])
            }
            At::Switch { direction, line } => format!("{}{line}", self.tier_name(direction as u8 + 1)),
        }
    }

    fn axes(&self) -> Vec<String> {
        ["tier", "board_row", "board_column", "row", "column"].map(str::to_owned).to_vec()
    }

    /// Of a row switch both columns are 0, of a column switch both rows.
    fn coordinates(&self, switch: u32) -> Coordinates {
        let (tier, Place { board, slot }) = match self.at(switch) {
            At::Accelerator(place) => (0, place),
            At::Switch { direction, line } => (direction as u32 + 1, self.on_line(direction, line, (0, 0))),
        };
        smallvec![tier, board[COLUMNS], board[ROWS], slot[COLUMNS], slot[ROWS]]
    }

    fn switch_at(&self, coordinates: &[u32]) -> Option<u32> {
        let &[tier, board_row, board_column, row, column] = coordinates else { return None };
        let place = Place { board: [board_column, board_row], slot: [column, row] };
        let exists = [ROWS, COLUMNS].iter().all(|&direction| {
            let line = &self.lines[direction];
            place.board[direction] < line.boards.get() && place.slot[direction] < line.slots.get()
        });
        match tier {
            0 => exists.then(|| self.number(place)),
            1 | 2 => {
                let direction = tier as usize - 1;
                let valid = exists && place.along(direction) == (0, 0) && self.lines[direction].has_switch();
                valid.then(|| self.first_switch[direction] + self.line(place, direction))
            }
            _ => None,
        }
    }

    /// A rack is a board, a pod a row of boards.
    fn site(&self, host: u32) -> Site {
        self.racks().site(host)
    }

    fn host_at(&self, site: Site) -> Option<u32> {
        self.racks().host(site)
    }

    /// The narrower of the cuts across rows and across columns. Of an odd number of columns the middle one is halved
    /// too, where the cut bends past it. With odd numbers of boards a ragged cut may be narrower yet: a switch costs
    /// only its smaller side.
    fn bisection(&self) -> BitRate {
        let rate = |direction: usize| {
            let (switch, board) = self.lines[direction].cut();
            u128::from(switch) * u128::from(self.switch_cable.rate.bps())
                + u128::from(board) * u128::from(self.board_cable.rate.bps())
        };
        let cut = |direction: usize| {
            let line = &self.lines[direction];
            let bend = if line.length() % 2 == 1 { rate(1 - direction) } else { 0 };
            // A direction of one accelerator cannot be cut.
            (line.length() > 1).then(|| u128::from(line.count) * rate(direction) + bend)
        };
        self.direct.bisection([ROWS, COLUMNS].into_iter().filter_map(cut).min().unwrap_or(0))
    }

    fn diameter(&self) -> u32 {
        self.lines.iter().map(super::Line::farthest).sum()
    }
}

impl HammingMesh {
    /// A rack is a board, a pod a row of boards.
    fn racks(&self) -> Racks {
        Racks {
            count: self.direct.routers / self.board.get(),
            hosts: self.board,
            per_pod: self.columns_of_boards,
        }
    }
}
