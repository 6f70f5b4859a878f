//! Which parameters are gathered when, and how gradients fill buckets.

use windtunnel_kernel::Bytes;

use super::{ChunkWork, Layout, Reshard};
use crate::schedules::ActionKind;

/// Dense and expert bytes that travel together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub chunk: u16,
    pub dense: Bytes,
    pub expert: Bytes,
}

impl Load {
    pub(super) fn total(self) -> Bytes {
        self.dense + self.expert
    }

    fn add(&mut self, dense: Option<&Bytes>, expert: Option<&Bytes>) {
        self.dense += dense.copied().unwrap_or_default();
        self.expert += expert.copied().unwrap_or_default();
    }

    pub(super) fn add_parameters(&mut self, work: &ChunkWork, unit: u32) {
        let unit = unit as usize;
        self.add(work.parameter_bytes.get(unit), work.expert_parameter_bytes.get(unit));
    }

    pub(super) fn add_gradients(&mut self, work: &ChunkWork, unit: u32) {
        let unit = unit as usize;
        self.add(work.gradient_bytes.get(unit), work.expert_gradient_bytes.get(unit));
    }
}

/// The gathers of a step in the order of their use, and which gather each entry into units needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gathers {
    pub loads: Vec<Load>,
    /// By entry, in the order of emission: the gather to wait for.
    pub of_entry: Vec<Option<u32>>,
}

/// Collects [`Gathers`] as the passes of a rank go by.
pub(super) struct Planner<'a> {
    layout: &'a Layout,
    gathers: Gathers,
    seen: Vec<bool>,
    last_forward: Option<u16>,
    last_backward: Option<u16>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(layout: &'a Layout, chunks: u16) -> Self {
        Self {
            layout,
            gathers: Gathers::default(),
            seen: vec![false; usize::from(chunks)],
            last_forward: None,
            last_backward: None,
        }
    }

    /// Whether a pass that starts now finds its parameters given up.
    pub(super) fn starts(&mut self, kind: ActionKind, chunk: u16) -> bool {
        let first = !std::mem::replace(&mut self.seen[usize::from(chunk)], true);
        let sharded = self.layout.zero == 3 && self.layout.reshard != Reshard::Never;
        match kind {
            ActionKind::BackwardWeight => false,
            _ if self.layout.zero == 0 => false,
            _ if !sharded => first,
            _ if self.layout.reshard == Reshard::PerPass => true,
            ActionKind::Forward => self.last_forward.replace(chunk) != Some(chunk),
            _ => self.last_backward.replace(chunk) != Some(chunk),
        }
    }

    /// An entry into `units` of `chunk` in a pass that `needs` gathering.
    pub(super) fn enters(&mut self, needs: bool, chunk: u16, work: &ChunkWork, units: &[u32]) {
        if !needs {
            self.gathers.of_entry.push(None);
            return;
        }
        let bucketed = self.layout.zero < 3;
        let open =
            self.gathers.loads.last().is_some_and(|load| {
                bucketed && load.chunk == chunk && load.total() < self.layout.bucket_bytes
            });
        if !open {
            self.gathers.loads.push(Load { chunk, ..Load::default() });
        }
        let load = self.gathers.loads.last_mut().expect("there is an open gather");
        for &unit in units {
            load.add_parameters(work, unit);
        }
        self.gathers.of_entry.push(Some(self.gathers.loads.len() as u32 - 1));
    }

    pub(super) fn finish(self) -> Gathers {
        self.gathers
    }
}
