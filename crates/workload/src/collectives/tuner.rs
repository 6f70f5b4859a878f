//! Which algorithm `Auto` stands for.

use windtunnel_kernel::registry::Entry;

use super::method::{Arrangement, Method, Rings};
use super::parts::{Round, Sink};
use super::plan::{CoupledShape, Plan};
use super::traffic::Traffic;
use super::{Algorithm, CollectiveKind, CollectiveSpec};

/// Chooses an algorithm where a specification leaves it open.
pub trait Tuner {
    /// An algorithm that computes `spec.kind` in a group of `n` ≥ 2. [`Algorithm::Auto`] leaves the choice to
    /// [`SizeRule`].
    fn choose(&self, spec: &CollectiveSpec, n: u32) -> Algorithm;
}

/// A simple rule by size, with no constant fitted to a library.
///
/// | kind | small | large |
/// |---|---|---|
/// | all-reduce | recursive up to 64 KiB | if the group spans whole scale-up domains: several rings where such a ring's messages have 64 KiB, else hierarchical; if not: double binary tree while a rank's block is under 64 KiB, ring from there |
/// | all-gather, reduce-scatter | PAT while a block is under 64 KiB | several rings or hierarchical, likewise; ring if the group spans no domains |
/// | broadcast, reduce | binomial up to 64 KiB | double binary tree; ring (a pipelined chain) where the buffer has 100 chunks per member |
/// | all-to-all | Bruck while a block is at most 256 B and n ≥ 8 | direct |
/// | all-to-all-v | direct | direct |
///
/// 256 B is MPICH's switch point to Bruck's algorithm; 64 KiB is where a message's bytes outweigh a few microseconds of
/// latency at 100–400 Gbps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeRule;

/// The same where a rank takes in its messages one after another whatever way they come (LogGOPS): two levels in place of several
/// rings, which would have no links to keep busy at once, and many more messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneByOne;

impl Tuner for OneByOne {
    fn choose(&self, spec: &CollectiveSpec, n: u32) -> Algorithm {
        match SizeRule.choose(spec, n) {
            Algorithm::MultiRing => Algorithm::Hierarchical,
            other => other,
        }
    }
}

/// Up to here latency outweighs bytes.
const SMALL: u64 = 64 << 10;
/// All-to-all blocks up to here are worth sending log2 n / 2 times.
const BRUCK: u64 = 256;

impl SizeRule {
    /// How a group of `n` in whole domains of `domain` sums or gathers `bytes`: several rings keep the links inside and between
    /// domains busy at once, two levels take fewer steps.
    pub fn over_domains(bytes: u64, n: u32, domain: u32) -> Algorithm {
        if bytes / u64::from(n) / u64::from(domain) < SMALL {
            Algorithm::Hierarchical
        } else {
            Algorithm::MultiRing
        }
    }

    /// How [`Algorithm::Hierarchical`] goes between `outer` domains with `bytes` per local index.
    pub(super) fn between_domains(bytes: u64, outer: u32) -> Algorithm {
        if outer.is_power_of_two() && bytes / u64::from(outer) < SMALL {
            Algorithm::Recursive
        } else {
            Algorithm::Ring
        }
    }
}

impl Tuner for SizeRule {
    fn choose(&self, spec: &CollectiveSpec, n: u32) -> Algorithm {
        let bytes = spec.bytes.get();
        let block = bytes / u64::from(n);
        let spans_domains = spec.domain > 1 && spec.domain < n && n.is_multiple_of(spec.domain);
        match spec.kind {
            CollectiveKind::AllReduce => match () {
                () if bytes <= SMALL => Algorithm::Recursive,
                () if spans_domains => Self::over_domains(bytes, n, spec.domain),
                () if block < SMALL && n > 2 => Algorithm::DoubleBinaryTree,
                () => Algorithm::Ring,
            },
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter => match () {
                () if block < SMALL => Algorithm::Pat,
                () if spans_domains => Self::over_domains(bytes, n, spec.domain),
                () => Algorithm::Ring,
            },
            CollectiveKind::Broadcast { .. } | CollectiveKind::Reduce { .. } => match () {
                () if bytes <= SMALL => Algorithm::Binomial,
                () if n == 2 || u64::from(super::plan::chunks(bytes)) >= 100 * u64::from(n) => {
                    Algorithm::Ring
                }
                () => Algorithm::DoubleBinaryTree,
            },
            CollectiveKind::AllToAll if block <= BRUCK && n >= 8 => Algorithm::Bruck,
            CollectiveKind::AllToAll | CollectiveKind::AllToAllV => Algorithm::Direct,
            CollectiveKind::Barrier => Algorithm::Bruck,
        }
    }
}

/// What a tuner replaces before there is a plan: it computes nothing itself.
pub(super) struct Auto;

impl Method for Auto {
    const ENTRY: Entry = Entry::new("auto", "chosen by size");
    const KINDS: &'static [CollectiveKind] = &[];
    const RINGS: Rings = Rings::None;
    const WHOLE_DOMAINS: bool = false;
    const IN_TURN: bool = false;
    const SUMS: bool = false;

    fn settle(_: &mut Plan) {}

    fn rounds(_: &Plan, _: u32) -> Arrangement {
        Arrangement::of(0)
    }

    fn emit(_: &Plan, _: u32, _: u32, _: u32, _: &mut impl Sink) {}

    fn exchange(_: &Plan, _: u32, _: u32, _: &mut Round) {}

    fn coupled(_: &Plan) -> Option<CoupledShape> {
        None
    }

    fn traffic(_: &Plan) -> Option<Traffic> {
        None
    }
}
