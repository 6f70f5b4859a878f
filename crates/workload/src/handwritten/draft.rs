//! From lines to operations: what each says is checked against the lines before it.

mod programs;

use rustc_hash::FxHashMap;
use windtunnel_kernel::registry::Listed;
use windtunnel_kernel::units::Dimension as Unit;
use windtunnel_kernel::{Bytes, NicId, RankId, Span, StreamId, Tag, nearest};

use super::fields::{Fields, Value};
use super::{Fault, MOST_RANKS};
use crate::collectives::{CollectiveKind, CollectiveSpec, neighbours};
use crate::program::{Binding, Communicator};
use crate::{Dimension, OpKind, Peer};

windtunnel_kernel::named! {
    /// What `ranks` may say in place of a list.
    enum Everyone: "list of ranks" {
        All = "all", "all ranks";
    }
}

const COMMON: [&str; 9] =
    ["rank", "ranks", "id", "after", "after_start", "stream", "dimension", "label", "comment"];
const KINDS_OF_OPERATION: [&str; 4] = ["compute", "collective", "send", "receive"];

/// Who takes part in an operation.
enum Ranks {
    All,
    /// Ascending.
    Some(Vec<u32>),
}

enum Work {
    Plain(OpKind),
    /// A collective on a named communicator.
    Collective {
        family: usize,
        spec: CollectiveSpec,
        stream: StreamId,
    },
}

/// A dependency, with the place that names it.
struct After {
    id: String,
    irequires: bool,
    column: u64,
}

struct Draftling {
    line: u64,
    ranks: Ranks,
    id: Option<(String, u64)>,
    label: String,
    dimension: Dimension,
    work: Work,
    after: Vec<After>,
}

/// A communicator name and its groups.
struct Family {
    name: String,
    line: u64,
    /// Communicators of the workload.
    groups: std::ops::Range<u32>,
    /// Binding of each member; `None` for `world`, where rank and index are the same.
    members: Option<FxHashMap<u32, Binding>>,
    /// Members of one scale-up domain that stand next to each other.
    domain: u32,
}

impl Family {
    fn binding(&self, rank: u32) -> Option<Binding> {
        match &self.members {
            None => Some(Binding { communicator: self.groups.start, index: rank }),
            Some(members) => members.get(&rank).copied(),
        }
    }
}

/// What has been read so far.
#[derive(Default)]
pub(super) struct Draft {
    /// GPUs of a scale-up domain.
    gpus: u32,
    ranks: Option<(u32, u64)>,
    families: Vec<Family>,
    communicators: Vec<Communicator>,
    operations: Vec<Draftling>,
}

impl Draft {
    pub(super) fn new(gpus: u32) -> Self {
        Self { gpus, ..Self::default() }
    }

    fn ranks(&self) -> u32 {
        self.ranks.map_or(0, |(ranks, _)| ranks)
    }

    /// Reads one line that is not blank.
    pub(super) fn line(&mut self, text: &str, line: u64) -> Result<(), Fault> {
        let fields = Fields::parse(text, text.trim(), line)?;
        if fields.keys().all(|key| key == "comment") && fields.has("comment") {
            return Ok(());
        }
        if fields.has("windtunnel_workload") {
            return self.header(&fields, line);
        }
        if self.ranks.is_none() {
            return Err(fields
                .fault("expected the header before anything else")
                .hint("the first line is {\"windtunnel_workload\": 1, \"ranks\": N}"));
        }
        let kinds: Vec<&str> = fields.keys().filter(|key| KINDS_OF_OPERATION.contains(key)).collect();
        match kinds[..] {
            [kind] => self.operation(&fields, kind, line),
            [] if fields.has("communicator") => self.communicator(&fields, line),
            [] => {
                let fault = fields.fault(
                    "expected one of `compute`, `collective`, `send`, `receive`, or a `communicator`, found none",
                );
                let words = KINDS_OF_OPERATION.iter().chain(&["communicator"]);
                let known = |key: &&str| !COMMON.contains(key);
                Err(fault
                    .near(fields.keys().filter(known).find_map(|key| nearest(key, words.clone().copied()))))
            }
            [first, second, ..] => Err(fields
                .fault_at_key(second, format!("an operation is either `{first}` or `{second}`, found both"))),
        }
    }

