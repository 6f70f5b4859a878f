//! What the passes over a stage take.
//!
//! A pass is walked step by step, as the generator emits it: computations one after another, exchanges in line, split with a
//! computation, or beside what follows until they are awaited; exchanges of one group behind one another. Launches by the host
//! gate what they launch. Data-parallel exchanges are walked apart: what a step gathers once bounds its first passes, gradients
//! leave behind one another while passes go on, and where parameters are given up after each pass the gathers of several passes
//! are walked in a row, since one pass fetches for the next.

use std::mem;

use smallvec::SmallVec;
use windtunnel_kernel::{Bytes, Span};

use super::fluid::{Leaving, Part};
use super::inside::{followed, merged};
use super::shares::Of;
use crate::collectives::CollectiveKind;
use crate::collectives::dispatcher::Routing;
use crate::generate::emit::share;
use crate::generate::passes::{Compiler, Exchange, Pass, Step};
use crate::generate::{ChunkWork, GenerateError, Layout, Reshard, Role, is_active};

/// What exchanges take.
pub trait Tolls {
    /// Picoseconds of a collective of `role`'s groups over `bytes`, counted as [`CollectiveKind`] says; 0 in a group of one.
    fn toll(&self, role: Role, kind: CollectiveKind, bytes: Bytes, routing: Option<Routing>) -> f64;

    /// The same of data-parallel exchanges, alone on their links.
    fn part(&self, role: Role, kind: CollectiveKind, bytes: Bytes) -> Part;

    /// What [`Self::toll`] is of, beside exchanges of its own pipeline rank alone.
    fn inside(&self, role: Role, kind: CollectiveKind, bytes: Bytes, routing: Option<Routing>) -> Part;
}

/// What happens in a pass beside its computations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Point {
    /// Parameters are read from here on: what gathering them takes, dense and expert.
    Enter([Part; 2]),
    /// Gradients are complete.
    Leave(Leaving),
    /// Asks for exchange `number` of the pass.
    Ask { of: Of, part: Part, number: u32 },
    /// Waits for it.
    Await(u32),
    /// The host launches what follows, if `gated` not before the pass has come here.
    Launch { span: f64, gated: bool },
    /// The pass ends.
    End,
}

/// Parameters that are gathered once a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bucket {
    /// Dense and expert ones.
    pub parts: [Part; 2],
    /// What of the first forward pass comes after them.
    pub after: f64,
}

/// What a pass and the host that launches its kernels one by one make of one another, in picoseconds. The GPU comes to the pass at one
/// instant and the host is free at another: the pass ends when it has taken its time from the GPU's coming, and no sooner than `behind`
/// after the host was free. The host is free again `launches` after it was, and no sooner than `gated` after the GPU came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hosted {
    /// What a pass takes whose GPU has long been waiting.
    pub behind: f64,
    /// All launches.
    pub launches: f64,
    /// Minus infinity where the host waits for nothing.
    pub gated: f64,
}

/// Prices of a stage's passes, in picoseconds.
#[derive(Clone, Debug, Default)]
pub struct StagePrice {
    /// Forward, backward, input gradient, weight gradient; parameters are at hand, and what the host launches has been.
    pub passes: [f64; 4],
    /// What the host makes of them that has yet to launch them.
    pub hosts: [Option<Hosted>; 4],
    /// The same where each gathers its parameters and, as it completes them, reduces its gradients.
    pub gathered: [f64; 4],
    /// Computation in each of the four.
    pub computes: [f64; 4],
    /// What is gathered once a step.
    pub gathers: Vec<Bucket>,
    /// What leaves in the pass that completes the gradients (backward, or weight gradient), counted from the end of that pass.
    pub leaving: [Vec<Leaving>; 2],
    /// From the start of the pass that completes the gradients (backward, or weight gradient) to the end of their exchange.
    pub reduced: [f64; 2],
    /// What the exchange takes in all.
    pub reduce: f64,
    /// What goes to the next stage for each micro-batch.
    pub send: Bytes,
    compiled: [Pass; 4],
    /// Speed of its hosts relative to their sheets; 0 where nothing is priced.
    speed: f64,
    /// Of each pass: what happens, each as long after what comes before it as the first says.
    pub(super) points: [Vec<(f64, Point)>; 4],
    /// Exchanges in each, if those are followed.
    pub(super) asked: [u32; 4],
    /// Whether they are, and with them the launches of the host.
    pub(super) closed: bool,
}

