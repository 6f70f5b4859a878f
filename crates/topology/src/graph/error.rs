//! What can be wrong with a graph or with the file it is read from.

use windtunnel_kernel::units::UnitError;

/// Where in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Place {
    /// Nowhere in particular.
    #[default]
    File,
    /// A line, and a column in characters, both from 1; column 0 is the whole line.
    Line {
        /// From 1.
        line: u32,
        /// From 1, or 0.
        column: u32,
    },
    /// An item of a list, and a key of it (may be empty).
    Item {
        /// Name of the list.
        list: &'static str,
        /// From 0.
        index: u32,
        /// Of the item.
        key: &'static str,
    },
}

/// Why a text or a graph is refused: place, problem, and a hint.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{problem}")]
pub struct GraphError {
    /// The file.
    pub file: String,
    /// Where in it.
    pub place: Place,
    /// What is wrong.
    pub problem: Box<GraphProblem>,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GraphProblem {
    /// The text is not of its format.
    #[error("expected {expected}, found {found}")]
    Syntax {
        /// What was due.
        expected: String,
        /// What was there.
        found: String,
    },
    /// No format is recognised.
    #[error("expected a topology in one of the known formats, found none that fits")]
    UnknownFormat,
    /// A key or column that the format does not have.
    #[error("expected one of {known}, found `{found}`")]
    UnknownKey {
        /// The key.
        found: String,
        /// Those that fit.
        known: String,
        /// The one most alike.
        nearest: Option<String>,
    },
    /// A key or column that must be there.
    #[error("expected `{key}` {within}, found none")]
    MissingKey {
        /// The key.
        key: String,
        /// `in the header`, `in tier 1`, …
        within: String,
    },
    /// A key given twice.
    #[error("expected `{key}` once {within}, found it again")]
    DuplicateKey {
        /// The key.
        key: String,
        /// `in the header`, `in tier 1`, …
        within: String,
    },
    /// A value that is not a quantity with its unit.
    #[error("`{key}`: {error}")]
    Quantity {
        /// Key or column.
        key: String,
        /// Why not.
        error: UnitError,
    },
    /// A value that does not agree with the others.
    #[error("expected `{key}` to be {expected}, found {found}")]
    Mismatch {
        /// Key or column.
        key: String,
        /// What the others ask for.
        expected: String,
        /// What was given.
        found: String,
        /// A way out.
        hint: Option<String>,
    },
    /// A rate or latency that neither the file nor the caller gives.
    #[error("expected a {what} for the link between `{a}` and `{b}`, found none")]
    Missing {
        /// `rate` or `latency`.
        what: &'static str,
        /// One end.
        a: String,
        /// The other.
        b: String,
    },
    /// Something that is sound but cannot be said in this program or format.
    #[error("{what}")]
    Unsupported {
        /// A sentence: expected …, found ….
        what: String,
        /// A way out.
        hint: Option<String>,
    },
    /// A link to a node that is not declared.
    #[error("expected one of the {nodes} nodes, found `{name}`")]
    UnknownNode {
        /// What was given.
        name: String,
        /// How many are declared.
        nodes: usize,
        /// The one most alike.
        nearest: Option<String>,
    },
    /// A name given to two nodes.
    #[error("expected every node once, found `{name}` twice{first}", first = first.after(", first at "))]
    DuplicateNode {
        /// The name.
        name: String,
        /// Where it was first.
        first: Place,
    },
    /// A link given twice.
    #[error("expected every link once, found `{a}` -- `{b}` twice{first}", first = first.after(", first at "))]
    DuplicateLink {
        /// One end.
        a: String,
        /// The other.
        b: String,
        /// Where it was first.
        first: Place,
        /// How the format says parallel cables, if it can.
        hint: Option<&'static str>,
    },
    /// The same link with different properties, where both sides are listed.
    #[error("expected the same {what} in both directions of `{a}` -- `{b}`, found {there} and {back}")]
    Asymmetric {
        /// `rate`, …
        what: &'static str,
        /// One end.
        a: String,
        /// The other.
        b: String,
        /// From a to b.
        there: String,
        /// From b to a.
        back: String,
    },
    /// A directed link without its reverse.
    #[error("expected a link back from `{to}` to `{from}`, found only the one there")]
    OneWay {
        /// Where it begins.
        from: String,
        /// Where it ends.
        to: String,
    },
    /// From a node to itself.
    #[error("expected a link between two nodes, found one from `{node}` to itself")]
    SelfLink {
        /// The node.
        node: String,
    },
    /// No bits at all.
    #[error("expected a rate above 0 between `{a}` and `{b}`, found 0")]
    ZeroRate {
        /// One end.
        a: String,
        /// The other.
        b: String,
    },
    /// No probability.
    #[error("expected a loss in [0, 1), found {found}")]
    Loss {
        /// What was given.
        found: f64,
    },
    /// Nobody to send.
    #[error("expected at least one host, found {switches} switches only")]
    NoHosts {
        /// How many.
        switches: usize,
    },
    /// A host that reaches nobody.
    #[error("expected a link at every host, found none at `{name}`")]
    BareHost {
        /// The host.
        name: String,
    },
    /// Hosts with other numbers of links.
    #[error("expected {nics} links at every host, the {due}, found {found} at `{name}`")]
    UnevenHosts {
        /// The host.
        name: String,
        /// Its links.
        found: u32,
        /// Those of the others.
        nics: u32,
        /// Where that number is from.
        due: String,
    },
    /// More than one part.
    #[error(
        "expected one connected graph, found {parts} parts: one of {a_size} nodes with `{a}`, one of {b_size} nodes \
         with `{b}`"
    )]
    Disconnected {
        /// How many.
        parts: usize,
        /// A node of the largest.
        a: String,
        /// Its size.
        a_size: usize,
        /// A node of another.
        b: String,
        /// Its size.
        b_size: usize,
    },
    /// Beyond the ids there are.
    #[error("expected at most {limit} {what}, found {found}")]
    TooLarge {
        /// `nodes` or `links`.
        what: &'static str,
        /// How many fit.
        limit: u64,
        /// How many there are.
        found: u64,
    },
}

