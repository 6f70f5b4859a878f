//! What switches do by modules: admission, marks, the order of queues, and the choice of port.
//!
//! A policy is a type parameter of the engine beside the endpoint, and knows nothing of it. Two kinds of modules make one:
//! [`SwitchStage`](super::SwitchStage) and [`SwitchBalancer`](super::SwitchBalancer), put around a transport by
//! [`Staging`](super::Staging) and [`Balancing`](super::Balancing). One that does both may implement [`SwitchPolicy`] itself.

use std::fmt::Debug;

use super::{
    Absent, BalancerPacket, BalancerPort, BalancerSwitch, Feature, StagePacket, StagePort, StageQueue,
    StageVerdict,
};

/// See the module page. It has a state of its own for all switches, and in a run of several processes each has a copy, which
/// its own switches alone ask: what it decides at a switch or port must depend on what it was asked there, not on others.
pub trait SwitchPolicy: Clone + Debug + Send + Sync + 'static {
    /// Whether it is asked about packets at queues: [`Self::enqueue`], [`Self::dequeue`], [`Self::next`].
    type Queues: Feature;

    /// Whether it is asked which port a packet takes: [`Self::choose`].
    type Ports: Feature;

    /// See [`SwitchStage::enqueue`](super::SwitchStage::enqueue).
    #[inline]
    fn enqueue(&mut self, port: &StagePort, packet: &StagePacket) -> StageVerdict {
        let _ = (port, packet);
        StageVerdict::Keep
    }

    /// See [`SwitchStage::dequeue`](super::SwitchStage::dequeue).
    #[inline]
    fn dequeue(&mut self, port: &StagePort, packet: &StagePacket) -> StageVerdict {
        let _ = (port, packet);
        StageVerdict::Keep
    }

    /// See [`SwitchStage::next`](super::SwitchStage::next).
    #[inline]
    fn next(&mut self, port: &StagePort, queues: &[StageQueue]) -> Option<usize> {
        let _ = (port, queues);
        None
    }

    /// See [`SwitchBalancer::choose`](super::SwitchBalancer::choose).
    #[inline]
    fn choose(&mut self, switch: &BalancerSwitch, packet: &BalancerPacket, ports: &[BalancerPort]) -> usize {
        let _ = (switch, packet, ports);
        0
    }
}

/// The settings alone say what switches do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unasked;

impl SwitchPolicy for Unasked {
    type Queues = Absent;
    type Ports = Absent;
}
