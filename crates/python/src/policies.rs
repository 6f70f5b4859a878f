//! Schedulers and placements written in Python, behind the traits of the cluster.
//!
//! `windtunnel.policies` wraps a user's class in an adapter that keeps account of jobs and GPUs and words its errors; here
//! its methods are called, attached to the interpreter for the length of a call. What Python raises is kept as the
//! policy's failure, which ends the run before anything is written.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use windtunnel_cluster::free::FreeSet;
use windtunnel_cluster::placement::{self, Need, Placement};
use windtunnel_cluster::scheduler::{Absence, Decision, Scheduler};
use windtunnel_cluster::view::{JobId, Running, View};
use windtunnel_kernel::EndpointId;
use windtunnel_kernel::registry::Listed;
use windtunnel_scenario::modules::Modules;

use crate::{InputError, option};

/// Adds the policies that `options` bring along: `scheduler` and `placement` as (adapter's maker, name), `placement_name`.
pub(crate) fn add(mut modules: Modules, options: &Bound<'_, PyDict>) -> PyResult<Modules> {
    if let Some((maker, name)) = option::<(Py<PyAny>, String)>(options, "scheduler")? {
        let maker = Arc::new(maker);
        // A name lives as long as the program, as those of built-in policies do.
        let name: &'static str = name.leak();
        modules = modules.scheduler(move || Box::new(PyScheduler::new(maker.clone(), name)));
    }
    if let Some((adapter, name)) = option::<(Py<PyAny>, String)>(options, "placement")? {
        let placement = PyPlacement { adapter, name: name.leak(), failure: Mutex::new(None) };
        modules = modules.placement(Box::leak(Box::new(placement)));
    }
    if let Some(name) = option::<String>(options, "placement_name")? {
        let placement = placement::by_name(&name).ok_or_else(|| {
            let known = <&placement::BuiltIn>::NAMES.join("`, `");
            InputError::new_err(format!("--placement: no placement `{name}`, expected one of `{known}`"))
        })?;
        modules = modules.placement(placement);
    }
    Ok(modules)
}

/// The text of what was raised.
fn text(error: &PyErr, py: Python<'_>) -> String {
    error.value(py).to_string()
}

fn numbers(gpus: &[EndpointId]) -> Vec<u32> {
    gpus.iter().map(|gpu| gpu.0).collect()
}

/// A scheduler in Python.
struct PyScheduler {
    maker: Arc<Py<PyAny>>,
    name: &'static str,
    /// Made when the first thing happens, which tells how large the cluster is.
    adapter: Option<Py<PyAny>>,
    failure: Option<String>,
    /// GPUs have gone out of service or come back, and the adapter does not know.
    changed: bool,
    /// When GPUs that are out of service come back without a word.
    back: BTreeSet<u64>,
}

impl PyScheduler {
    fn new(maker: Arc<Py<PyAny>>, name: &'static str) -> Self {
        Self { maker, name, adapter: None, failure: None, changed: false, back: BTreeSet::new() }
    }

    /// Tells the adapter what is free if that has changed without a job's doing.
    fn renew(&mut self, cluster: &dyn View) {
        let due = self.back.first().is_some_and(|&at| at <= cluster.now());
        if std::mem::take(&mut self.changed) || due {
            let free: Vec<Vec<u32>> =
                cluster.regions().iter().map(|region| region.iter().map(|gpu| gpu.0).collect()).collect();
            self.back.retain(|&at| at > cluster.now());
            self.call(cluster, |adapter, _| adapter.call_method1("found_free", (free,)).map(drop));
        }
    }

    /// Calls the adapter, unless it has failed before.
    fn call<R>(
        &mut self,
        cluster: &dyn View,
        act: impl FnOnce(&Bound<'_, PyAny>, Python<'_>) -> PyResult<R>,
    ) -> Option<R> {
        if self.failure.is_some() {
            return None;
        }
        let result = Python::attach(|py| {
            let adapter = match &self.adapter {
                Some(adapter) => adapter.clone_ref(py),
                None => {
                    let regions: Vec<Vec<u32>> = (0..cluster.regions().len() as u32)
                        .map(|region| cluster.empty_region(region).iter().map(|gpu| gpu.0).collect())
                        .collect();
                    let per_host = cluster.regions()[0].per_host();
                    let made = self.maker.bind(py).call1((regions, per_host));
                    let made = made.map_err(|error| text(&error, py))?.unbind();
                    self.adapter = Some(made.clone_ref(py));
                    made
                }
            };
            act(adapter.bind(py), py).map_err(|error| text(&error, py))
        });
        match result {
            Ok(value) => Some(value),
            Err(message) => {
                self.failure = Some(message);
                None
            }
        }
    }
}

