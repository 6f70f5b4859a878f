//! GOAL text: what is accepted, and what each refusal says.

use std::path::Path;

use windtunnel_kernel::{Bytes, NicId, RankId, Span, StreamId, Tag};
use windtunnel_workload::goal::{self, GoalErrorKind, Place, ReadOptions};
use windtunnel_workload::{OpKind, Peer, Workload};

fn read(text: &str) -> Result<Workload, goal::GoalError> {
    goal::parse(text.as_bytes(), Path::new("job.goal"), ReadOptions::default())
}

fn refused(text: &str) -> String {
    read(text).expect_err(text).to_string()
}

#[test]
fn a_plain_file_is_what_it_says() {
    let workload = read(
        "num_ranks 2\n\nrank 0 {\nl1: calc 100 cpu 1\nl2: send 10b to 1 tag 5 cpu 2 nic 3\nl2 requires l1\n}\n\
         rank 1 {\nl1: recv 10b from -1 tag -1 cpu 4 nic 1\nl2: recv 10b from 0\nl2 irequires l1\n}\n",
    )
    .unwrap();
    assert_eq!(workload.ranks(), 2);
    let [first, second] = &workload.programs[..] else { panic!("two programs") };
    assert_eq!(first.ops[0].kind, OpKind::Calc { duration: Span::from_ns(100), stream: StreamId(1) });
    assert_eq!(
        first.ops[1].kind,
        OpKind::Send {
            peer: Peer::Rank(RankId(1)),
            bytes: Bytes::new(10),
            tag: Tag(5),
            stream: StreamId(2),
            nic: NicId(3)
        }
    );
    assert_eq!(first.requires.of(0), [1]);
    assert_eq!(first.prerequisites, [0, 1]);
    assert_eq!(second.ops[0].kind, OpKind::Receive { peer: None, tag: None, stream: StreamId(4) });
    assert_eq!(
        second.ops[1].kind,
        OpKind::Receive { peer: Some(Peer::Rank(RankId(0))), tag: Some(Tag(0)), stream: StreamId(0) }
    );
    assert_eq!((second.requires.len(), second.irequires.of(0)), (0, &[1][..]));
}

/// Everything `txt2bin` stumbles over for no reason gives the same workload as the form it takes.
#[test]
fn layout_does_not_matter() {
    let plain = read(
        "num_ranks 2\nrank 0 {\na: calc 1\nb: send 8b to 1 tag 2 cpu 1 nic 1\nb requires a\n}\n\
         rank 1 {\nc: recv 8b from 0 tag 2\n}\n",
    )
    .unwrap();
    let loose = "\t// two ranks\r\nnum_ranks 2 // here\r\n/* blocks\r\n in any order */ rank 1{ c :recv 8b from 0 tag 2 }\r\n\
                 rank 0 {\r\n  b requires a // defined below\r\n\ta: calc\t1\r\n  /* b */ b: send 8b to 1 nic 1 tag 2 cpu 1 /* end\r\n */ }";
    assert_eq!(read(loose).unwrap(), plain);
}

#[test]
fn pieces_of_any_length_give_the_same_workload() {
    /// Hands out a few bytes at a time.
    struct Trickle<'a>(&'a [u8], usize);
    impl std::io::Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let n = self.1.min(self.0.len()).min(buffer.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }
    let text = "num_ranks 1\n/* a **\n* / b */rank 0 {\na: calc 12 // x\nlonger_label: calc 3\nlonger_label requires a\n}\n";
    let whole = read(text).unwrap();
    for step in 1..text.len() {
        let name = Path::new("trickle");
        let pieces = goal::read_text(Trickle(text.as_bytes(), step), name, ReadOptions::default()).unwrap();
        assert_eq!(pieces, whole, "{step} bytes at a time");
    }
}

#[test]
fn labels_are_kept_on_request() {
    let text = b"num_ranks 1\nrank 0 {\ncalc 1\nlate: calc 2\n}\n";
    let workload = goal::parse(text, Path::new("x"), ReadOptions { labels: true }).unwrap();
    let program = &workload.programs[0];
    let names: Vec<&str> = program.ops.iter().map(|op| &*program.labels[op.label as usize]).collect();
    assert_eq!(names, ["", "late"]);
}

fn in_rank(statements: &str) -> String {
    format!("num_ranks 2\nrank 0 {{\n{statements}\n}}\nrank 1 {{\n}}\n")
}

