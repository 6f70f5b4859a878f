//! The fabric and its hosts: from what is written, with the gaps filled from data sheets.

pub mod faults;
mod graph;
mod kinds;
mod place;
mod shape;

use std::sync::Arc;

use windtunnel_kernel::{BitRate, Span};
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::fabric::FabricParts;
use windtunnel_plan::inputs::Inputs;
use windtunnel_plan::kinds::GpuKinds;
use windtunnel_topology::{EcmpHash, HostSpec, ScaleUpSpec, ShapeName, Topology, TopologySpec};
use windtunnel_workload::model::sheets::{GpuSheet, NicSheet};

use self::kinds::Groups;
use self::place::Place;
use self::shape::Builder;
use crate::derive::Layer;
use crate::schema::{ClosTier, Host, Name, NicBus, Rails, Rate, SheetChoice, TopologyFile};
use crate::{load, sheets};

/// A scale-up link between GPUs of unknown make: as fast as nothing waits for it.
const UNKNOWN_SCALE_UP: BitRate = BitRate::from_bps(3_600_000_000_000);

/// A topology as it is written, with its place: its own file if it stands in one.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its keys, `file` not among them.
    pub keys: TopologyFile,
    /// File for messages.
    pub source: String,
    /// Path in that file.
    pub path: String,
    /// Folder of relative paths.
    pub base: Inputs,
}

impl Written {
    fn place(&self) -> Place<'_> {
        Place { source: &self.source, path: &self.path }
    }

    /// Where a key stands, for messages.
    pub fn at(&self, key: &str) -> String {
        self.place().at(key)
    }
}

/// Follows `file`; `source` is the scenario's file and `path` the key's for messages.
///
/// # Errors
/// [`InputError`] for a file that is absent or no topology.
pub fn resolve(keys: &TopologyFile, source: &str, path: &str, base: &Inputs) -> Result<Written, InputError> {
    let Some(file) = &keys.file else {
        let (source, path) = (source.to_owned(), path.to_owned());
        return Ok(Written { keys: keys.clone(), source, path, base: base.clone() });
    };
    let place = Place { source, path };
    let alone = keys.shape.is_none()
        && keys.host.is_none()
        && keys.failed.is_empty()
        && crate::schema::KEYS.iter().all(|key| !(key.given)(keys));
    if !alone {
        return Err(InputError::new(place.at("file"), "expected `file` alone, found other keys beside it"));
    }
    let target = base.join(file);
    let name = target.display().to_string();
    let text = sheets::read(&target, &place.at("file"))?;
    let inner: TopologyFile = load::from_yaml(&text, &name)?;
    if inner.file.is_some() {
        return Err(InputError::new(format!("{name}: file"), "a topology file cannot refer to another"));
    }
    let base = base.within(file);
    Ok(Written { keys: inner, source: name, path: String::new(), base })
}

/// A topology that is checked as far as the keys and sheets go: its spec, and what its hosts are made of.
#[derive(Debug)]
pub struct Draft<'a> {
    written: &'a Written,
    shape: ShapeName,
    spec: TopologySpec,
    host: Host,
    gpu: Option<Arc<GpuSheet>>,
    nic: Option<NicSheet>,
    groups: Groups,
}

