//! What tests of a [`Network`] share: a message, running to the end.

use windtunnel_fabric::{Arrival, Departure, Network};
use windtunnel_kernel::{Bytes, EndpointId, NicId, Time};

/// A message by a connection of its own, from first NIC to first NIC.
pub fn message(message: u32, from: u32, to: u32, bytes: u64) -> Departure {
    Departure {
        message,
        from: EndpointId(from),
        to: EndpointId(to),
        nic: NicId(0),
        bytes: Bytes::new(bytes),
        class: 0,
        entropy: 0,
        line: 0,
    }
}

/// Runs until nobody waits for anything: what arrives, with its time.
pub fn arrivals(network: &mut impl Network) -> Vec<(Time, Arrival)> {
    let (mut all, mut arrivals) = (Vec::new(), Vec::new());
    loop {
        let next = network.next_time();
        if next == Time::NEVER {
            return all;
        }
        let at = network.run(next, Time::NEVER, &mut arrivals);
        all.extend(arrivals.drain(..).map(|arrival| (at, arrival)));
    }
}
