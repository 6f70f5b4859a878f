//! A plan is a value: it is set as a whole, packed for the engine that made it, and known by the code that it brings along.

use std::path::Path;

use windtunnel_cluster::scheduler::{Options, Scheduler, by_name};
use windtunnel_kernel::Span;
use windtunnel_scenario::api::{Failure, Planned, RunRequest, build};
use windtunnel_scenario::modules::Modules;

/// Eight GPUs and a job that takes them all.
fn request() -> RunRequest {
    let model = r#"{"model_type": "gpt2", "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 512}"#;
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planned");
    std::fs::create_dir_all(&base).expect("a folder can be made");
    std::fs::write(base.join("model.json"), model).expect("a file can be written");
    RunRequest {
        text: "
windtunnel: 1
name: planned
fidelity: message
topology:
  shape: clos
  hosts: 4
  tiers: [{ports_down: 4, rate: 100 Gbps, length: 5 m}]
  host: {gpu: H100-SXM, gpus: 2, nics: 1}
jobs:
  - name: a
    workload: {model: model.json, global_batch: 8, micro_batch: 1, sequence: 64}
    parallelism: {dp: 8}
"
        .to_owned(),
        source: "a.yaml".to_owned(),
        base,
        ..RunRequest::default()
    }
}

fn changes<const N: usize>(of: [(&str, &str); N]) -> Vec<(String, String)> {
    of.map(|(key, value)| (format!("jobs[0].parallelism.{key}"), value.to_owned())).into()
}

#[test]
fn keys_that_are_right_only_together_are_set_together() {
    let planned = Planned::of(request()).expect("a plan");
    let [(key, value), _] = changes([("tp", "2"), ("dp", "4")]).try_into().expect("two");
    assert!(planned.clone().set(&key, &value).is_err(), "16 ranks on 8 GPUs");
    let mut both = planned.clone();
    both.set_all(&changes([("tp", "2"), ("dp", "4")])).expect("8 ranks on 8 GPUs");
    let overrides = changes([("tp", "2"), ("dp", "4")]);
    let written = Planned::of(RunRequest { overrides, ..request() }).expect("a plan");
    assert_eq!(both.digest(), written.digest());
    assert_ne!(both.digest(), planned.digest());

    let mut refused = planned.clone();
    refused.set_all(&changes([("tp", "2"), ("dp", "4"), ("pp", "many")])).expect_err("no number");
    assert_eq!(refused.digest(), planned.digest());
    assert_eq!(refused.scenario().ok(), planned.scenario().ok());
}

/// Its constants and code decide figures as much as the scenario does.
#[test]
fn what_another_build_has_packed_is_refused() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unpacked");
    let packed = Planned::of(request()).expect("a plan").pack().expect("bytes");
    let text = String::from_utf8(packed).expect("a scenario and a model are text");
    assert!(text.contains(build()), "{text}");
    let unpack = |text: &str| Planned::unpack(text.as_bytes(), &folder, RunRequest::default());
    assert!(unpack(&text).is_ok());
    for (text, said) in [
        (text.replace(build(), "9.9.9"), "build `9.9.9` of the engine packed it"),
        (text.replace("\"build\":", "\"built\":"), "expected a plan that this version packed"),
    ] {
        match unpack(&text) {
            Err(Failure::Input(error)) => assert!(error.to_string().contains(said), "{error}"),
            _ => panic!("expected a refusal that says {said}"),
        }
    }
}

/// A program's scheduler, transport or stage is code, which no text of the scenario tells from another of its name.
#[test]
fn modules_of_a_program_count_by_its_file_or_by_what_they_say() {
    let easy = || -> Box<dyn Scheduler> {
        let options = Options { endpoints: 8, slice: Span::from_us(1), rows: 2 };
        by_name("easy", &options).expect("a built-in one")
    };
    let with = |modules: Modules, policies: &str| {
        let request = RunRequest { modules, policies: policies.to_owned(), ..request() };
        Planned::of(request).expect("a plan").sha256().to_owned()
    };
    let own = Modules::default().scheduler(easy);
    let none = with(Modules::default(), "");
    assert_eq!(with(Modules::default().identified_by("one"), ""), none, "there are none");
    let hashes = [
        none,
        with(own.clone(), ""),
        with(own.clone().identified_by("one"), ""),
        with(own.clone().identified_by("two"), ""),
        with(own.clone(), "told otherwise"),
    ];
    for (index, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..index].contains(hash), "{index}");
    }
    assert_eq!(with(own.clone(), ""), hashes[1], "the same program");
    assert_eq!(with(own.identified_by("one"), "told otherwise"), hashes[4], "policies are told otherwise");
}
