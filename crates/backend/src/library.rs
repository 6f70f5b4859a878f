//! Shared libraries and their tables of functions.

use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::abi::{ABI, Advance, Close, Depart, Explain, Export, NextTime, Open, RawTable, SYMBOL};

/// Why there is no model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LoadError {
    /// There is no such file.
    #[error("no such file: `{}`", .path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The system does not load it.
    #[error("cannot load `{}`: {reason}", .path.display())]
    NotLoaded {
        /// The file.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// It does not export the function.
    #[error("`{}` does not export `{SYMBOL}`\n\nhint: declare it as in windtunnel_fabric.h, in C++ as `extern \"C\"`", .path.display())]
    NoSymbol {
        /// The file.
        path: PathBuf,
    },
    /// It was built for another version of the header.
    #[error("`{}` is built for version {found} of windtunnel_fabric.h, expected {ABI}\n\nhint: build it again with the header of this version", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A function is missing.
    #[error("the table of `{}` has no `{function}`", .path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// Which.
        function: &'static str,
    },
    /// The model refuses.
    #[error("`{model}` does not open: {reason}")]
    Refused {
        /// Its name.
        model: String,
        /// Its words.
        reason: String,
    },
    /// The scale-up domains cannot work.
    #[error(transparent)]
    Inside(#[from] windtunnel_fabric::flow::FlowNetworkError),
}

/// The functions of a library, all present.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub open: Open,
    pub depart: Depart,
    pub next_time: NextTime,
    pub advance: Advance,
    pub failure: Explain,
    pub close: Close,
}

/// A loaded library, shared by its models.
#[derive(Clone, Debug)]
pub struct Library {
    name: String,
    pub(crate) table: Table,
    /// Keeps the code mapped.
    _handle: Arc<libloading::Library>,
}

impl Library {
    /// Loads the shared library at `path`. Its constructors run: load only what you trust.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let path = path.to_owned();
        // A name without a folder would be looked for in the system's folders.
        let Ok(real) = path.canonicalize() else { return Err(LoadError::Missing { path }) };
        // SAFETY: running the library's constructors is what the user asks for by naming it.
        let handle = match unsafe { libloading::Library::new(&real) } {
            Ok(handle) => handle,
            Err(error) => return Err(LoadError::NotLoaded { path, reason: error.to_string() }),
        };
        // SAFETY: the header declares the symbol with this type.
        let Ok(export) = (unsafe { handle.get::<Export>(SYMBOL.as_bytes()) }) else {
            return Err(LoadError::NoSymbol { path });
        };
        // SAFETY: it takes nothing, and by the header returns null or a table that lives as long as the library.
        let raw: *const RawTable = unsafe { export() };
        if raw.is_null() {
            return Err(LoadError::Incomplete { path, function: "entry" });
        }
        // SAFETY: not null, and the version stands first in every version's table.
        let found = unsafe { raw.cast::<u32>().read() };
        if found != ABI {
            return Err(LoadError::Version { path, found });
        }
        // SAFETY: a table of this version has this layout; null functions are `None`.
        let raw = unsafe { raw.read() };
        let missing = |function| LoadError::Incomplete { path: path.clone(), function };
        let table = Table {
            open: raw.open.ok_or_else(|| missing("open"))?,
            depart: raw.depart.ok_or_else(|| missing("depart"))?,
            next_time: raw.next_time.ok_or_else(|| missing("next_time"))?,
            advance: raw.advance.ok_or_else(|| missing("advance"))?,
            failure: raw.failure.ok_or_else(|| missing("failure"))?,
            close: raw.close.ok_or_else(|| missing("close"))?,
        };
        // SAFETY: the header asks for a text that ends in a zero, or null.
        let name = unsafe { text(raw.name) }.ok_or_else(|| missing("name"))?;
        Ok(Self { name, table, _handle: Arc::new(handle) })
    }

    /// Name of the model.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A copy of a text; `None` for null.
///
/// # Safety
/// Not null means a text that ends in a zero.
pub(crate) unsafe fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller's contract.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}
