//! What the network models are told, each of them whatever the fidelity.

use std::path::PathBuf;
use std::sync::Arc;

use windtunnel_fabric::coding::Coding;
use windtunnel_fabric::host::{LogGops, Receiver};
use windtunnel_fabric::packet::transport::Recovery;
use windtunnel_fabric::packet::{Balancer, NetworkOf, PacketSettings};
use windtunnel_fabric::reduction::ReductionSettings;
use windtunnel_kernel::Bytes;
use windtunnel_topology::LoadBalancer;
use windtunnel_workload::replay::Connections;

use crate::settings::ExchangeName;

/// What `network:` comes to. Every part is checked at every fidelity.
#[derive(Clone, Debug)]
pub struct NetworkPlan {
    /// A full packet, header included.
    pub mtu: Bytes,
    /// Its header.
    pub header: Bytes,
    /// Parity that messages beyond the scale-up domain carry along.
    pub coding: Option<Coding>,
    /// Choice among equal paths, of messages and flows.
    pub balancer: LoadBalancer,
    /// What switches can sum.
    pub reduction: ReductionSettings,
    /// What the message model is told.
    pub message: MessagePlan,
    /// What the packet model is told.
    pub packet: PacketPlan,
    /// How all-to-alls between scale-up domains are simulated.
    pub exchange: ExchangeName,
    /// What messages outside communicators go by.
    pub connections: Connections,
    /// The network model that stands in for the packet model.
    pub backend: Option<BackendPlan>,
}

/// What the packet model is told. A run adds its own threads, and shifts what goes wrong to the start of an episode.
#[derive(Clone, Debug)]
pub struct PacketPlan {
    /// The transport with its parameters and modules.
    pub transport: Chosen,
    /// Everything else.
    pub settings: PacketSettings,
}

impl NetworkPlan {
    /// Packets spread over many paths, or messages over many queue pairs.
    pub fn spreads(&self) -> bool {
        let settings = &self.packet.settings;
        matches!(settings.balancer, Balancer::Spray { .. }) || settings.queue_pairs > 1
    }
}

/// What the message model is told.
#[derive(Clone, Copy, Debug)]
pub struct MessagePlan {
    /// Parameters of all pairs; `None`: those of each class of path, from the topology and the data sheets.
    pub loggops: Option<LogGops>,
    /// How a receiver pays for a message.
    pub receiver: Receiver,
}

/// A shared library with a network model. Nothing of it is loaded until a run needs it.
#[derive(Clone, Debug)]
pub struct BackendPlan {
    /// Its file as the scenario names it.
    pub written: String,
    /// The file.
    pub library: PathBuf,
    /// What it is handed, as JSON.
    pub parameters: String,
}

/// A transport, ready to build its network.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The transport whose law it has.
    pub name: String,
    /// How it mends losses; `None`: as the program's own says.
    pub recovery: Option<Recovery>,
    /// Builds the network.
    pub of: Arc<dyn NetworkOf>,
    /// Whether the program brings it along.
    pub own: bool,
}
