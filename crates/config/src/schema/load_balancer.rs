//! How a path is chosen among equal ones, and by what hash.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, IntoDeserializer};
use serde::{Deserialize, Deserializer};
use windtunnel_fabric::balancers::{Balancing, ECMP};
use windtunnel_topology::{EcmpHash, HashFamily};

use super::name::Name;

/// A name, or `{ecmp: …}` with what switches hash by.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadBalancer {
    /// How a path is chosen.
    pub of: &'static Balancing,
    /// What switches hash by, for `ecmp`.
    pub hash: EcmpKeys,
    /// Whether the scenario says so.
    pub given: bool,
}

/// What switches hash by for `load_balancer: {ecmp: …}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EcmpKeys {
    /// The function of a packet's five-tuple.
    pub hash: Name<HashFamily>,
    /// Whether each switch has a seed of its own. Without, switches of all tiers choose alike, and what one has sent by a port the
    /// next sends by one port too (polarisation). If left out: with `mixed` they have, with the others not, as switches are
    /// delivered.
    pub switch_seeds: Option<bool>,
}

impl EcmpKeys {
    /// The topology's word for it.
    pub fn of(self) -> EcmpHash {
        let Name(family) = self.hash;
        EcmpHash { family, switch_seeds: self.switch_seeds.unwrap_or(family == HashFamily::Mixed) }
    }
}

// By hand, so that a fault inside is told where it stands: an untagged enum knows only that nothing fits.
impl<'de> Deserialize<'de> for LoadBalancer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = LoadBalancer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a load balancer, or `{ecmp: {hash: …}}`")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<LoadBalancer, E> {
                let Name(of) = Name::deserialize(name.into_deserializer())?;
                Ok(LoadBalancer { of, hash: EcmpKeys::default(), given: true })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, entries: A) -> Result<LoadBalancer, A::Error> {
                let Keys { ecmp } = Keys::deserialize(de::value::MapAccessDeserializer::new(entries))?;
                Ok(LoadBalancer { of: &ECMP, hash: ecmp, given: true })
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// `ecmp` with its keys.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Keys {
    /// A hash of the flow at each switch.
    ecmp: EcmpKeys,
}

impl JsonSchema for LoadBalancer {
    fn schema_name() -> Cow<'static, str> {
        "LoadBalancer".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (name, keys) = (generator.subschema_for::<Name<&Balancing>>(), generator.subschema_for::<Keys>());
        json_schema!({ "anyOf": [name, keys] })
    }
}

#[cfg(test)]
mod tests {
    use windtunnel_fabric::balancers::SPRAY;

    use super::*;

    #[test]
    fn a_name_or_ecmp_with_its_hash() {
        let read = |text: &str| serde_json::from_str::<LoadBalancer>(text).map_err(|error| error.to_string());
        assert_eq!(read("\"spray\"").map(|found| found.of), Ok(&SPRAY));
        assert_eq!(read("\"ecmp\"").map(|found| found.hash.of()), Ok(EcmpHash::default()));
        for (keys, family, switch_seeds) in [
            ("{}", HashFamily::Mixed, true),
            ("{\"hash\": \"mixed\", \"switch_seeds\": false}", HashFamily::Mixed, false),
            ("{\"hash\": \"crc32\"}", HashFamily::Crc32, false),
            ("{\"hash\": \"crc16\", \"switch_seeds\": true}", HashFamily::Crc16, true),
            ("{\"hash\": \"xor\"}", HashFamily::Xor, false),
        ] {
            let found = read(&format!("{{\"ecmp\": {keys}}}")).expect(keys);
            assert_eq!((found.of, found.hash.of()), (&ECMP, EcmpHash { family, switch_seeds }));
        }
        for (wrong, expected) in [
            ("{\"spray\": {}}", "`ecmp`"),
            ("{\"ecmp\": {\"hash\": \"md5\"}}", "expected one of `mixed`, `crc16`, `crc32`, `xor`"),
            ("{\"ecmp\": {\"seed\": 1}}", "`switch_seeds`"),
            ("3", "the name of a load balancer"),
        ] {
            let message = read(wrong).expect_err(wrong);
            assert!(message.contains(expected), "{wrong}: {message}");
        }
    }
}
