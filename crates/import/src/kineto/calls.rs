//! What a recording says of a collective: arguments of kernels, shapes of annotations, lists of groups.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A process group as `distributedInfo.pg_config` lists it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct PgConfig {
    #[serde(default, deserialize_with = "text")]
    pub pg_name: String,
    #[serde(default, deserialize_with = "text")]
    pub pg_desc: String,
    #[serde(default)]
    pub ranks: Vec<u32>,
}

/// A text, or a number as one.
fn text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    })
}

/// The shape of an input: numbers of elements, and the type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dims {
    pub elements: u64,
    pub element_bytes: u64,
}

/// Arguments of an event, those that are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub stream: Option<i64>,
    pub correlation: Option<i64>,
    pub wait_on_stream: Option<i64>,
    pub wait_on_record: Option<i64>,
    pub collective: Option<String>,
    pub dtype: Option<String>,
    pub sent: Option<u64>,
    pub received: Option<u64>,
    pub group_name: Option<String>,
    pub group_text: Option<String>,
    pub group_size: Option<u64>,
    pub group_ranks: Option<Vec<u32>>,
    pub rank_start: Option<i64>,
    pub rank_stride: Option<i64>,
    pub rank: Option<i64>,
    pub source: Option<i64>,
    pub destination: Option<i64>,
    pub sequence: Option<i64>,
    pub split_in: Vec<u64>,
    /// What a copy moves.
    pub bytes: Option<u64>,
}

#[derive(Deserialize, Default)]
struct Raw<'a> {
    #[serde(borrow, default)]
    stream: Option<&'a RawValue>,
    #[serde(borrow, default)]
    correlation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    wait_on_stream: Option<&'a RawValue>,
    #[serde(borrow, default)]
    wait_on_cuda_event_record_corr_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Collective name")]
    collective: Option<&'a RawValue>,
    #[serde(borrow, default)]
    dtype: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "In msg nelems")]
    sent: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Out msg nelems")]
    received: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Process Group Name")]
    group_name: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Process Group Description")]
    group_text: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Process Group Ranks")]
    group_ranks: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Group size")]
    group_size: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Global rank start")]
    rank_start: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Global rank stride")]
    rank_stride: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Rank")]
    rank: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Src Rank")]
    source: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Dst Rank")]
    destination: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Seq")]
    sequence: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "In split size")]
    split_in: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Input Dims")]
    dims: Option<&'a RawValue>,
    #[serde(borrow, default)]
    bytes: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Input type")]
    types: Option<&'a RawValue>,
}

/// A whole number, also one in quotes.
fn integer(raw: Option<&RawValue>) -> Option<i64> {
    raw?.get().trim_matches('"').parse().ok()
}

fn count(raw: Option<&RawValue>) -> Option<u64> {
    integer(raw).and_then(|value| u64::try_from(value).ok())
}

fn string(raw: Option<&RawValue>) -> Option<String> {
    let text = raw?.get();
    if text.starts_with('"') { serde_json::from_str(text).ok() } else { Some(text.to_owned()) }
}

/// A list of numbers, or a text that is one; `None` where it was shortened (`[0, 1, ..., 63]`).
fn list(raw: Option<&RawValue>) -> Option<Vec<u64>> {
    let text = string(raw)?;
    serde_json::from_str(&text).ok()
}

