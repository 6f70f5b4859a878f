//! Routers counted as the digits of a number: what tori and full meshes have in common beside their cables.

use crate::divide::Divisor;
use crate::link::PathClass;
use crate::shape::Coordinates;

/// A dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digit {
    /// Values that it takes.
    pub(crate) size: Divisor,
    /// Between the numbers of routers whose digits are neighbours.
    pub(crate) stride: Divisor,
}

impl Digit {
    /// The digit of a router.
    #[inline]
    pub(crate) fn of(&self, router: u32) -> u32 {
        self.size.remainder(self.stride.quotient(router))
    }
}

/// Routers of a plane: of the last two dimensions.
pub(crate) fn plane(sizes: impl DoubleEndedIterator<Item = u32>) -> Divisor {
    Divisor::new(sizes.rev().take(2).product())
}

/// A router, the routers of a plane, all.
pub(crate) fn class(plane: Divisor, a: u32, b: u32) -> PathClass {
    if a == b {
        PathClass::SameLeaf
    } else if plane.quotient(a) == plane.quotient(b) {
        PathClass::SamePod
    } else {
        PathClass::Beyond
    }
}

/// `router3.5.1`.
pub(crate) fn name(coordinates: &[u32]) -> String {
    let digits: Vec<String> = coordinates.iter().map(u32::to_string).collect();
    format!("router{}", digits.join("."))
}

/// `dimension0`, …
pub(crate) fn axes(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("dimension{number}")).collect()
}

/// All digits of a router.
pub(crate) fn coordinates(digits: impl Iterator<Item = Digit>, router: u32) -> Coordinates {
    digits.map(|digit| digit.of(router)).collect()
}

/// The router of the given digits; `None` if there is none.
pub(crate) fn router(digits: impl ExactSizeIterator<Item = Digit>, coordinates: &[u32]) -> Option<u32> {
    if coordinates.len() != digits.len() {
        return None;
    }
    let mut places = digits.zip(coordinates);
    places.try_fold(0, |sum, (digit, &value)| {
        (value < digit.size.get()).then(|| sum + value * digit.stride.get())
    })
}

/// What a [`Shape`](crate::shape::Shape) says of its routers and of where hosts stand, for one that has `axes`, a `plane`, `direct`
/// ports, `digits()` and a `cut()`.
macro_rules! names_and_places {
    () => {
        /// A router, the routers of a plane (the last two dimensions), all.
        fn class(&self, a: u32, b: u32) -> $crate::link::PathClass {
            $crate::grid::class(self.plane, a, b)
        }

        fn tier(&self, _switch: u32) -> u8 {
            0
        }

        fn tier_name(&self, _tier: u8) -> String {
            "router".to_owned()
        }

        /// `router3.5.1`.
        fn switch_name(&self, switch: u32) -> String {
            $crate::grid::name(&self.coordinates(switch))
        }

        fn axes(&self) -> Vec<String> {
            $crate::grid::axes(self.axes.len())
        }

        fn coordinates(&self, switch: u32) -> $crate::shape::Coordinates {
            $crate::grid::coordinates(self.digits(), switch)
        }

        fn switch_at(&self, coordinates: &[u32]) -> Option<u32> {
            $crate::grid::router(self.digits(), coordinates)
        }

        fn site(&self, host: u32) -> $crate::shape::Site {
            self.direct.racks(self.plane).site(host)
        }

        fn host_at(&self, site: $crate::shape::Site) -> Option<u32> {
            self.direct.racks(self.plane).host(site)
        }

        fn bisection(&self) -> windtunnel_kernel::BitRate {
            self.direct.bisection(self.cut())
        }
    };
}

pub(crate) use names_and_places;
