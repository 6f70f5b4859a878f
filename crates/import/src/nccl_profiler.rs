//! NCCL's example profiler plugin (NCCL 2.23 and newer): Chrome's trace format, a file a rank of a communicator.
//!
//! Every event is a pair of a begin (`ph` b) and an end (e) that encloses what it is made of: groups and calls of the API, collectives
//! (`COLL`) and messages (`P2P`), and inside them the kernels' channels (`GPU`), operations of the proxy (`PROXY`) and of the network
//! (`NET`, `NET_IB`, `NET_SOCK`). Collectives by copy engines (`CE_COLL`, 2.29) name neither communicator nor rank: their file does.
//!
//! | NCCL | differs |
//! |---|---|
//! | 2.23 | types of elements are numbers; files are `DUMP-HOST-THREAD.txt` (to 2.26) |
//! | 2.26 | channels of kernels; from 2.27 on with the GPU's clock, and files are `DUMP_HASH_RANK.json` |
//! | 2.28 | events of the API with the root; 2.28.3 writes words and addresses without quotes, which is no JSON |
//!
//! How many ranks a communicator has is in no event: as many as name themselves or are named. The plugin writes what is left in its pools
//! when a communicator ends; what fell out of them is told by gaps in the numbers of calls.

mod event;

use std::collections::BTreeMap;

use windtunnel_kernel::registry::Entry;

use crate::coverage::{Amount, Coverage, Treatment};
use crate::draft::Draft;
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::json::Elements;
use crate::kineto::{LATEST, nanoseconds};
use crate::nccl::{self, Record, Records};
use crate::{Options, Reader};
use event::{Arguments, Category, Event};

/// The example profiler plugin.
pub struct NcclProfiler;

const HINT: &str = "set `NCCL_PROFILE_EVENT_MASK=70` (collectives, messages, channels of kernels) and pools as large as the job has operations, \
                    such as `NCCL_PROFILE_COLL_POOL_SIZE=2000`";

impl Reader for NcclProfiler {
    fn entry(&self) -> &'static Entry {
        const { &Entry::new("nccl-profiler", "events of NCCL's example profiler plugin, of every rank") }
    }

    fn detects(&self, head: &[u8], _name: &str) -> bool {
        event::begins(head)
    }

    fn read(
        &self,
        inputs: &[Input],
        _options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let mut all = Reading::default();
        for (file, input) in (0..).zip(inputs) {
            all.file(file, input, coverage)?;
        }
        let mut draft = Draft { source: inputs[0].name.clone(), ..Draft::default() };
        let records = all.records(coverage);
        if records.list.is_empty() {
            return Err(
                ImportError::new(&draft.source, "collectives or messages (`COLL`, `P2P`)", "none").hint(HINT)
            );
        }
        coverage.note("the plugin records no computation: gaps between operations stand for it");
        nccl::assemble(&records, inputs, &mut draft, coverage)?;
        Ok(draft)
    }
}

/// Times of an operation, in ns of the process or of its GPU.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    begin: i64,
    end: Option<i64>,
    /// First and last instant of its kernel's channels, as the host saw them.
    kernel: Option<(i64, i64)>,
    /// The same by the GPU's clock.
    clock: Clock,
}

/// What an operation's channels say by the GPU's clock.
#[derive(Clone, Copy, Debug, Default)]
enum Clock {
    #[default]
    NoChannel,
    /// First and last instant.
    All(i64, i64),
    /// A channel does not say it.
    NotAll,
}

impl Times {
    fn channel(&mut self, start: i64, clock: Option<(i64, i64)>) {
        let (first, last) = self.kernel.unwrap_or((start, start));
        self.kernel = Some((first.min(start), last.max(start)));
        self.clock = match (self.clock, clock) {
            (Clock::NoChannel, Some((first, last))) => Clock::All(first, last),
            (Clock::All(first, last), Some((start, stop))) => Clock::All(first.min(start), last.max(stop)),
            _ => Clock::NotAll,
        };
    }

