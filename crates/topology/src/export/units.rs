//! Exact quantities in the largest unit that needs no fraction.

use windtunnel_kernel::units::Dimension;
use windtunnel_kernel::{BitRate, Span};

/// `400 Gbps`; `space` stands before the unit.
pub(super) fn rate(rate: BitRate, space: &str) -> String {
    Dimension::Rate.exact(rate.bps(), &["Gbps", "Mbps", "Kbps", "bps"], space)
}

/// `500 ns`; `space` stands before the unit.
pub(super) fn time(span: Span, space: &str) -> String {
    // Zero gets the usual unit.
    let units: &[&str] = if span == Span::ZERO { &["ns"] } else { &["us", "ns", "ps"] };
    Dimension::Time.exact(span.ps(), units, space)
}
