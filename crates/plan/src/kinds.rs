//! GPUs that differ between buildings: which kinds there are, and where.
//!
//! Life cycle: made with the fabric, from the sheets of its buildings; empty of differences wherever all hosts are alike. A job that is
//! laid out over several kinds has its programs once for each ([`Programs`]), and whoever places it takes those of the kinds on
//! which its ranks lie.

use std::sync::{Arc, Mutex, PoisonError};

use windtunnel_kernel::EndpointId;
use windtunnel_workload::Workload;
use windtunnel_workload::model::sheets::GpuSheet;

/// The kinds of GPUs of a fabric.
#[derive(Clone, Debug, Default)]
pub struct GpuKinds {
    sheets: Vec<Arc<GpuSheet>>,
    /// Whether the scale-up switches of each kind sum.
    reduces: Vec<bool>,
    /// Up to which endpoint GPUs are of which kind, ascending; empty where all are alike.
    until: Vec<(u32, u8)>,
}

impl GpuKinds {
    /// All GPUs by one sheet, if one is named.
    pub fn alike(sheet: Option<Arc<GpuSheet>>, reduces: bool) -> Self {
        Self { reduces: vec![reduces], sheets: sheet.into_iter().collect(), until: Vec::new() }
    }

    /// GPUs by groups that follow one another: how many there are, by which sheet, and whether their scale-up switches sum. The first
    /// kind is that of the first group.
    pub fn of_groups(groups: impl IntoIterator<Item = (u32, Arc<GpuSheet>, bool)>) -> Self {
        let (mut found, mut end) = (Self::default(), 0);
        for (count, sheet, sums) in groups {
            let known = found.sheets.iter().zip(&found.reduces);
            let known =
                known.into_iter().position(|(other, other_sums)| (&**other, other_sums) == (&*sheet, &sums));
            let kind = known.unwrap_or_else(|| {
                found.sheets.push(sheet);
                found.reduces.push(sums);
                found.sheets.len() - 1
            });
            end += count;
            found.until.push((end, kind as u8));
        }
        if found.sheets.len() < 2 {
            found.until.clear();
        }
        found
    }

    /// How many there are; 1 where nothing is known of the GPUs.
    pub fn count(&self) -> usize {
        self.sheets.len().max(1)
    }

    /// How many of the first `gpus` GPUs are of `kind`.
    pub fn among_first(&self, gpus: u64, kind: u8) -> u64 {
        if self.until.is_empty() {
            return if kind == 0 { gpus } else { 0 };
        }
        let (mut from, mut found) = (0, 0);
        for &(until, own) in &self.until {
            let end = u64::from(until).min(gpus);
            if own == kind {
                found += end - from;
            }
            from = end;
        }
        found
    }

    /// Whether GPUs differ.
    pub fn differ(&self) -> bool {
        self.sheets.len() > 1
    }

    /// Sheets by kind; none where no GPUs are named.
    pub fn sheets(&self) -> &[Arc<GpuSheet>] {
        &self.sheets
    }

    /// Whether the scale-up switches of `kind` sum.
    pub fn reduces(&self, kind: usize) -> bool {
        self.reduces.get(kind).copied().unwrap_or(false)
    }

    /// GPUs that follow one another with the sheet of each stretch; none where all are alike.
    pub fn stretches(&self) -> Vec<(u32, &GpuSheet)> {
        let mut from = 0;
        let stretch = |&(until, kind): &(u32, u8)| {
            let count = until - from;
            from = until;
            (count, &*self.sheets[usize::from(kind)])
        };
        self.until.iter().map(stretch).collect()
    }

    /// The kind of a GPU.
    pub fn of(&self, gpu: EndpointId) -> u8 {
        if self.until.is_empty() {
            return 0;
        }
        let at = self.until.partition_point(|&(until, _)| until <= gpu.0);
        self.until.get(at).map_or(0, |&(_, kind)| kind)
    }
}

/// Programs of a job for each kind of GPU, one kind after the other.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// How many kinds; 0 or 1 where ranks do the same wherever they lie.
    pub kinds: u32,
    /// The job by the kinds on which its ranks lay before.
    known: Arc<Mutex<Vec<Placed>>>,
}

/// The kinds of a job's ranks, and what they do there.
type Placed = (Vec<u8>, Arc<Workload>);

/// Placements of a job that are kept.
const KEPT: usize = 16;

impl Programs {
    /// For so many kinds.
    pub fn of_kinds(kinds: u32) -> Self {
        Self { kinds, ..Self::default() }
    }

    /// `workload` with its ranks at `placement`.
    pub(crate) fn at(
        &self,
        workload: &Arc<Workload>,
        gpus: &GpuKinds,
        placement: &[EndpointId],
    ) -> Arc<Workload> {
        let kinds: Vec<u8> = placement.iter().map(|&gpu| gpus.of(gpu)).collect();
        if self.kinds < 2 || kinds.iter().all(|&kind| kind == 0) {
            return workload.clone();
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = known.iter().find(|(other, _)| *other == kinds) {
            return found.clone();
        }
        let made = workload.on_kinds(self.kinds, |rank| u32::from(kinds[rank.0 as usize]));
        let made = Arc::new(made);
        if known.len() == KEPT {
            known.remove(0);
        }
        known.push((kinds, made.clone()));
        made
    }
}

#[cfg(test)]
mod tests {
    use windtunnel_workload::model::sheets::GpuSheet;

    use super::*;

    fn sheet(name: &str) -> Arc<GpuSheet> {
        let text = include_str!("../../../data/gpus/a100-80.yaml");
        let read = GpuSheet::parse(text).expect("a sheet that comes along");
        Arc::new(GpuSheet { name: name.to_owned(), ..read })
    }

    /// Kinds are told by what their sheets say, wherever they stand.
    #[test]
    fn gpus_are_of_the_kind_of_their_stretch() {
        let of = |names: &[(u32, &str)]| {
            GpuKinds::of_groups(names.iter().map(|&(count, name)| (count, sheet(name), true)))
        };
        let found = of(&[(8, "new"), (4, "old"), (8, "new")]);
        assert_eq!(found.count(), 2);
        let kinds: Vec<u8> = [0, 7, 8, 11, 12, 19].map(|gpu| found.of(EndpointId(gpu))).to_vec();
        assert_eq!(kinds, [0, 0, 1, 1, 0, 0]);
        let first = [8, 10, 20].map(|gpus| (found.among_first(gpus, 0), found.among_first(gpus, 1)));
        assert_eq!(first, [(8, 0), (8, 2), (16, 4)]);
        let names: Vec<_> =
            found.stretches().into_iter().map(|(gpus, sheet)| (gpus, sheet.name.clone())).collect();
        assert_eq!(names, [(8, "new".to_owned()), (4, "old".to_owned()), (8, "new".to_owned())]);
        let alike = of(&[(8, "new"), (4, "new")]);
        assert!(!alike.differ() && alike.stretches().is_empty());
        assert_eq!((alike.of(EndpointId(9)), alike.among_first(9, 0)), (0, 9));
    }
}