    /// Start and end by the GPU's clock, where all channels say it.
    fn by_clock(&self) -> Option<(i64, i64)> {
        if let Clock::All(first, last) = self.clock { Some((first, last)) } else { None }
    }

    /// Start and end, by the GPU's clock if `clock`.
    fn span(&self, clock: bool) -> Option<(i64, i64)> {
        if clock {
            return self.by_clock();
        }
        // A channel whose end was not seen has that of its operation.
        let kernel = self.kernel.filter(|(start, end)| end > start);
        kernel.or(Some(self.begin).zip(self.end)).filter(|(start, end)| end >= start)
    }
}

/// An operation, before the times of its process are known.
struct Operation {
    record: Record,
    times: Times,
}

/// What is read of all files.
#[derive(Default)]
struct Reading {
    operations: Vec<Operation>,
    words: Records,
    /// Files that end before their last bracket.
    cut: u64,
}

/// Where in a file the reading is.
struct Position<'a> {
    file: u32,
    host: &'a str,
    /// Communicator and rank that the file is named after, or that its events name.
    own: Option<(u64, u32)>,
    /// Begins of each category that have no end yet.
    open: BTreeMap<Category, u64>,
    group: Option<u32>,
    groups: u32,
    /// Root of the call of the API around.
    root: Option<u32>,
    /// The operation around.
    operation: Option<usize>,
}

