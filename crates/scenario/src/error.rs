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

impl InputError {
    /// An error at `place`.
    pub fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), message: message.into(), hint: None }
    }

    /// With a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
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
            Some(hint) => write!(f, "\n\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for InputError {}

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
    fn slips_find_their_name_and_strangers_none() {
        let known = ["fidelity", "topology", "jobs"];
        assert_eq!(nearest("fidelty", known), Some("fidelity"));
        assert_eq!(nearest("Topolgy", known), Some("topology"));
        assert_eq!(nearest("weather", known), None);
    }
}
