//! Time of a matrix product from tiles and waves over the multiprocessors of a GPU.
//!
//! A library cuts the result into tiles of some size, gives each to a multiprocessor, and runs as many at once as there are
//! multiprocessors: a wave. With few tiles it also cuts the inner dimension and adds the parts up afterwards. Of the sizes
//! and cuts it has, it takes what is fastest, and so does this model. For one choice:
//!
//! - a tile takes `fill` + k · max(arithmetic at `share` of the multiprocessor's part of the peak, operands loaded at `feed`)
//!   + its result written at `store`;
//! - waves are tiles over multiprocessors, rounded up for the part `tail` of what the last wave leaves idle (the other part
//!   is won back: multiprocessors drift apart, and fewer of them run at a higher clock);
//! - memory takes every operand and result once, at `memory` of the bandwidth;
//! - the longer of both passes, and the part `serial` of the shorter, which is not hidden behind it.
//!
//! A product with more rows, columns or inner numbers never takes less time: each choice is monotone, and choices only
//! vanish as the result grows. Nothing is faster than `share` of the peak, or than `memory` of the bandwidth. Only a
//! benchmark that comes back to the same operands while the cache still has them is faster ([`Tiles::missed`]); a job passes
//! over gigabytes before it does, and finds nothing. Tile sizes: github.com/NVIDIA/cutlass, its profiler's default threadblock shapes.

use serde::Deserialize;

use super::figure::{FigureValue, Raw};
use windtunnel_kernel::{BitRate, Span};

/// Tiles that libraries have kernels for: rows and columns.
const TILES: [[u64; 2]; 12] = [
    [16, 64],
    [16, 128],
    [32, 64],
    [32, 128],
    [64, 64],
    [64, 128],
    [64, 256],
    [128, 64],
    [128, 128],
    [128, 256],
    [256, 64],
    [256, 128],
];

/// Parts into which the inner dimension may be cut.
const CUTS: [u64; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// Inner numbers that are loaded at once.
const STEP: u64 = 64;

/// A cut is worth trying while tiles do not fill this many waves.
const CUT_WAVES: u64 = 2;

/// From so much more than fits on, a cache has lost all operands before a benchmark comes back to them.
const RAMP: f64 = 0.1;

/// So many experts a token TensorRT-LLM chooses in a kernel of its own (`RenormalizeMoeRoutingMethod`).
const FUSED_CHOICES: u64 = 16;

/// What a model of tiles needs to know of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// Multiprocessors (compute units).
    pub sms: u64,
    /// Operations per second of all of them, in the operands' format.
    pub peak: f64,
    /// Bytes per second of the memory.
    pub bandwidth: f64,
    /// Bytes of the last-level cache.
    pub cache: f64,
}

/// A mixture of experts on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertShape<'a> {
    /// Features of a token.
    pub hidden: u64,
    /// Inner features of an expert on this rank.
    pub inter: u64,
    /// Projections up: 2 with a gate.
    pub ups: u64,
    /// Tokens of all expert-parallel ranks.
    pub tokens: u64,
    /// Their choices.
    pub choices: u64,
    /// So many choices over so many experts were there when the library timed its kernels; none: those it computes.
    pub timed: Option<[u64; 2]>,
    /// Bytes that a benchmark touches before it comes back to an expert, and how many experts these are; none: it never does.
    pub returns: &'a [[u64; 2]],
}

/// Parts of a product along its rows: one matrix, several of equal size, or one for each expert.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// So many matrices of so many rows each.
    Equal(u64, u64),
    /// So many matrices for each number of rows: `[rows, matrices]`.
    Each(&'a [[u64; 2]]),
    /// So many matrices of many, `[rows, matrices]`, over which rows are spread evenly: with less than one row each, fewer
    /// have any.
    Spread(u64, [u64; 2]),
}

