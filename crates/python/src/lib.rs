//! The native module `windtunnel._engine`: bindings and nothing else.
//!
//! Every function takes and returns plain text, numbers and NumPy arrays; the documented Python API is
//! `windtunnel`. Long work runs detached from the interpreter; callbacks attach again. Bad input raises `InputError` with
//! a rendered message, a run that fails raises `RunError`.
//!
//! A program with modules of its own (transports, say) makes a module of this one: its `#[pymodule]` calls [`install`]
//! with them, and `WINDTUNNEL_ENGINE=its.name` puts it in this one's place. `examples/own-transport` shows it.

#![warn(unreachable_pub)]

mod estimates;
mod gate;
mod plan;
mod policies;
mod tables;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use windtunnel_kernel::memory::CountingAllocator;
use windtunnel_kernel::units::Dimension;
use windtunnel_scenario::api::{self, Failure, How, Keep, Native, RunRequest, Why};
use windtunnel_scenario::modules::Modules;
use windtunnel_scenario::table::{Phase, ProgressSink, TableSink};

use self::gate::Gate;
use self::tables::Sink;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// What this module was installed with.
static MODULES: OnceLock<Modules> = OnceLock::new();

fn modules() -> Modules {
    MODULES.get().cloned().unwrap_or_default()
}

create_exception!(windtunnel._engine, InputError, PyValueError, "Bad input: place, what was found, a hint.");
create_exception!(windtunnel._engine, RunError, PyRuntimeError, "A run that failed.");

fn raise(failure: Failure) -> PyErr {
    match failure {
        Failure::Input(error) => InputError::new_err(error.to_string()),
        Failure::Run(why, message) => run_error(why, message),
        Failure::Cluster(error) => run_error(Why::Starved, error.to_string()),
    }
}

fn run_error(why: Why, message: String) -> PyErr {
    let error = RunError::new_err(message);
    // Only an exception that cannot be made at all has no room for it.
    Python::attach(|py| drop(error.value(py).setattr("why", why.name())));
    error
}

/// Does `work` detached from the interpreter. A panic is an ordinary `RunError`: Python's own for it is no `Exception`, and
/// would end a sweep that catches those of its runs.
fn outside<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, Failure> + Send) -> PyResult<T> {
    py.detach(|| api::guarded(work)).map_err(raise)
}

/// Tells a Python callable how far a run is and notices Ctrl-C.
struct PyProgress {
    callable: Py<PyAny>,
    /// What takes remarks.
    notice: Option<Py<PyAny>>,
    phase: Phase,
}

impl ProgressSink for PyProgress {
    fn progress(&mut self, fraction: Option<f64>, simulated_s: f64, events: u64) -> bool {
        // An exception, KeyboardInterrupt above all, stops the run; what was simulated is kept.
        Python::attach(|py| {
            let told = (fraction, simulated_s, events, self.phase.name());
            py.check_signals().is_ok() && self.callable.call1(py, told).is_ok()
        })
    }

    fn phase(&mut self, phase: Phase) {
        self.phase = phase;
        // Who wants to stop the run is asked again.
        self.progress(Some(0.0), 0.0, 0);
    }

    fn remark(&mut self, line: &str) {
        if let Some(notice) = &self.notice {
            // Nothing is lost but the line if it cannot be written.
            Python::attach(|py| drop(notice.call1(py, (line,))));
        }
    }
}

fn option<'py, T>(options: &Bound<'py, PyDict>, key: &str) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    match options.get_item(key)? {
        Some(value) if !value.is_none() => value.extract().map(Some),
        _ => Ok(None),
    }
}

/// What the caller says of native code: `allow_native`, `trusted_native` (SHA-256 in hexadecimal digits), and `notice`,
/// which is called with a line before any is loaded.
fn native(options: &Bound<'_, PyDict>) -> PyResult<Native> {
    let notice = options.get_item("notice")?.filter(|notice| !notice.is_none()).map(|notice| {
        let callable = notice.unbind();
        let tell = move |line: &str| {
            // Nothing is lost but the line if it cannot be written.
            Python::attach(|py| drop(callable.call1(py, (line,))));
        };
        Arc::new(tell) as Arc<dyn Fn(&str) + Send + Sync>
    });
    Ok(Native {
        allowed: option(options, "allow_native")?.unwrap_or(false),
        trusted: option(options, "trusted_native")?.unwrap_or_default(),
        notice,
    })
}

