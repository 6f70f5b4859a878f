//! A scenario that is ready to run, as an object.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use windtunnel_scenario::api::{self, RunRequest};

use crate::{carried_out, how, outside, raise, request};

/// A scenario with all that was made of it. It never changes: `with_set` gives another one.
#[pyclass(frozen, module = "windtunnel._engine")]
pub(crate) struct Plan(api::Planned);

#[pymethods]
impl Plan {
    #[new]
    fn new(
        py: Python<'_>,
        text: String,
        source: String,
        base: String,
        overrides: Vec<(String, String)>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let request = request(text, source, base, overrides, options)?;
        outside(py, || Ok(Self(api::Planned::of(request)?)))
    }

    /// The same with keys set to values in YAML, all before anything is resolved.
    fn with_set(&self, py: Python<'_>, changes: Vec<(String, String)>) -> PyResult<Self> {
        outside(py, || {
            let mut planned = self.0.clone();
            planned.set_all(&changes)?;
            Ok(Self(planned))
        })
    }

    /// The scenario as it is written, with what was set, as JSON text.
    fn scenario(&self) -> PyResult<String> {
        self.0.scenario().map_err(|error| raise(error.into()))
    }

    /// Layers, bytes, FLOPs, memory and communicators of its jobs, as JSON text.
    fn explain(&self) -> String {
        self.0.explanation()
    }

    /// All that decides its figures, as JSON text: `sha256`, `inputs`, `build`.
    fn digest(&self) -> String {
        self.0.digest()
    }

    /// The scenario's name in messages.
    fn source(&self) -> &str {
        self.0.source()
    }

    /// Runs it; returns the summary as JSON text.
    fn run(
        &self,
        py: Python<'_>,
        options: &Bound<'_, PyDict>,
        sink: Py<PyAny>,
        progress: Py<PyAny>,
    ) -> PyResult<String> {
        let how = how(options)?;
        carried_out(py, options, sink, progress, |sink, progress| self.0.run(&how, sink, progress))
    }

    /// The plan with all files that it names.
    fn pack<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let packed = outside(py, || self.0.pack())?;
        Ok(PyBytes::new(py, &packed))
    }

    /// A plan that was packed, with its files in `folder`.
    #[staticmethod]
    fn unpack(py: Python<'_>, packed: &[u8], folder: PathBuf) -> PyResult<Self> {
        let with = RunRequest { modules: crate::modules(), ..RunRequest::default() };
        outside(py, || api::Planned::unpack(packed, &folder, with).map(Self))
    }
}
