//! A choice with everything but the layers of its stages.

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use windtunnel_kernel::Bytes;
use windtunnel_workload::estimate::StagePrice;
use windtunnel_workload::generate::Layout;
use windtunnel_workload::model::{KernelModel, Training};
use windtunnel_workload::schedules::Placement;

use super::choice::Choice;
use super::courses::CourseId;
use super::laid::Layers;
use super::lie::Lie;
use super::tariff::Tariffs;

/// The number of a kernel model: of settings, of their framework, and of as many GPUs, whose slowest sets the pace.
pub(super) type Kit = u32;

/// Kernels, micro-batch, and all else of a layout that prices depend on.
pub(super) type LayoutKey = (Kit, u64, Rc<str>);

/// Where a stage lies, and the bits of the speed of the slowest GPU there relative to its sheet.
pub(super) type Pace = (Lie, u64);

/// Prices of a chunk's passes, and its optimiser.
pub(super) type Priced = (Rc<StagePrice>, f64);

/// What choices share that differ in the layers of their stages only. The lists that it keeps are of what depends on
/// nothing else.
pub(super) struct Prepared {
    /// Of which it was made.
    pub asked: Choice,
    pub layout: Layout,
    pub training: Training,
    pub kit: Kit,
    /// By kind of GPU.
    pub models: Rc<[KernelModel]>,
    /// What the smallest GPU of each pipeline rank has; one for all where they are alike.
    pub rooms: Vec<Bytes>,
    pub placement: Placement,
    pub tariffs: Rc<Tariffs>,
    /// Rounds by which the step is longer than the first course, and the courses; the second is a round longer. None if
    /// the schedule is searched for by what passes cost.
    pub courses: Option<(f64, Vec<CourseId>)>,
    pub key: LayoutKey,
    /// `training.layers_per_stage`.
    pub layers_per_stage: Option<Vec<u32>>,
    pub tokens: u64,
    /// Of the model, in an iteration.
    pub flops: f64,
    /// Of all GPUs, in a second.
    pub peak: f64,
    pub held: RefCell<Held>,
    pub priced: RefCell<FxHashMap<(Layers, Pace), Priced>>,
}

/// What memory is known to be held.
#[derive(Default)]
pub(super) struct Held {
    /// Activations of a micro-batch in a chunk, and what of them is left after its input gradient.
    pub activations: FxHashMap<Layers, (u64, u64)>,
    /// Parameters, gradients, optimiser and buffers of a rank with these chunks.
    pub state: FxHashMap<Vec<Layers>, Bytes>,
}
