//! Time, size and rate as types, and the text form in which a scenario writes them.
//!
//! Network time is `u64` picoseconds counted from the start of an episode ([`Time`], [`Span`]); calendar time is `u64`
//! nanoseconds ([`CalendarTime`]), enough for 584 years. Nanoseconds to picoseconds is exact; picoseconds to nanoseconds
//! rounds up. Calendars and networks meet in [`CalendarTime::network_time`], and in [`CalendarTime::exact_ps`] where a sum of both
//! needs more than 64 bits.
//!
//! One rule holds for what does not fit, also in the [queues](crate::queue): sums, products and conversions saturate at 2^64 - 1
//! ([`Time::NEVER`]), differences at 0. A difference below 0 is a defect of whoever forms it: builds with debug assertions stop there,
//! and [`Time::since`] is for where it is none. The number inside is private, so that the rule holds wherever two quantities meet: it
//! goes in and comes out by the name of its unit ([`Time::from_ps`], [`Time::ps`]), and what is done to it outside is arithmetic of
//! plain integers, which a reader sees by that name. And nothing that is later than [`Time::HORIZON`] (200 days) ever happens. A fabric has no event there,
//! so a run that would have to go on beyond ends without what is missing, and fails with a message that names it. The 13
//! days between the horizon and 2^64 ps are room for sums of an instant that does happen and one more span.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};

/// Picoseconds in a second.
pub const PS_PER_SECOND: u64 = 1_000_000_000_000;

/// Nanoseconds in a second.
const NS_PER_SECOND: u64 = 1_000_000_000;

/// An instant of network time: picoseconds since the start of the episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A length of network time in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

/// An instant of calendar time: nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CalendarTime(u64);

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

/// A rate in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate(u64);

impl Time {
    /// The start of the episode.
    pub const ZERO: Self = Self(0);
    /// Later than every event.
    pub const NEVER: Self = Self(u64::MAX);
    /// The last instant at which anything happens: 200 days.
    pub const HORIZON: Self = Self(200 * 86_400 * PS_PER_SECOND);

    /// The instant `ps` picoseconds after the start of the episode.
    #[inline]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Picoseconds since the start of the episode.
    #[inline]
    pub const fn ps(self) -> u64 {
        self.0
    }

    /// Seconds since the start of the episode.
    pub fn seconds(self) -> f64 {
        Span(self.0).seconds()
    }

    /// The span since `earlier`, zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// The longest there is, which stands for what never ends.
    pub const MAX: Self = Self(u64::MAX);

    /// `ps` picoseconds.
    #[inline]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Length in picoseconds.
    #[inline]
    pub const fn ps(self) -> u64 {
        self.0
    }

    /// `ns` nanoseconds, saturating.
    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(1_000))
    }

    /// `us` microseconds, saturating.
    #[inline]
    pub const fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(1_000_000))
    }

    /// `seconds` rounded up to a picosecond, saturating; negative and NaN give zero.
    pub fn from_seconds_ceil(seconds: f64) -> Self {
        Self((seconds * PS_PER_SECOND as f64).ceil() as u64)
    }

    /// Length in seconds: the nearest double to the integer count of picoseconds over 10^12.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / PS_PER_SECOND as f64
    }

    /// Length in nanoseconds, rounded up.
    #[inline]
    pub const fn ns_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// This span times `factor`, rounded to the nearest picosecond, saturating.
    #[inline]
    pub fn scaled(self, factor: f64) -> Self {
        if factor == 1.0 { self } else { Self((self.0 as f64 * factor).round() as u64) }
    }
}

impl CalendarTime {
    /// The start of the run.
    pub const ZERO: Self = Self(0);
    /// Later than every event.
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant `ns` nanoseconds after the start of the run.
    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the start of the run.
    #[inline]
    pub const fn ns(self) -> u64 {
        self.0
    }

    /// Picoseconds since the start of the run, exactly: an instant of the calendar and one of a network are summed in these.
    #[inline]
    pub const fn exact_ps(self) -> i128 {
        self.0 as i128 * 1_000
    }

