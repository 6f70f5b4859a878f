//! NCCL Inspector (NCCL 2.28 and newer, RCCL): JSON lines, one file a process, a record a collective.
//!
//! Output v4.0 has `header`, `metadata` and `coll_perf` or `p2p_perf` in each line; from v4.1 on the first two may come once a dump,
//! and stand for what follows. It has no computation: between two records of a rank lies the time from the end of one to the start
//! of the next where event times were recorded, and nothing where not. The size of a reduce-scatter is one rank's part.

use serde_json::Value;
use windtunnel_kernel::registry::Entry;

use crate::coverage::{Coverage, Treatment};
use crate::draft::Draft;
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::lines::Lines;
use crate::nccl::{self, Record, Records};
use crate::{Options, Reader};

/// NCCL Inspector.
pub struct Inspector;

/// Newest output whose records are known: v4.3.
const NEWEST: u32 = 3;

impl Reader for Inspector {
    fn entry(&self) -> &'static Entry {
        const { &Entry::new("inspector", "NCCL Inspector's JSON lines, of every rank") }
    }

    fn detects(&self, head: &[u8], _name: &str) -> bool {
        memchr::memmem::find(head, b"inspector_output_format_version").is_some()
            || memchr::memmem::find(head, b"\"coll_perf\"").is_some()
    }

    fn read(
        &self,
        inputs: &[Input],
        _options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let mut records = Records::default();
        for (file, input) in (0..).zip(inputs) {
            read_file(file, input, &mut records, coverage)?;
        }
        coverage.note("the Inspector leaves out messages below 8,192 bytes unless `NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES` says otherwise");
        coverage.note("the Inspector keeps the last 1,024 collectives between dumps (`NCCL_INSPECTOR_DUMP_COLL_RING_SIZE`): earlier ones are not here");
        coverage.note("the Inspector records no computation: gaps between collectives are kept where it has event times");
        let mut draft = Draft { source: inputs[0].name.clone(), ..Draft::default() };
        if records.list.is_empty() {
            return Err(ImportError::new(&draft.source, "records of collectives", "none").hint(
                "the Inspector leaves out messages below `NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES` (8,192 if not set), and writes only while \
                 the job runs: set it to 0, and copy the files after a dump",
            ));
        }
        nccl::assemble(&records, inputs, &mut draft, coverage)?;
        Ok(draft)
    }
}

/// Whether an output is of a version whose records are known (`Some(true)`), or of a later one with the same first number.
fn known_version(version: &str) -> Option<bool> {
    let (first, second) = version.strip_prefix('v')?.split_once('.')?;
    (first == "4").then_some(second.parse::<u32>().ok()? <= NEWEST)
}

fn read_file(
    file: u32,
    input: &Input,
    records: &mut Records,
    coverage: &mut Coverage,
) -> Result<(), ImportError> {
    let mut lines = Lines::of(input)?;
    let (mut header, mut metadata) = (Value::Null, Value::Null);
    while let Some((line, text)) = lines.bytes()? {
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let fault = |expected: &str, found: String| {
            ImportError::new(&input.name, expected, found).at(Place::Line(line))
        };
        let value: Value = serde_json::from_slice(text).map_err(|error| {
            fault("a record of the Inspector in JSON", error.to_string())
                .hint("a last line that was being written may be cut: remove it")
        })?;
        if let Some(version) = value["metadata"]["inspector_output_format_version"].as_str() {
            match known_version(version) {
                Some(true) => {}
                Some(false) => coverage.note(format!(
                    "output format {version} is newer than v4.{NEWEST}: what it has beyond that is not read"
                )),
                None => {
                    let expected = format!("output format v4.0 to v4.{NEWEST}");
                    return Err(fault(&expected, format!("`{version}`")).hint(
                        "the format is that of the plugin (`NCCL_PROFILER_PLUGIN`), not of the NCCL that loads it: record with an \
                         Inspector that writes v4 (of NCCL 2.28 and after)",
                    ));
                }
            }
        }
        for (kept, key) in [(&mut header, "header"), (&mut metadata, "metadata")] {
            if !value[key].is_null() {
                *kept = value[key].clone();
            }
        }
        let (perf, prefix) = if value["coll_perf"].is_null() {
            (&value["p2p_perf"], "p2p")
        } else {
            (&value["coll_perf"], "coll")
        };
        if perf.is_null() {
            coverage.count(
                "line without a collective",
                Treatment::Mapped,
                "header, statistics or trace of proxies",
                0,
                0,
            );
            continue;
        }
        let number = |key: &str| perf[format!("{prefix}_{key}")].as_f64();
        let need = |key: &str| {
            number(key)
                .filter(|value| *value >= 0.0)
                .ok_or_else(|| fault(&format!("`{prefix}_{key}`"), "nothing".to_owned()))
        };
        let whole = |value: &Value, key: &str| {
            value[key]
                .as_u64()
                .and_then(|value| u32::try_from(value).ok())
                .ok_or_else(|| fault(&format!("`{key}` in the header"), value[key].to_string()))
        };
        let length = need("exec_time_us")? * 1e3;
        let dumped = metadata["dump_timestamp_us"].as_i64().unwrap_or(0).saturating_mul(1_000);
        let event = &perf["event_trace_ts"];
        let kernels: Vec<&Value> =
            event["kernel_events"].as_array().map(|list| list.iter().collect()).unwrap_or_default();
        let first = kernels.iter().filter_map(|kernel| kernel["kernel_start_ts"].as_i64()).min();
        let last = kernels.iter().filter_map(|kernel| kernel["kernel_stop_ts"].as_i64()).max();
        let span =
            first.zip(last).map(|(first, last)| (first.saturating_mul(1_000), last.saturating_mul(1_000)));
        if header.is_null() {
            return Err(fault(
                "a `header` (communicator and rank) in this line or one before",
                "none".to_owned(),
            )
            .hint("from output v4.1 on the header comes once a dump: give the file from its begin on"));
        }
        let communicator = match header["id"].as_str() {
            Some(id) => records.name(id),
            None => records.name(&header["id"].to_string()),
        };
        let process = metadata["hostname"].as_str().zip(metadata["pid"].as_u64());
        let process = process.map(|(host, number)| records.process(host, number));
        let what = records.name(perf[prefix].as_str().unwrap_or(""));
        let own = need("sn")? as u64;
        records.list.push(Record {
            file,
            process,
            communicator,
            rank: whole(&header, "rank")?,
            ranks: whole(&header, "n_ranks")?,
            what,
            number: Some(own),
            bytes: need("msg_size_bytes")? as u64,
            length: length as u64,
            span,
            peer: number("peer").map(|peer| peer as u32),
            root: None,
            group: None,
            order: (span.map_or(dumped, |span| span.0), own),
            verdict: None,
        });
    }
    Ok(())
}
