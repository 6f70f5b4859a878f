//! The mixture of experts of a sparse layer: routing, exchange, grouped GEMMs, and the shared experts.
//!
//! Each rank routes its own tokens of the residual stream. A token is sent once per chosen expert ([`CollectiveKind`]
//! counts a rank's whole buffer), gathered over the tensor-parallel ranks of the expert where there are several, and
//! comes back the same way (Lepikhin et al. 2020, arXiv:2006.16668; Megatron-Core's all-to-all dispatcher). With a
//! [`super::training::Dispatcher`] (DeepEP, HybridEP) it is sent once to a scale-up domain and once to a GPU instead. Under a
//! capacity factor every expert's buffer is padded to it; without one the busiest rank receives and computes `imbalance`
//! times the mean and every rank is given its time. Shared experts may be computed while tokens are on their way
//! (`moe_shared_expert_overlap`).
//!
//! Where the host launches kernels one by one ([`Training::dispatch`]) it waits, in every sparse layer forward, for the GPU
//! to have counted the tokens of each expert; products that are not fused it launches one for each local expert. Both
//! follow Megatron-Core's dispatcher and Transformer Engine's grouped linear layer (github.com/NVIDIA/Megatron-LM core_v0.15.0,
//! core/transformer/moe/token_dispatcher.py and experts.py), and so does what such experts cost the GPU besides:
//!
//! - factors in a narrow format are converted expert by expert ([`Emit::gemm_of_experts`]);
//! - their tokens are copied to a padded buffer before the products and out of it after them (`Fp8Padding`), unless the
//!   dispatcher pads;
//! - the gate between the products is a kernel of its own, as is the conversion of each factor, unless the whole of it is one fused
//!   MLP (github.com/NVIDIA/TransformerEngine, pytorch/ops/fused/forward_grouped_mlp.py and backward_grouped_mlp.py);
//! - biases of the second product are multiplied with the tokens' probabilities, added, and the experts' parts joined
//!   (`_apply_bias`), and limits of gates are applied to copies of both halves (`weighted_bias_quick_geglu_impl`).

use super::architecture::Experts;
use super::chunk::Part;
use super::emit::{Emit, Product};
use super::kernels::{Gemm, Streaming};
use super::training::Training;
use crate::collectives::CollectiveKind;
use crate::collectives::dispatcher::Routing;
use crate::generate::Overlap;
use crate::program::Dimension;

/// Where tokens go: out to experts, or back to be summed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Out,
    Back,
}

impl Training {
    /// Tokens that the routed experts of this rank receive (padded or of the busiest rank), and each of them.
    pub(super) fn expert_tokens(&self, experts: &Experts) -> (u64, u64) {
        let local = experts.routed / self.ep;
        let mean = self.residual_tokens() * experts.top_k * self.expert_tp;
        let factor = self.capacity_factor.unwrap_or(self.imbalance);
        let each = (mean as f64 * factor / local as f64).ceil() as u64;
        (each * local, each)
    }

    /// Numbers a rank sends to experts: one copy of each token per expert, padded under a capacity factor, else those of the
    /// busiest rank.
    fn dispatched(&self, experts: &Experts) -> u64 {
        let copies = self.residual_tokens() * experts.top_k;
        let factor = self.capacity_factor.unwrap_or(self.imbalance);
        (copies as f64 * factor).ceil() as u64 * self.architecture.hidden
    }

