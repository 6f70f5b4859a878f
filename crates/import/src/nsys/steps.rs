//! Steps of a training loop that a program marks by NVTX ranges: `step`, `iteration 12`, `ProfilerStep#3`.

use crate::coverage::{Coverage, Treatment};
use crate::kineto::{HostCall, HostKind, INSIDE, Trace};

/// Whether a range's text is that of a step, with a number or without.
pub(super) fn is_step(text: &str) -> bool {
    let word = text.trim().trim_end_matches(|last: char| last.is_ascii_digit());
    let word = word.trim_end_matches([' ', '#', '_', ':', '-', '=']).to_ascii_lowercase();
    let known =
        ["step", "iter", "iteration", "batch", "profilerstep", "train_step", "training_step", "train step"];
    known.contains(&word.as_str())
}

/// Marks the begin and the end of each step. Ranges are (text, start, end, thread); those without a number get that of their order, and
/// those that lie in another, as a `batch` in a `step`, are let go.
pub(super) fn mark(trace: &mut Trace, mut ranges: Vec<(String, i64, i64, u32)>, coverage: &mut Coverage) {
    ranges.sort_by_key(|&(_, start, end, _)| (start, std::cmp::Reverse(end)));
    let mut until = i64::MIN;
    for (text, start, end, thread) in ranges {
        let length = (end - start) as u64;
        if start < until {
            coverage.count("annotation (NVTX)", Treatment::Mapped, INSIDE, 0, length);
            continue;
        }
        coverage.count("step", Treatment::Mapped, "marks at its begin and end", 0, length);
        until = end;
        let step = trace.steps.len() as u32;
        let numbered = text.ends_with(|last: char| last.is_ascii_digit());
        let name = if numbered { text } else { format!("{}#{step}", text.trim()) };
        trace.steps.push((name, start, end));
        for (at, is_end) in [(start, false), (end, true)] {
            let kind = HostKind::Step(step, is_end);
            trace.host.push(HostCall { kind, start: at, end: at, thread, correlation: -1 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_known_by_their_word() {
        assert!(["step", "Iteration 12", "ProfilerStep#3"].into_iter().all(is_step));
        assert!(!["stepper", "optimizer.step", "layer 3", "", "12"].into_iter().any(is_step));
    }

    #[test]
    fn a_range_in_a_step_is_no_step() {
        let mut trace = Trace::default();
        let range = |text: &str, start, end| (text.to_owned(), start, end, 1);
        mark(
            &mut trace,
            vec![range("batch", 12, 15), range("step", 10, 20), range("step", 20, 30)],
            &mut Coverage::default(),
        );
        let names: Vec<&str> = trace.steps.iter().map(|(name, _, _)| name.as_str()).collect();
        assert_eq!(names, ["step#0", "step#1"]);
        assert_eq!(trace.host.len(), 4);
    }
}
