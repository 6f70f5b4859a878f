//! Payloads of NCCL's NVTX ranges: what a call says of itself.
//!
//! A payload is a C structure. Since NCCL 2.25.1 it begins with the communicator's hash and the bytes, before with the bytes alone; the
//! root, the other rank and the reduction follow. Nsight writes it behind a head of 32 bytes (domain, schema, two lengths), and lists
//! the schemas with names and offsets of their fields; where it does not, the length tells the old structure from the new one.

use std::collections::BTreeMap;

use crate::error::ImportError;
use crate::kineto::Payload;
use crate::sqlite::{Cell, Database};

/// A field of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Communicator,
    Bytes,
    Root,
    Peer,
    Ranks,
    Rank,
}

impl Field {
    /// By the name that NCCL gives it.
    fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        Some(match name.as_str() {
            "nccl communicator id" => Self::Communicator,
            "peer rank" | "peer" => Self::Peer,
            "root" => Self::Root,
            "no. of ranks" => Self::Ranks,
            "rank" => Self::Rank,
            _ if name.contains("bytes") || name.contains("message size") => Self::Bytes,
            _ => return None,
        })
    }

    fn wide(self) -> bool {
        matches!(self, Self::Communicator | Self::Bytes)
    }
}

type Layout = Vec<(Field, usize)>;

/// The schemas of an export, by domain and number.
#[derive(Debug, Default)]
pub(super) struct Schemas(BTreeMap<(i64, i64), Layout>);

/// What a range says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Call(Payload),
    /// A communicator is made, with so many ranks, of which this one has a place.
    Made {
        communicator: u64,
        ranks: u32,
        place: u32,
    },
}

impl Schemas {
    pub(super) fn read(database: &Database<'_>) -> Result<Self, ImportError> {
        let mut schemas = Self::default();
        let columns = ["domainId", "schemaId", "name", "offset"];
        database.rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", &columns, |row| {
            let (Some(schema), Some(name)) = (row[1].int(), row[2].text()) else { return };
            let Some(field) = Field::named(name) else { return };
            // The first field's offset is left out.
            let offset = row[3].int().and_then(|offset| usize::try_from(offset).ok()).unwrap_or(0);
            schemas.0.entry((row[0].int().unwrap_or(0), schema)).or_default().push((field, offset));
        })?;
        Ok(schemas)
    }

    /// What the payload of `nccl` + `call` says; `None` where it is none that is known.
    pub(super) fn decode(&self, cell: &Cell, domain: Option<i64>, call: &str) -> Option<Said> {
        let Cell::Blob(blob) = cell else { return None };
        let head = Head::of(blob);
        let body = if head.is_some() { &blob[HEAD..] } else { blob };
        let (domain, schema) = match head {
            Some(head) => (head.domain, head.schema),
            None => (domain.unwrap_or(0), STATIC + number(call)?),
        };
        let known = self.0.get(&(domain, schema));
        let layout = known.filter(|layout| layout.iter().all(|&(field, at)| get(body, field, at).is_some()));
        let fallback;
        let layout = match layout {
            Some(layout) => layout,
            None => {
                fallback = by_length(call, body.len())?;
                &fallback
            }
        };
        let field = |wanted: Field| {
            layout.iter().find(|(field, _)| *field == wanted).and_then(|&(field, at)| get(body, field, at))
        };
        let small = |wanted: Field| field(wanted).and_then(|value| u32::try_from(value).ok());
        // A call without a communicator writes 0.
        let communicator = field(Field::Communicator).filter(|&hash| hash != 0);
        if let (Some(ranks), Some(place)) = (small(Field::Ranks), small(Field::Rank)) {
            return Some(Said::Made { communicator: communicator?, ranks, place });
        }
        let (root, peer) = (small(Field::Root), small(Field::Peer));
        Some(Said::Call(Payload { communicator, bytes: field(Field::Bytes)?, root, peer }))
    }
}

const HEAD: usize = 32;
/// Numbers of schemas that a library gives itself begin here.
const STATIC: i64 = 1 << 24;

struct Head {
    domain: i64,
    schema: i64,
}

impl Head {
    /// The head that Nsight writes, if the lengths in it fit.
    fn of(blob: &[u8]) -> Option<Self> {
        let long = |at: usize| get(blob, Field::Bytes, at);
        let length = blob.len() as u64;
        if long(24)? != length || long(16)?.checked_add(HEAD as u64)? != length {
            return None;
        }
        let short = |at: usize| get(blob, Field::Root, at).map(|value| value as i64);
        Some(Self { domain: short(0)?, schema: short(8)? })
    }
}

/// A field of a payload; one of four bytes below 0 is as large as no rank is.
fn get(body: &[u8], field: Field, at: usize) -> Option<u64> {
    if field.wide() {
        let part = body.get(at..at.checked_add(8)?)?;
        return Some(u64::from_le_bytes(part.try_into().expect("eight bytes")));
    }
    let part = body.get(at..at.checked_add(4)?)?;
    Some(u64::from(u32::from_le_bytes(part.try_into().expect("four bytes"))))
}

