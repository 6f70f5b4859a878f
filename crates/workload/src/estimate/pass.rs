//! What the passes over a stage take.
//!
//! A pass is walked step by step, as the generator emits it: computations one after another, exchanges in line, split with a
//! computation, or beside what follows until they are awaited; exchanges of one group behind one another. Launches by the host
//! gate what they launch. Data-parallel exchanges are walked apart: what a step gathers once bounds its first passes, gradients
//! leave behind one another while passes go on, and where parameters are given up after each pass the gathers of several passes
//! are walked in a row, since one pass fetches for the next.

use smallvec::SmallVec;
use windtunnel_kernel::{Bytes, Span};

use super::data::{Bucket, Stretch, add, alone, buckets, gather, reduction, reductions, stretches};
use super::fluid::{Leaving, Part};
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

    /// Rates of an exchange of `role` and of a data-parallel one of the same rank while both are under way, 1 where they share no link.
    fn beside(&self, role: Role) -> [f64; 2];
}

/// Prices of a stage's passes, in picoseconds.
#[derive(Clone, Debug, Default)]
pub struct StagePrice {
    /// Forward, backward, input gradient, weight gradient; parameters are at hand.
    pub passes: [f64; 4],
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
    /// Of each pass.
    pub(super) stretches: [Vec<Stretch>; 4],
}

