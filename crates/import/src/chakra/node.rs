//! Nodes as the forms of a trace have them: Protocol Buffers, JSON of one document, and that of Chakra's jsonizer.

use serde::Deserialize;
use serde_json::Value;

use crate::bytes::Bytes;
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::json::Elements;

/// A node of either form.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Node {
    #[serde(alias = "Id", default)]
    pub(super) id: u64,
    #[serde(alias = "Name", default)]
    pub(super) name: String,
    #[serde(rename = "type", alias = "NodeType", default)]
    pub(super) kind: u64,
    #[serde(alias = "ctrlDeps", default)]
    pub(super) ctrl_deps: Vec<u64>,
    #[serde(default)]
    pub(super) data_deps: Vec<u64>,
    #[serde(alias = "runtime", alias = "duration_micros", default)]
    pub(super) micros: u64,
    #[serde(default)]
    pub(super) is_cpu_op: Option<bool>,
    #[serde(default)]
    pub(super) comm_type: Option<u64>,
    #[serde(default)]
    pub(super) comm_size: Option<u64>,
    #[serde(default)]
    pub(super) pg_name: Option<String>,
    #[serde(default)]
    pub(super) comm_src: Option<u64>,
    #[serde(default)]
    pub(super) comm_dst: Option<u64>,
    #[serde(default)]
    pub(super) comm_tag: Option<u64>,
    #[serde(default)]
    pub(super) stream: Option<u64>,
    #[serde(default)]
    pub(super) root: Option<u64>,
    /// Which dimensions of the simulated network a collective goes over, where it names no group.
    #[serde(default)]
    pub(super) involved_dim: Vec<bool>,
}

/// Whether JSON is what Chakra's jsonizer writes: each message of the trace as an object, one behind the other.
pub(super) fn is_jsonized(head: &[u8]) -> bool {
    let names = [
        &b"\"COMP_NODE\""[..],
        b"\"COMM_COLL_NODE\"",
        b"\"COMM_SEND_NODE\"",
        b"\"COMM_RECV_NODE\"",
        b"\"METADATA_NODE\"",
    ];
    head.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
        && memchr::memmem::find(head, b"\"workload_graph\"").is_none()
        && names.iter().any(|name| memchr::memmem::find(head, name).is_some())
}

/// The nodes of a trace in any form.
pub(super) fn read(input: &Input) -> Result<Vec<Node>, ImportError> {
    let head = input.head(1 << 16)?;
    let nodes = if head.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        read_binary(input)?
    } else if is_jsonized(&head) {
        read_jsonized(input)?
    } else {
        read_json(input)?
    };
    if nodes.is_empty() {
        return Err(ImportError::new(&input.name, "at least one node", "none")
            .hint("the trace was being written, or its program ran nothing: convert it again"));
    }
    Ok(nodes)
}

fn read_json(input: &Input) -> Result<Vec<Node>, ImportError> {
    let mut elements = Elements::new(input.open()?, &input.name, "workload_graph");
    let mut nodes = Vec::new();
    while let Some((byte, element)) = elements.element()? {
        let node = serde_json::from_slice(element).map_err(|error| {
            ImportError::new(&input.name, "a node", error.to_string()).at(Place::Byte(byte))
        })?;
        nodes.push(node);
    }
    if elements.found {
        return Ok(nodes);
    }
    let error = ImportError::new(
        &input.name,
        "`workload_graph` of a Chakra trace in JSON",
        "a JSON document without it",
    );
    Err(error.hint(
        "PyTorch's own execution traces have no times: give them to `kineto` beside the profiler's trace",
    ))
}

fn read_binary(input: &Input) -> Result<Vec<Node>, ImportError> {
    let all = input.whole()?;
    let mut bytes = Bytes::new(&input.name, &all);
    let mut nodes = Vec::new();
    let mut first = true;
    while !bytes.is_empty() {
        let length = bytes.varint()?;
        let at = bytes.place();
        let message = bytes.take(length)?;
        if std::mem::replace(&mut first, false) {
            known_version(&input.name, at, message)?;
            continue;
        }
        nodes.push(node(&input.name, at, message)?);
    }
    Ok(nodes)
}

/// The first message says the version, where it says anything: later ones may count fields anew.
fn known_version(file: &str, at: u64, message: &[u8]) -> Result<(), ImportError> {
    let mut fields = Bytes::new(file, message);
    while let Ok(Some(field)) = fields.field() {
        if field.number == 1 {
            known(file, Place::Byte(at), &field.value.text())?;
        }
    }
    Ok(())
}

fn known(file: &str, at: Place, version: &str) -> Result<(), ImportError> {
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major <= 1) {
        return Ok(());
    }
    let found = format!("version `{}`", version.chars().take(40).collect::<String>());
    Err(ImportError::new(file, "a Chakra trace of version 0.0.4 or 1.0.0", found)
        .at(at)
        .hint("a newer Chakra wrote it: convert it with its tools, or write it as 1.0.0"))
}

fn node(file: &str, at: u64, message: &[u8]) -> Result<Node, ImportError> {
    let mut node = Node::default();
    let mut fields = Bytes::new(file, message);
    let placed = |error: ImportError| match error.place {
        Place::Byte(byte) => error.at(Place::Byte(at + byte)),
        _ => error,
    };
    while let Some(field) = fields.field().map_err(placed)? {
        match field.number {
            1 => node.id = field.value.number(),
            2 => node.name = field.value.text(),
            3 => node.kind = field.value.number(),
            4 => field.value.numbers(file, &mut node.ctrl_deps).map_err(placed)?,
            5 => field.value.numbers(file, &mut node.data_deps).map_err(placed)?,
            7 => node.micros = field.value.number(),
            10 => attribute(file, field.value.bytes(), &mut node).map_err(placed)?,
            _ => {}
        }
    }
    Ok(node)
}

