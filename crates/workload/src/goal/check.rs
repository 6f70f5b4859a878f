//! Sends and receives that cannot match.

use windtunnel_kernel::{RankId, Tag};

use super::matching::Matcher;
use crate::Workload;

/// Most operations that one [`Unmatched`] names.
const EXAMPLES: usize = 8;

/// Operations of one rank, peer and tag that stay without a partner, whatever the order of arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmatched {
    /// Whether these are sends; else receives.
    pub sends: bool,
    /// The rank whose operations they are.
    pub rank: RankId,
    /// The other end; `None` for any source.
    pub peer: Option<RankId>,
    /// The tag; `None` for any.
    pub tag: Option<Tag>,
    /// How many have no partner.
    pub count: u64,
    /// The first of them, by index in the rank's program; at most 8.
    pub operations: Vec<u32>,
}

/// What [`check`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Sends in all.
    pub sends: u64,
    /// Receives in all.
    pub receives: u64,
    /// Sends that find a receive.
    pub matched: u64,
    /// The others: receives by rank, then sends by rank of the receiver.
    pub unmatched: Vec<Unmatched>,
}

impl Check {
    /// Whether every send and every receive has a partner.
    pub fn is_complete(&self) -> bool {
        self.unmatched.is_empty()
    }

    /// Sends and receives without a partner.
    pub fn unmatched_sends_and_receives(&self) -> (u64, u64) {
        (self.sends - self.matched, self.receives - self.matched)
    }
}

impl std::fmt::Display for Unmatched {
    /// `rank 3: 2 receives from rank 1 with tag 7 have no send (operations 4, 9)`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, to, partner) =
            if self.sends { ("send", "to", "receive") } else { ("receive", "from", "send") };
        let plural = if self.count == 1 { "" } else { "s" };
        write!(f, "rank {}: {} {what}{plural} {to} ", self.rank, self.count)?;
        match self.peer {
            Some(peer) => write!(f, "rank {peer}")?,
            None => write!(f, "any rank")?,
        }
        match self.tag {
            Some(tag) => write!(f, " with tag {}", tag.0)?,
            None => write!(f, " with any tag")?,
        }
        let have = if self.count == 1 { "has" } else { "have" };
        let names: Vec<String> = self.operations.iter().map(u32::to_string).collect();
        let more = if self.count > self.operations.len() as u64 { ", …" } else { "" };
        let plural = if self.operations.len() == 1 { "" } else { "s" };
        write!(f, " {have} no {partner} (operation{plural} {}{more})", names.join(", "))
    }
}

/// Matches all sends with all receives, wildcards included, and names those that are left over.
///
/// The matching is a largest one: its remainder is stuck in every run. A run in which a wildcard takes a message that
/// another receive needed may leave more.
pub fn check(workload: &Workload) -> Check {
    let matcher = Matcher::new(workload);
    let mut found = Check::default();
    let mut sends_left = Vec::new();
    for rank in (0..workload.ranks() as u32).map(RankId) {
        let receives = matcher.receives(rank);
        let incoming = matcher.incoming(rank);
        found.receives += receives.len() as u64;
        found.sends += incoming.len() as u64;
        let mut taken = vec![false; incoming.len()];
        let mut left: Vec<_> = Vec::new();
        for receive in receives {
            match receive.send {
                Some(send) => taken[send as usize] = true,
                None => left.push((receive.source, receive.tag, receive.operation)),
            }
        }
        found.matched += taken.iter().filter(|&&taken| taken).count() as u64;
        left.sort_unstable();
        for same in left.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            found.unmatched.push(Unmatched {
                sends: false,
                rank,
                peer: same[0].0,
                tag: same[0].1,
                count: same.len() as u64,
                operations: same.iter().take(EXAMPLES).map(|&(.., operation)| operation).collect(),
            });
        }
        let left: Vec<_> =
            incoming.iter().zip(&taken).filter(|&(_, &taken)| !taken).map(|(send, _)| *send).collect();
        for same in left.chunk_by(|a, b| (a.source, a.tag) == (b.source, b.tag)) {
            sends_left.push(Unmatched {
                sends: true,
                rank: same[0].source,
                peer: Some(rank),
                tag: Some(same[0].tag),
                count: same.len() as u64,
                operations: same.iter().take(EXAMPLES).map(|send| send.operation).collect(),
            });
        }
    }
    found.unmatched.append(&mut sends_left);
    found
}
