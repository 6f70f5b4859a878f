//! Result tables as columns, handed out in batches while the run goes.

/// A column of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Unsigned 32-bit.
    U32(Vec<u32>),
    /// Unsigned 64-bit.
    U64(Vec<u64>),
    /// Doubles.
    F64(Vec<f64>),
    /// Texts.
    Text(Vec<String>),
    /// Texts of which few are distinct: row i is `names[codes[i]]`.
    Coded {
        /// The distinct texts; each code is below their number.
        names: Vec<String>,
        /// One per row.
        codes: Vec<u32>,
    },
    /// A list of `width` doubles per row.
    F64List {
        /// All rows' values one after the other.
        values: Vec<f64>,
        /// Values per row.
        width: usize,
    },
}

impl Column {
    /// The same text in `rows` rows.
    pub fn repeated(text: &str, rows: usize) -> Self {
        Self::Coded { names: vec![text.to_owned()], codes: vec![0; rows] }
    }

    /// One of `names` in each row.
    pub fn coded<'a>(names: impl IntoIterator<Item = &'a str>, codes: impl IntoIterator<Item = u32>) -> Self {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let codes: Vec<u32> = codes.into_iter().collect();
        debug_assert!(codes.iter().all(|&code| (code as usize) < names.len()));
        Self::Coded { names, codes }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::U32(values) | Self::Coded { codes: values, .. } => values.len(),
            Self::U64(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::Text(values) => values.len(),
            Self::F64List { values, width } => values.len() / (*width).max(1),
        }
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

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

/// Hears how far a run is, a few times a second, and may stop it.
pub trait ProgressSink {
    /// `fraction` of the iterations (if known), simulated seconds, events; `false` stops the run with a partial result.
    fn progress(&mut self, fraction: Option<f64>, simulated_s: f64, events: u64) -> bool;
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
