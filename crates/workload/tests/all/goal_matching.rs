//! The check's matching against a slow obvious one.

use std::fmt::Write as _;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use windtunnel_kernel::{RankId, Tag};
use windtunnel_workload::goal::{self, ReadOptions, Unmatched};

fn read(text: &str) -> windtunnel_workload::Workload {
    goal::parse(text.as_bytes(), Path::new("x"), ReadOptions::default()).unwrap()
}

#[test]
fn what_cannot_match_is_named() {
    let workload = read(
        "num_ranks 3\nrank 0 {\nsend 1b to 1 tag 1\nsend 1b to 1 tag 1\nsend 1b to 2\n}\n\
         rank 1 {\ncalc 1\nrecv 1b from 0 tag 1\nrecv 1b from 2 tag -1\nrecv 1b from 2 tag -1\n}\nrank 2 {\nrecv 1b from -1\n}\n",
    );
    let check = goal::check(&workload);
    assert_eq!((check.sends, check.receives, check.matched), (3, 4, 2));
    assert_eq!(check.unmatched_sends_and_receives(), (1, 2));
    let receive = Unmatched {
        sends: false,
        rank: RankId(1),
        peer: Some(RankId(2)),
        tag: None,
        count: 2,
        operations: vec![2, 3],
    };
    assert_eq!(check.unmatched[0], receive);
    assert_eq!(
        check.unmatched[0].to_string(),
        "rank 1: 2 receives from rank 2 with any tag have no send (operations 2, 3)"
    );
    assert_eq!(check.unmatched[1].tag, Some(Tag(1)));
    assert_eq!(
        check.unmatched[1].to_string(),
        "rank 0: 1 send to rank 1 with tag 1 has no receive (operation 1)"
    );
    assert_eq!(check.unmatched.len(), 2);
}

/// Kuhn's algorithm over single sends and receives.
fn largest_matching(sends: &[(u32, u32)], receives: &[(Option<u32>, Option<u32>)]) -> usize {
    fn fits(send: (u32, u32), receive: (Option<u32>, Option<u32>)) -> bool {
        receive.0.is_none_or(|source| source == send.0) && receive.1.is_none_or(|tag| tag == send.1)
    }
    fn augment(
        receive: usize,
        sends: &[(u32, u32)],
        receives: &[(Option<u32>, Option<u32>)],
        taken_by: &mut [Option<usize>],
        seen: &mut [bool],
    ) -> bool {
        for send in 0..sends.len() {
            if fits(sends[send], receives[receive]) && !std::mem::replace(&mut seen[send], true) {
                let free = match taken_by[send] {
                    None => true,
                    Some(other) => augment(other, sends, receives, taken_by, seen),
                };
                if free {
                    taken_by[send] = Some(receive);
                    return true;
                }
            }
        }
        false
    }
    let mut taken_by = vec![None; sends.len()];
    (0..receives.len())
        .filter(|&receive| augment(receive, sends, receives, &mut taken_by, &mut vec![false; sends.len()]))
        .count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_matching_is_a_largest_one(
        sends in vec((0..4u32, 0..4u32), 0..25),
        receives in vec((prop::option::of(0..4u32), prop::option::of(0..4u32)), 0..25),
    ) {
        let mut text = "num_ranks 5\n".to_owned();
        for rank in 0..4 {
            writeln!(text, "rank {rank} {{").unwrap();
            for (_, tag) in sends.iter().filter(|send| send.0 == rank) {
                writeln!(text, "send 1b to 4 tag {tag}").unwrap();
            }
            text += "}\n";
        }
        text += "rank 4 {\n";
        let wildcard = |value: Option<u32>| value.map_or("-1".to_owned(), |value| value.to_string());
        for &(source, tag) in &receives {
            writeln!(text, "recv 1b from {} tag {}", wildcard(source), wildcard(tag)).unwrap();
        }
        text += "}\n";
        let check = goal::check(&read(&text));
        prop_assert_eq!(check.matched, largest_matching(&sends, &receives) as u64);
        let left: u64 = check.unmatched.iter().map(|unmatched| unmatched.count).sum();
        prop_assert_eq!(left, sends.len() as u64 + receives.len() as u64 - 2 * check.matched);
    }
}