impl StagePrice {
    /// Its exchanges of tensor, context and expert parallelism are followed one by one.
    pub fn close(&mut self, layout: &Layout, work: &ChunkWork, tolls: &dyn Tolls) {
        for kind in 0..4 {
            let once = mem::take(&mut self.points[kind]);
            let (mut points, asked) = followed(layout, work, &self.compiled[kind], tolls);
            for (after, point) in &mut points {
                *after /= self.speed;
                if let Point::Launch { span, .. } = point {
                    *span /= self.speed;
                }
            }
            if layout.zero < 3 {
                points = merged(points, &once);
            }
            (self.points[kind], self.asked[kind]) = (points, asked);
        }
        self.closed = true;
    }

    /// What pass number `kind` takes of its GPU or of the host that launches it, whichever is slower.
    pub fn paced(&self, kind: usize) -> f64 {
        self.hosts[kind].map_or(0.0, |host| host.launches).max(self.passes[kind])
    }
}

/// Which passes a schedule runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Runs {
    /// Both gradients at once.
    pub whole: bool,
    /// One after the other.
    pub split: bool,
}

/// Prices `work` of stage number `stage` in `layout`, on hosts that compute and launch at `speed` of what their sheets say.
///
/// # Errors
/// [`GenerateError`] where the lists do not fit.
pub fn price(
    layout: &Layout,
    stage: u32,
    work: &ChunkWork,
    runs: Runs,
    speed: f64,
    tolls: &dyn Tolls,
) -> Result<StagePrice, GenerateError> {
    let active = |dimension| is_active(layout, dimension);
    let compiler =
        Compiler { stage, units: work.units() as u32, active: &active, slowdown: layout.overlap_slowdown };
    let apart = 1.0 + layout.schedule.split_overhead;
    let lists = [
        ("forward", &work.forward, 1.0, true),
        ("backward", &work.backward, 1.0, runs.whole),
        ("backward_input", &work.backward_input, apart, runs.split),
        ("backward_weight", &work.backward_weight, apart, runs.split),
    ];
    let mut found = StagePrice { send: work.send_bytes, speed, ..StagePrice::default() };
    for (kind, (pass, pieces, scale, runs)) in lists.into_iter().enumerate() {
        if !runs {
            continue;
        }
        let compiled = compiler.compile(pieces, pass, scale)?;
        let completes = kind == 1 || kind == 3;
        let mut walk = Walk::new(layout, work, speed, tolls).from(0.0, f64::NEG_INFINITY);
        let end = walk.pass(&compiled);
        found.passes[kind] = end;
        if compiled.steps.iter().any(|step| matches!(step, Step::Launch { .. })) {
            let gated = walk.shared.host;
            let mut late = Walk::new(layout, work, speed, tolls).from(f64::NEG_INFINITY, 0.0);
            let behind = late.pass(&compiled);
            found.hosts[kind] = Some(Hosted { behind, launches: late.shared.host, gated });
        }
        found.computes[kind] = compiled.progress.last().map_or(0.0, |span| span.ps() as f64) / speed;
        if kind == 0 && (layout.zero == 1 || layout.zero == 2) {
            found.gathers = buckets(layout, work, &walk.entered, end, tolls);
        }
        if completes {
            let leaving = reductions(layout, work, &walk.left, end, tolls);
            let (reduced, reduce) = alone(&leaving, end);
            found.reduced[usize::from(kind == 3)] = reduced;
            found.reduce = reduce;
            found.leaving[usize::from(kind == 3)] = leaving;
        }
        found.points[kind] = match layout.zero {
            3 => points(layout, work, &walk, end, tolls),
            _ => points_once(&found, kind, end),
        };
        found.compiled[kind] = compiled;
    }
    found.gathered = found.passes;
    if layout.zero == 3 {
        let kinds: &[usize] = if runs.split { &[0, 2, 3] } else { &[0, 1] };
        let times = Walk::new(layout, work, speed, tolls).steady(&found.compiled, kinds, layout);
        for &kind in kinds {
            if kind == 0 || layout.reshard != Reshard::Never {
                found.gathered[kind] = times[kind];
            }
        }
        if runs.split && runs.whole {
            // Rare among those that are split.
            found.gathered[1] = found.gathered[1].max(times[2] + times[3]);
        }
    }
    Ok(found)
}

