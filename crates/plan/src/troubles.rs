//! What goes wrong on the fabric, and traffic of others.

use windtunnel_fabric::packet::{Background, Impairments};

/// What goes wrong, as the packet model takes it, with what else is on the fabric.
#[derive(Clone, Debug, Default)]
pub struct Troubles {
    /// Losses, changes and clocks.
    pub impairments: Impairments,
    /// Traffic that no job waits for.
    pub background: Vec<Background>,
    /// Hosts whose clocks are not right, and by how many parts in 10^9 they are fast.
    pub drift: Vec<(u32, i64)>,
}
