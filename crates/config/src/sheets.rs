//! Data sheets by name: those that come with the engine, or files of the user's.

use std::path::Path;

use serde_json::{Map, Value, json};
use windtunnel_kernel::units::{Dimension, parse_quantity};
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_plan::inputs::Inputs;

/// (kind, name, text) of every sheet in `data/`.
static SHEETS: &[(&str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/sheets.rs"));

/// The text of a sheet and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SheetText {
    /// Name without folder and extension.
    pub name: String,
    /// File for messages.
    pub source: String,
    /// Contents.
    pub text: String,
}

/// The text of sheet `name` of `kind`.
pub fn text(kind: &str, name: &str) -> Option<&'static str> {
    SHEETS.iter().find(|(of, known, _)| *of == kind && *known == name).map(|(.., text)| *text)
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
    std::fs::read_to_string(path)
        .map_err(|error| InputError::new(place, format!("cannot read `{}`: {error}", path.display())))
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

/// Finds sheet `name` of `kind`; a name that is a path (with `/` or an extension) is read from `base`.
///
/// # Errors
/// [`InputError`] at `place` when there is no such sheet or the file cannot be read.
pub fn find(kind: &str, name: &str, base: &Inputs, place: &str) -> Result<SheetText, InputError> {
    let file = |kind: &str| Path::new(name).extension().is_some_and(|found| found.eq_ignore_ascii_case(kind));
    let is_path = name.contains('/') || file("yaml") || file("json");
    if is_path {
        let path = base.join(name);
        let text = read(&path, place)?;
        let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        return Ok(SheetText { name: stem, source: path.display().to_string(), text });
    }
    let found = SHEETS.iter().find(|(of, known, _)| *of == kind && known.eq_ignore_ascii_case(name));
    if let Some((_, known, text)) = found {
        base.sheet(kind, known, text);
        let source = format!("data/{kind}/{known}");
        return Ok(SheetText { name: (*known).to_owned(), source, text: (*text).to_owned() });
    }
    let known = names(kind);
    let error =
        InputError::new(place, format!("no sheet `{name}` in data/{kind}, found {}", known.join(", ")));
    Err(match nearest(name, known.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint("a path such as `./my-sheet.yaml` reads a file of yours"),
    })
}

/// The text of a sheet with `changes`, as a scenario has them: keys as in the sheet. A bare value in place of a figure is a figure
/// that the scenario gives; `null` takes a key away. A `scale_up.rate` takes `scale_up.payload` along in proportion.
///
/// # Errors
/// [`InputError`] at `place` if the sheet is no mapping.
pub fn derived(sheet: &SheetText, changes: &Map<String, Value>, place: &str) -> Result<String, InputError> {
    let tree = serde_saphyr::from_str::<Value>(&sheet.text);
    let Ok(Value::Object(mut tree)) = tree else {
        return Err(InputError::new(
            place,
            format!("`{}` is no data sheet: expected keys and values", sheet.source),
        ));
    };
    let before = figure(&tree, "rate").cloned();
    merge(&mut tree, changes);
    let of = |key: &str| changes.get("scale_up").and_then(|inner| inner.get(key));
    if of("rate").is_some()
        && of("payload").is_none()
        && let (Some(before), Some(after)) = (before, figure(&tree, "rate").cloned())
        && let Some(scaled) = in_proportion(figure(&tree, "payload"), &before, &after)
    {
        let source = format!("{}: as large a part of the rate that the scenario gives", sheet.source);
        tree["scale_up"]["payload"] = json!({"value": scaled, "evidence": "inferred", "source": source});
    }
    Ok(Value::Object(tree).to_string())
}

fn figure<'a>(tree: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    tree.get("scale_up")?.get(key)?.get("value")
}

fn in_proportion(payload: Option<&Value>, before: &Value, after: &Value) -> Option<String> {
    let rate = |value: &Value| parse_quantity(value.as_str()?, Dimension::Rate).ok().filter(|rate| *rate > 0);
    let (payload, before, after) = (rate(payload?)?, rate(before)?, rate(after)?);
    Some(format!("{} bps", u128::from(payload) * u128::from(after) / u128::from(before)))
}

fn merge(tree: &mut Map<String, Value>, changes: &Map<String, Value>) {
    for (key, change) in changes {
        match (tree.get_mut(key), change) {
            (_, Value::Null) => drop(tree.remove(key)),
            (Some(Value::Object(kept)), Value::Object(more)) if !kept.contains_key("value") => {
                merge(kept, more);
            }
            (None, Value::Object(more)) if !more.contains_key("value") => {
                let mut made = Map::new();
                merge(&mut made, more);
                tree.insert(key.clone(), Value::Object(made));
            }
            (Some(Value::String(_)), _) => drop(tree.insert(key.clone(), change.clone())),
            _ => drop(tree.insert(key.clone(), given(change))),
        }
    }
}

/// A value as a figure of a sheet.
fn given(change: &Value) -> Value {
    let mut made = match change {
        Value::Object(fields) if fields.contains_key("value") => fields.clone(),
        other => Map::from_iter([("value".to_owned(), other.clone())]),
    };
    made.entry("evidence").or_insert_with(|| "given".into());
    made.entry("source").or_insert_with(|| "the scenario's `topology.host.gpu`".into());
    Value::Object(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windtunnel_workload::model::sheets::GpuSheet;

    fn derive(changes: Value) -> Result<GpuSheet, String> {
        let sheet = SheetText {
            name: "h100-sxm".to_owned(),
            source: "data/gpus/h100-sxm".to_owned(),
            text: text("gpus", "h100-sxm").expect("it comes along").to_owned(),
        };
        let changes = changes.as_object().expect("an object").clone();
        let text = derived(&sheet, &changes, "topology.host.gpu").map_err(|error| error.to_string())?;
        GpuSheet::parse(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn only_what_is_said_differs() {
        let sheet =
            derive(json!({"name": "H800", "scale_up": {"rate": "200 GB/s"}, "memory": "96 GB"})).unwrap();
        let mut expected = GpuSheet::parse(text("gpus", "h100-sxm").unwrap()).unwrap();
        assert_eq!((sheet.name.as_str(), sheet.memory.value.get()), ("H800", 96_000_000_000));
        assert_eq!(sheet.scale_up.rate.value.bps(), 1_600_000_000_000);
        // 370.8 of 450 GB/s.
        assert_eq!(sheet.scale_up.payload_rate().bps(), 1_318_400_000_000);
        assert_eq!(sheet.memory.evidence.name(), "given");
        expected.name = sheet.name.clone();
        expected.memory = sheet.memory.clone();
        expected.scale_up.rate = sheet.scale_up.rate.clone();
        expected.scale_up.payload = sheet.scale_up.payload.clone();
        assert_eq!(sheet, expected);
    }

    #[test]
    fn keys_come_and_go() {
        let sheet =
            derive(json!({"kernels": null, "price": {"value": "1000 USD", "source": "a quote"}})).unwrap();
        assert!(sheet.kernels.is_none());
        assert_eq!(
            sheet.price.map(|price| (price.value.0, price.source)),
            Some((1000.0, "a quote".to_owned()))
        );
        assert!(derive(json!({"memori": "1 GB"})).unwrap_err().contains("memori"));
        assert!(derive(json!({"memory": "1 GBps"})).unwrap_err().contains("GBps"));
    }
}
