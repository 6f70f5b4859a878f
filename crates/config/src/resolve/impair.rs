//! What goes wrong on the fabric: names to links and NICs, numbers checked.

use std::path::Path;

use windtunnel_fabric::packet::{
    Background, FabricPart, GilbertElliott, Impairments, PartChange, PartState, Share, Sizes,
};
use windtunnel_kernel::{RandomStream, Span, Time};
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::fabric::FabricParts;
use windtunnel_plan::inputs::Inputs;
use windtunnel_plan::troubles::Troubles;
use windtunnel_topology::{LinkId, Topology};

use super::fabric::faults::{self, Part};
use crate::schema::{BackgroundRule, BitErrorRule, DriftRule, Fidelity, Links, LossRule, Scenario};
use crate::{load, sheets};

/// From a change until every switch knows, where the scenario does not say.
const CONVERGENCE: Span = Span::from_ps(1_000_000_000);

/// Kind of sheets with flow sizes.
const SIZES: &str = "flows";

/// A sheet of flow sizes.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SizesSheet {
    name: String,
    evidence: String,
    source: String,
    points: Vec<(f64, f64)>,
}

/// Where a rule stands.
struct Place<'a> {
    source: &'a str,
}

impl Place<'_> {
    fn at(&self, key: &str) -> String {
        format!("{}: impairments.{key}", self.source)
    }

    /// A share of 0 to 1.
    fn share(&self, key: &str, found: f64) -> Result<f64, InputError> {
        if (0.0..=1.0).contains(&found) {
            return Ok(found);
        }
        Err(InputError::new(self.at(key), format!("expected a share from 0 to 1, found {found}")))
    }

    /// A number of packets, at least 1.
    fn packets(&self, key: &str, found: f64) -> Result<f64, InputError> {
        if found >= 1.0 && found.is_finite() {
            return Ok(found);
        }
        Err(InputError::new(self.at(key), format!("expected at least 1 packet, found {found}")))
    }

    /// An end after its begin.
    fn after(&self, key: &str, begin: Span, end: Option<Span>) -> Result<Option<Span>, InputError> {
        match end {
            Some(end) if end <= begin => {
                let message = format!("expected a time after {begin}, found {end}");
                Err(InputError::new(self.at(key), message))
            }
            end => Ok(end),
        }
    }
}

/// Checks what the scenario says goes wrong.
///
/// # Errors
/// [`InputError`] for unknown links, hosts and sizes, numbers out of range, and what needs packet fidelity.
pub fn troubles(
    scenario: &Scenario,
    fabric: &FabricParts,
    source: &str,
    base: &Inputs,
    evidence: &mut EvidenceList,
) -> Result<Troubles, InputError> {
    let (written, topology) = (&scenario.impairments, &*fabric.topology);
    let place = Place { source };
    let mut losses = Vec::new();
    for (index, rule) in written.loss.iter().enumerate() {
        let model = loss(rule, &place, index)?;
        let links = links(&rule.on, topology, |number| place.at(&format!("loss[{index}].on{number}")))?;
        losses.extend(links.into_iter().map(|link| (link, model)));
    }
    for (index, rule) in written.bit_errors.iter().enumerate() {
        let model = bit_errors(rule, &place, index)?;
        let links = links(&rule.on, topology, |number| place.at(&format!("bit_errors[{index}].on{number}")))?;
        losses.extend(links.into_iter().map(|link| (link, model)));
    }
    let convergence = written.convergence.map_or(CONVERGENCE, |convergence| convergence.0);
    let mut changes = Vec::new();
    let mut change = |at: Span, part, state| {
        let known = Time::from_ps(at.ps()) + convergence;
        changes.push(PartChange { at: Time::from_ps(at.ps()), known, part, state });
    };
    for (index, rule) in written.down.iter().enumerate() {
        let part = part(&rule.part, topology, || place.at(&format!("down[{index}].part")))?;
        change(rule.at.0, part, PartState::Down);
        let until = rule.until.map(|until| until.0);
        if let Some(until) = place.after(&format!("down[{index}].until"), rule.at.0, until)? {
            change(until, part, PartState::Up);
        }
    }
    for (index, rule) in written.slow.iter().enumerate() {
        let part = part(&rule.part, topology, || place.at(&format!("slow[{index}].part")))?;
        if !(rule.rate > 0.0 && rule.rate <= 1.0) {
            let message = format!("expected a part of the rate above 0, at most 1, found {}", rule.rate);
            return Err(InputError::new(place.at(&format!("slow[{index}].rate")), message));
        }
        change(rule.at.0, part, PartState::Rate(rule.rate));
        let until = rule.until.map(|until| until.0);
        if let Some(until) = place.after(&format!("slow[{index}].until"), rule.at.0, until)? {
            change(until, part, PartState::Rate(1.0));
        }
    }
    let drift = drift(&written.drift, topology, scenario.seed, &place)?;
    let each = topology.nics_per_host();
    let nics = |&(host, fast): &(u32, i64)| (host * each..(host + 1) * each).map(move |nic| (nic, fast));
    let background = written.background.iter().enumerate();
    let background: Vec<_> = background
        .map(|(index, rule)| background_of(rule, &place, index, base, evidence))
        .collect::<Result<_, _>>()?;
    // A wrong value is told as one at every fidelity.
    needs_packets(scenario, &place)?;
    Ok(Troubles {
        impairments: Impairments {
            losses,
            changes,
            policy: fabric.policy,
            clocks: drift.iter().flat_map(nics).collect(),
        },
        background,
        drift,
    })
}

