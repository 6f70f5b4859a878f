//! OTF2 archives (Score-P, versions 1 to 3): the MPI calls of every rank.
//!
//! An archive is an anchor (`traces.otf2`), global definitions (`traces.def`), and for each location its definitions and events
//! (`traces/N.def`, `traces/N.evt`). Ranks are the members of MPI's group of locations. What stands between two regions whose name begins
//! with `MPI_` is computation. A receive that was asked for early is known whole only when it has ended; its record is looked up by
//! its request. Sizes of collectives are counted as Score-P counts them: of an all-reduce over all members together.

mod records;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use windtunnel_kernel::registry::Entry;
use windtunnel_workload::collectives::CollectiveKind;

use crate::coverage::{Coverage, Treatment};
use crate::draft::Draft;
use crate::error::ImportError;
use crate::input::Input;
use crate::mpi::{Envelope, Said, Script, Tags};
use crate::{Options, Reader};
use records::{Definitions, Record, anchor, each, id, local, number};

/// OTF2.
pub struct Otf2;

/// Kinds and paradigms of groups, as OTF2 numbers them.
const COMM_LOCATIONS: u8 = 4;
const COMM_SELF: u8 = 6;
const MPI: u8 = 4;

impl Reader for Otf2 {
    fn entry(&self) -> &'static Entry {
        const { &Entry::new("otf2", "OTF2 archives of Score-P: MPI calls of every rank") }
    }

    fn detects(&self, head: &[u8], name: &str) -> bool {
        head.first() == Some(&3) && matches!(end_of(name), "otf2" | "def" | "evt")
    }

    fn read(
        &self,
        inputs: &[Input],
        _options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let named = |name: &str| inputs.iter().find(|input| input.name == name);
        let ending = |wanted: &str| {
            let wanted = wanted.to_owned();
            move |input: &&Input| end_of(&input.name) == wanted
        };
        let anchors: Vec<&Input> = inputs.iter().filter(ending("otf2")).collect();
        let &[anchor_file] = &anchors[..] else {
            let found = match anchors.len() {
                0 => "none".to_owned(),
                several => format!("{several} of them"),
            };
            return Err(ImportError::new(&inputs[0].name, "one anchor file `traces.otf2`", found)
                .hint("give the folder that Score-P wrote; of several, `--only TEXT` takes those whose name has TEXT"));
        };
        let stem = anchor_file.name.trim_end_matches(".otf2").to_owned();
        let find = |name: String| {
            named(&name).ok_or_else(|| {
                ImportError::new(&anchor_file.name, format!("`{name}` beside it"), "no such file")
                    .hint("copy the whole folder that Score-P wrote")
            })
        };
        let sizes = anchor(&anchor_file.name, &anchor_file.whole()?)?;
        let file = find(format!("{stem}.def"))?;
        let known = Definitions::read(&file.name, &file.whole()?, sizes.definition_chunk)?;
        let locations =
            known.groups.values().find(|(kind, paradigm, _)| (*kind, *paradigm) == (COMM_LOCATIONS, MPI));
        let Some((_, _, locations)) = locations else {
            return Err(ImportError::new(&file.name, "the locations of MPI's ranks", "none")
                .hint("only programs that use MPI are read"));
        };
        let world =
            crate::assemble::believable(u32::try_from(locations.len()).unwrap_or(u32::MAX), &file.name)?;
        let mut draft = Draft { source: anchor_file.name.clone(), world: Some(world), ..Draft::default() };
        let mut tags = Tags::default();
        let threads = inputs.iter().filter(ending("evt")).count();
        if threads > locations.len() {
            coverage.note("locations that are no rank (threads, GPUs) are not read: what they do is inside the ranks' computation");
        }
        for (rank, location) in (0..).zip(locations) {
            let numbers = match named(&format!("{stem}/{location}.def")) {
                Some(file) => local(&file.name, &file.whole()?, sizes.definition_chunk)?,
                None => (BTreeMap::new(), 0),
            };
            let file = find(format!("{stem}/{location}.evt"))?;
            let all = file.whole()?;
            let mut taken = FxHashMap::default();
            each(&file.name, &all, sizes.event_chunk, true, |mut record| {
                if record.kind == 19 {
                    let message = Message::read(&mut record.fields)?;
                    taken.insert(id(&mut record.fields)?, message);
                }
                Ok(())
            })?;
            let mut replay = Replay {
                known: &known,
                numbers: &numbers.0,
                offset: numbers.1,
                rank,
                world,
                script: Script::new(rank, &mut tags),
                draft: &mut draft,
                taken,
                regions: Vec::new(),
                inside: None,
            };
            each(&file.name, &all, sizes.event_chunk, true, |record| replay.record(record, coverage))?;
            let program = replay.script.finish(coverage);
            draft.ranks.insert(rank, program.of_file(&file.name));
        }
        Ok(draft)
    }
}

