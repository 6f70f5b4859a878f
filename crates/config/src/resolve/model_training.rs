//! A transformer's settings as the [`Training`] that prices its work: names read, and what is left out filled in.
//!
//! Failure modes: `InputError` for a name that is none of a key's, and for a layout that does not divide the model.

use windtunnel_kernel::Span;
use windtunnel_plan::error::InputError;
use windtunnel_workload::generate::{GradientReduce, Layout, Reshard};
use windtunnel_workload::model::{
    Architecture, AttentionKernel, ContextExchange, Graphs, Optimiser, Recompute, Sharding, Training, Zero,
};

use super::kernels::precision;
use super::model::Transformer;
use super::names::choice;

impl Transformer<'_> {
    /// Model, batch, layout and formats, checked.
    ///
    /// # Errors
    /// [`InputError`] with the key at fault.
    pub(super) fn training(
        &self,
        architecture: Architecture,
        layout: &Layout,
    ) -> Result<Training, InputError> {
        let settings = &self.settings;
        let at = |key: &str| self.at(&format!("workload.training.{key}"));
        let recompute = choice(
            settings.recompute.as_deref(),
            &at("recompute"),
            &[
                ("none", Recompute::None),
                ("selective", Recompute::Selective),
                ("operations", Recompute::Operations),
                ("full", Recompute::Full),
            ],
            Recompute::None,
        )?;
        let attention = choice(
            settings.attention.as_deref(),
            &at("attention"),
            &[
                ("flash", AttentionKernel::Flash),
                ("flash1", AttentionKernel::Flash),
                ("flash2", AttentionKernel::Flash),
                ("flash3", AttentionKernel::Flash),
                ("unfused", AttentionKernel::Unfused),
            ],
            AttentionKernel::Flash,
        )?;
        let context = choice(
            settings.context_exchange.as_deref(),
            &at("context_exchange"),
            &[("ring", ContextExchange::Ring), ("all_gather", ContextExchange::AllGather)],
            ContextExchange::Ring,
        )?;
        let graphs = choice(
            settings.graphs.as_deref(),
            &at("graphs"),
            &[("none", Graphs::None), ("layers", Graphs::Layers), ("all", Graphs::All)],
            Graphs::None,
        )?;
        let optimiser = choice(
            settings.optimizer.as_deref(),
            &at("optimizer"),
            &[("adam", Optimiser::Adam), ("muon", Optimiser::Muon)],
            Optimiser::Adam,
        )?;
        let shards = Self::sharding(layout);
        let training = Training {
            micro_batch: self.micro_batch,
            tp: u64::from(layout.tp),
            cp: u64::from(layout.cp),
            ep: u64::from(layout.ep),
            expert_tp: u64::from(settings.expert_tp.unwrap_or(layout.tp)),
            sequence_parallel: settings.sequence_parallel.unwrap_or(true) && layout.tp > 1,
            precision: precision(settings, &self.at("workload"))?,
            adds_gradients: shards.zero < Zero::Parameters || shards.whole_gradients,
            recompute,
            recompute_layers: settings.recompute_layers,
            predictions: settings.multi_token_prediction.unwrap_or(0),
            lora_rank: settings.lora_rank,
            regather: settings.regather.unwrap_or(true),
            narrow_gathers: settings.narrow_gathers.unwrap_or(false),
            attention,
            causal: settings.causal.unwrap_or(true) && attention == AttentionKernel::Flash,
            dropout: settings.dropout.unwrap_or(false),
            context,
            capacity_factor: settings.capacity_factor,
            imbalance: settings.expert_imbalance.unwrap_or(1.0),
            hidden_exchange: settings.hidden_exchange.unwrap_or(0.0),
            permute_traffic: settings.permute_traffic.unwrap_or(0.0),
            dispatcher: self.dispatcher,
            overlap_shared: settings.overlap_shared.unwrap_or(false),
            overlap_chunks: settings.overlap_chunks.unwrap_or(1),
            overlap_backward: settings.overlap_backward.unwrap_or(true),
            scatter_gather: settings.scatter_gather,
            fused: settings.fused.unwrap_or(true),
            fused_loss: settings.fused_loss.unwrap_or(true),
            reserved: settings.reserved.map_or(0, |size| size.0.get()),
            graphs,
            fused_experts: settings.fused_experts.unwrap_or(true),
            fused_expert_mlp: settings.fused_expert_mlp.unwrap_or(false),
            padded_experts: settings.padded_experts.unwrap_or(true),
            dispatch: settings.dispatch.map_or(Span::ZERO, |duration| duration.0),
            straggle: settings.straggle.map_or(Span::ZERO, |duration| duration.0),
            optimiser,
            optimiser_shards: if layout.zero > 0 { shards.shards } else { 1 },
            expert_optimiser_shards: if layout.zero > 0 { shards.expert_shards } else { 1 },
            ..Training::new(architecture, self.sequence)
        };
        training.check().map_err(|error| InputError::new(self.at("parallelism"), error.to_string()))?;
        Ok(training)
    }

    /// How memory is shared out among replicas.
    pub(super) fn sharding(layout: &Layout) -> Sharding {
        let replicas = u64::from(layout.cp) * u64::from(layout.dp) / u64::from(layout.replicate.max(1));
        Sharding {
            zero: Zero::stage(layout.zero).unwrap_or_default(),
            shards: replicas * u64::from(layout.ep),
            expert_shards: replicas,
            gathered_units: u64::from(layout.prefetch) + 1,
            stays_gathered: layout.reshard == Reshard::Never,
            whole_gradients: layout.reduce == GradientReduce::LastMicrobatch && layout.microbatches > 1,
        }
    }
}
