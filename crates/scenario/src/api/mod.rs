//! What the bindings call: text, numbers and tables in, text and tables out.

mod collectives;
mod estimate;
mod frugal;
pub mod goal;
mod guard;
pub mod import;
mod kernels;
pub mod lookup;
mod names;
mod planned;
mod records;
pub mod routing;
mod topology;
pub mod workload;

use std::borrow::Borrow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windtunnel_config::load;
use windtunnel_config::schema::{Fidelity, OperationsTable, Scenario};
use windtunnel_kernel::{Bytes, EndpointId, NicId, Time, memory};
pub use windtunnel_plan::error::{Failure, Why};
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_plan::inputs::Unpacked;
use windtunnel_plan::modules::Modules;
pub use windtunnel_run::gate::{Gate, Notice, State};
use windtunnel_run::journal::{Journal, Made};
use windtunnel_run::machine::Stopwatch;
pub use windtunnel_run::native::Native;
use windtunnel_run::table::{Phase, ProgressSink, Rising, TableSink};
use windtunnel_run::{Pace, RunOptions, execute};
use windtunnel_topology::{LoadBalancer, Route, Topology};

pub use self::collectives::{collective_times, mpi_times};
pub use self::estimate::{Estimates, estimate_each, estimate_line};
use self::frugal::Frugal;
pub use self::guard::guarded;
pub use self::kernels::kernel_times;
pub use self::names::{name_kinds, names};
pub use self::planned::Planned;
pub use self::records::members;
pub use self::topology::topology;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct RunRequest {
    /// The scenario as YAML.
    pub text: String,
    /// Its name in messages.
    pub source: String,
    /// Folder of relative paths.
    pub base: PathBuf,
    /// Where its files are, if they were packed; then there are no others.
    pub unpacked: Option<Arc<Unpacked>>,
    /// Paths and YAML values that replace what the text says.
    pub overrides: Vec<(String, String)>,
    /// Threads; results do not depend on it.
    pub threads: Option<usize>,
    /// Seed instead of the scenario's.
    pub seed: Option<u64>,
    /// Fidelity instead of the scenario's.
    pub fidelity: Option<String>,
    /// Simulate every iteration, and write the operations of every rank.
    pub full: bool,
    /// What the program brings along.
    pub modules: Modules,
    /// Name and contents of policies among these, as far as results depend on them; part of the hash.
    pub policies: String,
    /// Which native code of the scenario may run.
    pub native: Native,
    /// Whether the run can go on should it be killed.
    pub journal: Option<Keep>,
    /// Who moves the run's clock; `None`: it goes as fast as it can. The run tells it of its end, however it ends.
    pub gate: Option<Arc<Gate>>,
}

impl RunRequest {
    /// How it is run.
    pub fn how(&self) -> How {
        How {
            threads: self.threads,
            native: self.native.clone(),
            journal: self.journal.clone(),
            gate: self.gate.clone(),
        }
    }

    fn scenario(&self) -> Result<Scenario, InputError> {
        let mut scenario = load::scenario(&self.text, &self.source, &self.overrides)?;
        if let Some(seed) = self.seed {
            scenario.seed = seed;
        }
        if self.full && scenario.results.operations == OperationsTable::Pipeline {
            scenario.results.operations = OperationsTable::All;
        }
        if let Some(name) = &self.fidelity {
            let all = [Fidelity::Job, Fidelity::Message, Fidelity::Flow, Fidelity::Packet];
            scenario.fidelity =
                all.into_iter().find(|fidelity| fidelity.name() == name).ok_or_else(|| {
                    let known = all.map(Fidelity::name);
                    let error = InputError::new(
                        "--fidelity",
                        format!("expected one of `{}`, found `{name}`", known.join("`, `")),
                    );
                    match nearest(name, known) {
                        Some(near) => error.hint(format!("did you mean `{near}`?")),
                        None => error,
                    }
                })?;
        }
        Ok(scenario)
    }
}