impl Rows<'_> {
    /// Rows of all.
    pub fn total(&self) -> u64 {
        match self {
            Self::Equal(count, rows) => count * rows,
            Self::Each(kinds) => kinds.iter().map(|[rows, count]| rows * count).sum(),
            Self::Spread(count, [rows, all]) => (count * rows).div_ceil(*all),
        }
    }

    /// Rows of tiles of one height.
    fn tiles(&self, height: u64) -> u64 {
        match self {
            Self::Equal(count, rows) => count * rows.div_ceil(height),
            Self::Each(kinds) => kinds.iter().map(|[rows, count]| rows.div_ceil(height) * count).sum(),
            Self::Spread(count, [rows, all]) if rows < all => (count * rows).div_ceil(*all),
            Self::Spread(count, [rows, all]) => count * rows.div_ceil(all * height),
        }
    }
}

/// How parts of a cut inner dimension are added up.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Time besides the traffic, in seconds.
    #[serde(deserialize_with = "seconds")]
    pub time: f64,
    /// Share of the traffic of all parts in 32 bits, written and read, that goes to memory.
    #[serde(deserialize_with = "part")]
    pub traffic: f64,
}

/// Conversion of the left factor to the narrow format, in a kernel of its own.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Convert {
    /// Seconds.
    #[serde(deserialize_with = "seconds")]
    pub time: f64,
    /// Share of the memory bandwidth at which 16-bit numbers are read and narrow ones written.
    #[serde(deserialize_with = "part")]
    pub memory: f64,
    /// Seconds for each row, where its scales are put in order too (RTX PRO 6000, a scale a block).
    #[serde(default, deserialize_with = "seconds")]
    pub row: f64,
}

impl Convert {
    const NONE: Self = Self { time: 0.0, memory: 1.0, row: 0.0 };
}

/// What routed experts cost besides their products: passes over 16-bit numbers at the memory's bandwidth, and lists.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routing {
    /// Passes over the rows that this rank's experts take, their inputs, inner features and results.
    #[serde(deserialize_with = "amount")]
    pub copies: f64,
    /// Passes over the features of all tokens: their conversion, and the sums of results.
    #[serde(deserialize_with = "amount")]
    pub tokens: f64,
    /// Seconds for each choice of all tokens: their lists are put in order.
    #[serde(deserialize_with = "seconds")]
    pub choice: f64,
    /// Seconds for each of this rank's experts: rows are counted.
    #[serde(deserialize_with = "seconds")]
    pub expert: f64,
    /// Seconds more where a token chooses more than [`FUSED_CHOICES`] experts: general kernels find the highest logits then.
    #[serde(default, deserialize_with = "seconds")]
    pub select: f64,
}

impl Routing {
    const NONE: Self = Self { copies: 0.0, tokens: 0.0, choice: 0.0, expert: 0.0, select: 0.0 };
}

/// Constants of products on one device in one format.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tiles {
    /// Share of the peak in a tile's main loop.
    #[serde(deserialize_with = "part")]
    pub share: f64,
    /// Bytes per second of operands that a multiprocessor loads.
    #[serde(deserialize_with = "rate")]
    pub feed: f64,
    /// Bytes per second of a result that a multiprocessor writes.
    #[serde(deserialize_with = "rate")]
    pub store: f64,
    /// Seconds before a tile's main loop runs.
    #[serde(deserialize_with = "seconds")]
    pub fill: f64,
    /// Share of the last wave's idle multiprocessors that costs time.
    #[serde(deserialize_with = "part")]
    pub tail: f64,
    /// Share of the memory bandwidth.
    #[serde(deserialize_with = "part")]
    pub memory: f64,
    /// Share of the shorter of computation and memory that is not hidden.
    #[serde(deserialize_with = "part")]
    pub serial: f64,
    /// Seconds that any product takes.
    #[serde(deserialize_with = "seconds")]
    pub launch: f64,
    /// How the inner dimension is cut; absent: never.
    #[serde(default)]
    pub cut: Option<Cut>,
    /// How the left factor becomes narrow; absent: it is.
    #[serde(default)]
    pub convert: Option<Convert>,
    /// What stands between routed experts' products; absent: nothing.
    #[serde(default)]
    pub routing: Option<Routing>,
    /// Rows and columns of the smallest tile.
    #[serde(default = "least")]
    pub least: [u64; 2],
    /// Rows and columns of the only tile there is, where a library takes its default kernel unasked; absent: the fastest is
    /// taken.
    #[serde(default)]
    pub only: Option<[u64; 2]>,
    /// The only tile, instead, where tokens are no more than the rank's experts (SGLang's Triton kernels).
    #[serde(default)]
    pub few: Option<[u64; 2]>,
    /// Whether experts' tile is the fastest for [`ExpertShape::timed`], and not for the rows that there are.
    #[serde(default)]
    pub timed: bool,
    /// Factor on the bandwidth where operands are still in the cache; absent: they never are.
    #[serde(default = "one", deserialize_with = "factor")]
    pub cached: f64,
    /// Share of the cache that operands may fill and still all be found again. Half of it or little more where two
    /// partitions each keep what their side reads (A100, H100, B200), all of it where there is one (L40S, RTX PRO 6000).
    #[serde(default = "one", deserialize_with = "part")]
    pub resident: f64,
}

