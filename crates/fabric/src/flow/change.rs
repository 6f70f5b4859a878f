//! Links that slow down, go down or come up in mid-run: flows under way are taken out with what is left of them, and start
//! anew over the links as they are, each by the route that it has now.
//!
//! A flow whose way leads over a link that is down, before all switches know, is held: in packets that way loses everything,
//! so nothing goes on until another is taken. It goes on when a way is found again, at the next change or when the fabric has
//! converged. What nothing joins after the last change is cut off as from the start ([`crate::reroute`]).

use std::collections::VecDeque;

use windtunnel_kernel::Time;
use windtunnel_topology::{LinkId, Topology};

use super::flow_network::FlowNetwork;
use super::instant::Instant;
use super::transfer::slot_of;
use crate::packet::{FabricPart, Impairments, PartState, links_of};
use crate::reroute::lock;

/// What happens at an instant.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Links run at a part of their rate.
    Rate(Vec<LinkId>, f64),
    /// A part goes down (`true`) or comes up.
    Turn(FabricPart, bool),
    /// Every switch knows what is down.
    Converge,
}

/// What is to change, and what waits for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    pub steps: VecDeque<(Time, Step)>,
    /// Flows without a way, with the volume per weight that is left of them if they had begun.
    pub held: Vec<(u64, Option<f64>)>,
    /// Others may come, of which nobody knows yet.
    pub unforeseen: bool,
}

impl Changes {
    fn new(topology: &Topology, impairments: &Impairments) -> Self {
        let mut steps = Vec::new();
        for change in &impairments.changes {
            match change.state {
                PartState::Rate(part) => {
                    steps.push((change.at, Step::Rate(links_of(topology, change.part), part)));
                }
                PartState::Down | PartState::Up => {
                    let down = change.state == PartState::Down;
                    steps.push((change.at, Step::Turn(change.part, down)));
                    steps.push((change.known.max(change.at), Step::Converge));
                }
            }
        }
        // Stable: changes of an instant in their order.
        steps.sort_by_key(|&(at, _)| at);
        Self { steps: steps.into(), held: Vec::new(), unforeseen: false }
    }

    /// Whether anything is still to change.
    pub(super) fn are_to_come(&self) -> bool {
        self.unforeseen || !self.steps.is_empty()
    }

    /// When the next change is.
    pub(super) fn next(&self) -> Time {
        self.steps.front().map_or(Time::NEVER, |&(at, _)| at)
    }
}

impl FlowNetwork {
    /// Changes links as `impairments` say; its losses and clocks are not for flows. Where paths move, the network must be
    /// [rerouted](Self::rerouted).
    ///
    /// # Panics
    /// If links go down and there is no rerouter.
    pub fn change(&mut self, impairments: &Impairments) {
        assert!(!impairments.moves_paths() || self.rerouter.is_some(), "paths move: a rerouter is due");
        let unforeseen = self.changes.unforeseen;
        self.changes = Changes { unforeseen, ..Changes::new(&self.topology, impairments) };
    }

    /// Paths may change at any time: see [`Self::paths_changed`]. The network must be [rerouted](Self::rerouted).
    pub(super) fn expect_other_paths(&mut self) {
        self.changes.unforeseen = true;
    }

    /// The rerouter has other paths since the clock's instant: what is under way goes on by them.
    pub fn paths_changed(&mut self) {
        let left = self.take_off();
        self.lay_groups();
        self.put_back(left);
    }

    /// Takes all flows off their links; what is left of each.
    pub(super) fn take_off(&mut self) -> Vec<(u64, Option<f64>)> {
        let flows = self.system.withdraw(Instant::at(self.clock.ps())).into_iter();
        let mut left: Vec<(u64, Option<f64>)> = flows.map(|(token, volume)| (token, Some(volume))).collect();
        left.append(&mut self.changes.held);
        left
    }

    /// Puts flows back on links, in the order of their transfers.
    pub(super) fn put_back(&mut self, mut left: Vec<(u64, Option<f64>)>) {
        left.sort_unstable_by_key(|&(token, _)| (slot_of(token), token));
        for (token, volume) in left {
            self.put_on_links(token, volume);
        }
    }

    /// Carries out what changes up to the clock.
    pub(super) fn apply_changes(&mut self) {
        if self.changes.next() > self.clock {
            return;
        }
        let left = self.take_off();
        let mut moved = false;
        while let Some((_, step)) = self.changes.steps.pop_front_if(|(at, _)| *at <= self.clock) {
            match step {
                Step::Rate(links, part) => {
                    for link in links {
                        let link = link.0;
                        let rate = self.nominal(link) * part;
                        self.rates[link as usize] = rate;
                        self.system.set_capacity(link, rate);
                    }
                }
                Step::Turn(part, down) => {
                    let Some(rerouter) = &self.rerouter else { continue };
                    let mut rerouter = lock(rerouter);
                    let forwarder = rerouter.forwarder_mut();
                    match (part, down) {
                        (FabricPart::Cable(link), true) => forwarder.fail_cable(link),
                        (FabricPart::Cable(link), false) => forwarder.recover_cable(link),
                        (FabricPart::Switch(switch), true) => forwarder.fail_switch(switch),
                        (FabricPart::Switch(switch), false) => forwarder.recover_switch(switch),
                    }
                    moved = true;
                }
                Step::Converge => {
                    let Some(rerouter) = &self.rerouter else { continue };
                    lock(rerouter).forwarder_mut().converge();
                    moved = true;
                }
            }
        }
        if moved {
            self.lay_groups();
        }
        self.put_back(left);
    }
}