    /// This instant on a network clock that starts with the calendar; [`Time::NEVER`] beyond 213 days, where 64 bits end.
    #[inline]
    pub const fn network_time(self) -> Time {
        Time(self.0.saturating_mul(1_000))
    }
}

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The largest size there is, which stands for no limit.
    pub const MAX: Self = Self(u64::MAX);

    /// `bytes` bytes.
    #[inline]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// How many bytes these are.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl BitRate {
    /// Nothing moves.
    pub const ZERO: Self = Self(0);
    /// The largest rate there is.
    pub const MAX: Self = Self(u64::MAX);

    /// `bps` bits per second.
    #[inline]
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// Bits per second.
    #[inline]
    pub const fn bps(self) -> u64 {
        self.0
    }

    /// `gbps` × 10^9 bit/s, saturating.
    pub const fn from_gbps(gbps: u64) -> Self {
        Self(gbps.saturating_mul(1_000_000_000))
    }

    /// Serialisation time of `bytes`: ceil(bytes · 8 · 10^12 / rate) picoseconds, saturating.
    ///
    /// # Panics
    /// If the rate is zero.
    #[inline]
    pub fn serialise(self, bytes: Bytes) -> Span {
        let bits = u128::from(bytes.0) * 8 * u128::from(PS_PER_SECOND);
        Span(u64::try_from(bits.div_ceil(u128::from(self.0))).unwrap_or(u64::MAX))
    }

    /// Bytes per second.
    pub fn bytes_per_second(self) -> f64 {
        self.0 as f64 / 8.0
    }
}

/// What is beyond the last instant is [`Time::NEVER`], whence nothing comes back: a run that gets there ends without the rest,
/// and says so.
impl Add<Span> for Time {
    type Output = Self;
    #[inline]
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    #[inline]
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub for Time {
    type Output = Span;
    #[inline]
    fn sub(self, earlier: Self) -> Span {
        debug_assert!(earlier <= self, "{} ps before {} ps", self.0, earlier.0);
        Span(self.0.saturating_sub(earlier.0))
    }
}

macro_rules! additive {
    ($($name:ident),+) => {$(
        impl Add for $name {
            type Output = Self;
            #[inline]
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }
        impl AddAssign for $name {
            #[inline]
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        impl Sub for $name {
            type Output = Self;
            #[inline]
            fn sub(self, other: Self) -> Self {
                debug_assert!(other <= self, "{} less {}", self.0, other.0);
                Self(self.0.saturating_sub(other.0))
            }
        }
        impl SubAssign for $name {
            #[inline]
            fn sub_assign(&mut self, other: Self) {
                *self = *self - other;
            }
        }
        impl Mul<u64> for $name {
            type Output = Self;
            #[inline]
            fn mul(self, count: u64) -> Self {
                Self(self.0.saturating_mul(count))
            }
        }
        impl Sum for $name {
            fn sum<It: Iterator<Item = Self>>(items: It) -> Self {
                items.fold(Self(0), |sum, item| sum + item)
            }
        }
    )+};
}
additive!(Span, Bytes);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span(self.0).fmt(f)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            0..1_000 => return write!(f, "{} ps", self.0),
            1_000..1_000_000 => (1e3, "ns"),
            1_000_000..1_000_000_000 => (1e6, "us"),
            1_000_000_000..1_000_000_000_000 => (1e9, "ms"),
            _ => (1e12, "s"),
        };
        write!(f, "{} {unit}", self.0 as f64 / value)
    }
}

/// What a text with a unit stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// `ps`, `ns`, `us`, `ms`, `s`, `min`, `h`, `d`.
    Time,
    /// Time of the calendar, in nanoseconds: `ns`, `us`, `ms`, `s`, `min`, `h`, `d`, `y` (365 d).
    Calendar,
    /// `B`, `KB`, `MB`, `GB`, `TB` (powers of 10), `KiB`, `MiB`, `GiB`, `TiB` (powers of 2).
    Size,
    /// `bps`, `Kbps`, `Mbps`, `Gbps`, `Tbps` (bit/s), `B/s`, `KB/s`, `MB/s`, `GB/s`, `TB/s`.
    Rate,
    /// `m`, `km`.
    Length,
}

