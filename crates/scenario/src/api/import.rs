//! `windtunnel import`: recordings in, a workload and its coverage out.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;
use windtunnel_import::{ImportError, Missing, Options, READERS, Treatment, input};
use windtunnel_kernel::nearest;
use windtunnel_kernel::registry::Listed;
use windtunnel_plan::error::{Failure, InputError};
use windtunnel_workload::collectives::Algorithm;
use windtunnel_workload::{Workload, chakra, compact, handwritten, lower};

use super::goal;

/// What is asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    /// A kind, or `auto`.
    kind: String,
    sources: Vec<PathBuf>,
    /// What the name of a file or of an archive's member contains; all if empty.
    #[serde(default)]
    only: String,
    out: PathBuf,
    #[serde(default)]
    strict: bool,
    #[serde(default)]
    missing: Option<String>,
    #[serde(default)]
    algorithm: Option<String>,
    #[serde(default)]
    flops: Option<f64>,
    #[serde(default)]
    architecture: Option<String>,
}

fn refused(error: &ImportError) -> Failure {
    Failure::Input(InputError::new("", error.to_string()))
}

/// One of the names of a table, or the refusal with the nearest.
pub(super) fn named<T: Listed>(place: &str, name: Option<&str>) -> Result<Option<T>, Failure> {
    let Some(name) = name else { return Ok(None) };
    T::by_name(name).map(Some).ok_or_else(|| {
        let error = InputError::new(place, format!("expected a {}, found `{name}`", T::WHAT));
        Failure::Input(match nearest(name, T::NAMES.iter().copied()) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint(format!("there are `{}`", T::NAMES.join("`, `"))),
        })
    })
}

/// Imports: reads `request` (JSON: `kind`, `sources`, `out`, `strict`, `missing`, `algorithm`), writes the workload to `out` and
/// its coverage to `OUT.coverage.json`, and returns the latter as JSON with counts of the workload.
///
/// # Errors
/// [`Failure::Input`] when a recording cannot be read, or the workload not be written.
pub fn import(request: &str) -> Result<String, Failure> {
    let request: Request = serde_json::from_str(request)
        .map_err(|error| Failure::Input(InputError::new("import", error.to_string())))?;
    let options = Options {
        strict: request.strict,
        missing: named("--missing", request.missing.as_deref())?.unwrap_or(Missing::Refuse),
        flops: request.flops,
        architecture: request.architecture,
    };
    let algorithm: Option<Algorithm> = named("--algorithm", request.algorithm.as_deref())?;
    let mut inputs = input::expand(&request.sources).map_err(|error| refused(&error))?;
    inputs.retain(|input| input.leaf_of(&request.sources).contains(&request.only));
    if inputs.is_empty() {
        let error =
            InputError::new("--only", format!("expected part of a file's name, found `{}`", request.only));
        return Err(Failure::Input(error));
    }
    let reader = if request.kind == "auto" {
        kind_of(&inputs)?
    } else {
        windtunnel_import::reader(&request.kind).map_err(|error| refused(&error))?
    };
    let (mut workload, coverage) =
        windtunnel_import::import_inputs(reader, &inputs, &options).map_err(|error| refused(&error))?;
    if let Some(algorithm) = algorithm {
        for spec in workload.programs.iter_mut().flat_map(|program| &mut program.specs) {
            spec.algorithm = algorithm;
        }
    }
    let communicators = workload.communicators.len();
    let operations = workload.operations();
    write(&workload, &request.out)?;
    let mut answer = coverage.json();
    answer["kind"] = json!(reader.entry().name);
    answer["files"] = json!(inputs.iter().map(|input| &input.name).collect::<Vec<_>>());
    answer["workload"] = json!({
        "file": request.out.display().to_string(),
        "ranks": workload.ranks(),
        "programs": workload.programs.len(),
        "operations": operations,
        "communicators": communicators,
    });
    let beside = coverage_of(&request.out);
    let text = serde_json::to_string_pretty(&answer).expect("JSON of texts and numbers");
    std::fs::write(&beside, text + "\n")
        .map_err(|error| Failure::Input(InputError::new(beside.display().to_string(), error.to_string())))?;
    Ok(answer.to_string())
}

