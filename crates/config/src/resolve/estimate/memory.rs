//! What the fullest GPU of a layout holds, which is known before anything is timed.

use windtunnel_kernel::Bytes;
use windtunnel_workload::estimate::Course;
use windtunnel_workload::model::{Chunk, Resident};

use super::super::model::Transformer;
use super::laid::Layers;
use super::prepared::{Held, Prepared};

/// Bytes of the pipeline rank that has least left, whose `chunks`, with layers of such `kinds`, are by stage, and what its smallest GPU
/// has: the first of `rooms` where all have as much, else one for each rank.
pub(super) fn fullest(
    course: &Course,
    prepared: &Prepared,
    chunks: &[Chunk],
    kinds: &[Layers],
    rooms: &[Bytes],
) -> (Bytes, Bytes) {
    let Prepared { layout, training, placement, .. } = prepared;
    let Held { activations, state } = &mut *prepared.held.borrow_mut();
    let mut fullest = (Bytes::ZERO, rooms[0]);
    let left = |(held, room): (Bytes, Bytes)| i128::from(room.get()) - i128::from(held.get());
    let (mut layers, mut whole, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for rank in 0..course.ranks() {
        layers.clear();
        whole.clear();
        kept.clear();
        let stages = || (0..course.chunks()).map(|chunk| placement.stage(rank, chunk as u16) as usize);
        for stage in stages() {
            let sizes = *activations.entry(kinds[stage]).or_insert_with(|| {
                let whole = training.chunk_activation_bytes(&chunks[stage]).get();
                (whole, (whole as f64 * training.kept_share(&chunks[stage])).ceil() as u64)
            });
            layers.push(kinds[stage]);
            whole.push(sizes.0);
            kept.push(sizes.1);
        }
        let held = if let Some(known) = state.get(&layers) {
            *known
        } else {
            let chunk = |stage: usize| Resident { chunk: chunks[stage].clone(), in_flight: 0 };
            let resident: Vec<Resident> = stages().map(chunk).collect();
            let held = training.memory(&resident, &Transformer::sharding(layout)).total();
            state.insert(layers.clone(), held);
            held
        };
        let all = held + Bytes::new(course.peak(rank, &whole, &kept));
        let own = (all, rooms.get(rank as usize).copied().unwrap_or(rooms[0]));
        if left(own) < left(fullest) {
            fullest = own;
        }
    }
    fullest
}
