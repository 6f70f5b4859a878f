//! Global cables between groups, arranged consecutively.
//!
//! The routers of a group that have global cables (of a dragonfly+ its spines) are its *holders*. Channel
//! j = holder · h + port of group G leads to the group at offset r = j mod (g - 1), which is (G + 1 + r) mod g, and is
//! copy c = j div (g - 1) of the cable between the two. Seen from there G is at offset g - 2 - r, so the far end is
//! channel g - 2 - r + c · (g - 1): the arrangement is its own inverse. The channels of an incomplete last copy have no
//! cable.
//!
//! So the channels between two groups are r, r + (g - 1), …, one a copy, and those on a given holder are the copies of
//! a range: intersections of ranges answer every question of the routing rule.

use std::ops::Range;

use crate::divide::Divisor;
use crate::error::TopologyError;

/// The arrangement in numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channels {
    pub(super) groups: u32,
    /// g - 1; of a single group 1.
    others: Divisor,
    /// h; of none 1.
    per_holder: Divisor,
    /// Ports of a holder: h.
    pub(super) ports: u32,
    /// Cables between two groups.
    pub(super) copies: u32,
    /// Channels of a group with a cable: the first ones.
    pub(super) cabled: u32,
}

impl Channels {
    /// `holder` is what holders are called in the spec, in the plural.
    pub(super) fn new(
        groups: u32,
        (holder, holders): (&'static str, u32),
        global_links: u32,
    ) -> Result<Self, TopologyError> {
        let channels = u64::from(holders) * u64::from(global_links);
        if u64::from(groups) > channels + 1 {
            return Err(TopologyError::TooManyGroups { groups, holder, holders, global_links });
        }
        // Sums of two channels fit 32 bits, and so do the ports of a router.
        let limit = 1 << 30;
        if channels >= limit {
            let what = "global links of a group";
            return Err(TopologyError::TooLarge { what, limit, found: channels });
        }
        let copies = if groups > 1 { channels as u32 / (groups - 1) } else { 0 };
        Ok(Self {
            groups,
            others: Divisor::new((groups - 1).max(1)),
            per_holder: Divisor::new(global_links.max(1)),
            ports: global_links,
            copies,
            cabled: copies * (groups - 1),
        })
    }

    /// Where group `to` ≠ `from` stands in the order of the channels of `from`.
    #[inline]
    pub(super) fn offset(&self, from: u32, to: u32) -> u32 {
        if to > from { to - from - 1 } else { to + self.groups - from - 1 }
    }

    /// The offset of a group as seen from the group at `offset`.
    #[inline]
    pub(super) fn back(&self, offset: u32) -> u32 {
        self.groups - 2 - offset
    }

    /// Group and channel at the other end; `None` without a cable.
    pub(super) fn far(&self, group: u32, channel: u32) -> Option<(u32, u32)> {
        if channel >= self.cabled {
            return None;
        }
        let (copy, offset) = self.others.split(channel);
        let far = group + 1 + offset;
        let far = if far >= self.groups { far - self.groups } else { far };
        Some((far, self.channel(self.back(offset), copy)))
    }

    /// The offset of the group that a channel leads to.
    #[inline]
    pub(super) fn offset_of(&self, channel: u32) -> u32 {
        self.others.remainder(channel)
    }

    /// A copy of the channel to the group at `offset`.
    #[inline]
    pub(super) fn channel(&self, offset: u32, copy: u32) -> u32 {
        offset + copy * self.others.get()
    }

    /// The holder of a channel.
    #[inline]
    pub(super) fn holder(&self, channel: u32) -> u32 {
        self.per_holder.quotient(channel)
    }

    /// Holder and port of a channel.
    #[inline]
    pub(super) fn place(&self, channel: u32) -> (u32, u32) {
        self.per_holder.split(channel)
    }

    /// Which of several cables between the same two holders a channel of a group has; `None` if it is the only one.
    pub(super) fn parallel(&self, group: u32, channel: u32) -> Option<u32> {
        let (_, back) = self.far(group, channel)?;
        let offset = self.offset_of(channel);
        let both =
            common(&self.on(self.holder(channel), offset), &self.on(self.holder(back), self.back(offset)));
        let before = both.clone().take_while(|&copy| self.channel(offset, copy) < channel).count();
        (both.len() > 1).then_some(before as u32)
    }

    /// All copies.
    #[inline]
    pub(super) fn all(&self) -> Range<u32> {
        0..self.copies
    }

    /// The copies of the channel to the group at `offset` that are on a holder.
    #[inline]
    pub(super) fn on(&self, holder: u32, offset: u32) -> Range<u32> {
        let others = self.others.get();
        // The first copy whose channel is not below a bound.
        let from = |bound: u32| self.others.quotient(bound.saturating_sub(offset) + others - 1);
        let first = holder * self.ports;
        let end = from(first + self.ports).min(self.copies);
        from(first).min(end)..end
    }

    /// The holders of some copies of the channel to the group at `offset`, each once.
    #[inline]
    pub(super) fn holders_of(&self, offset: u32, copies: Range<u32>) -> Holders {
        if copies.is_empty() {
            return Holders { first: 0, step: 0, per_holder: self.per_holder, count: 0 };
        }
        let (first, count) = (self.channel(offset, copies.start), copies.end - copies.start);
        let (step, per_holder) = (self.others.get(), self.per_holder);
        if step >= per_holder.get() {
            // No two on one holder.
            return Holders { first, step, per_holder, count };
        }
        // No holder between two of them is left out.
        let from = self.holder(first);
        let to = self.holder(self.channel(offset, copies.end - 1));
        Holders { first: from * per_holder.get(), step: per_holder.get(), per_holder, count: to - from + 1 }
    }
}

/// Holders at regular distances, ascending.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holders {
    /// A channel on the first, and how many channels further there is one on the next.
    first: u32,
    step: u32,
    per_holder: Divisor,
    pub(super) count: u32,
}

