//! The transport of a scenario: one of ours or one that the program brings along, and the modules that go with it.

use std::sync::Arc;

use windtunnel_fabric::balancers::{ADAPTIVE, SPRAY};
use windtunnel_fabric::packet::TransportChoice;
use windtunnel_fabric::packet::transport::{NoTransport, Recovery};
use windtunnel_kernel::Span;
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_plan::modules::{self, Kind, Modules, Names, Written};
use windtunnel_plan::network_plan::Chosen;

use super::parameters::{Refused, tuned};
use super::recovery;
use crate::schema::{Module, Network};

/// The transport of a scenario that names none.
pub const DEFAULT: &str = "dctcp";

/// The transport whose law sends, by name: what `network.congestion` or `network.transport` says.
pub fn law_of(network: &Network) -> &str {
    let Some(law) = network.congestion.as_deref() else {
        return network.transport.as_deref().unwrap_or(DEFAULT);
    };
    let laws = TransportChoice::LAWS.into_iter().zip(TransportChoice::NAMES);
    laws.into_iter().find(|(known, _)| *known == law).map_or(law, |(_, name)| name)
}

/// Finds the transport that the scenario names, among the program's own and ours.
///
/// # Errors
/// [`InputError`] for unknown names, with the nearest right one, and parameters that are refused.
pub fn transport(network: &Network, modules: &Modules, source: &str) -> Result<Chosen, InputError> {
    let place = |key: &str| format!("{source}: network.{key}");
    let asked_for = network.transport.as_deref().unwrap_or(DEFAULT);
    let name = law_of(network);
    if network.window.is_some() && name != "none" {
        let message = format!("`{name}` sets its own window: expected `congestion: none` with this key");
        return Err(InputError::new(place("window"), message).hint("leave `network.window` out"));
    }
    let chosen = |of, recovery: Option<Recovery>| Chosen {
        name: name.to_owned(),
        recovery,
        of,
        own: recovery.is_none(),
    };
    let refused = |refused: modules::Refused| match refused.kind {
        None => InputError::new(place("parameters"), format!("`{name}`: {}", refused.message)),
        Some(kind) => {
            let module = asked(network, kind).map_or("", |module| module.name.as_str());
            InputError::new(place(kind.key()), format!("`{module}`: {}", refused.message))
        }
    };
    if let Some(made) = modules.make_transport(asked_for, &network.parameters) {
        let keys = [("congestion", network.congestion.is_some()), ("recovery", network.recovery.is_some())];
        if let Some((key, _)) = keys.into_iter().find(|&(_, given)| given) {
            let message =
                format!("`{asked_for}` is the program's own, which has a law and a recovery of its own");
            return Err(InputError::new(place(key), message).hint("leave one of both keys out"));
        }
        if network.timeout.is_some() {
            let message =
                format!("`{name}` is the program's own, which takes what it needs from `parameters`");
            return Err(InputError::new(place("timeout"), message));
        }
        let transport = made.map_err(refused)?;
        let Some(found) = Found::of(network, modules, source)? else { return Ok(chosen(transport, None)) };
        let made = modules.make_with((name, &network.parameters), found.names, &found.written);
        let Some(made) = made else {
            let message = format!("{} not registered together with `{name}`", found.are());
            return Err(InputError::new(place(found.first()), message).hint("`Modules::with` does that"));
        };
        return Ok(chosen(made.map_err(refused)?, None));
    }
    let Some(whole) = TransportChoice::by_name(asked_for) else {
        let own = modules.transports().map(|(name, _)| name);
        let known: Vec<&str> = own.chain(TransportChoice::NAMES).collect();
        return Err(unknown(place("transport"), "transport", asked_for, &known));
    };
    let known = match network.congestion.as_deref() {
        None => whole.clone(),
        Some(law) => TransportChoice::by_law(law)
            .ok_or_else(|| unknown(place("congestion"), "congestion law", law, &TransportChoice::LAWS))?,
    };
    // A law on its own is mended as its own transport is.
    let usual = if network.transport.is_some() { whole.recovery() } else { known.recovery() };
    let known = known.mending(recovery::usual(usual, network));
    let known = tuned(known, &network.parameters, name).map_err(|Refused { key, message, hint }| {
        let refused = InputError::new(place(&format!("parameters.{key}")), message);
        match hint {
            Some(hint) => refused.hint(hint),
            None => refused,
        }
    })?;
    let known = known.patient(timeout(network, source)?);
    let known = recovery::mending(windowed(known, network), usual, network).map_err(|(key, refused)| {
        let error = InputError::new(place(key), refused.message);
        match refused.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    })?;
    let mends = Some(known.recovery());
    let Some(found) = Found::of(network, modules, source)? else { return Ok(chosen(Arc::new(known), mends)) };
    let Some(made) = modules.make_over(&known, found.names, &found.written) else {
        let message = format!("{} not registered together with the built-in transports", found.are());
        return Err(InputError::new(place(found.first()), message).hint("`Modules::together` does that"));
    };
    Ok(chosen(made.map_err(refused)?, mends))
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
    fn of(network: &'a Network, modules: &Modules, source: &str) -> Result<Option<Self>, InputError> {
        let mut found =
            Self { names: [None; Kind::ALL.len()], written: [&network.parameters; Kind::ALL.len()] };
        for kind in Kind::ALL {
            let Some(module) = asked(network, kind) else { continue };
            let place = format!("{source}: network.{}", kind.key());
            let name = module.name.as_str();
            let (what, needs) = match kind {
                Kind::PathChooser => {
                    ("path chooser", Some((&SPRAY, "chooses paths where packets are sprayed")))
                }
                Kind::Stage => ("stage of switches", None),
                Kind::SwitchBalancer => {
                    ("balancer of switches", Some((&ADAPTIVE, "chooses where switches do, packet by packet")))
                }
            };
            let known: Vec<&str> = modules.of(kind).map(|(name, _)| name).collect();
            if known.is_empty() {
                let message = format!("no {what} `{name}`: this program brings none along");
                return Err(InputError::new(place, message).hint("`examples/own-transport` shows how to"));
            }
            if !known.contains(&name) {
                return Err(unknown(place, what, name, &known));
            }
            if let Some((balancer, does)) = needs
                && network.load_balancer.of != balancer
            {
                let message = format!("`{name}` {does}");
                return Err(InputError::new(place, message)
                    .hint(format!("set `load_balancer: {}`", balancer.entry.name)));
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

/// A transport of ours with the scenario's window.
fn windowed(known: TransportChoice, network: &Network) -> TransportChoice {
    match known {
        TransportChoice::None(none) => TransportChoice::None(NoTransport {
            window: network.window.map_or(u64::MAX, |window| window.0.get()),
            ..none
        }),
        other => other,
    }
}
