//! An endpoint, a policy of switches and a dispatcher together: what an engine is compiled for.

use std::fmt::Debug;

use super::{Dispatcher, Endpoint, SwitchPolicy, Unasked, Undispatched};

/// What an engine is compiled for: every [`Endpoint`] by itself, and [`With`] a [`SwitchPolicy`].
pub trait Transport: Clone + Debug + Send + Sync + 'static {
    /// What NICs do.
    type Endpoint: Endpoint;

    /// What switches do.
    type Policy: SwitchPolicy;

    /// What NIC ports do as a whole, where that is not left to the endpoint.
    type Dispatcher: Dispatcher;

    /// Its name in a scenario: the dispatcher's where there is one, else the endpoint's.
    const NAME: &'static str = if <Self::Dispatcher as Dispatcher>::NAME.is_empty() {
        <Self::Endpoint as Endpoint>::NAME
    } else {
        <Self::Dispatcher as Dispatcher>::NAME
    };

    /// All of them.
    fn parts(self) -> (Self::Endpoint, Self::Policy, Self::Dispatcher);

    /// The endpoint, to be asked.
    fn endpoint(&self) -> &Self::Endpoint;
}

/// Switches do what the settings say.
impl<E: Endpoint> Transport for E {
    type Endpoint = E;
    type Policy = Unasked;
    type Dispatcher = Undispatched;

    fn parts(self) -> (E, Unasked, Undispatched) {
        (self, Unasked, Undispatched)
    }

    fn endpoint(&self) -> &E {
        self
    }
}

/// An endpoint, and what switches are asked beside the settings.
#[derive(Clone, Copy, Debug)]
pub struct With<E, P, D = Undispatched> {
    /// What NICs do.
    pub endpoint: E,
    /// What switches do.
    pub policy: P,
    /// What NIC ports do as a whole.
    pub dispatcher: D,
}

impl<E: Endpoint, P: SwitchPolicy, D: Dispatcher> Transport for With<E, P, D> {
    type Endpoint = E;
    type Policy = P;
    type Dispatcher = D;

    fn parts(self) -> (E, P, D) {
        (self.endpoint, self.policy, self.dispatcher)
    }

    fn endpoint(&self) -> &E {
        &self.endpoint
    }
}
