//! Slurm's `topology.conf` of the tree plugin: `SwitchName=s0 Nodes=host[1-4,7]`, `SwitchName=top Switches=s[0-3]`.
//!
//! Keys are read without regard to case; a `\` at the end of a line continues it; `LinkSpeed`, which Slurm itself does
//! not use, is skipped. Each node or switch named hangs on its switch by one cable: the format knows neither the number
//! of cables nor rates nor latencies, which the caller gives. Names are listed as `host[1-4,7]`, with zeros kept
//! (`n[001-128]`) and any number of brackets (`r[0-1]n[0-31]`).

use super::attributes::unknown_key;
use super::text::{Line, Source, Word, lines};
use crate::graph::{
    Cable, Defaults, GraphBuilder, GraphError, GraphProblem, GraphSpec, NodeKind, Place, Repeats,
};

/// Most names that one list may stand for.
const MOST_NAMES: usize = 1 << 21;

#[derive(Default)]
struct Record<'a> {
    switch: Option<Word<'a>>,
    nodes: Option<Word<'a>>,
    switches: Option<Word<'a>>,
}

pub(super) fn read(file: &str, text: &str, defaults: &Defaults) -> Result<GraphSpec, GraphError> {
    let source = Source { file };
    let mut records = Vec::new();
    let mut open: Option<Record<'_>> = None;
    for line in lines(text) {
        let (body, more) = match line.text.trim_end().strip_suffix('\\') {
            Some(body) => (body, true),
            None => (line.text, false),
        };
        let mut record = open.take().unwrap_or_default();
        for word in (Line { text: body, ..line }).words() {
            take(source, &mut record, line, word)?;
        }
        if more {
            open = Some(record);
        } else {
            records.push((record, line.place()));
        }
    }
    if let Some(record) = open {
        let place = record.switch.map_or(Place::File, |word| word.place);
        records.push((record, place));
    }

    let mut graph = GraphBuilder::new(file, defaults);
    let mut children = Vec::new();
    for (record, place) in &records {
        let Some(name) = record.switch else {
            return Err(source.syntax(*place, "a record that begins with `SwitchName=`", "none"));
        };
        if name.text.contains(['[', ',']) {
            let found = format!("`{}`", name.text);
            return Err(source.syntax(name.place, "one name for `SwitchName`", &found));
        }
        let switch = graph.declare(name.text, Some(NodeKind::Switch), None, name.place)?;
        if record.nodes.is_none() && record.switches.is_none() {
            return Err(source.syntax(*place, "`Nodes=` or `Switches=` with a switch", "neither"));
        }
        children.push(switch);
    }
    for ((record, _), &switch) in records.iter().zip(&children) {
        if let Some(list) = record.nodes {
            for name in expand(source, list)? {
                let host = graph.mention(&name, Some(NodeKind::Host), None, list.place)?;
                graph.link((host, switch), Cable::default(), 1, Repeats::Refused(None), list.place)?;
            }
        }
        if let Some(list) = record.switches {
            for name in expand(source, list)? {
                let lower = graph.known(&name, list.place)?;
                graph.link((lower, switch), Cable::default(), 1, Repeats::Refused(None), list.place)?;
            }
        }
    }
    graph.finish()
}

