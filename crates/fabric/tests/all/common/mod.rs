//! A small GOAL reader and dependency replay, enough to drive a [`Fabric`] in tests.

use std::collections::BTreeMap;

use windtunnel_fabric::flow::FlowSettings;
use windtunnel_fabric::packet::PacketSettings;
use windtunnel_fabric::{Fabric, Notice, NoticeKind, SendRequest, Ticket};
use windtunnel_kernel::{Bytes, EndpointId, NicId, Span, StreamId, Tag, Time};

/// Packets of 4 KiB of payload and headers as long as control packets: times that come out even.
pub fn even_packets() -> PacketSettings {
    PacketSettings { mtu: Bytes::new(4_160), header: Bytes::new(64), ..PacketSettings::default() }
}

/// Flows of jumbo frames.
pub fn jumbo_flows() -> FlowSettings {
    FlowSettings { mtu: Bytes::new(9_000), ..FlowSettings::default() }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Send {
        to: u32,
        bytes: u64,
        tag: u64,
    },
    Receive {
        from: Option<u32>,
        tag: Option<u64>,
    },
    /// Nanoseconds.
    Calc {
        ns: u64,
    },
    /// A coupled group of this operation's rank and `to`, or a reduction of the two.
    Coupled {
        to: u32,
        weight: u32,
        bytes: u64,
        steps: u32,
        reduces: bool,
    },
}

#[derive(Clone, Debug)]
pub struct Op {
    pub kind: Kind,
    pub stream: u8,
    pub nic: u8,
    pub prerequisites: u32,
    pub requires: Vec<u32>,
    pub irequires: Vec<u32>,
}

impl Op {
    pub fn new(kind: Kind, stream: u8, nic: u8) -> Self {
        Self { kind, stream, nic, prerequisites: 0, requires: Vec::new(), irequires: Vec::new() }
    }
}

/// The operations of each rank.
#[derive(Clone, Debug, Default)]
pub struct Goal {
    pub ranks: Vec<Vec<Op>>,
}

impl Goal {
    pub fn edge(&mut self, rank: usize, before: u32, after: u32, at_start: bool) {
        let ops = &mut self.ranks[rank];
        ops[after as usize].prerequisites += 1;
        let before = &mut ops[before as usize];
        if at_start { before.irequires.push(after) } else { before.requires.push(after) }
    }

    pub fn streams(&self) -> u16 {
        1 + u16::from(self.ranks.iter().flatten().map(|op| op.stream).max().unwrap_or(0))
    }

    pub fn nics(&self) -> u16 {
        1 + u16::from(self.ranks.iter().flatten().map(|op| op.nic).max().unwrap_or(0))
    }

    pub fn parse(text: &str) -> Self {
        let mut goal = Self::default();
        let mut labels: BTreeMap<&str, u32> = BTreeMap::new();
        for line in text.lines().map(str::trim) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let Some(&first) = words.first() else { continue };
            match first {
                "num_ranks" | "}" | "/*" => {}
                "rank" => {
                    goal.ranks.push(Vec::new());
                    labels.clear();
                }
                _ if words[1] == "requires" || words[1] == "irequires" => {
                    let rank = goal.ranks.len() - 1;
                    goal.edge(rank, labels[words[2]], labels[first], words[1] == "irequires");
                }
                _ => {
                    let ops = goal.ranks.last_mut().expect("a rank is open");
                    let words = first.strip_suffix(':').map_or(&words[..], |label| {
                        labels.insert(label, ops.len() as u32);
                        &words[1..]
                    });
                    ops.push(statement(words));
                }
            }
        }
        goal
    }
}

fn statement(words: &[&str]) -> Op {
    let option = |name| words.iter().position(|&word| word == name).map(|i| words[i + 1]);
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let wild = |text: &str| (text != "-1").then(|| number(text));
    let bytes = || number(words[1].trim_end_matches('b'));
    let kind = match words[0] {
        "send" => Kind::Send {
            to: number(option("to").expect("a receiver")) as u32,
            bytes: bytes(),
            tag: option("tag").map_or(0, number),
        },
        "recv" => Kind::Receive {
            from: wild(option("from").expect("a source")).map(|rank| rank as u32),
            tag: option("tag").map_or(Some(0), wild),
        },
        _ => Kind::Calc { ns: number(words[1]) },
    };
    Op::new(kind, option("cpu").map_or(0, number) as u8, option("nic").map_or(0, number) as u8)
}

