//! Memory before it is taken: what a scenario needs at least, against what this machine has.
//!
//! Running out of memory ends the process at once, whoever runs in it. What grows with a number of the scenario is
//! therefore added up before it is allocated, with less per item than it really takes, so that nothing is refused that
//! would have fitted.

use windtunnel_kernel::memory::available;
use windtunnel_plan::error::InputError;

/// Something that there is one of for each of many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Items {
    /// What they are, such as `links`.
    pub what: &'static str,
    /// How many there are.
    pub count: u128,
    /// Bytes that one takes, at least.
    pub each: u64,
}

/// Refuses what does not fit; `place` is the key that makes it so large.
///
/// # Errors
/// [`InputError`] with the figure and the memory at hand.
pub(crate) fn check(place: &str, items: &[Items], hint: &str) -> Result<(), InputError> {
    match available() {
        Some(available) => check_against(available, place, items, hint),
        None => Ok(()),
    }
}

fn check_against(available: u64, place: &str, items: &[Items], hint: &str) -> Result<(), InputError> {
    let bytes = items
        .iter()
        .fold(0u128, |sum, items| sum.saturating_add(items.count.saturating_mul(u128::from(items.each))));
    if bytes <= u128::from(available) {
        return Ok(());
    }
    let of = |items: &Items| format!("{} {}", items.count, items.what);
    let of: Vec<String> = items.iter().map(of).collect();
    let (bytes, available) = (gigabytes(bytes), gigabytes(available.into()));
    let message =
        format!("{} need {bytes} GB of memory at least, and {available} GB are available", of.join(" and "));
    Err(InputError::new(place, message).hint(hint))
}

/// With a decimal where that says something.
fn gigabytes(bytes: u128) -> String {
    let gigabytes = bytes as f64 / 1e9;
    if gigabytes < 100.0 { format!("{gigabytes:.1}") } else { format!("{gigabytes:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_told_with_both_figures() {
        let links = |count| [Items { what: "links", count, each: 64 }];
        let check = |count| check_against(64_000_000_000, "a.yaml: topology", &links(count), "fewer");
        assert_eq!(check(1_000_000_000), Ok(()));
        assert_eq!(
            check(1_000_000_001).unwrap_err().to_string(),
            "a.yaml: topology: 1000000001 links need 64.0 GB of memory at least, and 64.0 GB are available\n\nhint: fewer"
        );
        let error = check(u128::MAX).unwrap_err();
        assert!(error.message.ends_with("64.0 GB are available"), "{error}");
    }

    #[test]
    fn several_things_add_up() {
        let both = [Items { what: "a", count: 6, each: 10 }, Items { what: "b", count: 5, each: 10 }];
        assert!(check_against(110, "x", &both, "").is_ok());
        assert!(check_against(109, "x", &both, "").is_err());
    }
}
