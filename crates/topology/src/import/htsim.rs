//! htsim's `.topo`: a leaf-spine or three-tier fat tree by its sizes.
//!
//! `Nodes`, `Tiers` (2 or 3) and `Podsize`, then a block `Tier i` for each tier, 0 the leaves: `Downlink_speed_Gbps`,
//! `Radix_Down`, `Radix_Up` (not at the top), `Downlink_Latency_ns`, `Switch_Latency_ns`, `Oversubscribed`, `Bundle`,
//! `Queue_Up`, `Queue_Down`. Keys are read without regard to case. Queue sizes belong to the network model, not to the
//! topology, and are checked but not kept.
//!
//! htsim compares `Radix_Down / Radix_Up`, rounded down and without the speeds, with `Oversubscribed`, and stops on a
//! bare assert elsewhere; here the sizes must close exactly: rate down = `Oversubscribed` × rate up at every switch, and
//! the number of switches of every tier whole. A number given twice is an error whatever its value, and so is a tier
//! beyond `Tiers`.

use windtunnel_kernel::{BitRate, Span};

use super::attributes::unknown_key;
use super::text::{Source, Word, lines};
use crate::graph::{GraphError, GraphProblem, Place};
use crate::spec::{ClosSpec, DEFAULT_PROPAGATION_PS_PER_M, HostSpec, Tier};

const HEADER_KEYS: [&str; 4] = ["Nodes", "Tiers", "Podsize", "Tier"];
const TIER_KEYS: [&str; 9] = [
    "Downlink_speed_Gbps",
    "Radix_Down",
    "Radix_Up",
    "Downlink_Latency_ns",
    "Switch_Latency_ns",
    "Oversubscribed",
    "Bundle",
    "Queue_Up",
    "Queue_Down",
];

/// A number and where it stands.
#[derive(Clone, Copy, Debug)]
struct Value {
    number: u64,
    place: Place,
}

/// The numbers of one block.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    place: Place,
    values: [Option<Value>; TIER_KEYS.len()],
}

impl Block {
    fn get(&self, key: &str) -> Option<Value> {
        self.values[TIER_KEYS.iter().position(|name| *name == key)?]
    }

    fn or(&self, key: &str, default: u64) -> u64 {
        self.get(key).map_or(default, |value| value.number)
    }
}

struct Reader<'a> {
    source: Source<'a>,
    header: [Option<Value>; 3],
    tiers: Vec<Block>,
}

pub(super) fn read(file: &str, text: &str) -> Result<ClosSpec, GraphError> {
    let mut reader = Reader { source: Source { file }, header: [None; 3], tiers: Vec::new() };
    for line in lines(text) {
        let mut words = line.words();
        let key = words.next().expect("blank lines have been skipped");
        let Some(value) = words.next() else {
            return Err(reader.source.syntax(
                line.place(),
                &format!("a number after `{}`", key.text),
                "nothing",
            ));
        };
        if let Some(extra) = words.next() {
            let found = format!("`{}`", extra.text);
            return Err(reader.source.syntax(extra.place, "a key and a number", &found));
        }
        reader.take(key, value)?;
    }
    reader.close()
}

