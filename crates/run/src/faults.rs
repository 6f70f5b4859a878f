//! The table `faults`: a row for each fault and each window of maintenance that has begun.

use windtunnel_cluster::cluster::{FaultRecord, JobId};
use windtunnel_plan::plant::FabricPlant;

use crate::table::{Batch, Column};

/// Rows of `records`, with jobs named by `job`; `None` if there are none.
pub(crate) fn batch(
    records: &[FaultRecord],
    plant: &FabricPlant,
    job: &dyn Fn(JobId) -> String,
) -> Option<Batch> {
    let texts = |of: &dyn Fn(&FaultRecord) -> String| Column::Text(records.iter().map(of).collect());
    let figures = |of: &dyn Fn(&FaultRecord) -> f64| Column::F64(records.iter().map(of).collect());
    let counts = |of: &dyn Fn(&FaultRecord) -> u32| Column::U32(records.iter().map(of).collect());
    let rows = Batch::default()
        .with("time_s", figures(&|record| record.at as f64 / 1e9))
        .with("repair_s", figures(&|record| (record.until - record.at) as f64 / 1e9))
        .with("cause", texts(&|record| record.reason.name().to_owned()))
        .with("component", texts(&|record| plant.name(record.component)))
        .with("gpus", counts(&|record| record.gpus))
        .with("jobs", counts(&|record| record.jobs))
        .with("job", texts(&|record| record.job.map(job).unwrap_or_default()))
        .with("lost_gpu_s", figures(&|record| record.lost as f64 / 1e9));
    (!records.is_empty()).then_some(rows)
}
