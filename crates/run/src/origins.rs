//! Whose each job of a log is, as columns of the table `jobs`.

use windtunnel_plan::origin::Origin;

use crate::table::{Batch, Column};

/// Adds the columns of whose each job is to a batch of the table `jobs`, a row each; null where that is not known.
pub(crate) fn columns(mut batch: Batch, origins: &[Origin]) -> Batch {
    for (place, name) in Origin::NAMES.into_iter().enumerate() {
        batch = batch.with(name, Column::known(origins.iter().map(|origin| origin.texts()[place])));
    }
    batch
}
