//! From text to [`Scenario`]: YAML, overrides of single keys, and errors that point at the place.

use std::cell::RefCell;

use serde::de::DeserializeOwned;
use serde_json::Value;
use windtunnel_plan::error::{InputError, nearest};

use crate::schema::Scenario;

/// Reads a scenario from YAML `text`; `source` is the file's name for messages; each override is a path such as
/// `jobs[0].parallelism.tp` and a YAML value.
///
/// # Errors
/// [`InputError`] with the line and column, or the path of the key where an override is at fault.
pub fn scenario(text: &str, source: &str, overrides: &[(String, String)]) -> Result<Scenario, InputError> {
    // Only a direct read of the text knows lines and columns.
    if overrides.is_empty() {
        return from_yaml(text, source);
    }
    let tree = tree(text, source, overrides)?;
    // Read as a file is, so that a key may hold what it may hold there. Only the tree knows paths, which name what an override did;
    // but it takes a list for a mapping, key by key.
    from_yaml(&tree.to_string(), source).map_err(|error| {
        match serde_path_to_error::deserialize::<_, Scenario>(tree) {
            Ok(_) => {
                let paths: Vec<&str> = overrides.iter().map(|(path, _)| path.as_str()).collect();
                InputError { place: format!("{source} with --set {}", paths.join(", ")), ..error }
            }
            // An error that the text has on its own is shown where it stands there.
            Err(typed) => from_yaml::<Scenario>(text, source).err().unwrap_or_else(|| {
                let path = typed.path().to_string();
                explained(format!("{source} with --set: {path}"), &typed.inner().to_string())
            }),
        }
    })
}

/// The tree of YAML `text` with the overrides in their places, whatever it means.
///
/// # Errors
/// [`InputError`] for what is no YAML, or a path that leads nowhere.
pub fn tree(text: &str, source: &str, overrides: &[(String, String)]) -> Result<Value, InputError> {
    let mut tree = parsed(text, source)?;
    for (path, value) in overrides {
        if value.trim().is_empty() {
            let error = InputError::new(format!("--set {path}"), "expected a value, found nothing");
            return Err(error.hint("`null` takes the key out, and `\"\"` is an empty text"));
        }
        let value: Value = from_yaml(value, &format!("--set {path}"))?;
        set(&mut tree, path, value)?;
    }
    Ok(tree)
}

/// Bytes of a text that is kept with what it says.
const KEPT: usize = 1 << 16;

/// What a text says. The last one of each thread is kept: a study asks for one text thousands of times, with other overrides.
fn parsed(text: &str, source: &str) -> Result<Value, InputError> {
    thread_local! {
        static LAST: RefCell<(String, Value)> = const { RefCell::new((String::new(), Value::Null)) };
    }
    LAST.with_borrow_mut(|last| {
        // What is empty is refused, and so never the last.
        if !last.0.is_empty() && last.0 == text {
            return Ok(last.1.clone());
        }
        let found: Value = from_yaml(text, source)?;
        if text.len() <= KEPT {
            *last = (text.to_owned(), found.clone());
        }
        Ok(found)
    })
}

/// Reads any value from YAML.
///
/// # Errors
/// [`InputError`] with line and column.
pub fn from_yaml<T: DeserializeOwned>(text: &str, source: &str) -> Result<T, InputError> {
    if text.trim().is_empty() {
        return Err(InputError::new(source, "the file is empty"));
    }
    // YAML 1.2: `off` and `no` are texts, only `true` and `false` are booleans.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options.clone()).map_err(|error| {
        let place_of = |error: &serde_saphyr::Error| {
            error
                .location()
                .map_or_else(|| source.to_owned(), |at| format!("{source}:{}:{}", at.line(), at.column()))
        };
        let plain = error.without_snippet();
        let (place, message) = (place_of(plain), message_of(plain));
        // The YAML reader knows where a value stands, but not its path nor what was found there.
        let tree = serde_saphyr::from_str_with_options::<Value>(text, options.clone());
        // A tree holds no `.inf` and no `.nan`; a key that takes one is not what is wrong here.
        let endless = tree.as_ref().err().map(serde_saphyr::Error::without_snippet);
        if let Some(found) = endless.filter(|error| place_of(error) == place).and_then(endless_number) {
            return InputError::new(place, format!("expected a finite number, found `{found}`"));
        }
        match tree.ok().map(serde_path_to_error::deserialize::<_, T>) {
            Some(Err(typed)) if message.starts_with("missing field") => {
                let path = typed.path().to_string();
                let place = if path == "." { source.to_owned() } else { format!("{source}: {path}") };
                explained(place, &typed.inner().to_string())
            }
            // What is due, and what was found: the reader has words of its own for it.
            Some(Err(typed)) if !names_its_key(&message) => explained(place, &typed.inner().to_string()),
            _ if message == "expected mapping start" => {
                InputError::new(place, "expected a mapping of keys to values")
            }
            _ => explained(place, &message),
        }
    })
}

