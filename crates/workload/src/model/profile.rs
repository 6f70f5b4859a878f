//! Measured kernel times that override the roofline.
//!
//! A profile is CSV with the header `kernel,m,n,k,dtype,time`, or a JSON list of objects with these keys; times carry
//! units (`12.5 us`). `kernel` is `gemm`, `attention_forward`, `attention_backward` (m = query tokens, n = keys,
//! k = heads × features), or a [`super::kernels::Streaming`] name (m = rows, n = features, k = 0). Whole parts of a model go
//! before their kernels and hold the collectives of tensor parallelism too: `layer_forward` and `layer_backward`, and the
//! same of `embedding` and `head` (m = tokens of a micro-batch, n = hidden features, k = tensor-parallel ranks), and
//! `optimiser_layer` (m = hidden features, n = tensor-parallel ranks, k = 0), the step of one such part. A shape is matched
//! exactly; one that is absent falls back to the roofline. Of equal rows the last counts.

use rustc_hash::FxHashMap;
use serde::Deserialize;
use windtunnel_kernel::Span;
use windtunnel_kernel::units::{Dimension, parse_quantity};

use super::dtype::Dtype;

/// Why a profile cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Not JSON, or not a list of rows.
    #[error("kernel profile: {0}")]
    Json(String),
    /// The header is not the one due.
    #[error("kernel profile line 1: expected `kernel,m,n,k,dtype,time`, found `{0}`")]
    Header(String),
    /// A row is wrong; lines count from 1, list items from 0.
    #[error("kernel profile {place} {index}: {reason}")]
    Row {
        /// `line` or `item`.
        place: &'static str,
        /// Which.
        index: usize,
        /// What is wrong.
        reason: String,
    },
}

type Key = (String, u64, u64, u64, Dtype);

/// Measured times by kernel and shape.
#[derive(Clone, Debug, Default)]
pub struct KernelProfile {
    times: FxHashMap<Key, Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    kernel: String,
    m: u64,
    n: u64,
    #[serde(default)]
    k: u64,
    dtype: String,
    time: String,
}

impl KernelProfile {
    /// Reads CSV, or JSON if the text opens with `[`.
    ///
    /// # Errors
    /// [`ProfileError`] with the place.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let mut profile = Self::default();
        if text.trim_start().starts_with('[') {
            let rows: Vec<Row> =
                serde_json::from_str(text).map_err(|error| ProfileError::Json(error.to_string()))?;
            for (index, row) in rows.into_iter().enumerate() {
                profile.insert(row).map_err(|reason| ProfileError::Row { place: "item", index, reason })?;
            }
            return Ok(profile);
        }
        let mut lines = text.lines().enumerate();
        let header = lines.next().map_or("", |(_, line)| line.trim());
        if header.split(',').map(str::trim).ne(["kernel", "m", "n", "k", "dtype", "time"]) {
            return Err(ProfileError::Header(header.chars().take(80).collect()));
        }
        for (line, text) in lines.filter(|(_, text)| !text.trim().is_empty()) {
            let fail = |reason: String| ProfileError::Row { place: "line", index: line + 1, reason };
            let cells: Vec<&str> = text.split(',').map(str::trim).collect();
            let [kernel, m, n, k, dtype, time] = cells[..] else {
                return Err(fail(format!("expected 6 fields, found {}", cells.len())));
            };
            let whole = |name: &str, cell: &str| {
                cell.parse::<u64>()
                    .map_err(|_| fail(format!("`{name}`: expected a whole number, found `{cell}`")))
            };
            let row = Row {
                kernel: kernel.to_owned(),
                m: whole("m", m)?,
                n: whole("n", n)?,
                k: whole("k", k)?,
                dtype: dtype.to_owned(),
                time: time.to_owned(),
            };
            profile.insert(row).map_err(fail)?;
        }
        Ok(profile)
    }

    fn insert(&mut self, row: Row) -> Result<(), String> {
        let dtype = Dtype::named(&row.dtype).ok_or_else(|| {
            let known = Dtype::ALL.map(|dtype| format!("`{}`", dtype.name())).join(", ");
            format!("`dtype`: expected one of {known}, found `{}`", row.dtype)
        })?;
        let time = parse_quantity(&row.time, Dimension::Time).map_err(|error| format!("`time`: {error}"))?;
        self.times.insert((row.kernel, row.m, row.n, row.k, dtype), Span::from_ps(time));
        Ok(())
    }

    /// Rows held.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The measured time of a shape.
    pub fn find(&self, kernel: &str, m: u64, n: u64, k: u64, dtype: Dtype) -> Option<Span> {
        if self.times.is_empty() {
            return None;
        }
        self.times.get(&(kernel.to_owned(), m, n, k, dtype)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_and_json_hold_the_same() {
        let csv = KernelProfile::parse(
            "kernel,m,n,k,dtype,time\ngemm,8,16,32,bf16,12.5 us\nnorm,8,16,0,bf16,3 us\n",
        );
        let json = KernelProfile::parse(
            r#"[{"kernel":"gemm","m":8,"n":16,"k":32,"dtype":"bf16","time":"12.5 us"},
                {"kernel":"norm","m":8,"n":16,"dtype":"bf16","time":"3 us"}]"#,
        );
        for profile in [csv.unwrap(), json.unwrap()] {
            assert_eq!(profile.len(), 2);
            assert_eq!(profile.find("gemm", 8, 16, 32, Dtype::Bf16), Some(Span::from_ps(12_500_000)));
            assert_eq!(profile.find("norm", 8, 16, 0, Dtype::Bf16), Some(Span::from_us(3)));
            assert_eq!(profile.find("gemm", 8, 16, 33, Dtype::Bf16), None);
        }
    }

    #[test]
    fn errors_name_the_place() {
        let header = "kernel,m,n,k,dtype,time\n";
        for (text, message) in [
            ("m,n\n", "kernel profile line 1: expected `kernel,m,n,k,dtype,time`, found `m,n`"),
            ("gemm,1,2\n", "kernel profile line 2: expected 6 fields, found 3"),
            ("gemm,x,1,1,bf16,1 us\n", "kernel profile line 2: `m`: expected a whole number, found `x`"),
        ] {
            let text = if message.contains("line 1") { text.to_owned() } else { format!("{header}{text}") };
            assert_eq!(KernelProfile::parse(&text).unwrap_err().to_string(), message);
        }
        let unit = KernelProfile::parse(&format!("{header}gemm,1,1,1,bf16,5\n")).unwrap_err().to_string();
        assert!(
            unit.starts_with("kernel profile line 2: `time`: expected a time such as `200 ns`, found `5`"),
            "{unit}"
        );
    }
}