    /// A sparse layer's second block, forward.
    pub(super) fn sparse_forward(&self, emit: &mut Emit<'_>, experts: &Experts) {
        let hidden = self.architecture.hidden;
        let own = self.residual_tokens();
        let copies = own * experts.top_k;
        emit.stream("router", Streaming::Norm, own, hidden, 2);
        emit.gemm_in("router", Gemm::new(own, experts.routed, hidden), self.precision.activations);
        emit.stream_bytes("router", Streaming::Routing, own, experts.routed, 4 * 3 * own * experts.routed);
        emit.enter_experts(true);
        emit.stream("router", Streaming::Permute, copies, hidden, 2);
        self.permute_by_detour(emit, copies, 1);
        let under_way = self.expert_exchange(emit, experts, "expert dispatch", Way::Out, true);
        if experts.shared_width > 0 {
            emit.leave_experts();
            self.block_forward(emit, &self.feed_forward_block(experts.shared_width, "shared expert"), false);
            emit.enter_experts(false);
        }
        emit.wait(under_way);
        let (tokens, each) = self.expert_tokens(experts);
        let local = experts.routed / self.ep;
        let width = experts.width / self.expert_tp;
        let ups = self.architecture.dense.ups();
        self.gather_expert_tokens(emit, experts);
        self.sort_by_expert(emit, tokens, local);
        self.pad(emit, tokens);
        let whole = self.fused_expert_mlp;
        self.convert_both_ways(emit, tokens, hidden);
        emit.of_converted(whole, |emit| {
            emit.gemm_of_experts(Gemm { m: each, n: ups * width, k: hidden, batch: local }, Product::Forward);
        });
        if whole {
            // Beside its result, which the backward pass needs.
            emit.on_its_way("experts", self.for_products(tokens * width));
        } else {
            self.limit_forward(emit, experts, tokens * width);
            emit.stream("experts", Streaming::Activation, tokens, width, ups + 1);
        }
        emit.of_converted(whole, |emit| {
            emit.gemm_of_experts(Gemm { m: each, n: hidden, k: width, batch: local }, Product::Summed);
        });
        self.bias_forward(emit, experts, tokens * hidden);
        self.pad(emit, tokens);
        self.sort_by_expert(emit, tokens, local);
        self.reduce_expert_tokens(emit, experts);
        self.expert_exchange(emit, experts, "expert combine", Way::Back, false);
        emit.stream("experts", Streaming::Permute, copies, hidden, 2);
        emit.leave_experts();
        emit.stream("experts", Streaming::Residual, own, hidden, 3);
    }

    /// A sparse layer's second block, backward.
    pub(super) fn sparse_backward(&self, emit: &mut Emit<'_>, experts: &Experts, part: Part) {
        let hidden = self.architecture.hidden;
        let own = self.residual_tokens();
        let copies = own * experts.top_k;
        let (tokens, each) = self.expert_tokens(experts);
        let local = experts.routed / self.ep;
        let width = experts.width / self.expert_tp;
        let ups = self.architecture.dense.ups();
        let whole = self.fused_expert_mlp;
        if part.input() {
            emit.stream("experts", Streaming::Residual, own, hidden, 2);
            emit.enter_experts(false);
            emit.stream("experts", Streaming::Permute, copies, hidden, 3);
            self.permute_by_detour(emit, copies, 2);
            let under_way = self.expert_exchange(emit, experts, "expert combine gradient", Way::Out, true);
            if under_way.is_some() {
                self.shared_backward(emit, experts, part);
            }
            emit.wait(under_way);
            self.gather_expert_tokens(emit, experts);
            self.sort_by_expert(emit, tokens, local);
            self.pad(emit, tokens);
            self.bias_backward(emit, experts, tokens * hidden);
            self.convert_both_ways(emit, tokens, hidden);
            emit.of_converted(whole, |emit| {
                emit.gemm_of_experts(Gemm { m: each, n: width, k: hidden, batch: local }, Product::Forward);
            });
            if whole {
                // The first product's result is read, and its gradient written in place of the second factor's.
                let inner = tokens * width;
                let kept = self.precision.activations.bytes(ups * inner);
                let written = self.for_products(ups * inner);
                emit.on_its_way(
                    "experts",
                    (kept + written).saturating_sub(self.precision.activations.bytes(inner)),
                );
            }
        }
        emit.enter_experts(false);
        let trained = part.weight() && self.lora_rank.is_none();
        if trained {
            emit.of_converted(whole, |emit| {
                emit.gemm_of_experts(Gemm { m: width, n: hidden, k: each, batch: local }, Product::Weight);
            });
        }
        if part.input() {
            if !whole {
                emit.stream("experts", Streaming::Activation, tokens, width, 1 + 2 * ups);
                self.limit_backward(emit, experts, tokens * width);
            }
            emit.of_converted(whole, |emit| {
                let gemm = Gemm { m: each, n: hidden, k: ups * width, batch: local };
                emit.gemm_of_experts(gemm, Product::Summed);
            });
            self.pad(emit, tokens);
            self.sort_by_expert(emit, tokens, local);
            self.reduce_expert_tokens(emit, experts);
        }
        if trained {
            emit.of_converted(whole, |emit| {
                let gemm = Gemm { m: hidden, n: ups * width, k: each, batch: local };
                emit.gemm_of_experts(gemm, Product::Weight);
            });
        }
        if part.input() {
            self.expert_exchange(emit, experts, "expert dispatch gradient", Way::Back, false);
        }
        if !(part.input() && self.shares_its_time(experts)) {
            self.shared_backward(emit, experts, part);
        }
        let dtype = self.precision.activations;
        if part.input() {
            emit.stream("router", Streaming::Permute, copies, hidden, 2);
        }
        emit.leave_experts();
        if part.input() {
            emit.stream_bytes(
                "router",
                Streaming::Routing,
                own,
                experts.routed,
                4 * 3 * own * experts.routed,
            );
            emit.gemm_in("router", Gemm::new(own, hidden, experts.routed), dtype);
        }
        if trained {
            emit.weight_gradient("router", Gemm::new(hidden, experts.routed, own), dtype);
        }
        if part.input() {
            emit.stream("router", Streaming::Norm, own, hidden, 3);
        }
    }

