//! Sheets that derive from sheets: one says another's name and what differs from it. A scenario derives in its own text
//! (`gpu: {sheet: H100-SXM, …}`), a file by a key `sheet` beside its figures.
//!
//! What comes out is the text of a whole sheet, which nobody has written: a fault in it is told where its value was said.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use serde_path_to_error::Segment;
use serde_saphyr::Spanned;
use windtunnel_kernel::units::{Dimension, parse_quantity};
use windtunnel_plan::error::InputError;

use crate::load;
use crate::sheets::SheetText;

/// What one place says beside the sheet from which it derives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Where it stands, for messages: a file, or a key of the scenario.
    pub place: String,
    /// The file's contents; None of a key.
    pub text: Option<String>,
    /// What the evidence calls it.
    pub source: String,
    /// Keys as in the sheet. A bare value in place of a figure is a figure that this place gives; `null` takes a key away.
    pub changes: Map<String, Value>,
}

impl SheetText {
    /// The sheet with what `layer` says in its place. A `scale_up.rate` takes `scale_up.payload` along in proportion.
    ///
    /// # Errors
    /// [`InputError`] at the layer's place if the sheet is no mapping.
    pub fn with(mut self, layer: Layer) -> Result<Self, InputError> {
        let tree = serde_saphyr::from_str::<Value>(&self.text);
        let Ok(Value::Object(mut tree)) = tree else {
            let message = format!("`{}` is no data sheet: expected keys and values", self.source);
            return Err(InputError::new(layer.place, message));
        };
        let before = figure(&tree, "rate").cloned();
        merge(&mut tree, &layer.changes, &layer.source);
        let of = |key: &str| layer.changes.get("scale_up").and_then(|inner| inner.get(key));
        if of("rate").is_some()
            && of("payload").is_none()
            && let (Some(before), Some(after)) = (before, figure(&tree, "rate").cloned())
            && let Some(scaled) = in_proportion(figure(&tree, "payload"), &before, &after)
        {
            let source = format!("{}: as large a part of the rate that the scenario gives", self.source);
            tree["scale_up"]["payload"] = json!({"value": scaled, "evidence": "inferred", "source": source});
        }
        self.text = Value::Object(tree).to_string();
        self.layers.push(layer);
        Ok(self)
    }

    /// What the sheet says, by `parse`.
    ///
    /// # Errors
    /// [`InputError`] at the sheet's file, or where a derived sheet has its wrong value.
    pub fn parsed<T: DeserializeOwned, E: Display>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, InputError> {
        parse(&self.text).map_err(|error| match self.layers.last() {
            // A file's line and column; what each value allows and together they do not has none.
            None => match load::from_yaml::<T>(&self.text, &self.source) {
                Err(error) => error,
                Ok(_) => InputError::new(&self.source, error.to_string()),
            },
            Some(last) => self.wrong::<T>(last, &error.to_string()),
        })
    }

    fn wrong<T: DeserializeOwned>(&self, last: &Layer, message: &str) -> InputError {
        let hint = format!("keys are those of `{}`; `windtunnel list gpus` names sheets", self.source);
        let tree: Value = serde_json::from_str(&self.text).expect("a derived sheet is JSON");
        let Err(typed) = serde_path_to_error::deserialize::<_, T>(tree) else {
            // Each value is one, and they contradict each other.
            return InputError::new(&last.place, message).hint(hint);
        };
        let message = typed.inner().to_string();
        let mut path: Vec<String> = typed
            .path()
            .iter()
            .filter_map(|segment| match segment {
                Segment::Map { key } => Some(key.clone()),
                _ => None,
            })
            .collect();
        if path.last().is_some_and(|key| key == "value") {
            path.pop();
        }
        // Such a fault is told where the key should be, and none should be.
        if (message.starts_with("unknown field") || message.starts_with("missing field"))
            && let Some(key) = message.split('`').nth(1)
            && path.last().is_none_or(|last| last != key)
        {
            path.push(key.to_owned());
        }
        let place = match self.layers.iter().rev().find(|layer| says(&layer.changes, &path)) {
            Some(layer) => layer.place_of(&path),
            None => format!("{}: {}", self.source, path.join(".")),
        };
        load::explained(place, &message).hint(hint)
    }
}

