//! Data sheets of GPUs, NICs, switches and models: the files under `data/`.
//!
//! A sheet is YAML (JSON is YAML too); every figure is `{value, evidence, source}` ([`super::figure`]). Unknown keys are
//! errors. Life cycle: text → [`GpuSheet::parse`] and its siblings, which check what one figure says about another;
//! then immutable.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use windtunnel_kernel::{BitRate, Bytes, Span};

use super::architecture::Architecture;
use super::config::ConfigError;
use super::curve::Curve;
use super::dtype::Dtype;
use super::figure::{Dollars, Evidence, Figure, FlopRate, Millimetres, Share, Watts};
use super::flash::Flash;
use super::tiles::{Device, Tiles};

/// Why a sheet cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SheetError {
    /// Not YAML, a missing or unknown key, or a value of the wrong kind; the message has line and column.
    #[error("{0}")]
    Syntax(String),
    /// The model's configuration.
    #[error("`config`: {0}")]
    Config(#[from] ConfigError),
    /// Figures that contradict each other.
    #[error("sheet `{sheet}`: {reason}")]
    Inconsistent {
        /// Name of the sheet.
        sheet: String,
        /// What is wrong.
        reason: String,
    },
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, SheetError> {
    serde_saphyr::from_str(text).map_err(|error| SheetError::Syntax(error.to_string()))
}

/// Peak dense rates by format; a format the device lacks is absent.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PeakRates {
    /// See [`Dtype::Fp32`].
    pub fp32: Option<Figure<FlopRate>>,
    /// See [`Dtype::Tf32`].
    pub tf32: Option<Figure<FlopRate>>,
    /// See [`Dtype::Fp16`].
    pub fp16: Option<Figure<FlopRate>>,
    /// See [`Dtype::Bf16`].
    pub bf16: Option<Figure<FlopRate>>,
    /// See [`Dtype::Fp8`].
    pub fp8: Option<Figure<FlopRate>>,
    /// See [`Dtype::Fp4`].
    pub fp4: Option<Figure<FlopRate>>,
}

impl PeakRates {
    /// The rate of `dtype`.
    pub const fn of(&self, dtype: Dtype) -> Option<&Figure<FlopRate>> {
        match dtype {
            Dtype::Fp32 => self.fp32.as_ref(),
            Dtype::Tf32 => self.tf32.as_ref(),
            Dtype::Fp16 => self.fp16.as_ref(),
            Dtype::Bf16 => self.bf16.as_ref(),
            Dtype::Fp8 => self.fp8.as_ref(),
            Dtype::Fp4 => self.fp4.as_ref(),
        }
    }
}

/// Efficiencies of kernels: shares of the peak rate, or of the memory bandwidth.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Efficiencies {
    /// GEMM against its harmonic size 1/(1/m + 1/n + 1/k).
    pub gemm: Figure<Curve>,
    /// GEMM in 8-bit floats, where it differs.
    pub gemm_fp8: Option<Figure<Curve>>,
    /// GEMM in 4-bit floats; absent: as in 8-bit ones.
    pub gemm_fp4: Option<Figure<Curve>>,
    /// Forward flash attention against the sequence length.
    pub attention_forward: Figure<Curve>,
    /// Backward flash attention against the sequence length.
    pub attention_backward: Figure<Curve>,
    /// Highest share that the first version of FlashAttention reaches forward; absent: half of what the second does.
    pub flash1: Option<Figure<Share>>,
    /// Highest share that FlashAttention-2 reaches forward; absent: what [`Self::attention_forward`] does.
    pub flash2: Option<Figure<Share>>,
    /// Kernels bound by memory: share of the bandwidth.
    pub memory: Figure<Share>,
}

/// Constants that were fitted together, with their evidence.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted<T> {
    /// The constants.
    pub value: T,
    /// How they are known.
    pub evidence: Evidence,
    /// The rows they were fitted on, and how well, or whose they are.
    pub source: String,
}

