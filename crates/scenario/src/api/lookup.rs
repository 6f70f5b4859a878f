//! Rules against tables: what set-up, memory and look-ups cost on a fabric, measured here and now.
//!
//! The work is that of a ring all-reduce over all NICs in a random order: in every step each NIC sends to the next, and
//! every switch on the way looks the next port up. Neither side moves packets; only the control plane is timed.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use windtunnel_kernel::{EndpointId, NicId, RandomStream, memory};
use windtunnel_run::machine::{Stopwatch, peak_rss_bytes};
use windtunnel_topology::{
    Itinerary, LoadBalancer, Peer, Route, SwitchId, Tables, Target, Topology, flow_hash,
};

use super::routing::topology_of;
use super::{Failure, ready_to_route};

/// A question that a switch on the way of a step of the ring asks.
#[derive(Clone, Copy)]
struct Question {
    at: SwitchId,
    to: u32,
    plane: u32,
    /// Of the flow: a packet carries it.
    hash: u64,
}

/// Measures a topology: `lookups` next hops by rule, and if `tables` by breadth-first tables too.
///
/// JSON: `nics`, `switches`, `setup_s`, `memory_bytes`, `lookups`, `lookup_s`, `ring_step_s` (one step: all paths, link
/// by link), `ring_paths`, `peak_rss_bytes`, and with tables the same under `tables` (`null` where they would take more than
/// `table_limit` bytes; `bytes` says how many).
///
/// # Errors
/// [`Failure::Input`].
pub fn measure_lookups(
    text: &str,
    source: &str,
    base: &Path,
    lookups: u64,
    tables: bool,
    table_limit: u64,
) -> Result<String, Failure> {
    memory::reset_peak();
    let before = memory::peak();
    let watch = Stopwatch::start();
    let topology = topology_of(text, source, base)?;
    ready_to_route(&topology);
    let setup_s = watch.wall_seconds();
    let memory_bytes = memory::peak() - before;

    let ring = ring(&topology, 1);
    let ring_step_s = time_step(&topology, &ring);
    let questions = questions(&topology, &ring);
    let rule = |question: &Question, target: &Target, hash: u64| {
        topology.next_hop(question.at, target, Itinerary::DIRECT, hash).0
    };
    let lookup_s = time(&topology, &questions, lookups, rule);
    let mut answer = json!({
        "shape": topology.shape_name(),
        "hosts": topology.hosts(),
        "nics": topology.nics(),
        "switches": topology.switches(),
        "links": topology.link_count(),
        "setup_s": setup_s,
        "memory_bytes": memory_bytes,
        "lookups": lookups,
        "lookup_s": lookup_s,
        "ring_paths": ring.len(),
        "ring_step_s": ring_step_s,
    });
    if tables {
        answer["tables"] = by_tables(&topology, &questions, lookups, table_limit);
    }
    answer["peak_rss_bytes"] = json!(peak_rss_bytes());
    Ok(answer.to_string())
}

fn by_tables(topology: &Arc<Topology>, questions: &[Question], lookups: u64, limit: u64) -> Value {
    let bytes = Tables::bytes(topology);
    if bytes > limit {
        return json!({ "bytes": bytes, "setup_s": null, "lookup_s": null });
    }
    let watch = Stopwatch::start();
    let tables = Tables::build(topology);
    let setup_s = watch.wall_seconds();
    let look_up =
        |question: &Question, target: &Target, hash: u64| tables.next_hop(question.at, target, hash);
    json!({ "bytes": bytes, "setup_s": setup_s, "lookup_s": time(topology, questions, lookups, look_up) })
}

/// All NICs in a random order.
fn ring(topology: &Topology, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..topology.nics()).collect();
    let mut draws = RandomStream::new(seed, "ring placement", 0);
    for last in (1..order.len()).rev() {
        order.swap(last, draws.below(last as u64 + 1) as usize);
    }
    order
}

/// Seconds in which all paths of a step of the ring are laid, from the first GPU of each NIC.
fn time_step(topology: &Topology, ring: &[u32]) -> f64 {
    let (per_host, nics) = (topology.endpoints_per_host(), topology.nics_per_host());
    let endpoint = |nic: u32| EndpointId(nic / nics * per_host + nic % nics * per_host / nics);
    let mut route = Route::new();
    let watch = Stopwatch::start();
    for (&from, &to) in ring.iter().zip(ring.iter().cycle().skip(1)) {
        topology.route(LoadBalancer::Ecmp, 1, endpoint(from), endpoint(to), NicId(0), 0, &mut route);
        black_box(&route);
    }
    watch.wall_seconds()
}

/// Walks every path of a step of the ring.
fn questions(topology: &Topology, ring: &[u32]) -> Vec<Question> {
    let mut questions = Vec::with_capacity(ring.len() * 5);
    for (&from, &to) in ring.iter().zip(ring.iter().cycle().skip(1)) {
        if from == to {
            continue;
        }
        let hash = flow_hash(1, u64::from(from), u64::from(to), 0);
        let target = topology.target(to, topology.plane(hash));
        let mut at = topology.attachment(from, target.plane).0;
        loop {
            questions.push(Question { at, to, plane: target.plane, hash });
            let (port, _) = topology.next_hop(at, &target, Itinerary::DIRECT, hash);
            match topology.peer(at, port) {
                Some(Peer::Switch { switch, .. }) => at = switch,
                _ => break,
            }
        }
    }
    questions
}

/// Seconds of `lookups` questions, over and over, each round as another flow.
fn time(
    topology: &Topology,
    questions: &[Question],
    lookups: u64,
    look_up: impl Fn(&Question, &Target, u64) -> u32,
) -> f64 {
    let watch = Stopwatch::start();
    let (mut left, mut round) = (lookups, 0u64);
    while left > 0 && !questions.is_empty() {
        for question in &questions[..questions.len().min(left as usize)] {
            // Another flow in each round, so that no choice is made twice.
            let hash = question.hash.wrapping_add(round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let target = topology.target(question.to, question.plane);
            black_box(look_up(question, &target, hash));
        }
        left = left.saturating_sub(questions.len() as u64);
        round += 1;
    }
    watch.wall_seconds()
}
