//! How far predictions were from measurements, by kind of prediction: `data/errors/training.json`, which
//! `windtunnel validate --write` makes of the validation board.

use serde_json::{Value, json};

use crate::sheets;

/// Median and 95th percentile of |predicted/measured − 1| for `kind`, over how many rows of which tables; null where the
/// board has none.
pub(crate) fn of(kind: &str) -> Value {
    let Some(text) = sheets::text("errors", "training") else { return Value::Null };
    let Ok(board) = serde_json::from_str::<Value>(text) else { return Value::Null };
    match board["kinds"].get(kind) {
        Some(Value::Object(figures)) => {
            let mut found = json!({ "kind": kind });
            for (key, value) in figures {
                found[key] = value.clone();
            }
            found
        }
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_band_and_the_median_lies_in_it() {
        for kind in ["dense, kernels measured", "dense, kernels inferred", "experts", "adapters"] {
            let found = of(kind);
            let figure = |key: &str| found[key].as_f64().expect("a number");
            assert!(figure("rows") >= 3.0, "{kind}: {found}");
            assert!(0.0 < figure("median") && figure("median") <= figure("p95"), "{kind}: {found}");
        }
        assert_eq!(of("tea leaves"), Value::Null);
    }
}