impl StagePrice {
    /// On GPUs that run at `speed` of what their sheet says: what is computed takes longer, and what waits for it comes later.
    pub fn slow(&mut self, speed: f64) {
        if speed == 1.0 || speed <= 0.0 {
            return;
        }
        let more = |computes: f64| computes / speed - computes;
        for kind in 0..4 {
            let added = more(self.computes[kind]);
            let longer = if self.passes[kind] > 0.0 { 1.0 + added / self.passes[kind] } else { 1.0 };
            for stretch in &mut self.stretches[kind] {
                stretch.span *= longer;
            }
            self.passes[kind] += added;
            // Gathers have as much more time beside it.
            self.gathered[kind] = self.passes[kind].max(self.gathered[kind]);
            self.computes[kind] += added;
        }
        let whole = self.passes[0];
        let scale = if whole > 0.0 { whole / (whole - more(self.computes[0] * speed)) } else { 1.0 };
        for bucket in &mut self.gathers {
            bucket.after *= scale;
        }
        self.reduced[0] += more(self.computes[1] * speed);
        self.reduced[1] += more(self.computes[3] * speed);
        for leaving in self.leaving.iter_mut().flatten() {
            leaving.at /= speed;
        }
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

/// Prices `work` of stage number `stage` in `layout`.
///
/// # Errors
/// [`GenerateError`] where the lists do not fit.
pub fn price(
    layout: &Layout,
    stage: u32,
    work: &ChunkWork,
    runs: Runs,
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
    let mut found = StagePrice { send: work.send_bytes, ..StagePrice::default() };
    for (kind, (pass, pieces, scale, runs)) in lists.into_iter().enumerate() {
        if !runs {
            continue;
        }
        let compiled = compiler.compile(pieces, pass, scale)?;
        let completes = kind == 1 || kind == 3;
        let mut walk = Walk::new(layout, work, tolls);
        let end = walk.pass(&compiled);
        found.passes[kind] = end;
        found.computes[kind] = compiled.progress.last().map_or(0.0, |span| span.0 as f64);
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
        if layout.zero == 3 {
            found.stretches[kind] = stretches(layout, work, &walk, end, tolls);
        }
        found.compiled[kind] = compiled;
    }
    found.gathered = found.passes;
    if layout.zero == 3 {
        let kinds: &[usize] = if runs.split { &[0, 2, 3] } else { &[0, 1] };
        let times = Walk::new(layout, work, tolls).steady(&found.compiled, kinds, layout);
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
    let total = |pass: &Pass| u128::from(pass.progress.last().map_or(0, |span| span.0)).max(1);
    let mut shared = Shared::new(layout, tolls);
    let mut lanes = [Lane::default(), Lane::default()];
    let (mut a, mut b) = (0, 0);
    while a < first.steps.len() || b < second.steps.len() {
        let behind = |pass: &Pass, at: usize, other: &Pass| u128::from(pass.progress[at].0) * total(other);
        let take_first = b == second.steps.len()
            || a < first.steps.len() && behind(first, a, second) <= behind(second, b, first);
        if take_first {
            shared.step(&mut lanes[0], &first.steps[a]);
            a += 1;
        } else {
            shared.step(&mut lanes[1], &second.steps[b]);
            b += 1;
        }
    }
    let ends = lanes.map(|lane| lane.end());
    ends[0].max(ends[1])
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
    chains: Chains,
    /// End of the host's last launch.
    host: f64,
    blocking: bool,
    /// For how long passes have stood still for exchanges of tensor, context and expert parallelism.
    inside: [f64; 3],
}

/// A pass under way.
#[derive(Default)]
struct Lane {
    at: f64,
    issued: SmallVec<[(u32, f64, Role); 4]>,
    launched: f64,
}

impl Lane {
    fn end(&self) -> f64 {
        self.issued.iter().map(|&(_, end, _)| end).fold(self.at.max(self.launched), f64::max)
    }
}

impl<'a> Shared<'a> {
    fn new(layout: &Layout, tolls: &'a dyn Tolls) -> Self {
        Self {
            tolls,
            compute: 0.0,
            chains: Chains::default(),
            host: 0.0,
            blocking: layout.blocking_exchange,
            inside: [0.0; 3],
        }
    }

    fn exchange(&mut self, exchange: &Exchange, bytes: Bytes, from: f64) -> f64 {
        let toll = self.tolls.toll(exchange.role, exchange.kind, bytes, exchange.routing);
        let chain = self.chains.of(exchange.role);
        *chain = chain.max(from) + toll;
        *chain
    }

    fn stood(&mut self, role: Role, span: f64) {
        let place = match role {
            Role::Tp => 0,
            Role::Cp => 1,
            Role::Ep => 2,
            _ => return,
        };
        self.inside[place] += span.max(0.0);
    }

    fn calc(&mut self, lane: &mut Lane, duration: Span) {
        lane.at = lane.at.max(self.compute) + duration.0 as f64;
        self.compute = lane.at;
    }

    fn step(&mut self, lane: &mut Lane, step: &Step) {
        match step {
            Step::Calc { duration, .. } => self.calc(lane, *duration),
            Step::Inline(exchange) => {
                let end = self.exchange(exchange, exchange.bytes, lane.at);
                self.stood(exchange.role, end - lane.at);
                lane.at = end;
            }
            Step::Split { before, duration, after, .. } => self.split(lane, *before, *duration, *after),
            Step::Issue(id, exchange) => {
                let end = self.exchange(exchange, exchange.bytes, lane.at);
                lane.issued.push((*id, end, exchange.role));
            }
            Step::Wait(id) => {
                if let Some(position) = lane.issued.iter().position(|(known, ..)| known == id) {
                    let (_, end, role) = lane.issued.remove(position);
                    self.stood(role, end - lane.at);
                    lane.at = lane.at.max(end);
                }
            }
            Step::Launch { span, waits } => {
                let gated = *waits || self.blocking && lane.launched == 0.0;
                let start = if gated { self.host.max(lane.at) } else { self.host };
                self.host = start + span.0 as f64;
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
                incoming.push(self.exchange(&exchange, Bytes(share(exchange.bytes.0, chunk, chunks)), entry));
            }
        }
        let (mut outgoing, mut sent) = (0, None);
        for part in 0..parts {
            if !incoming.is_empty() {
                let needed = ((part + 1) * incoming.len() as u32).div_ceil(parts) - 1;
                let came = incoming[needed as usize];
                if let Some((exchange, _)) = before {
                    self.stood(exchange.role, came - lane.at);
                }
                lane.at = lane.at.max(came);
            }
            self.calc(lane, Span(share(duration.0, part, parts)));
            if let Some((exchange, chunks)) = after {
                while outgoing < chunks && ((outgoing + 1) * parts).div_ceil(chunks) <= part + 1 {
                    let bytes = Bytes(share(exchange.bytes.0, outgoing, chunks));
                    sent = Some(self.exchange(&exchange, bytes, lane.at));
                    outgoing += 1;
                }
            }
        }
        if let Some((end, (exchange, _))) = sent.zip(after) {
            self.stood(exchange.role, end - lane.at);
        }
        lane.at = sent.unwrap_or(lane.at);
    }
}

/// A pass walked alone.
pub(super) struct Walk<'a> {
    work: &'a ChunkWork,
    shared: Shared<'a>,
    lane: Lane,
    /// Where units are entered, and left.
    pub entered: Vec<(f64, SmallVec<[u32; 2]>)>,
    pub left: Vec<(f64, SmallVec<[u32; 2]>)>,
    /// At each of these: for how long exchanges had made it stand still.
    pub inside: [Vec<[f64; 3]>; 2],
}

/// Rounds of passes walked in a row, and how many of the last count: what one fetches for the next has then settled.
const IN_A_ROW: usize = 4;
/// See [`IN_A_ROW`].
const COUNTED: usize = 2;

impl<'a> Walk<'a> {
    /// For how long exchanges have made it stand still.
    pub(super) fn stood(&self) -> [f64; 3] {
        self.shared.inside
    }

    fn new(layout: &Layout, work: &'a ChunkWork, tolls: &'a dyn Tolls) -> Self {
        Self {
            work,
            shared: Shared::new(layout, tolls),
            lane: Lane::default(),
            entered: Vec::new(),
            left: Vec::new(),
            inside: [Vec::new(), Vec::new()],
        }
    }

    /// The end of `pass`, with its parameters at hand.
    fn pass(&mut self, pass: &Pass) -> f64 {
        for step in &pass.steps {
            match step {
                Step::Enter(units) => {
                    self.entered.push((self.lane.at, units.clone()));
                    self.inside[0].push(self.shared.inside);
                }
                Step::Leave(units) => {
                    self.left.push((self.lane.at, units.clone()));
                    self.inside[1].push(self.shared.inside);
                }
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
            let mut bytes = [Bytes(0); 2];
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
