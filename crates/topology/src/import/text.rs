//! Lines, words and numbers with their places.

use windtunnel_kernel::units::{Dimension, parse_quantity};
use windtunnel_kernel::{BitRate, Span};

use crate::graph::{GraphError, GraphProblem, Place};

/// A word and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    pub(super) place: Place,
}

/// A line without its comment, and its number from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) number: u32,
    pub(super) text: &'a str,
}

impl<'a> Line<'a> {
    pub(super) fn words(self) -> impl Iterator<Item = Word<'a>> {
        self.split(char::is_whitespace)
    }

    /// The non-empty pieces between separators.
    pub(super) fn split(self, separator: fn(char) -> bool) -> impl Iterator<Item = Word<'a>> {
        let pieces = self.text.split(separator).filter(|piece| !piece.is_empty());
        pieces.map(move |text| Word { text, place: self.place_of(text) })
    }

    /// Where `part`, a slice of this line, stands.
    pub(super) fn place_of(self, part: &str) -> Place {
        let offset = part.as_ptr() as usize - self.text.as_ptr() as usize;
        Place::Line { line: self.number, column: self.text[..offset].chars().count() as u32 + 1 }
    }

    pub(super) fn place(self) -> Place {
        Place::Line { line: self.number, column: 0 }
    }
}

/// The lines that say something: without what follows `#`, and without blank ones.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    raw_lines(text)
        .map(|line| Line { text: line.text.split('#').next().unwrap_or("").trim_end(), ..line })
        .filter(|line| !line.text.trim().is_empty())
}

/// All lines as they are.
pub(super) fn raw_lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.lines().enumerate().map(|(index, text)| Line { number: index as u32 + 1, text })
}

/// Fails at a place of one file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
}

impl Source<'_> {
    pub(super) fn fail(self, place: Place, problem: GraphProblem) -> GraphError {
        GraphError::new(self.file, place, problem)
    }

    pub(super) fn syntax(self, place: Place, expected: &str, found: &str) -> GraphError {
        let problem = GraphProblem::Syntax { expected: expected.to_owned(), found: found.to_owned() };
        self.fail(place, problem)
    }

    /// A whole number of at most 32 bits.
    pub(super) fn whole(self, key: &str, word: Word<'_>) -> Result<u32, GraphError> {
        word.text.parse().map_err(|_| {
            let expected = format!("a whole number below 2^32 for `{key}`");
            self.syntax(word.place, &expected, &format!("`{}`", word.text))
        })
    }

    /// A whole number of at least 1.
    pub(super) fn positive(self, key: &str, word: Word<'_>) -> Result<u32, GraphError> {
        match self.whole(key, word)? {
            0 => Err(self.syntax(word.place, &format!("a whole number of at least 1 for `{key}`"), "`0`")),
            value => Ok(value),
        }
    }

    /// A probability below 1.
    pub(super) fn loss(self, word: Word<'_>) -> Result<f64, GraphError> {
        let value: f64 = word
            .text
            .parse()
            .map_err(|_| self.syntax(word.place, "a loss in [0, 1)", &format!("`{}`", word.text)))?;
        if (0.0..1.0).contains(&value) {
            Ok(value)
        } else {
            Err(self.fail(word.place, GraphProblem::Loss { found: value }))
        }
    }

    fn quantity(self, key: &str, word: Word<'_>, dimension: Dimension) -> Result<u64, GraphError> {
        parse_quantity(word.text, dimension)
            .map_err(|error| self.fail(word.place, GraphProblem::Quantity { key: key.to_owned(), error }))
    }

    /// A rate with its unit.
    pub(super) fn rate(self, key: &str, word: Word<'_>) -> Result<BitRate, GraphError> {
        self.quantity(key, word, Dimension::Rate).map(BitRate::from_bps)
    }

    /// A time with its unit.
    pub(super) fn time(self, key: &str, word: Word<'_>) -> Result<Span, GraphError> {
        self.quantity(key, word, Dimension::Time).map(Span::from_ps)
    }

    /// The delay of a cable of a length with its unit, at the default speed of light in it.
    pub(super) fn length(self, key: &str, word: Word<'_>) -> Result<Span, GraphError> {
        let mm = self.quantity(key, word, Dimension::Length)?;
        let ps = (u128::from(mm) * u128::from(crate::DEFAULT_PROPAGATION_PS_PER_M)).div_ceil(1_000);
        let too_long = || self.syntax(word.place, "a length that light crosses in 200 days", word.text);
        u64::try_from(ps).map(Span::from_ps).map_err(|_| too_long())
    }
}
