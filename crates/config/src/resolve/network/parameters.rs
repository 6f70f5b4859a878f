//! `network.parameters` for the transports that are built in: from what a scenario writes to the constants. Their keys, and what they may
//! be, stand with each transport ([`BuiltIn`](windtunnel_fabric::packet::transport::BuiltIn)).

use serde_json::Value;
use windtunnel_fabric::packet::TransportChoice;
use windtunnel_fabric::packet::transport::{Place, Recovery, Unfit};
use windtunnel_kernel::Span;
use windtunnel_kernel::units::{Dimension, parse_quantity};
use windtunnel_plan::error::nearest;
use windtunnel_plan::modules::Parameters;

/// What is wrong with a parameter: its key, what was found and expected, a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// The key.
    pub key: String,
    /// In words.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

/// Puts a value that a scenario writes where a parameter is kept; what is no such value is given back with what was expected.
fn put(found: &Value, place: Place<'_>) -> Result<(), &'static str> {
    let expected = place.expected();
    let number = |fits: fn(f64) -> bool| found.as_f64().filter(|&x| fits(x)).ok_or(expected);
    let count = || found.as_u64().and_then(|count| u32::try_from(count).ok()).filter(|&count| count > 0);
    match place {
        Place::Part(kept) => *kept = number(|x| x > 0.0 && x <= 1.0)?,
        Place::Positive(kept) => *kept = number(|x| x > 0.0)?,
        Place::Any(kept) => *kept = number(|x| x >= 0.0)?,
        Place::Count(kept) => *kept = count().ok_or(expected)?,
        Place::Packets(kept) => *kept = Some(count().ok_or(expected)?),
        Place::Flag(kept) => *kept = found.as_bool().ok_or(expected)?,
        Place::Word(kept) => {
            let place = kept.of.iter().position(|word| found.as_str() == Some(word));
            kept.at = place.ok_or(expected)?;
        }
        Place::Time(kept) => {
            let read = found.as_str().and_then(|text| parse_quantity(text, Dimension::Time).ok());
            *kept = Span::from_ps(read.filter(|&span| span > 0).ok_or(expected)?);
        }
        Place::Given(kept) => {
            let mut span = Span::ZERO;
            put(found, Place::Time(&mut span))?;
            *kept = Some(span);
        }
    }
    Ok(())
}

/// The parameter of all transports but the one that mends nothing: later packets that show a loss.
const REORDER: &str = "reorder";

/// A transport with the parameters of a scenario in place of its own.
///
/// # Errors
/// [`Refused`] for a key that this transport does not have or a value that makes no sense for it.
pub(super) fn tuned(
    mut transport: TransportChoice,
    given: &Parameters,
    name: &str,
) -> Result<TransportChoice, Refused> {
    let refused = |key: &str, found: &Value, expected: &str| {
        let message = format!("expected {expected}, found {found}");
        Refused { key: key.to_owned(), message, hint: None }
    };
    let mut known: Vec<&str> = transport.parameters().iter().map(|parameter| parameter.key).collect();
    for &key in &known {
        if let (Some(found), Some(place)) = (given.get(key), transport.place(key)) {
            put(found, place).map_err(|expected| refused(key, found, expected))?;
        }
    }
    transport.check_parameters().map_err(|Unfit { key, message }| Refused {
        key: key.to_owned(),
        message,
        hint: None,
    })?;
    let mut reorder = None;
    if !matches!(transport, TransportChoice::None(_)) && !transport.is_dispatched() {
        known.push(REORDER);
        if let Some(found) = given.get(REORDER) {
            put(found, Place::Packets(&mut reorder)).map_err(|expected| refused(REORDER, found, expected))?;
        }
    }
    if let Some(key) = given.keys().find(|key| !known.contains(&key.as_str())) {
        let hint = match (nearest(key, known.iter().copied()), known.is_empty()) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, true) => "`network.window` limits it".to_owned(),
            (None, false) => format!("expected `{}`", known.join("`, `")),
        };
        let message = format!("`{name}` has no such parameter");
        return Err(Refused { key: key.clone(), message, hint: Some(hint) });
    }
    Ok(match reorder {
        Some(reorder) => transport.mending(Recovery::Selective { reorder }),
        None => transport,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tune(name: &str, given: &Value) -> Result<TransportChoice, Refused> {
        let transport = TransportChoice::by_name(name).expect("a transport");
        tuned(transport, given.as_object().expect("a record"), name)
    }

    #[test]
    fn keys_reach_the_constants_that_they_name() {
        let given = json!({"g": 0.0625, "alpha_interval": "1 ms", "f": 1, "r_ai": 0.01});
        let TransportChoice::Dcqcn(dcqcn) = tune("dcqcn", &given).expect("parameters") else {
            panic!("another transport")
        };
        assert_eq!((dcqcn.gain, dcqcn.alpha_interval, dcqcn.stages), (0.0625, Span::from_us(1_000), 1));
        assert_eq!(dcqcn.additive, 0.01);
        let TransportChoice::Ndp(ndp) = tune("ndp", &json!({"initial_packets": 150})).expect("parameters")
        else {
            panic!("another transport")
        };
        assert_eq!(ndp.packets, Some(150));
    }

    #[test]
    fn every_transport_keeps_its_own_where_nothing_is_given() {
        for name in TransportChoice::NAMES {
            let known = TransportChoice::by_name(name).expect("a transport");
            assert_eq!(format!("{:?}", tune(name, &json!({})).expect("nothing")), format!("{known:?}"));
        }
    }

    /// Every law takes the packets that show a loss; what schedules whole NIC ports recovers by rules of its own.
    #[test]
    fn every_law_counts_packets() {
        const OWN: [&str; 7] = ["dcsim", "phost", "pfabric", "dcpim", "homa", "expresspass", "sird"];
        for name in TransportChoice::NAMES.into_iter().filter(|&name| name != "none") {
            if OWN.contains(&name) {
                assert_eq!(tune(name, &json!({"reorder": 17})).expect_err("refused").key, "reorder");
                continue;
            }
            let found = tune(name, &json!({"reorder": 17})).expect("a count");
            assert_eq!(found.recovery(), Recovery::Selective { reorder: 17 }, "{name}");
            assert_eq!(tune(name, &json!({"reorder": 0})).expect_err("refused").key, "reorder");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_key() {
        let refused = |name, given| tune(name, &given).expect_err("refused");
        let error = refused("dctcp", json!({"g": 2}));
        assert_eq!(error.message, "expected a number above 0, at most 1, found 2");
        let error = refused("dcqcn", json!({"cnp_interval": 50}));
        assert_eq!(error.message, "expected a time with a unit, such as `55 us`, found 50");
        let error = refused("uec", json!({"target_dealy": 1}));
        assert_eq!(error.hint.as_deref(), Some("did you mean `target_delay`?"));
        let error = refused("hpcc", json!({"max_stage": 0}));
        assert_eq!(error.key, "max_stage");
        assert_eq!(refused("none", json!({"window": 1})).hint.as_deref(), Some("`network.window` limits it"));
        let error = refused("swift", json!({"fs_min_window": 200}));
        assert_eq!(error.message, "expected less than `fs_max_window`: 100");
    }
}
