//! Distributions of flow sizes.

/// Sizes by a cumulative distribution that is linear between points.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Bytes and the share of flows up to there, both ascending; from 0 to 1.
    points: Vec<(f64, f64)>,
}

/// Why points are no distribution.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SizesError {
    /// A line that is not two numbers.
    #[error("line {line}: expected a size in bytes and a share, found `{found}`")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What stands there.
        found: String,
    },
    /// Sizes or shares that fall, or are below 0.
    #[error("point {point}: sizes and shares must not fall, found {} B after {} B and {} after {}", found.0, before.0, found.1, before.1)]
    Falls {
        /// Its number, from 1.
        point: usize,
        /// The one before.
        before: (f64, f64),
        /// It.
        found: (f64, f64),
    },
    /// Fewer than two points, or a last share that is not 1 (or 100, in per cent).
    #[error("expected points up to a share of 1 or of 100 per cent, found {found}")]
    End {
        /// The last share.
        found: f64,
    },
}

impl Sizes {
    /// Points of size in bytes and share, which ends at 1, or at 100 where it is in per cent. What lies below the first
    /// point has its size.
    ///
    /// # Errors
    /// [`SizesError`] for points that are no distribution.
    pub fn new(points: &[(f64, f64)]) -> Result<Self, SizesError> {
        let last = points.last().map_or(0.0, |point| point.1);
        let unit = if last > 1.5 { 100.0 } else { 1.0 };
        if points.len() < 2 || (last / unit - 1.0).abs() > 1e-9 {
            return Err(SizesError::End { found: last });
        }
        let mut before = (0.0, 0.0);
        for (place, &found) in points.iter().enumerate() {
            // Comparisons fail for what is no number.
            if !(found.0 >= before.0 && found.1 >= before.1 && found.0.is_finite()) {
                return Err(SizesError::Falls { point: place + 1, before, found });
            }
            before = found;
        }
        let mut points: Vec<(f64, f64)> = points.iter().map(|&(size, share)| (size, share / unit)).collect();
        points[0].1 = points[0].1.max(0.0);
        if let Some(last) = points.last_mut() {
            last.1 = 1.0;
        }
        Ok(Self { points })
    }

    /// A file with a size and a share on each line, apart by blanks or a comma; `#` begins a remark.
    ///
    /// # Errors
    /// [`SizesError`] with the line or the point.
    pub fn parse(text: &str) -> Result<Self, SizesError> {
        let mut points = Vec::new();
        for (place, line) in text.lines().enumerate() {
            let found = line.split('#').next().unwrap_or_default().trim();
            if found.is_empty() {
                continue;
            }
            let words = found.split(|letter: char| letter == ',' || letter.is_whitespace());
            let numbers: Option<Vec<f64>> =
                words.filter(|word| !word.is_empty()).map(|word| word.parse().ok()).collect();
            let Some([size, share]) = numbers.as_deref() else {
                return Err(SizesError::Line { line: place + 1, found: found.to_owned() });
            };
            points.push((*size, *share));
        }
        Self::new(&points)
    }

    /// The size below which a share `u` (0 to 1) of flows lies, at least 1 B.
    pub fn at(&self, u: f64) -> u64 {
        let next = self.points.partition_point(|point| point.1 <= u).min(self.points.len() - 1);
        let (high, upto) = self.points[next];
        let Some(&(low, from)) = next.checked_sub(1).and_then(|before| self.points.get(before)) else {
            return (high as u64).max(1);
        };
        let share = if upto > from { ((u - from) / (upto - from)).clamp(0.0, 1.0) } else { 1.0 };
        ((low + share * (high - low)).round() as u64).max(1)
    }

    /// Mean of `payload` bytes a packet at most and `header` bytes on each: bytes on the wire of a flow.
    pub fn mean_wire(&self, payload: u64, header: u64) -> f64 {
        let (payload, header) = (payload as f64, header as f64);
        // ∫ up to x of the packets of a flow of t bytes.
        let packets = |x: f64| {
            let whole = (x / payload).floor();
            payload * whole * (whole + 1.0) / 2.0 + (x - whole * payload) * (whole + 1.0)
        };
        let (first, below) = self.points[0];
        let one = |x: f64| x.max(1.0) + header * (x / payload).ceil().max(1.0);
        let mut sum = below * one(first);
        for pair in self.points.windows(2) {
            let ((low, from), (high, upto)) = (pair[0], pair[1]);
            let mean = if high > low {
                f64::midpoint(low, high) + header * (packets(high) - packets(low)) / (high - low)
            } else {
                one(low)
            };
            sum += (upto - from) * mean;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web() -> Sizes {
        Sizes::parse("0 0\n10000 15 # small\n\n20000,20\n1000000 70\n30000000 100\n").expect("a distribution")
    }

    /// Against sums over a fine grid of shares.
    #[test]
    fn means_are_those_of_the_draws() {
        for sizes in [web(), Sizes::new(&[(500.0, 0.25), (500.0, 0.5), (9_000.0, 1.0)]).expect("steps")] {
            let n = 1_000_000;
            let wire = |size: u64| size + 64 * size.div_ceil(4_096);
            let sum: f64 = (0..n).map(|i| wire(sizes.at((f64::from(i) + 0.5) / f64::from(n))) as f64).sum();
            let mean = sizes.mean_wire(4_096, 64);
            assert!((mean / (sum / f64::from(n)) - 1.0).abs() < 1e-3, "{mean}");
        }
    }

    #[test]
    fn shares_and_percentages_are_read() {
        let (percent, share) = (web(), Sizes::parse("0 0\n10000 .15\n20000 .2\n1000000 .7\n30000000 1"));
        assert_eq!(share, Ok(percent.clone()));
        assert_eq!(
            [percent.at(0.0), percent.at(0.15), percent.at(0.45), percent.at(1.0)],
            [1, 10_000, 510_000, 30_000_000]
        );
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        for (text, expected) in [
            ("0 0\n10 x", "line 2: expected a size in bytes and a share, found `10 x`"),
            ("0 0\n10 0.5", "expected points up to a share of 1"),
            ("10 0\n5 1", "point 2: sizes and shares must not fall"),
            ("-1 0\n5 1", "point 1"),
            ("", "expected points"),
        ] {
            let error = Sizes::parse(text).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
