//! How far predictions were from measurements, by kind of prediction: `data/errors/training.json`, which
//! `windtunnel validate --write` makes of the validation board.
//!
//! A job unlike anything measured is told so: `unlike` lists what no row of its kind had.

use serde_json::{Value, json};
use windtunnel_plan::inputs::Inputs;

use crate::sheets;

/// What of a job is compared with the rows of its kind.
pub(crate) struct Job<'a> {
    /// Name of the GPU's sheet.
    pub gpu: &'a str,
    /// GPUs of the job.
    pub gpus: u64,
    /// Tokens of a sequence.
    pub sequence: u64,
}

/// Median, 95th percentile and band of |predicted/measured − 1| for `kind`, over how many rows of which tables, and in what
/// `job` is unlike all of them; null where the board has none. The board is remembered in `base`.
pub(crate) fn of(kind: &str, job: &Job<'_>, base: &Inputs) -> Value {
    let Some(text) = sheets::own("errors", "training", base) else { return Value::Null };
    let Ok(board) = serde_json::from_str::<Value>(text) else { return Value::Null };
    match board["kinds"].get(kind) {
        Some(Value::Object(figures)) => {
            let mut found = json!({ "kind": kind });
            for (key, value) in figures {
                found[key] = value.clone();
            }
            found["unlike"] = json!(unlike(&found, job));
            found
        }
        _ => Value::Null,
    }
}

/// What no row of a kind had, in words.
fn unlike(figures: &Value, job: &Job<'_>) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(gpus) = figures["gpus"].as_array()
        && !gpus.iter().any(|gpu| gpu.as_str() == Some(job.gpu))
    {
        found.push(format!("no row of this kind is of a {}", job.gpu));
    }
    for (key, what, value) in
        [("most_gpus", "GPUs", job.gpus), ("longest_sequence", "tokens a sequence", job.sequence)]
    {
        if let Some(most) = figures[key].as_u64()
            && value > most
        {
            found.push(format!("no row of this kind has more than {most} {what}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Job<'static> = Job { gpu: "H100-SXM", gpus: 64, sequence: 4096 };

    #[test]
    fn every_kind_has_a_band_and_the_median_lies_in_it() {
        let base = Inputs::of(std::path::Path::new(""));
        for kind in [
            "dense, kernels measured",
            "dense, kernels inferred",
            "experts",
            "adapters",
            "no framework named",
        ] {
            let found = of(kind, &JOB, &base);
            let figure = |key: &str| found[key].as_f64().expect("a number");
            assert!(figure("rows") >= 3.0, "{kind}: {found}");
            assert!(0.0 < figure("median") && figure("median") <= figure("p95"), "{kind}: {found}");
            assert!(figure("p95") <= figure("band"), "{kind}: {found}");
        }
        assert_eq!(of("tea leaves", &JOB, &base), Value::Null);
        let read = base.digests().expect("sheets alone");
        assert_eq!(read.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["data/errors/training"]);
    }

    #[test]
    fn a_job_unlike_all_rows_says_in_what() {
        let figures = json!({"gpus": ["A100-80"], "most_gpus": 512, "longest_sequence": 8192});
        let like = Job { gpu: "A100-80", gpus: 512, sequence: 8192 };
        assert_eq!(unlike(&figures, &like), Vec::<String>::new());
        let other = Job { gpu: "V100", gpus: 1024, sequence: 16_384 };
        assert_eq!(
            unlike(&figures, &other),
            [
                "no row of this kind is of a V100",
                "no row of this kind has more than 512 GPUs",
                "no row of this kind has more than 8192 tokens a sequence",
            ]
        );
    }
}
