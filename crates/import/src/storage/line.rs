//! A line of a block trace: a request, or what stands beside requests.

use rustc_hash::FxHashMap;

use super::Request;

/// Header of CloudPhysics, and how those of MSR begin.
const CLOUD_PHYSICS: &str = "version,time,op,size,lbn";
const MSR: &str = "timestamp,hostname,";

/// How much of a file says its form.
pub(super) const HEAD: usize = 1 << 13;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    Spc,
    Msr,
    MqSim,
    CloudPhysics,
}

/// What a line is.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    Request(Request),
    /// A comment, a header, or nothing.
    Beside,
    /// A whole line of an operation that neither reads nor writes.
    Other,
    Damaged,
}

/// What is known of the lines before.
#[derive(Default)]
pub(super) struct State {
    /// The first tick of MSR: a FILETIME counts from 1601, which in ns is beyond 64 bits.
    origin: Option<u64>,
    /// Devices of MSR by host and number: `hm,1` and `usr,1` are two.
    devices: FxHashMap<(String, u64), u64>,
}

fn is_header(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    line == CLOUD_PHYSICS || line.starts_with(MSR)
}

fn is_comment(line: &str) -> bool {
    line.is_empty() || line.starts_with('#')
}

impl Form {
    /// The form that the first line says which is no comment.
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(&head[..head.len().min(HEAD)]);
        let line = text.lines().map(str::trim).find(|line| !is_comment(line))?;
        if is_header(line) {
            let msr = line.to_ascii_lowercase().starts_with(MSR);
            return Some(if msr { Self::Msr } else { Self::CloudPhysics });
        }
        let commas: Vec<&str> = line.split(',').map(str::trim).collect();
        let spaces: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| text.parse::<u64>().is_ok();
        match (&commas[..], &spaces[..]) {
            ([asu, lba, bytes, op, time, ..], _)
                if number(asu)
                    && number(lba)
                    && number(bytes)
                    && matches!(*op, "R" | "W" | "r" | "w")
                    && time.parse::<f64>().is_ok() =>
            {
                Some(Self::Spc)
            }
            ([time, _, _, "Read" | "Write", offset, bytes, ..], _)
                if number(time) && number(offset) && number(bytes) =>
            {
                Some(Self::Msr)
            }
            (_, [time, device, lba, sectors, "0" | "1"])
                if [time, device, lba, sectors].iter().all(|text| number(text)) =>
            {
                Some(Self::MqSim)
            }
            _ => None,
        }
    }

    pub(super) fn line(self, line: &str, state: &mut State) -> Line {
        let line = line.trim();
        if is_comment(line) || is_header(line) {
            return Line::Beside;
        }
        let fields: Vec<&str> = match self {
            Self::MqSim => line.split_whitespace().collect(),
            _ => line.split(',').map(str::trim).collect(),
        };
        let Some(write) = self.writes(&fields) else {
            return if self.is_whole(&fields) { Line::Other } else { Line::Damaged };
        };
        self.request(&fields, write, state).map_or(Line::Damaged, Line::Request)
    }

    /// Whether it writes or reads; `None`: neither.
    fn writes(self, fields: &[&str]) -> Option<bool> {
        let op = match self {
            Self::Spc | Self::Msr => fields.get(3)?,
            Self::MqSim => fields.get(4)?,
            Self::CloudPhysics => fields.get(2)?,
        };
        match (self, op.to_ascii_lowercase().trim_start_matches('0')) {
            // SCSI (CloudPhysics): writes of 6, 10, 12 and 16 bytes, and reads.
            (Self::Spc, "w")
            | (Self::Msr, "write")
            | (Self::MqSim, "")
            | (Self::CloudPhysics, "a" | "2a" | "aa" | "8a") => Some(true),
            (Self::Spc, "r")
            | (Self::Msr, "read")
            | (Self::MqSim, "1")
            | (Self::CloudPhysics, "8" | "28" | "a8" | "88") => Some(false),
            _ => None,
        }
    }

    /// Whether an operation that is no request is written as one would be, so that the line is not cut.
    fn is_whole(self, fields: &[&str]) -> bool {
        let number = |at: &usize| fields.get(*at).is_some_and(|text| text.parse::<u64>().is_ok());
        let (numbers, op): (&[usize], usize) = match self {
            Self::Spc => (&[0, 1, 2], 3),
            Self::Msr => (&[0, 2, 4, 5], 3),
            Self::MqSim => (&[0, 1, 2, 3], 4),
            Self::CloudPhysics => (&[1, 3, 4], 2),
        };
        numbers.iter().all(number) && fields.get(op).is_some_and(|op| !op.is_empty())
    }

    fn request(self, fields: &[&str], write: bool, state: &mut State) -> Option<Request> {
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let blocks = |value: u64| value.checked_mul(512);
        Some(match self {
            Self::Spc => {
                let seconds: f64 =
                    fields.get(4)?.parse().ok().filter(|seconds| (0.0..1e9).contains(seconds))?;
                Request {
                    at: (seconds * 1e9).round() as i64,
                    device: number(0)?,
                    offset: blocks(number(1)?)?,
                    bytes: number(2)?,
                    write,
                }
            }
            Self::Msr => {
                let (ticks, disk) = (number(0)?, number(2)?);
                let (offset, bytes) = (number(4)?, number(5)?);
                let since = i128::from(ticks) - i128::from(*state.origin.get_or_insert(ticks));
                let next = state.devices.len() as u64;
                let device = *state.devices.entry(((*fields.get(1)?).to_owned(), disk)).or_insert(next);
                Request { at: i64::try_from(since * 100).ok()?, device, offset, bytes, write }
            }
            Self::MqSim => Request {
                at: i64::try_from(number(0)?).ok()?,
                device: number(1)?,
                offset: blocks(number(2)?)?,
                bytes: blocks(number(3)?)?,
                write,
            },
            Self::CloudPhysics => Request {
                at: i64::try_from(number(1)?.checked_mul(1_000_000_000)?).ok()?,
                device: 0,
                offset: blocks(number(4)?)?,
                bytes: number(3)?,
                write,
            },
        })
    }
}
