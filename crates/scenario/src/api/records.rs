//! Parts of JSON texts, for who needs few of many: a summary is mostly evidence, and studies read thousands.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use windtunnel_plan::error::{Failure, InputError};

/// The members of a JSON record that are called `keys`, in the order in which it has them, as a record of their own.
/// Their text is as it was; what the record does not have is left out.
///
/// # Errors
/// [`Failure::Input`] for a text that is no record.
pub fn members(text: &str, keys: &[String]) -> Result<String, Failure> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = reader.deserialize_map(Members(keys)).and_then(|found| reader.end().map(|()| found));
    found.map_err(|error| InputError::new("members", format!("expected a JSON record: {error}")).into())
}

struct Members<'a>(&'a [String]);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a record")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut record: A) -> Result<String, A::Error> {
        let mut found = String::from("{");
        while let Some(key) = record.next_key::<Cow<'de, str>>()? {
            if !self.0.iter().any(|wanted| *wanted == key) {
                record.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: &RawValue = record.next_value()?;
            if found.len() > 1 {
                found.push(',');
            }
            found += &serde_json::Value::from(&*key).to_string();
            found.push(':');
            found += value.get();
        }
        found.push('}');
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, keys: &[&str]) -> Result<String, Failure> {
        members(text, &keys.iter().map(|&key| key.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn members_keep_their_order_and_their_text() {
        let text = r#"{"a": [1, {"b": 2}], "b": 1e-3, "c\"d": "x", "e": null}"#;
        assert_eq!(of(text, &["b", "a"]).unwrap(), r#"{"a":[1, {"b": 2}],"b":1e-3}"#);
        assert_eq!(of(text, &["c\"d", "e"]).unwrap(), r#"{"c\"d":"x","e":null}"#);
        assert_eq!(of(text, &["d"]).unwrap(), "{}");
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for text in ["", "[1]", r#"{"a": 1"#, r#"{"a": 1} 2"#] {
            assert!(of(text, &["a"]).is_err(), "{text}");
        }
    }
}
