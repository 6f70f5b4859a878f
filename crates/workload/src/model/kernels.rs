//! Time of a kernel from its shape.
//!
//! Products and attention take what their tiles and waves take ([`super::tiles`], [`super::flash`]) where the GPU's sheet
//! has constants for the format. Elsewhere, and for kernels bound by memory, a roofline holds (Williams et al. 2009): launch +
//! max(flops / (peak · share(size)), bytes / (bandwidth · share)), with a curve of shares over the *harmonic size* of a
//! product 1/(1/m + 1/n + 1/k), its arithmetic intensity in operations per element moved, and curves over the sequence
//! length for attention. A measured [`KernelProfile`] overrides what it holds, shape by shape. Nothing here is random, and a
//! result is a function of the sheet and the shape alone.

use windtunnel_kernel::Span;
use windtunnel_kernel::math::gcd;

use super::curve::Curve;
use super::dtype::Dtype;
use super::flash::Flash;
use super::profile::KernelProfile;
use super::sheets::{Fitted, GpuSheet, Kernels};
use super::tiles::{Device, Rows, Tiles};

/// `batch` products of an m×k by a k×n matrix in one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gemm {
    /// Rows of the left factor.
    pub m: u64,
    /// Columns of the right factor.
    pub n: u64,
    /// Inner dimension.
    pub k: u64,
    /// Products of this shape (grouped GEMM of experts); 1 usually.
    pub batch: u64,
}

impl Gemm {
    /// One product.
    pub const fn new(m: u64, n: u64, k: u64) -> Self {
        Self { m, n, k, batch: 1 }
    }

    /// Multiplications and additions.
    pub const fn flops(&self) -> u64 {
        2 * self.m * self.n * self.k * self.batch
    }

    /// 1/(1/m + 1/n + 1/k) of one product.
    pub fn harmonic_size(&self) -> f64 {
        1.0 / (1.0 / self.m as f64 + 1.0 / self.n as f64 + 1.0 / self.k as f64)
    }
}

/// Attention of one kernel on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: u64,
    /// Query heads on this rank.
    pub heads: u64,
    /// Key and value heads on this rank.
    pub kv_heads: u64,
    /// Query positions of a sequence on this rank.
    pub queries: u64,
    /// Key positions a query may see.
    pub keys: u64,
    /// Features of a query head.
    pub query_dim: u64,
    /// Features of a value head.
    pub value_dim: u64,
    /// Whether half of the score matrix is masked and skipped.
    pub causal: bool,
    /// Keys before a query that it sees, its own included; 0: all.
    pub window: u64,
}

impl AttentionShape {
    /// Multiplications and additions of the two forward products over the pairs that are seen.
    pub fn flops(&self) -> u64 {
        let a_pair = 2 * self.batch * self.heads * (self.query_dim + self.value_dim);
        (a_pair as f64 * self.queries as f64 * keys_seen(self.keys, self.window, self.causal)) as u64
    }

    /// The sequence without a window in which a causal query sees as many keys: efficiency curves are measured on such.
    fn like(&self) -> f64 {
        if self.window == 0 { self.keys as f64 } else { self.keys.min(2 * self.window) as f64 }
    }

    /// Bytes of queries, keys, values and outputs, once each, at two bytes a number.
    const fn bytes(&self) -> u64 {
        let per_query = self.heads * (self.query_dim + self.value_dim);
        let per_key = self.kv_heads * (self.query_dim + self.value_dim);
        2 * self.batch * (self.queries * per_query + self.keys * per_key)
    }
}

/// Keys that a query sees in the mean: of `keys` all, half where a causal mask skips the others, or those of a window before
/// it (0: none), which the first queries do not fill.
pub(super) fn keys_seen(keys: u64, window: u64, causal: bool) -> f64 {
    let (all, seen) = (keys as f64, if window == 0 { keys } else { keys.min(window) } as f64);
    if causal && keys > 0 { seen - seen * seen / (2.0 * all) } else { seen }
}

