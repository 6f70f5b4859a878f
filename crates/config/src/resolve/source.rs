//! Jobs that nobody lists: read from a log, or drawn from the shape of one.

use serde::Deserialize;
use windtunnel_cluster::cluster::Job;
use windtunnel_cluster::life::{Life, Lives, Sizes};
use windtunnel_cluster::log::shape::{Class, Quantiles, Shape};
use windtunnel_cluster::log::{self, Facts, Format, LogError, LoggedJob, ReadOptions, Scale};
use windtunnel_kernel::registry::Listed;
use windtunnel_kernel::{CalendarTime, RandomStream};
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::inputs::Inputs;
use windtunnel_plan::origin::LogAccount;
use windtunnel_plan::stream::JobStream;

use super::context::Context;
use super::names::find;
use super::{elastic, policies, upkeep};
use crate::budget::{self, Items};
use crate::schema::job_source::{EstimatesName, RunningName};
use crate::schema::{Duration, Fidelity, JobSource, Jobs, Scenario};
use crate::{load, sheets};

/// Whether every job says how long it takes, so that no network is asked.
pub fn needs_no_network(scenario: &Scenario) -> bool {
    let timed = match &scenario.jobs {
        Jobs::List(jobs) => jobs.iter().all(|job| job.duration.is_some() && job.workload.is_none()),
        Jobs::Source(source) => source.workloads.is_empty(),
    };
    scenario.fidelity == Fidelity::Job && timed
}

/// A shape of jobs as its sheet writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sheet {
    name: String,
    evidence: String,
    source: String,
    gaps: Vec<(f64, Duration)>,
    classes: Vec<SheetClass>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SheetClass {
    gpus: Vec<(u32, f64)>,
    durations: Vec<(f64, Duration)>,
}

/// Reads or draws the jobs of `source`.
///
/// # Errors
/// [`InputError`] with the key, or the file and line, at fault.
pub fn stream(
    source: &JobSource,
    context: &Context<'_>,
    evidence: &mut EvidenceList,
) -> Result<JobStream, InputError> {
    let Context { scenario, base, place, .. } = *context;
    let endpoints = context.gpus();
    let at = |key: &str| format!("{place}.{key}");
    if scenario.fidelity != Fidelity::Job && source.workloads.is_empty() {
        let message = "jobs of a log have durations and no operations, which a network could not run";
        return Err(InputError::new(place, message)
            .hint("`workloads` gives them some; `fidelity: job` runs durations"));
    }
    if let Some(times) = source.deadline {
        positive(times, &at("deadline"))?;
    }
    if source.queue == Some(0) {
        return Err(InputError::new(at("queue"), "expected room for at least 1 job, found 0"));
    }
    if source.ends == Some(0) {
        return Err(InputError::new(at("ends"), "expected at least 1 job, found 0"));
    }
    if source.ends.is_some() && source.workloads.is_empty() {
        let message = "`ends` is for jobs with `workloads`; jobs that are durations run to the last";
        return Err(InputError::new(at("ends"), message).hint("`count` bounds them"));
    }
    let placement = policies::placement(&source.placement, place)?;
    let life = upkeep::logged_life(source.dues(), &scenario.cluster, place)?;
    let locality = policies::locality(&source.locality, place)?;
    let scale = scale(source, place)?;
    let (mut logged, facts, log) = match (&source.log, &source.like) {
        (Some(file), None) => {
            let (jobs, facts, account, format) = read_log(file, source, base, place, "log")?;
            evidence.add("jobs", "given", &format!("log {file} ({})", format.name()));
            (jobs, facts, account)
        }
        (None, Some(like)) => draw(like, source, scenario.seed, base, place, evidence)?,
        (None, None) => {
            return Err(InputError::new(place, "expected one of `log` and `like`, found neither"));
        }
        (Some(_), Some(_)) => {
            return Err(InputError::new(place, "expected one of `log` and `like`, found both"));
        }
    };
    scale.apply(&mut logged, endpoints);
    let too_large = logged.iter().filter(|job| job.gpus > endpoints);
    if let Some(first) = too_large.clone().next() {
        let file = source.log.as_deref().unwrap_or_default();
        let what =
            if first.line > 0 { format!("the job of {file}:{}", first.line) } else { "a job".to_owned() };
        let more = match too_large.count() {
            1 => String::new(),
            count => format!("; {count} jobs are too large"),
        };
        let message = format!("{what} needs {} GPUs, but the topology has {endpoints}{more}", first.gpus);
        return Err(
            InputError::new(place, message).hint("raise `topology.hosts`, or cap jobs by `scale.max_gpus`")
        );
    }
    let asked = matches!(source.estimates, EstimatesName::Asked);
    let span = |job: &LoggedJob| job.duration.max(job.estimate.filter(|_| asked).unwrap_or(0));
    if let Some(job) = logged.iter().find(|job| span(job) > LONGEST) {
        let file = source.log.as_deref().unwrap_or_default();
        let what = if job.line > 0 { format!("the job of {file}:{}", job.line) } else { "a job".to_owned() };
        let message = format!("{what} takes {} years, expected less than 100", span(job) / YEAR);
        return Err(InputError::new(place, message).hint("cap jobs by `scale.max_duration`"));
    }
    if let Some(shares) = &source.elastic {
        elastic::check(shares, context)?;
    }
    let lives = lives(&life, source, &logged, context)?;
    let priorities = priorities(source, place)?;
    let job = |(index, job): (usize, &LoggedJob)| Job {
        submit: CalendarTime::from_ns(job.submit),
        estimate: match source.estimates {
            EstimatesName::Exact => job.duration,
            EstimatesName::Asked => job.estimate.unwrap_or(job.duration),
        },
        deadline: source.deadline.map_or(u64::MAX, |times| (job.duration as f64 * times).ceil() as u64),
        gpus: job.gpus,
        priority: match priorities.last() {
            Some(_) => drawn_priority(&priorities, scenario.seed, index as u64),
            None => job.priority,
        },
        locality,
        placement: 0,
    };
    if let Some(last) = logged.last()
        && last.submit > LONGEST
    {
        let message =
            format!("the last job comes after {} years, expected less than 100", last.submit / YEAR);
        return Err(InputError::new(at("load"), message).hint("raise the load, or take fewer jobs"));
    }
    Ok(JobStream {
        jobs: logged.iter().enumerate().map(job).collect(),
        durations: logged.iter().map(|job| job.duration).collect(),
        lines: if source.log.is_some() { logged.iter().map(|job| job.line).collect() } else { Vec::new() },
        facts,
        log: source.log.is_some().then_some(log),
        placement,
        lives,
        queue: source.queue,
    })
}

