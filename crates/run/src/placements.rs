//! The table `placements`: which job was on which GPUs of which host, and when.
//!
//! A row is a stay of a job on neighbouring GPUs of a host: from a start to the end or stop that follows. What a log of any
//! length leaves is bounded: every k-th host is told of, for a k that leaves some [`HOSTS`] hosts and some [`EXPECTED`] rows
//! of a log whose jobs stay once each, and rows beyond [`Batch::ROWS`] are left out (schedulers that stop jobs may come
//! to that).

use windtunnel_cluster::cluster::{JobId, Stay};

use crate::table::{Batch, Column};

/// Hosts that are told of, if there are many.
const HOSTS: u64 = 512;

/// Rows of a log whose jobs stay once each.
const EXPECTED: u64 = 1 << 18;

/// Collects rows; `J` names a job.
pub(crate) struct Placements<J> {
    per_host: u32,
    stride: u32,
    /// Rows taken so far.
    taken: usize,
    job: Vec<J>,
    host: Vec<u32>,
    gpu: Vec<u32>,
    gpus: Vec<u32>,
    start: Vec<f64>,
    finish: Vec<f64>,
}

impl<J> Placements<J> {
    /// Of hosts of `per_host` GPUs, all of them.
    pub(crate) const fn of_all(per_host: u32) -> Self {
        Self {
            per_host,
            stride: 1,
            taken: 0,
            job: Vec::new(),
            host: Vec::new(),
            gpu: Vec::new(),
            gpus: Vec::new(),
            start: Vec::new(),
            finish: Vec::new(),
        }
    }

    /// Of as many of `hosts` hosts of `per_host` GPUs as leave a bounded number of rows of jobs with these numbers of GPUs.
    pub(crate) fn of_some(per_host: u32, hosts: u32, jobs: impl Iterator<Item = u32>) -> Self {
        let stays: u64 = jobs.map(|gpus| u64::from(gpus.div_ceil(per_host))).sum();
        let told = HOSTS.min(u64::from(hosts) * EXPECTED / stays.max(1)).max(1);
        Self { stride: u64::from(hosts).div_ceil(told) as u32, ..Self::of_all(per_host) }
    }

    /// Takes a stay; `name` of the job is asked for each row.
    pub(crate) fn add(&mut self, stay: &Stay, name: &dyn Fn(JobId) -> J) {
        let mut gpus: Vec<u32> = stay.placement.iter().map(|gpu| gpu.0).collect();
        gpus.sort_unstable();
        let per_host = self.per_host;
        let seconds = |ns: u64| ns as f64 / 1e9;
        for run in gpus.chunk_by(|a, b| a + 1 == *b && a / per_host == b / per_host) {
            let host = run[0] / per_host;
            if !host.is_multiple_of(self.stride) || self.taken == Batch::ROWS {
                continue;
            }
            self.taken += 1;
            self.job.push(name(stay.job));
            self.host.push(host);
            self.gpu.push(run[0] % per_host);
            self.gpus.push(run.len() as u32);
            self.start.push(seconds(stay.start));
            self.finish.push(stay.until.map_or(f64::NAN, seconds));
        }
    }

    /// Rows that wait to be told.
    pub(crate) const fn len(&self) -> usize {
        self.host.len()
    }

    /// Those rows, with the column of jobs made by `column`.
    pub(crate) fn batch(&mut self, column: fn(Vec<J>) -> Column) -> Batch {
        let take = std::mem::take::<Vec<u32>>;
        Batch::default()
            .with("job", column(std::mem::take(&mut self.job)))
            .with("host", Column::U32(take(&mut self.host)))
            .with("gpu", Column::U32(take(&mut self.gpu)))
            .with("gpus", Column::U32(take(&mut self.gpus)))
            .with("start_s", Column::F64(std::mem::take(&mut self.start)))
            .with("finish_s", Column::F64(std::mem::take(&mut self.finish)))
    }
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::EndpointId;

    use super::*;

    fn stay(gpus: &[u32], until: Option<u64>) -> Stay {
        let placement = gpus.iter().map(|&gpu| EndpointId(gpu)).collect();
        Stay { job: JobId(7), start: 1_000_000_000, until, placement }
    }

    fn u32s(batch: &Batch, column: &str) -> Vec<u32> {
        match &batch.columns.iter().find(|(name, _)| *name == column).expect("it is there").1 {
            Column::U32(values) => values.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_row_is_a_run_of_neighbours_on_a_host() {
        let mut rows = Placements::of_all(4);
        // Ranks in any order: 1, 2 and 3 of host 0; 0 and 2 of host 1.
        rows.add(&stay(&[6, 3, 2, 4, 1], Some(3_000_000_000)), &|job| u64::from(job.0));
        let batch = rows.batch(Column::U64);
        assert_eq!(u32s(&batch, "host"), [0, 1, 1]);
        assert_eq!(u32s(&batch, "gpu"), [1, 0, 2]);
        assert_eq!(u32s(&batch, "gpus"), [3, 1, 1]);
        assert_eq!(rows.len(), 0);
    }

    #[test]
    fn rows_of_many_jobs_are_bounded_by_looking_at_fewer_hosts() {
        let all: Placements<u64> = Placements::of_some(8, 64, std::iter::repeat_n(8, 20_000));
        assert_eq!(all.stride, 1);
        let hosts: Placements<u64> = Placements::of_some(8, 2_048, std::iter::repeat_n(1, 10));
        assert_eq!(hosts.stride, 4);
        // 2^22 jobs over 64 hosts: of each 16th host as many rows as are expected.
        let mut few: Placements<u64> = Placements::of_some(1, 64, std::iter::repeat_n(1, 1 << 22));
        assert_eq!(few.stride, 16);
        for gpu in 0..64 {
            few.add(&stay(&[gpu], None), &|job| u64::from(job.0));
        }
        assert_eq!(u32s(&few.batch(Column::U64), "host"), [0, 16, 32, 48]);
        few.taken = Batch::ROWS;
        few.add(&stay(&[0], None), &|job| u64::from(job.0));
        assert_eq!(few.len(), 0);
    }
}