fn request(
    text: String,
    source: String,
    base: String,
    overrides: Vec<(String, String)>,
    options: &Bound<'_, PyDict>,
) -> PyResult<RunRequest> {
    let How { threads, native, journal, gate } = how(options)?;
    Ok(RunRequest {
        text,
        source,
        base: base.into(),
        unpacked: None,
        overrides,
        threads,
        seed: option(options, "seed")?,
        fidelity: option(options, "fidelity")?,
        full: option(options, "full")?.unwrap_or(false),
        modules: policies::add(modules(), options)?,
        policies: option(options, "policies")?.unwrap_or_default(),
        native,
        journal,
        gate,
    })
}

/// How a run is run: `threads`, what `native` code is allowed, `journal` or `resume`, and a `gate` that moves its clock.
fn how(options: &Bound<'_, PyDict>) -> PyResult<How> {
    let gate = options.get_item("gate")?.filter(|gate| !gate.is_none());
    let gate = match &gate {
        Some(gate) => Some(Arc::clone(&gate.cast::<Gate>()?.get().0)),
        None => None,
    };
    Ok(How {
        threads: option(options, "threads")?,
        native: native(options)?,
        journal: journal(options)?,
        gate,
    })
}

/// `journal`, the path of a file that the run keeps and the text that it begins with; or `resume`, the path of one that was left.
fn journal(options: &Bound<'_, PyDict>) -> PyResult<Option<Keep>> {
    if let Some(path) = option::<PathBuf>(options, "resume")? {
        return Ok(Some(Keep::GoingOn(path)));
    }
    let fresh = option::<(PathBuf, String)>(options, "journal")?;
    Ok(fresh.map(|(path, request)| Keep::Fresh { path, request }))
}

/// Runs a scenario; returns the summary as JSON text. Its tables go to `sink`: a `TableWriter`, a callable, or None, which drops them.
#[pyfunction]
fn run(
    py: Python<'_>,
    text: String,
    source: String,
    base: String,
    overrides: Vec<(String, String)>,
    options: &Bound<'_, PyDict>,
    sink: Py<PyAny>,
    progress: Py<PyAny>,
) -> PyResult<String> {
    let request = request(text, source, base, overrides, options)?;
    carried_out(py, options, sink, progress, |sink, progress| api::run(&request, sink, progress))
}

/// Does a run detached from the interpreter, with what Python has for its tables and its progress.
fn carried_out(
    py: Python<'_>,
    options: &Bound<'_, PyDict>,
    sink: Py<PyAny>,
    progress: Py<PyAny>,
    run: impl FnOnce(&mut dyn TableSink, &mut dyn ProgressSink) -> Result<String, Failure> + Send,
) -> PyResult<String> {
    let mut sink = Sink::of(sink.into_bound(py))?;
    let notice = options.get_item("notice")?.filter(|notice| !notice.is_none()).map(Bound::unbind);
    let mut progress = PyProgress { callable: progress, notice, phase: Phase::default() };
    let result = py.detach(|| api::guarded(|| run(&mut sink, &mut progress)));
    sink.end()?;
    result.map_err(raise)
}

/// What the run that has left a journal was asked for: the text that its `journal` began with.
#[pyfunction]
fn journal_request(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    outside(py, || api::journal_request(&path))
}

/// The engine's version and build.
#[pyfunction]
fn build() -> &'static str {
    api::build()
}

/// Times of single collectives from closed forms, as JSON text: questions in, seconds and choices out.
#[pyfunction]
fn collective_times(py: Python<'_>, text: &str) -> PyResult<String> {
    outside(py, || api::collective_times(text))
}

/// Times of single kernels on a GPU, as JSON text: a sheet and rows in, seconds out.
#[pyfunction]
fn kernel_times(py: Python<'_>, text: &str) -> PyResult<String> {
    outside(py, || api::kernel_times(text))
}

/// Times of MPI's collectives by algorithm, as JSON text: questions in, seconds out.
#[pyfunction]
fn mpi_times(py: Python<'_>, text: &str) -> PyResult<String> {
    outside(py, || api::mpi_times(text))
}

