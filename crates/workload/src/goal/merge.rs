//! Several jobs side by side on one set of ranks, as ATLAHS makes multi-job scenarios (§3.2).

use crate::program::{Binding, Communicator};
use crate::{OpKind, Peer, Program, Workload};
use windtunnel_kernel::RankId;

/// Why jobs cannot stand side by side.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// Two jobs want the same rank.
    #[error("jobs {first} and {second} both stand on rank {rank}")]
    Overlap {
        /// Index of the job that stands there first.
        first: usize,
        /// Index of the other.
        second: usize,
        /// The rank.
        rank: u32,
    },
    /// A job leaves too many ranks idle before it, each of which takes memory.
    #[error(
        "job {job} from rank {offset} on leaves {idle} ranks idle before it, expected at most {}",
        Self::MOST_IDLE
    )]
    TooFar {
        /// Index of the job.
        job: usize,
        /// Its first rank.
        offset: u32,
        /// Ranks between the job before and this one.
        idle: usize,
    },
    /// A job reaches beyond the highest possible rank.
    #[error("job {job} with {ranks} ranks from rank {offset} on reaches beyond rank 4294967294")]
    TooHigh {
        /// Index of the job.
        job: usize,
        /// Its first rank.
        offset: u32,
        /// Its ranks.
        ranks: usize,
    },
}

impl MergeError {
    /// Most idle ranks before a job.
    const MOST_IDLE: usize = 1 << 24;

    /// The message, with each job called by its name in `names`.
    pub fn told(&self, names: &[&str]) -> String {
        let text = self.to_string();
        match *self {
            Self::Overlap { first, second, .. } => text.replacen(
                &format!("jobs {first} and {second}"),
                &format!("`{}` and `{}`", names[first], names[second]),
                1,
            ),
            Self::TooFar { job, .. } | Self::TooHigh { job, .. } => {
                text.replacen(&format!("job {job}"), &format!("`{}`", names[job]), 1)
            }
        }
    }
}

/// Puts each workload at its offset: its rank r becomes rank `offset` + r. Ranks between jobs are idle.
///
/// Communicators get their job's index in front of their name where there are several jobs.
///
/// # Errors
/// [`MergeError`] when jobs overlap or reach too high.
pub fn merge(jobs: &[(Workload, u32)]) -> Result<Workload, MergeError> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|&job| (jobs[job].1, job));
    let mut merged = Workload { binding_offsets: vec![0], ..Workload::default() };
    let mut idle = None;
    let mut before: Option<usize> = None;
    for job in order {
        let (workload, offset) = &jobs[job];
        let (offset, ranks) = (*offset, workload.ranks());
        if offset as usize + ranks > u32::MAX as usize {
            return Err(MergeError::TooHigh { job, offset, ranks });
        }
        if ranks == 0 {
            continue;
        }
        if let Some(first) = before
            && merged.ranks() > offset as usize
        {
            return Err(MergeError::Overlap { first, second: job, rank: offset });
        }
        let idle_before = offset as usize - merged.ranks();
        if idle_before > MergeError::MOST_IDLE {
            return Err(MergeError::TooFar { job, offset, idle: idle_before });
        }
        while merged.ranks() < offset as usize {
            let program = *idle.get_or_insert_with(|| {
                merged.programs.push(Program { labels: vec![String::new()], ..Program::default() });
                merged.programs.len() as u32 - 1
            });
            merged.add_rank(program, &[]);
        }
        let (first_program, first_communicator) =
            (merged.programs.len() as u32, merged.communicators.len() as u32);
        merged.programs.extend(workload.programs.iter().map(|program| shifted(program, offset)));
        for communicator in &workload.communicators {
            let name = if jobs.len() > 1 {
                format!("{job}/{}", communicator.name)
            } else {
                communicator.name.clone()
            };
            let ranks = communicator.ranks.iter().map(|rank| RankId(rank.0 + offset)).collect();
            merged.communicators.push(Communicator { name, ranks });
        }
        for rank in 0..ranks {
            let range = workload.binding_offsets[rank] as usize..workload.binding_offsets[rank + 1] as usize;
            let bindings: Vec<Binding> = workload.bindings[range]
                .iter()
                .map(|binding| Binding {
                    communicator: binding.communicator + first_communicator,
                    ..*binding
                })
                .collect();
            merged.add_rank(workload.program_of[rank] + first_program, &bindings);
        }
        before = Some(job);
    }
    Ok(merged)
}

fn shifted(program: &Program, offset: u32) -> Program {
    let mut program = program.clone();
    for op in &mut program.ops {
        match &mut op.kind {
            OpKind::Send { peer: Peer::Rank(rank), .. }
            | OpKind::Receive { peer: Some(Peer::Rank(rank)), .. } => rank.0 += offset,
            _ => {}
        }
    }
    program
}
