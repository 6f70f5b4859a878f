//! Names of things that are described where they are: [`Listed`] of any crate below.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use windtunnel_kernel::registry::Listed;

/// The name of a thing, read as the thing. In the schema each name stands with its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Name<T>(pub T);

impl<'de, T: Listed> Deserialize<'de> for Name<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As an enum without fields is read, so that what is no name is refused in the same words.
        deserializer.deserialize_enum(T::WHAT, T::NAMES, OneOf(PhantomData))
    }
}

struct OneOf<T>(PhantomData<T>);

impl<'de, T: Listed> de::Visitor<'de> for OneOf<T> {
    type Value = Name<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_enum<A: de::EnumAccess<'de>>(self, access: A) -> Result<Name<T>, A::Error> {
        let (found, rest) = access.variant_seed(Word(PhantomData))?;
        de::VariantAccess::unit_variant(rest)?;
        Ok(Name(found))
    }
}

struct Word<T>(PhantomData<T>);

impl<'de, T: Listed> de::DeserializeSeed<'de> for Word<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<T: Listed> de::Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("variant identifier")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<T, E> {
        T::by_name(name).ok_or_else(|| E::unknown_variant(name, T::NAMES))
    }
}

impl<T: Listed> JsonSchema for Name<T> {
    fn schema_name() -> Cow<'static, str> {
        let words = T::WHAT.split([' ', '-']).map(|word| word[..1].to_uppercase() + &word[1..]);
        (words.collect::<String>() + "Name").into()
    }

    fn schema_id() -> Cow<'static, str> {
        std::any::type_name::<T>().into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut words = Vec::new();
        for entry in T::ALL.iter().map(|listed| listed.entry()) {
            for name in [entry.name].iter().chain(entry.aliases) {
                words.push(json_schema!({
                    "type": "string",
                    "const": name,
                    "description": entry.sentence(),
                }));
            }
        }
        json_schema!({ "oneOf": words })
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer;
    use windtunnel_cluster::placement::Locality;

    use super::*;

    /// What serde's own derive makes of the same names.
    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Derived {
        Anywhere,
        FewestHosts,
        Leaf,
        Pod,
    }

    #[test]
    fn names_are_read_and_refused_as_those_of_a_derived_enum() {
        for locality in Locality::ALL {
            let read: Result<_, de::value::Error> =
                Name::<Locality>::deserialize(locality.name().into_deserializer());
            assert_eq!(read, Ok(Name(locality)));
        }
        for wrong in ["\"laef\"", "3", "[]", "{\"leaf\": 1}", "{\"laef\": 1}", "{}", "null", "true"] {
            let error = |found: Result<String, serde_json::Error>| found.expect_err(wrong).to_string();
            let ours = serde_json::from_str::<Name<Locality>>(wrong).map(|found| format!("{found:?}"));
            let derived = serde_json::from_str::<Derived>(wrong).map(|found| format!("{found:?}"));
            assert_eq!(error(ours), error(derived), "{wrong}");
        }
        for wrong in ["laef", "3", "[]", "{}", "true"] {
            let ours = crate::load::from_yaml::<Name<Locality>>(wrong, "a.yaml").expect_err(wrong);
            let derived = crate::load::from_yaml::<Derived>(wrong, "a.yaml").expect_err(wrong);
            assert_eq!(ours, derived, "{wrong}");
        }
    }
}
