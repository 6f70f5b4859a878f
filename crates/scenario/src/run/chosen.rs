//! The transport of a scenario: one of ours or one that the program brings along, and who chooses its paths.

use std::sync::Arc;

use windtunnel_fabric::packet::transport::{Dcqcn, Dctcp, Hpcc, NoTransport, Recovery, Swift};
use windtunnel_fabric::packet::{NetworkOf, TransportChoice};
use windtunnel_kernel::Span;

use super::parameters::{Refused, tuned};
use crate::assemble::Assembled;
use crate::error::{InputError, nearest};
use crate::schema::{LoadBalancerName, Network, PathChooser, RecoveryName, StageModule};

/// The transport of a scenario that names none.
pub const DEFAULT: &str = "dctcp";

/// A transport, ready to build its network.
pub struct Chosen {
    /// Its name.
    pub name: String,
    /// Builds the network.
    pub of: Arc<dyn NetworkOf>,
    /// Whether the program brings it along.
    pub own: bool,
}

/// Finds the transport that the scenario names, among the program's own and ours.
///
/// # Errors
/// [`InputError`] for unknown names, with the nearest right one, and parameters that are refused.
pub fn transport(assembled: &Assembled, source: &str) -> Result<Chosen, InputError> {
    let (network, modules) = (&assembled.scenario.network, &assembled.modules);
    let place = |key: &str| format!("{source}: network.{key}");
    let name = network.transport.as_deref().unwrap_or(DEFAULT);
    let refused = |message: String| InputError::new(place("parameters"), format!("`{name}`: {message}"));
    let chosen = |of, own| Chosen { name: name.to_owned(), of, own };
    if let Some(made) = modules.make_transport(name, &network.parameters) {
        if network.timeout.is_some() {
            let message =
                format!("`{name}` is the program's own, which takes what it needs from `parameters`");
            return Err(InputError::new(place("timeout"), message));
        }
        let transport = made.map_err(refused)?;
        if let Some(stage) = stage(assembled, source)? {
            let pair =
                modules.make_staged_pair((name, &network.parameters), (&stage.name, &stage.parameters));
            let Some(made) = pair else {
                let message = format!("`{}` is not registered together with `{name}`", stage.name);
                return Err(InputError::new(place("stage"), message).hint("`Modules::staged` does that"));
            };
            return Ok(chosen(made.map_err(|message| stage_refused(source, stage, &message))?, true));
        }
        let Some(chooser) = chooser(assembled, source)? else { return Ok(chosen(transport, true)) };
        let pair = modules.make_pair((name, &network.parameters), (&chooser.name, &chooser.parameters));
        let Some(made) = pair else {
            let message = format!("`{}` is not registered together with `{name}`", chooser.name);
            return Err(InputError::new(place("path_chooser"), message).hint("`Modules::steered` does that"));
        };
        return Ok(chosen(made.map_err(|message| chooser_refused(source, chooser, &message))?, true));
    }
    let Some(known) = TransportChoice::by_name(name) else {
        let own = modules.transports().map(|(name, _)| name);
        let known: Vec<&str> = own.chain(TransportChoice::NAMES).collect();
        return Err(unknown(place("transport"), "transport", name, &known));
    };
    let known = tuned(known, &network.parameters, name).map_err(|Refused { key, message, hint }| {
        let refused = InputError::new(place(&format!("parameters.{key}")), message);
        match hint {
            Some(hint) => refused.hint(hint),
            None => refused,
        }
    })?;
    let known = known.patient(timeout(network, source)?);
    let known = configured(known, network)
        .map_err(|message| InputError::new(place("recovery"), format!("`{name}` {message}")))?;
    if let Some(stage) = stage(assembled, source)? {
        let made = modules.make_staged(&known, &stage.name, &stage.parameters);
        let made = made.expect("`stage` has found its name");
        return Ok(chosen(made.map_err(|message| stage_refused(source, stage, &message))?, false));
    }
    let Some(chooser) = chooser(assembled, source)? else {
        return Ok(chosen(Arc::new(known), false));
    };
    let made = modules.make_steered(&known, &chooser.name, &chooser.parameters);
    let made = made.expect("`chooser` has found its name");
    Ok(chosen(made.map_err(|message| chooser_refused(source, chooser, &message))?, false))
}

