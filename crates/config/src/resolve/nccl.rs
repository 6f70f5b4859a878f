//! Which library carries out collectives whose algorithm is left open, and what it is told of the machine.
//!
//! NCCL (or RCCL) wherever the topology names GPUs: what its tuner chooses and how long that takes is the closed form that
//! the board scores ([`Machine::cost`]); launch, hops and waits pass first, then the bytes run on the fabric. The constants are
//! those of the system that `network.collectives.system` names, else of its kin: the same generation of GPUs and family
//! of NICs (`data/nccl/pools.json`, written by `windtunnel calibrate nccl`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use windtunnel_kernel::{BitRate, EndpointId, Span};
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_workload::Workload;
use windtunnel_workload::collectives::dispatcher;
use windtunnel_workload::collectives::nccl::{
    Architecture, Constants, Function, Hardware, Kinds, Library, Machine, Rule, Settings,
};
use windtunnel_workload::collectives::{Algorithm, CollectiveSpec, Form};
use windtunnel_workload::program::{Dimension, OpKind};

use super::context::Context;
use super::wires::{domains, sites, wire};
use crate::schema::jobs::{CollectiveSettings, TunerName};
use crate::schema::{Job, Rate, Size};
use crate::sheets;

/// Share of a GPU's memory bandwidth that copies reach.
const MEMORY: f64 = 0.85;

const VARIABLES: &str = "there are NCCL_VERSION, NCCL_ALGO, NCCL_PROTO, NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS, \
    NCCL_BUFFSIZE, NCCL_NVLS_ENABLE, NCCL_COLLNET_ENABLE, NCCL_CROSS_NIC, FI_HMEM_CUDA_USE_GDRCOPY and \
    FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD";

/// Tells the collectives of `workload` whose algorithm is left open what carries them out.
///
/// # Errors
/// As [`libraries`].
pub(super) fn equip(
    workload: &mut Workload,
    job: &Job,
    context: &Context<'_>,
    evidence: &mut EvidenceList,
) -> Result<(), InputError> {
    attach(workload, &libraries(job, context, evidence)?);
    Ok(())
}

/// What carries out the collectives of each dimension whose algorithm is left open.
///
/// # Errors
/// [`InputError`] where the topology names no sheets that `tuner: nccl` needs, a system or a variable is not known, or an
/// algorithm is named beside it.
pub(super) fn libraries(
    job: &Job,
    context: &Context<'_>,
    evidence: &mut EvidenceList,
) -> Result<[Option<Library>; Dimension::ALL.len()], InputError> {
    let mut told = Told { context, evidence, base: None };
    let collective = job.workload.as_ref().and_then(|source| source.collective.as_ref());
    let mut of: [Option<Library>; Dimension::ALL.len()] = std::array::from_fn(|_| None);
    let scenario = &context.scenario.network.collectives;
    for dimension in Dimension::ALL {
        let settings = job.parallelism.as_ref().map(|given| &given.collectives);
        let (asked, place) = match (dimension, settings, collective) {
            (Dimension::Other, _, Some(of)) => (
                Some((of.tuner, &of.environment, of.algorithm.0)),
                format!("{}.workload.collective", context.place),
            ),
            (_, Some(all), None) => {
                let one: Option<&CollectiveSettings> = match dimension {
                    Dimension::Tp => Some(&all.tp),
                    Dimension::Cp => Some(&all.cp),
                    Dimension::Ep => Some(&all.ep),
                    Dimension::Dp => Some(&all.dp),
                    Dimension::Pp | Dimension::Other => None,
                };
                let place = format!("{}.parallelism.collectives.{}", context.place, dimension.name());
                (one.map(|one| (one.tuner, &one.environment, one.algorithm.0)), place)
            }
            _ => (None, context.place.to_owned()),
        };
        let none = BTreeMap::new();
        let (tuner, environment, algorithm) = asked.unwrap_or((None, &none, Algorithm::Auto));
        let named = algorithm != Algorithm::Auto;
        if named && tuner == Some(TunerName::Nccl) {
            let error = InputError::new(format!("{place}.tuner"), "`nccl` chooses the algorithm, found one");
            return Err(error
                .hint("leave `algorithm` out, or narrow the choice with `environment: {NCCL_ALGO: ring}`"));
        }
        let chosen = tuner.or(scenario.tuner);
        if let Some(name) = environment.keys().next()
            && (named || chosen == Some(TunerName::Size))
        {
            let at = format!("{place}.environment.{name}");
            return Err(InputError::new(
                at,
                "an environment is NCCL's, expected `tuner: nccl` and no `algorithm`",
            ));
        }
        if named || chosen == Some(TunerName::Size) {
            continue;
        }
        let wanted = tuner == Some(TunerName::Nccl) || !environment.is_empty();
        of[dimension as usize] = told.library(environment, &place, wanted)?;
    }
    Ok(of)
}

