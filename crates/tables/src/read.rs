//! Tables read back, of files that [`crate::Folder`] wrote and no others: who reads a small table need not load a library for it.
//!
//! Everything is checked against the ends of what was read. A file that is not ours, or is damaged, gives `None`: a reader of all that
//! Parquet may hold then says what is wrong with it.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use crate::encode::{bits, unpack};
use crate::thrift::{Value, value};

/// Bytes of a page, at most; ours have some megabytes.
const LARGEST_PAGE: i64 = 1 << 28;

/// Values of a column, in the order of rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Whole numbers, or null.
    Whole(Vec<Option<u64>>),
    /// Doubles, or null where not a number.
    Real(Vec<Option<f64>>),
    /// Texts, or null: row i is `names[codes[i]]`.
    Text {
        /// Texts; of those of which few are distinct, each stands once a group.
        names: Vec<String>,
        /// One per row.
        codes: Vec<Option<u32>>,
    },
    /// Lists of doubles.
    Lists(Vec<Vec<f64>>),
}

/// Columns of the table in `folder`, all or those that are `wanted` of them, in the table's order; `None` where there are more rows
/// than `most`, or where a file is not one that [`crate::Folder`] wrote.
pub fn read(folder: &Path, wanted: Option<&[String]>, most: u64) -> Option<Vec<(String, Values)>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "parquet"))
        .collect();
    paths.sort();
    let mut parts = paths.iter().map(|path| Part::open(path)).collect::<Option<Vec<_>>>()?;
    let rows = parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.rows))?;
    if rows > most {
        return None;
    }
    let first = parts.first()?;
    let mut found: Vec<(String, Values)> = (first.columns.iter())
        .filter(|(name, _)| wanted.is_none_or(|wanted| wanted.contains(name)))
        .map(|(name, kind)| (name.clone(), kind.none()))
        .collect();
    let columns = first.columns.clone();
    for part in &mut parts {
        if part.columns != columns {
            return None;
        }
        for (name, values) in &mut found {
            part.append(columns.iter().position(|(known, _)| known == name)?, values)?;
        }
    }
    Some(found)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    U32,
    U64,
    F64,
    Text,
    List,
}

impl Kind {
    const fn none(self) -> Values {
        match self {
            Self::U32 | Self::U64 => Values::Whole(Vec::new()),
            Self::F64 => Values::Real(Vec::new()),
            Self::Text => Values::Text { names: Vec::new(), codes: Vec::new() },
            Self::List => Values::Lists(Vec::new()),
        }
    }
}

/// Where a column of a group is.
struct Chunk {
    begin: u64,
    bytes: usize,
    rows: usize,
}

struct Part {
    file: File,
    rows: u64,
    columns: Vec<(String, Kind)>,
    /// By group, then column.
    groups: Vec<Vec<Chunk>>,
}

impl Part {
    fn open(path: &Path) -> Option<Self> {
        let mut file = File::open(path).ok()?;
        let length = file.metadata().ok()?.len();
        let mut end = [0; 8];
        file.seek(SeekFrom::Start(length.checked_sub(8)?)).ok()?;
        file.read_exact(&mut end).ok()?;
        let size = u64::from(u32::from_le_bytes(end[..4].try_into().ok()?));
        if &end[4..] != b"PAR1" || size > length - 8 {
            return None;
        }
        let mut footer = vec![0; size as usize];
        file.seek(SeekFrom::Start(length - 8 - size)).ok()?;
        file.read_exact(&mut footer).ok()?;
        let meta = value(&mut footer.as_slice())?;
        if !meta.field(6)?.bytes()?.starts_with(b"windtunnel ") {
            return None;
        }
        let columns = columns(meta.field(2)?.list()?)?;
        let mut groups = Vec::new();
        for group in meta.field(4)?.list()? {
            let rows = usize::try_from(group.field(3)?.whole()?).ok()?;
            let chunk = |chunk: &Value<'_>| {
                let meta = chunk.field(3)?;
                let begin = meta.field(11).or_else(|| meta.field(9))?.whole()?;
                let (begin, bytes) =
                    (u64::try_from(begin).ok()?, u64::try_from(meta.field(7)?.whole()?).ok()?);
                (begin.checked_add(bytes)? <= length).then_some(Chunk { begin, bytes: bytes as usize, rows })
            };
            let chunks = group.field(1)?.list()?.iter().map(chunk).collect::<Option<Vec<_>>>()?;
            if chunks.len() != columns.len() {
                return None;
            }
            groups.push(chunks);
        }
        let rows = u64::try_from(meta.field(3)?.whole()?).ok()?;
        let in_groups =
            groups.iter().filter_map(|group: &Vec<Chunk>| group.first().map(|chunk| chunk.rows as u64));
        // What a caller takes at most counts for what the groups say, too.
        if in_groups.fold(0u64, u64::saturating_add) != rows {
            return None;
        }
        Some(Self { file, rows, columns, groups })
    }

    /// Appends a column of all groups.
    fn append(&mut self, column: usize, values: &mut Values) -> Option<()> {
        let list = self.columns[column].1 == Kind::List;
        let narrow = self.columns[column].1 == Kind::U32;
        for group in &self.groups {
            let chunk = &group[column];
            let mut bytes = vec![0; chunk.bytes];
            self.file.seek(SeekFrom::Start(chunk.begin)).ok()?;
            self.file.read_exact(&mut bytes).ok()?;
            let mut left = bytes.as_slice();
            let mut dictionary = None;
            let before = values.len();
            while !left.is_empty() {
                let header = value(&mut left)?;
                let packed = usize::try_from(header.field(3)?.whole()?).ok()?;
                let plain = header.field(2)?.whole()?;
                if !(0..=LARGEST_PAGE).contains(&plain) || packed > left.len() {
                    return None;
                }
                let page = zstd::bulk::decompress(&left[..packed], plain as usize).ok()?;
                left = &left[packed..];
                let page = page.as_slice();
                if let Some(special) = header.field(7) {
                    dictionary = Some(names(page, special.field(1)?.whole()?, values)?);
                } else {
                    let special = header.field(5)?;
                    let count = usize::try_from(special.field(1)?.whole()?).ok()?;
                    // Each value is a row, or an element of eight bytes.
                    if count > chunk.rows + page.len() / 8 {
                        return None;
                    }
                    let coded = special.field(2)?.whole()? != 0;
                    decode(page, count, values, list, narrow, if coded { Some(dictionary?) } else { None })?;
                }
            }
            if values.len() - before != chunk.rows {
                return None;
            }
        }
        Some(())
    }
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::Whole(values) => values.len(),
            Self::Real(values) => values.len(),
            Self::Text { codes, .. } => codes.len(),
            Self::Lists(values) => values.len(),
        }
    }
}

