//! A collective as an operation names it, before its group is known.

use windtunnel_kernel::math::gcd;
use windtunnel_kernel::{Bytes, RankId};

use super::algorithm::Algorithm;
use super::kind::CollectiveKind;
use super::{dispatcher, nccl};

windtunnel_kernel::named! {
    /// How the edges of a collective are simulated (docs/architecture.md, Coupled groups).
    #[derive(Default, Hash)]
    pub enum Form: "form" {
        #[default]
        Auto = "auto", "coupled where that agrees with the step-by-step form, by steps elsewhere";
        Coupled = "coupled", "one rate for all edges; all ranks finish together";
        Steps = "steps", "message by message";
    }
}

/// A collective as an operation names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CollectiveSpec {
    /// What it computes.
    pub kind: CollectiveKind,
    /// How.
    pub algorithm: Algorithm,
    /// Size, counted as [`CollectiveKind`] says.
    pub bytes: Bytes,
    /// Form.
    pub form: Form,
    /// Messages a rank may have outstanding in a direct collective.
    pub outstanding: u32,
    /// Members of one scale-up domain that stand next to each other in the group (1 if none do).
    pub domain: u32,
    /// How long the hops of the group are where that differs from group to group: in several buildings.
    pub distances: Option<nccl::Distances>,
    /// NCCL, where it runs: it decides an algorithm that is left open, and how long that takes.
    pub library: Option<nccl::Library>,
    /// All-to-all only: what it carries are tokens' copies for experts, and a dispatcher that sends none twice does it.
    pub routing: Option<dispatcher::Routing>,
    /// All-to-all-v only: bytes from group index i to j at `matrix[i * n + j]`.
    pub matrix: Option<std::sync::Arc<[u64]>>,
}

impl CollectiveSpec {
    /// Messages that a rank may have outstanding in a direct collective, where nobody says another number.
    pub const OUTSTANDING: u32 = 64;

    /// A collective of `kind` over `bytes` with everything else at its default.
    pub fn new(kind: CollectiveKind, bytes: Bytes) -> Self {
        Self {
            kind,
            algorithm: Algorithm::Auto,
            bytes,
            form: Form::Auto,
            outstanding: Self::OUTSTANDING,
            domain: 1,
            distances: None,
            library: None,
            routing: None,
            matrix: None,
        }
    }
}

/// The [`CollectiveSpec::domain`] of `groups` alike where ranks fill scale-up domains of `gpus` in order: see
/// [`neighbours_at`].
pub fn neighbours<'a>(groups: impl IntoIterator<Item = &'a [RankId]>, gpus: u32) -> u32 {
    let gpus = gpus.max(1);
    neighbours_at(groups, |rank| rank.0 / gpus)
}

/// The [`CollectiveSpec::domain`] of `groups` alike whose ranks stand in the scale-up domains that `home` says: the greatest
/// common divisor of the lengths of all stretches of neighbours that share a domain.
pub fn neighbours_at<'a>(
    groups: impl IntoIterator<Item = &'a [RankId]>,
    home: impl Fn(RankId) -> u32,
) -> u32 {
    let mut common = 0;
    for group in groups {
        for stretch in group.chunk_by(|&a, &b| home(a) == home(b)) {
            common = gcd(common, stretch.len() as u64);
        }
    }
    common.max(1) as u32
}
