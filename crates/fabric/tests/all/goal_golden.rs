//! Finish times equal those recorded from LogGOPSim, to the integer.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use crate::common::{Goal, replay};
use flate2::read::GzDecoder;
use serde_json::Value;
use windtunnel_fabric::host::{Costs, Host, HostSpec, LogGops};
use windtunnel_fabric::message::Latency;
use windtunnel_kernel::{Bytes, Span};

fn golden() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/golden/goal"))
}

fn read(path: PathBuf) -> String {
    let mut text = String::new();
    GzDecoder::new(File::open(path).expect("the file is there"))
        .read_to_string(&mut text)
        .expect("gzip of UTF-8");
    text
}

/// LogGOPSim's parameters are whole nanoseconds and nanoseconds per byte.
fn parameters(params: &Value) -> LogGops {
    let get = |name: &str| params[name].as_u64().expect("an integer parameter");
    LogGops {
        latency: Span::from_ns(get("L")),
        overhead: Span::from_ns(get("o")),
        gap: Span::from_ns(get("g")),
        gap_per_byte: get("G") * 1_000_000,
        overhead_per_byte: get("O") * 1_000_000,
        eager_limit: Bytes::new(get("S")),
    }
}

/// Finish time of every rank in nanoseconds; panics if an operation does not end.
fn run(goal: &Goal, parameters: LogGops) -> Vec<u64> {
    let costs = Costs::uniform(parameters);
    let spec = HostSpec { endpoints: goal.ranks.len() as u32, streams: goal.streams(), nics: goal.nics() };
    let mut host = Host::new(spec, costs.clone(), Latency::new(costs));
    let log = replay(goal, &mut host);
    assert_eq!(
        log.len(),
        2 * goal.ranks.iter().map(Vec::len).sum::<usize>(),
        "every operation starts and ends"
    );
    assert_eq!(host.stuck(), []);
    host.finish_times().into_iter().map(|time| time.ps() / 1_000).collect()
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn finish_times_equal_the_recorded_ones() {
    let folder = golden();
    let index: Value =
        serde_json::from_reader(File::open(folder.join("index.json")).expect("an index")).expect("JSON");
    let mut compared = 0;
    for case in index["cases"].as_array().expect("cases") {
        if case["note"].as_str().is_some_and(|note| note.starts_with("QUIRK")) {
            continue;
        }
        let file = case["file"].as_str().expect("a file");
        let goal = Goal::parse(&read(folder.join(file)));
        assert_eq!(goal.ranks.len() as u64, case["ranks"].as_u64().expect("ranks"), "{file}");
        for recorded in case["runs"].as_array().expect("runs") {
            let hosts = run(&goal, parameters(&recorded["params"]));
            let place = format!("{file} with {}", recorded["params"]);
            assert_eq!(hosts.iter().max().copied(), recorded["expected_max"].as_u64(), "{place}");
            if let Some(expected) = recorded["expected_hosts"].as_array() {
                let expected: Vec<u64> = expected.iter().filter_map(Value::as_u64).collect();
                assert_eq!(hosts, expected, "{place}");
            }
            compared += 1;
        }
    }
    assert!(compared >= 50, "{compared} runs compared");
}

const D: LogGops = LogGops {
    latency: Span::from_ns(2_500),
    overhead: Span::from_ns(1_500),
    gap: Span::from_ns(1_000),
    gap_per_byte: 6_000_000,
    overhead_per_byte: 0,
    eager_limit: Bytes::new(65_535),
};

/// Where LogGOPSim starts `b` on its own stream before `a`, which it requires, has ended (crosscpu2): here `b` waits.
#[test]
fn a_dependency_across_streams_is_kept() {
    let goal = Goal::parse(
        "num_ranks 2\nrank 0 {\na: calc 1000\nb: calc 100 cpu 1\nb requires a\nc: send 10b to 1 tag 3 cpu 1\nc requires b\n}\n\
         rank 1 {\nv: recv 10b from 0 tag 3\nd: calc 77 cpu 1\nd requires v\n}\n",
    );
    // a ends at 1000, b at 1100, c's overhead at 2600; arrival at 1100 + o + L, then o + 9·G, then d on stream 1.
    let received = 1_100 + 1_500 + 2_500 + 1_500 + 54;
    assert_eq!(run(&goal, D), [2_600, received + 77]);
}

/// Where LogGOPSim charges (0 - 1)·G modulo 2^64 (zero_and_one_byte): here 0 bytes cost as 1.
#[test]
fn no_bytes_cost_as_one() {
    let text = |size: &str| {
        format!(
            "num_ranks 3\nrank 0 {{\na: send 1b to 1 tag 1\nb: send {size}b to 1 tag 2\nb requires a\nc: calc 5000\nc requires b\n\
             d: send 1b to 2 tag 3\nd requires c\n}}\nrank 1 {{\na: recv 1b from 0 tag 1\nb: recv {size}b from 0 tag 2\n\
             c: calc 10\nc requires b\n}}\nrank 2 {{\na: recv 1b from 0 tag 3\n}}\n"
        )
    };
    let zero = run(&Goal::parse(&text("0")), D);
    assert_eq!(zero, run(&Goal::parse(&text("1")), D));
    // Two sends of o, then 5000, then o; the second message arrives at 1500 + o + L and takes o, then 10.
    assert_eq!(zero, [9_500, 7_010, 13_500]);
}