fn take<'a>(
    source: Source<'_>,
    record: &mut Record<'a>,
    line: Line<'_>,
    word: Word<'a>,
) -> Result<(), GraphError> {
    let Some((key, value)) = word.text.split_once('=') else {
        return Err(source.syntax(word.place, "`Key=Value`", &format!("`{}`", word.text)));
    };
    let lower = key.to_ascii_lowercase();
    let slot = match lower.as_str() {
        "switchname" => &mut record.switch,
        "nodes" => &mut record.nodes,
        "switches" => &mut record.switches,
        "linkspeed" => return Ok(()),
        "blockname" | "blocksizes" => {
            let what =
                format!("expected Slurm's tree plugin (`SwitchName=`), found the block plugin's `{key}`");
            let hint = Some("blocks name no switches: write a tree of the switches above them".to_owned());
            return Err(source.fail(word.place, GraphProblem::Unsupported { what, hint }));
        }
        _ => {
            let key = Word { text: key, place: word.place };
            return Err(unknown_key(source, key, &["SwitchName", "Nodes", "Switches", "LinkSpeed"]));
        }
    };
    if slot.is_some() {
        let (key, within) = (key.to_owned(), "in a record".to_owned());
        return Err(source.fail(word.place, GraphProblem::DuplicateKey { key, within }));
    }
    // The place of the value; the word may begin on a continued line.
    let skip = (key.chars().count() + 1) as u32;
    let place = match word.place {
        Place::Line { line, column } => Place::Line { line, column: column + skip },
        place => place,
    };
    if value.is_empty() {
        return Err(source.syntax(place, &format!("a value for `{key}` in line {}", line.number), "nothing"));
    }
    *slot = Some(Word { text: value, place });
    Ok(())
}

/// The names that a list stands for, in its order.
fn expand(source: Source<'_>, list: Word<'_>) -> Result<Vec<String>, GraphError> {
    let fail = |found: &str| {
        source.syntax(list.place, "a list of names such as `host[1-4,7]`", &format!("`{found}`"))
    };
    let mut names = Vec::new();
    for item in split_items(list.text).ok_or_else(|| fail(list.text))? {
        if item.is_empty() {
            return Err(fail(list.text));
        }
        let mut partial = vec![String::new()];
        let mut rest = item;
        while !rest.is_empty() {
            let (plain, bracket) = rest.split_once('[').unwrap_or((rest, ""));
            for name in &mut partial {
                name.push_str(plain);
            }
            if plain.len() == rest.len() {
                break;
            }
            let (inside, after) = bracket.split_once(']').ok_or_else(|| fail(item))?;
            let numbers = numbers(inside).ok_or_else(|| fail(item))?;
            if partial.len().saturating_mul(numbers.len()) > MOST_NAMES - names.len().min(MOST_NAMES) {
                let found = partial.len() as u64 * numbers.len() as u64;
                let limit = MOST_NAMES as u64;
                return Err(source.fail(list.place, GraphProblem::TooLarge { what: "names", limit, found }));
            }
            partial =
                partial.iter().flat_map(|name| numbers.iter().map(move |n| format!("{name}{n}"))).collect();
            rest = after;
        }
        names.append(&mut partial);
    }
    Ok(names)
}

/// Splits at the commas outside brackets; `None` if brackets do not match.
fn split_items(list: &str) -> Option<Vec<&str>> {
    let (mut items, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, letter) in list.char_indices() {
        match letter {
            '[' if inside => return None,
            ']' if !inside => return None,
            '[' | ']' => inside = !inside,
            ',' if !inside => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&list[start..]);
    (!inside).then_some(items)
}

/// `1-4,7` or `001-128`; `None` if it is not so or stands for too many.
fn numbers(text: &str) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(first) || !digits(last) {
            return None;
        }
        let width = if first.starts_with('0') { first.len() } else { 0 };
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || (last - first) as usize >= MOST_NAMES - numbers.len() {
            return None;
        }
        numbers.extend((first..=last).map(|number| format!("{number:0width$}")));
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Option<Vec<String>> {
        expand(Source { file: "t" }, Word { text: list, place: Place::default() }).ok()
    }

    #[test]
    fn lists_of_names_expand_in_order() {
        assert_eq!(names("a,host[1-3,7]").unwrap(), ["a", "host1", "host2", "host3", "host7"]);
        assert_eq!(names("n[08-11]").unwrap(), ["n08", "n09", "n10", "n11"]);
        assert_eq!(names("r[0-1]n[5,6]x").unwrap(), ["r0n5x", "r0n6x", "r1n5x", "r1n6x"]);
        for bad in [
            "",
            "a,,b",
            "n[1-",
            "n]1[",
            "n[a-b]",
            "n[4-1]",
            "n[[1]]",
            "n[]",
            "n[0-99999999999]",
            "n[0-9999]r[0-9999]",
        ] {
            assert_eq!(names(bad), None, "{bad}");
        }
    }
}
