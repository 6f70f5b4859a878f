//! The text form of quantities, as a scenario writes them: `400 Gbps`, `200 ns`, `256 MiB`.

use super::{NS_PER_SECOND, PS_PER_SECOND};

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
    fn a_text_beyond_64_bits_is_told_what_fits() {
        let error = parse_quantity("300 d", Dimension::Time).unwrap_err();
        assert!(error.to_string().ends_with("it exceeds the most that fits, 213 d"), "{error}");
        assert_eq!(parse_quantity("10 y", Dimension::Calendar), Ok(3_650 * 86_400 * 1_000_000_000));
    }
}
