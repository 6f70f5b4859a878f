//! What a layer holds for the gradient of its weights when the gradient of its input has been computed.
//!
//! A product y = x w needs x and the gradient of y for the gradient of w, and nothing else: what attention, norms and masks stored
//! is given up with the gradient of the input. For GPT that is 32 of the 34 + 5as/h bytes of a hidden element (Qi et al. 2024, table 1:
//! inputs 14, gradients of outputs 18). Schedules that delay weight gradients hold this much meanwhile.

use super::architecture::{Attention, LayerKind};
use super::chunk::Chunk;
use super::training::Training;

impl Training {
    /// Share of what `chunk` keeps for its backward pass that remains, per micro-batch, between its two gradients: 0 to 1.
    pub fn kept_share(&self, chunk: &Chunk) -> f64 {
        let whole = self.chunk_activation_bytes(chunk).get();
        let mut kept: u64 = chunk.layers.clone().map(|layer| self.kept_by_layer(layer)).sum();
        if chunk.head {
            kept += u64::from(self.predictions) * self.kept_by_prediction();
        }
        if whole == 0 { 1.0 } else { (kept as f64 / whole as f64).min(1.0) }
    }

    /// Inputs of a layer's products and gradients of their outputs, in bytes.
    pub(super) fn kept_by_layer(&self, layer: u32) -> u64 {
        let model = &self.architecture;
        let (tokens, own, hidden) = (self.tokens(), self.residual_tokens(), model.hidden);
        let values = self.local_heads() * model.attention.value_dim();
        // Queries, keys and values from the input, and the projection of what attention gives.
        let heads = match model.attention {
            Attention::Grouped { head_dim, .. } => {
                (self.local_heads() + 2 * self.local_kv_heads()) * head_dim
            }
            Attention::Latent { .. } => {
                self.local_heads() * (2 * model.attention.query_dim() + model.attention.value_dim())
            }
        };
        let attention = 2 * own * hidden + tokens * (heads + values);
        let block =
            |rows: u64, held: u64, width: u64| 2 * held * hidden + rows * (model.dense.ups() + 1) * width;
        let feed_forward = match (model.layer_kind(layer), &model.experts) {
            (LayerKind::Sparse, Some(experts)) => {
                let (routed, _) = self.expert_tokens(experts);
                block(routed, routed, experts.width / self.expert_tp)
                    + block(tokens, own, experts.shared_width / self.tp)
            }
            _ => block(tokens, own, model.dense.width / self.tp),
        };
        self.precision.activations.bytes(attention + feed_forward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Architecture;
    use crate::model::training::AttentionKernel;

    /// Qi et al. 2024, table 1: 32sbh of sb(34h + 5as).
    #[test]
    fn a_gpt_layer_keeps_what_table_1_says() {
        let json = r#"{"model_type":"gpt2","n_embd":4096,"n_layer":32,"n_head":32,"n_positions":1024,"vocab_size":51200}"#;
        let mut training = Training::new(Architecture::from_config(json).unwrap(), 1024);
        training.attention = AttentionKernel::Unfused;
        training.dropout = true;
        let chunk = Chunk { layers: 0..4, embedding: false, head: false };
        let (s, h, a) = (1024.0, 4096.0, 32.0);
        let expected = 32.0 * h / (34.0 * h + 5.0 * a * s);
        assert!(
            (training.kept_share(&chunk) - expected).abs() < 1e-12,
            "{} {expected}",
            training.kept_share(&chunk)
        );
    }
}
