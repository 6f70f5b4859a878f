//! HammingMesh: boards of accelerators in a 2-D mesh, the boards joined by a switch for every row and every column of
//! accelerators (Hoefler et al., "HammingMesh: A Network Topology for Large-Scale Deep Learning", SC'22).
//!
//! An accelerator is (board row, board column, row, column), in this order, so that hosts fill board after board. On a
//! board it is joined to its four neighbours. The west and east edges of the rows of all boards in a row of boards hang
//! on one *row switch* for every row of accelerators, the north and south edges on *column switches* likewise. Where a
//! direction has a single board there is nothing to join: it has no switches, and the edges have no cable. On boards
//! one accelerator wide both edges are the same accelerator, with two cables to its switch.
//!
//! The two directions are alike and independent: each is a [`Line`], of positions (board, place on it) and a hub, the
//! switch. Forwarders are numbered accelerators first (each host is one, its NICs hang on its own forwarder), then row
//! switches, then column switches. Ports of an accelerator: west, east, north, south, then the NICs; of a switch: the
//! first and the second edge of board 0, of board 1, … Links are dense: for each direction those up along boards (east,
//! south), those down (west, north), those to switches, those from switches.
//!
//! Legal paths, for each direction by itself (rows here):
//!
//! 1. A packet goes into a row switch outside the board column of its destination, and leaves it into that column.
//! 2. Boards three or more wide have destinations nearer to one edge than to the other by two hops or more: their
//!    *short edge*. Row switches are left at the short edge only, and a packet may also go into one from the other edge
//!    of a board in the destination's own board column: a way round that is no longer than across the board.
//! 3. On boards any hop is legal, but one: in the board column of a destination with a short edge, from its column
//!    away from that edge.
//!
//! So a path has at most one row switch and one column switch: once down from a switch a packet is between the
//! destination's column and the short edge and cannot get to where it could go up again. The shortest legal paths are
//! the shortest of all: rules 2 and 3 forbid only longer ones. Repairs may use the whole of the boards.

mod line;
mod rule;

use windtunnel_kernel::Span;

use self::line::Line;
use crate::direct::{Direct, cable, largest};
use crate::divide::Divisor;
use crate::error::TopologyError;
use crate::hosts::Hosts;
use crate::shape::Cable;
use crate::spec::HammingMeshSpec;

/// Directions: along a row of accelerators (over row switches), along a column.
const ROWS: usize = 0;
const COLUMNS: usize = 1;

/// See the module page.
#[derive(Clone, Debug)]
pub(crate) struct HammingMesh {
    direct: Direct,
    /// Along rows (its positions are columns) and along columns.
    lines: [Line; 2],
    /// Accelerators of a board.
    board: Divisor,
    /// Accelerators in a row of a board, boards in a row.
    board_columns: Divisor,
    columns_of_boards: Divisor,
    /// First switch of each direction.
    first_switch: [u32; 2],
    links: u32,
    board_cable: Cable,
    switch_cable: Cable,
    switch_delay: Span,
}

/// A forwarder taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Accelerator(Place),
    Switch {
        direction: usize,
        /// The row or column of accelerators, counted over all boards.
        line: u32,
    },
}

/// An accelerator: for each direction the board and the place on it along that direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    board: [u32; 2],
    slot: [u32; 2],
}

/// Accelerators and directed links of a spec.
fn counts(board: [u32; 2], boards: [u32; 2]) -> (u64, u64) {
    let wide = |(a, b): (u32, u32)| u64::from(a) * u64::from(b);
    let [rows, columns] = [(board[0], boards[0]), (board[1], boards[1])].map(wide);
    let accelerators = rows.saturating_mul(columns);
    let along = |lines: u64, slots: u32, boards: u32| {
        let hubs = if boards > 1 { 2 } else { 0 };
        lines.saturating_mul(u64::from(boards)).saturating_mul(u64::from(slots - 1) + hubs).saturating_mul(2)
    };
    (accelerators, along(rows, board[1], boards[1]).saturating_add(along(columns, board[0], boards[0])))
}