impl Place {
    /// `after` and the place; nothing for the whole file.
    fn after(self, prefix: &str) -> String {
        match self {
            Self::File => String::new(),
            Self::Line { line, .. } => format!("{prefix}line {line}"),
            Self::Item { .. } => format!("{prefix}`{}`", self.path()),
        }
    }

    fn path(self) -> String {
        match self {
            Self::File | Self::Line { .. } => String::new(),
            Self::Item { list, index, key: "" } => format!("{list}[{index}]"),
            Self::Item { list, index, key } => format!("{list}[{index}].{key}"),
        }
    }
}

impl GraphError {
    pub(crate) fn new(file: &str, place: Place, problem: impl Into<Box<GraphProblem>>) -> Self {
        Self { file: file.to_owned(), place, problem: problem.into() }
    }

    /// `file`, `file:line`, `file:line:column` or `file: list[3].key`.
    pub fn place(&self) -> String {
        let file = &self.file;
        match self.place {
            Place::File => file.clone(),
            Place::Line { line, column: 0 } => format!("{file}:{line}"),
            Place::Line { line, column } => format!("{file}:{line}:{column}"),
            Place::Item { .. } => format!("{file}: {}", self.place.path()),
        }
    }

    /// A way out.
    pub fn hint(&self) -> Option<String> {
        self.problem.hint()
    }
}

impl GraphProblem {
    /// A way out.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Mismatch { hint, .. } | Self::Unsupported { hint, .. } => return hint.clone(),
            Self::UnknownNode { nearest, .. } | Self::UnknownKey { nearest, .. } => {
                return nearest.as_ref().map(|name| format!("did you mean `{name}`?"));
            }
            Self::DuplicateLink { hint, .. } => return hint.map(str::to_owned),
            Self::UnknownFormat => {
                let names: Vec<&str> =
                    crate::import::Format::ALL.iter().map(|format| format.name()).collect();
                return Some(format!("name the format, one of {}", names.join(", ")));
            }
            Self::Missing { what: "rate", .. } => {
                "the file does not say it: give a default such as `400 Gbps`"
            }
            Self::Missing { .. } => "the file does not say it: give a default such as `500 ns`",
            Self::OneWay { .. } | Self::Asymmetric { .. } => {
                "cables are equal in both directions; write an undirected graph"
            }
            Self::NoHosts { .. } => "mark hosts with `kind` = `host`",
            Self::UnevenHosts { .. } => {
                "every link of a host is a NIC, and all hosts are alike: leave the others out"
            }
            Self::BareHost { .. } => "take it out, or link it",
            Self::Disconnected { .. } => "a link is missing between the parts, or a name is misspelt",
            Self::Loss { .. } => "a loss is a probability: 1e-6 is one packet in a million",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
