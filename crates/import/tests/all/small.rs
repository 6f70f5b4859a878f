//! Small recordings written here, one for each reader: what they become is known.

use windtunnel_import::input::Input;
use windtunnel_import::{Coverage, ImportError, Missing, Options, Treatment, import_inputs, reader};
use windtunnel_kernel::RankId;
use windtunnel_workload::collectives::CollectiveKind;
use windtunnel_workload::{OpKind, Workload};

/// The names of the readers with a recording of each, two ranks where that is possible.
pub(crate) fn samples() -> Vec<(&'static str, Vec<Input>)> {
    let text = |name: &str, text: &str| Input::bytes(name, text.as_bytes().to_vec());
    vec![
        ("kineto", vec![text("r0.json", &crate::kineto::trace(0)), text("r1.json", &crate::kineto::trace(1))]),
        (
            "liballprof",
            vec![
                text(
                    "t-0.txt",
                    "# collprof 0.9\nMPI_Init:-:1:2:1.0\nMPI_Send:11.0:64:100:2,4,4:1:7:0,0,2:12.0\n\
                     MPI_Allreduce:20.0:1:2:8:11,8,8:3:0,0,2:25.0\nMPI_Finalize:30.0:-\n",
                ),
                text(
                    "t-1.txt",
                    "# collprof 0.9\nMPI_Init:-:1:2:1.0\nMPI_Recv:6.0:64:100:2,4,4:0:7:0,1,2:9:12.5\n\
                     MPI_Allreduce:20.0:1:2:8:11,8,8:3:0,1,2:25.0\nMPI_Finalize:30.0:-\n",
                ),
            ],
        ),
        (
            "simgrid",
            vec![
                text("t0.txt", "0 init\n0 compute 1e6\n0 isend 1 5 1000\n0 wait 0 1 5\n0 allreduce 8 0 0\n0 finalize\n"),
                text("t1.txt", "1 init\n1 irecv 0 5 1000\n1 compute 2e6\n1 waitall\n1 allreduce 8 0 0\n1 finalize\n"),
            ],
        ),
        (
            "storage",
            vec![text("a.spc", "0,100,4096,R,0.5\n1,2048,8192,w,0.500001\n0,4096,512,R,0.6\n")],
        ),
        (
            "inspector",
            (0..2)
                .map(|rank| {
                    let line = format!(
                        r#"{{"header":{{"id":"0x1","rank":{rank},"n_ranks":2}},"metadata":{{"inspector_output_format_version":"v4.0","dump_timestamp_us":5}},"coll_perf":{{"coll":"ReduceScatter","coll_sn":3,"coll_msg_size_bytes":4096,"coll_exec_time_us":20}}}}"#
                    );
                    text(&format!("inspector-{rank}.jsonl"), &format!("{line}\n"))
                })
                .collect(),
        ),
        (
            "flight-recorder",
            (0..2)
                .map(|rank| {
                    let json = format!(
                        r#"{{"version":"2.4","pg_config":{{"0":{{"name":"0","desc":"default_pg","ranks":"[0, 1]"}}}},"entries":[
                        {{"record_id":0,"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":1,"profiling_name":"nccl:all_reduce","input_sizes":[[1024]],"input_dtypes":["Float"],"output_sizes":[[1024]],"output_dtypes":["Float"],"time_created_ns":{},"state":"completed"}}]}}"#,
                        1_000_000 + rank * 500
                    );
                    text(&format!("trace_{rank}"), &json)
                })
                .collect(),
        ),
        (
            "chakra",
            (0..2)
                .map(|rank| {
                    text(
                        &format!("c.{rank}.json"),
                        r#"{"workload_graph": [{"id": 1, "name": "gemm", "type": 4, "runtime": 12, "is_cpu_op": false},
                        {"id": 2, "name": "ncclAllReduce", "type": 7, "data_deps": [1], "runtime": 9, "is_cpu_op": false, "comm_type": 0, "comm_size": 65536}]}"#,
                    )
                })
                .collect(),
        ),
        ("chakra", (0..2).map(|rank| Input::bytes(format!("c.{rank}.et"), chakra())).collect()),
        ("dumpi", (0..2).map(|rank| Input::bytes(format!("d-{rank}.bin"), dumpi(rank))).collect()),
        ("xplane", vec![Input::bytes("host.xplane.pb", xplane())]),
        ("mpi", crate::traced::tracer_sample()),
        ("nccl-profiler", crate::nccl_profiler::sample()),
        ("otf2", crate::traced::archive()),
    ]
}

