//! Whether threads can be seen in the events of a run.

use std::sync::{Arc, Mutex};

use windtunnel_config::schema::Fidelity;
use windtunnel_kernel::Span;
use windtunnel_kernel::digest::{Divergence, EventDigest};
use windtunnel_plan::error::Failure;
use windtunnel_run::machine::Stopwatch;
use windtunnel_run::table::Discard;
use windtunnel_run::{Digests, RunOptions, execute};

use super::{Planned, RunRequest};

/// Runs a scenario at packet fidelity with each of two numbers of threads, which spread the fabric over different
/// processes, compares digests of all events, and says when the first differ, in words; `None` if none do, or at another
/// fidelity, where there is one process. A difference costs a few more runs of each: every one looks closer.
///
/// # Errors
/// [`Failure`] of a run.
pub fn compare_events(request: &RunRequest, threads: [usize; 2]) -> Result<Option<String>, Failure> {
    let mut focus: Option<(usize, EventDigest)> = None;
    loop {
        let (Some(one), Some(two)) =
            (digests(request, threads[0], focus.clone())?, digests(request, threads[1], focus.clone())?)
        else {
            return Ok(None);
        };
        if one.len() != two.len() {
            return Ok(Some(format!("{} and {} episodes", one.len(), two.len())));
        }
        let parted = |(one, two): (&EventDigest, &EventDigest)| one.first_divergence(two);
        let first = one.iter().zip(&two).map(parted).enumerate();
        let first = first.into_iter().find_map(|(episode, found)| Some((episode, found?)));
        match (first, &focus) {
            (None, None) => return Ok(None),
            (None, Some((episode, _))) => {
                return Ok(Some(format!("events of episode {episode}, not the same ones in every run")));
            }
            (Some((episode, found)), _) if found.is_instant() => {
                return Ok(Some(sentence(episode, &found, threads)));
            }
            (Some((episode, found)), _) => focus = Some((episode, EventDigest::on(&found))),
        }
    }
}

fn sentence(episode: usize, found: &Divergence, threads: [usize; 2]) -> String {
    let Divergence { from, events: [one, two], .. } = *found;
    format!(
        "episode {episode}: the first events that differ are at {} ({} ps): {one} with {} threads, {two} with {}",
        Span::from_ps(from.ps()),
        from.ps(),
        threads[0],
        threads[1],
    )
}

/// Digests of all episodes; `None` at another fidelity.
fn digests(
    request: &RunRequest,
    threads: usize,
    focus: Option<(usize, EventDigest)>,
) -> Result<Option<Vec<EventDigest>>, Failure> {
    let planned = Planned::of(request.clone())?;
    if planned.plan().fidelity != Fidelity::Packet {
        return Ok(None);
    }
    let log = Arc::new(Mutex::new(Digests { focus, found: Vec::new() }));
    let options = RunOptions {
        source: planned.source().to_owned(),
        sha256: planned.sha256().to_owned(),
        inputs: planned.inputs().to_vec(),
        full: planned.is_full(),
        watch: Stopwatch::start(),
        threads: Some(threads),
        digests: Some(Arc::clone(&log)),
        gate: None,
        journal: None,
        native: request.native.clone(),
        library: None,
    };
    execute(planned.plan(), &options, &mut Discard, &mut Discard)?;
    let found = std::mem::take(&mut log.lock().expect("no holder panics").found);
    Ok(Some(found))
}
