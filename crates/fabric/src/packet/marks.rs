//! Where and how ports mark packets.

use windtunnel_kernel::{BitRate, Bytes};

windtunnel_kernel::named! {
    /// Where a packet is marked.
    #[derive(Default, Hash)]
    pub enum MarkAt: "place of marks" {
        #[default]
        Enqueue = "enqueue", "as it joins the queue, by what it finds";
        Dequeue = "dequeue", "as its transmission begins, by what it leaves behind";
    }
}

/// RED on the instantaneous queue. Sizes are those of a port of `rate` and grow in proportion for others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EcnSettings {
    /// The port's rate that the sizes are for.
    pub rate: BitRate,
    /// No packet is marked up to here.
    pub kmin: Bytes,
    /// Every packet is marked above.
    pub kmax: Bytes,
    /// Probability at `kmax`, 0 to 1.
    pub pmax: f64,
    /// Where.
    pub at: MarkAt,
}