/// Protocol Buffers by hand: a field of bytes, and one of a number.
pub(crate) fn bytes_field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128, "one byte of length");
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

pub(crate) fn number_field(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

/// A Chakra trace of two nodes in Protocol Buffers: a kernel of 12 us and an all-reduce of 100 bytes behind it.
fn chakra() -> Vec<u8> {
    let attribute =
        |name: &str, value: Vec<u8>| bytes_field(10, &[bytes_field(1, name.as_bytes()), value].concat());
    let device = attribute("is_cpu_op", vec![0xd8, 0x01, 0]);
    let kernel = [
        number_field(1, 1),
        bytes_field(2, b"gemm"),
        number_field(3, 4),
        number_field(7, 12),
        device.clone(),
    ]
    .concat();
    let sum = [
        number_field(1, 2),
        bytes_field(2, b"ncclAllReduce"),
        number_field(3, 7),
        bytes_field(5, &[1]),
        device,
        attribute("comm_type", number_field(9, 0)),
        attribute("comm_size", number_field(9, 100)),
    ]
    .concat();
    let mut file = Vec::new();
    for message in [bytes_field(1, b"1.0.0"), kernel, sum] {
        file.push(message.len() as u8);
        file.extend(message);
    }
    file
}

/// A DUMPI trace of one of two ranks: 0 sends 100 ints to 1, both meet in a barrier.
fn dumpi(rank: u32) -> Vec<u8> {
    let mut file = b"\xff\xaa\xddDUMPI".to_vec();
    file.extend([0; 8]);
    let mut time = 0u32;
    let mut call = |file: &mut Vec<u8>, function: u16, arguments: &[u8]| {
        file.extend(function.to_be_bytes());
        file.push(0x48);
        file.extend([0, 0]);
        for at in [time, time + 1_000] {
            file.extend(0u16.to_be_bytes());
            file.extend(at.to_be_bytes());
        }
        time += 5_000;
        file.extend(arguments);
    };
    call(&mut file, 81, &[0, 2, 0, 0, 0, 2]);
    call(&mut file, 82, &[&[0, 2][..], &rank.to_be_bytes()].concat());
    // 100 ints (9) to or from the other, tag 5, on the world (2).
    let message =
        [&100u32.to_be_bytes()[..], &[0, 9], &(1 - rank).to_be_bytes(), &5u32.to_be_bytes(), &[0, 2]]
            .concat();
    call(&mut file, rank as u16, &message);
    call(&mut file, 52, &[0, 2]);
    call(&mut file, 125, &[]);
    let header = file.len() as u64;
    file.extend([1, 0, 0]);
    file.extend(header.to_be_bytes());
    for section in [8u64, 0, 0] {
        file.extend(section.to_be_bytes());
    }
    file
}

/// An XPlane of a GPU with two kernels, the second 5 us after the first.
fn xplane() -> Vec<u8> {
    let event = |name: u8, offset: u8, length: u8| {
        bytes_field(4, &[number_field(1, name), number_field(2, offset), number_field(3, length)].concat())
    };
    let line = [bytes_field(2, b"Stream #7"), number_field(3, 1), event(1, 0, 10), event(2, 15, 20)].concat();
    let name = |id: u8, text: &[u8]| {
        bytes_field(4, &[number_field(1, id), bytes_field(2, &bytes_field(2, text))].concat())
    };
    bytes_field(
        1,
        &[bytes_field(2, b"/device:GPU:0"), bytes_field(3, &line), name(1, b"fusion"), name(2, b"gemm")]
            .concat(),
    )
}

pub(crate) fn import(
    name: &str,
    inputs: &[Input],
    options: &Options,
) -> Result<(Workload, Coverage), ImportError> {
    import_inputs(reader(name)?, inputs, options)
}

pub(crate) fn sample(name: &str) -> Vec<Input> {
    samples().into_iter().find(|(known, _)| *known == name).map(|(_, inputs)| inputs).unwrap()
}

fn collective(workload: &Workload) -> (CollectiveKind, u64) {
    let program = workload.program(RankId(0));
    let spec = &program.specs[0];
    (spec.kind, spec.bytes.get())
}

#[test]
fn every_sample_becomes_a_workload_and_is_detected() {
    for (name, inputs) in samples() {
        let (workload, coverage) =
            import(name, &inputs, &Options::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(workload.operations() > 0, "{name}");
        assert_eq!(
            coverage.total(Treatment::Dropped).operations,
            0,
            "{name}: {:?}",
            coverage.first_dropped()
        );
        let found = windtunnel_import::detect(&inputs[0])
            .unwrap()
            .unwrap_or_else(|| panic!("{name} is not detected"));
        assert_eq!(found.entry().name, name);
    }
}

/// The text of a sample with `old` in one of its files as `new`.
pub(crate) fn changed(name: &str, file: usize, old: &str, new: &str) -> Vec<Input> {
    let mut inputs = sample(name);
    let text = String::from_utf8(inputs[file].whole().unwrap()).unwrap();
    assert!(text.contains(old), "{old} in {text}");
    inputs[file] = Input::bytes(inputs[file].name.clone(), text.replacen(old, new, 1).into_bytes());
    inputs
}

#[test]
fn a_collective_that_differs_names_the_file_of_the_odd_rank() {
    let line = |rank: u32, what: &str| {
        let line = format!(
            r#"{{"header":{{"id":"0x1","rank":{rank},"n_ranks":4}},"metadata":{{"inspector_output_format_version":"v4.0"}},"coll_perf":{{"coll":"{what}","coll_sn":3,"coll_msg_size_bytes":4096,"coll_exec_time_us":20}}}}"#
        );
        Input::bytes(format!("rank{rank}.log"), line.into_bytes())
    };
    for odd in 0..4 {
        let inputs: Vec<Input> =
            (0..4).map(|rank| line(rank, if rank == odd { "Broadcast" } else { "AllReduce" })).collect();
        let error = import("inspector", &inputs, &Options::default()).unwrap_err();
        assert_eq!(error.file, format!("rank{odd}.log"));
        let usual = u32::from(odd == 0);
        assert_eq!(
            error.found,
            format!(
                "its call 1 is broadcast of root 0 here, on rank {odd}, and all-reduce on rank {usual} (rank{usual}.log)"
            )
        );
    }
    // Every reader says of which file a rank is.
    for (name, old, new) in [
        ("chakra", "\"comm_type\": 0", "\"comm_type\": 2"),
        ("simgrid", "1 allreduce 8 0 0", "1 barrier"),
        ("liballprof", "MPI_Allreduce:20.0:1:2:8:11,8,8:3:0,1,2:25.0", "MPI_Barrier:20.0:0,1,2:25.0"),
        ("flight-recorder", "nccl:all_reduce", "nccl:all_gather"),
    ] {
        let inputs = changed(name, 1, old, new);
        let error = import(name, &inputs, &Options::default()).unwrap_err();
        assert_eq!(error.file, inputs[1].name, "{error}");
        assert!(error.found.ends_with(&format!("on rank 0 ({})", inputs[0].name)), "{error}");
    }
}

#[test]
fn an_inspector_of_another_version_is_refused_with_what_to_do() {
    let error =
        import("inspector", &changed("inspector", 0, "v4.0", "v9.0"), &Options::default()).unwrap_err();
    assert_eq!(error.place, windtunnel_import::Place::Line(1));
    assert_eq!((&*error.expected, &*error.found), ("output format v4.0 to v4.3", "`v9.0`"));
    assert!(error.hint.unwrap().contains("NCCL_PROFILER_PLUGIN"));
    let newer = changed("inspector", 0, "v4.0", "v4.7");
    let (_, coverage) = import("inspector", &newer, &Options::default()).unwrap();
    assert!(
        coverage.notes()[0].starts_with("output format v4.7 is newer than v4.3"),
        "{:?}",
        coverage.notes()
    );
}

#[test]
fn an_mpi_program_keeps_times_sizes_and_order() {
    let (workload, _) = import("liballprof", &sample("liballprof"), &Options::default()).unwrap();
    let ops: Vec<OpKind> = workload.program(RankId(0)).ops.iter().map(|op| op.kind).collect();
    // 1.0 to 11.0 us is computation, 12.0 to 20.0 too, 25.0 to 30.0 as well.
    let computed: u64 = ops
        .iter()
        .filter_map(|op| if let OpKind::Calc { duration, .. } = op { Some(duration.ps()) } else { None })
        .sum();
    assert_eq!(computed, (10 + 8 + 5) * 1_000_000);
    assert!(ops.iter().any(|op| matches!(op, OpKind::Send { bytes, .. } if bytes.get() == 400)));
    assert_eq!(collective(&workload), (CollectiveKind::AllReduce, 64));
}

#[test]
fn a_dumpi_trace_says_who_it_is() {
    // In the other order: the traces themselves say their ranks.
    let mut inputs = sample("dumpi");
    inputs.reverse();
    let (workload, coverage) = import("dumpi", &inputs, &Options::default()).unwrap();
    assert!(
        workload
            .program(RankId(0))
            .ops
            .iter()
            .any(|op| matches!(op.kind, OpKind::Send { bytes, .. } if bytes.get() == 400))
    );
    assert_eq!((coverage.of("send", Treatment::Mapped), coverage.of("receive", Treatment::Mapped)), (1, 1));
    let error = import("dumpi", &inputs[..1], &Options::default()).unwrap_err();
    assert!(error.found.contains("missing: rank 0"), "{error}");
}

#[test]
fn a_chakra_trace_is_the_same_in_both_forms() {
    let both: Vec<Vec<Input>> =
        samples().into_iter().filter(|(name, _)| *name == "chakra").map(|(_, inputs)| inputs).collect();
    let of = |inputs: &[Input]| import("chakra", inputs, &Options::default()).unwrap().0;
    let (json, binary) = (of(&both[0]), of(&both[1]));
    assert_eq!(
        (collective(&json).0, collective(&binary)),
        (CollectiveKind::AllReduce, (CollectiveKind::AllReduce, 100))
    );
    let kinds = |workload: &Workload| {
        workload.program(RankId(0)).ops.iter().map(|op| std::mem::discriminant(&op.kind)).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&json), kinds(&binary));
}

#[test]
fn a_workload_is_the_same_after_a_trip_through_chakra() {
    let (before, _) = import("mpi", &crate::traced::tracer_sample(), &Options::default()).unwrap();
    let folder = std::env::temp_dir().join(format!("windtunnel-chakra-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let paths = windtunnel_workload::chakra::write(&before, &folder.join("w.et")).unwrap();
    assert_eq!(paths.len(), 3);
    let inputs = windtunnel_import::input::expand(std::slice::from_ref(&folder)).unwrap();
    let (after, _) = import("chakra", &inputs, &Options { strict: true, ..Options::default() }).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!((after.ranks(), after.operations()), (before.ranks(), before.operations()));
    assert_eq!(collective(&after), collective(&before));
    assert_eq!(after.communicators[0].ranks, before.communicators[0].ranks);
}

#[test]
fn a_reduce_scatter_of_the_inspector_counts_all_parts() {
    let (workload, _) = import("inspector", &sample("inspector"), &Options::default()).unwrap();
    assert_eq!(collective(&workload), (CollectiveKind::ReduceScatter, 8_192));
}

#[test]
fn missing_ranks_are_named_or_filled_in() {
    let one = &sample("chakra")[..1];
    // A world of one: its collective has nobody to wait for.
    let (alone, _) = import("chakra", one, &Options::default()).unwrap();
    assert_eq!(alone.ranks(), 1);
    let kineto = &sample("kineto")[..1];
    let error = import("kineto", kineto, &Options::default()).unwrap_err();
    assert!(error.found.contains("missing: rank 1"), "{error}");
    let same = Options { missing: Missing::Same, ..Options::default() };
    let (filled, coverage) = import("kineto", kineto, &same).unwrap();
    assert_eq!((filled.ranks(), filled.programs.len()), (2, 1));
    assert_eq!(coverage.of("rank", Treatment::Guessed), 1);
    let alone = Options { missing: Missing::Alone, ..Options::default() };
    let (workload, _) = import("kineto", kineto, &alone).unwrap();
    assert!(workload.communicators.is_empty());
}

#[test]
fn strict_refuses_what_drops() {
    let inputs = vec![Input::bytes(
        "a",
        &b"# collprof 0.9\nMPI_Init:-:1:2:1.0\nMPI_Win_fence:3.0:0:4.0\nMPI_Finalize:5.0:-\n"[..],
    )];
    let (_, coverage) = import("liballprof", &inputs, &Options::default()).unwrap();
    assert_eq!(coverage.total(Treatment::Dropped).operations, 1);
    let error = import("liballprof", &inputs, &Options { strict: true, ..Options::default() }).unwrap_err();
    assert!(error.found.contains("MPI_Win_fence"), "{error}");
}

#[test]
fn a_cut_compressed_file_says_how_much_of_it_could_be_unpacked() {
    use std::io::Write;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let numbers: Vec<String> =
        (0..200_000u32).map(|number| number.wrapping_mul(2_654_435_761).to_string()).collect();
    let text = numbers.join(",");
    packed.write_all(text.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let cut = Input::bytes("cut.gz", packed[..packed.len() / 2].to_vec());
    let error = cut.head(usize::MAX >> 1).unwrap_err();
    let windtunnel_import::Place::Byte(byte) = error.place else { panic!("{error}") };
    assert!(byte > text.len() as u64 / 4, "{error}");
    assert!(error.hint.unwrap().contains("gzip -t"));
}

#[test]
fn a_root_that_is_no_member_is_refused_with_the_file_that_names_it() {
    for (root, told) in [("7", "7"), ("-1", "4294967295"), ("4294967296", "4294967295")] {
        let inputs: Vec<Input> = (0..2)
            .map(|rank| {
                let text = format!(
                    "# collprof 0.9\nMPI_Init:-:1:2:1.0\nMPI_Bcast:11.0:64:100:2,4,4:{root}:0,{rank},2:12.0\n\
                     MPI_Finalize:30.0:-\n"
                );
                Input::bytes(format!("t-{rank}"), text.into_bytes())
            })
            .collect();
        let error = import("liballprof", &inputs, &Options::default()).unwrap_err();
        assert_eq!(error.file, "t-0");
        assert_eq!(error.expected, "a root among the 2 members of `MPI_COMM_WORLD`");
        assert_eq!(error.found, format!("{told} in call 1 of rank 0, broadcast"));
    }
}

#[test]
fn a_time_centuries_away_is_refused_with_its_line() {
    let text = "# collprof 0.9\nMPI_Init:-:1:2:1.0\nMPI_Wtime:11.0:-9223372036854775\nMPI_Finalize:30.0:-\n";
    let error = import("liballprof", &[Input::bytes("t", text.as_bytes())], &Options::default()).unwrap_err();
    assert_eq!(error.place, windtunnel_import::Place::Line(3));
    assert_eq!(error.found, "`-9223372036854775`");
}