/// How a run is run, on which no figure depends.
#[derive(Clone, Debug, Default)]
pub struct How {
    /// Threads.
    pub threads: Option<usize>,
    /// Which native code of the scenario may run.
    pub native: Native,
    /// Whether the run can go on should it be killed.
    pub journal: Option<Keep>,
    /// Who moves the run's clock; `None`: it goes as fast as it can. The run tells it of its end, however it ends.
    pub gate: Option<Arc<Gate>>,
}

impl How {
    /// The journal that the run has, if it is to have one.
    fn journal(&self, progress: &mut dyn ProgressSink) -> Result<Option<Journal>, InputError> {
        match &self.journal {
            None => Ok(None),
            Some(Keep::GoingOn(path)) => Journal::open(path).map(Some),
            Some(Keep::Fresh { path, request }) => {
                let why = match Journal::begin(path, request) {
                    Ok(Some(journal)) => return Ok(Some(journal)),
                    Ok(None) => "another run writes it".to_owned(),
                    Err(error) => error.to_string(),
                };
                let path = path.display();
                progress.remark(&format!("`{path}`: {why}; should this run be killed, it has to begin anew"));
                Ok(None)
            }
        }
    }
}

/// Whether a run can go on should it be killed.
#[derive(Clone, Debug)]
pub enum Keep {
    /// It writes a journal, which begins with what was asked for.
    Fresh {
        /// The file.
        path: PathBuf,
        /// What was asked for, in the caller's words.
        request: String,
    },
    /// It goes on with the journal that another one has left.
    GoingOn(PathBuf),
}

/// What the run that has left a journal at `path` was asked for, in the words of who asked.
///
/// # Errors
/// [`Failure::Input`] if there is none, or a run writes it.
pub fn journal_request(path: &Path) -> Result<String, Failure> {
    Ok(Journal::open(path)?.request().to_owned())
}

/// The engine's version and build: see [`windtunnel_run::BUILD`].
pub const fn build() -> &'static str {
    windtunnel_run::BUILD
}

/// Runs a scenario and returns `summary.json` as text.
///
/// # Errors
/// [`Failure`].
pub fn run(
    request: &RunRequest,
    sink: &mut dyn TableSink,
    progress: &mut dyn ProgressSink,
) -> Result<String, Failure> {
    let plan = |progress: &mut dyn ProgressSink| {
        progress.phase(Phase::Preparing);
        let mut pace = Pace::new();
        Planned::telling(request.clone(), &mut |fraction| {
            // Who wants to stop it is asked again by the simulation.
            if pace.due() {
                progress.progress(Some(fraction), 0.0, 0);
            }
        })
    };
    carry_out(plan, &request.how(), sink, progress)
}

/// Runs what `plan` makes.
fn carry_out<P: Borrow<Planned>>(
    plan: impl FnOnce(&mut dyn ProgressSink) -> Result<P, InputError>,
    how: &How,
    sink: &mut dyn TableSink,
    progress: &mut dyn ProgressSink,
) -> Result<String, Failure> {
    let _ends = how.gate.as_deref().map(Ends);
    if how.threads == Some(0) {
        return Err(Failure::Input(InputError::new("--threads", "expected at least 1, found 0")));
    }
    let watch = Stopwatch::start();
    memory::reset_peak();
    let mut frugal = Frugal::new(progress);
    let mut gated = Gated { inner: &mut frugal, gate: how.gate.as_deref() };
    let progress = &mut Rising::new(&mut gated);
    let journal = how.journal(progress)?;
    let planned = plan(progress)?;
    let planned: &Planned = planned.borrow();
    let (sha256, inputs) = (planned.sha256().to_owned(), planned.inputs().to_vec());
    if let Some(journal) = &journal {
        journal.plan(&Made { sha256: sha256.clone(), inputs: inputs.clone(), build: build().to_owned() })?;
        let whole = windtunnel_run::is_whole(planned.plan(), planned.is_full());
        if let Some(remark) =
            journal.begins_anew(whole).filter(|_| matches!(how.journal, Some(Keep::GoingOn(_))))
        {
            progress.remark(&remark);
        }
    }
    let options = RunOptions {
        source: planned.source().to_owned(),
        sha256,
        inputs,
        full: planned.is_full(),
        watch,
        threads: how.threads,
        digests: None,
        gate: how.gate.clone(),
        journal: journal.map(Arc::new),
        native: how.native.clone(),
        library: None,
    };
    let summary = execute(planned.plan(), &options, sink, progress)?;
    frugal.check()?;
    Ok(summary.to_string())
}

