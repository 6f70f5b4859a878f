//! Ranks that stand for switches: which there are, and what each does.
//!
//! Behind the ranks of the workload comes one for each scale-up domain (its NVLink switches), if NVLink's switches sum anything, and behind
//! these one for the network's tree of switches, if that sums anything. A switch takes part in a communicator's calls one after another, as
//! its ranks do, and works in no time.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use windtunnel_kernel::{RankId, Span, StreamId};

use super::emit::Channels;
use super::{Decomposition, How, tag, tags};
use crate::collectives::CollectiveSpec;
use crate::collectives::nccl::{Library, Steps};
use crate::goal::Made;
use crate::{OpKind, ProgramBuilder};

/// Which of the switches one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Switch {
    /// NVLink's, of a scale-up domain.
    Domain(u32),
    /// The network's.
    Network,
}

/// The ranks that stand for switches.
#[derive(Debug, Default)]
pub struct Switches {
    /// The first of them.
    first: u32,
    /// Scale-up domains that have one: those of all ranks, or none.
    domains: u32,
    network: bool,
    /// Ranks of a scale-up domain.
    ranks_of_domain: u32,
    /// Communicators in whose calls a switch takes part, and as which of their switches.
    parts: BTreeMap<Switch, BTreeMap<u32, Vec<u32>>>,
    /// Of a communicator, and of whether the network's are meant, its switches in order.
    of: FxHashMap<(u32, bool), Vec<Switch>>,
}

impl Switches {
    /// Those of scale-up domains.
    pub fn of_domains(&self) -> u32 {
        self.domains
    }

    /// How many stand for the network's: none or one.
    pub fn of_network(&self) -> u32 {
        u32::from(self.network)
    }

    pub(super) fn ranks(&self) -> u32 {
        self.domains + self.of_network()
    }

    /// Notes the switches that `steps` of a communicator need.
    pub(super) fn take_part(
        &mut self,
        communicator: u32,
        members: &[RankId],
        steps: &Steps,
        spec: &CollectiveSpec,
    ) {
        let Some(Library(machine)) = &spec.library else { return };
        let all: Vec<Switch> = match steps.switches() {
            0 => return,
            1 if steps.choice().algorithm.sums_in_network() => vec![Switch::Network],
            switches => {
                let width = (machine.hardware.gpus * machine.hosts_of_domain).max(1);
                self.ranks_of_domain = self.ranks_of_domain.max(width);
                let ranks = members.len() / switches as usize;
                members.iter().step_by(ranks).map(|rank| Switch::Domain(rank.0 / width)).collect()
            }
        };
        for (number, &switch) in (0..).zip(&all) {
            let parts = self.parts.entry(switch).or_default().entry(communicator).or_default();
            if !parts.contains(&number) {
                parts.push(number);
            }
        }
        // One communicator may have small sums in the one kind and large ones in the other.
        self.of.insert((communicator, steps.choice().algorithm.sums_in_network()), all);
    }

    /// Numbers them, behind `ranks`.
    pub(super) fn settle(&mut self, ranks: u32) {
        self.first = ranks;
        self.network = self.parts.contains_key(&Switch::Network);
        if self.parts.keys().any(|switch| *switch != Switch::Network) {
            self.domains = ranks.div_ceil(self.ranks_of_domain.max(1));
        }
    }

    fn rank(&self, switch: Switch) -> RankId {
        RankId(match switch {
            Switch::Domain(domain) => self.first + domain,
            Switch::Network => self.first + self.domains,
        })
    }

    /// The members of a communicator with the switches of `steps` behind them; none where there are none.
    pub(super) fn behind(&self, communicator: u32, members: &[RankId], steps: &Steps) -> Option<Vec<RankId>> {
        if steps.switches() == 0 {
            return None;
        }
        let network = steps.choice().algorithm.sums_in_network();
        let own = self.of[&(communicator, network)].iter().map(|&switch| self.rank(switch));
        Some(members.iter().copied().chain(own).collect())
    }
}

impl Decomposition<'_> {
    /// What a switch does: its part in the calls of each communicator, one after another.
    pub(super) fn switch(&self, rank: RankId) -> Made {
        let mut builder = ProgramBuilder::new();
        let mut sizes = Vec::new();
        let own = rank.0 - self.switches.first;
        let switch = if own < self.switches.domains { Switch::Domain(own) } else { Switch::Network };
        for (&communicator, numbers) in self.switches.parts.get(&switch).into_iter().flatten() {
            let members = &self.workload.communicators[communicator as usize].ranks;
            let program = self.workload.program(members[0]);
            let mut before: Option<u32> = None;
            for op in &program.ops {
                let OpKind::Collective { comm, spec, sequence, stream } = op.kind else { continue };
                if self.workload.binding(members[0], comm).communicator != communicator {
                    continue;
                }
                let (key, _) = self.key(members[0], comm, spec);
                let How::Steps(steps, _) = &self.how[&key] else { continue };
                let Some(all) = self.switches.behind(communicator, members, steps) else { continue };
                if steps.choice().algorithm.sums_in_network() != (switch == Switch::Network) {
                    continue;
                }
                let label = builder.label(&program.labels[op.label as usize]);
                let begin = OpKind::Calc { duration: Span::ZERO, stream: StreamId(0) };
                let first = builder.push(begin, op.dimension, label);
                if let Some(before) = before {
                    builder.requires(first, before);
                }
                let mut channels = Channels {
                    builder: &mut builder,
                    sizes: &mut sizes,
                    steps,
                    members: &all,
                    reduce: None,
                    dimension: op.dimension,
                    label,
                    first,
                    ends: Vec::new(),
                };
                for channel in 0..steps.channels() {
                    let stream = self.stream(stream, channel);
                    let tags = tags(&|lane| tag(communicator, sequence, lane), channel);
                    for &number in numbers {
                        channels.channel(members.len() as u32 + number, channel, tags, stream);
                    }
                }
                let ends = channels.ends;
                let last = builder.push(begin, op.dimension, label);
                builder.requires(last, first);
                for part in ends {
                    builder.requires(last, part);
                }
                before = Some(last);
            }
        }
        let program = builder.finish().expect("calls one after another have no cycle");
        self.count(rank, program.ops.len() as u64);
        Made { program, receive_sizes: sizes }
    }
}
