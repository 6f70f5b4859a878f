//! The opposite of packed: neighbouring ranks are on different hosts.

use windtunnel_kernel::EndpointId;
use windtunnel_kernel::registry::Entry;

use super::{BuiltIn, Need, Placement};
use crate::free::FreeSet;

/// One GPU of each host in turn: the first GPU of all hosts, then the second, and so on.
#[derive(Clone, Copy, Debug)]
pub struct Spread;

pub(super) const SPREAD: BuiltIn =
    BuiltIn { entry: Entry::new("spread", "one GPU of each host in turn"), placement: &Spread };

impl Placement for Spread {
    fn name(&self) -> &'static str {
        SPREAD.entry.name
    }

    fn fits_by_count(&self) -> bool {
        true
    }

    fn anywhere(&self, free: &FreeSet, need: Need) -> Option<Vec<EndpointId>> {
        let all = (0..free.per_host())
            .flat_map(|gpu| free.rail(gpu).iter().map(move |host| free.endpoint(host, gpu)));
        let found: Vec<EndpointId> = all.take(need.gpus as usize).collect();
        (found.len() == need.gpus as usize).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_dealt_in_turn() {
        let mut free = FreeSet::new(8, 4);
        let first = Spread.place(&free, Need::of(3)).expect("there are 8");
        assert_eq!(first, [EndpointId(0), EndpointId(4), EndpointId(1)]);
        free.take(&first);
        assert_eq!(Spread.place(&free, Need::of(2)), Some(vec![EndpointId(5), EndpointId(2)]));
        assert_eq!(Spread.place(&free, Need::of(6)), None);
    }
}
