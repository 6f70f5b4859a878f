//! What goes with a transport: the kinds of modules, and how several of them are put around one.

use std::marker::PhantomData;

use windtunnel_fabric::packet::transport::{
    Around, Balancing, Choosing, PathChooser, Staging, SwitchBalancer, SwitchStage,
};

use super::Parameters;

/// Kinds of modules that go with a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A chooser of path numbers.
    PathChooser,
    /// A stage of switches.
    Stage,
    /// A load balancer in switches.
    SwitchBalancer,
}

impl Kind {
    /// All of them, in the order in which errors name them.
    pub const ALL: [Self; 3] = [Self::PathChooser, Self::Stage, Self::SwitchBalancer];

    /// The key of a scenario's `network` that names one.
    pub const fn key(self) -> &'static str {
        match self {
            Self::PathChooser => "path_chooser",
            Self::Stage => "stage",
            Self::SwitchBalancer => "switch_balancer",
        }
    }
}

/// Names of the modules that go with a transport, by their kinds.
pub type Names<'a> = [Option<&'a str>; Kind::ALL.len()];

/// What a scenario says to each of them.
pub type Written<'a> = [&'a Parameters; Kind::ALL.len()];

/// What a module did not take, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its kind; `None`: the transport.
    pub kind: Option<Kind>,
    /// What is wrong.
    pub message: String,
}

/// One module that goes with a transport, or a pair of [`Part`]s: see [`chooser`], [`stage`] and [`balancer`].
pub trait Part: Send + Sync + 'static {
    /// What is put around the transport.
    type Around: Around;

    /// The names of its modules.
    fn names() -> [Option<&'static str>; Kind::ALL.len()];

    /// Makes them from what the scenario says.
    ///
    /// # Errors
    /// [`Refused`] with what the module says.
    fn build(&self, written: &Written<'_>) -> Result<Self::Around, Refused>;
}

/// One module by the function that makes it, `F`, and the type that this makes, `M`.
#[derive(Clone, Copy, Debug)]
pub struct One<K, M, F> {
    build: F,
    made: PhantomData<fn() -> (K, M)>,
}

/// Marks a [`One`] that is a chooser of paths.
#[derive(Clone, Copy, Debug)]
pub struct Chooses;

/// Marks a [`One`] that is a stage of switches.
#[derive(Clone, Copy, Debug)]
pub struct Stages;

/// Marks a [`One`] that is a load balancer in switches.
#[derive(Clone, Copy, Debug)]
pub struct Balances;

/// A chooser of paths for [`Modules::with`](super::Modules::with) and [`together`](super::Modules::together).
pub const fn chooser<C, F>(build: F) -> One<Chooses, C, F>
where
    C: PathChooser,
    F: Fn(&Parameters) -> Result<C, String>,
{
    One { build, made: PhantomData }
}

/// A stage of switches for the same.
pub const fn stage<S, F>(build: F) -> One<Stages, S, F>
where
    S: SwitchStage,
    F: Fn(&Parameters) -> Result<S, String>,
{
    One { build, made: PhantomData }
}

/// A load balancer in switches for the same.
pub const fn balancer<B, F>(build: F) -> One<Balances, B, F>
where
    B: SwitchBalancer,
    F: Fn(&Parameters) -> Result<B, String>,
{
    One { build, made: PhantomData }
}

impl<K, M, F: Fn(&Parameters) -> Result<M, String>> One<K, M, F> {
    fn make(&self, kind: Kind, written: &Written<'_>) -> Result<M, Refused> {
        (self.build)(written[kind as usize]).map_err(|message| Refused { kind: Some(kind), message })
    }
}

/// The names where only a module of `kind` has one.
const fn only(kind: Kind, name: &'static str) -> [Option<&'static str>; Kind::ALL.len()] {
    let mut names = [None; Kind::ALL.len()];
    names[kind as usize] = Some(name);
    names
}

impl<C, F> Part for One<Chooses, C, F>
where
    C: PathChooser + Sync,
    F: Fn(&Parameters) -> Result<C, String> + Send + Sync + 'static,
{
    type Around = Choosing<C>;

    fn names() -> [Option<&'static str>; Kind::ALL.len()] {
        only(Kind::PathChooser, C::NAME)
    }

    fn build(&self, written: &Written<'_>) -> Result<Choosing<C>, Refused> {
        self.make(Kind::PathChooser, written).map(Choosing)
    }
}

impl<S, F> Part for One<Stages, S, F>
where
    S: SwitchStage + Sync,
    S::State: Sync,
    F: Fn(&Parameters) -> Result<S, String> + Send + Sync + 'static,
{
    type Around = Staging<S>;

    fn names() -> [Option<&'static str>; Kind::ALL.len()] {
        only(Kind::Stage, S::NAME)
    }

    fn build(&self, written: &Written<'_>) -> Result<Staging<S>, Refused> {
        self.make(Kind::Stage, written).map(Staging)
    }
}

impl<B, F> Part for One<Balances, B, F>
where
    B: SwitchBalancer + Sync,
    B::State: Sync,
    F: Fn(&Parameters) -> Result<B, String> + Send + Sync + 'static,
{
    type Around = Balancing<B>;

    fn names() -> [Option<&'static str>; Kind::ALL.len()] {
        only(Kind::SwitchBalancer, B::NAME)
    }

    fn build(&self, written: &Written<'_>) -> Result<Balancing<B>, Refused> {
        self.make(Kind::SwitchBalancer, written).map(Balancing)
    }
}

impl<A: Part, B: Part> Part for (A, B) {
    type Around = (A::Around, B::Around);

    fn names() -> [Option<&'static str>; Kind::ALL.len()] {
        let (first, second) = (A::names(), B::names());
        std::array::from_fn(|kind| first[kind].or(second[kind]))
    }

    fn build(&self, written: &Written<'_>) -> Result<Self::Around, Refused> {
        Ok((self.0.build(written)?, self.1.build(written)?))
    }
}
