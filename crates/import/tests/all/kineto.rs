//! Kineto traces written here.

use windtunnel_import::input::Input;
use windtunnel_import::{Options, Place, Treatment};
use windtunnel_kernel::RankId;
use windtunnel_workload::OpKind;
use windtunnel_workload::program::HOST_STREAM;

use crate::small::import;

/// A rank's step: two kernels, an all-reduce of 1 MiB on another stream, a wait of the host. Times in us.
pub(crate) fn trace(rank: u32) -> String {
    let kernel = |name: &str, stream: u32, at: f64, length: f64, correlation: u32, more: &str| {
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":{stream},"ts":{at},"dur":{length},"args":{{"stream":{stream},"correlation":{correlation}{more}}}}}"#
        )
    };
    let call = |name: &str, at: f64, length: f64, correlation: u32| {
        format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"{name}","pid":9,"tid":9,"ts":{at},"dur":{length},"args":{{"correlation":{correlation}}}}}"#
        )
    };
    let said = r#","Collective name":"allreduce","In msg nelems":262144,"Out msg nelems":262144,"dtype":"Float","Group size":2,"Process Group Name":"0","Process Group Ranks":"[0, 1]""#;
    let events = [
        r#"{"ph":"X","cat":"user_annotation","name":"ProfilerStep#3","pid":9,"tid":9,"ts":1000.5,"dur":200}"#
            .to_owned(),
        call("cudaLaunchKernel", 1010.0, 5.0, 1),
        kernel("void gemm<float>(float*)", 7, 1020.0, 30.0, 1, ""),
        call("cudaLaunchKernel", 1016.0, 5.0, 2),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 20, 1055.0, 40.0, 2, said),
        call("cudaLaunchKernel", 1030.0, 5.0, 3),
        kernel("softmax", 7, 1052.0, 10.0, 3, ""),
        call("cudaDeviceSynchronize", 1040.0, 60.0, 4),
        r#"{"ph":"f","cat":"ac2g","name":"ac2g","id":1,"ts":1020}"#.to_owned(),
    ];
    format!(
        r#"{{"schemaVersion":1,"distributedInfo":{{"backend":"nccl","rank":{rank},"world_size":2,"pg_config":[{{"pg_name":"0","pg_desc":"default_pg","ranks":[0,1]}}]}},"traceEvents":[{}],"traceName":"t"}}"#,
        events.join(",")
    )
}

fn inputs() -> Vec<Input> {
    (0..2).map(|rank| Input::bytes(format!("{rank}.json"), trace(rank).into_bytes())).collect()
}

#[test]
fn kernels_keep_their_streams_and_the_host_waits_for_them() {
    let (workload, coverage) = import("kineto", &inputs(), &Options::default()).unwrap();
    let program = workload.program(RankId(0));
    let label = |op: usize| program.labels[program.ops[op].label as usize].as_str();
    let find = |name: &str| (0..program.ops.len()).find(|&op| label(op) == name).unwrap() as u32;
    let (gemm, softmax, wait) = (find("gemm"), find("softmax"), find("wait of the host"));
    // 5 us of launch before 30 us of kernel, after the point at 1010; then in order on its stream, 2 us of gap.
    assert!(
        matches!(program.ops[gemm as usize].kind, OpKind::Calc { duration, stream } if duration.ps() == 40_000_000 && stream.0 == 0)
    );
    assert!(program.requires.of(gemm).contains(&softmax));
    let sum = (0..program.ops.len() as u32)
        .find(|&op| matches!(program.ops[op as usize].kind, OpKind::Collective { .. }))
        .unwrap();
    for before in [softmax, sum] {
        assert!(program.requires.of(before).contains(&wait));
    }
    // The wait ended at 1100, the all-reduce at 1095: 5 us are its own.
    assert!(
        matches!(program.ops[wait as usize].kind, OpKind::Calc { duration, stream } if duration.ps() == 5_000_000 && stream == HOST_STREAM)
    );
    assert_eq!(program.specs[0].bytes.get(), 1 << 20);
    assert_eq!(coverage.of("kernel", Treatment::Mapped), 4);
    // It starts where the kernel before on the other stream ends, and no event says so.
    assert_eq!(coverage.of("collective: all-reduce", Treatment::Guessed), 2);
}