/// Gives every open collective of a dimension its library.
fn attach(workload: &mut Workload, of: &[Option<Library>; Dimension::ALL.len()]) {
    let open = |spec: &CollectiveSpec| spec.algorithm == Algorithm::Auto && spec.form != Form::Steps;
    for program in &mut workload.programs {
        if of.iter().all(|library| library == &of[0]) {
            for spec in program.specs.iter_mut().filter(|spec| open(spec)) {
                spec.library.clone_from(&of[0]);
            }
            continue;
        }
        // Dimensions may share a specification: those with a library get their own.
        let mut known: BTreeMap<(u32, usize), u32> = BTreeMap::new();
        for operation in &mut program.ops {
            let dimension = operation.dimension as usize;
            let OpKind::Collective { spec, .. } = &mut operation.kind else { continue };
            let Some(library) = &of[dimension] else { continue };
            if !open(&program.specs[*spec as usize]) {
                continue;
            }
            *spec = if let Some(&known) = known.get(&(*spec, dimension)) {
                known
            } else {
                let told = CollectiveSpec {
                    library: Some(library.clone()),
                    ..program.specs[*spec as usize].clone()
                };
                program.specs.push(told);
                let own = program.specs.len() as u32 - 1;
                known.insert((*spec, dimension), own);
                own
            };
        }
    }
}

struct Told<'a, 'b> {
    context: &'a Context<'b>,
    evidence: &'a mut EvidenceList,
    base: Option<Library>,
}

impl Told<'_, '_> {
    /// NCCL with `environment` on the scenario's machine; `None` where no GPUs are named, unless it is `wanted`.
    fn library(
        &mut self,
        environment: &BTreeMap<String, String>,
        place: &str,
        wanted: bool,
    ) -> Result<Option<Library>, InputError> {
        let scenario = &self.context.scenario.network.collectives;
        let root = self.context.place.split(": ").next().unwrap_or_default();
        let section = format!("{root}: network.collectives");
        let asked_for = scenario.tuner == Some(TunerName::Nccl) || scenario.system.is_some();
        if self.context.fabric.gpu.is_none() {
            if wanted || asked_for {
                let at = if wanted { format!("{place}.tuner") } else { section };
                return Err(
                    InputError::new(at, "NCCL needs `topology.host.gpu`").hint("for example `gpu: H100-SXM`")
                );
            }
            return Ok(None);
        }
        if self.base.is_none() {
            self.base = Some(Library(Arc::new(self.machines(&section)?)));
        }
        let base = self.base.as_ref().expect("it was just made");
        if environment.is_empty() {
            return Ok(Some(base.clone()));
        }
        let with = |machine: &Machine| {
            let mut machine = machine.clone();
            for (name, value) in environment {
                let at = format!("{place}.environment.{name}");
                set(&mut machine.settings, name, value, &at)?;
                for rule in &mut machine.rules {
                    set(&mut rule.settings, name, value, &at)?;
                }
            }
            Ok::<_, InputError>(machine)
        };
        let mut machine = with(&base.0)?;
        if let Some(kinds) = &machine.kinds {
            machine.kinds = Some(Arc::new(kinds.map(with)?));
        }
        Ok(Some(Library(Arc::new(machine))))
    }

    /// The machine of the first kind of GPUs, which knows those of the others.
    fn machines(&mut self, place: &str) -> Result<Machine, InputError> {
        let mut first = self.machine(place, 0)?;
        let (gpus, topology) = (&self.context.fabric.kinds, &self.context.fabric.topology);
        if gpus.differ() {
            let mut all = vec![first.clone()];
            for kind in 1..gpus.count() {
                all.push(self.machine(place, kind)?);
            }
            let of_domain = domains(topology).map(|gpu| gpus.of(gpu)).collect();
            first.kinds = Some(Arc::new(Kinds::new(of_domain, all)));
        }
        Ok(first)
    }

