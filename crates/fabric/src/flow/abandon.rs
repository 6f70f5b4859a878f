//! Messages and groups whose hosts have gone: taken off the network wherever they are, while all else goes on with what is left
//! of it.

use std::cmp::Reverse;

use rustc_hash::FxHashSet;

use super::flow_network::FlowNetwork;
use super::transfer::{Subject, slot_of};
use crate::model::Arrival;

impl FlowNetwork {
    /// See [`Network::abandon`](crate::Network::abandon).
    pub(crate) fn take_gone(&mut self, gone: &dyn Fn(Arrival) -> bool) -> Vec<Arrival> {
        let named = |subject: Subject| match subject {
            Subject::Message { message, .. } => Arrival::Message { message },
            Subject::Coupled { run, .. } => Arrival::Coupled { run },
        };
        let free: FxHashSet<u32> = self.free.iter().copied().collect();
        let live = (0..self.transfers.len() as u32).filter(|slot| !free.contains(slot));
        let slots: Vec<u32> =
            live.filter(|&slot| gone(named(self.transfers[slot as usize].subject))).collect();
        let goes = |slot: u32| slots.binary_search(&slot).is_ok();
        let mut on_links = self.take_off();
        on_links.retain(|&(token, _)| !goes(slot_of(token)));
        self.arrivals.retain(|&Reverse((.., slot))| !goes(slot));
        let mut ahead = FxHashSet::default();
        self.waiting.retain(|&Reverse((.., slot))| {
            if goes(slot) {
                ahead.insert(slot);
            }
            !goes(slot)
        });
        let turnless = self.turns.forget(goes);
        for &slot in &slots {
            // Whatever shares a queue pair with it has the same ends, and goes too.
            if let Some(pair) = self.transfers[slot as usize].queue_pair() {
                self.queue_pairs.remove(&pair);
            }
            let begun = !ahead.contains(&slot) && !turnless.contains(&slot);
            if let Subject::Coupled { group, .. } = self.transfers[slot as usize].subject
                && begun
                && let Some((tree, _)) = &self.groups[group.0 as usize].tree
            {
                self.turns.leave(tree, self.settings.reduction.operations, &mut self.admitted);
            }
        }
        self.put_back(on_links);
        let mut admitted = std::mem::take(&mut self.admitted);
        for slot in admitted.drain(..) {
            self.begin(slot, true);
        }
        self.admitted = admitted;
        self.free.extend(slots.iter().rev());
        slots.iter().map(|&slot| named(self.transfers[slot as usize].subject)).collect()
    }
}
