//! Long times: what fits is right at every fidelity, what does not is refused with its place, and calendars count years.

use std::fmt::Write;

use serde_json::Value;
use windtunnel_scenario::api::{RunRequest, run};
use windtunnel_scenario::error::{Failure, Why};
use windtunnel_scenario::table::{Batch, Column, Discard, TableSink};

fn text(fidelity: &str, rate: &str, network: &str, jobs: &str) -> String {
    format!(
        "
windtunnel: 1
name: long
fidelity: {fidelity}
topology: {{shape: clos, hosts: 2, tiers: [{{ports_down: 2, rate: {rate}, length: 5 m}}], host: {{gpus: 1, nics: 1}}}}
network: {{{network}}}
jobs:
{jobs}"
    )
}

fn ring(bytes: &str) -> String {
    format!(
        "  - {{name: slow, workload: {{collective: {{kind: all_gather, algorithm: ring, form: steps, bytes: {bytes}}}}}}}\n"
    )
}

fn go(text: String, sink: &mut dyn TableSink) -> Result<Value, Failure> {
    let request = RunRequest { text, source: "a.yaml".to_owned(), ..RunRequest::default() };
    let summary = run(&request, sink, &mut Discard)?;
    Ok(serde_json::from_str(&summary).expect("a summary is JSON"))
}

const DAY: f64 = 86_400.0;

/// Bytes that take so many days at 1 Gbps, with a header of 64 B for each 4,096 B.
fn of_days(days: f64) -> f64 {
    days * DAY * 125e6 / 65.0 * 64.0
}

/// 53 and 106 days are 2^62 and 2^63 ps.
#[test]
fn spans_of_months_take_what_they_take_at_every_fidelity() {
    for days in [1.0, 52.0, 54.0, 105.0, 107.0, 150.0, 198.0] {
        // Over two ranks, each sends half.
        let bytes = format!("{} B", (2.0 * of_days(days)).round());
        for fidelity in ["job", "message", "flow"] {
            let text = text(fidelity, "1 Gbps", "mtu: 4160 B, header: 64 B", &ring(&bytes));
            let summary =
                go(text, &mut Discard).unwrap_or_else(|failure| panic!("{days} d, {fidelity}: {failure:?}"));
            let job = &summary["jobs"][0];
            let found = job["finish_s"].as_f64().expect("it finishes") / DAY;
            assert!((found / days - 1.0).abs() < 1e-6, "{days} d at {fidelity}: {found} d");
            assert_eq!(job["state"], "finished");
        }
    }
}

/// A false deadlock, 0.0 s and 2^64 ps were the answers once.
#[test]
fn what_is_longer_is_refused_with_its_operation() {
    for days in [201.0, 213.0, 214.0, 231.0, 1e3, 1e5, 8e5] {
        let bytes = format!("{} B", (2.0 * of_days(days)).round());
        for fidelity in ["job", "message", "flow"] {
            let text = text(fidelity, "1 Gbps", "mtu: 4160 B, header: 64 B", &ring(&bytes));
            match go(text, &mut Discard) {
                Err(Failure::Run(Why::Horizon, message)) => {
                    assert!(message.starts_with("the run would go on for more than 200 days"), "{message}");
                    assert!(message.contains("job `slow`, rank 0, operation 0"), "{message}");
                    assert!(message.contains("hint: is a rate or a size mistyped"), "{message}");
                }
                other => panic!("{days} d at {fidelity}: {other:?}"),
            }
        }
    }
}

