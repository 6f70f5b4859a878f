//! Time of fused attention from blocks of queries and waves over the multiprocessors of a GPU.
//!
//! A multiprocessor takes a block of queries of one head and passes over the blocks of keys that these may see: all of
//! them, those up to the diagonal (causal), or those of a window before it; blocks on an edge are computed whole. The work
//! of all blocks spreads over the multiprocessors, none of which is done before its longest block is; of that longest block
//! the share `tail` is added, which the last wave leaves idle. Queries, keys, values and results pass through memory once.
//! Blocks are of 16 to 128 queries and keys, whichever is fastest. The share of the peak depends on the features of a head,
//! for which each library has kernels of their own (Dao 2023, arXiv:2307.08691; Shah et al. 2024, arXiv:2407.08608), and on
//! whether a window leaves keys out: those are other kernels again.

use serde::Deserialize;

use super::kernels::AttentionShape;
use super::tiles::{Device, amount, factor, missed, one, part, rate, seconds};

/// Queries and keys of a block.
const BLOCKS: [u64; 4] = [16, 32, 64, 128];

/// What an inference library does in kernels of its own before attention: positions, and keys and values put in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepare {
    /// Seconds.
    #[serde(deserialize_with = "seconds")]
    pub time: f64,
    /// Passes over queries, keys and values in 16 bits at the memory's bandwidth.
    #[serde(deserialize_with = "amount")]
    pub passes: f64,
}

/// Constants of fused attention on one device in one format.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flash {
    /// Share of the peak in the loop over keys, for heads of up to so many features: `[features, share]`, ascending.
    pub share: Vec<[f64; 2]>,
    /// The same of kernels whose window leaves keys out, a window being shorter than the sequence; absent: as `share`.
    #[serde(default)]
    pub windowed: Vec<[f64; 2]>,
    /// Numbers of keys and values per second, times features, that a multiprocessor loads.
    #[serde(deserialize_with = "rate")]
    pub feed: f64,
    /// Seconds before a block's loop runs.
    #[serde(deserialize_with = "seconds")]
    pub fill: f64,
    /// Share of the longest block that the last wave adds.
    #[serde(deserialize_with = "amount")]
    pub tail: f64,
    /// Share of the memory bandwidth.
    #[serde(deserialize_with = "part")]
    pub memory: f64,
    /// Share of the shorter of computation and memory that is not hidden.
    #[serde(deserialize_with = "part")]
    pub serial: f64,
    /// Seconds that the kernel takes however small.
    #[serde(deserialize_with = "seconds")]
    pub launch: f64,
    /// What stands before it in an inference library; absent: nothing.
    #[serde(default)]
    pub prepare: Option<Prepare>,
    /// Factor on the bandwidth where a benchmark's operands are still in the cache; absent: they never are.
    #[serde(default = "one", deserialize_with = "factor")]
    pub cached: f64,
    /// Share of the cache that operands may fill and still all be found again.
    #[serde(default = "one", deserialize_with = "part")]
    pub resident: f64,
}

impl Flash {
    /// Where a fit begins.
    pub fn prior() -> Self {
        Self {
            share: vec![[128.0, 0.6]],
            windowed: Vec::new(),
            feed: 100e9,
            fill: 500e-9,
            tail: 0.3,
            memory: 0.8,
            serial: 0.3,
            launch: 2e-6,
            prepare: None,
            cached: 1.0,
            resident: 1.0,
        }
    }

    /// Why these constants cannot be used.
    pub(super) fn wrong(&self) -> Option<String> {
        let right = |shares: &[[f64; 2]]| {
            shares.windows(2).all(|pair| pair[0][0] < pair[1][0])
                && shares.iter().all(|&[features, share]| features > 0.0 && share > 0.0 && share <= 1.0)
        };
        (self.share.is_empty() || !right(&self.share) || !right(&self.windowed)).then(|| {
            "`share` and `windowed` must have pairs of features, ascending, and a share above 0 and at most 1".to_owned()
        })
    }

    /// The share of the peak for heads of `features`: that of the next kernel made for as many, else of the last.
    fn share_for(&self, features: u64) -> f64 {
        share_of(&self.share, features).unwrap_or(1.0)
    }

