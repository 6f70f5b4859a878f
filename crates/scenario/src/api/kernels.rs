//! Times of single kernels, many at once: what `windtunnel calibrate kernels` fits and `windtunnel validate` compares.

use serde::Deserialize;
use serde_json::json;
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_workload::model::{
    AttentionShape, ByFormat, Device, Dtype, ExpertShape, Fitted, Flash, GpuSheet, Rows, Tiles,
};

use super::Failure;

/// Kernels of one family in one format on one GPU.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    sheet: String,
    family: String,
    format: String,
    rows: Vec<Vec<u64>>,
    #[serde(default)]
    constants: Vec<Vec<(String, f64)>>,
}

fn wrong(error: impl ToString) -> Failure {
    Failure::Input(InputError::new("kernels", error.to_string()))
}

/// Format of the factors, their bytes a number, and those of keys and values.
fn format_of(name: &str) -> Result<(Dtype, f64, f64), Failure> {
    match name {
        "bf16" | "bf16_flashinfer" | "bf16_default" => Ok((Dtype::Bf16, 2.0, 2.0)),
        "bf16_kv8" | "bf16_kv8_flashinfer" => Ok((Dtype::Bf16, 2.0, 1.0)),
        "fp8" | "fp8_block" | "fp8_default" => Ok((Dtype::Fp8, 1.0, 1.0)),
        "fp4" | "fp4_min_latency" | "fp4_default" => Ok((Dtype::Fp4, 0.5, 0.5)),
        _ => {
            let known = ByFormat::<Tiles>::default().all().map(|(known, _)| known);
            let near = nearest(name, known).unwrap_or("bf16");
            Err(wrong(format!("no format `{name}`\n\nhint: did you mean `{near}`?")))
        }
    }
}

/// The constants of a sheet, or, where some are asked for, those on top of `prior`.
fn variants<T: Clone>(
    kinds: &ByFormat<T>,
    asked: &Asked,
    prior: T,
    set: impl Fn(&mut T, &str, f64) -> Result<(), String>,
) -> Result<Vec<T>, Failure> {
    if asked.constants.is_empty() {
        let found: Option<&Fitted<T>> = kinds.named(&asked.format).flatten();
        return found
            .map(|found| vec![found.value.clone()])
            .ok_or_else(|| wrong(format!("the sheet has no `kernels.{}.{}`", asked.family, asked.format)));
    }
    let changed = asked.constants.iter().map(|changes| {
        let mut one = prior.clone();
        for (name, value) in changes {
            set(&mut one, name, *value)?;
        }
        Ok(one)
    });
    changed.collect::<Result<_, String>>().map_err(wrong)
}

/// Answers `text`, JSON with `sheet` (the text of a GPU's sheet), `family`, `format`, `rows` and perhaps `constants` (pairs of
/// name and value in seconds, bytes per second or shares, instead of the sheet's): `times`, seconds of every row under each
/// of the constants. Rows are, by family,
///
/// - `gemm`: m, n, k, and perhaps the bytes that a benchmark touches before it comes to the same operands again (0 or none: it
///   never does); with the conversion of the left factor where the format has one;
/// - `attention`: batch, positions, query heads, key heads, features of a head, window (0: none), causal (0 or 1);
/// - `decode`: the same, where positions are the keys in the cache of each sequence, which has one query;
/// - `experts`: tokens of all ranks, chosen experts a token, hidden, inner features on this rank, projections up; tokens for
///   which kernels were timed, and experts of all ranks; how many pairs follow of bytes that a benchmark touches before it
///   comes back to an expert and how many experts these are (0: it never comes back), these pairs, and pairs of rows and how
///   many of this rank's experts take so many.
///
/// Attention is that of a benchmark that repeats one kernel over the same operands.
///
/// # Errors
/// [`Failure::Input`] where the text is not that, or the sheet lacks the constants or the format.
pub fn kernel_times(text: &str) -> Result<String, Failure> {
    let asked: Asked = serde_json::from_str(text).map_err(wrong)?;
    let sheet = GpuSheet::parse(&asked.sheet).map_err(wrong)?;
    let (dtype, width, keys) = format_of(&asked.format)?;
    // With keys and values in 8 bits an inference library attends in 8 bits over prompts: on H100 at 763 of 989 TFLOPS of 16 bits
    // over half a square of scores, where 16 bits reach 536.
    let dtype = if asked.family == "attention" && keys < width { Dtype::Fp8 } else { dtype };
    let peak = sheet.peak.of(dtype).ok_or_else(|| wrong(format!("no `peak.{}`", dtype.name())))?;
    let kernels = sheet.kernels.as_ref().ok_or_else(|| wrong("the sheet has no `kernels`"))?;
    let device = kernels.device(peak.value.0, sheet.memory_bandwidth.value.bytes_per_second());
    let times = match asked.family.as_str() {
        "gemm" => variants(&kernels.gemm, &asked, Tiles::PRIOR, Tiles::set)?
            .iter()
            .map(|tiles| priced(&asked.rows, |row| gemm(tiles, &device, row, width)))
            .collect::<Result<Vec<_>, _>>()?,
        "experts" => variants(&kernels.experts, &asked, Tiles::PRIOR, Tiles::set)?
            .iter()
            .map(|tiles| priced(&asked.rows, |row| experts(tiles, &device, row, width)))
            .collect::<Result<Vec<_>, _>>()?,
        "attention" => variants(&kernels.attention, &asked, Flash::prior(), Flash::set)?
            .iter()
            .map(|flash| priced(&asked.rows, |row| attention(flash, &device, row, width, keys)))
            .collect::<Result<Vec<_>, _>>()?,
        "decode" => variants(&kernels.decode, &asked, Flash::prior(), Flash::set)?
            .iter()
            .map(|flash| priced(&asked.rows, |row| decode(flash, &device, row, keys)))
            .collect::<Result<Vec<_>, _>>()?,
        other => {
            return Err(wrong(format!(
                "no family `{other}`\n\nhint: there are `gemm`, `experts`, `attention` and `decode`"
            )));
        }
    };
    Ok(json!({ "times": times }).to_string())
}

