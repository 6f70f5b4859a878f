//! An endpoint and a policy of switches together: what an engine is compiled for.

use std::fmt::Debug;

use super::{Endpoint, SwitchPolicy, Unasked};

/// What an engine is compiled for: every [`Endpoint`] by itself, and [`With`] a [`SwitchPolicy`].
pub trait Transport: Clone + Debug + Send + Sync + 'static {
    /// What NICs do.
    type Endpoint: Endpoint;

    /// What switches do.
    type Policy: SwitchPolicy;

    /// The endpoint's name in a scenario.
    const NAME: &'static str = <Self::Endpoint as Endpoint>::NAME;

    /// Both.
    fn parts(self) -> (Self::Endpoint, Self::Policy);

    /// The endpoint, to be asked.
    fn endpoint(&self) -> &Self::Endpoint;
}

/// Switches do what the settings say.
impl<E: Endpoint> Transport for E {
    type Endpoint = E;
    type Policy = Unasked;

    fn parts(self) -> (E, Unasked) {
        (self, Unasked)
    }

    fn endpoint(&self) -> &E {
        self
    }
}

/// An endpoint, and what switches are asked beside the settings.
#[derive(Clone, Copy, Debug)]
pub struct With<E, P> {
    /// What NICs do.
    pub endpoint: E,
    /// What switches do.
    pub policy: P,
}

impl<E: Endpoint, P: SwitchPolicy> Transport for With<E, P> {
    type Endpoint = E;
    type Policy = P;

    fn parts(self) -> (E, P) {
        (self.endpoint, self.policy)
    }

    fn endpoint(&self) -> &E {
        &self.endpoint
    }
}