/// A recording read as a workload, as `windtunnel import auto` with no option does it.
pub(super) struct Recorded {
    pub workload: Workload,
    /// JSON: `file`, `kind` and how many operations were `mapped`, `approximated`, `guessed` and `dropped`.
    pub account: serde_json::Value,
}

/// Reads a file, folder or archive of recordings, if the first that is of a known kind is there.
pub(super) fn recorded(path: &Path) -> Result<Option<Recorded>, Failure> {
    let inputs = input::expand(&[path.to_path_buf()]).map_err(|error| refused(&error))?;
    let Some(reader) = found_kind(&inputs)? else { return Ok(None) };
    let (workload, coverage) = windtunnel_import::import_inputs(reader, &inputs, &Options::default())
        .map_err(|error| refused(&error))?;
    let mut account = json!({"file": path.display().to_string(), "kind": reader.entry().name});
    for treatment in Treatment::ALL {
        account[treatment.name()] = json!(coverage.total(treatment).operations);
    }
    Ok(Some(Recorded { workload, account }))
}

/// Whether one file is a recording of a known kind.
pub(super) fn detected(path: &Path) -> Result<bool, Failure> {
    let inputs = input::expand(&[path.to_path_buf()]).map_err(|error| refused(&error))?;
    Ok(found_kind(&inputs)?.is_some())
}

/// Where the coverage of a workload lies.
fn coverage_of(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".coverage.json");
    PathBuf::from(name)
}

/// Writes a workload in the form that the name asks for: `.goal` or `.bin` (messages alone), else JSON lines.
pub(super) fn write(workload: &Workload, out: &Path) -> Result<(), Failure> {
    let plain = out.to_string_lossy();
    let plain = Path::new(plain.strip_suffix(".gz").unwrap_or(&plain));
    let ends_in = |end: &str| plain.extension().is_some_and(|extension| extension == end);
    if ends_in("goal") || goal::is_binary(plain) {
        let messages = lower::to_messages(workload, |_| {})
            .map_err(|error| Failure::Input(InputError::new(out.display().to_string(), error.to_string())))?;
        return goal::write(&messages, out);
    }
    if ends_in("wtw") {
        return compact::write(workload, out)
            .map_err(|error| Failure::Input(InputError::new("", error.to_string())));
    }
    if ends_in("et") {
        return chakra::write(workload, out)
            .map(drop)
            .map_err(|error| Failure::Input(InputError::new(out.display().to_string(), error.to_string())));
    }
    if !ends_in("jsonl") {
        let message = "expected a name that ends in `.wtw`, `.jsonl`, `.goal`, `.bin` or `.et`";
        return Err(Failure::Input(InputError::new(out.display().to_string(), message)));
    }
    handwritten::write(workload, out).map_err(|error| Failure::Input(InputError::new("", error.to_string())))
}

/// The names of all kinds.
pub(super) fn kinds() -> Vec<&'static str> {
    READERS.iter().map(|reader| reader.entry().name).collect()
}

/// The kind of the first that is of a known one.
fn found_kind(inputs: &[input::Input]) -> Result<Option<&'static dyn windtunnel_import::Reader>, Failure> {
    for input in inputs {
        if let Some(reader) = windtunnel_import::detect(input).map_err(|error| refused(&error))? {
            return Ok(Some(reader));
        }
    }
    Ok(None)
}

fn kind_of(inputs: &[input::Input]) -> Result<&'static dyn windtunnel_import::Reader, Failure> {
    if let Some(reader) = found_kind(inputs)? {
        return Ok(reader);
    }
    let error =
        InputError::new(&inputs[0].name, "expected a recording of a known kind, found something else");
    Err(Failure::Input(error.hint(format!("the kinds are `{}`", kinds().join("`, `")))))
}

/// The kind of each file, as JSON: `file`, `kind` (null where it is not known) and `about`.
///
/// # Errors
/// [`Failure::Input`] when a file cannot be read.
pub fn detect(sources: &[PathBuf]) -> Result<String, Failure> {
    let mut rows = Vec::new();
    for input in input::expand(sources).map_err(|error| refused(&error))? {
        let reader = windtunnel_import::detect(&input).map_err(|error| refused(&error))?;
        let entry = reader.map(windtunnel_import::Reader::entry);
        rows.push(json!({
            "file": input.name,
            "kind": entry.map(|entry| entry.name),
            "about": entry.map(|entry| entry.summary),
        }));
    }
    Ok(json!(rows).to_string())
}
