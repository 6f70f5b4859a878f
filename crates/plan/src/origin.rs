//! What is told of a job log beside its jobs: what of it was left out, what is remarkable, and whose each job was.

use serde_json::{Value, json};
use windtunnel_cluster::log::{Facts, Remarks, Skipped, date};

/// A job as its log speaks of it; `None` where it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Who submitted it.
    pub user: Option<String>,
    /// For whose account.
    pub account: Option<String>,
    /// The part of the machine that it asked for.
    pub partition: Option<String>,
    /// The queue or class of service.
    pub queue: Option<String>,
    /// How it ended.
    pub state: Option<String>,
    /// When it was submitted, by the calendar.
    pub submitted: Option<String>,
}

impl Origin {
    /// Of job number `job` of a log.
    pub fn of(facts: &Facts, job: usize) -> Self {
        let fact = facts.of(job);
        let name = |number: u32| facts.name(number).map(str::to_owned);
        Self {
            user: name(fact.user),
            account: name(fact.account),
            partition: name(fact.partition),
            queue: name(fact.queue),
            state: name(fact.state),
            submitted: fact.submitted.map(date),
        }
    }

    /// Columns and keys.
    pub const NAMES: [&'static str; 6] =
        ["user", "account", "partition", "queue", "log_state", "log_submitted"];

    /// Values of these, as text.
    pub fn texts(&self) -> [Option<&str>; 6] {
        [&self.user, &self.account, &self.partition, &self.queue, &self.state, &self.submitted]
            .map(Option::as_deref)
    }

    /// As the summary has it.
    pub fn to_json(&self) -> Value {
        Self::NAMES.into_iter().zip(self.texts()).map(|(name, text)| (name.to_owned(), json!(text))).collect()
    }
}

/// What became of the rows of a log.
#[derive(Clone, Debug, Default)]
pub struct LogAccount {
    /// Rows that are no jobs.
    pub skipped: Skipped,
    /// What is remarkable about those that are.
    pub remarks: Remarks,
    /// Jobs of each partition, the most first.
    pub partitions: Vec<(String, u64)>,
    /// Whether schedulers know what jobs had asked for.
    pub asked: bool,
}

impl LogAccount {
    /// Rows left out, as the summary has them.
    pub fn skipped(&self) -> Value {
        let faults = self.skipped.faults.iter();
        json!({
            "without_gpus": self.skipped.without_gpus,
            "never_ran": self.skipped.never_ran,
            "running": self.skipped.running,
            "steps": self.skipped.steps,
            "rows": self.skipped.faulty(),
            "reasons": faults.map(|(fault, rows, line)| json!({"reason": fault, "rows": rows, "first_line": line})).collect::<Vec<_>>(),
        })
    }

    /// The rest, as the summary has it.
    pub fn to_json(&self) -> Value {
        json!({
            "running": self.remarks.running,
            "beyond_limit": self.remarks.beyond_limit,
            "most_beyond_s": self.remarks.most_beyond as f64 / 1e9,
            "appended": self.remarks.appended,
            "partitions": self.partitions.len(),
            "warnings": self.warnings(),
        })
    }

    /// What a reader of the results has to know.
    pub fn warnings(&self) -> Vec<String> {
        let plural = |count: u64| if count == 1 { "job" } else { "jobs" };
        let mut found = Vec::new();
        if self.partitions.len() > 1 {
            const SHOWN: usize = 4;
            let named = self.partitions.iter().take(SHOWN);
            let mut names: Vec<String> =
                named.map(|(name, jobs)| format!("`{name}` {jobs} {}", plural(*jobs))).collect();
            if self.partitions.len() > SHOWN {
                names.push(format!("{} more", self.partitions.len() - SHOWN));
            }
            found.push(format!(
                "the log has {} partitions ({}): here their jobs share one pool of GPUs",
                self.partitions.len(),
                names.join(", ")
            ));
        }
        let Remarks { running, beyond_limit, most_beyond, .. } = self.remarks;
        if running > 0 {
            let (still, they) = if running == 1 { ("job was", "it runs") } else { ("jobs were", "they run") };
            found.push(format!(
                "{running} {still} running as the log was written: {they} for as long as by then, which is less than in truth \
                 (`jobs.running: leave_out` leaves such jobs out)"
            ));
        }
        if self.asked && beyond_limit > 0 {
            found.push(format!(
                "{beyond_limit} {} ran for longer than asked for, by up to {:.0} s: from then on schedulers take such a job to end \
                 at any moment",
                plural(beyond_limit),
                (most_beyond as f64 / 1e9).ceil()
            ));
        }
        found
    }
}