    /// The same for one kernel: of those with a window, where it leaves keys out.
    fn share_at(&self, shape: &AttentionShape) -> f64 {
        let features = shape.query_dim.midpoint(shape.value_dim);
        let cut = shape.window > 0 && shape.window < shape.keys;
        cut.then(|| share_of(&self.windowed, features)).flatten().unwrap_or_else(|| self.share_for(features))
    }

    /// Share of the peak that long sequences reach with heads of `features`.
    pub fn reached(&self, device: &Device, features: u64) -> f64 {
        let [.., block] = BLOCKS;
        let one = device.peak / device.sms as f64;
        1.0 / (1.0 / self.share_for(features) + one / (self.feed * block as f64))
    }

    /// The part of the time of memory that is left to a benchmark that repeats one kernel over the same operands
    /// ([`super::tiles::Tiles::missed`]): it touches queries, keys, values and results, and before them those that
    /// [`Self::prepare`] reads in 16 bits.
    pub fn missed(&self, device: &Device, shape: &AttentionShape, query_width: f64, key_width: f64) -> f64 {
        let touched = bytes(shape, query_width, key_width) + 2.0 * numbers(shape);
        missed(device, touched, self.resident, self.cached)
    }

    /// Seconds of the kernel without its launch. Queries and results have `query_width` bytes a number (results 2), keys
    /// and values `key_width`; memory moves the part `missed` of them. Computation runs at `pace` of the device's clock and
    /// of the share.
    pub fn seconds(
        &self,
        device: &Device,
        shape: &AttentionShape,
        query_width: f64,
        key_width: f64,
        pace: f64,
        missed: f64,
    ) -> f64 {
        let features = (shape.query_dim + shape.value_dim) as f64;
        let one = device.peak * self.share_at(shape) / device.sms as f64;
        let heads = (shape.batch * shape.heads) as f64;
        let sms = device.sms as f64;
        let mut best = f64::INFINITY;
        for block in BLOCKS {
            let size = block as f64;
            let (whole, longest) = blocks(shape, block);
            // A block of keys for a block of queries: two products, and its keys and values.
            let step = size * (2.0 * size * features / one + 2.0 * features / self.feed);
            let count = heads * shape.queries.div_ceil(block) as f64;
            let work = (heads * whole * step + count * self.fill) / sms;
            let last = longest * step + self.fill;
            let time = if work > last { work + self.tail * last } else { last + self.tail * work };
            if time < best {
                best = time;
            }
        }
        let best = best / pace;
        let memory = bytes(shape, query_width, key_width) * missed / (device.bandwidth * self.memory);
        let (longer, shorter) = if best > memory { (best, memory) } else { (memory, best) };
        longer + self.serial * shorter
    }

    /// Seconds, without the launch, of one query a sequence over the keys in its cache. Blocks of 128 keys spread over the
    /// multiprocessors, also those of one sequence (flash decoding); a block is loaded once for all query heads that share
    /// it, which are computed in groups of 16.
    pub fn decoded(&self, device: &Device, shape: &AttentionShape, key_width: f64, pace: f64) -> f64 {
        let keys = if shape.window == 0 { shape.keys } else { shape.keys.min(shape.window) };
        let features = (shape.query_dim + shape.value_dim) as f64;
        let [.., block] = BLOCKS;
        let one = device.peak * self.share_for(shape.query_dim.midpoint(shape.value_dim)) / device.sms as f64;
        let group = (shape.heads.div_ceil(shape.kv_heads).div_ceil(16) * 16) as f64;
        let (arithmetic, load) = (2.0 * group * features / one, features * key_width / self.feed);
        let step = block as f64 * if arithmetic > load { arithmetic } else { load } + self.fill;
        let blocks = (shape.batch * shape.kv_heads * keys.div_ceil(block)) as f64 / device.sms as f64;
        let waves = if blocks > 1.0 { blocks + self.tail } else { 1.0 + self.tail * blocks };
        let compute = waves * step / pace;
        let read = (shape.batch * shape.kv_heads * keys) as f64 * features * key_width;
        let memory =
            (read + 2.0 * (shape.batch * shape.heads) as f64 * features) / (device.bandwidth * self.memory);
        let (longer, shorter) = if compute > memory { (compute, memory) } else { (memory, compute) };
        longer + self.serial * shorter
    }

