//! `network.parameters` for the transports that are built in: what a transport calls its constants, and what they may be.
//!
//! Windows count in bandwidth–delay products of the idle path unless a key says packets, rates in shares of the line rate;
//! times carry units. `docs/transports.md` says what each does.

use serde_json::Value;
use windtunnel_fabric::packet::TransportChoice;
use windtunnel_fabric::packet::transport::Recovery;
use windtunnel_kernel::Span;
use windtunnel_kernel::units::{Dimension, parse_quantity};
use windtunnel_plan::error::nearest;
use windtunnel_plan::modules::Parameters;

/// What is wrong with a parameter: its key, what was found and expected, a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The key.
    pub key: String,
    /// In words.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

/// Numbers from the first on, up to the second; the first itself only where zero makes sense.
#[derive(Clone, Copy)]
enum Range {
    /// 0 < x ≤ 1.
    Part,
    /// 0 < x.
    Positive,
    /// 0 ≤ x.
    Any,
}

/// Reads keys into the places they stand for, and knows in the end which were left over.
struct Reader<'a> {
    given: &'a Parameters,
    known: Vec<&'static str>,
    refused: Option<Refused>,
}

impl Reader<'_> {
    fn find(&mut self, key: &'static str) -> Option<&Value> {
        self.known.push(key);
        self.given.get(key)
    }

    fn refuse(&mut self, key: &str, found: &Value, expected: &str) {
        let message = format!("expected {expected}, found {found}");
        self.refused.get_or_insert(Refused { key: key.to_owned(), message, hint: None });
    }

    fn number(&mut self, key: &'static str, range: Range, place: &mut f64) {
        let Some(found) = self.find(key).cloned() else { return };
        let (fits, expected): (fn(f64) -> bool, _) = match range {
            Range::Part => (|x| x > 0.0 && x <= 1.0, "a number above 0, at most 1"),
            Range::Positive => (|x| x > 0.0, "a number above 0"),
            Range::Any => (|x| x >= 0.0, "a number from 0 on"),
        };
        match found.as_f64().filter(|&x| fits(x)) {
            Some(value) => *place = value,
            None => self.refuse(key, &found, expected),
        }
    }

    fn count(&mut self, key: &'static str, place: &mut u32) {
        let Some(found) = self.find(key).cloned() else { return };
        match found.as_u64().and_then(|count| u32::try_from(count).ok()).filter(|&count| count > 0) {
            Some(count) => *place = count,
            None => self.refuse(key, &found, "a whole number from 1 on"),
        }
    }

    fn flag(&mut self, key: &'static str, place: &mut bool) {
        let Some(found) = self.find(key).cloned() else { return };
        match found.as_bool() {
            Some(value) => *place = value,
            None => self.refuse(key, &found, "`true` or `false`"),
        }
    }

    fn packets(&mut self, key: &'static str, place: &mut Option<u32>) {
        let mut count = place.unwrap_or(0);
        self.count(key, &mut count);
        if count > 0 {
            *place = Some(count);
        }
    }

    fn time(&mut self, key: &'static str, place: &mut Span) {
        let Some(found) = self.find(key).cloned() else { return };
        let read = found.as_str().and_then(|text| parse_quantity(text, Dimension::Time).ok());
        match read.filter(|&span| span > 0) {
            Some(span) => *place = Span(span),
            None => self.refuse(key, &found, "a time with a unit, such as `55 us`"),
        }
    }

    fn end(self, name: &str) -> Result<(), Refused> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let Some(key) = self.given.keys().find(|key| !self.known.contains(&key.as_str())) else {
            return Ok(());
        };
        let hint = match (nearest(key, self.known.iter().copied()), self.known.is_empty()) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, true) => "`network.window` limits it".to_owned(),
            (None, false) => format!("expected `{}`", self.known.join("`, `")),
        };
        let message = format!("`{name}` has no such parameter");
        Err(Refused { key: key.clone(), message, hint: Some(hint) })
    }
}

