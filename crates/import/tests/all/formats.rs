//! What formats have beside the plain case: storage, XPlane.

use windtunnel_import::input::Input;
use windtunnel_import::{Coverage, ImportError, Options, Place, Treatment};
use windtunnel_kernel::RankId;
use windtunnel_workload::{OpKind, Workload};

use crate::small::{bytes_field, import, number_field};

fn read(kind: &str, name: &str, content: &[u8]) -> Result<(Workload, Coverage), ImportError> {
    import(kind, &[Input::bytes(name, content.to_vec())], &Options::default())
}

/// What a rank computes in ns, by stream.
fn computed(workload: &Workload, rank: u32) -> Vec<u64> {
    let mut streams = vec![0; 256];
    for op in &workload.program(RankId(rank)).ops {
        if let OpKind::Calc { duration, stream } = op.kind {
            streams[usize::from(stream.0)] += duration.ps() / 1_000;
        }
    }
    streams
}

#[test]
fn ticks_since_1601_of_two_hosts_are_two_devices() {
    let text = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
        128166372003061629,hm,1,Read,383496192,32768,1131\n\
        128166372003061729,usr,1,Write,310983680,16384,153\n";
    let (workload, coverage) = read("storage", "a.csv", text.as_bytes()).unwrap();
    assert_eq!((coverage.of("read", Treatment::Mapped), coverage.of("write", Treatment::Mapped)), (1, 1));
    assert_eq!(coverage.of("comment or header", Treatment::Mapped), 1);
    // Two clients; the second's request comes 100 ticks of 100 ns after the first.
    assert!(coverage.notes()[0].contains("are, in this order, 2 client"), "{:?}", coverage.notes());
    assert_eq!(computed(&workload, 1)[1], 10_000);
}

#[test]
fn lines_beside_requests_are_counted_and_do_not_refuse_a_file() {
    let (_, coverage) =
        read("storage", "a.spc", b"# a comment\n\n0,20941264,8192,W,0.5\n# another\n1,1,512,T,0.6\n")
            .unwrap();
    assert_eq!(coverage.of("comment or header", Treatment::Mapped), 2);
    assert_eq!(
        (coverage.of("write", Treatment::Mapped), coverage.of("other operation", Treatment::Dropped)),
        (1, 1)
    );
    let (_, coverage) = read(
        "storage",
        "a.csv",
        b"version,time,op,size,lbn\n1,5633898,42,512,42932745\n1,5633899,2A,512,3\n",
    )
    .unwrap();
    assert_eq!(
        (coverage.of("write", Treatment::Mapped), coverage.of("other operation", Treatment::Dropped)),
        (1, 1)
    );
}

#[test]
fn a_block_trace_of_other_operations_or_with_damaged_lines_is_refused() {
    let error =
        read("storage", "a.csv", b"version,time,op,size,lbn\n1,1,42,512,1\n1,2,42,512,2\n1,3,28,512,3\n")
            .unwrap_err();
    assert_eq!(error.place, Place::Line(2));
    assert!(error.hint.unwrap().starts_with("2 lines are of other operations"));
    for (text, line) in [
        ("0,1,8192,W,0.5\n0,1,8192,W,1e300\n", 2),
        ("0,1,8192,W,0.5\n0,18446744073709551615,8192,W,0.2\n", 2),
        ("0,1,8192,W,0.5\n0,1,8", 2),
    ] {
        let error = read("storage", "a.spc", text.as_bytes()).unwrap_err();
        assert_eq!(error.place, Place::Line(line), "{error}");
    }
    let error = read("storage", "a.spc", b"\nhello\n").unwrap_err();
    assert_eq!((error.place, error.found.as_str()), (Place::Line(2), "`hello`"));
}

/// A line of a plane: events by name, offset and length in units of 1 ps.
fn line(name: &str, events: &[(u8, u8, u8)]) -> Vec<u8> {
    let events: Vec<u8> = events
        .iter()
        .flat_map(|&(name, offset, length)| {
            bytes_field(
                4,
                &[number_field(1, name), number_field(2, offset), number_field(3, length)].concat(),
            )
        })
        .collect();
    bytes_field(3, &[bytes_field(2, name.as_bytes()), events].concat())
}

