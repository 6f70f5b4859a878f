//! A run that cannot go on says why, in a word for programs beside the words for people.

use std::path::Path;

use windtunnel_scenario::api::{Failure, RunRequest, Why, guarded, run};
use windtunnel_scenario::table::{Batch, Discard, TableSink};

/// Two hosts with a GPU each; `NETWORK` and `WORKLOAD` are filled in.
const PAIR: &str = "
windtunnel: 1
name: why
fidelity: packet
topology: {shape: clos, hosts: 2, tiers: [{ports_down: 2, rate: 400 Gbps, length: 5 m}], host: {gpus: 1, nics: 1}}
network: {NETWORK}
jobs: [{name: a, workload: {WORKLOAD}}]
";

/// Eight routers in a row, of which the first two are joined the long way around only, and that is not taken.
const CUT: &str = "
windtunnel: 1
name: why
fidelity: flow
topology:
  shape: torus
  dimensions: [{size: 8, rate: 100 Gbps, length: 20 m}]
  nic_link: {rate: 100 Gbps}
  host: {}
  failed: [router0 -> router1]
  detour: forbid
jobs: [{name: a, workload: {collective: {kind: all_reduce, algorithm: ring, bytes: 1 MiB}}}]
";

/// Five routers in a ring, each of which passes on what the one before it sends: more than its link takes.
const PAUSES: &str = "
windtunnel: 1
name: why
fidelity: packet
topology:
  shape: torus
  dimensions: [{size: 5, rate: 400 Gbps, length: 20 m}]
  nic_link: {rate: 400 Gbps, length: 3 m}
  host: {gpus: 1, nics: 1}
network: {transport: none, buffers: [{size: 2 MB}], pfc: {xoff: 20 KB}}
jobs: [{name: a, workload: {flows: {file: two-on.csv}}}]
";

/// A job of ten days on hosts that fail every few minutes, which writes nothing down.
const HOPELESS: &str = "
windtunnel: 1
name: why
fidelity: job
topology: {hosts: 4, host: {gpus: 8}}
jobs: [{name: a, gpus: 32, duration: 10 d}]
cluster: {faults: [{class: host, mtbf: 10 min, repair: 1 s}]}
";

/// Takes no rows.
struct Full;

impl TableSink for Full {
    fn rows(&mut self, _: &'static str, _: Batch) -> Result<(), String> {
        Err("no space left on device".to_owned())
    }
}

fn pair(network: &str, workload: &str) -> String {
    PAIR.replace("NETWORK", network).replace("WORKLOAD", workload)
}

/// [`Why::Parted`] needs the journal of another run: its own test is there.
#[test]
fn each_reason_is_told_by_its_name() {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("why");
    std::fs::create_dir_all(&base).expect("a folder can be made");
    let two_on: String =
        (0..5).map(|host| format!("{host},{},16000000\n", (host + 2) % 5)).collect::<Vec<_>>().concat();
    for (name, text) in [
        ("two-on.csv", format!("source,destination,bytes\n{two_on}")),
        ("unsent.goal", "num_ranks 2\nrank 0 {\nl0: recv 64b from 1 tag 2\n}\nrank 1 {\n}\n".to_owned()),
    ] {
        std::fs::write(base.join(name), text).expect("a file can be written");
    }
    let ring = |bytes: &str| {
        format!("collective: {{kind: all_gather, algorithm: ring, form: steps, bytes: {bytes}}}")
    };
    let flows = "flows: {pattern: ring, bytes: 4 MB}";
    let lossy = "transport: none}\nimpairments: {loss: [{on: nic-down, rate: 0.2}]";
    let dead = "}\nimpairments: {down: [{part: \"leaf0 -> host1/nic0\", at: 10 us}]";
    let long = pair("transport: none", &ring("8 MB")).replace("400 Gbps", "1 bps");
    let cases = [
        (Why::Stuck, pair("", "goal: unsent.goal"), "stuck"),
        (Why::Lost, pair(lossy, flows), "lost"),
        (Why::CutOff, CUT.to_owned(), "cut off"),
        (Why::PauseCycle, PAUSES.to_owned(), "pause cycle"),
        (Why::Silent, pair(dead, flows), "silent"),
        (Why::Horizon, long, "horizon"),
        (Why::Starved, HOPELESS.to_owned(), "starved"),
        // Both are told in the midst of a run: what takes rows is not taken for what makes them.
        (Why::Model, pair("", &ring("40 TB")), "model"),
        (Why::Sink, pair("", flows), "sink"),
    ];
    for (expected, text, name) in cases {
        let request =
            RunRequest { text, source: "a.yaml".to_owned(), base: base.clone(), ..RunRequest::default() };
        let sink: &mut dyn TableSink = if expected == Why::Sink { &mut Full } else { &mut Discard };
        match run(&request, sink, &mut Discard) {
            Err(Failure::Run(why, message)) => {
                assert_eq!((why, why.name()), (expected, name), "{message}");
                assert!(!message.is_empty());
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    match guarded::<()>(|| panic!("broken")) {
        Err(Failure::Run(why, _)) => assert_eq!((why, why.name()), (Why::Defect, "defect")),
        other => panic!("defect: {other:?}"),
    }
}