impl Dimension {
    /// The units that fit, with their factor to the base unit (ps, or ns of the calendar; B, bit/s, mm).
    pub const fn units(self) -> &'static [(&'static str, u64)] {
        match self {
            Self::Time => &[
                ("ps", 1),
                ("ns", 1_000),
                ("us", 1_000_000),
                ("ms", 1_000_000_000),
                ("s", PS_PER_SECOND),
                ("min", 60 * PS_PER_SECOND),
                ("h", 3_600 * PS_PER_SECOND),
                ("d", 86_400 * PS_PER_SECOND),
            ],
            Self::Calendar => &[
                ("ns", 1),
                ("us", 1_000),
                ("ms", 1_000_000),
                ("s", NS_PER_SECOND),
                ("min", 60 * NS_PER_SECOND),
                ("h", 3_600 * NS_PER_SECOND),
                ("d", 86_400 * NS_PER_SECOND),
                ("y", 365 * 86_400 * NS_PER_SECOND),
            ],
            Self::Size => &[
                ("B", 1),
                ("KB", 1_000),
                ("MB", 1_000_000),
                ("GB", 1_000_000_000),
                ("TB", 1_000_000_000_000),
                ("KiB", 1 << 10),
                ("MiB", 1 << 20),
                ("GiB", 1 << 30),
                ("TiB", 1 << 40),
            ],
            Self::Rate => &[
                ("bps", 1),
                ("Kbps", 1_000),
                ("Mbps", 1_000_000),
                ("Gbps", 1_000_000_000),
                ("Tbps", 1_000_000_000_000),
                ("B/s", 8),
                ("KB/s", 8_000),
                ("MB/s", 8_000_000),
                ("GB/s", 8_000_000_000),
                ("TB/s", 8_000_000_000_000),
            ],
            Self::Length => &[("mm", 1), ("cm", 10), ("m", 1_000), ("km", 1_000_000)],
        }
    }

    /// The units that fit, as a message names them.
    pub fn expected(self) -> String {
        let names: Vec<String> = self.units().iter().map(|(name, _)| format!("`{name}`")).collect();
        names.join(", ")
    }

    /// `value`, in base units, in the first of `units` (names of [`Self::units`], the largest first) in which it is whole, and in the last
    /// where it is in none; `space` stands before the unit. Zero, which is whole in each, is written in the last.
    ///
    /// # Panics
    /// If `units` is empty or names what is no unit of this dimension: both are mistakes of the program.
    pub fn exact(self, value: u64, units: &[&str], space: &str) -> String {
        let factor =
            |name: &str| self.units().iter().find(|(known, _)| *known == name).expect("a unit of it").1;
        let whole = |unit: &&&str| value > 0 && value.is_multiple_of(factor(unit));
        let unit = units.iter().find(whole).or(units.last()).expect("a unit");
        format!("{}{space}{unit}", value / factor(unit))
    }

    /// The noun of a message: `a time`, `a size`, …
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Time | Self::Calendar => "a time",
            Self::Size => "a size",
            Self::Rate => "a rate",
            Self::Length => "a length",
        }
    }

    const fn example(self) -> &'static str {
        match self {
            Self::Time => "200 ns",
            Self::Calendar => "4 h",
            Self::Size => "256 MiB",
            Self::Rate => "400 Gbps",
            Self::Length => "30 m",
        }
    }
}

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {noun} such as `{example}`, found `{found}`: {reason}", noun = dimension.noun(), example = dimension.example())]
pub struct UnitError {
    /// What was due.
    pub dimension: Dimension,
    /// The text found.
    pub found: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Parses `400 Gbps` into base units of `dimension` (ps, or ns of the calendar; B, bit/s, mm), rounding to the nearest unit.
///
/// Decimals and powers of ten (`2.5e-6 s`) are exact: the digits are scaled as integers. What rounding would change by more than
/// 1% is refused, such as a part of a byte.
///
/// # Errors
/// [`UnitError`] when the number or the unit is missing, the unit is of another dimension, or the value does not fit.
pub fn parse_quantity(text: &str, dimension: Dimension) -> Result<u64, UnitError> {
    let fail = |reason: String| UnitError { dimension, found: text.trim().to_owned(), reason };
    let trimmed = text.trim();
    let split =
        trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(trimmed.len());
    let (power, unit) = exponent(&trimmed[split..]);
    let number = trimmed[..split].replace('_', "");
    if number.is_empty() {
        let negative = trimmed.starts_with('-');
        return Err(fail(if negative { "it is below 0" } else { "a number is missing" }.to_owned()));
    }
    if unit.is_empty() {
        return Err(fail(format!("a unit is missing, one of {}", dimension.expected())));
    }
    let Some(&(_, factor)) = dimension.units().iter().find(|(name, _)| *name == unit) else {
        let near = dimension.units().iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
        return Err(fail(match near {
            Some((name, _)) => format!("`{unit}` is written `{name}`"),
            None => format!("`{unit}` is not one of {}", dimension.expected()),
        }));
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let digits = format!("{whole}{fraction}");
    let bad = || fail(format!("`{number}` is not a number in range"));
    if digits.is_empty() || fraction.contains('.') || fraction.len() > 18 {
        return Err(bad());
    }
    if whole.len() > 1 && whole.starts_with('0') {
        return Err(fail("it begins with a 0, by which some mean a number in base 8".to_owned()));
    }
    let large = || fail(format!("it exceeds the most that fits, {} {unit}", u64::MAX / factor));
    let value: u128 = digits.parse().map_err(|_| bad())?;
    let tens = |count: i32| 10u128.checked_pow(count.unsigned_abs());
    let places = power - fraction.len() as i32;
    let scale = if places < 0 { tens(places).ok_or_else(bad)? } else { 1 };
    let times = if places > 0 { tens(places).ok_or_else(large)? } else { 1 };
    let scaled = value.checked_mul(times).and_then(|value| value.checked_mul(u128::from(factor)));
    let scaled = scaled.ok_or_else(|| if places > 0 { large() } else { bad() })?;
    let rounded = (scaled + scale / 2) / scale;
    // The remainder before rounding is below 10^38, and so is a hundred times what is compared with it.
    if (rounded * scale).abs_diff(scaled) > scaled / 100 {
        let (least, _) = dimension.units()[0];
        return Err(fail(format!(
            "it would count as {rounded} {least}, and parts of 1 {least} do not count"
        )));
    }
    u64::try_from(rounded).map_err(|_| large())
}

/// Splits `e-6 s` into the power of ten and the unit.
fn exponent(text: &str) -> (i32, &str) {
    let Some(rest) = text.strip_prefix(['e', 'E']) else { return (0, text.trim()) };
    let signed = usize::from(rest.starts_with(['-', '+']));
    let end = rest[signed..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |end| signed + end);
    // A power that is out of every range stays so.
    match rest[..end].parse::<i64>() {
        Ok(power) => (power.clamp(-40, 40) as i32, rest[end..].trim()),
        Err(_) => (0, text.trim()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_written_in_the_largest_unit_in_which_they_are_whole() {
        let time = |ps| Dimension::Time.exact(ps, &["s", "ms", "us", "ns", "ps"], " ");
        assert_eq!(
            [time(PS_PER_SECOND), time(1_500_000), time(1), time(0)],
            ["1 s", "1500 ns", "1 ps", "0 ps"]
        );
        assert_eq!(Dimension::Rate.exact(400_000_000_000, &["Gbps", "bps"], ""), "400Gbps");
        // In none: rounded down in the last.
        assert_eq!(Dimension::Size.exact(1_025, &["MiB", "KiB"], " "), "1 KiB");
    }

    /// What does not fit is the largest there is; nothing wraps.
    #[test]
    fn sums_and_products_stop_at_the_largest() {
        let last = Span(u64::MAX);
        assert_eq!((last + Span(1), last * 2, Span(1 << 63) * 2), (last, last, last));
        assert_eq!(Time::NEVER + Span(1), Time::NEVER);
        assert_eq!(BitRate::from_gbps(u64::MAX), BitRate(u64::MAX));
        assert_eq!((CalendarTime(u64::MAX).network_time(), Span::from_ns(u64::MAX)), (Time::NEVER, last));
        assert_eq!([Bytes(u64::MAX), Bytes(1)].into_iter().sum::<Bytes>(), Bytes(u64::MAX));
        assert_eq!(Time(1).since(Time(2)), Span::ZERO);
    }

    /// Of whoever takes a later instant from an earlier one, tests hear.
    #[test]
    #[should_panic(expected = "1 ps before 2 ps")]
    #[cfg(debug_assertions)]
    fn a_difference_below_zero_is_a_defect() {
        let _ = Time(1) - Time(2);
    }

    proptest! {
        /// What is written reads back as it was.
        #[test]
        fn written_values_read_back(value in 0u64..1 << 50, shift in 0u32..40) {
            let value = value >> shift << (shift / 2);
            let text = Dimension::Size.exact(value, &["GiB", "MiB", "KiB", "B"], " ");
            prop_assert_eq!(parse_quantity(&text, Dimension::Size), Ok(value));
        }
    }

    #[test]
    fn quantities_scale_exactly() {
        assert_eq!(parse_quantity("400 Gbps", Dimension::Rate), Ok(400_000_000_000));
        assert_eq!(parse_quantity("50GB/s", Dimension::Rate), Ok(400_000_000_000));
        assert_eq!(parse_quantity("0.02 ns", Dimension::Time), Ok(20));
        assert_eq!(parse_quantity("256 MiB", Dimension::Size), Ok(256 << 20));
        assert_eq!(parse_quantity("9 KB", Dimension::Size), Ok(9_000));
        assert_eq!(parse_quantity("2.5 m", Dimension::Length), Ok(2_500));
        assert_eq!(parse_quantity("1_000 us", Dimension::Time), Ok(1_000_000_000));
        assert_eq!(
            parse_quantity("1.5 y", Dimension::Calendar),
            Ok(547 * 86_400_000_000_000 + 43_200_000_000_000)
        );
    }

    #[test]
    fn powers_of_ten_scale_exactly() {
        assert_eq!(parse_quantity("1e3 B", Dimension::Size), Ok(1_000));
        assert_eq!(parse_quantity("2.5e-6 s", Dimension::Time), Ok(2_500_000));
        assert_eq!(parse_quantity("4E+2 Gbps", Dimension::Rate), Ok(400_000_000_000));
        assert!(
            parse_quantity("1.8446744073709551615e19B", Dimension::Size).is_err(),
            "more digits than it keeps"
        );
        assert_eq!(parse_quantity("18446744073709551615 B", Dimension::Size), Ok(u64::MAX));
        for huge in ["1e30 B", "1e400 B", "1e9223372036854775807 B", "9e19 B"] {
            let error = parse_quantity(huge, Dimension::Size).unwrap_err();
            assert_eq!(error.reason, format!("it exceeds the most that fits, {} B", u64::MAX), "{huge}");
        }
        for wrong in ["1e B", "1e+ B", "e3 B", "1e3", "1e99999999999999999999 B"] {
            assert!(parse_quantity(wrong, Dimension::Size).is_err(), "{wrong}");
        }
    }

    #[test]
    fn parts_of_the_smallest_unit_and_leading_zeroes_are_refused() {
        for (text, dimension, counts) in [
            ("0.3 B", Dimension::Size, "0 B"),
            ("0.5 B", Dimension::Size, "1 B"),
            ("1.5 B", Dimension::Size, "2 B"),
            ("0.0001 KB", Dimension::Size, "0 B"),
            ("1e-30 B", Dimension::Size, "0 B"),
            ("0.4 ps", Dimension::Time, "0 ps"),
            ("0.0000001 bps", Dimension::Rate, "0 bps"),
            ("1e-9 m", Dimension::Length, "0 mm"),
        ] {
            let reason = parse_quantity(text, dimension).unwrap_err().reason;
            assert!(reason.starts_with(&format!("it would count as {counts}")), "{text}: {reason}");
        }
        assert_eq!(parse_quantity("0 B", Dimension::Size), Ok(0));
        assert_eq!(parse_quantity("0.000 B", Dimension::Size), Ok(0));
        assert_eq!(parse_quantity("1.1 KiB", Dimension::Size), Ok(1_126), "1126.4, within 1%");
        assert!(parse_quantity("010 B", Dimension::Size).is_err());
        assert_eq!(parse_quantity("0.10 KB", Dimension::Size), Ok(100));
    }

    proptest! {
        /// What a text means is within 1% of what it says, however it is written.
        #[test]
        fn a_text_means_what_it_says(digits in 0u64..1_000_000, power in -12i32..13, point in 0usize..6) {
            let text = digits.to_string();
            let point = point.min(text.len() - 1);
            let written = format!("{}.{}e{power} B", &text[..text.len() - point], &text[text.len() - point..]);
            let written = written.replace(".e", "e");
            let meant: f64 = format!("{digits}e{}", power - point as i32).parse().expect("a number");
            match parse_quantity(&written, Dimension::Size) {
                Ok(bytes) => prop_assert!((bytes as f64 - meant).abs() <= 0.0101 * meant, "{written}: {bytes}"),
                Err(_) => prop_assert!((meant.round() - meant).abs() > 0.0099 * meant, "{written}"),
            }
        }
    }

    #[test]
    fn a_bare_number_names_the_units_that_fit() {
        let error = parse_quantity("400", Dimension::Rate).unwrap_err();
        assert_eq!(
            error.to_string(),
            "expected a rate such as `400 Gbps`, found `400`: a unit is missing, one of `bps`, `Kbps`, `Mbps`, `Gbps`, \
             `Tbps`, `B/s`, `KB/s`, `MB/s`, `GB/s`, `TB/s`"
        );
        let error = parse_quantity("5 parsecs", Dimension::Length).unwrap_err();
        assert!(error.to_string().contains("`parsecs` is not one of `mm`"), "{error}");
        for bad in ["", "ns", "1.2.3 ns", "99999999999999999999999 s", "-1 ns"] {
            assert!(parse_quantity(bad, Dimension::Time).is_err(), "{bad}");
        }
    }

    #[test]
    fn serialisation_rounds_up() {
        assert_eq!(BitRate::from_gbps(400).serialise(Bytes(9_000)), Span(180_000));
        assert_eq!(BitRate(3).serialise(Bytes(1)), Span(2_666_666_666_667));
        assert_eq!(BitRate::from_gbps(800).serialise(Bytes(u64::MAX / 100_000_000)).0, 1_844_674_407_370);
    }

    /// What happens may be followed by any span of a network without a wrap.
    #[test]
    fn the_horizon_leaves_room_for_another_span() {
        let room = Span(u64::MAX - Time::HORIZON.0);
        assert!(room > BitRate(1).serialise(Bytes(65_535)) + BitRate(1).serialise(Bytes(65_535)));
        assert_eq!(Time::HORIZON + room, Time::NEVER);
        assert_eq!(Time::HORIZON + Span(u64::MAX), Time::NEVER);
    }

    #[test]
    fn a_text_beyond_64_bits_is_told_what_fits() {
        let error = parse_quantity("300 d", Dimension::Time).unwrap_err();
        assert!(error.to_string().ends_with("it exceeds the most that fits, 213 d"), "{error}");
        assert_eq!(parse_quantity("10 y", Dimension::Calendar), Ok(3_650 * 86_400 * 1_000_000_000));
    }

    /// Values that lie near 0, near powers of two, and near the end.
    fn extreme() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            (0u32..64, 0u64..4).prop_map(|(shift, more)| (1u64 << shift).saturating_add(more)),
            (0u64..4).prop_map(|less| u64::MAX - less),
            0u64..1_000,
        ]
    }

    /// The exact value where it fits, else the end.
    fn fits(exact: u128) -> u64 {
        u64::try_from(exact).unwrap_or(u64::MAX)
    }

    proptest! {
        /// Every sum, product and conversion is the exact one of integers of 128 bits, or beyond the horizon.
        #[test]
        fn arithmetic_is_exact_or_at_the_end(a in extreme(), b in extreme(), c in extreme()) {
            let (x, y) = (u128::from(a), u128::from(b));
            if b > 0 {
                let exact = (x * 8 * u128::from(PS_PER_SECOND)).div_ceil(y);
                prop_assert_eq!(BitRate(b).serialise(Bytes(a)).0, fits(exact));
            }
            prop_assert_eq!((Time(a) + Span(b)).0, fits(x + y));
            prop_assert_eq!((Span(a) + Span(b)).0, fits(x + y));
            prop_assert_eq!((Bytes(a) + Bytes(b)).0, fits(x + y));
            prop_assert_eq!((Span(a) * b).0, fits(x * y));
            prop_assert_eq!((Bytes(a) * b).0, fits(x * y));
            let sum: Span = [Span(a), Span(b), Span(c)].into_iter().sum();
            prop_assert_eq!(sum.0, fits(x + y + u128::from(c)));
            prop_assert_eq!(Span::from_ns(a).0, fits(x * 1_000));
            prop_assert_eq!(Span::from_us(a).0, fits(x * 1_000_000));
            prop_assert_eq!(CalendarTime(a).network_time().0, fits(x * 1_000));
            prop_assert_eq!(CalendarTime(a).exact_ps(), (x * 1_000) as i128);
            prop_assert_eq!(Span(a).ns_ceil(), fits(x.div_ceil(1_000)));
            prop_assert_eq!(Time(a).since(Time(b)).0, fits(x.saturating_sub(y)));
        }
    }
}
