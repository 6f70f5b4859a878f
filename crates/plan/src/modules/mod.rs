//! Modules that a program brings along: transports, choosers of paths, stages of switches and load balancers in them, of other
//! crates, by the names that scenarios give.
//!
//! A program makes a [`Modules`], registers what it has, and hands it over with each
//! run request; `examples/own-transport` is a whole one. What is registered is compiled into a
//! packet network of its own: what is called through a table is the network, once for thousands of events.
//!
//! A registered transport goes before a built-in one of its name, so a variant can stand in for it. A chooser of paths, a
//! stage or a balancer goes with every built-in transport. With a transport of the program's own it has to be registered
//! together ([`Modules::with`]), and so have several of them ([`Modules::together`]), since nobody else knows all the types.
//!
//! What a program registers decides figures and is no text: it counts by [`Modules::identity`], so that another program's
//! module of the same name is not taken for it.

mod identity;
mod parts;

use std::fmt;
use std::io;
use std::sync::Arc;

pub use parts::Names;
pub use parts::{Balances, Chooses, Kind, One, Part, Refused, Stages, Written, balancer, chooser, stage};
use serde_json::{Map, Value};
use windtunnel_cluster::placement::Placement;
use windtunnel_cluster::scheduler::Scheduler;
use windtunnel_fabric::packet::transport::{Around, PathChooser, SwitchBalancer, SwitchStage, Transport};
use windtunnel_fabric::packet::{NetworkOf, TransportChoice};

/// `network.parameters`, or those of a module, as a scenario writes them.
pub type Parameters = Map<String, Value>;

