//! Quantities with units as configuration values.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use windtunnel_kernel::units::{Dimension, parse_quantity};
use windtunnel_kernel::{BitRate, Bytes, Span};

/// Declares a newtype that is read from a text with a unit.
macro_rules! quantity {
    ($($(#[$meta:meta])* $name:ident($inner:ty) from $dimension:ident, $pattern:literal, $example:literal;)+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(pub $inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Text(Dimension::$dimension)).map(|value| Self(value.into_quantity()))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "format": $pattern,
                    "examples": [$example],
                })
            }
        }
    )+};
}

quantity! {
    /// A rate such as `400 Gbps` or `50 GB/s`.
    Rate(BitRate) from Rate, "rate", "400 Gbps";
    /// A size such as `256 MiB` or `9 KB`.
    Size(Bytes) from Size, "size", "256 MiB";
    /// A span of time such as `200 ns`.
    Duration(Span) from Time, "time", "200 ns";
    /// A span of the calendar in nanoseconds, such as `4 h` or `5 y`.
    CalendarSpan(u64) from Calendar, "calendar time", "4 h";
    /// A length in millimetres, such as `30 m`.
    Length(u64) from Length, "length", "30 m";
}

/// Base units (ps, B, bit/s, mm) read from a text of one dimension.
struct Text(Dimension);

/// A bare value in base units on its way into its newtype.
struct Base(u64);

trait IntoQuantity<T> {
    fn into_quantity(self) -> T;
}

impl IntoQuantity<BitRate> for Base {
    fn into_quantity(self) -> BitRate {
        BitRate::from_bps(self.0)
    }
}

impl IntoQuantity<Bytes> for Base {
    fn into_quantity(self) -> Bytes {
        Bytes::new(self.0)
    }
}

impl IntoQuantity<Span> for Base {
    fn into_quantity(self) -> Span {
        Span::from_ps(self.0)
    }
}

impl IntoQuantity<u64> for Base {
    fn into_quantity(self) -> u64 {
        self.0
    }
}

impl de::Visitor<'_> for Text {
    type Value = Base;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with a unit, one of {}", self.0.noun(), self.0.expected())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Base, E> {
        parse_quantity(text, self.0).map(Base).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Base, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Base, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Base, E> {
        self.visit_str(&value.to_string())
    }
}

/// A price in United States dollars, such as `2.50 USD`; at least 0.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Price(pub f64);

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PriceText)
    }
}

impl JsonSchema for Price {
    fn schema_name() -> Cow<'static, str> {
        "Price".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "price", "examples": ["2.50 USD"]})
    }
}

struct PriceText;

impl de::Visitor<'_> for PriceText {
    type Value = Price;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a price with a unit, `USD`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Price, E> {
        // Plain digits, as the bill reads them too (`python/windtunnel/bill.py`).
        let plain = |number: &str| number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        text.trim()
            .strip_suffix("USD")
            .map(str::trim)
            .filter(|number| plain(number))
            .and_then(|number| number.parse().ok())
            .map(Price)
            .ok_or_else(|| E::custom(format!("expected a price such as `2.50 USD`, found `{text}`")))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Price, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Price, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Price, E> {
        self.visit_str(&value.to_string())
    }
}
