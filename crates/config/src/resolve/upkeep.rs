//! What fails, is drained and kept back, and what jobs pay: from what is written to what the cluster takes.

use serde::Deserialize;
use windtunnel_cluster::faults::log::{self, FaultLogError};
use windtunnel_cluster::faults::{
    Class, Component, KnownFault, Lifetime, Maintenance, Plant, Process, Repair, Spares,
};
use windtunnel_cluster::life::{Checkpoint, Every, Life, Sizes};
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::fabric::FabricParts;
use windtunnel_plan::inputs::Inputs;
use windtunnel_plan::plant::FabricPlant;
use windtunnel_plan::upkeep::UpkeepPlan;
use windtunnel_topology::{Names, Topology};

use super::names::find;
use super::storage::StoragePlan;
use crate::schema::upkeep::{
    CheckpointRule, DataRule, Dues, FaultRule, LifetimeName, MaintenanceWindow, RepairName,
};
use crate::schema::{CalendarSpan, Cluster, Scenario};
use crate::{load, sheets};

/// Published rates of faults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sheet {
    name: String,
    evidence: String,
    source: String,
    /// Time in which the faults were counted.
    window: CalendarSpan,
    gpus: u32,
    gpus_per_host: u32,
    counts: Counts,
    repair: CalendarSpan,
    repair_source: String,
}

/// Faults by class.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    #[serde(default)]
    gpu: u32,
    #[serde(default)]
    host: u32,
    #[serde(default)]
    nic: u32,
    #[serde(default)]
    cable: u32,
    #[serde(default)]
    software: u32,
}

/// Checks what `scenario` says of upkeep; `None` if it says nothing.
///
/// # Errors
/// [`InputError`] with the path of the key, or the line of a log, at fault.
pub fn upkeep(
    scenario: &Scenario,
    fabric: &FabricParts,
    bare: bool,
    source: &str,
    base: &Inputs,
    evidence: &mut EvidenceList,
) -> Result<Option<UpkeepPlan>, InputError> {
    let cluster = &scenario.cluster;
    if cluster.faults.is_empty() && cluster.maintenance.is_empty() && cluster.spares.is_none() {
        return Ok(None);
    }
    let at = |key: &str| format!("{source}: cluster.{key}");
    let plant = FabricPlant::new(fabric, bare);
    let names = Names::new(&fabric.topology);
    let (mut processes, mut known, mut left_out): (Vec<Process>, Vec<KnownFault>, u64) =
        (Vec::new(), Vec::new(), 0);
    for (index, rule) in cluster.faults.iter().enumerate() {
        let place = at(&format!("faults[{index}]"));
        match (&rule.class, &rule.like, &rule.log) {
            (Some(class), None, None) => {
                processes.push(of_class(class, rule, &plant, &place)?);
                evidence.add(&format!("faults of class {class}"), "given", "the scenario's rates");
            }
            (None, Some(like), None) => {
                processes.extend(of_sheet(like, rule, &plant, base, &place, evidence)?);
            }
            (None, None, Some(file)) => {
                let (faults, out) = of_log(file, rule, &plant, &names, base, &place)?;
                known.extend(faults);
                left_out += out;
                evidence.add("faults", "given", &format!("log {file}"));
            }
            given => {
                let count = [given.0.is_some(), given.1.is_some(), given.2.is_some()];
                let found = count.iter().filter(|given| **given).count();
                let message = format!("expected one of `class`, `like` and `log`, found {found} of them");
                return Err(InputError::new(place, message));
            }
        }
    }
    for place in 0..processes.len() {
        let class = processes[place].class;
        processes[place].number =
            processes[..place].iter().filter(|known| known.class == class).count() as u32;
    }
    known.sort_by_key(|fault| fault.at);
    let windows = cluster.maintenance.iter().enumerate();
    let maintenance = windows
        .map(|(index, window)| {
            let place = at(&format!("maintenance[{index}]"));
            self::window(window, &plant, &names, &place)
        })
        .collect::<Result<Vec<_>, _>>()?;
    refuse_overlaps(&maintenance, &plant, &at)?;
    let spares = cluster
        .spares
        .as_ref()
        .map_or(Spares::default(), |spares| Spares { hosts: spares.hosts, delay: spares.delay.0 });
    if spares.hosts >= fabric.topology.hosts() {
        let message =
            format!("{} of {} hosts are spares, and none is left", spares.hosts, fabric.topology.hosts());
        return Err(InputError::new(at("spares.hosts"), message));
    }
    let plan = UpkeepPlan { plant, processes, known, maintenance, spares, left_out };
    if scenario.network.backend.is_some() && plan.changes_fabric() {
        let message = "a model of one's own is not told what fails";
        return Err(InputError::new(format!("{source}: network.backend"), message)
            .hint("leave faults and maintenance of cables and switches out"));
    }
    Ok(Some(plan))
}

