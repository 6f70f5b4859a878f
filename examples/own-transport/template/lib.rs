//! `network: {transport: aimd}` for Windtunnel: the law stands in `src/aimd.rs`, [`modules`] registers it under its name.

mod aimd;
#[cfg(feature = "python")]
mod python;

use windtunnel_scenario::modules::Modules;

pub use aimd::{Aimd, AimdFlow};
use aimd::aimd;

/// What this program brings along: further transports, path choosers, balancers and stages of switches are registered here.
pub fn modules() -> Modules {
    Modules::default().transport("additive increase, multiplicative decrease by marks", aimd)
}
