//! Instants and spans as logs write them, in nanoseconds.

const SECOND: i64 = 1_000_000_000;

/// A decimal number of seconds, `12`, `12.5` or `1.2e3`; `None` if it is no number or too large.
pub(super) fn seconds(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let (sign, whole) = whole.strip_prefix('-').map_or((1, whole), |rest| (-1, rest));
    if plain(whole) && plain(fraction) && !(whole.is_empty() && fraction.is_empty()) {
        // Exact, to the nanosecond.
        let digits = &fraction[..fraction.len().min(9)];
        let nanos: i64 = format!("{digits:0<9}").parse().ok()?;
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        return whole.checked_mul(SECOND)?.checked_add(nanos).map(|ns| sign * ns);
    }
    let value: f64 = text.parse().ok()?;
    (value.is_finite() && value.abs() < 9e9).then(|| (value * 1e9).round() as i64)
}

/// Days from 1970-01-01 of a date of the Gregorian calendar (Howard Hinnant's `days_from_civil`).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Days of a month from 1 to 12.
fn length(year: i64, month: i64) -> i64 {
    let next = if month == 12 { days(year + 1, 1, 1) } else { days(year, month + 1, 1) };
    next - days(year, month, 1)
}

/// `2017-10-09 07:01:55`, with `T` or a blank, perhaps a fraction, perhaps `Z`, `+08:00` or `-0500`; or seconds.
pub(super) fn instant(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() < 19 || bytes[4] != b'-' {
        return seconds(text);
    }
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let marks =
        bytes[7] == b'-' && matches!(bytes[10], b' ' | b'T') && bytes[13] == b':' && bytes[16] == b':';
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let possible = (1..=12).contains(&month)
        && (1..=length(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !marks || !possible {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut nanos = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
        nanos = seconds(&format!("0.{}", &fraction[..end]))?;
        rest = &fraction[end..];
    }
    let offset = match rest {
        "" | "Z" => 0,
        _ => {
            let sign = match rest.as_bytes()[0] {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            let digits: String = rest[1..].chars().filter(|c| *c != ':').collect();
            let value: i64 = (digits.len() == 4).then(|| digits.parse().ok())??;
            sign * (value / 100 * 3_600 + value % 100 * 60)
        }
    };
    let whole = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset;
    whole.checked_mul(SECOND)?.checked_add(nanos)
}

/// Slurm's `[DD-]HH:MM:SS` or `MM:SS`, perhaps with a fraction; or seconds.
pub(super) fn elapsed(text: &str) -> Option<i64> {
    if !text.contains(':') {
        return seconds(text);
    }
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<i64>().ok()?, clock),
        None => (0, text),
    };
    let mut parts = clock.rsplit(':');
    let second = seconds(parts.next()?)?;
    let minute: i64 = parts.next()?.parse().ok()?;
    let hour: i64 = parts.next().map_or(Some(0), |text| text.parse().ok())?;
    if parts.next().is_some() {
        return None;
    }
    (days * 86_400 + hour * 3_600 + minute * 60).checked_mul(SECOND)?.checked_add(second)
}

/// An instant of the Gregorian calendar, `2017-10-09T07:01:55Z`, from nanoseconds since 1970 (Howard Hinnant's
/// `civil_from_days`).
pub fn date(ns: i64) -> String {
    let seconds = ns.div_euclid(SECOND);
    let (day, clock) = (seconds.div_euclid(86_400) + 719_468, seconds.rem_euclid(86_400));
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let of_400 = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_400 + of_400 / 4 - of_400 / 100);
    let month = (5 * of_year + 2) / 153;
    let (month, day) = (if month < 10 { month + 3 } else { month - 9 }, of_year - (153 * month + 2) / 5 + 1);
    let year = of_400 + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (clock / 3_600, clock / 60 % 60, clock % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_they_are_written() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(seconds * SECOND), text);
        }
        for day in (0..60_000).step_by(37) {
            let ns = (day * 86_400 + day % 86_400) * SECOND;
            assert_eq!(instant(&date(ns)), Some(ns));
        }
    }

    #[test]
    fn instants_are_seconds_since_1970() {
        assert_eq!(instant("1970-01-01 00:00:00"), Some(0));
        // `date -u -d '2017-10-09 07:01:55' +%s`
        assert_eq!(instant("2017-10-09 07:01:55"), Some(1_507_532_515 * SECOND));
        assert_eq!(instant("2020-02-29T23:59:59.5Z"), Some(1_583_020_799 * SECOND + SECOND / 2));
        assert_eq!(instant("2023-05-17 11:00:58+08:00"), instant("2023-05-17 03:00:58"));
        assert_eq!(instant("2023-05-17T11:00:58-0530"), instant("2023-05-17T16:30:58"));
        assert_eq!(instant("1739162.0"), Some(1_739_162 * SECOND));
        for bad in [
            "2017-13-09 07:01:55",
            "2017-02-29 07:01:55",
            "2017-11-31 07:01:55",
            "2017-10-09 07-01-55",
            "2017-10-09",
            "yesterday",
            "2017-10-09 07:01:55 CET",
        ] {
            assert_eq!(instant(bad), None, "{bad}");
        }
    }

    #[test]
    fn spans_are_exact() {
        assert_eq!(seconds("552.21"), Some(552_210_000_000));
        assert_eq!(seconds("-1"), Some(-SECOND));
        assert_eq!(seconds(".5"), Some(SECOND / 2));
        assert_eq!(seconds("1e3"), Some(1_000 * SECOND));
        assert_eq!(elapsed("1-02:03:04"), Some(93_784 * SECOND));
        assert_eq!(elapsed("03:04.250"), Some(184_250_000_000));
        for bad in ["", "-", "1:2:3:4", "x:10", "99999999999999999999"] {
            assert_eq!(elapsed(bad), None, "{bad}");
        }
    }
}