const fn least() -> [u64; 2] {
    [16, 64]
}

pub(super) const fn one() -> f64 {
    1.0
}

fn read<'de, D: serde::Deserializer<'de>, T: FigureValue>(deserializer: D) -> Result<T, D::Error> {
    T::read(&Raw::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// A time with its unit, in seconds.
pub(super) fn seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    read::<D, Span>(deserializer).map(Span::seconds)
}

/// A rate with its unit, in bytes per second.
pub(super) fn rate<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    read::<D, BitRate>(deserializer).map(BitRate::bytes_per_second)
}

/// A share from 0 to 1.
pub(super) fn part<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    bounded(deserializer, "a share above 0 and at most 1", |value| value > 0.0 && value <= 1.0)
}

/// A factor of at least 1.
pub(super) fn factor<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    bounded(deserializer, "a factor of at least 1", |value| value >= 1.0)
}

/// A number that is not negative.
pub(super) fn amount<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    bounded(deserializer, "a number of at least 0", |value| value >= 0.0)
}

fn bounded<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
    expected: &str,
    holds: impl Fn(f64) -> bool,
) -> Result<f64, D::Error> {
    let value = f64::deserialize(deserializer)?;
    if value.is_finite() && holds(value) {
        Ok(value)
    } else {
        Err(serde::de::Error::custom(format!("expected {expected}, found `{value}`")))
    }
}

/// See [`Tiles::missed`]; `cached` times the bandwidth where all is found.
pub(super) fn missed(device: &Device, repeated: f64, resident: f64, cached: f64) -> f64 {
    if repeated <= 0.0 {
        return 1.0;
    }
    let out = (repeated / (device.cache * resident) - 1.0) / RAMP;
    let out = out.clamp(0.0, 1.0);
    out + (1.0 - out) / cached
}

impl Tiles {
    /// Where a fit begins: a GPU of 2022, whose inner dimension is not cut.
    pub const PRIOR: Self = Self {
        share: 0.8,
        feed: 80e9,
        store: 50e9,
        fill: 500e-9,
        tail: 0.5,
        memory: 0.8,
        serial: 0.2,
        launch: 3e-6,
        cut: None,
        convert: None,
        routing: None,
        least: [16, 64],
        only: None,
        few: None,
        timed: false,
        cached: 1.0,
        resident: 1.0,
    };

    /// Seconds of [`Self::convert`] for `rows` of `k` numbers that become `width` bytes each, of which memory moves the part
    /// `missed`.
    pub fn converted(&self, device: &Device, rows: u64, k: u64, width: f64, missed: f64) -> f64 {
        self.convert.map_or(0.0, |convert| {
            let bytes = (2.0 + width) * rows as f64 * k as f64 * missed;
            convert.time + convert.row * rows as f64 + bytes / (device.bandwidth * convert.memory)
        })
    }

