//! From operations to programs.
//!
//! Ranks that take part in the same operations form a class; a class is found by splitting the set of all ranks at every
//! operation that names ranks, so an operation of all ranks costs the same for 8 ranks and for 16,384. A program is built
//! once per class, and classes whose programs turn out equal share one.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use windtunnel_kernel::nearest;
use windtunnel_kernel::registry::Listed;

use super::super::Fault;
use super::{Draft, Draftling, Ranks, Work};
use crate::program::{Binding, ProgramError};
use crate::{CommSlot, OpKind, Peer, Program, ProgramBuilder, Workload};

impl Draft {
    /// Builds the programs.
    pub(in crate::handwritten) fn finish(self, last_line: u64) -> Result<Workload, Fault> {
        if self.ranks.is_none() {
            return Err(Fault::new(last_line.max(1), 1, "expected the header, found the end of the file")
                .hint("the first line is {\"windtunnel_workload\": 1, \"ranks\": N}"));
        }
        let (class_of, representatives) = self.classes();
        let operations_of = self.operations_of(&class_of, &representatives);
        let mut workload = Workload { communicators: self.communicators.clone(), ..Workload::default() };
        let mut known: FxHashMap<u64, Vec<u32>> = FxHashMap::default();
        let mut built = Vec::with_capacity(representatives.len());
        for (&rank, operations) in representatives.iter().zip(&operations_of) {
            let (program, slots) = self.program(rank, operations)?;
            let same_print = known.entry(fingerprint(&program)).or_default();
            let same = same_print.iter().find(|&&index| workload.programs[index as usize] == program);
            let index = if let Some(&index) = same {
                index
            } else {
                let index = workload.programs.len() as u32;
                workload.programs.push(program);
                same_print.push(index);
                index
            };
            built.push((index, slots));
        }
        for (rank, &class) in (0..).zip(&class_of) {
            let (program, slots) = &built[class as usize];
            let bindings: Vec<Binding> = slots
                .iter()
                .map(|&family| self.families[family].binding(rank).expect("checked when the line was read"))
                .collect();
            workload.add_rank(*program, &bindings);
        }
        self.check_collectives(&class_of, &operations_of)?;
        Ok(workload)
    }

    /// Class of each rank, and the lowest rank of each class.
    fn classes(&self) -> (Vec<u32>, Vec<u32>) {
        let ranks = self.ranks() as usize;
        let mut class_of = vec![0u32; ranks];
        let mut sizes = vec![ranks as u32];
        for operation in &self.operations {
            let Ranks::Some(members) = &operation.ranks else { continue };
            let mut inside: FxHashMap<u32, u32> = FxHashMap::default();
            for &rank in members {
                *inside.entry(class_of[rank as usize]).or_default() += 1;
            }
            let mut split: FxHashMap<u32, u32> = FxHashMap::default();
            for &rank in members {
                let class = class_of[rank as usize];
                if let Some(&new) = split.get(&class) {
                    class_of[rank as usize] = new;
                } else if inside.get(&class).is_some_and(|&count| count < sizes[class as usize]) {
                    let new = sizes.len() as u32;
                    let count = inside[&class];
                    sizes[class as usize] -= count;
                    sizes.push(count);
                    split.insert(class, new);
                    class_of[rank as usize] = new;
                }
            }
        }
        // Number classes by their lowest rank, so that programs stand in rank order.
        let mut number = vec![u32::MAX; sizes.len()];
        let mut representatives = Vec::new();
        for (rank, class) in (0..).zip(&mut class_of) {
            let numbered = &mut number[*class as usize];
            if *numbered == u32::MAX {
                *numbered = representatives.len() as u32;
                representatives.push(rank);
            }
            *class = *numbered;
        }
        (class_of, representatives)
    }

    /// The operations of each class, as indices into all.
    fn operations_of(&self, class_of: &[u32], representatives: &[u32]) -> Vec<Vec<u32>> {
        let mut operations_of = vec![Vec::new(); representatives.len()];
        for (index, operation) in (0..).zip(&self.operations) {
            match &operation.ranks {
                Ranks::All => operations_of.iter_mut().for_each(|list| list.push(index)),
                Ranks::Some(members) => {
                    for &rank in members {
                        let class = class_of[rank as usize] as usize;
                        if representatives[class] == rank {
                            operations_of[class].push(index);
                        }
                    }
                }
            }
        }
        operations_of
    }

