//! The scenario beside this crate, with the endpoint that it names.

use path_health::modules;
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
fn it_sends_less_again_than_one_that_heeds_no_losses() {
    let (healthy, blind) = (summary(&[]), summary(&[("network.parameters", "{out_us: 0}")]));
    let [healthy, blind] = [healthy, blind].map(|found| found.expect("a run"));
    for found in [&healthy, &blind] {
        assert_eq!(number(found, "/network/bytes_delivered"), 16.0 * 8e6);
    }
    let again = |found: &Value| number(found, "/network/retransmissions");
    assert!(again(&healthy) < 0.7 * again(&blind), "{} and {}", again(&healthy), again(&blind));
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let error = summary(&[("network.parameters", "{out: 1}")]).expect_err("refused");
    assert!(error.contains("unknown parameter `out`"), "{error}");
    let listed = names("transports", &modules()).expect("a kind of name");
    assert_eq!(listed[0].0, "path_health");
}
