//! Faults: what fails, who knows of it, and where packets go then.
//!
//! Life cycle: a [`Forwarder`] is made for one user of a topology (a simulation, a thread of one). Cables and switches
//! [fail](Forwarder::fail_cable) and [recover](Forwarder::recover_cable) at any time. From that moment the switches at
//! both ends avoid a dead cable among the ports that they would otherwise choose from (*local repair*); all others learn
//! of it with [`Forwarder::converge`], which the user calls when the news has spread. A topology does not know time.
//!
//! Converged, a switch uses the ports that begin a shortest legal path over what lives. Clos networks and full meshes
//! find them by arithmetic on the dead ports; other shapes keep a [field] of next hops for every destination that
//! needs one, in a [cache] of bounded size. Where no legal path is left, [`Detour::Allow`] routes by the
//! same kind of field over any living cable (in a Clos through a valley), and says so; [`Detour::Forbid`] reports the
//! pair as unreachable.
//!
//! Invariants: without faults a forwarder answers as its topology does, at no cost but a branch. Next hops are loop-free
//! in both modes: legal paths come nearer by legal distance, detours by steps to the nearest legal path, and local
//! repair only drops ports from these sets. Answers depend on the failed sets alone, never on what was asked before.
//!
//! Failure modes: with local repair a packet may reach a switch whose every next hop is dead. It is lost there
//! ([`Reach::Blackhole`]) until the fabric converges, as in a real one.

mod cache;
mod dead;
mod field;
mod forwarder;
pub(crate) mod row;

pub(crate) use dead::{Dead, DeadPart};
pub use forwarder::{Detour, Forwarder, Hop, Policy, Reach};
