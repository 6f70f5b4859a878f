//! A transport, load balancers and a stage of switches of one's own: the crate that a user of Windtunnel writes, whole.
//!
//! [`Aimd`] is the transport, [`Evading`] the load balancer at the sender, [`Drill`] the one in switches, [`Tcn`] the stage;
//! [`modules`] registers them under their names, and that is all: the command beside this file (`src/main.rs`) runs scenarios that say
//! `network: {transport: aimd}`, and so does the `windtunnel` command with the Python module of this crate in the place of its own engine:
//!
//! ```console
//! $ cargo run -p own-transport -- examples/own-transport/scenario.yaml
//! $ cargo build --release -p own-transport --features python
//! $ cp target/release/libown_transport.so own_transport.abi3.so
//! $ WINDTUNNEL_ENGINE=own_transport PYTHONPATH=. windtunnel run examples/own-transport/scenario.yaml
//! ```
//!
//! `windtunnel new transport NAME` writes a crate outside the checkout of the transport's files of this one and those in `template`.

mod aimd;
mod drill;
mod evading;
#[cfg(feature = "python")]
mod python;
mod tcn;

use windtunnel_fabric::packet::transport::SwitchStage;
use windtunnel_scenario::modules::{Kind, Modules, balancer, chooser, stage};

use aimd::aimd;
pub use aimd::{Aimd, AimdFlow};
pub use drill::Drill;
use drill::drill;
use evading::evading;
pub use evading::{Evading, EvadingState};
pub use tcn::Tcn;
use tcn::tcn;

/// What this program brings along.
pub fn modules() -> Modules {
    Modules::default()
        .transport("additive increase, multiplicative decrease by marks", aimd)
        .path_chooser("path numbers in turn, but not those marked of late", evading)
        .switch_balancer("the least loaded of drawn ports and the best of last time (DRILL)", drill)
        .describe(Kind::Stage, Tcn::NAME, "marks what has waited for long (TCN); with `aimd`")
        .with(aimd, chooser(evading))
        .with(aimd, balancer(drill))
        .with(aimd, stage(tcn))
        .with(aimd, (stage(tcn), chooser(evading)))
}
