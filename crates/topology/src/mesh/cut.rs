//! Where a full mesh is cut in halves.

use super::FullMesh;

impl FullMesh {
    /// Rate between the two halves of the routers, per direction.
    ///
    /// Of an even dimension one half of the digits is cut from the other: of every line of n routers (n/2)² pairs are
    /// parted. Of an odd one the middle digit is cut in its turn, along another dimension: lines part (n-1)/2 · (n+1)/2
    /// pairs then, whichever half their middle is in. The least of these cuts is taken; for even sizes and one dimension
    /// it is the closed form of HyperX (Ahn et al., SC'09, §3.1), and for equal cables in all dimensions no cut in halves
    /// is less (Lindsey, "Assignment of numbers to vertices", 1964).
    pub(super) fn cut(&self) -> u128 {
        let all = (1usize << self.axes.len()) - 1;
        // By the set of dimensions that a box still has.
        let mut least = vec![0u128; all + 1];
        for set in 1..=all {
            let inside = || self.axes.iter().enumerate().filter(|(number, _)| set >> number & 1 == 1);
            let routers: u128 = inside().map(|(_, axis)| u128::from(axis.place.size.get())).product();
            let by_dimension = inside().map(|(number, axis)| {
                let size = u128::from(axis.place.size.get());
                let (half, lines) = (size / 2, routers / size);
                let rate = u128::from(axis.links.get()) * u128::from(axis.cable.rate.bps());
                let middle = if size % 2 == 1 { least[set & !(1 << number)] } else { 0 };
                (lines * half * (size - half)).saturating_mul(rate).saturating_add(middle)
            });
            least[set] = by_dimension.min().unwrap_or(0);
        }
        least[all]
    }
}
