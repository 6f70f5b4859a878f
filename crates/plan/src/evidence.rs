//! Which constants a result rests on, and how each is known.

use serde::Serialize;
use windtunnel_workload::model::figure::Evidence;

/// One constant class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EvidenceRow {
    /// What.
    pub constant: String,
    /// `measured`, `calibrated`, `data sheet`, `inferred` or, of what is no constant, `given` (by the scenario).
    pub kind: String,
    /// Where it is from.
    pub source: String,
}

/// The evidence of a run, in the order in which constants were used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvidenceList {
    rows: Vec<EvidenceRow>,
}

impl EvidenceList {
    /// Adds a constant class; the same one twice counts once.
    pub fn add(&mut self, constant: &str, kind: &str, source: &str) {
        let row =
            EvidenceRow { constant: constant.to_owned(), kind: kind.to_owned(), source: source.to_owned() };
        if !self.rows.contains(&row) {
            self.rows.push(row);
        }
    }

    /// Adds the figures of a sheet.
    pub fn sheet(&mut self, of: &str, figures: Vec<(String, Evidence, &str)>) {
        for (key, kind, source) in figures {
            self.add(&format!("{of}: {key}"), kind.name(), source);
        }
    }

    /// The rows.
    pub fn rows(&self) -> &[EvidenceRow] {
        &self.rows
    }
}
