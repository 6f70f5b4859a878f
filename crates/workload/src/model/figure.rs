//! A figure of a data sheet: a value with its unit, the kind of evidence behind it, and its source.
//!
//! In a file: `{value: 3.35 TB/s, evidence: data sheet, source: "NVIDIA H100 data sheet, 2023"}`. Values with a unit are
//! strings, shares and counts bare numbers. A figure without a source is refused.

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use windtunnel_kernel::units::{Dimension, parse_quantity};
use windtunnel_kernel::{BitRate, Bytes, Span};

use super::curve::Curve;

/// How a figure is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Evidence {
    /// Measured on the device.
    #[serde(rename = "measured")]
    Measured,
    /// Fitted to measurements of something else.
    #[serde(rename = "calibrated")]
    Calibrated,
    /// Published by its maker.
    #[serde(rename = "data sheet")]
    DataSheet,
    /// Concluded from related figures.
    #[serde(rename = "inferred")]
    Inferred,
    /// Said by the scenario.
    #[serde(rename = "given")]
    Given,
}

impl Evidence {
    /// The word of files and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Calibrated => "calibrated",
            Self::DataSheet => "data sheet",
            Self::Inferred => "inferred",
            Self::Given => "given",
        }
    }
}

/// A value with its evidence and source.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure<T> {
    /// The value in base units.
    pub value: T,
    /// How it is known.
    pub evidence: Evidence,
    /// Where it is from: document, page or section, or what it was concluded from.
    pub source: String,
}

/// Operations per second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct FlopRate(pub f64);

/// Power in watts.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Watts(pub f64);

/// A price in United States dollars.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Dollars(pub f64);

/// A length in millimetres.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millimetres(pub u64);

/// A number from 0 (excluded) to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Share(pub f64);

/// What may stand behind `value:`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number, a text with a unit, `true`, `false`, or points of a curve")]
pub enum Raw {
    /// Yes or no.
    Flag(bool),
    /// A bare number.
    Number(f64),
    /// A text, usually a number with a unit.
    Text(String),
    /// Points of a curve.
    Points(Vec<[f64; 2]>),
}

impl Raw {
    fn shown(&self) -> String {
        match self {
            Self::Flag(flag) => flag.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
            Self::Points(points) => format!("{} points", points.len()),
        }
    }
}

/// A type that a figure can hold.
pub trait FigureValue: Sized {
    /// Reads the value.
    ///
    /// # Errors
    /// A message that says what was expected and found.
    fn read(raw: &Raw) -> Result<Self, String>;
}

fn quantity(raw: &Raw, dimension: Dimension) -> Result<u64, String> {
    parse_quantity(&raw.shown(), dimension).map_err(|error| error.to_string())
}

fn scaled(raw: &Raw, noun: &str, units: &[(&str, f64)]) -> Result<f64, String> {
    let text = raw.shown();
    let names = units.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    units
        .iter()
        .find_map(|(name, factor)| {
            let number: f64 = text.trim().strip_suffix(name)?.trim().parse().ok()?;
            (number.is_finite() && number > 0.0).then_some(number * factor)
        })
        .ok_or_else(|| format!("expected {noun} with one of the units {names}, found `{text}`"))
}

impl FigureValue for Bytes {
    fn read(raw: &Raw) -> Result<Self, String> {
        quantity(raw, Dimension::Size).map(Self::new)
    }
}

impl FigureValue for BitRate {
    fn read(raw: &Raw) -> Result<Self, String> {
        match quantity(raw, Dimension::Rate)? {
            0 => Err("expected a positive rate, found `0`".to_owned()),
            rate => Ok(Self::from_bps(rate)),
        }
    }
}

impl FigureValue for Span {
    fn read(raw: &Raw) -> Result<Self, String> {
        quantity(raw, Dimension::Time).map(Self::from_ps)
    }
}

impl FigureValue for FlopRate {
    fn read(raw: &Raw) -> Result<Self, String> {
        scaled(raw, "a rate of operations", &[("TFLOPS", 1e12), ("PFLOPS", 1e15), ("GFLOPS", 1e9)]).map(Self)
    }
}

impl FigureValue for Watts {
    fn read(raw: &Raw) -> Result<Self, String> {
        scaled(raw, "a power", &[("kW", 1e3), ("W", 1.0)]).map(Self)
    }
}

impl FigureValue for Dollars {
    fn read(raw: &Raw) -> Result<Self, String> {
        scaled(raw, "a price", &[("USD", 1.0)]).map(Self)
    }
}

impl FigureValue for Millimetres {
    fn read(raw: &Raw) -> Result<Self, String> {
        quantity(raw, Dimension::Length).map(Self)
    }
}

impl FigureValue for Share {
    fn read(raw: &Raw) -> Result<Self, String> {
        match raw {
            Raw::Number(share) if *share > 0.0 && *share <= 1.0 => Ok(Self(*share)),
            other => Err(format!("expected a number above 0 and at most 1, found `{}`", other.shown())),
        }
    }
}

impl FigureValue for u64 {
    fn read(raw: &Raw) -> Result<Self, String> {
        match raw {
            Raw::Number(number) if *number >= 0.0 && number.fract() == 0.0 && *number < 9e15 => {
                Ok(*number as Self)
            }
            other => Err(format!("expected a whole number, found `{}`", other.shown())),
        }
    }
}

impl FigureValue for bool {
    fn read(raw: &Raw) -> Result<Self, String> {
        match raw {
            Raw::Flag(flag) => Ok(*flag),
            other => Err(format!("expected `true` or `false`, found `{}`", other.shown())),
        }
    }
}

impl FigureValue for Curve {
    fn read(raw: &Raw) -> Result<Self, String> {
        match raw {
            Raw::Points(points) => Self::new(points.clone()).map_err(|error| error.to_string()),
            other => Err(format!("expected a list of [x, share] points, found `{}`", other.shown())),
        }
    }
}

impl<'de, T: FigureValue> Deserialize<'de> for Figure<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Plain {
            value: Raw,
            evidence: Evidence,
            source: String,
        }
        let plain = Plain::deserialize(deserializer)?;
        if plain.source.trim().is_empty() {
            return Err(D::Error::custom("a figure needs a `source`, found an empty one"));
        }
        let value = T::read(&plain.value).map_err(D::Error::custom)?;
        Ok(Self { value, evidence: plain.evidence, source: plain.source })
    }
}
