//! The end of a rank's block, and of the file: labels are looked up, edges become a program, cycles are told.

use windtunnel_kernel::nearest;

use super::Reader;
use crate::goal::error::{CycleStep, GoalError, GoalErrorKind as Kind};
use crate::program::{Edges, ProgramError};
use crate::{Operation, Program, Workload};

impl Reader<'_> {
    /// Ends the open block at byte `at` of the piece: its program is whole.
    pub(super) fn close_block(&mut self, at: usize) -> Result<(), GoalError> {
        let Some((rank, opened)) = self.open.take() else {
            let found = "`}`".to_owned();
            return Err(match self.ranks {
                None => self.fail_at(at, Kind::NumRanksMissing { found }),
                Some(_) => self.fail_at(at, Kind::OutsideRank { found }),
            });
        };
        self.resolve_forward(rank)?;
        let expected = self.ops.len();
        let ops = std::mem::replace(&mut self.ops, Vec::with_capacity(expected));
        let program = self.program(ops);
        // A dependency on an earlier operation cannot close a cycle.
        let backward = |&(prerequisite, dependent): &(u32, u32)| prerequisite >= dependent;
        if (self.requires.iter().any(backward) || self.irequires.iter().any(backward))
            && let Err(ProgramError::Cycle(cycle)) = program.check_acyclic()
        {
            return Err(self.cycle(rank, opened, &cycle));
        }
        self.programs.push(program);
        self.order.push(rank);
        self.labels.clear();
        self.requires.clear();
        self.irequires.clear();
        Ok(())
    }

    /// Looks up labels that were used before they were defined.
    fn resolve_forward(&mut self, rank: u32) -> Result<(), GoalError> {
        for forward in std::mem::take(&mut self.forward) {
            let label = self.labels.kept(forward.start, forward.length);
            let Some(operation) = self.labels.find(label) else {
                let label = String::from_utf8_lossy(label).into_owned();
                let nearest = nearest(&label, self.labels.iter().map(|(known, ..)| known).take(100_000))
                    .map(str::to_owned);
                let kind = Kind::UndefinedLabel { label, rank, nearest };
                return Err(self.fail(forward.line, forward.column, kind));
            };
            let list = if forward.irequires { &mut self.irequires } else { &mut self.requires };
            let edge = &mut list[forward.edge as usize];
            *(if forward.is_prerequisite { &mut edge.0 } else { &mut edge.1 }) = operation;
        }
        Ok(())
    }

    fn program(&self, mut ops: Vec<Operation>) -> Program {
        let n = ops.len();
        let mut prerequisites = vec![0; n];
        for &(_, dependent) in self.requires.iter().chain(&self.irequires) {
            prerequisites[dependent as usize] += 1;
        }
        let mut labels = vec![String::new()];
        if self.keep_labels {
            for (label, operation, _) in self.labels.iter() {
                // A label that stands before another label names the same operation.
                ops[operation as usize].label = labels.len() as u32;
                labels.push(label.to_owned());
            }
        }
        ops.shrink_to_fit();
        Program {
            ops,
            requires: Edges::new(n, &self.requires),
            irequires: Edges::new(n, &self.irequires),
            prerequisites,
            specs: Vec::new(),
            labels,
        }
    }

    #[cold]
    fn cycle(&self, rank: u32, opened: u64, cycle: &[u32]) -> GoalError {
        // From prerequisite-first to dependent-first, as the file says it.
        let step = |&operation: &u32| {
            let (label, _, line) = self
                .labels
                .iter()
                .find(|&(_, named, _)| named == operation)
                .expect("edges join labelled operations");
            CycleStep { label: label.to_owned(), line: opened + u64::from(line) }
        };
        let steps: Vec<CycleStep> = cycle.iter().rev().map(step).collect();
        let line = steps[0].line;
        self.fail(line, 1, Kind::Cycle { rank, steps })
    }

    /// Ends the file: a workload, if every rank has its block.
    pub(super) fn finish(mut self) -> Result<Workload, GoalError> {
        let end = self.line - 1;
        if let Some((opened, column)) = self.comment {
            return Err(self.fail(opened, column, Kind::CommentOpen { opened }));
        }
        if let Some((rank, opened)) = self.open {
            return Err(self.fail(end, 1, Kind::Truncated { rank, opened }));
        }
        let Some((ranks, _)) = self.ranks else {
            let found = "the end of the file".to_owned();
            return Err(self.fail(end, 1, Kind::NumRanksMissing { found }));
        };
        let missing = ranks - self.order.len() as u32;
        if missing > 0 {
            self.order.sort_unstable();
            let first = self.order.iter().zip(0..).find(|&(&rank, expected)| rank != expected);
            let first = first.map_or(self.order.len() as u32, |(_, expected)| expected);
            return Err(self.fail(end, 1, Kind::RanksMissing { missing, first, ranks }));
        }
        if !self.order.is_sorted() {
            let mut pairs: Vec<(u32, Program)> = self.order.iter().copied().zip(self.programs).collect();
            pairs.sort_unstable_by_key(|&(rank, _)| rank);
            self.programs = pairs.into_iter().map(|(_, program)| program).collect();
        }
        Ok(Workload::from_programs(self.programs))
    }
}
