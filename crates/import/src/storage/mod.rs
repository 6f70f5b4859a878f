//! Traces of block requests: SPC, MSR, MQSim, CloudPhysics. Each becomes a client that asks a replicated store.
//!
//! | format | a line |
//! |---|---|
//! | SPC | `ASU,LBA,bytes,R or W,seconds` (blocks of 512 bytes) |
//! | MSR | `ticks of 100 ns,host,disk,Read or Write,offset,bytes,response` |
//! | MQSim | `ns device LBA sectors 0 (write) or 1 (read)` |
//! | CloudPhysics | `version,time in s,SCSI operation,bytes,LBA` under a header |
//!
//! Comments (`#`) and a header of MSR stand beside requests. Operations that neither read nor write are dropped and counted.
//!
//! Who asks whom is an architecture ([`architecture`]): by default a store of three copies (`data/storage/replicated.yaml`). As many
//! clients as the trace has devices (at most 16) send each request at its instant.

mod architecture;
mod line;
mod service;

use windtunnel_kernel::registry::Entry;

use crate::coverage::{Coverage, Treatment};
use crate::draft::Draft;
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::lines::Lines;
use crate::{Options, Reader};
use line::{Form, Line, State};

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
        let mut state = State::default();
        for input in inputs {
            read_file(input, &mut state, &mut requests, coverage)?;
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

/// The requests of a file.
fn read_file(
    input: &Input,
    state: &mut State,
    requests: &mut Vec<Request>,
    coverage: &mut Coverage,
) -> Result<(), ImportError> {
    let fault = |expected: String, line: u64, text: &str| {
        let found: String = text.chars().take(60).collect();
        ImportError::new(&input.name, expected, format!("`{found}`")).at(Place::Line(line))
    };
    let mut lines = Lines::of(input)?;
    let Some(form) = Form::of(&input.head(line::HEAD)?) else {
        let mut first = (1, String::new());
        while let Some((line, text)) = lines.text()? {
            if !text.trim().is_empty() {
                first = (line, text.into_owned());
                break;
            }
        }
        let expected = "a request of SPC, MSR, MQSim or CloudPhysics below comments or a header";
        return Err(fault(expected.to_owned(), first.0, &first.1).hint(
            "`ASU,LBA,bytes,R or W,seconds` (SPC) is the form that other traces are easily brought to",
        ));
    };
    let (before, mut others) = (requests.len(), 0usize);
    let mut first: Option<(u64, String)> = None;
    while let Some((line, text)) = lines.text()? {
        match form.line(&text, state) {
            Line::Request(request) => {
                let kind = if request.write { "write" } else { "read" };
                coverage.count(kind, Treatment::Mapped, "", request.bytes, 0);
                requests.push(request);
            }
            Line::Beside if text.trim().is_empty() => {}
            Line::Beside => {
                coverage.count("comment or header", Treatment::Mapped, "about the trace, not of it", 0, 0);
            }
            Line::Other => {
                first.get_or_insert_with(|| (line, text.into_owned()));
                others += 1;
                let why = "neither reads nor writes: no data is moved";
                coverage.count("other operation", Treatment::Dropped, why, 0, 0);
            }
            Line::Damaged => {
                return Err(fault(format!("a request as {form:?} has it"), line, &text)
                    .hint("a last line may be cut: remove it"));
            }
        }
    }
    if let Some((line, text)) = first.filter(|_| others > requests.len() - before) {
        let expected = format!("reads and writes in most lines of a trace of {form:?}");
        return Err(fault(expected, line, &text)
            .hint(format!("{others} lines are of other operations: take those out that move no data")));
    }
    Ok(())
}
