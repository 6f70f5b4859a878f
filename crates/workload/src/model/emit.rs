//! Writes the pieces of a pass: kernels become computations, adjacent computations merge, collectives of one rank vanish.

use windtunnel_kernel::{Bytes, Span};

use super::dtype::Dtype;
use super::kernels::{AttentionShape, Gemm, KernelModel, Streaming};
use super::training::{Graphs, Training};
use crate::collectives::CollectiveKind;
use crate::collectives::dispatcher::Routing;
use crate::generate::{Overlap, Piece};
use crate::program::Dimension;

/// What a product of routed experts is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Product {
    /// A result, or the gradient of a factor that has tokens.
    Forward,
    /// As `Forward`, and summed over the tensor-parallel ranks of the expert.
    Summed,
    /// The gradient of weights, from factors that were converted with those of the other two.
    Weight,
}

/// Streams on which products of single experts run beside each other (Transformer Engine, `num_cublas_streams`).
const EXPERT_STREAMS: u64 = 4;

/// Kernels that convert one expert's tokens: largest value, scale and conversion, or, with scales by blocks, conversion
/// and the order of both scales for the product (Transformer Engine, `quantize` and `swizzle_scaling_factors`).
const CONVERSIONS: u64 = 3;

/// Kernels that a micro-batch launches before its embedding (tokens and labels cut out and copied, masks and positions), and as many
/// after its logits (the loss masked, summed, averaged over replicas and scaled): github.com/NVIDIA/Megatron-LM v2.5,
/// `pretrain_gpt.py` and `megatron/utils.py`, counted. Their tensors are small.
const BESIDE_THE_MODEL: u64 = 10;

/// The list being written.
pub(super) struct Emit<'a> {
    training: &'a Training,
    kernels: &'a KernelModel,
    pub(super) list: Vec<Piece>,
    pub(super) flops: u64,
    pub(super) recomputed: u64,
    next_async: u32,
    /// Kernels written since [`Self::launched`] was last called, and where in the list these begin.
    kernels_written: u64,
    /// Ranks of the tensor-parallel collectives among them, whose hosts come late.
    waited_for: u64,
    first_of_unit: usize,
    /// Whether the host launches these kernels only when the GPU has come to them.
    waits: bool,
    /// Whether what is written now is of routed experts.
    experts: bool,
    /// By how much longer products take now than aligned ones ([`Self::of_width`]).
    unaligned: f64,
    /// Whether the factors of products lie there in the products' format already.
    converted: bool,
    /// The next computation stands apart from the one before: that belongs to a split with the collective before it, or
    /// the host waits between the two.
    sealed: bool,
}

impl<'a> Emit<'a> {
    pub(super) fn new(training: &'a Training, kernels: &'a KernelModel) -> Self {
        Self {
            training,
            kernels,
            list: Vec::new(),
            flops: 0,
            recomputed: 0,
            next_async: 0,
            kernels_written: 0,
            waited_for: 0,
            first_of_unit: 0,
            waits: false,
            experts: false,
            unaligned: 1.0,
            converted: false,
            sealed: false,
        }
    }

    /// Writes what `f` writes and books its FLOPs as recomputed.
    pub(super) fn recompute(&mut self, f: impl FnOnce(&mut Self)) {
        let before = self.flops;
        f(self);
        self.recomputed += self.flops - before;
    }

    /// Writes the products that `f` writes as those of a matrix with rows of `features` numbers.
    pub(super) fn of_width(&mut self, features: u64, f: impl FnOnce(&mut Self)) {
        self.unaligned = KernelModel::unaligned(features, self.training.precision.activations);
        f(self);
        self.unaligned = 1.0;
    }

    /// Writes the products that `f` writes as those of factors that need no conversion.
    pub(super) fn of_converted(&mut self, converted: bool, f: impl FnOnce(&mut Self)) {
        self.converted = converted;
        f(self);
        self.converted = false;
    }

    /// Counts small kernels around the model, which take the host time and the GPU next to none.
    pub(super) fn beside_the_model(&mut self) {
        self.launch(BESIDE_THE_MODEL);
    }

    /// Counts `kernels` that the host launches, unless a graph holds them.
    fn launch(&mut self, kernels: u64) {
        if !self.held() {
            self.kernels_written += kernels;
        }
    }

    /// Whether a graph holds what is written now.
    const fn held(&self) -> bool {
        match self.training.graphs {
            Graphs::None => false,
            Graphs::Layers => !self.experts,
            Graphs::All => true,
        }
    }