type MakeScheduler = dyn Fn() -> Box<dyn Scheduler> + Send + Sync;
type Made = Result<Arc<dyn NetworkOf>, Refused>;
type MakeTransport = dyn Fn(&Parameters) -> Made + Send + Sync;
type MakeOver = dyn Fn(&TransportChoice, &Written<'_>) -> Made + Send + Sync;
type MakeWith = dyn Fn(&Parameters, &Written<'_>) -> Made + Send + Sync;

/// Something registered under a name, with a line about it.
struct Named {
    name: &'static str,
    summary: String,
}

/// What a program adds to the names that scenarios may use. Clones share it. Of two of a name the later one counts.
#[derive(Clone, Default)]
pub struct Modules {
    transports: Vec<(Arc<Named>, Arc<MakeTransport>)>,
    /// What may go with each built-in transport.
    over: Vec<(Names<'static>, Arc<MakeOver>)>,
    /// What may go with a transport of the program's own.
    with: Vec<(&'static str, Names<'static>, Arc<MakeWith>)>,
    /// Lines about modules, by kind.
    lines: Vec<(Kind, Arc<Named>)>,
    scheduler: Option<Arc<MakeScheduler>>,
    placement: Option<&'static dyn Placement>,
    identity: Option<Arc<str>>,
}

impl Modules {
    /// Says what the modules are known by in place of the program's file: a text that is another one whenever they would
    /// give other figures, such as a version. It keeps digests and journals valid where the program is built anew.
    #[must_use]
    pub fn identified_by(mut self, identity: &str) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// What tells these modules from others of the same names: what [`Self::identified_by`] says, else the SHA-256 of the
    /// program's file, and the names of its policies. `None` if nothing here decides any figure; scheduler and placement do
    /// not count if they are `told` otherwise.
    ///
    /// # Errors
    /// When the program's file cannot be read.
    pub fn identity(&self, told: bool) -> io::Result<Option<String>> {
        let none = self.transports.is_empty() && self.over.is_empty() && self.with.is_empty();
        let scheduler = if told { None } else { self.make_scheduler() };
        let placement = if told { None } else { self.placement };
        if none && scheduler.is_none() && placement.is_none() {
            return Ok(None);
        }
        let code: &str = match &self.identity {
            Some(identity) => identity,
            None => identity::of_program()?,
        };
        let scheduler = scheduler.map_or("", |scheduler| scheduler.name());
        let placement = placement.map_or("", |placement| placement.name());
        Ok(Some([code, scheduler, placement].join("\n")))
    }

    /// The scheduler of all scenarios, whatever they name; made anew for each run.
    #[must_use]
    pub fn scheduler(mut self, make: impl Fn() -> Box<dyn Scheduler> + Send + Sync + 'static) -> Self {
        self.scheduler = Some(Arc::new(make));
        self
    }

    /// The placement of all jobs, whatever they name.
    #[must_use]
    pub fn placement(mut self, placement: &'static dyn Placement) -> Self {
        self.placement = Some(placement);
        self
    }

    /// A new scheduler, if there is one of the program's own.
    pub fn make_scheduler(&self) -> Option<Box<dyn Scheduler>> {
        self.scheduler.as_ref().map(|make| make())
    }

    /// The placement of the program's own.
    pub fn own_placement(&self) -> Option<&'static dyn Placement> {
        self.placement
    }

    /// Registers a transport under [`Transport::NAME`], with a line for `windtunnel list transports`. `build` makes it
    /// from the scenario's `network.parameters`; its error is shown to the user with their place, in lower case and
    /// without a full stop.
    #[must_use]
    pub fn transport<T: Transport + Sync>(
        mut self,
        summary: &str,
        build: impl Fn(&Parameters) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        let make = move |parameters: &Parameters| -> Made { Ok(Arc::new(own(build(parameters))?)) };
        self.transports.retain(|(known, _)| known.name != T::NAME);
        let named = Named { name: T::NAME, summary: summary.to_owned() };
        self.transports.push((Arc::new(named), Arc::new(make)));
        self
    }

    /// Registers what chooses path numbers under [`PathChooser::NAME`], for every built-in transport. `build` makes it from
    /// the parameters of `network.path_chooser`.
    #[must_use]
    pub fn path_chooser<C: PathChooser + Sync>(
        self,
        summary: &str,
        build: impl Fn(&Parameters) -> Result<C, String> + Send + Sync + 'static,
    ) -> Self {
        self.describe(Kind::PathChooser, C::NAME, summary).together(chooser(build))
    }

    /// Registers a stage of switches under [`SwitchStage::NAME`], for every built-in transport. `build` makes it from the
    /// parameters of `network.stage`.
    #[must_use]
    pub fn stage<S>(
        self,
        summary: &str,
        build: impl Fn(&Parameters) -> Result<S, String> + Send + Sync + 'static,
    ) -> Self
    where
        S: SwitchStage + Sync,
        S::State: Sync,
    {
        self.describe(Kind::Stage, S::NAME, summary).together(stage(build))
    }

    /// Registers a load balancer in switches under [`SwitchBalancer::NAME`], for every built-in transport. `build` makes it
    /// from the parameters of `network.switch_balancer`.
    #[must_use]
    pub fn switch_balancer<B>(
        self,
        summary: &str,
        build: impl Fn(&Parameters) -> Result<B, String> + Send + Sync + 'static,
    ) -> Self
    where
        B: SwitchBalancer + Sync,
        B::State: Sync,
    {
        self.describe(Kind::SwitchBalancer, B::NAME, summary).together(balancer(build))
    }

    /// Lets modules be used together with every built-in transport: a pair of what [`chooser`], [`stage`] and [`balancer`]
    /// give, or a pair of such pairs. Each has a line about it, by [`Self::path_chooser`] and so on, or [`Self::describe`].
    /// Costs twelve packet engines to compile.
    #[must_use]
    pub fn together<P: Part>(mut self, parts: P) -> Self {
        let make = move |transport: &TransportChoice, written: &Written<'_>| -> Made {
            Ok(transport.within(&parts.build(written)?))
        };
        self.over.retain(|(names, _)| *names != P::names());
        self.over.push((P::names(), Arc::new(make)));
        self
    }

    /// Lets a transport of the program's own, registered too, be used with one module or several: `parts` as in
    /// [`Self::together`].
    #[must_use]
    pub fn with<T: Transport + Sync, P: Part>(
        mut self,
        transport: impl Fn(&Parameters) -> Result<T, String> + Send + Sync + 'static,
        parts: P,
    ) -> Self {
        let make = move |parameters: &Parameters, written: &Written<'_>| -> Made {
            Ok(Arc::new(parts.build(written)?.around(own(transport(parameters))?)))
        };
        self.with.retain(|(known, names, _)| (*known, *names) != (T::NAME, P::names()));
        self.with.push((T::NAME, P::names(), Arc::new(make)));
        self
    }

    /// Makes the name of a module known, with a line for `windtunnel list modules`: of one that goes with some transports only.
    #[must_use]
    pub fn describe(mut self, kind: Kind, name: &'static str, summary: &str) -> Self {
        self.lines.retain(|(of, known)| (*of, known.name) != (kind, name));
        self.lines.push((kind, Arc::new(Named { name, summary: summary.to_owned() })));
        self
    }

    /// Names of the registered transports and their lines, in the order of registration.
    pub fn transports(&self) -> impl Iterator<Item = (&str, &str)> {
        self.transports.iter().map(|(known, _)| (known.name, known.summary.as_str()))
    }

    /// Names of the registered modules of a kind and their lines, in the order of registration.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = (&str, &str)> {
        let known = self.lines.iter().filter(move |(of, _)| *of == kind);
        known.map(|(_, known)| (known.name, known.summary.as_str()))
    }

    /// The registered transport of a name; `None` if there is none.
    pub fn make_transport(&self, name: &str, parameters: &Parameters) -> Option<Made> {
        let (_, make) = self.transports.iter().find(|(known, _)| known.name == name)?;
        Some(make(parameters))
    }

    /// A built-in transport with registered modules; `None` if these are not registered together.
    pub fn make_over(
        &self,
        transport: &TransportChoice,
        names: Names<'_>,
        written: &Written<'_>,
    ) -> Option<Made> {
        let (_, make) = self.over.iter().find(|(known, _)| *known == names)?;
        Some(make(transport, written))
    }

    /// A registered transport with registered modules; `None` if they are not registered together.
    pub fn make_with(
        &self,
        (transport, parameters): (&str, &Parameters),
        names: Names<'_>,
        written: &Written<'_>,
    ) -> Option<Made> {
        let (.., make) = self.with.iter().find(|(t, known, _)| *t == transport && *known == names)?;
        Some(make(parameters, written))
    }
}

/// What a transport's own function says.
fn own<T>(made: Result<T, String>) -> Result<T, Refused> {
    made.map_err(|message| Refused { kind: None, message })
}

impl fmt::Debug for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Modules");
        all.field("transports", &self.transports().collect::<Vec<_>>());
        for kind in Kind::ALL {
            all.field(kind.key(), &self.of(kind).collect::<Vec<_>>());
        }
        all.finish()
    }
}