impl Arguments {
    /// Those of an event; what cannot be read is absent.
    pub(crate) fn parse(raw: Option<&RawValue>) -> Self {
        let Some(raw) = raw else { return Self::default() };
        if let Ok(raw) = serde_json::from_str::<Raw<'_>>(raw.get()) {
            return Self::of(&raw);
        }
        // A key that is there twice: the last one holds, as everywhere in JSON.
        let Some(text) = without_repeats(raw.get()) else { return Self::default() };
        serde_json::from_str::<Raw<'_>>(&text).map(|raw| Self::of(&raw)).unwrap_or_default()
    }

    fn of(raw: &Raw<'_>) -> Self {
        let mut found = Self {
            stream: integer(raw.stream),
            correlation: integer(raw.correlation),
            wait_on_stream: integer(raw.wait_on_stream),
            wait_on_record: integer(raw.wait_on_cuda_event_record_corr_id),
            bytes: count(raw.bytes),
            ..Self::default()
        };
        if raw.collective.is_some() {
            let ranks = list(raw.group_ranks)
                .and_then(|ranks| ranks.into_iter().map(|rank| u32::try_from(rank).ok()).collect());
            found.collective = string(raw.collective);
            found.dtype = string(raw.dtype);
            found.sent = count(raw.sent);
            found.received = count(raw.received);
            found.group_name = string(raw.group_name);
            found.group_text = string(raw.group_text);
            found.group_size = count(raw.group_size);
            found.group_ranks = ranks;
            found.rank_start = integer(raw.rank_start);
            found.rank_stride = integer(raw.rank_stride);
            found.rank = integer(raw.rank);
            found.source = integer(raw.source);
            found.destination = integer(raw.destination);
            found.sequence = integer(raw.sequence);
            found.split_in = list(raw.split_in).unwrap_or_default();
        }
        found
    }

    /// The other rank of a message that an annotation says.
    pub(crate) fn parse_peer(raw: Option<&RawValue>) -> Option<i64> {
        let text = without_repeats(raw?.get())?;
        let raw: Raw<'_> = serde_json::from_str(&text).ok()?;
        integer(raw.destination).or_else(|| integer(raw.source)).or_else(|| integer(raw.rank))
    }

    /// The first input's shape and type, where shapes were recorded.
    pub(crate) fn parse_dims(raw: Option<&RawValue>) -> Option<Dims> {
        let text = without_repeats(raw?.get())?;
        let raw: Raw<'_> = serde_json::from_str(&text).ok()?;
        let dims: Vec<serde_json::Value> = serde_json::from_str(raw.dims?.get()).ok()?;
        let types: Vec<String> = serde_json::from_str(raw.types?.get()).ok()?;
        let shape = dims.first()?.as_array()?;
        if shape.is_empty() {
            return None;
        }
        let mut elements = 1u64;
        for size in shape {
            elements = elements.checked_mul(size.as_u64()?)?;
        }
        Some(Dims { elements, element_bytes: element_bytes(types.first()?)? })
    }
}

/// An object's text with each key once, the last one.
fn without_repeats(text: &str) -> Option<String> {
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).ok()?;
    serde_json::to_string(&members).ok()
}

/// A text with `NaN` and `Infinity`, which are no JSON, in quotes, so that they are no number where one is wanted; `None` where it has none of them.
pub(crate) fn with_words_for_numbers(text: &[u8]) -> Option<Vec<u8>> {
    let mut mended = Vec::with_capacity(text.len());
    let (mut at, mut quoted, mut found) = (0, false, false);
    while let Some(&byte) = text.get(at) {
        let word =
            [&b"-Infinity"[..], b"Infinity", b"NaN"].into_iter().find(|word| text[at..].starts_with(word));
        if let (false, Some(word)) = (quoted, word) {
            mended.extend([b"\"", word, b"\""].concat());
            at += word.len();
            found = true;
            continue;
        }
        if byte == b'\\' && quoted {
            mended.push(byte);
            at += 1;
        } else if byte == b'"' {
            quoted = !quoted;
        }
        mended.extend(text.get(at));
        at += 1;
    }
    found.then_some(mended)
}

/// Bytes of an element by the names that ATen, c10 and NCCL have for types.
pub(crate) fn element_bytes(dtype: &str) -> Option<u64> {
    let name = dtype
        .trim_start_matches("Tensor(")
        .trim_end_matches(')')
        .trim_start_matches("c10::")
        .to_ascii_lowercase();
    Some(match name.as_str() {
        "byte" | "char" | "bool" | "uint8" | "int8" | "unsigned char" | "signed char" | "uint8_t"
        | "int8_t" | "qint8" | "quint8" => 1,
        name if name.starts_with("float8") || name.starts_with("float4") => 1,
        "half" | "bfloat16" | "float16" | "short" | "int16" | "short int" | "uint16" | "fp16" | "bf16" => 2,
        "float" | "int" | "float32" | "int32" | "uint32" | "fp32" | "qint32" | "complexhalf" => 4,
        "double" | "long" | "long int" | "int64" | "float64" | "uint64" | "complexfloat"
        | "complex<float>" => 8,
        "complexdouble" | "complex<double>" => 16,
        _ => return None,
    })
}
