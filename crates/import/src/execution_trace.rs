//! PyTorch's execution traces (`ExecutionTraceObserver`, schemas 1.0.1 to 1.1.1): the operators of one process with their
//! inputs, without times.
//!
//! A collective is a node `record_param_comms`; its inputs are the tensor, a number, the group, the rank, the name, and the
//! splits of what is sent and received in rows. Below it lies a node `nccl:NAME`, as in the Kineto trace of the same run.

use serde::Deserialize;
use serde_json::Value;

use crate::coverage::{Amount, Coverage, Treatment};
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::json::Elements;
use crate::kineto::element_bytes;

/// A collective as an execution trace has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Order of its call.
    pub order: i64,
    /// `nccl:all_reduce` and the like.
    pub name: String,
    /// Bytes of its input.
    pub bytes: u64,
    /// Bytes to each member, where they were said.
    pub splits: Option<Vec<u64>>,
    /// The group, as the trace names it.
    pub group: String,
}

/// The collectives of a file.
#[derive(Clone, Debug, Default)]
pub struct ExecutionTrace {
    /// Where it was read.
    pub file: String,
    /// Its schema.
    pub schema: String,
    /// Process that wrote it.
    pub pid: Option<i64>,
    /// Its collectives in the order of their calls.
    pub calls: Vec<Logged>,
    /// Its operators.
    pub nodes: u64,
}

#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    name: String,
    #[serde(default)]
    id: i64,
    /// Up to 1.0.1 beside the rest, later among `attrs`.
    rf_id: Option<i64>,
    /// 1.0.1 has it as a number, later `ctrl_deps` is the parent.
    #[serde(default)]
    inputs: Value,
    #[serde(default)]
    input_types: Value,
    #[serde(default)]
    attrs: Vec<Value>,
}

/// Reads one file.
///
/// # Errors
/// [`ImportError`]: no execution trace, damaged, or cut.
pub fn read(input: &Input, coverage: &mut Coverage) -> Result<ExecutionTrace, ImportError> {
    let mut elements = Elements::new(input.open()?, &input.name, "nodes");
    let mut trace = ExecutionTrace { file: input.name.clone(), ..ExecutionTrace::default() };
    let mut others = Amount::default();
    while let Some((byte, element)) = elements.element()? {
        trace.nodes += 1;
        if memchr::memmem::find(element, b"record_param_comms").is_none() {
            others.operations += 1;
            continue;
        }
        let node: Node = serde_json::from_slice(element).map_err(|error| {
            ImportError::new(&input.name, "a node of an execution trace", error.to_string())
                .at(Place::Byte(byte))
        })?;
        match logged(&node) {
            Some(call) => trace.calls.push(call),
            None => others.operations += 1,
        }
    }
    let text = |key: &str| elements.member(key).and_then(|text| serde_json::from_slice::<Value>(text).ok());
    trace.schema =
        text("schema").map(|schema| schema.as_str().unwrap_or_default().to_owned()).unwrap_or_default();
    trace.pid = text("pid").and_then(|pid| pid.as_i64());
    if !elements.found || trace.schema.is_empty() {
        return Err(ImportError::new(
            &input.name,
            "`schema` and `nodes` of an execution trace",
            "a JSON document without them",
        ));
    }
    if !trace.schema.starts_with("1.") {
        let found = format!("schema `{}`", trace.schema.chars().take(40).collect::<String>());
        return Err(ImportError::new(&input.name, "an execution trace of schema 1.0.1 to 1.1.1", found)
            .hint("a newer PyTorch wrote it: import the Kineto traces without it"));
    }
    trace.calls.sort_by_key(|call| call.order);
    coverage.add(
        "operator of an execution trace",
        Treatment::Mapped,
        "says sizes of collectives; has no times",
        others,
    );
    Ok(trace)
}

/// The collective of a node; `None` for a wait.
fn logged(node: &Node) -> Option<Logged> {
    if node.name != "record_param_comms" {
        return None;
    }
    // From 1.0.2 on, inputs are `{"values": […], "types": […]}`.
    let values = node.inputs.as_array().or_else(|| node.inputs.get("values")?.as_array())?;
    let types = node.input_types.as_array().or_else(|| node.inputs.get("types")?.as_array())?;
    let at = values
        .iter()
        .position(|value| value.as_str().is_some_and(|name| crate::kineto::kind_of(name).is_some()))?;
    let name = values[at].as_str()?;
    let order = node.rf_id.or_else(|| {
        let attribute = node.attrs.iter().find(|attribute| attribute["name"] == "rf_id")?;
        attribute["value"].as_i64()
    });
    let mut bytes = 0u64;
    let mut tensors = |value: &Value, of: &str| {
        // [tensor id, storage id, offset, elements, bytes of an element, device]
        if let (true, Some(list)) = (of.contains("Tensor"), value.as_array()) {
            let several = list.first().is_some_and(Value::is_array);
            let each: Vec<&Value> = if several { list.iter().collect() } else { vec![value] };
            for tensor in each {
                let number = |index: usize| tensor.get(index).and_then(Value::as_u64);
                let size = number(4).or_else(|| element_bytes(of)).unwrap_or(0);
                bytes = bytes.saturating_add(number(3).unwrap_or(0).saturating_mul(size));
            }
        }
    };
    for (value, of) in values.iter().zip(types).take(at) {
        tensors(value, of.as_str().unwrap_or_default());
    }
    let list = |index: usize| -> Option<Vec<u64>> {
        values.get(index)?.as_array()?.iter().map(Value::as_u64).collect()
    };
    let splits = list(at + 1).filter(|splits| !splits.is_empty()).and_then(|splits| {
        let rows = splits.iter().fold(0u64, |sum, part| sum.saturating_add(*part));
        let part = |part: &u64| (u128::from(*part) * u128::from(bytes) / u128::from(rows.max(1))) as u64;
        (rows > 0).then(|| splits.iter().map(part).collect())
    });
    let group = values[1.min(at)..at]
        .iter()
        .find_map(|value| value.as_array().and_then(|pair| Some(pair.first()?.as_str()?.to_owned())));
    let library = format!("nccl:{name}");
    Some(Logged {
        order: order.unwrap_or(node.id),
        name: library,
        bytes,
        splits,
        group: group.unwrap_or_default(),
    })
}