/// A ring in which every rank's next send waits for its last receive.
pub fn ring(ranks: u32, steps: u32, bytes: u64) -> Goal {
    let mut goal = Goal { ranks: vec![Vec::new(); ranks as usize] };
    for rank in 0..ranks {
        for step in 0..steps {
            let ops = &mut goal.ranks[rank as usize];
            let (to, from) = ((rank + 1) % ranks, Some((rank + ranks - 1) % ranks));
            ops.push(Op::new(Kind::Send { to, bytes, tag: 0 }, 0, 0));
            ops.push(Op::new(Kind::Receive { from, tag: Some(0) }, 0, 0));
            if step > 0 {
                goal.edge(rank as usize, 2 * step - 1, 2 * step, false);
            }
        }
    }
    goal
}

/// Runs a program to its end in the insertion order of LogGOPSim and returns every notice in order.
pub fn replay(goal: &Goal, fabric: &mut impl Fabric) -> Vec<Notice> {
    let mut missing: Vec<Vec<u32>> =
        goal.ranks.iter().map(|ops| ops.iter().map(|op| op.prerequisites).collect()).collect();
    let mut ready: Vec<Vec<Time>> = goal.ranks.iter().map(|ops| vec![Time::ZERO; ops.len()]).collect();
    let mut released: Vec<(u32, u32)> = Vec::new();
    for (rank, ops) in goal.ranks.iter().enumerate() {
        let roots = (0..ops.len()).filter(|&op| ops[op].prerequisites == 0);
        released.extend(roots.map(|op| (rank as u32, op as u32)));
    }
    let mut log = Vec::new();
    let mut notices = Vec::new();
    loop {
        // By rank, then by type; the sort is stable.
        released.sort_by_key(|&(rank, op)| {
            let kind = match goal.ranks[rank as usize][op as usize].kind {
                Kind::Send { .. } => 0,
                Kind::Receive { .. } => 1,
                Kind::Calc { .. } => 2,
                Kind::Coupled { .. } => 3,
            };
            (rank, kind)
        });
        for (rank, op) in released.drain(..) {
            request(
                fabric,
                rank,
                op,
                &goal.ranks[rank as usize][op as usize],
                ready[rank as usize][op as usize],
            );
        }
        if fabric.next_time() == Time::NEVER {
            return log;
        }
        fabric.step(&mut notices);
        for notice in notices.drain(..) {
            log.push(notice);
            let (rank, op) = (notice.endpoint.0 as usize, notice.ticket.0 as usize);
            let op = &goal.ranks[rank][op];
            let successors = match notice.kind {
                NoticeKind::Started => &op.irequires,
                NoticeKind::Finished { .. } => &op.requires,
            };
            for &next in successors {
                let slot = &mut ready[rank][next as usize];
                *slot = notice.at.max(*slot);
                missing[rank][next as usize] -= 1;
                if missing[rank][next as usize] == 0 {
                    released.push((rank as u32, next));
                }
            }
        }
    }
}

fn request(fabric: &mut impl Fabric, rank: u32, id: u32, op: &Op, ready: Time) {
    let (ready, at, ticket) = (ready.max(fabric.now()), EndpointId(rank), Ticket(u64::from(id)));
    let stream = StreamId(op.stream);
    match op.kind {
        Kind::Calc { ns } => fabric.calc(ready, at, ticket, stream, Span::from_ns(ns)),
        Kind::Receive { from, tag } => {
            fabric.post_receive(ready, at, ticket, stream, from.map(EndpointId), tag.map(Tag));
        }
        Kind::Coupled { to, weight, bytes, steps, reduces } => {
            let peer = EndpointId(to);
            let group = if reduces {
                fabric.prepare_reduction(&[at, peer], 0)
            } else if peer == at {
                // One edge: a member with two sends two messages a step.
                fabric.prepare_coupled(&[(at, peer, weight.max(1))], 0)
            } else {
                fabric.prepare_coupled(&[(at, peer, 1), (peer, at, weight)], 0)
            };
            fabric.start_coupled(ready, at, ticket, group, Bytes::new(bytes), steps, 0);
        }
        Kind::Send { to, bytes, tag } => {
            let request = SendRequest {
                stream,
                nic: NicId(op.nic),
                to: EndpointId(to),
                bytes: Bytes::new(bytes),
                tag: Tag(tag),
                class: 0,
                entropy: 0,
                line: 0,
                waits: false,
            };
            fabric.send(ready, at, ticket, request);
        }
    }
}
