//! ZeRO-3 reduces gradients in every micro-batch unless it is told otherwise, and holds its share of them.

use std::path::Path;

use serde_json::Value;
use windtunnel_scenario::api::{RunRequest, explain};

fn explained(zero: u32, batch: u32, more: &str) -> Value {
    let text = format!(
        "windtunnel: 1
name: a
fidelity: flow
topology: {{shape: clos, hosts: 4, tiers: [{{ports_down: 64, rate: 400 Gbps, length: 5 m}}],
  host: {{gpu: H100-SXM, gpus: 8, nics: 8}}}}
jobs:
  - name: a
    workload: {{model: llama3-8b, global_batch: {batch}, micro_batch: 1, sequence: 2048, training: {{framework: none, recompute: full}}}}
    parallelism: {{dp: 32, zero: {zero}{more}}}
"
    );
    let request = RunRequest {
        text,
        source: "a.yaml".to_owned(),
        base: Path::new(".").into(),
        ..RunRequest::default()
    };
    let text = explain(&request).unwrap_or_else(|failure| panic!("{failure:?}"));
    serde_json::from_str(&text).expect("JSON")
}

fn gradients(explained: &Value) -> f64 {
    explained["jobs"][0]["model"]["memory_by_pipeline_rank"][0]["gradients"].as_f64().expect("bytes")
}

#[test]
fn zero_3_reduces_in_every_micro_batch_and_others_in_the_last() {
    for (zero, default, other) in [(3, "every", "last"), (2, "last", "every")] {
        let left_out = explained(zero, 128, "");
        assert_eq!(left_out, explained(zero, 128, &format!(", reduce: {default}")), "{zero}");
        assert_ne!(left_out, explained(zero, 128, &format!(", reduce: {other}")), "{zero}");
    }
    // Accumulation takes no memory under the default, and whole gradients do.
    let (one, four) = (explained(3, 32, ""), explained(3, 128, ""));
    assert_eq!(gradients(&one), gradients(&four));
    let whole = gradients(&explained(3, 128, ", reduce: last"));
    assert!((whole / gradients(&four) - 32.0).abs() < 0.01, "{whole}");
}