/// Whether the YAML reader's message is about a key or a name, which it tells as well as the tree does.
fn names_its_key(message: &str) -> bool {
    ["unknown field", "unknown variant", "duplicate mapping key"]
        .iter()
        .any(|start| message.starts_with(start))
}

/// Where the keys of a host are that somebody looks for in a building, of which these are known.
fn of_buildings(found: &str, known: &[&str]) -> Option<&'static str> {
    let all = ["gpus", "nics", "nic", "rails"];
    match (known.contains(&"tiers") && known.contains(&"region"), known) {
        (true, _) if found == "gpu" || found == "scale_up" => Some("say it as `host: {gpu: A100-80}`"),
        (true, _) | (_, ["gpu", "scale_up"]) if all.contains(&found) => Some(
            "hosts of all buildings have as many GPUs and the same NICs, which `topology.host` says; how fast NICs are, \
             `tiers[0].rate` says, and `variation.nics` of those that are slower",
        ),
        _ => None,
    }
}

/// A reader's message in the words of a user of the file, with the nearest right name as a hint.
pub(crate) fn explained(place: String, message: &str) -> InputError {
    let quoted = message.split('`').nth(1);
    if let (Some(found), Some((_, known))) = (quoted, message.split_once("expected ")) {
        let what = match message.split_once(" `").map(|(start, _)| start) {
            Some("unknown field") => "key",
            Some("unknown variant") => "value",
            _ => return of_wrong_type(place, message),
        };
        // `a`, or `a` or `b`, or one of `a`, `b`, `c`; the YAML reader leaves the quotes out.
        let known = known.strip_prefix("one of ").unwrap_or(known);
        let names = known.split([',', ' ', '`']).filter(|name| !matches!(*name, "" | "or"));
        let known: Vec<&str> = names.collect();
        let of = if known.len() == 1 { "" } else { "one of " };
        let text = format!("unknown {what} `{found}`, expected {of}`{}`", known.join("`, `"));
        let error = InputError::new(place, text);
        if let Some(hint) = of_buildings(found, &known) {
            return error.hint(hint);
        }
        return match nearest(found, known) {
            Some(name) => error.hint(format!("did you mean `{name}`?")),
            None => error,
        };
    }
    if message.starts_with("multiple YAML documents") {
        let text = "a second document begins here, expected one in a file";
        return InputError::new(place, text).hint("`---` begins a document; each needs a file of its own");
    }
    if let (Some(name), true) = (quoted, message.starts_with("missing field")) {
        return InputError::new(place, format!("`{name}` is missing"));
    }
    if let Some(name) = message.strip_prefix("duplicate mapping key: ") {
        let name = name.split(',').next().unwrap_or(name);
        return InputError::new(place, format!("`{name}` is given twice"));
    }
    of_wrong_type(place, message)
}

fn of_wrong_type(place: String, message: &str) -> InputError {
    let error = InputError::new(place, typed(message));
    // `010` is 8 to some readers and 10 to others; neither it nor `1e2` is a whole number to this one.
    let number = message.split_once("floating point `").and_then(|(_, rest)| rest.split('`').next());
    match number.and_then(|number| number.parse::<f64>().ok()) {
        Some(number) if number.fract() == 0.0 && message.contains("expected u") => {
            error.hint("a whole number is written in plain digits: `100`, not `1e2`, `100.0` or `0100`")
        }
        _ => error,
    }
}