impl Reading {
    fn file(&mut self, file: u32, input: &Input, coverage: &mut Coverage) -> Result<(), ImportError> {
        let (host, own) = event::said_by_name(&input.name);
        let mut at = Position {
            file,
            host,
            own,
            open: BTreeMap::new(),
            group: None,
            groups: 0,
            root: None,
            operation: None,
        };
        let mut elements = Elements::new(input.open()?, &input.name, "traceEvents");
        loop {
            let (byte, element) = match elements.element() {
                Ok(Some(found)) => found,
                Ok(None) => break,
                // The process ended while it wrote, or before.
                Err(error) if error.is_cut() && !at.open.is_empty() => {
                    self.cut += 1;
                    break;
                }
                Err(error) => return Err(error),
            };
            let fault = |(expected, found): (String, String)| {
                ImportError::new(&input.name, expected, found).at(Place::Byte(byte))
            };
            let mended;
            let event = match serde_json::from_slice::<Event<'_>>(element) {
                Ok(event) => event,
                Err(_) => {
                    mended = event::with_quotes(element);
                    serde_json::from_slice::<Event<'_>>(&mended).map_err(|error| {
                        let found: String = String::from_utf8_lossy(element).chars().take(60).collect();
                        fault(("an event in JSON".to_owned(), format!("`{found}` ({error})")))
                    })?
                }
            };
            self.event(&event, &mut at, coverage).map_err(fault)?;
        }
        if !elements.found {
            return Err(ImportError::new(&input.name, "an array of events", "a JSON object without one")
                .hint("give the files that `NCCL_PROFILE_DUMP_FILE` names"));
        }
        Ok(())
    }

    fn event(
        &mut self,
        event: &Event<'_>,
        at: &mut Position<'_>,
        coverage: &mut Coverage,
    ) -> Result<(), (String, String)> {
        let text = event.cat.as_deref().unwrap_or("");
        let kind = format!("event {}", if text.is_empty() { "of no category" } else { text });
        let Some(phase) = event.ph.as_deref() else {
            // The plugin ends its array by `{}`.
            if event.name.is_some() || !text.is_empty() {
                coverage.count(&kind, Treatment::Dropped, "neither a begin nor an end", 0, 0);
            }
            return Ok(());
        };
        let category = Category::of(text);
        if !matches!(phase, "b" | "e") {
            coverage.count(&kind, Treatment::Dropped, "neither a begin nor an end", 0, 0);
            return Ok(());
        }
        let time = || -> Result<i64, (String, String)> {
            let found = event.ts.map_or("nothing", |ts| ts.get());
            nanoseconds(found)
                .filter(|at| at.unsigned_abs() <= LATEST)
                .ok_or_else(|| ("`ts` in microseconds".to_owned(), format!("`{found}`")))
        };
        let open = at.open.entry(category).or_default();
        if phase == "e" {
            if *open == 0 {
                coverage.count(&kind, Treatment::Dropped, "an end whose begin is not there", 0, 0);
                return Ok(());
            }
            *open -= 1;
            match category {
                Category::Group if *open == 0 => at.group = None,
                Category::Call => at.root = None,
                Category::Operation => {
                    if let Some(own) = at.operation.take() {
                        self.operations[own].times.end = Some(time()?);
                    }
                }
                Category::Kernel => {
                    if let Some(times) = at.operation.map(|own| &mut self.operations[own].times)
                        && let Some((_, end)) = &mut times.kernel
                    {
                        *end = (*end).max(time()?);
                    }
                }
                _ => {}
            }
            return Ok(());
        }
        *open += 1;
        let (treatment, why) = match category {
            Category::Operation => {
                if !self.operation(event, time()?, at)? {
                    let why = "neither its file's name nor another event says whose it is";
                    coverage.count(&kind, Treatment::Dropped, why, 0, 0);
                }
                return Ok(());
            }
            Category::Group => {
                // Groups of a group are one.
                if *open == 1 {
                    at.group = Some(at.groups);
                    at.groups += 1;
                }
                (Treatment::Mapped, "around operations: those of one are launched together")
            }
            Category::Call => {
                at.root = Arguments::parse(event.args).number(|own| own.root);
                (Treatment::Mapped, "around an operation: says its root, if it has one")
            }
            Category::Kernel => {
                let said = Arguments::parse(event.args);
                let clock = said.number(|own| own.start).zip(said.number(|own| own.stop));
                let clock = clock.filter(|&(start, stop): &(i64, i64)| {
                    start > 0 && stop >= start && stop.unsigned_abs() <= LATEST
                });
                if let Some(own) = at.operation {
                    self.operations[own].times.channel(time()?, clock);
                }
                (Treatment::Mapped, "inside an operation: says its times")
            }
            Category::Launch => (Treatment::Mapped, "launches operations"),
            Category::Inside if at.operation.is_some() => (Treatment::Mapped, "inside an operation"),
            Category::Inside => (
                Treatment::Mapped,
                "inside operations of other processes (PXN), or what the proxy's thread did",
            ),
            Category::Unknown => (Treatment::Dropped, "its category is not known"),
        };
        coverage.count(&kind, treatment, why, 0, 0);
        Ok(())
    }

    /// Keeps an operation; false where it is not said of which communicator and rank.
    fn operation(
        &mut self,
        event: &Event<'_>,
        begin: i64,
        at: &mut Position<'_>,
    ) -> Result<bool, (String, String)> {
        let said = Arguments::parse(event.args);
        let by_engine = event.cat.as_deref() == Some("CE_COLL");
        let own = said.number(|own| own.communicator).zip(said.number(|own| own.rank));
        if own.is_none() && !by_engine {
            let found = event.args.map_or("nothing", |args| args.get());
            let found: String = found.chars().take(60).collect();
            return Err(("`CommHash` and `Rank` of an operation".to_owned(), format!("`{found}`")));
        }
        at.own = own.or(at.own);
        at.operation = None;
        let Some((communicator, rank)) = at.own else { return Ok(false) };
        let elements: u64 = said.number(|own| own.count).unwrap_or(0);
        let width = said.element_bytes();
        let peer: Option<u32> = said.number(|own| own.peer);
        let what = event.name.as_deref().unwrap_or("");
        let is_message = matches!(what, "Send" | "Recv");
        let record = Record {
            file: at.file,
            process: said_process(event).map(|number| self.words.process(at.host, number)),
            communicator: self.words.name(&communicator.to_string()),
            rank,
            // NCCL launches nothing where a rank is alone.
            ranks: rank.max(peer.unwrap_or(0)).saturating_add(1).max(2),
            what: self.words.name(what),
            number: said.number(|own| own.sequence),
            bytes: elements.saturating_mul(width.unwrap_or(4)),
            length: 0,
            span: None,
            peer: peer.filter(|_| is_message),
            root: at.root,
            group: at.group.filter(|_| is_message),
            order: (begin, 0),
            verdict: width
                .is_none()
                .then_some((Treatment::Guessed, "the type of its elements is not known: four bytes")),
        };
        at.operation = Some(self.operations.len());
        self.operations.push(Operation { record, times: Times { begin, ..Times::default() } });
        Ok(true)
    }

    /// The records, with the times of the best clock that a process has for all of them.
    fn records(mut self, coverage: &mut Coverage) -> Records {
        let mut clocks: BTreeMap<Option<u32>, bool> = BTreeMap::new();
        let mut sizes: BTreeMap<u32, u32> = BTreeMap::new();
        for Operation { record, times } in &self.operations {
            *clocks.entry(record.process).or_insert(true) &= times.by_clock().is_some();
            let size = sizes.entry(record.communicator).or_insert(0);
            *size = (*size).max(record.ranks);
        }
        let (mut host, mut latest) = (false, BTreeMap::new());
        let mut numbers: BTreeMap<(u32, u32, u32), (u64, u64, u64)> = BTreeMap::new();
        for Operation { mut record, times } in self.operations.drain(..) {
            record.ranks = sizes[&record.communicator];
            record.span = times.span(clocks[&record.process]);
            host |= times.kernel.is_none();
            let start = record.span.map_or(times.begin, |span| span.0);
            match record.span {
                Some((start, end)) => record.length = (end - start).unsigned_abs(),
                None => record.verdict = Some((Treatment::Approximated, "its end is not recorded: no time")),
            }
            // Of a communicator, operations stand in the order in which they were called, whatever their times.
            let own = latest.entry((record.file, record.communicator, record.rank)).or_insert(start);
            *own = start.max(*own);
            record.order = (*own, 0);
            if let Some(number) = record.number {
                let key = (record.communicator, record.rank, record.what);
                let seen = numbers.entry(key).or_insert((number, number, 0));
                *seen = (seen.0.min(number), seen.1.max(number), seen.2 + 1);
                // Each name of a call has numbers of its own.
                record.number = Some(number.saturating_mul(1 << 20).saturating_add(record.what.into()));
            }
            self.words.list.push(record);
        }
        let why = "how many ranks it has is not recorded: as many as name themselves or are named";
        let amount = Amount { operations: sizes.len() as u64, ..Amount::default() };
        coverage.add("communicator", Treatment::Guessed, why, amount);
        let lost: u64 = numbers.values().fold(0, |sum, &(first, last, count)| {
            sum.saturating_add((last - first).saturating_add(1).saturating_sub(count)).saturating_add(first)
        });
        if lost > 0 {
            coverage.note(format!(
                "{lost} collectives fell out of the plugin's pools (their numbers are missing): {HINT}, with those of groups and calls alike"
            ));
        }
        if host {
            coverage.note(format!(
                "operations without channels of kernels have the times of the host, which without events of the proxy end before they do: {HINT}"
            ));
        }
        if self.cut > 0 {
            coverage.note(format!(
                "{} files end before their last bracket: what was written is read (let the job end its communicators)",
                self.cut
            ));
        }
        self.words
    }
}

/// The process that wrote an event.
fn said_process(event: &Event<'_>) -> Option<u64> {
    event.pid?.get().parse().ok()
}
