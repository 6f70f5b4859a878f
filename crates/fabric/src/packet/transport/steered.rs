//! A transport whose path numbers are chosen by something else: load balancing at the sender, by a module of its own.
//!
//! Both are type parameters, so the pair is compiled as one transport would be. What the transport would have chosen is
//! not asked.

use windtunnel_kernel::{Span, Time};

use super::around::{Around, passes_on};
use super::{
    Ack, Answer, Arrived, BalancerPacket, BalancerPort, BalancerSwitch, Credit, Hop, Loss, Nack, PathChoice,
    PathFacts, Recovery, StagePacket, StagePort, StageQueue, StageVerdict, Transport,
};

/// Chooses the path number of every packet where packets are sprayed ([`Balancer::Spray`](crate::packet::Balancer::Spray)).
///
/// For a queue pair, in order of time: [`Self::open`] once, [`Self::choose`] for each packet, [`Self::on_ack`] for each
/// acknowledgement, [`Self::on_nack`] for each trimmed packet and [`Self::on_loss`] for each loss, after the transport has
/// been told.
pub trait PathChooser: Clone + std::fmt::Debug + Send + 'static {
    /// What differs from one queue pair to another.
    type State: Copy + std::fmt::Debug + Send;

    /// Its name in a scenario.
    const NAME: &'static str;

    /// A new queue pair.
    fn open(&self, path: &PathFacts) -> Self::State;

    /// The path number of a packet, below [`PathChoice::paths`]; a greater one is taken modulo that.
    fn choose(&self, state: &mut Self::State, choice: &PathChoice) -> u16;

    /// An acknowledgement has come: [`Ack::path`] and [`Ack::echo`] tell how one of its packets fared.
    #[inline]
    fn on_ack(&self, state: &mut Self::State, ack: &Ack) {
        let _ = (state, ack);
    }

    /// A packet was trimmed.
    #[inline]
    fn on_nack(&self, state: &mut Self::State, nack: &Nack) {
        let _ = (state, nack);
    }

    /// Something was lost.
    #[inline]
    fn on_loss(&self, state: &mut Self::State, loss: &Loss) {
        let _ = (state, loss);
    }
}

/// A chooser, to be put around a transport.
#[derive(Clone, Copy, Debug)]
pub struct Choosing<C>(pub C);

impl<C: PathChooser + Sync> Around for Choosing<C> {
    type Whole<T: Transport + Sync> = Steered<T, C>;

    fn around<T: Transport + Sync>(&self, transport: T) -> Steered<T, C> {
        Steered { transport, chooser: self.0.clone() }
    }
}

/// A transport and what chooses its paths.
#[derive(Clone, Debug)]
pub struct Steered<T, C> {
    /// Windows, pacing, recovery.
    pub transport: T,
    /// Path numbers.
    pub chooser: C,
}

impl<T: Transport, C: PathChooser> Transport for Steered<T, C> {
    type Flow = (T::Flow, C::State);
    type Peer = T::Peer;

    const NAME: &'static str = T::NAME;
    const CREDITED: bool = T::CREDITED;
    const TRIMMED: bool = T::TRIMMED;
    const TELEMETRY: bool = T::TELEMETRY;
    const STAGED: bool = T::STAGED;
    const BALANCED: bool = T::BALANCED;

    passes_on!(stage);
    passes_on!(balance);

    fn recovery(&self) -> Recovery {
        self.transport.recovery()
    }

    fn is_answered(&self) -> bool {
        self.transport.is_answered()
    }

    fn open(&self, path: &PathFacts) -> Self::Flow {
        (self.transport.open(path), self.chooser.open(path))
    }

    #[inline]
    fn window(&self, flow: &Self::Flow) -> u64 {
        self.transport.window(&flow.0)
    }

    #[inline]
    fn gap(&self, flow: &Self::Flow, wire: u16) -> Span {
        self.transport.gap(&flow.0, wire)
    }

    #[inline]
    fn on_send(&self, flow: &mut Self::Flow, now: Time, wire: u16) {
        self.transport.on_send(&mut flow.0, now, wire);
    }

    #[inline]
    fn path(&self, flow: &mut Self::Flow, choice: &PathChoice) -> Option<u16> {
        let path = self.chooser.choose(&mut flow.1, choice);
        // A power of two.
        Some((u32::from(path) & (choice.paths - 1)) as u16)
    }

    #[inline]
    fn on_ack(&self, flow: &mut Self::Flow, ack: &Ack) {
        self.transport.on_ack(&mut flow.0, ack);
        self.chooser.on_ack(&mut flow.1, ack);
    }

    #[inline]
    fn on_hops(&self, flow: &mut Self::Flow, ack: &Ack, before: &[Hop], hops: &[Hop]) {
        self.transport.on_hops(&mut flow.0, ack, before, hops);
    }

    #[inline]
    fn on_nack(&self, flow: &mut Self::Flow, nack: &Nack) {
        self.transport.on_nack(&mut flow.0, nack);
        self.chooser.on_nack(&mut flow.1, nack);
    }

    fn credit(&self, mtu: u32) -> Credit {
        self.transport.credit(mtu)
    }

    #[inline]
    fn unasked(&self, flow: &Self::Flow) -> u64 {
        self.transport.unasked(&flow.0)
    }

    #[inline]
    fn on_loss(&self, flow: &mut Self::Flow, loss: &Loss) {
        self.transport.on_loss(&mut flow.0, loss);
        self.chooser.on_loss(&mut flow.1, loss);
    }

    #[inline]
    fn on_notify(&self, flow: &mut Self::Flow, now: Time) {
        self.transport.on_notify(&mut flow.0, now);
    }

    #[inline]
    fn timeout(&self, flow: &Self::Flow) -> Span {
        self.transport.timeout(&flow.0)
    }

    #[inline]
    fn timer(&self, flow: &Self::Flow) -> Option<Time> {
        self.transport.timer(&flow.0)
    }

    #[inline]
    fn on_timer(&self, flow: &mut Self::Flow, now: Time) {
        self.transport.on_timer(&mut flow.0, now);
    }

    #[inline]
    fn on_data(&self, peer: &mut Self::Peer, data: &Arrived) -> Answer {
        self.transport.on_data(peer, data)
    }
}