/// Tells a gate that its run has ended, however.
struct Ends<'a>(&'a Gate);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Stops a run whose gate was closed.
struct Gated<'a> {
    inner: &'a mut dyn ProgressSink,
    gate: Option<&'a Gate>,
}

impl ProgressSink for Gated<'_> {
    fn progress(&mut self, fraction: Option<f64>, simulated_s: f64, events: u64) -> bool {
        self.inner.progress(fraction, simulated_s, events) && !self.gate.is_some_and(Gate::is_closed)
    }

    fn phase(&mut self, phase: Phase) {
        self.inner.phase(phase);
    }

    fn remark(&mut self, line: &str) {
        self.inner.remark(line);
    }
}

mod events;

pub use events::compare_events;

/// What would run, as JSON text.
///
/// # Errors
/// [`Failure::Input`].
pub fn explain(request: &RunRequest) -> Result<String, Failure> {
    Ok(Planned::of(request.clone())?.explanation())
}

/// A scenario as it is written, with `overrides` in their places, as JSON text: what two runs differ in. Keys keep their
/// order, or are `sorted`, so that equal trees have equal texts.
///
/// # Errors
/// [`Failure::Input`].
pub fn scenario_tree(
    text: &str,
    source: &str,
    overrides: &[(String, String)],
    sorted: bool,
) -> Result<String, Failure> {
    let mut tree = load::tree(text, source, overrides)?;
    if sorted {
        tree.sort_all_objects();
    }
    Ok(tree.to_string())
}

/// What a model needs before its first packet: a state for every directed port, written, and one path from end to end.
fn ready_to_route(topology: &Topology) {
    /// As much as an egress queue keeps at least: when it is free again, what waits, what it has carried and dropped.
    #[derive(Clone, Copy)]
    struct Port {
        free_at: Time,
        waiting: Bytes,
        carried: Bytes,
        dropped: Bytes,
    }
    const { assert!(size_of::<Port>() >= 32) };
    // Not all zeroes, so that every page is written and not only promised.
    let idle =
        Port { free_at: Time::NEVER, waiting: Bytes::ZERO, carried: Bytes::ZERO, dropped: Bytes::ZERO };
    let mut ports = vec![idle; topology.link_count()];
    let mut route = Route::new();
    let last = EndpointId(topology.endpoints() - 1);
    topology.route(LoadBalancer::Ecmp, 0, EndpointId(0), last, NicId(0), 0, &mut route);
    for (link, _) in &route.links {
        let port = &mut ports[link.0 as usize];
        port.free_at = Time::ZERO;
        port.carried = port.carried + port.waiting + port.dropped;
    }
    std::hint::black_box(ports);
}

/// The JSON Schema of a scenario.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Scenario);
    serde_json::to_string_pretty(&schema).expect("a schema is JSON")
}

/// Finish time of every flow in seconds; the Python function `windtunnel.simulate_flows` checks and names the input.
///
/// # Errors
/// [`Failure::Input`] naming the flow and the field.
pub fn simulate_flows(
    rates: &[f64],
    latencies: &[f64],
    offsets: &[u32],
    path_links: &[u32],
    bytes: &[f64],
    starts: &[f64],
    weights: &[f64],
) -> Result<Vec<f64>, Failure> {
    let offsets: Vec<usize> = offsets.iter().map(|&offset| offset as usize).collect();
    windtunnel_fabric::flow::simulate_flows(rates, latencies, &offsets, path_links, bytes, starts, weights)
        .map_err(|error| Failure::Input(InputError::new("", error.to_string())))
}