impl Layer {
    /// Where it says the key at `path`.
    fn place_of(&self, path: &[String]) -> String {
        let key = path.join(".");
        let Some(text) = &self.text else { return format!("{}.{key}", self.place) };
        let keys = serde_saphyr::from_str::<BTreeMap<String, Spanned<Value>>>(text).ok();
        let at = keys.as_ref().zip(path.first()).and_then(|(keys, first)| Some(keys.get(first)?.referenced));
        match at {
            Some(at) => format!("{}:{}:{}: {key}", self.place, at.line(), at.column()),
            None => format!("{}: {key}", self.place),
        }
    }
}

/// Whether `changes` say what stands at `path`: its value, or that of a key above it.
fn says(changes: &Map<String, Value>, path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else { return false };
    match changes.get(first) {
        Some(Value::Object(inner)) if !rest.is_empty() && !inner.contains_key("value") => says(inner, rest),
        found => found.is_some(),
    }
}

fn figure<'a>(tree: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    tree.get("scale_up")?.get(key)?.get("value")
}

fn in_proportion(payload: Option<&Value>, before: &Value, after: &Value) -> Option<String> {
    let rate = |value: &Value| parse_quantity(value.as_str()?, Dimension::Rate).ok().filter(|rate| *rate > 0);
    let (payload, before, after) = (rate(payload?)?, rate(before)?, rate(after)?);
    Some(format!("{} bps", u128::from(payload) * u128::from(after) / u128::from(before)))
}

fn merge(tree: &mut Map<String, Value>, changes: &Map<String, Value>, source: &str) {
    for (key, change) in changes {
        match (tree.get_mut(key), change) {
            (_, Value::Null) => drop(tree.remove(key)),
            (Some(Value::Object(kept)), Value::Object(more)) if !kept.contains_key("value") => {
                merge(kept, more, source);
            }
            (None, Value::Object(more)) if !more.contains_key("value") => {
                let mut made = Map::new();
                merge(&mut made, more, source);
                tree.insert(key.clone(), Value::Object(made));
            }
            (Some(Value::String(_)), _) => drop(tree.insert(key.clone(), change.clone())),
            _ => drop(tree.insert(key.clone(), given(change, source))),
        }
    }
}

