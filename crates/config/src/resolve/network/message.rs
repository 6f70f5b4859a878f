//! LogGOPS parameters as the scenario gives them.

use windtunnel_fabric::host::LogGops;
use windtunnel_plan::error::InputError;
use windtunnel_plan::network_plan::MessagePlan;

use crate::schema::Network;

/// # Errors
/// [`InputError`] for a time per byte out of range.
pub(super) fn plan(network: &Network, source: &str) -> Result<MessagePlan, InputError> {
    let per_byte = |key: &str, value: f64| {
        let femtoseconds = value * 1e6;
        if (0.0..1e15).contains(&femtoseconds) {
            return Ok(femtoseconds.round() as u64);
        }
        let place = format!("{source}: network.loggops.{key}");
        Err(InputError::new(place, format!("expected nanoseconds per byte from 0 on, found {value}")))
    };
    let loggops = network.loggops.as_ref().map(|given| {
        Ok(LogGops {
            latency: given.L.0,
            overhead: given.o.0,
            gap: given.g.0,
            gap_per_byte: per_byte("G", given.G)?,
            overhead_per_byte: per_byte("O", given.O)?,
            eager_limit: given.S.0,
        })
    });
    Ok(MessagePlan { loggops: loggops.transpose()?, receiver: network.receiver.0 })
}
