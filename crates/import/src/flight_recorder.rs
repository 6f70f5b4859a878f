//! PyTorch Flight Recorder dumps (PyTorch 2.4 to 2.9), pickle or JSON, one file a rank: what operators have of every rank.
//!
//! An entry is a collective with its group, shapes, and the instant at which the host asked for it. The times at which it was seen to
//! start and end are the watchdog's and come late, so the replay has the host's: between two calls of a rank the time between their
//! creations, and each collective waits for its call and for the one before.

mod order;
mod rooted;

use std::collections::BTreeMap;

use windtunnel_kernel::StreamId;
use windtunnel_kernel::registry::Entry;
use windtunnel_workload::collectives::CollectiveKind;
use windtunnel_workload::program::HOST_STREAM;

use crate::coverage::{Coverage, Treatment};
use crate::draft::{Call, Draft, RankDraft, Work, dimension_of};
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::kineto::{element_bytes, kind_of};
use crate::pickle::{self, Value, Values};
use crate::{Options, Reader};
use order::Tail;
use rooted::{Rooted, Roots};

/// Flight Recorder.
pub struct FlightRecorder;

/// Newest minor version of the dumps whose entries are known: that of PyTorch 2.9.
const NEWEST: u32 = 10;

impl Reader for FlightRecorder {
    fn entry(&self) -> &'static Entry {
        const { &Entry::new("flight-recorder", "PyTorch Flight Recorder dumps (pickle or JSON) of every rank") }
    }

    fn detects(&self, head: &[u8], _name: &str) -> bool {
        let has = |needle: &[u8]| memchr::memmem::find(head, needle).is_some();
        (head.first() == Some(&0x80) || head.first() == Some(&b'{'))
            && has(b"entries")
            && (has(b"record_id") || has(b"pg_config"))
    }

    fn read(
        &self,
        inputs: &[Input],
        _options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let mut draft = Draft { source: inputs[0].name.clone(), ..Draft::default() };
        coverage.note("the Flight Recorder keeps the last calls alone (`TORCH_NCCL_TRACE_BUFFER_SIZE`): earlier ones are not here");
        coverage
            .note("the Flight Recorder has no computation: the time between calls of the host stands for it");
        let mut origin: BTreeMap<u32, i64> = BTreeMap::new();
        let mut dumps = Vec::new();
        for (index, input) in (0u32..).zip(inputs) {
            let bytes = input.whole()?;
            let json = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
            let values = if json {
                Values::from_json(&input.name, &bytes)?
            } else {
                pickle::read(&input.name, &bytes)?
            };
            let version = values.root().get("version").and_then(Value::text).unwrap_or("").to_owned();
            let minor = version.strip_prefix("2.").and_then(|minor| minor.parse::<u32>().ok());
            if minor.is_none_or(|minor| minor > NEWEST) {
                let expected = format!("a dump of version 2.0 to 2.{NEWEST}");
                let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
                let hint = match major {
                    Some(..2) => "an older PyTorch wrote it: record with one of 2.4 to 2.9",
                    Some(_) => "a newer PyTorch wrote it: what its entries mean is not known here",
                    None => "PyTorch writes its version as two numbers: this is no dump of it",
                };
                return Err(
                    ImportError::new(&input.name, expected, format!("version `{version}`")).hint(hint)
                );
            }
            bounded(values.root(), &input.name)?;
            let rank = named(input.leaf()).unwrap_or(index);
            let first = values
                .root()
                .get("entries")
                .into_iter()
                .flat_map(Value::items)
                .filter_map(|entry| entry.get("time_created_ns")?.int())
                .min();
            origin.insert(rank, first.unwrap_or(0));
            if dumps.iter().any(|(known, _, _): &(u32, String, Values)| *known == rank) {
                return Err(ImportError::new(&input.name, "one dump a rank", format!("rank {rank} again")));
            }
            dumps.push((rank, input.name.clone(), values));
        }
        let begin = origin.values().copied().min().unwrap_or(0);
        let world = dumps.iter().map(|(rank, _, _)| rank.saturating_add(1)).max().unwrap_or(0);
        let world = crate::assemble::believable(world, &draft.source)?;
        let roots = rooted::roots(dumps.iter().map(|(rank, _, values)| (*rank, values.root())));
        for (rank, file, values) in &dumps {
            let program = program(*rank, world, file, values.root(), begin, &roots, &mut draft, coverage)?;
            draft.ranks.insert(*rank, program.of_file(file));
        }
        draft.world = draft
            .groups
            .iter()
            .flat_map(|group| group.ranks.iter().map(|rank| rank.saturating_add(1)))
            .max()
            .max(Some(world));
        Ok(draft)
    }
}

