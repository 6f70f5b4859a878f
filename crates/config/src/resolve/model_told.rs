//! What is told of a transformer before it runs: its memory, which may refuse it, and its stages (`--explain`).

use serde_json::{Value, json};
use windtunnel_kernel::Bytes;
use windtunnel_plan::error::InputError;
use windtunnel_workload::generate::Layout;
use windtunnel_workload::model::{
    Chunk, ChunkCost, GpuSheet, Memory, MemoryVerdict, Resident, Sharding, Training, compute_time,
};
use windtunnel_workload::schedules::Schedule;

use super::context::Context;
use super::model::Transformer;
use super::on_gpus::OnGpu;
use crate::schema::MemoryPolicy;

impl Transformer<'_> {
    /// The fullest rank's memory as JSON; refuses or warns as the scenario says. `rooms` is the smallest GPU of each pipeline rank.
    pub(super) fn check_memory(
        &self,
        training: &Training,
        memory: &[Memory],
        rooms: &[&GpuSheet],
        sharding: &Sharding,
        context: &Context<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Value, InputError> {
        // What is missing, or negative what is left.
        let missing = |stage: usize, memory: &Memory| {
            i128::from(memory.total().get()) - i128::from(rooms[stage].memory.value.get())
        };
        let (stage, fullest) = memory
            .iter()
            .enumerate()
            .max_by_key(|(stage, memory)| (missing(*stage, memory), std::cmp::Reverse(*stage)))
            .expect("a pipeline has at least one rank");
        let (gpu, capacity) = (rooms[stage], rooms[stage].memory.value);
        if let MemoryVerdict::Exceeds { missing, hint } = training.memory_verdict(fullest, capacity, sharding)
        {
            let gib = |bytes: Bytes| bytes.get() as f64 / f64::from(1u32 << 30);
            let message = format!(
                "pipeline rank {stage} needs {:.1} GiB, but a {} has {:.1} GiB: {:.1} GiB missing (weights {:.1}, gradients \
                 {:.1}, optimiser {:.1}, activations {:.1}, buffers {:.1})",
                gib(fullest.total()),
                gpu.name,
                gib(capacity),
                gib(missing),
                gib(fullest.weights),
                gib(fullest.gradients),
                gib(fullest.optimiser),
                gib(fullest.activations),
                gib(fullest.buffers),
            );
            match context.scenario.memory {
                MemoryPolicy::Refuse => {
                    return Err(InputError::new(self.place, message)
                        .hint(format!("{hint}, or set `memory: warn` to run it all the same")));
                }
                MemoryPolicy::Warn => warnings.push(format!("{}: {message}", self.place)),
                MemoryPolicy::Ignore => {}
            }
        }
        let mut json = memory_json(fullest);
        json["total"] = json!(fullest.total().get());
        json["capacity"] = json!(capacity.get());
        Ok(json)
    }

    /// Stages, memory and communicators as JSON.
    pub(super) fn explanation(
        &self,
        training: &Training,
        layout: &Layout,
        chunks: &[Chunk],
        costs: &[Vec<ChunkCost>],
        (lies, on): (&[Vec<usize>], &[OnGpu<'_>]),
        memory: &[Memory],
        generated: &windtunnel_workload::generate::Generated,
    ) -> Value {
        let seconds = |pieces: &[windtunnel_workload::generate::Piece]| compute_time(pieces).seconds();
        // The slowest GPU sets the pace of its stage.
        let pace = |stage: usize, kind: usize| {
            let work = &costs[kind][stage].work;
            compute_time(&work.forward) + compute_time(&work.backward)
        };
        let placement = generated.schedule.placement;
        let kinds_of = |stage: usize| {
            let mut found: Vec<usize> = placement
                .holders(stage as u32)
                .iter()
                .flat_map(|&(rank, _)| lies[rank as usize].clone())
                .collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        let stages: Vec<Value> = chunks
            .iter()
            .enumerate()
            .map(|(stage, chunk)| {
                let kinds = kinds_of(stage);
                let slowest =
                    kinds.iter().copied().max_by_key(|&kind| (pace(stage, kind), std::cmp::Reverse(kind)));
                let cost = &costs[slowest.unwrap_or(0)][stage];
                let mut told = json!({
                    "stage": stage,
                    "layers": [chunk.layers.start, chunk.layers.end],
                    "embedding": chunk.embedding,
                    "head": chunk.head,
                    "forward_compute_s": seconds(&cost.work.forward),
                    "backward_compute_s": seconds(&cost.work.backward),
                    "forward_flops": cost.flops.forward,
                    "backward_flops": cost.flops.backward,
                    "recomputed_flops": cost.flops.recomputed,
                    "parameter_bytes": cost.work.parameter_bytes.iter().map(|bytes| bytes.get()).sum::<u64>()
                        + cost.work.expert_parameter_bytes.iter().map(|bytes| bytes.get()).sum::<u64>(),
                    "send_bytes": cost.work.send_bytes.get(),
                    "activation_bytes": training.chunk_activation_bytes(chunk).get(),
                });
                if on.len() > 1 {
                    told["gpus"] = kinds.iter().map(|&kind| on[kind].gpu.name.as_str()).collect();
                }
                told
            })
            .collect();
        let ranks: Vec<Value> = memory
            .iter()
            .enumerate()
            .map(|(rank, memory)| {
                let mut json = memory_json(memory);
                json["total"] = json!(memory.total().get());
                json["pipeline_rank"] = json!(rank);
                json["peak_in_flight"] = json!(generated.schedule.peak_in_flight(rank as u32));
                json
            })
            .collect();
        let groups: Vec<Value> = generated
            .groups
            .iter()
            .map(|group| json!({"role": group.role.name(), "groups": group.count, "size": group.size}))
            .collect();
        json!({
            "name": self.name,
            "parameters": training.architecture.parameters(),
            "active_parameters": training.architecture.active_parameters(),
            "layers": training.architecture.layers,
            "micro_batches": layout.microbatches,
            "schedule": layout.schedule.name.name(),
            "stages": stages,
            "memory_by_pipeline_rank": ranks,
            "communicators": groups,
        })
    }

    /// Memory of the GPUs of a pipeline rank; activations as the schedule keeps them.
    pub(super) fn memory_of(
        training: &Training,
        schedule: &Schedule,
        chunks: &[Chunk],
        rank: u32,
        sharding: &Sharding,
    ) -> Memory {
        let held: Vec<&Chunk> = (0..schedule.placement.chunks)
            .map(|chunk| &chunks[schedule.placement.stage(rank, chunk) as usize])
            .collect();
        let resident: Vec<Resident> =
            held.iter().map(|chunk| Resident { chunk: (*chunk).clone(), in_flight: 1 }).collect();
        let mut memory = training.memory(&resident, sharding);
        let whole: Vec<u64> = held.iter().map(|chunk| training.chunk_activation_bytes(chunk).get()).collect();
        let kept: Vec<u64> = (whole.iter().zip(&held))
            .map(|(whole, chunk)| (*whole as f64 * training.kept_share(chunk)).ceil() as u64)
            .collect();
        memory.activations = Bytes::new(schedule.peak_activation(rank, &whole, &kept));
        memory
    }
}

fn memory_json(memory: &Memory) -> Value {
    json!({
        "weights": memory.weights.get(),
        "gradients": memory.gradients.get(),
        "optimiser": memory.optimiser.get(),
        "activations": memory.activations.get(),
        "buffers": memory.buffers.get(),
    })
}
