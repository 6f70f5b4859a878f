//! The bytes of a DUMPI trace: sections, calls, arguments.

use crate::bytes::Bytes;
use crate::error::ImportError;

/// How a trace begins.
pub(super) const MAGIC: [u8; 8] = [0xff, 0xaa, 0xdd, b'D', b'U', b'M', b'P', b'I'];
/// Arguments of the functions of MPI-1, by number in the order of its index (0 `MPI_Send` … 127 `MPI_Abort`): `i` int, `d` type, `c`
/// communicator, `g` group (and other names of 16 bits), `o`, `x` 8 bits, `r` request, `I`, `R`, `D` arrays of those, `J` an array of
/// arrays, `s` statuses, `t` a text, `a` texts by count, `?` the rest only where the first argument is the root's rank, `!` always again.
#[rustfmt::skip]
const FUNCTIONS: [&str; 128] = [
    "idiic", "idiics", "sdi", "idiic", "idiic", "idiic", "i", "i", "idiicr", "idiicr", "idiicr", "idiicr", "idiicr",
    "rs", "ris", "r", "iRis", "iRiis", "iRs", "iRis", "iRiIs", "iRiIs", "iicis", "iics", "r", "si", "idiicr",
    "idiicr", "idiicr", "idiicr", "idiicr", "r", "iR", "idiiidiics", "idiiiics", "idd", "iiidd", "iiidd", "iIIdd",
    "iIIdd", "iIIDd", "i", "di", "di", "di", "di", "d", "d", "sdi", "idiiic", "iiiidc", "idci", "c", "idic",
    "iidic?id", "iiidic?II!d", "iidic?id", "iididic?II", "ididc", "iidIIdc", "ididc", "iIIdIIdc", "idoic", "io",
    "o", "idoc", "iIdoc", "idoc", "gi", "gi", "giIgI", "ggx", "cg", "ggg", "ggg", "ggg", "giIg", "giIg", "giJg",
    "giJg", "g", "ci", "ci", "ccx", "cc", "cgc", "ciic", "c", "ci", "ci", "cg", "ciciic", "cic", "g", "g", "ci",
    "cii", "ci", "cx", "ciIIic", "iiII", "iciIIic", "cii", "iiciiII", "ci", "iciIII", "icIi", "iciiI", "cii",
    "iciiI", "ciiii", "icIc", "ciIIi", "iciIIi", "ti", "ii", "g", "cg", "cg", "g", "iti", "ii", "", "", "ia", "",
    "i", "ci",
];

/// Arguments of a call.
#[derive(Default)]
pub(super) struct Call {
    pub function: u16,
    pub start: i64,
    pub end: i64,
    pub numbers: Vec<i64>,
    pub arrays: Vec<Vec<i64>>,
}

/// Goes through the calls of a file.
pub(super) fn each(file: &str, all: &[u8], mut visit: impl FnMut(&Call)) -> Result<(), ImportError> {
    let mut bytes = Bytes::new(file, all);
    if bytes.take(8)? != MAGIC {
        return Err(bytes.fault("the magic `ff aa dd DUMPI`", "something else"));
    }
    // Offsets of keyval, footer, body and header, from the end.
    let length = all.len() as u64;
    let offset = |from_end: u64| -> Result<u64, ImportError> {
        let mut tail = Bytes::new(file, all);
        tail.seek(
            length
                .checked_sub(from_end)
                .ok_or_else(|| ImportError::cut(file, length, "the index of sections"))?,
        )?;
        tail.u64_be()
    };
    let (body, header) = (offset(24)?, offset(32)?);
    if header > length || body < 8 || body >= header {
        return Err(ImportError::cut(file, length, "an index of sections at the end"));
    }
    bytes.seek(header)?;
    let version = bytes.array::<3>()?;
    bytes.seek(body)?;
    bytes.take(8)?;
    while bytes.place() + 2 < header {
        let function = bytes.u16_be()?;
        let Some(&arguments) = FUNCTIONS.get(usize::from(function)) else {
            if bytes.place() + 8 >= header {
                break;
            }
            let found = format!("function {function}, whose arguments are not known here");
            return Err(bytes
                .fault("a call of MPI that is modelled", found)
                .hint("calls carry no length: what follows cannot be read"));
        };
        let call = call(&mut bytes, function, arguments, version)?;
        visit(&call);
    }
    Ok(())
}

fn call(
    bytes: &mut Bytes<'_>,
    function: u16,
    arguments: &str,
    version: [u8; 3],
) -> Result<Call, ImportError> {
    let mut call = Call { function, ..Call::default() };
    let mask = bytes.u8()?;
    if mask & 0x40 != 0 {
        bytes.u16_be()?;
    }
    // The wall clock is the last that was stored.
    for bit in [4, 8] {
        if mask & bit != 0 {
            let mut time = || -> Result<i64, ImportError> {
                let seconds = i64::from(bytes.u16_be()?);
                Ok(seconds * 1_000_000_000 + i64::from(bytes.u32_be()?))
            };
            (call.start, call.end) = (time()?, time()?);
        }
    }
    if mask & 0x80 != 0 {
        let counters = u64::from(bytes.u8()?);
        bytes.take(counters * 16)?;
    }
    let mut skip = false;
    for kind in arguments.chars() {
        if skip && kind != '!' {
            continue;
        }
        match kind {
            'i' | 'r' => call.numbers.push(i64::from(bytes.u32_be()? as i32)),
            'd' | 'c' | 'g' => call.numbers.push(i64::from(bytes.u16_be()?)),
            'o' | 'x' => call.numbers.push(i64::from(bytes.u8()?)),
            'I' | 'R' => {
                let length = u64::from(bytes.u32_be()?);
                let part = bytes.take(length.saturating_mul(4))?;
                let number =
                    |part: &[u8]| i64::from(i32::from_be_bytes([part[0], part[1], part[2], part[3]]));
                call.arrays.push(part.chunks_exact(4).map(number).collect());
            }
            's' if mask & 3 != 0 => {
                let length = u64::from(bytes.u32_be()?);
                let size = if version >= [0, 6, 3] { 14 } else { 10 };
                bytes.take(length.saturating_mul(size))?;
            }
            'D' => {
                let length = u64::from(bytes.u32_be()?);
                let part = bytes.take(length.saturating_mul(2))?;
                let number = |part: &[u8]| i64::from(u16::from_be_bytes([part[0], part[1]]));
                call.arrays.push(part.chunks_exact(2).map(number).collect());
            }
            'J' => {
                for _ in 0..bytes.u32_be()? {
                    let length = u64::from(bytes.u32_be()?);
                    bytes.take(length.saturating_mul(4))?;
                }
            }
            't' => {
                let length = u64::from(bytes.u32_be()?);
                bytes.take(length)?;
            }
            'a' => {
                let count = call.numbers.last().copied().unwrap_or(0).max(0);
                for _ in 0..count {
                    let length = u64::from(bytes.u32_be()?);
                    bytes.take(length)?;
                }
            }
            // The root has more: its rank is the first argument, the root stands before the communicator.
            '?' => skip = call.numbers.len() < 2 || call.numbers[0] != call.numbers[call.numbers.len() - 2],
            '!' => skip = false,
            _ => {}
        }
    }
    Ok(call)
}
