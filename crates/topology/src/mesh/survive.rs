//! The rule of a full mesh with faults.
//!
//! The routers on minimal paths between two routers that differ in m digits are the 2^m corners of a box: a corner is
//! the set of the digits already corrected. A path from corner A goes to A + d for a digit d not in A, by any cable that
//! lives; so the paths from every corner to the last are counted from the last on backwards, and a port begins as many
//! as the corner it leads to has.

use super::{FullMesh, MOST_DIMENSIONS, Step};
use crate::faults::Dead;
use crate::faults::row::{count_ones, window};
use crate::port::PortSet;

/// Paths are counted up to this, so that the sum over all ports of a router fits 64 bits.
const MANY: u64 = 1 << 32;

/// Routers of the corners by the set of corrected digits.
fn corners<const CORNERS: usize>(at: u32, steps: &[Step]) -> [u32; CORNERS] {
    let mut routers = [at; CORNERS];
    for set in 1..1usize << steps.len() {
        let digit = set.trailing_zeros() as usize;
        routers[set] = routers[set & (set - 1)].wrapping_add(steps[digit].delta);
    }
    routers
}

/// Surviving paths from every corner to the last.
fn paths<const CORNERS: usize>(dead: &Dead, at: u32, steps: &[Step]) -> [u64; CORNERS] {
    let routers = corners::<CORNERS>(at, steps);
    let mut paths = [0; CORNERS];
    let last = (1usize << steps.len()) - 1;
    paths[last] = 1;
    for set in (0..last).rev() {
        let row = dead.row(routers[set]);
        let mut sum = 0;
        for (digit, step) in steps.iter().enumerate().filter(|(digit, _)| set >> digit & 1 == 0) {
            let beyond = paths[set | 1 << digit];
            if beyond > 0 {
                let living = u64::from(step.links - count_ones(row, step.first, step.links));
                sum += living.saturating_mul(beyond);
            }
        }
        paths[set] = sum.min(MANY);
    }
    paths
}

/// Whether no cable between corners is dead.
#[inline]
fn is_whole<const CORNERS: usize>(dead: &Dead, at: u32, steps: &[Step]) -> bool {
    let routers = corners::<CORNERS>(at, steps);
    let part = dead.part(0, 0);
    steps.iter().enumerate().all(|(digit, step)| {
        let uncorrected = (0..1usize << steps.len()).filter(|set| set >> digit & 1 == 0);
        let lost = |set: usize| match step.links {
            links @ ..=64 => part.bits(routers[set], step.first, links),
            links => u64::from(count_ones(dead.row(routers[set]), step.first, links)),
        };
        uncorrected.fold(0, |all, set| all | lost(set)) == 0
    })
}

impl FullMesh {
    /// See [`crate::shape::Shape::is_clear`]; exact.
    #[inline]
    pub(super) fn no_dead_corner(&self, dead: &Dead, at: u32, to: u32) -> bool {
        let steps = self.steps(at, to);
        // Most meshes have few dimensions: then the corners take few words.
        if steps.len() <= 3 {
            is_whole::<8>(dead, at, &steps)
        } else {
            is_whole::<{ 1 << MOST_DIMENSIONS }>(dead, at, &steps)
        }
    }

    /// See [`crate::shape::Shape::surviving`].
    pub(super) fn surviving_ports(
        &self,
        dead: &Dead,
        at: u32,
        to: u32,
        ports: &mut PortSet,
        weights: Option<&mut Vec<u64>>,
    ) {
        let steps = self.steps(at, to);
        if steps.len() <= 3 {
            begin(&paths::<8>(dead, at, &steps), dead.row(at), &steps, ports, weights);
        } else {
            let paths = paths::<{ 1 << MOST_DIMENSIONS }>(dead, at, &steps);
            begin(&paths, dead.row(at), &steps, ports, weights);
        }
    }
}

/// Appends the living ports towards corners from which there are paths.
fn begin(
    paths: &[u64],
    row: &[u64],
    steps: &[Step],
    ports: &mut PortSet,
    mut weights: Option<&mut Vec<u64>>,
) {
    for (digit, step) in steps.iter().enumerate() {
        let beyond = paths[1 << digit];
        if beyond == 0 {
            continue;
        }
        for port in (step.first..step.first + step.links).filter(|&port| window(row, port, 1) == 0) {
            ports.push(port);
            if let Some(weights) = weights.as_deref_mut() {
                weights.push(beyond);
            }
        }
    }
}
