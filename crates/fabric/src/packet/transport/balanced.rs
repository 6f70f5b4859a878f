//! A load balancer of the switches by a module of its own: which of the equal-cost ports a packet takes.
//!
//! It stands where the built-in `adaptive` does ([`Balancer::Adaptive`](crate::packet::Balancer::Adaptive)) and is compiled
//! together with a transport, as a [stage](super::Staged) is. The set that it chooses from honours the topology's rules,
//! waypoints and what has failed.

use windtunnel_kernel::{BitRate, Span, Time};

use super::around::{Around, States, passes_on};
use super::{
    Ack, Answer, Arrived, Credit, Hop, Loss, Nack, PathChoice, PathFacts, Recovery, StagePacket, StagePort,
    StageQueue, StageVerdict, Transport,
};

/// The switch at which a balancer is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalancerSwitch {
    /// Its number.
    pub switch: u32,
    /// Now.
    pub now: Time,
}

/// The packet that it is asked about, data or control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalancerPacket {
    /// Of its queue pair and direction: the same for all its packets.
    pub flow: u64,
    /// Place among the data packets of its queue pair; what else it means with control packets.
    pub sequence: u32,
    /// Bytes on the wire.
    pub wire: u16,
    /// Whether it waits in the control class.
    pub control: bool,
    /// Whether it carries a mark.
    pub marked: bool,
    /// 64 random bits, of this packet at this switch.
    pub draw: u64,
}

/// A port that it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalancerPort {
    /// Its number among all ports of the network.
    pub port: u32,
    /// Its rate.
    pub rate: BitRate,
    /// Bytes that wait there, and those of the packet in service.
    pub held: u32,
}

/// Chooses at every switch, for every packet that has a choice there.
pub trait SwitchBalancer: Clone + std::fmt::Debug + Send + 'static {
    /// State of a switch.
    type State: Clone + std::fmt::Debug + Default + Send;

    /// Its name in a scenario.
    const NAME: &'static str;

    /// The place in `ports`, of which there are at least two, of the one that the packet takes; a greater one is taken modulo
    /// their number. They come in the order of their numbers.
    fn choose(
        &self,
        state: &mut Self::State,
        switch: &BalancerSwitch,
        packet: &BalancerPacket,
        ports: &[BalancerPort],
    ) -> usize;
}

/// A balancer, to be put around a transport.
#[derive(Clone, Debug)]
pub struct Balancing<B>(pub B);

impl<B> Around for Balancing<B>
where
    B: SwitchBalancer + Sync,
    B::State: Sync,
{
    type Whole<T: Transport + Sync> = Balanced<T, B>;

    fn around<T: Transport + Sync>(&self, transport: T) -> Balanced<T, B> {
        Balanced::new(transport, self.0.clone())
    }
}

/// A transport and a load balancer in the switches that carry it.
#[derive(Clone, Debug)]
pub struct Balanced<T, B: SwitchBalancer> {
    transport: T,
    balancer: B,
    /// By switch.
    states: States<B::State>,
}

impl<T: Transport, B: SwitchBalancer> Balanced<T, B> {
    /// Both, with every switch's state at its default.
    pub const fn new(transport: T, balancer: B) -> Self {
        Self { transport, balancer, states: States::new() }
    }
}

impl<T: Transport, B: SwitchBalancer> Transport for Balanced<T, B> {
    type Flow = T::Flow;
    type Peer = T::Peer;

    const NAME: &'static str = T::NAME;
    const CREDITED: bool = T::CREDITED;
    const TRIMMED: bool = T::TRIMMED;
    const TELEMETRY: bool = T::TELEMETRY;
    const STAGED: bool = T::STAGED;
    const BALANCED: bool = true;

    #[inline]
    fn balance(&mut self, switch: &BalancerSwitch, packet: &BalancerPacket, ports: &[BalancerPort]) -> usize {
        self.balancer.choose(self.states.at(switch.switch), switch, packet, ports)
    }

    passes_on!(flow);
    passes_on!(stage);
}
