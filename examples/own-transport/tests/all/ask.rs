//! Runs of the scenario beside this crate, with what the crate brings along.

use serde_json::Value;
use windtunnel_scenario::api::{Failure, RunRequest, run};
use windtunnel_scenario::modules::Modules;
use windtunnel_scenario::table::Discard;

const TEXT: &str = include_str!("../../scenario.yaml");

/// The summary of a run with keys changed, or the message with which it is refused.
pub fn summary(overrides: &[(&str, &str)], modules: Modules) -> Result<Value, String> {
    let request = RunRequest {
        text: TEXT.to_owned(),
        source: "scenario.yaml".to_owned(),
        overrides: overrides.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect(),
        modules,
        ..RunRequest::default()
    };
    match run(&request, &mut Discard, &mut Discard) {
        Ok(summary) => Ok(serde_json::from_str(&summary).expect("a summary is JSON")),
        Err(Failure::Input(error)) => Err(error.to_string()),
        Err(Failure::Run(_, message)) => Err(message),
        Err(Failure::Cluster(error)) => Err(error.to_string()),
    }
}

/// The same with the modules of this crate, of a run that is not refused.
pub fn own(overrides: &[(&str, &str)]) -> Value {
    summary(overrides, own_transport::modules()).expect("a run")
}

/// A number of a summary, by its JSON pointer.
pub fn number(summary: &Value, pointer: &str) -> f64 {
    summary.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} of {summary}"))
}
