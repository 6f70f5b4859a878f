//! The last line: a panic of the engine becomes an ordinary failure of the call, so that a program which makes many runs
//! (a sweep, a notebook) loses one of them and not itself.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

use windtunnel_plan::error::{Failure, Why};

thread_local! {
    /// Calls that are guarded on this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Where the last panic of this thread came from.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Does `work`; a panic in it is a [`Failure::Run`] that says where it came from.
///
/// What `work` has borrowed mutably may be half changed after a panic: the caller has to drop it.
///
/// # Errors
/// Those of `work`, and its panics.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if DEPTH.get() > 0 {
                PLACE.set(Some(place(info)));
            }
            // Others print where they came from, and so does a developer's.
            if DEPTH.get() == 0 || std::env::var_os("WINDTUNNEL_BACKTRACE").is_some() {
                before(info);
            }
        }));
    });
    DEPTH.set(DEPTH.get() + 1);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(DEPTH.get() - 1);
    result.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "a panic without a word".to_owned());
        let place = PLACE.take().unwrap_or_else(|| "an unknown place".to_owned());
        Err(Failure::Run(Why::Defect, format!(
            "the engine broke off at {place}: {text}\n\nhint: this is a defect of Windtunnel, not of the scenario; please \
             report it with the scenario"
        )))
    })
}

fn place(info: &PanicHookInfo<'_>) -> String {
    info.location().map_or_else(|| "an unknown place".to_owned(), |at| format!("{}:{}", at.file(), at.line()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windtunnel_plan::error::InputError;

    #[test]
    fn a_panic_is_a_failure_with_its_place() {
        let nothing: Option<u32> = std::hint::black_box(None);
        let failure = guarded(|| Ok(nothing.expect("something"))).expect_err("it panics");
        let Failure::Run(_, text) = failure else { panic!("another failure") };
        assert!(text.starts_with("the engine broke off at "), "{text}");
        assert!(text.contains("guard.rs:") && text.contains(": something\n\nhint: "), "{text}");
        let formatted = guarded::<()>(|| panic!("{} of {}", 3, 2)).expect_err("it panics");
        assert!(matches!(formatted, Failure::Run(_, text) if text.contains(": 3 of 2\n")));
    }

    #[test]
    fn what_is_no_panic_passes() {
        assert_eq!(guarded(|| Ok(7)), Ok(7));
        let input = Failure::Input(InputError::new("a", "b"));
        assert_eq!(guarded::<()>(|| Err(input.clone())), Err(input));
        // One inside another is the inner one's.
        let nested = guarded(|| Ok(guarded::<()>(|| panic!("inside")).is_err()));
        assert_eq!(nested, Ok(true));
    }
}
