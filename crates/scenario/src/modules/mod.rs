//! Modules that a program brings along: transports, load balancers and stages of switches of other crates, by the names that scenarios give.
//!
//! A program makes a [`Modules`], registers what it has, and hands it over with each
//! [`RunRequest`](crate::api::RunRequest); `examples/own-transport` is a whole one. What is registered is compiled into a
//! packet network of its own: what is called through a table is the network, once for thousands of events.
//!
//! A registered transport goes before a built-in one of its name, so a variant can stand in for it. A chooser of paths
//! goes with every built-in transport; with one of the program's own it has to be registered as a pair
//! ([`Modules::steered`]), since nobody else knows both types. The same holds for stages of switches ([`Modules::stage`],
//! [`Modules::staged`]).

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use windtunnel_cluster::placement::Placement;
use windtunnel_cluster::scheduler::Scheduler;
use windtunnel_fabric::packet::transport::{PathChooser, Staged, Steered, SwitchStage, Transport};
use windtunnel_fabric::packet::{NetworkOf, TransportChoice};

/// `network.parameters`, or those of `network.path_chooser`, as a scenario writes them.
pub type Parameters = Map<String, Value>;

type MakeScheduler = dyn Fn() -> Box<dyn Scheduler> + Send + Sync;
type Made = Result<Arc<dyn NetworkOf>, String>;
type MakeTransport = dyn Fn(&Parameters) -> Made + Send + Sync;
type MakeChooser = dyn Fn(&TransportChoice, &Parameters) -> Made + Send + Sync;
type MakePair = dyn Fn(&Parameters, &Parameters) -> Made + Send + Sync;

/// Something registered under a name, with a line about it.
struct Named<M: ?Sized> {
    name: &'static str,
    summary: String,
    make: Arc<M>,
}

impl<M: ?Sized> Clone for Named<M> {
    fn clone(&self) -> Self {
        Self { name: self.name, summary: self.summary.clone(), make: Arc::clone(&self.make) }
    }
}

/// What a program adds to the names that scenarios may use. Clones share it. Of two of a name the later one counts.
#[derive(Clone, Default)]
pub struct Modules {
    transports: Vec<Named<MakeTransport>>,
    choosers: Vec<Named<MakeChooser>>,
    pairs: Vec<(&'static str, &'static str, Arc<MakePair>)>,
    stages: Vec<Named<MakeChooser>>,
    staged: Vec<(&'static str, &'static str, Arc<MakePair>)>,
    scheduler: Option<Arc<MakeScheduler>>,
    placement: Option<&'static dyn Placement>,
}

impl Modules {
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
    pub(crate) fn make_scheduler(&self) -> Option<Box<dyn Scheduler>> {
        self.scheduler.as_ref().map(|make| make())
    }

