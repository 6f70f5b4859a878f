//! FLOPs of a model, independent of layout: the numerator of model FLOPS utilisation.
//!
//! MFU (Chowdhery et al. 2022, PaLM appendix B) is tokens per second × FLOPs per token ÷ peak, with 6N + 12LHQT FLOPs
//! per token. N counts here the parameters a token is multiplied with: the output projection yes, lookup tables no,
//! routed experts by the top k.

use super::architecture::Architecture;
use super::kernels::keys_seen;

impl Architecture {
    /// Parameters in the products a token takes part in.
    pub fn multiplied_parameters(&self) -> u64 {
        let head = self.vocabulary * self.hidden;
        self.active_parameters() - self.embedding_parameters() - self.head_parameters() + head
    }

    /// Forward FLOPs of attention's two products per token over a sequence, all layers; halved where a causal mask is skipped.
    /// Layers with a window count the keys that a query sees there.
    pub fn attention_flops_per_token(&self, sequence: u64, causal: bool) -> u64 {
        (0..self.layers).map(|layer| self.layer_attention_flops_per_token(layer, sequence, causal)).sum()
    }

    /// Those of layer `layer`.
    pub fn layer_attention_flops_per_token(&self, layer: u32, sequence: u64, causal: bool) -> u64 {
        let a_key = 2 * self.attention.heads() * (self.attention.query_dim() + self.attention.value_dim());
        (a_key as f64 * keys_seen(sequence, self.window_of(layer), causal)) as u64
    }

    /// Model FLOPs per token, forward and backward: 6N + 12LHQT, the second term halved if `causal`.
    pub fn model_flops_per_token(&self, sequence: u64, causal: bool) -> u64 {
        6 * self.multiplied_parameters() + 3 * self.attention_flops_per_token(sequence, causal)
    }
}

/// Model FLOPS utilisation: the share of `peak` (FLOP/s of one GPU) that `gpus` reach on `tokens` in `seconds`.
pub fn model_flops_utilisation(flops_per_token: u64, tokens: u64, seconds: f64, gpus: u64, peak: f64) -> f64 {
    flops_per_token as f64 * tokens as f64 / (seconds * gpus as f64 * peak)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PaLM appendix B.1: GPT-3 on V100s is quoted with 6N; the attention term of a 2048-token GPT-3 is 12·96·12288·2048.
    #[test]
    fn gpt3_needs_what_the_appendix_says() {
        let json = r#"{"model_type":"gpt2","n_embd":12288,"n_layer":96,"n_head":96,"n_positions":2048,"vocab_size":51200}"#;
        let model = Architecture::from_config(json).unwrap();
        assert_eq!(3 * model.attention_flops_per_token(2048, false), 12 * 96 * 12288 * 2048);
        let lookup = 2048 * 12288;
        assert_eq!(
            model.model_flops_per_token(2048, false),
            6 * (model.parameters() - lookup) + 12 * 96 * 12288 * 2048
        );
    }

    #[test]
    fn utilisation_is_a_ratio() {
        assert_eq!(model_flops_utilisation(1_000, 1_000, 1.0, 2, 1e6), 0.5);
    }
}
