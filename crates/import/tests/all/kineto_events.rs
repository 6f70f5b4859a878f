//! Single events of Kineto's traces: those of the CPU, and those that are not quite JSON.

use windtunnel_import::input::Input;
use windtunnel_import::{Options, Treatment};
use windtunnel_kernel::RankId;
use windtunnel_workload::OpKind;
use windtunnel_workload::program::HOST_STREAM;

use crate::account::row;
use crate::kineto::trace;
use crate::small::import;

/// The annotations of a rank on the CPU, 500 us each.
fn gloo(rank: u32, calls: &[(&str, &str)]) -> Input {
    let events: Vec<String> = (1u32..)
        .zip(calls)
        .map(|(place, (name, more))| {
            format!(
                r#"{{"ph":"X","cat":"user_annotation","name":"gloo:{name}","pid":1,"tid":1,"ts":{},"dur":500,"args":{{"External id":{place}{more}}}}}"#,
                place * 1_000
            )
        })
        .collect();
    let text = format!(
        r#"{{"schemaVersion":1,"distributedInfo":{{"backend":"gloo","rank":{rank},"world_size":2}},"traceEvents":[{}]}}"#,
        events.join(",")
    );
    Input::bytes(format!("r{rank}.json"), text.into_bytes())
}

const SHAPE: &str = r#","Input Dims":[[1000,10]],"Input type":["float"]"#;

#[test]
fn collectives_of_the_cpu_without_shapes_keep_their_time() {
    let calls = [("all_reduce", SHAPE), ("all_gather", ""), ("barrier", ""), ("send", SHAPE)];
    let inputs = [gloo(0, &calls), gloo(1, &calls)];
    let (workload, coverage) = import("kineto", &inputs, &Options::default()).unwrap();
    assert_eq!(coverage.of("collective: all-reduce", Treatment::Guessed), 2);
    let why = "nothing says its size: its recorded time stays";
    assert_eq!(row(&coverage, "communication of collective", why).0, 2);
    let why = "its other rank is not recorded: its recorded time stays";
    assert_eq!(row(&coverage, "communication of collective", why).0, 2);
    let program = workload.program(RankId(0));
    let kept: u64 = program
        .ops
        .iter()
        .filter_map(|op| match op.kind {
            OpKind::Calc { duration, stream } if stream != HOST_STREAM => Some(duration.ps() / 1_000_000),
            _ => None,
        })
        .sum();
    assert!(kept >= 1_000, "{kept} us");
    let read: u64 = Treatment::ALL.iter().map(|treatment| coverage.total(*treatment).operations).sum();
    assert_eq!(read, 8, "each annotation once");
}

#[test]
fn messages_of_the_cpu_go_to_the_rank_that_they_name() {
    let to = format!(r#"{SHAPE},"Dst Rank":1"#);
    let from = format!(r#"{SHAPE},"Src Rank":0"#);
    let inputs = [gloo(0, &[("send", &to)]), gloo(1, &[("recv", &from)])];
    let (workload, coverage) = import("kineto", &inputs, &Options::default()).unwrap();
    assert_eq!(coverage.of("send", Treatment::Approximated) + coverage.of("send", Treatment::Mapped), 1);
    assert!(
        workload
            .program(RankId(0))
            .ops
            .iter()
            .any(|op| matches!(op.kind, OpKind::Send { bytes, .. } if bytes.get() == 40_000))
    );
}

fn same(old: &str, new: &str) {
    let text = trace(0);
    assert!(text.contains(old));
    let options = Options { missing: windtunnel_import::Missing::Alone, ..Options::default() };
    let read = |text: String| import("kineto", &[Input::bytes("0", text.into_bytes())], &options).unwrap();
    let (usual, other) = (read(text.clone()), read(text.replace(old, new)));
    assert_eq!(usual.0, other.0);
    assert_eq!(usual.1.json(), other.1.json());
}

#[test]
fn numbers_that_json_does_not_know_are_read_as_nothing() {
    for number in ["NaN", "Infinity", "-Infinity"] {
        same(
            r#""args":{"stream":7"#,
            &format!(r#""args":{{"est. achieved occupancy %":{number},"a \"NaN":"NaN","stream":7"#),
        );
    }
    let text = trace(0).replace(r#""dur":30"#, r#""dur":NaN"#);
    let error = import("kineto", &[Input::bytes("0", text.into_bytes())], &Options::default()).unwrap_err();
    assert_eq!(error.expected, "`dur` in microseconds", "a time is not made up");
}

#[test]
fn an_argument_that_is_there_twice_holds_as_it_was_said_last() {
    same(r#""args":{"stream":20"#, r#""args":{"stream":3,"stream":20"#);
    same(r#""Group size":2"#, r#""Group size":9,"Group size":2"#);
}

#[test]
fn events_that_are_not_used_are_not_called_a_part_of_the_host() {
    let more = r#"{"ph":"X","cat":"mystery","name":"m","pid":9,"tid":9,"ts":1001,"dur":3},{"ph":"B","cat":"kernel","name":"half","pid":9,"tid":9,"ts":1001},{"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD","pid":0,"tid":7,"ts":1090,"dur":2,"args":{"stream":7,"correlation":77,"bytes":4096}},"#;
    let text = trace(0).replace(r#""traceEvents":["#, &format!(r#""traceEvents":[{more}"#));
    let options = Options { missing: windtunnel_import::Missing::Alone, ..Options::default() };
    let (_, coverage) = import("kineto", &[Input::bytes("0", text.into_bytes())], &options).unwrap();
    assert_eq!(coverage.of("mystery", Treatment::Dropped), 1);
    assert_eq!(coverage.of("kernel (B)", Treatment::Dropped), 1);
    assert_eq!(coverage.total(Treatment::Dropped).operations, 2);
    let copies = "its launch is not in the trace: follows its stream";
    assert_eq!(row(&coverage, "copy or set of memory", copies), (1, 4_096));
}
