//! How a file names kinds, algorithms, forms and dimensions: the variants in snake case.

use crate::Dimension;
use crate::collectives::{Algorithm, CollectiveKind, Form};

/// Collectives; the root of those that have one is filled in by the reader.
pub(super) const KINDS: [(&str, CollectiveKind); 8] = [
    ("all_reduce", CollectiveKind::AllReduce),
    ("all_gather", CollectiveKind::AllGather),
    ("reduce_scatter", CollectiveKind::ReduceScatter),
    ("broadcast", CollectiveKind::Broadcast { root: 0 }),
    ("reduce", CollectiveKind::Reduce { root: 0 }),
    ("all_to_all", CollectiveKind::AllToAll),
    ("all_to_all_v", CollectiveKind::AllToAllV),
    ("barrier", CollectiveKind::Barrier),
];

/// Algorithms.
pub(super) const ALGORITHMS: [(&str, Algorithm); 12] = [
    ("auto", Algorithm::Auto),
    ("ring", Algorithm::Ring),
    ("double_binary_tree", Algorithm::DoubleBinaryTree),
    ("recursive", Algorithm::Recursive),
    ("bruck", Algorithm::Bruck),
    ("pat", Algorithm::Pat),
    ("binomial", Algorithm::Binomial),
    ("direct", Algorithm::Direct),
    ("pairwise", Algorithm::Pairwise),
    ("multi_ring", Algorithm::MultiRing),
    ("hierarchical", Algorithm::Hierarchical),
    ("in_network", Algorithm::InNetwork),
];

/// Forms.
pub(super) const FORMS: [(&str, Form); 3] =
    [("auto", Form::Auto), ("coupled", Form::Coupled), ("steps", Form::Steps)];

/// Dimensions.
pub(super) fn dimensions() -> [(&'static str, Dimension); 6] {
    Dimension::ALL.map(|dimension| (dimension.name(), dimension))
}

/// The name of a collective.
pub(super) fn kind_name(kind: CollectiveKind) -> &'static str {
    use std::mem::discriminant;
    let known = KINDS.iter().find(|(_, known)| discriminant(known) == discriminant(&kind));
    known.map_or("", |(name, _)| name)
}

/// The name under which `value` stands in `table`.
pub(super) fn name_of<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, known)| known == value).map_or("", |(name, _)| name)
}
