//! The engine with the modules of this crate, for Python: `WINDTUNNEL_ENGINE=own_transport windtunnel run …`.

use pyo3::prelude::*;

/// Windtunnel's engine and the transports of this crate.
#[pymodule]
fn own_transport(module: &Bound<'_, PyModule>) -> PyResult<()> {
    windtunnel_engine::install(module, crate::modules())
}