/// The rank that a file's name says: the number behind `rank`, or the last one.
fn named(leaf: &str) -> Option<u32> {
    let lower = leaf.to_ascii_lowercase();
    let behind = lower.rmatch_indices("rank").find_map(|(at, word)| {
        let rest = &lower[at + word.len()..];
        let rest = rest.strip_prefix(['_', '-', '.']).unwrap_or(rest);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    });
    let last = || lower.rsplit(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok();
    behind.or_else(last)
}

/// Refuses a dump whose entries share their parts so often that walking them takes longer than any dump of its length should: a pickle
/// of a megabyte can refer to one list of shapes from each of 200,000 entries.
fn bounded(root: Value<'_>, file: &str) -> Result<(), ImportError> {
    let most = 1_000_000 + 64 * root.total();
    let mut walked = root.len();
    let groups = root.get("pg_config").into_iter().flat_map(Value::entries).map(|(_, group)| group);
    for entry in root.get("entries").into_iter().flat_map(Value::items).chain(groups) {
        walked = walked.saturating_add(entry.len());
        let lists = if walked > most { [None; 3] } else { LISTS.map(|key| entry.get(key)) };
        for list in lists.into_iter().flatten() {
            walked = walked.saturating_add(list.len());
            if walked > most {
                break;
            }
            walked = walked.saturating_add(list.items().map(Value::len).sum());
        }
        if walked > most {
            let expected = "entries with parts of their own".to_owned();
            return Err(ImportError::new(file, expected, "parts that very many entries share")
                .hint("PyTorch writes no such dump"));
        }
    }
    Ok(())
}

/// Members of an entry or a group that are walked.
const LISTS: [&str; 3] = ["input_sizes", "output_sizes", "ranks"];

/// Members of the groups of a dump, by name: `ranks` is a list, or a text that is one.
fn groups(root: Value<'_>) -> BTreeMap<String, Vec<u32>> {
    let mut groups = BTreeMap::new();
    for (name, group) in root.get("pg_config").into_iter().flat_map(Value::entries) {
        let Some(ranks) = group.get("ranks") else { continue };
        let list: Vec<u32> = match ranks.text() {
            Some(text) => serde_json::from_str(text).unwrap_or_default(),
            None => ranks.items().filter_map(|rank| u32::try_from(rank.int()?).ok()).collect(),
        };
        let name = name.text().map_or_else(|| name.int().unwrap_or(0).to_string(), str::to_owned);
        groups.insert(name, list);
    }
    groups
}

/// Bytes of all tensors of a list of shapes, and whether the type of each is known: four bytes an element stand for others.
fn bytes_of(entry: Value<'_>, sizes: &str, types: &str) -> (u64, bool) {
    let shapes = entry.get(sizes).into_iter().flat_map(Value::items);
    let mut types = entry.get(types).into_iter().flat_map(Value::items);
    let (mut sum, mut known) = (0u64, true);
    for shape in shapes {
        let size = types.next().and_then(Value::text).and_then(element_bytes);
        known &= size.is_some();
        let elements = shape
            .items()
            .fold(1u64, |product, length| product.saturating_mul(length.int().unwrap_or(0).max(0) as u64));
        sum = sum.saturating_add(elements.saturating_mul(size.unwrap_or(4)));
    }
    (sum, known)
}

fn program(
    number: u32,
    world: u32,
    file: &str,
    root: Value<'_>,
    begin: i64,
    roots: &Roots,
    draft: &mut Draft,
    coverage: &mut Coverage,
) -> Result<RankDraft, ImportError> {
    let mut rank = RankDraft::new();
    let known = groups(root);
    let Some(entries) = root.get("entries") else {
        return Err(ImportError::new(file, "`entries`", "a dump without them")
            .hint("dump with `TORCH_FR_DUMP_TEMP_FILE` and `TORCH_NCCL_TRACE_BUFFER_SIZE` above 0"));
    };
    let mut list: Vec<Value<'_>> = entries.items().collect();
    list.sort_by_cached_key(|entry| entry.get("record_id").and_then(Value::int).unwrap_or(0));
    let mut host: Option<(u32, i64)> = None;
    let mut tail = Tail::default();
    let label = rank.label("host");
    for (place, entry) in (1..).zip(list) {
        let created = entry.get("time_created_ns").and_then(Value::int);
        let created = created.ok_or_else(|| {
            ImportError::new(file, "`time_created_ns`", "an entry without it").at(Place::Record(place))
        })?;
        let (from, after) = host.map_or((begin, None), |(node, time)| (time, Some(node)));
        let node =
            rank.calc(created.saturating_sub(from).max(0) as u64, HOST_STREAM, label, after.as_slice());
        host = Some((node, created.max(from)));
        let name = entry.get("profiling_name").and_then(Value::text).unwrap_or("");
        let plain = name.split_once(':').map_or(name, |(_, call)| call);
        let group_name = entry
            .get("process_group")
            .and_then(|group| group.items().next())
            .and_then(Value::text)
            .unwrap_or("0");
        let about = entry
            .get("process_group")
            .and_then(|group| group.items().nth(1))
            .and_then(Value::text)
            .unwrap_or("");
        let (members, guessed) = match known.get(group_name) {
            Some(ranks) if !ranks.is_empty() => (ranks.clone(), false),
            _ => ((0..world).collect(), true),
        };
        let (sent, sent_known) = bytes_of(entry, "input_sizes", "input_dtypes");
        let (received, received_known) = bytes_of(entry, "output_sizes", "output_dtypes");
        let nanoseconds = entry
            .get("duration_ms")
            .and_then(Value::float)
            .map_or(0, |length| (length.clamp(0.0, 1e12) * 1e6) as u64);
        let dimension = dimension_of(about);
        let why = match () {
            () if guessed => "its group's members are not in the dump: all ranks",
            () if !(sent_known && received_known) => "a type of element that is not known: four bytes each",
            () => "",
        };
        let treatment = if why.is_empty() { Treatment::Mapped } else { Treatment::Guessed };
        let sequence =
            |key: &str| entry.get(key).and_then(Value::int).and_then(|number| u64::try_from(number).ok());
        let label = rank.label(plain);
        let (work, what, bytes) = if let Some(kind) = kind_of(plain) {
            let bytes = match kind {
                CollectiveKind::AllGather => received.max(sent.saturating_mul(members.len() as u64)),
                CollectiveKind::Barrier => 0,
                _ => sent.max(received),
            };
            // A barrier's element is no payload, of whatever type.
            let (treatment, why) = if kind == CollectiveKind::Barrier && !guessed {
                (Treatment::Mapped, "")
            } else {
                (treatment, why)
            };
            let group = draft.group(group_name, &members, dimension);
            let sequence = sequence("collective_seq_id");
            rank.calls.push(Call {
                group,
                kind,
                bytes,
                splits: None,
                sequence,
                nanoseconds,
                exact: true,
                came: None,
            });
            let work = Work::Call(rank.calls.len() as u32 - 1);
            (work, (format!("collective: {}", kind.name()), treatment, why), bytes)
        } else if let Some((sends, peer)) = message(plain) {
            let bytes = sent.max(received);
            let Some(&peer) = members.get(peer).filter(|&&peer| peer != number) else {
                let why = "its other rank is not in its group";
                coverage.count("message", Treatment::Dropped, why, bytes, nanoseconds);
                continue;
            };
            let work = if sends { Work::Send(peer, bytes, 0) } else { Work::Receive(Some(peer), Some(0)) };
            let what = if sends { "send" } else { "receive" };
            // Messages of one batch have one number: all of them are under way at once.
            let batch = sequence("p2p_seq_id").filter(|&number| number > 0);
            let mut after = vec![node];
            after.extend(tail.message(batch, group_name));
            let index = rank.push(work, StreamId(1), label, dimension, &after);
            tail.goes_on(index);
            rank.account(index, (what, treatment, why), bytes, nanoseconds, coverage);
            continue;
        } else if let ("gather" | "scatter", Some(&root)) = (plain, roots.get(&rooted::key(entry)))
            && members.contains(&root)
            && members.contains(&number)
        {
            let said = Rooted { root, into: plain == "gather", number, members: &members, sent };
            let mut after = vec![node];
            after.extend_from_slice(tail.last());
            tail.is(said.messages(&mut rank, label, dimension, &after));
            let why = if guessed { why } else { "as messages between the root and each member" };
            let treatment = treatment.max(Treatment::Approximated);
            let bytes = sent.max(received);
            coverage.count(&format!("collective: {plain}"), treatment, why, bytes, nanoseconds);
            continue;
        } else {
            let (treatment, why) = match plain {
                "coalesced" => (Treatment::Mapped, "what it holds are entries of their own"),
                "gather" | "scatter" => (Treatment::Dropped, "its root is in no dump"),
                _ => (Treatment::Dropped, "not modelled"),
            };
            coverage.count(&format!("call of {plain}"), treatment, why, sent.max(received), nanoseconds);
            continue;
        };
        let mut after = vec![node];
        after.extend_from_slice(tail.last());
        let index = rank.push(work, StreamId(1), label, dimension, &after);
        tail.is(index);
        rank.account(index, (&what.0, what.1, what.2), bytes, nanoseconds, coverage);
    }
    Ok(rank)
}

/// `send 0->1` and `recv 1<-0`: whether it sends, and the other's place in the group.
fn message(name: &str) -> Option<(bool, usize)> {
    let (what, ranks) = name.split_once(' ')?;
    match what {
        "send" => Some((true, ranks.split_once("->")?.1.trim().parse().ok()?)),
        "recv" => Some((false, ranks.split_once("<-")?.1.trim().parse().ok()?)),
        _ => None,
    }
}
