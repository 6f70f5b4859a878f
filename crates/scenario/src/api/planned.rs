//! A scenario that is ready to run, as a value: it can be asked, changed by key, packed for another machine, and run as often as
//! one likes.
//!
//! Life cycle: [`Planned::of`] resolves a request; [`Planned::set_all`] resolves it again with keys changed, and leaves it alone if
//! that is refused; [`Planned::pack`] and [`Planned::unpack`] take it, with all files that it names, to where these are not.
//! Invariants: the plan, its inputs and its hash are those of the request; running changes none of them. Failure modes: all of the
//! scenario's, and bytes that are no packed plan, or one of an engine that reads scenarios otherwise.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use windtunnel_config::{load, resolve};
use windtunnel_plan::Plan;
use windtunnel_plan::error::{Failure, InputError};
use windtunnel_plan::inputs::{Input, Inputs, Unpacked, hex};
use windtunnel_run::table::{ProgressSink, TableSink};

use super::{How, RunRequest, build, carry_out};

/// What packed plans begin with.
const MAGIC: &[u8] = b"windtunnel plan 1\n";

/// A request, and all that was made of it.
#[derive(Clone)]
pub struct Planned {
    request: RunRequest,
    plan: Plan,
    inputs: Vec<Input>,
    sha256: String,
}

impl Planned {
    /// Resolves `request`.
    ///
    /// # Errors
    /// [`InputError`] for a value that is wrong, whatever the fidelity.
    pub fn of(request: RunRequest) -> Result<Self, InputError> {
        Self::telling(request, &mut |_| {})
    }

    /// The same, telling what part of it is done.
    pub(super) fn telling(request: RunRequest, progress: &mut dyn FnMut(f64)) -> Result<Self, InputError> {
        let mut files = Inputs::of(&request.base);
        if let Some(unpacked) = &request.unpacked {
            files = files.unpacked(Arc::clone(unpacked));
        }
        let plan = resolve(request.scenario()?, &request.source, &files, request.modules.clone(), progress)?;
        let inputs =
            plan.inputs.digests().map_err(|error| InputError::new(&request.source, error.to_string()))?;
        let sha256 = sha256(&request, &inputs)?;
        Ok(Self { request, plan, inputs, sha256 })
    }

    /// The plan.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The scenario's name in messages.
    pub fn source(&self) -> &str {
        &self.request.source
    }

    /// Whether every iteration is simulated.
    pub const fn is_full(&self) -> bool {
        self.request.full
    }

    /// The files and sheets that were read for it.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// SHA-256 of everything but the engine that decides its figures: the scenario with what replaces parts of it, whatever its
    /// comments and the order of its keys; the files and sheets that were read; policies and modules of one's own.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// All that decides its figures, as JSON text: `sha256`, the `inputs`, and the engine's `build`.
    pub fn digest(&self) -> String {
        json!({"sha256": self.sha256, "inputs": self.inputs, "build": build()}).to_string()
    }

    /// What would run, as JSON text.
    pub fn explanation(&self) -> String {
        self.plan.explanation().to_string()
    }

    /// The scenario as it is written, with what was set, as JSON text.
    ///
    /// # Errors
    /// None: it has been read before.
    pub fn scenario(&self) -> Result<String, InputError> {
        tree(&self.request).map(|tree| tree.to_string())
    }

