//! A line of JSON as fields that know their column.

use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use windtunnel_kernel::nearest;
use windtunnel_kernel::registry::Listed;
use windtunnel_kernel::units::{self, parse_quantity};

use super::Fault;

/// The members of a JSON object in file order, borrowed from their line.
struct Members<'a>(Vec<(&'a str, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// One value and where it stands.
#[derive(Clone, Copy)]
pub(super) struct Value<'a> {
    pub text: &'a str,
    pub line: u64,
    pub column: u64,
}

/// An object of a line.
pub(super) struct Fields<'a> {
    members: Vec<(&'a str, &'a RawValue)>,
    whole: &'a str,
    line: u64,
    /// Column of the object.
    column: u64,
}

/// Byte offset of `part` in `whole`, of which it is a slice.
fn offset(whole: &str, part: &str) -> u64 {
    (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize) as u64
}

/// serde_json's message without its own place.
fn bare(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(message, _)| message.to_owned())
}

impl<'a> Fields<'a> {
    /// The object that is `text`, a slice of the line `whole`.
    pub(super) fn parse(whole: &'a str, text: &'a str, line: u64) -> Result<Self, Fault> {
        let column = offset(whole, text) + 1;
        let Members(members) = serde_json::from_str(text).map_err(|error| {
            // A cut-off line is reported behind its line feed; the error is inside the line.
            let within = (error.column().max(1) as u64 - 1).min(text.trim_end().len() as u64);
            let within = if error.line() > 1 { text.trim_end().len() as u64 } else { within };
            Fault::new(line, column + within, format!("expected a JSON object, found {}", bare(&error)))
                .hint("every line is one object such as {\"id\": \"a\", \"compute\": \"5 us\"}")
        })?;
        let fields = Self { members, whole, line, column };
        for (index, (key, _)) in fields.members.iter().enumerate() {
            if fields.members[..index].iter().any(|(earlier, _)| earlier == key) {
                return Err(fields.fault_at_key(key, format!("`{key}` is given twice")));
            }
        }
        Ok(fields)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.members.iter().map(|(key, _)| *key)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.keys().any(|known| known == key)
    }

    pub(super) fn get(&self, key: &str) -> Option<Value<'a>> {
        let (_, value) = self.members.iter().find(|(known, _)| *known == key)?;
        let column = offset(self.whole, value.get()) + 1;
        Some(Value { text: value.get(), line: self.line, column })
    }

    pub(super) fn require(&self, key: &str, of: &str) -> Result<Value<'a>, Fault> {
        self.get(key).ok_or_else(|| self.fault(format!("{of} needs `{key}`")))
    }

    /// The object that is the value of `key`.
    pub(super) fn object(&self, value: Value<'a>) -> Result<Self, Fault> {
        if value.text.starts_with('{') {
            return Self::parse(self.whole, value.text, self.line);
        }
        Err(value.fault(format!("expected an object, found {}", value.shown())))
    }

    /// Refuses keys outside `allowed` (and `comment`).
    pub(super) fn only(&self, allowed: &[&str], of: &str) -> Result<(), Fault> {
        match self.keys().find(|key| !allowed.contains(key) && *key != "comment") {
            None => Ok(()),
            Some(key) => {
                let near = nearest(key, allowed.iter().copied());
                let fault = self.fault_at_key(key, format!("{of} has no key `{key}`"));
                Err(match near {
                    Some(_) => fault.near(near),
                    None => fault.hint(format!("its keys are `{}`", allowed.join("`, `"))),
                })
            }
        }
    }

    /// An error about the object as a whole.
    pub(super) fn fault(&self, message: impl Into<String>) -> Fault {
        Fault::new(self.line, self.column, message)
    }

    /// An error at a key.
    pub(super) fn fault_at_key(&self, key: &str, message: impl Into<String>) -> Fault {
        let mut places = self.members.iter().filter(|(known, _)| *known == key).map(|(known, _)| *known);
        // Of a repeated key, the last is the one to blame.
        let column = places.next_back().map_or(self.column, |known| offset(self.whole, known));
        Fault::new(self.line, column.max(1), message)
    }
}

impl<'a> Value<'a> {
    pub(super) fn fault(&self, message: impl Into<String>) -> Fault {
        Fault::new(self.line, self.column, message)
    }

    /// The value as a message shows it.
    pub(super) fn shown(&self) -> String {
        let text: String = self.text.chars().take(40).collect();
        let more = if text.len() < self.text.len() { "…" } else { "" };
        format!("`{text}{more}`")
    }

    fn of<T: DeserializeOwned>(&self, expected: &str) -> Result<T, Fault> {
        serde_json::from_str(self.text)
            .map_err(|_| self.fault(format!("expected {expected}, found {}", self.shown())))
    }

    pub(super) fn string(&self) -> Result<String, Fault> {
        self.of("a text")
    }

    /// A whole number from 0 to `largest`.
    pub(super) fn integer(&self, what: &str, largest: u64) -> Result<u64, Fault> {
        let expected = format!("{what} from 0 to {largest}");
        let value: u64 = self.of(&expected)?;
        if value <= largest {
            return Ok(value);
        }
        Err(self.fault(format!("expected {expected}, found {}", self.shown())))
    }

    /// The elements of a list.
    pub(super) fn list(&self, what: &str) -> Result<Vec<Value<'a>>, Fault> {
        let elements: Vec<&'a RawValue> = serde_json::from_str(self.text)
            .map_err(|_| self.fault(format!("expected {what}, found {}", self.shown())))?;
        let place = |element: &'a RawValue| Value {
            text: element.get(),
            line: self.line,
            column: self.column + offset(self.text, element.get()),
        };
        Ok(elements.into_iter().map(place).collect())
    }

    /// A quantity with its unit, in the base unit of `dimension`.
    pub(super) fn quantity(&self, dimension: units::Dimension) -> Result<u64, Fault> {
        let text = if self.text.starts_with('"') { self.string()? } else { self.text.to_owned() };
        parse_quantity(&text, dimension).map_err(|error| self.fault(error.to_string()))
    }

    /// One of the names of `table`.
    pub(super) fn name<T: Listed>(&self, what: &str) -> Result<T, Fault> {
        let found: String = self.of(what)?;
        if let Some(value) = T::by_name(&found) {
            return Ok(value);
        }
        let near = nearest(&found, T::NAMES.iter().copied());
        let fault = self.fault(format!("expected {what}, found `{found}`"));
        Err(match near {
            Some(_) => fault.near(near),
            None => fault.hint(format!("there are `{}`", T::NAMES.join("`, `"))),
        })
    }
}