/// NCCL's own number of a call's schema.
fn number(call: &str) -> Option<i64> {
    let calls = [
        "CommInitRank",
        "CommInitAll",
        "CommDestroy",
        "CommAbort",
        "AllGather",
        "AllReduce",
        "Broadcast",
        "ReduceScatter",
        "Reduce",
        "Send",
        "Recv",
        "CommInitRankConfig",
        "CommInitRankScalable",
    ];
    let later = [(16, "AlltoAll"), (17, "Gather"), (18, "Scatter")];
    let known = calls.iter().position(|known| *known == call).map(|at| at as i64);
    known.or_else(|| later.iter().find(|(_, known)| *known == call).map(|(at, _)| *at))
}

/// The structure of a call by its length: the old one is eight bytes shorter.
fn by_length(call: &str, length: usize) -> Option<Layout> {
    use Field::{Bytes, Communicator, Peer, Rank, Ranks, Root};
    let third = match call {
        "AllGather" | "AlltoAll" => None,
        "AllReduce" | "ReduceScatter" => Some(None),
        "Broadcast" | "Reduce" | "Gather" | "Scatter" => Some(Some(Root)),
        "Send" | "Recv" => Some(Some(Peer)),
        "CommInitRank" | "CommInitRankConfig" | "CommInitRankScalable" if length >= 20 => {
            return Some(vec![(Communicator, 0), (Ranks, 8), (Rank, 12)]);
        }
        _ => return None,
    };
    let new = if third.is_some() { 24 } else { 16 };
    let first = if length >= new { vec![(Communicator, 0), (Bytes, 8)] } else { vec![(Bytes, 0)] };
    let behind = first.len() * 8;
    if length < behind {
        return None;
    }
    let third = third.flatten().filter(|_| length >= behind + 4).map(|field| (field, behind));
    Some(first.into_iter().chain(third).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(numbers: &[u64], short: &[i32]) -> Vec<u8> {
        let long = numbers.iter().flat_map(|number| number.to_le_bytes());
        long.chain(short.iter().flat_map(|number| number.to_le_bytes())).collect()
    }

    fn said(schemas: &Schemas, blob: Vec<u8>, call: &str) -> Option<Said> {
        schemas.decode(&Cell::Blob(blob), Some(1), call)
    }

    fn payload(communicator: Option<u64>, bytes: u64, root: Option<u32>, peer: Option<u32>) -> Said {
        Said::Call(Payload { communicator, bytes, root, peer })
    }

    #[test]
    fn the_length_tells_payloads_before_2_25_1_from_later_ones() {
        let none = Schemas::default();
        // The reduction behind the bytes is no size.
        assert_eq!(
            said(&none, bytes(&[4_096], &[3, 0]), "AllReduce"),
            Some(payload(None, 4_096, None, None))
        );
        assert_eq!(
            said(&none, bytes(&[77, 4_096], &[3, 0]), "AllReduce"),
            Some(payload(Some(77), 4_096, None, None))
        );
        assert_eq!(said(&none, bytes(&[10], &[]), "AllGather"), Some(payload(None, 10, None, None)));
        assert_eq!(said(&none, bytes(&[77, 10], &[]), "AllGather"), Some(payload(Some(77), 10, None, None)));
        assert_eq!(said(&none, bytes(&[50], &[1, 0]), "Broadcast"), Some(payload(None, 50, Some(1), None)));
        assert_eq!(
            said(&none, bytes(&[77, 50], &[1, 0]), "Reduce"),
            Some(payload(Some(77), 50, Some(1), None))
        );
        assert_eq!(said(&none, bytes(&[77, 9], &[2, 0]), "Send"), Some(payload(Some(77), 9, None, Some(2))));
        assert_eq!(said(&none, bytes(&[9], &[2, 0]), "Recv"), Some(payload(None, 9, None, Some(2))));
        assert_eq!(said(&none, vec![1, 2], "AllReduce"), None);
        assert_eq!(said(&none, bytes(&[1, 2, 3], &[]), "GroupStart"), None);
        let made = Said::Made { communicator: 77, ranks: 4, place: 2 };
        assert_eq!(said(&none, bytes(&[77], &[4, 2, 0]), "CommInitRank"), Some(made));
    }

    #[test]
    fn a_schema_of_the_export_and_nsights_head_decide_before_the_length() {
        let mut schemas = Schemas::default();
        // A structure of 24 bytes with the bytes first, as no NCCL has it.
        schemas.0.insert((1, STATIC + 5), vec![(Field::Bytes, 0), (Field::Communicator, 8)]);
        let body = bytes(&[4_096, 77], &[0, 0]);
        assert_eq!(said(&schemas, body.clone(), "AllReduce"), Some(payload(Some(77), 4_096, None, None)));
        let mut blob = bytes(&[], &[1, 0, (STATIC + 5) as i32, 0]);
        blob.extend(bytes(&[body.len() as u64, 32 + body.len() as u64], &[]));
        blob.extend(body);
        assert_eq!(said(&schemas, blob, "AllReduce"), Some(payload(Some(77), 4_096, None, None)));
    }
}
