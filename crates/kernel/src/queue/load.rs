//! Loads on which the tests of queues compare them.

use proptest::prelude::*;

/// A delay of one of the scales of a fabric: the instant itself, serialisation, propagation, cables across an ocean, timers,
/// what is never met.
fn delay() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        0..4u64,
        0..2_000u64,
        Just(80_000),
        1_000_000..1_100_000u64,
        0..20_000_000_000u64,
        Just(1 << 50)
    ]
}

/// Calls: so many pops, or so many pushes a delay away; looks in between, which run ahead.
pub(super) fn calls() -> impl Strategy<Value = Vec<(u8, usize, u64, u32)>> {
    prop::collection::vec((0..4u8, 0..90usize, delay(), any::<u32>()), 0..120)
}
