//! The hash of a run covers every file and sheet that decides it, whatever it is for, wherever the folder stands.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};
use windtunnel_scenario::api::{RunRequest, run};
use windtunnel_scenario::table::Discard;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data");

/// Files of a folder that scenarios name, and one that none does.
fn files() -> Vec<(&'static str, String)> {
    let sheet = |name: &str| fs::read_to_string(format!("{DATA}/{name}.yaml")).expect(name);
    let topology = "shape: clos\nhosts: 4\ntiers: [{ports_down: 4, rate: 100 Gbps, length: 5 m}]\n\
                    host: {gpu: ../sheets/gpu.yaml, gpus: 2, nics: 1, nic: ../sheets/nic.yaml}\n";
    let model = r#"{"model_type": "gpt2", "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 512}"#;
    [
        ("parts/topology.yaml", topology.to_owned()),
        ("sheets/gpu.yaml", sheet("gpus/h100-sxm")),
        ("sheets/nic.yaml", sheet("nics/connectx-7")),
        ("model.json", model.to_owned()),
        ("kernels.csv", "kernel,m,n,k,dtype,time\ngemm,64,128,128,bf16,9 us\n".to_owned()),
        ("flows.csv", "source,destination,bytes\n0,1,1000\n2,3,5000\n".to_owned()),
        ("flows.cm", "Nodes 4\nConnections 1\n0->1 start 0 size 1000\n".to_owned()),
        (
            "ring.goal",
            "num_ranks 2\nrank 0 {\nl0: send 100b to 1 tag 1\n}\nrank 1 {\nl0: recv 100b from 0 tag 1\n}\n"
                .to_owned(),
        ),
        (
            "jobs.csv",
            "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:00:00,100,2,200,a\n".to_owned(),
        ),
        ("faults.csv", "time_s,component,repair_s\n10,host0,5\n".to_owned()),
        ("unnamed.csv", "source,destination,bytes\n0,1,1000\n".to_owned()),
    ]
    .map(|(name, text)| (name, text))
    .into()
}

const TOPOLOGY: &str = "topology: {file: parts/topology.yaml}";

/// Scenarios and the files that each depends on.
fn scenarios() -> Vec<(String, &'static str, &'static [&'static str])> {
    const FABRIC: [&str; 3] = ["parts/topology.yaml", "sheets/gpu.yaml", "sheets/nic.yaml"];
    let own = |fidelity: &str, rest: &str| {
        format!("windtunnel: 1\nname: a\nfidelity: {fidelity}\n{TOPOLOGY}\n{rest}\n")
    };
    let job = |workload: &str| format!("jobs: [{{name: a, workload: {{{workload}}}}}]");
    let model =
        "model: model.json, global_batch: 4, micro_batch: 1, sequence: 64, training: {profile: kernels.csv}";
    vec![
        (own("flow", &job("flows: {file: flows.csv}")), "flows.csv", &FABRIC),
        (own("packet", &job("flows: {file: flows.cm}")), "flows.cm", &FABRIC),
        (own("message", &job("goal: ring.goal")), "ring.goal", &FABRIC),
        (
            own("flow", &format!("jobs: [{{name: a, workload: {{{model}}}, parallelism: {{dp: 2}}}}]")),
            "model.json",
            &FABRIC,
        ),
        (
            own("job", &format!("jobs: [{{name: a, workload: {{{model}}}, parallelism: {{dp: 2}}}}]")),
            "kernels.csv",
            &FABRIC,
        ),
        (own("job", "jobs: {log: jobs.csv, format: philly}"), "jobs.csv", &FABRIC),
        (
            own("job", "jobs: [{name: a, gpus: 2, duration: 60 s}]\ncluster: {faults: [{log: faults.csv}]}"),
            "faults.csv",
            &FABRIC,
        ),
    ]
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("inputs-{name}"));
    for (name, text) in files() {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder can be made");
        fs::write(path, text).expect("a file can be written");
    }
    folder
}

