//! What a fabric costs and draws, from the data sheets of switches and optics.
//!
//! Switches. A sheet serves a switch whose fastest port is not faster than its own, whose ports together do not outrun
//! its capacity, and that has no more of them than its radix (ports may be split, as 64 x 800 Gbps into 128 x 400 Gbps).
//! Of those that do, the cheapest is taken, unless `switch.model` names one. A switch larger than every box is priced as a
//! folded Clos of boxes with the same ports outside: leaves with half of their ports inwards and half as many spines, so
//! ⌈3 · need / capacity⌉ boxes ([`Fit::boxes`]). Boxes are whole: an idle port costs what a busy one does.
//!
//! Cables. Of the sheets whose rate and reach suffice those of the lowest rate, of these those of the shortest reach, of
//! these the cheapest: copper to 3 m, active cables and multimode to 100 m, single-mode to 10 km, coherent beyond. A cable
//! faster than every sheet is several in parallel, one longer than every reach is several spans. Power is of the modules
//! at both ends, those in NICs included.
//!
//! Not counted: NICs, hosts, scale-up networks, racks, patch panels, leased fibre of coherent spans, operation. Sums are
//! exact products of sheet figures; how good they are, `evidence` says: prices that nobody publishes are `inferred`.
//!
//! A sheet without a price or a power makes the sums that need it unknown (null), never smaller.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use windtunnel_kernel::BitRate;
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::inputs::Inputs;
use windtunnel_workload::model::{OpticsKind, OpticsSheet, SwitchSheet};

use crate::sheets;

/// What is bought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Sheet of all switches; chosen for each group if left out.
    pub model: Option<String>,
    /// Switches, alike in a group.
    pub switches: Vec<SwitchGroup>,
    /// Cables, alike in a group.
    pub cables: Vec<CableGroup>,
}

/// Switches of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchGroup {
    /// What they are called: `leaf`, `spine`.
    pub what: String,
    /// How many.
    pub count: u64,
    /// Rate and number of the ports of one of them.
    pub ports: Vec<(BitRate, u64)>,
}

/// Cables of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CableGroup {
    /// Where they are: `nic`, `leaf-up`.
    pub what: String,
    /// How many, both directions counted once.
    pub count: u64,
    /// Per direction.
    pub rate: BitRate,
    /// In millimetres.
    pub length_mm: u64,
}

/// Cost and power of `inventory` as JSON: `switches_usd`, `cables_usd`, `total_usd`, `switches_w`, `cables_w`, `power_w`,
/// `items`, `evidence`. Relative names of sheets start from `base`; `place` is the key of `switch.model`.
///
/// # Errors
/// [`InputError`] for a model that is unknown, faulty or too slow for a port.
pub fn cost(inventory: &Inventory, base: &Inputs, place: &str) -> Result<Value, InputError> {
    let boxes = switch_sheets(inventory.model.as_deref(), base, place)?;
    let optics = all("optics", base, OpticsSheet::parse)?;
    let mut evidence = EvidenceList::default();
    let mut items = Vec::new();
    for group in inventory.switches.iter().filter(|group| group.count > 0) {
        items.push(switch_item(group, &boxes, inventory.model.is_some(), place, &mut evidence)?);
    }
    for group in inventory.cables.iter().filter(|group| group.count > 0) {
        items.push(cable_item(group, &optics, &mut evidence)?);
    }
    let sum = |kind: &str, figure: fn(&Item) -> Option<f64>| {
        items.iter().filter(|item| item.kind == kind).map(figure).sum::<Option<f64>>()
    };
    let both = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b);
    let usd = ["switch", "cable"].map(|kind| sum(kind, |item| item.usd));
    let watts = ["switch", "cable"].map(|kind| sum(kind, |item| item.power_w));
    Ok(json!({
        "switches_usd": usd[0],
        "cables_usd": usd[1],
        "total_usd": both(usd[0], usd[1]),
        "switches_w": watts[0],
        "cables_w": watts[1],
        "power_w": both(watts[0], watts[1]),
        "items": items.iter().map(Item::json).collect::<Vec<_>>(),
        "evidence": evidence.rows(),
    }))
}

/// A line of the bill.
struct Item {
    kind: &'static str,
    what: String,
    count: u64,
    sheet: String,
    /// Boxes of a switch, or links and spans of a cable.
    each: u64,
    usd: Option<f64>,
    power_w: Option<f64>,
    why: String,
    rate: Option<BitRate>,
    length_mm: Option<u64>,
}

impl Item {
    fn json(&self) -> Value {
        json!({
            "kind": self.kind,
            "what": self.what,
            "rate_bps": self.rate.map(windtunnel_kernel::BitRate::bps),
            "length_m": self.length_mm.map(|length| length as f64 / 1e3),
            "count": self.count,
            "sheet": self.sheet,
            "each": self.each,
            "usd": self.usd,
            "power_w": self.power_w,
            "why": self.why,
        })
    }
}

