//! How a [`Plan`] is made from a specification, and what it answers by asking its algorithm.

use windtunnel_kernel::{Bytes, Span};

use super::{CollectiveError, CoupledShape, Plan, SENDS_AT_ONCE};
use crate::collectives::algorithm::Algorithm;
use crate::collectives::kind::CollectiveKind;
use crate::collectives::method::{Arrangement, Rings};
use crate::collectives::parts::{Meeting, Round, Sink, Weigh, share};
use crate::collectives::spec::{CollectiveSpec, Form};
use crate::collectives::tuner::{SizeRule, Tuner};

impl Plan {
    /// Resolves `spec` for a group of `n`, `Auto` by [`SizeRule`].
    ///
    /// # Errors
    /// [`CollectiveError`] when the algorithm does not compute the kind or does not fit the group.
    pub fn new(spec: &CollectiveSpec, n: u32) -> Result<Self, CollectiveError> {
        Self::with_tuner(spec, n, &SizeRule)
    }

    /// Resolves `spec` for a group of `n`, `Auto` by `tuner`.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn with_tuner(spec: &CollectiveSpec, n: u32, tuner: &dyn Tuner) -> Result<Self, CollectiveError> {
        for (what, value) in
            [("the size of a group", n), ("`domain`", spec.domain), ("`outstanding`", spec.outstanding)]
        {
            if value == 0 {
                return Err(CollectiveError::Zero { what });
            }
        }
        let (kind, mut bytes) = (spec.kind, spec.bytes.get());
        if let CollectiveKind::Broadcast { root } | CollectiveKind::Reduce { root } = kind
            && root >= n
        {
            return Err(CollectiveError::Root { kind, root, n });
        }
        if kind == CollectiveKind::AllToAllV {
            let found = spec.matrix.as_ref().map_or(0, |matrix| matrix.len());
            if found as u64 != u64::from(n) * u64::from(n) {
                return Err(CollectiveError::Matrix { n, found });
            }
        }
        let mut algorithm = spec.algorithm;
        let open = algorithm == Algorithm::Auto && spec.form != Form::Steps;
        let cost = spec
            .library
            .as_ref()
            .filter(|_| open && n.is_multiple_of(spec.domain.min(n)))
            .and_then(|library| library.0.cost_of(spec, n));
        if let Some(cost) = &cost {
            algorithm = cost.algorithm;
        } else if let Some(routing) = spec.routing {
            bytes = routing.buffer(bytes, n / spec.domain.min(n), n);
        }
        if algorithm == Algorithm::Auto && n > 1 {
            algorithm = tuner.choose(spec, n);
        }
        if algorithm == Algorithm::Auto {
            algorithm = SizeRule.choose(spec, n);
        }
        if !algorithm.computes(kind) {
            return Err(CollectiveError::Unsupported { kind, algorithm });
        }
        let mut plan = Self {
            kind,
            algorithm,
            n,
            bytes,
            domain: spec.domain.min(n),
            between: Algorithm::Ring,
            by_rings: false,
            chunks: 1,
            depth: 1,
            rounds: 0,
            lanes: 1,
            matrix: spec.matrix.clone(),
            before: cost.as_ref().map_or(Span::ZERO, |cost| cost.before),
            edge: cost.as_ref().map(|cost| cost.edge),
            between_bound: cost.as_ref().is_some_and(|cost| cost.between),
            one_by_one: false,
        };
        if let Some(cost) = &cost
            && kind == CollectiveKind::AllToAll
        {
            plan.bytes = cost.bytes;
            // Its messages bring the latency of their path themselves.
            let path =
                spec.library.as_ref().map_or(Span::ZERO, |library| library.0.between(spec.distances).far);
            if spec.domain < n {
                plan.before = Span::from_ps(plan.before.ps().saturating_sub(path.ps()));
            }
        }
        if algorithm.wants_whole_domains() && !n.is_multiple_of(plan.domain) {
            return Err(CollectiveError::Domain { kind, algorithm, n, domain: plan.domain });
        }
        algorithm.settle(&mut plan);
        // NCCL posts its grouped sends together.
        let together = if cost.is_some() { n.min(SENDS_AT_ONCE) } else { 1 };
        plan.set_rounds(spec.outstanding.max(together));
        Ok(plan)
    }

    /// Where NCCL's model says what it takes, but no edges advance together: by `tuner`'s algorithm message by message, with
    /// as many bytes, after what of NCCL's launch and hops the messages' own latency leaves.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn by_steps(spec: &CollectiveSpec, n: u32, tuner: &dyn Tuner) -> Result<Self, CollectiveError> {
        let cost = spec.library.as_ref().and_then(|library| library.0.cost_of(spec, n));
        let (Some(cost), Some(library)) = (cost, &spec.library) else {
            return Self::with_tuner(spec, n, tuner);
        };
        let alone =
            CollectiveSpec { library: None, routing: None, bytes: Bytes::new(cost.bytes), ..spec.clone() };
        let mut plan = Self::with_tuner(&alone, n, tuner)?;
        let between = library.0.between(spec.distances);
        let hop = if plan.is_exchange() {
            between.far
        } else if plan.algorithm.rings() == Rings::None {
            between.tree
        } else {
            between.ring
        };
        let own = plan.latency([library.0.latency[0], hop].map(Span::ps));
        plan.before = Span::from_ps(cost.before.ps().saturating_sub(own));
        Ok(plan)
    }

    /// What the latencies of its messages alone come to, one after another as they wait for each other: of one inside a scale-up
    /// domain and of one between two.
    fn latency(&self, [inside, between]: [u64; 2]) -> u64 {
        let steps = u64::from(self.rounds) / u64::from(self.depth.max(1));
        if self.domain >= self.n {
            return steps * inside;
        }
        if self.domain <= 1 {
            return steps * between;
        }
        if self.algorithm.rings() != Rings::None {
            // A block that goes round leaves its domain once in as many steps as that has members.
            let crossing = steps.div_ceil(u64::from(self.domain));
            return crossing * between + (steps - crossing) * inside;
        }
        // When each member has ended each of the last `depth` rounds: a round begins when the one `depth` before it has ended.
        let depth = self.depth.max(1) as usize;
        let mut ended = vec![vec![0; self.n as usize]; depth];
        let mut round = Round::new();
        for number in 0..self.rounds {
            let begun = std::mem::take(&mut ended[number as usize % depth]);
            let end = |index: u32| {
                self.round(index, 0, number, &mut round);
                let arrives = |&(from, _): &(u32, u64)| {
                    let crosses = from / self.domain != index / self.domain;
                    begun[from as usize] + if crosses { between } else { inside }
                };
                round.receives.iter().map(arrives).fold(begun[index as usize], u64::max)
            };
            ended[number as usize % depth] = (0..self.n).map(end).collect();
        }
        ended.into_iter().flatten().max().unwrap_or(0)
    }

    fn set_rounds(&mut self, outstanding: u32) {
        let sized = !matches!(self.kind, CollectiveKind::AllToAllV | CollectiveKind::Barrier);
        if self.n == 1 || sized && self.bytes == 0 {
            return;
        }
        let Arrangement { lanes, rounds, depth, chunks } = self.algorithm.rounds(self, outstanding);
        (self.lanes, self.rounds, self.depth, self.chunks) = (lanes, rounds, depth, chunks);
    }

    /// The same with each ring of its two levels as one group of edges that advance together; `None` if it has no levels or other than
    /// rings.
    #[must_use]
    pub fn by_rings(mut self) -> Option<Self> {
        let rings = self.algorithm == Algorithm::Hierarchical
            && matches!(
                self.kind,
                CollectiveKind::AllReduce | CollectiveKind::AllGather | CollectiveKind::ReduceScatter
            )
            && self.between == Algorithm::Ring;
        if !rings || !self.has_levels() || self.is_empty() {
            return None;
        }
        self.by_rings = true;
        self.rounds = self.levels().rounds();
        Some(self)
    }

    /// What `index` does together with others in round `round`, in place of messages.
    #[inline]
    pub fn meeting(&self, index: u32, round: u32) -> Option<Meeting> {
        if self.by_rings {
            return Some(self.levels().meeting(self.bytes, index, round));
        }
        if !self.algorithm.sums() {
            return None;
        }
        // A part of no bytes needs none.
        self.meeting_of(index, round).map(|(meeting, _)| meeting).filter(|meeting| meeting.bytes > 0)
    }

    /// Whether a member's send is over only when its receiver has the message, as with MPI's blocking sends of long messages: where a
    /// member sends in several rounds and receives in none between, they would otherwise leave at once and share its NIC.
    pub fn sends_in_turn(&self) -> bool {
        self.algorithm.sends_in_turn()
    }

    /// Writes the messages of `index` in round `round` of `lane` to `out`.
    pub fn round(&self, index: u32, lane: u32, round: u32, out: &mut Round) {
        out.clear();
        if self.kind.is_exchange() {
            self.algorithm.exchange(self, index, round, out);
        } else {
            self.emit(index, lane, round, &mut Weigh { bytes: self.lane_bytes(lane), out });
        }
    }

    /// The bytes whose parts travel in `lane`.
    fn lane_bytes(&self, lane: u32) -> u64 {
        share(self.bytes, self.lanes, lane)
    }

    /// Tells `sink` what `index` sends and receives; not for exchanges and barriers.
    #[inline]
    pub(in crate::collectives) fn emit(&self, index: u32, lane: u32, round: u32, sink: &mut impl Sink) {
        self.algorithm.emit(self, index, lane, round, sink);
    }

    /// The group of edges that advance together, `None` where they do not: rings, one or several; chains with at least 100 chunks for
    /// each member but two (the pipeline's filling is then under 1%); inside one scale-up domain also equal direct and
    /// pairwise exchanges, whose pairs share the members' ports evenly.
    pub fn coupled(&self) -> Option<CoupledShape> {
        if self.is_empty() {
            return None;
        }
        match (self.algorithm.coupled(self), self.edge) {
            (Some(mut shape), Some(bytes)) => {
                if self.one_by_one && self.algorithm == Algorithm::MultiRing {
                    let crosses = |&(from, to, _): &(u32, u32, u32)| from / self.domain != to / self.domain;
                    shape.edges.retain(|edge| crosses(edge) == self.between_bound);
                }
                Some(CoupledShape { bytes, steps: 1, ..shape })
            }
            // A chain that is too short for its edges to advance together by itself.
            (None, Some(bytes)) if self.algorithm == Algorithm::Ring => {
                Some(CoupledShape { bytes, steps: 1, ..CoupledShape::ring(self) })
            }
            (shape, _) => shape,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of eight members on two domains. A block of a ring leaves its domain in two of seven steps. By Bruck's algorithm members hear of
    /// those 1, 2 and 4 behind them: from 4 away and either 1 or 2 away over the border, never thrice. Halves first inside, then between.
    #[test]
    fn messages_bring_the_latency_of_their_longest_chain() {
        let (inside, between) = (1, 100);
        let of = |kind, algorithm, domain| {
            let spec = CollectiveSpec { algorithm, domain, ..CollectiveSpec::new(kind, Bytes::new(1 << 20)) };
            Plan::new(&spec, 8).expect("a plan").latency([inside, between])
        };
        use CollectiveKind::{AllGather, AllReduce};
        assert_eq!(of(AllGather, Algorithm::Ring, 4), 2 * between + 5 * inside);
        assert_eq!(of(AllReduce, Algorithm::Ring, 4), 4 * between + 10 * inside);
        assert_eq!(of(AllGather, Algorithm::Ring, 1), 7 * between);
        assert_eq!(of(AllGather, Algorithm::Ring, 8), 7 * inside);
        assert_eq!(of(AllGather, Algorithm::Bruck, 4), 2 * between + inside);
        assert_eq!(of(AllReduce, Algorithm::Recursive, 4), 2 * between + 4 * inside);
    }
}
