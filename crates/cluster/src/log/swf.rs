//! The Standard Workload Format, whose rows are no table.

use std::io::BufRead;

use super::error::LogError;
use super::facts::Said;
use super::row::{CALENDAR, Fault, Found, Read, Row, Take, What, found, zeros};
use super::time::seconds;

/// The Standard Workload Format: 18 fields separated by blanks, comments behind `;`, -1 for what is not known. A processor
/// stands for a GPU. Archives append fields of their own (Alea the memory, the hosts, the deadline): they are not read.
pub(super) fn swf(mut input: impl BufRead, file: &str, take: &mut Take<'_>) -> Result<(), LogError> {
    let mut bytes = Vec::new();
    let mut epoch = None;
    for line in 1.. {
        bytes.clear();
        let read = input.read_until(b'\n', &mut bytes);
        if read.map_err(|error| LogError::File { file: file.to_owned(), error })? == 0 {
            break;
        }
        // Comments of old logs are in any encoding.
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_start_matches('\u{feff}');
        if let Some(start) = text.trim_start_matches([';', ' ']).strip_prefix("UnixStartTime:") {
            epoch = seconds(start.trim()).filter(|&start| start >= CALENDAR);
        }
        let text = text.split(';').next().unwrap_or_default().trim();
        if text.contains('\0') {
            take(line, Err(zeros()), Said::default())?;
        } else if !text.is_empty() {
            let fields: Vec<&str> = text.split_ascii_whitespace().collect();
            let known = |index: usize| fields.get(index).copied().filter(|text| !text.starts_with('-'));
            let said = Said {
                user: known(11),
                account: known(12),
                queue: known(14),
                partition: known(15),
                state: known(10).and_then(swf_status),
            };
            take(line, swf_row(&fields, epoch), said)?;
        }
    }
    Ok(())
}

/// Field 11 in words.
fn swf_status(code: &str) -> Option<&'static str> {
    Some(match code {
        "0" => "FAILED",
        "1" => "COMPLETED",
        "2" | "3" => "PARTIAL",
        "4" => "PARTIAL_FAILED",
        "5" => "CANCELLED",
        _ => return None,
    })
}

fn swf_row(fields: &[&str], epoch: Option<i64>) -> Read {
    const FIELDS: usize = 18;
    if fields.len() < FIELDS {
        return Err(Fault::of("18", What::Fields { found: fields.len() }));
    }
    let read = |index: usize, name: &str| -> Result<Option<u64>, Fault> {
        let no = || What::NoValue { expected: "a number", found: fields[index].to_owned() };
        let value = seconds(fields[index]).ok_or_else(|| Fault::of(name, no()))?;
        Ok(u64::try_from(value).ok())
    };
    let known = |index: usize, name: &str| read(index, name)?.ok_or_else(|| Fault::of(name, What::Missing));
    let submit = known(1, "submit time")?;
    // Cancelled as it waited, or its log does not know: -1 is a value of the format and no hole.
    let Some(duration) = read(3, "run time")? else { return Ok(Row::NeverRan) };
    if duration == 0 && fields[10] == "5" {
        return Ok(Row::NeverRan);
    }
    let processors = match read(4, "allocated processors")? {
        Some(allocated) => allocated,
        None => known(7, "requested processors")?,
    };
    let gpus = u32::try_from(processors / 1_000_000_000)
        .map_err(|_| Fault::of("", What::Text(format!("{} processors are too many", fields[4]))))?;
    let submit = i64::try_from(submit).map_err(|_| Fault::of("submit time", What::Missing))?;
    let estimate = read(8, "requested time")?.filter(|&ns| ns > 0);
    let appended = fields.len() > FIELDS;
    Ok(Row::Job(Found { estimate, appended, epoch, ..found(submit, duration, gpus) }))
}
