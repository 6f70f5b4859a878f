//! `Estimates`: threads that answer what layouts of a job take, for one question after another.

use std::num::NonZeroUsize;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use windtunnel_scenario::api;

use super::{outside, request};

/// What layouts of a scenario's job take by the cost model.
#[pyclass(frozen, module = "windtunnel._engine")]
pub(crate) struct Estimates(api::Estimates);

#[pymethods]
impl Estimates {
    #[new]
    #[pyo3(signature = (text, source, base, overrides, options, *, job, ideal, threads))]
    fn new(
        py: Python<'_>,
        text: String,
        source: String,
        base: String,
        overrides: Vec<(String, String)>,
        options: &Bound<'_, PyDict>,
        job: usize,
        ideal: bool,
        threads: Option<NonZeroUsize>,
    ) -> PyResult<Self> {
        let request = request(text, source, base, overrides, options)?;
        outside(py, || api::Estimates::new(&request, job, ideal, threads)).map(Self)
    }

    /// `told` is called with JSON texts, some choices at a time.
    fn answers(&self, py: Python<'_>, choices: &str, told: Py<PyAny>) -> PyResult<()> {
        let mut stopped = None;
        // An exception, KeyboardInterrupt above all, ends it; what was told stays told.
        let mut tell = |answers: &str| {
            Python::attach(|py| {
                let done = py.check_signals().and_then(|()| told.call1(py, (answers,)));
                done.map_err(|error| stopped = Some(error)).is_ok()
            })
        };
        outside(py, || self.0.answers(choices, &mut tell))?;
        stopped.map_or(Ok(()), Err)
    }
}