/// Constants by number format, as kernels take their factors.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "T: Deserialize<'de>"))]
pub struct ByFormat<T> {
    /// 16-bit floats of either kind.
    pub bf16: Option<Fitted<T>>,
    /// The same, with keys and values in 8 bits.
    pub bf16_kv8: Option<Fitted<T>>,
    /// As `bf16`, by a second library that takes other shapes (FlashInfer).
    pub bf16_flashinfer: Option<Fitted<T>>,
    /// As `bf16_kv8`, by that library.
    pub bf16_kv8_flashinfer: Option<Fitted<T>>,
    /// 8-bit floats with one scale a matrix.
    pub fp8: Option<Fitted<T>>,
    /// 8-bit floats with a scale for each block.
    pub fp8_block: Option<Fitted<T>>,
    /// 4-bit floats with a scale for each 16.
    pub fp4: Option<Fitted<T>>,
    /// As `fp4`, by kernels for few tokens (TensorRT-LLM's `min_latency`).
    pub fp4_min_latency: Option<Fitted<T>>,
    /// As `bf16`, by a library's default kernel, which nothing was timed to choose.
    pub bf16_default: Option<Fitted<T>>,
    /// As `fp8`, by that kernel.
    pub fp8_default: Option<Fitted<T>>,
    /// As `fp4`, by that kernel.
    pub fp4_default: Option<Fitted<T>>,
}

impl<T> Default for ByFormat<T> {
    fn default() -> Self {
        Self {
            bf16: None,
            bf16_kv8: None,
            bf16_flashinfer: None,
            bf16_kv8_flashinfer: None,
            fp8: None,
            fp8_block: None,
            fp4: None,
            fp4_min_latency: None,
            bf16_default: None,
            fp8_default: None,
            fp4_default: None,
        }
    }
}

impl<T> ByFormat<T> {
    /// The constants called `name` in a sheet, and whether there is such a name.
    pub fn named(&self, name: &str) -> Option<Option<&Fitted<T>>> {
        self.all().into_iter().find(|(known, _)| *known == name).map(|(_, found)| found)
    }

    /// All, by name.
    pub fn all(&self) -> [(&'static str, Option<&Fitted<T>>); 11] {
        [
            ("bf16", self.bf16.as_ref()),
            ("bf16_kv8", self.bf16_kv8.as_ref()),
            ("bf16_flashinfer", self.bf16_flashinfer.as_ref()),
            ("bf16_kv8_flashinfer", self.bf16_kv8_flashinfer.as_ref()),
            ("fp8", self.fp8.as_ref()),
            ("fp8_block", self.fp8_block.as_ref()),
            ("fp4", self.fp4.as_ref()),
            ("fp4_min_latency", self.fp4_min_latency.as_ref()),
            ("bf16_default", self.bf16_default.as_ref()),
            ("fp8_default", self.fp8_default.as_ref()),
            ("fp4_default", self.fp4_default.as_ref()),
        ]
    }
}

/// Kernels by tiles and waves.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernels {
    /// Multiprocessors (compute units).
    pub sms: Figure<u64>,
    /// Last-level cache.
    pub cache: Figure<Bytes>,
    /// Products.
    #[serde(default)]
    pub gemm: ByFormat<Tiles>,
    /// Products of routed experts, in one kernel each.
    #[serde(default)]
    pub experts: ByFormat<Tiles>,
    /// Fused attention of inference libraries.
    #[serde(default)]
    pub attention: ByFormat<Flash>,
    /// The same with one query a sequence, over the keys in its cache.
    #[serde(default)]
    pub decode: ByFormat<Flash>,
    /// Fused attention of training, forward; absent: that of inference libraries.
    pub flash: Option<Fitted<Flash>>,
}

impl Kernels {
    /// What a model of tiles needs to know of the GPU in a format of `peak` operations a second.
    pub fn device(&self, peak: f64, bandwidth: f64) -> Device {
        Device { sms: self.sms.value, peak, bandwidth, cache: self.cache.value.get() as f64 }
    }