#[test]
fn a_rank_given_twice_and_a_merged_trace_are_refused() {
    let twice = vec![Input::bytes("a", trace(0).into_bytes()), Input::bytes("b", trace(0).into_bytes())];
    assert!(import("kineto", &twice, &Options::default()).unwrap_err().found.contains("rank 0 again"));
    let merged = trace(0).replace(r#""Group size":2"#, r#""Group size":2,"Rank":0"#);
    let other = r#"{"ph":"X","cat":"kernel","name":"ncclDevKernel","pid":1,"tid":2,"ts":1,"dur":2,"args":{"stream":2,"Collective name":"allreduce","Rank":1,"Process Group Name":"0","Process Group Ranks":"[0, 1]"}},"#;
    let merged = merged.replace(r#""traceEvents":["#, &format!(r#""traceEvents":[{other}"#));
    let error = import("kineto", &[Input::bytes("m", merged.into_bytes())], &Options::default()).unwrap_err();
    assert!(error.hint.unwrap().contains("merged"));
    // Merged by hand: the events of both, with processes and devices of their own.
    let events = |rank: u32| {
        let text = trace(rank)
            .replace(r#""pid":9"#, &format!(r#""pid":{}"#, 90 + rank))
            .replace(r#""pid":0"#, &format!(r#""pid":{rank}"#));
        text[text.find("[{\"ph\"").unwrap() + 1..text.rfind(']').unwrap()].to_owned()
    };
    let merged = format!(r#"{{"traceEvents":[{},{}]}}"#, events(0), events(1));
    let error = import("kineto", &[Input::bytes("m", merged.into_bytes())], &Options::default()).unwrap_err();
    assert!(error.found.contains("2 processes on 2 devices"), "{error}");
}

#[test]
fn clocks_that_disagree_are_set_by_collectives() {
    let mut late = trace(1);
    // Rank 1's clock is a second ahead.
    for at in ["1000.5", "1010", "1020", "1016", "1055", "1030", "1052", "1040"] {
        late = late
            .replace(&format!(r#""ts":{at},"#), &format!(r#""ts":{},"#, at.parse::<f64>().unwrap() + 1e6));
    }
    let inputs = [Input::bytes("0", trace(0).into_bytes()), Input::bytes("1", late.into_bytes())];
    let (workload, coverage) = import("kineto", &inputs, &Options::default()).unwrap();
    assert_eq!(coverage.of("clock of a rank", Treatment::Approximated), 1);
    assert_eq!(workload.program(RankId(0)), workload.program(RankId(1)));
}

#[test]
fn an_event_that_cannot_be_is_placed_where_it_begins() {
    let bad = |old: &str, new: &str| {
        let text = trace(0);
        let text = text.replacen(old, new, 1);
        let event = text[..text.find(new).unwrap()].rfind("{\"ph\"").unwrap() as u64;
        let error =
            import("kineto", &[Input::bytes("0", text.into_bytes())], &Options::default()).unwrap_err();
        assert_eq!(error.place, Place::Byte(event), "{error}");
        (error.expected, error.found)
    };
    let told = |expected: &str, found: &str| (expected.to_owned(), found.to_owned());
    // The first event, and one behind others.
    let negative = told("a duration `dur` of at least 0", "`-5` of `ProfilerStep#3`");
    assert_eq!(bad("\"dur\":200", "\"dur\":-5"), negative);
    let negative = told("a duration `dur` of at least 0", "`-5.5` of `softmax`");
    assert_eq!(bad("\"ts\":1052,\"dur\":10", "\"ts\":1052,\"dur\":-5.5"), negative);
    assert_eq!(bad("\"ts\":1000.5", "\"ts\":1e400"), told("`ts` in microseconds", "`1e400`"));
    let late = told("a time `ts` within 73 years of 1970", "`9223372036854775` of `softmax`");
    assert_eq!(bad("\"ts\":1052,\"dur\":10", "\"ts\":9223372036854775,\"dur\":1000"), late);
}

#[test]
fn clocks_are_compared_within_groups_and_over_ranks_that_share_them() {
    // Ranks 0 and 1 share a group, 1 and 2 another; rank 2's clock is a second ahead, and it has a call that no other has.
    let said = |group: &str, ranks: &str, at: f64, stream: u32| {
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce","pid":0,"tid":{stream},"ts":{at},"dur":40,"args":{{"stream":{stream},"Collective name":"allreduce","In msg nelems":64,"Out msg nelems":64,"dtype":"Float","Group size":2,"Process Group Name":"{group}","Process Group Ranks":"{ranks}"}}}}"#
        )
    };
    let file = |rank: u32, events: &[String]| {
        let text = format!(
            r#"{{"schemaVersion":1,"distributedInfo":{{"rank":{rank},"world_size":3}},"traceEvents":[{}]}}"#,
            events.join(",")
        );
        Input::bytes(format!("{rank}.json"), text.into_bytes())
    };
    let (first, second) = (("a", "[0, 1]"), ("b", "[1, 2]"));
    let inputs = [
        file(0, &[said(first.0, first.1, 1_000.0, 1)]),
        file(1, &[said(first.0, first.1, 1_000.0, 1), said(second.0, second.1, 9_000.0, 2)]),
        file(2, &[said(second.0, second.1, 1_009_000.0, 2), said(second.0, second.1, 1_010_000.0, 2)]),
    ];
    let (_, coverage) = import("kineto", &inputs, &Options::default()).unwrap();
    assert_eq!(coverage.of("clock of a rank", Treatment::Approximated), 1);
    let late = coverage.arrivals("b", 2).unwrap();
    assert_eq!((late.held_up_ns, late.waited_ns), (0, 0), "rank 2 comes when rank 1 does");
    assert!(!coverage.notes().iter().any(|note| note.contains("clocks")), "{:?}", coverage.notes());
    // Nothing in common: what is taken as it is, is said.
    let (_, coverage) = import(
        "kineto",
        &[inputs[0].clone(), inputs[2].clone()],
        &Options { missing: windtunnel_import::Missing::Alone, ..Options::default() },
    )
    .unwrap();
    assert!(coverage.notes().iter().any(|note| note.contains("clocks of rank 2")), "{:?}", coverage.notes());
}

#[test]
fn what_traces_of_one_run_cannot_say_is_refused_with_the_file_that_says_it() {
    let refused = |old: &str, new: &str| {
        let text = trace(1);
        assert!(text.contains(old));
        let odd = Input::bytes("odd", text.replace(old, new).into_bytes());
        let usual = Input::bytes("usual", trace(0).into_bytes());
        import("kineto", &[usual, odd], &Options::default()).unwrap_err()
    };
    for (old, new, found) in [
        (r#""schemaVersion":1"#, r#""schemaVersion":2"#, "`schemaVersion` 2"),
        (r#""world_size":2"#, r#""world_size":4"#, "4 here, and 2 in usual"),
        (r#""rank":1,"#, r#""rank":4000000000,"#, "4000000001"),
        (
            r#"msg nelems":262144"#,
            r#"msg nelems":7"#,
            "its call 1 is all-reduce of 28 B here, on rank 1, and of 1048576 B on rank 0 (usual)",
        ),
    ] {
        let error = refused(old, new);
        assert_eq!((&*error.file, &*error.found), ("odd", found), "{error}");
    }
    let none = Input::bytes("none", &br#"{"traceEvents":[]}"#[..]);
    assert_eq!(import("kineto", &[none], &Options::default()).unwrap_err().found, "no event");
}

#[test]
fn numbers_of_ranks_beyond_what_there_can_be_are_no_members() {
    for (old, new) in [
        (r#""[0, 1]""#, r#""[0, 4294967297]""#),
        (r#""[0, 1]""#, r#""[0, ...]","Global rank start":9223372036854775807,"Global rank stride":2"#),
    ] {
        // Without `pg_config`, which would say them.
        let text = trace(0).replace(r#""pg_name":"0""#, r#""pg_name":"other""#).replace(old, new);
        let inputs = [Input::bytes("0", text.into_bytes()), Input::bytes("1", trace(1).into_bytes())];
        let (_, coverage) = import("kineto", &inputs, &Options::default()).unwrap();
        let world = "its group is as large as the world: taken for it";
        assert_eq!(crate::account::row(&coverage, "collective: all-reduce", world).0, 1, "{new}");
    }
}

#[test]
fn an_execution_trace_of_an_unknown_schema_is_refused() {
    let log = Input::bytes("log", &br#"{"schema":"2.0.0","pid":1,"nodes":[]}"#[..]);
    let error = import("kineto", &[inputs()[0].clone(), inputs()[1].clone(), log], &Options::default());
    assert_eq!(error.unwrap_err().found, "schema `2.0.0`");
}