/// Kernels bound by memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streaming {
    /// Layer or root-mean-square norm.
    Norm,
    /// GELU or SwiGLU.
    Activation,
    /// Residual addition with its bias and dropout.
    Residual,
    /// Rotary embedding and per-head norms.
    Rotary,
    /// Masked softmax with dropout over a stored score matrix.
    Softmax,
    /// Table lookup or its gradient.
    Embedding,
    /// Softmax and loss over the vocabulary, in one kernel.
    CrossEntropy,
    /// One of the operations that make up a loss that is not one kernel.
    CrossEntropyPart,
    /// Top-k choice of experts.
    Routing,
    /// Tokens put in expert order or back, padded or unpadded.
    Permute,
    /// Biases of single experts and the limits of their gates, where they are kernels of their own.
    ExpertBias,
    /// Conversion to a narrower format.
    Cast,
    /// Addition of a micro-batch's gradients to those of the ones before, in a kernel of its own.
    GradientAdd,
    /// Optimiser step.
    Optimiser,
}

impl Streaming {
    /// Bytes that separate kernels move for those of a fused one, as PyTorch computes it without a compiler: each
    /// operation reads its operands and writes its result. A root-mean-square norm (`rms`; a layer norm is one kernel)
    /// converts to 32 bits, squares, averages, scales twice and converts back (40 bytes a number for 4); a rotary embedding
    /// converts, multiplies complex numbers and converts back (20 for 4); a gate is two kernels (10 for 6), and so are a
    /// bias and its activation (8 for 4); a masked softmax with dropout scales, masks, converts to 32 bits, normalises,
    /// converts back and drops out (33 for 9); the loss converts the logits first (20 for 12); a bias, dropout and addition
    /// are three (15 for 7).
    pub const fn separate(self, rms: bool) -> f64 {
        match self {
            Self::Norm if rms => 10.0,
            Self::Rotary => 5.0,
            Self::Activation if !rms => 2.0,
            Self::Activation | Self::CrossEntropy => 5.0 / 3.0,
            Self::Softmax => 33.0 / 9.0,
            Self::Residual if !rms => 15.0 / 7.0,
            _ => 1.0,
        }
    }

    /// Name in profiles.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Norm => "norm",
            Self::Activation => "activation",
            Self::Residual => "residual",
            Self::Rotary => "rotary",
            Self::Softmax => "softmax",
            Self::Embedding => "embedding",
            Self::CrossEntropy => "cross_entropy",
            Self::CrossEntropyPart => "cross_entropy_part",
            Self::Routing => "routing",
            Self::Permute => "permute",
            Self::ExpertBias => "expert_bias",
            Self::Cast => "cast",
            Self::GradientAdd => "gradient_add",
            Self::Optimiser => "optimiser",
        }
    }
}

/// Bytes that a kernel loads or stores at once.
const VECTOR: u64 = 16;

/// By how much longer a product takes for each halving of what it can load at once: rows of an odd number of 16-bit features begin
/// at any even byte, three halvings from 16. On A100, vTrain's logits over 50,257 words take 2.4 times those over 51,200 with one
/// tensor-parallel rank, and as long with two, where each has 25,128.
const UNALIGNED: f64 = 0.47;

/// Features of a head for which curves of attention are stated.
const MEASURED_HEAD: u64 = 128;

/// Why a GPU cannot run a kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The device has no rate for the format.
    #[error("`{gpu}` has no rate for `{dtype}`\n\nhint: it has {known}")]
    NoRate {
        /// The GPU.
        gpu: String,
        /// The format asked for.
        dtype: &'static str,
        /// The formats it has.
        known: String,
    },
}

