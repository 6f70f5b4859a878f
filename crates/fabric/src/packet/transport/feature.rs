//! What an engine does only for transports that ask for it, as types: what is not asked for is not compiled in, has no state, and
//! cannot be reached.

use std::fmt::Debug;

mod sealed {
    pub trait Sealed {}
}

/// State that an engine keeps for somebody.
pub trait State: Clone + Debug + Default + Send + Sync + 'static {}

impl<S: Clone + Debug + Default + Send + Sync + 'static> State for S {}

/// Something that an engine does or does not do: [`Present`] or [`Absent`].
pub trait Feature: sealed::Sealed + Copy + Debug + Default + Send + Sync + 'static {
    /// A state that there is with the feature alone.
    type Of<S: State>: State;

    /// The state, if there is one.
    fn get<S: State>(state: &Self::Of<S>) -> Option<&S>;

    /// The same, to change it.
    fn get_mut<S: State>(state: &mut Self::Of<S>) -> Option<&mut S>;

    /// What is asked with the feature alone.
    fn ask<R>(what: impl FnOnce() -> R) -> Option<R>;
}

/// What is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Present;

/// What is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Absent;

impl sealed::Sealed for Present {}
impl sealed::Sealed for Absent {}

impl Feature for Present {
    type Of<S: State> = S;

    #[inline]
    fn get<S: State>(state: &S) -> Option<&S> {
        Some(state)
    }

    #[inline]
    fn get_mut<S: State>(state: &mut S) -> Option<&mut S> {
        Some(state)
    }

    #[inline]
    fn ask<R>(what: impl FnOnce() -> R) -> Option<R> {
        Some(what())
    }
}

impl Feature for Absent {
    type Of<S: State> = ();

    #[inline]
    fn get<S: State>((): &()) -> Option<&S> {
        None
    }

    #[inline]
    fn get_mut<S: State>((): &mut ()) -> Option<&mut S> {
        None
    }

    #[inline]
    fn ask<R>(_: impl FnOnce() -> R) -> Option<R> {
        None
    }
}

/// A state that there is with a feature alone.
#[derive(Clone, Debug, Default)]
pub(in crate::packet) struct Kept<F: Feature, S: State>(F::Of<S>);

impl<F: Feature, S: State> Kept<F, S> {
    /// The state, if there is one.
    #[inline]
    pub(in crate::packet) fn get(&self) -> Option<&S> {
        F::get(&self.0)
    }

    /// The same, to change it.
    #[inline]
    pub(in crate::packet) fn get_mut(&mut self) -> Option<&mut S> {
        F::get_mut(&mut self.0)
    }
}

/// What an [`Endpoint`](super::Endpoint) asks of the engine beside the calls that every one gets. [`Plain`] asks for nothing; an
/// endpoint that asks for several things brings a type of its own.
pub trait Uses: Copy + Debug + Send + Sync + 'static {
    /// A queue pair sends no more than its receiver grants: see [`Credit`](super::Credit).
    type Credit: Feature;

    /// Acknowledgements bring what each hop told the packet that caused them: see
    /// [`Endpoint::on_hops`](super::Endpoint::on_hops).
    type Telemetry: Feature;

    /// It sends packets of its own: see [`Endpoint::probe`](super::Endpoint::probe).
    type Probes: Feature;

    /// A queue pair takes all planes of its NIC, unless its path is fixed: see
    /// [`Endpoint::takes_plane`](super::Endpoint::takes_plane).
    type Planes: Feature;

    /// What is kept of a pair of NICs, for longer than any queue pair is open: see
    /// [`Endpoint::remember`](super::Endpoint::remember). `()` keeps nothing.
    type Memory: State;
}

/// Nothing but the calls that every endpoint gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plain;

/// Credit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credited;

/// Telemetry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told;

impl Uses for Plain {
    type Credit = Absent;
    type Telemetry = Absent;
    type Probes = Absent;
    type Planes = Absent;
    type Memory = ();
}

impl Uses for Credited {
    type Credit = Present;
    type Telemetry = Absent;
    type Probes = Absent;
    type Planes = Absent;
    type Memory = ();
}

impl Uses for Told {
    type Credit = Absent;
    type Telemetry = Present;
    type Probes = Absent;
    type Planes = Absent;
    type Memory = ();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_takes_no_room_and_is_not_reached() {
        let mut absent = Kept::<Absent, Vec<u32>>::default();
        assert_eq!((size_of_val(&absent), absent.get().is_none()), (0, true));
        assert!(absent.get_mut().is_none());
        let mut present = Kept::<Present, Vec<u32>>::default();
        present.get_mut().expect("it is present").push(7);
        assert_eq!(present.get(), Some(&vec![7]));
        assert_eq!((Absent::ask(|| 1), Present::ask(|| 1)), (None, Some(1)));
    }
}
