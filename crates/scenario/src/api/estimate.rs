//! What layouts of a job take, by the cost model: a scenario and choices in, times and memory out.

use std::path::Path;

use serde::Deserialize;
use serde_json::json;
use windtunnel_config::resolve::estimate::{Choice, Estimator};
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
    choices: Vec<Choice>,
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
    let mut estimator = Estimator::new(request.scenario()?, &request.source, &files, asked.job, asked.ideal)?;
    if asked.apart {
        estimator.apart();
    }
    if asked.fitting {
        estimator.only_fitting(asked.budget.map(Bytes::new));
    }
    for choices in asked.choices.chunks(asked.at_once.max(1)) {
        if !told(&json!({"answers": estimator.answers(choices)}).to_string()) {
            break;
        }
    }
    Ok(())
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
