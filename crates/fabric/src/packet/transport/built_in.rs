//! What is said of a transport that comes along: a line about it, its parameters, and where they are kept.

use windtunnel_kernel::Span;

use super::{Recovery, Transport};

/// A constant that a scenario may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its key in `network.parameters`.
    pub key: &'static str,
    /// What it is, with the unit that it counts in.
    pub summary: &'static str,
}

/// Where a parameter is kept, and what it may be.
#[derive(Debug)]
pub enum Place<'a> {
    /// 0 < x ≤ 1.
    Part(&'a mut f64),
    /// 0 < x.
    Positive(&'a mut f64),
    /// 0 ≤ x.
    Any(&'a mut f64),
    /// From 1 on.
    Count(&'a mut u32),
    /// From 1 on, where it is given.
    Packets(&'a mut Option<u32>),
    /// Yes or no.
    Flag(&'a mut bool),
    /// Above 0.
    Time(&'a mut Span),
    /// Above 0, where it is given.
    Given(&'a mut Option<Span>),
    /// One of some words.
    Word(&'a mut Word),
}

/// A word of those that may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Place of the word.
    pub at: usize,
    /// All of them.
    pub of: &'static [&'static str],
    /// The same in a sentence.
    pub expected: &'static str,
}

impl Place<'_> {
    /// What may be written, in words.
    pub const fn expected(&self) -> &'static str {
        match self {
            Self::Part(_) => "a number above 0, at most 1",
            Self::Positive(_) => "a number above 0",
            Self::Any(_) => "a number from 0 on",
            Self::Count(_) | Self::Packets(_) => "a whole number from 1 on",
            Self::Flag(_) => "`true` or `false`",
            Self::Time(_) | Self::Given(_) => "a time with a unit, such as `55 us`",
            Self::Word(word) => word.expected,
        }
    }

    /// What stands there, as a scenario writes it.
    pub fn shown(&self) -> String {
        match self {
            Self::Part(value) | Self::Positive(value) | Self::Any(value) if value.is_infinite() => {
                "no limit".to_owned()
            }
            Self::Part(value) | Self::Positive(value) | Self::Any(value) => value.to_string(),
            Self::Count(value) => value.to_string(),
            Self::Packets(value) => value.map_or_else(|| "none".to_owned(), |value| value.to_string()),
            Self::Flag(value) => value.to_string(),
            Self::Time(value) => value.to_string(),
            Self::Given(value) => value.map_or_else(|| "none".to_owned(), |value| value.to_string()),
            Self::Word(word) => word.of[word.at].to_owned(),
        }
    }
}

/// A parameter that does not go with another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// Its key.
    pub key: &'static str,
    /// What was expected.
    pub message: String,
}

/// A transport that comes along.
pub trait BuiltIn: Transport + Default + Copy + PartialEq + Sync {
    /// A line about it for lists.
    const SUMMARY: &'static str;
    /// The name of its congestion law in `network.congestion`.
    const LAW: &'static str = Self::NAME;
    /// What a scenario may change, in the order in which it is listed.
    const PARAMETERS: &'static [Parameter];

    /// Where the parameter `key` is kept; `None` if there is none.
    fn place(&mut self, key: &str) -> Option<Place<'_>>;

    /// How it mends losses.
    fn recovery_mut(&mut self) -> &mut Recovery;

    /// Its least time-out.
    fn timeout_mut(&mut self) -> &mut Span;

    /// # Errors
    /// [`Unfit`] for a parameter that does not go with another.
    fn check_parameters(&self) -> Result<(), Unfit> {
        Ok(())
    }
}

/// Implements [`BuiltIn`]: the line, the names of the fields that keep how losses are mended and the time-out, and for each parameter its
/// key, its field, what it may be, and a line about it.
macro_rules! built_in {
    (
        $type:ty: $summary:literal, recovery: $recovery:ident, timeout: $timeout:ident,
        $(law: $law:literal,)?
        parameters: { $($key:literal => $range:ident($($field:tt)+), $line:literal;)* }
        $(check: $check:expr,)?
    ) => {
        impl $crate::packet::transport::BuiltIn for $type {
            const SUMMARY: &'static str = $summary;
            $(const LAW: &'static str = $law;)?
            const PARAMETERS: &'static [$crate::packet::transport::Parameter] =
                &[$($crate::packet::transport::Parameter { key: $key, summary: $line }),*];

            fn place(&mut self, key: &str) -> Option<$crate::packet::transport::Place<'_>> {
                match key {
                    $($key => Some($crate::packet::transport::Place::$range(&mut self.$($field)+)),)*
                    _ => None,
                }
            }

            fn recovery_mut(&mut self) -> &mut $crate::packet::transport::Recovery {
                &mut self.$recovery
            }

            fn timeout_mut(&mut self) -> &mut windtunnel_kernel::Span {
                &mut self.$timeout
            }

            $(fn check_parameters(&self) -> Result<(), $crate::packet::transport::Unfit> {
                let check: fn(&Self) -> Result<(), $crate::packet::transport::Unfit> = $check;
                check(self)
            })?
        }
    };
}

pub(super) use built_in;
