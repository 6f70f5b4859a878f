//! Traces of block requests: SPC, MSR, MQSim, CloudPhysics. Each becomes a client that asks a replicated store.
//!
//! | format | a line |
//! |---|---|
//! | SPC | `ASU,LBA,bytes,R or W,seconds` (blocks of 512 bytes) |
//! | MSR | `ticks of 100 ns,host,disk,Read or Write,offset,bytes,response` |
//! | MQSim | `ns device LBA sectors 0 (write) or 1 (read)` |
//! | CloudPhysics | `version,time in s,SCSI operation,bytes,LBA` under a header |
//!
//! Who asks whom is an architecture ([`architecture`]): by default a store of three copies (`data/storage/replicated.yaml`). As many
//! clients as the trace has devices (at most 16) send each request at its instant.

mod architecture;
mod service;

use windtunnel_kernel::registry::Entry;

use crate::coverage::{Coverage, Treatment};
use crate::draft::Draft;
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::{Options, Reader};

/// Block traces.
pub struct Storage;

const CLIENTS: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Request {
    /// In ns.
    at: i64,
    device: u64,
    offset: u64,
    bytes: u64,
    write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Spc,
    Msr,
    MqSim,
    CloudPhysics,
}

impl Form {
    fn of(head: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(&head[..head.len().min(512)]);
        let line = text.lines().next()?.trim();
        if line == "version,time,op,size,lbn" {
            return Some(Self::CloudPhysics);
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

    fn request(self, line: &str) -> Option<Request> {
        let fields: Vec<&str> = match self {
            Self::MqSim => line.split_whitespace().collect(),
            _ => line.split(',').map(str::trim).collect(),
        };
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let blocks = |value: u64| value.checked_mul(512);
        Some(match self {
            Self::Spc => {
                let seconds: f64 =
                    fields.get(4)?.parse().ok().filter(|seconds| (0.0..1e9).contains(seconds))?;
                let write = fields.get(3)?.eq_ignore_ascii_case("w");
                Request {
                    at: (seconds * 1e9).round() as i64,
                    device: number(0)?,
                    offset: blocks(number(1)?)?,
                    bytes: number(2)?,
                    write,
                }
            }
            Self::Msr => {
                let device = number(2)?;
                let write = *fields.get(3)? == "Write";
                Request {
                    at: i64::try_from(number(0)?.checked_mul(100)?).ok()?,
                    device,
                    offset: number(4)?,
                    bytes: number(5)?,
                    write,
                }
            }
            Self::MqSim => Request {
                at: i64::try_from(number(0)?).ok()?,
                device: number(1)?,
                offset: blocks(number(2)?)?,
                bytes: blocks(number(3)?)?,
                write: *fields.get(4)? == "0",
            },
            Self::CloudPhysics => {
                // SCSI: 2a, aa, 8a write; 28, a8, 88 read.
                let write = match *fields.get(2)? {
                    "2a" | "aa" | "8a" | "a" | "0a" => true,
                    "28" | "a8" | "88" | "8" | "08" => false,
                    _ => return None,
                };
                Request {
                    at: i64::try_from(number(1)?.checked_mul(1_000_000_000)?).ok()?,
                    device: 0,
                    offset: blocks(number(4)?)?,
                    bytes: number(3)?,
                    write,
                }
            }
        })
    }
}

impl Reader for Storage {
    fn entry(&self) -> &'static Entry {
        const {
            &Entry::new(
                "storage",
                "block requests (SPC, MSR, MQSim, CloudPhysics), as clients of a storage service",
            )
        }
    }

    fn detects(&self, head: &[u8], _name: &str) -> bool {
        Form::of(head).is_some()
    }

    fn read(
        &self,
        inputs: &[Input],
        options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let source = inputs[0].name.clone();
        let mut requests = Vec::new();
        for input in inputs {
            let bytes = input.whole()?;
            let form = Form::of(&bytes).ok_or_else(|| {
                ImportError::new(&input.name, "a line of SPC, MSR, MQSim or CloudPhysics", "something else")
                    .at(Place::Line(1))
            })?;
            let text = String::from_utf8_lossy(&bytes);
            for (line, text) in (1..).zip(text.lines()) {
                if text.trim().is_empty() || (line == 1 && form == Form::CloudPhysics) {
                    continue;
                }
                let request = form.request(text).ok_or_else(|| {
                    let found: String = text.chars().take(60).collect();
                    let hint = "a last line may be cut: remove it";
                    ImportError::new(
                        &input.name,
                        format!("a request as {form:?} has it"),
                        format!("`{found}`"),
                    )
                    .at(Place::Line(line))
                    .hint(hint)
                })?;
                let kind = if request.write { "write" } else { "read" };
                coverage.count(kind, Treatment::Mapped, "", request.bytes, 0);
                requests.push(request);
            }
        }
        requests.sort_by_key(|request| request.at);
        let mut devices: Vec<u64> = requests.iter().map(|request| request.device).collect();
        devices.sort_unstable();
        devices.dedup();
        let clients = (devices.len() as u64).clamp(1, CLIENTS) as u32;
        let name = options.architecture.as_deref().unwrap_or("replicated");
        let architecture = architecture::Architecture::read(name, clients)?;
        let roles: Vec<String> =
            architecture.roles.iter().map(|role| format!("{} {}", role.ranks, role.name)).collect();
        coverage.note(format!(
            "architecture `{}` with {} copies of each extent: ranks are, in this order, {}",
            architecture.name,
            architecture.copies,
            roles.join(", ")
        ));
        coverage.note("what a disk takes is not in the trace: servers work as long as the architecture says");
        Ok(service::requests(&requests, &devices, &architecture, clients, source))
    }
}
