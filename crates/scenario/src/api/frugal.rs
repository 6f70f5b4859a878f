//! A run that takes more and more memory is ended in words before the system ends the process.

use windtunnel_kernel::memory;
use windtunnel_plan::error::{Failure, Why};
use windtunnel_run::table::{Phase, ProgressSink};

/// Bytes that are left to whoever ends the run.
const RESERVE: u64 = 64 << 20;

/// Nothing grows beyond it.
const NOT_LOOKED: u64 = u64::MAX;

/// What is held and what is left, in bytes.
type Figures = (u64, u64);

/// Looks, wherever a run tells how far it is, at what it holds; stops it where the next such stretch may not fit. Without the counting
/// allocator, and where the system does not say what is left, it stops nothing.
pub(super) struct Frugal<'a> {
    inner: &'a mut dyn ProgressSink,
    /// Bytes held the last time; [`NOT_LOOKED`] before the first time of a phase, for what it has built by then says nothing of what
    /// it takes from there on.
    held: u64,
    spent: Option<Figures>,
}

impl<'a> Frugal<'a> {
    /// Tells `inner`.
    pub(super) fn new(inner: &'a mut dyn ProgressSink) -> Self {
        Self { inner, held: NOT_LOOKED, spent: None }
    }

    /// # Errors
    /// [`Failure::Run`] with the figures if the run was stopped here.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.spent.map_or(Ok(()), |figures| Err(failure(figures)))
    }
}

fn failure((held, left): Figures) -> Failure {
    let gigabytes = |bytes: u64| bytes as f64 / 1e9;
    Failure::Run(
        Why::Memory,
        format!(
            "the run holds {:.2} GB of memory and takes more, and {:.2} GB are left\n\nhint: fewer GPUs, messages or jobs, or a machine \
             with more; `fidelity: flow` takes less than `packet`, and `message` least",
            gigabytes(held),
            gigabytes(left)
        ),
    )
}

/// Whether a run that has grown from `before` to `held` bytes since it last told may not get through the next such stretch, with
/// `left` to take.
fn runs_out(before: u64, held: u64, left: u64) -> bool {
    let grown = held.saturating_sub(before);
    // What doubles takes all of itself once more while it is copied.
    grown > 0 && left < grown.saturating_mul(2).saturating_add(RESERVE)
}

impl ProgressSink for Frugal<'_> {
    fn progress(&mut self, fraction: Option<f64>, simulated_s: f64, events: u64) -> bool {
        let (before, held) = (self.held, memory::held());
        self.held = held;
        // Whoever does not grow need not ask the system, which reads several files for an answer.
        if held > before
            && let Some(left) = memory::available().filter(|&left| runs_out(before, held, left))
        {
            self.spent.get_or_insert((held, left));
        }
        self.inner.progress(fraction, simulated_s, events) && self.spent.is_none()
    }

    fn phase(&mut self, phase: Phase) {
        self.held = NOT_LOOKED;
        self.inner.phase(phase);
    }

    fn remark(&mut self, line: &str) {
        self.inner.remark(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_into_what_is_left_is_stopped() {
        const GB: u64 = 1_000_000_000;
        assert!(runs_out(2 * GB, 4 * GB, 4 * GB));
        assert!(!runs_out(2 * GB, 4 * GB, 5 * GB));
        assert!(runs_out(4 * GB, 4 * GB + 1, RESERVE));
        // What does not grow goes on however little is left.
        assert!(!runs_out(4 * GB, 4 * GB, 0) && !runs_out(4 * GB, 3 * GB, 0));
        // Nor does what was built before anybody looked.
        assert!(!runs_out(NOT_LOOKED, 20 * GB, 4 * GB));
    }

    #[test]
    fn the_figures_are_told() {
        let Failure::Run(Why::Memory, text) = failure((3_500_000_000, 120_000_000)) else {
            panic!("another failure");
        };
        assert!(
            text.starts_with(
                "the run holds 3.50 GB of memory and takes more, and 0.12 GB are left\n\nhint: "
            ),
            "{text}"
        );
    }
}
