//! Things by the names that a scenario writes as texts.

use windtunnel_kernel::registry::Listed;
use windtunnel_plan::error::{InputError, nearest};

/// The thing named `name`.
///
/// # Errors
/// [`InputError`] at `place` with all names, and the nearest as a hint.
pub(super) fn find<T: Listed>(name: &str, place: impl Into<String>) -> Result<T, InputError> {
    T::by_name(name).ok_or_else(|| unknown(T::WHAT, name, T::NAMES, place))
}

/// No `what` has this name.
pub(super) fn unknown(what: &str, name: &str, known: &[&str], place: impl Into<String>) -> InputError {
    let message = format!("no {what} `{name}`, expected one of `{}`", known.join("`, `"));
    let error = InputError::new(place, message);
    match nearest(name, known.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error,
    }
}

/// One of `names` with its value, or an error with the nearest one.
pub(super) fn choice<T: Copy>(
    found: Option<&str>,
    place: &str,
    names: &[(&str, T)],
    default: T,
) -> Result<T, InputError> {
    let Some(found) = found else { return Ok(default) };
    if let Some((_, value)) = names.iter().find(|(name, _)| *name == found) {
        return Ok(*value);
    }
    let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    let error = InputError::new(place, format!("expected one of `{}`, found `{found}`", known.join("`, `")));
    Err(match nearest(found, known) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error,
    })
}

/// `a`, `b` and `c`, each in backticks, with `joint` before the last.
pub(super) fn list<'a>(names: impl IntoIterator<Item = &'a str>, joint: &str) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [all @ .., last] if !all.is_empty() => format!("{} {joint} {last}", all.join(", ")),
        _ => names.concat(),
    }
}
