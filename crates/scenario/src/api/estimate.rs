//! What layouts of a job take, by the cost model: a scenario and choices in, times and memory out.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use windtunnel_config::resolve::estimate::{Answer, Choice, Depth, Estimator};
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
    /// How closely exchanges are followed.
    #[serde(default)]
    depth: Depth,
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

/// A list of choices that desks take lots of.
struct Order {
    asked: Asked,
    size: usize,
    next: AtomicUsize,
    stopped: AtomicBool,
}

/// A lot's number and its answers, as JSON text.
type Told = Result<(usize, String), InputError>;

/// An order, and who is told.
type Sent = (Arc<Order>, mpsc::Sender<Told>);

/// Threads that answer what layouts of one job take. Each has an estimator of its own, which keeps what choices share from one list to the
/// next; what an answer says does not depend on what was asked before it. They end with the value.
pub struct Estimates {
    desks: Vec<mpsc::Sender<Sent>>,
}

impl Estimates {
    /// Of job number `job` of a scenario, on as many `threads` as there are cores unless told; with `ideal` NICs alone are shared.
    ///
    /// # Errors
    /// [`Failure::Input`] for a text that is no scenario.
    pub fn new(
        request: &RunRequest,
        job: usize,
        ideal: bool,
        threads: Option<NonZeroUsize>,
    ) -> Result<Self, Failure> {
        let scenario = request.scenario()?;
        let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let desks = (0..threads.unwrap_or_else(cores).get()).map(|_| {
            let (sender, orders) = mpsc::channel::<Sent>();
            let (scenario, source, files) =
                (scenario.clone(), request.source.clone(), Inputs::of(&request.base));
            std::thread::spawn(move || {
                let mut estimator = None;
                let make = || Estimator::new(scenario.clone(), &source, &files, job, ideal);
                for (order, told) in orders {
                    desk(&order, &told, &mut estimator, &make);
                }
            });
            sender
        });
        Ok(Self { desks: desks.collect() })
    }

    /// Tells `told` what the choices in `text` take, some at a time and in their order, until it says no; JSON texts in and out.
    ///
    /// # Errors
    /// [`Failure::Input`] for what is wrong with the scenario whatever the layout; a choice that does not fit is told in its answer.
    ///
    /// # Panics
    /// If a thread has.
    pub fn answers(&self, text: &str, told: &mut dyn FnMut(&str) -> bool) -> Result<(), Failure> {
        let asked: Asked =
            serde_json::from_str(text).map_err(|error| InputError::new("choices", error.to_string()))?;
        let number = asked.choices.len();
        // What is followed closely takes long: smaller lots keep all threads busy to the end.
        let parts = if asked.depth == Depth::Close { 8 * self.desks.len() } else { self.desks.len() };
        let size = asked.at_once.min(number.div_ceil(parts)).max(1);
        let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        let order = Arc::new(Order { asked, size, next, stopped });
        let receiver = {
            let (sender, receiver) = mpsc::channel();
            for desk in &self.desks {
                // One that has ended will be missed below.
                drop(desk.send((Arc::clone(&order), sender.clone())));
            }
            receiver
        };
        let (mut waiting, mut due) = (BTreeMap::new(), 0);
        for answer in receiver {
            let (lot, answers) = answer.inspect_err(|_| order.stopped.store(true, Ordering::Relaxed))?;
            waiting.insert(lot, answers);
            while let Some(answers) = waiting.remove(&due) {
                due += 1;
                if !told(&answers) {
                    order.stopped.store(true, Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
        assert!(due == number.div_ceil(size), "a thread of the cost model ended in the midst of its work");
        Ok(())
    }
}

/// Takes lots of an order until none is left. An estimator is made when the first is taken.
fn desk(
    order: &Order,
    told: &mpsc::Sender<Told>,
    estimator: &mut Option<Estimator>,
    make: &dyn Fn() -> Result<Estimator, InputError>,
) {
    let asked = &order.asked;
    while !order.stopped.load(Ordering::Relaxed) {
        let lot = order.next.fetch_add(1, Ordering::Relaxed);
        let Some(choices) = asked.choices.chunks(order.size).nth(lot) else { break };
        let estimator = match estimator {
            Some(estimator) => estimator,
            None => match make() {
                Ok(made) => estimator.insert(made),
                Err(error) => return drop(told.send(Err(error))),
            },
        };
        estimator.set_depth(asked.depth);
        estimator.set_fitting(asked.fitting, asked.budget.map(Bytes::new));
        if told.send(Ok((lot, answered(estimator, choices)))).is_err() {
            break;
        }
    }
}

fn answered(estimator: &mut Estimator, choices: &[Choice]) -> String {
    #[derive(Serialize)]
    struct All {
        answers: Vec<Answer>,
    }
    let all = All { answers: estimator.answers(choices) };
    serde_json::to_string(&all).expect("answers are numbers, texts and lists")
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