/// Nanoseconds that components last on average, at least.
const SHORTEST_LIFE: u64 = 1_000_000_000;

fn of_class(class: &str, rule: &FaultRule, plant: &FabricPlant, place: &str) -> Result<Process, InputError> {
    let class: Class = find(class, format!("{place}.class"))?;
    let mtbf = rule.mtbf.ok_or_else(|| {
        InputError::new(format!("{place}.mtbf"), "`mtbf` is missing").hint("for example `mtbf: 5 y`")
    })?;
    let mean = above_zero(mtbf, &format!("{place}.mtbf"))?;
    if mtbf.0 < SHORTEST_LIFE {
        let message = format!("expected a mean time between faults of at least 1 s, found {} ns", mtbf.0);
        let hint = "every fault is an event, and nothing is done between two of them";
        return Err(InputError::new(format!("{place}.mtbf"), message).hint(hint));
    }
    let lifetime = match (rule.distribution, rule.shape) {
        (LifetimeName::Exponential, None) => Lifetime::Exponential { mean },
        (LifetimeName::Exponential, Some(_)) => {
            return Err(InputError::new(
                format!("{place}.shape"),
                "`shape` belongs to `distribution: weibull`",
            ));
        }
        (LifetimeName::Weibull, Some(shape)) if (0.1..=20.0).contains(&shape) => {
            Lifetime::weibull(mean, shape)
        }
        (LifetimeName::Weibull, shape) => {
            let found = shape.map_or("nothing".to_owned(), |shape| shape.to_string());
            let message = format!("`weibull` needs a shape from 0.1 to 20, found {found}");
            return Err(InputError::new(format!("{place}.shape"), message));
        }
    };
    if let Some((key, _)) =
        [("scale", rule.scale.is_some()), ("lenient", rule.lenient)].iter().find(|key| key.1)
    {
        let owner = if *key == "scale" { "like" } else { "log" };
        return Err(InputError::new(format!("{place}.{key}"), format!("`{key}` belongs to `{owner}`")));
    }
    if rule.access && class != Class::Cable {
        return Err(InputError::new(format!("{place}.access"), "`access` belongs to `class: cable`"));
    }
    let count = if rule.access { plant.access_cables() } else { plant.count(class) };
    if count == 0 {
        let message = format!("there is no {}: the scenario describes no fabric", class.name());
        return Err(
            InputError::new(format!("{place}.class"), message).hint("give `topology.tiers`, or a shape")
        );
    }
    let repair = match (class, rule.repair) {
        (Class::Software, None) => Repair::Fixed(0),
        (_, Some(mean)) => repair(mean, rule, place)?,
        (_, None) => {
            return Err(InputError::new(format!("{place}.repair"), "`repair` is missing")
                .hint("for example `repair: 4 h`"));
        }
    };
    Ok(Process { class, count, number: 0, lifetime, repair })
}

fn above_zero(span: CalendarSpan, place: &str) -> Result<f64, InputError> {
    match span.0 {
        0 => Err(InputError::new(place, "expected a time above 0, found 0")),
        ns => Ok(ns as f64),
    }
}

fn repair(mean: CalendarSpan, rule: &FaultRule, place: &str) -> Result<Repair, InputError> {
    if rule.repair_cv.is_some() && rule.repair_distribution != RepairName::Lognormal {
        let message = "`repair_cv` belongs to `repair_distribution: lognormal`";
        return Err(InputError::new(format!("{place}.repair_cv"), message));
    }
    Ok(match rule.repair_distribution {
        RepairName::Fixed => Repair::Fixed(mean.0),
        RepairName::Exponential => {
            Repair::Exponential { mean: above_zero(mean, &format!("{place}.repair"))? }
        }
        RepairName::Lognormal => {
            let cv = rule.repair_cv.unwrap_or(1.0);
            if !(cv > 0.0 && cv <= 100.0) {
                let message = format!("expected a number above 0 and up to 100, found {cv}");
                return Err(InputError::new(format!("{place}.repair_cv"), message));
            }
            Repair::log_normal(above_zero(mean, &format!("{place}.repair"))?, cv)
        }
    })
}

