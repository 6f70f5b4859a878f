//! A HuggingFace `config.json` as an [`Architecture`].
//!
//! The key names are those of the `transformers` configuration classes of each `model_type`; older spellings that
//! circulate (`num_routed_experts` for `n_routed_experts`) are accepted. Keys that do not change shapes are ignored, as
//! they are in the library; a key that is due and missing is an error that names it. Defaults are the library's.

use serde_json::{Map, Value};

use super::architecture::{Architecture, Attention, Experts, FeedForward, Norm, QkNorm, Window};

/// `max_window_layers` of Qwen's configurations that do not give it.
const QWEN_FULL: u64 = 28;

/// Values of `model_type` that [`Architecture::from_config`] knows.
pub const MODEL_TYPES: [&str; 23] = [
    "deepseek_v2",
    "deepseek_v3",
    "gemma2",
    "gemma3_text",
    "glm4_moe",
    "gpt2",
    "gpt_neox",
    "gpt_oss",
    "granite",
    "kimi_k2",
    "llama",
    "mistral",
    "mixtral",
    "nemotron",
    "olmo2",
    "olmo3",
    "phi3",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "smollm3",
    "starcoder2",
];

/// Why a configuration is not a model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// Not a JSON object.
    #[error("model configuration is not a JSON object: {0}")]
    NotJson(String),
    /// The `model_type` is not known.
    #[error("unknown `model_type`: `{found}`\n\nhint: one of {}", known())]
    UnknownModelType {
        /// The value found.
        found: String,
    },
    /// A key is missing.
    #[error("`{model_type}` configuration lacks the key `{key}`")]
    Missing {
        /// The model type.
        model_type: String,
        /// The key.
        key: &'static str,
    },
    /// A value has the wrong type or range.
    #[error("`{key}`: expected {expected}, found `{found}`")]
    BadValue {
        /// The key.
        key: &'static str,
        /// What was due.
        expected: &'static str,
        /// The value found.
        found: String,
    },
    /// Each number is in range, but not their product.
    #[error("the model has about {0:e} parameters, more than 10^16")]
    TooLarge(f64),
    /// Two values do not fit each other.
    #[error("`{key}`: {value} does not divide `{of}`: {whole}")]
    NotDivisible {
        /// Key of the divisor.
        key: &'static str,
        /// The divisor.
        value: u64,
        /// Key of the dividend.
        of: &'static str,
        /// The dividend.
        whole: u64,
    },
}

fn known() -> String {
    MODEL_TYPES.map(|name| format!("`{name}`")).join(", ")
}

/// Typed access to the keys of a configuration.
struct Keys<'a> {
    model_type: &'a str,
    map: &'a Map<String, Value>,
}

