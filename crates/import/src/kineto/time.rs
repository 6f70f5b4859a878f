//! Times of traces.

/// A decimal number of µs as whole ns: exact where a float of 53 bits is not.
pub(crate) fn nanoseconds(text: &str) -> Option<i64> {
    let text = text.trim_matches('"');
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    if digits.contains(['e', 'E']) {
        let value = (text.parse::<f64>().ok()? * 1e3).round();
        // 2^63: a cast would make the last instant of what lies beyond.
        return (value.abs() < 9_223_372_036_854_775_808.0).then_some(value as i64);
    }
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole: i64 = whole.parse().ok()?;
    let mut thousandths = 0i64;
    for place in 0..3 {
        let digit = fraction.as_bytes().get(place).copied().unwrap_or(b'0');
        thousandths = thousandths * 10 + i64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
    }
    let value = whole.checked_mul(1_000)?.checked_add(thousandths)?;
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_are_exact() {
        assert_eq!(nanoseconds("1694128201435418"), Some(1_694_128_201_435_418_000));
        assert_eq!(nanoseconds("4458676983543.183"), Some(4_458_676_983_543_183));
        assert_eq!(nanoseconds("0.5"), Some(500));
        assert_eq!(nanoseconds("-3.25"), Some(-3_250));
        assert_eq!(nanoseconds("1e3"), Some(1_000_000));
        for bad in ["", "x", "1.x", "99999999999999999999", "1e400", "-1e17", "null"] {
            assert_eq!(nanoseconds(bad), None, "{bad}");
        }
    }
}
