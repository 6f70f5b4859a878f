//! An engine's time: its clock, and what is due.
//!
//! Ports' events are in an agenda that knows no more of each than its port, since a port has one event at most. Everything else is
//! in a calendar queue by its [`Key`].
//!
//! **Invariants.** The clock never goes back. `soon` is the time of the first event that is not a port's, `u64::MAX` if there is none.
//! At an instant ports' events come first, in the order of the ports; then the others, in the order of their keys.

use windtunnel_kernel::Time;
use windtunnel_kernel::queue::{Agenda, CalendarQueue, EventKey, EventOrder};

/// What kind of event but a port's. The numbers are their order at an instant, and stand in digests of events: see [`Key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Class {
    /// A NIC port may have something to send.
    Wake = 1,
    /// A transport's own timer.
    Timer = 2,
    /// Something in flight may be lost.
    Silence = 3,
    /// A message is handed over.
    Start = 4,
    /// Something is due at a switch's port that no packet's arrival brings about.
    Touch = 5,
    /// The timer of a NIC port's dispatcher is due.
    Dispatch = 6,
    /// A pause frame reaches the port that it is for; its name is twice the queue, and one more for a pause.
    Pause = 7,
    /// A NIC port may grant credit.
    Credit = 8,
    /// Members of a reduction at a NIC port begin, or may wait in vain; its name is where the run is kept.
    Reduce = 9,
    /// Sums leave a switch's unit; named by its first port.
    Sum = 10,
    /// A queue may have been paused for too long: after all that may end its pause.
    Check = 14,
    /// Something changes that was known ahead: by its number, after all else at that instant.
    Change = 15,
}

impl Class {
    /// All of them.
    #[cfg(test)]
    const ALL: [Self; 12] = [
        Self::Wake,
        Self::Timer,
        Self::Silence,
        Self::Start,
        Self::Touch,
        Self::Dispatch,
        Self::Pause,
        Self::Credit,
        Self::Reduce,
        Self::Sum,
        Self::Check,
        Self::Change,
    ];

    /// The class that a key was made with.
    const fn of(number: u32) -> Self {
        match number {
            1 => Self::Wake,
            2 => Self::Timer,
            3 => Self::Silence,
            4 => Self::Start,
            5 => Self::Touch,
            6 => Self::Dispatch,
            7 => Self::Pause,
            8 => Self::Credit,
            9 => Self::Reduce,
            10 => Self::Sum,
            14 => Self::Check,
            15 => Self::Change,
            _ => panic!("a key is made of a class"),
        }
    }
}

/// Order of events but ports': time, class, port, and for queue pairs the count that names one at its NIC port. Each has
/// at most one event of a class at an instant (several equal ones of a NIC or queue pair mean the same), so this order is
/// total and knows nothing of processes, nor of the places that things lie in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key(u128);

/// Ports are numbered in so many bits of a key.
pub(super) const PORT_BITS: u32 = 28;

/// Ports of NICs and switches together that events can name.
pub const MOST_PORTS: usize = 1 << PORT_BITS;

impl Key {
    /// Of a port or a NIC port.
    #[inline]
    pub(super) const fn new(time: u64, class: Class, port: u32) -> Self {
        Self::named(time, class, port, 0)
    }

    /// Of the queue pair that is called `name` at its NIC port.
    #[inline]
    pub(super) const fn named(time: u64, class: Class, port: u32, name: u32) -> Self {
        Self((time as u128) << 64 | (class as u128) << (32 + PORT_BITS) | (port as u128) << 32 | name as u128)
    }

    #[inline]
    pub(super) const fn class(self) -> Class {
        Class::of((self.0 as u64 >> (32 + PORT_BITS)) as u32)
    }

    #[inline]
    pub(super) const fn port(self) -> u32 {
        (self.0 >> 32) as u32 & ((1 << PORT_BITS) - 1)
    }

    #[inline]
    pub(super) const fn name(self) -> u32 {
        self.0 as u32
    }

    /// As a digest of events has it.
    pub(super) fn told(self) -> EventKey {
        let (time, class) = (self.time(), self.class() as u8);
        EventKey { time, class, receiver: self.port(), sender: self.name(), count: 0 }
    }

    /// A port's event, as a digest has it: class 0.
    pub(super) const fn told_of_port(time: u64, port: u32) -> EventKey {
        EventKey { time: Time::from_ps(time), class: 0, receiver: port, sender: 0, count: 0 }
    }
}

impl EventOrder for Key {
    #[inline]
    fn time(self) -> Time {
        Time::from_ps((self.0 >> 64) as u64)
    }

    #[inline]
    fn before(self, other: Self) -> bool {
        self.0 < other.0
    }
}

/// See the module page.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    clock: u64,
    /// Events of ports: by time, then port.
    agenda: Agenda,
    /// All other events, and when the first of them is.
    queue: CalendarQueue<(), Key>,
    soon: u64,
    /// The port of the last of them that was looked ahead at.
    foreseen: u32,
}

