//! What is put around a transport: a chooser of paths, a stage of switches, a load balancer in them, or several of these.
//!
//! A chooser goes around the endpoint, a stage and a balancer around the policy of switches. The result is a transport, compiled as
//! one: no call per packet is dynamic.

use super::Transport;

/// What makes a transport of a transport.
pub trait Around: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// Both.
    type Whole<T: Transport>: Transport;

    /// Puts it around `transport`.
    fn around<T: Transport>(&self, transport: T) -> Self::Whole<T>;
}

/// The second goes around the transport, the first around both.
impl<A: Around, B: Around> Around for (A, B) {
    type Whole<T: Transport> = A::Whole<B::Whole<T>>;

    fn around<T: Transport>(&self, transport: T) -> Self::Whole<T> {
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