/// The processes of a sheet: of a class with n components in all, the mean time between faults of one is n × the time in
/// which they were counted over their count.
fn of_sheet(
    like: &str,
    rule: &FaultRule,
    plant: &FabricPlant,
    base: &Inputs,
    place: &str,
    evidence: &mut EvidenceList,
) -> Result<Vec<Process>, InputError> {
    let given = [
        ("mtbf", rule.mtbf.is_some()),
        ("shape", rule.shape.is_some()),
        ("access", rule.access),
        ("lenient", rule.lenient),
    ];
    if let Some((key, _)) = given.iter().find(|(_, given)| *given) {
        return Err(InputError::new(format!("{place}.{key}"), format!("`{key}` does not go with `like`")));
    }
    let scale = rule.scale.unwrap_or(1.0);
    if !(scale > 0.0 && scale.is_finite()) {
        return Err(InputError::new(
            format!("{place}.scale"),
            format!("expected a number above 0, found {scale}"),
        ));
    }
    let text = sheets::find("faults", like, base, &format!("{place}.like"))?;
    let sheet: Sheet = load::from_yaml(&text.text, &text.source)?;
    if sheet.gpus == 0 || sheet.gpus_per_host == 0 {
        return Err(InputError::new(format!("{}: gpus", text.source), "expected at least 1 GPU, found 0"));
    }
    let of = repair(rule.repair.unwrap_or(sheet.repair), rule, place)?;
    evidence.add(&format!("fault rates like {}", sheet.name), &sheet.evidence, &sheet.source);
    if rule.repair.is_none() {
        evidence.add("repair times", "inferred", &sheet.repair_source);
    }
    let (gpus, hosts) = (f64::from(sheet.gpus), f64::from(sheet.gpus) / f64::from(sheet.gpus_per_host));
    let counts = &sheet.counts;
    let classes = [
        (Class::Gpu, counts.gpu, gpus, plant.count(Class::Gpu)),
        (Class::Host, counts.host, hosts, plant.count(Class::Host)),
        (Class::Nic, counts.nic, gpus, plant.count(Class::Nic)),
        (Class::Cable, counts.cable, gpus, plant.access_cables()),
        (Class::Software, counts.software, gpus, plant.count(Class::Software)),
    ];
    let process = |(class, faults, components, count): (Class, u32, f64, u32)| {
        let mean = sheet.window.0 as f64 * components / f64::from(faults) / scale;
        let repair = if class == Class::Software { Repair::Fixed(0) } else { of };
        Process { class, count, number: 0, lifetime: Lifetime::Exponential { mean }, repair }
    };
    Ok(classes.into_iter().filter(|class| class.1 > 0).map(process).collect())
}

fn of_log(
    file: &str,
    rule: &FaultRule,
    plant: &FabricPlant,
    names: &Names<'_>,
    base: &Inputs,
    place: &str,
) -> Result<(Vec<KnownFault>, u64), InputError> {
    let given = [
        ("mtbf", rule.mtbf.is_some()),
        ("shape", rule.shape.is_some()),
        ("access", rule.access),
        ("scale", rule.scale.is_some()),
        ("repair", rule.repair.is_some()),
        ("repair_cv", rule.repair_cv.is_some()),
    ];
    if let Some((key, _)) = given.iter().find(|(_, given)| *given) {
        return Err(InputError::new(format!("{place}.{key}"), format!("`{key}` does not go with `log`")));
    }
    let path = base.join(file);
    sheets::present(&path, &format!("{place}.log"))?;
    let (rows, left_out) = log::read(&path, rule.lenient).map_err(|error| match error {
        FaultLogError::File { .. } => InputError::new(format!("{place}.log"), error.to_string()),
        error => {
            let hint = "`lenient: true` leaves rows with holes out and counts them";
            let refused = InputError::new("", error.to_string());
            if matches!(error, FaultLogError::Column { .. }) { refused } else { refused.hint(hint) }
        }
    })?;
    let faults = rows.iter().map(|row| {
        let at = format!("{}:{}", path.display(), row.line);
        let component = component(&row.component, plant, names, at)?;
        Ok(KnownFault { at: row.at, component, repair: row.repair })
    });
    Ok((faults.collect::<Result<_, InputError>>()?, left_out))
}

