//! Queues and pauses of switches: from the scenario's keys to what the packet model is told.

use windtunnel_fabric::packet::{
    Color, ColorProfile, Discipline, EcnSettings, MarkAt, Meter, PfcSettings, Pull, QueueSettings, Shaper,
    Xoff, Xon,
};
use windtunnel_kernel::Bytes;
use windtunnel_plan::error::InputError;
use windtunnel_workload::Dimension;

use crate::resolve::marks::{Marks, marking};
use crate::schema::{self as written, ClassColors, DropProfile, Name, Network, Pfc, Queue};

/// Queues of every port, which goes next, the queue of each traffic class, and pauses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Switching {
    pub queues: Vec<QueueSettings>,
    pub discipline: Discipline,
    pub classes: Vec<u8>,
    /// Of each traffic class; empty where all are green.
    pub colors: Vec<Color>,
    pub pull: Pull,
    pub pfc: Option<PfcSettings>,
}

/// # Errors
/// [`InputError`] for keys that exclude one another, or a class that two queues take.
pub(super) fn switching(network: &Network, marks: &Marks, source: &str) -> Result<Switching, InputError> {
    let at = |key: &str| format!("{source}: network.{key}");
    let mtu = network.mtu.0;
    let mut classes = vec![0u8; Dimension::ALL.len()];
    let mut taken: [Option<usize>; Dimension::ALL.len()] = [None; Dimension::ALL.len()];
    for (index, queue) in network.queues.iter().enumerate() {
        for (place, &class) in queue.classes.iter().enumerate() {
            let number = class.0 as usize;
            if let Some(before) = taken[number] {
                let place = at(&format!("queues[{index}].classes[{place}]"));
                let name = &network.queues[before].name;
                return Err(InputError::new(place, format!("queue `{name}` takes this traffic already")));
            }
            taken[number] = Some(index);
            // More queues than there may be are refused by the model.
            classes[number] = u8::try_from(index).unwrap_or(u8::MAX);
        }
    }
    let queues = network.queues.iter().enumerate().map(|(index, queue)| {
        if let (None, Some(_)) = (queue.rate, queue.burst) {
            let place = at(&format!("queues[{index}].burst"));
            return Err(InputError::new(place, "a `burst` needs a `rate`"));
        }
        let meter = queue.meter.as_ref().map(|meter| meter_of(meter, &at(&format!("queues[{index}].meter"))));
        Ok(QueueSettings { meter: meter.transpose()?, ..settings_of(queue, mtu, marks) })
    });
    let queues = queues.collect::<Result<Vec<_>, _>>()?;
    let ClassColors { tp, cp, ep, pp, dp, other } = network.colors;
    let mut colors: Vec<Color> = [tp, cp, ep, pp, dp, other].map(|Name(color)| color).to_vec();
    if colors.iter().all(|&color| color == Color::Green) {
        colors.clear();
    }
    if queues.is_empty() && !colors.is_empty() {
        return Err(InputError::new(at("colors"), "`colors` are for `queues`, of which there are none"));
    }
    if queues.is_empty() && network.nic_pull.0 != Pull::RoundRobin {
        return Err(InputError::new(at("nic_pull"), "NICs go by `queues`, of which there are none"));
    }
    Ok(Switching {
        colors,
        pull: network.nic_pull.0,
        discipline: network.discipline.0,
        pfc: network.pfc.as_ref().map(|pfc| pauses(pfc, mtu, source)).transpose()?,
        classes: if queues.is_empty() { Vec::new() } else { classes },
        queues,
    })
}

fn settings_of(queue: &Queue, mtu: Bytes, marks: &Marks) -> QueueSettings {
    QueueSettings {
        priority: queue.priority,
        weight: queue.weight,
        shaper: queue.rate.map(|rate| Shaper {
            rate: rate.0,
            burst: queue.burst.map_or(Bytes::new(2 * mtu.get()), |burst| burst.0),
        }),
        reserve: queue.reserve.map_or(Bytes::ZERO, |reserve| reserve.0),
        alpha: queue.alpha,
        lossless: queue.lossless,
        ecn: queue.ecn.as_ref().map(|ecn| marking(ecn, marks)),
        red: queue.red.as_ref().map(dropping),
        colors: [&queue.colors.green, &queue.colors.yellow, &queue.colors.red].map(|profile| ColorProfile {
            ecn: profile.ecn.as_ref().map(|ecn| marking(ecn, marks)),
            red: profile.red.as_ref().map(dropping),
        }),
        meter: None,
    }
}

/// Drops at random as the model has them.
const fn dropping(red: &DropProfile) -> EcnSettings {
    EcnSettings { rate: red.rate.0, kmin: red.kmin.0, kmax: red.kmax.0, pmax: red.pmax, at: MarkAt::Enqueue }
}

/// A meter of one rate or of two.
fn meter_of(meter: &written::Meter, place: &str) -> Result<Meter, InputError> {
    let (cir, cbs) = (meter.cir.0, meter.cbs.0);
    match (meter.ebs, meter.pir, meter.pbs) {
        (Some(ebs), None, None) => Ok(Meter::SingleRate { cir, cbs, ebs: ebs.0 }),
        (None, Some(pir), Some(pbs)) => Ok(Meter::TwoRate { cir, cbs, pir: pir.0, pbs: pbs.0 }),
        _ => {
            let message = "expected `ebs`, or `pir` and `pbs`, beside `cir` and `cbs`";
            Err(InputError::new(place, message).hint("`ebs` is of RFC 2697, `pir` and `pbs` of RFC 2698"))
        }
    }
}

