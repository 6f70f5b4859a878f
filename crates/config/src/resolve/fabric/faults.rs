//! What has failed: cables and switches by name.

use std::sync::Arc;

use windtunnel_plan::error::{InputError, nearest};
use windtunnel_topology::{Forwarder, LinkId, Names, NoLink, Policy, SwitchId, Topology};

use super::place::Place;
use crate::resolve::names::list;
use crate::schema::TopologyFile;

/// Names that a hint lists.
const LISTED: usize = 6;

/// A failed part of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Both directions of a cable, by either link.
    Cable(LinkId),
    /// A switch with all its ports.
    Switch(SwitchId),
}

impl Part {
    /// Takes it out of service.
    pub fn fail(self, forwarder: &mut Forwarder) {
        match self {
            Self::Cable(link) => forwarder.fail_cable(link),
            Self::Switch(switch) => forwarder.fail_switch(switch),
        }
    }
}

/// How the file says that pairs without a legal path are treated.
pub fn policy(written: &TopologyFile) -> Policy {
    Policy { detour: written.detour.0, weighted: written.weighted }
}

/// The parts that `failed` names, in its order; `at` is the place of number i for messages.
///
/// # Errors
/// [`InputError`] with the nearest right names.
pub fn parts(
    failed: &[String],
    topology: &Topology,
    at: impl Fn(usize) -> String,
) -> Result<Vec<Part>, InputError> {
    if failed.is_empty() {
        return Ok(Vec::new());
    }
    let names = Names::new(topology);
    let part = |(index, name): (usize, &String)| {
        part(&names, topology, name).map_err(|(message, hint)| {
            let error = InputError::new(at(index), message);
            match hint {
                Some(hint) => error.hint(hint),
                None => error,
            }
        })
    };
    failed.iter().enumerate().map(part).collect()
}

fn part(names: &Names, topology: &Topology, text: &str) -> Result<Part, (String, Option<String>)> {
    let did_you_mean = |found: &str| {
        let all: Vec<String> = names.switches().collect();
        let near =
            nearest(found, all.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"));
        near.or_else(|| {
            let some = list(all.iter().take(LISTED).map(String::as_str), "and");
            let more = if all.len() > LISTED { ", …" } else { "" };
            (!all.is_empty()).then(|| format!("there are {some}{more}"))
        })
    };
    let (kind, name) = match text.split_once(':') {
        Some((kind @ ("link" | "switch"), name)) => (kind, name.trim()),
        _ if text.contains("->") => ("link", text.trim()),
        _ => ("switch", text.trim()),
    };
    if kind == "switch" {
        let switch = names.switch(name).map(Part::Switch);
        return switch.ok_or_else(|| (format!("no switch `{name}`"), did_you_mean(name)));
    }
    names.link(name).map(Part::Cable).map_err(|why| match why {
        NoLink::Unreadable => {
            let message = format!("expected a link such as `leaf0 -> spine1`, found `{name}`");
            (message, Some("`leaf0 -> spine1 #2` is the third of parallel cables".to_owned()))
        }
        NoLink::NoNode(node) => (format!("no node `{node}` for the link `{name}`"), did_you_mean(&node)),
        NoLink::NotJoined(links) => {
            let all: Vec<String> = links.iter().map(|&link| topology.link_name(link)).collect();
            let hint = match nearest(name, all.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    let more = if all.len() > LISTED { ", …" } else { "" };
                    format!("there are {}{more}", list(all.iter().take(LISTED).map(String::as_str), "and"))
                }
            };
            (format!("no link `{name}`"), Some(hint))
        }
    })
}

/// Routing around what the file says has failed; `None` if nothing has.
pub(super) fn forwarder(
    written: &TopologyFile,
    topology: &Arc<Topology>,
    place: &Place,
) -> Result<Option<Forwarder>, InputError> {
    let failed = parts(&written.failed, topology, |index| place.at(&format!("failed[{index}]")))?;
    if failed.is_empty() {
        return Ok(None);
    }
    let mut forwarder = Forwarder::new(Arc::clone(topology), policy(written));
    for part in failed {
        part.fail(&mut forwarder);
    }
    forwarder.converge();
    Ok(Some(forwarder))
}