/// Kernel times of one GPU.
#[derive(Clone, Debug)]
pub struct KernelModel {
    rates: [Option<f64>; Dtype::ALL.len()],
    gemm: Curve,
    gemm_fp8: Option<Curve>,
    gemm_fp4: Option<Curve>,
    /// Whether element-wise operations are kernels of their own; with root-mean-square norms: `Some(true)`.
    separate: Option<bool>,
    attention_scale: f64,
    attention: [Curve; 2],
    bandwidth: f64,
    launch: f64,
    activations: Dtype,
    attention_rate: f64,
    /// Constants of tiles by format, for plain products and for those of experts.
    tiles: [[Option<(Device, Tiles)>; Dtype::ALL.len()]; 2],
    flash: Option<(Device, Flash)>,
    /// What an inference library's attention reaches, by which heads of other than 128 features are known to differ.
    heads: Option<(Device, Flash)>,
    /// Of the clock at which computation runs.
    pace: f64,
    /// The same of products in 4 bits, over [`Self::pace`].
    pace_fp4: f64,
    profile: KernelProfile,
}

/// The constants of tiles for `dtype`; formats of one width share theirs.
fn tiles_of(kernels: &Kernels, dtype: Dtype, grouped: bool) -> Option<&Tiles> {
    let kinds = if grouped { &kernels.experts } else { &kernels.gemm };
    let found = match dtype {
        Dtype::Bf16 | Dtype::Fp16 => &kinds.bf16,
        Dtype::Fp8 => &kinds.fp8,
        Dtype::Fp4 => &kinds.fp4,
        Dtype::Fp32 | Dtype::Tf32 => &None,
    };
    found.as_ref().map(|found| &found.value)
}

impl KernelModel {
    /// The kernels of `sheet` for a job that multiplies in `compute` and attends in `activations`.
    ///
    /// # Errors
    /// [`KernelError::NoRate`] when the sheet has no rate for one of them.
    pub fn new(
        sheet: &GpuSheet,
        compute: Dtype,
        activations: Dtype,
        profile: KernelProfile,
    ) -> Result<Self, KernelError> {
        let rate = |dtype: Dtype| {
            sheet.peak.of(dtype).map(|figure| figure.value.0).ok_or_else(|| KernelError::NoRate {
                gpu: sheet.name.clone(),
                dtype: dtype.name(),
                known: Dtype::ALL
                    .into_iter()
                    .filter(|&dtype| sheet.peak.of(dtype).is_some())
                    .map(|dtype| format!("`{}`", dtype.name()))
                    .collect::<Vec<_>>()
                    .join(", "),
            })
        };
        rate(compute)?;
        let bandwidth = sheet.memory_bandwidth.value.bytes_per_second();
        let tiles = [false, true].map(|grouped| {
            Dtype::ALL.map(|dtype| {
                let kernels = sheet.kernels.as_ref()?;
                let peak = sheet.peak.of(dtype)?.value.0;
                Some((kernels.device(peak, bandwidth), tiles_of(kernels, dtype, grouped)?.clone()))
            })
        });
        let attention_rate = rate(activations)?;
        let narrow = |found: fn(&Kernels) -> Option<&Fitted<Flash>>| {
            let kernels = sheet.kernels.as_ref().filter(|_| activations.bits() == 16)?;
            Some((kernels.device(attention_rate, bandwidth), found(kernels)?.value.clone()))
        };
        let flash = narrow(|kernels| kernels.flash.as_ref());
        let heads = narrow(|kernels| kernels.attention.bf16.as_ref());
        Ok(Self {
            tiles,
            flash,
            heads,
            pace: 1.0,
            pace_fp4: 1.0,
            rates: Dtype::ALL.map(|dtype| sheet.peak.of(dtype).map(|figure| figure.value.0)),
            gemm: sheet.efficiency.gemm.value.clone(),
            gemm_fp8: sheet.efficiency.gemm_fp8.as_ref().map(|figure| figure.value.clone()),
            gemm_fp4: sheet.efficiency.gemm_fp4.as_ref().map(|figure| figure.value.clone()),
            separate: None,
            attention_scale: 1.0,
            attention: [
                sheet.efficiency.attention_forward.value.clone(),
                sheet.efficiency.attention_backward.value.clone(),
            ],
            bandwidth: sheet.memory_bandwidth.value.bytes_per_second() * sheet.efficiency.memory.value.0,
            launch: sheet.launch.value.seconds(),
            activations,
            attention_rate,
            profile,
        })
    }