/// Lives of the jobs: of storage hosts a large job loads faster than a small one, and an elastic one has bounds of its own.
fn lives(
    life: &Life,
    source: &JobSource,
    jobs: &[LoggedJob],
    context: &Context<'_>,
) -> Result<Lives, InputError> {
    let all = context.gpus();
    let of = |gpus: u32| {
        let loading = match &source.data {
            Some(data) => {
                let topology = &context.fabric.topology;
                upkeep::loading(data, context.storage, topology, gpus, context.place)?.0
            }
            None => life.loading,
        };
        let elastic = source.elastic.as_ref().map(|shares| {
            let bounds = elastic::of_shares(shares, gpus, all);
            Sizes::Between(bounds.min, bounds.max.unwrap_or(gpus))
        });
        Ok(Life { loading, elastic, ..life.clone() })
    };
    let by_size = source.elastic.is_some() || source.data.as_ref().is_some_and(|data| data.rate.is_none());
    if !by_size {
        return of(1).map(Lives::Same);
    }
    jobs.iter().map(|job| of(job.gpus)).collect::<Result<_, _>>().map(Lives::Each)
}

/// Bytes of a job that is drawn, at least: what is drawn of it, and what the cluster takes while that is still there.
const DRAWN: u64 = (size_of::<LoggedJob>() + size_of::<Job>() + size_of::<u64>()) as u64;

const YEAR: u64 = 365 * 86_400 * 1_000_000_000;

/// Nanoseconds of the calendar that jobs may be submitted in: their ends have to fit in 64 bits too.
const LONGEST: u64 = 100 * YEAR;

fn positive(value: f64, place: &str) -> Result<f64, InputError> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(InputError::new(place, format!("expected a number above 0, found {value}")))
}

fn scale(source: &JobSource, place: &str) -> Result<Scale, InputError> {
    let positive = |value: f64, key: &str| positive(value, &format!("{place}.{key}"));
    if source.scale.max_gpus == Some(0) {
        return Err(InputError::new(format!("{place}.scale.max_gpus"), "expected at least 1 GPU, found 0"));
    }
    Ok(Scale {
        gpus: positive(source.scale.gpus, "scale.gpus")?,
        max_gpus: source.scale.max_gpus,
        duration: positive(source.scale.duration, "scale.duration")?,
        max_duration: source.scale.max_duration.map_or(u64::MAX, |most| most.0.ns_ceil().max(1)),
        arrivals: positive(source.scale.arrivals, "scale.arrivals")?,
        load: source.load.map(|load| positive(load, "load")).transpose()?,
    })
}

fn read_log(
    file: &str,
    source: &JobSource,
    base: &Inputs,
    place: &str,
    key: &str,
) -> Result<(Vec<LoggedJob>, Facts, LogAccount, Format), InputError> {
    let name = source.format.as_deref().ok_or_else(|| {
        InputError::new(format!("{place}.format"), "a log needs its format")
            .hint(format!("one of `{}`", Format::NAMES.join("`, `")))
    })?;
    let format: Format = find(name, format!("{place}.format"))?;
    let path = base.join(file);
    sheets::present(&path, &format!("{place}.{key}"))?;
    let leave_running = matches!(source.running, RunningName::LeaveOut);
    let options = ReadOptions { lenient: source.lenient, leave_running };
    let mut read = log::read(&path, format, options).map_err(|error| match error {
        LogError::File { .. } => InputError::new(format!("{place}.{key}"), error.to_string()),
        error => InputError::new("", error.to_string()),
    })?;
    if key == "log"
        && let Some(count) = source.count
    {
        if count == 0 {
            return Err(InputError::new(format!("{place}.count"), "expected at least 1 job, found 0"));
        }
        read.jobs.truncate(count as usize);
        read.facts.truncate(count as usize);
    }
    let partitions = read.facts.partitions();
    let account = LogAccount {
        skipped: read.skipped,
        remarks: read.remarks,
        partitions: partitions.into_iter().map(|(name, jobs)| (name.to_owned(), jobs)).collect(),
        asked: matches!(source.estimates, EstimatesName::Asked),
    };
    Ok((read.jobs, read.facts, account, format))
}

