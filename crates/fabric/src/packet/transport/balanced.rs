//! A load balancer of the switches by a module of its own: which of the equal-cost ports a packet takes.
//!
//! It stands where the built-in `adaptive` does ([`Balancer::Adaptive`](crate::packet::Balancer::Adaptive)) and is a
//! part of the [`SwitchPolicy`] that an engine is compiled for, as a [stage](super::Staged) is. The set that it chooses from honours the topology's rules,
//! waypoints and what has failed.

use super::around::States;
use super::{
    Around, BalancerPacket, BalancerPort, BalancerSwitch, Present, StagePacket, StagePort, StageQueue,
    StageVerdict, State, SwitchPolicy, Transport, With,
};

/// Chooses at every switch, for every packet that has a choice there.
pub trait SwitchBalancer: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// State of a switch.
    type State: State;

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

impl<B: SwitchBalancer> Around for Balancing<B> {
    type Whole<T: Transport> = With<T::Endpoint, Balanced<T::Policy, B>, T::Dispatcher>;

    fn around<T: Transport>(&self, transport: T) -> Self::Whole<T> {
        let (endpoint, policy, dispatcher) = transport.parts();
        let (balancer, states) = (self.0.clone(), States::new());
        With { endpoint, policy: Balanced { policy, balancer, states }, dispatcher }
    }
}

/// A policy of switches with a load balancer, in the place of what it may have had.
#[derive(Clone, Debug)]
pub struct Balanced<P, B: SwitchBalancer> {
    policy: P,
    balancer: B,
    /// By switch.
    states: States<B::State>,
}

impl<P: SwitchPolicy, B: SwitchBalancer> SwitchPolicy for Balanced<P, B> {
    type Queues = P::Queues;
    type Ports = Present;

    #[inline]
    fn enqueue(&mut self, port: &StagePort, packet: &StagePacket) -> StageVerdict {
        self.policy.enqueue(port, packet)
    }

    #[inline]
    fn dequeue(&mut self, port: &StagePort, packet: &StagePacket) -> StageVerdict {
        self.policy.dequeue(port, packet)
    }

    #[inline]
    fn next(&mut self, port: &StagePort, queues: &[StageQueue]) -> Option<usize> {
        self.policy.next(port, queues)
    }

    #[inline]
    fn choose(&mut self, switch: &BalancerSwitch, packet: &BalancerPacket, ports: &[BalancerPort]) -> usize {
        self.balancer.choose(self.states.at(switch.switch), switch, packet, ports)
    }
}
