//! The packet network with its transport chosen at run time: one call through a table of functions covers thousands of
//! events, and inside everything is resolved.
//!
//! A transport of another crate joins as a [`NetworkOf`], which every [`Transport`](transport::Transport) is.

use std::sync::Arc;

use windtunnel_topology::Topology;

use super::error::PacketError;
use super::packet_network::{PacketNetwork, PacketNetworkError};
use super::settings::PacketSettings;
use super::transport;
use crate::model::Network;
use crate::reroute::SharedRerouter;

/// A transport of any crate, as what builds the network that it is compiled into.
pub trait NetworkOf: std::fmt::Debug + Send + Sync {
    /// The idle network of this transport, around what has failed.
    ///
    /// # Errors
    /// [`PacketNetworkError`] for settings that cannot work on this topology.
    fn network(
        &self,
        topology: Arc<Topology>,
        settings: PacketSettings,
        rerouter: Option<SharedRerouter>,
    ) -> Result<Box<dyn Network>, PacketNetworkError>;

    /// # Errors
    /// [`PacketError`] where `settings` lack what this transport needs of switches.
    fn check(&self, settings: &PacketSettings) -> Result<(), PacketError>;
}

impl<T: transport::Transport> NetworkOf for T {
    fn network(
        &self,
        topology: Arc<Topology>,
        settings: PacketSettings,
        rerouter: Option<SharedRerouter>,
    ) -> Result<Box<dyn Network>, PacketNetworkError> {
        boxed(topology, settings, self.clone(), rerouter)
    }

    fn check(&self, settings: &PacketSettings) -> Result<(), PacketError> {
        settings.check_for(self.endpoint())
    }
}

fn boxed<T: transport::Transport>(
    topology: Arc<Topology>,
    settings: PacketSettings,
    transport: T,
    rerouter: Option<SharedRerouter>,
) -> Result<Box<dyn Network>, PacketNetworkError> {
    let network = PacketNetwork::new(topology, settings, transport)?;
    Ok(Box::new(match rerouter {
        Some(rerouter) => network.rerouted(rerouter),
        None => network,
    }))
}
