//! Balancers and impairments as a scenario names them: the examples run and show what they say, and what cannot be is
//! refused with its place.

use serde_json::Value;
use windtunnel_scenario::api::{RunRequest, run};
use windtunnel_scenario::error::Failure;
use windtunnel_scenario::table::{Batch, Column, Discard, TableSink};

/// Keeps the tables `queues` and `links`.
#[derive(Default)]
struct Queues(Vec<Batch>, Vec<Batch>);

impl TableSink for Queues {
    fn rows(&mut self, table: &'static str, batch: Batch) -> Result<(), String> {
        if table == "queues" {
            self.0.push(batch);
        } else if table == "links" {
            self.1.push(batch);
        }
        Ok(())
    }
}

fn run_text(text: &str, tables: &mut Queues) -> Result<Value, String> {
    let request =
        RunRequest { text: text.to_owned(), source: "case.yaml".to_owned(), ..RunRequest::default() };
    let summary = run(&request, tables, &mut Discard).map_err(|failure| match failure {
        Failure::Input(error) => error.to_string(),
        Failure::Run(_, message) => message,
        Failure::Cluster(error) => error.to_string(),
    })?;
    serde_json::from_str(&summary).map_err(|error| error.to_string())
}

fn example(name: &str) -> String {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/{}.yaml"), name);
    std::fs::read_to_string(path).expect("an example")
}

fn summary(text: &str) -> Value {
    run_text(text, &mut Queues::default()).expect("a run")
}

fn time(summary: &Value) -> f64 {
    summary["jobs"][0]["iteration_time_s"]["mean"].as_f64().expect("an iteration")
}

fn count(summary: &Value, key: &str) -> u64 {
    summary["network"][key].as_u64().expect(key)
}

#[test]
fn a_slow_spine_is_left_by_recycled_paths() {
    let text = example("slow-spine");
    let mut tables = Queues::default();
    let reps = run_text(&text, &mut tables).expect("a run");
    let [spray, adaptive, flowlet] = ["spray", "adaptive", "flowlet"]
        .map(|name| summary(&text.replace("balancer: reps", &format!("balancer: {name}"))));
    println!("{} {} {} {}", time(&reps), time(&spray), time(&adaptive), time(&flowlet));
    assert!(time(&reps) < 0.8 * time(&spray));
    assert!(time(&reps) < time(&flowlet));
    let held = &spray["network"]["reorder_buffers"];
    assert!(held["max_packets"].as_u64() > Some(10) && held["queue_pairs"] == 16, "{held}");
    let rows: usize = tables.0.iter().map(Batch::len).sum();
    assert!(rows > 100);
    for batch in &tables.0 {
        let names: Vec<&str> = batch.columns.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            names,
            ["time_ps", "link", "name", "tier", "queue_bytes", "bytes", "utilisation", "origin_s"]
        );
        let Column::U64(times) = &batch.columns[0].1 else { panic!("times") };
        assert!(times.is_sorted() && times.iter().all(|time| time % 10_000_000 == 0));
        let Column::F64(shares) = &batch.columns[6].1 else { panic!("shares") };
        // A packet counts whole where its transmission begins.
        assert!(shares.iter().all(|share| (0.0..1.02).contains(share)));
    }
    // Nothing is written unless asked.
    let mut quiet = Queues::default();
    run_text(&text.replace("results: {queues: 10 us}", ""), &mut quiet).expect("a run");
    assert!(quiet.0.is_empty());
}

#[test]
fn a_cable_that_is_down_costs_what_was_on_it() {
    let text = example("link-down");
    let found = summary(&text);
    assert!(count(&found, "link_down") > 0);
    assert_eq!(count(&found, "link_down"), count(&found, "packets_dropped"));
    assert!(count(&found, "retransmissions") >= count(&found, "link_down") / 2);
    let quick = summary(&text.replace("convergence: 100 us", "convergence: 1 us"));
    assert!(count(&quick, "link_down") < count(&found, "link_down"));
    let after = summary(&text.replace("at: 100 us, until: 1 ms", "at: 10 s"));
    assert_eq!(count(&after, "link_down"), 0);
    assert!(time(&after) < time(&found));
}