    fn header(&mut self, fields: &Fields, line: u64) -> Result<(), Fault> {
        if let Some((_, first)) = self.ranks {
            return Err(fields.fault(format!("the header is already given in line {first}")));
        }
        fields.only(&["windtunnel_workload", "ranks"], "the header")?;
        let version = fields.require("windtunnel_workload", "the header")?;
        if version.integer("a version", u64::MAX)? != 1 {
            return Err(version.fault(format!("expected version 1 of the format, found {}", version.shown())));
        }
        let ranks = fields.require("ranks", "the header")?;
        let count = ranks.integer("a number of ranks", MOST_RANKS)? as u32;
        if count == 0 {
            return Err(ranks.fault("a workload needs at least one rank, found `0`"));
        }
        self.ranks = Some((count, line));
        let all: Vec<RankId> = (0..count).map(RankId).collect();
        let domain = neighbours([all.as_slice()], self.gpus);
        self.communicators.push(Communicator { name: "world".to_owned(), ranks: all });
        self.families.push(Family { name: "world".to_owned(), line, groups: 0..1, members: None, domain });
        Ok(())
    }

    fn communicator(&mut self, fields: &Fields, line: u64) -> Result<(), Fault> {
        fields.only(&["communicator", "ranks", "groups"], "a communicator")?;
        let named = fields.require("communicator", "a communicator")?;
        let name = named.string()?;
        if let Some(known) = self.families.iter().find(|family| family.name == name) {
            let fault = named.fault(match known.name.as_str() {
                "world" => "`world` is predefined: all ranks in order".to_owned(),
                _ => format!("communicator `{name}` is already defined in line {}", known.line),
            });
            return Err(fault.hint("several groups of one name are given as \"groups\": [[0, 1], [2, 3]]"));
        }
        let first = self.communicators.len() as u32;
        let mut members = FxHashMap::default();
        let lists = match (fields.get("ranks"), fields.get("groups")) {
            (Some(ranks), None) => vec![ranks],
            (None, Some(groups)) => groups.list("a list of groups")?,
            (None, None) => return Err(fields.fault("a communicator needs `ranks` or `groups`")),
            (Some(_), Some(_)) => {
                return Err(fields
                    .fault_at_key("groups", "a communicator has either `ranks` or `groups`, found both"));
            }
        };
        let single = lists.len() == 1;
        for (group, list) in (0u32..).zip(lists) {
            let ranks = self.rank_list(list)?;
            if ranks.is_empty() {
                return Err(list.fault("a communicator needs at least one rank, found `[]`"));
            }
            let communicator = first + group;
            for (index, &(rank, column)) in (0..).zip(&ranks) {
                if members.insert(rank, Binding { communicator, index }).is_some() {
                    return Err(Fault::new(
                        line,
                        column,
                        format!("rank {rank} is in communicator `{name}` twice"),
                    ));
                }
            }
            let ranks = ranks.into_iter().map(|(rank, _)| RankId(rank)).collect();
            let name = if single { name.clone() } else { format!("{name}[{group}]") };
            self.communicators.push(Communicator { name, ranks });
        }
        let lists = self.communicators[first as usize..].iter().map(|group| group.ranks.as_slice());
        let domain = neighbours(lists, self.gpus);
        let groups = first..self.communicators.len() as u32;
        self.families.push(Family { name, line, groups, members: Some(members), domain });
        Ok(())
    }

    /// Ranks and their columns in the order of the list; numbers and `"first-last"` ranges.
    fn rank_list(&self, value: Value) -> Result<Vec<(u32, u64)>, Fault> {
        let mut ranks = Vec::new();
        for element in value.list("a list of ranks such as [0, 1, \"4-7\"]")? {
            if !element.text.starts_with('"') {
                ranks.push((self.rank(element)?, element.column));
                continue;
            }
            let text = element.string()?;
            let parts = text
                .split_once('-')
                .and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
            let (first, last): (u32, u32) = parts.filter(|(first, last)| first <= last).ok_or_else(|| {
                element.fault(format!("expected a range such as \"4-7\", found {}", element.shown()))
            })?;
            if last >= self.ranks() {
                return Err(self.no_such_rank(element, u64::from(last)));
            }
            ranks.extend((first..=last).map(|rank| (rank, element.column)));
            if ranks.len() as u64 > MOST_RANKS {
                return Err(element.fault(format!("a list has at most {MOST_RANKS} ranks")));
            }
        }
        Ok(ranks)
    }

    fn rank(&self, value: Value) -> Result<u32, Fault> {
        let rank = value.integer("a rank", u64::from(u32::MAX))?;
        if rank < u64::from(self.ranks()) { Ok(rank as u32) } else { Err(self.no_such_rank(value, rank)) }
    }

    fn no_such_rank(&self, value: Value, rank: u64) -> Fault {
        let last = self.ranks() - 1;
        value.fault(format!("rank {rank} does not exist, the ranks are 0 to {last}"))
    }

