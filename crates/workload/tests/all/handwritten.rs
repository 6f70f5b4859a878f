//! Workloads written by hand: what a line means, what each refusal says, and that writing gives back what was read.

use std::fmt::Write as _;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use windtunnel_kernel::{Bytes, NicId, RankId, Span, StreamId, Tag};
use windtunnel_workload::collectives::{Algorithm, CollectiveKind, CollectiveSpec, Form};
use windtunnel_workload::handwritten::{self, HandwrittenError};
use windtunnel_workload::{CommSlot, Dimension, OpKind, Operation, Peer, Workload};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workloads/dlrm-figure25.jsonl");

fn read(text: &str) -> Result<Workload, HandwrittenError> {
    handwritten::read_from(text.as_bytes(), Path::new("job.jsonl"), 1)
}

fn written(workload: &Workload) -> String {
    let mut bytes = Vec::new();
    handwritten::encode(workload, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Figure 25: the lookups wait for the exchanged indices, the interaction for both branches, and the gradients of the
/// dense layers are summed beside the backward pass.
/// Domains of 4: `world` fills two, pairs share one, of ranks 4 apart no two do, and a line's own figure stands.
#[test]
fn groups_know_who_shares_a_domain() {
    let text = r#"
{"windtunnel_workload": 1, "ranks": 8}
{"communicator": "pairs", "groups": [[0, 1], [2, 3], [4, 5], [6, 7]]}
{"communicator": "apart", "groups": [[0, 4], [1, 5], [2, 6], [3, 7]]}
{"communicator": "uneven", "ranks": ["0-5"]}
{"collective": "all_reduce", "bytes": "1 MiB"}
{"collective": "all_reduce", "communicator": "pairs", "bytes": "1 MiB"}
{"collective": "all_reduce", "communicator": "apart", "bytes": "1 MiB"}
{"collective": "all_reduce", "communicator": "uneven", "bytes": "1 MiB"}
{"collective": "all_reduce", "communicator": "pairs", "bytes": "1 MiB", "domain": 1}
"#;
    let workload = handwritten::read_from(text.as_bytes(), Path::new("job.jsonl"), 4).unwrap();
    let domains = |rank| {
        let program = workload.program(RankId(rank));
        let spec = |op: &Operation| match op.kind {
            OpKind::Collective { spec, .. } => program.specs[spec as usize].domain,
            _ => panic!("all are collectives"),
        };
        program.ops.iter().map(spec).collect::<Vec<_>>()
    };
    assert_eq!(domains(0), [4, 2, 1, 2, 1]);
    assert_eq!(domains(7), [4, 2, 1, 1]);
}

#[test]
fn the_example_is_figure_25() {
    let workload = handwritten::read(EXAMPLE, 1).unwrap();
    assert_eq!((workload.ranks(), workload.programs.len()), (8, 1), "all ranks do the same");
    let program = &workload.programs[0];
    let at = |label: &str| {
        let is = |op: &windtunnel_workload::Operation| program.labels[op.label as usize] == label;
        program.ops.iter().position(is).unwrap_or_else(|| panic!("{label}")) as u32
    };
    let after = |op: &str, prerequisite: &str| program.requires.of(at(prerequisite)).contains(&at(op));
    assert!(after("emb", "a2a_indices") && after("a2a_forward", "emb"));
    assert!(after("concat", "a2a_forward") && after("concat", "fc_dense_1"));
    assert!(!after("dense", "a2a_indices"), "the dense branch does not wait for the sparse one");
    assert!(after("ar_fc_1", "fc_1_backward") && after("fc_0_backward", "fc_1_backward"));
    let OpKind::Collective { spec, comm, .. } = program.ops[at("a2a_forward") as usize].kind else {
        panic!()
    };
    assert_eq!(comm, CommSlot(0));
    assert_eq!(
        program.specs[spec as usize],
        CollectiveSpec {
            algorithm: Algorithm::Direct,
            ..CollectiveSpec::new(CollectiveKind::AllToAll, Bytes::new(104 << 20))
        }
    );
    assert_eq!(program.collectives_per_slot(), [6]);
    assert_eq!(read(&written(&workload)).unwrap(), workload);
}

#[test]
fn every_kind_of_line_means_what_it_says() {
    let workload = read(
        r#"
{"windtunnel_workload": 1, "ranks": 6, "comment": "six"}
{"communicator": "pair", "groups": [[0, 1], [3, 2]]}
{"communicator": "last", "ranks": ["4-5"]}
{"comment": "ids may be used before they are defined"}
{"ranks": ["0-3"], "id": "sum", "collective": "all_reduce", "communicator": "pair", "bytes": "3 KB", "after": "gemm", "dimension": "tp", "stream": 2, "form": "steps", "algorithm": "double_binary_tree", "outstanding": 4, "domain": 2}
{"ranks": [0, 1, 2, 3], "id": "gemm", "compute": "1.5 us", "label": "matmul"}
{"id": "copy", "collective": "broadcast", "root": 1, "communicator": "last", "bytes": "1 GiB"}
{"rank": 4, "id": "out", "send": {"to": 0, "bytes": "8 B", "tag": 9, "nic": 3}, "stream": 1, "after_start": ["copy"]}
{"rank": 0, "id": "in", "receive": {"from": "any", "tag": "any"}}
{"rank": 1, "receive": {"from": 5}}
{"rank": 5, "send": {"to": 1, "bytes": "1 MiB"}}
{"id": "end", "collective": "barrier"}
"#,
    )
    .unwrap();
    let names: Vec<&str> = workload.communicators.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["world", "pair[0]", "pair[1]", "last"]);
    assert_eq!(workload.communicators[2].ranks, [RankId(3), RankId(2)]);
    // Ranks 2 and 3 do the same in other groups, ranks 0, 1, 4 and 5 are each unlike the others.
    assert_eq!(workload.program_of, [0, 1, 2, 2, 3, 4]);
    assert_eq!(workload.binding(RankId(3), CommSlot(0)).communicator, 2);
    assert_eq!(workload.binding(RankId(3), CommSlot(0)).index, 0);
    assert_eq!(workload.binding(RankId(2), CommSlot(1)).communicator, 0);

    let pair = workload.program(RankId(2));
    assert_eq!(pair.ops[1].kind, OpKind::Calc { duration: Span::from_ps(1_500_000), stream: StreamId(0) });
    assert_eq!(pair.labels[pair.ops[1].label as usize], "matmul");
    assert_eq!(pair.requires.of(1), [0]);
    assert_eq!(pair.ops[0].dimension, Dimension::Tp);
    let expected = CollectiveSpec {
        algorithm: Algorithm::DoubleBinaryTree,
        form: Form::Steps,
        outstanding: 4,
        domain: 2,
        ..CollectiveSpec::new(CollectiveKind::AllReduce, Bytes::new(3_000))
    };
    assert_eq!(pair.specs[0], expected);

    let sender = workload.program(RankId(4));
    assert_eq!(sender.specs[0].kind, CollectiveKind::Broadcast { root: 1 });
    assert_eq!(
        sender.ops[1].kind,
        OpKind::Send {
            peer: Peer::Rank(RankId(0)),
            bytes: Bytes::new(8),
            tag: Tag(9),
            stream: StreamId(1),
            nic: NicId(3)
        }
    );
    assert_eq!((sender.requires.len(), sender.irequires.of(0)), (0, &[1][..]));
    let receive = |rank| workload.program(RankId(rank)).ops[2].kind;
    assert_eq!(receive(0), OpKind::Receive { peer: None, tag: None, stream: StreamId(0) });
    assert_eq!(
        receive(1),
        OpKind::Receive { peer: Some(Peer::Rank(RankId(5))), tag: Some(Tag(0)), stream: StreamId(0) }
    );
}

#[test]
fn equal_programs_written_apart_are_shared() {
    let workload = read(
        r#"{"windtunnel_workload": 1, "ranks": 3}
{"rank": 0, "id": "a", "compute": "5 us"}
{"rank": 1, "id": "a", "compute": "5000 ns"}
{"rank": 2, "id": "a", "compute": "6 us"}
"#,
    )
    .unwrap();
    assert_eq!(workload.program_of, [0, 0, 1]);
}

#[test]
fn an_all_to_all_v_has_a_matrix() {
    let text = |matrix: &str| {
        format!(
            "{{\"windtunnel_workload\": 1, \"ranks\": 2}}\n{{\"collective\": \"all_to_all_v\", \"matrix\": {matrix}}}\n"
        )
    };
    let workload = read(&text(r#"[["0 B", "1 KiB"], ["2 KiB", "0 B"]]"#)).unwrap();
    let spec = &workload.programs[0].specs[0];
    assert_eq!(spec.matrix.as_deref(), Some(&[0, 1024, 2048, 0][..]));
    assert_eq!(spec.bytes, Bytes::new(3072));
    assert_eq!(read(&written(&workload)).unwrap(), workload);
    let short = read(&text(r#"[["0 B", "1 KiB"], ["2 KiB"]]"#)).unwrap_err();
    assert_eq!(short.to_string(), "job.jsonl:2:61: expected 2 sizes, one per member, found 1");
}

#[test]
fn lines_that_are_wrong_say_where_and_why() {
    let cases = [
        (
            r#"{"compute": "5 us", "after": ["x"]}"#,
            "2:31: id `x` is not defined on rank 0\n\nhint: every rank of an operation needs the operations it comes after",
        ),
        (
            "{\"id\": \"gemm\", \"compute\": \"5 us\"}\n{\"compute\": \"5 us\", \"after\": [\"gem\"]}",
            "3:31: id `gem` is not defined on rank 0\n\nhint: did you mean `gemm`?",
        ),
        (
            r#"{"compute": 5}"#,
            "2:13: expected a time such as `200 ns`, found `5`: a unit is missing, one of `ps`, `ns`, `us`, `ms`, `s`, \
             `min`, `h`, `d`",
        ),
        (
            r#"{"collective": "all_reduce", "bytes": "64 mib"}"#,
            "2:39: expected a size such as `256 MiB`, found `64 mib`: `mib` is written `MiB`",
        ),
        (
            r#"{"collective": "allreduce", "bytes": "64 MiB"}"#,
            "2:16: expected a collective, found `allreduce`\n\nhint: did you mean `all_reduce`?",
        ),
        (
            r#"{"collective": "all_reduce", "bytes": "1 MiB", "algorithm": "magic"}"#,
            "2:61: expected an algorithm, found `magic`\n\nhint: there are `auto`, `ring`, `double_binary_tree`, \
             `recursive`, `bruck`, `pat`, `binomial`, `direct`, `pairwise`, `multi_ring`, `hierarchical`, `in_network`",
        ),
        (r#"{"collective": "all_reduce"}"#, "2:16: `all_reduce` needs `bytes`"),
        (
            r#"{"collective": "all_reduce", "bytes": "1 B", "communicator": "wrld"}"#,
            "2:62: communicator `wrld` is not defined\n\nhint: did you mean `world`?",
        ),
        (r#"{"collective": "all_reduce", "bytes": "1 B", "root": 1}"#, "2:46: `all_reduce` has no root"),
        (
            r#"{"collective": "reduce", "bytes": "1 B", "root": 4}"#,
            "2:50: expected the root's position in the communicator from 0 to 3, found `4`",
        ),
        (
            r#"{"compute": "5 us", "strem": 1}"#,
            "2:21: a compute operation has no key `strem`\n\nhint: did you mean `stream`?",
        ),
        (
            r#"{"computes": "5 us"}"#,
            "2:1: expected one of `compute`, `collective`, `send`, `receive`, or a `communicator`, found none\n\nhint: \
             did you mean `compute`?",
        ),
        (
            r#"{"compute": "5 us", "send": {}}"#,
            "2:21: an operation is either `compute` or `send`, found both",
        ),
        (r#"{"compute": "5 us", "compute": "6 us"}"#, "2:21: `compute` is given twice"),
        (r#"{"compute": "5 us", "rank": 4}"#, "2:29: rank 4 does not exist, the ranks are 0 to 3"),
        (r#"{"compute": "5 us", "ranks": ["2-9"]}"#, "2:31: rank 9 does not exist, the ranks are 0 to 3"),
        (
            r#"{"compute": "5 us", "ranks": ["3-1"]}"#,
            "2:31: expected a range such as \"4-7\", found `\"3-1\"`",
        ),
        (r#"{"compute": "5 us", "ranks": [1, 1]}"#, "2:34: rank 1 is named twice"),
        (r#"{"compute": "5 us", "stream": 256}"#, "2:31: expected a stream from 0 to 255, found `256`"),
        (
            r#"{"compute": "5 us", "dimension": "xp"}"#,
            "2:34: expected a dimension, found `xp`\n\nhint: did you mean `tp`?",
        ),
        (r#"{"send": {"to": 9, "bytes": "1 B"}}"#, "2:17: rank 9 does not exist, the ranks are 0 to 3"),
        (r#"{"send": {"bytes": "1 B"}}"#, "2:10: a send needs `to`"),
        (r#"{"receive": 3}"#, "2:13: expected an object, found `3`"),
        (
            r#"{"compute": "5 us""#,
            "2:18: expected a JSON object, found EOF while parsing an object\n\nhint: every line is one object such as \
             {\"id\": \"a\", \"compute\": \"5 us\"}",
        ),
        (
            "[1]",
            "2:1: expected a JSON object, found invalid type: sequence, expected an object\n\nhint: every line is one \
             object such as {\"id\": \"a\", \"compute\": \"5 us\"}",
        ),
        (
            r#"{"communicator": "world", "ranks": [0]}"#,
            "2:18: `world` is predefined: all ranks in order\n\nhint: several groups of one name are given as \
             \"groups\": [[0, 1], [2, 3]]",
        ),
        (r#"{"communicator": "a", "groups": [[0, 1], [1, 2]]}"#, "2:43: rank 1 is in communicator `a` twice"),
        (r#"{"communicator": "a", "ranks": []}"#, "2:32: a communicator needs at least one rank, found `[]`"),
        (
            "{\"communicator\": \"a\", \"ranks\": [0]}\n{\"rank\": 1, \"collective\": \"barrier\", \"communicator\": \"a\"}",
            "3:10: rank 1 is not in communicator `a`",
        ),
        (
            "{\"id\": \"a\", \"compute\": \"1 us\"}\n{\"rank\": 2, \"id\": \"a\", \"compute\": \"1 us\"}",
            "3:19: id `a` of rank 2 is already given in line 2",
        ),
        (
            "{\"id\": \"a\", \"compute\": \"1 us\", \"after\": [\"b\"]}\n{\"id\": \"b\", \"compute\": \"1 us\", \"after\": [\"a\"]}",
            "2:1: operations of rank 0 wait for each other: `a` (line 2) after `b` (line 3) after `a` (line 2)\n\nhint: \
             none of these operations could ever start",
        ),
        (
            "{\"rank\": 0, \"collective\": \"barrier\"}",
            "2:1: collective 1 on communicator `world` is missing on rank 1 and `barrier` of 0 bytes (line 2) on rank \
             0\n\nhint: all members must name the same collectives in the same order",
        ),
        (
            "{\"ranks\": [0, 1, 2], \"collective\": \"all_reduce\", \"bytes\": \"1 KiB\"}\n{\"rank\": 3, \"collective\": \
             \"all_reduce\", \"bytes\": \"2 KiB\"}",
            "3:1: collective 1 on communicator `world` is `all_reduce` of 2048 bytes (line 3) on rank 3 and \
             `all_reduce` of 1024 bytes (line 2) on rank 0\n\nhint: all members must name the same collectives in the \
             same order",
        ),
        ("{\"windtunnel_workload\": 1, \"ranks\": 4}", "2:1: the header is already given in line 1"),
    ];
    for (line, expected) in cases {
        let text = format!("{{\"windtunnel_workload\": 1, \"ranks\": 4}}\n{line}\n");
        assert_eq!(read(&text).expect_err(line).to_string(), format!("job.jsonl:{expected}"), "{line}");
    }
}

#[test]
fn headers_that_are_wrong_say_where_and_why() {
    let hint = "\n\nhint: the first line is {\"windtunnel_workload\": 1, \"ranks\": N}";
    let cases = [
        ("", format!("1:1: expected the header, found the end of the file{hint}")),
        ("{\"compute\": \"1 us\"}", format!("1:1: expected the header before anything else{hint}")),
        (
            "{\"windtunnel_workload\": 2, \"ranks\": 1}",
            "1:25: expected version 1 of the format, found `2`".to_owned(),
        ),
        ("{\"windtunnel_workload\": 1}", "1:1: the header needs `ranks`".to_owned()),
        (
            "{\"windtunnel_workload\": 1, \"ranks\": 0}",
            "1:37: a workload needs at least one rank, found `0`".to_owned(),
        ),
        (
            "{\"windtunnel_workload\": 1, \"ranks\": 99999999}",
            "1:37: expected a number of ranks from 0 to 16777216, found `99999999`".to_owned(),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(read(text).expect_err(text).to_string(), format!("job.jsonl:{expected}"), "{text}");
    }
    let error = handwritten::read("/nonexistent/job.jsonl", 1).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/job.jsonl: "), "{error}");
}

/// One line for some of eight ranks, in pairs (0 1) (2 3) … or in all.
fn line() -> impl Strategy<Value = String> {
    let ranks = prop::sample::select(vec!["[0]", "[\"0-3\"]", "[1, 4, 5]", "\"all\"", "[7]"]);
    let who =
        prop::sample::select(vec!["", ", \"dimension\": \"pp\"", ", \"stream\": 3", ", \"label\": \"same\""]);
    let plain = (ranks, 0..4u8, 0..9_000u64, 0..8u32, who).prop_map(|(ranks, kind, n, peer, extra)| {
        let work = match kind {
            0 => format!("\"compute\": \"{n} ns\""),
            1 => format!("\"send\": {{\"to\": {peer}, \"bytes\": \"{n} KiB\", \"tag\": {n}}}"),
            2 => format!("\"receive\": {{\"from\": {peer}, \"tag\": \"any\"}}"),
            _ => "\"receive\": {\"from\": \"any\"}".to_owned(),
        };
        format!("{{\"ranks\": {ranks}, {work}{extra}}}")
    });
    let collective = (prop::sample::select(vec!["world", "pair", "odd"]), 0..5_000u64).prop_map(|(communicator, n)| {
        format!("{{\"collective\": \"all_gather\", \"communicator\": \"{communicator}\", \"bytes\": \"{n} B\"}}")
    });
    prop_oneof![3 => plain, 1 => collective]
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        lines in vec(line(), 0..20), edges in vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..20),
    ) {
        let mut text = "{\"windtunnel_workload\": 1, \"ranks\": 8}\n{\"communicator\": \"pair\", \"groups\": [[0, 1], \
                        [2, 3], [5, 4], [6, 7]]}\n{\"communicator\": \"odd\", \"ranks\": [1, 3, 5, 7]}\n".to_owned();
        for (index, line) in lines.iter().enumerate() {
            // Only operations of all ranks may be waited for by any.
            let of_all = |line: &String| line.contains("\"all\"") || line.contains("world");
            let before = edges.iter().map(|(a, b)| (a.index(lines.len()), b.index(lines.len())));
            let before: Vec<String> = before
                .filter(|&(a, b)| b == index && a < b && of_all(&lines[a]))
                .map(|(a, _)| format!("\"x{a}\""))
                .collect();
            writeln!(text, "{}, \"id\": \"x{index}\", \"after\": [{}]}}", &line[..line.len() - 1], before.join(", ")).unwrap();
        }
        let workload = read(&text).unwrap();
        let again = written(&workload);
        prop_assert_eq!(&read(&again).unwrap(), &workload);
        prop_assert_eq!(written(&read(&again).unwrap()), again);
    }

    #[test]
    fn damaged_lines_never_panic(
        mutations in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5), cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = std::fs::read(EXAMPLE).unwrap();
        for (at, byte) in &mutations {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        if mutations.len() == 1 {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Err(error) = handwritten::read_from(&bytes[..], Path::new("x"), 8) {
            prop_assert!(error.line > 0 && error.column > 0);
        }
    }
}
