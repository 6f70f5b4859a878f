//! The workload's side of the meeting with a fabric (docs/architecture.md, The two traits): what a replay asks for.
//!
//! Every request carries `ready`, the instant at which its last prerequisite ends; it may lie ahead of the simulated
//! clock, because an operation's successors are released as soon as its end is known. The machine answers later through
//! the replay's `started` and `finished`.

use windtunnel_kernel::{Bytes, NicId, RankId, Span, StreamId, Tag, Time};

use crate::collectives::Meeting;
use crate::program::Dimension;

/// A replay's own name for something it asked of the machine; handed back unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

/// A message to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Stream that is held for the send overhead.
    pub stream: StreamId,
    /// NIC that the message leaves by.
    pub nic: NicId,
    /// Receiving rank.
    pub to: RankId,
    /// Payload.
    pub bytes: Bytes,
    /// Tag to be matched.
    pub tag: Tag,
    /// What the message is for, for accounting.
    pub dimension: Dimension,
    /// Hash of (job, communicator, channel, queue pair); the load balancer's only knowledge of the message.
    pub entropy: u32,
    /// The connection it goes by, which sends one message after the other, among those of equal sender, receiver and entropy: 1 a
    /// communicator's, above that which an operation outside communicators has for all iterations. 0: one of its own.
    pub line: u16,
    /// Whether the send is over only when the receiver has the message.
    pub waits: bool,
}

/// A rank's arrival at a coupled collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// Communicator, index into [`crate::Workload::communicators`].
    pub communicator: u32,
    /// Which of the communicator's collectives, counted over all iterations.
    pub sequence: u64,
    /// Index into [`crate::Program::specs`] of the rank's program.
    pub spec: u32,
    /// What the collective is for, for accounting.
    pub dimension: Dimension,
    /// Whether it is one group only if that is as good as message by message
    /// ([`Exchanges::InStep`](crate::replay::Exchanges::InStep)).
    pub in_step: bool,
}

/// A rank's arrival at a reduction by switches, or at a ring of a collective of two levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meet {
    /// Communicator, index into [`crate::Workload::communicators`].
    pub communicator: u32,
    /// Which of the communicator's rounds, over all collectives and iterations; with `first` of the meeting a name of its own.
    pub tag: Tag,
    /// What it is.
    pub meeting: Meeting,
    /// What the collective is for, for accounting.
    pub dimension: Dimension,
}

/// What executes operations.
pub trait Machine {
    /// Occupies `stream` of `rank` for `duration` (before any variation the machine applies).
    fn calc(&mut self, ready: Time, rank: RankId, token: Token, stream: StreamId, duration: Span);
    /// Sends a message.
    fn send(&mut self, ready: Time, rank: RankId, token: Token, message: Outgoing);
    /// Posts a receive; `None` matches any source or any tag.
    fn post_receive(
        &mut self,
        ready: Time,
        rank: RankId,
        token: Token,
        stream: StreamId,
        source: Option<RankId>,
        tag: Option<Tag>,
    );
    /// Arrives at a collective that runs as one coupled group; it starts when its last member has arrived.
    fn join(&mut self, ready: Time, rank: RankId, token: Token, join: Join);
    /// Hands its vector to switches that sum, or enters a ring; told to all members as finished when the sum is there, or the ring's
    /// last step done.
    fn meet(&mut self, ready: Time, rank: RankId, token: Token, meet: Meet);
}