    /// The placement of the program's own.
    pub(crate) fn own_placement(&self) -> Option<&'static dyn Placement> {
        self.placement
    }

    /// Registers a transport under [`Transport::NAME`], with a line for `windtunnel list transports`. `build` makes it
    /// from the scenario's `network.parameters`; its error is shown to the user with their place, in lower case and
    /// without a full stop.
    #[must_use]
    pub fn transport<T: Transport + Send + Sync + 'static>(
        mut self,
        summary: &str,
        build: impl Fn(&Parameters) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        let make = move |parameters: &Parameters| -> Made { Ok(Arc::new(build(parameters)?)) };
        self.transports.retain(|known| known.name != T::NAME);
        let named =
            Named { name: T::NAME, summary: summary.to_owned(), make: Arc::new(make) as Arc<MakeTransport> };
        self.transports.push(named);
        self
    }

    /// Registers what chooses path numbers under [`PathChooser::NAME`], for every built-in transport. `build` makes it from
    /// the parameters of `network.path_chooser`.
    #[must_use]
    pub fn path_chooser<C: PathChooser + Send + Sync + 'static>(
        mut self,
        summary: &str,
        build: impl Fn(&Parameters) -> Result<C, String> + Send + Sync + 'static,
    ) -> Self {
        let make = move |transport: &TransportChoice, parameters: &Parameters| -> Made {
            Ok(transport.steered(build(parameters)?))
        };
        self.choosers.retain(|known| known.name != C::NAME);
        let named =
            Named { name: C::NAME, summary: summary.to_owned(), make: Arc::new(make) as Arc<MakeChooser> };
        self.choosers.push(named);
        self
    }

    /// Lets a transport and a chooser, each registered too, be used together.
    #[must_use]
    pub fn steered<T, C>(
        mut self,
        transport: impl Fn(&Parameters) -> Result<T, String> + Send + Sync + 'static,
        chooser: impl Fn(&Parameters) -> Result<C, String> + Send + Sync + 'static,
    ) -> Self
    where
        T: Transport + Send + Sync + 'static,
        C: PathChooser + Send + Sync + 'static,
    {
        let make = move |first: &Parameters, second: &Parameters| -> Made {
            Ok(Arc::new(Steered { transport: transport(first)?, chooser: chooser(second)? }))
        };
        self.pairs.retain(|(transport, chooser, _)| (*transport, *chooser) != (T::NAME, C::NAME));
        self.pairs.push((T::NAME, C::NAME, Arc::new(make)));
        self
    }

    /// Registers a stage of switches under [`SwitchStage::NAME`], for every built-in transport. `build` makes it from the
    /// parameters of `network.stage`.
    #[must_use]
    pub fn stage<S>(
        mut self,
        summary: &str,
        build: impl Fn(&Parameters) -> Result<S, String> + Send + Sync + 'static,
    ) -> Self
    where
        S: SwitchStage + Sync,
        S::State: Sync,
    {
        let make = move |transport: &TransportChoice, parameters: &Parameters| -> Made {
            Ok(transport.staged(build(parameters)?))
        };
        self.stages.retain(|known| known.name != S::NAME);
        let named =
            Named { name: S::NAME, summary: summary.to_owned(), make: Arc::new(make) as Arc<MakeChooser> };
        self.stages.push(named);
        self
    }

    /// Lets a transport and a stage, each registered too, be used together.
    #[must_use]
    pub fn staged<T, S>(
        mut self,
        transport: impl Fn(&Parameters) -> Result<T, String> + Send + Sync + 'static,
        stage: impl Fn(&Parameters) -> Result<S, String> + Send + Sync + 'static,
    ) -> Self
    where
        T: Transport + Send + Sync + 'static,
        S: SwitchStage + Sync,
        S::State: Sync,
    {
        let make = move |first: &Parameters, second: &Parameters| -> Made {
            Ok(Arc::new(Staged::new(transport(first)?, stage(second)?)))
        };
        self.staged.retain(|(transport, stage, _)| (*transport, *stage) != (T::NAME, S::NAME));
        self.staged.push((T::NAME, S::NAME, Arc::new(make)));
        self
    }

    /// Names of the registered stages of switches and their lines, in the order of registration.
    pub fn stages(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stages.iter().map(|known| (known.name, known.summary.as_str()))
    }

    /// Names of the registered transports and their lines, in the order of registration.
    pub fn transports(&self) -> impl Iterator<Item = (&str, &str)> {
        self.transports.iter().map(|known| (known.name, known.summary.as_str()))
    }

    /// Names of the registered choosers of paths and their lines, in the order of registration.
    pub fn path_choosers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.choosers.iter().map(|known| (known.name, known.summary.as_str()))
    }

    /// The registered transport of a name; `None` if there is none.
    pub(crate) fn make_transport(&self, name: &str, parameters: &Parameters) -> Option<Made> {
        let known = self.transports.iter().find(|known| known.name == name)?;
        Some((known.make)(parameters))
    }

    /// A built-in transport with a registered chooser; `None` if there is no such chooser.
    pub(crate) fn make_steered(
        &self,
        transport: &TransportChoice,
        chooser: &str,
        parameters: &Parameters,
    ) -> Option<Made> {
        let known = self.choosers.iter().find(|known| known.name == chooser)?;
        Some((known.make)(transport, parameters))
    }

    /// A built-in transport over switches with a registered stage; `None` if there is no such stage.
    pub(crate) fn make_staged(
        &self,
        transport: &TransportChoice,
        stage: &str,
        parameters: &Parameters,
    ) -> Option<Made> {
        let known = self.stages.iter().find(|known| known.name == stage)?;
        Some((known.make)(transport, parameters))
    }

    /// A registered transport with a registered stage; `None` if they are not registered together.
    pub(crate) fn make_staged_pair(
        &self,
        (transport, first): (&str, &Parameters),
        (stage, second): (&str, &Parameters),
    ) -> Option<Made> {
        let (.., make) = self.staged.iter().find(|(t, s, _)| (*t, *s) == (transport, stage))?;
        Some(make(first, second))
    }

    /// A registered transport with a registered chooser; `None` if they are not registered together.
    pub(crate) fn make_pair(
        &self,
        (transport, first): (&str, &Parameters),
        (chooser, second): (&str, &Parameters),
    ) -> Option<Made> {
        let (.., make) = self.pairs.iter().find(|(t, c, _)| (*t, *c) == (transport, chooser))?;
        Some(make(first, second))
    }
}

impl fmt::Debug for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Modules")
            .field("transports", &self.transports().collect::<Vec<_>>())
            .field("path_choosers", &self.path_choosers().collect::<Vec<_>>())
            .field("stages", &self.stages().collect::<Vec<_>>())
            .finish()
    }
}
