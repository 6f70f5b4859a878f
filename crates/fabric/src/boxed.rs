//! A network in a box is a network: a run asks `Box<dyn Network>`, whatever the fidelity.
//!
//! All methods are passed on, those with a default too: a default that is called on the box would not reach the network's
//! own. Clippy refuses an `impl` that leaves one out, and the test below names it.

use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::{Bytes, EndpointId, Span, Time};
use windtunnel_topology::Forwarder;

use crate::account::FlowRecord;
use crate::model::{Arrival, CoupledId, Departure, InStep, Network, Received};
use crate::observations::Observations;
use crate::packet::{CapturedPacket, PairSample, QueueSample};

#[deny(clippy::missing_trait_methods, reason = "a default on the box hides the network's own method")]
impl<N: Network + ?Sized> Network for Box<N> {
    #[inline]
    fn received(&mut self, message: &Received) {
        (**self).received(message);
    }

    #[inline]
    fn known_arrival(&self, at: Time, departure: &Departure) -> Option<Time> {
        (**self).known_arrival(at, departure)
    }

    #[inline]
    fn depart(&mut self, at: Time, departure: Departure) {
        (**self).depart(at, departure);
    }

    fn prepare_coupled(&mut self, edges: &[(EndpointId, EndpointId, u32)], entropy: u32) -> CoupledId {
        (**self).prepare_coupled(edges, entropy)
    }

    fn prepare_reduction(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        (**self).prepare_reduction(members, entropy)
    }

    fn prepare_exchange(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        (**self).prepare_exchange(members, entropy)
    }

    fn prepare_in_step(&mut self, members: &[EndpointId], entropy: u32) -> Option<InStep> {
        (**self).prepare_in_step(members, entropy)
    }

    fn start_coupled(&mut self, at: Time, run: u32, group: CoupledId, bytes: Bytes, steps: u32, class: u8) {
        (**self).start_coupled(at, run, group, bytes, steps, class);
    }

    fn coupled_span(&self, group: CoupledId, bytes: Bytes, steps: u32) -> Span {
        (**self).coupled_span(group, bytes, steps)
    }

    #[inline]
    fn next_time(&mut self) -> Time {
        (**self).next_time()
    }

    #[inline]
    fn advance(&mut self, to: Time, arrivals: &mut Vec<Arrival>) {
        (**self).advance(to, arrivals);
    }

    fn is_beyond(&mut self) -> bool {
        (**self).is_beyond()
    }

    #[inline]
    fn run(&mut self, next: Time, limit: Time, arrivals: &mut Vec<Arrival>) -> Time {
        (**self).run(next, limit, arrivals)
    }

    fn abandon(&mut self, gone: &dyn Fn(Arrival) -> bool) -> Option<Vec<Arrival>> {
        (**self).abandon(gone)
    }

    fn expect_changes(&mut self) {
        (**self).expect_changes();
    }

    fn change_paths(&mut self, forwarder: &Forwarder) {
        (**self).change_paths(forwarder);
    }

    fn keep_digest(&mut self, focus: &EventDigest) {
        (**self).keep_digest(focus);
    }

    fn fault(&self) -> Option<&str> {
        (**self).fault()
    }

    fn events(&self) -> u64 {
        (**self).events()
    }

    fn observe(&mut self, at: Time) -> Observations {
        (**self).observe(at)
    }

    fn take_records(&mut self, records: &mut Vec<FlowRecord>) {
        (**self).take_records(records);
    }

    fn take_samples(&mut self, samples: &mut Vec<QueueSample>) {
        (**self).take_samples(samples);
    }

    fn take_pair_samples(&mut self, samples: &mut Vec<PairSample>) {
        (**self).take_pair_samples(samples);
    }

    fn take_captured(&mut self, captured: &mut Vec<CapturedPacket>) -> u64 {
        (**self).take_captured(captured)
    }
}

#[cfg(test)]
mod tests {
    /// Names of the methods that stand in `text` from `from` to the end of that item.
    fn methods(text: &str, from: &str) -> Vec<String> {
        let item = text.split_once(from).unwrap_or_else(|| panic!("`{from}` stands in the file")).1;
        let item = item.split_once("\n}\n").map_or(item, |(item, _)| item);
        let name = |line: &str| {
            let name = line.strip_prefix("    fn ")?;
            Some(name[..name.find('(')?].to_owned())
        };
        let mut names: Vec<String> = item.lines().filter_map(name).collect();
        names.sort_unstable();
        names
    }

    /// The trait and the box say the same methods, so none takes its default there.
    #[test]
    fn a_box_forwards_every_method() {
        let told = methods(include_str!("model.rs"), "\npub trait Network {");
        let passed = methods(include_str!("boxed.rs"), "Network for Box<N> {");
        assert!(told.len() > 20 && told.contains(&"take_samples".to_owned()), "{told:?}");
        let forgotten: Vec<_> = told.iter().filter(|name| !passed.contains(name)).collect();
        assert!(forgotten.is_empty(), "`Box<dyn Network>` does not forward {forgotten:?}");
        assert_eq!(told, passed);
    }
}