    fn wrong(&self) -> Option<String> {
        if self.sms.value == 0 || self.cache.value.get() == 0 {
            return Some("`kernels.sms` and `kernels.cache` must be positive".to_owned());
        }
        let attention =
            self.attention.all().into_iter().map(|(name, found)| (format!("attention.{name}"), found));
        let decode = self.decode.all().into_iter().map(|(name, found)| (format!("decode.{name}"), found));
        attention
            .chain(decode)
            .chain([("flash".to_owned(), self.flash.as_ref())])
            .find_map(|(name, found)| Some(format!("`kernels.{name}`: {}", found?.value.wrong()?)))
    }

    fn push<'a>(&'a self, list: &mut Vec<(String, Evidence, &'a str)>) {
        fn all<'a, T>(list: &mut Vec<(String, Evidence, &'a str)>, key: &str, kinds: &'a ByFormat<T>) {
            for (name, found) in kinds.all() {
                if let Some(found) = found {
                    list.push((format!("kernels.{key}.{name}"), found.evidence, &found.source));
                }
            }
        }
        push(list, "kernels.sms", &self.sms);
        push(list, "kernels.cache", &self.cache);
        all(list, "gemm", &self.gemm);
        all(list, "experts", &self.experts);
        all(list, "attention", &self.attention);
        all(list, "decode", &self.decode);
        if let Some(found) = &self.flash {
            list.push(("kernels.flash".to_owned(), found.evidence, &found.source));
        }
    }
}

/// The scale-up link of a GPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleUp {
    /// Name of the link.
    pub name: String,
    /// Rate of one GPU in one direction.
    pub rate: Figure<BitRate>,
    /// What collectives reach of it in payload; absent: not known, all of it.
    pub payload: Option<Figure<BitRate>>,
    /// Latency from GPU to GPU.
    pub latency: Figure<Span>,
    /// GPUs of one domain in the usual machine.
    pub domain: Figure<u64>,
    /// Whether the domain's switches sum what GPUs send; absent: they do not.
    pub reduction: Option<Figure<bool>>,
}

impl ScaleUp {
    /// Rate at which a GPU's payload travels in one direction.
    pub fn payload_rate(&self) -> BitRate {
        self.payload.as_ref().map_or(self.rate.value, |figure| figure.value)
    }
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuSheet {
    /// Name by which scenarios call it.
    pub name: String,
    /// Maker.
    pub vendor: String,
    /// Memory.
    pub memory: Figure<Bytes>,
    /// Memory bandwidth.
    pub memory_bandwidth: Figure<BitRate>,
    /// Peak dense rates.
    pub peak: PeakRates,
    /// Shares of peak that kernels reach.
    pub efficiency: Efficiencies,
    /// Products and attention by tiles and waves; absent: by the curves of [`Self::efficiency`].
    pub kernels: Option<Kernels>,
    /// Time every kernel takes however small.
    pub launch: Figure<Span>,
    /// Scale-up link.
    pub scale_up: ScaleUp,
    /// Share of the rates of kernels measured alone that compute keeps in a training run, where power and heat limit the clock;
    /// absent: not known, all of it.
    pub sustained: Option<Figure<Share>>,
    /// As [`Self::sustained`], of products in 4 bits, which draw less of the power: what their units are busy is a smaller share of
    /// what these can; absent: the same.
    pub sustained_fp4: Option<Figure<Share>>,
    /// Standard deviation of the speeds of GPUs of this kind over their mean; absent: not known, none.
    pub spread: Option<Figure<Share>>,
    /// Factor on the time of computation while a collective runs beside it; absent: not known, none.
    pub overlap_slowdown: Option<Figure<Slowdown>>,
    /// Board power.
    pub power: Option<Figure<Watts>>,
    /// What one costs; absent: not known, for makers publish no prices.
    pub price: Option<Figure<Dollars>>,
}

/// A factor of at least 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Slowdown(pub f64);

impl super::figure::FigureValue for Slowdown {
    fn read(raw: &super::figure::Raw) -> Result<Self, String> {
        match raw {
            super::figure::Raw::Number(factor) if *factor >= 1.0 && factor.is_finite() => Ok(Self(*factor)),
            _ => Err("expected a factor of at least 1".to_owned()),
        }
    }
}

impl GpuSheet {
    /// Reads a sheet.
    ///
    /// # Errors
    /// [`SheetError`].
    pub fn parse(text: &str) -> Result<Self, SheetError> {
        let sheet: Self = parse(text)?;
        if Dtype::ALL.into_iter().all(|dtype| sheet.peak.of(dtype).is_none()) {
            return Err(SheetError::Inconsistent {
                sheet: sheet.name,
                reason: "`peak` names no rate; at least one format is due".to_owned(),
            });
        }
        if sheet.memory.value.get() == 0 || sheet.scale_up.domain.value == 0 {
            return Err(SheetError::Inconsistent {
                sheet: sheet.name,
                reason: "`memory` and `scale_up.domain` must be positive".to_owned(),
            });
        }
        if let Some(reason) = sheet.kernels.as_ref().and_then(Kernels::wrong) {
            return Err(SheetError::Inconsistent { sheet: sheet.name, reason });
        }
        if sheet.scale_up.payload_rate() > sheet.scale_up.rate.value {
            return Err(SheetError::Inconsistent {
                sheet: sheet.name,
                reason: "`scale_up.payload` must not exceed `scale_up.rate`".to_owned(),
            });
        }
        Ok(sheet)
    }