impl<'a> Draft<'a> {
    /// Reads the keys and the sheets.
    ///
    /// # Errors
    /// [`InputError`] for a missing key, one of another shape, or an unknown sheet.
    pub fn new(written: &'a Written, evidence: &mut EvidenceList) -> Result<Self, InputError> {
        let (keys, base, place) = (&written.keys, &written.base, written.place());
        let Name(shape) = keys.shape.ok_or_else(|| place.missing("shape", "shape: clos"))?;
        // The file of a graph may say what is inside its hosts.
        let host = match &keys.host {
            Some(host) => host.clone(),
            None if shape == ShapeName::Graph => Host::default(),
            None => return Err(place.missing("host", "host: {gpus: 8, nics: 8}")),
        };
        let gpu = host.gpu.as_ref().map(|gpu| derived_gpu(gpu, base, &place.at("host.gpu"))).transpose()?;
        let gpu = gpu.map(Arc::new);
        let groups = Groups::read(written, shape, &host, gpu.as_ref())?;
        let gpu = groups.first().or(gpu);
        let nic = host.nic.as_deref().map(|name| nic_sheet(name, base, &place.at("host.nic"))).transpose()?;
        for sheet in gpu.iter().chain(groups.others()) {
            evidence.sheet(&format!("GPU {}", sheet.name), sheet.evidence());
        }
        if let Some(nic) = &nic {
            evidence.sheet(&format!("NIC {}", nic.name), nic.evidence());
        }
        let inside = HostSpec {
            gpus: host.gpus,
            nics: host.nics,
            rails: rails(&host, &place)?,
            scale_up: scale_up(&host, gpu.as_deref(), evidence),
        };
        let mut spec =
            Builder { written: keys, shape, host: inside, nic: nic.as_ref(), place, base }.spec()?;
        if let TopologySpec::Regions(regions) = &mut spec {
            groups.tell(&mut regions.buildings);
        }
        evidence.add("fabric", "given", &origin(keys, &spec));
        Ok(Self { written, shape, spec, host, gpu, nic, groups })
    }

    /// Works out the topology, whose switches hash by `hash`.
    ///
    /// # Errors
    /// [`InputError`] for a shape that does not close.
    pub fn topology(&self, hash: EcmpHash) -> Result<Arc<Topology>, InputError> {
        let place = self.written.place();
        let topology = Topology::new(&self.spec).map(|topology| Arc::new(topology.with_hash(hash)));
        topology.map_err(|error| place.error(self.shape, &error))
    }

    /// What it is built from.
    pub fn spec(&self) -> &TopologySpec {
        &self.spec
    }

    /// The fabric on it.
    ///
    /// # Errors
    /// [`InputError`] for failed parts that there are not.
    pub fn finish(self, topology: Arc<Topology>) -> Result<FabricParts, InputError> {
        let Self { written, host, gpu, nic, groups, .. } = self;
        let sheet = nic.as_ref();
        let reduces = reduces(&host, gpu.as_deref());
        let kinds = groups.kinds(host.gpus).unwrap_or_else(|| GpuKinds::alike(gpu.clone(), reduces));
        Ok(FabricParts {
            faults: faults::forwarder(&written.keys, &topology, &written.place())?,
            detour: faults::policy(&written.keys).detour,
            policy: faults::policy(&written.keys),
            topology,
            overhead: host
                .overhead
                .map_or_else(|| sheet.map_or(Span::ZERO, |nic| nic.overhead.value), |given| given.0),
            gap: sheet.map_or(Span::ZERO, |nic| nic.gap.value),
            scale_up_reduces: (0..kinds.count()).all(|kind| kinds.reduces(kind)),
            nic_latency: sheet.map_or(Span::ZERO, |nic| nic.latency.value)
                + host.nic_bus.map_or(Span::ZERO, |bus| bus.latency.0 * 2),
            bus: bus(host.nic_bus, written)?,
            gpu,
            kinds,
            nic: nic.map(Arc::new),
        })
    }
}

fn bus(given: Option<NicBus>, written: &Written) -> Result<Option<BitRate>, InputError> {
    match given {
        Some(NicBus { rate: Rate(BitRate::ZERO), .. }) => {
            Err(InputError::new(written.at("host.nic_bus.rate"), "expected a rate above 0, found 0"))
        }
        given => Ok(given.map(|bus| bus.rate.0)),
    }
}

/// Whether switches of scale-up domains sum.
fn reduces(host: &Host, gpu: Option<&GpuSheet>) -> bool {
    host.scale_up.as_ref().and_then(|given| given.reduction).unwrap_or_else(|| {
        let figure = gpu.and_then(|gpu| gpu.scale_up.reduction.as_ref());
        figure.is_some_and(|figure| figure.value)
    })
}

