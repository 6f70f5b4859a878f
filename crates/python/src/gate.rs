//! The clock of a run that another thread simulates.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use windtunnel_kernel::CalendarTime;
use windtunnel_scenario::api;

/// How long the interpreter waits before it looks for Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(50);

/// A notice: nanoseconds, what, the job, its GPUs or those that are out, the part.
type Told = (u64, &'static str, Option<String>, Option<u64>, Option<String>);

/// Holds a run where it is told to: pass it as the option `gate`.
#[pyclass(frozen, module = "windtunnel._engine")]
pub(crate) struct Gate(pub(crate) Arc<api::Gate>);

#[pymethods]
impl Gate {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Lets the run go on to all that happens until `until` nanoseconds.
    fn advance(&self, until: u64) {
        self.0.advance(CalendarTime::from_ns(until));
    }

    /// Lets the run go on to the next instant at which anything happens.
    fn step(&self) {
        self.0.step();
    }

    /// Lets the run go on to its end.
    fn open(&self) {
        self.0.open();
    }

    /// Has the run stop where it stands.
    fn close(&self) {
        self.0.close();
    }

    /// Waits until the run stands; its last instant, the next one or None, and whether it has ended.
    fn wait(&self, py: Python<'_>) -> PyResult<(u64, Option<u64>, bool)> {
        loop {
            let (state, still) = py.detach(|| self.0.wait(PATIENCE));
            if still {
                return Ok((
                    state.now.ns(),
                    state.next.map(windtunnel_kernel::CalendarTime::ns),
                    state.ended,
                ));
            }
            py.check_signals()?;
        }
    }

    /// What has happened since the last call.
    fn take(&self) -> Vec<Told> {
        let told =
            |notice: api::Notice| (notice.at.ns(), notice.what, notice.job, notice.gpus, notice.component);
        self.0.take().into_iter().map(told).collect()
    }

    /// The run has ended; told by who called it, should it never have begun.
    fn end(&self) {
        self.0.end();
    }
}
