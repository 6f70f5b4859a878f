//! From the number of a link or switch back to what it is.

use super::{Clos, Stage};
use crate::link::{Link, LinkId, LinkTier, Node, SwitchAddress};

/// A link taken apart.
enum Part {
    Nic {
        up: bool,
        nic: u32,
        plane: u32,
    },
    /// Of the stage above a tier, its cable number.
    Stage {
        up: bool,
        tier: usize,
        cable: u32,
    },
}

impl Clos {
    fn part(&self, link: LinkId) -> Part {
        let nic_links = self.nics * self.planes;
        for (up, first) in [(true, self.nic_up), (false, self.nic_down)] {
            if link.0 - first < nic_links {
                let (nic, plane) = ((link.0 - first) / self.planes, (link.0 - first) % self.planes);
                return Part::Nic { up, nic, plane };
            }
        }
        // Stages are numbered in order: the last one that begins at or before the link holds it.
        let tier = self.stages.partition_point(|stage| stage.up <= link.0) - 1;
        let Stage { up, down, .. } = self.stages[tier];
        let is_up = link.0 < down;
        Part::Stage { up: is_up, tier, cable: link.0 - if is_up { up } else { down } }
    }

    pub(crate) fn link(&self, link: LinkId) -> Link {
        let (below, tier) = match self.part(link) {
            Part::Nic { up: true, .. } => (0, LinkTier::NicUp),
            Part::Nic { up: false, .. } => (0, LinkTier::NicDown),
            Part::Stage { up: true, tier, .. } => (tier + 1, LinkTier::Up(tier as u8)),
            Part::Stage { up: false, tier, .. } => (tier + 1, LinkTier::Down(tier as u8)),
        };
        // The links below tier t end at a switch of tier t on the way up, of tier t - 1 or at a NIC on the way down.
        let cable = &self.levels[below];
        let far_end = match tier {
            LinkTier::NicUp | LinkTier::Up(_) => Some(below),
            _ => below.checked_sub(1),
        };
        let delay = far_end.map(|tier| self.levels[tier].delay).unwrap_or_default();
        Link { rate: cable.rate, latency: cable.propagation + delay, tier }
    }

    /// Both ends of a link, and which of several parallel links it is.
    pub(crate) fn link_ends(&self, link: LinkId) -> (Node, Node, Option<u32>) {
        let (up, lower, upper, parallel) = match self.part(link) {
            Part::Nic { up, nic, plane } => {
                let (leaf, _) = self.port((nic / self.nics_per_host, nic % self.nics_per_host));
                (up, Node::Nic(nic), SwitchAddress { plane, tier: 0, block: leaf, index: 0 }, None)
            }
            Part::Stage { up, tier, cable } => {
                let (level, stage) = (&self.levels[tier], &self.stages[tier]);
                let (switch, port) = stage.uplinks.split(cable);
                let (plane, in_plane) = (switch / level.switches, switch % level.switches);
                let (block, index) = level.width.split(in_plane);
                let (parallel, parent) = stage.parents.split(port);
                let upper = SwitchAddress {
                    plane,
                    tier: tier as u8 + 1,
                    block: stage.radix.quotient(block),
                    index: index + level.width.get() * parent,
                };
                let lower = SwitchAddress { plane, tier: tier as u8, block, index };
                (up, Node::Switch(lower), upper, (stage.bundle > 1).then_some(parallel))
            }
        };
        let upper = Node::Switch(upper);
        if up { (lower, upper, parallel) } else { (upper, lower, parallel) }
    }

    pub(crate) fn switch_number(&self, switch: SwitchAddress) -> Option<u64> {
        let level = self.levels.get(usize::from(switch.tier))?;
        let valid =
            switch.plane < self.planes && switch.block < level.blocks && switch.index < level.width.get();
        let in_tier = || switch.plane * level.switches + switch.block * level.width.get() + switch.index;
        valid.then(|| level.first_switch + u64::from(in_tier()))
    }

    /// `leaf5`, with rails `leaf{group}.{rail}`; at the top `spine5`; between them `agg{pod}.{index}` and
    /// `tier2-{block}.{index}`; with several planes after `plane0/`.
    pub(crate) fn switch_name(&self, switch: SwitchAddress) -> String {
        let SwitchAddress { plane, tier, block, index } = switch;
        let name = match usize::from(tier) {
            0 if self.rails => format!("leaf{}.{}", block / self.nics_per_host, block % self.nics_per_host),
            0 => format!("leaf{block}"),
            top if top + 1 == self.levels.len() => format!("spine{index}"),
            1 => format!("agg{block}.{index}"),
            tier => format!("tier{tier}-{block}.{index}"),
        };
        if self.planes > 1 { format!("plane{plane}/{name}") } else { name }
    }

    pub(crate) fn tier_name(&self, tier: usize) -> String {
        match tier {
            0 => "leaf".to_owned(),
            top if top + 1 == self.levels.len() => "spine".to_owned(),
            1 => "agg".to_owned(),
            tier => format!("tier{tier}"),
        }
    }
}
