//! Time, size and rate as types; [`text`](parse_quantity) is the form in which a scenario writes them.
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

mod text;

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};

pub use text::{Dimension, UnitError, parse_quantity};

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

/// What every quantity has: none of it, the most of it, and the two ways between it and its number.
macro_rules! counted {
    ($($name:ident {
        $(#[$zero:meta])+ ZERO,
        $(#[$most:meta])+ $end:ident,
        $(#[$put:meta])+ $of:ident($number:ident),
        $(#[$take:meta])+ $told:ident,
    })+) => {$(
        impl $name {
            $(#[$zero])+
            pub const ZERO: Self = Self(0);
            $(#[$most])+
            pub const $end: Self = Self(u64::MAX);

            $(#[$put])+
            #[inline]
            pub const fn $of($number: u64) -> Self {
                Self($number)
            }

            $(#[$take])+
            #[inline]
            pub const fn $told(self) -> u64 {
                self.0
            }
        }
    )+};
}

counted! {
    Time {
        /// The start of the episode.
        ZERO,
        /// Later than every event.
        NEVER,
        /// The instant `ps` picoseconds after the start of the episode.
        from_ps(ps),
        /// Picoseconds since the start of the episode.
        ps,
    }
    Span {
        /// No time.
        ZERO,
        /// The longest there is, which stands for what never ends.
        MAX,
        /// `ps` picoseconds.
        from_ps(ps),
        /// Length in picoseconds.
        ps,
    }
    CalendarTime {
        /// The start of the run.
        ZERO,
        /// Later than every event.
        NEVER,
        /// The instant `ns` nanoseconds after the start of the run.
        from_ns(ns),
        /// Nanoseconds since the start of the run.
        ns,
    }
    Bytes {
        /// Nothing.
        ZERO,
        /// The largest size there is, which stands for no limit.
        MAX,
        /// `bytes` bytes.
        new(bytes),
        /// How many bytes these are.
        get,
    }
    BitRate {
        /// Nothing moves.
        ZERO,
        /// The largest rate there is.
        MAX,
        /// `bps` bits per second.
        from_bps(bps),
        /// Bits per second.
        bps,
    }
}

impl Time {
    /// The last instant at which anything happens: 200 days.
    pub const HORIZON: Self = Self(200 * 86_400 * PS_PER_SECOND);

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

    /// Length in nanoseconds of a span that is known to be of whole ones, as those between instants of the calendar are.
    #[inline]
    pub const fn ns_exact(self) -> u64 {
        debug_assert!(self.0.is_multiple_of(1_000), "expected whole nanoseconds");
        self.0 / 1_000
    }

    /// This span times `factor`, rounded to the nearest picosecond, saturating.
    #[inline]
    pub fn scaled(self, factor: f64) -> Self {
        if factor == 1.0 { self } else { Self((self.0 as f64 * factor).round() as u64) }
    }
}

impl CalendarTime {
    /// The first instant of the calendar at or after `ps` picoseconds since its zero, saturating.
    #[inline]
    pub fn from_exact_ps(ps: u128) -> Self {
        Self(u64::try_from(ps.div_ceil(1_000)).unwrap_or(u64::MAX))
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

impl BitRate {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    #[test]
    fn the_calendar_takes_the_nanosecond_at_or_after() {
        let of = |ps: u128| CalendarTime::from_exact_ps(ps).ns();
        assert_eq!([0, 1, 999, 1_000, 1_001].map(of), [0, 1, 1, 1, 2]);
        assert_eq!([u128::from(u64::MAX) * 1_000, u128::MAX].map(of), [u64::MAX; 2]);
        assert_eq!([Span(0), Span(7_000)].map(Span::ns_exact), [0, 7]);
    }

    /// Of whoever takes a later instant from an earlier one, tests hear.
    #[test]
    #[should_panic(expected = "1 ps before 2 ps")]
    #[cfg(debug_assertions)]
    fn a_difference_below_zero_is_a_defect() {
        let _ = Time(1) - Time(2);
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