impl Scheduler for PyScheduler {
    fn name(&self) -> &'static str {
        self.name
    }

    fn queued(&mut self, job: JobId, cluster: &dyn View) {
        let known = cluster.job(job);
        let seconds = |ns: u64| ns as f64 / 1e9;
        let submit = cluster.submitted_at(job).map_or(0.0, |at| seconds(at.ns()));
        let (done, deadline) = (seconds(cluster.done(job)), cluster.deadline_of(job).map(seconds));
        let facts = (job.0, known.gpus, submit, seconds(known.estimate), known.priority, done, deadline);
        self.call(cluster, |adapter, _| adapter.call_method1("queued", (facts,)).map(drop));
    }

    fn started(&mut self, job: JobId, cluster: &dyn View) {
        let gpus = cluster.running_job(job).map(|running| numbers(&running.placement)).unwrap_or_default();
        let now = cluster.now() as f64 / 1e9;
        self.call(cluster, |adapter, _| adapter.call_method1("started", (job.0, gpus, now)).map(drop));
    }

    fn released(&mut self, job: JobId, running: &Running, cluster: &dyn View) {
        let gpus = numbers(&running.placement);
        self.call(cluster, |adapter, _| adapter.call_method1("released", (job.0, gpus)).map(drop));
    }

    fn lost(&mut self, absence: &Absence, _: &dyn View) {
        self.changed = true;
        if absence.until < u64::MAX {
            self.back.insert(absence.until);
        }
    }

    fn regained(&mut self, absence: &Absence, _: &dyn View) {
        self.changed = true;
        self.back.insert(absence.from);
    }

    fn decide(&mut self, cluster: &dyn View) -> Option<Decision> {
        self.renew(cluster);
        let now = cluster.now() as f64 / 1e9;
        let decision = self.call(cluster, |adapter, _| {
            let decision = adapter.call_method1("decide", (now,))?;
            decision.extract::<Option<(String, u32, Option<Vec<u32>>, u32)>>()
        })??;
        let (what, job, gpus, region) = decision;
        let job = JobId(job);
        Some(match (what.as_str(), gpus) {
            ("stop", _) => Decision::Preempt { job },
            (_, None) => Decision::Start { job, region },
            (_, Some(gpus)) => {
                Decision::StartOn { job, placement: gpus.into_iter().map(EndpointId).collect(), region }
            }
        })
    }

    fn refused(&mut self, job: JobId, cluster: &dyn View) {
        self.call(cluster, |adapter, _| adapter.call_method1("refused", (job.0,)).map(drop));
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }
}

/// A placement in Python.
struct PyPlacement {
    adapter: Py<PyAny>,
    name: &'static str,
    failure: Mutex<Option<String>>,
}

impl Placement for PyPlacement {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_trusted(&self) -> bool {
        false
    }

    fn failure(&self) -> Option<String> {
        self.failure.lock().expect("no holder panics").clone()
    }

    fn anywhere(&self, free: &FreeSet, need: Need) -> Option<Vec<EndpointId>> {
        self.place(free, need)
    }

    fn place(&self, free: &FreeSet, need: Need) -> Option<Vec<EndpointId>> {
        if free.count() < need.gpus || self.failure().is_some() {
            return None;
        }
        let gpus: Vec<u32> = free.iter().map(|gpu| gpu.0).collect();
        let result = Python::attach(|py| {
            let arguments = (gpus, free.per_host(), need.gpus, need.locality.name(), need.key);
            let given = self.adapter.bind(py).call_method1("place", arguments);
            given.and_then(|given| given.extract::<Option<Vec<u32>>>()).map_err(|error| text(&error, py))
        });
        match result {
            Ok(given) => given.map(|gpus| gpus.into_iter().map(EndpointId).collect()),
            Err(message) => {
                *self.failure.lock().expect("no holder panics") = Some(message);
                None
            }
        }
    }
}