/// A function of a scenario, with what Python says of one: its text, its name in messages, the folder of its files, overrides, options.
macro_rules! of_scenario {
    ($(#[doc = $doc:literal])+ fn $name:ident($($more:ident: $kind:ty),*) -> $found:ty;) => {
        $(#[doc = $doc])+
        #[pyfunction]
        fn $name(
            py: Python<'_>,
            text: String,
            source: String,
            base: String,
            overrides: Vec<(String, String)>,
            options: &Bound<'_, PyDict>,
            $($more: $kind),*
        ) -> PyResult<$found> {
            let request = request(text, source, base, overrides, options)?;
            outside(py, || api::$name(&request, $($more),*))
        }
    };
}

of_scenario! {
    /// Layers, bytes, FLOPs, memory and communicators of a scenario's jobs as JSON text, without a run.
    fn explain() -> String;
}

of_scenario! {
    /// When the first events differ between runs with these numbers of threads, in words; None if none do.
    fn compare_events(threads: [usize; 2]) -> Option<String>;
}

/// The same of many scenarios, each as it is written.
#[pyfunction]
fn estimate_each(py: Python<'_>, scenarios: &str) -> PyResult<String> {
    outside(py, || api::estimate_each(scenarios))
}

/// Prices made-up layouts of a pipeline, to be timed: passes of one, layouts, and the longest of them in picoseconds.
#[pyfunction]
fn estimate_line(py: Python<'_>, ranks: u32, chunks: u16, rounds: u32) -> PyResult<(usize, usize, f64)> {
    outside(py, || api::estimate_line(ranks, chunks, rounds))
}

/// A scenario as it is written, with overrides in their places, as JSON text; its keys in order if `in_order`.
#[pyfunction]
#[pyo3(signature = (text, source, overrides, *, in_order = false))]
fn scenario_tree(
    text: &str,
    source: &str,
    overrides: Vec<(String, String)>,
    in_order: bool,
) -> PyResult<String> {
    api::guarded(|| api::scenario_tree(text, source, &overrides, in_order)).map_err(raise)
}

/// Members of a JSON record by name, as the text of a record; the others are not looked at.
#[pyfunction]
fn members(text: &str, keys: Vec<String>) -> PyResult<String> {
    api::guarded(|| api::members(text, &keys)).map_err(raise)
}

/// What set-up, memory and look-ups cost by rule and by tables, as JSON text.
#[pyfunction]
fn measure_lookups(
    py: Python<'_>,
    text: &str,
    source: &str,
    base: &str,
    lookups: u64,
    tables: bool,
    table_limit: u64,
) -> PyResult<String> {
    outside(py, || api::lookup::measure_lookups(text, source, base.as_ref(), lookups, tables, table_limit))
}

/// The summary of a topology file and the answers to a request, as JSON text.
#[pyfunction]
#[pyo3(signature = (text, source, base, request = "{}"))]
fn topology(py: Python<'_>, text: &str, source: &str, base: &str, request: &str) -> PyResult<String> {
    outside(py, || api::topology(text, source, base.as_ref(), request))
}

/// The JSON Schema of a scenario.
#[pyfunction]
fn schema() -> String {
    api::schema()
}

/// The names of a kind of thing, each with one line of description.
#[pyfunction]
fn names(kind: &str) -> PyResult<Vec<(String, String)>> {
    api::guarded(|| api::names(kind, &modules())).map_err(raise)
}

/// The name of `known` nearest to `found`, if it is near enough to be a slip.
#[pyfunction]
fn nearest(found: &str, known: Vec<String>) -> Option<String> {
    windtunnel_kernel::nearest(found, known.iter().map(String::as_str)).map(str::to_owned)
}

/// The units of a kind of quantity (`time`, `calendar`, `size`, `rate` or `length`) with their factors to its base unit.
#[pyfunction]
fn units(kind: &str) -> PyResult<Vec<(&'static str, u64)>> {
    let dimension = match kind {
        "time" => Dimension::Time,
        "calendar" => Dimension::Calendar,
        "size" => Dimension::Size,
        "rate" => Dimension::Rate,
        "length" => Dimension::Length,
        _ => return Err(PyValueError::new_err(format!("no kind of quantity: `{kind}`"))),
    };
    Ok(dimension.units().to_vec())
}

/// What is wrong with a GOAL file, as JSON text.
#[pyfunction]
fn goal_check(py: Python<'_>, path: &str) -> PyResult<String> {
    outside(py, || api::goal::check(path.as_ref()))
}

/// Counts of a GOAL file, as JSON text.
#[pyfunction]
fn goal_stats(py: Python<'_>, path: &str) -> PyResult<String> {
    outside(py, || api::goal::stats(path.as_ref()))
}

/// Writes a GOAL file in the format that the target's name asks for.
#[pyfunction]
fn goal_convert(py: Python<'_>, source: &str, target: &str) -> PyResult<()> {
    outside(py, || api::goal::convert(source.as_ref(), target.as_ref()))
}

/// Puts GOAL files side by side.
#[pyfunction]
fn goal_merge(py: Python<'_>, sources: Vec<String>, target: &str) -> PyResult<()> {
    outside(py, || api::goal::merge(&sources, target.as_ref()))
}

/// Reads recordings and writes the workload that they are; a request and its answer as JSON text.
#[pyfunction]
fn import_recordings(py: Python<'_>, request: &str) -> PyResult<String> {
    outside(py, || api::import::import(request))
}

/// The kinds of recordings that files are, as JSON text.
#[pyfunction]
fn detect_recordings(py: Python<'_>, sources: Vec<PathBuf>) -> PyResult<String> {
    outside(py, || api::import::detect(&sources))
}

/// What is done to a workload's file, or told of it; a request and its answer as JSON text.
#[pyfunction]
fn edit_workload(py: Python<'_>, request: &str) -> PyResult<String> {
    outside(py, || api::workload::edit(request))
}

/// Replays a GOAL file under LogGOPS; JSON text.
#[pyfunction]
fn goal_run(py: Python<'_>, path: &str, loggops: &str, receiver: &str) -> PyResult<String> {
    outside(py, || api::goal::run(path.as_ref(), loggops, receiver))
}

/// Finish time of every flow in seconds; see `windtunnel.simulate_flows`, which checks and names the input.
#[pyfunction]
fn simulate_flows<'py>(
    py: Python<'py>,
    rates: PyReadonlyArray1<'py, f64>,
    latencies: PyReadonlyArray1<'py, f64>,
    offsets: PyReadonlyArray1<'py, u32>,
    path_links: PyReadonlyArray1<'py, u32>,
    bytes: PyReadonlyArray1<'py, f64>,
    starts: PyReadonlyArray1<'py, f64>,
    weights: PyReadonlyArray1<'py, f64>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (rates, latencies) = (rates.as_slice()?, latencies.as_slice()?);
    let (offsets, path_links) = (offsets.as_slice()?, path_links.as_slice()?);
    let (bytes, starts, weights) = (bytes.as_slice()?, starts.as_slice()?, weights.as_slice()?);
    let finish =
        outside(py, || api::simulate_flows(rates, latencies, offsets, path_links, bytes, starts, weights))?;
    Ok(PyArray1::from_vec(py, finish))
}

/// Windtunnel's engine.
#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    install(module, Modules::default())
}