fn summary(text: &str, base: &Path) -> Value {
    let request = RunRequest {
        text: text.to_owned(),
        source: "a.yaml".to_owned(),
        base: base.to_owned(),
        ..RunRequest::default()
    };
    let summary =
        run(&request, &mut Discard, &mut Discard).unwrap_or_else(|failure| panic!("{text}\n{failure:?}"));
    serde_json::from_str(&summary).expect("a summary is JSON")
}

fn hash(text: &str, base: &Path) -> String {
    summary(text, base)["scenario_sha256"].as_str().expect("a hash").to_owned()
}

/// Bytes that change nothing but the file: a space at the end of a line, or an empty line.
fn touch(path: &Path) {
    let mut text = fs::read_to_string(path).expect("it is there");
    text.push('\n');
    fs::write(path, text).expect("a file can be written");
}

#[test]
fn every_file_that_decides_a_result_is_in_its_hash() {
    let (here, there) = (folder("here"), folder("there"));
    let mut seen = BTreeSet::new();
    for (text, own, others) in scenarios() {
        let before = hash(&text, &here);
        assert_eq!(hash(&text, &here), before, "the same twice");
        assert_eq!(hash(&text, &there), before, "the same in another folder");
        seen.insert(before.clone());
        for (name, contents) in files() {
            touch(&here.join(name));
            let after = hash(&text, &here);
            let named = text.contains(name) || others.contains(&name);
            assert_eq!(after != before, named, "{name} of\n{text}");
            assert!(named || name != own);
            fs::write(here.join(name), contents).expect("a file can be written");
        }
        assert_eq!(hash(&text, &here), before, "as it was");
    }
    assert_eq!(seen.len(), scenarios().len());
}

/// Data sheets that come with the engine count by their contents, and the summary names all that was read: the constants of
/// NCCL and of dispatchers, whichever they are, and a model's bands of error.
#[test]
fn the_summary_names_what_was_read() {
    let here = folder("named");
    let read = |network: &str, job: &str| {
        let text = format!(
            "windtunnel: 1\nname: a\nfidelity: flow\ntopology: {{shape: clos, hosts: 4, tiers: [{{ports_down: 4, rate: \
             100 Gbps, length: 5 m}}], host: {{gpu: H100-SXM, gpus: 2, nics: 1}}}}\nnetwork: {{{network}}}\njobs: \
             [{{name: a, {job}}}]\n"
        );
        summary(&text, &here)["inputs"].clone()
    };
    let named = |inputs: &Value| -> Vec<String> {
        let names = inputs.as_array().expect("a list").iter().filter_map(|input| input["name"].as_str());
        names.map(str::to_owned).collect()
    };
    // Its collectives, if it had any, would be NCCL's.
    let flows = read("", "workload: {flows: {file: flows.csv}}");
    assert_eq!(
        named(&flows),
        ["data/dispatchers/deepep", "data/gpus/h100-sxm", "data/nccl/pools", "flows.csv"]
    );
    // echo -ne "source,destination,bytes\n0,1,1000\n2,3,5000\n" | sha256sum
    assert_eq!(flows[3]["sha256"], "b503f68039b7eef412c72a82ddcc568dc41fd5fddfe027cee69cefbc06510f7c");
    // sha256sum data/nccl/pools.json
    let pools = fs::read(format!("{DATA}/nccl/pools.json")).expect("it is there");
    assert_eq!(flows[2]["sha256"], windtunnel_plan::inputs::hex(Sha256::digest(pools)));

    let model =
        "workload: {model: model.json, global_batch: 8, micro_batch: 1, sequence: 64}, parallelism: {dp: 8}";
    assert_eq!(
        named(&read("", model)),
        [
            "data/dispatchers/deepep",
            "data/errors/training",
            "data/frameworks/megatron",
            "data/gpus/h100-sxm",
            "data/nccl/pools",
            "model.json"
        ]
    );
    let collective = "workload: {collective: {kind: all_reduce, bytes: 1 MB}}";
    assert_eq!(
        named(&read("collectives: {system: moc-h100}", collective)),
        ["data/dispatchers/deepep", "data/gpus/h100-sxm", "data/nccl/moc-h100", "data/systems/moc-h100"]
    );
}
