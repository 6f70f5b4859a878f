//! What an engine has counted and has to tell: totals, samples, a digest of its events, what has arrived, and why it has stopped.

use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::queue::EventKey;

use super::counters::Counters;
use super::ears::Ears;
use super::handles::Completion;
use super::reorder::Reordering;
use super::sampler::Sampler;

/// See the module page.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub totals: Counters,
    pub sampler: Sampler,
    /// Of the queue pairs closed.
    pub reordering: Reordering,
    /// Who listens to what happens.
    pub ears: Option<Box<Ears>>,
    /// With the port whose packet completed it.
    done: Vec<(u32, Completion)>,
    /// Something that somebody waits for was lost, and nobody sends it again.
    lost_for_good: bool,
    /// A queue pair between these NICs will never be heard.
    given_up: Option<[u32; 2]>,
}

impl Account {
    /// Of an engine that has done nothing.
    pub(super) fn new(sampler: Sampler, ears: Option<Box<Ears>>) -> Self {
        Self {
            totals: Counters::default(),
            sampler,
            reordering: Reordering::default(),
            ears,
            done: Vec::new(),
            lost_for_good: false,
            given_up: None,
        }
    }

    /// Counts an event, and adds it to the digest if one is kept, with a hash of what it was about.
    #[inline]
    pub(super) fn note(&mut self, key: impl FnOnce() -> EventKey, effect: impl FnOnce() -> u64) {
        self.totals.events += 1;
        if let Some(digest) = self.ears.as_mut().and_then(|ears| ears.digest.as_mut()) {
            digest.record(key(), effect());
        }
    }

    /// Keeps a digest of events from now on.
    pub(super) fn keep_digest(&mut self, focus: &EventDigest) {
        self.ears.get_or_insert_default().digest = Some(focus.clone());
    }

    /// The digest kept.
    pub(super) fn digest(&self) -> Option<&EventDigest> {
        self.ears.as_ref()?.digest.as_ref()
    }

    /// A message is complete: port `p` brought its last packet.
    pub(super) fn complete(&mut self, p: u32, completion: Completion) {
        self.totals.bytes_delivered += completion.bytes.get();
        self.done.push((p, completion));
    }

    /// Whether anything has completed that has not been told.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        !self.done.is_empty()
    }

    /// What has completed and has not been told, with the ports that brought the last packets.
    pub(super) fn news(&mut self) -> impl Iterator<Item = (u32, Completion)> + '_ {
        self.done.drain(..)
    }

    /// Something that somebody waits for was lost, and nobody sends it again.
    pub(super) fn lose_for_good(&mut self) {
        self.lost_for_good = true;
    }

    /// Whether that has happened.
    pub(super) const fn has_lost_for_good(&self) -> bool {
        self.lost_for_good
    }

    /// A queue pair between these NICs will never be heard: the run is over.
    pub(super) fn give_up(&mut self, nics: [u32; 2]) {
        self.given_up = Some(nics);
    }

    /// NICs of the queue pair that will never be heard.
    #[inline]
    pub(super) const fn given_up(&self) -> Option<[u32; 2]> {
        self.given_up
    }
}
