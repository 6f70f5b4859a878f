//! Impairments: links that lose packets, change their rate, go down and come up, and clocks that drift.
//!
//! **Life cycle.** [`Impairments`] stand in the settings. What changes at an instant is an event of its own class, known from
//! the start: it comes after everything else that happens at that instant.
//!
//! **Losses** ([`GilbertElliott`]): a link is good or bad; each packet that reaches its far end is lost with the share of
//! the state, and then the state may change (Gilbert 1960; Elliott, "Estimates of error rates for codes on burst-noise
//! channels", 1963). Shares are per packet, or per bit, where a packet of n bits is lost with 1 - (1 - share)^n. Draw i of a
//! link depends on the seed, the link and i.
//!
//! **Links down.** Both directions of a cable go down together, and all cables of a switch. What waits for a link or is on it
//! (being sent, on the cable, or in the pipeline behind) is lost at that instant and counted; a NIC stops asking its queue
//! pairs; what a switch would pass on is lost. Switches at the ends avoid the link at once where they have a choice
//! ([`Forwarder`](windtunnel_topology::Forwarder), local repair), all others from [`PartChange::known`] on. Nobody
//! tells transports: their timers do. A queue pair keeps its plane. Pauses end with the link.
//!
//! **Rates** hold for transmissions that begin afterwards.
//!
//! **Clocks.** A host whose clock runs fast by d has waited for a span g when g / (1 + d) has passed. The remainder of each
//! division is carried to the next, so that after any number of spans the error is below a picosecond.
//!
//! **Failure modes.** Shares outside 0 to 1, rates of 0 and clocks that stand still are refused by [`Impairments::check`].

mod changes;
mod clock;
mod links;
mod loss;

use windtunnel_kernel::Time;
use windtunnel_topology::{LinkId, Policy, SwitchId};

pub(super) use self::changes::Changes;
pub(crate) use self::changes::links_of;
pub(super) use self::clock::Clocks;
pub use self::loss::{GilbertElliott, Share};
use super::error::PacketError;

/// A part of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricPart {
    /// Both directions of a cable, by either link.
    Cable(LinkId),
    /// A switch with all its cables.
    Switch(SwitchId),
}

/// What becomes of a part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PartState {
    /// It carries nothing.
    Down,
    /// It works again.
    Up,
    /// Its links run at this part of their rate.
    Rate(f64),
}

/// A change at an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartChange {
    /// When.
    pub at: Time,
    /// From when on every switch knows, if a link goes down or comes up.
    pub known: Time,
    /// Of what.
    pub part: FabricPart,
    /// To what.
    pub state: PartState,
}

/// See the module page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Impairments {
    /// Losses of links; several of one link act one after the other.
    pub losses: Vec<(LinkId, GilbertElliott)>,
    /// Changes, in any order.
    pub changes: Vec<PartChange>,
    /// How switches cope with links that are down.
    pub policy: Policy,
    /// Hosts' clocks: NIC, counted over all hosts, and by how many parts in 10^9 its clock is fast.
    pub clocks: Vec<(u32, i64)>,
}

impl Impairments {
    /// Whether links go down or come up, so that paths change in mid-run.
    pub fn moves_paths(&self) -> bool {
        self.changes.iter().any(|change| !matches!(change.state, PartState::Rate(_)))
    }

    /// The same, for a network whose time zero is at `start`: what has changed by then is so from the beginning.
    #[must_use]
    pub fn since(mut self, start: Time) -> Self {
        self.changes.sort_by_key(|change| change.at);
        for change in &mut self.changes {
            (change.at, change.known) = (
                Time::from_ps(change.at.ps().saturating_sub(start.ps())),
                Time::from_ps(change.known.ps().saturating_sub(start.ps())),
            );
        }
        self
    }

    /// # Errors
    /// [`PacketError`] for what cannot be.
    pub fn check(&self) -> Result<(), PacketError> {
        let share = |name: &'static str, found: f64, fits: bool, expected: &'static str| {
            if fits { Ok(()) } else { Err(PacketError::Share { name, found, expected }) }
        };
        for (_, losses) in &self.losses {
            for (name, found) in losses.shares() {
                share(name, found, (0.0..=1.0).contains(&found), "0 to 1")?;
            }
        }
        for change in &self.changes {
            if let PartState::Rate(part) = change.state {
                share("impairments.rate", part, part > 0.0 && part <= 1.0, "a number above 0, at most 1")?;
            }
        }
        for &(_, fast) in &self.clocks {
            let fits = (-999_999_999..=1_000_000_000).contains(&fast);
            share("impairments.clocks", fast as f64 / 1e9, fits, "a drift above -1, at most 1")?;
        }
        Ok(())
    }
}
