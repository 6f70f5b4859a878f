//! What became of everything that was read.
//!
//! Each thing read is counted once, under its kind, a treatment and a reason; so what was read is the sum over the treatments.

use std::collections::BTreeMap;

use serde_json::{Value, json};

windtunnel_kernel::named! {
    /// What became of a thing that was read, the best first.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Treatment: "verdict" {
        Mapped = "mapped", "an operation of the workload, or inside one, as it was recorded";
        Approximated = "approximated", "kept in another form: what is lost is said";
        Guessed = "guessed", "kept, with something that the recording does not say";
        Dropped = "dropped", "not in the workload";
    }
}

/// How much of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many.
    pub operations: u64,
    /// Payload.
    pub bytes: u64,
    /// Recorded time.
    pub nanoseconds: u64,
}

impl Amount {
    fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.nanoseconds = self.nanoseconds.saturating_add(other.nanoseconds);
    }
}

/// The account of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    rows: BTreeMap<(String, Treatment, String), Amount>,
    notes: Vec<String>,
    /// Recorded spans: rank, name, nanoseconds.
    spans: Vec<(u32, String, u64)>,
    /// By group and rank.
    arrivals: BTreeMap<(String, u32), Arrivals>,
}

/// How a rank came to the collectives of a group, as it was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Collectives of which all members' arrivals are known.
    pub collectives: u64,
    /// Those to which it came last.
    pub last: u64,
    /// Time that it waited for the last to come.
    pub waited_ns: u64,
    /// Time that the second last waited for it, where it came last.
    pub held_up_ns: u64,
}

impl Coverage {
    /// Keeps how long a step, or a whole program, took on a rank when it was recorded.
    pub fn span(&mut self, rank: u32, name: &str, nanoseconds: u64) {
        self.spans.push((rank, name.to_owned(), nanoseconds));
    }

    /// Counts when the members of a collective came: (rank, ns).
    pub fn arrive(&mut self, group: &str, came: &[(u32, i64)]) {
        let Some(&(last, at)) = came.iter().max_by_key(|&&(rank, at)| (at, rank)) else { return };
        let second = came.iter().filter(|&&(rank, _)| rank != last).map(|&(_, at)| at).max().unwrap_or(at);
        for &(rank, own) in came {
            let sum = self.arrivals.entry((group.to_owned(), rank)).or_default();
            sum.collectives += 1;
            sum.waited_ns = sum.waited_ns.saturating_add(at.abs_diff(own));
            if rank == last {
                sum.last += 1;
                sum.held_up_ns = sum.held_up_ns.saturating_add(at.abs_diff(second));
            }
        }
    }

    /// How a rank came to the collectives of a group.
    pub fn arrivals(&self, group: &str, rank: u32) -> Option<Arrivals> {
        self.arrivals.get(&(group.to_owned(), rank)).copied()
    }

    /// Recorded spans: rank, name, nanoseconds.
    pub fn spans(&self) -> &[(u32, String, u64)] {
        &self.spans
    }

    /// Counts one thing of `kind` with its payload and recorded time.
    pub fn count(&mut self, kind: &str, treatment: Treatment, reason: &str, bytes: u64, nanoseconds: u64) {
        self.add(kind, treatment, reason, Amount { operations: 1, bytes, nanoseconds });
    }

    /// Counts many.
    pub fn add(&mut self, kind: &str, treatment: Treatment, reason: &str, amount: Amount) {
        if amount.operations > 0 {
            self.rows.entry((kind.to_owned(), treatment, reason.to_owned())).or_default().add(amount);
        }
    }