/// What chooses path numbers instead of taking them in turn; its name is registered.
fn chooser<'a>(assembled: &'a Assembled, source: &str) -> Result<Option<&'a PathChooser>, InputError> {
    let network = &assembled.scenario.network;
    let Some(chooser) = &network.path_chooser else { return Ok(None) };
    let place = format!("{source}: network.path_chooser");
    let known: Vec<&str> = assembled.modules.path_choosers().map(|(name, _)| name).collect();
    if known.is_empty() {
        let message = format!("no path chooser `{}`: this program brings none along", chooser.name);
        return Err(InputError::new(place, message).hint("`examples/own-transport` shows how to"));
    }
    if !known.contains(&chooser.name.as_str()) {
        return Err(unknown(place, "path chooser", &chooser.name, &known));
    }
    if network.load_balancer != LoadBalancerName::Spray {
        let message = format!("`{}` chooses paths where packets are sprayed", chooser.name);
        return Err(InputError::new(place, message).hint("set `load_balancer: spray`"));
    }
    Ok(Some(chooser))
}

/// The stage of switches that the scenario names; its name is registered.
fn stage<'a>(assembled: &'a Assembled, source: &str) -> Result<Option<&'a StageModule>, InputError> {
    let network = &assembled.scenario.network;
    let Some(stage) = &network.stage else { return Ok(None) };
    let place = format!("{source}: network.stage");
    let known: Vec<&str> = assembled.modules.stages().map(|(name, _)| name).collect();
    if known.is_empty() {
        let message = format!("no stage of switches `{}`: this program brings none along", stage.name);
        return Err(InputError::new(place, message).hint("`examples/own-transport` shows how to"));
    }
    if !known.contains(&stage.name.as_str()) {
        return Err(unknown(place, "stage of switches", &stage.name, &known));
    }
    if network.path_chooser.is_some() {
        let message =
            format!("`{}` cannot go with a `path_chooser`: both are compiled into the transport", stage.name);
        return Err(InputError::new(place, message).hint("leave one of them out"));
    }
    Ok(Some(stage))
}

fn stage_refused(source: &str, stage: &StageModule, message: &str) -> InputError {
    InputError::new(format!("{source}: network.stage"), format!("`{}`: {message}", stage.name))
}

fn chooser_refused(source: &str, chooser: &PathChooser, message: &str) -> InputError {
    InputError::new(format!("{source}: network.path_chooser"), format!("`{}`: {message}", chooser.name))
}

/// The least time-out that the scenario names.
fn timeout(network: &Network, source: &str) -> Result<Option<Span>, InputError> {
    let Some(timeout) = network.timeout else { return Ok(None) };
    if timeout.0 == Span::ZERO {
        return Err(InputError::new(format!("{source}: network.timeout"), "expected more than 0"));
    }
    Ok(Some(timeout.0))
}

fn unknown(place: String, what: &str, name: &str, known: &[&str]) -> InputError {
    let error = InputError::new(place, format!("no {what} `{name}`"));
    match nearest(name, known.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("expected `{}`", known.join("`, `"))),
    }
}

/// A transport of ours with the scenario's keys; what is wrong with them.
fn configured(known: TransportChoice, network: &Network) -> Result<TransportChoice, &'static str> {
    let known = match known {
        TransportChoice::None(none) => TransportChoice::None(NoTransport {
            window: network.window.map_or(u64::MAX, |window| window.0.0),
            ..none
        }),
        other => other,
    };
    let Some(name) = network.recovery else { return Ok(known) };
    // Packets that spread come in any order, within the reach of MP-RDMA's bitmap.
    let spreads =
        !matches!(network.load_balancer, LoadBalancerName::Ecmp | LoadBalancerName::DestinationModulo);
    let recovery = match name {
        RecoveryName::Selective => Recovery::Selective { reorder: if spreads { 64 } else { 3 } },
        RecoveryName::GoBackN => Recovery::GoBackN,
    };
    match known {
        TransportChoice::Dctcp(dctcp) => Ok(TransportChoice::Dctcp(Dctcp { recovery, ..dctcp })),
        TransportChoice::Dcqcn(dcqcn) => Ok(TransportChoice::Dcqcn(Dcqcn { recovery, ..dcqcn })),
        TransportChoice::Hpcc(hpcc) => Ok(TransportChoice::Hpcc(Hpcc { recovery, ..hpcc })),
        TransportChoice::Swift(swift) => Ok(TransportChoice::Swift(Swift { recovery, ..swift })),
        _ => Err("mends losses in its own way: expected `dctcp`, `dcqcn`, `hpcc` or `swift` with this key"),
    }
}
