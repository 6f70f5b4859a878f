//! No congestion control: line rate, or a fixed window. For fabrics that lose nothing.

use windtunnel_kernel::Span;

use super::{Ack, Endpoint, PathFacts, Plain, Recovery};

/// Sends at line rate while at most `window` bytes are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTransport {
    /// Bytes in flight; `u64::MAX` for no limit.
    pub window: u64,
    /// What becomes of losses.
    pub recovery: Recovery,
    /// Silence after which packets are sent again.
    pub timeout: Span,
}

impl Default for NoTransport {
    /// No window, no recovery.
    fn default() -> Self {
        Self { window: u64::MAX, recovery: Recovery::None, timeout: Span::from_us(1_000) }
    }
}

super::built_in::built_in! {
    NoTransport: "line rate, or a fixed window", recovery: recovery, timeout: timeout,
    parameters: {}
}

impl Endpoint for NoTransport {
    type Flow = ();
    type Peer = ();
    type Uses = Plain;
    const NAME: &'static str = "none";

    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn is_answered(&self) -> bool {
        self.window != u64::MAX
    }

    fn open(&self, _: &PathFacts) -> Self::Flow {}

    #[inline]
    fn window(&self, (): &Self::Flow) -> u64 {
        self.window
    }

    #[inline]
    fn on_ack(&self, (): &mut Self::Flow, _: &Ack) {}

    fn timeout(&self, (): &Self::Flow) -> Span {
        self.timeout
    }
}
