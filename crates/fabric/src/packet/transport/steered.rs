//! An endpoint whose path numbers are chosen by something else: load balancing at the sender, by a module of its own.
//!
//! Both are type parameters, so the pair is compiled as one transport would be. What the endpoint would have chosen is
//! not asked.

use windtunnel_kernel::{Span, Time};

use super::{
    Ack, Answer, Around, Arrived, Credit, Endpoint, Hop, Loss, MemoryOf, Nack, Need, News, PathChoice,
    PathFacts, Probe, Probed, Recovery, Replied, Reply, Transport, With,
};

/// Chooses the path number of every packet where packets are sprayed ([`Balancer::Spray`](crate::packet::Balancer::Spray)).
///
/// For a queue pair, in order of time: [`Self::open`] once, [`Self::choose`] for each packet, [`Self::on_ack`] for each
/// acknowledgement, [`Self::on_nack`] for each trimmed packet and [`Self::on_loss`] for each loss, after the transport has
/// been told.
pub trait PathChooser: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// What differs from one queue pair to another.
    type State: Clone + std::fmt::Debug + Send + Sync;

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

impl<C: PathChooser> Around for Choosing<C> {
    type Whole<T: Transport> = With<Steered<T::Endpoint, C>, T::Policy, T::Dispatcher>;

    fn around<T: Transport>(&self, transport: T) -> Self::Whole<T> {
        let (endpoint, policy, dispatcher) = transport.parts();
        With { endpoint: Steered { endpoint, chooser: self.0.clone() }, policy, dispatcher }
    }
}

/// An endpoint and what chooses its paths.
#[derive(Clone, Debug)]
pub struct Steered<E, C> {
    /// Windows, pacing, recovery.
    pub endpoint: E,
    /// Path numbers.
    pub chooser: C,
}

impl<E: Endpoint, C: PathChooser> Endpoint for Steered<E, C> {
    type Flow = (E::Flow, C::State);
    type Peer = E::Peer;
    type Uses = E::Uses;

    const NAME: &'static str = E::NAME;

    fn needs(&self) -> &'static [Need] {
        self.endpoint.needs()
    }

    fn recovery(&self) -> Recovery {
        self.endpoint.recovery()
    }

    fn is_answered(&self) -> bool {
        self.endpoint.is_answered()
    }

    fn open(&self, path: &PathFacts) -> Self::Flow {
        (self.endpoint.open(path), self.chooser.open(path))
    }

    #[inline]
    fn window(&self, flow: &Self::Flow) -> u64 {
        self.endpoint.window(&flow.0)
    }

    #[inline]
    fn tracked(&self, flow: &Self::Flow) -> u32 {
        self.endpoint.tracked(&flow.0)
    }

    fn retries(&self) -> u8 {
        self.endpoint.retries()
    }

    #[inline]
    fn gap(&self, flow: &Self::Flow, wire: u16) -> Span {
        self.endpoint.gap(&flow.0, wire)
    }

    #[inline]
    fn on_send(&self, flow: &mut Self::Flow, now: Time, wire: u16) {
        self.endpoint.on_send(&mut flow.0, now, wire);
    }

    #[inline]
    fn path(&self, flow: &mut Self::Flow, choice: &PathChoice) -> Option<u16> {
        let path = self.chooser.choose(&mut flow.1, choice);
        // A power of two.
        Some((u32::from(path) & (choice.paths - 1)) as u16)
    }

    #[inline]
    fn on_ack(&self, flow: &mut Self::Flow, ack: &Ack) {
        self.endpoint.on_ack(&mut flow.0, ack);
        self.chooser.on_ack(&mut flow.1, ack);
    }

    #[inline]
    fn on_hops(&self, flow: &mut Self::Flow, ack: &Ack, before: &[Hop], hops: &[Hop]) {
        self.endpoint.on_hops(&mut flow.0, ack, before, hops);
    }

    #[inline]
    fn on_nack(&self, flow: &mut Self::Flow, nack: &Nack) {
        self.endpoint.on_nack(&mut flow.0, nack);
        self.chooser.on_nack(&mut flow.1, nack);
    }

    fn credit(&self, mtu: u32) -> Credit {
        self.endpoint.credit(mtu)
    }

    #[inline]
    fn unasked(&self, flow: &Self::Flow) -> u64 {
        self.endpoint.unasked(&flow.0)
    }

    #[inline]
    fn on_loss(&self, flow: &mut Self::Flow, loss: &Loss) {
        self.endpoint.on_loss(&mut flow.0, loss);
        self.chooser.on_loss(&mut flow.1, loss);
    }

    #[inline]
    fn on_notify(&self, flow: &mut Self::Flow, now: Time) {
        self.endpoint.on_notify(&mut flow.0, now);
    }

    #[inline]
    fn timeout(&self, flow: &Self::Flow) -> Span {
        self.endpoint.timeout(&flow.0)
    }

    #[inline]
    fn timer(&self, flow: &Self::Flow) -> Option<Time> {
        self.endpoint.timer(&flow.0)
    }

    #[inline]
    fn on_timer(&self, flow: &mut Self::Flow, now: Time) {
        self.endpoint.on_timer(&mut flow.0, now);
    }

    #[inline]
    fn on_data(&self, peer: &mut Self::Peer, data: &Arrived) -> Answer {
        self.endpoint.on_data(peer, data)
    }

    #[inline]
    fn holds(&self, flow: &Self::Flow) -> bool {
        self.endpoint.holds(&flow.0)
    }

    #[inline]
    fn on_message(&self, flow: &mut Self::Flow, now: Time, bytes: u64) {
        self.endpoint.on_message(&mut flow.0, now, bytes);
    }

    #[inline]
    fn probe(&self, flow: &mut Self::Flow, now: Time) -> Option<Probe> {
        self.endpoint.probe(&mut flow.0, now)
    }

    #[inline]
    fn on_probe(&self, peer: &mut Self::Peer, probe: &Probed) -> Option<Reply> {
        self.endpoint.on_probe(peer, probe)
    }

    #[inline]
    fn reply(&self, peer: &mut Self::Peer, data: &Arrived) -> Option<Reply> {
        self.endpoint.reply(peer, data)
    }

    #[inline]
    fn on_reply(&self, flow: &mut Self::Flow, reply: &Replied) {
        self.endpoint.on_reply(&mut flow.0, reply);
    }

    #[inline]
    fn remember(&self, memory: &mut MemoryOf<Self>, flow: &mut Self::Flow, news: &News<'_>) {
        self.endpoint.remember(memory, &mut flow.0, news);
    }

    #[inline]
    fn takes_plane(&self, memory: &mut MemoryOf<Self>, flow: &mut Self::Flow, plane: u32, now: Time) -> bool {
        self.endpoint.takes_plane(memory, &mut flow.0, plane, now)
    }
}