fn component(
    name: &str,
    plant: &FabricPlant,
    names: &Names<'_>,
    place: String,
) -> Result<Component, InputError> {
    let name = name.trim();
    plant.find(name, names).ok_or_else(|| {
        let error = InputError::new(place, format!("no component `{name}`"));
        let known = plant.examples(names);
        match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error
                .hint("such as `host3`, `host3/gpu1`, `host3/nic0`, `leaf0`, `leaf0 -> spine1` or `rack2`"),
        }
    })
}

fn window(
    written: &MaintenanceWindow,
    plant: &FabricPlant,
    names: &Names<'_>,
    place: &str,
) -> Result<Maintenance, InputError> {
    let component = component(&written.part, plant, names, format!("{place}.part"))?;
    if component.class == Class::Software {
        return Err(InputError::new(format!("{place}.part"), "software is not taken out of service"));
    }
    above_zero(written.lasts, &format!("{place}.for"))?;
    let leave = written.jobs.0;
    Ok(Maintenance { component, at: written.at.0, lasts: written.lasts.0, notice: written.notice.0, leave })
}

/// No part is taken out twice at a time.
fn refuse_overlaps(
    windows: &[Maintenance],
    plant: &FabricPlant,
    at: &dyn Fn(&str) -> String,
) -> Result<(), InputError> {
    let gpus: Vec<Vec<_>> = windows
        .iter()
        .map(|window| {
            let mut gpus = Vec::new();
            plant.gpus(window.component, &mut gpus);
            gpus
        })
        .collect();
    for later in 0..windows.len() {
        for earlier in 0..later {
            let (a, b) = (&windows[earlier], &windows[later]);
            let meet = a.at < b.end() && b.at < a.end();
            let shared = gpus[later].iter().any(|gpu| gpus[earlier].binary_search(gpu).is_ok());
            if meet && (a.component == b.component || shared) {
                let message = format!(
                    "`{}` is out for maintenance already, by `maintenance[{earlier}]` of `{}` from {} s to {} s",
                    plant.name(b.component),
                    plant.name(a.component),
                    a.at as f64 / 1e9,
                    a.end() as f64 / 1e9
                );
                return Err(InputError::new(at(&format!("maintenance[{later}]")), message));
            }
        }
    }
    Ok(())
}

/// What a job pays on its way, from what is written of it: `loading` nanoseconds for its data; `place` is the job's.
///
/// # Errors
/// [`InputError`] for keys that contradict each other, or a cost that is not known.
pub fn life(
    dues: Dues<'_>,
    loading: Option<u64>,
    cluster: &Cluster,
    place: &str,
) -> Result<Life, InputError> {
    let rule = dues.checkpoint.map(|rule| checkpoint(rule, &format!("{place}.checkpoint")));
    Ok(Life {
        checkpoint: rule.transpose()?,
        restart: dues.restart.unwrap_or(cluster.restart).0.ns_ceil(),
        migration: cluster.migration.0.ns_ceil(),
        loading: loading.unwrap_or(0),
        data_region: dues.data.and_then(|data| data.region),
        elastic: None,
    })
}

/// What each job of a log pays on its way, as [`life`], before it is known what it loads.
///
/// # Errors
/// As [`life`], and for checkpoints by iterations, which no such job has.
pub fn logged_life(dues: Dues<'_>, cluster: &Cluster, place: &str) -> Result<Life, InputError> {
    let life = life(dues, None, cluster, place)?;
    if let Some(Checkpoint { every: Every::Iterations(_), .. }) = life.checkpoint {
        let place = format!("{place}.checkpoint.iterations");
        let refused = InputError::new(place, "jobs of a log have no iterations");
        return Err(refused.hint("`every: 30 min` is a time"));
    }
    Ok(life)
}

