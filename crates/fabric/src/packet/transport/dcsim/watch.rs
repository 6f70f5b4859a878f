//! How arrivals of SIMs and of DATA at a port go together (§4.4, figure 10): numbers of each by intervals, and their correlation when DATA are
//! taken some intervals later.

/// Length of an interval.
const INTERVAL: u64 = 500_000;

/// Arrivals by intervals.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    /// SIMs and DATA.
    seen: Vec<[f64; 2]>,
}

impl Watch {
    /// Something has arrived.
    pub(super) fn note(&mut self, now: u64, data: bool) {
        let place = (now / INTERVAL) as usize;
        if self.seen.len() <= place {
            self.seen.resize(place + 1, [0.0; 2]);
        }
        self.seen[place][usize::from(data)] += 1.0;
    }

    /// The greatest correlation coefficient of SIMs with DATA that come up to `most` later, and how much later they come.
    pub(super) fn best(&self, most: u64) -> Option<(f64, u64)> {
        let lags = 0..=(most / INTERVAL) as usize;
        let each = lags.filter_map(|lag| Some((self.correlation(lag)?, lag as u64 * INTERVAL)));
        each.max_by(|one, other| one.0.total_cmp(&other.0))
    }

    /// Pearson's coefficient of SIMs with DATA `lag` intervals later.
    fn correlation(&self, lag: usize) -> Option<f64> {
        let pairs =
            || self.seen.iter().zip(self.seen.iter().skip(lag)).map(|(sims, data)| (sims[0], data[1]));
        let count = pairs().count() as f64;
        let (x, y) = pairs().fold((0.0, 0.0), |sum, (x, y)| (sum.0 + x, sum.1 + y));
        let (x, y) = (x / count, y / count);
        let (xy, xx, yy) = pairs().fold((0.0, 0.0, 0.0), |(xy, xx, yy), (a, b)| {
            (xy + (a - x) * (b - y), xx + (a - x) * (a - x), yy + (b - y) * (b - y))
        });
        (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DATA that follow SIMs by 7 intervals.
    #[test]
    fn a_delay_is_found() {
        let mut watch = Watch::default();
        for place in 0..500u64 {
            for _ in 0..place * place % 7 {
                watch.note(place * INTERVAL, false);
                watch.note((place + 7) * INTERVAL, true);
            }
        }
        let (correlation, lag) = watch.best(20 * INTERVAL).expect("some");
        assert!(correlation > 0.99, "{correlation}");
        assert_eq!(lag % (7 * INTERVAL), 0);
    }
}
