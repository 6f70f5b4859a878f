//! Network models from shared libraries: the worked example against its closed form, and every way to go wrong.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;
use windtunnel_scenario::api::{Native, RunRequest, run};
use windtunnel_scenario::error::Failure;
use windtunnel_scenario::table::Discard;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/own-network");

/// Compiles C into a shared library in the folder of this test's artefacts.
fn library(name: &str, source: &Path, defines: &[&str]) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lib{name}.so"));
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../backend/include");
    let done = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", "-I", include])
        .args(defines)
        .arg("-o")
        .args([&target, source])
        .output()
        .expect("a C compiler is needed, as for linking");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    target
}

/// Compiled once: tests run side by side.
fn example() -> PathBuf {
    static BUILT: LazyLock<PathBuf> =
        LazyLock::new(|| library("network", &Path::new(EXAMPLE).join("network.c"), &[]));
    BUILT.clone()
}

fn started(overrides: &[(&str, &str)]) -> Result<Value, Failure> {
    let text = std::fs::read_to_string(Path::new(EXAMPLE).join("scenario.yaml")).expect("the example");
    let request = RunRequest {
        text,
        source: "scenario.yaml".to_owned(),
        base: EXAMPLE.into(),
        overrides: overrides.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect(),
        native: Native { allowed: true, ..Native::default() },
        ..RunRequest::default()
    };
    let summary = run(&request, &mut Discard, &mut Discard)?;
    Ok(serde_json::from_str(&summary).expect("a summary is JSON"))
}

fn on(library: &Path, overrides: &[(&str, &str)]) -> Result<Value, Failure> {
    let path = library.to_str().expect("a path in UTF-8");
    let mut all = vec![("network.backend.library", path)];
    all.extend_from_slice(overrides);
    started(&all)
}

/// What bad input is told.
fn refused(result: Result<Value, Failure>) -> String {
    match result {
        Err(Failure::Input(error)) => error.to_string(),
        other => panic!("expected bad input, found {other:?}"),
    }
}

/// What a failed run is told.
fn failed(result: Result<Value, Failure>) -> String {
    match result {
        Err(Failure::Run(_, message)) => message,
        Err(Failure::Cluster(error)) => error.to_string(),
        other => panic!("expected a failed run, found {other:?}"),
    }
}

fn iteration(summary: &Value) -> f64 {
    summary["jobs"][0]["iteration_time_s"]["mean"].as_f64().expect("an iteration")
}

/// Bytes on the wire.
fn wire(payload: u64) -> u64 {
    payload + 66 * payload.div_ceil(4_150 - 66)
}

#[test]
fn the_example_takes_what_its_formula_says() {
    let library = example();
    // 2 (n - 1) steps of bytes / n, each 20 ps a byte and 2 us under way.
    let step = wire((8 << 20) >> 3) * 20 + 2_000_000;
    let ring = on(&library, &[]).expect("a run");
    assert_eq!(iteration(&ring), (14 * step) as f64 / 1e12);
    assert_eq!(ring["network"]["messages"], 8 * 14);
    assert_eq!(ring["network"]["bytes_delivered"], (8 * 14) << 20);
    assert_eq!(ring["flows"]["fct_max_s"], step as f64 / 1e12);
    assert!(ring["network"]["packets_delivered"].is_null());
    let evidence = ring["evidence"].as_array().expect("a list");
    assert!(evidence.iter().any(|row| row["constant"] == "network model rate and latency"), "{evidence:?}");
    // All to all: seven messages leave each GPU one after the other.
    let flows = ("jobs[0].workload", "{flows: {pattern: all-to-all, bytes: 1 MB}}");
    let slower = ("network.backend.parameters", "{ps_per_byte: 80, latency_ns: 5000}");
    let each = wire(1_000_000) * 80;
    let all = on(&library, &[flows, slower]).expect("a run");
    assert_eq!(iteration(&all), (7 * each + 5_000_000) as f64 / 1e12);
    assert_eq!(all["network"]["messages"], 56);
}

/// Inside a scale-up domain it is not asked, and at other fidelities not even loaded.
#[test]
fn it_stands_for_the_packet_model_alone() {
    let library = example();
    let inside = [
        ("topology.host", "{gpus: 8, nics: 8, scale_up: {rate: 400 GB/s, latency: 0 ns}}"),
        ("topology.hosts", "1"),
    ];
    let alone = iteration(&on(&library, &inside).expect("a run"));
    assert!(alone < 50e-6, "{alone}");
    let flow = started(&[("fidelity", "flow"), ("network.backend.library", "absent.so")]).expect("a run");
    assert_eq!(flow["fidelity"], "flow");
}

#[test]
fn libraries_that_cannot_be_used_are_bad_input() {
    let place = "scenario.yaml: network.backend.library: ";
    let absent = refused(on(Path::new("absent.so"), &[]));
    assert!(
        absent.starts_with(&format!("{place}no such file: `")) && absent.ends_with("absent.so`"),
        "{absent}"
    );
    let text = refused(on(Path::new("network.c"), &[]));
    assert!(text.starts_with(&format!("{place}cannot load `")), "{text}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let bare = folder.join("bare.c");
    std::fs::write(&bare, "int nothing;\n").expect("a writable folder");
    let symbol = refused(on(&library("bare", &bare, &[]), &[]));
    assert!(symbol.starts_with(place) && symbol.contains("does not export `wt_fabric_backend`"), "{symbol}");
    let misbehaves = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/misbehaves.c");
    let version = refused(on(&library("version", &misbehaves, &["-DABI=7"]), &[]));
    assert!(version.contains("is built for version 7 of windtunnel_fabric.h, expected 1"), "{version}");
    let hole = refused(on(&library("hole", &misbehaves, &["-DHOLE"]), &[]));
    assert!(hole.contains("has no `advance`"), "{hole}");
    let refusal = refused(on(&example(), &[("network.backend.parameters", "{}")]));
    assert_eq!(
        refusal,
        "scenario.yaml: network.backend.parameters: `rate and latency` does not open: `ps_per_byte` is missing or 0"
    );
    let broken = refused(on(&example(), &[("topology.failed", "[host0/nic0]")]));
    assert!(broken.contains("is not told what has failed") || broken.contains("topology.failed"), "{broken}");
    let unknown = refused(started(&[("network.backend", "{libary: x}")]));
    assert!(unknown.contains("did you mean `library`?"), "{unknown}");
}

#[test]
fn models_that_misbehave_end_the_run_with_their_fault() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/misbehaves.c");
    for (fault, expected) in [
        ("BACK", "`contrary` goes back in time: `next_time` is 1 ps, but "),
        ("INVENTS", "that message 4294967295 arrives, which is not under way"),
        ("TWICE", "arrives, which is not under way"),
        ("TOO_MANY", "says that 100000 messages arrive, more than the 256 asked for"),
        ("STANDS", "`contrary` stands still: 1048576 calls at "),
        ("FAILS", "`contrary` failed in `advance` at "),
        ("NEVER", "wait for something that never comes"),
    ] {
        let name = fault.to_lowercase();
        let message = failed(on(&library(&name, &source, &[&format!("-D{fault}")]), &[]));
        assert!(message.contains(expected), "{fault}: {message}");
    }
    let well = library("well", &source, &[]);
    on(&well, &[]).expect("without a fault it runs, and its routes are real");
}