    /// The same with compute rates of `share` of the sheet's, which a limit on power leaves.
    #[must_use]
    pub fn sustained(mut self, share: f64) -> Self {
        self.rates = self.rates.map(|rate| rate.map(|rate| rate * share));
        self.attention_rate *= share;
        self.pace *= share;
        self
    }

    /// The same with products in 4 bits at `share` of what [`Self::sustained`] leaves them.
    #[must_use]
    pub fn products_in_4_bits(mut self, share: f64) -> Self {
        let rate = &mut self.rates[Dtype::Fp4 as usize];
        *rate = rate.map(|rate| rate * share);
        self.pace_fp4 *= share;
        self
    }

    /// The same with an attention kernel that reaches at most `share` of the peak rate, its curves keeping their shape.
    #[must_use]
    pub fn attention_up_to(mut self, share: f64) -> Self {
        let most = match &self.flash {
            Some((device, flash)) => flash.reached(device, MEASURED_HEAD),
            None => self.attention[0].points().map(|(_, share)| share).fold(0.0, f64::max),
        };
        self.attention_scale = if most > share { share / most } else { 1.0 };
        self
    }

    /// The same with an attention kernel that reaches `share` of what it would.
    #[must_use]
    pub fn attention_at(mut self, share: f64) -> Self {
        self.attention_scale *= share;
        self
    }

    /// The same with element-wise operations as kernels of their own ([`Streaming::separate`]).
    #[must_use]
    pub const fn separately(mut self, rms: bool) -> Self {
        self.separate = Some(rms);
        self
    }

    /// Seconds of the roofline, launch included.
    fn roofline(&self, compute: f64, bytes: u64) -> Span {
        let memory = bytes as f64 / self.bandwidth;
        Span::from_seconds_ceil(self.launch + if compute > memory { compute } else { memory })
    }

    /// A GEMM with factors in `dtype` and a result in `output`. Nothing to multiply takes no time.
    pub fn gemm(&self, gemm: Gemm, dtype: Dtype, output: Dtype) -> Span {
        let flops = gemm.flops();
        if flops == 0 {
            return Span::ZERO;
        }
        if let Some(time) = self.profile.find("gemm", gemm.m, gemm.n, gemm.k, dtype) {
            return time * gemm.batch;
        }
        if let Some(time) = self.tiled(gemm, dtype, output, false) {
            return time;
        }
        // `new` refused a format without a rate; formats beside the job's two fall back to the activations'.
        let rate = self.rates[dtype as usize].unwrap_or(self.attention_rate);
        let curve = match (&self.gemm_fp8, dtype) {
            (Some(curve), Dtype::Fp8) => curve,
            (_, Dtype::Fp4) => self.gemm_fp4.as_ref().or(self.gemm_fp8.as_ref()).unwrap_or(&self.gemm),
            _ => &self.gemm,
        };
        let bytes = dtype.bytes(gemm.batch * (gemm.m * gemm.k + gemm.k * gemm.n))
            + output.bytes(gemm.batch * gemm.m * gemm.n);
        self.roofline(flops as f64 / (rate * curve.at(gemm.harmonic_size())), bytes)
    }

    /// Time of a product over that of one whose rows begin on 16 bytes, where rows have `features` numbers.
    pub(super) fn unaligned(features: u64, dtype: Dtype) -> f64 {
        let at_once = gcd(dtype.bytes(features), VECTOR);
        1.0 + UNALIGNED * f64::from((VECTOR / at_once).ilog2())
    }

    /// Products of routed experts in one kernel, all with the same number of rows.
    pub fn gemm_of_experts(&self, gemm: Gemm, dtype: Dtype, output: Dtype) -> Span {
        let measured = self.profile.find("gemm", gemm.m, gemm.n, gemm.k, dtype).is_some();
        match self.tiled(gemm, dtype, output, true) {
            Some(time) if !measured && gemm.flops() > 0 => time,
            _ => self.gemm(gemm, dtype, output),
        }
    }

