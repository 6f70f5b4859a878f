//! A table of where hosts are: one row a host, one column a tier of switches.
//!
//! The host's column is named `host`, `ip`, `node`, `name` or `hostname`; those of switches as in [`TIERS`], any case;
//! other columns are not read. In Alibaba's trace of 2023 (`ip,DSW,PSW,ASW`) a switch's name is unique only below its
//! parent: no leaf holds more than 8 hosts if it is read so, but up to 24, of three pods, if it is not. So the graph is a
//! tree: a host hangs on its leaf, a leaf on its aggregation switch, and so on, each by one cable; the numbers of
//! parallel switches and cables are not in the data. Rates and latencies are not either: the caller gives them.

use super::edge_list::csv_error;
use super::text::Source;
use crate::graph::{
    Cable, Defaults, GraphBuilder, GraphError, GraphProblem, GraphSpec, NodeKind, Place, Repeats,
};

const HOST_COLUMNS: [&str; 5] = ["host", "ip", "node", "name", "hostname"];

/// From the leaves up, as networks name them.
const TIERS: [&[&str]; 3] = [
    &["asw", "tor", "leaf", "rtsw", "rack", "access"],
    &["psw", "agg", "spine", "ctsw", "pod", "aggregation"],
    &["dsw", "core", "superspine", "atsw", "building"],
];

fn tier_of(column: &str) -> Option<usize> {
    let column = column.trim().trim_matches('"').to_ascii_lowercase();
    TIERS.iter().position(|names| names.contains(&column.as_str()))
}

fn is_host(column: &str) -> bool {
    let column = column.trim().trim_matches('"').to_ascii_lowercase();
    HOST_COLUMNS.contains(&column.as_str())
}

/// Whether a line names a host and its leaf.
pub(super) fn is_header(line: &str) -> bool {
    line.split(',').any(is_host) && line.split(',').any(|column| tier_of(column) == Some(0))
}

pub(super) fn read(file: &str, text: &str, defaults: &Defaults) -> Result<GraphSpec, GraphError> {
    let source = Source { file };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rows =
        csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = rows.headers().map_err(|error| csv_error(source, &error))?.clone();
    let header_line = Place::Line { line: header.position().map_or(1, |at| at.line() as u32), column: 0 };
    let missing = |key: &str| {
        let (key, within) = (key.to_owned(), "in the header".to_owned());
        source.fail(header_line, GraphProblem::MissingKey { key, within })
    };
    let host = header.iter().position(is_host).ok_or_else(|| missing("host"))?;
    // From the top down: a switch's name holds only below its parent.
    let mut tiers: Vec<(usize, usize)> =
        header.iter().enumerate().filter_map(|(column, name)| Some((tier_of(name)?, column))).collect();
    tiers.sort_unstable();
    tiers.reverse();
    if tiers.last().is_none_or(|&(tier, _)| tier != 0) {
        return Err(missing("ASW"));
    }
    if let Some(pair) = tiers.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let key = header[pair[0].1].to_owned();
        return Err(
            source.fail(header_line, GraphProblem::DuplicateKey { key, within: "in the header".into() })
        );
    }

    let mut graph = GraphBuilder::new(file, defaults);
    let mut row = csv::StringRecord::new();
    while rows.read_record(&mut row).map_err(|error| csv_error(source, &error))? {
        let place = Place::Line { line: row.position().map_or(0, |at| at.line() as u32), column: 0 };
        let (mut path, mut above) = (String::new(), None);
        for &(tier, column) in &tiers {
            if row[column].is_empty() {
                return Err(source.syntax(
                    place,
                    &format!("a switch in column `{}`", &header[column]),
                    "nothing",
                ));
            }
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(&row[column]);
            let switch = graph.mention(&path, Some(NodeKind::Switch), Some(tier as u8), place)?;
            if let Some(above) = above
                && graph.between(switch, above).is_none()
            {
                graph.link((switch, above), Cable::default(), 1, Repeats::Parallel, place)?;
            }
            above = Some(switch);
        }
        let leaf = above.expect("there is a column of leaves");
        let host = graph.declare(&row[host], Some(NodeKind::Host), None, place)?;
        graph.link((host, leaf), Cable::default(), 1, Repeats::Parallel, place)?;
    }
    graph.finish()
}
