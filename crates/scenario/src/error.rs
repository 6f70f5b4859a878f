//! What is wrong with a scenario, as data; rendered once, by [`InputError`]'s `Display`.

use std::fmt;

/// Bad input: where, what was found, what was expected, and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputError {
    /// `file:line:column`, or `file: path.of.the.key`, or just the file; empty if the message carries it.
    pub place: String,
    /// What was found and what was expected.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// What stands between a message and its hint.
const HINT: &str = "\n\nhint: ";

impl InputError {
    /// An error at `place`. A message rendered by another crate may end in a hint of its own (`\n\nhint: …`), which is
    /// taken as this one's.
    pub fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        let mut message = message.into();
        let hint = message.find(HINT).map(|start| message.split_off(start)[HINT.len()..].to_owned());
        Self { place: place.into(), message, hint }
    }

    /// With a hint, unless it has one already: who found the fault knows it best.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        write!(f, "{}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "{HINT}{hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for InputError {}

/// Why something did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The input is at fault; exit status 2.
    Input(InputError),
    /// The run is; exit status 1.
    Run(String),
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

impl From<windtunnel_cluster::cluster::ClusterError> for Failure {
    /// A job that fits nowhere is the input's fault, and so is a decision that makes no sense: only a scheduler or
    /// placement of the user's own makes one.
    fn from(error: windtunnel_cluster::cluster::ClusterError) -> Self {
        use windtunnel_cluster::cluster::ClusterError as E;
        match error {
            E::NoRoom { .. } => {
                let hint = "loosen `locality`, or have fewer `cluster.regions`";
                Self::Input(InputError::new("jobs", error.to_string()).hint(hint))
            }
            E::Hopeless { .. } | E::NoData { .. } | E::Starved { .. } => Self::Run(error.to_string()),
            E::Policy(_) => Self::Input(InputError::new("", error.to_string())),
            E::GivenTaken { .. } | E::GivenCount { .. } => {
                Self::Input(InputError::new("--placement", error.to_string()))
            }
            E::NotWaiting { .. }
            | E::NotRunning { .. }
            | E::NoRegion { .. }
            | E::Taken { .. }
            | E::WrongCount { .. } => Self::Input(InputError::new("--scheduler", error.to_string())),
        }
    }
}

/// The name of `known` nearest to `found` by edit distance, if near enough to be a slip.
pub fn nearest<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (found.chars().count() / 3).max(1) + 1;
    known
        .into_iter()
        .map(|name| (edit_distance(found, name), name))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, name)| name)
}

/// Levenshtein distance, letters compared without case.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let substitution = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substitution.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_one_hint_the_first() {
        let error = InputError::new("a.yaml: jobs", "found 3\n\nhint: try 4").hint("try 5");
        assert_eq!(error.to_string(), "a.yaml: jobs: found 3\n\nhint: try 4");
        assert_eq!(InputError::new("", "found 3").hint("try 5").to_string(), "found 3\n\nhint: try 5");
    }

    #[test]
    fn slips_find_their_name_and_strangers_none() {
        let known = ["fidelity", "topology", "jobs"];
        assert_eq!(nearest("fidelty", known), Some("fidelity"));
        assert_eq!(nearest("Topolgy", known), Some("topology"));
        assert_eq!(nearest("weather", known), None);
    }
}
