//! The bytes of a DUMPI trace: sections, calls, arguments.

use crate::bytes::Bytes;
use crate::error::ImportError;

/// How a trace begins.
pub(super) const MAGIC: [u8; 8] = [0xff, 0xaa, 0xdd, b'D', b'U', b'M', b'P', b'I'];
/// Function numbers and arguments: `i` int, `d` type, `c` communicator, `g` group, `o` operation, `r` request, `I`, `R`,
/// `D` arrays of those, `s` statuses, `a` texts by count, `x` 8 bits, `?` the rest if the first argument is the root's rank.
const FUNCTIONS: [(u16, &str); 72] = [
    (0, "idiic"),
    (1, "idiics"),
    (2, "sdi"),
    (3, "idiic"),
    (4, "idiic"),
    (5, "idiic"),
    (6, "i"),
    (7, "i"),
    (8, "idiicr"),
    (9, "idiicr"),
    (10, "idiicr"),
    (11, "idiicr"),
    (12, "idiicr"),
    (13, "rs"),
    (14, "ris"),
    (15, "r"),
    (16, "iRis"),
    (17, "iRiis"),
    (18, "iRs"),
    (19, "iRis"),
    (20, "iRiIs"),
    (21, "iRiIs"),
    (22, "iicis"),
    (23, "iics"),
    (24, "r"),
    (25, "si"),
    (26, "idiicr"),
    (27, "idiicr"),
    (28, "idiicr"),
    (29, "idiicr"),
    (30, "idiicr"),
    (31, "r"),
    (32, "iR"),
    (33, "idiiidiics"),
    (35, "idd"),
    (36, "iiidd"),
    (43, "di"),
    (46, "d"),
    (47, "d"),
    (52, "c"),
    (53, "idic"),
    (54, "iidic?id"),
    (55, "iiidic?II!d"),
    (56, "iidic?id"),
    (57, "iididic?II"),
    (58, "ididc"),
    (59, "iidIIdc"),
    (60, "ididc"),
    (61, "iIIdIIdc"),
    (62, "idoic"),
    (63, "io"),
    (64, "o"),
    (65, "idoc"),
    (66, "iIdoc"),
    (67, "idoc"),
    (68, "gi"),
    (69, "gi"),
    (70, "giIgI"),
    (71, "ggx"),
    (72, "cg"),
    (76, "giIg"),
    (77, "giIg"),
    (80, "g"),
    (81, "ci"),
    (82, "ci"),
    (83, "ccx"),
    (84, "cc"),
    (85, "cgc"),
    (86, "ciic"),
    (87, "c"),
    (124, "ia"),
    (125, ""),
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
        let Some(&(_, arguments)) = FUNCTIONS.iter().find(|(number, _)| *number == function) else {
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