/// Refuses what the scenario's fidelity does not model.
fn needs_packets(scenario: &Scenario, place: &Place<'_>) -> Result<(), InputError> {
    if scenario.fidelity == Fidelity::Packet {
        return Ok(());
    }
    let written = &scenario.impairments;
    // Flows are routed and shared anew when links change.
    let flows = scenario.fidelity == Fidelity::Flow;
    let used = [
        ("loss", written.loss.is_empty()),
        ("bit_errors", written.bit_errors.is_empty()),
        ("down", flows || written.down.is_empty()),
        ("slow", flows || written.slow.is_empty()),
        ("background", written.background.is_empty()),
    ];
    if let Some((key, _)) = used.into_iter().find(|(_, empty)| !empty) {
        let message = format!("needs packets to act on, found `fidelity: {}`", scenario.fidelity.name());
        return Err(InputError::new(place.at(key), message).hint("`fidelity: packet`"));
    }
    if scenario.results.queues.is_some() {
        let message = format!("queues need packets, found `fidelity: {}`", scenario.fidelity.name());
        let at = format!("{}: results.queues", place.source);
        return Err(InputError::new(at, message).hint("`fidelity: packet`"));
    }
    Ok(())
}

fn loss(rule: &LossRule, place: &Place<'_>, index: usize) -> Result<GilbertElliott, InputError> {
    let rate = place.share(&format!("loss[{index}].rate"), rule.rate)?;
    let Some(burst) = rule.burst else { return Ok(GilbertElliott::independent(Share::Packets(rate))) };
    let key = format!("loss[{index}].burst");
    let model = GilbertElliott::bursts(rate, place.packets(&key, burst)?);
    if model.to_bad > 1.0 {
        let least = rate / (1.0 - rate);
        let message =
            format!("bursts of {burst} packets cannot lose {rate} of all, expected at least {least}");
        return Err(InputError::new(place.at(&key), message));
    }
    Ok(model)
}

fn bit_errors(rule: &BitErrorRule, place: &Place<'_>, index: usize) -> Result<GilbertElliott, InputError> {
    let good = Share::Bits(place.share(&format!("bit_errors[{index}].rate"), rule.rate)?);
    let Some(bad) = &rule.bad else { return Ok(GilbertElliott::independent(good)) };
    let key = |name: &str| format!("bit_errors[{index}].bad.{name}");
    let rate = place.share(&key("rate"), bad.rate)?;
    let length = place.packets(&key("length"), bad.length)?;
    let every = place.packets(&key("every"), bad.every)?;
    if every < length + 1.0 {
        let message = format!("expected more than `length` and 1, {}, found {every}", length + 1.0);
        return Err(InputError::new(place.at(&key("every")), message));
    }
    Ok(GilbertElliott { to_bad: 1.0 / (every - length), to_good: 1.0 / length, good, bad: Share::Bits(rate) })
}

