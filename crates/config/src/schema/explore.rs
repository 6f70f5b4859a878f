//! What `windtunnel explore` is asked for, as it is written.

use std::fmt;
use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::de::{self, Unexpected};
use serde::{Deserialize, Deserializer};

use super::Size;

/// What layouts are ranked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Time of an iteration.
    #[default]
    Time,
    /// Memory of the fullest GPU.
    Memory,
    /// Energy of a token, by the power of the sheets.
    Energy,
    /// US dollars of a token, by `prices` or the prices of the sheets.
    Dollars,
}

/// One number or several.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub enum Numbers {
    /// One.
    One(NonZeroU64),
    /// Several of these.
    Many(Vec<NonZeroU64>),
}

// By hand, so that a fault inside is told where it stands: an untagged enum knows only that nothing fits.
impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Numbers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number from 1, or a list of these")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Numbers, E> {
                let none = || E::invalid_value(Unexpected::Unsigned(number), &self);
                NonZeroU64::new(number).map(Numbers::One).ok_or_else(none)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Numbers, E> {
                let none = |_| E::invalid_value(Unexpected::Signed(number), &self);
                u64::try_from(number).map_err(none).and_then(|number| self.visit_u64(number))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Numbers, A::Error> {
                let mut found = Vec::new();
                while let Some(Counted(number)) = list.next_element()? {
                    found.push(number);
                }
                Ok(Numbers::Many(found))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// A number of a list.
struct Counted(NonZeroU64);

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        let none = || de::Error::invalid_value(Unexpected::Unsigned(number), &"a whole number from 1");
        NonZeroU64::new(number).map(Self).ok_or_else(none)
    }
}

/// What `windtunnel explore` searches (docs/explore.md); its options go before what stands here. Runs do not read it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Explore {
    /// Name of the job; the first if left out.
    pub job: Option<String>,
    /// GPUs, or several numbers of GPUs that are compared; those of the job's layout if left out, else all.
    pub gpus: Option<Numbers>,
    /// Tensor-parallel degrees.
    pub tp: Option<Vec<u32>>,
    /// Context-parallel degrees.
    pub cp: Option<Vec<u32>>,
    /// Expert-parallel degrees.
    pub ep: Option<Vec<u32>>,
    /// Pipeline stages.
    pub pp: Option<Vec<u32>>,
    /// ZeRO stages; 1, 3 and the job's if left out.
    pub zero: Option<Vec<u32>>,
    /// Replicas of shards; 1 and one a building if left out.
    pub replicate: Option<Vec<u32>>,
    /// What is outermost: `pp-out`, `dp-out`; both over several buildings if left out.
    pub order: Option<Vec<String>>,
    /// Schedules; `1f1b`, `interleaved`, `zb-h1`, `dorapp` and `zbv` if left out.
    pub schedule: Option<Vec<String>>,
    /// Chunks of a rank; numbers to 8 that divide its layers if left out.
    pub chunks: Option<Vec<u32>>,
    /// Run lengths; as many as stages, twice that, and all micro-batches if left out.
    pub run_length: Option<Vec<u32>>,
    /// Sequences of a micro-batch; 1, 2, 4 and the job's if left out.
    pub micro_batch: Option<Vec<u32>>,
    /// Recomputation; `none`, `full` and the job's if left out.
    pub recompute: Option<Vec<String>>,
    /// Tokens of a context-parallel rank at least; 2,048 if left out.
    #[schemars(range(min = 1))]
    pub context_least: Option<u64>,
    /// Whether degrees are all divisors of the number of GPUs, not powers of two alone.
    pub divisors: Option<bool>,
    /// Whether layers are moved between stages.
    pub uneven: Option<bool>,
    /// Best layouts whose layers are moved; 1,000 if left out.
    #[schemars(range(min = 1))]
    pub keep: Option<u32>,
    /// Ways in which the layers of each are moved; 100 if left out.
    #[schemars(range(min = 1))]
    pub perturb: Option<u32>,
    /// Layers of the longest stage over those of the shortest at most; 3 if left out.
    pub ratio: Option<f64>,
    /// Memory of a GPU that may be used; all of it if left out.
    pub budget: Option<Size>,
    /// What layouts are ranked by.
    pub objective: Option<Objective>,
    /// Best layouts that are simulated as flows; 5 if left out.
    pub prove: Option<u32>,
    /// Of these, as many packet by packet; none if left out.
    pub packet: Option<u32>,
    /// Whether settings of the network are tried packet by packet on what crosses the fabric farthest.
    pub advise: Option<bool>,
}
