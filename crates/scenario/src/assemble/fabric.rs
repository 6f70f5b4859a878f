//! The fabric and its hosts: from what is written, with the gaps filled from data sheets.

use std::path::Path;
use std::sync::Arc;

use windtunnel_kernel::{BitRate, Span};
use windtunnel_topology::{ClosSpec, HostSpec, ScaleUpSpec, Tier, Topology, TopologySpec};
use windtunnel_workload::model::sheets::{GpuSheet, NicSheet};

use super::evidence::EvidenceList;
use crate::error::InputError;
use crate::schema::{Host, ShapeName, TopologyFile};
use crate::{load, sheets};

/// A scale-up link between GPUs of unknown make: as fast as nothing waits for it.
const UNKNOWN_SCALE_UP: BitRate = BitRate(3_600_000_000_000);

/// A fabric with what its hosts are made of.
#[derive(Clone, Debug)]
pub struct FabricParts {
    /// The shape.
    pub topology: Arc<Topology>,
    /// The GPUs' sheet, if one is named.
    pub gpu: Option<Arc<GpuSheet>>,
    /// The NICs' sheet, if one is named.
    pub nic: Option<Arc<NicSheet>>,
    /// Time a stream is held per message.
    pub overhead: Span,
    /// Time a NIC is held per message.
    pub gap: Span,
    /// Latency of both hosts' NICs, added to the path's.
    pub nic_latency: Span,
}

/// Builds the fabric; `source` is the scenario's file and `place` the key's path for messages.
///
/// # Errors
/// [`InputError`] for a missing key, an unknown sheet or a shape that does not close.
pub fn fabric(
    written: &TopologyFile,
    source: &str,
    place: &str,
    base: &Path,
    evidence: &mut EvidenceList,
) -> Result<FabricParts, InputError> {
    let at = |key: &str| {
        let path = [place, key].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(".");
        format!("{source}: {path}")
    };
    if let Some(file) = &written.file {
        if written.shape.is_some() || written.hosts.is_some() || !written.tiers.is_empty() {
            return Err(InputError::new(at("file"), "expected `file` alone, found other keys beside it"));
        }
        let path = base.join(file);
        let name = path.display().to_string();
        let text = sheets::read(&path, &at("file"))?;
        let inner: TopologyFile = load::from_yaml(&text, &name)?;
        if inner.file.is_some() {
            return Err(InputError::new(format!("{name}: file"), "a topology file cannot refer to another"));
        }
        let folder = path.parent().unwrap_or(base).to_owned();
        return fabric(&inner, &name, "", &folder, evidence);
    }
    let missing = |key: &str, example: &str| {
        InputError::new(at(key), format!("`{key}` is missing")).hint(format!("for example `{example}`"))
    };
    let shape = written.shape.ok_or_else(|| missing("shape", "shape: clos"))?;
    let hosts = written.hosts.ok_or_else(|| missing("hosts", "hosts: 64"))?;
    let host = written.host.as_ref().ok_or_else(|| missing("host", "host: {gpus: 8, nics: 8}"))?;
    if written.tiers.is_empty() {
        return Err(missing("tiers", "tiers: [{ports_down: 32, rate: 400 Gbps}]"));
    }
    let gpu = host.gpu.as_deref().map(|name| gpu_sheet(name, base, &at("host.gpu"))).transpose()?;
    let nic = host.nic.as_deref().map(|name| nic_sheet(name, base, &at("host.nic"))).transpose()?;
    if let Some(gpu) = &gpu {
        evidence.sheet(&format!("GPU {}", gpu.name), gpu.evidence());
    }
    if let Some(nic) = &nic {
        evidence.sheet(&format!("NIC {}", nic.name), nic.evidence());
        let rate = written.tiers[0].rate.0;
        if rate.0 > nic.rate.value.0 {
            return Err(InputError::new(
                at("tiers[0].rate"),
                format!(
                    "the host links run at {} Gbps, but a {} has {} Gbps",
                    rate.0 / 1_000_000_000,
                    nic.name,
                    nic.rate.value.0 / 1_000_000_000
                ),
            )
            .hint("lower the rate, or name another `host.nic`"));
        }
    }
    let scale_up = scale_up(host, gpu.as_ref(), evidence);
    let ShapeName::Clos = shape;
    let tier = |tier: &crate::schema::ClosTier| Tier {
        ports_down: tier.ports_down,
        oversubscription: tier.oversubscription,
        rate: tier.rate.0,
        length_mm: tier.length.0,
        bundle: tier.bundle,
        switch_latency: written.switch.latency.0,
    };
    let spec = TopologySpec::Clos(ClosSpec {
        hosts,
        host: HostSpec { gpus: host.gpus, nics: host.nics, rails: host.rails, scale_up },
        tiers: written.tiers.iter().map(tier).collect(),
        planes: written.planes,
        propagation_ps_per_m: written.switch.delay_per_metre.0.0,
    });
    let topology = Topology::new(&spec).map_err(|error| {
        let fault = InputError::new(at(&error.path()), error.to_string());
        match error.hint() {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    })?;
    evidence.add("fabric", "given", "the scenario's topology");
    let sheet = nic.as_ref();
    Ok(FabricParts {
        topology: Arc::new(topology),
        overhead: host
            .overhead
            .map_or_else(|| sheet.map_or(Span::ZERO, |nic| nic.overhead.value), |given| given.0),
        gap: sheet.map_or(Span::ZERO, |nic| nic.gap.value),
        nic_latency: sheet.map_or(Span::ZERO, |nic| nic.latency.value),
        gpu: gpu.map(Arc::new),
        nic: nic.map(Arc::new),
    })
}

/// The GPU sheet `name`.
///
/// # Errors
/// [`InputError`] when there is none or it is faulty.
pub fn gpu_sheet(name: &str, base: &Path, place: &str) -> Result<GpuSheet, InputError> {
    let sheet = sheets::find("gpus", name, base, place)?;
    GpuSheet::parse(&sheet.text).map_err(|error| InputError::new(&sheet.source, error.to_string()))
}

fn nic_sheet(name: &str, base: &Path, place: &str) -> Result<NicSheet, InputError> {
    let sheet = sheets::find("nics", name, base, place)?;
    NicSheet::parse(&sheet.text).map_err(|error| InputError::new(&sheet.source, error.to_string()))
}

fn scale_up(host: &Host, gpu: Option<&GpuSheet>, evidence: &mut EvidenceList) -> ScaleUpSpec {
    let sheet = gpu.map(|gpu| &gpu.scale_up);
    if let Some(given) = &host.scale_up {
        let latency = given.latency.map(|latency| latency.0).or(sheet.map(|sheet| sheet.latency.value));
        return ScaleUpSpec { size: None, rate: given.rate.0, latency: latency.unwrap_or(Span::ZERO) };
    }
    match sheet {
        Some(sheet) => ScaleUpSpec { size: None, rate: sheet.payload_rate(), latency: sheet.latency.value },
        None if host.gpus == 1 => ScaleUpSpec { size: Some(1), rate: UNKNOWN_SCALE_UP, latency: Span::ZERO },
        None => {
            evidence.add(
                "scale-up link",
                "inferred",
                "no GPU sheet and no `host.scale_up`: 450 GB/s per direction",
            );
            ScaleUpSpec { size: None, rate: UNKNOWN_SCALE_UP, latency: Span::ZERO }
        }
    }
}
