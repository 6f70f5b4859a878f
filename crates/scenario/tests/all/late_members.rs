//! Coupled and step-by-step rings, also those of two levels, end together, whether their members come together or apart
//! (docs/architecture.md, Coupled groups). Communication has a stream of its own: under LogGOPS a message that arrives during a computation of its stream waits for it.

use std::path::PathBuf;

use serde_json::Value;
use windtunnel_scenario::api::{RunRequest, run};
use windtunnel_scenario::table::Discard;

/// Iteration time in seconds of an 8-rank collective over hosts of `gpus`, by two levels where they have several, whose ranks come after
/// computing for `late[rank]` µs.
fn iteration(fidelity: &str, gpus: u32, kind: &str, form: &str, late: [u64; 8]) -> f64 {
    let (algorithm, hosts) = (if gpus > 1 { "hierarchical" } else { "ring" }, 8 / gpus);
    let mut lines = vec![r#"{"windtunnel_workload": 1, "ranks": 8}"#.to_owned()];
    for (rank, time) in late.iter().enumerate() {
        lines.push(format!(r#"{{"rank": {rank}, "id": "work", "compute": "{time} us"}}"#));
    }
    lines.push(format!(
        r#"{{"id": "ring", "collective": "{kind}", "algorithm": "{algorithm}", "form": "{form}", "communicator": "world", "bytes": "64 MiB", "stream": 1, "after": ["work"]}}"#
    ));
    let folder: PathBuf = std::env::temp_dir();
    let name =
        format!("windtunnel-late-{}-{fidelity}-{gpus}-{kind}-{form}-{}.jsonl", std::process::id(), late[3]);
    std::fs::write(folder.join(&name), lines.join("\n")).unwrap();
    let text = format!(
        "
windtunnel: 1
name: late
fidelity: {fidelity}
topology:
  shape: clos
  hosts: {hosts}
  tiers: [{{ports_down: 8, rate: 400 Gbps, length: 10 m}}]
  host: {{gpus: {gpus}, nics: {gpus}, nic: ConnectX-7, scale_up: {{rate: 450 GB/s}}}}
jobs:
  - name: ring
    workload: {{file: {name}}}
"
    );
    let request =
        RunRequest { text, source: "late.yaml".to_owned(), base: folder.clone(), ..RunRequest::default() };
    let summary = run(&request, &mut Discard, &mut Discard).unwrap();
    std::fs::remove_file(folder.join(&name)).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    summary["jobs"][0]["iteration_time_s"]["mean"].as_f64().unwrap()
}

#[test]
fn a_ring_ends_as_coupled_as_by_steps_however_its_members_come() {
    let together = [100; 8];
    let one_late = [100, 100, 100, 1_500, 100, 100, 100, 100];
    let spread = [100, 900, 300, 1_100, 200, 700, 1_300, 500];
    for (fidelity, gpus) in [("flow", 1), ("flow", 2), ("flow", 4), ("message", 1)] {
        for kind in ["all_reduce", "all_gather", "reduce_scatter"] {
            for late in [together, one_late, spread] {
                let steps = iteration(fidelity, gpus, kind, "steps", late);
                let last = *late.iter().max().unwrap() as f64 * 1e-6;
                // Forced, a coupled group is the same under LogGOPS only if its members come together.
                let forms: &[&str] =
                    if fidelity == "flow" || late == together { &["auto", "coupled"] } else { &["auto"] };
                for form in forms {
                    let coupled = iteration(fidelity, gpus, kind, form, late);
                    // Of the collective's own time, not of the wait before it.
                    let error = (coupled - steps).abs() / (steps - last);
                    assert!(
                        error < 0.01,
                        "{fidelity} {gpus} {kind} {form} {late:?}: {coupled} against {steps}"
                    );
                }
            }
        }
    }
}