/// Nanoseconds in which a job of `gpus` GPUs loads what `data` says, alone, and the storage hosts from which it does;
/// `place` is the job's.
///
/// # Errors
/// [`InputError`] for data that are nowhere, or twice.
pub fn loading(
    data: &DataRule,
    storage: Option<&StoragePlan>,
    topology: &Topology,
    gpus: u32,
    place: &str,
) -> Result<(u64, Vec<u32>), InputError> {
    let place = format!("{place}.data");
    match (data.rate, storage) {
        (Some(_), _) if data.from.is_some() => Err(InputError::new(place, "expected one of `from` and `rate`, found both")
            .hint("storage hosts send as fast as the network lets them; `cluster.storage.rate` bounds them")),
        (Some(rate), _) => Ok((time_of(data.bytes, rate, &place)?, Vec::new())),
        (None, None) => Err(InputError::new(place, "nothing says where the data are, or how fast they come")
            .hint("`cluster.storage: {hosts: [host63]}` names hosts that hold data; `rate: 800 Gbps` asks no network")),
        (None, Some(storage)) => {
            let hosts = storage.named(data, topology, &place)?;
            let alone = storage.alone(data.bytes.0.get(), hosts.len(), gpus);
            let alone = alone.ok_or_else(|| InputError::new(place, "the bytes take longer than a few years"))?;
            Ok((alone, hosts))
        }
    }
}

/// The longest a listed job may take, with all that it pays and on the fewest GPUs: its time is counted in picoseconds.
const LONGEST: u128 = 200 * 86_400 * 1_000_000_000;

/// Refuses a job of `duration` nanoseconds on `asked` GPUs that takes longer than the calendar of listed jobs can count.
///
/// # Errors
/// [`InputError`] at the job's duration.
pub fn check_length(
    duration: u64,
    iterations: u64,
    asked: u32,
    elastic: Option<&Sizes>,
    life: &Life,
    place: &str,
) -> Result<(), InputError> {
    let least = elastic.map_or(asked, Sizes::least).max(1);
    let work = (u128::from(duration) * u128::from(asked)).div_ceil(u128::from(least));
    let writes = life.checkpoint.map_or(0, |checkpoint| match checkpoint.every {
        Every::Time(every) => work / u128::from(every.max(1)) * u128::from(checkpoint.write),
        Every::Iterations(count) => u128::from(iterations / count.max(1)) * u128::from(checkpoint.write),
    });
    let pauses = u128::from(life.loading) + u128::from(life.restart) + u128::from(life.migration);
    if work + writes + pauses <= LONGEST {
        return Ok(());
    }
    let days = (work + writes + pauses) as f64 / 86.4e12;
    let message = format!("expected at most 200 days with checkpoints and restarts, found {days:.1} days");
    Err(InputError::new(format!("{place}.duration"), message).hint("jobs of a log may take longer"))
}

fn checkpoint(rule: &CheckpointRule, place: &str) -> Result<Checkpoint, InputError> {
    let at = |key: &str| format!("{place}.{key}");
    let every = match (rule.every, rule.iterations) {
        (Some(CalendarSpan(0)), None) => {
            return Err(InputError::new(at("every"), "expected a time above 0, found 0"));
        }
        (None, Some(0)) => {
            return Err(InputError::new(at("iterations"), "expected at least 1 iteration, found 0"));
        }
        (Some(every), None) => Every::Time(every.0),
        (None, Some(iterations)) => Every::Iterations(iterations),
        (given, _) => {
            let found = if given.is_some() { "both" } else { "neither" };
            let message = format!("expected one of `every` and `iterations`, found {found}");
            return Err(InputError::new(place, message));
        }
    };
    let write = match (rule.write, rule.bytes, rule.rate) {
        (Some(write), None, None) => write.0,
        (None, Some(bytes), Some(rate)) => time_of(bytes, rate, place)?,
        _ => {
            let message = "expected what a write costs: either `write`, or `bytes` and `rate`";
            return Err(InputError::new(place, message).hint("for example `write: 30 s`"));
        }
    };
    Ok(Checkpoint { every, write })
}

/// Nanoseconds for `bytes` at `rate`, rounded up.
fn time_of(bytes: crate::schema::Size, rate: crate::schema::Rate, place: &str) -> Result<u64, InputError> {
    if rate.0.bps() == 0 {
        return Err(InputError::new(format!("{place}.rate"), "expected a rate above 0, found 0"));
    }
    let ns = (u128::from(bytes.0.get()) * 8_000_000_000).div_ceil(u128::from(rate.0.bps()));
    u64::try_from(ns)
        .ok()
        .filter(|&ns| ns < u64::MAX / 100)
        .ok_or_else(|| InputError::new(place, "the bytes take longer than a few years at this rate"))
}
