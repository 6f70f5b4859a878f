//! What a log says of a job beside its size and times: whose it is, where it was queued, how it ended, and when it was submitted
//! by the calendar.
//!
//! Names repeat by the thousand, so a job keeps numbers and the log each name once.

use rustc_hash::FxHashMap;

/// What a row says, as text; `None` where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said<'a> {
    /// Who submitted it.
    pub user: Option<&'a str>,
    /// For whose account: a group or project.
    pub account: Option<&'a str>,
    /// The part of the machine that it asked for: a partition or virtual cluster.
    pub partition: Option<&'a str>,
    /// The queue or class of service.
    pub queue: Option<&'a str>,
    /// How it ended.
    pub state: Option<&'a str>,
}

/// What is kept of a job: numbers of [`Facts::name`], 0 where nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fact {
    /// Who submitted it.
    pub user: u32,
    /// For whose account.
    pub account: u32,
    /// The part of the machine that it asked for.
    pub partition: u32,
    /// The queue or class of service.
    pub queue: u32,
    /// How it ended.
    pub state: u32,
    /// Nanoseconds from 1970-01-01 to its submission; `None` where the log counts from a start of its own.
    pub submitted: Option<i64>,
}

/// What is known of all jobs of a log, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    names: Vec<String>,
    numbers: FxHashMap<String, u32>,
    jobs: Vec<Fact>,
}

impl Facts {
    /// What is known of job number `job`; nothing if it is not from a log.
    pub fn of(&self, job: usize) -> Fact {
        self.jobs.get(job).copied().unwrap_or_default()
    }

    /// The name of a number above 0.
    pub fn name(&self, number: u32) -> Option<&str> {
        self.names.get((number as usize).checked_sub(1)?).map(String::as_str)
    }

    /// All names; number 1 is the first.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How many jobs each partition has, the most first, of equal ones in the order in which they came.
    pub fn partitions(&self) -> Vec<(&str, u64)> {
        let mut counts = vec![0u64; self.names.len() + 1];
        self.jobs.iter().for_each(|job| counts[job.partition as usize] += 1);
        let known = self.names.iter().zip(&counts[1..]).filter(|(_, count)| **count > 0);
        let mut found: Vec<(&str, u64)> = known.map(|(name, &count)| (name.as_str(), count)).collect();
        found.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        found
    }

    /// Forgets all jobs but the first `count`.
    pub fn truncate(&mut self, count: usize) {
        self.jobs.truncate(count);
    }

    pub(super) fn number(&mut self, name: Option<&str>) -> u32 {
        let Some(name) = name.filter(|name| !name.is_empty()) else { return 0 };
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        self.names.push(name.to_owned());
        let number = self.names.len() as u32;
        self.numbers.insert(name.to_owned(), number);
        number
    }

    pub(super) fn fact(&mut self, said: Said<'_>, submitted: Option<i64>) -> Fact {
        Fact {
            user: self.number(said.user),
            account: self.number(said.account),
            partition: self.number(said.partition),
            queue: self.number(said.queue),
            state: self.number(said.state),
            submitted,
        }
    }

    pub(super) fn set(&mut self, jobs: Vec<Fact>) {
        self.jobs = jobs;
    }
}
