//! Where the tables of a run go: a folder of Parquet files, a Python callable, or nowhere.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use windtunnel_scenario::table::{Batch, Column, TableSink};
use windtunnel_tables::{Folder, Limits, TableError, Values};

/// Writes tables below a folder as `TABLE/part-00000.parquet`, ….
///
/// A context manager: at its end what is left is written, unless an exception ends it. A run takes it as its sink. The limits are for
/// tests.
#[pyclass(frozen, module = "windtunnel._engine")]
pub(crate) struct TableWriter(Mutex<Option<Folder>>);

impl TableWriter {
    fn take(&self) -> PyResult<Folder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(|| {
            PyRuntimeError::new_err(
                "the tables are in use by a run, or were left unfinished by one that failed",
            )
        })
    }

    fn put(&self, folder: Folder) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder);
    }

    fn with<T>(&self, work: impl FnOnce(&mut Folder) -> Result<T, TableError>) -> PyResult<T> {
        let mut folder = self.take()?;
        let found = work(&mut folder).map_err(raise)?;
        self.put(folder);
        Ok(found)
    }
}

#[pymethods]
impl TableWriter {
    #[new]
    #[pyo3(signature = (folder, *, part_rows = None, group_rows = None, group_values = None, part_values = None))]
    fn new(
        folder: PathBuf,
        part_rows: Option<usize>,
        group_rows: Option<usize>,
        group_values: Option<usize>,
        part_values: Option<usize>,
    ) -> Self {
        let usual = Limits::default();
        let limits = Limits {
            part_rows: part_rows.unwrap_or(usual.part_rows),
            group_rows: group_rows.unwrap_or(usual.group_rows),
            group_values: group_values.unwrap_or(usual.group_values),
            part_values: part_values.unwrap_or(usual.part_values),
        };
        Self(Mutex::new(Some(Folder::new(folder, limits))))
    }

    /// Takes rows of a table, as a run gives them to a callable.
    fn sink(&self, table: &str, columns: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut given = Vec::new();
        for (name, values) in columns {
            let name: String = name.extract()?;
            let column =
                column(&values).map_err(|error| PyTypeError::new_err(format!("{table}.{name}: {error}")))?;
            given.push((name, column));
        }
        self.with(|folder| folder.add(table, given.iter().map(|(name, column)| (name.as_str(), column))))
    }

    /// Rows given so far, per table in order of first appearance.
    #[getter]
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        self.with(|folder| {
            Ok(folder.rows().map(|(name, rows)| (name.to_owned(), rows)).collect::<Vec<_>>())
        })?
        .into_iter()
        .try_for_each(|(name, rows)| found.set_item(name, rows))?;
        Ok(found)
    }

    /// Writes the rows still held; a table that never had a row gets one empty part, for its columns.
    fn close(&self) -> PyResult<()> {
        self.with(Folder::close)
    }

    const fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (error, *_rest))]
    fn __exit__(&self, error: &Bound<'_, PyAny>, _rest: &Bound<'_, PyTuple>) -> PyResult<()> {
        // What failed leaves no folder; writing more could only fail again and hide why.
        if error.is_none() { self.close() } else { Ok(()) }
    }
}

/// Columns of a small table as lists; None where it has more than `most` rows, or was not written by this engine.
#[pyfunction]
#[pyo3(signature = (folder, columns, most))]
pub(crate) fn read_table(
    py: Python<'_>,
    folder: PathBuf,
    columns: Option<Vec<String>>,
    most: u64,
) -> PyResult<Option<Bound<'_, PyDict>>> {
    let Some(found) = py.detach(|| windtunnel_tables::read(&folder, columns.as_deref(), most)) else {
        return Ok(None);
    };
    let table = PyDict::new(py);
    for (name, values) in found {
        match values {
            Values::Whole(values) => table.set_item(name, values)?,
            Values::Real(values) => table.set_item(name, values)?,
            Values::Lists(values) => table.set_item(name, values)?,
            Values::Text { names, codes } => {
                let names: Vec<_> = names.iter().map(|name| PyString::new(py, name)).collect();
                let texts = codes.iter().map(|code| code.map(|code| &names[code as usize]));
                table.set_item(name, PyList::new(py, texts.collect::<Vec<_>>())?)?;
            }
        }
    }
    Ok(Some(table))
}

fn raise(error: TableError) -> PyErr {
    match error {
        TableError::Write { path, error } => {
            let text = error.to_string();
            let text = text.split_once(" (os error").map_or(text.as_str(), |(text, _)| text).to_owned();
            // The folder in the making goes; what stays is the one that it is in.
            let lasting = path.ancestors().nth(3).map_or_else(|| path.clone(), Path::to_path_buf);
            PyOSError::new_err((error.raw_os_error(), text, lasting.into_os_string()))
        }
        TableError::Unlike { .. } => PyValueError::new_err(error.to_string()),
    }
}

