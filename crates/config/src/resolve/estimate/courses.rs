//! Courses of schedules, each built once.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use windtunnel_plan::error::InputError;
use windtunnel_workload::estimate::{Course, Gathering, Reducing};
use windtunnel_workload::generate::Layout;
use windtunnel_workload::schedules::flexible::default_run_length;
use windtunnel_workload::schedules::{Schedule, ScheduleError, ScheduleName, ScheduleSettings};

use super::laid::exchanges;

/// Passes of the courses that are kept from one list of choices to the next, at most (32 bytes each with their schedule).
const KEPT: usize = 1 << 23;

/// A course by its schedule, pipeline ranks, micro-batches, and what it gathers and reduces.
type CourseKey = (String, u32, u32, Gathering, Reducing);

/// The number of a course in [`Courses`].
pub(super) type CourseId = u32;

/// A course, and its schedule where steps may have to be followed.
struct Known {
    course: Rc<Course>,
    schedule: Option<Rc<Schedule>>,
}

/// The courses of a job's layouts.
#[derive(Default)]
pub(super) struct Courses {
    numbers: FxHashMap<CourseKey, CourseId>,
    known: Vec<Known>,
}

impl Courses {
    pub(super) fn course(&self, id: CourseId) -> &Rc<Course> {
        &self.known[id as usize].course
    }

    /// The schedule of a course of several pipeline ranks, or that gathers parameters.
    pub(super) fn schedule(&self, id: CourseId) -> &Schedule {
        self.known[id as usize].schedule.as_deref().expect("schedules are kept of what may be followed")
    }

    /// Whether they have become many, and were let go of: numbers that were given are no longer valid.
    pub(super) fn forget(&mut self) -> bool {
        let many = self.known.iter().map(|known| known.course.passes()).sum::<usize>() > KEPT;
        if many {
            *self = Self::default();
        }
        many
    }

    /// The courses of a layout with `schedule`: one, or two of which the second is a round longer, and how many rounds the step is longer
    /// than the first.
    pub(super) fn of(
        &mut self,
        layout: &Layout,
        schedule: &ScheduleSettings,
        place: &str,
    ) -> Result<(f64, Vec<CourseId>), InputError> {
        let refused = |error: ScheduleError| {
            InputError::new(format!("{place}.parallelism.schedule"), error.to_string())
        };
        let (settled, rounds) = settle(layout);
        let (gathering, reducing) = exchanges(layout);
        let long = rounds > 0.0;
        let microbatches =
            if long { vec![settled, settled + round(layout)] } else { vec![layout.microbatches] };
        let mut keys = Vec::with_capacity(microbatches.len());
        for microbatches in microbatches {
            let mut schedule = schedule.clone();
            if long && schedule.run_length.is_none() && has_runs(&schedule) {
                schedule.run_length = Some(default_run_length(layout.pp, layout.microbatches));
            }
            let key: CourseKey = (format!("{schedule:?}"), layout.pp, microbatches, gathering, reducing);
            if let Some(&known) = self.numbers.get(&key) {
                keys.push(known);
                continue;
            }
            let built = Schedule::new(&schedule, layout.pp, microbatches).map_err(refused)?;
            let id = self.known.len() as CourseId;
            self.known.push(Known {
                course: Rc::new(Course::new(&built, gathering, reducing)),
                schedule: (gathering != Gathering::None || layout.pp > 1).then(|| Rc::new(built)),
            });
            self.numbers.insert(key, id);
            keys.push(id);
        }
        Ok((rounds, keys))
    }
}

/// Whether the order of passes depends on the run length.
fn has_runs(schedule: &ScheduleSettings) -> bool {
    schedule.chunks() > 1
        && matches!(schedule.name, ScheduleName::Interleaved | ScheduleName::Zb1p | ScheduleName::DoraPp)
}

/// Micro-batches after which the pipeline does the same again.
fn round(layout: &Layout) -> u32 {
    if has_runs(&layout.schedule) {
        layout.schedule.run_length.unwrap_or_else(|| default_run_length(layout.pp, layout.microbatches))
    } else {
        (2 * layout.pp).max(2)
    }
}

/// Micro-batches of a step that is long enough to have settled, and how many rounds more the step has; no rounds if it is short, or if
/// what it keeps in memory grows with every one.
fn settle(layout: &Layout) -> (u32, f64) {
    let (all, round) = (layout.microbatches, round(layout));
    if layout.schedule.name == ScheduleName::Gpipe {
        return (all, 0.0);
    }
    let few = all % round + round * (4 * layout.pp).div_ceil(round).max(2);
    if all <= few + 2 * round { (all, 0.0) } else { (few, f64::from(all - few) / f64::from(round)) }
}