    /// A product by tiles and waves, where the sheet has constants for it.
    fn tiled(&self, gemm: Gemm, dtype: Dtype, output: Dtype, experts: bool) -> Option<Span> {
        let (device, tiles) = self.tiles[usize::from(experts)][dtype as usize].as_ref()?;
        let width = dtype.bits() as f64 / 8.0;
        let bytes = dtype.bytes(gemm.batch * (gemm.m * gemm.k + gemm.k * gemm.n))
            + output.bytes(gemm.batch * gemm.m * gemm.n);
        let rows = Rows::Equal(gemm.batch, gemm.m);
        let pace = self.pace * if dtype == Dtype::Fp4 { self.pace_fp4 } else { 1.0 };
        let seconds = tiles.seconds(device, rows, gemm.n, gemm.k, width, bytes as f64, pace);
        // What an inference library launches beside a mixture's products is priced apart.
        let launch = if experts { self.launch } else { tiles.launch };
        Some(Span::from_seconds_ceil(launch + seconds))
    }

    /// What the start and end of a kernel cost the GPU.
    pub fn launch(&self) -> Span {
        Span::from_seconds_ceil(self.launch)
    }

    /// Flash attention, forward.
    pub fn attention_forward(&self, shape: &AttentionShape) -> Span {
        self.flash(shape, "attention_forward", 0, 1.0, shape.bytes())
    }

    /// Flash attention, backward: five products for the forward's two (Dao 2023, arXiv:2307.08691 §4), and twice the
    /// bytes, since each tensor comes with its gradient.
    pub fn attention_backward(&self, shape: &AttentionShape) -> Span {
        self.flash(shape, "attention_backward", 1, 2.5, 2 * shape.bytes())
    }

    fn flash(&self, shape: &AttentionShape, name: &str, pass: usize, products: f64, bytes: u64) -> Span {
        let width = shape.heads * shape.query_dim;
        // A measured kernel is one that sees all keys.
        let found = self.profile.find(name, shape.batch * shape.queries, shape.keys, width, self.activations);
        if let Some(time) = found.filter(|_| shape.window == 0) {
            return time;
        }
        if let Some((device, flash)) = &self.flash {
            // Backward reaches less of the peak, by the ratio of the curves.
            let ratio = self.attention[pass].at(shape.like()) / self.attention[0].at(shape.like());
            let pace = self.pace * self.attention_scale * ratio / products;
            let memory = bytes as f64 / self.bandwidth;
            let seconds = flash.seconds(device, shape, 2.0, 2.0, pace, 1.0);
            return Span::from_seconds_ceil(self.launch + if seconds > memory { seconds } else { memory });
        }
        let features = shape.query_dim.midpoint(shape.value_dim);
        let heads = self.heads.as_ref().map_or(1.0, |(device, flash)| {
            flash.reached(device, features) / flash.reached(device, MEASURED_HEAD)
        });
        let share = self.attention[pass].at(shape.like()) * self.attention_scale * heads;
        self.roofline(products * shape.flops() as f64 / (self.attention_rate * share), bytes)
    }

    /// Measured time of a whole part of a model ([`super::profile`]).
    pub fn whole(&self, name: &str, m: u64, n: u64, k: u64) -> Option<Span> {
        self.profile.find(name, m, n, k, self.activations)
    }

    /// What `bytes` more in a kernel that has launched take in memory.
    pub fn moved(&self, bytes: u64) -> Span {
        Span::from_seconds_ceil(bytes as f64 / self.bandwidth)
    }

    /// A kernel bound by memory, over `rows` of `features`, that moves `bytes`.
    pub fn streaming(&self, kind: Streaming, rows: u64, features: u64, bytes: u64) -> Span {
        if bytes == 0 {
            return Span::ZERO;
        }
        match self.profile.find(kind.name(), rows, features, 0, self.activations) {
            Some(time) => time,
            None => {
                let factor = self.separate.map_or(1.0, |rms| kind.separate(rms));
                self.roofline(0.0, (bytes as f64 * factor) as u64)
            }
        }
    }
}
