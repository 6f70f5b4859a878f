//! Tables as folders of part files, `TABLE/part-00000.parquet`, ….

use std::io;
use std::path::{Path, PathBuf};

use crate::Column;
use crate::file::PartFile;
use crate::gathered::Gathered;

/// Where groups and parts end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of a part, at most.
    pub part_rows: usize,
    /// Rows of a group, at most.
    pub group_rows: usize,
    /// Values of lists in a group, at most; a row may have more.
    pub group_values: usize,
    /// Values of lists in a part, from which on it takes no further group.
    pub part_values: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { part_rows: 1 << 20, group_rows: 1 << 17, group_values: 1 << 21, part_values: 1 << 25 }
    }
}

/// Why rows could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A file could not be written.
    #[error("cannot write `{}`: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A batch does not have the columns of those before it.
    #[error(
        "table `{table}`: batches of a table have the same columns of the same kinds and lengths; see `{column}`"
    )]
    Unlike {
        /// The table.
        table: String,
        /// The first column that differs.
        column: String,
    },
}

struct Table {
    name: String,
    columns: Vec<(String, Gathered)>,
    /// Rows of the group under way, and values of its longest list column.
    rows: usize,
    values: usize,
    part: Option<PartFile>,
    part_values: usize,
    parts: usize,
    total: u64,
}

/// A folder of tables under way.
pub struct Folder {
    root: PathBuf,
    limits: Limits,
    tables: Vec<Table>,
}

impl Folder {
    /// Tables go below `root`, which is there.
    pub fn new(root: PathBuf, limits: Limits) -> Self {
        Self { root, limits, tables: Vec::new() }
    }

    /// Takes rows of a table: columns by name, in a fixed order, all of one length.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn add<'a>(
        &mut self,
        table: &str,
        columns: impl IntoIterator<Item = (&'a str, &'a Column)>,
    ) -> Result<(), TableError> {
        let columns: Vec<_> = columns.into_iter().collect();
        let index = self.tables.iter().position(|known| known.name == table).unwrap_or_else(|| {
            self.tables.push(Table {
                name: table.to_owned(),
                columns: columns
                    .iter()
                    .map(|(name, column)| ((*name).to_owned(), Gathered::like(column)))
                    .collect(),
                rows: 0,
                values: 0,
                part: None,
                part_values: 0,
                parts: 0,
                total: 0,
            });
            self.tables.len() - 1
        });
        self.tables[index].add(&self.root, &self.limits, &columns)
    }

    /// Tables in the order of their first appearance, with the number of their rows.
    pub fn rows(&self) -> impl Iterator<Item = (&str, u64)> {
        self.tables.iter().map(|table| (table.name.as_str(), table.total))
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// [`TableError::Write`].
    pub fn close(&mut self) -> Result<(), TableError> {
        self.tables.iter_mut().try_for_each(|table| table.end_part(&self.root))
    }
}

impl Table {
    fn add(&mut self, root: &Path, limits: &Limits, columns: &[(&str, &Column)]) -> Result<(), TableError> {
        let rows = columns.first().map_or(0, |(_, column)| column.len());
        self.check(columns, rows)?;
        let width = columns.iter().map(|(_, column)| list_width(column)).max().unwrap_or(0);
        let mut from = 0;
        while from < rows {
            let part_rows = self.part.as_ref().map_or(0, PartFile::rows) as usize + self.rows;
            let mut room =
                limits.group_rows.saturating_sub(self.rows).min(limits.part_rows.saturating_sub(part_rows));
            if let Some(fits) = limits.group_values.saturating_sub(self.values).checked_div(width) {
                // At least one, or a long row would find no group.
                room = room.min(if self.rows == 0 { fits.max(1) } else { fits });
            }
            let to = rows.min(from + room);
            for ((_, kept), (name, column)) in self.columns.iter_mut().zip(columns) {
                if !kept.append(column, from..to) {
                    return Err(TableError::Unlike { table: self.name.clone(), column: (*name).to_owned() });
                }
            }
            self.rows += to - from;
            self.values += (to - from) * width;
            self.total += (to - from) as u64;
            if to < rows {
                self.end_group(root)?;
                let part_rows = self.part.as_ref().map_or(0, PartFile::rows) as usize;
                if part_rows >= limits.part_rows || self.part_values >= limits.part_values {
                    self.end_part(root)?;
                }
            }
            from = to;
        }
        Ok(())
    }