impl Keys<'_> {
    /// The positive integer at the first of `names` that is present and not null.
    fn optional(&self, names: &[&'static str]) -> Result<Option<u64>, ConfigError> {
        for &key in names {
            match self.map.get(key) {
                None | Some(Value::Null) => {}
                Some(value) => {
                    return value.as_u64().filter(|&value| value <= 1 << 20).map(Some).ok_or_else(|| {
                        ConfigError::BadValue {
                            key,
                            expected: "a whole number up to 2^20",
                            found: value.to_string(),
                        }
                    });
                }
            }
        }
        Ok(None)
    }

    fn whole(&self, names: &[&'static str]) -> Result<u64, ConfigError> {
        self.optional(names)?
            .ok_or_else(|| ConfigError::Missing { model_type: self.model_type.to_owned(), key: names[0] })
    }

    fn positive(&self, names: &[&'static str]) -> Result<u64, ConfigError> {
        match self.whole(names)? {
            0 => Err(ConfigError::BadValue {
                key: names[0],
                expected: "a positive number",
                found: "0".to_owned(),
            }),
            value => Ok(value),
        }
    }

    fn flag(&self, key: &'static str, default: bool) -> Result<bool, ConfigError> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(value) => {
                Err(ConfigError::BadValue { key, expected: "`true` or `false`", found: value.to_string() })
            }
        }
    }

    /// Grouped-query attention of the Llama family.
    fn grouped(&self, qkv_bias: bool, output_bias: bool, qk_norm: QkNorm) -> Result<Attention, ConfigError> {
        let hidden = self.positive(&["hidden_size"])?;
        let heads = self.positive(&["num_attention_heads"])?;
        let kv_heads = self.optional(&["num_key_value_heads"])?.unwrap_or(heads);
        let head_dim = match self.optional(&["head_dim"])? {
            Some(dim) => dim,
            None => divided("num_attention_heads", heads, "hidden_size", hidden)?,
        };
        divided("num_key_value_heads", kv_heads, "num_attention_heads", heads)?;
        Ok(Attention::Grouped { heads, kv_heads, head_dim, qkv_bias, output_bias, qk_norm })
    }

    /// The sliding window of those layers that have one: as `layer_types` lists them, else as the `transformers` classes take them:
    /// all but one in so many of GPT-OSS, Gemma and OLMo 3, of Qwen's, which have none unless they say `use_sliding_window`, those
    /// from `max_window_layers` on, all layers of others.
    fn window(&self) -> Result<Option<Window>, ConfigError> {
        let layers = self.positive(&["num_hidden_layers", "n_layer"])?;
        let qwen = self.model_type.starts_with("qwen");
        let used = self.flag("use_sliding_window", !qwen)?;
        let Some(keys) = self.optional(&["sliding_window"])?.filter(|&keys| used && keys > 0) else {
            return Ok(None);
        };
        let first = if qwen { self.optional(&["max_window_layers"])?.unwrap_or(QWEN_FULL) } else { 0 };
        let full_every = match self.model_type {
            "gpt_oss" | "gemma2" => 2,
            "gemma3_text" => self.optional(&["sliding_window_pattern"])?.unwrap_or(6),
            "olmo3" => 4,
            _ => 0,
        };
        let layers = match self.map.get("layer_types") {
            None | Some(Value::Null) => {
                let full = |layer: u64| full_every > 0 && (layer + 1).is_multiple_of(full_every);
                (0..layers).map(|layer| layer >= first && !full(layer)).collect()
            }
            Some(Value::Array(kinds)) if kinds.len() as u64 == layers => {
                kinds.iter().map(sliding).collect::<Result<Vec<bool>, _>>()?
            }
            Some(found) => {
                let expected =
                    "one of `full_attention` and `sliding_attention` for each of `num_hidden_layers`";
                let found =
                    found.as_array().map_or_else(|| short(found), |kinds| format!("{} entries", kinds.len()));
                return Err(ConfigError::BadValue { key: "layer_types", expected, found });
            }
        };
        Ok(layers.contains(&true).then_some(Window { keys, layers }))
    }

    fn latent(&self) -> Result<Attention, ConfigError> {
        Ok(Attention::Latent {
            heads: self.positive(&["num_attention_heads"])?,
            query_rank: self.optional(&["q_lora_rank"])?,
            kv_rank: self.positive(&["kv_lora_rank"])?,
            nope_dim: self.positive(&["qk_nope_head_dim"])?,
            rope_dim: self.positive(&["qk_rope_head_dim"])?,
            value_dim: self.positive(&["v_head_dim"])?,
        })
    }
}

fn divided(key: &'static str, value: u64, of: &'static str, whole: u64) -> Result<u64, ConfigError> {
    if value == 0 || !whole.is_multiple_of(value) {
        return Err(ConfigError::NotDivisible { key, value, of, whole });
    }
    Ok(whole / value)
}

impl Architecture {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// [`ConfigError`] when it is not JSON, of an unknown `model_type`, or lacks a key.
    pub fn from_config(json: &str) -> Result<Self, ConfigError> {
        let value: Value =
            serde_json::from_str(json).map_err(|error| ConfigError::NotJson(error.to_string()))?;
        Self::from_value(&value)
    }

