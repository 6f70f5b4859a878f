//! How lost packets are sent again.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, IntoDeserializer};
use serde::{Deserialize, Deserializer};
use windtunnel_fabric::packet::transport::{Mending, SELECTIVE};

use super::name::Name;

/// A name, or `{selective: {reorder: …}}`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecoveryKeys {
    /// How.
    pub of: &'static Mending,
    /// Later packets that show a loss, for `selective`.
    pub reorder: Option<u32>,
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
                f.write_str("the name of a recovery, or `{selective: {reorder: …}}`")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<RecoveryKeys, E> {
                let Name(of) = Name::deserialize(name.into_deserializer())?;
                Ok(RecoveryKeys { of, reorder: None })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, entries: A) -> Result<RecoveryKeys, A::Error> {
                let Keys { selective } = Keys::deserialize(de::value::MapAccessDeserializer::new(entries))?;
                Ok(RecoveryKeys { of: &SELECTIVE, reorder: selective.reorder })
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// `selective` with its keys.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Keys {
    /// The missing ones alone, once `reorder` later ones have arrived.
    selective: SelectiveKeys,
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
        ] {
            let found = read(text).map(|found| (found.of.entry.name, found.reorder));
            assert_eq!(found, Ok((name, reorder)), "{text}");
        }
        for (wrong, expected) in [
            ("{\"rack\": {}}", "`selective`"),
            ("\"sack\"", "expected one of `none`, `go_back_n`, `selective`, `rack`, `timer`"),
            ("{\"selective\": {\"packets\": 1}}", "`reorder`"),
            ("3", "the name of a recovery"),
        ] {
            let message = read(wrong).expect_err(wrong);
            assert!(message.contains(expected), "{wrong}: {message}");
        }
    }
}