/// Fills `module` with the functions of the engine; its scenarios may name what is in `own`.
///
/// # Errors
/// What Python raises.
pub fn install(module: &Bound<'_, PyModule>, own: Modules) -> PyResult<()> {
    module.add_class::<estimates::Estimates>()?;
    module.add_class::<Gate>()?;
    module.add_class::<plan::Plan>()?;
    module.add_class::<tables::TableWriter>()?;
    // A second import of the same library would bring the same.
    let _ = MODULES.set(own);
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("InputError", module.py().get_type::<InputError>())?;
    module.add("RunError", module.py().get_type::<RunError>())?;
    for function in [
        wrap_pyfunction!(run, module)?,
        wrap_pyfunction!(journal_request, module)?,
        wrap_pyfunction!(tables::read_table, module)?,
        wrap_pyfunction!(build, module)?,
        wrap_pyfunction!(collective_times, module)?,
        wrap_pyfunction!(kernel_times, module)?,
        wrap_pyfunction!(mpi_times, module)?,
        wrap_pyfunction!(explain, module)?,
        wrap_pyfunction!(estimate_each, module)?,
        wrap_pyfunction!(estimate_line, module)?,
        wrap_pyfunction!(compare_events, module)?,
        wrap_pyfunction!(scenario_tree, module)?,
        wrap_pyfunction!(members, module)?,
        wrap_pyfunction!(topology, module)?,
        wrap_pyfunction!(measure_lookups, module)?,
        wrap_pyfunction!(schema, module)?,
        wrap_pyfunction!(names, module)?,
        wrap_pyfunction!(nearest, module)?,
        wrap_pyfunction!(units, module)?,
        wrap_pyfunction!(import_recordings, module)?,
        wrap_pyfunction!(detect_recordings, module)?,
        wrap_pyfunction!(edit_workload, module)?,
        wrap_pyfunction!(goal_check, module)?,
        wrap_pyfunction!(goal_stats, module)?,
        wrap_pyfunction!(goal_convert, module)?,
        wrap_pyfunction!(goal_merge, module)?,
        wrap_pyfunction!(goal_run, module)?,
        wrap_pyfunction!(simulate_flows, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
