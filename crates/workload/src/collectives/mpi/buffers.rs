//! What an algorithm allocates and copies beside its messages, as the libraries over sends and receives do it.
//!
//! Sums may not be left in the caller's vector: an all-reduce copies it into the result's, or into a buffer where whole
//! vectors are exchanged; a reduction and a reduce-scatter copy it into a buffer. What comes in to be added lands in
//! another one, a ring's and a segmented one's of a block or a segment each. Inner nodes of a gather or a scatter hold
//! their subtree, half of the vector at the root's first child; messages go straight into and out of it.

use super::{Algorithm, Collective};

/// Memory of a call's own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Buffer {
    /// Bytes written.
    pub written: f64,
    /// Bytes asked for at once.
    pub asked: f64,
    /// Whether the processor writes them; messages arrive there otherwise.
    pub copied: bool,
}

const fn copied(bytes: f64) -> Buffer {
    Buffer { written: bytes, asked: bytes, copied: true }
}

const fn received(written: f64, asked: f64) -> Buffer {
    Buffer { written, asked, copied: false }
}

/// Buffers of a collective of `bytes` over `ranks`, and the bytes that are copied between the caller's own.
pub(super) fn buffers(
    collective: Collective,
    algorithm: Algorithm,
    bytes: f64,
    ranks: f64,
    segmented: bool,
) -> (Vec<Buffer>, f64) {
    use {Algorithm as A, Collective as C};
    let whole = matches!(algorithm, A::RecursiveDoubling | A::BineWhole | A::Binomial);
    match (collective, algorithm) {
        // Bruck's result is rotated into place, half of it twice.
        (C::AllGather, A::Bruck) => (vec![copied(bytes)], bytes / 2.0),
        (C::AllReduce, A::Ring) => (vec![received(2.0 * bytes / ranks, bytes / ranks)], bytes),
        (C::AllReduce, _) if whole => (vec![copied(bytes)], 0.0),
        (C::AllReduce, _) if segmented => (Vec::new(), bytes),
        (C::AllReduce, A::BineBlocks | A::BineBlocksEven) => (vec![received(bytes / 2.0, bytes)], bytes),
        (C::AllReduce, _) => (vec![received(bytes / 2.0, bytes / 2.0)], bytes),
        (C::ReduceScatter, A::Ring | A::Pairwise) | (C::AllToAll, A::Bruck | A::Bine) => {
            (vec![copied(bytes)], 0.0)
        }
        (C::ReduceScatter, _) => (vec![copied(bytes), received(bytes / 2.0, bytes)], 0.0),
        (C::Reduce, _) if whole => (vec![copied(bytes), received(bytes, bytes)], 0.0),
        (C::Reduce, _) => (vec![copied(bytes), received(bytes / 2.0, bytes / 2.0)], 0.0),
        (C::Gather | C::Scatter, A::Linear) => (Vec::new(), 0.0),
        (C::Gather, _) => (vec![received(bytes / 2.0, bytes / 2.0)], 0.0),
        // One level after the other is filled before it passes on.
        (C::Scatter, _) => {
            let level = |k: i32| bytes / f64::from(1 << k);
            ((1..=3).map(|k| received(level(k), level(k))).collect(), 0.0)
        }
        _ => (Vec::new(), 0.0),
    }
}

/// Bytes that one-sided puts have copied into memory known to the interfaces.
pub(super) fn put_buffer(collective: Collective, algorithm: Algorithm, bytes: f64) -> f64 {
    use {Algorithm as A, Collective as C};
    match (collective, algorithm) {
        (C::AllReduce, A::RecursiveDoubling | A::BineWhole) | (C::ReduceScatter | C::Reduce, _) => bytes,
        (C::AllReduce, A::Ring) => 0.0,
        (C::AllReduce, _) => bytes / 2.0,
        _ => 0.0,
    }
}