    /// From here on kernels are those of routed experts; the host first waits for the GPU where it has to know their
    /// tokens.
    pub(super) fn enter_experts(&mut self, counted: bool) {
        self.experts = true;
        if counted && self.training.counts_tokens() {
            self.launched();
            self.waits = true;
            self.sealed = true;
        }
    }

    /// From here on kernels are no longer those of routed experts.
    pub(super) fn leave_experts(&mut self) {
        self.experts = false;
    }

    /// A GEMM of the local experts: one kernel, or one for each.
    pub(super) fn gemm_of_experts(&mut self, gemm: Gemm, product: Product) {
        let starts = self.starts_of_single(gemm.batch, product);
        if !self.training.fused_experts {
            self.launch(gemm.batch - 1);
        }
        // The product stands next to the collective that it is split with.
        if product == Product::Summed {
            self.compute("experts", starts);
            self.gemm_before_sum("experts", gemm, self.training.expert_tp);
        } else {
            self.gemm("experts", gemm);
            self.compute("experts", starts);
        }
        if product == Product::Weight {
            self.add_gradients("experts", gemm.m, gemm.n * gemm.batch);
        }
    }

    /// What products of single experts cost the GPU beyond one of all: each has a start and an end, of which those of four
    /// streams overlap, and before it those of the kernels that convert its tokens, on one stream.
    fn starts_of_single(&self, experts: u64, product: Product) -> Span {
        if self.training.fused_experts || experts == 1 {
            return Span::ZERO;
        }
        let mut starts = (experts - 1).div_ceil(EXPERT_STREAMS);
        if self.training.casts() && product != Product::Weight {
            // That of one kernel is in the conversion's own time.
            starts += CONVERSIONS * experts - 1;
        }
        self.kernels.launch() * starts
    }

    fn calc(&mut self, label: &'static str, time: Span) {
        self.launch(u64::from(time > Span::ZERO));
        self.compute(label, time);
    }

    /// Time of the GPU, whoever launches it.
    fn compute(&mut self, label: &'static str, time: Span) {
        if time == Span::ZERO {
            return;
        }
        match self.list.last_mut() {
            Some(Piece::Calc { duration, .. }) if !self.sealed => *duration += time,
            _ => {
                // The collective before is split with this computation: keep it apart from the next.
                let split = matches!(
                    self.list.last(),
                    Some(Piece::Collective { overlap: Overlap::WithNext { .. }, .. })
                );
                self.list.push(Piece::Calc { duration: time, label });
                self.sealed = split;
            }
        }
    }

    /// A GEMM of the layers, its factors converted first where the format is narrower.
    pub(super) fn gemm(&mut self, label: &'static str, gemm: Gemm) {
        self.gemm_in(label, gemm, self.training.precision.compute);
    }

    pub(super) fn gemm_in(&mut self, label: &'static str, gemm: Gemm, dtype: Dtype) {
        self.flops += gemm.flops();
        let output = self.training.precision.activations;
        let time = match self.list.last() {
            // Split into chunks along the rows: each is a smaller GEMM.
            Some(Piece::Collective {
                overlap: Overlap::WithNext { chunks }, axis: Dimension::Tp, ..
            }) => self.split(gemm, *chunks, dtype),
            _ if self.experts && gemm.batch > 1 && self.training.fused_experts => {
                self.kernels.gemm_of_experts(gemm, dtype, output)
            }
            _ => self.kernels.gemm(gemm, dtype, output),
        };
        let mut time = if self.unaligned > 1.0 {
            Span::from_seconds_ceil(time.seconds() * self.unaligned)
        } else {
            time
        };
        if self.training.casts() && !self.converted && dtype == self.training.precision.compute {
            let moved = output.bytes(1) + dtype.bytes(1);
            let bytes = moved * gemm.batch * gemm.m * gemm.k;
            time += self.kernels.streaming(Streaming::Cast, gemm.batch * gemm.m, gemm.k, bytes);
        }
        self.calc(label, time);
    }

    /// The product of a weight's gradient, added to that of the micro-batches before ([`Self::add_gradients`]).
    pub(super) fn weight_gradient(&mut self, label: &'static str, gemm: Gemm, dtype: Dtype) {
        self.gemm_in(label, gemm, dtype);
        self.add_gradients(label, gemm.m, gemm.n * gemm.batch);
    }