/// A value as a figure of a sheet.
fn given(change: &Value, source: &str) -> Value {
    let mut made = match change {
        Value::Object(fields) if fields.contains_key("value") => fields.clone(),
        other => Map::from_iter([("value".to_owned(), other.clone())]),
    };
    made.entry("evidence").or_insert_with(|| "given".into());
    made.entry("source").or_insert_with(|| source.into());
    Value::Object(made)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::sheets;
    use windtunnel_plan::inputs::Inputs;
    use windtunnel_workload::model::sheets::GpuSheet;

    fn h100() -> SheetText {
        sheets::find("gpus", "h100-sxm", &Inputs::of(&PathBuf::new()), "gpu").expect("it comes along")
    }

    fn inline(changes: &Value) -> Layer {
        let changes = changes.as_object().expect("an object").clone();
        Layer {
            place: "topology.host.gpu".to_owned(),
            text: None,
            source: "the scenario".to_owned(),
            changes,
        }
    }

    fn derive(changes: Value) -> Result<GpuSheet, String> {
        h100()
            .with(inline(&changes))
            .and_then(|sheet| sheet.parsed(GpuSheet::parse))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn only_what_is_said_differs() {
        let sheet =
            derive(json!({"name": "H800", "scale_up": {"rate": "200 GB/s"}, "memory": "96 GB"})).unwrap();
        let mut expected = h100().parsed(GpuSheet::parse).unwrap();
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
    }

    #[test]
    fn what_is_wrong_is_told_where_it_was_said() {
        for (changes, said) in [
            (json!({"memori": "1 GB"}), "topology.host.gpu.memori: unknown key `memori`"),
            (json!({"memory": "1 GBps"}), "topology.host.gpu.memory: "),
            (json!({"memory": 3}), "topology.host.gpu.memory: "),
            (json!({"scale_up": {"rate": "fast"}}), "topology.host.gpu.scale_up.rate: "),
            (json!({"memory": null}), "topology.host.gpu.memory: `memory` is missing"),
            (
                json!({"memory": {"value": "1 GB", "evidence": "hearsay"}}),
                "topology.host.gpu.memory.evidence: ",
            ),
            (json!({"memory": "0 B"}), "topology.host.gpu: sheet `H100-SXM`: `memory`"),
        ] {
            let error = derive(changes.clone()).unwrap_err();
            assert!(error.starts_with(said), "{changes}: {error}");
            assert!(!error.contains("column"), "{error}");
            assert!(error.contains("\n\nhint: "), "{error}");
        }
    }

    /// Files in a folder of their own, and the sheet that `name` comes to there.
    fn of_files(files: &[(&str, &str)], name: &str) -> Result<GpuSheet, String> {
        let folder = std::env::temp_dir().join(format!(
            "windtunnel-derive-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        }
        let found = sheets::find("gpus", name, &Inputs::of(&folder), "topology.host.gpu")
            .and_then(|sheet| sheet.parsed(GpuSheet::parse))
            .map_err(|error| error.to_string());
        fs::remove_dir_all(folder).expect("it is there");
        found
    }

    #[test]
    fn a_file_derives_from_a_sheet_or_from_a_file_beside_it() {
        let files = [
            ("sheets/mine.yaml", "sheet: ./base.yaml\nname: Mine\nscale_up:\n  rate: 200 GB/s\n"),
            ("sheets/base.yaml", "sheet: H100-SXM\nname: Base\nmemory: 96 GB\n"),
        ];
        let sheet = of_files(&files, "sheets/mine.yaml").unwrap();
        assert_eq!((sheet.name.as_str(), sheet.memory.value.get()), ("Mine", 96_000_000_000));
        assert_eq!(sheet.memory.source, "`./base.yaml`");
        assert_eq!(sheet.scale_up.rate.value.bps(), 1_600_000_000_000);
    }

    #[test]
    fn so_has_one_in_a_file_that_derives_from_none() {
        let text = sheets::own("gpus", "h100-sxm", &Inputs::of(&PathBuf::new())).expect("it comes along");
        let wrong = text.replacen("memory: {value: ", "memory: {value: 1 GBps, was: ", 1);
        let error = of_files(&[("mine.yaml", &wrong)], "mine.yaml").unwrap_err();
        assert!(error.contains("mine.yaml:3:"), "{error}");
        assert_eq!(
            error.lines().filter(|line| !line.is_empty() && !line.starts_with("hint: ")).count(),
            1,
            "{error}"
        );
        let memory = text.lines().find(|line| line.starts_with("memory: ")).expect("it has some");
        let wrong = text.replacen(memory, "memory: {value: 0 B, evidence: measured, source: none}", 1);
        let error = of_files(&[("mine.yaml", &wrong)], "mine.yaml").unwrap_err();
        assert!(
            error.ends_with("mine.yaml: sheet `H100-SXM`: `memory` and `scale_up.domain` must be positive"),
            "{error}"
        );
    }

    #[test]
    fn a_fault_in_a_file_has_line_and_column() {
        let files = [
            ("mine.yaml", "sheet: ./base.yaml\nname: Mine\n"),
            ("base.yaml", "sheet: H100-SXM\nmemory: 1 m\n"),
        ];
        let error = of_files(&files, "mine.yaml").unwrap_err();
        assert!(error.contains("base.yaml:2:9: memory: "), "{error}");
        for (text, said) in [
            ("sheet: ./mine.yaml\n", "mine.yaml: sheet: `./mine.yaml` derives from itself"),
            ("sheet: 3\n", "mine.yaml: sheet: expected the name of a data sheet, found `3`"),
            ("sheet: H100\n", "mine.yaml: sheet: no sheet `H100`"),
            ("sheet: H100-SXM\nmemori: 1 GB\n", "mine.yaml:2:9: memori: unknown key `memori`"),
        ] {
            let error = of_files(&[("mine.yaml", text)], "mine.yaml").unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
