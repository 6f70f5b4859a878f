//! `tuner: nccl`: NCCL's choice of algorithm and protocol, and what of its time no fabric simulates.
//!
//! The bytes run on the fabric, as many as the protocol puts on the wire at its share of the links; launch, start and
//! hops, which the closed form ([`Communicator::time`]) knows, come before as one operation of the ranks. On an idle
//! fabric a run takes what the closed form says and the latency of its paths besides.

use windtunnel_kernel::Span;
use windtunnel_plan::error::InputError;
use windtunnel_workload::collectives::nccl::{
    Algorithm as Chosen, Architecture, Communicator, Constants, Hardware, Layout, Operation, Settings,
};
use windtunnel_workload::collectives::{Algorithm, CollectiveKind, CollectiveSpec, SizeRule};

use super::jobs::Context;
use crate::schema::CollectiveJob;

/// Share of a GPU's memory bandwidth that copies reach.
const MEMORY: f64 = 0.85;

/// Sets `spec`'s algorithm and bytes as NCCL's tuner has it; returns what passes before the first byte.
///
/// # Errors
/// [`InputError`] where the topology names no sheets, the environment is wrong, or it leaves no algorithm.
pub(super) fn tune(
    job: &CollectiveJob,
    spec: &mut CollectiveSpec,
    ranks: u32,
    context: &Context<'_>,
    place: &str,
) -> Result<Span, InputError> {
    let Some(operation) = operation(spec.kind) else {
        return Err(InputError::new(
            format!("{place}.tuner"),
            format!("`nccl` has no {}, expected a collective with data", spec.kind.name()),
        ));
    };
    let hardware = hardware(context, place)?;
    let mut settings = Settings::default();
    for (name, value) in &job.environment {
        let at = || format!("{place}.environment.{name}");
        if !settings.set(name, value).map_err(|error| InputError::new(at(), error.to_string()))? {
            return Err(InputError::new(at(), format!("`{name}` is not followed"))
                .hint("there are NCCL_VERSION, NCCL_ALGO, NCCL_PROTO, NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS, NCCL_BUFFSIZE, NCCL_NVLS_ENABLE, NCCL_COLLNET_ENABLE, NCCL_CROSS_NIC, FI_HMEM_CUDA_USE_GDRCOPY and FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD"));
        }
    }
    let inside = hardware.gpus.min(ranks).max(1);
    let layout = Layout { domains: ranks.div_ceil(inside), ranks: inside, ranks_per_process: 1 };
    if layout.members() != ranks {
        return Err(InputError::new(
            format!("{place}.ranks"),
            format!("`tuner: nccl` needs whole scale-up domains of {inside}, found {ranks} ranks"),
        ));
    }
    if ranks == 1 {
        return Ok(Span::ZERO);
    }
    let communicator = Communicator { hardware: &hardware, layout, settings: &settings };
    let choice = communicator
        .choose(operation, spec.bytes.0)
        .map_err(|error| InputError::new(format!("{place}.environment"), error.to_string()))?;
    let constants = Constants::default();
    let at = choice.protocol as usize;
    let share = match choice.algorithm {
        Chosen::PointToPoint if layout.domains > 1 => constants.exchange_network,
        Chosen::PointToPoint => constants.exchange_scale_up,
        _ if layout.domains > 1 => constants.share_network[at],
        Chosen::Nvls => constants.share_sums,
        _ => constants.share_scale_up[at],
    };
    let several = layout.domains > 1 && layout.ranks > 1;
    let by_domains = matches!(
        spec.kind,
        CollectiveKind::AllReduce | CollectiveKind::AllGather | CollectiveKind::ReduceScatter
    );
    spec.algorithm = match choice.algorithm {
        Chosen::PointToPoint => Algorithm::Direct,
        // NCCL's channels leave a host by every NIC. Of short messages the hops are in what comes before.
        _ if several && by_domains => SizeRule::over_domains(spec.bytes.0, ranks, layout.ranks),
        Chosen::Pat => Algorithm::Pat,
        Chosen::Tree => Algorithm::DoubleBinaryTree,
        _ => Algorithm::Ring,
    };
    let mut sent = spec.bytes.0 as f64 / share;
    if choice.algorithm == Chosen::Nvls && layout.domains == 1 && operation == Operation::AllReduce {
        // The switch sums: a GPU sends n/(n-1) of the buffer where a ring sends 2 (n-1)/n.
        let part = f64::from(ranks - 1) / f64::from(ranks);
        sent /= 2.0 * part * part;
    }
    spec.bytes.0 = sent.ceil() as u64;
    let before = communicator.time_of(operation, choice, 1, &constants);
    Ok(Span((before * 1e12).round() as u64))
}

fn operation(kind: CollectiveKind) -> Option<Operation> {
    match kind {
        CollectiveKind::AllReduce => Some(Operation::AllReduce),
        CollectiveKind::AllGather => Some(Operation::AllGather),
        CollectiveKind::ReduceScatter => Some(Operation::ReduceScatter),
        CollectiveKind::Broadcast { .. } => Some(Operation::Broadcast),
        CollectiveKind::Reduce { .. } => Some(Operation::Reduce),
        CollectiveKind::AllToAll => Some(Operation::AllToAll),
        CollectiveKind::AllToAllV | CollectiveKind::Barrier => None,
    }
}

/// A scale-up domain as NCCL sees it, from the topology and the sheets it names.
fn hardware(context: &Context<'_>, place: &str) -> Result<Hardware, InputError> {
    let (topology, fabric) = (&context.fabric.topology, context.fabric);
    let missing = |what: &str, example: &str| {
        InputError::new(format!("{place}.tuner"), format!("`nccl` needs `topology.host.{what}`"))
            .hint(format!("for example `{what}: {example}`"))
    };
    let gpu = fabric.gpu.as_ref().ok_or_else(|| missing("gpu", "H100-SXM"))?;
    let nic = fabric.nic.as_ref().ok_or_else(|| missing("nic", "ConnectX-7"))?;
    let name = gpu.name.to_ascii_lowercase();
    let architecture = if name.starts_with("v100") {
        Architecture::Volta
    } else if name.starts_with("a100") || gpu.vendor != "NVIDIA" {
        Architecture::Ampere
    } else if name.starts_with('h') || name.starts_with("gh") {
        Architecture::Hopper
    } else {
        Architecture::Blackwell
    };
    let size = topology.scale_up_size().max(1);
    let newer = matches!(architecture, Architecture::Hopper | Architecture::Blackwell);
    let hosts = size.div_ceil(topology.endpoints_per_host().max(1));
    Ok(Hardware {
        architecture,
        scale_up: gpu.scale_up.payload_rate().bytes_per_second(),
        // Domains of four are joined without a switch.
        scale_up_sums: newer && size >= 8,
        scale_up_ranks: None,
        host_link: 0.0,
        memory: MEMORY * gpu.memory_bandwidth.value.bytes_per_second(),
        nics: topology.nics_per_host() * hosts,
        nic: nic.rate.value.bytes_per_second(),
        uplink: 0.0,
        slow_leaf: false,
        channel_speed: 0.0,
        simple_trees: false,
        amd: false,
        gpus: size,
        wire: 0.0,
        ll128_between: topology.nics_per_host() >= topology.endpoints_per_host(),
        network_sums: false,
    })
}