    fn machine(&mut self, place: &str, gpus: usize) -> Result<Machine, InputError> {
        let scenario = &self.context.scenario.network.collectives;
        let (fabric, network) = (self.context.fabric, &self.context.scenario.network);
        let mut system = System::default();
        if let Some(name) = &scenario.system {
            let at = format!("{place}.system");
            let sheet = sheets::find("systems", name, self.context.base, &at)?;
            let read: SystemFile = serde_saphyr::from_str(&sheet.text)
                .map_err(|error| InputError::new(&at, format!("{}: {error}", sheet.source)))?;
            system = read.collectives;
        }
        let hardware = hardware(self.context, &system, gpus);
        let mut settings = Settings::default();
        if let Some(version) = &system.nccl_version {
            set(&mut settings, "NCCL_VERSION", version.get(), place)?;
        }
        for (name, value) in system.environment.iter().flat_map(Given::get) {
            // A system's makers set more than the model follows.
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            settings.set(name, &text).map_err(|error| InputError::new(place, error.to_string()))?;
        }
        for (name, value) in &scenario.environment {
            set(&mut settings, name, value, &format!("{place}.environment.{name}"))?;
        }
        let mut rules = Vec::new();
        for rule in system.tuner.iter().flat_map(Given::get) {
            rules.push(rule.resolve(&settings, place)?);
        }
        let (mut constants, kind, source) = self.constants(&hardware, &system, place)?;
        for (limit, given) in [
            (&mut constants.eager, &system.eager),
            (&mut constants.pulled, &system.pulled),
            (&mut constants.short_message, &system.short_message),
            (&mut constants.inject, &system.inject),
        ] {
            if let Some(given) = given {
                *limit = given.get().0.get() as f64;
            }
        }
        if let Some(text) = sheets::own("dispatchers", "deepep", self.context.base) {
            let fitted: Dispatchers = serde_json::from_str(text)
                .map_err(|error| InputError::new(place, format!("data/dispatchers/deepep.json: {error}")))?;
            constants.dispatcher = fitted.constants;
        }
        self.evidence.add("network.collectives", kind, &source);
        let topology = &fabric.topology;
        let payload = 1.0 - network.header.0.get() as f64 / network.mtu.0.get().max(1) as f64;
        let between = Span::from_seconds_ceil(hardware.wire.ring) + fabric.nic_latency;
        let hosts_of_domain = topology.scale_up_size().div_ceil(topology.endpoints_per_host().max(1)).max(1);
        Ok(Machine {
            hardware,
            settings,
            rules,
            constants,
            hosts_of_domain,
            payload,
            latency: [scale_up_of(self.context, gpus).1, between],
            sites: sites(self.context),
            kinds: None,
        })
    }

    /// The constants of the system, else of its kin; how they are known.
    fn constants(
        &self,
        hardware: &Hardware,
        system: &System,
        place: &str,
    ) -> Result<(Constants, &'static str, String), InputError> {
        if let Some(adopted) = &system.constants {
            return Ok((adopted.value.clone(), "calibrated", adopted.source.clone()));
        }
        let scenario = &self.context.scenario.network.collectives;
        let wrong = |what: &str, error: String| InputError::new(place, format!("data/nccl/{what}: {error}"));
        if let Some(name) = &scenario.system
            && let Some(text) = sheets::own("nccl", name, self.context.base)
        {
            let fitted: Fitted =
                serde_json::from_str(text).map_err(|error| wrong(name, error.to_string()))?;
            return Ok((fitted.constants, "calibrated", fitted.source));
        }
        let Some(text) = sheets::own("nccl", "pools", self.context.base) else {
            return Ok((
                Constants::default(),
                "inferred",
                "NCCL's own constants, src/graph/tuning.cc".to_owned(),
            ));
        };
        let pools: Pools =
            serde_json::from_str(text).map_err(|error| wrong("pools.json", error.to_string()))?;
        let network = system.transport.as_ref().map_or_else(
            || self.context.fabric.nic.as_ref().map_or("other", |nic| family(&nic.name)).to_owned(),
            |given| given.get().clone(),
        );
        let score = |pool: &Pool| {
            2 * u32::from(pool.network == network) + u32::from(pool.generation == hardware.architecture)
        };
        // The last of equals is as good as the first; the first is taken.
        let best = pools.pools.iter().rev().max_by_key(|pool| score(pool));
        Ok(match best {
            Some(pool) => (pool.constants.clone(), "calibrated", pools.source),
            None => {
                (Constants::default(), "inferred", "NCCL's own constants, src/graph/tuning.cc".to_owned())
            }
        })
    }
}

