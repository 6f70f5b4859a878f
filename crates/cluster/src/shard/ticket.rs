//! The names under which a shard's requests go to the fabric.

use windtunnel_fabric::Ticket;
use windtunnel_workload::Token;

/// A ticket names its job and the replay's token, or a run of a coupled group.
pub(super) const COUPLED: u64 = 1 << 63;

/// The ticket of a request of `job`.
pub(super) fn ticket(job: usize, token: Token) -> Ticket {
    Ticket((job as u64) << 32 | u64::from(token.0))
}

/// Whether a request is one of the job at this place of the shard.
pub const fn is_of(ticket: Ticket, job: usize) -> bool {
    (ticket.0 & !COUPLED) >> 32 == job as u64
}