/// How a sheet serves a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fit {
    /// Boxes of one switch; 1 unless it is larger than a box.
    boxes: u64,
}

impl Fit {
    /// `None` where a port is faster than the sheet's.
    fn of(sheet: &SwitchSheet, ports: &[(BitRate, u64)]) -> Option<Self> {
        if ports.iter().any(|&(rate, count)| count > 0 && rate > sheet.rate.value) {
            return None;
        }
        let capacity = u128::from(sheet.ports.value) * u128::from(sheet.rate.value.bps());
        let radix = u128::from(sheet.radix.as_ref().map_or(sheet.ports.value, |figure| figure.value));
        let rate: u128 = ports.iter().map(|&(rate, count)| u128::from(rate.bps()) * u128::from(count)).sum();
        let count: u128 = ports.iter().map(|&(_, count)| u128::from(count)).sum();
        if rate <= capacity && count <= radix {
            return Some(Self { boxes: 1 });
        }
        // By the scarcer of the two: 3 need / capacity boxes, in whole boxes.
        let by_rate = (3 * rate).div_ceil(capacity.max(1));
        let by_count = (3 * count).div_ceil(radix.max(1));
        u64::try_from(by_rate.max(by_count)).ok().map(|boxes| Self { boxes })
    }
}

fn all<T: DeserializeOwned, E: std::fmt::Display>(
    kind: &str,
    base: &Inputs,
    parse: fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, InputError> {
    sheets::names(kind).into_iter().map(|name| one(kind, name, base, "", parse)).collect()
}

fn one<T: DeserializeOwned, E: std::fmt::Display>(
    kind: &str,
    name: &str,
    base: &Inputs,
    place: &str,
    parse: fn(&str) -> Result<T, E>,
) -> Result<T, InputError> {
    sheets::find(kind, name, base, place)?.parsed(parse)
}

fn switch_sheets(model: Option<&str>, base: &Inputs, place: &str) -> Result<Vec<SwitchSheet>, InputError> {
    match model {
        Some(name) => Ok(vec![one("switches", name, base, place, SwitchSheet::parse)?]),
        None => all("switches", base, SwitchSheet::parse),
    }
}

fn switch_item(
    group: &SwitchGroup,
    sheets: &[SwitchSheet],
    named: bool,
    place: &str,
    evidence: &mut EvidenceList,
) -> Result<Item, InputError> {
    let wanted = ports_text(&group.ports);
    let mut fits: Vec<(&SwitchSheet, Fit)> =
        sheets.iter().filter_map(|sheet| Fit::of(sheet, &group.ports).map(|fit| (sheet, fit))).collect();
    // One box rather than several, then the cheapest; a sheet without a price comes last.
    let price = |sheet: &SwitchSheet| sheet.price.as_ref().map_or(f64::INFINITY, |figure| figure.value.0);
    fits.sort_by(|(a, x), (b, y)| {
        let cost = |sheet, fit: &Fit| price(sheet) * fit.boxes as f64;
        (x.boxes > 1).cmp(&(y.boxes > 1)).then(cost(a, x).total_cmp(&cost(b, y))).then(a.name.cmp(&b.name))
    });
    let Some(&(sheet, fit)) = fits.first() else {
        let fastest = sheets.iter().max_by_key(|sheet| sheet.rate.value);
        let found = fastest.map_or_else(String::new, |sheet| {
            format!(
                ", but the ports of {} run at {} Gbps",
                sheet.name,
                sheet.rate.value.bps() / 1_000_000_000
            )
        });
        if !named {
            return Ok(Item {
                kind: "switch",
                what: group.what.clone(),
                count: group.count,
                sheet: String::new(),
                each: 1,
                usd: None,
                power_w: None,
                why: format!("no sheet has ports fast enough for {wanted}"),
                rate: None,
                length_mm: None,
            });
        }
        return Err(InputError::new(place, format!("a {} has {wanted}{found}", group.what))
            .hint("name a faster switch, or leave `switch.model` out"));
    };
    evidence.sheet(
        &format!("switch {}", sheet.name),
        sheet.evidence().into_iter().filter(|(key, ..)| key != "latency" && key != "buffer").collect(),
    );
    let why = match (named, fit.boxes) {
        (true, 1) => format!("named; {wanted}"),
        (false, 1) => format!(
            "cheapest of the {} that have {wanted}",
            fits.iter().filter(|(_, fit)| fit.boxes == 1).count()
        ),
        (_, boxes) => format!("no box has {wanted}: a folded Clos of {boxes}"),
    };
    let boxes = (group.count * fit.boxes) as f64;
    Ok(Item {
        kind: "switch",
        what: group.what.clone(),
        count: group.count,
        sheet: sheet.name.clone(),
        each: fit.boxes,
        usd: sheet.price.as_ref().map(|figure| figure.value.0 * boxes),
        power_w: sheet.power.as_ref().map(|figure| figure.value.0 * boxes),
        why,
        rate: None,
        length_mm: None,
    })
}

/// `32 ports of 400 Gbps and 8 of 800 Gbps`.
fn ports_text(ports: &[(BitRate, u64)]) -> String {
    let part = |&(rate, count): &(BitRate, u64)| format!("{count} ports of {} Gbps", rate.bps() as f64 / 1e9);
    let parts: Vec<String> = ports.iter().filter(|(_, count)| *count > 0).map(part).collect();
    if parts.is_empty() { "no cabled port".to_owned() } else { parts.join(" and ") }
}

/// A cable as a number of equal links.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Links {
    parallel: u64,
    spans: u64,
    /// Of all of them.
    usd: f64,
}