/// Where no network is asked, hosts are enough: without a shape they get one switch.
pub fn without_switches(keys: &mut TopologyFile) -> bool {
    let (None, true, Some(hosts), Some(host)) =
        (keys.shape, keys.tiers.is_empty(), keys.hosts, &mut keys.host)
    else {
        return false;
    };
    // One port each, of no make that a rate would have to match.
    (host.nics, host.nic, host.rails) = (1, None, Rails::No);
    keys.shape = Some(Name(ShapeName::Clos));
    keys.tiers = vec![ClosTier::new(hosts, Rate(BitRate::from_gbps(400)))];
    true
}

/// Where the fabric comes from, in words; of an imported one how it is routed.
fn origin(written: &TopologyFile, spec: &TopologySpec) -> String {
    let Some(graph) = &written.graph else { return "the scenario's topology".to_owned() };
    let how = match spec {
        TopologySpec::Clos(_) => "a Clos, routed by rule",
        TopologySpec::Torus(_) => "a torus or mesh, routed by rule",
        _ => "no regular shape, routed by tables",
    };
    format!("{}: {how}", graph.file)
}

/// Builds the fabric.
///
/// # Errors
/// [`InputError`] for a missing key, an unknown sheet or a shape that does not close.
pub fn fabric(
    written: &Written,
    hash: EcmpHash,
    evidence: &mut EvidenceList,
) -> Result<FabricParts, InputError> {
    let draft = Draft::new(written, evidence)?;
    let topology = draft.topology(hash)?;
    draft.finish(topology)
}

/// Whether hosts are rail-optimised; a number of rails must be that of the NICs.
fn rails(host: &Host, place: &Place) -> Result<bool, InputError> {
    match host.rails {
        Rails::No => Ok(false),
        Rails::Yes => Ok(true),
        Rails::Count(rails) if rails == host.nics => Ok(true),
        Rails::Count(rails) => {
            let message =
                format!("expected a rail for each of the {} NICs of a host, found {rails}", host.nics);
            let hint = format!("`rails: {}`, or `host.nics: {rails}`", host.nics);
            Err(InputError::new(place.at("host.rails"), message).hint(hint))
        }
    }
}

/// The GPU sheet `name`.
///
/// # Errors
/// [`InputError`] when there is none or it is faulty.
pub fn gpu_sheet(name: &str, base: &Inputs, place: &str) -> Result<GpuSheet, InputError> {
    sheets::find("gpus", name, base, place)?.parsed(GpuSheet::parse)
}

/// The GPU sheet that is chosen, with what differs from the one that it derives from.
fn derived_gpu(choice: &SheetChoice, base: &Inputs, place: &str) -> Result<GpuSheet, InputError> {
    if choice.changes.is_empty() {
        return gpu_sheet(&choice.sheet, base, place);
    }
    let layer = Layer {
        place: place.to_owned(),
        text: None,
        source: format!("the scenario's `{}`", place.rsplit(": ").next().unwrap_or(place)),
        changes: choice.changes.clone(),
    };
    sheets::find("gpus", &choice.sheet, base, place)?.with(layer)?.parsed(GpuSheet::parse)
}

fn nic_sheet(name: &str, base: &Inputs, place: &str) -> Result<NicSheet, InputError> {
    sheets::find("nics", name, base, place)?.parsed(NicSheet::parse)
}

fn scale_up(host: &Host, gpu: Option<&GpuSheet>, evidence: &mut EvidenceList) -> ScaleUpSpec {
    let sheet = gpu.map(|gpu| &gpu.scale_up);
    let given = host.scale_up.clone().unwrap_or_default();
    let size = given.size.or((host.gpus == 1).then_some(1));
    let rate = given
        .rate
        .map(|rate| rate.0)
        .or(sheet.map(windtunnel_workload::model::sheets::ScaleUp::payload_rate));
    let latency = given.latency.map(|latency| latency.0).or(sheet.map(|sheet| sheet.latency.value));
    if rate.is_none() && size != Some(1) {
        let source = "no GPU sheet and no `host.scale_up.rate`: 450 GB/s per direction";
        evidence.add("scale-up link", "inferred", source);
    }
    ScaleUpSpec { size, rate: rate.unwrap_or(UNKNOWN_SCALE_UP), latency: latency.unwrap_or(Span::ZERO) }
}