    /// The program of `rank` and the communicator families of its slots.
    fn program(&self, rank: u32, operations: &[u32]) -> Result<(Program, Vec<usize>), Fault> {
        let operations: Vec<&Draftling> =
            operations.iter().map(|&index| &self.operations[index as usize]).collect();
        let mut builder = ProgramBuilder::new();
        let mut slots: Vec<usize> = Vec::new();
        let mut ids: FxHashMap<&str, (u32, u64)> = FxHashMap::default();
        for operation in &operations {
            let label = builder.label(&operation.label);
            let index = match &operation.work {
                Work::Plain(kind) => builder.push(*kind, operation.dimension, label),
                Work::Collective { family, spec, stream } => {
                    let slot = slots.iter().position(|known| known == family).unwrap_or_else(|| {
                        slots.push(*family);
                        slots.len() - 1
                    });
                    let Ok(slot) = u16::try_from(slot) else {
                        let message = format!("rank {rank} is in more than 65536 communicators");
                        return Err(Fault::new(operation.line, 1, message));
                    };
                    builder.collective(CommSlot(slot), spec.clone(), operation.dimension, *stream, label)
                }
            };
            if let Some((id, column)) = &operation.id
                && let Some((_, first)) = ids.insert(id, (index, operation.line))
            {
                let message = format!("id `{id}` of rank {rank} is already given in line {first}");
                return Err(Fault::new(operation.line, *column, message));
            }
        }
        for (index, operation) in (0..).zip(&operations) {
            for after in &operation.after {
                let Some(&(prerequisite, _)) = ids.get(after.id.as_str()) else {
                    let message = format!("id `{}` is not defined on rank {rank}", after.id);
                    let known = operations.iter().filter_map(|operation| operation.id.as_ref());
                    let near = nearest(&after.id, known.map(|(id, _)| id.as_str()));
                    let fault = Fault::new(operation.line, after.column, message);
                    return Err(match near {
                        Some(_) => fault.near(near),
                        None => fault.hint("every rank of an operation needs the operations it comes after"),
                    });
                };
                if after.irequires {
                    builder.irequires(index, prerequisite);
                } else {
                    builder.requires(index, prerequisite);
                }
            }
        }
        match builder.finish() {
            Ok(program) => Ok((program, slots)),
            Err(ProgramError::Cycle(cycle)) => {
                let names: Vec<String> = cycle
                    .iter()
                    .rev()
                    .map(|&index| {
                        let operation = operations[index as usize];
                        let id = operation.id.as_ref().map_or("", |(id, _)| id);
                        format!("`{id}` (line {})", operation.line)
                    })
                    .collect();
                let line = operations[cycle[0] as usize].line;
                let message =
                    format!("operations of rank {rank} wait for each other: {}", names.join(" after "));
                Err(Fault::new(line, 1, message).hint("none of these operations could ever start"))
            }
            Err(ProgramError::MissingOperation(..)) => unreachable!("edges come from the table of ids"),
        }
    }

    /// All members of a communicator name the same collectives in the same order; else the job could only hang.
    fn check_collectives(&self, class_of: &[u32], operations_of: &[Vec<u32>]) -> Result<(), Fault> {
        // Collectives of each class on each family it uses, as indices into the operations.
        let lists: Vec<FxHashMap<usize, Vec<usize>>> = operations_of
            .iter()
            .map(|operations| {
                let mut lists: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
                for &index in operations {
                    if let Work::Collective { family, .. } = self.operations[index as usize].work {
                        lists.entry(family).or_default().push(index as usize);
                    }
                }
                lists
            })
            .collect();
        let on =
            |class: u32, family: usize| lists[class as usize].get(&family).map_or(&[][..], Vec::as_slice);
        let spec = |index: usize| match &self.operations[index].work {
            Work::Collective { spec, .. } => spec,
            Work::Plain(_) => unreachable!("the lists hold collectives"),
        };
        for (number, family) in self.families.iter().enumerate() {
            for group in family.groups.clone() {
                let members = &self.communicators[group as usize].ranks;
                let first = members[0];
                let reference = on(class_of[first.0 as usize], number);
                let mut agreed: FxHashSet<u32> = FxHashSet::default();
                for &member in members {
                    let class = class_of[member.0 as usize];
                    if !agreed.insert(class) {
                        continue;
                    }
                    let list = on(class, number);
                    let name = &self.communicators[group as usize].name;
                    let same = |at: &usize| {
                        list.get(*at).zip(reference.get(*at)).is_some_and(|(&a, &b)| spec(a) == spec(b))
                    };
                    let Some(at) = (0..list.len().max(reference.len())).find(|at| !same(at)) else {
                        continue;
                    };
                    let describe = |list: &[usize]| match list.get(at) {
                        Some(&index) => {
                            let operation = &self.operations[index];
                            let kind = spec(index).kind.entry().name;
                            format!("`{kind}` of {} bytes (line {})", spec(index).bytes.get(), operation.line)
                        }
                        None => "missing".to_owned(),
                    };
                    let line =
                        list.get(at).or(reference.get(at)).map_or(1, |&index| self.operations[index].line);
                    let message = format!(
                        "collective {} on communicator `{name}` is {} on rank {member} and {} on rank {first}",
                        at + 1,
                        describe(list),
                        describe(reference),
                    );
                    return Err(Fault::new(line, 1, message)
                        .hint("all members must name the same collectives in the same order"));
                }
            }
        }
        Ok(())
    }
}

/// Equal for equal programs, and mostly different for others.
fn fingerprint(program: &Program) -> u64 {
    let mut hasher = FxHasher::default();
    program.ops.len().hash(&mut hasher);
    program.labels.hash(&mut hasher);
    program.prerequisites.hash(&mut hasher);
    for op in &program.ops {
        match op.kind {
            OpKind::Calc { duration, .. } => duration.hash(&mut hasher),
            OpKind::Send { peer: Peer::Rank(to), bytes, tag, .. } => (to, bytes, tag).hash(&mut hasher),
            OpKind::Receive { peer: Some(Peer::Rank(from)), tag, .. } => (from, tag).hash(&mut hasher),
            OpKind::Collective { comm, spec, .. } => (comm, spec).hash(&mut hasher),
            _ => 0u8.hash(&mut hasher),
        }
    }
    hasher.finish()
}
