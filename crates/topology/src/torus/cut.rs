//! The bisection of a torus.
//!
//! A dimension of even size is cut in its middle: one cable group of every line, of a ring two. In one of odd size the
//! cut goes past the middle layer, on one side for a part of it and on the other for the rest; that layer is bisected
//! in the dimensions that are left. Which dimensions the cut bends in so that it is narrowest: with c the rate cut in a
//! line, bending in a dimension of size s before another order of the same ones pays if c / (s - 1) is smaller, by
//! exchange of neighbours. For equal sizes and rates these are the known bisections of k-ary n-cubes (Dally, Towles,
//! §5.2) and of odd meshes, (k^n - 1) / (k - 1) cables.

use super::{Axis, Torus};

impl Axis {
    /// Rate cut in a line.
    fn cut(&self) -> u128 {
        u128::from(self.links.get()) * u128::from(self.cable.rate.bps()) * if self.ring { 2 } else { 1 }
    }
}

impl Torus {
    /// Rate between the halves of the routers, per direction.
    pub(super) fn cut(&self) -> u128 {
        let mut odd: Vec<&Axis> = self.axes.iter().filter(|axis| axis.place.size.get() > 1).collect();
        let even: Vec<&Axis> = odd.extract_if(.., |axis| axis.place.size.get() % 2 == 0).collect();
        let size = |axis: &Axis| u128::from(axis.place.size.get());
        odd.sort_by(|a, b| (a.cut() * (size(b) - 1)).cmp(&(b.cut() * (size(a) - 1))));
        // Bent in the first few odd dimensions, then straight through an even one.
        let (mut bent, mut layer) = (0, u128::from(self.direct.routers));
        let mut narrowest = None;
        for bend in odd.iter().map(Some).chain([None]) {
            let straight = even.iter().map(|axis| bent + layer / size(axis) * axis.cut()).min();
            narrowest = narrowest.into_iter().chain(straight).min();
            if let Some(axis) = bend {
                layer /= size(axis);
                bent += layer * axis.cut();
            }
        }
        // With odd sizes alone the last layer is one router, which needs no cut.
        narrowest.unwrap_or(bent)
    }
}