    fn check(&self, columns: &[(&str, &Column)], rows: usize) -> Result<(), TableError> {
        let unlike =
            |column: &str| TableError::Unlike { table: self.name.clone(), column: column.to_owned() };
        for (i, (name, column)) in columns.iter().enumerate() {
            if self.columns.get(i).is_none_or(|(known, _)| known != name) || column.len() != rows {
                return Err(unlike(name));
            }
        }
        self.columns.get(columns.len()).map_or(Ok(()), |(missing, _)| Err(unlike(missing)))
    }

    /// Writes the group under way into the part, and begins the next one.
    fn end_group(&mut self, root: &Path) -> Result<(), TableError> {
        let path = root.join(&self.name).join(format!("part-{:05}.parquet", self.parts));
        let write = |error| TableError::Write { path: path.clone(), error };
        if self.part.is_none() {
            std::fs::create_dir_all(root.join(&self.name)).map_err(write)?;
            self.part = Some(PartFile::create(&path).map_err(write)?);
        }
        if let Some(part) = &mut self.part
            && self.rows > 0
        {
            part.group(self.rows, &self.columns).map_err(write)?;
            self.part_values += self.values;
            (self.rows, self.values) = (0, 0);
            for (_, column) in &mut self.columns {
                column.clear();
            }
        }
        Ok(())
    }

    /// Ends the part under way, if there is one or the table has none yet.
    fn end_part(&mut self, root: &Path) -> Result<(), TableError> {
        if self.rows == 0 && self.part.is_none() && self.parts > 0 {
            return Ok(());
        }
        self.end_group(root)?;
        if let Some(part) = self.part.take() {
            let path = root.join(&self.name).join(format!("part-{:05}.parquet", self.parts));
            part.finish(&self.columns).map_err(|error| TableError::Write { path, error })?;
            self.parts += 1;
            self.part_values = 0;
        }
        Ok(())
    }
}

/// Values a row of a list column; readers of the others need no such bound.
const fn list_width(column: &Column) -> usize {
    match column {
        Column::F64List { width, .. } => *width,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of table `t` of numbers and texts, written in batches of these sizes.
    fn written(name: &str, batches: &[usize], limits: Limits) -> Vec<(String, Vec<u8>)> {
        let root = std::env::temp_dir().join(format!("windtunnel-tables-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let mut folder = Folder::new(root.clone(), limits);
        let mut at = 0;
        for &rows in batches {
            let numbers = Column::U64((at..at + rows as u64).collect());
            let texts = Column::Text((at..at + rows as u64).map(|n| (n % 7).to_string()).collect());
            let lists = Column::F64List { values: vec![1.5; 3 * rows], width: 3 };
            folder.add("t", [("n", &numbers), ("s", &texts), ("l", &lists)]).unwrap();
            at += rows as u64;
        }
        folder.close().unwrap();
        assert_eq!(folder.rows().collect::<Vec<_>>(), [("t", at)]);
        let mut files: Vec<_> = std::fs::read_dir(root.join("t"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap())
            })
            .collect();
        files.sort();
        std::fs::remove_dir_all(root).unwrap();
        files
    }

    #[test]
    fn files_depend_on_the_rows_alone() {
        let limits = Limits { part_rows: 100, group_rows: 30, ..Limits::default() };
        let whole = written("whole", &[250], limits);
        assert_eq!(
            whole.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
        );
        for (i, batches) in [vec![1; 250], vec![100, 100, 50], vec![29, 1, 0, 70, 149, 1]].iter().enumerate()
        {
            assert_eq!(written(&format!("cut{i}"), batches, limits), whole);
        }
        for (_, bytes) in &whole {
            assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
        }
    }

    #[test]
    fn long_lists_end_groups_and_parts() {
        // Three values a row: ten rows a group, and each group a part.
        let limits = Limits { group_values: 30, part_values: 30, ..Limits::default() };
        assert_eq!(written("lists", &[45], limits).len(), 5);
        // Even a row that is longer than a group has one.
        assert_eq!(
            written("long", &[4], Limits { group_values: 1, part_values: 1, ..Limits::default() }).len(),
            4
        );
    }

    #[test]
    fn a_table_without_rows_has_a_file() {
        assert_eq!(written("none", &[0], Limits::default()).len(), 1);
    }

    #[test]
    fn other_columns_are_refused() {
        let mut folder = Folder::new(std::env::temp_dir(), Limits::default());
        let (one, two) = (Column::F64(vec![0.0]), Column::U32(vec![0, 1]));
        folder.add("t", [("x", &one)]).unwrap();
        for (name, columns) in [("x", vec![("x", &two)]), ("y", vec![("y", &one)]), ("x", vec![])] {
            let error = folder.add("t", columns).unwrap_err();
            assert!(matches!(&error, TableError::Unlike { column, .. } if column == name), "{error}");
        }
    }
}
