//! What never found its other side.

use windtunnel_kernel::{Bytes, EndpointId, Tag};

use super::operations::{ANY_TAG, NONE, Operations, RENDEZVOUS, State};
use crate::Ticket;

/// An operation that waits for the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Where it waits: the receiving endpoint.
    pub endpoint: EndpointId,
    /// What waits.
    pub kind: StuckKind,
}

/// What waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StuckKind {
    /// A posted receive without a message.
    Receive {
        /// The receive.
        ticket: Ticket,
        /// Its source, `None` for any.
        source: Option<EndpointId>,
        /// Its tag, `None` for any.
        tag: Option<Tag>,
    },
    /// A message without a receive.
    Message {
        /// Its sender.
        from: EndpointId,
        /// The send.
        ticket: Ticket,
        /// Its tag.
        tag: Tag,
        /// Its size.
        bytes: Bytes,
        /// Whether the send itself waits for the receive (a rendezvous), or is long over (eager).
        sender_waits: bool,
    },
}

/// By receiving endpoint: its receives in order of posting, then its messages in order of arrival.
pub(super) fn list(operations: &Operations) -> Vec<Stuck> {
    let mut found: Vec<((EndpointId, bool, u64), Stuck)> = Vec::new();
    for operation in operations.slots() {
        let (endpoint, kind) = match operation.state {
            State::Posted => {
                let source = (operation.peer != NONE).then_some(EndpointId(operation.peer));
                let tag = (!operation.has(ANY_TAG)).then_some(operation.tag);
                (operation.endpoint, StuckKind::Receive { ticket: operation.ticket, source, tag })
            }
            State::Unexpected => {
                let kind = StuckKind::Message {
                    from: operation.endpoint,
                    ticket: operation.ticket,
                    tag: operation.tag,
                    bytes: operation.bytes(),
                    sender_waits: operation.has(RENDEZVOUS),
                };
                (EndpointId(operation.peer), kind)
            }
            _ => continue,
        };
        let place = (endpoint, operation.state == State::Unexpected, operation.number);
        found.push((place, Stuck { endpoint, kind }));
    }
    found.sort_unstable_by_key(|item| item.0);
    found.into_iter().map(|item| item.1).collect()
}