/// Draws jobs from a sheet's shape, or that of a log.
fn draw(
    like: &str,
    source: &JobSource,
    seed: u64,
    base: &Inputs,
    place: &str,
    evidence: &mut EvidenceList,
) -> Result<(Vec<LoggedJob>, Facts, LogAccount), InputError> {
    let at = |key: &str| format!("{place}.{key}");
    let count = source.count.ok_or_else(|| {
        InputError::new(at("count"), "jobs that are drawn need a number").hint("such as `count: 10000`")
    })?;
    if count == 0 || count > u64::from(u32::MAX - 1) {
        return Err(InputError::new(
            at("count"),
            format!("expected 1 to {} jobs, found {count}", u32::MAX - 1),
        ));
    }
    let drawn = Items { what: "jobs", count: count.into(), each: DRAWN };
    budget::check(&at("count"), &[drawn], "draw fewer jobs")?;
    let (shape, account) = if source.format.is_some() {
        let (jobs, _, account, format) = read_log(like, source, base, place, "like")?;
        let shape = Shape::fit(&jobs).ok_or_else(|| {
            InputError::new(at("like"), format!("`{like}` has one job, which shows no distribution"))
        })?;
        evidence.add("jobs", "calibrated", &format!("distributions fitted to {like} ({})", format.name()));
        (shape, account)
    } else {
        let text = sheets::find("jobs", like, base, &at("like"))?;
        let sheet: Sheet = load::from_yaml(&text.text, &text.source)?;
        evidence.add(&format!("jobs like {}", sheet.name), &sheet.evidence, &sheet.source);
        (shape_of(sheet, &text.source)?, LogAccount::default())
    };
    let jobs = shape.draw(count as usize, seed).map_err(|fit| {
        let message = format!(
            "{fit} jobs come within 584 years, which is all that is counted, and {count} are asked for"
        );
        InputError::new(at("count"), message).hint("draw fewer jobs, of arrivals that are closer")
    })?;
    Ok((jobs, Facts::default(), account))
}

fn shape_of(sheet: Sheet, source: &str) -> Result<Shape, InputError> {
    let quantiles = |points: Vec<(f64, Duration)>, key: &str| {
        let points: Vec<(f64, f64)> = points.into_iter().map(|(p, span)| (p, span.0.seconds())).collect();
        let whole = points.len() >= 2 && points[0].0 == 0.0 && points[points.len() - 1].0 == 1.0;
        let rising = points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        if whole && rising {
            return Ok(Quantiles { points });
        }
        let message = "expected pairs of a probability from 0 to 1 and a time, both rising";
        Err(InputError::new(format!("{source}: {key}"), message))
    };
    let gaps = quantiles(sheet.gaps, "gaps")?;
    let mut classes = Vec::new();
    for (index, class) in sheet.classes.into_iter().enumerate() {
        let key = format!("classes[{index}]");
        if class.gpus.is_empty()
            || class.gpus.iter().any(|&(gpus, share)| gpus == 0 || !(share > 0.0 && share.is_finite()))
        {
            let message = "expected pairs of a number of GPUs and a share above 0";
            return Err(InputError::new(format!("{source}: {key}.gpus"), message));
        }
        let durations = quantiles(class.durations, &format!("{key}.durations"))?;
        classes.push(Class { gpus: class.gpus, durations });
    }
    if classes.is_empty() {
        return Err(InputError::new(format!("{source}: classes"), "there is no class of jobs"));
    }
    Ok(Shape { classes, gaps })
}

/// (priority, share of it and those before).
fn priorities(source: &JobSource, place: &str) -> Result<Vec<(i32, f64)>, InputError> {
    let mut sum = 0.0;
    let entry = |(index, entry): (usize, &crate::schema::PriorityShare)| {
        if !(entry.share > 0.0 && entry.share.is_finite()) {
            let message = format!("expected a number above 0, found {}", entry.share);
            return Err(InputError::new(format!("{place}.priorities[{index}].share"), message));
        }
        sum += entry.share;
        Ok((entry.priority, sum))
    };
    source.priorities.iter().enumerate().map(entry).collect()
}

fn drawn_priority(shares: &[(i32, f64)], seed: u64, job: u64) -> i32 {
    let total = shares[shares.len() - 1].1;
    let target = RandomStream::new(seed, "job-priority", job).uniform() * total;
    shares.iter().find(|(_, sum)| *sum > target).unwrap_or(&shares[shares.len() - 1]).0
}