/// A transport with the parameters of a scenario in place of its own.
///
/// # Errors
/// [`Refused`] for a key that this transport does not have or a value that makes no sense for it.
pub fn tuned(
    mut transport: TransportChoice,
    given: &Parameters,
    name: &str,
) -> Result<TransportChoice, Refused> {
    use Range::{Any, Part, Positive};
    let mut read = Reader { given, known: Vec::new(), refused: None };
    match &mut transport {
        TransportChoice::None(_) => {}
        TransportChoice::Dcqcn(dcqcn) => {
            read.time("cnp_interval", &mut dcqcn.cnp_interval);
            read.time("alpha_interval", &mut dcqcn.alpha_interval);
            read.time("increase_timer", &mut dcqcn.increase_timer);
            read.time("byte_counter", &mut dcqcn.byte_counter);
            read.number("g", Part, &mut dcqcn.gain);
            read.count("f", &mut dcqcn.stages);
            read.number("r_ai", Part, &mut dcqcn.additive);
            read.number("r_hai", Part, &mut dcqcn.hyper);
            read.number("min_rate", Part, &mut dcqcn.least);
            read.flag("clamp_target", &mut dcqcn.clamp_target);
            read.number("max_window", Positive, &mut dcqcn.window);
        }
        TransportChoice::Dctcp(dctcp) => {
            read.number("g", Part, &mut dctcp.gain);
            read.number("initial_window", Positive, &mut dctcp.initial);
            read.number("max_window", Positive, &mut dctcp.largest);
        }
        TransportChoice::Swift(swift) => {
            read.number("ai", Positive, &mut swift.increase);
            read.number("beta", Part, &mut swift.beta);
            read.number("max_mdf", Part, &mut swift.max_decrease);
            read.number("base_target", Positive, &mut swift.base);
            read.number("hop_scaling", Any, &mut swift.per_hop);
            read.number("fs_range", Any, &mut swift.range);
            read.number("fs_min_window", Positive, &mut swift.scaled[0]);
            read.number("fs_max_window", Positive, &mut swift.scaled[1]);
            read.number("min_window", Part, &mut swift.least);
            read.number("initial_window", Positive, &mut swift.initial);
            read.number("max_window", Positive, &mut swift.largest);
            if swift.scaled[0] >= swift.scaled[1] {
                let message = format!("expected less than `fs_max_window`: {}", swift.scaled[1]);
                let key = "fs_min_window".to_owned();
                read.refused.get_or_insert(Refused { key, message, hint: None });
            }
        }
        TransportChoice::NewReno(newreno) => {
            read.count("initial_packets", &mut newreno.initial);
            read.number("max_window", Positive, &mut newreno.largest);
        }
        TransportChoice::Cubic(cubic) => {
            read.number("c", Positive, &mut cubic.c);
            read.number("beta", Part, &mut cubic.beta);
            read.count("initial_packets", &mut cubic.initial);
            read.number("max_window", Positive, &mut cubic.largest);
        }
        TransportChoice::MpRdma(mprdma) => {
            read.number("initial_window", Positive, &mut mprdma.initial);
            read.number("max_window", Positive, &mut mprdma.largest);
        }
        TransportChoice::Uec(nscc) => {
            read.number("max_window", Positive, &mut nscc.largest);
            read.number("target_delay", Positive, &mut nscc.target);
        }
        TransportChoice::Rccc(rccc) => {
            read.number("initial_window", Positive, &mut rccc.largest);
            read.count("grant_packets", &mut rccc.packets);
            read.number("credit_rate", Part, &mut rccc.share);
        }
        TransportChoice::Hpcc(hpcc) => {
            read.number("eta", Part, &mut hpcc.target);
            read.count("max_stage", &mut hpcc.stages);
            read.number("flows", Positive, &mut hpcc.flows);
        }
        TransportChoice::Ndp(ndp) => {
            read.number("initial_window", Positive, &mut ndp.initial);
            read.packets("initial_packets", &mut ndp.packets);
            read.number("pull_rate", Part, &mut ndp.share);
        }
        TransportChoice::Eqds(eqds) => {
            read.number("initial_window", Positive, &mut eqds.largest);
            read.packets("initial_packets", &mut eqds.packets);
            read.number("credit_rate", Part, &mut eqds.share);
        }
    }
    let mut reorder = None;
    if !matches!(transport, TransportChoice::None(_)) {
        read.packets("reorder", &mut reorder);
    }
    read.end(name)?;
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

    /// Every law takes the packets that show a loss.
    #[test]
    fn every_law_counts_packets() {
        for name in TransportChoice::NAMES.into_iter().filter(|&name| name != "none") {
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