/// A host whose link goes down for good never hears again: the run ends and says so.
#[test]
fn a_link_that_never_comes_back_ends_the_run() {
    let text =
        example("link-down").replace("leaf1 -> spine0", "leaf1 -> host5/nic0").replace(", until: 1 ms", "");
    let error = run_text(&text, &mut Queues::default()).expect_err("host 5 is cut off");
    assert!(error.contains("has heard nothing for 64 time-outs") && error.contains("host5/nic0"), "{error}");
}

#[test]
fn lossy_links_lose_and_drifting_clocks_run() {
    let text = example("lossy-links");
    let found = summary(&text);
    assert!(count(&found, "corrupted") > 0);
    assert_eq!(count(&found, "corrupted"), count(&found, "packets_dropped"));
    let clean = summary(&text[..text.find("impairments:").expect("a key")].to_owned().add_jobs(&text));
    assert_eq!(count(&clean, "packets_dropped"), 0);
    assert!(time(&clean) < time(&found));
}

/// Puts the jobs of another scenario at the end.
trait AddJobs {
    fn add_jobs(self, of: &str) -> String;
}

impl AddJobs for String {
    fn add_jobs(self, of: &str) -> String {
        self + &of[of.find("jobs:").expect("jobs")..]
    }
}

#[test]
fn background_traffic_is_counted_apart() {
    let text = example("background-traffic");
    let found = summary(&text);
    let alone = summary(&text[..text.find("impairments:").expect("a key")].to_owned().add_jobs(&text));
    assert!(time(&alone) < time(&found));
    assert_eq!(alone["network"]["background"], Value::Null);
    let background = &found["network"]["background"];
    assert!(background["arrived"].as_u64() > Some(100) && background["fct_p99_s"].as_f64() > Some(0.0));
    for key in ["messages", "bytes_delivered"] {
        assert_eq!(count(&found, key), count(&alone, key), "{key}");
    }
}