    /// Every figure's key, evidence and source, in the order of the file's schema.
    pub fn evidence(&self) -> Vec<(String, Evidence, &str)> {
        let mut list = Vec::new();
        push(&mut list, "memory", &self.memory);
        push(&mut list, "memory_bandwidth", &self.memory_bandwidth);
        for dtype in Dtype::ALL {
            if let Some(figure) = self.peak.of(dtype) {
                push(&mut list, &format!("peak.{}", dtype.name()), figure);
            }
        }
        push(&mut list, "efficiency.gemm", &self.efficiency.gemm);
        if let Some(figure) = &self.efficiency.gemm_fp8 {
            push(&mut list, "efficiency.gemm_fp8", figure);
        }
        if let Some(figure) = &self.efficiency.gemm_fp4 {
            push(&mut list, "efficiency.gemm_fp4", figure);
        }
        push(&mut list, "efficiency.attention_forward", &self.efficiency.attention_forward);
        push(&mut list, "efficiency.attention_backward", &self.efficiency.attention_backward);
        if let Some(figure) = &self.efficiency.flash1 {
            push(&mut list, "efficiency.flash1", figure);
        }
        if let Some(figure) = &self.efficiency.flash2 {
            push(&mut list, "efficiency.flash2", figure);
        }
        push(&mut list, "efficiency.memory", &self.efficiency.memory);
        if let Some(kernels) = &self.kernels {
            kernels.push(&mut list);
        }
        push(&mut list, "launch", &self.launch);
        push(&mut list, "scale_up.rate", &self.scale_up.rate);
        if let Some(figure) = &self.scale_up.payload {
            push(&mut list, "scale_up.payload", figure);
        }
        push(&mut list, "scale_up.latency", &self.scale_up.latency);
        push(&mut list, "scale_up.domain", &self.scale_up.domain);
        if let Some(figure) = &self.scale_up.reduction {
            push(&mut list, "scale_up.reduction", figure);
        }
        if let Some(figure) = &self.sustained {
            push(&mut list, "sustained", figure);
        }
        if let Some(figure) = &self.sustained_fp4 {
            push(&mut list, "sustained_fp4", figure);
        }
        if let Some(figure) = &self.spread {
            push(&mut list, "spread", figure);
        }
        if let Some(figure) = &self.overlap_slowdown {
            push(&mut list, "overlap_slowdown", figure);
        }
        if let Some(figure) = &self.power {
            push(&mut list, "power", figure);
        }
        if let Some(figure) = &self.price {
            push(&mut list, "price", figure);
        }
        list
    }
}

fn push<'a, T>(list: &mut Vec<(String, Evidence, &'a str)>, key: &str, figure: &'a Figure<T>) {
    list.push((key.to_owned(), figure.evidence, &figure.source));
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicSheet {
    /// Name by which scenarios call it.
    pub name: String,
    /// Maker.
    pub vendor: String,
    /// Rate of the port in one direction.
    pub rate: Figure<BitRate>,
    /// Time a stream is held per message (LogGOPS o).
    pub overhead: Figure<Span>,
    /// Time the NIC is held per message besides its bytes (LogGOPS g).
    pub gap: Figure<Span>,
    /// Latency from doorbell to wire and from wire to memory, together, switches and cables apart.
    pub latency: Figure<Span>,
    /// Packets that a queue pair can have under way where they may arrive out of order; absent: not known.
    pub in_flight: Option<Figure<u64>>,
}