    /// Seconds of [`Self::prepare`], of whose bytes memory moves the part `missed`.
    pub fn prepared(&self, device: &Device, shape: &AttentionShape, missed: f64) -> f64 {
        let Some(prepare) = self.prepare else { return 0.0 };
        let moved = 2.0 * numbers(shape) * missed;
        prepare.time + prepare.passes * moved / (device.bandwidth * self.memory)
    }

    /// Sets the constant called `name`, in seconds, bytes per second or shares; `share.64` is that of heads of 64.
    ///
    /// # Errors
    /// The names there are.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), String> {
        if let Some((list, features)) = name.split_once('.')
            && let ("share" | "windowed", Ok(features)) = (list, features.parse::<f64>())
        {
            let shares = if list == "share" { &mut self.share } else { &mut self.windowed };
            let value = value.min(1.0);
            match shares.iter_mut().find(|pair| pair[0] == features) {
                Some(pair) => pair[1] = value,
                None => {
                    shares.push([features, value]);
                    shares.sort_by(|a, b| a[0].total_cmp(&b[0]));
                }
            }
            return Ok(());
        }
        let none = Prepare { time: 0.0, passes: 0.0 };
        match name {
            "feed" => self.feed = value,
            "fill" => self.fill = value,
            "tail" => self.tail = value,
            "memory" => self.memory = value.min(1.0),
            "serial" => self.serial = value.min(1.0),
            "launch" => self.launch = value,
            "cached" => self.cached = value.max(1.0),
            "resident" => self.resident = value.min(1.0),
            "prepare.time" => self.prepare.get_or_insert(none).time = value,
            "prepare.passes" => self.prepare.get_or_insert(none).passes = value,
            _ => {
                return Err(format!(
                    "no constant `{name}`\n\nhint: there are share.FEATURES, windowed.FEATURES, feed, fill, tail, memory, serial, launch, cached, \
                     resident, prepare.time, prepare.passes"
                ));
            }
        }
        Ok(())
    }
}

/// The share of the next kernel made for as many features, else of the last.
fn share_of(shares: &[[f64; 2]], features: u64) -> Option<f64> {
    shares.iter().find(|[most, _]| features as f64 <= *most).or(shares.last()).map(|&[_, share]| share)
}

/// Bytes of queries, results, keys and values.
fn bytes(shape: &AttentionShape, query_width: f64, key_width: f64) -> f64 {
    let (queries, keys) = ((shape.batch * shape.queries) as f64, (shape.batch * shape.keys) as f64);
    let features = (shape.query_dim + shape.value_dim) as f64;
    queries * shape.heads as f64 * (query_width * shape.query_dim as f64 + 2.0 * shape.value_dim as f64)
        + keys * shape.kv_heads as f64 * key_width * features
}

/// Numbers of queries, keys and values.
fn numbers(shape: &AttentionShape) -> f64 {
    let each = shape.queries * shape.heads * shape.query_dim
        + shape.keys * shape.kv_heads * (shape.query_dim + shape.value_dim);
    shape.batch as f64 * each as f64
}

/// Pairs of blocks that one head computes, and the most of them for one block of queries.
fn blocks(shape: &AttentionShape, block: u64) -> (f64, f64) {
    let (queries, keys) = (shape.queries.div_ceil(block), shape.keys.div_ceil(block));
    // A window that begins inside a block needs that block too.
    let most =
        if shape.window == 0 { keys } else { keys.min(1 + (shape.window.saturating_sub(1)).div_ceil(block)) };
    if !shape.causal {
        return ((queries * most) as f64, most as f64);
    }
    if queries < keys && shape.window == 0 {
        // A part of the queries, early and late ones in equal parts.
        return (queries as f64 * (keys + 1) as f64 / 2.0, keys as f64);
    }
    // The first blocks of queries see 1, 2, 3 ... blocks of keys.
    let rising = most.min(queries);
    ((rising * (rising + 1) / 2 + (queries - rising) * most) as f64, rising as f64)
}