    /// What has come from a rank lies in the order of that rank: it is put in the order of the local experts, and back,
    /// unless the dispatcher or the product itself reads it where it lies.
    fn sort_by_expert(&self, emit: &mut Emit<'_>, tokens: u64, local: u64) {
        if !self.fused_experts && local > 1 && self.ep > 1 {
            emit.stream("experts", Streaming::Permute, tokens, self.architecture.hidden, 2);
        }
    }

    /// Tokens copied to a padded buffer of the experts or out of it.
    fn pad(&self, emit: &mut Emit<'_>, tokens: u64) {
        let copied = !self.fused_experts && self.padded_experts && self.capacity_factor.is_none();
        if copied && self.casts() {
            emit.stream("experts", Streaming::Permute, tokens, self.architecture.hidden, 2);
        }
    }

    /// Bytes of `numbers` written for products: in a narrow format twice, as the rows of one and the columns of another.
    fn for_products(&self, numbers: u64) -> u64 {
        if self.casts() {
            2 * self.precision.compute.bytes(numbers)
        } else {
            self.precision.activations.bytes(numbers)
        }
    }

    /// Where experts are one fused kernel, their tokens are converted once for the product and for the weights' gradient.
    fn convert_both_ways(&self, emit: &mut Emit<'_>, tokens: u64, features: u64) {
        if self.fused_expert_mlp && self.casts() {
            let bytes =
                self.precision.activations.bytes(tokens * features) + self.for_products(tokens * features);
            emit.stream_bytes("experts", Streaming::Cast, tokens, features, bytes);
        }
    }

    /// Kernels over `numbers` activations, each of which moves so many bytes a number, where experts are not fused.
    fn by_operations(&self, emit: &mut Emit<'_>, numbers: u64, moved: &[u64]) {
        if !self.fused_experts {
            let hidden = self.architecture.hidden;
            for bytes in moved {
                emit.stream_bytes(
                    "experts",
                    Streaming::ExpertBias,
                    numbers / hidden,
                    hidden,
                    bytes * numbers,
                );
            }
        }
    }

    /// A bias a token: bias times probability written; read with the product, the sum written; the experts' parts joined.
    fn bias_forward(&self, emit: &mut Emit<'_>, experts: &Experts, numbers: u64) {
        if experts.bias {
            self.by_operations(emit, numbers, &[2, 4 + 2, 2 + 2]);
        }
    }