/// What the forward pass of one stage and the backward pass of another take interleaved.
pub fn pair(layout: &Layout, forward: &StagePrice, backward: &StagePrice, tolls: &dyn Tolls) -> f64 {
    let (first, second) = (&forward.compiled[0], &backward.compiled[1]);
    let total = |pass: &Pass| u128::from(pass.progress.last().map_or(0, |span| span.ps())).max(1);
    let mut shared = Shared::new(layout, 1.0, tolls);
    let mut lanes = [Lane::default(), Lane::default()];
    let (mut a, mut b) = (0, 0);
    while a < first.steps.len() || b < second.steps.len() {
        let behind = |pass: &Pass, at: usize, other: &Pass| u128::from(pass.progress[at].ps()) * total(other);
        let take_first = b == second.steps.len()
            || a < first.steps.len() && behind(first, a, second) <= behind(second, b, first);
        if take_first {
            shared.speed = forward.speed;
            shared.step(&mut lanes[0], &first.steps[a]);
            a += 1;
        } else {
            shared.speed = backward.speed;
            shared.step(&mut lanes[1], &second.steps[b]);
            b += 1;
        }
    }
    let ends = lanes.map(|lane| lane.end());
    ends[0].max(ends[1])
}

/// Buckets of parameters that a step gathers once.
fn buckets(
    layout: &Layout,
    work: &ChunkWork,
    entered: &[(f64, SmallVec<[u32; 2]>)],
    end: f64,
    tolls: &dyn Tolls,
) -> Vec<Bucket> {
    let mut found: Vec<([Bytes; 2], f64)> = Vec::new();
    for (at, units) in entered {
        let open = found.last().is_some_and(|([dense, expert], _)| *dense + *expert < layout.bucket_bytes);
        if !open {
            found.push(([Bytes::ZERO; 2], end - at));
        }
        let (bytes, _) = found.last_mut().expect("one is open");
        add(bytes, units, [&work.parameter_bytes, &work.expert_parameter_bytes]);
    }
    let bucket = |(bytes, after)| Bucket { parts: gather(bytes, tolls), after };
    found.into_iter().map(bucket).collect()
}

/// Adds what `units` have of dense and expert `sizes`.
fn add(bytes: &mut [Bytes; 2], units: &[u32], sizes: [&[Bytes]; 2]) {
    for &unit in units {
        for (sum, sizes) in bytes.iter_mut().zip(sizes) {
            *sum += sizes.get(unit as usize).copied().unwrap_or_default();
        }
    }
}

fn gather(bytes: [Bytes; 2], tolls: &dyn Tolls) -> [Part; 2] {
    let of = |role, bytes| tolls.part(role, CollectiveKind::AllGather, bytes);
    [of(Role::Shard(0), bytes[0]), of(Role::ExpertShard(0), bytes[1])]
}

/// What reducing a bucket takes inside replicas, and across them.
fn reduction(layout: &Layout, bytes: [Bytes; 2], at: f64, tolls: &dyn Tolls) -> Leaving {
    let kind = layout.gradient_sum();
    let replicas = u64::from(layout.cp) * u64::from(layout.dp) / u64::from(layout.replicate);
    let mut leaving = Leaving { at, ..Leaving::default() };
    let shards = [replicas * u64::from(layout.ep), replicas];
    for (number, role) in [Role::Shard(0), Role::ExpertShard(0)].into_iter().enumerate() {
        leaving.parts[number] = tolls.part(role, kind, bytes[number]);
        if layout.replicate > 1 && bytes[number].get() > 0 {
            let shard = Bytes::new(bytes[number].get().div_ceil(shards[number].max(1)));
            leaving.across[number] = tolls.part(Role::Replicate, CollectiveKind::AllReduce, shard);
        }
    }
    leaving
}

