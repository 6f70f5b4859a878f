//! Every shape from its keys to checked routes, and runs on fabrics of which parts have failed.

use std::path::Path;

use serde_json::{Value, json};
use windtunnel_scenario::api::{self, Failure, RunRequest, Why};
use windtunnel_scenario::table::Discard;

const HOST: &str = "host: {}\n";

/// Keys of small fabrics with their hosts, switches and cables.
const SHAPES: [(&str, [u64; 3]); 12] = [
    (
        "shape: clos\nhosts: 8\ntiers: [{ports_down: 4, rate: 100 Gbps, switch_latency: 1 us}, {ports_down: 2, rate: 100 Gbps}]\n",
        [8, 6, 16],
    ),
    ("shape: fat-tree\nk: 4\nrate: 100 Gbps\nlength: 10 m\n", [16, 20, 48]),
    // 3 cables a router, two routers a cable, and one to the host.
    (
        "shape: torus\nnic_link: {rate: 1 Tbps}\ndimensions: [{size: 3, rate: 100 Gbps}, {size: 4, rate: 100 Gbps}, {size: 5, rate: 100 Gbps}]\n",
        [60, 60, 240],
    ),
    (
        "shape: mesh\nrouting: minimal-adaptive\nnic_link: {rate: 1 Tbps}\ndimensions: [{size: 3, rate: 100 Gbps}, {size: 4, rate: 100 Gbps}]\n",
        [12, 12, 29],
    ),
    // g = a h + 1 groups of a routers: a (a - 1) / 2 cables in each, and one between any two.
    (
        "shape: dragonfly\nnic_link: {rate: 100 Gbps}\ngroups: 9\nrouters: 4\nglobal_links: 2\nhosts_per_router: 2\nlocal: {rate: 100 Gbps}\nglobal: {rate: 100 Gbps, length: 50 m}\n",
        [72, 36, 162],
    ),
    (
        "shape: dragonfly\nrouting: valiant\nnic_link: {rate: 100 Gbps}\ngroups: 5\nrouters: 2\nglobal_links: 2\nlocal: {rate: 100 Gbps}\nglobal: {rate: 100 Gbps}\n",
        [10, 10, 25],
    ),
    (
        "shape: dragonfly-plus\nnic_link: {rate: 100 Gbps}\ngroups: 5\nleaves: 2\nspines: 2\nglobal_links: 2\nlocal: {rate: 100 Gbps}\nglobal: {rate: 100 Gbps}\n",
        [10, 20, 40],
    ), // Rows of 4 and columns of 3, each a full mesh: 3 · 6 + 4 · 3 cables, doubled in the rows.
    (
        "shape: hyperx\nnic_link: {rate: 100 Gbps}\ndimensions: [{size: 3, rate: 100 Gbps}, {size: 4, links: 2, rate: 100 Gbps}]\n",
        [12, 12, 60],
    ),
    (
        "shape: full-mesh\nrouting: one-detour\nnic_link: {rate: 100 Gbps}\ndimensions: [{size: 4, rate: 100 Gbps}, {size: 3, rate: 100 Gbps}]\n",
        [12, 12, 42],
    ),
    // Two leaves under two spines in each of three buildings, and cables between any two of them.
    (
        "shape: regions\nbuildings:\n  - {name: a, hosts: 8, tiers: [{ports_down: 4, rate: 100 Gbps}, {ports_down: 2, oversubscription: 1, rate: 200 Gbps}]}\n  - {name: b, hosts: 8, tiers: [{ports_down: 4, rate: 100 Gbps}, {ports_down: 2, rate: 200 Gbps}]}\n  - {name: c, region: far, hosts: 8, tiers: [{ports_down: 4, rate: 100 Gbps}, {ports_down: 2, rate: 200 Gbps}]}\ncross:\n  - {between: [a, b], count: 4, rate: 400 Gbps, length: 2 km}\n  - {between: [a, c], count: 2, rate: 400 Gbps, length: 80 km, loss: 1.0e-6}\n  - {between: [b, c], count: 2, rate: 400 Gbps, length: 100 km}\n",
        [24, 12, 44],
    ),
    // 16 servers that forward, 8 switches of 4 ports.
    ("shape: bcube\nports: 4\nlevels: 2\nlink: {rate: 100 Gbps}\n", [16, 24, 48]),
    // 4 boards of 4, each with 4 cables inside and 8 to switches: two rows of two boards make 4 rows of accelerators.
    (
        "shape: hamming-mesh\nboard: [2, 2]\nboards: [2, 2]\nboard_link: {rate: 100 Gbps}\nswitch_link: {rate: 100 Gbps}\n",
        [16, 24, 64],
    ),
];

