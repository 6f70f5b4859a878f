//! Transports and their laws in the schema; names are texts, since a program may bring transports of its own.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use windtunnel_fabric::packet::TransportChoice;
use windtunnel_kernel::registry::Entry;

/// The built-in transports, or any other text.
pub(super) struct TransportNames;

/// The congestion laws of the built-in transports.
pub(super) struct LawNames;

fn word((name, entry): (&str, Entry)) -> Schema {
    json_schema!({ "type": "string", "const": name, "description": entry.sentence() })
}

impl JsonSchema for TransportNames {
    fn schema_name() -> Cow<'static, str> {
        "TransportName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let known = TransportChoice::ENTRIES.into_iter().map(|entry| word((entry.name, entry)));
        let any: Vec<Schema> = known.chain([json_schema!({ "type": "string" })]).collect();
        json_schema!({ "anyOf": any })
    }
}

impl JsonSchema for LawNames {
    fn schema_name() -> Cow<'static, str> {
        "CongestionLawName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let laws = TransportChoice::LAWS.into_iter().zip(TransportChoice::ENTRIES);
        json_schema!({ "oneOf": laws.map(word).collect::<Vec<Schema>>() })
    }
}