    /// As [`Self::from_config`], of an already parsed document.
    ///
    /// # Errors
    /// As [`Self::from_config`].
    pub fn from_value(value: &Value) -> Result<Self, ConfigError> {
        let map = value.as_object().ok_or_else(|| ConfigError::NotJson(short(value)))?;
        let model_type = match map.get("model_type") {
            Some(Value::String(text)) => text.as_str(),
            Some(other) => {
                return Err(ConfigError::BadValue {
                    key: "model_type",
                    expected: "a string",
                    found: short(other),
                });
            }
            None => return Err(ConfigError::Missing { model_type: "model".to_owned(), key: "model_type" }),
        };
        let keys = Keys { model_type, map };
        let model = match model_type {
            "gpt2" => gpt2(&keys),
            "gpt_neox" => gpt_neox(&keys),
            "nemotron" => nemotron(&keys),
            "starcoder2" => starcoder2(&keys),
            found if MODEL_TYPES.contains(&found) => llama_like(&keys),
            found => Err(ConfigError::UnknownModelType { found: found.to_owned() }),
        }?;
        // Counts are exact in 64 bits below this; the largest model published has 10^13.
        let estimate = model.estimated_parameters();
        if estimate > 1e16 { Err(ConfigError::TooLarge(estimate)) } else { Ok(model) }
    }
}

impl Architecture {
    /// An upper bound of the parameters that cannot overflow.
    fn estimated_parameters(&self) -> f64 {
        let attention = &self.attention;
        let inner = attention.heads() as f64
            * (2.0 * attention.query_dim() as f64 + 2.0 * attention.value_dim() as f64);
        let ranks = match *attention {
            Attention::Grouped { .. } => 0.0,
            Attention::Latent { query_rank, kv_rank, rope_dim, .. } => {
                query_rank.unwrap_or(0) as f64 + kv_rank as f64 + rope_dim as f64
            }
        };
        let experts = self.experts.map_or(0.0, |experts| {
            experts.routed as f64 * experts.width as f64 + experts.shared_width as f64 + experts.routed as f64
        });
        let hidden = self.hidden as f64;
        let width = inner + ranks + 3.0 * (self.dense.width as f64 + experts) + 8.0;
        f64::from(self.layers) * (width * hidden + ranks * inner + width)
            + hidden * (2.0 * self.vocabulary as f64 + self.positions as f64 + 2.0)
    }
}

