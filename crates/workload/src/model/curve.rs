//! Efficiency against size: a few points, interpolated linearly in log2 of the size.
//!
//! Invariants: sizes are positive and ascending, shares lie in (0, 1]. Below the first point the share falls in
//! proportion to the size, above the last it stays. Deterministic: log2 is the pinned one.

use windtunnel_kernel::math;

/// A share of peak as a function of size.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// (log2 of the size, size, share), ascending.
    points: Vec<(f64, f64, f64)>,
}

/// Why points are not a curve.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CurveError {
    /// No point.
    #[error("an efficiency curve needs at least one point")]
    Empty,
    /// A point out of range.
    #[error("efficiency point [{0}, {1}]: expected a positive size and a share above 0 and at most 1")]
    OutOfRange(f64, f64),
    /// Sizes do not ascend.
    #[error("efficiency points must ascend: {1} after {0}")]
    Order(f64, f64),
}

impl Curve {
    /// A curve through `points` of (size, share).
    ///
    /// # Errors
    /// [`CurveError`] when there is none, one is out of range, or sizes do not ascend.
    pub fn new(points: Vec<[f64; 2]>) -> Result<Self, CurveError> {
        if points.is_empty() {
            return Err(CurveError::Empty);
        }
        for &[size, share] in &points {
            if !(size > 0.0 && size.is_finite() && share > 0.0 && share <= 1.0) {
                return Err(CurveError::OutOfRange(size, share));
            }
        }
        for pair in points.windows(2) {
            if pair[1][0] <= pair[0][0] {
                return Err(CurveError::Order(pair[0][0], pair[1][0]));
            }
        }
        Ok(Self { points: points.into_iter().map(|[size, share]| (math::log2(size), size, share)).collect() })
    }

    /// The same share at every size.
    ///
    /// # Errors
    /// [`CurveError::OutOfRange`].
    pub fn flat(share: f64) -> Result<Self, CurveError> {
        Self::new(vec![[f64::MIN_POSITIVE, share]])
    }

    /// The share at `size`.
    pub fn at(&self, size: f64) -> f64 {
        let (_, first_size, first_share) = self.points[0];
        if size <= first_size {
            return first_share * (size / first_size);
        }
        let x = math::log2(size);
        for pair in self.points.windows(2) {
            let ((x0, _, y0), (x1, size1, y1)) = (pair[0], pair[1]);
            if size <= size1 {
                return y0 + (y1 - y0) * ((x - x0) / (x1 - x0));
            }
        }
        self.points[self.points.len() - 1].2
    }

    /// The points as (size, share).
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.points.iter().map(|&(_, size, share)| (size, share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_linear_in_the_logarithm() {
        let curve = Curve::new(vec![[64.0, 0.2], [256.0, 0.6], [1024.0, 0.8]]).unwrap();
        for (size, share) in
            [(32.0, 0.1), (64.0, 0.2), (128.0, 0.4), (256.0, 0.6), (512.0, 0.7), (4096.0, 0.8)]
        {
            assert!((curve.at(size) - share).abs() < 1e-12, "{size}: {}", curve.at(size));
        }
        assert_eq!(Curve::flat(0.5).unwrap().at(1.0), 0.5);
    }

    #[test]
    fn bad_points_are_refused() {
        assert_eq!(Curve::new(vec![]), Err(CurveError::Empty));
        assert_eq!(Curve::new(vec![[1.0, 1.5]]), Err(CurveError::OutOfRange(1.0, 1.5)));
        assert_eq!(
            Curve::new(vec![[2.0, 0.5], [2.0, 0.6]]).unwrap_err().to_string(),
            "efficiency points must ascend: 2 after 2"
        );
    }
}
