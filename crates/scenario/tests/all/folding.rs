//! Folded replicas equal simulated ones, and fold only where they are equal.

use serde_json::Value;
use windtunnel_scenario::api::{RunRequest, run};
use windtunnel_scenario::table::Discard;

/// Llama-3-8B on 8 hosts of 8 GPUs in two leaf groups; `dp` is the outermost or the innermost dimension but one.
fn summary(overrides: &[(&str, &str)]) -> Value {
    let text = "
windtunnel: 1
name: folding
fidelity: flow
topology:
  shape: clos
  hosts: 8
  tiers:
    - {ports_down: 4, rate: 400 Gbps, length: 30 m}
    - {ports_down: 32, rate: 400 Gbps, length: 100 m}
  host: {gpu: H100-SXM, gpus: 8, nics: 8, nic: ConnectX-7, rails: true}
network: {load_balancer: spray}
jobs:
  - name: train
    workload: {model: llama3-8b, global_batch: 32, sequence: 4096, training: {framework: none}}
    parallelism: {tp: 4, pp: 4, dp: 4, zero: 1, schedule: {name: interleaved, chunks: 2}}
    iterations: 2
";
    let overrides = overrides.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect();
    let request = RunRequest {
        text: text.to_owned(),
        source: "folding.yaml".to_owned(),
        overrides,
        ..RunRequest::default()
    };
    let summary = run(&request, &mut Discard, &mut Discard).unwrap();
    serde_json::from_str(&summary).unwrap()
}

/// What must not depend on folding.
fn figures(summary: &Value) -> Value {
    let job = &summary["jobs"][0];
    ["iteration_time_s", "compute_s", "exposed_s", "bubble_s", "straggler_s", "host_s", "finish_s"]
        .into_iter()
        .map(|key| job[key].clone())
        .collect()
}

#[test]
fn a_folded_run_equals_an_unfolded_one() {
    // Replicas between the hosts of a pipeline; pipelines between the hosts of a replica group; two replicas in a host, whose
    // gradients go round in several rings, or by two levels.
    let orders = [
        ("[tp, cp, ep, pp, dp]", "4", "4", "auto"),
        ("[tp, cp, ep, dp, pp]", "8", "2", "auto"),
        ("[tp, cp, ep, dp, pp]", "4", "4", "auto"),
        ("[tp, cp, ep, dp, pp]", "4", "4", "hierarchical"),
    ];
    for (order, tp, pp, algorithm) in orders {
        for balancer in ["spray", "ideal"] {
            for zero in ["0", "1", "3"] {
                let with = |fold: &'static str| {
                    summary(&[
                        ("jobs[0].parallelism.order", order),
                        ("jobs[0].parallelism.tp", tp),
                        ("jobs[0].parallelism.pp", pp),
                        ("jobs[0].parallelism.zero", zero),
                        ("jobs[0].parallelism.collectives.dp.algorithm", algorithm),
                        ("network.load_balancer", balancer),
                        ("fold", fold),
                    ])
                };
                let (folded, whole) = (with("auto"), with("off"));
                assert_eq!(
                    (folded["fold"].clone(), whole["fold"].clone()),
                    (4.into(), 1.into()),
                    "{order} {zero} {algorithm}"
                );
                assert_eq!(
                    figures(&folded),
                    figures(&whole),
                    "{order}, {balancer}, zero {zero}, {algorithm}"
                );
                assert!(folded["events"].as_u64() < whole["events"].as_u64());
            }
        }
    }
}

#[test]
fn replicas_that_differ_are_not_folded() {
    let fold = |overrides: &[(&str, &str)]| summary(overrides)["fold"].clone();
    // Hashed paths collide differently in every replica.
    assert_eq!(fold(&[("network.load_balancer", "ecmp")]), 1);
    // So does noise, and a slow host or NIC is in one of them only.
    assert_eq!(fold(&[("variation.kernel_noise", "{distribution: normal, cv: 0.03}")]), 1);
    assert_eq!(fold(&[("variation.speeds", "[{host: 1, speed: 0.9}]")]), 1);
    assert_eq!(fold(&[("variation.nics", "[{host: 1, rate: 0.5}]")]), 1);
    // Equal parts over an oversubscribed fabric can still exceed it.
    assert_eq!(fold(&[("topology.tiers[0].oversubscription", "2")]), 1);
    // Halving and doubling goes by steps.
    let levels = [
        ("jobs[0].parallelism.order", "[tp, cp, ep, dp, pp]"),
        ("jobs[0].parallelism.zero", "0"),
        ("jobs[0].parallelism.collectives.dp.algorithm", "recursive"),
    ];
    assert_eq!(fold(&levels), 1);
}

#[test]
fn replicas_that_cross_leaf_groups_are_a_class_of_their_own() {
    // Pipelines of two hosts: in leaf groups of four none crosses, in groups of three that of hosts 2 and 3 does. The two
    // classes are simulated, each by its first pipeline.
    for zero in ["0", "1", "3"] {
        let with = |ports: &'static str, fold: &'static str| {
            summary(&[
                ("jobs[0].parallelism.tp", "8"),
                ("jobs[0].parallelism.pp", "2"),
                ("jobs[0].parallelism.order", "[tp, cp, ep, pp, dp]"),
                ("jobs[0].parallelism.zero", zero),
                ("topology.tiers[0].ports_down", ports),
                ("fold", fold),
            ])
        };
        let (alike, folded, whole) = (with("4", "auto"), with("3", "auto"), with("3", "off"));
        let folds = [&alike, &folded, &whole].map(|summary| summary["fold"].clone());
        assert_eq!(folds, [4, 2, 1].map(Value::from), "zero {zero}");
        assert_eq!(figures(&folded), figures(&whole), "zero {zero}");
        assert!(folded["events"].as_u64() < whole["events"].as_u64());
    }
}