fn links(sheet: &OpticsSheet, group: &CableGroup) -> Links {
    let parallel = group.rate.bps().div_ceil(sheet.rate.value.bps()).max(1);
    let spans = group.length_mm.div_ceil(sheet.reach.value.0.max(1)).max(1);
    let metres = group.length_mm as f64 / 1e3;
    let (ends, beyond) = match sheet.kind {
        OpticsKind::Transceiver => (2.0, metres),
        OpticsKind::Dac | OpticsKind::Aoc => (1.0, (metres - 1.0).max(0.0)),
    };
    let per_metre = sheet.price_per_metre.as_ref().map_or(0.0, |figure| figure.value.0);
    let usd = parallel as f64 * (spans as f64 * ends * sheet.price.value.0 + beyond * per_metre);
    Links { parallel, spans, usd }
}

fn cable_item(
    group: &CableGroup,
    sheets: &[OpticsSheet],
    evidence: &mut EvidenceList,
) -> Result<Item, InputError> {
    // As few links as may be: a cable is never cut into slower ones to save money.
    let chosen = sheets.iter().map(|sheet| (sheet, links(sheet, group))).min_by(|(a, x), (b, y)| {
        (x.parallel, x.spans)
            .cmp(&(y.parallel, y.spans))
            .then((a.rate.value, a.reach.value).cmp(&(b.rate.value, b.reach.value)))
            .then(x.usd.total_cmp(&y.usd))
            .then(a.name.cmp(&b.name))
    });
    let Some((sheet, links)) = chosen else {
        return Err(InputError::new("data/optics", "there is no sheet of cables or transceivers"));
    };
    evidence.sheet(&format!("optics {}", sheet.name), sheet.evidence());
    let each = links.parallel * links.spans;
    let metres = group.length_mm as f64 / 1e3;
    let mut why = format!("shortest reach for {} Gbps over {metres} m", group.rate.bps() as f64 / 1e9);
    if links.parallel > 1 {
        why = format!("no sheet is as fast: {} in parallel", links.parallel);
    }
    if links.spans > 1 {
        why = format!("{why}; {} spans, regenerated between", links.spans);
    }
    Ok(Item {
        kind: "cable",
        what: group.what.clone(),
        count: group.count,
        sheet: sheet.name.clone(),
        each,
        usd: Some(links.usd * group.count as f64),
        power_w: Some(2.0 * sheet.power.value.0 * (each * group.count) as f64),
        why,
        rate: Some(group.rate),
        length_mm: Some(group.length_mm),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Inputs {
        Inputs::of(std::path::Path::new("."))
    }

    fn gbps(rate: u64) -> BitRate {
        BitRate::from_gbps(rate)
    }

    fn bill(inventory: &Inventory) -> Value {
        cost(inventory, &here(), "switch.model").unwrap()
    }

    fn switches(count: u64, ports: &[(u64, u64)]) -> Inventory {
        let ports = ports.iter().map(|&(rate, count)| (gbps(rate), count)).collect();
        Inventory {
            switches: vec![SwitchGroup { what: "leaf".into(), count, ports }],
            ..Inventory::default()
        }
    }

    fn cable(rate: u64, length_m: u64) -> Value {
        let group =
            CableGroup { what: "nic".into(), count: 10, rate: gbps(rate), length_mm: length_m * 1_000 };
        let bill = bill(&Inventory { cables: vec![group], ..Inventory::default() });
        assert_eq!(bill["cables_usd"], bill["total_usd"]);
        assert_eq!(bill["switches_usd"], 0.0);
        bill["items"][0].clone()
    }

    #[test]
    fn a_bill_is_the_sum_of_its_items_times_the_sheets() {
        let quantum = one("switches", "quantum-2", &here(), "", SwitchSheet::parse).unwrap();
        let inventory =
            Inventory { model: Some("Quantum-2".into()), ..switches(48, &[(400, 32), (400, 32)]) };
        let found = bill(&inventory);
        assert_eq!(found["items"][0]["sheet"], "Quantum-2");
        assert_eq!(found["switches_usd"], 48.0 * quantum.price.unwrap().value.0);
        assert_eq!(found["power_w"], 48.0 * quantum.power.unwrap().value.0);
        let evidence = found["evidence"].as_array().unwrap();
        assert!(evidence.iter().any(|row| row["constant"] == "switch Quantum-2: price"));
    }

    #[test]
    fn ports_split_and_larger_switches_are_made_of_boxes() {
        let tomahawk = one("switches", "tomahawk-5", &here(), "", SwitchSheet::parse).unwrap();
        let boxes = |ports: &[(u64, u64)]| {
            let ports: Vec<_> = ports.iter().map(|&(rate, count)| (gbps(rate), count)).collect();
            Fit::of(&tomahawk, &ports).map(|fit| fit.boxes)
        };
        assert_eq!(boxes(&[(800, 64)]), Some(1));
        assert_eq!(boxes(&[(400, 128)]), Some(1));
        assert_eq!(boxes(&[(400, 64), (800, 32)]), Some(1));
        assert_eq!(boxes(&[(1600, 1)]), None);
        // 128 ports outside: four leaves of 32 + 32 and two spines of 64.
        assert_eq!(boxes(&[(800, 128)]), Some(6));
        // Limited by the number of ports, not by their rate.
        assert_eq!(boxes(&[(25, 512)]), Some(6));
    }

    #[test]
    fn the_cheapest_that_fits_is_chosen() {
        let found = bill(&switches(1, &[(400, 64)]));
        let price = found["switches_usd"].as_f64().unwrap();
        for name in sheets::names("switches") {
            let sheet = one("switches", name, &here(), "", SwitchSheet::parse).unwrap();
            if Fit::of(&sheet, &[(gbps(400), 64)]).is_some_and(|fit| fit.boxes == 1) {
                assert!(price <= sheet.price.unwrap().value.0, "{name}");
            }
        }
    }

    #[test]
    fn cables_follow_their_length() {
        for rate in [100, 200, 400, 800] {
            let sheets: Vec<String> = [2, 20, 90, 400, 1_500, 9_000, 60_000]
                .map(|length| cable(rate, length)["sheet"].as_str().unwrap().to_owned())
                .into();
            assert_eq!(sheets[0], format!("{rate}G-DAC"));
            assert_eq!(sheets[1], format!("{rate}G-AOC"));
            for (sheet, kind) in sheets[2..].iter().zip(["SR", "DR", "FR", "LR", "ZR"]) {
                assert!(sheet.contains(kind) || (rate == 200 && kind == "DR"), "{rate}: {sheets:?}");
            }
            let prices =
                [2, 20, 90, 400, 1_500, 9_000].map(|length| cable(rate, length)["usd"].as_f64().unwrap());
            assert!(prices.is_sorted(), "{rate}: {prices:?}");
        }
    }

    #[test]
    fn fast_and_long_cables_are_several() {
        assert_eq!(cable(1600, 2)["each"], 2);
        let far = cable(400, 200_000);
        assert_eq!((far["sheet"].as_str(), far["each"].as_u64()), (Some("400G-ZR"), Some(2)));
        assert!(far["why"].as_str().unwrap().contains("2 spans"), "{far}");
        // Slower than every sheet: one link of the cheapest.
        assert_eq!(cable(25, 2)["sheet"], "100G-DAC");
    }

    #[test]
    fn a_wrong_model_is_an_error_and_an_unknown_price_is_null() {
        let slow = Inventory { model: Some("tomahawk-4".into()), ..switches(1, &[(800, 4)]) };
        let error = cost(&slow, &here(), "topology.switch.model").unwrap_err().to_string();
        assert_eq!(
            error,
            "topology.switch.model: a leaf has 4 ports of 800 Gbps, but the ports of Tomahawk-4 run at 400 Gbps\n\n\
             hint: name a faster switch, or leave `switch.model` out"
        );
        let unknown = Inventory { model: Some("tomahawk-9".into()), ..switches(1, &[(800, 4)]) };
        assert!(cost(&unknown, &here(), "x").is_err());
        let none = bill(&switches(2, &[(6_400, 4)]));
        assert!(none["total_usd"].is_null() && none["power_w"].is_null(), "{none}");
        assert!(bill(&switches(0, &[(6_400, 4)]))["total_usd"] == 0.0);
    }
}