    /// Gives one thing that was counted another verdict: what it was counted as is taken back. `from` is the verdict and the reason
    /// that it had; without them it is taken from the best row of its kind that has it.
    pub fn change(
        &mut self,
        kind: &str,
        from: Option<(Treatment, &str)>,
        treatment: Treatment,
        reason: &str,
        bytes: u64,
        nanoseconds: u64,
    ) {
        let has = |amount: &Amount| {
            amount.operations > 0 && amount.bytes >= bytes && amount.nanoseconds >= nanoseconds
        };
        let key = match from {
            Some((treatment, reason)) => Some((kind.to_owned(), treatment, reason.to_owned())),
            None => {
                let own = self.rows.iter().filter(|((of, _, _), amount)| of == kind && has(amount));
                own.map(|(key, _)| key.clone()).next()
            }
        };
        let taken = key.filter(|key| self.rows.get(key).is_some_and(has));
        if let Some(key) = taken {
            let row = self.rows.get_mut(&key).expect("found");
            row.operations -= 1;
            row.bytes -= bytes;
            row.nanoseconds -= nanoseconds;
            if row.operations == 0 {
                self.rows.remove(&key);
            }
        }
        self.count(kind, treatment, reason, bytes, nanoseconds);
    }

    /// Says something about the recording as a whole, once.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// What was said.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Takes in the account of a part.
    pub fn merge(&mut self, part: Self) {
        for ((kind, treatment, reason), amount) in part.rows {
            self.rows.entry((kind, treatment, reason)).or_default().add(amount);
        }
        for note in part.notes {
            self.note(note);
        }
        self.spans.extend(part.spans);
    }

    /// All that has `treatment`.
    pub fn total(&self, treatment: Treatment) -> Amount {
        let mut sum = Amount::default();
        for ((_, of, _), amount) in &self.rows {
            if *of == treatment {
                sum.add(*amount);
            }
        }
        sum
    }

    /// How many of `kind` have `treatment`.
    pub fn of(&self, kind: &str, treatment: Treatment) -> u64 {
        let rows = self.rows.iter().filter(|((of, with, _), _)| of == kind && *with == treatment);
        rows.map(|(_, amount)| amount.operations).sum()
    }

    /// The first row that was dropped, in words.
    pub fn first_dropped(&self) -> Option<String> {
        let mut dropped = self.rows.iter().filter(|((_, treatment, _), _)| *treatment == Treatment::Dropped);
        dropped.next().map(|((kind, _, reason), amount)| format!("{} {kind}: {reason}", amount.operations))
    }

    /// As JSON: `totals`, `rows[]`, `notes[]`, `spans[]` (recorded steps); times in seconds.
    pub fn json(&self) -> Value {
        let amount = |amount: &Amount| {
            json!({
                "operations": amount.operations,
                "bytes": amount.bytes,
                "time_s": amount.nanoseconds as f64 * 1e-9,
            })
        };
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|((kind, treatment, reason), sum)| {
                let mut row = json!({"kind": kind, "verdict": treatment.name(), "reason": reason});
                let members = amount(sum);
                for (key, value) in members.as_object().expect("an object") {
                    row[key] = value.clone();
                }
                row
            })
            .collect();
        let mut totals = serde_json::Map::new();
        let mut read = Amount::default();
        for treatment in Treatment::ALL {
            read.add(self.total(treatment));
        }
        totals.insert("read".to_owned(), amount(&read));
        for treatment in Treatment::ALL {
            totals.insert(treatment.name().to_owned(), amount(&self.total(treatment)));
        }
        let seconds = |nanoseconds: u64| nanoseconds as f64 * 1e-9;
        let arrivals: Vec<Value> = self
            .arrivals
            .iter()
            .map(|((group, rank), sum)| {
                json!({
                    "group": group,
                    "rank": rank,
                    "collectives": sum.collectives,
                    "last": sum.last,
                    "waited_s": seconds(sum.waited_ns),
                    "held_up_s": seconds(sum.held_up_ns),
                })
            })
            .collect();
        let spans: Vec<Value> = self
            .spans
            .iter()
            .map(|(rank, name, nanoseconds)| json!({"rank": rank, "name": name, "time_s": *nanoseconds as f64 * 1e-9}))
            .collect();
        json!({"totals": totals, "rows": rows, "notes": self.notes, "spans": spans, "arrivals": arrivals})
    }
}
