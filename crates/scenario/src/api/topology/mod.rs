//! `windtunnel topology`: a topology in numbers, and questions about it.
//!
//! The request and the answer are JSON; docs/results.md names their keys. What was not asked for is null in the answer.

mod bill;
mod drawing;
mod export;
mod paths;
mod report;
mod request;

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use windtunnel_config::cost::cost;
use windtunnel_config::load;
use windtunnel_config::resolve::fabric::{self, Draft, Written, faults};
use windtunnel_config::schema::TopologyFile;
use windtunnel_kernel::memory;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::inputs::Inputs;
use windtunnel_run::machine::{Stopwatch, peak_rss_bytes};
use windtunnel_topology::{Forwarder, Topology, TopologySpec};
use windtunnel_workload::model::sheets::GpuSheet;

use self::request::{Repair, Request};
use super::{Failure, ready_to_route};

/// The topology that a text is, or that the scenario in it has.
///
/// # Errors
/// [`Failure::Input`].
pub(super) fn read(text: &str, source: &str, base: &Path) -> Result<Written, Failure> {
    let tree: Value = load::from_yaml(text, source)?;
    let (keys, path) = if tree.get("topology").is_some() {
        (load::scenario(text, source, &[])?.topology, "topology")
    } else {
        (load::from_yaml::<TopologyFile>(text, source)?, "")
    };
    Ok(fabric::resolve(&keys, source, path, &Inputs::of(base))?)
}

/// The summary of a topology (a file whose root is one, or a scenario) and the answers to `request`, as JSON text.
///
/// # Errors
/// [`Failure::Input`], for the text and for the request.
pub fn topology(text: &str, source: &str, base: &Path, request: &str) -> Result<String, Failure> {
    let request = Request::parse(request)?;
    let written = read(text, source, base)?;
    let mut evidence = EvidenceList::default();
    let draft = Draft::new(&written, &mut evidence)?;
    memory::reset_peak();
    let watch = Stopwatch::start();
    let topology = draft.topology(request.hash.of())?;
    ready_to_route(&topology);
    let (setup_s, peak_memory) = (watch.wall_seconds(), memory::peak());
    let export =
        request.export.as_deref().map(|format| export::export(format, draft.spec(), &topology, source));
    let export = export.transpose()?;
    let recognised = recognised(&written.keys, draft.spec());
    let fabric = draft.finish(topology)?;
    let topology = &fabric.topology;
    let mut forwarder = forwarder(&request, &written.keys, fabric.faults.as_ref(), topology)?;

    let paths = request.paths.as_deref().map(|asked| paths::paths(asked, &mut forwarder)).transpose()?;
    let ecmp = request.ecmp.as_deref().map(|asked| paths::ecmp(asked, &mut forwarder)).transpose()?;
    let check = request.check.as_ref().and_then(request::CheckQuery::pairs);
    let check = check.map(|pairs| report::check(&mut forwarder, pairs));
    let analysis = request.analyse.then(|| report::analysis(&mut forwarder));
    let model = written.keys.switch.model.as_deref();
    let bill = (request.analyse || request.price).then(|| bill::inventory(topology, model));
    let cost = bill.map(|bill| cost(&bill, &written.base, &written.at("switch.model"))).transpose()?;
    let drawing = request.draw.then(|| drawing::drawing(&forwarder));

    let summary = topology.summary();
    let host = written.keys.host.as_ref();
    let domains = u64::from(summary.endpoints).div_ceil(u64::from(summary.scale_up_size.max(1)));
    let scale_up_links = if summary.scale_up_size > 1 { 2 * u64::from(summary.endpoints) } else { 0 };
    let mut inside = json!({
        "gpus": topology.endpoints_per_host(),
        "nics": topology.nics_per_host(),
        "rails": host.is_some_and(|host| host.rails != windtunnel_config::schema::Rails::No),
        "gpu": fabric.gpu.as_ref().map(|sheet| sheet.name.clone()),
        "nic": fabric.nic.as_ref().map(|sheet| sheet.name.clone()),
    });
    if fabric.kinds.differ() {
        let one = |(gpus, sheet): (u32, &GpuSheet)| json!({"gpus": gpus, "gpu": sheet.name});
        inside["by_building"] = fabric.kinds.stretches().into_iter().map(one).collect();
    }
    Ok(json!({
        "shape": written.keys.shape.map_or(summary.shape, |name| name.0.name()),
        "hosts": summary.hosts,
        "gpus": summary.endpoints,
        "nics": summary.nics,
        "switches": summary.switches,
        "links": summary.links,
        "cables": (summary.links - scale_up_links) / 2,
        "planes": summary.planes,
        "scale_up_size": summary.scale_up_size,
        "scale_up_domains": domains,
        "host": inside,
        "routing": report::routing(&written.keys, recognised),
        "tiers": summary.tiers.iter().map(report::tier).collect::<Vec<_>>(),
        "bisection_bps": summary.bisection.bps(),
        "diameter_links": summary.diameter_links,
        "diameter_latency_ps": summary.diameter_latency.ps(),
        "setup_s": setup_s,
        "peak_memory_bytes": peak_memory,
        "peak_rss_bytes": peak_rss_bytes(),
        "evidence": evidence.rows(),
        "faults": faults_json(&forwarder, &request),
        "paths": paths,
        "ecmp": ecmp,
        "check": check,
        "analysis": analysis,
        "cost": cost,
        "parameters": bill::parameters(&written.keys),
        "drawing": drawing,
        "export": export,
        "recognised": recognised,
    })
    .to_string())
}

/// The regular shape that an imported graph is routed as; null where there is none, or nothing was imported.
fn recognised(written: &TopologyFile, spec: &TopologySpec) -> Option<&'static str> {
    written.graph.as_ref()?;
    match spec {
        TopologySpec::Clos(_) => Some("clos"),
        TopologySpec::Torus(_) => Some("torus"),
        _ => None,
    }
}

/// Routing around what the file and the request have failed.
fn forwarder(
    request: &Request,
    written: &TopologyFile,
    failed: Option<&Forwarder>,
    topology: &Arc<Topology>,
) -> Result<Forwarder, Failure> {
    let mut policy = faults::policy(written);
    if let Some(detour) = request.detour {
        policy.detour = detour.0;
    }
    policy.weighted = request.weighted.unwrap_or(policy.weighted);
    let mut forwarder = Forwarder::new(Arc::clone(topology), policy);
    for link in failed.into_iter().flat_map(Forwarder::failed_cables) {
        forwarder.fail_cable(link);
    }
    for switch in failed.into_iter().flat_map(Forwarder::failed_switches) {
        forwarder.fail_switch(switch);
    }
    // What the file says has failed, everybody knows.
    forwarder.converge();
    for part in faults::parts(&request.fail, topology, |index| format!("--fail {}", request.fail[index]))? {
        part.fail(&mut forwarder);
    }
    if request.repair == Repair::Converged {
        forwarder.converge();
    }
    Ok(forwarder)
}

fn faults_json(forwarder: &Forwarder, request: &Request) -> Value {
    let topology = forwarder.topology();
    let links: Vec<String> = forwarder.failed_cables().map(|link| topology.link_name(link)).collect();
    let name = |switch| topology.node_name(windtunnel_topology::Node::Switch(switch));
    let switches: Vec<String> = forwarder.failed_switches().map(name).collect();
    if links.is_empty() && switches.is_empty() {
        return Value::Null;
    }
    let policy = forwarder.policy();
    json!({
        "links": links,
        "switches": switches,
        "detour": policy.detour.name(),
        "repair": request.repair.name(),
        "weighted": policy.weighted,
    })
}