    /// Sets `key` to a value in YAML: [`Self::set_all`] of one.
    ///
    /// # Errors
    /// [`InputError`], and the plan is what it was.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), InputError> {
        self.set_all(&[(key.to_owned(), value.to_owned())])
    }

    /// Sets keys to values in YAML, as `--set KEY=VALUE` does, and then resolves all that depends on them: keys that are right
    /// only together can be set, in any order.
    ///
    /// # Errors
    /// [`InputError`], and the plan is what it was.
    pub fn set_all(&mut self, changes: &[(String, String)]) -> Result<(), InputError> {
        let mut request = self.request.clone();
        for (key, value) in changes {
            match key.as_str() {
                // Else what was asked for beside the scenario would hide it.
                "seed" => request.seed = None,
                "fidelity" => request.fidelity = None,
                _ => {}
            }
            request.overrides.push((key.clone(), value.clone()));
        }
        *self = Self::of(request)?;
        Ok(())
    }

    /// Runs it and returns `summary.json` as text.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn run(
        &self,
        how: &How,
        sink: &mut dyn TableSink,
        progress: &mut dyn ProgressSink,
    ) -> Result<String, Failure> {
        carry_out(|_| Ok(self), how, sink, progress)
    }

    /// The plan with all files that it names, to be unpacked where these are not.
    ///
    /// # Errors
    /// [`Failure::Input`] for a file that cannot be read any more, and for policies of one's own, which are no bytes.
    pub fn pack(&self) -> Result<Vec<u8>, Failure> {
        if !self.request.policies.is_empty() {
            let place = &self.request.source;
            return Err(
                InputError::new(place, "a scheduler or placement of one's own cannot be packed").into()
            );
        }
        let (mut files, mut contents) = (Vec::new(), Vec::new());
        for (name, path) in self.plan.inputs.files() {
            if !path.is_file() {
                continue;
            }
            let bytes = fs::read(&path)
                .map_err(|error| InputError::new(path.display().to_string(), error.to_string()))?;
            files.push(json!({"name": name, "bytes": bytes.len()}));
            contents.extend(bytes);
        }
        let head = json!({
            "source": self.request.source,
            "scenario": tree(&self.request)?,
            "full": self.request.full,
            "files": files,
            "sha256": self.sha256,
            "build": build(),
        });
        let mut packed = MAGIC.to_vec();
        packed.extend(format!("{head}\n").into_bytes());
        packed.extend(contents);
        Ok(packed)
    }

    /// A plan that was packed; its files go to `folder`, which must stay while it is used. `with` has what bytes cannot have: modules that
    /// the program brings along.
    ///
    /// # Errors
    /// [`Failure::Input`] for bytes that are something else, for a plan that another build of the engine packed, and for one that
    /// comes to another one here.
    pub fn unpack(packed: &[u8], folder: &Path, with: RunRequest) -> Result<Self, Failure> {
        let torn = || {
            InputError::new("packed plan", "expected a plan that this version packed, found something else")
        };
        let rest = packed.strip_prefix(MAGIC).ok_or_else(torn)?;
        let end = rest.iter().position(|&byte| byte == b'\n').ok_or_else(torn)?;
        let head: Value = serde_json::from_slice(&rest[..end]).map_err(|_| torn())?;
        let text = |key: &str| head[key].as_str().ok_or_else(torn);
        if text("build")? != build() {
            let message = format!(
                "build `{}` of the engine packed it, this is `{}`: their figures may differ",
                text("build")?,
                build()
            );
            return Err(InputError::new("packed plan", message)
                .hint("pack and unpack it with one build of the engine")
                .into());
        }
        let (mut unpacked, mut contents) = (Unpacked::new(), &rest[end + 1..]);
        for (number, file) in head["files"].as_array().ok_or_else(torn)?.iter().enumerate() {
            let name = file["name"].as_str().ok_or_else(torn)?;
            let length =
                file["bytes"].as_u64().and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(torn)?;
            let (bytes, after) = contents.split_at_checked(length).ok_or_else(torn)?;
            contents = after;
            // Numbers keep files of one name apart, and a name cannot lead out of the folder; messages show the name.
            let path = folder.join(number.to_string());
            fs::create_dir_all(&path)
                .map_err(|error| InputError::new(path.display().to_string(), error.to_string()))?;
            let path = path.join(Path::new(name).file_name().ok_or_else(torn)?);
            fs::write(&path, bytes)
                .map_err(|error| InputError::new(path.display().to_string(), error.to_string()))?;
            unpacked.insert(name.to_owned(), path);
        }
        let request = RunRequest {
            text: head["scenario"].to_string(),
            source: text("source")?.to_owned(),
            base: folder.to_owned(),
            unpacked: Some(Arc::new(unpacked)),
            full: head["full"].as_bool().ok_or_else(torn)?,
            ..with
        };
        let planned = Self::of(request)?;
        if planned.sha256 == text("sha256")? && contents.is_empty() {
            Ok(planned)
        } else {
            Err(InputError::new("packed plan", "it comes to another plan here than where it was packed")
                .hint("unpack it with the modules with which it was packed")
                .into())
        }
    }
}

/// The scenario as it is written, with all that replaces parts of it.
fn tree(request: &RunRequest) -> Result<Value, InputError> {
    let mut tree = load::tree(&request.text, &request.source, &request.overrides)?;
    if let Value::Object(tree) = &mut tree {
        if let Some(seed) = request.seed {
            tree.insert("seed".to_owned(), seed.into());
        }
        if let Some(fidelity) = &request.fidelity {
            tree.insert("fidelity".to_owned(), fidelity.as_str().into());
        }
    }
    Ok(tree)
}

/// See [`Planned::sha256`].
fn sha256(request: &RunRequest, inputs: &[Input]) -> Result<String, InputError> {
    let mut tree = tree(request)?;
    tree.sort_all_objects();
    let mut hash = Sha256::new();
    let mut part = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    part(&tree.to_string());
    part(if request.full { "full" } else { "" });
    part(&request.policies);
    let told = !request.policies.is_empty();
    let modules = request.modules.identity(told).map_err(|error| {
        let message = format!("cannot read the program's file, by which its modules are known: {error}");
        InputError::new(&request.source, message).hint("`Modules::identified_by` says another name for them")
    })?;
    if let Some(modules) = modules {
        part("modules");
        part(&modules);
    }
    for (name, digest) in inputs {
        part(name);
        part(digest);
    }
    Ok(hex(hash.finalize()))
}