/// Whether a layer of this kind has the window.
fn sliding(kind: &Value) -> Result<bool, ConfigError> {
    match kind.as_str() {
        Some("full_attention") => Ok(false),
        Some("sliding_attention") => Ok(true),
        _ => {
            let expected = "`full_attention` or `sliding_attention`";
            Err(ConfigError::BadValue { key: "layer_types", expected, found: short(kind) })
        }
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}

fn llama_like(keys: &Keys<'_>) -> Result<Architecture, ConfigError> {
    let attention_bias = keys.flag("attention_bias", keys.model_type == "gpt_oss")?;
    let attention = match keys.model_type {
        "qwen2" | "qwen2_moe" => keys.grouped(true, false, QkNorm::None)?,
        "qwen3" | "qwen3_moe" | "gemma3_text" => {
            keys.grouped(attention_bias, attention_bias, QkNorm::Head)?
        }
        "deepseek_v2" | "deepseek_v3" | "kimi_k2" => keys.latent()?,
        "glm4_moe" => {
            let norm = if keys.flag("use_qk_norm", false)? { QkNorm::Head } else { QkNorm::None };
            keys.grouped(attention_bias, false, norm)?
        }
        "olmo2" | "olmo3" => keys.grouped(attention_bias, attention_bias, QkNorm::Whole)?,
        _ => keys.grouped(attention_bias, attention_bias, QkNorm::None)?,
    };
    let gemma = matches!(keys.model_type, "gemma2" | "gemma3_text");
    let experts = experts(keys)?;
    let dense_width = if matches!(keys.model_type, "mixtral" | "gpt_oss") {
        keys.positive(&["intermediate_size"])?
    } else {
        keys.optional(&["intermediate_size"])?.or(experts.map(|experts| experts.width)).ok_or_else(|| {
            ConfigError::Missing { model_type: keys.model_type.to_owned(), key: "intermediate_size" }
        })?
    };
    Ok(Architecture {
        model_type: keys.model_type.to_owned(),
        hidden: keys.positive(&["hidden_size"])?,
        layers: keys.positive(&["num_hidden_layers"])? as u32,
        vocabulary: keys.positive(&["vocab_size"])?,
        positions: 0,
        attention,
        window: keys.window()?,
        dense: FeedForward { width: dense_width, gated: true, bias: keys.flag("mlp_bias", false)? },
        experts,
        norm: Norm::Rms,
        post_norms: gemma,
        tied_embeddings: keys
            .flag("tie_word_embeddings", gemma || matches!(keys.model_type, "granite" | "smollm3"))?,
        prediction_layers: keys.optional(&["num_nextn_predict_layers"])?.unwrap_or(0) as u32,
    })
}

fn experts(keys: &Keys<'_>) -> Result<Option<Experts>, ConfigError> {
    let plain = |routed, width| -> Result<Experts, ConfigError> {
        let top_k = keys.positive(&["num_experts_per_tok"])?;
        if top_k > routed {
            return Err(ConfigError::BadValue {
                key: "num_experts_per_tok",
                expected: "at most the number of experts",
                found: top_k.to_string(),
            });
        }
        Ok(Experts {
            routed,
            top_k,
            width,
            shared_width: 0,
            shared_gate: false,
            router_bias: false,
            bias: false,
            limited: false,
            first_dense: 0,
            every: 1,
        })
    };
    Ok(match keys.model_type {
        "mixtral" => {
            Some(plain(keys.positive(&["num_local_experts"])?, keys.positive(&["intermediate_size"])?)?)
        }
        "gpt_oss" => Some(Experts {
            router_bias: true,
            bias: true,
            limited: true,
            ..plain(keys.positive(&["num_local_experts"])?, keys.positive(&["intermediate_size"])?)?
        }),
        "qwen2_moe" | "qwen3_moe" => Some(Experts {
            shared_width: keys.optional(&["shared_expert_intermediate_size"])?.unwrap_or(0),
            shared_gate: keys.model_type == "qwen2_moe",
            every: keys.optional(&["decoder_sparse_step"])?.unwrap_or(1).max(1) as u32,
            ..plain(keys.positive(&["num_experts"])?, keys.positive(&["moe_intermediate_size"])?)?
        }),
        "deepseek_v2" | "deepseek_v3" | "glm4_moe" | "kimi_k2" => {
            let width = keys.positive(&["moe_intermediate_size"])?;
            let shared = keys.optional(&["n_shared_experts", "num_shared_experts"])?.unwrap_or(0);
            Some(Experts {
                shared_width: shared * width,
                router_bias: keys.model_type != "deepseek_v2",
                first_dense: keys.optional(&["first_k_dense_replace"])?.unwrap_or(0) as u32,
                every: keys.optional(&["moe_layer_freq"])?.unwrap_or(1).max(1) as u32,
                ..plain(keys.positive(&["n_routed_experts", "num_routed_experts"])?, width)?
            })
        }
        _ => None,
    })
}

/// Nemotron-4 (Parmar et al. 2024, arXiv:2402.16819): grouped queries, rotary positions, a feed-forward block with squared ReLU
/// and so without a gate, layer norms, no biases, untied embeddings.
fn nemotron(keys: &Keys<'_>) -> Result<Architecture, ConfigError> {
    Ok(Architecture {
        model_type: keys.model_type.to_owned(),
        hidden: keys.positive(&["hidden_size"])?,
        layers: keys.positive(&["num_hidden_layers"])? as u32,
        vocabulary: keys.positive(&["vocab_size"])?,
        positions: 0,
        attention: keys.grouped(keys.flag("attention_bias", false)?, false, QkNorm::None)?,
        window: None,
        dense: FeedForward {
            width: keys.positive(&["intermediate_size"])?,
            gated: false,
            bias: keys.flag("mlp_bias", false)?,
        },
        experts: None,
        norm: Norm::Layer,
        post_norms: false,
        tied_embeddings: keys.flag("tie_word_embeddings", false)?,
        prediction_layers: 0,
    })
}

/// StarCoder 2 (Lozhkov et al. 2024, arXiv:2402.19173): grouped queries, rotary positions, a feed-forward block without a gate,
/// layer norms and biases.
fn starcoder2(keys: &Keys<'_>) -> Result<Architecture, ConfigError> {
    let bias = keys.flag("use_bias", true)?;
    Ok(Architecture {
        model_type: keys.model_type.to_owned(),
        hidden: keys.positive(&["hidden_size"])?,
        layers: keys.positive(&["num_hidden_layers"])? as u32,
        vocabulary: keys.positive(&["vocab_size"])?,
        positions: 0,
        attention: keys.grouped(bias, bias, QkNorm::None)?,
        window: keys.window()?,
        dense: FeedForward { width: keys.positive(&["intermediate_size"])?, gated: false, bias },
        experts: None,
        norm: Norm::Layer,
        post_norms: false,
        tied_embeddings: keys.flag("tie_word_embeddings", true)?,
        prediction_layers: 0,
    })
}

/// GPT-2, and with other numbers GPT-3 and the Megatron models: learned positions, biases everywhere, tied embeddings.
fn gpt2(keys: &Keys<'_>) -> Result<Architecture, ConfigError> {
    let hidden = keys.positive(&["n_embd", "hidden_size"])?;
    let heads = keys.positive(&["n_head", "num_attention_heads"])?;
    Ok(Architecture {
        model_type: keys.model_type.to_owned(),
        hidden,
        layers: keys.positive(&["n_layer", "num_hidden_layers"])? as u32,
        vocabulary: keys.positive(&["vocab_size"])?,
        positions: keys.positive(&["n_positions", "n_ctx", "max_position_embeddings"])?,
        attention: Attention::Grouped {
            heads,
            kv_heads: heads,
            head_dim: divided("n_head", heads, "n_embd", hidden)?,
            qkv_bias: true,
            output_bias: true,
            qk_norm: QkNorm::None,
        },
        window: keys.window()?,
        dense: FeedForward {
            width: keys.optional(&["n_inner", "intermediate_size"])?.unwrap_or(4 * hidden),
            gated: false,
            bias: true,
        },
        experts: None,
        norm: Norm::Layer,
        post_norms: false,
        tied_embeddings: keys.flag("tie_word_embeddings", true)?,
        prediction_layers: 0,
    })
}

/// GPT-NeoX and Pythia: rotary positions, biases, untied.
fn gpt_neox(keys: &Keys<'_>) -> Result<Architecture, ConfigError> {
    let hidden = keys.positive(&["hidden_size"])?;
    let heads = keys.positive(&["num_attention_heads"])?;
    Ok(Architecture {
        model_type: keys.model_type.to_owned(),
        hidden,
        layers: keys.positive(&["num_hidden_layers"])? as u32,
        vocabulary: keys.positive(&["vocab_size"])?,
        positions: 0,
        attention: Attention::Grouped {
            heads,
            kv_heads: heads,
            head_dim: divided("num_attention_heads", heads, "hidden_size", hidden)?,
            qkv_bias: true,
            output_bias: true,
            qk_norm: QkNorm::None,
        },
        window: None,
        dense: FeedForward { width: keys.positive(&["intermediate_size"])?, gated: false, bias: true },
        experts: None,
        norm: Norm::Layer,
        post_norms: false,
        tied_embeddings: keys.flag("tie_word_embeddings", false)?,
        prediction_layers: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llama(hidden: u64, layers: u64, heads: u64, ffn: u64) -> Architecture {
        Architecture::from_config(&format!(
            r#"{{"model_type":"llama","hidden_size":{hidden},"num_hidden_layers":{layers},"num_attention_heads":{heads},
            "num_key_value_heads":8,"intermediate_size":{ffn},"vocab_size":128256,"tie_word_embeddings":false}}"#
        ))
        .unwrap()
    }

    /// Sizes on the model cards' safetensors metadata.
    #[test]
    fn llama_counts_equal_the_published_ones() {
        assert_eq!(llama(4096, 32, 32, 14336).parameters(), 8_030_261_248);
        assert_eq!(llama(8192, 80, 64, 28672).parameters(), 70_553_706_496);
        assert_eq!(llama(16384, 126, 128, 53248).parameters(), 405_853_388_800);
    }

    /// As the library reads the keys of Mistral, Qwen 2.5 and GPT-OSS.
    #[test]
    fn a_sliding_window_is_in_the_layers_that_have_one() {
        let window = |keys: &str| {
            let json = format!(
                r#"{{{keys},"hidden_size":64,"num_hidden_layers":4,"num_attention_heads":4,"intermediate_size":64,
                "num_local_experts":4,"num_experts_per_tok":2,"vocab_size":64}}"#
            );
            Architecture::from_config(&json)
                .map(|model| (0..4).map(|layer| model.window_of(layer)).collect::<Vec<_>>())
        };
        let of = |windows: [u64; 4]| Ok(windows.to_vec());
        assert_eq!(window(r#""model_type":"mistral","sliding_window":4096"#), of([4096; 4]));
        assert_eq!(window(r#""model_type":"mistral","sliding_window":null"#), of([0; 4]));
        assert_eq!(window(r#""model_type":"mistral""#), of([0; 4]));
        assert_eq!(window(r#""model_type":"qwen2","sliding_window":4096"#), of([0; 4]));
        let used = r#""model_type":"qwen2","sliding_window":4096,"use_sliding_window":true"#;
        assert_eq!(window(used), of([0; 4]), "28 layers see all");
        assert_eq!(window(&format!(r#"{used},"max_window_layers":3"#)), of([0, 0, 0, 4096]));
        let gpt_oss = r#""model_type":"gpt_oss","sliding_window":128"#;
        assert_eq!(window(gpt_oss), of([128, 0, 128, 0]));
        assert_eq!(window(r#""model_type":"olmo3","sliding_window":64"#), of([64, 64, 64, 0]));
        let pattern = r#""model_type":"gemma3_text","sliding_window":64,"sliding_window_pattern":3"#;
        assert_eq!(window(pattern), of([64, 64, 0, 64]));
        let layers = |kinds: &str| window(&format!(r#"{gpt_oss},"layer_types":[{kinds}]"#));
        let (full, local) = (r#""full_attention""#, r#""sliding_attention""#);
        assert_eq!(layers(&[full, local, full, full].join(",")), of([0, 128, 0, 0]));
        assert_eq!(layers(&[full; 4].join(",")), of([0; 4]));
        for wrong in [[local, full].join(","), [full, full, full, r#""none""#].join(",")] {
            assert!(layers(&wrong).unwrap_err().to_string().contains("`layer_types`"));
        }
        assert!(window(r#""model_type":"mistral","sliding_window":"all""#).is_err());
    }

    #[test]
    fn gpt2_counts_equal_the_published_ones() {
        let small = r#"{"model_type":"gpt2","n_embd":768,"n_layer":12,"n_head":12,"n_positions":1024,"vocab_size":50257}"#;
        assert_eq!(Architecture::from_config(small).unwrap().parameters(), 124_439_808);
    }

    /// Qwen2.5-7B (biases on q, k, v) and Mistral-7B-v0.1, as on the model cards.
    #[test]
    fn biases_and_grouped_heads_count() {
        let qwen = r#"{"model_type":"qwen2","hidden_size":3584,"num_hidden_layers":28,"num_attention_heads":28,
            "num_key_value_heads":4,"intermediate_size":18944,"vocab_size":152064,"tie_word_embeddings":false}"#;
        assert_eq!(Architecture::from_config(qwen).unwrap().parameters(), 7_615_616_512);
        let mistral = r#"{"model_type":"mistral","hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,
            "num_key_value_heads":8,"intermediate_size":14336,"vocab_size":32000}"#;
        assert_eq!(Architecture::from_config(mistral).unwrap().parameters(), 7_241_732_096);
    }

    /// Sizes on the model cards' safetensors metadata. GLM-4.5-Air's has a module of multi-token prediction with tables of its own.
    #[test]
    fn norms_ties_and_experts_of_other_families_count_as_published() {
        let llama = |kind: &str, [hidden, layers, heads, kv_heads, inner, words]: [u64; 6], more: &str| {
            let json = format!(
                r#"{{"model_type":"{kind}","hidden_size":{hidden},"num_hidden_layers":{layers},"num_attention_heads":{heads},
                "num_key_value_heads":{kv_heads},"intermediate_size":{inner},"vocab_size":{words}{more}}}"#
            );
            Architecture::from_config(&json).unwrap()
        };
        let count = |kind, shape, more| llama(kind, shape, more).parameters();
        let wide = r#","head_dim":256"#;
        assert_eq!(count("gemma2", [2304, 26, 8, 4, 9216, 256_000], wide), 2_614_341_888);
        assert_eq!(count("gemma2", [3584, 42, 16, 8, 14336, 256_000], wide), 9_241_705_984);
        assert_eq!(count("gemma3_text", [1152, 26, 4, 1, 6912, 262_144], wide), 999_885_952);
        assert_eq!(count("olmo2", [4096, 32, 32, 32, 11008, 100_352], ""), 7_298_617_344);
        assert_eq!(count("olmo2", [5120, 40, 40, 40, 13824, 100_352], ""), 13_716_198_400);
        assert_eq!(count("phi3", [3072, 32, 32, 32, 8192, 32_064], ""), 3_821_079_552);
        assert_eq!(count("phi3", [5120, 40, 40, 10, 17920, 100_352], ""), 14_659_507_200);
        assert_eq!(count("starcoder2", [3072, 30, 24, 2, 12288, 49_152], ""), 3_030_371_328);
        assert_eq!(count("smollm3", [2048, 36, 16, 4, 11008, 128_256], ""), 3_075_098_624);
        let air = r#","head_dim":128,"attention_bias":true,"moe_intermediate_size":1408,"n_routed_experts":128,
            "num_experts_per_tok":8,"n_shared_experts":1,"first_k_dense_replace":1,"num_nextn_predict_layers":1"#;
        let air = llama("glm4_moe", [4096, 46, 96, 8, 10944, 151_552], air);
        let tables = 2 * 151_552 * 4096;
        assert_eq!(air.parameters() + air.prediction_parameters() + tables, 110_468_824_832);
    }

    #[test]
    #[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
    fn recorded_configurations_count_as_published() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/models/");
        let expected = [
            ("hf_via_llmservingsim/Llama-3.1-8B.json", 8_030_261_248, None),
            ("hf_via_llmservingsim/Llama-3.1-70B.json", 70_553_706_496, None),
            ("hf_via_llmservingsim/Mixtral-8x7B-v0.1.json", 46_702_792_704, Some(12_879_925_248)),
            ("hf_via_simai/qwen3-8B_config.json", 8_190_735_360, None),
            ("hf_via_simai/qwen3-30B-A3B_config.json", 30_532_122_624, None),
            ("hf_via_simai/qwen3-235B-A22B_config.json", 235_093_634_560, None),
            ("hf_via_simai/deepseek_v3_config.json", 671_026_419_200, None),
        ];
        for (file, parameters, active) in expected {
            let text = std::fs::read_to_string(format!("{root}{file}")).expect(file);
            let model = Architecture::from_config(&text).unwrap();
            assert_eq!(model.parameters(), parameters, "{file}");
            if let Some(active) = active {
                assert_eq!(model.active_parameters(), active, "{file}");
            }
        }
    }

    #[test]
    fn errors_name_the_key_and_the_known_types() {
        let error = Architecture::from_config(r#"{"model_type":"mamba"}"#).unwrap_err().to_string();
        assert!(
            error.starts_with("unknown `model_type`: `mamba`\n\nhint: one of `deepseek_v2`, "),
            "{error}"
        );
        let error = Architecture::from_config(r#"{"model_type":"llama"}"#).unwrap_err().to_string();
        assert_eq!(error, "`llama` configuration lacks the key `hidden_size`");
        let error = Architecture::from_config(
            r#"{"model_type":"gpt2","n_embd":100,"n_layer":1,"n_head":3,"n_positions":8,"vocab_size":8}"#,
        )
        .unwrap_err();
        assert_eq!(error.to_string(), "`n_head`: 3 does not divide `n_embd`: 100");
        let error = Architecture::from_config(
            r#"{"model_type":"llama","hidden_size":1048576,"num_hidden_layers":1048576,"num_attention_heads":1024,
            "intermediate_size":1048576,"vocab_size":8}"#,
        )
        .unwrap_err();
        assert!(matches!(error, ConfigError::TooLarge(_)), "{error}");
        assert!(Architecture::from_config("[").is_err());
        assert!(Architecture::from_config(r#"{"model_type":"llama","hidden_size":-1}"#).is_err());
    }
}