impl HammingMesh {
    /// Checks the sizes of `spec`; its hosts.
    pub(crate) fn hosts(spec: &HammingMeshSpec) -> Result<Hosts, TopologyError> {
        Direct::check(&spec.direct)?;
        if spec.direct.hosts_per_router != 1 {
            let found = spec.direct.hosts_per_router;
            return Err(TopologyError::HostsPerNode { node: "accelerator", found });
        }
        for (name, sizes) in [("board", spec.board), ("boards", spec.boards)] {
            if let Some(index) = sizes.iter().position(|&size| size == 0) {
                return Err(TopologyError::Zero { path: format!("{name}[{index}]") });
            }
        }
        let hosts = |board, boards| {
            let (accelerators, links) = counts(board, boards);
            Direct::hosts(&spec.direct, accelerators, links)
        };
        if let Some(hosts) = hosts(spec.board, spec.boards)? {
            return Ok(hosts);
        }
        // The largest of the four sizes could be smaller.
        let sizes = [spec.boards[0], spec.boards[1], spec.board[0], spec.board[1]];
        let (index, size) =
            sizes.into_iter().enumerate().max_by_key(|&(index, size)| (size, 4 - index)).expect("four");
        let fits = |size| {
            let mut sizes = sizes;
            sizes[index] = size;
            matches!(hosts([sizes[2], sizes[3]], [sizes[0], sizes[1]]), Ok(Some(_)))
        };
        let name = ["boards[0]", "boards[1]", "board[0]", "board[1]"][index];
        Err(TopologyError::Oversize {
            path: name.to_owned(),
            found: counts(spec.board, spec.boards).0,
            fit: largest(size, fits),
        })
    }

    /// The rules of `spec`, whose hosts [`Self::hosts`] has given.
    pub(crate) fn new(spec: &HammingMeshSpec, hosts: &Hosts) -> Result<Self, TopologyError> {
        let direct = Direct::new(&spec.direct, hosts)?;
        let [rows, columns] = [0, 1].map(|index| spec.board[index] * spec.boards[index]);
        let along_rows = Line::new(rows, spec.board[1], spec.boards[1], 0);
        let along_columns = Line::new(columns, spec.board[0], spec.boards[0], along_rows.end());
        let first = direct.routers;
        let mesh = Self {
            board: Divisor::new(spec.board[0] * spec.board[1]),
            board_columns: Divisor::new(spec.board[1]),
            columns_of_boards: Divisor::new(spec.boards[1]),
            first_switch: [first, first + along_rows.switches()],
            links: along_columns.end(),
            lines: [along_rows, along_columns],
            board_cable: cable(&spec.board_cable, &spec.direct, "board_cable")?,
            switch_cable: cable(&spec.switch_cable, &spec.direct, "switch_cable")?,
            switch_delay: spec.switch_latency,
            direct,
        };
        let hop =
            |cable: &Cable, delay: Span| Span::from_ps(cable.propagation.ps().saturating_add(delay.ps()));
        let over_switch = hop(&mesh.switch_cable, spec.switch_latency.max(mesh.direct.delay));
        let on_board = hop(&mesh.board_cable, mesh.direct.delay);
        let farthest = mesh.lines.iter().map(|line| u64::from(line.farthest())).sum();
        let hops = [
            ("board_cable".to_owned(), spec.board_cable.length_mm, on_board, farthest),
            ("switch_cable".to_owned(), spec.switch_cable.length_mm, over_switch, 4),
        ];
        mesh.direct.check_latency(hops.into_iter())?;
        Ok(mesh)
    }

    #[inline]
    fn place(&self, accelerator: u32) -> Place {
        let (board, within) = self.board.split(accelerator);
        let (board_row, board_column) = self.columns_of_boards.split(board);
        let (row, column) = self.board_columns.split(within);
        Place { board: [board_column, board_row], slot: [column, row] }
    }

    #[inline]
    fn number(&self, place: Place) -> u32 {
        let board = place.board[COLUMNS] * self.columns_of_boards.get() + place.board[ROWS];
        board * self.board.get() + place.slot[COLUMNS] * self.board_columns.get() + place.slot[ROWS]
    }

    #[inline]
    fn at(&self, switch: u32) -> At {
        if switch < self.first_switch[ROWS] {
            At::Accelerator(self.place(switch))
        } else {
            let direction = usize::from(switch >= self.first_switch[COLUMNS]);
            At::Switch { direction, line: switch - self.first_switch[direction] }
        }
    }

    /// The row of an accelerator, counted over all boards, or its column: which line it is on along a direction.
    #[inline]
    fn line(&self, place: Place, direction: usize) -> u32 {
        let across = 1 - direction;
        place.board[across] * self.lines[across].slots.get() + place.slot[across]
    }

    /// The accelerator at (board, slot) of a line along a direction.
    #[inline]
    fn on_line(&self, direction: usize, line: u32, (board, slot): (u32, u32)) -> Place {
        let (board_across, slot_across) = self.lines[1 - direction].slots.split(line);
        let mut place = Place { board: [board; 2], slot: [slot; 2] };
        place.board[1 - direction] = board_across;
        place.slot[1 - direction] = slot_across;
        place
    }
}