/// What a name ends in, behind the last dot.
fn end_of(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, end)| end)
}

/// A message as an event tells of it.
#[derive(Clone, Copy)]
struct Message {
    peer: Option<u64>,
    communicator: u64,
    tag: u64,
    bytes: u64,
}

impl Message {
    fn read(fields: &mut crate::bytes::Bytes<'_>) -> Result<Self, ImportError> {
        Ok(Self {
            peer: number(fields)?,
            communicator: id(fields)?,
            tag: id(fields)?,
            bytes: number(fields)?.unwrap_or(0),
        })
    }
}

/// What happens inside a call of MPI.
enum Event {
    Send(Message, Option<u64>),
    Receive(Message, Option<u64>),
    Ended(u64),
    Collective { kind: u64, communicator: u64, root: Option<u64>, sent: u64, received: u64 },
}

struct Replay<'a, 'b> {
    known: &'a Definitions,
    /// A location's communicators: local number → global.
    numbers: &'a BTreeMap<u64, u64>,
    offset: i64,
    rank: u32,
    world: u32,
    script: Script<'a>,
    draft: &'b mut Draft,
    /// Receives that have ended, by request.
    taken: FxHashMap<u64, Message>,
    /// Whether each region that was entered is a call of MPI.
    regions: Vec<bool>,
    /// Begin, name and events of the call of MPI that goes on.
    inside: Option<(u64, u64, Vec<Event>)>,
}

impl Replay<'_, '_> {
    /// Ticks as ns.
    fn time(&self, ticks: u64) -> i64 {
        let time = u128::from(ticks) * 1_000_000_000 / u128::from(self.known.resolution);
        i64::try_from(time).unwrap_or(i64::MAX)
    }

    fn record(&mut self, mut record: Record<'_>, coverage: &mut Coverage) -> Result<(), ImportError> {
        let fields = &mut record.fields;
        let event = match record.kind {
            12 => {
                let region = id(fields)?;
                let is_mpi = self.known.region(region).starts_with("MPI_");
                if is_mpi && self.inside.is_none() {
                    self.inside = Some((record.ticks, region, Vec::new()));
                }
                self.regions.push(is_mpi);
                return Ok(());
            }
            13 => {
                let is_mpi = self.regions.pop().unwrap_or(false);
                if is_mpi
                    && !self.regions.contains(&true)
                    && let Some((begin, region, events)) = self.inside.take()
                {
                    self.call(begin, record.ticks, region, &events, coverage);
                }
                return Ok(());
            }
            14 => Event::Send(Message::read(fields)?, None),
            15 => Event::Send(Message::read(fields)?, Some(id(fields)?)),
            16 => Event::Ended(id(fields)?),
            17 => {
                let request = id(fields)?;
                match self.taken.get(&request) {
                    Some(&message) => Event::Receive(message, Some(request)),
                    None => {
                        let why = "never ended: its sender is not known";
                        coverage.count("non-blocking receive", Treatment::Dropped, why, 0, 0);
                        return Ok(());
                    }
                }
            }
            18 => Event::Receive(Message::read(fields)?, None),
            19 => {
                let _message = Message::read(fields)?;
                Event::Ended(id(fields)?)
            }
            23 => Event::Collective {
                kind: u64::from(fields.u8()?),
                communicator: id(fields)?,
                root: number(fields)?,
                sent: number(fields)?.unwrap_or(0),
                received: number(fields)?.unwrap_or(0),
            },
            _ => return Ok(()),
        };
        match &mut self.inside {
            Some((_, _, events)) => events.push(event),
            None => coverage.count(
                "event outside a call of MPI",
                Treatment::Dropped,
                "whose it is is not known",
                0,
                0,
            ),
        }
        Ok(())
    }

    /// A communicator's name and its members as ranks of the world; of the location's own number.
    fn members(&self, local: u64) -> Option<(String, Vec<u32>)> {
        let global = self.numbers.get(&local).copied().unwrap_or(local);
        let (kind, _, members) = self.known.groups.get(self.known.communicators.get(&global)?)?;
        if *kind == COMM_SELF {
            return Some((format!("communicator {global}"), vec![self.rank]));
        }
        let members: Option<Vec<u32>> = members
            .iter()
            .map(|&member| u32::try_from(member).ok().filter(|&member| member < self.world))
            .collect();
        Some((format!("communicator {global}"), members?))
    }

    fn message(&mut self, message: &Message, sends: bool, request: Option<i64>, coverage: &mut Coverage) {
        let Some((name, members)) = self.members(message.communicator) else {
            let why = "its communicator is not defined";
            coverage.count(if sends { "send" } else { "receive" }, Treatment::Dropped, why, message.bytes, 0);
            return;
        };
        let place = message.peer.and_then(|peer| usize::try_from(peer).ok());
        let peer = place.and_then(|place| members.get(place)).copied();
        let tag = Some(message.tag as i64 & i64::MAX);
        let envelope = Envelope { communicator: &name, peer, tag, bytes: message.bytes };
        if sends {
            self.script.send(&envelope, request, coverage);
        } else {
            self.script.receive(&envelope, request, coverage);
        }
    }

