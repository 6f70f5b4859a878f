//! The scenario beside this crate, with the endpoint that it names.

use probing_endpoint::modules;
use serde_json::Value;
use windtunnel_scenario::api::{Failure, RunRequest, names, run};
use windtunnel_scenario::table::Discard;

fn summary(overrides: &[(&str, &str)]) -> Result<Value, String> {
    let request = RunRequest {
        text: include_str!("../scenario.yaml").to_owned(),
        source: "scenario.yaml".to_owned(),
        overrides: overrides.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect(),
        modules: modules(),
        ..RunRequest::default()
    };
    match run(&request, &mut Discard, &mut Discard) {
        Ok(summary) => Ok(serde_json::from_str(&summary).expect("a summary is JSON")),
        Err(Failure::Input(error)) => Err(error.to_string()),
        Err(Failure::Run(_, message)) => Err(message),
        Err(Failure::Cluster(error)) => Err(error.to_string()),
    }
}

fn number(summary: &Value, pointer: &str) -> f64 {
    summary.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} of {summary}"))
}

#[test]
fn it_is_faster_than_blind_sending() {
    let (probed, blind) = (summary(&[]), summary(&[("network.parameters", "{probes: 0}")]));
    let [probed, blind] = [probed, blind].map(|found| number(&found.expect("a run"), "/flows/fct_mean_s"));
    assert!(probed < 0.9 * blind, "{probed} s, blindly {blind} s");
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let error = summary(&[("network.parameters", "{probe: 1}")]).expect_err("refused");
    assert!(error.contains("unknown parameter `probe`"), "{error}");
    let listed = names("transports", &modules()).expect("a kind of name");
    assert_eq!(listed[0].0, "probing");
}
