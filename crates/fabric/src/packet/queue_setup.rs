//! Queues and pauses as the settings ask for them: made once ports and their kinds are known, with what each switch sets aside.

use windtunnel_kernel::Bytes;
use windtunnel_topology::SwitchId;

use super::engine::Engine;
use super::error::PacketError;
use super::link::Marking;
use super::meter::Meters;
use super::packets::NONE;
use super::pauses::{Guard, Ingress, Limit};
use super::queue_settings::{Color, PauseLoop, PfcSettings, QueueSettings, Xoff};
use super::queues::Queues;
use super::transport::Transport;

/// Control packets for which every port keeps room. They overtake data, so few wait at once.
const CONTROLS: u64 = 16;

impl<T: Transport> Engine<T> {
    /// Makes queues and pauses, once ports and their kinds are known.
    pub(super) fn build_queues(&mut self) -> Result<(), PacketError> {
        let settings = &self.settings;
        if settings.queues.is_empty() && settings.pfc.is_none() {
            return Ok(());
        }
        let mut queues = Queues::new(&settings.queues, settings.discipline, settings.mtu);
        let reverse: Vec<u32> = (0..self.fabric.ports.len() as u32).map(|p| self.fabric.reverse(p)).collect();
        queues.make(reverse.into_iter());
        let of = |index: usize| settings.queues.get(index);
        for kind in &self.fabric.kinds {
            for index in 0..queues.count {
                for color in 0..Color::COUNT {
                    let own = of(index).and_then(|queue| queue.colors[color].ecn.or(queue.ecn));
                    queues.marking.push(match own {
                        Some(ecn) if kind.ecn_allowed => Marking::new(&ecn, kind.rate),
                        _ => kind.ecn,
                    });
                }
            }
        }
        let drops = |queue: &QueueSettings, color: usize| queue.colors[color].red.or(queue.red);
        let mut every =
            settings.queues.iter().flat_map(|queue| (0..Color::COUNT).map(move |color| (queue, color)));
        if every.any(|(queue, color)| drops(queue, color).is_some()) {
            // Those of links that slow down in mid-run are not asked for.
            let slowest = self.fabric.ports.iter().filter(|port| port.owner != NONE).map(|port| port.kind);
            let slowest = slowest.map(|kind| self.fabric.kinds[usize::from(kind)].rate).min();
            for (index, queue) in settings.queues.iter().enumerate() {
                // One for a color alone may be meant to drop all of that.
                let (Some(rate), Some(red)) = (slowest, queue.red) else { continue };
                let (kmax, mtu) = (Bytes::new(u64::from(Marking::new(&red, rate).kmax)), settings.mtu);
                if kmax < mtu {
                    return Err(PacketError::DropsAll { index, kmax, rate, mtu });
                }
            }
            for kind in &self.fabric.kinds {
                for queue in &settings.queues {
                    for color in 0..Color::COUNT {
                        let red = drops(queue, color).filter(|_| kind.of_switch);
                        queues.red.push(red.map_or(Marking::OFF, |red| Marking::new(&red, kind.rate)));
                    }
                }
            }
        }
        let meters = settings.queues.iter().map(|queue| queue.meter).collect();
        queues.meters = Meters::new(meters, self.pairs.nics.len());
        for nic in &mut self.pairs.nics {
            nic.ready.pull_by(settings.pull, &settings.queues);
        }
        queues.parked = vec![Vec::new(); self.pairs.nics.len()];
        queues.pausing = vec![Vec::new(); self.fabric.switches.len()];
        if let Some(pfc) = settings.pfc {
            let lossless = queues.rules.iter().filter(|rule| rule.lossless).count() as u64;
            let headroom = (0..self.fabric.ports.len() as u32)
                .map(|p| {
                    if self.fabric.ports[p as usize].far.as_switch().is_none() {
                        0
                    } else {
                        self.headroom_beyond(p, &pfc, lossless)
                    }
                })
                .map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
                .collect();
            queues.ingress = vec![Ingress::default(); self.fabric.ports.len() * queues.count];
            queues.guard = Some(Guard {
                settings: pfc,
                xoff: match pfc.xoff {
                    Xoff::Static(bytes) => Limit::Bytes(bytes.get()),
                    Xoff::Dynamic(alpha) => Limit::Share((alpha * 65_536.0) as u64),
                },
                headroom,
                cycle: Vec::new(),
            });
        }
        self.queues = queues;
        self.set_headroom_aside()
    }

    /// The headroom of the far end of port `p`.
    fn headroom_beyond(&self, p: u32, pfc: &PfcSettings, lossless: u64) -> u64 {
        if let Some(headroom) = pfc.headroom {
            return headroom.get();
        }
        let forth = self.fabric.kind(p);
        let back = &self.fabric.kinds[usize::from(self.fabric.ports[self.fabric.reverse(p) as usize].kind)];
        let largest = self.settings.mtu.max(self.settings.control).get() as u16;
        let way = back.serialise(largest) + lossless * back.serialise(pfc.frame.get() as u16) + back.delay;
        PauseLoop { rate: forth.rate, delay: forth.delay, back: way + pfc.response.ps() }
            .headroom(self.settings.mtu)
    }

    /// Takes headroom, the queues' reserves and room for control packets out of each switch's shared part.
    fn set_headroom_aside(&mut self) -> Result<(), PacketError> {
        let lossless = self.queues.rules.iter().filter(|rule| rule.lossless).count() as u64;
        let mut headroom = vec![0u64; self.fabric.switches.len()];
        let mut ingresses = vec![0u64; self.fabric.switches.len()];
        if let Some(guard) = &self.queues.guard {
            for (port, &bytes) in self.fabric.ports.iter().zip(&guard.headroom) {
                if let Some(switch) = port.far.as_switch() {
                    headroom[switch as usize] += u64::from(bytes) * lossless;
                    ingresses[switch as usize] += 1;
                }
            }
        }
        let pfc = self.queues.guard.is_some();
        let reserved = |keeps: bool| -> u64 {
            let rules = self.queues.rules.iter().filter(|rule| (rule.lossless && pfc) == keeps);
            rules.map(|rule| u64::from(rule.reserve)).sum()
        };
        let (per_ingress, per_port) = (reserved(true), reserved(false));
        let for_control = if pfc { CONTROLS * self.settings.control.get() } else { 0 };
        for number in 0..self.fabric.switches.len() {
            let tier = self.fabric.topology.tier(SwitchId(number as u32));
            let switch = &mut self.fabric.switches[number];
            if !switch.is_limited() {
                continue;
            }
            let more = switch.reserve_least(for_control as u32);
            let aside = headroom[number]
                + per_ingress * ingresses[number]
                + (per_port + u64::from(more)) * u64::from(switch.count);
            let (size, ports) = (Bytes::new(switch.shared), ingresses[number] as u32);
            match switch.shared.checked_sub(aside) {
                Some(left) if left > 0 => switch.shared = left,
                _ => {
                    let each = Bytes::new(headroom[number] / ingresses[number].max(1));
                    return Err(PacketError::Headroom { tier, ports, each, aside: Bytes::new(aside), size });
                }
            }
            if let Some(Limit::Bytes(xoff)) = self.queues.guard.as_ref().map(|guard| guard.xoff)
                && xoff > switch.shared
            {
                return Err(PacketError::Xoff {
                    tier,
                    xoff: Bytes::new(xoff),
                    shared: Bytes::new(switch.shared),
                });
            }
        }
        Ok(())
    }
}
