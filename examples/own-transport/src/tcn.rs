//! A stage of switches: marks by the time that packets have waited (TCN: Bai et al., "Enabling ECN over Generic Packet
//! Scheduling", CoNEXT 2016).

use windtunnel_fabric::packet::transport::{StagePacket, StagePort, StageVerdict, SwitchStage};
use windtunnel_kernel::Span;
use windtunnel_scenario::modules::Parameters;

/// Marks a packet that leaves its queue after more than so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcn {
    /// So long.
    pub after: Span,
}

impl SwitchStage for Tcn {
    type State = ();

    const NAME: &'static str = "tcn";

    fn dequeue(&self, (): &mut (), _: &StagePort, packet: &StagePacket) -> StageVerdict {
        if packet.waited > self.after { StageVerdict::Mark } else { StageVerdict::Keep }
    }
}

/// The stage with the parameters of a scenario's `network.stage`.
pub fn tcn(parameters: &Parameters) -> Result<Tcn, String> {
    let mut tcn = Tcn { after: Span::from_us(1) };
    for (key, value) in parameters {
        match (key.as_str(), value.as_u64()) {
            ("after_ns", Some(after)) => tcn.after = Span::from_ns(after),
            ("after_ns", None) => return Err(format!("`after_ns` is {value}, expected nanoseconds")),
            _ => return Err(format!("unknown parameter `{key}`, expected `after_ns`")),
        }
    }
    Ok(tcn)
}
