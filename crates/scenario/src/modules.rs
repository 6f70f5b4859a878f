//! Modules that a program brings along: transports of other crates, by the name that a scenario gives them.
//!
//! A program makes a [`Modules`], registers what it has, and hands it over with each
//! [`RunRequest`](crate::api::RunRequest); `examples/own-transport` is a whole one. A transport is compiled into a packet
//! network of its own: what is called through a table is the network, once for thousands of events.
//!
//! A registered name goes before a built-in one, so a variant of a transport can be compared with it under its own name
//! or stand in for it. Names are told apart exactly as they are written.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use windtunnel_fabric::packet::NetworkOf;
use windtunnel_fabric::packet::transport::Transport;

/// `network.parameters` of a scenario.
pub type Parameters = Map<String, Value>;

type Build = dyn Fn(&Parameters) -> Result<Arc<dyn NetworkOf>, String> + Send + Sync;

/// What a program adds to the names that scenarios may use. Clones share it.
#[derive(Clone, Default)]
pub struct Modules {
    transports: Vec<(String, String, Arc<Build>)>,
}

impl Modules {
    /// Registers a transport under [`Transport::NAME`], with a line for `windtunnel list transports`. `build` makes it
    /// from the scenario's `network.parameters`; its error is shown to the user with their place, in lower case and
    /// without a full stop. A second one of a name replaces the first.
    #[must_use]
    pub fn transport<T: Transport + Send + Sync + 'static>(
        mut self,
        summary: &str,
        build: impl Fn(&Parameters) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        self.transports.retain(|(name, ..)| name != T::NAME);
        let build = move |parameters: &Parameters| {
            build(parameters).map(|transport| Arc::new(transport) as Arc<dyn NetworkOf>)
        };
        self.transports.push((T::NAME.to_owned(), summary.to_owned(), Arc::new(build)));
        self
    }

    /// Names of the registered transports and their lines, in the order of registration.
    pub fn transports(&self) -> impl Iterator<Item = (&str, &str)> {
        self.transports.iter().map(|(name, summary, _)| (name.as_str(), summary.as_str()))
    }

    /// The registered transport of a name with its parameters; `None` if there is none.
    pub(crate) fn build_transport(
        &self,
        name: &str,
        parameters: &Parameters,
    ) -> Option<Result<Arc<dyn NetworkOf>, String>> {
        let (.., build) = self.transports.iter().find(|(known, ..)| known == name)?;
        Some(build(parameters))
    }
}

impl fmt::Debug for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Modules").field("transports", &self.transports().collect::<Vec<_>>()).finish()
    }
}