    fn operation(&mut self, fields: &Fields, kind: &str, line: u64) -> Result<(), Fault> {
        let stream = match fields.get("stream") {
            Some(value) => StreamId(value.integer("a stream", 255)? as u8),
            None => StreamId(0),
        };
        let value = fields.require(kind, "an operation")?;
        let own: &[&str] = match kind {
            "compute" => &["compute"],
            "collective" => &[
                "collective",
                "communicator",
                "bytes",
                "algorithm",
                "form",
                "outstanding",
                "domain",
                "root",
                "matrix",
            ],
            "send" => &["send"],
            _ => &["receive"],
        };
        let allowed: Vec<&str> = own.iter().chain(&COMMON).copied().collect();
        let of = format!("a {kind} operation");
        fields.only(&allowed, &of)?;
        let work = match kind {
            "compute" => {
                let duration = Span::from_ps(value.quantity(Unit::Time)?);
                Work::Plain(OpKind::Calc { duration, stream })
            }
            "send" => Work::Plain(self.send(&fields.object(value)?, stream)?),
            "receive" => Work::Plain(self.receive(&fields.object(value)?, stream)?),
            _ => self.collective(fields, value, stream)?,
        };
        let ranks = self.who(fields, &work)?;
        let id = match fields.get("id") {
            Some(value) => Some((value.string()?, value.column)),
            None => None,
        };
        let label = match fields.get("label") {
            Some(value) => value.string()?,
            None => id.as_ref().map_or_else(String::new, |(id, _)| id.clone()),
        };
        let dimension = match fields.get("dimension") {
            Some(value) => value.name("a dimension")?,
            None => Dimension::Other,
        };
        let mut after = Vec::new();
        for (key, irequires) in [("after", false), ("after_start", true)] {
            let Some(value) = fields.get(key) else { continue };
            let ids = if value.text.starts_with('"') { vec![value] } else { value.list("a list of ids")? };
            for value in ids {
                after.push(After { id: value.string()?, irequires, column: value.column });
            }
        }
        self.operations.push(Draftling { line, ranks, id, label, dimension, work, after });
        Ok(())
    }

