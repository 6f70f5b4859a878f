//! A load balancer in switches: DRILL (Ghorbani et al., "DRILL: Micro Load Balancing for Low-latency Data Center Networks",
//! SIGCOMM 2017) with one port remembered.

use windtunnel_fabric::packet::transport::{BalancerPacket, BalancerPort, BalancerSwitch, SwitchBalancer};
use windtunnel_kernel::random::combine;
use windtunnel_scenario::modules::Parameters;

/// Of some drawn ports and the one that was best the last time, each packet takes the least loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drill {
    /// Ports drawn.
    pub samples: u64,
}

impl SwitchBalancer for Drill {
    /// The port that was best.
    type State = Option<u32>;

    const NAME: &'static str = "drill";

    fn choose(
        &self,
        best: &mut Option<u32>,
        _: &BalancerSwitch,
        packet: &BalancerPacket,
        ports: &[BalancerPort],
    ) -> usize {
        let number = ports.len() as u128;
        let drawn = (0..self.samples).map(|turn| {
            let draw = u128::from(combine(packet.draw, turn));
            ((draw * number) >> 64) as usize
        });
        let remembered = best.and_then(|best| ports.iter().position(|known| known.port == best));
        let place = drawn.chain(remembered).min_by_key(|&place| ports[place].held).unwrap_or(0);
        *best = Some(ports[place].port);
        place
    }
}

/// The load balancer with the parameters of a scenario's `network.switch_balancer`.
pub fn drill(parameters: &Parameters) -> Result<Drill, String> {
    let mut drill = Drill { samples: 2 };
    for (key, value) in parameters {
        match (key.as_str(), value.as_u64()) {
            ("samples", Some(samples)) if samples > 0 => drill.samples = samples,
            ("samples", _) => return Err(format!("`samples` is {value}, expected a number of ports")),
            _ => return Err(format!("unknown parameter `{key}`, expected `samples`")),
        }
    }
    Ok(drill)
}
