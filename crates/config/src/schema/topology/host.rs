//! Hosts as they are written.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};
use windtunnel_kernel::Span;

use super::one;
use crate::schema::quantity::{Duration, Rate};

/// A host: its GPUs, NICs and scale-up domain.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// GPU data sheet: its name or file, or one that derives from it, `{sheet: H100-SXM, scale_up: {rate: 200 GB/s}}`: keys as in a
    /// sheet, with figures or bare values; `null` takes a key away.
    #[serde(default)]
    pub gpu: Option<SheetChoice>,
    /// GPUs per host.
    #[serde(default = "one")]
    pub gpus: u32,
    /// NICs per host: GPUs share them, or have several each over which their messages spread.
    #[serde(default = "one")]
    pub nics: u32,
    /// NIC data sheet.
    #[serde(default)]
    pub nic: Option<String>,
    /// Whether NIC i of every host goes to the leaf of rail i; the number of rails, which is that of the NICs, says the
    /// same as `true`.
    #[serde(default)]
    pub rails: Rails,
    /// The links between the GPUs of a scale-up domain; from the GPU's data sheet if left out.
    #[serde(default)]
    pub scale_up: Option<ScaleUp>,
    /// Time from a message's request to its first byte on the NIC; from the NIC's data sheet if left out.
    #[serde(default)]
    pub overhead: Option<Duration>,
    /// What hands messages over between a NIC and the GPUs' memory (PCIe, NVLink-C2C); as fast as the NIC and without latency if
    /// left out.
    #[serde(default)]
    pub nic_bus: Option<NicBus>,
}

/// A data sheet: one that is there, or one that derives from it.
#[derive(Clone, Debug, PartialEq)]
pub struct SheetChoice {
    /// Its name, or a file.
    pub sheet: String,
    /// What differs.
    pub changes: Map<String, Value>,
}

impl<'de> Deserialize<'de> for SheetChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SheetVisitor)
    }
}

struct SheetVisitor;

impl<'de> de::Visitor<'de> for SheetVisitor {
    type Value = SheetChoice;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a data sheet, or `{sheet: NAME, …}` with what differs from it")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<SheetChoice, E> {
        Ok(SheetChoice { sheet: name.to_owned(), changes: Map::new() })
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<SheetChoice, A::Error> {
        let (mut sheet, mut changes) = (None, Map::new());
        while let Some(key) = map.next_key::<String>()? {
            if key == "sheet" {
                sheet = Some(map.next_value()?);
            } else {
                changes.insert(key, map.next_value()?);
            }
        }
        Ok(SheetChoice { sheet: sheet.ok_or_else(|| de::Error::missing_field("sheet"))?, changes })
    }
}

impl JsonSchema for SheetChoice {
    fn schema_name() -> Cow<'static, str> {
        "SheetChoice".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "object"], "required": ["sheet"], "properties": { "sheet": { "type": "string" } } })
    }

    fn inline_schema() -> bool {
        true
    }
}

/// What joins a NIC to its host.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NicBus {
    /// Rate in each direction, of packets with their headers. Where it is less than the NIC's, the NIC sends and takes in no faster:
    /// what does not fit waits in the sender, and at the port that leads to the receiver.
    pub rate: Rate,
    /// Latency of a hand-over, of which a message has one at either end.
    #[serde(default = "none")]
    pub latency: Duration,
}

const fn none() -> Duration {
    Duration(Span::ZERO)
}

/// The scale-up domain (NVLink, NVSwitch, xGMI).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScaleUp {
    /// Rate of a GPU in each direction; from the GPU's data sheet if left out.
    pub rate: Option<Rate>,
    /// Latency between two GPUs; likewise.
    pub latency: Option<Duration>,
    /// GPUs of a domain: a divisor of a host's GPUs, or a multiple where a domain spans several hosts (72 in a rack of 18
    /// hosts of 4). All of a host if left out.
    pub size: Option<u32>,
    /// Whether its switches sum what GPUs send (NVLink SHARP); from the GPU's data sheet if left out.
    pub reduction: Option<bool>,
}

impl Default for Host {
    /// One GPU and one NIC of unknown make.
    fn default() -> Self {
        Self {
            gpu: None,
            gpus: 1,
            nics: 1,
            nic: None,
            rails: Rails::No,
            scale_up: None,
            overhead: None,
            nic_bus: None,
        }
    }
}

/// Whether the NICs of a host go to leaves of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rails {
    /// All go to one leaf.
    #[default]
    No,
    /// NIC i goes to the leaf of rail i.
    Yes,
    /// So many rails.
    Count(u32),
}

impl<'de> Deserialize<'de> for Rails {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RailsVisitor)
    }
}

struct RailsVisitor;

impl de::Visitor<'_> for RailsVisitor {
    type Value = Rails;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`true`, `false` or the number of rails")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Rails, E> {
        Ok(if value { Rails::Yes } else { Rails::No })
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Rails, E> {
        u32::try_from(value)
            .map(Rails::Count)
            .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &self))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Rails, E> {
        u64::try_from(value)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))
            .and_then(|value| self.visit_u64(value))
    }
}

impl JsonSchema for Rails {
    fn schema_name() -> Cow<'static, str> {
        "Rails".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["boolean", "integer"], "minimum": 0 })
    }

    fn inline_schema() -> bool {
        true
    }
}