/// A computation of a host whose clock is slow by 1% takes 1/0.99 as long, at every fidelity.
#[test]
fn a_slow_clock_slows_computations() {
    let base = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let program = "num_ranks 2\nrank 0 {\nl1: calc 30000000\nl2: send 8b to 1 tag 0\nl2 requires l1\n}\nrank 1 {\nl1: recv 8b from 0 tag 0\n}\n";
    std::fs::write(base.join("calc.goal"), program).expect("a folder for tests");
    for fidelity in ["flow", "message", "packet"] {
        let of = |drift: &str| {
            let text = format!(
                "
windtunnel: 1
name: clocks
fidelity: {fidelity}
topology: {{shape: clos, hosts: 2, tiers: [{{ports_down: 2, rate: 400 Gbps, length: 2 m}}], host: {{gpus: 1, nics: 1}}}}
{drift}
jobs:
  - name: job
    workload: {{goal: calc.goal}}
"
            );
            let request = RunRequest {
                text,
                source: "case.yaml".to_owned(),
                base: base.clone(),
                ..RunRequest::default()
            };
            let summary = run(&request, &mut Discard, &mut Discard).expect("a run");
            time(&serde_json::from_str(&summary).expect("a summary"))
        };
        let ratio = of("impairments: {drift: [{host: 0, ppm: -10000}]}") / of("");
        assert!((ratio - 1.0 / 0.99).abs() < 1e-4, "{fidelity}: {ratio}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    let base = example("link-down");
    let from = base.find("impairments:").expect("a key");
    let with = |impairments: &str| base[..from].to_owned() + "impairments: {" + impairments + "}\n";
    for (impairments, expected) in [
        (
            "loss: [{on: leaf-op, rate: 0.1}]",
            "impairments.loss[0].on: no tier, switch or link `leaf-op`\n\nhint: did you mean `leaf-up`?",
        ),
        ("loss: [{on: [leaf-up, spine9], rate: 0.1}]", "impairments.loss[0].on[1]: no switch `spine9`"),
        ("loss: [{on: all, rate: 1.5}]", "impairments.loss[0].rate: expected a share from 0 to 1, found 1.5"),
        ("loss: [{on: all, rate: 0.9, burst: 2}]", "bursts of 2 packets cannot lose 0.9 of all"),
        ("loss: [{on: all, rate: 0.1, burst: 0.5}]", "expected at least 1 packet, found 0.5"),
        ("loss: [{on: all, rate: 0.1, length: 2}]", "unknown key `length`"),
        (
            "bit_errors: [{on: all, rate: -1e-9}]",
            "impairments.bit_errors[0].rate: expected a share from 0 to 1",
        ),
        (
            "bit_errors: [{on: all, rate: 0, bad: {rate: 1e-6, every: 10, length: 20}}]",
            "impairments.bit_errors[0].bad.every",
        ),
        ("down: [{part: \"leaf0 -> spine7\", at: 1 ms}]", "impairments.down[0].part: no node `spine7`"),
        (
            "down: [{part: \"leaf0 -> leaf1\", at: 1 ms}]",
            "impairments.down[0].part: no link `leaf0 -> leaf1`",
        ),
        ("down: [{part: spine0, at: -1 ms}]", "it is below 0"),
        (
            "down: [{part: spine0, at: 2 ms, until: 1 ms}]",
            "impairments.down[0].until: expected a time after 2 ms, found 1 ms",
        ),
        (
            "slow: [{part: spine0, at: 2 ms, rate: 2}]",
            "impairments.slow[0].rate: expected a part of the rate above 0, at most 1, found 2",
        ),
        (
            "drift: [{host: 16, ppm: 1}]",
            "impairments.drift[0].host: there are 16 hosts, counted from 0, found 16",
        ),
        ("drift: [{ppm: 1, within_ppm: 1}]", "expected exactly one of `ppm` and `within_ppm`"),
        ("drift: [{ppm: 1e9}]", "impairments.drift[0].ppm"),
        ("background: [{sizes: websarch, load: 0.1}]", "hint: did you mean `websearch`?"),
        ("background: [{sizes: ./none.txt, load: 0.1}]", "impairments.background[0].sizes: no such file"),
        (
            "background: [{sizes: vl2, load: 1}]",
            "impairments.background[0].load: expected a share of the NIC's rate above 0, below 1, found 1",
        ),
        ("background: [{load: 0.5}]", "expected exactly one of `sizes` and `bytes`"),
    ] {
        let text = with(impairments) + &base[base.find("jobs:").expect("jobs")..];
        let error = run_text(&text, &mut Queues::default()).expect_err(impairments);
        assert!(error.contains(expected), "{impairments}: {error}");
    }
    for (from, to, expected) in [
        (
            "fidelity: packet",
            "fidelity: message",
            "impairments.down: needs packets to act on, found `fidelity: message`",
        ),
        ("balancer: spray", "balancer: sprey", "unknown value `sprey`"),
        ("balancer: spray", "balancer: destination_modulo", "expected another balancer"),
        ("balancer: spray", "balancer: reps, paths: 3", "expected a power of two"),
        ("balancer: spray", "balancer: spray, in_flight: 0", "`in_flight` is 0"),
    ] {
        let error = run_text(&base.replace(from, to), &mut Queues::default()).expect_err(to);
        assert!(error.contains(expected), "{to}: {error}");
    }
}

/// Two flows that a hash would part are sent over one spine by their hosts: they share it, and nothing takes another. Two
/// rules for a pair are taken in turn by its queue pairs.
#[test]
fn hosts_choose_paths() {
    let text = |routes: &str, queue_pairs: u32| {
        format!(
            "
windtunnel: 1
name: chosen
fidelity: packet
topology:
  shape: clos
  hosts: 4
  tiers: [{{ports_down: 2, rate: 400 Gbps, length: 2 m}}, {{ports_down: 2, rate: 400 Gbps, length: 2 m}}]
  host: {{gpus: 1, nics: 1}}
network: {{transport: dctcp, load_balancer: adaptive, queue_pairs: {queue_pairs}, routes: [{routes}]}}
jobs:
  - name: job
    workload: {{flows: {{pattern: ring, bytes: 20 MB}}}}
"
        )
    };
    let through = |found: &Queues, name: &str| {
        let column = |name: &str| {
            let links = found.1[0].columns.iter().find(|(known, _)| *known == name);
            links.map(|(_, column)| column.clone()).expect("a column")
        };
        let (Column::Text(names), Column::U64(bytes)) = (column("name"), column("bytes")) else {
            panic!("names and bytes")
        };
        let place = names.iter().position(|known| known == name);
        place.map_or(0, |place| bytes[place])
    };
    let tables = |text: &str| {
        let mut tables = Queues::default();
        run_text(text, &mut tables).expect("a run");
        tables
    };
    let route =
        |from: u32, to: u32, via: &str| format!("{{from: host{from}/nic0, to: host{to}/nic0, via: [{via}]}}");
    let one = tables(&text(&route(1, 2, "leaf0, spine1, leaf1"), 1));
    assert!(through(&one, "leaf0 -> spine1") >= 20_000_000);
    let both = [route(1, 2, "leaf0, spine0, leaf1"), route(1, 2, "leaf0, spine1, leaf1")].join(", ");
    let half = tables(&text(&both, 2));
    let [first, second] = ["leaf0 -> spine0", "leaf0 -> spine1"].map(|name| through(&half, name));
    assert!(first.abs_diff(second) < 100_000 && first > 9_900_000, "{first} {second}");
    for (routes, expected) in [
        (route(1, 9, "leaf0"), "network.routes[0].to: no NIC `host9/nic0`"),
        (route(1, 2, "leaf0, spine4, leaf1"), "network.routes[0].via[1]: no node `spine4`"),
        (route(1, 2, "leaf0, leaf1"), "network.routes[0].via[1]: no link `leaf0 -> leaf1`"),
        (route(1, 2, "leaf0"), "network.routes[0].via[0]: no link `leaf0 -> host2/nic0`"),
    ] {
        let error = run_text(&text(&routes, 1), &mut Queues::default()).expect_err(expected);
        assert!(error.contains(expected), "{error}");
    }
}

/// ConnectX-6 tracks 512 packets of a queue pair. Sprayed over a round trip of 1 ms that is 512 × 4,096 B a millisecond, 16.8
/// Gbps, where one path fills the link; eight queue pairs do eight times as much.
#[test]
fn sprayed_packets_are_limited_by_what_the_nic_tracks() {
    let text = |network: &str| {
        format!(
            "
windtunnel: 1
name: far
fidelity: packet
topology: {{shape: clos, hosts: 2, tiers: [{{ports_down: 2, rate: 200 Gbps, length: 50 km}}], host: {{gpus: 1, nics: 1, nic: ConnectX-6}}}}
network: {{transport: dcqcn, mtu: 4160 B, header: 64 B, {network}}}
jobs:
  - name: job
    workload: {{flows: {{pattern: outcast, bytes: 33554432 B}}}}
"
        )
    };
    // 16 windows; each waits for the answer to its first packets, which takes a round trip of 4 × 50 km.
    let rounds = 33_554_432.0 / (512.0 * 4_096.0);
    let sprayed = time(&summary(&text("load_balancer: spray")));
    assert!((sprayed / (rounds * 1e-3) - 1.0).abs() < 0.05, "{sprayed}");
    let hashed = time(&summary(&text("load_balancer: ecmp")));
    assert!(hashed < 0.25 * sprayed, "{hashed} {sprayed}");
    let many = time(&summary(&text("load_balancer: spray, queue_pairs: 8")));
    assert!((many / (rounds / 8.0 * 1e-3) - 1.0).abs() < 0.3, "{many}");
    let given = time(&summary(&text("load_balancer: spray, in_flight: 1024")));
    assert!((given / (rounds / 2.0 * 1e-3) - 1.0).abs() < 0.1, "{given}");
}

/// Queue pairs take the planes of their NIC in turn: with four of them on two planes both carry the same.
#[test]
fn queue_pairs_take_planes_in_turn() {
    let text = |queue_pairs: u32| {
        format!(
            "
windtunnel: 1
name: planes
fidelity: packet
topology: {{shape: clos, planes: 2, hosts: 4, tiers: [{{ports_down: 4, rate: 400 Gbps, length: 2 m}}], host: {{gpus: 1, nics: 1}}}}
network: {{transport: none, queue_pairs: {queue_pairs}}}
jobs:
  - name: job
    workload: {{flows: {{pattern: permutation, bytes: 20 MB}}}}
"
        )
    };
    let [one, four, many] = [1, 4, 64].map(|queue_pairs| time(&summary(&text(queue_pairs))));
    // A plane has half of the NIC's rate.
    assert!(four < 0.51 * one, "{one} {four}");
    assert!((many / four - 1.0).abs() < 0.02, "{four} {many}");
}