/// Names and kinds, of the elements of a schema.
fn columns(elements: &[Value<'_>]) -> Option<Vec<(String, Kind)>> {
    let name = |element: &Value<'_>| String::from_utf8(element.field(4)?.bytes()?.to_vec()).ok();
    let mut found = Vec::new();
    let mut left = elements.iter().skip(1);
    while let Some(element) = left.next() {
        let kind = match element.field(1).map(Value::whole) {
            Some(Some(1)) => Kind::U32,
            Some(Some(2)) => Kind::U64,
            Some(Some(5)) => Kind::F64,
            Some(Some(6)) => Kind::Text,
            None => {
                left.next()?;
                left.next()?;
                Kind::List
            }
            _ => return None,
        };
        found.push((name(element)?, kind));
    }
    Some(found)
}

/// Takes the texts of a dictionary; the number of the first.
fn names(mut page: &[u8], count: i64, values: &mut Values) -> Option<u32> {
    let Values::Text { names, .. } = values else { return None };
    let first = u32::try_from(names.len()).ok()?;
    for _ in 0..count {
        names.push(text(&mut page)?);
    }
    Some(first)
}

fn text(page: &mut &[u8]) -> Option<String> {
    let length = u32::from_le_bytes(*take(page)?) as usize;
    let (text, rest) = page.split_at_checked(length)?;
    *page = rest;
    String::from_utf8(text.to_vec()).ok()
}

fn take<'a, const N: usize>(page: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = page.split_first_chunk()?;
    *page = rest;
    Some(first)
}

fn levels(page: &mut &[u8], width: u32, count: usize) -> Option<Vec<u32>> {
    let length = u32::from_le_bytes(*take(page)?) as usize;
    let (packed, rest) = page.split_at_checked(length)?;
    *page = rest;
    unpack(packed, width, count)
}

