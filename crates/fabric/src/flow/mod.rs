//! The flow model: messages are fluids that share links by weighted max-min fairness.
//!
//! A transfer has no packets and no queues. While it lasts it has a rate, the weighted max-min fair one among all that
//! share its links, and that rate changes only when a flow starts or ends. Latency is added at the end and never changes
//! a share.
//!
//! - [`FlowSystem`] is the solver with its clock: flows start, share, end (`system`, `solve`).
//! - [`FlowNetwork`] is a [`crate::Network`] over a topology: routes, headers, queue pairs (`network`, `transfer`), coupled
//!   groups (`groups`), what changes on the way (`change`) and what vanishes from it (`abandon`).
//! - [`simulate_flows`] is the solver as a function, for given links and paths (`simulate`).
//! - [`LinkMeter`] keeps what links carried (`observe`); what arrived is in the network's [`Account`](crate::Account).
//!
//! **Determinism.** Sums of loads and rates are exact integers, ties are broken by link id, and nothing is drawn: the same
//! starts give the same instants, bit by bit, in whatever order flows of one instant were started.
//!
//! **Threads.** One: a change is solved for the flows that depend on it alone, which is mostly a handful.

mod abandon;
mod change;
mod flow_network;
mod groups;
mod heap;
mod in_step;
mod instant;
mod observe;
mod settings;
mod simulate;
mod solve;
mod system;
mod transfer;

pub use flow_network::FlowNetwork;
pub use instant::Instant;
pub use observe::{BINS, LinkMeter};
pub use settings::{FlowNetworkError, FlowSettings};
pub use simulate::{SimulateError, simulate_flows};
pub use system::{Batch, CapacityError, FlowId, FlowSystem, LOAD_BITS};