fn pauses(pfc: &Pfc, mtu: Bytes, source: &str) -> Result<PfcSettings, InputError> {
    let at = |key: &str| format!("{source}: network.pfc.{key}");
    let default = PfcSettings::of(mtu);
    let xoff = match (pfc.xoff, pfc.alpha) {
        (Some(_), Some(_)) => {
            return Err(InputError::new(at("alpha"), "expected `xoff` or `alpha`, found both"));
        }
        (Some(bytes), None) => Xoff::Static(bytes.0),
        (None, Some(alpha)) => Xoff::Dynamic(alpha),
        (None, None) => default.xoff,
    };
    let xon = match (pfc.xon, pfc.xon_offset) {
        (Some(_), Some(_)) => {
            return Err(InputError::new(at("xon_offset"), "expected `xon` or `xon_offset`, found both"));
        }
        (Some(bytes), None) => Xon::At(bytes.0),
        (None, Some(offset)) => Xon::Below(offset.0),
        (None, None) => match (xoff, default.xon) {
            // A static threshold of a packet or so leaves no room for two.
            (Xoff::Static(bytes), Xon::Below(offset)) => Xon::Below(bytes.min(offset)),
            (_, xon) => xon,
        },
    };
    Ok(PfcSettings {
        xoff,
        xon,
        headroom: pfc.headroom.map(|headroom| headroom.0),
        response: pfc.response.0,
        frame: pfc.frame.0,
        watchdog: pfc.watchdog.map(|watchdog| watchdog.0),
        patience: pfc.deadlock_after.0,
    })
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::BitRate;

    use super::*;

    fn network(keys: &str) -> Network {
        serde_json::from_str(keys).expect("keys that are known")
    }

    #[test]
    fn classes_go_to_the_queues_that_name_them() {
        let keys =
            r#"{"queues": [{"name": "rest"}, {"name": "bulk", "classes": ["dp", "ep"], "rate": "1 Gbps"}]}"#;
        let found = switching(&network(keys), &Marks::default(), "x").expect("two queues");
        assert_eq!(found.classes, [0, 0, 1, 0, 1, 0]);
        assert_eq!(found.queues[1].shaper.map(|shaper| shaper.burst), Some(Bytes::new(2 * 4_150)));
        assert_eq!(found.pfc, None);
        let none = switching(&network("{}"), &Marks::default(), "x").expect("nothing asked");
        assert_eq!(none, Switching::default());
    }

    #[test]
    fn colors_come_from_traffic_or_meters() {
        let keys = r#"{"colors": {"dp": "yellow"}, "nic_pull": "strict", "queues": [{"name": "all",
            "red": {"kmin": "1 MB", "kmax": "2 MB"}, "colors": {"yellow": {"red": {"kmin": "1 KB", "kmax": "2 KB"}}},
            "meter": {"cir": "10 Gbps", "cbs": "20 KB", "ebs": "40 KB"}}]}"#;
        let found = switching(&network(keys), &Marks::default(), "x").expect("a queue");
        assert_eq!(
            (found.colors[4], found.colors[5], found.pull),
            (Color::Yellow, Color::Green, Pull::Strict)
        );
        let [green, yellow, _] = found.queues[0].colors;
        assert_eq!((green.red, yellow.red.map(|red| red.kmax)), (None, Some(Bytes::new(2_000))));
        let ebs = Bytes::new(40_000);
        let single = Meter::SingleRate { cir: BitRate::from_gbps(10), cbs: Bytes::new(20_000), ebs };
        assert_eq!(found.queues[0].meter, Some(single));
        for wrong in [
            r#"{"colors": {"dp": "red"}}"#,
            r#"{"nic_pull": "wrr"}"#,
            r#"{"queues": [{"name": "all", "meter": {"cir": "1 Gbps", "cbs": "9 KB", "pir": "2 Gbps"}}]}"#,
        ] {
            assert!(switching(&network(wrong), &Marks::default(), "x").is_err(), "{wrong}");
        }
    }

    #[test]
    fn xoff_and_xon_have_two_forms() {
        let pfc = |keys: &str| {
            switching(&network(&format!(r#"{{"pfc": {keys}}}"#)), &Marks::default(), "x")
                .map(|found| found.pfc.expect("pauses"))
        };
        let default = pfc("{}").expect("all defaults");
        assert_eq!((default.xoff, default.xon), (Xoff::Dynamic(0.125), Xon::Below(Bytes::new(8_300))));
        let given = pfc(r#"{"xoff": "100 KB", "xon": "40 KB", "watchdog": "1 ms"}"#).expect("given");
        assert_eq!((given.xoff, given.xon), (Xoff::Static(Bytes::new(100_000)), Xon::At(Bytes::new(40_000))));
        assert!(given.watchdog.is_some() && given.headroom.is_none());
        assert!(pfc(r#"{"xoff": "100 KB", "alpha": 1.0}"#).is_err());
        assert!(pfc(r#"{"xon": "1 KB", "xon_offset": "1 KB"}"#).is_err());
    }
}
