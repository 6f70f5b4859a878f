//! How lost packets are sent again.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, IntoDeserializer};
use serde::{Deserialize, Deserializer};
use windtunnel_fabric::coding::Coding;
use windtunnel_fabric::packet::transport::{ERASURE, Mending, SELECTIVE};

use super::name::Name;

/// A name, `{selective: {reorder: …}}`, or `{erasure: {data: …, parity: …}}`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecoveryKeys {
    /// How.
    pub of: &'static Mending,
    /// Later packets that show a loss, for `selective`.
    pub reorder: Option<u32>,
    /// Blocks, for `erasure`.
    pub erasure: ErasureKeys,
}

/// Blocks for `recovery: {erasure: …}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ErasureKeys {
    /// Packets of data in a block, 1 or more. Any as many packets of a block restore the others.
    pub data: u16,
    /// Packets of parity after them, 1 or more; the last block of a message has fewer, in proportion. A block has 64 packets at most.
    pub parity: u16,
}

impl Default for ErasureKeys {
    fn default() -> Self {
        let [data, parity] = Coding::default().sizes();
        Self { data, parity }
    }
}

/// What shows a loss for `recovery: {selective: …}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SelectiveKeys {
    /// Later packets that show a loss, 1 or more. If left out: the transport's own, or 3, or 64 where packets spread.
    pub reorder: Option<u32>,
}

// By hand, so that a fault inside is told where it stands: an untagged enum knows only that nothing fits.
impl<'de> Deserialize<'de> for RecoveryKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = RecoveryKeys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a recovery, `{selective: {reorder: …}}`, or `{erasure: {data: …, parity: …}}`")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<RecoveryKeys, E> {
                let Name(of) = Name::deserialize(name.into_deserializer())?;
                Ok(RecoveryKeys { of, reorder: None, erasure: ErasureKeys::default() })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, entries: A) -> Result<RecoveryKeys, A::Error> {
                Ok(match Keys::deserialize(de::value::MapAccessDeserializer::new(entries))? {
                    Keys::Selective(keys) => {
                        let erasure = ErasureKeys::default();
                        RecoveryKeys { of: &SELECTIVE, reorder: keys.reorder, erasure }
                    }
                    Keys::Erasure(erasure) => RecoveryKeys { of: &ERASURE, reorder: None, erasure },
                })
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// One that has keys.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Keys {
    /// The missing ones alone, once `reorder` later ones have arrived.
    Selective(SelectiveKeys),
    /// Parity beside the data restores them.
    Erasure(ErasureKeys),
}

impl JsonSchema for RecoveryKeys {
    fn schema_name() -> Cow<'static, str> {
        "Recovery".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (name, keys) = (generator.subschema_for::<Name<&Mending>>(), generator.subschema_for::<Keys>());
        json_schema!({ "anyOf": [name, keys] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_selective_with_its_count() {
        let read = |text: &str| serde_json::from_str::<RecoveryKeys>(text).map_err(|error| error.to_string());
        for (text, name, reorder) in [
            ("\"rack\"", "rack", None),
            ("\"go_back_n\"", "go_back_n", None),
            ("\"selective\"", "selective", None),
            ("{\"selective\": {}}", "selective", None),
            ("{\"selective\": {\"reorder\": 16}}", "selective", Some(16)),
            ("\"erasure\"", "erasure", None),
            ("{\"erasure\": {\"data\": 8}}", "erasure", None),
        ] {
            let found = read(text).map(|found| (found.of.entry.name, found.reorder));
            assert_eq!(found, Ok((name, reorder)), "{text}");
        }
        for (wrong, expected) in [
            ("{\"rack\": {}}", "`selective`"),
            ("\"sack\"", "expected one of `none`, `go_back_n`, `selective`, `rack`, `timer`, `erasure`"),
            ("{\"selective\": {\"packets\": 1}}", "`reorder`"),
            ("{\"erasure\": {\"rate\": 1}}", "`data` or `parity`"),
            ("3", "the name of a recovery"),
        ] {
            let message = read(wrong).expect_err(wrong);
            assert!(message.contains(expected), "{wrong}: {message}");
        }
    }
}