/// Appends `count` values of a page; `coded` is the number of its dictionary's first text.
fn decode(
    mut page: &[u8],
    count: usize,
    values: &mut Values,
    list: bool,
    narrow: bool,
    coded: Option<u32>,
) -> Option<()> {
    let page = &mut page;
    if list {
        let Values::Lists(values) = values else { return None };
        let (begins, defined) = (levels(page, 1, count)?, levels(page, 2, count)?);
        for (begin, defined) in begins.into_iter().zip(defined) {
            if begin == 0 {
                values.push(Vec::new());
            }
            if defined == 3 {
                values.last_mut()?.push(f64::from_le_bytes(*take(page)?));
            }
        }
        return Some(());
    }
    let known = levels(page, 1, count)?;
    match values {
        Values::Whole(values) => {
            for known in known {
                values.push(match (known, narrow) {
                    (0, _) => None,
                    (_, true) => Some(u32::from_le_bytes(*take(page)?).into()),
                    (_, false) => Some(u64::from_le_bytes(*take(page)?)),
                });
            }
        }
        Values::Real(values) => {
            for known in known {
                values.push(if known == 0 { None } else { Some(f64::from_le_bytes(*take(page)?)) });
            }
        }
        Values::Text { names, codes } => {
            let there = known.iter().filter(|&&known| known != 0).count();
            let numbers: Vec<u32> = if let Some(first) = coded {
                let [width] = *take(page)?;
                if width == 0 || u32::from(width) > bits(u32::MAX) {
                    return None;
                }
                unpack(page, width.into(), there)?
                    .into_iter()
                    .map(|code| first.checked_add(code).filter(|&code| (code as usize) < names.len()))
                    .collect::<Option<_>>()?
            } else {
                let first = u32::try_from(names.len()).ok()?;
                for _ in 0..there {
                    names.push(text(page)?);
                }
                (first..).take(there).collect()
            };
            let mut numbers = numbers.into_iter();
            for known in known {
                codes.push(if known == 0 { None } else { Some(numbers.next()?) });
            }
        }
        Values::Lists(_) => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, Folder, Limits};

    fn written(name: &str, limits: Limits) -> PathBuf {
        let root = std::env::temp_dir().join(format!("windtunnel-read-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let mut folder = Folder::new(root.clone(), limits);
        let rows = 0..250u64;
        let columns = [
            ("narrow", Column::U32(rows.clone().map(|n| n as u32).collect())),
            ("wide", Column::U64(rows.clone().map(|n| n << 40).collect())),
            ("sparse", Column::sparse(rows.clone().map(|n| (n % 3 > 0).then_some(n)))),
            (
                "real",
                Column::F64(rows.clone().map(|n| if n % 5 == 0 { f64::NAN } else { n as f64 }).collect()),
            ),
            ("few", Column::known(rows.clone().map(|n| ["x", "y", "z"].get(n as usize % 4).copied()))),
            ("each", Column::Text(rows.clone().map(|n| n.to_string()).collect())),
            ("list", Column::F64List { values: (0..500).map(f64::from).collect(), width: 2 }),
        ];
        folder.add("t", columns.iter().map(|(name, column)| (*name, column))).unwrap();
        folder.close().unwrap();
        root.join("t")
    }

    #[test]
    fn what_was_written_is_read() {
        for (name, limits) in [
            ("usual", Limits::default()),
            ("short", Limits { part_rows: 100, group_rows: 30, ..Limits::default() }),
        ] {
            let folder = written(name, limits);
            let found = read(&folder, None, 250).unwrap();
            assert_eq!(found.len(), 7);
            let rows = 0..250u64;
            for (name, values) in &found {
                match (name.as_str(), values) {
                    ("narrow", Values::Whole(values)) => {
                        assert!(values.iter().copied().eq(rows.clone().map(Some)));
                    }
                    ("wide", Values::Whole(values)) => {
                        assert!(values.iter().copied().eq(rows.clone().map(|n| Some(n << 40))));
                    }
                    ("sparse", Values::Whole(values)) => {
                        assert!(values.iter().copied().eq(rows.clone().map(|n| (n % 3 > 0).then_some(n))));
                    }
                    ("real", Values::Real(values)) => {
                        let expected = rows.clone().map(|n| (n % 5 > 0).then_some(n as f64));
                        assert!(values.iter().copied().eq(expected));
                    }
                    (name @ ("few" | "each"), Values::Text { names, codes }) => {
                        for (n, code) in codes.iter().enumerate() {
                            let text = code.map(|code| names[code as usize].clone());
                            let few = ["x", "y", "z"].get(n % 4).map(|&name| name.to_owned());
                            assert_eq!(text, if name == "few" { few } else { Some(n.to_string()) });
                        }
                    }
                    ("list", Values::Lists(values)) => {
                        assert!(
                            values
                                .iter()
                                .enumerate()
                                .all(|(n, list)| { *list == [2.0 * n as f64, 2.0 * n as f64 + 1.0] })
                        );
                        assert_eq!(values.len(), 250);
                    }
                    other => panic!("{other:?}"),
                }
            }
            let some = read(&folder, Some(&["each".to_owned(), "none".to_owned()]), 250).unwrap();
            assert_eq!(some.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["each"]);
            assert_eq!(read(&folder, None, 249), None);
            std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
        }
    }

    #[test]
    fn what_is_damaged_is_not_read() {
        let folder = written("damaged", Limits::default());
        let path = folder.join("part-00000.parquet");
        let whole = std::fs::read(&path).unwrap();
        for end in [0, 4, 11, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..end]).unwrap();
            assert_eq!(read(&folder, None, 1000), None, "{end}");
        }
        // Whatever a changed byte makes of the file, nothing is read beyond its ends.
        for at in (0..whole.len()).step_by(5) {
            let mut other = whole.clone();
            other[at] ^= 0xff;
            std::fs::write(&path, &other).unwrap();
            let _ = read(&folder, None, 1000);
        }
        std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }
}
