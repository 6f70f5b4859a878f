//! Data sheets by name: those that come with the engine, or files of the user's.
//!
//! There is no other way to the text of a sheet than [`own`] and [`find`], and both remember it among what was read: a
//! plan's digest covers every constant that it rests on.

use std::path::{Path, PathBuf};

use serde_json::Value;
use windtunnel_kernel::encoding::not_utf8;
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_plan::inputs::Inputs;

use crate::derive::Layer;

/// (kind, name, text) of every sheet in `data/`.
static SHEETS: &[(&str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/sheets.rs"));

/// The text of a sheet and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SheetText {
    /// Name without folder and extension.
    pub name: String,
    /// File for messages.
    pub source: String,
    /// Contents, of one that derives from another those that it comes to.
    pub text: String,
    /// What it says of them itself, and what those from which it derives do, these first; none if it derives from none.
    pub layers: Vec<Layer>,
}

/// Kinds of sheets that consist of figures, which a file may take over from another sheet.
const DERIVED: [&str; 3] = ["gpus", "nics", "switches"];

/// Sheets that derive from each other, at most.
const LONGEST: usize = 16;

/// The text of sheet `name` of `kind` that comes with the engine, which `base` remembers; `None` if there is none.
/// Capitals do not matter.
pub fn own(kind: &str, name: &str, base: &Inputs) -> Option<&'static str> {
    known(kind, name, base).map(|(_, text)| text)
}

/// The same with its name as `data/` has it.
fn known(kind: &str, name: &str, base: &Inputs) -> Option<(&'static str, &'static str)> {
    let (_, known, text) =
        SHEETS.iter().find(|(of, known, _)| *of == kind && known.eq_ignore_ascii_case(name))?;
    base.sheet(kind, known, text);
    Some((known, text))
}

/// Names of the sheets of `kind` (`gpus`, `nics`, `switches`, `models`).
pub fn names(kind: &str) -> Vec<&'static str> {
    SHEETS.iter().filter(|(of, ..)| *of == kind).map(|(_, name, _)| *name).collect()
}

/// The text of a file that the key at `place` names.
///
/// # Errors
/// [`InputError`] at `place` when it is absent or cannot be read.
pub fn read(path: &Path, place: &str) -> Result<String, InputError> {
    present(path, place)?;
    let fault = |what: &str| InputError::new(place, format!("cannot read `{}`: {what}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| fault(&error.to_string()))?;
    in_utf8(bytes, fault)
}

/// `bytes` as text, or the `fault` of what they are instead.
///
/// # Errors
/// That, of bytes that are not in UTF-8.
pub fn in_utf8(bytes: Vec<u8>, fault: impl Fn(&str) -> InputError) -> Result<String, InputError> {
    match not_utf8(&bytes) {
        Some((what, hint)) => Err(fault(what).hint(hint)),
        None => String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to() + 1;
            fault(&format!("it is not text in UTF-8: byte {at}"))
        }),
    }
}

/// Refuses a file that is not there.
///
/// # Errors
/// [`InputError`] at `place`.
pub fn present(path: &Path, place: &str) -> Result<(), InputError> {
    if path.is_file() {
        return Ok(());
    }
    Err(InputError::new(place, format!("no such file: `{}`", path.display()))
        .hint("relative paths start from the scenario's folder"))
}

/// Finds sheet `name` of `kind`; a name that is a path (with `/` or an extension) is read from `base`. A file may derive
/// from another sheet, which its key `sheet` names as from its own folder.
///
/// # Errors
/// [`InputError`] at `place` when there is no such sheet or the file cannot be read.
pub fn find(kind: &str, name: &str, base: &Inputs, place: &str) -> Result<SheetText, InputError> {
    sought(kind, name, base, place, &mut Vec::new())
}

fn sought(
    kind: &str,
    name: &str,
    base: &Inputs,
    place: &str,
    above: &mut Vec<PathBuf>,
) -> Result<SheetText, InputError> {
    let file = |kind: &str| Path::new(name).extension().is_some_and(|found| found.eq_ignore_ascii_case(kind));
    if name.contains('/') || file("yaml") || file("json") {
        return of_file(kind, name, base, place, above);
    }
    if let Some((name, text)) = known(kind, name, base) {
        return Ok(SheetText {
            name: name.to_owned(),
            source: format!("data/{kind}/{name}"),
            text: text.to_owned(),
            layers: Vec::new(),
        });
    }
    let known = names(kind);
    let error =
        InputError::new(place, format!("no sheet `{name}` in data/{kind}, found {}", known.join(", ")));
    Err(match nearest(name, known.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint("a path such as `./my-sheet.yaml` reads a file of yours"),
    })
}

fn of_file(
    kind: &str,
    name: &str,
    base: &Inputs,
    place: &str,
    above: &mut Vec<PathBuf>,
) -> Result<SheetText, InputError> {
    let path = base.join(name);
    let text = read(&path, place)?;
    let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let source = path.display().to_string();
    // What is no YAML is told by whoever reads the sheet.
    let tree = if DERIVED.contains(&kind) { serde_saphyr::from_str::<Value>(&text).ok() } else { None };
    let Some(Value::Object(mut changes)) = tree else {
        return Ok(SheetText { name: stem, source, text, layers: Vec::new() });
    };
    let Some(of) = changes.remove("sheet") else {
        return Ok(SheetText { name: stem, source, text, layers: Vec::new() });
    };
    let at = format!("{source}: sheet");
    let Value::String(of) = of else {
        return Err(InputError::new(at, format!("expected the name of a data sheet, found `{of}`")));
    };
    let whole = path.canonicalize().unwrap_or(path);
    if above.contains(&whole) || above.len() >= LONGEST {
        return Err(InputError::new(place, format!("`{name}` derives from itself")));
    }
    above.push(whole);
    let layer = Layer { place: source.clone(), text: Some(text), source: format!("`{name}`"), changes };
    let found = sought(kind, &of, &base.within(name), &at, above)?.with(layer)?;
    Ok(SheetText { name: stem, source, ..found })
}