    fn call(&mut self, begin: u64, end: u64, region: u64, events: &[Event], coverage: &mut Coverage) {
        let name = self.known.region(region);
        let (start, end) = (self.time(begin), self.time(end));
        if name.starts_with("MPI_Init") {
            self.script.start_at(end);
            coverage.count("other calls", Treatment::Mapped, "begin and end of MPI", 0, 0);
            return;
        }
        let length = end.saturating_sub(start).max(0) as u64;
        self.script.call(start, end, coverage);
        if events.is_empty() {
            let waits = ["MPI_Wait", "MPI_Test", "MPI_Probe", "MPI_Iprobe"];
            let why = if name == "MPI_Finalize" {
                "begin and end of MPI"
            } else if waits.iter().any(|wait| name.starts_with(wait)) {
                "nothing to wait for, or not yet"
            } else {
                self.script.compute(length, coverage);
                "no communication: their time is computation"
            };
            coverage.count("other calls", Treatment::Mapped, why, 0, length);
            return;
        }
        // A send and a receive in one call go on together.
        let both = events.iter().any(|event| matches!(event, Event::Send(_, None)))
            && events.iter().any(|event| matches!(event, Event::Receive(_, None)));
        let mut ended: Vec<i64> = Vec::new();
        for (at, event) in (0i64..).zip(events) {
            let own = |request: &Option<u64>, ended: &mut Vec<i64>| match request {
                Some(request) => Some(*request as i64),
                None if both => {
                    ended.push(i64::MIN + at);
                    Some(i64::MIN + at)
                }
                None => None,
            };
            match event {
                Event::Send(message, request) => {
                    let request = own(request, &mut ended);
                    self.message(message, true, request, coverage);
                }
                Event::Receive(message, request) => {
                    let request = own(request, &mut ended);
                    self.message(message, false, request, coverage);
                }
                Event::Ended(request) => ended.push(*request as i64),
                Event::Collective { .. } => self.collective(event, begin, length, coverage),
            }
        }
        if !ended.is_empty() {
            self.script.wait(&ended, coverage);
        }
    }

    fn collective(&mut self, event: &Event, begin: u64, length: u64, coverage: &mut Coverage) {
        let &Event::Collective { kind, communicator, root, sent, received } = event else { return };
        let known = self.members(communicator);
        let dropped = |why: &str, coverage: &mut Coverage, script: &mut Script<'_>| {
            coverage.count("collective", Treatment::Dropped, why, sent.max(received), length);
            script.compute(length, coverage);
        };
        let Some((name, members)) = known else {
            return dropped("its communicator is not defined: its time stays", coverage, &mut self.script);
        };
        let n = members.len().max(1) as u64;
        let place = root.and_then(|root| usize::try_from(root).ok()).unwrap_or(0);
        let Some(&root_rank) = members.get(place) else {
            return dropped("its root is no member: its time stays", coverage, &mut self.script);
        };
        let root = place as u32;
        let own = members.iter().position(|&member| member == self.rank).unwrap_or(0) as u64;
        let (kind, bytes, as_another) = match kind {
            0 => (CollectiveKind::Barrier, 0, None),
            1 => (CollectiveKind::Broadcast { root }, received, None),
            2..=5 => {
                let into = kind <= 3;
                // Of a scatter each says what it received; the root's whole is shared out evenly where parts differ.
                let part = match (into, self.rank == root_rank) {
                    (true, false) => sent,
                    (true, true) => received / n,
                    (false, false) => received,
                    (false, true) => sent / n,
                };
                self.script.rooted(&name, &members, root_rank, &[part], into, coverage);
                return;
            }
            6 | 7 => (CollectiveKind::AllGather, sent.max(received), None),
            8..=10 => (CollectiveKind::AllToAll, sent, None),
            11 => (CollectiveKind::AllReduce, received / n, None),
            12 => (CollectiveKind::Reduce { root }, sent, None),
            13 | 16 => (CollectiveKind::ReduceScatter, sent.max(received), None),
            14 | 15 => {
                let vector = (received / (own + 1)).max(sent / (n - own).max(1));
                (CollectiveKind::AllReduce, vector, Some("a scan, as an all-reduce"))
            }
            _ => return dropped("making something: its time stays", coverage, &mut self.script),
        };
        let ticks = (begin as i64).saturating_add(self.offset).max(0) as u64;
        let came = Some(self.time(ticks));
        let said = Said { came, as_another, ..Said::new(kind, bytes, length) };
        self.script.begin_collective(self.draft, &name, &members, said, None, coverage);
    }
}