/// `invalid type: string "many", expected u32` as `expected a whole number of at least 0, found "many"`.
fn typed(message: &str) -> String {
    if let Some(lengths) = message.strip_prefix("invalid length ") {
        if let Some((found, expected)) = lengths.split_once(", expected an array of length ") {
            return format!("expected a list of {expected}, found one of {found}");
        }
        return "expected a mapping of keys to values, found a list".to_owned();
    }
    let parts = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, expected)) = parts.and_then(|parts| parts.split_once(", expected ")) else {
        return message.to_owned();
    };
    let most = match expected {
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        _ => u64::MAX,
    };
    // One that is too large; of more than 64 bits the reader keeps no integer.
    let large = found
        .trim_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .is_ok_and(|found: f64| found >= most as f64)
        && !found.contains('-');
    let range = format!("a whole number from 0 to {most}");
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" if large => range.as_str(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of at least 0",
        "string or map" => "a name",
        "f64" => "a number",
        "a boolean" => "`true` or `false`",
        "a string" => "a text",
        "a sequence" => "a list",
        _ if expected.starts_with("struct ") => "a mapping",
        _ => expected,
    };
    let found = match found.split_once(' ').unwrap_or((found, "")) {
        ("string", text) => text.replace('"', "`"),
        ("integer" | "boolean", value) => value.to_owned(),
        ("floating", value) => value.trim_start_matches("point ").to_owned(),
        ("sequence", _) => "a list".to_owned(),
        ("map", _) => "a mapping".to_owned(),
        ("null" | "unit", _) => "nothing".to_owned(),
        _ => found.to_owned(),
    };
    format!("expected {expected}, found {found}")
}

/// The `.inf` or `.nan` that a tree cannot hold.
fn endless_number(error: &serde_saphyr::Error) -> Option<String> {
    let message = message_of(error);
    let (found, _) = message.strip_prefix("non-finite float `")?.split_once('`')?;
    Some(found.to_owned())
}

/// The message without the location, which the place already gives.
fn message_of(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let text = text.lines().next().unwrap_or_default();
    let text = text.strip_prefix("error: ").unwrap_or(text);
    match text.find(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text.to_owned(),
    }
}

/// One step of an override's path.
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Splits `jobs[0].parallelism.tp`.
fn steps(path: &str) -> Result<Vec<Step<'_>>, InputError> {
    let bad = || InputError::new(format!("--set {path}"), "expected a path such as `jobs[0].parallelism.tp`");
    let mut steps = Vec::new();
    for part in path.split('.') {
        let (key, mut rest) = part.split_at(part.find('[').unwrap_or(part.len()));
        if key.is_empty() {
            return Err(bad());
        }
        steps.push(Step::Key(key));
        while let Some(inner) = rest.strip_prefix('[') {
            let (index, after) = inner.split_once(']').ok_or_else(bad)?;
            steps.push(Step::Index(index.parse().map_err(|_| bad())?));
            rest = after;
        }
        if !rest.is_empty() {
            return Err(bad());
        }
    }
    Ok(steps)
}

/// Sets the value at `path`, making mappings on the way; nothing (`null`) takes a key out, as if it had not been written.
fn set(tree: &mut Value, path: &str, value: Value) -> Result<(), InputError> {
    let mut at = tree;
    let mut steps = steps(path)?.into_iter().peekable();
    while let Some(step) = steps.next() {
        if let (Step::Key(key), Some(keys), true) = (&step, at.as_object_mut(), value.is_null()) {
            if steps.peek().is_none() {
                keys.remove(*key);
            }
            if !keys.contains_key(*key) {
                return Ok(());
            }
        }
        at = descend(at, &step, path)?;
    }
    *at = value;
    Ok(())
}