    /// For biases and for probabilities: the gradient times the other factor written, and read to be summed.
    fn bias_backward(&self, emit: &mut Emit<'_>, experts: &Experts, numbers: u64) {
        if experts.bias {
            self.by_operations(emit, numbers, &[2 + 2, 2, 2 + 2, 2]);
        }
    }

    /// Of `numbers` inner features: gate and value limited, both joined again.
    fn limit_forward(&self, emit: &mut Emit<'_>, experts: &Experts, numbers: u64) {
        if experts.limited {
            self.by_operations(emit, numbers, &[2 + 2, 2 + 2, 2 * (2 + 2)]);
        }
    }

    /// The gate has one limit and the value two: a mask of one byte for each, two of them joined, applied to the gradient;
    /// then both halves joined again.
    fn limit_backward(&self, emit: &mut Emit<'_>, experts: &Experts, numbers: u64) {
        if experts.limited {
            let (mask, applied) = (2 + 1, 1 + 2 + 2);
            let moved = [mask, applied, mask, mask, 1 + 1 + 1, applied, 2 * (2 + 2)];
            self.by_operations(emit, numbers, &moved);
        }
    }

    /// What a framework moves besides to put `copies` in the order of the experts, `times` what it does forward.
    fn permute_by_detour(&self, emit: &mut Emit<'_>, copies: u64, times: u64) {
        let numbers = times * copies * self.architecture.hidden;
        let bytes = (self.permute_traffic * numbers as f64).ceil() as u64;
        if bytes > 0 {
            emit.stream_bytes("experts", Streaming::Permute, copies, self.architecture.hidden, bytes);
        }
    }

    fn shared_backward(&self, emit: &mut Emit<'_>, experts: &Experts, part: Part) {
        if experts.shared_width > 0 {
            emit.leave_experts();
            let block = self.feed_forward_block(experts.shared_width, "shared expert");
            self.block_backward(emit, &block, part, false);
            emit.enter_experts(false);
        }
    }

    /// Whether shared experts are computed while tokens are on their way.
    fn shares_its_time(&self, experts: &Experts) -> bool {
        self.overlap_shared && experts.shared_width > 0 && self.ep > 1
    }

    /// Tokens to experts or back; `beside` shared experts, if these are computed meanwhile, until what is returned is waited for.
    fn expert_exchange(
        &self,
        emit: &mut Emit<'_>,
        experts: &Experts,
        label: &'static str,
        way: Way,
        beside: bool,
    ) -> Option<u32> {
        if self.ep < 2 {
            return None;
        }
        let bytes = self.precision.activations.bytes(self.dispatched(experts));
        let waited = (bytes as f64 * (1.0 - self.hidden_exchange)).ceil() as u64;
        let routing = self.dispatcher.map(|dispatcher| Routing {
            experts: experts.routed as u32,
            top_k: experts.top_k as u32,
            domains: dispatcher.domains,
            sms: dispatcher.sms,
            combine: way == Way::Back,
        });
        let id = (beside && self.shares_its_time(experts)).then(|| emit.fresh());
        let overlap = id.map_or(Overlap::None, Overlap::Async);
        emit.routed(Dimension::Ep, CollectiveKind::AllToAll, waited, routing, label, overlap);
        id
    }

    fn gather_expert_tokens(&self, emit: &mut Emit<'_>, experts: &Experts) {
        if self.expert_tp > 1 {
            let bytes = self.precision.activations.bytes(self.dispatched(experts) * self.expert_tp);
            let overlap = emit.before();
            emit.collective(Dimension::Tp, CollectiveKind::AllGather, bytes, "expert all-gather", overlap);
        }
    }

    fn reduce_expert_tokens(&self, emit: &mut Emit<'_>, experts: &Experts) {
        if self.expert_tp > 1 {
            let bytes = self.precision.activations.bytes(self.dispatched(experts) * self.expert_tp);
            let overlap = emit.after();
            emit.collective(
                Dimension::Tp,
                CollectiveKind::ReduceScatter,
                bytes,
                "expert reduce-scatter",
                overlap,
            );
        }
    }
}
