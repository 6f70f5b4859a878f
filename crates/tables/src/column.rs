//! A column of a batch.

use rustc_hash::FxHashMap;

/// A column of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Unsigned 32-bit.
    U32(Vec<u32>),
    /// Unsigned 64-bit.
    U64(Vec<u64>),
    /// Unsigned 64-bit, null where `known` is false.
    Sparse {
        /// One per row; 0 where nothing is known.
        values: Vec<u64>,
        /// One per row.
        known: Vec<bool>,
    },
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
    /// The same with rows of which nothing is known: row i is `names[codes[i] - 1]`, or null where the code is 0.
    Known {
        /// The distinct texts.
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

/// Adds names that are not there yet; what place each of `others` has then, or none if each has its own.
fn merge(names: &mut Vec<String>, others: Vec<String>) -> Option<Vec<u32>> {
    // Batches of iterations that are alike have the same names.
    if *names == others {
        return None;
    }
    let mut places: FxHashMap<String, u32> = names.iter().cloned().zip(0..).collect();
    let mut place = |name: String| {
        if let Some(&known) = places.get(&name) {
            return known;
        }
        let new = names.len() as u32;
        places.insert(name.clone(), new);
        names.push(name);
        new
    };
    Some(others.into_iter().map(&mut place).collect())
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

    /// Texts by row, each kept once, in the order in which they come first.
    pub fn named<'a>(rows: impl IntoIterator<Item = &'a str>) -> Self {
        match Self::known(rows.into_iter().map(Some)) {
            Self::Known { names, codes } => {
                Self::Coded { names, codes: codes.into_iter().map(|code| code - 1).collect() }
            }
            other => other,
        }
    }

    /// Texts, or null, by row.
    pub fn known<'a>(rows: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        let mut numbers = FxHashMap::<&str, u32>::default();
        let mut names = Vec::new();
        let mut code = |text: Option<&'a str>| {
            text.map_or(0, |text| {
                *numbers.entry(text).or_insert_with(|| {
                    names.push(text.to_owned());
                    names.len() as u32
                })
            })
        };
        let codes = rows.into_iter().map(&mut code).collect();
        Self::Known { names, codes }
    }

    /// Numbers, some of which are not known.
    pub fn sparse(rows: impl IntoIterator<Item = Option<u64>>) -> Self {
        let (values, known) = rows.into_iter().map(|row| (row.unwrap_or(0), row.is_some())).unzip();
        Self::Sparse { values, known }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::U32(values) | Self::Coded { codes: values, .. } | Self::Known { codes: values, .. } => {
                values.len()
            }
            Self::U64(values) | Self::Sparse { values, .. } => values.len(),
            Self::F64(values) => values.len(),
            Self::Text(values) => values.len(),
            Self::F64List { values, width } => values.len() / (*width).max(1),
        }
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the rows of `other`.
    ///
    /// # Panics
    /// If that is of another kind.
    pub fn append(&mut self, other: Self) {
        match (self, other) {
            (Self::U32(kept), Self::U32(more)) => kept.extend(more),
            (Self::U64(kept), Self::U64(more)) => kept.extend(more),
            (Self::Sparse { values, known }, Self::Sparse { values: more, known: of_more }) => {
                values.extend(more);
                known.extend(of_more);
            }
            (Self::F64(kept), Self::F64(more)) => kept.extend(more),
            (Self::Text(kept), Self::Text(more)) => kept.extend(more),
            (Self::Coded { names, codes }, Self::Coded { names: others, codes: more }) => {
                match merge(names, others) {
                    None => codes.extend(more),
                    Some(renamed) => codes.extend(more.into_iter().map(|code| renamed[code as usize])),
                }
            }
            (Self::Known { names, codes }, Self::Known { names: others, codes: more }) => {
                match merge(names, others) {
                    None => codes.extend(more),
                    Some(renamed) => codes.extend(
                        more.into_iter()
                            .map(|code| if code == 0 { 0 } else { renamed[code as usize - 1] + 1 }),
                    ),
                }
            }
            (Self::F64List { values, width }, Self::F64List { values: more, width: other })
                if *width == other =>
            {
                values.extend(more);
            }
            (kept, more) => panic!("batches of a table have columns of one kind: {kept:?} and {more:?}"),
        }
    }
}
