//! Edge lists: CSV whose header names the columns.
//!
//! `src` and `dst` are needed; `rate`, `latency` or `length`, `loss`, `count` (parallel cables), `src_kind`, `dst_kind`
//! (`host` or `switch`), `src_tier` and `dst_tier` may be given. One row is one cable, in both directions. Nodes are
//! numbered as they come. Where no row has a kind, nodes with a single neighbour are hosts. Lines that begin with `#`
//! are comments.

use super::attributes::{LINK_KEYS, LinkAttributes, kind, tier, unknown_key};
use super::text::{Source, Word};
use crate::graph::{Defaults, GraphBuilder, GraphError, GraphProblem, GraphSpec, Place, Repeats};

const END_KEYS: [&str; 6] = ["src", "dst", "src_kind", "dst_kind", "src_tier", "dst_tier"];

/// Whether a line names the ends of links.
pub(super) fn is_header(line: &str) -> bool {
    let has = |name: &str| line.split(',').any(|column| column.trim().trim_matches('"') == name);
    has("src") && has("dst")
}

pub(super) fn read(file: &str, text: &str, defaults: &Defaults) -> Result<GraphSpec, GraphError> {
    let source = Source { file };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rows = csv::ReaderBuilder::new()
        .has_headers(true)
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let header = rows.headers().map_err(|error| csv_error(source, &error))?.clone();
    let header_line = Place::Line { line: header.position().map_or(1, |at| at.line() as u32), column: 0 };
    let known: Vec<&str> = END_KEYS.into_iter().chain(LINK_KEYS).collect();
    for (index, name) in header.iter().enumerate() {
        if !known.contains(&name) {
            return Err(unknown_key(source, Word { text: name, place: header_line }, &known));
        }
        if header.iter().take(index).any(|earlier| earlier == name) {
            let (key, within) = (name.to_owned(), "in the header".to_owned());
            return Err(source.fail(header_line, GraphProblem::DuplicateKey { key, within }));
        }
    }
    let column = |name: &str| header.iter().position(|column| column == name);
    let need = |name: &str| {
        column(name).ok_or_else(|| {
            let (key, within) = (name.to_owned(), "in the header".to_owned());
            source.fail(header_line, GraphProblem::MissingKey { key, within })
        })
    };
    let ends = [
        (need("src")?, column("src_kind"), column("src_tier")),
        (need("dst")?, column("dst_kind"), column("dst_tier")),
    ];
    let link_columns: Vec<(usize, &str)> =
        LINK_KEYS.into_iter().filter_map(|key| Some((column(key)?, key))).collect();

    let mut graph = GraphBuilder::new(file, defaults);
    let mut row = csv::StringRecord::new();
    while rows.read_record(&mut row).map_err(|error| csv_error(source, &error))? {
        // A reader counts columns in fields: what stands before a field may be quoted.
        let place = Place::Line { line: row.position().map_or(0, |at| at.line() as u32), column: 0 };
        let field = |column: usize| Word { text: row.get(column).unwrap_or(""), place };
        let mut nodes = [0; 2];
        for (node, (name, kind_column, tier_column)) in nodes.iter_mut().zip(ends) {
            let kind = kind_column.map_or(Ok(None), |column| kind(source, field(column)))?;
            let tier = tier_column.map_or(Ok(None), |column| tier(source, field(column)))?;
            *node = graph.mention(field(name).text, kind, tier, place)?;
        }
        let mut attributes = LinkAttributes::default();
        for &(column, key) in &link_columns {
            attributes.set(source, key, field(column))?;
        }
        let hint = Some("several parallel cables are one row with a `count`");
        graph.link(
            (nodes[0], nodes[1]),
            attributes.cable,
            attributes.count,
            Repeats::Refused(hint),
            place,
        )?;
    }
    graph.finish()
}

/// What the CSV reader has against a text.
pub(super) fn csv_error(source: Source<'_>, error: &csv::Error) -> GraphError {
    let line = error.position().map(|at| at.line() as u32);
    let place = line.map_or(Place::File, |line| Place::Line { line, column: 0 });
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            source.syntax(place, &format!("{expected_len} fields as in the header"), &format!("{len}"))
        }
        _ => source.syntax(place, "comma-separated text in UTF-8", "something else"),
    }
}
