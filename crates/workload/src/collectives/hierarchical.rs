//! Two levels: domains of m neighbours in the group (a scale-up domain) and, for each local index, the m-th part of the
//! data between the g domains, each over its own rail (Jia et al., "Highly scalable deep learning training system with
//! mixed-precision", 2018, §4.3; NCCL's and RCCL's hierarchical schemes).
//!
//! The n = g·m blocks of the group are seen as a table of g rows and m columns. Inside a domain, rings work on columns
//! (all blocks of one local index); between domains, on one column's blocks. A reduce-scatter goes in then out, an
//! all-gather out then in, an all-reduce in, out and in again.

use super::parts::{Part, Sink};
use super::{Algorithm, recursive, ring};

/// What is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    AllReduce,
    AllGather,
    ReduceScatter,
}

/// A resolved two-level scheme.
#[derive(Clone, Copy)]
pub(super) struct Levels {
    pub task: Task,
    /// Members of a domain.
    pub inner: u32,
    /// Domains.
    pub outer: u32,
    /// Ring or (powers of two only) recursive between domains; or a meeting, in one round without messages.
    pub between: Algorithm,
}

impl Levels {
    fn outer_rounds(self) -> u32 {
        let phases = if self.task == Task::AllReduce { 2 } else { 1 };
        match self.between {
            Algorithm::InNetwork => 1,
            Algorithm::Recursive => phases * self.outer.ilog2(),
            _ => phases * (self.outer - 1),
        }
    }

    /// Rounds in all.
    pub fn rounds(self) -> u32 {
        let inside = if self.task == Task::AllReduce { 2 } else { 1 };
        inside * (self.inner - 1) + self.outer_rounds()
    }

    /// Round `round` of `index`.
    pub fn round(self, index: u32, round: u32, sink: &mut impl Sink) {
        let (domain, local) = (index / self.inner, index % self.inner);
        let (inside, between) = (self.inner - 1, self.outer_rounds());
        let (before, after) = match self.task {
            Task::AllReduce => (inside, inside),
            Task::ReduceScatter => (inside, 0),
            Task::AllGather => (0, inside),
        };
        if round < before {
            let sink = &mut Inside { levels: self, domain, sink };
            ring::reduce_scatter(self.inner, local, round, sink);
        } else if round < before + between {
            let sink = &mut Between { levels: self, local, sink };
            self.outer_round(domain, round - before, sink);
        } else if round < before + between + after {
            let sink = &mut Inside { levels: self, domain, sink };
            ring::all_gather(self.inner, local, round - before - between, sink);
        }
    }

    fn outer_round(self, domain: u32, round: u32, sink: &mut impl Sink) {
        let n = self.outer;
        if self.between == Algorithm::InNetwork {
            return;
        }
        match (self.task, self.between) {
            (Task::AllReduce, Algorithm::Recursive) => recursive::all_reduce(n, domain, round, sink),
            (Task::ReduceScatter, Algorithm::Recursive) => recursive::reduce_scatter(n, domain, round, sink),
            (Task::AllGather, Algorithm::Recursive) => recursive::all_gather(n, domain, round, sink),
            (Task::AllReduce, _) if round >= n - 1 => ring::all_gather(n, domain, round - (n - 1), sink),
            (Task::AllReduce | Task::ReduceScatter, _) => ring::reduce_scatter(n, domain, round, sink),
            (Task::AllGather, _) => ring::all_gather(n, domain, round, sink),
        }
    }
}

/// Inside a domain: block c of m is column c.
struct Inside<'a, S> {
    levels: Levels,
    domain: u32,
    sink: &'a mut S,
}

impl<S> Inside<'_, S> {
    fn map(&self, peer: u32, part: Part) -> (u32, Part) {
        let Levels { inner, outer, .. } = self.levels;
        debug_assert_eq!(part.count, 1, "rings move one column at a time");
        let column = Part { first: part.first, step: inner, count: outer, blocks: inner * outer };
        (self.domain * inner + peer, column)
    }
}

impl<S: Sink> Sink for Inside<'_, S> {
    fn send(&mut self, to: u32, part: Part) {
        let (to, part) = self.map(to, part);
        self.sink.send(to, part);
    }

    fn receive(&mut self, from: u32, part: Part) {
        let (from, part) = self.map(from, part);
        self.sink.receive(from, part);
    }
}

/// Between domains: block r of g is row r of the column `local`.
struct Between<'a, S> {
    levels: Levels,
    local: u32,
    sink: &'a mut S,
}

impl<S> Between<'_, S> {
    fn map(&self, peer: u32, part: Part) -> (u32, Part) {
        let Levels { inner, outer, .. } = self.levels;
        debug_assert_eq!(part.blocks, outer, "blocks between domains are rows");
        let rows = Part {
            first: part.first * inner + self.local,
            step: part.step * inner,
            count: part.count,
            blocks: inner * outer,
        };
        (peer * inner + self.local, rows)
    }
}

impl<S: Sink> Sink for Between<'_, S> {
    fn send(&mut self, to: u32, part: Part) {
        let (to, part) = self.map(to, part);
        self.sink.send(to, part);
    }

    fn receive(&mut self, from: u32, part: Part) {
        let (from, part) = self.map(from, part);
        self.sink.receive(from, part);
    }
}