/// What `step` of `path` leads to.
fn descend<'a>(at: &'a mut Value, step: &Step<'_>, path: &str) -> Result<&'a mut Value, InputError> {
    let wrong = |message: String| InputError::new(format!("--set {path}"), message);
    match *step {
        Step::Key(key) => {
            if at.is_null() {
                *at = Value::Object(serde_json::Map::new());
            }
            let found = kind(at);
            let keys =
                at.as_object_mut().ok_or_else(|| wrong(format!("`{key}` is a key, but there is {found}")))?;
            Ok(keys.entry(key).or_insert(Value::Null))
        }
        Step::Index(index) => {
            let found = kind(at);
            let items = at
                .as_array_mut()
                .ok_or_else(|| wrong(format!("[{index}] is an index, but there is {found}")))?;
            let length = items.len();
            let plural = if length == 1 { "" } else { "s" };
            items.get_mut(index).ok_or_else(|| {
                wrong(format!("there is no [{index}], the list has {length} item{plural}, counted from 0"))
            })
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "windtunnel: 1\nname: test\nfidelity: flow\ntopology:\n  shape: clos\n  hosts: 2\n  tiers:\n    - {ports_down: 2, rate: 400 Gbps}\n  host: {gpus: 1}\njobs:\n  - name: a\n    workload: {collective: {kind: all_reduce, bytes: 1 MiB}}\n";

    fn error(text: &str, overrides: &[(&str, &str)]) -> String {
        let overrides: Vec<_> = overrides.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        scenario(text, "a.yaml", &overrides).unwrap_err().to_string()
    }

    #[test]
    fn the_smallest_scenario_reads() {
        let read = scenario(TEXT, "a.yaml", &[("seed".to_owned(), "7".to_owned())]).unwrap();
        assert_eq!((read.seed, read.jobs.list().len()), (7, 1));
    }

    #[test]
    fn off_is_a_text_with_and_without_overrides() {
        let text = format!("{TEXT}fold: off\n");
        for overrides in [vec![], vec![("seed".to_owned(), "7".to_owned())]] {
            assert_eq!(scenario(&text, "a.yaml", &overrides).unwrap().fold, crate::schema::Fold::Off);
        }
    }

    #[test]
    fn a_list_of_the_wrong_length_is_not_called_a_mapping() {
        let cases = [
            ("invalid length 1, expected an array of length 2", "expected a list of 2, found one of 1"),
            (
                "invalid length 0, expected struct Tier with 6 elements",
                "expected a mapping of keys to values, found a list",
            ),
        ];
        for (message, text) in cases {
            assert_eq!(typed(message), text);
        }
    }

    #[test]
    fn two_documents_are_told_in_words_of_the_file() {
        for overrides in [&[][..], &[("seed", "7")]] {
            let text = error(&format!("{TEXT}---\nseed: 2\n"), overrides);
            assert!(text.starts_with("a.yaml:14:1: a second document begins here"), "{text}");
            assert!(!text.contains("from_str"), "{text}");
        }
    }

    #[test]
    fn an_unknown_key_is_named_with_its_place_and_the_nearest_right_one() {
        let text = error(&TEXT.replace("fidelity", "fidelty"), &[]);
        assert!(text.starts_with("a.yaml:3:1: unknown key `fidelty`"), "{text}");
        assert!(text.ends_with("hint: did you mean `fidelity`?"), "{text}");
    }

    #[test]
    fn of_two_keys_both_are_named() {
        let text = error(TEXT, &[("network.backend", "{libary: x.so}")]);
        assert!(text.contains("unknown key `libary`, expected one of `library`, `parameters`"), "{text}");
        assert!(text.ends_with("hint: did you mean `library`?"), "{text}");
    }

    #[test]
    fn a_missing_unit_is_named_with_its_place() {
        let text = error(&TEXT.replace("400 Gbps", "400"), &[]);
        assert!(text.starts_with("a.yaml:8:"), "{text}");
        assert!(text.contains("found `400`: a unit is missing, one of `bps`"), "{text}");
    }

    #[test]
    fn nothing_takes_a_key_out() {
        let seed =
            |value: &str| scenario(TEXT, "a.yaml", &[("seed".to_owned(), value.to_owned())]).unwrap().seed;
        assert_ne!(seed("7"), seed("null"));
        assert_eq!(seed("null"), scenario(TEXT, "a.yaml", &[]).unwrap().seed);
        let text = error(TEXT, &[("name", "null")]);
        assert!(text.contains("`name` is missing"), "{text}");
        // One that is not there, a list, and what leads nowhere.
        for path in ["network.queues", "cluster.faults", "topology.failed"] {
            scenario(TEXT, "a.yaml", &[(path.to_owned(), "null".to_owned())]).unwrap();
        }
        assert!(error(TEXT, &[("name.x.y", "null")]).contains("`x` is a key, but there is a text"));
    }

    #[test]
    fn an_override_at_fault_is_named_by_its_path() {
        assert_eq!(
            error(TEXT, &[("jobs[3].name", "x")]),
            "--set jobs[3].name: there is no [3], the list has 1 item, counted from 0"
        );
        assert_eq!(
            error(TEXT, &[("jobs..x", "1")]),
            "--set jobs..x: expected a path such as `jobs[0].parallelism.tp`"
        );
        let text = error(TEXT, &[("topology.tiers[0].rate", "400")]);
        assert!(text.starts_with("a.yaml with --set: topology.tiers[0].rate: expected a rate"), "{text}");
    }
}
