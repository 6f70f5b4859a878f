//! What NCCL itself says of its calls in Nsight's recordings: payloads of ranges, alone or in a group that launches at its end.

use windtunnel_workload::Dimension;
use windtunnel_workload::collectives::CollectiveKind;

use super::communication::{Caller, Found, Message, kind_of, rooted};
use super::trace::{Payload, Trace};
use crate::coverage::Treatment;
use crate::draft::{Call, Draft};

/// What a kernel is, how it is counted, and why; or why its recorded time stays.
type Answer = Result<(Found, Treatment, &'static str), &'static str>;

/// Members of a communicator.
struct Members {
    name: String,
    ranks: Vec<u32>,
    /// What is to be said of them, where they are a guess.
    guess: &'static str,
}

impl Caller<'_> {
    /// The call of range `annotation`, which launched a kernel.
    pub(super) fn by_payload(
        &self,
        trace: &Trace,
        annotation: u32,
        nanoseconds: u64,
        draft: &mut Draft,
    ) -> Answer {
        const NONE: &str =
            "its range has no payload: its recorded time stays; export with `--include-blobs=true`";
        let calls = if call_of(trace, annotation) == "GroupEnd" {
            self.grouped(trace, annotation)
        } else {
            vec![annotation]
        };
        let said: Option<Vec<(&str, Payload)>> = calls
            .iter()
            .map(|&call| Some((call_of(trace, call), trace.annotations[call as usize].payload?)))
            .collect();
        match said.ok_or(NONE)?.as_slice() {
            [] => Err(NONE),
            [(call, said)] => self.single(trace, call, *said, nanoseconds, draft),
            several => self.exchange(trace, several, nanoseconds, draft),
        }
    }

    /// The calls of the group that ends with range `end`: those of its thread since the group's start.
    fn grouped(&self, trace: &Trace, end: u32) -> Vec<u32> {
        let thread = trace.annotations[end as usize].thread;
        let Some(list) = self.by_thread.get(&thread) else { return Vec::new() };
        let mut calls = Vec::new();
        let mut depth = 1;
        for &at in list[..list.partition_point(|&at| at < end)].iter().rev() {
            match call_of(trace, at) {
                "GroupEnd" => depth += 1,
                "GroupStart" => depth -= 1,
                call if call == "Send" || call == "Recv" || kind_of(call).is_some() => calls.push(at),
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        calls.reverse();
        calls
    }

    fn of(&self, trace: &Trace, communicator: Option<u64>) -> Result<Members, &'static str> {
        let Some(hash) = communicator else {
            let guess = "before NCCL 2.25.1 calls name no communicator: taken for the world";
            return Ok(Members { name: "world".to_owned(), ranks: (0..self.world).collect(), guess });
        };
        let ranks = trace.communicators.get(&hash).filter(|ranks| ranks.contains(&self.rank));
        let ranks =
            ranks.ok_or("its communicator's members are not all recorded: its recorded time stays")?;
        Ok(Members { name: format!("{hash:#x}"), ranks: ranks.clone(), guess: "" })
    }

    fn single(
        &self,
        trace: &Trace,
        call: &str,
        said: Payload,
        nanoseconds: u64,
        draft: &mut Draft,
    ) -> Answer {
        let members = self.of(trace, said.communicator)?;
        if let "Send" | "Recv" = call {
            let peer = said.peer.and_then(|place| members.ranks.get(place as usize).copied());
            let peer = peer
                .filter(|&peer| peer != self.rank)
                .ok_or("its other rank is not recorded: its recorded time stays")?;
            let call = if call == "Send" { Message::Send(peer, said.bytes) } else { Message::Receive(peer) };
            let found = Found { call, dimension: Dimension::Other };
            return Ok((found, verdict(members.guess), members.guess));
        }
        let kind = kind_of(call).ok_or("a call that is not modelled: its recorded time stays")?;
        let n = members.ranks.len() as u64;
        let (kind, no_root) = rooted(kind, said.root.filter(|&root| u64::from(root) < n));
        // NCCL counts one member's part of a gather, a scattered sum and an exchange.
        let bytes = match kind {
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => {
                said.bytes.saturating_mul(n)
            }
            _ => said.bytes,
        };
        let why = if members.guess.is_empty() { no_root } else { members.guess };
        Ok((collective(&members, kind, bytes, None, nanoseconds, draft), verdict(why), why))
    }

    /// Messages to and from all members of one communicator are an exchange, as PyTorch's all-to-all makes it.
    fn exchange(
        &self,
        trace: &Trace,
        calls: &[(&str, Payload)],
        nanoseconds: u64,
        draft: &mut Draft,
    ) -> Answer {
        const SEVERAL: &str = "launched with other calls by a group: its recorded time stays";
        let communicator = calls[0].1.communicator;
        let members = self.of(trace, communicator)?;
        let n = members.ranks.len();
        let (mut sent, mut received) = (vec![None; n], vec![None; n]);
        for (call, said) in calls {
            let row = match *call {
                "Send" => &mut sent,
                "Recv" => &mut received,
                _ => return Err(SEVERAL),
            };
            let place = said.peer.filter(|_| said.communicator == communicator).ok_or(SEVERAL)?;
            let part = row.get_mut(place as usize).filter(|part| part.is_none()).ok_or(SEVERAL)?;
            *part = Some(said.bytes);
        }
        let splits: Option<Vec<u64>> = sent.into_iter().collect();
        let splits = splits.filter(|_| received.iter().all(Option::is_some)).ok_or(SEVERAL)?;
        let bytes = splits.iter().fold(0u64, |sum, part| sum.saturating_add(*part));
        let found = collective(&members, CollectiveKind::AllToAll, bytes, Some(splits), nanoseconds, draft);
        Ok((found, verdict(members.guess), members.guess))
    }
}

fn collective(
    members: &Members,
    kind: CollectiveKind,
    bytes: u64,
    splits: Option<Vec<u64>>,
    nanoseconds: u64,
    draft: &mut Draft,
) -> Found {
    let dimension = Dimension::Other;
    let group = draft.group(&members.name, &members.ranks, dimension);
    let call = Call { group, kind, bytes, splits, sequence: None, nanoseconds, exact: true, came: None };
    Found { call: Message::Call(call), dimension }
}

fn verdict(guess: &str) -> Treatment {
    if guess.is_empty() { Treatment::Mapped } else { Treatment::Guessed }
}

/// NCCL's name of a call.
fn call_of(trace: &Trace, annotation: u32) -> &str {
    let name = &trace.names[trace.annotations[annotation as usize].name as usize];
    name.split_once(':').map_or(name.as_str(), |(_, call)| call)
}