    /// Adds a micro-batch's gradients of `rows` by `features` weights, which a product has written, to those of the ones before.
    /// Either the product does so, and reads and writes the sums where it would write its result; or a kernel of its own
    /// reads the result and the sums and writes these.
    pub(super) fn add_gradients(&mut self, label: &'static str, rows: u64, features: u64) {
        if !self.training.adds_gradients {
            return;
        }
        let precision = &self.training.precision;
        let (numbers, sums) = (rows * features, 2 * precision.gradients.bytes(rows * features));
        match precision.added_gradients {
            Some(format) => {
                let bytes = format.bytes(numbers) + sums;
                self.stream_bytes(label, Streaming::GradientAdd, rows, features, bytes);
            }
            None => {
                let bytes = sums.saturating_sub(precision.activations.bytes(numbers));
                self.compute(label, self.kernels.moved(bytes));
            }
        }
    }

    /// Adds the gradients of a table of `rows`, which its lookup has written whole: no product does so on its way.
    pub(super) fn add_table_gradients(&mut self, rows: u64, features: u64) {
        if self.training.adds_gradients {
            let precision = &self.training.precision;
            let bytes = 2
                * (precision.activations.bytes(rows * features) + precision.gradients.bytes(rows * features));
            self.stream_bytes("embedding", Streaming::GradientAdd, rows, features, bytes);
        }
    }

    /// `bytes` more that the product before moves.
    pub(super) fn on_its_way(&mut self, label: &'static str, bytes: u64) {
        self.compute(label, self.kernels.moved(bytes));
    }

    /// A GEMM whose result is reduced over tensor-parallel ranks: apart from what stands before it where the reduction
    /// is split with it.
    pub(super) fn gemm_before_sum(&mut self, label: &'static str, gemm: Gemm, ranks: u64) {
        if ranks == 1 || self.training.overlap_chunks == 1 {
            return self.gemm(label, gemm);
        }
        let dtype = self.training.precision.compute;
        self.flops += gemm.flops();
        let time = self.split(gemm, self.training.overlap_chunks, dtype);
        self.launch(u64::from(self.training.overlap_chunks));
        self.list.push(Piece::Calc { duration: time, label });
        self.sealed = true;
    }

    fn split(&self, gemm: Gemm, chunks: u32, dtype: Dtype) -> Span {
        let rows = gemm.m.div_ceil(u64::from(chunks));
        let part = Gemm { m: rows, ..gemm };
        self.kernels.gemm(part, dtype, self.training.precision.activations) * u64::from(chunks)
    }

    pub(super) fn attention_forward(&mut self, shape: &AttentionShape) {
        self.flops += shape.flops();
        self.core(self.kernels.attention_forward(shape));
    }

    pub(super) fn attention_backward(&mut self, shape: &AttentionShape) {
        // The model's backward needs four products for the forward's two; the fifth is flash attention's recomputation.
        self.flops += 5 * shape.flops() / 2;
        self.recomputed += shape.flops() / 2;
        self.core(self.kernels.attention_backward(shape));
    }

    /// Attention stands apart where context parallelism splits it with its exchange.
    fn core(&mut self, time: Span) {
        if self.training.cp > 1 {
            self.launch(self.training.cp);
            self.list.push(Piece::Calc { duration: time, label: "attention" });
            self.sealed = true;
        } else {
            self.calc("attention", time);
        }
    }

    /// A kernel bound by memory that touches `passes` activations of `features` per row.
    pub(super) fn stream(
        &mut self,
        label: &'static str,
        kind: Streaming,
        rows: u64,
        features: u64,
        passes: u64,
    ) {
        let bytes = self.training.precision.activations.bytes(rows * features * passes);
        self.stream_bytes(label, kind, rows, features, bytes);
    }

    pub(super) fn stream_bytes(
        &mut self,
        label: &'static str,
        kind: Streaming,
        rows: u64,
        features: u64,
        bytes: u64,
    ) {
        self.calc(label, self.kernels.streaming(kind, rows, features, bytes));
    }

    /// Writes the measured time of a whole part over `tokens`, if the profile has it.
    pub(super) fn whole(&mut self, label: &'static str, name: &str, tokens: u64) -> bool {
        let (hidden, tp) = (self.training.architecture.hidden, self.training.tp);
        let found = self.kernels.whole(name, tokens, hidden, tp);
        if let Some(time) = found {
            self.calc(label, time);
        }
        found.is_some()
    }

    pub(super) fn done(&mut self, unit: u32) {
        self.launched();
        self.list.push(Piece::UnitDone(unit));
        self.first_of_unit = self.list.len();
        self.sealed = false;
    }

    /// Puts what the host spends on the kernels written since the last call before them.
    pub(super) fn launched(&mut self) {
        let kernels = std::mem::take(&mut self.kernels_written);
        let first = std::mem::replace(&mut self.first_of_unit, self.list.len());
        let waits = std::mem::take(&mut self.waits);
        let late = self.training.straggle * std::mem::take(&mut self.waited_for);
        let span = self.training.dispatch * kernels + late;
        if span > Span::ZERO {
            self.list.insert(first, Piece::Launch { span, waits });
            self.first_of_unit += 1;
            self.sealed = false;
        }
    }