fn priced(rows: &[Vec<u64>], price: impl Fn(&[u64]) -> Option<f64>) -> Result<Vec<f64>, Failure> {
    rows.iter()
        .enumerate()
        .map(|(i, row)| {
            let usable = row.iter().all(|&number| number < 1 << 40);
            usable
                .then(|| price(row))
                .flatten()
                .ok_or_else(|| wrong(format!("rows[{i}]: not a kernel of this family")))
        })
        .collect()
}

fn gemm(tiles: &Tiles, device: &Device, row: &[u64], width: f64) -> Option<f64> {
    let (&[m, n, k] | &[m, n, k, _]) = row else { return None };
    let missed = tiles.missed(device, row.get(3).copied().unwrap_or(0));
    let bytes = width * (m as f64 * k as f64 + k as f64 * n as f64) + 2.0 * m as f64 * n as f64;
    let time = tiles.seconds(device, Rows::Equal(1, m), n, k, width, bytes * missed, 1.0);
    Some(tiles.launch + tiles.converted(device, m, k, width, missed) + time)
}

fn experts(tiles: &Tiles, device: &Device, row: &[u64], width: f64) -> Option<f64> {
    let &[tokens, chosen, hidden, inter, ups, timed, experts, returns, ref pairs @ ..] = row else {
        return None;
    };
    let (pairs, []) = pairs.as_chunks::<2>() else { return None };
    let (returns, each) = pairs.split_at_checked(usize::try_from(returns).ok()?)?;
    let timed = (experts > 0).then_some([timed * chosen, experts]);
    let shape = ExpertShape { hidden, inter, ups, tokens, choices: tokens * chosen, timed, returns };
    Some(tiles.experts(device, each, shape, width))
}

fn core(row: &[u64]) -> Option<AttentionShape> {
    let &[batch, positions, heads, kv_heads, features, window, causal] = row else { return None };
    (kv_heads > 0).then_some(AttentionShape {
        batch,
        heads,
        kv_heads,
        queries: positions,
        keys: positions,
        query_dim: features,
        value_dim: features,
        causal: causal == 1,
        window,
    })
}

fn attention(flash: &Flash, device: &Device, row: &[u64], width: f64, keys: f64) -> Option<f64> {
    let core = core(row)?;
    let missed = flash.missed(device, &core, width, keys);
    let time = flash.seconds(device, &core, width, keys, 1.0, missed);
    Some(flash.launch + flash.prepared(device, &core, missed) + time)
}

fn decode(flash: &Flash, device: &Device, row: &[u64], keys: f64) -> Option<f64> {
    let mut core = core(row)?;
    core.queries = 1;
    let one = AttentionShape { keys: 1, ..core };
    Some(flash.launch + flash.prepared(device, &one, 1.0) + flash.decoded(device, &core, keys, 1.0))
}
