//! What a job sends in an iteration, whatever simulates it.

use rustc_hash::FxHashMap;

use crate::collectives::{Plan, Traffic};
use crate::program::{OpKind, Workload};

impl Workload {
    /// Messages and payload of one iteration of all ranks: those that they send to one another, and those of their collectives by
    /// steps, `auto` resolved by size. A collective that has no plan counts nothing; a run refuses it.
    pub fn traffic(&self) -> Traffic {
        self.sent() + self.collective_traffic()
    }

    fn sent(&self) -> Traffic {
        let mut ranks = vec![0_u128; self.programs.len()];
        self.program_of.iter().for_each(|&program| ranks[program as usize] += 1);
        let of_program = |program: &crate::Program| -> Traffic {
            let sizes = program.ops.iter().filter_map(|op| match op.kind {
                // Nothing counts as a byte.
                OpKind::Send { bytes, .. } => Some(bytes.get().max(1)),
                _ => None,
            });
            sizes.map(|bytes| Traffic { messages: 1, bytes: bytes.into() }).sum()
        };
        self.programs.iter().zip(ranks).map(|(program, ranks)| of_program(program) * ranks).sum()
    }

    fn collective_traffic(&self) -> Traffic {
        // By program, slot and size of the group: there are few of them, however many groups.
        let mut known: FxHashMap<(u32, usize, u32), Traffic> = FxHashMap::default();
        let mut sum = Traffic::default();
        for (number, group) in self.communicators.iter().enumerate() {
            let Some(&first) = group.ranks.first() else { continue };
            let program = self.program_of[first.0 as usize];
            let offsets = &self.binding_offsets[first.0 as usize..];
            let slots = &self.bindings[offsets[0] as usize..offsets[1] as usize];
            for (slot, _) in slots.iter().enumerate().filter(|(_, of)| of.communicator as usize == number) {
                let n = group.ranks.len() as u32;
                let key = (program, slot, n);
                sum = sum + *known.entry(key).or_insert_with(|| self.of_slot(program, slot, n));
            }
        }
        sum
    }

    /// Of all collectives that a member of a group of `n` names by `slot`.
    fn of_slot(&self, program: u32, slot: usize, n: u32) -> Traffic {
        let program = &self.programs[program as usize];
        let mut times = vec![0_u128; program.specs.len()];
        for op in &program.ops {
            if let OpKind::Collective { comm, spec, .. } = op.kind
                && usize::from(comm.0) == slot
            {
                times[spec as usize] += 1;
            }
        }
        let of = |(spec, times)| Plan::new(spec, n).map(|plan| plan.traffic() * times).unwrap_or_default();
        program.specs.iter().zip(times).filter(|&(_, times)| times > 0).map(of).sum()
    }
}