fn set(settings: &mut Settings, name: &str, value: &str, at: &str) -> Result<(), InputError> {
    if settings.set(name, value).map_err(|error| InputError::new(at, error.to_string()))? {
        return Ok(());
    }
    Err(InputError::new(at, format!("`{name}` is not followed")).hint(VARIABLES))
}

/// Family of a NIC, as pools tell networks apart.
fn family(nic: &str) -> &'static str {
    const FAMILIES: [(&str, &str); 5] = [
        ("connectx", "connectx"),
        ("bluefield", "connectx"),
        ("slingshot", "slingshot"),
        ("efa", "efa"),
        ("thor", "thor"),
    ];
    let name = nic.to_ascii_lowercase();
    FAMILIES.iter().find(|(start, _)| name.starts_with(start)).map_or("other", |(_, family)| family)
}

/// Rate and latency between the GPUs of a host with those of `kind`.
fn scale_up_of(context: &Context<'_>, kind: usize) -> (BitRate, Span) {
    let (gpus, topology) = (&context.fabric.kinds, &context.fabric.topology);
    let of_kind = |gpu: &EndpointId| usize::from(gpus.of(*gpu)) == kind;
    let first = if gpus.differ() { domains(topology).find(of_kind) } else { None };
    // Buildings of one kind may have several rates: the least counts.
    let rates = first.into_iter().flat_map(|_| domains(topology).filter(of_kind));
    rates.map(|gpu| topology.scale_up_of(gpu)).min_by_key(|links| links.0).unwrap_or(topology.scale_up())
}

/// A scale-up domain of GPUs of `kind` as NCCL sees it, from the topology, the sheets it names and what a system's file says beside.
fn hardware(context: &Context<'_>, system: &System, kind: usize) -> Hardware {
    let (topology, fabric) = (&context.fabric.topology, context.fabric);
    let gpu = fabric.kinds.sheets().get(kind).or(fabric.gpu.as_ref()).expect("it is asked for before");
    let name = gpu.name.to_ascii_lowercase();
    let told = system.architecture.as_ref().map(|given| *given.get());
    let architecture = told.unwrap_or_else(|| {
        if name.starts_with("v100") {
            Architecture::Volta
        } else if name.starts_with("a100")
            || name.starts_with("a40")
            || name.starts_with("l40")
            || gpu.vendor != "NVIDIA"
        {
            Architecture::Ampere
        } else if name.starts_with('h') || name.starts_with("gh") {
            Architecture::Hopper
        } else {
            Architecture::Blackwell
        }
    });
    let size = topology.scale_up_size().max(1);
    let newer = matches!(architecture, Architecture::Hopper | Architecture::Blackwell);
    let hosts = size.div_ceil(topology.endpoints_per_host()).max(1);
    let domains_of_host = (topology.endpoints_per_host() / size).max(1);
    let plane = topology.link(topology.nic_link(0, 0)).rate;
    let port = BitRate::from_bps(plane.bps().saturating_mul(u64::from(topology.planes())));
    let sheet = fabric.nic.as_ref().map_or(port, |nic| nic.rate.value);
    let flag = |given: &Option<Given<bool>>, or: bool| given.as_ref().map_or(or, |given| *given.get());
    let rate = |given: &Option<Given<Rate>>, or: f64| {
        given.as_ref().map_or(or, |given| given.get().0.bytes_per_second())
    };
    Hardware {
        architecture,
        scale_up: rate(&system.scale_up, scale_up_of(context, kind).0.bytes_per_second()),
        // Domains of four are joined without a switch.
        scale_up_sums: flag(&system.scale_up_sums, newer && size >= 8 && fabric.kinds.reduces(kind)),
        scale_up_ranks: system.scale_up_ranks.as_ref().map(|given| *given.get()),
        host_link: rate(&system.host_link, 0.0),
        memory: MEMORY * gpu.memory_bandwidth.value.bytes_per_second(),
        nics: (topology.nics_per_host() * hosts / domains_of_host).max(1),
        nic: fabric.handed_over(port.min(sheet)).bytes_per_second(),
        uplink: rate(&system.network_limit, 0.0),
        slow_leaf: false,
        channel_speed: rate(&system.channel_speed, 0.0),
        simple_trees: flag(&system.simple_trees, false),
        amd: system.cpu.as_ref().is_some_and(|given| given.get() == "amd"),
        gpus: size,
        wire: wire(context).into(),
        ll128_between: flag(
            &system.ll128_between_hosts,
            topology.nics_per_host() >= topology.endpoints_per_host(),
        ),
        network_sums: flag(&system.network_sums, false),
    }
}