impl Reader<'_> {
    fn take(&mut self, key: Word<'_>, value: Word<'_>) -> Result<(), GraphError> {
        let number: u64 = value.text.parse().map_err(|_| {
            let expected = format!("a whole number of at least 0 for `{}`", key.text);
            self.source.syntax(value.place, &expected, &format!("`{}`", value.text))
        })?;
        if number > 1 << 40 {
            let expected = format!("a number below 2^40 for `{}`", key.text);
            return Err(self.source.syntax(value.place, &expected, &format!("`{number}`")));
        }
        let read = Value { number, place: value.place };
        let same = |name: &&str| name.eq_ignore_ascii_case(key.text);
        if key.text.eq_ignore_ascii_case("tier") {
            if number != self.tiers.len() as u64 {
                let expected = format!("tier {} next", self.tiers.len());
                return Err(self.source.syntax(value.place, &expected, &format!("tier {number}")));
            }
            self.tiers.push(Block { place: key.place, ..Block::default() });
            return Ok(());
        }
        let (slot, within) = if let Some(tier) = self.tiers.last_mut() {
            let Some(index) = TIER_KEYS.iter().position(same) else {
                return Err(unknown_key(self.source, key, &TIER_KEYS[..]));
            };
            (&mut tier.values[index], "in a tier")
        } else {
            let Some(index) = HEADER_KEYS[..3].iter().position(same) else {
                return Err(unknown_key(self.source, key, &HEADER_KEYS[..]));
            };
            (&mut self.header[index], "in the header")
        };
        if slot.replace(read).is_some() {
            let (name, within) = (key.text.to_owned(), within.to_owned());
            return Err(self.source.fail(key.place, GraphProblem::DuplicateKey { key: name, within }));
        }
        Ok(())
    }

    fn mismatch(
        &self,
        at: Place,
        key: &str,
        expected: String,
        found: u64,
        hint: Option<String>,
    ) -> GraphError {
        let (key, found) = (key.to_owned(), found.to_string());
        self.source.fail(at, GraphProblem::Mismatch { key, expected, found, hint })
    }

    /// A number of a tier that must be there and at least 1.
    fn need(&self, tier: usize, key: &str) -> Result<Value, GraphError> {
        let block = &self.tiers[tier];
        let value = block.get(key).ok_or_else(|| {
            let (key, within) = (key.to_owned(), format!("in tier {tier}"));
            self.source.fail(block.place, GraphProblem::MissingKey { key, within })
        })?;
        if value.number == 0 {
            return Err(self.mismatch(value.place, key, "at least 1".to_owned(), 0, None));
        }
        Ok(value)
    }

    fn head(&self, index: usize) -> Result<Value, GraphError> {
        let key = HEADER_KEYS[index];
        let value = self.header[index].ok_or_else(|| {
            let (key, within) = (key.to_owned(), "in the header".to_owned());
            self.source.fail(Place::File, GraphProblem::MissingKey { key, within })
        })?;
        if value.number == 0 {
            return Err(self.mismatch(value.place, key, "at least 1".to_owned(), 0, None));
        }
        Ok(value)
    }

    /// Whether the sizes close, and the Clos they describe.
    fn close(&self) -> Result<ClosSpec, GraphError> {
        let (nodes, tiers, pod) = (self.head(0)?, self.head(1)?, self.head(2)?);
        if !(2..=3).contains(&tiers.number) {
            return Err(self.mismatch(tiers.place, "Tiers", "2 or 3".to_owned(), tiers.number, None));
        }
        let top = tiers.number as usize - 1;
        if self.tiers.len() != top + 1 {
            let at = self.tiers.last().map_or(tiers.place, |block| block.place);
            let expected = format!("{} blocks `Tier`, as `Tiers` says", top + 1);
            return Err(self.source.syntax(at, &expected, &self.tiers.len().to_string()));
        }
        let bundle = |tier: usize| self.tiers[tier].or("Bundle", 1);
        if let Some(value) = self.tiers[0].get("Bundle").filter(|value| value.number != 1) {
            return Err(self.mismatch(value.place, "Bundle", "1 in tier 0".to_owned(), value.number, None));
        }
        let mut specs = Vec::with_capacity(top + 1);
        for tier in 0..=top {
            specs.push(self.tier(tier, tier == top)?);
        }
        let hosts_per_leaf = u64::from(specs[0].ports_down);
        let multiple = |value: Value, key: &str, of: u64, what: &str| {
            if value.number.is_multiple_of(of) {
                return Ok(value.number / of);
            }
            let up = value.number.div_ceil(of) * of;
            let expected = format!("a multiple of the {of} {what}");
            Err(self.mismatch(value.place, key, expected, value.number, Some(format!("the next is {up}"))))
        };
        let leaves = multiple(pod, "Podsize", hosts_per_leaf, "hosts of a leaf (`Radix_Down` of tier 0)")?;
        let pods = multiple(nodes, "Nodes", pod.number, "hosts of a pod (`Podsize`)")?;
        if top == 1 && pods != 1 {
            let expected = format!("the {} `Nodes`, as there is no tier above the pods", nodes.number);
            return Err(self.mismatch(pod.place, "Podsize", expected, pod.number, None));
        }
        // A switch of tier i + 1 has a bundle to each block below it.
        for (tier, blocks, what) in [(1, leaves, "leaves of a pod"), (2, pods, "pods")].into_iter().take(top)
        {
            let radix = self.need(tier, "Radix_Down")?;
            let due = blocks * bundle(tier);
            if radix.number != due {
                let expected =
                    format!("{due}, a `Bundle` of {} to each of the {blocks} {what}", bundle(tier));
                return Err(self.mismatch(radix.place, "Radix_Down", expected, radix.number, None));
            }
        }
        let hosts = u32::try_from(nodes.number)
            .map_err(|_| self.mismatch(nodes.place, "Nodes", "below 2^32".to_owned(), nodes.number, None))?;
        let host = HostSpec::new(1, 1, specs[0].rate);
        Ok(ClosSpec::new(hosts, host, specs))
    }

    fn tier(&self, tier: usize, top: bool) -> Result<Tier, GraphError> {
        let block = &self.tiers[tier];
        let speed = self.need(tier, "Downlink_speed_Gbps")?;
        let down = self.need(tier, "Radix_Down")?;
        let latency = self.need(tier, "Downlink_Latency_ns")?;
        for (key, value) in [("Downlink_speed_Gbps", speed), ("Radix_Down", down)] {
            if value.number > 1 << 24 {
                return Err(self.mismatch(value.place, key, "at most 2^24".to_owned(), value.number, None));
            }
        }
        let length_mm = latency.number * 1_000_000 / DEFAULT_PROPAGATION_PS_PER_M;
        let mut spec = Tier::new(down.number as u32, BitRate::from_gbps(speed.number));
        spec.length_mm = length_mm;
        spec.switch_latency = Span::from_ps(block.or("Switch_Latency_ns", 0) * 1_000);
        let bundle = block.get("Bundle");
        if let Some(value) = bundle {
            if value.number == 0 || !down.number.is_multiple_of(value.number) {
                let expected = format!("a divisor of the {} ports down", down.number);
                return Err(self.mismatch(value.place, "Bundle", expected, value.number, None));
            }
            spec.bundle = value.number as u32;
        }
        if top {
            for key in ["Radix_Up", "Queue_Up"] {
                if let Some(value) = block.get(key) {
                    let expected = "absent: the top tier has no uplinks".to_owned();
                    return Err(self.mismatch(value.place, key, expected, value.number, None));
                }
            }
            return Ok(spec);
        }
        let up = self.need(tier, "Radix_Up")?;
        let above = self.need(tier + 1, "Downlink_speed_Gbps")?.number;
        let bundle_above = self.tiers[tier + 1].or("Bundle", 1).max(1);
        if !up.number.is_multiple_of(bundle_above) {
            let expected = format!("a multiple of the `Bundle` of {bundle_above} of tier {}", tier + 1);
            return Err(self.mismatch(up.place, "Radix_Up", expected, up.number, None));
        }
        let ratio = block.or("Oversubscribed", 1);
        let (rate_down, rate_up) = (down.number * speed.number, up.number * above);
        if u128::from(rate_down) != u128::from(ratio) * u128::from(rate_up) {
            let real = rate_down as f64 / rate_up as f64;
            let expected = format!(
                "{real}: {} ports down of {} Gbps over {} up of {above} Gbps",
                down.number, speed.number, up.number
            );
            let place = block.get("Oversubscribed").map_or(up.place, |value| value.place);
            let hint = format!("set `Oversubscribed {real}`, or change `Radix_Up` in tier {tier}");
            let hint = (real >= 1.0 && real.fract() == 0.0).then_some(hint);
            return Err(self.mismatch(place, "Oversubscribed", expected, ratio, hint));
        }
        spec.oversubscription = ratio as f64;
        Ok(spec)
    }
}
