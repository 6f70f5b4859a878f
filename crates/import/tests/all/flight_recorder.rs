//! Dumps of PyTorch's Flight Recorder.

use windtunnel_import::input::Input;
use windtunnel_import::{Options, Treatment};
use windtunnel_kernel::RankId;
use windtunnel_workload::OpKind;
use windtunnel_workload::collectives::CollectiveKind;

use crate::account::row;
use crate::small::{changed, import, sample};

/// A call: its name, shapes of what goes in and out, its type, and its numbers among collectives and messages.
fn entry(name: &str, shapes: (&str, &str), dtype: &str, sequence: u32, message: u32) -> String {
    let types = |shapes: &str| vec![format!("\"{dtype}\""); shapes.matches('[').count() - 1].join(",");
    let (sent, received) = shapes;
    format!(
        r#"{{"record_id":{0},"process_group":["0","default_pg"],"collective_seq_id":{sequence},"p2p_seq_id":{message},"profiling_name":"nccl:{name}","input_sizes":{sent},"input_dtypes":[{1}],"output_sizes":{received},"output_dtypes":[{2}],"time_created_ns":{3},"duration_ms":1.0,"state":"completed"}}"#,
        sequence * 10 + message,
        types(sent),
        types(received),
        1_000_000 + (sequence * 10 + message) * 1_000,
    )
}

fn dump(name: &str, entries: &[String]) -> Input {
    let text = format!(
        r#"{{"version":"2.5","pg_config":{{"0":{{"name":"0","desc":"default_pg","ranks":"[0, 1]"}}}},"entries":[{}]}}"#,
        entries.join(",")
    );
    Input::bytes(name, text.into_bytes())
}

#[test]
fn barriers_gathers_scatters_and_batches_are_read_by_their_names() {
    let one = "[[500]]";
    let entries = |rank: u32| {
        let both = "[[500],[500]]";
        let message = |to: u32| format!("send {rank}->{to}");
        let back = |from: u32| format!("recv {rank}<-{from}");
        let other = 1 - rank;
        vec![
            entry("all_reduce_barrier", ("[[1]]", "[[1]]"), "Weird", 1, 0),
            entry("gather", (one, if rank == 1 { both } else { "[]" }), "Float", 2, 0),
            entry("scatter", (if rank == 0 { both } else { "[]" }, one), "Float", 3, 0),
            entry(&message(other), (one, one), "Float", 3, 4),
            entry(&back(other), (one, one), "Float", 3, 4).replace("\"record_id\":34", "\"record_id\":35"),
            entry("coalesced", ("[]", "[]"), "Float", 4, 4),
        ]
    };
    let inputs = [dump("rank_0", &entries(0)), dump("rank_1", &entries(1))];
    let (workload, coverage) = import("flight-recorder", &inputs, &Options::default()).unwrap();
    assert_eq!(workload.program(RankId(0)).specs[0].kind, CollectiveKind::Barrier);
    assert_eq!(coverage.of("collective: barrier", Treatment::Mapped), 2, "its type is of no payload");
    for kind in ["gather", "scatter"] {
        assert_eq!(coverage.of(&format!("collective: {kind}"), Treatment::Approximated), 2);
    }
    assert_eq!(coverage.of("call of coalesced", Treatment::Mapped), 2);
    assert_eq!(coverage.total(Treatment::Dropped).operations, 0);
    let sends = |rank: u32| -> Vec<u64> {
        let ops = workload.program(RankId(rank)).ops.iter();
        ops.filter_map(|op| if let OpKind::Send { bytes, .. } = op.kind { Some(bytes.get()) } else { None })
            .collect()
    };
    // Rank 0 gives its part to the root 1 and scatters one part of two, and both send 2,000 B at once.
    assert_eq!((sends(0), sends(1)), (vec![2_000, 2_000, 2_000], vec![2_000]));
    let messages = windtunnel_workload::lower::to_messages(&workload, |_| {}).unwrap();
    assert!(windtunnel_workload::goal::check(&messages).is_complete());
    let program = workload.program(RankId(0));
    let batch: Vec<u32> = (0..program.ops.len() as u32)
        .rev()
        .filter(|&op| matches!(program.ops[op as usize].kind, OpKind::Send { .. } | OpKind::Receive { .. }))
        .take(2)
        .collect();
    assert!(!program.requires.of(batch[1]).contains(&batch[0]), "messages of a batch are under way at once");
}

#[test]
fn a_type_that_is_not_known_is_a_guess() {
    let entries = [
        entry("all_reduce", ("[[7]]", "[[7]]"), "Weird", 1, 0),
        entry("all_reduce", ("[[7]]", "[[7]]"), "UInt16", 2, 0),
    ];
    let inputs = [dump("rank_0", &entries), dump("rank_1", &entries)];
    let (_, coverage) = import("flight-recorder", &inputs, &Options::default()).unwrap();
    let why = "a type of element that is not known: four bytes each";
    assert_eq!(row(&coverage, "collective: all-reduce", why), (2, 56));
    assert_eq!(row(&coverage, "collective: all-reduce", ""), (2, 28));
}