/// What leaves in buckets during a pass that ends at `end`, counted from its end.
fn reductions(
    layout: &Layout,
    work: &ChunkWork,
    left: &[(f64, SmallVec<[u32; 2]>)],
    end: f64,
    tolls: &dyn Tolls,
) -> Vec<Leaving> {
    let mut found = Vec::new();
    let mut bytes = [Bytes::ZERO; 2];
    for (at, units) in left {
        add(&mut bytes, units, [&work.gradient_bytes, &work.expert_gradient_bytes]);
        let all = bytes[0] + bytes[1];
        let full = layout.overlap_gradients && (layout.zero == 3 || all >= layout.bucket_bytes);
        if full && all.get() > 0 {
            found.push(reduction(layout, std::mem::take(&mut bytes), at - end, tolls));
        }
    }
    if (bytes[0] + bytes[1]).get() > 0 {
        found.push(reduction(layout, bytes, 0.0, tolls));
    }
    found
}

/// When the last of `leaving` is reduced, from the start of a pass that ends at `end`, and what that takes in all, alone on its links.
fn alone(leaving: &[Leaving], end: f64) -> (f64, f64) {
    let (mut inside, mut across, mut all) = (0.0f64, 0.0f64, [0.0; 2]);
    for leaving in leaving {
        let sum = |parts: [Part; 2]| parts[0].alone() + parts[1].alone();
        let (own, other) = (sum(leaving.parts), sum(leaving.across));
        inside = inside.max(end + leaving.at) + own;
        across = across.max(inside) + other;
        all = [all[0] + own, all[1] + other];
    }
    (inside.max(across), all[0].max(all[1]))
}

/// Where `units` are read.
pub(super) fn entered(work: &ChunkWork, units: &[u32], tolls: &dyn Tolls) -> Point {
    let mut bytes = [Bytes::ZERO; 2];
    add(&mut bytes, units, [&work.parameter_bytes, &work.expert_parameter_bytes]);
    Point::Enter(gather(bytes, tolls))
}

/// Where the gradients of `units` are complete.
pub(super) fn left(layout: &Layout, work: &ChunkWork, units: &[u32], tolls: &dyn Tolls) -> Point {
    let mut bytes = [Bytes::ZERO; 2];
    add(&mut bytes, units, [&work.gradient_bytes, &work.expert_gradient_bytes]);
    Point::Leave(reduction(layout, bytes, 0.0, tolls))
}

/// What happens in a pass that has been walked.
fn points(
    layout: &Layout,
    work: &ChunkWork,
    walk: &Walk<'_>,
    end: f64,
    tolls: &dyn Tolls,
) -> Vec<(f64, Point)> {
    let mut found: Vec<(f64, Point)> = Vec::with_capacity(walk.entered.len() + walk.left.len() + 1);
    for (at, units) in &walk.entered {
        found.push((*at, entered(work, units, tolls)));
    }
    for (at, units) in &walk.left {
        found.push((*at, left(layout, work, units, tolls)));
    }
    in_order(found, end)
}

/// The same where parameters are gathered once a step and gradients leave in buckets.
fn points_once(found: &StagePrice, kind: usize, end: f64) -> Vec<(f64, Point)> {
    let gathers: &[Bucket] = if kind == 0 { &found.gathers } else { &[] };
    let leaving: &[Leaving] =
        if kind == 1 || kind == 3 { &found.leaving[usize::from(kind == 3)] } else { &[] };
    let entered = gathers.iter().map(|bucket| (end - bucket.after, Point::Enter(bucket.parts)));
    let left = leaving.iter().map(|leaving| (end + leaving.at, Point::Leave(*leaving)));
    in_order(entered.chain(left).collect(), end)
}

/// Points at their instants as points after one another, with the end of the pass.
fn in_order(mut found: Vec<(f64, Point)>, end: f64) -> Vec<(f64, Point)> {
    // What is left at an instant was entered before the next is.
    found.sort_by(|a, b| {
        let order = |point: &Point| u8::from(matches!(point, Point::Enter(_)));
        a.0.total_cmp(&b.0).then(order(&a.1).cmp(&order(&b.1)))
    });
    found.push((end, Point::End));
    let mut before = 0.0;
    for (at, _) in &mut found {
        *at -= std::mem::replace(&mut before, *at);
    }
    found
}

/// A group's exchanges queue behind one another.
#[derive(Clone, Copy, Default)]
struct Chains {
    tp: f64,
    cp: f64,
    ep: f64,
    data: f64,
}

impl Chains {
    fn of(&mut self, role: Role) -> &mut f64 {
        match role {
            Role::Tp => &mut self.tp,
            Role::Cp => &mut self.cp,
            Role::Ep => &mut self.ep,
            _ => &mut self.data,
        }
    }
}