fn ask(text: &str, request: &Value) -> Value {
    let answer = api::topology(text, "a.yaml", Path::new("."), &request.to_string());
    serde_json::from_str(&answer.unwrap_or_else(|error| panic!("{text}: {error:?}"))).expect("JSON")
}

#[test]
fn every_shape_has_its_parts_and_routes_that_a_search_finds_too() {
    for (keys, [hosts, switches, cables]) in SHAPES {
        let text = format!("{keys}{HOST}");
        let answer = ask(&text, &json!({"check": true, "analyse": true, "draw": true}));
        let found =
            [&answer["hosts"], &answer["switches"], &answer["cables"]].map(|count| count.as_u64().unwrap());
        assert_eq!(found, [hosts, switches, cables], "{keys}");
        let check = &answer["check"];
        assert_eq!(check["ok"], json!(true), "{keys}{check:#}");
        assert_eq!(check["pairs"]["legal"], check["pairs"]["compared"], "{keys}");
        let counted = |rows: &Value| -> u64 {
            rows.as_array().unwrap().iter().map(|row| row["count"].as_u64().unwrap()).sum()
        };
        assert_eq!(counted(&answer["analysis"]["cables"]), cables, "{keys}");
        assert_eq!(counted(&answer["drawing"]["cables"]), cables, "{keys}");
        let most = answer["analysis"]["hops"]["max"].as_u64().unwrap();
        assert_eq!(most + 1, answer["diameter_links"].as_u64().unwrap(), "{keys}");
    }
}

