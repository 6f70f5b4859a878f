//! Requests of clients as messages and work between the ranks of a storage architecture.

use rustc_hash::{FxHashMap, FxHashSet};
use windtunnel_kernel::{Span, StreamId};
use windtunnel_workload::Dimension;

use super::Request;
use super::architecture::{Architecture, By, CLIENT, Payload, Step, Which};
use crate::draft::{Draft, RankDraft, Work};

/// Messages, arrivals at clients, and what servers do, each on a stream of its own.
const NETWORK: StreamId = StreamId(0);
const CLOCK: StreamId = StreamId(1);
const DISK: StreamId = StreamId(2);

/// A request under way: of each rank that it has reached, what it does next waits for.
struct Course<'a> {
    architecture: &'a Architecture,
    request: &'a Request,
    client: u32,
    number: u64,
    ready: FxHashMap<u32, Vec<u32>>,
}

impl Course<'_> {
    /// The ranks of a place in a step.
    fn ranks(&self, (role, which): (usize, Which)) -> Vec<u32> {
        let role = &self.architecture.roles[role];
        if role.name == CLIENT {
            return vec![self.client];
        }
        let key = match role.by {
            By::Extent => self.request.offset / self.architecture.extent,
            By::Device => self.request.device,
            By::Request => self.number,
            By::First => 0,
        };
        let home = key % u64::from(role.ranks);
        let copy = |copy: u32| role.first + ((home + u64::from(copy)) % u64::from(role.ranks)) as u32;
        match which {
            Which::First => vec![copy(0)],
            Which::Others => (1..self.architecture.copies).map(copy).collect(),
            Which::All => (0..self.architecture.copies).map(copy).collect(),
        }
    }

    fn run(&mut self, steps: &[Step], ranks: &mut [RankDraft]) {
        let mut push = |rank: u32, work: Work, stream: StreamId, label: &str, after: &[u32]| {
            let rank = &mut ranks[rank as usize];
            let label = rank.label(label);
            rank.push(work, stream, label, Dimension::Other, after)
        };
        let tag = self.number % (1 << 31);
        for step in steps {
            match step {
                Step::Work { at, nanoseconds } => {
                    for rank in self.ranks(*at) {
                        let after = self.ready.entry(rank).or_default();
                        let span = Span::from_ns(*nanoseconds);
                        *after = vec![push(rank, Work::Calc(span), DISK, "service", after)];
                    }
                }
                Step::Send { label, from, to, payload } => {
                    let bytes = match payload {
                        Payload::Data => self.request.bytes.max(1),
                        Payload::Control => self.architecture.control,
                    };
                    let mut came: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
                    let receivers = self.ranks(*to);
                    for sender in self.ranks(*from) {
                        for &receiver in receivers.iter().filter(|&&receiver| receiver != sender) {
                            let after = self.ready.get(&sender).cloned().unwrap_or_default();
                            push(sender, Work::Send(receiver, bytes, tag), NETWORK, label, &after);
                            let before = self.ready.get(&receiver).cloned().unwrap_or_default();
                            let work = Work::Receive(Some(sender), Some(tag));
                            let receive = push(receiver, work, NETWORK, label, &before);
                            came.entry(receiver).or_default().push(receive);
                        }
                    }
                    self.ready.extend(came);
                }
            }
        }
    }
}

/// The messages of all requests. A client sends each request at its instant; the first of a device after the device is open.
pub(super) fn requests(
    requests: &[Request],
    devices: &[u64],
    architecture: &Architecture,
    clients: u32,
    source: String,
) -> Draft {
    let world = architecture.ranks();
    let mut ranks: Vec<RankDraft> = (0..world).map(|_| RankDraft::new()).collect();
    let origin = requests.first().map_or(0, |request| request.at);
    let mut clocks: Vec<Option<(u32, i64)>> = vec![None; clients as usize];
    let mut opened: FxHashSet<u64> = FxHashSet::default();
    for (number, request) in (0u64..).zip(requests) {
        let device = devices.binary_search(&request.device).unwrap_or(0) as u64;
        let client = (device % u64::from(clients)) as u32;
        let rank = &mut ranks[client as usize];
        let arrival = rank.label("arrival");
        let before = clocks[client as usize];
        let gap = request.at.saturating_sub(before.map_or(origin, |(_, at)| at));
        let at = rank.calc(gap.max(0) as u64, CLOCK, arrival, before.map(|(node, _)| node).as_slice());
        clocks[client as usize] = Some((at, request.at));
        let ready = [(client, vec![at])].into_iter().collect();
        let mut course = Course { architecture, request, client, number, ready };
        if opened.insert(request.device) {
            course.run(&architecture.open, &mut ranks);
        }
        course.run(if request.write { &architecture.write } else { &architecture.read }, &mut ranks);
    }
    let mut draft = Draft { source, world: Some(world), ..Draft::default() };
    draft.ranks.extend((0..).zip(ranks));
    draft
}