    /// Seconds of a mixture's two products, `ups` times `inter` columns from `hidden` features and back, for the rows that
    /// this rank's experts take, `[rows, experts]`, with what stands between them and the launch.
    pub fn experts(&self, device: &Device, each: &[[u64; 2]], shape: ExpertShape<'_>, width: f64) -> f64 {
        let (ExpertShape { hidden, inter, ups, .. }, rows) = (shape, Rows::Each(each));
        let (taken, tokens) = (rows.total() as f64, shape.tokens as f64);
        let met = each.iter().filter(|[rows, _]| *rows > 0).map(|[_, count]| *count).sum::<u64>() as f64;
        let local: u64 = each.iter().map(|[_, count]| count).sum();
        let missed = self.missed_of(device, shape.returns);
        let timed = shape.timed.filter(|_| self.timed).map(|even| Rows::Spread(local, even));
        let only = if shape.tokens <= local { self.few.or(self.only) } else { self.only };
        let product = |n: u64, k: u64| {
            let (n_, k_) = (n as f64, k as f64);
            let bytes = met * width * n_ * k_ + taken * (width * k_ + 2.0 * n_);
            let time = self.fastest(device, rows, timed, only, n, k, width, 1.0);
            self.beside(time, bytes * missed / (device.bandwidth * self.memory))
        };
        let routing = self.routing.map_or(0.0, |routing| {
            let (hidden, inter) = (hidden as f64, inter as f64);
            let copies = taken * ((4.0 + width) * hidden + (2.0 * ups as f64 + width) * inter);
            let moved = routing.copies * copies + routing.tokens * tokens * 2.0 * hidden;
            let select = if shape.choices > FUSED_CHOICES * shape.tokens { routing.select } else { 0.0 };
            select
                + routing.expert * local as f64
                + routing.choice * shape.choices as f64
                + moved / device.bandwidth
        });
        self.launch + product(ups * inter, hidden) + product(hidden, inter) + routing
    }

    /// [`Self::missed`] over experts to which a benchmark comes back after so many bytes each.
    fn missed_of(&self, device: &Device, returns: &[[u64; 2]]) -> f64 {
        let experts: u64 = returns.iter().map(|[_, count]| count).sum();
        if experts == 0 {
            return 1.0;
        }
        let parts = returns.iter().map(|[bytes, count]| self.missed(device, *bytes) * *count as f64);
        parts.sum::<f64>() / experts as f64
    }

    /// Seconds of a product of `rows` with matrices of `k` rows and `n` columns whose operands have `width` bytes a
    /// number, without the launch; memory moves `bytes`. Computation runs at `pace` of the device's clock.
    pub fn seconds(
        &self,
        device: &Device,
        rows: Rows<'_>,
        n: u64,
        k: u64,
        width: f64,
        bytes: f64,
        pace: f64,
    ) -> f64 {
        let time = self.fastest(device, rows, None, self.only, n, k, width, pace);
        self.beside(time, bytes / (device.bandwidth * self.memory))
    }

    /// Computation beside memory.
    fn beside(&self, time: f64, memory: f64) -> f64 {
        let (longer, shorter) = if time > memory { (time, memory) } else { (memory, time) };
        longer + self.serial * shorter
    }

    /// Seconds of computation of `rows` by the tile and the cut that are fastest for `timed`, which is `rows` if absent.
    fn fastest(
        &self,
        device: &Device,
        rows: Rows<'_>,
        timed: Option<Rows<'_>>,
        only: Option<[u64; 2]>,
        n: u64,
        k: u64,
        width: f64,
        pace: f64,
    ) -> f64 {
        let one = device.peak * self.share / device.sms as f64;
        // Parts in 32 bits, written and read.
        let sums = 8.0 * rows.total() as f64 * n as f64;
        let (mut best, mut found) = (f64::INFINITY, f64::INFINITY);
        let sizes = only.as_ref().map_or(&TILES[..], std::slice::from_ref);
        // Experts are many and sizes of one height stand together: their rows are counted once for all.
        let (mut counted, mut timed_rows) = ((0, 0), 0);
        for &[height, columns] in sizes {
            if only.is_none() && (height < self.least[0] || columns < self.least[1]) {
                continue;
            }
            if counted.0 != height {
                counted = (height, rows.tiles(height));
                timed_rows = timed.map_or(0, |timed| timed.tiles(height));
            }
            let across = n.div_ceil(columns);
            let whole = counted.1 * across;
            let (area, edge) = ((height * columns) as f64, (height + columns) as f64);
            let (arithmetic, load) = (2.0 * area / one, edge * width / self.feed);
            let step = if arithmetic > load { arithmetic } else { load };
            let ends = self.fill + 2.0 * area / self.store;
            for parts in CUTS {
                if parts > 1 && (self.cut.is_none() || whole >= CUT_WAVES * device.sms) {
                    break;
                }
                let inner = (k.div_ceil(parts).div_ceil(STEP) * STEP) as f64;
                let of = |tiles: u64| {
                    let mut time = self.waves(device, tiles * parts) * (inner * step + ends) / pace;
                    if let (Some(cut), true) = (&self.cut, parts > 1) {
                        time += cut.time + parts as f64 * sums * cut.traffic / device.bandwidth;
                    }
                    time
                };
                let time = of(whole);
                let asked = if timed.is_some() { of(timed_rows * across) } else { time };
                if asked < best {
                    (best, found) = (asked, time);
                }
            }
        }
        found
    }