impl NicSheet {
    /// Reads a sheet.
    ///
    /// # Errors
    /// [`SheetError`].
    pub fn parse(text: &str) -> Result<Self, SheetError> {
        parse(text)
    }

    /// Every figure's key, evidence and source.
    pub fn evidence(&self) -> Vec<(String, Evidence, &str)> {
        let mut list = Vec::new();
        push(&mut list, "rate", &self.rate);
        push(&mut list, "overhead", &self.overhead);
        push(&mut list, "gap", &self.gap);
        push(&mut list, "latency", &self.latency);
        if let Some(figure) = &self.in_flight {
            push(&mut list, "in_flight", figure);
        }
        list
    }
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchSheet {
    /// Name by which scenarios call it.
    pub name: String,
    /// Maker.
    pub vendor: String,
    /// Ports at [`Self::rate`].
    pub ports: Figure<u64>,
    /// Rate of a port in one direction.
    pub rate: Figure<BitRate>,
    /// Switching rate of the whole chip in one direction.
    pub capacity: Figure<BitRate>,
    /// Port-to-port latency.
    pub latency: Figure<Span>,
    /// Shared packet buffer; absent: not published.
    pub buffer: Option<Figure<Bytes>>,
    /// Most ports, at lower rates, into which its own may be split; absent: as many as [`Self::ports`].
    pub radix: Option<Figure<u64>>,
    /// Of the box without its modules; absent: not known.
    pub power: Option<Figure<Watts>>,
    /// Of the box without its modules; absent: not known.
    pub price: Option<Figure<Dollars>>,
}

impl SwitchSheet {
    /// Reads a sheet.
    ///
    /// # Errors
    /// [`SheetError`]; [`SheetError::Inconsistent`] when the ports outrun the chip.
    pub fn parse(text: &str) -> Result<Self, SheetError> {
        let sheet: Self = parse(text)?;
        let ports = u128::from(sheet.ports.value) * u128::from(sheet.rate.value.bps());
        if ports > u128::from(sheet.capacity.value.bps()) {
            return Err(SheetError::Inconsistent {
                reason: format!(
                    "{} ports of {} bit/s outrun its capacity: {} bit/s",
                    sheet.ports.value,
                    sheet.rate.value.bps(),
                    sheet.capacity.value.bps()
                ),
                sheet: sheet.name,
            });
        }
        Ok(sheet)
    }

    /// Every figure's key, evidence and source.
    pub fn evidence(&self) -> Vec<(String, Evidence, &str)> {
        let mut list = Vec::new();
        push(&mut list, "ports", &self.ports);
        push(&mut list, "rate", &self.rate);
        push(&mut list, "capacity", &self.capacity);
        push(&mut list, "latency", &self.latency);
        if let Some(figure) = &self.buffer {
            push(&mut list, "buffer", figure);
        }
        if let Some(figure) = &self.radix {
            push(&mut list, "radix", figure);
        }
        if let Some(figure) = &self.power {
            push(&mut list, "power", figure);
        }
        if let Some(figure) = &self.price {
            push(&mut list, "price", figure);
        }
        list
    }
}

/// What joins two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OpticsKind {
    /// Direct-attach copper: a whole cable.
    Dac,
    /// Active optical cable: a whole cable with its modules.
    Aoc,
    /// A module; a link takes two and a fibre.
    Transceiver,
}