/// A packet of 4 KB takes 9 hours at 1 bit/s.
#[test]
fn packets_are_followed_for_200_days_too() {
    let slow = |bytes: &str| go(text("packet", "1 bps", "transport: none", &ring(bytes)), &mut Discard);
    let summary = slow("800 KB").expect("74 days");
    let days = summary["jobs"][0]["finish_s"].as_f64().expect("it finishes") / DAY;
    assert!((37.0..39.0).contains(&days), "{days}");
    match slow("8 MB") {
        Err(Failure::Run(Why::Horizon, message)) => {
            assert!(message.contains("more than 200 days"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

/// Where a size and a rate alone say it, nobody has to wait for a run.
#[test]
fn messages_that_never_end_are_bad_input() {
    let flows = |bytes: &str| {
        format!("  - {{name: slow, workload: {{flows: {{pattern: ring, ranks: 2, bytes: {bytes}}}}}}}\n")
    };
    for fidelity in ["job", "message", "flow", "packet"] {
        match go(text(fidelity, "1 Kbps", "", &flows("10 GB")), &mut Discard) {
            Err(Failure::Input(error)) => {
                assert_eq!(error.place, "a.yaml: jobs[0].workload");
                assert!(error.message.starts_with("a message of 10000000000 B takes 925 days"), "{error}");
            }
            other => panic!("{fidelity}: {other:?}"),
        }
    }
    // 2^32 packets of 4,084 B.
    match go(text("packet", "400 Gbps", "", &flows("18 TB")), &mut Discard) {
        Err(Failure::Input(error)) => assert!(error.message.contains("4407443683 packets"), "{error}"),
        other => panic!("{other:?}"),
    }
    // Over eight queue pairs each has fewer, and nothing is wrong with the scenario.
    let several = text("packet", "400 Gbps", "queue_pairs: 8", &flows("18 TB"));
    let request = RunRequest { text: several, source: "a.yaml".to_owned(), ..RunRequest::default() };
    assert!(windtunnel_scenario::api::explain(&request).is_ok());
}

/// A collective's messages are known when they are sent.
#[test]
fn a_message_of_too_many_packets_ends_the_run_in_words() {
    match go(text("packet", "400 Gbps", "", &ring("40 TB")), &mut Discard) {
        Err(Failure::Run(Why::Model, message)) => {
            assert!(message.contains("on one queue pair, expected fewer than 2^32"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

/// Keeps the rows of a table.
#[derive(Default)]
struct Rows(Vec<Batch>, &'static str);

impl TableSink for Rows {
    fn rows(&mut self, table: &'static str, batch: Batch) -> Result<(), String> {
        if table == self.1 {
            self.0.push(batch);
        }
        Ok(())
    }
}

impl Rows {
    fn column(&self, name: &str) -> Vec<u64> {
        let of = |batch: &Batch| match batch.columns.iter().find(|(known, _)| *known == name) {
            Some((_, Column::U64(values))) => values.clone(),
            other => panic!("{name}: {other:?}"),
        };
        self.0.iter().flat_map(of).collect()
    }
}

/// A job of an hour on every so many days of 290 years: its rows are of its day, and its times of the calendar.
#[test]
fn rows_of_day_303_show_day_303() {
    let days = [0u64, 99, 100, 101, 212, 214, 303, 1_000, 3_649, 60_000, 80_000, 106_000];
    let mut jobs = String::new();
    for day in days {
        let workload = "collective: {kind: all_reduce, bytes: 1 MiB, algorithm: ring}";
        let _ = writeln!(
            jobs,
            "  - {{name: day{day}, submit: {day} d, iterations: 1000, workload: {{{workload}}}}}"
        );
    }
    for fidelity in ["message", "flow", "packet"] {
        for table in ["iterations", "critical_path", "operations"] {
            let mut rows = Rows(Vec::new(), table);
            // What the memo knows has no rows.
            let text = text(fidelity, "1 Gbps", "", &jobs) + "cluster: {episodes: {memo: off}}\n";
            let summary = go(text, &mut rows).expect("a run");
            let (origins, starts, finishes) =
                (rows.column("origin_s"), rows.column("start_ps"), rows.column("finish_ps"));
            assert!(origins.len() >= days.len());
            let mut seen: Vec<u64> = Vec::new();
            for ((origin, start), finish) in origins.iter().zip(&starts).zip(&finishes) {
                assert!(finish >= start && finish - start < 60_000_000_000_000);
                seen.push((origin + start / 1_000_000_000_000) / 86_400);
            }
            seen.dedup();
            assert_eq!(seen, days, "{table} at {fidelity}");
            for (job, day) in summary["jobs"].as_array().expect("a list").iter().zip(days) {
                let [start, finish] = ["start_s", "finish_s"].map(|key| job[key].as_f64().expect("a time"));
                assert!((start / DAY - day as f64).abs() < 1e-3, "day {day} begins at {start}");
                assert!(finish > start && finish - start < DAY, "day {day}: {start} to {finish}");
            }
        }
    }
}

/// The use of the cluster is counted over the whole calendar, by episodes and by durations; in full a network counts 200 days.
#[test]
fn a_calendar_goes_on_for_292_years() {
    for days in [60_000u64, 80_000, 106_000] {
        let workload = "workload: {collective: {kind: all_reduce, bytes: 1 MiB, algorithm: ring}}";
        let job = |what: &str| format!("  - {{name: late, submit: {days} d, {what}}}\n");
        let short = || job(workload);
        for (fidelity, jobs) in [
            ("flow", short()),
            ("flow", short() + &short().replace("late", "later")),
            ("job", short()),
            ("job", job("gpus: 2, duration: 1 h")),
        ] {
            let request = RunRequest {
                text: text(fidelity, "1 Gbps", "", &jobs),
                source: "a.yaml".to_owned(),
                ..RunRequest::default()
            };
            let summary = run(&request, &mut Discard, &mut Discard);
            let summary = summary.unwrap_or_else(|failure| panic!("{days} d at {fidelity}: {failure:?}"));
            let summary: Value = serde_json::from_str(&summary).expect("a summary is JSON");
            let end = summary["cluster"]["makespan_s"].as_f64().expect("a time") / DAY;
            assert!((end - days as f64).abs() < 0.1, "{days} d at {fidelity}: {end} d");
        }
    }
    for days in [106_752u64, 200_000] {
        let jobs = format!("  - {{name: late, submit: {days} d, gpus: 2, duration: 1 h}}\n");
        match go(text("job", "1 Gbps", "", &jobs), &mut Discard) {
            Err(Failure::Input(error)) => {
                assert_eq!(error.place, "a.yaml: jobs[0].submit");
                assert!(error.message.starts_with("expected a time within the 292 years"), "{error}");
            }
            other => panic!("{days} d: {other:?}"),
        }
    }
}