/// What `windtunnel calibrate dispatchers` wrote.
#[derive(Deserialize)]
struct Dispatchers {
    constants: dispatcher::Constants,
}

/// A figure of a system's file: bare, or with its evidence beside.
#[derive(Deserialize)]
#[serde(untagged)]
enum Given<T> {
    Figure { value: T },
    Bare(T),
}

impl<T> Given<T> {
    const fn get(&self) -> &T {
        match self {
            Self::Figure { value } | Self::Bare(value) => value,
        }
    }
}

/// What a system's file says of its collectives; rows and placements are the board's.
#[derive(Default, Deserialize)]
#[serde(default)]
struct System {
    architecture: Option<Given<Architecture>>,
    cpu: Option<Given<String>>,
    transport: Option<Given<String>>,
    scale_up: Option<Given<Rate>>,
    scale_up_sums: Option<Given<bool>>,
    scale_up_ranks: Option<Given<u32>>,
    host_link: Option<Given<Rate>>,
    network_limit: Option<Given<Rate>>,
    channel_speed: Option<Given<Rate>>,
    simple_trees: Option<Given<bool>>,
    ll128_between_hosts: Option<Given<bool>>,
    network_sums: Option<Given<bool>>,
    nccl_version: Option<Given<String>>,
    environment: Option<Given<BTreeMap<String, serde_json::Value>>>,
    tuner: Option<Given<Vec<RuleFile>>>,
    eager: Option<Given<Size>>,
    pulled: Option<Given<Size>>,
    short_message: Option<Given<Size>>,
    inject: Option<Given<Size>>,
    constants: Option<Adopted>,
}

/// Constants that were adopted for a system (`windtunnel calibrate adopt`), in its own file; `source` names their set.
#[derive(Deserialize)]
struct Adopted {
    value: Constants,
    source: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SystemFile {
    collectives: System,
}

/// A rule of a tuner plug-in as a system's file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    algorithm: String,
    #[serde(default)]
    hosts: Option<(Option<u32>, Option<u32>)>,
    #[serde(default)]
    ranks: Option<(Option<u32>, Option<u32>)>,
    #[serde(default)]
    bytes: Option<(Option<Size>, Option<Size>)>,
    #[serde(default)]
    operations: Vec<Function>,
    #[serde(default)]
    channels: Option<u32>,
}

impl RuleFile {
    fn resolve(&self, base: &Settings, place: &str) -> Result<Rule, InputError> {
        let mut settings = base.clone();
        set(&mut settings, "NCCL_ALGO", &self.algorithm, place)?;
        if let Some(channels) = self.channels {
            for name in ["NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"] {
                set(&mut settings, name, &channels.to_string(), place)?;
            }
        }
        let counts = |given: Option<(Option<u32>, Option<u32>)>| {
            let (least, most) = given.unwrap_or_default();
            (least.unwrap_or(0), most.unwrap_or(u32::MAX))
        };
        let bytes = |given: Option<Size>, or: u64| given.map_or(or, |size| size.0.get());
        let (least, most) = self.bytes.unwrap_or_default();
        Ok(Rule {
            hosts: counts(self.hosts),
            ranks: counts(self.ranks),
            bytes: (bytes(least, 0), bytes(most, u64::MAX)),
            functions: self.operations.clone(),
            settings,
        })
    }
}

/// A system's fitted constants (`data/nccl/NAME.json`).
#[derive(Deserialize)]
struct Fitted {
    source: String,
    constants: Constants,
}

/// Constants by kin (`data/nccl/pools.json`).
#[derive(Deserialize)]
struct Pools {
    source: String,
    pools: Vec<Pool>,
}

#[derive(Deserialize)]
struct Pool {
    generation: Architecture,
    network: String,
    constants: Constants,
}
