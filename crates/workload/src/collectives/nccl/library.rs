//! NCCL on a machine as jobs have it: what a collective of a group costs, split into what passes before its bytes and what
//! its links carry.
//!
//! The closed form ([`Communicator::time`]) is the whole. Of it *moving* is what the bytes keep links busy, at what Simple
//! reaches of them; LL and LL128 put 2 and 16/15 of it on the wire, and what they take longer is waiting, not sending.
//! The rest, launch and hops and waits, passes before. So a collective alone on its links takes what the closed form says, and
//! one that shares them only gets slower in what it sends.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use windtunnel_kernel::Span;

use super::{
    Algorithm as Chosen, Choice, Communicator, Constants, Distances, Function, Hardware, Kinds, Layout,
    Protocol, Settings, Sites,
};
use crate::collectives::dispatcher::{Among, Carried, Routing};
use crate::collectives::{Algorithm, CollectiveKind, CollectiveSpec};

/// A rule of a tuner plug-in: where it holds, it chooses in NCCL's place. Bounds are least and most, both within.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Hosts.
    pub hosts: (u32, u32),
    /// Ranks on a host.
    pub ranks: (u32, u32),
    /// Bytes of the buffer, the most not within.
    pub bytes: (u64, u64),
    /// Operations; all if there are none.
    pub functions: Vec<Function>,
    /// What the settings are then.
    pub settings: Settings,
}

/// A machine with its software.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// A scale-up domain and its network.
    pub hardware: Hardware,
    /// NCCL's environment.
    pub settings: Settings,
    /// A tuner plug-in; its first rule that holds counts.
    pub rules: Vec<Rule>,
    /// What it takes there.
    pub constants: Constants,
    /// Hosts of a scale-up domain.
    pub hosts_of_domain: u32,
    /// Part of what a NIC sends that is payload.
    pub payload: f64,
    /// Latency of a path inside a domain, and between two: [`Hardware::wire`] and the NICs, as the closed form has it for each hop
    /// over the network.
    pub latency: [Span; 2],
    /// Where domains stand, if that is in several buildings.
    pub sites: Option<Sites>,
    /// The machines of domains whose GPUs differ; `None` where all are alike.
    pub kinds: Option<Arc<Kinds>>,
}

/// A [`Machine`] that many collectives name. Two are the same if they are one.
#[derive(Clone, Debug)]
pub struct Library(pub Arc<Machine>);

impl PartialEq for Library {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Library {}

impl Hash for Library {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// What a collective costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// NCCL's choice.
    pub choice: Choice,
    /// The closed form, seconds.
    pub seconds: f64,
    /// What of it passes before the first byte; the latency of a path is part of it.
    pub before: Span,
    /// Whether links between domains are the ones that are busy all the time.
    pub between: bool,
    /// How its edges lie.
    pub algorithm: Algorithm,
    /// Payload of each edge, if all advance together.
    pub edge: u64,
    /// Buffer that keeps links busy as long, message by message.
    pub bytes: u64,
}

impl Function {
    /// What NCCL computes for a kind; `None` of a barrier, and where every pair has its own size.
    pub const fn of(kind: CollectiveKind) -> Option<Self> {
        match kind {
            CollectiveKind::AllReduce => Some(Self::AllReduce),
            CollectiveKind::AllGather => Some(Self::AllGather),
            CollectiveKind::ReduceScatter => Some(Self::ReduceScatter),
            CollectiveKind::Broadcast { .. } => Some(Self::Broadcast),
            CollectiveKind::Reduce { .. } => Some(Self::Reduce),
            CollectiveKind::AllToAll => Some(Self::AllToAll),
            CollectiveKind::AllToAllV | CollectiveKind::Barrier => None,
        }
    }
}

impl Machine {
    /// The settings under which a function runs.
    pub fn settings_for(&self, function: Function, bytes: u64, layout: Layout) -> &Settings {
        let (hosts, ranks) =
            (layout.domains * self.hosts_of_domain, layout.ranks / self.hosts_of_domain.max(1));
        let within = |(least, most): (u32, u32), value: u32| least <= value && value <= most;
        self.rules
            .iter()
            .find(|rule| {
                within(rule.hosts, hosts)
                    && within(rule.ranks, ranks)
                    && rule.bytes.0 <= bytes
                    && bytes < rule.bytes.1
                    && (rule.functions.is_empty() || rule.functions.contains(&function))
            })
            .map_or(&self.settings, |rule| &rule.settings)
    }

