//! All processes on the calling thread, one after another.

use super::inbox::Inbox;
use super::process::{Control, End, ExecutorError, Outbox, Outcome, Process, Progress, homes, window_end};
use crate::queue::EventKey;
use crate::units::{Span, Time};

/// Runs all processes on the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequential;

impl Sequential {
    /// Runs `processes` until all events before `until` have been handled. `lookahead` is the least delay of mail
    /// between any two; `control` is asked after every window.
    ///
    /// # Errors
    /// [`ExecutorError`] where the model breaks a rule; it must not be run on then.
    pub fn run<P: Process>(
        processes: &mut [P],
        lookahead: Span,
        until: Time,
        mut control: impl FnMut(&Progress) -> Control,
    ) -> Result<Outcome, ExecutorError> {
        if processes.len() > 1 && lookahead == Span::ZERO {
            return Err(ExecutorError::NoLookahead { processes: processes.len() });
        }
        let mut outbox = Outbox::new(homes(processes)?, processes.len(), lookahead);
        let mut inbox = Inbox::new();
        let mut progress = Progress::default();
        let mut earliest = processes.iter_mut().map(Process::next_time).min().unwrap_or(Time::NEVER);
        loop {
            // Nothing can be sent, and so nothing arrive, before the earliest event.
            progress.time = earliest.min(until);
            if let Some(end) = End::before(earliest, until) {
                return Ok(Outcome { end, progress });
            }
            if progress.windows > 0 && control(&progress) == Control::Cancel {
                return Ok(Outcome { end: End::Cancelled, progress });
            }
            let horizon =
                if processes.len() == 1 { until } else { window_end(earliest, lookahead).min(until) };
            progress.windows += 1;
            earliest = Time::NEVER;
            for (number, process) in (0..).zip(processes.iter_mut()) {
                let mut next = process.next_time();
                if next < horizon {
                    progress.events += outbox.turn(number, process, next, horizon)?;
                    next = process.next_time();
                }
                earliest = earliest.min(next);
            }
            let (posted, arrival) = outbox.posted();
            progress.mail += posted;
            earliest = earliest.min(arrival);
            let mut repeated: Option<EventKey> = None;
            for (process, mail) in
                processes.iter_mut().zip(outbox.mail()).filter(|(_, mail)| !mail.is_empty())
            {
                inbox.collect(mail);
                if let Err(key) = inbox.deliver(process) {
                    repeated = Some(repeated.map_or(key, |first| first.min(key)));
                }
            }
            if let Some(key) = repeated {
                return Err(ExecutorError::RepeatedKey { key });
            }
        }
    }
}
