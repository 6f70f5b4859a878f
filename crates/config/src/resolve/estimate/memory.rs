//! What the fullest GPU of a layout holds, which is known before anything is timed.

use rustc_hash::FxHashMap;
use windtunnel_kernel::Bytes;
use windtunnel_workload::estimate::Course;
use windtunnel_workload::generate::Layout;
use windtunnel_workload::model::{Chunk, Resident, Training};
use windtunnel_workload::schedules::Placement;

use super::super::model::Transformer;
use super::laid::{Layers, layers_of};

/// Bytes of the fullest pipeline rank, whose `chunks` are by stage.
pub(super) fn fullest(
    course: &Course,
    layout: &Layout,
    training: &Training,
    chunks: &[Chunk],
    placement: Placement,
) -> Bytes {
    let sharding = Transformer::sharding(layout);
    let mut known: FxHashMap<Layers, (u64, u64)> = FxHashMap::default();
    let mut same: FxHashMap<Vec<Layers>, Bytes> = FxHashMap::default();
    let mut fullest = Bytes::ZERO;
    for rank in 0..course.ranks() {
        let held: Vec<&Chunk> =
            (0..course.chunks()).map(|chunk| &chunks[placement.stage(rank, chunk as u16) as usize]).collect();
        let layers: Vec<Layers> = held.iter().map(|chunk| layers_of(&training.architecture, chunk)).collect();
        let sizes: (Vec<u64>, Vec<u64>) = held
            .iter()
            .zip(&layers)
            .map(|(chunk, layers)| {
                *known.entry(*layers).or_insert_with(|| {
                    let whole = training.chunk_activation_bytes(chunk).get();
                    (whole, (whole as f64 * training.kept_share(chunk)).ceil() as u64)
                })
            })
            .unzip();
        let state = *same.entry(layers).or_insert_with(|| {
            let resident: Vec<Resident> =
                held.iter().map(|chunk| Resident { chunk: (*chunk).clone(), in_flight: 0 }).collect();
            training.memory(&resident, &sharding).total()
        });
        fullest = fullest.max(state + Bytes::new(course.peak(rank, &sizes.0, &sizes.1)));
    }
    fullest
}
