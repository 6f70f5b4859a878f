//! Rows of one column that wait for their group to be full.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::Column;

/// Code of a text of which nothing is known.
pub(crate) const NULL: u32 = u32::MAX;

/// Values by row.
#[derive(Debug)]
pub(crate) enum Gathered {
    U32(Vec<u32>),
    U64 {
        values: Vec<u64>,
        /// One per row, or none where all are known.
        known: Vec<bool>,
    },
    /// NaN is null.
    F64(Vec<f64>),
    Text(Texts),
    List {
        values: Vec<f64>,
        /// Values of each row.
        lengths: Vec<u32>,
    },
}

/// Texts by their codes, which count in the order of the rows that have them first.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) codes: Vec<u32>,
    numbers: FxHashMap<Arc<str>, u32>,
}

impl Texts {
    fn code(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let (number, name) = (self.names.len() as u32, Arc::<str>::from(name));
        self.names.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        number
    }

    /// Rows that are `names[code - first]`, or null where the code is below `first`.
    fn extend(&mut self, names: &[String], codes: &[u32], first: u32) {
        let mut renamed = vec![NULL; names.len()];
        for &code in codes {
            let Some(index) = code.checked_sub(first) else {
                self.codes.push(NULL);
                continue;
            };
            let index = index as usize;
            if renamed[index] == NULL {
                renamed[index] = self.code(&names[index]);
            }
            self.codes.push(renamed[index]);
        }
    }
}

impl Gathered {
    /// No rows of the kind that `column` is of.
    pub(crate) fn like(column: &Column) -> Self {
        match column {
            Column::U32(_) => Self::U32(Vec::new()),
            Column::U64(_) | Column::Sparse { .. } => Self::U64 { values: Vec::new(), known: Vec::new() },
            Column::F64(_) => Self::F64(Vec::new()),
            Column::Text(_) | Column::Coded { .. } | Column::Known { .. } => Self::Text(Texts::default()),
            Column::F64List { .. } => Self::List { values: Vec::new(), lengths: Vec::new() },
        }
    }

    /// Takes some rows of a column; `false` if that is of another kind.
    pub(crate) fn append(&mut self, column: &Column, rows: Range<usize>) -> bool {
        match (self, column) {
            (Self::U32(kept), Column::U32(more)) => kept.extend_from_slice(&more[rows]),
            (Self::U64 { values, known }, Column::U64(more)) => {
                if !known.is_empty() {
                    known.extend(std::iter::repeat_n(true, rows.len()));
                }
                values.extend_from_slice(&more[rows]);
            }
            (Self::U64 { values, known }, Column::Sparse { values: more, known: of_more }) => {
                if known.is_empty() {
                    known.resize(values.len(), true);
                }
                values.extend_from_slice(&more[rows.clone()]);
                known.extend_from_slice(&of_more[rows]);
            }
            (Self::F64(kept), Column::F64(more)) => kept.extend_from_slice(&more[rows]),
            (Self::Text(texts), Column::Text(more)) => {
                for name in &more[rows] {
                    let code = texts.code(name);
                    texts.codes.push(code);
                }
            }
            (Self::Text(texts), Column::Coded { names, codes }) => texts.extend(names, &codes[rows], 0),
            (Self::Text(texts), Column::Known { names, codes }) => texts.extend(names, &codes[rows], 1),
            (Self::List { values, lengths }, Column::F64List { values: more, width }) => {
                lengths.extend(std::iter::repeat_n(*width as u32, rows.len()));
                values.extend_from_slice(&more[rows.start * width..rows.end * width]);
            }
            _ => return false,
        }
        true
    }

    /// Forgets the rows, and keeps the room that they had.
    pub(crate) fn clear(&mut self) {
        match self {
            Self::U32(values) => values.clear(),
            Self::U64 { values, known } => {
                values.clear();
                known.clear();
            }
            Self::F64(values) => values.clear(),
            Self::Text(texts) => *texts = Texts::default(),
            Self::List { values, lengths } => {
                values.clear();
                lengths.clear();
            }
        }
    }
}