/// An attribute: a name and one of many kinds of value.
fn attribute(file: &str, message: &[u8], node: &mut Node) -> Result<(), ImportError> {
    let mut fields = Bytes::new(file, message);
    let (mut name, mut number, mut text, mut list) = (String::new(), None, None, Vec::new());
    while let Some(field) = fields.field()? {
        match field.number {
            1 => name = field.value.text(),
            // int32, int64, uint32, uint64, fixed ones, bool.
            7 | 9 | 11 | 13 | 19 | 21 | 23 | 25 | 27 => number = Some(field.value.number()),
            // sint32, sint64: zigzag.
            15 | 17 => number = Some((field.value.number() >> 1) ^ (field.value.number() & 1).wrapping_neg()),
            28 => {
                let mut values = Bytes::new(file, field.value.bytes());
                let mut numbers = Vec::new();
                while let Some(value) = values.field()? {
                    if value.number == 1 {
                        value.value.numbers(file, &mut numbers)?;
                    }
                }
                list = numbers.into_iter().map(|number| number != 0).collect();
            }
            29 => text = Some(field.value.text()),
            _ => {}
        }
    }
    set(node, &name, number, text, list);
    Ok(())
}

/// Takes up an attribute by its name.
fn set(node: &mut Node, name: &str, number: Option<u64>, text: Option<String>, list: Vec<bool>) {
    match name {
        "is_cpu_op" => node.is_cpu_op = number.map(|number| number != 0),
        "comm_type" => node.comm_type = number,
        // Signed in new writers, unsigned in old ones: a negative one is no size.
        "comm_size" => node.comm_size = number.filter(|&number| i64::try_from(number).is_ok()),
        "pg_name" => node.pg_name = text.or(number.map(|number| number.to_string())),
        "comm_src" => node.comm_src = number,
        "comm_dst" => node.comm_dst = number,
        "comm_tag" => node.comm_tag = number,
        "stream" => node.stream = number,
        "root_rank" | "root" => node.root = number,
        "runtime" => node.micros = node.micros.max(number.unwrap_or(0)),
        "involved_dim" => node.involved_dim = list,
        _ => {}
    }
}

/// A number as JSON has it: the mapping of Protocol Buffers writes those of 64 bits as text.
fn json_number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(_) => value.as_u64().or_else(|| value.as_i64().map(|value| value as u64)),
        Value::String(text) => {
            text.parse().ok().or_else(|| text.parse::<i64>().ok().map(|value| value as u64))
        }
        Value::Bool(value) => Some(u64::from(*value)),
        _ => None,
    }
}

/// Names of kinds of nodes, by number.
const KINDS: [&str; 8] = [
    "INVALID_NODE",
    "METADATA_NODE",
    "MEM_LOAD_NODE",
    "MEM_STORE_NODE",
    "COMP_NODE",
    "COMM_SEND_NODE",
    "COMM_RECV_NODE",
    "COMM_COLL_NODE",
];

fn read_jsonized(input: &Input) -> Result<Vec<Node>, ImportError> {
    let bytes = input.whole()?;
    let mut objects = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>();
    let (mut nodes, mut first) = (Vec::new(), true);
    loop {
        let at = Place::Byte(objects.byte_offset() as u64);
        let Some(object) = objects.next() else { return Ok(nodes) };
        let object = object.map_err(|error| {
            ImportError::new(&input.name, "a message of the trace in JSON", error.to_string())
                .at(at.clone())
                .hint("a file that was being written is cut: write it again with Chakra's jsonizer")
        })?;
        if std::mem::replace(&mut first, false) && object["type"].is_null() && object["id"].is_null() {
            known(&input.name, at, object["version"].as_str().unwrap_or(""))?;
            continue;
        }
        let fault =
            |what: &str, found: &Value| ImportError::new(&input.name, what, found.to_string()).at(at.clone());
        let numbers = |key: &str| -> Result<Vec<u64>, ImportError> {
            let list = object[key].as_array().map_or(&[][..], Vec::as_slice);
            let number = |value| json_number(value).ok_or_else(|| fault("the id of a node", value));
            list.iter().map(number).collect()
        };
        let number = |key: &str| match &object[key] {
            Value::Null => Ok(0),
            value => json_number(value).ok_or_else(|| fault(&format!("a number as `{key}`"), value)),
        };
        let kind = &object["type"];
        let named = KINDS.iter().position(|known| kind.as_str() == Some(known)).map(|at| at as u64);
        let mut node = Node {
            id: number("id")?,
            name: object["name"].as_str().unwrap_or("").to_owned(),
            // Kinds of later schemas (`STORAGE_NODE`) are nodes that take time.
            kind: named.or_else(|| json_number(kind)).unwrap_or(0),
            ctrl_deps: numbers("ctrlDeps")?,
            data_deps: numbers("dataDeps")?,
            micros: number("durationMicros")?,
            ..Node::default()
        };
        for attribute in object["attr"].as_array().map_or(&[][..], Vec::as_slice) {
            let name = attribute["name"].as_str().unwrap_or("");
            let values = attribute.as_object().into_iter().flatten();
            let value = values.filter(|(key, _)| key.ends_with("Val")).map(|(_, value)| value).next();
            let list = attribute["boolList"]["values"].as_array().map_or(&[][..], Vec::as_slice);
            set(
                &mut node,
                name,
                value.and_then(json_number),
                attribute["stringVal"].as_str().map(str::to_owned),
                list.iter().map(|value| value.as_bool() == Some(true)).collect(),
            );
        }
        nodes.push(node);
    }
}
