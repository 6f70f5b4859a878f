//! The transport of a scenario: one of ours or one that the program brings along, and the modules that go with it.

use std::sync::Arc;

use windtunnel_fabric::packet::transport::{Dcqcn, Dctcp, Hpcc, NoTransport, Recovery, Swift};
use windtunnel_fabric::packet::{NetworkOf, TransportChoice};
use windtunnel_kernel::Span;

use super::parameters::{Refused, tuned};
use crate::assemble::Assembled;
use crate::error::{InputError, nearest};
use crate::modules::{self, Kind, Names, Written};
use crate::schema::{LoadBalancerName, Module, Network, RecoveryName};

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
    let chosen = |of, own| Chosen { name: name.to_owned(), of, own };
    let refused = |refused: modules::Refused| match refused.kind {
        None => InputError::new(place("parameters"), format!("`{name}`: {}", refused.message)),
        Some(kind) => {
            let module = asked(network, kind).map_or("", |module| module.name.as_str());
            InputError::new(place(kind.key()), format!("`{module}`: {}", refused.message))
        }
    };
    if let Some(made) = modules.make_transport(name, &network.parameters) {
        if network.timeout.is_some() {
            let message =
                format!("`{name}` is the program's own, which takes what it needs from `parameters`");
            return Err(InputError::new(place("timeout"), message));
        }
        let transport = made.map_err(refused)?;
        let Some(found) = Found::of(assembled, source)? else { return Ok(chosen(transport, true)) };
        let made = modules.make_with((name, &network.parameters), found.names, &found.written);
        let Some(made) = made else {
            let message = format!("{} not registered together with `{name}`", found.are());
            return Err(InputError::new(place(found.first()), message).hint("`Modules::with` does that"));
        };
        return Ok(chosen(made.map_err(refused)?, true));
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
    let Some(found) = Found::of(assembled, source)? else { return Ok(chosen(Arc::new(known), false)) };
    let Some(made) = modules.make_over(&known, found.names, &found.written) else {
        let message = format!("{} not registered together with the built-in transports", found.are());
        return Err(InputError::new(place(found.first()), message).hint("`Modules::together` does that"));
    };
    Ok(chosen(made.map_err(refused)?, false))
}

/// Modules that go with the transport: their names are registered.
struct Found<'a> {
    names: Names<'a>,
    written: Written<'a>,
}

/// The module of a kind that a scenario names.
fn asked(network: &Network, kind: Kind) -> Option<&Module> {
    match kind {
        Kind::PathChooser => network.path_chooser.as_ref(),
        Kind::Stage => network.stage.as_ref(),
        Kind::SwitchBalancer => network.switch_balancer.as_ref(),
    }
}

impl<'a> Found<'a> {
    /// What the scenario names; `None` if that is nothing.
    fn of(assembled: &'a Assembled, source: &str) -> Result<Option<Self>, InputError> {
        let network = &assembled.scenario.network;
        let mut found =
            Self { names: [None; Kind::ALL.len()], written: [&network.parameters; Kind::ALL.len()] };
        for kind in Kind::ALL {
            let Some(module) = asked(network, kind) else { continue };
            let place = format!("{source}: network.{}", kind.key());
            let name = module.name.as_str();
            let (what, needs) = match kind {
                Kind::PathChooser => {
                    let spray = (LoadBalancerName::Spray, "spray", "chooses paths where packets are sprayed");
                    ("path chooser", Some(spray))
                }
                Kind::Stage => ("stage of switches", None),
                Kind::SwitchBalancer => {
                    let adaptive = (
                        LoadBalancerName::Adaptive,
                        "adaptive",
                        "chooses where switches do, packet by packet",
                    );
                    ("balancer of switches", Some(adaptive))
                }
            };
            let known: Vec<&str> = assembled.modules.of(kind).map(|(name, _)| name).collect();
            if known.is_empty() {
                let message = format!("no {what} `{name}`: this program brings none along");
                return Err(InputError::new(place, message).hint("`examples/own-transport` shows how to"));
            }
            if !known.contains(&name) {
                return Err(unknown(place, what, name, &known));
            }
            if let Some((balancer, key, does)) = needs
                && network.load_balancer.name != balancer
            {
                let message = format!("`{name}` {does}");
                return Err(InputError::new(place, message).hint(format!("set `load_balancer: {key}`")));
            }
            found.names[kind as usize] = Some(name);
            found.written[kind as usize] = &module.parameters;
        }
        Ok(found.names.iter().any(Option::is_some).then_some(found))
    }

    /// The key of the first.
    fn first(&self) -> &'static str {
        let first = Kind::ALL.into_iter().find(|&kind| self.names[kind as usize].is_some());
        first.map_or("transport", Kind::key)
    }

    /// Their names, as the beginning of a sentence.
    fn are(&self) -> String {
        let names: Vec<&str> = self.names.iter().copied().flatten().collect();
        let verb = if names.len() == 1 { "is" } else { "are" };
        format!("`{}` {verb}", names.join("` and `"))
    }
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
        !matches!(network.load_balancer.name, LoadBalancerName::Ecmp | LoadBalancerName::DestinationModulo);
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
