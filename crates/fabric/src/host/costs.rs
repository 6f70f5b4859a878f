//! What a message costs at its ends: the LogGOPS parameters, per class of path.
//!
//! LogGP: Alexandrov, Ionescu, Schauser, Scheiman, SPAA'95; O and S: Hoefler, Schneider, Lumsdaine, "LogGOPSim",
//! HPDC'10.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use windtunnel_kernel::{Bytes, EndpointId, Span};

/// The parameters of one class of path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LogGops {
    /// L: from the end of the sender's overhead to the arrival of the first byte. A network with latencies of its own
    /// ignores it.
    pub latency: Span,
    /// o: time a stream is held for a message, at either end.
    pub overhead: Span,
    /// g: shortest time between messages of a NIC.
    pub gap: Span,
    /// G in femtoseconds per byte: time a NIC is held for each byte but the first.
    pub gap_per_byte: u64,
    /// O in femtoseconds per byte: time a stream is held for each byte but the first.
    pub overhead_per_byte: u64,
    /// S: a longer message is a rendezvous, its sender's dependents wait for the receiver.
    pub eager_limit: Bytes,
}

impl LogGops {
    /// (s - 1)·G, rounded up to a picosecond.
    #[inline]
    pub fn wire(&self, bytes: Bytes) -> Span {
        per_byte(self.gap_per_byte, bytes)
    }

    /// (s - 1)·O, rounded up to a picosecond.
    #[inline]
    pub fn copy(&self, bytes: Bytes) -> Span {
        per_byte(self.overhead_per_byte, bytes)
    }

    /// How long a message of `bytes` holds its ends.
    #[inline]
    pub fn holds(&self, bytes: Bytes, receiver: Receiver) -> Holds {
        let (wire, copy) = (self.wire(bytes), self.copy(bytes));
        match receiver {
            Receiver::Held => Holds {
                send_stream: self.overhead + copy,
                send_nic: self.gap + wire,
                departure: self.overhead,
                receive_stream: self.overhead + wire.max(copy),
                receive_nic: self.gap + wire,
                whole: self.overhead + wire.max(copy),
            },
            Receiver::Aside => Holds {
                send_stream: self.overhead + copy,
                send_nic: self.gap + wire,
                departure: self.overhead,
                receive_stream: self.overhead + copy,
                receive_nic: self.gap + wire,
                whole: self.overhead + wire.max(copy),
            },
            Receiver::Free => Holds {
                send_stream: self.overhead + copy,
                send_nic: self.gap + wire,
                departure: self.overhead + copy + wire,
                receive_stream: self.gap + self.overhead + copy,
                receive_nic: self.gap,
                whole: self.gap + self.overhead + copy,
            },
        }
    }
}

/// Time of `steps` dependent steps around a ring (or along a pipelined chain) whose members started together: in each, every
/// member sends `messages` one after another, as many to it arrive, and only then does it go on.
///
/// In lock step a member sends at t, a message is handled at t + d + max(L, rest of the sender's own overheads) by a
/// stream that is then held for h, the messages of a step in order at stream and NIC. A step with its receives lasts l; the
/// next also waits for the sending NIC, which is free p after its begin, so steps follow at max(l, p); receives follow at
/// the same distance, so their NIC adds nothing. The last ends with its receives: (steps - 1)·max(l, p) + l. For one message this is l = max(d + L, send) + h and p = g + (s - 1)·G.
pub fn lock_step(messages: &[(LogGops, Bytes)], steps: u32, receiver: Receiver) -> Span {
    if steps == 0 || messages.is_empty() {
        return Span::ZERO;
    }
    let (mut stream, mut nic, mut receiving, mut whole) = (Span::ZERO, Span::ZERO, Span::ZERO, Span::ZERO);
    // Every member does the same, so what one sends is what another one's peer does: its arrivals.
    let mut arriving: VecDeque<(Span, Holds)> = VecDeque::new();
    let mut to_send = messages.iter();
    loop {
        let sends = to_send.as_slice().first().map(|_| stream.max(nic));
        let takes = arriving.front().map(|&(arrival, holds)| (arrival.max(stream).max(receiving), holds));
        match (sends, takes) {
            (Some(begin), takes) if takes.is_none_or(|(at, _)| begin <= at) => {
                let Some((costs, bytes)) = to_send.next() else { break };
                let holds = costs.holds(*bytes, receiver);
                (stream, nic) = (begin + holds.send_stream, begin + holds.send_nic);
                let arrival = begin + holds.departure + costs.latency;
                let place = arriving.partition_point(|&(before, _)| before <= arrival);
                arriving.insert(place, (arrival, holds));
            }
            (_, Some((begin, holds))) => {
                arriving.pop_front();
                (stream, receiving) = (begin + holds.receive_stream, begin + holds.receive_nic);
                whole = whole.max(begin + holds.whole);
            }
            _ => break,
        }
    }
    let step = stream.max(whole);
    step.max(nic) * u64::from(steps - 1) + step
}

/// (s - 1)·`fs` femtoseconds, rounded up to a picosecond; 0 bytes count as 1.
#[inline]
fn per_byte(fs: u64, bytes: Bytes) -> Span {
    let count = bytes.get().saturating_sub(1);
    match count.checked_mul(fs) {
        Some(product) => Span::from_ps(product.div_ceil(1_000)),
        None => Span::from_ps(
            u64::try_from((u128::from(count) * u128::from(fs)).div_ceil(1_000)).unwrap_or(u64::MAX),
        ),
    }
}