#[test]
fn statements_that_are_wrong_say_where_and_why() {
    let cases = [
        (
            "l1: sned 8b to 1",
            "3:5: expected `send`, `recv` or `calc`, found `sned`\n\nhint: did you mean `send`?",
        ),
        ("sned 8b to 1", "3:1: expected a statement, found `sned`\n\nhint: did you mean `send`?"),
        (
            "a: calc 1\na require a",
            "4:3: expected `:`, `requires` or `irequires`, found `require`\n\nhint: did you mean `requires`?",
        ),
        ("a:", "3:3: expected `send`, `recv` or `calc`, found the end of the line"),
        (
            "send 8 to 1",
            "3:7: expected a size in bytes such as `8b`, found ` `\n\nhint: write `8b`: sizes are in bytes",
        ),
        (
            "send 8kb to 1",
            "3:7: expected a size in bytes such as `8b`, found `kb`\n\nhint: write `8b`: sizes are in bytes",
        ),
        ("send b to 1", "3:6: expected a size such as `8b`, found `b`"),
        ("send 8b from 1", "3:9: expected `to`, found `from`"),
        ("recv 8b to 1", "3:9: expected `from`, found `to`"),
        ("send 8b to", "3:11: expected a rank, found the end of the line"),
        (
            "send 8b to 2",
            "3:12: peer 2 does not exist, the ranks are 0 to 1\n\nhint: ranks count from 0; `num_ranks` is one more \
             than the highest",
        ),
        (
            "send 8b to -1",
            "3:12: a send needs a definite destination, found `-1`\n\nhint: only a `recv` may take `-1` for any \
             source or any tag",
        ),
        (
            "send 8b to 1 tag -1",
            "3:18: a send needs a definite tag, found `-1`\n\nhint: only a `recv` may take `-1` for any source or any \
             tag",
        ),
        ("send 8b to 1 tag 4294967295", "3:18: a tag is at most 4294967294, found `4294967295`"),
        (
            "send 8b to 1 cpu 300",
            "3:18: a stream (`cpu`) is at most 255, found `300`\n\nhint: streams and NICs are 8-bit; other tools wrap \
             silently, 300 becomes 44",
        ),
        (
            "send 8b to 1 nic 256",
            "3:18: a NIC (`nic`) is at most 255, found `256`\n\nhint: streams and NICs are 8-bit; other tools wrap \
             silently, 300 becomes 44",
        ),
        (
            "send 8b to 1 tga 3",
            "3:14: expected `tag`, `cpu`, `nic` or the end of the line, found `tga`\n\nhint: did you mean `tag`?",
        ),
        ("send 8b to 1 tag 1 tag 2", "3:20: option `tag` is given twice"),
        ("send 8b to 1, tag 1", "3:13: expected `tag`, `cpu`, `nic` or the end of the line, found `,`"),
        (
            "send 99999999999999999999b to 1",
            "3:6: a size in bytes is at most 18446744073709551615, found `99999999999999999999`",
        ),
        ("calc", "3:5: expected a time in nanoseconds, found the end of the line"),
        ("calc -5", "3:6: expected a time in nanoseconds, found `-5`"),
        ("calc 5 nic 1", "3:8: a `calc` has no `nic`\n\nhint: a calc takes only `cpu`"),
        (
            "calc 99999999999999999",
            "3:6: a calc in nanoseconds is at most 17280000000000000, found `99999999999999999`",
        ),
        (
            "ab: calc 1\n  ac requires ab",
            "4:3: label `ac` is not defined in rank 0\n\nhint: did you mean `ab`?",
        ),
        (
            "abc: calc 1\nabc requires x9",
            "4:14: label `x9` is not defined in rank 0\n\nhint: a label is known only inside the rank that defines it",
        ),
        ("a: calc 1\na requires 7", "4:12: expected a label, found `7`"),
        (
            "a: calc 1\n\na: calc 2",
            "5:1: label `a` is already defined in line 3\n\nhint: LogGOPSim silently keeps the first; give each \
             operation its own label",
        ),
        (
            "a: calc 1\nb: calc 1\nc: calc 1\nb requires a\nc requires b\na irequires c",
            "3:1: the dependencies of rank 0 form a cycle: `a` (line 3) requires `c` (line 5) requires `b` (line 4) \
             requires `a` (line 3)\n\nhint: none of these operations could ever start",
        ),
        (
            "a: calc 1\na requires a",
            "3:1: the dependencies of rank 0 form a cycle: `a` (line 3) requires `a` (line 3)\n\nhint: none of these \
             operations could ever start",
        ),
        ("a: calc 1 b: calc 2", "3:11: expected `cpu` or the end of the line, found `b`"),
        ("rank 1 {", "3:1: expected a statement or `}`, found `rank` inside the block of rank 0 (line 2)"),
        ("\u{e9}", "3:1: expected a statement or a label, found `\\xc3`"),
        ("/ comment", "3:1: expected `//` or `/*`, found `/`"),
    ];
    for (statements, expected) in cases {
        assert_eq!(refused(&in_rank(statements)), format!("job.goal:{expected}"), "{statements}");
    }
}