/// What lanes share.
struct Shared<'a> {
    tolls: &'a dyn Tolls,
    compute: f64,
    /// Of the GPU and its host, relative to their sheets.
    speed: f64,
    chains: Chains,
    /// End of the host's last launch.
    host: f64,
    blocking: bool,
}

/// A pass under way.
#[derive(Default)]
struct Lane {
    at: f64,
    issued: SmallVec<[(u32, f64); 4]>,
    /// Whether anything was launched, and the end of that.
    launches: bool,
    launched: f64,
}

impl Lane {
    fn end(&self) -> f64 {
        self.issued.iter().map(|&(_, end)| end).fold(self.at.max(self.launched), f64::max)
    }
}

impl<'a> Shared<'a> {
    fn new(layout: &Layout, speed: f64, tolls: &'a dyn Tolls) -> Self {
        let (chains, blocking) = (Chains::default(), layout.blocking_exchange);
        Self { tolls, compute: 0.0, speed, chains, host: 0.0, blocking }
    }

    fn exchange(&mut self, exchange: &Exchange, bytes: Bytes, from: f64) -> f64 {
        let toll = self.tolls.toll(exchange.role, exchange.kind, bytes, exchange.routing);
        let chain = self.chains.of(exchange.role);
        *chain = chain.max(from) + toll;
        *chain
    }

    fn calc(&mut self, lane: &mut Lane, duration: Span) {
        lane.at = lane.at.max(self.compute) + duration.ps() as f64 / self.speed;
        self.compute = lane.at;
    }

    fn step(&mut self, lane: &mut Lane, step: &Step) {
        match step {
            Step::Calc { duration, .. } => self.calc(lane, *duration),
            Step::Inline(exchange) => lane.at = self.exchange(exchange, exchange.bytes, lane.at),
            Step::Split { before, duration, after, .. } => self.split(lane, *before, *duration, *after),
            Step::Issue(id, exchange) => {
                let end = self.exchange(exchange, exchange.bytes, lane.at);
                lane.issued.push((*id, end));
            }
            Step::Wait(id) => {
                if let Some(position) = lane.issued.iter().position(|(known, _)| known == id) {
                    lane.at = lane.at.max(lane.issued.remove(position).1);
                }
            }
            Step::Launch { span, waits } => {
                let gated = *waits || self.blocking && !lane.launches;
                lane.launches = true;
                let start = if gated { self.host.max(lane.at) } else { self.host };
                self.host = start + span.ps() as f64 / self.speed;
                lane.launched = self.host;
                lane.at = lane.at.max(start);
            }
            Step::Enter(_) | Step::Leave(_) => {}
        }
    }

    fn split(
        &mut self,
        lane: &mut Lane,
        before: Option<(Exchange, u32)>,
        duration: Span,
        after: Option<(Exchange, u32)>,
    ) {
        let chunks = |side: Option<(Exchange, u32)>| side.map_or(1, |(_, chunks)| chunks);
        let parts = chunks(before).max(chunks(after));
        let entry = lane.at;
        let mut incoming: SmallVec<[f64; 8]> = SmallVec::new();
        if let Some((exchange, chunks)) = before {
            for chunk in 0..chunks {
                incoming.push(self.exchange(
                    &exchange,
                    Bytes::new(share(exchange.bytes.get(), chunk, chunks)),
                    entry,
                ));
            }
        }
        let (mut outgoing, mut sent) = (0, None);
        for part in 0..parts {
            if !incoming.is_empty() {
                let needed = ((part + 1) * incoming.len() as u32).div_ceil(parts) - 1;
                lane.at = lane.at.max(incoming[needed as usize]);
            }
            self.calc(lane, Span::from_ps(share(duration.ps(), part, parts)));
            if let Some((exchange, chunks)) = after {
                while outgoing < chunks && ((outgoing + 1) * parts).div_ceil(chunks) <= part + 1 {
                    let bytes = Bytes::new(share(exchange.bytes.get(), outgoing, chunks));
                    sent = Some(self.exchange(&exchange, bytes, lane.at));
                    outgoing += 1;
                }
            }
        }
        lane.at = sent.unwrap_or(lane.at);
    }
}