    /// Waves of `tiles`, with the counted part of the last one's idle multiprocessors.
    fn waves(&self, device: &Device, tiles: u64) -> f64 {
        let even = tiles as f64 / device.sms as f64;
        let even = if even > 1.0 { even } else { 1.0 };
        even + self.tail * (tiles.div_ceil(device.sms) as f64 - even)
    }

    /// The part of the time of memory that is left to a benchmark that touches `repeated` bytes before it comes to the
    /// same operands again, and finds some of them in the cache; all of it if it never does (0).
    pub fn missed(&self, device: &Device, repeated: u64) -> f64 {
        missed(device, repeated as f64, self.resident, self.cached)
    }

    /// Sets the constant called `name`, in seconds, bytes per second or shares.
    ///
    /// # Errors
    /// The names there are.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), String> {
        match name {
            "share" => self.share = value.min(1.0),
            "feed" => self.feed = value,
            "store" => self.store = value,
            "fill" => self.fill = value,
            "tail" => self.tail = value.min(1.0),
            "memory" => self.memory = value.min(1.0),
            "serial" => self.serial = value.min(1.0),
            "launch" => self.launch = value,
            "cached" => self.cached = value.max(1.0),
            "resident" => self.resident = value.min(1.0),
            "convert.time" => self.convert.get_or_insert(Convert::NONE).time = value,
            "convert.memory" => self.convert.get_or_insert(Convert::NONE).memory = value.min(1.0),
            "convert.row" => self.convert.get_or_insert(Convert::NONE).row = value,
            "routing.copies" => self.routing.get_or_insert(Routing::NONE).copies = value,
            "routing.tokens" => self.routing.get_or_insert(Routing::NONE).tokens = value,
            "routing.choice" => self.routing.get_or_insert(Routing::NONE).choice = value,
            "routing.expert" => self.routing.get_or_insert(Routing::NONE).expert = value,
            "routing.select" => self.routing.get_or_insert(Routing::NONE).select = value,
            "least.rows" => self.least[0] = value as u64,
            "least.columns" => self.least[1] = value as u64,
            "only.rows" => self.only.get_or_insert([0, 0])[0] = value as u64,
            "only.columns" => self.only.get_or_insert([0, 0])[1] = value as u64,
            "few.rows" => self.few.get_or_insert([0, 0])[0] = value as u64,
            "few.columns" => self.few.get_or_insert([0, 0])[1] = value as u64,
            "timed" => self.timed = value > 0.0,
            "cut.time" => self.cut.get_or_insert(Cut { time: 0.0, traffic: 0.0 }).time = value,
            "cut.traffic" => self.cut.get_or_insert(Cut { time: 0.0, traffic: 0.0 }).traffic = value.min(1.0),
            _ => {
                return Err(format!(
                    "no constant `{name}`\n\nhint: there are share, feed, store, fill, tail, memory, serial, launch, cached, \
                     resident, cut.time, cut.traffic, convert.time, convert.memory, convert.row, routing.copies, routing.tokens, \
                     routing.choice, routing.expert, routing.select, least.rows, least.columns, only.rows, only.columns, few.rows, \
                     few.columns, timed"
                ));
            }
        }
        Ok(())
    }
}