    /// What a collective costs a group of `n`; `None` where NCCL has no such collective, or its settings leave none.
    pub fn cost_of(&self, spec: &CollectiveSpec, n: u32) -> Option<Cost> {
        match spec.routing {
            Some(routing) => self.routed(routing, spec.bytes.get(), n, spec.domain),
            None => self.cost_over(spec.kind, spec.bytes.get(), n, spec.domain, spec.distances),
        }
    }

    fn hardware_over(&self, distances: Option<Distances>) -> Cow<'_, Hardware> {
        distances.map_or(Cow::Borrowed(&self.hardware), |distances| Cow::Owned(self.hardware.over(distances)))
    }

    /// Latency of a path between two domains, as a ring's hop and as the farthest members of a group have it.
    pub fn between(&self, distances: Option<Distances>) -> Distances {
        let nics = self.latency[1].ps() - Span::from_seconds_ceil(self.hardware.wire.ring).ps();
        distances.map_or(
            Distances { ring: self.latency[1], tree: self.latency[1], far: self.latency[1] },
            |Distances { ring, tree, far }| {
                let with_nics = |wire: Span| Span::from_ps(wire.ps() + nics);
                Distances { ring: with_nics(ring), tree: with_nics(tree), far: with_nics(far) }
            },
        )
    }

    /// What tokens of `bytes`, a copy for each chosen expert, cost a group whose dispatcher sends none twice.
    fn routed(&self, routing: Routing, bytes: u64, n: u32, domain: u32) -> Option<Cost> {
        if n < 2 || bytes == 0 {
            return None;
        }
        let ranks = domain.clamp(1, n);
        let layout = Layout { domains: n / ranks, ranks, ranks_per_process: 1 };
        let communicator = Communicator { hardware: &self.hardware, layout, settings: &self.settings };
        let (inside, nics) = (communicator.scale_up(), communicator.nics() * self.payload);
        let found = communicator.dispatched(routing, bytes, &self.constants);
        let choice = Choice {
            algorithm: Chosen::PointToPoint,
            protocol: Protocol::Simple,
            channels: routing.sms.div_ceil(2),
        };
        let edge = exchanged(found.moving, layout, inside, nics);
        Some(Cost {
            choice,
            seconds: found.before + found.moving,
            before: Span::from_seconds_ceil(found.before),
            between: layout.domains > 1,
            algorithm: Algorithm::Direct,
            edge: whole(edge),
            bytes: whole(edge * f64::from(n)),
        })
    }

    /// What `bytes` cost a group of `n`, of which `domain` neighbours each share a scale-up domain; `None` where NCCL has no
    /// such collective, or its settings leave none.
    pub fn cost(&self, kind: CollectiveKind, bytes: u64, n: u32, domain: u32) -> Option<Cost> {
        self.cost_over(kind, bytes, n, domain, None)
    }