/// A pass walked alone.
struct Walk<'a> {
    work: &'a ChunkWork,
    shared: Shared<'a>,
    lane: Lane,
    /// Where units are entered, and left.
    entered: Vec<(f64, SmallVec<[u32; 2]>)>,
    left: Vec<(f64, SmallVec<[u32; 2]>)>,
}

/// Rounds of passes walked in a row, and how many of the last count: what one fetches for the next has then settled.
const IN_A_ROW: usize = 4;
/// See [`IN_A_ROW`].
const COUNTED: usize = 2;

impl<'a> Walk<'a> {
    fn new(layout: &Layout, work: &'a ChunkWork, speed: f64, tolls: &'a dyn Tolls) -> Self {
        Self {
            work,
            shared: Shared::new(layout, speed, tolls),
            lane: Lane::default(),
            entered: Vec::new(),
            left: Vec::new(),
        }
    }

    /// As if the GPU came to it at `gpu`, and the host was free at `host`.
    fn from(mut self, gpu: f64, host: f64) -> Self {
        self.lane.at = gpu;
        self.shared.compute = gpu;
        self.shared.chains = Chains { tp: gpu, cp: gpu, ep: gpu, data: gpu };
        self.shared.host = host;
        self.lane.launched = f64::NEG_INFINITY;
        self
    }

    /// The end of `pass`, with its parameters at hand.
    fn pass(&mut self, pass: &Pass) -> f64 {
        for step in &pass.steps {
            match step {
                Step::Enter(units) => self.entered.push((self.lane.at, units.clone())),
                Step::Leave(units) => self.left.push((self.lane.at, units.clone())),
                _ => self.shared.step(&mut self.lane, step),
            }
        }
        self.lane.end()
    }

    /// What the passes of `kinds` take one after the other, again and again, where each gathers its parameters, and those that complete
    /// gradients reduce them if all do.
    fn steady(mut self, passes: &[Pass; 4], kinds: &[usize], layout: &Layout) -> [f64; 4] {
        let tolls = self.shared.tolls;
        let weigh = |units: &[u32], sizes: [&[Bytes]; 2]| {
            let mut bytes = [Bytes::ZERO; 2];
            add(&mut bytes, units, sizes);
            bytes
        };
        let sum = |parts: [Part; 2]| parts[0].alone() + parts[1].alone();
        let work = self.work;
        let mut entries: Vec<f64> = Vec::new();
        for &kind in kinds {
            for step in &passes[kind].steps {
                match step {
                    Step::Enter(units) if kind < 3 => {
                        let bytes = weigh(units, [&work.parameter_bytes, &work.expert_parameter_bytes]);
                        entries.push(sum(gather(bytes, tolls)));
                    }
                    _ => {}
                }
            }
        }
        let all = entries.len() * IN_A_ROW;
        let mut ends: Vec<f64> = Vec::with_capacity(all);
        let (mut chain, mut entry) = (0.0f64, 0);
        let mut times = [0.0; 4];
        for number in 0..IN_A_ROW {
            for &kind in kinds {
                let from = self.lane.at;
                let reduces = (kind == 1 || kind == 3) && layout.reduces_always();
                for step in &passes[kind].steps {
                    match step {
                        Step::Enter(_) if kind < 3 => {
                            let ahead = (entry + 1 + layout.prefetch as usize).min(all);
                            while ends.len() < ahead {
                                chain = chain.max(self.lane.at) + entries[ends.len() % entries.len()];
                                ends.push(chain);
                            }
                            self.lane.at = self.lane.at.max(ends[entry]);
                            entry += 1;
                        }
                        Step::Leave(units) if reduces => {
                            let bytes = weigh(units, [&work.gradient_bytes, &work.expert_gradient_bytes]);
                            // What goes on between replicas takes the same NICs.
                            let leaving = reduction(layout, bytes, 0.0, tolls);
                            let (inside, across) = (sum(leaving.parts), sum(leaving.across));
                            chain = chain.max(self.lane.at) + inside + across;
                        }
                        Step::Enter(_) | Step::Leave(_) => {}
                        _ => self.shared.step(&mut self.lane, step),
                    }
                }
                self.lane.at = self.lane.end();
                if number + COUNTED >= IN_A_ROW {
                    times[kind] += (self.lane.at - from) / COUNTED as f64;
                }
            }
        }
        times
    }
}