/// A cable or a transceiver.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpticsSheet {
    /// Name by which reports call it.
    pub name: String,
    /// What it is.
    pub kind: OpticsKind,
    /// Rate in one direction.
    pub rate: Figure<BitRate>,
    /// Longest link.
    pub reach: Figure<Millimetres>,
    /// Of one end.
    pub power: Figure<Watts>,
    /// Of a whole cable, or of one transceiver.
    pub price: Figure<Dollars>,
    /// Of a metre of what is between transceivers, or of a metre of cable beyond the first; absent: nothing.
    pub price_per_metre: Option<Figure<Dollars>>,
}

impl OpticsSheet {
    /// Reads a sheet.
    ///
    /// # Errors
    /// [`SheetError`].
    pub fn parse(text: &str) -> Result<Self, SheetError> {
        parse(text)
    }

    /// Every figure's key, evidence and source.
    pub fn evidence(&self) -> Vec<(String, Evidence, &str)> {
        let mut list = Vec::new();
        push(&mut list, "rate", &self.rate);
        push(&mut list, "reach", &self.reach);
        push(&mut list, "power", &self.power);
        push(&mut list, "price", &self.price);
        if let Some(figure) = &self.price_per_metre {
            push(&mut list, "price_per_metre", figure);
        }
        list
    }
}

/// What a model sheet describes.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelKind {
    /// A transformer.
    Transformer(Architecture),
    /// A recommendation model.
    Dlrm(super::dlrm::DlrmArchitecture),
}

/// A model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSheet {
    /// Name by which scenarios call it.
    pub name: String,
    /// How its shape is known.
    pub evidence: Evidence,
    /// Where its shape is from.
    pub source: String,
    /// Published number of parameters, as a check.
    pub parameters: Option<Figure<u64>>,
    /// Its shape.
    pub kind: ModelKind,
}

impl ModelSheet {
    /// Reads a sheet: `{name, evidence, source, parameters, config}`, where `config` has the keys of a HuggingFace
    /// `config.json`, or `model_type: dlrm`.
    ///
    /// # Errors
    /// [`SheetError`]; [`SheetError::Inconsistent`] when the shape does not have the published number of parameters.
    pub fn parse(text: &str) -> Result<Self, SheetError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Plain {
            name: String,
            evidence: Evidence,
            source: String,
            parameters: Option<Figure<u64>>,
            config: Value,
        }
        let plain: Plain = parse(text)?;
        let kind = if plain.config.get("model_type") == Some(&Value::from("dlrm")) {
            ModelKind::Dlrm(
                serde_json::from_value(plain.config)
                    .map_err(|error| SheetError::Syntax(format!("`config`: {error}")))?,
            )
        } else {
            ModelKind::Transformer(Architecture::from_value(&plain.config)?)
        };
        let sheet = Self {
            name: plain.name,
            evidence: plain.evidence,
            source: plain.source,
            parameters: plain.parameters,
            kind,
        };
        if sheet.source.trim().is_empty() {
            return Err(SheetError::Inconsistent {
                sheet: sheet.name,
                reason: "`source` is empty".to_owned(),
            });
        }
        if let (Some(published), ModelKind::Transformer(model)) = (&sheet.parameters, &sheet.kind)
            && published.value != model.parameters()
        {
            return Err(SheetError::Inconsistent {
                reason: format!(
                    "shape has {} parameters, `parameters` says {}",
                    model.parameters(),
                    published.value
                ),
                sheet: sheet.name,
            });
        }
        Ok(sheet)
    }
}