windtunnel_kernel::named! {
    /// How a receiver pays for the bytes of a message.
    #[derive(Default)]
    pub enum Receiver: "receiver" {
        /// As LogGOPSim: the receiver's NIC and stream are held for (s - 1)·G, so no receiver takes more than its line rate.
        #[default]
        Held = "held", "for its length";
        /// As the LogGOPSim inside ATLAHS: the whole message arrives (s - 1)·G later, the NIC is held for g and the stream
        /// for g + o + (s - 1)·O. An incast then beats the line rate of its receiver.
        Free = "free", "for o and g only";
        /// The receiver's NIC is held as in [`Self::Held`], and its stream for o + (s - 1)·O. No receiver takes more than its
        /// line rate, and none is slower than it. Flows and packets have it so, whatever a scenario says.
        Aside = "aside", "its NIC for its length, its stream for o and O only: it computes and sends while bytes come in";
    }
}

/// How long a message holds what it uses, counted from its start at either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holds {
    /// The sender's stream.
    pub send_stream: Span,
    /// The sender's NIC.
    pub send_nic: Span,
    /// From the start of the send to the departure into the network.
    pub departure: Span,
    /// The receiver's stream.
    pub receive_stream: Span,
    /// The receiver's NIC.
    pub receive_nic: Span,
    /// Until the message is there, from the start of its receive.
    pub whole: Span,
}

/// Which class of path joins two endpoints: an index into the parameters.
pub type PathClassOf = Arc<dyn Fn(EndpointId, EndpointId) -> usize + Send + Sync>;

/// NICs that endpoints of a host have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedNics {
    /// Messages of this class of path and of those after it hold them; the others have their endpoint's own ends.
    pub from_class: u8,
    /// How many there are.
    pub count: u32,
    /// Of each endpoint, which is its first, second and so on: `endpoints × NICs of each` numbers below `count`.
    pub of: Arc<[u32]>,
}

/// The parameters of a fabric.
#[derive(Clone)]
pub struct Costs {
    classes: Vec<LogGops>,
    class_of: Option<PathClassOf>,
    receiver: Receiver,
    shared: Option<SharedNics>,
}

impl Costs {
    /// The same parameters for every pair.
    pub fn uniform(parameters: LogGops) -> Self {
        Self { classes: vec![parameters], class_of: None, receiver: Receiver::Held, shared: None }
    }

    /// Parameters by class of path; `class_of` must stay below `classes.len()`, which is at most 256.
    ///
    /// # Panics
    /// If there is no class, or more than 256.
    pub fn by_class(classes: Vec<LogGops>, class_of: PathClassOf) -> Self {
        assert!(
            (1..=256).contains(&classes.len()),
            "between 1 and 256 classes of path, found {}",
            classes.len()
        );
        Self { classes, class_of: Some(class_of), receiver: Receiver::Held, shared: None }
    }

    /// With another way to pay for the bytes at the receiver.
    #[must_use]
    pub fn with_receiver(self, receiver: Receiver) -> Self {
        Self { receiver, ..self }
    }

    /// With NICs that endpoints share.
    #[must_use]
    pub fn with_shared_nics(self, shared: SharedNics) -> Self {
        Self { shared: Some(shared), ..self }
    }

    /// NICs that endpoints share, if any do.
    #[inline]
    pub fn shared_nics(&self) -> Option<&SharedNics> {
        self.shared.as_ref()
    }

    /// The class of the path from `from` to `to`.
    #[inline]
    pub fn class(&self, from: EndpointId, to: EndpointId) -> usize {
        self.class_of.as_ref().map_or(0, |class_of| class_of(from, to))
    }

    /// The same classes with other parameters.
    #[must_use]
    pub fn map(mut self, of: impl Fn(&LogGops) -> LogGops) -> Self {
        self.classes = self.classes.iter().map(of).collect();
        self
    }

    /// The parameters of a class.
    #[inline]
    pub fn of_class(&self, class: usize) -> &LogGops {
        &self.classes[class]
    }

    /// The parameters of a path.
    #[inline]
    pub fn of(&self, from: EndpointId, to: EndpointId) -> &LogGops {
        self.of_class(self.class(from, to))
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// How a receiver pays.
    #[inline]
    pub fn receiver(&self) -> Receiver {
        self.receiver
    }
}

impl fmt::Debug for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Costs")
            .field("classes", &self.classes)
            .field("receiver", &self.receiver)
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_cost_whole_picoseconds_rounded_up_once() {
        let costs = LogGops { gap_per_byte: 20_001, ..LogGops::default() };
        assert_eq!(costs.wire(Bytes::ZERO), Span::ZERO);
        assert_eq!(costs.wire(Bytes::new(1)), Span::ZERO);
        assert_eq!(costs.wire(Bytes::new(2)), Span::from_ps(21));
        assert_eq!(costs.wire(Bytes::new(1_001)), Span::from_ps(20_001));
        let slow = LogGops { gap_per_byte: 6_000_000, ..LogGops::default() };
        assert_eq!(slow.wire(Bytes::new((1 << 42) + 1)), Span::from_ps((1 << 42) * 6_000));
    }

    #[test]
    fn classes_are_asked_of_the_path() {
        let class = |ns| LogGops { latency: Span::from_ns(ns), ..LogGops::default() };
        let same_host = |a: EndpointId, b: EndpointId| usize::from(a.0 / 8 != b.0 / 8);
        let costs = Costs::by_class(vec![class(1), class(5)], Arc::new(same_host));
        assert_eq!(costs.of(EndpointId(0), EndpointId(7)).latency, Span::from_ns(1));
        assert_eq!(costs.of(EndpointId(7), EndpointId(8)).latency, Span::from_ns(5));
    }
}