impl Timeline {
    /// Of an engine with so many ports, at time zero.
    pub(super) fn new(ports: usize) -> Self {
        Self {
            clock: 0,
            agenda: Agenda::new(ports),
            queue: CalendarQueue::new(),
            soon: u64::MAX,
            foreseen: u32::MAX,
        }
    }

    /// The instant of the last event, or one up to which nothing else was due.
    #[inline]
    pub(super) const fn now(&self) -> u64 {
        self.clock
    }

    /// The clock goes to the instant of an event.
    #[inline]
    pub(super) fn turn_to(&mut self, time: u64) {
        self.clock = time;
    }

    /// Nothing is due up to `time`, or it has been handled.
    pub(super) fn reach(&mut self, time: u64) {
        self.clock = self.clock.max(time);
    }

    /// Port `p`, which has none, has an event at `time`.
    #[inline]
    pub(super) fn arm(&mut self, p: u32, time: u64) {
        self.agenda.push(p, Time::from_ps(time));
    }

    /// Schedules an event that is not a port's.
    #[inline]
    pub(super) fn schedule(&mut self, time: u64, class: Class, port: u32) {
        self.schedule_key(Key::new(time, class, port));
    }

    #[inline]
    pub(super) fn schedule_key(&mut self, key: Key) {
        self.soon = self.soon.min(key.time().ps());
        self.queue.push(key, ());
    }

    /// Takes the next event if it is a port's and not after `bound`: when it is, and the port.
    #[inline]
    pub(super) fn pop_port(&mut self, bound: u64) -> Option<(u64, u32)> {
        let (time, port) = self.agenda.pop_until(Time::from_ps(bound.min(self.soon)))?;
        Some((time.ps(), port))
    }

    /// When the first event that is not a port's is, if it is not after `bound`.
    #[inline]
    pub(super) fn other_by(&self, bound: u64) -> Option<u64> {
        (self.soon <= bound && self.soon != u64::MAX).then_some(self.soon)
    }

    /// Takes that event.
    #[inline]
    pub(super) fn pop_other(&mut self) -> Option<Key> {
        let (key, ()) = self.queue.pop()?;
        self.soon = self.queue.peek().map_or(u64::MAX, |next| next.time().ps());
        Some(key)
    }

    /// The event that comes after so many others of those that are not ports', if it is in sight.
    #[inline]
    pub(super) fn other_ahead(&self, others: usize) -> Option<Key> {
        self.queue.ahead(others)
    }

    /// Whether the last event looked ahead at was one of port `p`.
    #[inline]
    pub(super) const fn has_foreseen(&self, p: u32) -> bool {
        self.foreseen == p
    }

    /// An event of port `p` is looked ahead at.
    #[inline]
    pub(super) fn foresee(&mut self, p: u32) {
        self.foreseen = p;
    }

    /// Time of the next event, [`Time::NEVER`] if there is none.
    #[inline]
    pub(super) fn next_time(&mut self) -> Time {
        self.agenda.next_time().min(Time::from_ps(self.soon))
    }

    /// Ports whose events are at these places among the next ones, the first of which is 0, if there are so many.
    #[inline]
    pub(super) fn ahead<const N: usize>(&self, places: [usize; N]) -> Option<[u32; N]> {
        self.agenda.ahead(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key gives back what it was made of, and keys go by time, class, port and name.
    #[test]
    fn keys_keep_their_class_and_order() {
        let last = (1 << PORT_BITS) - 1;
        let mut before = Key::named(6, Class::Change, last, u32::MAX);
        for class in Class::ALL {
            let key = Key::named(7, class, last, u32::MAX - 1);
            assert_eq!((key.class(), key.port(), key.name()), (class, last, u32::MAX - 1));
            assert_eq!((key.time(), key.told().class), (Time::from_ps(7), class as u8));
            assert!(before.before(Key::named(7, class, 0, 0)) && Key::named(7, class, 0, 0).before(key));
            before = key;
        }
    }

    /// Ports come before others at an instant, and the first of the others is always known.
    #[test]
    fn ports_come_first() {
        let mut timeline = Timeline::new(4);
        timeline.schedule(9, Class::Start, 1);
        timeline.schedule(5, Class::Wake, 2);
        timeline.arm(3, 5);
        timeline.arm(0, 9);
        assert_eq!(
            (timeline.next_time(), timeline.other_by(4), timeline.other_by(5)),
            (Time::from_ps(5), None, Some(5))
        );
        assert_eq!(timeline.pop_port(9), Some((5, 3)));
        assert_eq!(timeline.pop_port(9), None, "the other at 5 comes before");
        assert_eq!(timeline.pop_other().map(Key::class), Some(Class::Wake));
        assert_eq!((timeline.pop_port(9), timeline.other_by(9)), (Some((9, 0)), Some(9)));
        assert_eq!(timeline.pop_other().map(Key::port), Some(1));
        assert_eq!((timeline.next_time(), timeline.other_by(u64::MAX)), (Time::NEVER, None));
    }
}