impl Holders {
    #[inline]
    pub(super) fn nth(&self, index: u32) -> u32 {
        self.per_holder.quotient(self.first + index * self.step)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u32> {
        (0..self.count).map(move |index| self.nth(index))
    }
}

/// What two ranges have in common.
#[inline]
pub(super) fn common(a: &Range<u32>, b: &Range<u32>) -> Range<u32> {
    a.start.max(b.start)..a.end.min(b.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_and_holders_are_those_of_a_scan(
            holders in 1..7u32, ports in 1..9u32, share in 0.0..1.0f64
        ) {
            let groups = 2 + (share * f64::from(holders * ports)) as u32;
            let groups = groups.min(holders * ports + 1);
            let channels = Channels::new(groups, ("routers", holders), ports).expect("few enough groups");
            prop_assert_eq!(channels.copies, holders * ports / (groups - 1));
            for offset in 0..groups - 1 {
                let to_there: Vec<u32> = (0..channels.cabled).filter(|j| j % (groups - 1) == offset).collect();
                prop_assert_eq!(to_there.len() as u32, channels.copies);
                for holder in 0..holders {
                    let expected: Vec<u32> =
                        to_there.iter().copied().filter(|j| j / ports == holder).collect();
                    let found: Vec<u32> =
                        channels.on(holder, offset).map(|copy| channels.channel(offset, copy)).collect();
                    prop_assert_eq!(found, expected);
                }
                for start in 0..=channels.copies {
                    for end in start..=channels.copies {
                        let expected: BTreeSet<u32> =
                            to_there[start as usize..end as usize].iter().map(|j| j / ports).collect();
                        let found = channels.holders_of(offset, start..end);
                        prop_assert_eq!(
                            found.iter().collect::<Vec<_>>(),
                            expected.into_iter().collect::<Vec<_>>()
                        );
                    }
                }
            }
        }

        #[test]
        fn the_far_end_leads_back(holders in 1..7u32, ports in 1..9u32, groups in 1..40u32, group in 0..40u32) {
            let Ok(channels) = Channels::new(groups, ("routers", holders), ports) else { return Ok(()) };
            let group = group % groups;
            for channel in 0..holders * ports {
                let Some((far, back)) = channels.far(group, channel) else {
                    prop_assert!(channel >= channels.cabled);
                    continue;
                };
                prop_assert_ne!(far, group);
                prop_assert_eq!(far, (group + 1 + channel % (groups - 1)) % groups);
                prop_assert_eq!(channels.offset(group, far), channels.offset_of(channel));
                prop_assert_eq!(channels.far(far, back), Some((group, channel)));
            }
        }
    }
}