#[test]
fn files_that_are_wrong_say_where_and_why() {
    let cases = [
        (
            "",
            "1:1: expected `num_ranks N` before anything else, found the end of the file\n\nhint: a GOAL text begins \
             with a line such as `num_ranks 16`",
        ),
        (
            "// nothing\nrank 0 {\n}\n",
            "2:1: expected `num_ranks N` before anything else, found `rank`\n\nhint: a GOAL text begins with a line \
             such as `num_ranks 16`",
        ),
        ("num_ranks 0\n", "1:11: a workload needs at least one rank, found `num_ranks 0`"),
        ("num_ranks 1\nnum_ranks 1\n", "2:1: `num_ranks` is already given in line 1"),
        ("num_ranks x\n", "1:11: expected the number of ranks, found `x`"),
        ("num_ranks 1\ncalc 5\n", "2:1: expected `rank R {`, found `calc` outside every rank"),
        ("num_ranks 1\n}\n", "2:1: expected `rank R {`, found `}` outside every rank"),
        ("num_ranks 1\nrank 0\n{\n}\n", "2:7: expected `{`, found the end of the line"),
        (
            "num_ranks 1\nrank 1 {\n}\n",
            "2:6: rank 1 does not exist, the ranks are 0 to 0\n\nhint: ranks count from 0; `num_ranks` is one more \
             than the highest",
        ),
        ("num_ranks 2\nrank 0 {\n}\nrank 0 {\n}\n", "4:6: rank 0 already has a block in line 2"),
        (
            "num_ranks 4000000000\nrank 2 {\n}\nrank 0 {\n}\n",
            "6:1: 3999999998 of 4000000000 ranks have no block, the first is rank 1\n\nhint: every rank needs a \
             block, an idle one is `rank R { }`",
        ),
        (
            "num_ranks 1\nrank 0 {\nl1: calc 5\n",
            "4:1: the file ends inside the block of rank 0, which was opened in line 2\n\nhint: a `}` is missing, or \
             the file was cut off",
        ),
        (
            "num_ranks 1\nrank 0 {\nl1: send 5",
            "3:11: expected a size in bytes such as `5b`, found the end of the file\n\nhint: write `5b`: sizes are in bytes",
        ),
        ("num_ranks 1\n /* rank 0 {\n}\n", "2:2: the file ends inside the comment opened in line 2"),
    ];
    for (text, expected) in cases {
        assert_eq!(refused(text), format!("job.goal:{expected}"), "{text}");
    }
}

#[test]
fn an_error_is_data_too() {
    let error = read(&in_rank("send 8b to 7")).unwrap_err();
    assert_eq!(error.path, Path::new("job.goal"));
    assert_eq!(
        (error.line(), error.column(), error.place),
        (Some(3), Some(12), Place::Text { line: 3, column: 12 })
    );
    assert_eq!(error.message(), "peer 7 does not exist, the ranks are 0 to 1");
    assert_eq!(*error.kind, GoalErrorKind::PeerOutOfRange { peer: 7, ranks: 2 });
}

#[test]
fn other_compressions_and_damage_are_named() {
    let zstd = goal::parse(b"\x28\xb5\x2f\xfd....", Path::new("job.goal.zst"), ReadOptions::default());
    assert_eq!(
        zstd.unwrap_err().to_string(),
        "job.goal.zst: byte 0: the file is compressed with zstd, which is not read\n\nhint: decompress it first; gzip \
         is read as it is"
    );
    let mut packed = Vec::new();
    let mut encoder = flate2::write::GzEncoder::new(&mut packed, flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, in_rank("calc 5").repeat(50).as_bytes()).unwrap();
    encoder.finish().unwrap();
    let cut = goal::parse(&packed[..packed.len() / 2], Path::new("job.goal.gz"), ReadOptions::default());
    assert!(matches!(*cut.unwrap_err().kind, GoalErrorKind::Gzip(_)));
    let missing = goal::open("/nonexistent/job.goal").unwrap_err();
    assert!(matches!(*missing.kind, GoalErrorKind::Io(_)), "{missing}");
    assert!(missing.to_string().starts_with("/nonexistent/job.goal: "), "{missing}");
}
