//! A file in UTF-16 is called that, whoever reads it.

use std::path::Path;

use windtunnel_scenario::api::{RunRequest, explain};
use windtunnel_scenario::error::Failure;

/// `text` as PowerShell's `>` writes it, or as `iconv -t UTF-16LE` does, without a mark of the order of bytes.
fn wide(text: &str, mark: bool) -> Vec<u8> {
    let mark = if mark { "\u{feff}" } else { "" };
    mark.encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
}

fn said(folder: &Path, text: &str) -> String {
    let request = RunRequest {
        text: text.to_owned(),
        source: "a.yaml".to_owned(),
        base: folder.to_owned(),
        ..RunRequest::default()
    };
    match explain(&request) {
        Err(Failure::Input(error)) => error.to_string(),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn utf_16_is_named_in_every_file_that_a_scenario_names() {
    let folder = std::env::temp_dir().join(format!("windtunnel-wide-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a writable folder");
    let topology = "shape: clos\nhosts: 2\ntiers: [{ports_down: 2, rate: 100 Gbps, length: 5 m}]\nhost: {gpus: 1, nics: 1}\n";
    let own = format!("{{{}}}", topology.trim().replace('\n', ", "));
    let scenario = |topology: &str, workload: &str| {
        format!(
            "windtunnel: 1\nname: wide\nfidelity: flow\ntopology: {topology}\njobs: [{{name: a, workload: {{{workload}}}}}]\n"
        )
    };
    let ring = "flows: {pattern: ring, bytes: 1 MB}";
    let cases = [
        ("flows.csv", "source,destination,bytes\n0,1,1000\n", &*own, "flows: {file: flows.csv}"),
        ("topology.yaml", topology, "{file: topology.yaml}", ring),
        ("graph.csv", "src,dst,rate,latency\n", "{shape: graph, graph: {file: graph.csv}}", ring),
        (
            "model.json",
            "{\"model_type\": \"gpt2\"}",
            &own,
            "model: model.json, global_batch: 2, sequence: 64",
        ),
        ("pair.goal", "num_ranks 2\n", &own, "goal: pair.goal"),
        ("pair.jsonl", "{\"windtunnel_workload\": 1, \"ranks\": 2}\n", &own, "file: pair.jsonl"),
    ];
    for (file, text, topology, workload) in cases {
        for mark in [true, false] {
            std::fs::write(folder.join(file), wide(text, mark)).expect("a writable folder");
            let error = said(&folder, &scenario(topology, workload));
            assert!(
                error.contains("the file is in UTF-16, expected UTF-8\n\nhint: `iconv"),
                "{file}: {error}"
            );
        }
    }
    std::fs::remove_dir_all(&folder).expect("it was just made");
}