#[test]
fn routes_around_faults_are_those_of_a_search() {
    for (keys, _) in SHAPES {
        let text = format!("{keys}{HOST}");
        let drawing = ask(&text, &json!({"draw": true}))["drawing"].clone();
        // Every seventh switch that has no host loses its first cable to another switch.
        let names =
            |id: &Value| drawing["nodes"][id.as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned();
        let fabric: Vec<&Value> =
            drawing["cables"].as_array().unwrap().iter().filter(|cable| cable["tier"] != "nic").collect();
        let fail: Vec<String> = fabric
            .iter()
            .step_by(7)
            .map(|cable| format!("link:{} -> {}", names(&cable["a"]), names(&cable["b"])))
            .collect();
        for detour in ["allow", "forbid"] {
            let answer = ask(&text, &json!({"check": true, "fail": fail, "detour": detour}));
            let check = &answer["check"];
            assert_eq!(check["ok"], json!(true), "{keys}{check:#}");
            let count = |key: &str| check["pairs"][key].as_u64().unwrap();
            assert_eq!(count("legal") + count("detour") + count("unreachable"), count("compared"));
        }
    }
}

fn run(text: &str, overrides: &[(&str, &str)]) -> Result<Value, Failure> {
    let request = RunRequest {
        text: text.to_owned(),
        source: "a.yaml".to_owned(),
        overrides: overrides.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect(),
        ..RunRequest::default()
    };
    let summary = api::run(&request, &mut Discard, &mut Discard)?;
    Ok(serde_json::from_str(&summary).expect("JSON"))
}

/// A ring around the one dimension of a mesh: all but its last edge are single hops, that one goes back all the way.
const LINE: &str = "
windtunnel: 1
name: line
fidelity: flow
topology:
  shape: torus
  dimensions: [{size: 8, rate: 100 Gbps, length: 20 m}]
  nic_link: {rate: 100 Gbps}
  switch: {latency: 0 ns}
  host: {}
jobs:
  - name: a
    workload: {collective: {kind: all_reduce, algorithm: ring, bytes: 1 MiB}}
";

#[test]
fn a_run_goes_around_a_failed_cable_and_counts_the_detours() {
    let failed = "topology.failed=[router0 -> router1]".split_once('=').unwrap();
    for fidelity in ["flow", "message"] {
        let fidelity = ("fidelity", fidelity);
        let whole = run(LINE, &[fidelity]).unwrap();
        let around = run(LINE, &[fidelity, failed]).unwrap();
        assert_eq!(whole["network"]["detoured_pairs"], Value::Null);
        let detoured = around["network"]["detoured_pairs"].as_u64().unwrap();
        assert!(detoured > 0, "{around:#}");
        let first = around["network"]["detoured"][0].as_array().unwrap();
        assert_eq!(first, &[json!("host0/gpu0"), json!("host1/gpu0")]);
        let time = |summary: &Value| summary["jobs"][0]["iteration_time_s"]["mean"].as_f64().unwrap();
        assert!(time(&around) > time(&whole), "{} {}", time(&around), time(&whole));
        // The ideal fabric does not know of the fault.
        assert_eq!(whole["jobs"][0]["ideal_iteration_time_s"], around["jobs"][0]["ideal_iteration_time_s"]);
        let forbidden = run(LINE, &[fidelity, failed, ("topology.detour", "forbid")]);
        let Err(Failure::Run(Why::CutOff, message)) = forbidden else {
            panic!("expected no path, found {forbidden:?}")
        };
        assert!(
            message.starts_with("no path from `host0/gpu0` to `host1/gpu0` is left by what has `failed`"),
            "{message}"
        );
    }
}

#[test]
fn at_message_fidelity_a_message_takes_as_long_as_its_path() {
    let text =
        LINE.replace("{collective: {kind: all_reduce, algorithm: ring, bytes: 1 MiB}}", "{goal: pair.goal}");
    let folder = std::env::temp_dir().join(format!("windtunnel-shapes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut times = Vec::new();
    for to in 1..5 {
        let idle: String = (1..5)
            .filter(|rank| *rank != to)
            .fold(String::new(), |text, rank| text + &format!("rank {rank} {{\n}}\n"));
        let goal = format!(
            "num_ranks 5\nrank 0 {{\nl1: send 1b to {to} tag 1\n}}\nrank {to} {{\nl1: recv 1b from 0 tag 1\n}}\n{idle}"
        );
        std::fs::write(folder.join("pair.goal"), goal).unwrap();
        let request = RunRequest {
            text: text.replace("fidelity: flow", "fidelity: message"),
            source: "a.yaml".to_owned(),
            base: folder.clone(),
            ..RunRequest::default()
        };
        let summary: Value =
            serde_json::from_str(&api::run(&request, &mut Discard, &mut Discard).unwrap()).unwrap();
        times.push(summary["jobs"][0]["iteration_time_s"]["mean"].as_f64().unwrap());
    }
    std::fs::remove_dir_all(&folder).unwrap();
    // 20 m are 100 ns.
    let hops: Vec<f64> = times.windows(2).map(|pair| ((pair[1] - pair[0]) * 1e12).round()).collect();
    assert_eq!(hops, [100_000.0; 3], "{times:?}");
}

/// Two racks of 18 hosts of 4 GPUs, each one scale-up domain of 72, under a Clos.
const NVL72: &str = "
windtunnel: 1
name: nvl72
fidelity: flow
topology:
  shape: clos
  hosts: 36
  tiers: [{ports_down: 18, rate: 400 Gbps, length: 5 m}, {ports_down: 8, rate: 400 Gbps, length: 30 m}]
  host: {gpu: GB200, gpus: 4, nics: 4, nic: ConnectX-7, rails: true, scale_up: {size: 72}}
jobs:
  - name: a
    workload: {collective: {kind: all_reduce, algorithm: ring, bytes: 64 MiB, ranks: 72}}
";

#[test]
fn a_rack_is_one_scale_up_domain_over_many_hosts() {
    let inside = run(NVL72, &[]).unwrap();
    // Nothing leaves the rack: no link of the fabric carries anything.
    assert_eq!(inside["network"]["links_most_loaded"], json!([]), "{inside:#}");
    let across = run(NVL72, &[("jobs[0].workload.collective.ranks", "144")]).unwrap();
    assert!(!across["network"]["links_most_loaded"].as_array().unwrap().is_empty());
    let topology = NVL72[NVL72.find("topology:").unwrap()..NVL72.find("jobs:").unwrap()].to_owned();
    let lines: Vec<&str> =
        topology.lines().skip(1).map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
    let root = lines.join("\n");
    let answer =
        ask(&root, &json!({"paths": [{"from": 0, "to": "host17/gpu3"}, {"from": 0, "to": "host18"}]}));
    assert_eq!((&answer["scale_up_size"], &answer["scale_up_domains"]), (&json!(72), &json!(2)));
    let class = |index: usize| &answer["paths"][index]["class"];
    assert_eq!((class(0), class(1)), (&json!("scale-up"), &json!("same-pod")));
}