    pub(super) fn collective(
        &mut self,
        axis: Dimension,
        kind: CollectiveKind,
        bytes: u64,
        label: &'static str,
        overlap: Overlap,
    ) {
        self.routed(axis, kind, bytes, None, label, overlap);
    }

    /// A collective that may carry tokens to experts, as `routing` says.
    pub(super) fn routed(
        &mut self,
        axis: Dimension,
        kind: CollectiveKind,
        bytes: u64,
        routing: Option<Routing>,
        label: &'static str,
        overlap: Overlap,
    ) {
        let ranks = match axis {
            Dimension::Tp => self.training.tp,
            Dimension::Cp => self.training.cp,
            Dimension::Ep => self.training.ep,
            Dimension::Pp | Dimension::Dp | Dimension::Other => 2,
        };
        if ranks > 1 {
            self.launch(1);
            if axis == Dimension::Tp && !self.held() {
                self.waited_for += ranks;
            }
            self.list.push(Piece::Collective {
                axis,
                kind,
                bytes: Bytes::new(bytes),
                routing,
                label,
                overlap,
            });
            self.sealed = false;
        }
    }

    /// How an all-gather stands to the GEMM that follows it.
    pub(super) fn before(&self) -> Overlap {
        match self.training.overlap_chunks {
            1 => Overlap::None,
            chunks => Overlap::WithNext { chunks },
        }
    }

    /// How a reduction stands to the GEMM before it.
    pub(super) fn after(&self) -> Overlap {
        match self.training.overlap_chunks {
            1 => Overlap::None,
            chunks => Overlap::WithPrevious { chunks },
        }
    }

    /// All-gather of `numbers` activations over the sequence, where it is split, for products in `dtype`.
    pub(super) fn gather_over_tp(
        &mut self,
        label: &'static str,
        numbers: u64,
        dtype: Dtype,
        overlap: Overlap,
    ) {
        if self.training.sequence_parallel {
            let precision = &self.training.precision;
            let narrow = self.training.narrow_gathers && dtype.bits() < precision.activations.bits();
            let bytes =
                if narrow { dtype.scaled_bytes(numbers) } else { precision.activations.bytes(numbers) };
            self.collective(Dimension::Tp, CollectiveKind::AllGather, bytes, label, overlap);
        }
    }

    /// Sum of partial results over the tensor-parallel ranks: scattered along the sequence where it is split.
    pub(super) fn sum_over_tp(&mut self, label: &'static str, numbers: u64, overlap: Overlap) {
        let bytes = self.training.precision.activations.bytes(numbers);
        let kind = if self.training.sequence_parallel {
            CollectiveKind::ReduceScatter
        } else {
            CollectiveKind::AllReduce
        };
        self.collective(Dimension::Tp, kind, bytes, label, overlap);
    }

    /// As [`Self::gather_over_tp`], beside what follows until [`Self::wait`].
    pub(super) fn gather_over_tp_beside(
        &mut self,
        label: &'static str,
        numbers: u64,
        dtype: Dtype,
        beside: bool,
    ) -> Option<u32> {
        let id = beside.then(|| self.fresh());
        self.gather_over_tp(label, numbers, dtype, id.map_or(Overlap::None, Overlap::Async));
        id
    }

    /// As [`Self::sum_over_tp`], beside what follows until [`Self::wait`].
    pub(super) fn sum_over_tp_beside(
        &mut self,
        label: &'static str,
        numbers: u64,
        beside: bool,
    ) -> Option<u32> {
        let id = beside.then(|| self.fresh());
        self.sum_over_tp(label, numbers, id.map_or(Overlap::None, Overlap::Async));
        id
    }

    /// Makes a whole activation of the slices that the neighbouring stage sent.
    pub(super) fn gather_slices(&mut self) {
        if self.training.slices_between_stages() {
            let numbers = self.training.tokens() * self.training.architecture.hidden;
            let bytes = self.training.precision.activations.bytes(numbers);
            self.collective(
                Dimension::Tp,
                CollectiveKind::AllGather,
                bytes,
                "stage all-gather",
                Overlap::None,
            );
        }
    }

    /// A name for what runs beside what follows until [`Self::wait`].
    pub(super) fn fresh(&mut self) -> u32 {
        self.next_async += 1;
        self.next_async - 1
    }

    pub(super) fn wait(&mut self, id: Option<u32>) {
        if let Some(id) = id {
            self.list.push(Piece::Wait(id));
            self.sealed = false;
        }
    }
}