    /// [`Self::cost`] of a group whose hops are as long as `distances` say; as the hardware's where it says nothing.
    fn cost_over(
        &self,
        kind: CollectiveKind,
        bytes: u64,
        n: u32,
        domain: u32,
        distances: Option<Distances>,
    ) -> Option<Cost> {
        let function = Function::of(kind)?;
        if n < 2 || bytes == 0 {
            return None;
        }
        let ranks = domain.clamp(1, n);
        let layout = Layout { domains: n / ranks, ranks, ranks_per_process: 1 };
        let settings = self.settings_for(function, bytes, layout);
        let hardware = self.hardware_over(distances);
        let communicator = Communicator { hardware: &hardware, layout, settings };
        let (choice, seconds) = communicator.time(function, bytes, &self.constants).ok()?;
        let moving = communicator.moving(function, choice, bytes, &self.constants).min(seconds);
        let several = layout.domains > 1;
        let before = Span::from_seconds_ceil(seconds - moving);
        let by_rings = several && ranks > 1;
        let (algorithm, rounds) = match function {
            Function::AllToAll => (Algorithm::Direct, 0),
            Function::AllReduce => (Algorithm::Ring, 2 * (n - 1)),
            Function::AllGather | Function::ReduceScatter => (Algorithm::Ring, n - 1),
            _ => (Algorithm::Ring, n),
        };
        let multi = by_rings
            && matches!(function, Function::AllReduce | Function::AllGather | Function::ReduceScatter);
        let algorithm = if multi { Algorithm::MultiRing } else { algorithm };
        // What links carry in that time if nobody else does.
        let inside = communicator.scale_up();
        let nics = communicator.nics() * self.payload;
        let (all, by) = (f64::from(n), f64::from(ranks));
        let (edge, buffer) = match function {
            Function::AllToAll => {
                let each = exchanged(moving, layout, inside, nics);
                (each, each * all)
            }
            _ if multi => {
                let edge = moving / (by / nics).max((by - 1.0) / inside);
                (edge, edge * all * by / f64::from(rounds))
            }
            _ => {
                // One ring leaves a domain by the NICs of one GPU.
                let Hardware { nic, nics, gpus, .. } = self.hardware;
                let one =
                    (nic * f64::from((nics / gpus.max(1)).max(1))).min(communicator.nics()) * self.payload;
                let edge = moving * if several { one.min(inside) } else { inside };
                (edge, edge * all / f64::from(rounds))
            }
        };
        let between = several && by / nics >= (by - 1.0) / inside;
        Some(Cost { choice, seconds, before, between, algorithm, edge: whole(edge), bytes: whole(buffer) })
    }
}

fn whole(bytes: f64) -> u64 {
    (bytes.round() as u64).max(1)
}

/// What each pair exchanges if that keeps the links that are busiest busy for `moving` seconds.
fn exchanged(moving: f64, layout: Layout, inside: f64, nics: f64) -> f64 {
    let (all, by) = (f64::from(layout.domains * layout.ranks), f64::from(layout.ranks));
    if layout.domains > 1 {
        moving / (by * (all - by) / nics).max((by - 1.0) / inside)
    } else {
        moving * inside / (all - 1.0)
    }
}

impl Communicator<'_> {
    /// What tokens take whose dispatcher sends none twice; `bytes` are a copy for each chosen expert.
    pub fn dispatched(&self, routing: Routing, bytes: u64, constants: &Constants) -> Carried {
        let Layout { domains, ranks, .. } = self.layout;
        let among = Among {
            domains,
            ranks: domains * ranks,
            scale_up: self.scale_up(),
            network: self.nics() / f64::from(ranks.max(1)),
        };
        routing.carried(bytes, among, &constants.dispatcher)
    }

    /// Seconds for which links are busy with `bytes`: however much of that hides behind the hops of a ring, over long
    /// cables all of it, the bytes are sent and stand in the way of others.
    fn moving(&self, function: Function, choice: Choice, bytes: u64, constants: &Constants) -> f64 {
        let of = |choice: Choice| {
            if matches!(choice.algorithm, Chosen::Ring | Chosen::Pat) {
                return self.ring_sent(function, choice, bytes, constants);
            }
            let nothing = self.time_of(function, choice, 1, constants);
            (self.time_of(function, choice, bytes, constants) - nothing).max(0.0)
        };
        let own = of(choice);
        let on_the_wire = match choice.protocol {
            Protocol::Simple => return own,
            Protocol::LL => 2.0,
            Protocol::LL128 => 16.0 / 15.0,
        };
        let simple = match choice.algorithm {
            Chosen::Ring | Chosen::Tree => of(Choice { protocol: Protocol::Simple, ..choice }),
            _ => return own,
        };
        own.min(on_the_wire * simple)
    }
}
