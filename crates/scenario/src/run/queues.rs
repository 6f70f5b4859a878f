//! Queues and pauses of switches: from the scenario's keys to what the packet model is told.

use windtunnel_fabric::packet::{
    Discipline, EcnSettings, MarkAt, PfcSettings, QueueSettings, Shaper, Xoff, Xon,
};
use windtunnel_kernel::Bytes;

use crate::error::InputError;
use crate::schema::{ClassName, DisciplineName, Ecn, MarkName, Network, Pfc, Queue};

/// Queues of every port, which goes next, the queue of each traffic class, and pauses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Switching {
    pub queues: Vec<QueueSettings>,
    pub discipline: Discipline,
    pub classes: Vec<u8>,
    pub pfc: Option<PfcSettings>,
}

/// # Errors
/// [`InputError`] for keys that exclude one another, or a class that two queues take.
pub fn switching(network: &Network, source: &str) -> Result<Switching, InputError> {
    let at = |key: &str| format!("{source}: network.{key}");
    let mtu = network.mtu.0;
    let mut classes = vec![0u8; 6];
    let mut taken: [Option<usize>; 6] = [None; 6];
    for (index, queue) in network.queues.iter().enumerate() {
        for (place, &class) in queue.classes.iter().enumerate() {
            let number = number(class);
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
        Ok(settings_of(queue, mtu))
    });
    let queues = queues.collect::<Result<Vec<_>, _>>()?;
    Ok(Switching {
        discipline: match network.discipline {
            DisciplineName::Fifo => Discipline::Fifo,
            DisciplineName::Strict => Discipline::Strict,
            DisciplineName::Wrr => Discipline::WeightedRoundRobin,
            DisciplineName::Dwrr => Discipline::DeficitRoundRobin,
        },
        pfc: network.pfc.as_ref().map(|pfc| pauses(pfc, mtu, source)).transpose()?,
        classes: if queues.is_empty() { Vec::new() } else { classes },
        queues,
    })
}

/// Place of a class among the dimensions of traffic.
const fn number(class: ClassName) -> usize {
    match class {
        ClassName::Tp => 0,
        ClassName::Cp => 1,
        ClassName::Ep => 2,
        ClassName::Pp => 3,
        ClassName::Dp => 4,
        ClassName::Other => 5,
    }
}

fn settings_of(queue: &Queue, mtu: Bytes) -> QueueSettings {
    QueueSettings {
        priority: queue.priority,
        weight: queue.weight,
        shaper: queue.rate.map(|rate| Shaper {
            rate: rate.0,
            burst: queue.burst.map_or(Bytes(2 * mtu.0), |burst| burst.0),
        }),
        reserve: queue.reserve.map_or(Bytes(0), |reserve| reserve.0),
        alpha: queue.alpha,
        lossless: queue.lossless,
        ecn: queue.ecn.as_ref().map(marking),
        red: queue.red.as_ref().map(|red| EcnSettings {
            rate: red.rate.0,
            kmin: red.kmin.0,
            kmax: red.kmax.0,
            pmax: red.pmax,
            at: MarkAt::Enqueue,
        }),
    }
}

/// Marking as the model has it.
pub fn marking(ecn: &Ecn) -> EcnSettings {
    EcnSettings {
        rate: ecn.rate.0,
        kmin: ecn.kmin.0,
        kmax: ecn.kmax.0,
        pmax: ecn.pmax,
        at: match ecn.at {
            MarkName::Enqueue => MarkAt::Enqueue,
            MarkName::Dequeue => MarkAt::Dequeue,
        },
    }
}

fn pauses(pfc: &Pfc, mtu: Bytes, source: &str) -> Result<PfcSettings, InputError> {
    let at = |key: &str| format!("{source}: network.pfc.{key}");
    let default = PfcSettings::default();
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
        // A static threshold of a packet or so leaves no room for two.
        (None, None) => match xoff {
            Xoff::Static(bytes) => Xon::Below(Bytes(bytes.0.min(2 * mtu.0))),
            Xoff::Dynamic(_) => Xon::Below(Bytes(2 * mtu.0)),
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
