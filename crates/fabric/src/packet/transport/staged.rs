//! A stage of the switches by a module of its own: what becomes of packets as they join queues and as they leave them, and
//! which of the data queues of a port goes next.
//!
//! A stage is a part of the [`SwitchPolicy`] that an engine is compiled for: [`Staging`] puts it there. Where there is none, nothing is
//! asked.

use super::around::States;
use super::{
    Around, BalancerPacket, BalancerPort, BalancerSwitch, Present, StagePacket, StagePort, StageQueue,
    StageVerdict, State, SwitchPolicy, Transport, With,
};

/// A stage of every switch. At a port, in order of time: [`Self::enqueue`] for each data packet that is to join a queue, before
/// drop profiles, admission and marking; [`Self::next`] each time that several queues may start; [`Self::dequeue`] as a
/// packet's transmission is to begin.
pub trait SwitchStage: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// State of a port.
    type State: State;

    /// Its name in a scenario.
    const NAME: &'static str;

    /// A data packet is to join a queue.
    #[inline]
    fn enqueue(&self, state: &mut Self::State, port: &StagePort, packet: &StagePacket) -> StageVerdict {
        let _ = (state, port, packet);
        StageVerdict::Keep
    }

    /// A data packet's transmission is to begin.
    #[inline]
    fn dequeue(&self, state: &mut Self::State, port: &StagePort, packet: &StagePacket) -> StageVerdict {
        let _ = (state, port, packet);
        StageVerdict::Keep
    }

    /// Which of the data queues that may start goes next, by its place in `queues`, of which there is at least one; `None` leaves
    /// it to priorities and the discipline of the settings. Pauses and shapers have been heeded, control goes before.
    #[inline]
    fn next(&self, state: &mut Self::State, port: &StagePort, queues: &[StageQueue]) -> Option<usize> {
        let _ = (state, port, queues);
        None
    }
}

/// A stage, to be put around a transport.
#[derive(Clone, Debug)]
pub struct Staging<S>(pub S);

impl<S: SwitchStage> Around for Staging<S> {
    type Whole<T: Transport> = With<T::Endpoint, Staged<T::Policy, S>, T::Dispatcher>;

    fn around<T: Transport>(&self, transport: T) -> Self::Whole<T> {
        let (endpoint, policy, dispatcher) = transport.parts();
        let (stage, states) = (self.0.clone(), States::new());
        With { endpoint, policy: Staged { policy, stage, states }, dispatcher }
    }
}

/// A policy of switches with a stage at their queues, in the place of what it may have had there.
#[derive(Clone, Debug)]
pub struct Staged<P, S: SwitchStage> {
    policy: P,
    stage: S,
    /// By port.
    states: States<S::State>,
}

impl<P: SwitchPolicy, S: SwitchStage> SwitchPolicy for Staged<P, S> {
    type Queues = Present;
    type Ports = P::Ports;

    #[inline]
    fn enqueue(&mut self, port: &StagePort, packet: &StagePacket) -> StageVerdict {
        self.stage.enqueue(self.states.at(port.port), port, packet)
    }

    #[inline]
    fn dequeue(&mut self, port: &StagePort, packet: &StagePacket) -> StageVerdict {
        self.stage.dequeue(self.states.at(port.port), port, packet)
    }

    #[inline]
    fn next(&mut self, port: &StagePort, queues: &[StageQueue]) -> Option<usize> {
        self.stage.next(self.states.at(port.port), port, queues)
    }

    #[inline]
    fn choose(&mut self, switch: &BalancerSwitch, packet: &BalancerPacket, ports: &[BalancerPort]) -> usize {
        self.policy.choose(switch, packet, ports)
    }
}
