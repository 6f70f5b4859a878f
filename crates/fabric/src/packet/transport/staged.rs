//! A stage of the switches by a module of its own: what becomes of packets as they join queues and as they leave them, and
//! which of the data queues of a port goes next.
//!
//! A stage is a part of the [`SwitchPolicy`] that an engine is compiled for: [`Staging`] puts it there. Where there is none, nothing is
//! asked.

use windtunnel_kernel::{BitRate, Span, Time};

use super::around::States;
use super::{
    Around, BalancerPacket, BalancerPort, BalancerSwitch, Own, Present, State, SwitchPolicy, Transport, With,
};

/// The egress port at which a stage is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagePort {
    /// Its number among all ports of the network.
    pub port: u32,
    /// Its switch.
    pub switch: u32,
    /// Its rate.
    pub rate: BitRate,
    /// As a packet joins: now. As one leaves: when its transmission begins.
    pub now: Time,
    /// Bytes that wait there, and those of the packet in service, the packet in hand not counted.
    pub held: u32,
}

/// The packet that it is asked about: data, or a probe of an endpoint's own in any lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagePacket {
    /// Bytes on the wire.
    pub wire: u16,
    /// The data queue that it is in, or is to join; 0 where ports have one.
    pub queue: u8,
    /// Whether it carries a mark.
    pub marked: bool,
    /// How long it has waited in this queue.
    pub waited: Span,
    /// Time since its transmission at the sender began.
    pub age: Span,
    /// What it says, if it is a probe of an endpoint's own; else it is data.
    pub own: Option<Own>,
}

/// A data queue that may start its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageQueue {
    /// Which.
    pub queue: u8,
    /// Bytes that wait in it.
    pub held: u32,
    /// Bytes of its first packet.
    pub wire: u16,
    /// How long that has waited.
    pub waited: Span,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StageVerdict {
    /// It goes on.
    #[default]
    Keep,
    /// It goes on with a mark.
    Mark,
    /// It is dropped.
    Drop,
    /// It is cut to its header, which goes on as a control packet; as it leaves a queue it is dropped instead. Only transports
    /// that are made for it mend what is cut.
    Trim,
    /// It joins another data queue, where ports have several; as it leaves a queue it is kept.
    Queue(u8),
    /// A probe says this from now on, and goes on; data are kept.
    Write(u32),
}

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