/// A column of Python's: an array, texts, or a pair of values and which are known, or of texts and codes.
fn column(values: &Bound<'_, PyAny>) -> PyResult<Column> {
    if let Ok(array) = values.cast::<PyArray1<u32>>() {
        return Ok(Column::U32(array.to_vec()?));
    }
    if let Ok(array) = values.cast::<PyArray1<u64>>() {
        return Ok(Column::U64(array.to_vec()?));
    }
    if let Ok(array) = values.cast::<PyArray1<f64>>() {
        return Ok(Column::F64(array.to_vec()?));
    }
    if let Ok(array) = values.cast::<PyArray2<f64>>() {
        return Ok(Column::F64List { width: array.shape()[1], values: array.to_vec()? });
    }
    if let Ok((first, second)) = values.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() {
        if let Ok(known) = second.cast::<PyArray1<bool>>() {
            let values = first.cast::<PyArray1<u64>>()?.to_vec()?;
            return Ok(Column::Sparse { values, known: known.to_vec()? });
        }
        let codes = second.cast::<PyArray1<u32>>()?.to_vec()?;
        let names: Vec<Option<String>> = first.extract()?;
        if codes.iter().any(|&code| code as usize >= names.len()) {
            return Err(PyValueError::new_err("a code has no text"));
        }
        return Ok(Column::known(codes.iter().map(|&code| names[code as usize].as_deref())));
    }
    let rows: Vec<Option<String>> = values.extract()?;
    Ok(if rows.iter().any(Option::is_none) {
        Column::known(rows.iter().map(Option::as_deref))
    } else {
        Column::Text(rows.into_iter().flatten().collect())
    })
}

/// Takes the tables of one run.
pub(crate) enum Sink {
    /// Nobody wants them.
    Nowhere,
    /// The folder is the writer's, which has it again when the run has ended.
    Folder { writer: Py<TableWriter>, folder: Folder, error: Option<TableError> },
    /// A function is called with each batch.
    Callable { callable: Py<PyAny>, error: Option<PyErr> },
}

impl Sink {
    pub(crate) fn of(sink: Bound<'_, PyAny>) -> PyResult<Self> {
        if sink.is_none() {
            return Ok(Self::Nowhere);
        }
        if let Ok(writer) = sink.cast::<TableWriter>() {
            let folder = writer.get().take()?;
            return Ok(Self::Folder { writer: writer.clone().unbind(), folder, error: None });
        }
        Ok(Self::Callable { callable: sink.unbind(), error: None })
    }

    /// Raises what kept the sink from taking rows.
    pub(crate) fn end(self) -> PyResult<()> {
        match self {
            Self::Nowhere | Self::Callable { error: None, .. } => Ok(()),
            Self::Folder { writer, folder, error: None } => {
                writer.get().put(folder);
                Ok(())
            }
            Self::Folder { error: Some(error), .. } => Err(raise(error)),
            Self::Callable { error: Some(error), .. } => Err(error),
        }
    }
}

impl TableSink for Sink {
    fn rows(&mut self, table: &'static str, batch: Batch) -> Result<(), String> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Folder { folder, error, .. } => {
                let columns = batch.columns.iter().map(|(name, column)| (*name, column));
                folder.add(table, columns).map_err(|found| {
                    let text = found.to_string();
                    *error = Some(found);
                    text
                })
            }
            Self::Callable { callable, error } => call(callable, table, batch).map_err(|found| {
                let text = found.to_string();
                *error = Some(found);
                text
            }),
        }
    }
}

fn call(callable: &Py<PyAny>, table: &str, batch: Batch) -> PyResult<()> {
    Python::attach(|py| {
        let columns = PyDict::new(py);
        for (name, column) in batch.columns {
            match column {
                Column::U32(values) => columns.set_item(name, PyArray1::from_vec(py, values))?,
                Column::U64(values) => columns.set_item(name, PyArray1::from_vec(py, values))?,
                Column::Sparse { values, known } => {
                    let known = PyArray1::from_vec(py, known);
                    columns.set_item(name, (PyArray1::from_vec(py, values), known))?;
                }
                Column::F64(values) => columns.set_item(name, PyArray1::from_vec(py, values))?,
                Column::Text(values) => columns.set_item(name, values)?,
                Column::Coded { names, codes } => {
                    columns.set_item(name, (names, PyArray1::from_vec(py, codes)))?;
                }
                Column::Known { names, codes } => {
                    let names: Vec<Option<String>> =
                        std::iter::once(None).chain(names.into_iter().map(Some)).collect();
                    columns.set_item(name, (names, PyArray1::from_vec(py, codes)))?;
                }
                Column::F64List { values, width } => {
                    let rows = values.len() / width.max(1);
                    columns.set_item(name, PyArray1::from_vec(py, values).reshape([rows, width])?)?;
                }
            }
        }
        callable.call1(py, (table, columns)).map(|_| ())
    })
}