    /// `rank`, `ranks`, or by default all ranks or all members.
    fn who(&self, fields: &Fields, work: &Work) -> Result<Ranks, Fault> {
        let mut ranks = match (fields.get("rank"), fields.get("ranks")) {
            (Some(_), Some(_)) => {
                return Err(
                    fields.fault_at_key("ranks", "an operation has either `rank` or `ranks`, found both")
                );
            }
            (Some(value), None) => vec![(self.rank(value)?, value.column)],
            (None, Some(value)) if value.text.starts_with('[') => self.rank_list(value)?,
            (None, Some(value)) => {
                value.name::<Everyone>("a list of ranks or `all`")?;
                return self.everyone(fields, work);
            }
            (None, None) => {
                if let Work::Collective { family, .. } = work
                    && let Some(members) = &self.families[*family].members
                {
                    // Sorted, so the order of the map does not matter.
                    let mut ranks: Vec<u32> = members.keys().copied().collect();
                    ranks.sort_unstable();
                    return Ok(Ranks::Some(ranks));
                }
                return Ok(Ranks::All);
            }
        };
        ranks.sort_unstable();
        if let Some(pair) = ranks.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let message = format!("rank {} is named twice", pair[1].0);
            return Err(Fault::new(fields.fault("").line, pair[1].1, message));
        }
        if let Work::Collective { family, .. } = work {
            let family = &self.families[*family];
            if let Some(&(rank, column)) = ranks.iter().find(|(rank, _)| family.binding(*rank).is_none()) {
                let message = format!("rank {rank} is not in communicator `{}`", family.name);
                return Err(Fault::new(fields.fault("").line, column, message));
            }
        }
        Ok(Ranks::Some(ranks.into_iter().map(|(rank, _)| rank).collect()))
    }

    fn everyone(&self, fields: &Fields, work: &Work) -> Result<Ranks, Fault> {
        if let Work::Collective { family, .. } = work {
            let family = &self.families[*family];
            if let Some(rank) = (0..self.ranks()).find(|&rank| family.binding(rank).is_none()) {
                let message = format!("rank {rank} is not in communicator `{}`", family.name);
                return Err(fields
                    .fault_at_key("ranks", message)
                    .hint("left out, `ranks` means all members"));
            }
        }
        Ok(Ranks::All)
    }

    fn send(&self, fields: &Fields, stream: StreamId) -> Result<OpKind, Fault> {
        fields.only(&["to", "bytes", "tag", "nic"], "a send")?;
        let to = self.rank(fields.require("to", "a send")?)?;
        let bytes = Bytes::new(fields.require("bytes", "a send")?.quantity(Unit::Size)?);
        let tag = fields.get("tag").map_or(Ok(0), tag_of)?;
        let nic = match fields.get("nic") {
            Some(value) => NicId(value.integer("a NIC", 255)? as u8),
            None => NicId(0),
        };
        Ok(OpKind::Send { peer: Peer::Rank(RankId(to)), bytes, tag: Tag(tag), stream, nic })
    }

    fn receive(&self, fields: &Fields, stream: StreamId) -> Result<OpKind, Fault> {
        fields.only(&["from", "tag"], "a receive")?;
        let any = |value: &Value| value.text == "\"any\"";
        let from = fields.require("from", "a receive")?;
        let peer = if any(&from) { None } else { Some(Peer::Rank(RankId(self.rank(from)?))) };
        let tag = match fields.get("tag") {
            Some(value) if any(&value) => None,
            Some(value) => Some(Tag(tag_of(value)?)),
            None => Some(Tag(0)),
        };
        Ok(OpKind::Receive { peer, tag, stream })
    }

    fn collective(&self, fields: &Fields, named: Value, stream: StreamId) -> Result<Work, Fault> {
        let mut kind = named.name("a collective")?;
        let family = match fields.get("communicator") {
            None => 0,
            Some(value) => {
                let name = value.string()?;
                self.families.iter().position(|family| family.name == name).ok_or_else(|| {
                    let known = self.families.iter().map(|family| family.name.as_str());
                    let fault = value.fault(format!("communicator `{name}` is not defined"));
                    match nearest(&name, known) {
                        near @ Some(_) => fault.near(near),
                        None => fault.hint("define it in an earlier line, or use `world`"),
                    }
                })?
            }
        };
        let groups = || self.families[family].groups.clone().map(|group| &self.communicators[group as usize]);
        let smallest = groups().map(|group| group.ranks.len()).min().unwrap_or(1) as u64;
        let root = fields.get("root");
        match (&mut kind, root) {
            (CollectiveKind::Broadcast { root } | CollectiveKind::Reduce { root }, Some(value)) => {
                *root = value.integer("the root's position in the communicator", smallest - 1)? as u32;
            }
            (_, Some(_)) => {
                return Err(fields.fault_at_key("root", format!("`{}` has no root", kind.entry().name)));
            }
            (_, None) => {}
        }
        let matrix = match (kind, fields.get("matrix")) {
            (CollectiveKind::AllToAllV, None) => {
                return Err(named.fault("`all_to_all_v` needs `matrix`, the bytes from each member to each"));
            }
            (CollectiveKind::AllToAllV, Some(value)) => {
                let n = smallest as usize;
                if groups().any(|group| group.ranks.len() != n) {
                    return Err(value
                        .fault("the groups of the communicator differ in size, one matrix cannot fit all"));
                }
                Some(matrix(value, n)?)
            }
            (_, Some(_)) => {
                return Err(fields.fault_at_key("matrix", "only `all_to_all_v` has a matrix"));
            }
            (_, None) => None,
        };
        let bytes = match (fields.get("bytes"), &matrix) {
            (Some(value), _) => value.quantity(Unit::Size)?,
            (None, Some(matrix)) => matrix.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)),
            (None, None) if kind == CollectiveKind::Barrier => 0,
            (None, None) => return Err(named.fault(format!("`{}` needs `bytes`", kind.entry().name))),
        };
        let mut spec = CollectiveSpec::new(kind, Bytes::new(bytes));
        spec.matrix = matrix.map(Into::into);
        spec.domain = self.families[family].domain;
        if let Some(value) = fields.get("algorithm") {
            spec.algorithm = value.name("an algorithm")?;
        }
        if let Some(value) = fields.get("form") {
            spec.form = value.name("a form")?;
        }
        for (key, field) in [("outstanding", &mut spec.outstanding), ("domain", &mut spec.domain)] {
            if let Some(value) = fields.get(key) {
                *field = value.integer("a number", u64::from(u32::MAX))? as u32;
                if *field == 0 {
                    return Err(value.fault(format!("`{key}` is at least 1, found `0`")));
                }
            }
        }
        Ok(Work::Collective { family, spec, stream })
    }
}

fn tag_of(value: Value) -> Result<u64, Fault> {
    // The high half belongs to the collectives' own messages.
    value.integer("a tag", u64::from(u32::MAX) - 1)
}

/// An n × n list of sizes, row by row.
fn matrix(value: Value, n: usize) -> Result<Vec<u64>, Fault> {
    let rows = value.list("a list of rows, one per member")?;
    if rows.len() != n {
        return Err(value.fault(format!("expected {n} rows, one per member, found {}", rows.len())));
    }
    let mut matrix = Vec::with_capacity(n * n);
    for row in rows {
        let entries = row.list("a row, one size per member")?;
        if entries.len() != n {
            return Err(row.fault(format!("expected {n} sizes, one per member, found {}", entries.len())));
        }
        for entry in entries {
            matrix.push(entry.quantity(Unit::Size)?);
        }
    }
    Ok(matrix)
}
