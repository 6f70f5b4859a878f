//! What layouts of a job take, by the cost model: a scenario and choices in, times and memory out.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use serde::Deserialize;
use serde_json::json;
use windtunnel_config::resolve::estimate::{Choice, Estimator};
use windtunnel_config::schema::Scenario;
use windtunnel_kernel::Bytes;
use windtunnel_plan::error::InputError;
use windtunnel_plan::inputs::Inputs;
use windtunnel_workload::estimate::{Course, Gathering, LANES, Reducing, Sheet, Side, Times};
use windtunnel_workload::schedules::{Schedule, ScheduleName, ScheduleSettings};

use super::{Failure, RunRequest};

/// Choices of a job's layout.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(default)]
    job: usize,
    /// Whether NICs alone are shared.
    #[serde(default)]
    ideal: bool,
    /// Whether exchanges inside passes meet nothing on their links.
    #[serde(default)]
    apart: bool,
    /// Whether only layouts that fit a GPU are timed.
    #[serde(default)]
    fitting: bool,
    /// Bytes of a GPU that may be used for that; null: all.
    #[serde(default)]
    budget: Option<u64>,
    /// Choices that are answered at a time.
    #[serde(default = "at_once")]
    at_once: usize,
    /// Threads that answer at most; null: as many as there are cores.
    #[serde(default)]
    threads: Option<NonZeroUsize>,
    choices: Vec<Choice>,
}

impl Asked {
    fn estimator(&self, scenario: Scenario, source: &str, files: &Inputs) -> Result<Estimator, InputError> {
        let mut estimator = Estimator::new(scenario, source, files, self.job, self.ideal)?;
        if self.apart {
            estimator.apart();
        }
        if self.fitting {
            estimator.only_fitting(self.budget.map(Bytes::new));
        }
        Ok(estimator)
    }
}

const fn at_once() -> usize {
    2048
}

/// Tells `told` what the choices in `text` take, some at a time and in their order, until it says no; JSON texts in and out.
///
/// # Errors
/// [`Failure::Input`] for what is wrong with the scenario whatever the layout; a choice that does not fit is told in its answer.
pub fn estimate(request: &RunRequest, text: &str, told: &mut dyn FnMut(&str) -> bool) -> Result<(), Failure> {
    let asked: Asked =
        serde_json::from_str(text).map_err(|error| InputError::new("choices", error.to_string()))?;
    let files = Inputs::of(&request.base);
    let scenario = request.scenario()?;
    let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = asked.threads.unwrap_or_else(cores).get();
    let size = asked.at_once.min(asked.choices.len().div_ceil(threads)).max(1);
    let lots: Vec<&[Choice]> = asked.choices.chunks(size).collect();
    // Each thread has an estimator of its own and takes the next lot; lots are told in their order. What an answer says does not
    // depend on what was asked before it.
    let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads.min(lots.len()).max(1) {
            let (sender, scenario) = (sender.clone(), scenario.clone());
            let (asked, files, lots, next, stopped) = (&asked, &files, &lots, &next, &stopped);
            scope.spawn(move || {
                let mut estimator = match asked.estimator(scenario, &request.source, files) {
                    Ok(estimator) => estimator,
                    Err(error) => return drop(sender.send(Err(error))),
                };
                while !stopped.load(Ordering::Relaxed) {
                    let lot = next.fetch_add(1, Ordering::Relaxed);
                    let Some(choices) = lots.get(lot) else { break };
                    if sender.send(Ok((lot, answered(&mut estimator, choices)))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let (mut waiting, mut due) = (BTreeMap::new(), 0);
        for answer in receiver {
            let (lot, answers) = answer?;
            waiting.insert(lot, answers);
            while let Some(answers) = waiting.remove(&due) {
                due += 1;
                if !told(&answers) {
                    stopped.store(true, Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
        Ok(())
    })
}

fn answered(estimator: &mut Estimator, choices: &[Choice]) -> String {
    json!({"answers": estimator.answers(choices)}).to_string()
}

/// Many scenarios at once, each with a folder of its own where relative paths begin.
///
/// # Errors
/// [`Failure::Input`] for a text that is none of these; what is wrong with a scenario is told in its answer.
pub fn estimate_each(text: &str) -> Result<String, Failure> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct One {
        text: String,
        source: String,
        base: String,
        #[serde(default)]
        ideal: bool,
        choices: Vec<Choice>,
    }
    let all: Vec<One> =
        serde_json::from_str(text).map_err(|error| InputError::new("scenarios", error.to_string()))?;
    let mut answers = Vec::with_capacity(all.len());
    for one in all {
        let request = RunRequest { text: one.text, source: one.source, ..RunRequest::default() };
        let files = Inputs::of(Path::new(&one.base));
        let made = request
            .scenario()
            .and_then(|scenario| Estimator::new(scenario, &request.source, &files, 0, one.ideal));
        answers.push(match made {
            Ok(mut estimator) => json!({"answers": estimator.answers(&one.choices)}),
            Err(error) => json!({"refused": error.to_string()}),
        });
    }
    Ok(json!(answers).to_string())
}

/// Layouts that the cost model's line answers in a second: `ranks` pipeline ranks of `chunks` chunks and as many micro-batches, stages
/// of different lengths, `rounds` times [`LANES`] of them; passes of a layout, and layouts.
///
/// # Errors
/// [`Failure::Input`] for a schedule that does not fit.
pub fn estimate_line(ranks: u32, chunks: u16, rounds: u32) -> Result<(usize, usize, f64), Failure> {
    let settings =
        ScheduleSettings { chunks: Some(chunks), ..ScheduleSettings::new(ScheduleName::Interleaved) };
    let schedule = Schedule::new(&settings, ranks, ranks)
        .map_err(|error| InputError::new("schedule", error.to_string()))?;
    let course = Course::new(&schedule, Gathering::None, Reducing::Last);
    let mut sheet = Sheet::new(&course);
    let mut latest = 0.0f64;
    for round in 0..rounds {
        for lane in 0..LANES {
            for rank in 0..ranks {
                for chunk in 0..u32::from(chunks) {
                    let length = f64::from(100 + (rank * 7 + chunk * 13 + round * 3 + lane as u32) % 11);
                    let times = Times { passes: [length, 2.0 * length, 0.0, 0.0], ..Times::default() };
                    sheet.stage(lane, rank, chunk, &times);
                }
                let side = Side { busy: 5.0, latency: 3.0 };
                sheet.sides(lane, rank, side, side);
            }
        }
        latest = course.makespans(&sheet).iter().copied().fold(latest, f64::max);
    }
    Ok((course.passes(), LANES * rounds as usize, latest))
}