#[test]
fn the_rank_in_a_name_is_the_number_behind_the_word() {
    let entries = [entry("all_reduce", ("[[7]]", "[[7]]"), "Float", 1, 0)];
    for names in [
        ["rank0_fr_v2", "rank1_fr_v2"],
        ["nccl_trace_rank_0", "nccl_trace_rank_1"],
        ["fr_2_0", "fr_2_1"],
        ["job7-rank-0.json", "job7-rank-1.json"],
    ] {
        let inputs = names.map(|name| dump(name, &entries));
        let (workload, _) = import("flight-recorder", &inputs, &Options::default()).unwrap();
        assert_eq!(workload.ranks(), 2, "{names:?}");
    }
}

#[test]
fn a_dump_of_an_old_version_is_not_told_as_a_newer_one() {
    let hint = |version: &str| {
        let inputs = changed("flight-recorder", 0, "2.4", version);
        import("flight-recorder", &inputs, &Options::default()).unwrap_err().hint.unwrap()
    };
    assert!(hint("1.5").starts_with("an older PyTorch"));
    assert!(hint("3.0").starts_with("a newer PyTorch"));
    assert!(hint("2.99").starts_with("a newer PyTorch"));
    assert!(hint("x").contains("no dump"));
}

#[test]
fn a_flight_recorder_dump_is_the_same_from_a_pickle() {
    // Protocol 2, as PyTorch's pickler writes: {"version": "2.4", "entries": []}, with a memo that is used.
    let pickle = b"\x80\x02}q\x00(X\x07\x00\x00\x00versionq\x01X\x03\x00\x00\x002.4q\x02X\x07\x00\x00\x00entriesq\x03]q\x04u.";
    let values = windtunnel_import::pickle::read("t", pickle).unwrap();
    assert_eq!(values.root().get("version").and_then(windtunnel_import::pickle::Value::text), Some("2.4"));
    assert_eq!(values.root().get("entries").unwrap().items().count(), 0);
}

#[test]
fn a_dump_of_an_unknown_version_is_refused() {
    for (version, read) in
        [("2.4", true), ("2.10", true), ("2.11", false), ("3.0", false), ("2", false), ("2.x", false)]
    {
        let inputs: Vec<Input> = sample("flight-recorder")
            .iter()
            .map(|input| {
                let text = String::from_utf8(input.whole().unwrap()).unwrap();
                let text = text.replace(r#""version":"2.4""#, &format!(r#""version":"{version}""#));
                Input::bytes(input.name.clone(), text.into_bytes())
            })
            .collect();
        let result = import("flight-recorder", &inputs, &Options::default());
        assert_eq!(result.is_ok(), read, "{version}");
    }
}

#[test]
fn a_pickle_that_wants_to_run_code_is_refused() {
    // os.system("id"): what `pickle.dumps` makes of an object with `__reduce__`, in protocols 0 and 4.
    for evil in [
        &b"cos\nsystem\n(S'id'\ntR."[..],
        b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x94\x85\x94R\x94.",
    ] {
        let error = windtunnel_import::pickle::read("dump", evil).unwrap_err();
        assert!(error.found.contains("names, calls or builds"), "{error}");
    }
}

#[test]
fn dumps_as_python_pickles_them_are_read_in_every_binary_protocol() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/flight-recorder");
    let read = |protocol: &str| {
        let inputs = windtunnel_import::input::expand(&[corpus.join(protocol)]).unwrap();
        assert_eq!(windtunnel_import::detect(&inputs[0]).unwrap().unwrap().entry().name, "flight-recorder");
        import("flight-recorder", &inputs, &Options { strict: true, ..Options::default() }).unwrap()
    };
    let (two, coverage) = read("protocol2");
    assert_eq!(two.programs, read("protocol4").0.programs);
    assert_eq!((two.ranks(), coverage.of("send", Treatment::Mapped)), (2, 1));
    // 1,024 x 16 floats, a gather of 1,024 bfloat16 in all, 2 x 300 floats, 77 floats.
    let sizes: Vec<u64> = two.program(RankId(0)).specs.iter().map(|spec| spec.bytes.get()).collect();
    assert_eq!(sizes, [65_536, 2_048, 2_400, 308]);
}

#[test]
fn a_pickle_as_text_is_refused_with_what_to_do() {
    let error = windtunnel_import::pickle::read("t", b"(dp0\nVversion\np1\n.").unwrap_err();
    assert_eq!(error.found, "instruction 0x70 of protocol 0");
}

#[test]
fn a_dump_whose_entries_share_a_large_part_is_refused_at_once() {
    // One list of 20,000 shapes, and 20,000 entries that are one entry with it: 400 million shapes in 80 KB.
    let mut pickle =
        b"\x80\x02}(X\x07\x00\x00\x00versionX\x03\x00\x00\x002.4X\x07\x00\x00\x00entries](}(".to_vec();
    pickle.extend(b"X\x0f\x00\x00\x00time_created_nsK\x05X\x0b\x00\x00\x00input_sizes](");
    pickle.extend(b"]".repeat(20_000));
    pickle.extend(b"euq\x00");
    pickle.extend(b"h\x00".repeat(20_000));
    pickle.extend(b"eu.");
    let error =
        import("flight-recorder", &[Input::bytes("rank_0", pickle)], &Options::default()).unwrap_err();
    assert_eq!(error.found, "parts that very many entries share");
}
