//! The order of a rank's calls on its device: one after the other, but for batches of messages.

/// What the next call waits for, and the batch of messages that goes on.
#[derive(Default)]
pub(super) struct Tail {
    /// The operations that ended last.
    last: Vec<u32>,
    /// What the messages of the batch wait for.
    before: Vec<u32>,
    batch: Option<(u64, String)>,
}

impl Tail {
    /// What a message of batch `number` of a group waits for; one without a number is a batch of its own.
    pub(super) fn message(&mut self, number: Option<u64>, group: &str) -> Vec<u32> {
        let batch = number.map(|number| (number, group.to_owned()));
        if batch.is_none() || batch != self.batch {
            self.before = std::mem::take(&mut self.last);
            self.batch = batch;
        }
        self.before.clone()
    }

    /// Operation `index` is a message of the batch.
    pub(super) fn goes_on(&mut self, index: u32) {
        self.last.push(index);
    }

    /// What another call waits for.
    pub(super) fn last(&self) -> &[u32] {
        &self.last
    }

    /// Operation `index` is the last one.
    pub(super) fn is(&mut self, index: u32) {
        self.last = vec![index];
        self.batch = None;
    }
}