fn space(planes: &[(&str, &[Vec<u8>])]) -> Vec<u8> {
    let long = |number: u8, content: &[u8]| {
        let length = content.len();
        [&[number << 3 | 2, (length & 127) as u8 | 128, (length >> 7) as u8], content].concat()
    };
    let name = |id: u8, text: &[u8]| {
        bytes_field(4, &[number_field(1, id), bytes_field(2, &bytes_field(2, text))].concat())
    };
    let names = [name(1, b"fusion"), name(2, b"all-reduce-start.2"), name(3, b"copy-start")].concat();
    let plane = |(text, lines): &(&str, &[Vec<u8>])| {
        long(1, &[bytes_field(2, text.as_bytes()), lines.concat(), names.clone()].concat())
    };
    planes.iter().flat_map(plane).collect()
}

/// Picoseconds of each stream that has work.
fn streams(workload: &Workload, rank: u32) -> Vec<(u8, u64)> {
    let mut streams = std::collections::BTreeMap::new();
    for op in &workload.program(RankId(rank)).ops {
        if let OpKind::Calc { duration, stream } = op.kind {
            *streams.entry(stream.0).or_insert(0) += duration.ps();
        }
    }
    streams.into_iter().collect()
}

#[test]
fn a_tpu_computes_in_its_xla_ops_and_copies_beside_them() {
    let ops = [(1, 0, 10), (1, 12, 20)];
    let tpu = [
        line("Steps", &[(1, 0, 32)]),
        line("XLA Modules", &[(1, 0, 32)]),
        line("XLA Ops", &ops),
        line("Async XLA Ops", &[(2, 2, 9), (3, 12, 4)]),
        line("Framework Ops", &ops),
        line("Tensor Core Sync Flag", &ops),
    ];
    let custom = [line("x", &[(1, 0, 5)])];
    let content = space(&[
        ("/device:CUSTOM:Megascale Trace", &custom),
        ("/device:TPU:1", &tpu),
        ("/device:TPU:0", &[line("XLA Ops", &[(1, 0, 7)])]),
        ("/device:TPU:0 SparseCore 1", &[line("Sparse Core Ops", &ops)]),
    ]);
    let (workload, coverage) = read("xplane", "t.xplane.pb", &content).unwrap();
    assert_eq!(workload.ranks(), 2);
    assert_eq!(streams(&workload, 0), [(0, 7)]);
    // Ops end at 32; the last copy ends at 16.
    assert_eq!(streams(&workload, 1), [(0, 32), (1, 16)]);
    assert_eq!(coverage.of("kernel", Treatment::Mapped), 4);
    assert_eq!(coverage.of("kernel", Treatment::Approximated), 1);
    assert_eq!(coverage.of("event of a summary line", Treatment::Mapped), 6);
    assert_eq!(coverage.of("event beside the devices", Treatment::Approximated), 3);
    assert_eq!(coverage.of("rank", Treatment::Guessed), 2);
}

#[test]
fn launch_stats_are_no_stream_and_what_stands_in_for_streams_is_guessed() {
    let ops = [(1, 0, 10), (1, 12, 20)];
    let gpu = [line("Stream #13(Compute)", &ops), line("Launch Stats", &[(1, 0, 10)]), line("XLA Ops", &ops)];
    let (workload, coverage) = read("xplane", "g.xplane.pb", &space(&[("/device:GPU:0", &gpu)])).unwrap();
    assert_eq!(streams(&workload, 0), [(0, 32)]);
    assert_eq!(coverage.of("event of a summary line", Treatment::Mapped), 3);
    assert_eq!(coverage.total(Treatment::Guessed).operations, 0);
    for (name, lines) in [
        ("/device:TPU:0", [line("XLA Modules", &ops), line("Steps", &ops)]),
        ("/device:GPU:0", [line("Queue 5", &ops), line("Source code", &ops)]),
    ] {
        let (_, coverage) = read("xplane", "x.xplane.pb", &space(&[(name, &lines)])).unwrap();
        assert_eq!(coverage.of("kernel", Treatment::Guessed), 2, "{name}");
        assert_eq!(coverage.of("event of a summary line", Treatment::Mapped), 2, "{name}");
    }
}
