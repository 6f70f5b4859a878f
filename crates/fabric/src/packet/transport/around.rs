//! What is put around a transport: a chooser of paths, a stage of switches, a load balancer in them, or several of these.
//!
//! The result is a transport, compiled as one: no call per packet is dynamic.

use super::Transport;

/// What makes a transport of a transport.
pub trait Around: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// Both.
    type Whole<T: Transport + Sync>: Transport + Sync;

    /// Puts it around `transport`.
    fn around<T: Transport + Sync>(&self, transport: T) -> Self::Whole<T>;
}

/// The second goes around the transport, the first around both.
impl<A: Around, B: Around> Around for (A, B) {
    type Whole<T: Transport + Sync> = A::Whole<B::Whole<T>>;

    fn around<T: Transport + Sync>(&self, transport: T) -> Self::Whole<T> {
        self.0.around(self.1.around(transport))
    }
}

/// State by switch or port, as far as any has been asked about.
#[derive(Clone, Debug)]
pub(super) struct States<S>(Vec<S>);

impl<S: Clone + Default> States<S> {
    /// All at their default.
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// That of a place.
    #[inline]
    pub(super) fn at(&mut self, place: u32) -> &mut S {
        let place = place as usize;
        if self.0.len() <= place {
            self.0.resize(place + 1, S::default());
        }
        &mut self.0[place]
    }
}

/// Methods of [`Transport`] that a wrapper passes on to its `transport`: what a queue pair asks (`flow`, where the wrapper adds
/// nothing to its state), and what switches ask (`stage`, `balance`).
macro_rules! passes_on {
    (flow) => {
        fn recovery(&self) -> Recovery {
            self.transport.recovery()
        }

        fn is_answered(&self) -> bool {
            self.transport.is_answered()
        }

        fn open(&self, path: &PathFacts) -> Self::Flow {
            self.transport.open(path)
        }

        #[inline]
        fn window(&self, flow: &Self::Flow) -> u64 {
            self.transport.window(flow)
        }

        #[inline]
        fn gap(&self, flow: &Self::Flow, wire: u16) -> Span {
            self.transport.gap(flow, wire)
        }

        #[inline]
        fn on_send(&self, flow: &mut Self::Flow, now: Time, wire: u16) {
            self.transport.on_send(flow, now, wire);
        }

        #[inline]
        fn path(&self, flow: &mut Self::Flow, choice: &PathChoice) -> Option<u16> {
            self.transport.path(flow, choice)
        }

        #[inline]
        fn on_ack(&self, flow: &mut Self::Flow, ack: &Ack) {
            self.transport.on_ack(flow, ack);
        }

        #[inline]
        fn on_hops(&self, flow: &mut Self::Flow, ack: &Ack, before: &[Hop], hops: &[Hop]) {
            self.transport.on_hops(flow, ack, before, hops);
        }

        #[inline]
        fn on_nack(&self, flow: &mut Self::Flow, nack: &Nack) {
            self.transport.on_nack(flow, nack);
        }

        fn credit(&self, mtu: u32) -> Credit {
            self.transport.credit(mtu)
        }

        #[inline]
        fn unasked(&self, flow: &Self::Flow) -> u64 {
            self.transport.unasked(flow)
        }

        #[inline]
        fn on_loss(&self, flow: &mut Self::Flow, loss: &Loss) {
            self.transport.on_loss(flow, loss);
        }

        #[inline]
        fn on_notify(&self, flow: &mut Self::Flow, now: Time) {
            self.transport.on_notify(flow, now);
        }

        #[inline]
        fn timeout(&self, flow: &Self::Flow) -> Span {
            self.transport.timeout(flow)
        }

        #[inline]
        fn timer(&self, flow: &Self::Flow) -> Option<Time> {
            self.transport.timer(flow)
        }

        #[inline]
        fn on_timer(&self, flow: &mut Self::Flow, now: Time) {
            self.transport.on_timer(flow, now);
        }

        #[inline]
        fn on_data(&self, peer: &mut Self::Peer, data: &Arrived) -> Answer {
            self.transport.on_data(peer, data)
        }
    };
    (stage) => {
        #[inline]
        fn stage_enqueue(&mut self, port: &StagePort, packet: &StagePacket) -> StageVerdict {
            self.transport.stage_enqueue(port, packet)
        }

        #[inline]
        fn stage_dequeue(&mut self, port: &StagePort, packet: &StagePacket) -> StageVerdict {
            self.transport.stage_dequeue(port, packet)
        }

        #[inline]
        fn stage_next(&mut self, port: &StagePort, queues: &[StageQueue]) -> Option<usize> {
            self.transport.stage_next(port, queues)
        }
    };
    (balance) => {
        #[inline]
        fn balance(
            &mut self,
            switch: &BalancerSwitch,
            packet: &BalancerPacket,
            ports: &[BalancerPort],
        ) -> usize {
            self.transport.balance(switch, packet, ports)
        }
    };
}

pub(super) use passes_on;
