//! Packets that are lost where nothing sends them again are named with the ports that dropped them, and only there.

use std::path::Path;

use windtunnel_scenario::api::{RunRequest, run};
use windtunnel_scenario::error::{Failure, Why};
use windtunnel_scenario::table::Discard;

fn scenario(network: &str, workload: &str) -> String {
    format!(
        "
windtunnel: 1
name: lost
fidelity: packet
topology:
  shape: clos
  hosts: 8
  tiers:
    - {{ports_down: 4, rate: 400 Gbps, length: 20 m}}
    - {{ports_down: 8, rate: 400 Gbps, length: 50 m}}
  host: {{gpus: 1, nics: 1}}
network: {{{network}}}
jobs: [{{name: job, workload: {{{workload}}}}}]
"
    )
}

fn failure(text: String, base: &Path, full: bool) -> String {
    let request = RunRequest {
        text,
        source: "lost.yaml".to_owned(),
        base: base.to_owned(),
        full,
        ..RunRequest::default()
    };
    match run(&request, &mut Discard, &mut Discard) {
        Err(Failure::Run(Why::Lost | Why::Stuck, message)) => message,
        Err(other) => panic!("{other:?}"),
        Ok(summary) => panic!("it ended: {summary}"),
    }
}

/// What the message says was dropped, and at which ports.
fn told(message: &str) -> (u64, Vec<(u64, String)>) {
    let (_, rest) = message.split_once("for what was lost: ").expect(message);
    let all = rest.split(' ').next().and_then(|count| count.parse().ok()).expect(message);
    let port = |line: &str| {
        let (count, port) = line.trim().split_once(" at `")?;
        Some((count.parse().ok()?, port.trim_end_matches('`').to_owned()))
    };
    (all, rest.lines().filter_map(port).collect())
}

#[test]
fn packets_that_nothing_sends_again_are_named_with_their_ports() {
    for (network, fan, full) in [
        ("transport: none, buffers: [{size: 100 KB}]", "incast", false),
        ("transport: none, buffers: [{size: 1 MB}]", "incast", true),
        ("transport: none, window: 1 MB, buffers: [{size: 300 KB}]", "incast", false),
        ("transport: none}\nimpairments: {loss: [{on: nic-down, rate: 0.2}]", "ring", false),
    ] {
        let workload = format!("flows: {{pattern: {fan}, bytes: 4 MB}}");
        let message = failure(scenario(network, &workload), Path::new("."), full);
        let (all, ports) = told(&message);
        assert!(message.contains("transport `none` sends nothing again"), "{message}");
        assert!(message.contains("rank 0, operation "), "the operations are named too: {message}");
        assert!(ports.is_sorted_by(|a, b| a.0 >= b.0), "the worst first: {message}");
        let more: u64 = message
            .lines()
            .find_map(|line| line.trim().strip_prefix("… and ")?.split_once(" more port")?.0.parse().ok())
            .unwrap_or(0);
        let sum: u64 = ports.iter().map(|port| port.0).sum();
        assert!(if more == 0 { sum == all } else { ports.len() == 5 && sum < all }, "{message}");
        let hint = message.split_once("hint: ").expect("a hint").1;
        assert!(hint.contains("a transport that sends again what is lost"), "{message}");
        // A larger buffer helps where there was no room, not where cables lose.
        assert_eq!(hint.contains("larger `network.buffers`"), fan == "incast", "{message}");
        assert_eq!(hint.contains("links that lose nothing"), fan == "ring", "{message}");
        assert!(!message.contains("every receive needs"), "{message}");
        if fan == "incast" {
            assert_eq!(ports[0].1, "leaf0 -> host0/nic0", "what all send into: {message}");
        }
    }
}

/// A receive that has no send is the workload's fault, whatever was dropped beside it and sent again.
#[test]
fn a_receive_without_a_send_is_told_as_such_beside_losses() {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let receive = |rank: u32| format!("l{rank}: recv 4000000b from {rank} tag 1\n");
    let sender = |rank: u32| format!("rank {rank} {{\nl0: send 4000000b to 0 tag 1\n}}\n");
    let receives = (1..8).map(receive).collect::<Vec<_>>().concat();
    let senders = (1..8).map(sender).collect::<Vec<_>>().concat();
    let goal = format!("num_ranks 8\nrank 0 {{\n{receives}l8: recv 64b from 1 tag 2\n}}\n{senders}");
    std::fs::write(base.join("unsent.goal"), goal).expect("a file");
    for network in ["transport: dctcp, buffers: [{size: 100 KB}]", "transport: none"] {
        let message = failure(scenario(network, "goal: unsent.goal"), base, false);
        assert!(message.contains("1 operation waits for something that never comes"), "{message}");
        assert!(message.contains("hint: every receive needs a send of the same tag"), "{message}");
    }
}
