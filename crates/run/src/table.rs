//! Result tables as columns, handed out in batches while the run goes.

pub use windtunnel_tables::Column;

/// Rows of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Columns by name, in a fixed order; all of one length.
    pub columns: Vec<(&'static str, Column)>,
}

impl Batch {
    /// Largest number of rows in one batch.
    pub const ROWS: usize = 1 << 20;

    /// Adds a column.
    pub fn with(mut self, name: &'static str, column: Column) -> Self {
        debug_assert!(self.columns.first().is_none_or(|(_, first)| first.len() == column.len()), "{name}");
        self.columns.push((name, column));
        self
    }

    /// Appends the rows of `other`, which has the same columns.
    ///
    /// # Panics
    /// If it has others: batches of a table are alike.
    pub fn append(&mut self, other: Self) {
        assert_eq!(self.columns.len(), other.columns.len(), "batches of a table have the same columns");
        for ((name, column), (other_name, other)) in self.columns.iter_mut().zip(other.columns) {
            assert_eq!(*name, other_name, "batches of a table have the same columns");
            column.append(other);
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Takes the tables of a run.
pub trait TableSink {
    /// Takes rows of `table`; batches of a table come in a fixed order.
    ///
    /// # Errors
    /// What stopped it from taking them; the run ends.
    fn rows(&mut self, table: &'static str, batch: Batch) -> Result<(), String>;
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The scenario is read, and what its jobs do is put together.
    #[default]
    Preparing,
    /// Jobs are simulated on an ideal fabric, for comparison.
    Ideal,
    /// The scenario is simulated.
    Simulating,
}

impl Phase {
    /// As people are told.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Ideal => "ideal fabric",
            Self::Simulating => "simulating",
        }
    }
}

/// Hears how far a run is, a few times a second, and may stop it.
pub trait ProgressSink {
    /// `fraction` of the present phase (if known), simulated seconds, events; `false` stops the run with a partial result.
    fn progress(&mut self, fraction: Option<f64>, simulated_s: f64, events: u64) -> bool;

    /// A phase begins.
    fn phase(&mut self, phase: Phase) {
        let _ = phase;
    }

    /// Something that the user should know now.
    fn remark(&mut self, line: &str) {
        let _ = line;
    }
}

/// Tells on what it is told, but never a lesser part of a phase than before: what is left is estimated. A run that was stopped once
/// stays so, whatever phase comes next.
pub struct Rising<'a> {
    inner: &'a mut dyn ProgressSink,
    shown: f64,
    stopped: bool,
}

impl<'a> Rising<'a> {
    /// Tells `inner`.
    pub fn new(inner: &'a mut dyn ProgressSink) -> Self {
        Self { inner, shown: 0.0, stopped: false }
    }
}

impl ProgressSink for Rising<'_> {
    fn progress(&mut self, fraction: Option<f64>, simulated_s: f64, events: u64) -> bool {
        self.shown = self.shown.max(fraction.unwrap_or(0.0));
        self.stopped |= !self.inner.progress(fraction.map(|_| self.shown), simulated_s, events);
        !self.stopped
    }

    fn phase(&mut self, phase: Phase) {
        self.shown = 0.0;
        self.inner.phase(phase);
    }

    fn remark(&mut self, line: &str) {
        self.inner.remark(line);
    }
}

/// Takes nothing and never stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

impl TableSink for Discard {
    fn rows(&mut self, _: &'static str, _: Batch) -> Result<(), String> {
        Ok(())
    }
}

impl ProgressSink for Discard {
    fn progress(&mut self, _: Option<f64>, _: f64, _: u64) -> bool {
        true
    }
}

#[cfg(test)]
mod rising {
    use super::*;

    #[test]
    fn a_part_never_falls_within_a_phase() {
        struct Told(Vec<Option<f64>>);
        impl ProgressSink for Told {
            fn progress(&mut self, fraction: Option<f64>, _: f64, _: u64) -> bool {
                self.0.push(fraction);
                true
            }
        }
        let mut told = Told(Vec::new());
        let mut rising = Rising::new(&mut told);
        for part in [Some(0.2), Some(0.1), None, Some(0.3)] {
            rising.progress(part, 0.0, 0);
        }
        rising.phase(Phase::Simulating);
        rising.progress(Some(0.1), 0.0, 0);
        assert_eq!(told.0, [Some(0.2), Some(0.2), None, Some(0.3), Some(0.1)]);
    }
}

#[cfg(test)]
mod appending {
    use super::*;

    #[test]
    fn names_of_both_batches_are_kept() {
        let coded = |names: [&str; 2], codes: &[u32]| {
            Batch::default().with("a", Column::coded(names, codes.iter().copied()))
        };
        let mut batch = coded(["x", "y"], &[0, 1]);
        batch.append(coded(["y", "z"], &[1, 0]));
        let names = ["x", "y", "z"].map(str::to_owned).to_vec();
        assert_eq!(batch.columns, [("a", Column::Coded { names: names.clone(), codes: vec![0, 1, 2, 1] })]);
        let known = |rows: [Option<&str>; 3]| Batch::default().with("a", Column::known(rows));
        let mut batch = known([Some("x"), None, Some("y")]);
        batch.append(known([Some("z"), Some("y"), None]));
        assert_eq!(
            batch.columns,
            [("a", Column::Known { names: names.clone(), codes: vec![1, 0, 2, 3, 2, 0] })]
        );
        // Names by their first row; those of a batch that has the same ones, and of one that has others.
        let named = |rows: [&str; 3]| Batch::default().with("a", Column::named(rows));
        let mut batch = named(["x", "y", "x"]);
        batch.append(named(["x", "x", "y"]));
        batch.append(named(["z", "y", "z"]));
        let codes = vec![0, 1, 0, 0, 0, 1, 2, 1, 2];
        assert_eq!(batch.columns, [("a", Column::Coded { names, codes })]);
    }
}
