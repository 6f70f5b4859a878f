//! Exact quantities in the largest unit that needs no fraction.

use windtunnel_kernel::{BitRate, Span};

fn exact(value: u64, units: &[(&str, u64)], space: &str) -> String {
    let whole = |unit: &&(&str, u64)| value.is_multiple_of(unit.1);
    let (name, factor) = units.iter().find(whole).expect("the last unit is 1");
    format!("{}{space}{name}", value / factor)
}

/// `400 Gbps`; `space` stands before the unit.
pub(super) fn rate(rate: BitRate, space: &str) -> String {
    exact(rate.0, &[("Gbps", 1_000_000_000), ("Mbps", 1_000_000), ("Kbps", 1_000), ("bps", 1)], space)
}

/// `500 ns`; `space` stands before the unit.
pub(super) fn time(span: Span, space: &str) -> String {
    let units = [("us", 1_000_000), ("ns", 1_000), ("ps", 1)];
    // Zero divides by everything: give it the usual unit.
    let units = if span == Span::ZERO { &units[1..] } else { &units[..] };
    exact(span.0, units, space)
}