/// The links of a selection, in the order of their numbers; `at` is the place of what stands at a number.
pub(super) fn links(
    on: &Links,
    topology: &Topology,
    at: impl Fn(&str) -> String,
) -> Result<Vec<LinkId>, InputError> {
    let all = || (0..topology.link_count() as u32).map(LinkId);
    let tier = |link: LinkId| topology.link(link).tier.name();
    let outside = |link: &LinkId| !tier(*link).starts_with("scale-up");
    let mut found = Vec::new();
    let names = on.names();
    for (number, name) in names.iter().enumerate() {
        let here = || at(&if names.len() > 1 { format!("[{number}]") } else { String::new() });
        let name = name.trim();
        if name == "all" {
            found.extend(all().filter(outside));
            continue;
        }
        let before = found.len();
        found.extend(all().filter(outside).filter(|&link| tier(link) == name));
        if found.len() > before {
            continue;
        }
        match faults::parts(&[name.to_owned()], topology, |_| here()) {
            Ok(parts) => {
                for part in parts {
                    match part {
                        // In the direction that is written.
                        Part::Cable(link) => found.push(link),
                        Part::Switch(switch) => {
                            let out = (0..topology.ports(switch))
                                .filter_map(|port| topology.out_link(switch, port));
                            found.extend(out.flat_map(|link| [link, topology.reverse(link)]));
                        }
                    }
                }
            }
            Err(error) => {
                let mut tiers: Vec<String> =
                    all().filter(outside).map(|link| tier(link).into_owned()).collect();
                tiers.sort();
                tiers.dedup();
                let near = nearest(name, tiers.iter().map(String::as_str));
                return Err(match near {
                    _ if name.contains("->") => error,
                    Some(near) => InputError::new(here(), format!("no tier, switch or link `{name}`"))
                        .hint(format!("did you mean `{near}`?")),
                    None => error.hint(format!("tiers are `{}`", tiers.join("`, `"))),
                });
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn part(name: &str, topology: &Topology, at: impl Fn() -> String) -> Result<FabricPart, InputError> {
    let parts = faults::parts(&[name.to_owned()], topology, |_| at())?;
    Ok(match parts[0] {
        Part::Cable(link) => FabricPart::Cable(link),
        Part::Switch(switch) => FabricPart::Switch(switch),
    })
}

/// The drift of hosts in parts in 10^9; rules add up.
fn drift(
    rules: &[DriftRule],
    topology: &Topology,
    seed: u64,
    place: &Place<'_>,
) -> Result<Vec<(u32, i64)>, InputError> {
    let mut sums = vec![0; if rules.is_empty() { 0 } else { topology.hosts() as usize }];
    for (index, rule) in rules.iter().enumerate() {
        let key = |name: &str| format!("drift[{index}].{name}");
        let (name, ppm) = match (rule.ppm, rule.within_ppm) {
            (Some(ppm), None) => ("ppm", ppm),
            (None, Some(within)) => ("within_ppm", within),
            _ => {
                let message = "expected exactly one of `ppm` and `within_ppm`";
                return Err(InputError::new(place.at(&format!("drift[{index}]")), message));
            }
        };
        if !(-100_000.0..=100_000.0).contains(&ppm) {
            let message = format!("expected -100000 to 100000 parts in a million, found {ppm}");
            return Err(InputError::new(place.at(&key(name)), message));
        }
        let hosts = match rule.host {
            Some(host) if host >= topology.hosts() => {
                let message = format!("there are {} hosts, counted from 0, found {host}", topology.hosts());
                return Err(InputError::new(place.at(&key("host")), message));
            }
            Some(host) => host..host + 1,
            None => 0..topology.hosts(),
        };
        for host in hosts {
            let share = match name {
                "ppm" => 1.0,
                _ => 2.0 * RandomStream::new(seed, "drift", u64::from(host)).uniform() - 1.0,
            };
            sums[host as usize] += (ppm * share * 1e3).round() as i64;
        }
    }
    Ok((0..).zip(sums).filter(|&(_, fast)| fast != 0).collect())
}

fn background_of(
    rule: &BackgroundRule,
    place: &Place<'_>,
    index: usize,
    base: &Inputs,
    evidence: &mut EvidenceList,
) -> Result<Background, InputError> {
    let key = |name: &str| format!("background[{index}].{name}");
    let sizes = match (&rule.sizes, rule.bytes) {
        (Some(name), None) => sizes(name, &place.at(&key("sizes")), base, evidence)?,
        (None, Some(bytes)) => {
            let bytes = bytes.0.get() as f64;
            Sizes::new(&[(bytes, 0.0), (bytes, 1.0)])
                .map_err(|error| InputError::new(place.at(&key("bytes")), error.to_string()))?
        }
        _ => {
            let message = "expected exactly one of `sizes` and `bytes`";
            return Err(InputError::new(place.at(&format!("background[{index}]")), message));
        }
    };
    if !(rule.load > 0.0 && rule.load < 1.0) {
        let message = format!("expected a share of the NIC's rate above 0, below 1, found {}", rule.load);
        return Err(InputError::new(place.at(&key("load")), message));
    }
    let from = rule.from.map_or(Span::ZERO, |from| from.0);
    let until = place.after(&key("until"), from, rule.until.map(|until| until.0))?;
    let between = (Time::from_ps(from.ps()), until.map_or(Time::NEVER, |until| Time::from_ps(until.ps())));
    Ok(Background { sizes, load: rule.load, partners: rule.pairs.0, between })
}

/// Sizes by name, or from a file of the user's.
fn sizes(name: &str, at: &str, base: &Inputs, evidence: &mut EvidenceList) -> Result<Sizes, InputError> {
    let path = Path::new(name);
    let is_sheet = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("yaml"));
    if !is_sheet && (name.contains('/') || path.extension().is_some()) {
        let path = base.join(name);
        let text = sheets::read(&path, at)?;
        evidence.add(&format!("flow sizes {name}"), "given", "a file of the scenario's");
        let file = path.display().to_string();
        return Sizes::parse(&text).map_err(|error| InputError::new(file, error.to_string()));
    }
    let sheet = sheets::find(SIZES, name, base, at)?;
    let SizesSheet { name, evidence: known, source, points } = load::from_yaml(&sheet.text, &sheet.source)?;
    evidence.add(&format!("flow sizes {name}"), &known, &source);
    Sizes::new(&points).map_err(|error| InputError::new(sheet.source, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every sheet of ours is a distribution.
    #[test]
    fn sheets_of_sizes_are_distributions() {
        let names = sheets::names(SIZES);
        assert!(names.len() >= 4);
        for name in names {
            let sizes =
                sizes(name, "here", &Inputs::of(Path::new(".")), &mut EvidenceList::default()).expect(name);
            assert!(sizes.mean_wire(4_096, 64) > 100.0, "{name}");
        }
    }

    /// Where the collection of published files is at hand: the same points.
    #[test]
    #[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
    fn sheets_of_sizes_are_the_published_ones() {
        let folder =
            Inputs::of(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/flows")));
        for (name, file) in [
            ("websearch", "hpcc_WebSearch_distribution.txt"),
            ("websearch", "trafficgen_DCTCP_CDF.txt"),
            ("fb-hadoop", "hpcc_FbHdp_distribution.txt"),
            ("ali-storage", "hpcc_AliStorage2019.txt"),
            ("vl2", "trafficgen_VL2_CDF.txt"),
        ] {
            let ours = sizes(name, "here", &folder, &mut EvidenceList::default()).expect(name);
            let theirs =
                sizes(&format!("./{file}"), "here", &folder, &mut EvidenceList::default()).expect(file);
            for step in 0..=10_000 {
                let share = f64::from(step) / 10_000.0;
                assert!(ours.at(share).abs_diff(theirs.at(share)) <= 1, "{name} at {share}");
            }
        }
    }
}
