//! What a layout takes by the cost model depends on the scenario and the layout alone, not on what else was asked.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde_json::{Value, json};
use windtunnel_scenario::api::{Estimates, RunRequest};

/// A model whose first and last stage have to agree on their embedding, on GPUs of which the slowest of more is slower.
const SCENARIO: &str = "
windtunnel: 1
name: orders
fidelity: flow
topology:
  shape: clos
  hosts: 4
  tiers: [{ports_down: 16, rate: 400 Gbps, length: 5 m}]
  host: {gpu: H100-SXM, gpus: 4, nics: 4, nic: ConnectX-7}
jobs:
  - name: train
    workload: {model: ./tied.json, global_batch: 32, micro_batch: 1, sequence: 2048}
    parallelism: {tp: 2, dp: 2}
";

const TIED: &str = r#"{
    "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 8,
    "intermediate_size": 5632, "vocab_size": 32000, "tie_word_embeddings": true
}"#;

/// A folder of a test, with the model in it.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("windtunnel-estimates-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("tied.json"), TIED).unwrap();
    folder
}

fn choices() -> Vec<Value> {
    let mut found = Vec::new();
    for dp in [1, 2, 4] {
        for (schedule, chunks) in [("zbv", 2), ("1f1b", 1), ("interleaved", 2)] {
            for zero in [1, 3] {
                let schedule = if chunks == 2 {
                    json!({"name": schedule, "chunks": 2})
                } else {
                    json!({"name": schedule})
                };
                found.push(
                    json!({"parallelism": {"tp": 2, "pp": 2, "dp": dp, "zero": zero, "schedule": schedule}}),
                );
            }
        }
        found.push(json!({"parallelism": {"tp": 4, "pp": 1, "dp": dp, "zero": 1}, "micro_batch": 2}));
    }
    found
}

/// Answers to `choices`, asked of `estimates`, by their numbers.
fn answers(estimates: &Estimates, choices: &[Value], order: &[usize], at_once: usize) -> Vec<Value> {
    let asked: Vec<&Value> = order.iter().map(|&at| &choices[at]).collect();
    let mut told = Vec::new();
    estimates
        .answers(&json!({"choices": asked, "at_once": at_once}).to_string(), &mut |text| {
            let lot: Value = serde_json::from_str(text).unwrap();
            told.extend(lot["answers"].as_array().unwrap().iter().cloned());
            true
        })
        .unwrap();
    let mut found = vec![Value::Null; choices.len()];
    for (&at, answer) in order.iter().zip(told) {
        found[at] = answer;
    }
    found
}

#[test]
fn answers_do_not_depend_on_what_else_is_asked() {
    let base = folder("orders");
    let request = RunRequest {
        text: SCENARIO.to_owned(),
        source: "orders.yaml".to_owned(),
        base: base.clone(),
        ..RunRequest::default()
    };
    let estimates = |threads: usize| Estimates::new(&request, 0, false, NonZeroUsize::new(threads)).unwrap();
    let choices = choices();
    // Each by an estimator that was asked nothing before.
    let alone: Vec<Value> = choices
        .iter()
        .map(|choice| answers(&estimates(1), std::slice::from_ref(choice), &[0], 1)[0].clone())
        .collect();
    for answer in &alone {
        assert!(answer["refused"].is_null() && answer["iteration_s"].as_f64().unwrap() > 0.0, "{answer}");
    }
    let forwards: Vec<usize> = (0..choices.len()).collect();
    let backwards: Vec<usize> = forwards.iter().rev().copied().collect();
    // As from a pack of cards that is laid out in rows of three.
    let mixed: Vec<usize> =
        (0..3).flat_map(|first| forwards.iter().copied().skip(first).step_by(3)).collect();
    for threads in 1..=3 {
        for order in [&forwards, &backwards, &mixed] {
            for at_once in [1, 5, 64] {
                let together = estimates(threads);
                for _ in 0..2 {
                    assert_eq!(
                        answers(&together, &choices, order, at_once),
                        alone,
                        "{threads} threads, {order:?}"
                    );
                }
            }
        }
    }
    std::fs::remove_dir_all(base).unwrap();
}
