//! What a scenario reads besides its own text: the files that it names and the data sheets that come with the engine.
//!
//! Whatever turns a name into a file or a sheet goes through [`Inputs`], which remembers it. A file counts by its contents under
//! the name that the scenario has for it, so that a folder can be moved, and its contents cannot change unnoticed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};

/// Bytes that are read at a time to be hashed.
const CHUNK: usize = 1 << 16;

/// Where a file is sought that was not packed.
const NOWHERE: &str = "not packed";

/// A file or sheet: its name, and the SHA-256 of its contents, `absent` for a file that is not there.
pub type Input = (String, String);

#[derive(Clone, Debug)]
enum Found {
    File(PathBuf),
    Sheet(&'static str),
}

/// Where files are that stand elsewhere than their names say, by the names that a scenario has for them.
pub type Unpacked = BTreeMap<String, PathBuf>;

/// The folder where relative names begin, and a register of all that was looked for.
#[derive(Clone, Debug)]
pub struct Inputs {
    folder: PathBuf,
    /// Folder of the file that says the names, as the scenario names it; empty for the scenario's own.
    level: PathBuf,
    unpacked: Option<Arc<Unpacked>>,
    found: Arc<Mutex<Vec<(String, Found)>>>,
}

impl Inputs {
    /// Names begin in `folder`; nothing has been looked for.
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), level: PathBuf::new(), unpacked: None, found: Arc::default() }
    }

    /// All files are where `unpacked` says; there are no others.
    #[must_use]
    pub fn unpacked(self, unpacked: Arc<Unpacked>) -> Self {
        Self { unpacked: Some(unpacked), ..self }
    }

    /// The same register for names that the file `name` says, which begin in its folder.
    #[must_use]
    pub fn within(&self, name: &str) -> Self {
        let parent = Path::new(name).parent().unwrap_or(Path::new(""));
        Self { folder: self.folder.join(parent), level: self.level.join(parent), ..self.clone() }
    }

    /// Where names begin.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file that the scenario, or the file that it names, calls `name`. It is remembered.
    pub fn join(&self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        // As the scenario would call it.
        let name = self.level.join(name).to_string_lossy().into_owned();
        let path = self.unpacked.as_ref().map_or(path, |unpacked| {
            unpacked.get(&name).cloned().unwrap_or_else(|| Path::new(NOWHERE).join(&name))
        });
        self.remember(name, Found::File(path.clone()));
        path
    }

    /// Remembers a sheet that comes with the engine.
    pub fn sheet(&self, kind: &str, name: &str, text: &'static str) {
        self.remember(format!("data/{kind}/{name}"), Found::Sheet(text));
    }

    fn remember(&self, name: String, found: Found) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).push((name, found));
    }

    /// The files that were looked for until now, each once, by name; whether they are there or not.
    pub fn files(&self) -> Unpacked {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |(name, found): &(String, Found)| match found {
            Found::File(path) => Some((name.clone(), path.clone())),
            Found::Sheet(_) => None,
        };
        found.iter().filter_map(of).collect()
    }

    /// All that was looked for until now, each once, by name.
    ///
    /// # Errors
    /// When a file cannot be read any more.
    pub fn digests(&self) -> io::Result<Vec<Input>> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = BTreeSet::new();
        for (name, found) in found.iter() {
            let digest = match found {
                Found::Sheet(text) => hex(Sha256::digest(text)),
                Found::File(path) if path.is_file() => of_file(path)?,
                // A library that only a run of another fidelity would load.
                Found::File(_) => "absent".to_owned(),
            };
            all.insert((name.clone(), digest));
        }
        Ok(all.into_iter().collect())
    }
}

/// SHA-256 of a file's contents in hexadecimal.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn of_file(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut bytes) = (Sha256::new(), vec![0; CHUNK]);
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(hex(hash.finalize())),
            count => hash.update(&bytes[..count]),
        }
    }
}

/// Bytes of a digest in hexadecimal.
pub fn hex(digest: impl AsRef<[u8]>) -> String {
    digest.as_ref().iter().fold(String::with_capacity(64), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a string takes all");
        hex
    })
}
