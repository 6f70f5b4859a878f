//! Events of NCCL's example profiler plugin, as several versions of it write them.

use std::fmt::Write;

use windtunnel_import::input::{Input, expand};
use windtunnel_import::{Coverage, ImportError, Missing, Options, Treatment};
use windtunnel_kernel::RankId;
use windtunnel_workload::collectives::CollectiveKind;
use windtunnel_workload::{OpKind, Workload};

use crate::small::import;

/// A file under way: events of a process, by NCCL 2.27 and newer unless they are changed.
struct File {
    text: String,
    process: u32,
}

impl File {
    fn new(process: u32) -> Self {
        Self { text: "[\n".to_owned(), process }
    }

    fn event(&mut self, name: &str, category: &str, phase: char, at: f64, arguments: &str) {
        let arguments =
            if arguments.is_empty() { String::new() } else { format!(r#", "args": {{{arguments}}}"#) };
        let process = self.process;
        writeln!(
            self.text,
            r#"{{"name": "{name}", "cat": "{category}", "ph": "{phase}", "id": 0, "pid": {process}, "tid": 1, "ts": {at:.6}{arguments}}},"#
        )
        .unwrap();
    }

    /// A collective of `kind` with `arguments` from `at` for 50 us; its kernel's channel is there if `clock` says its begin.
    fn collective(&mut self, kind: &str, arguments: &str, at: f64, clock: Option<u64>) {
        self.event(kind, "COLL", 'b', at - 5.0, arguments);
        self.channel(at, clock);
        self.event(kind, "COLL", 'e', if clock.is_some() { at + 60.0 } else { at + 50.0 }, "");
    }

    fn channel(&mut self, at: f64, clock: Option<u64>) {
        if let Some(clock) = clock {
            let said = format!(r#""Channel": 0, "StartGpuClk": {clock}, "StopGpuClk": {}"#, clock + 50_000);
            self.event("KernelCh", "GPU", 'b', at, &said);
            self.event("KernelCh", "GPU", 'e', at + 50.0, "");
        }
    }

    fn message(&mut self, kind: &str, arguments: &str, at: f64, clock: Option<u64>) {
        self.event(kind, "P2P", 'b', at - 5.0, arguments);
        self.channel(at, clock);
        self.event(kind, "P2P", 'e', at + 50.0, "");
    }

    fn end(&self, name: &str) -> Input {
        Input::bytes(name, format!("{}{{}}]\n", self.text).into_bytes())
    }
}

fn sum(communicator: u64, rank: u32, number: u32, count: u64) -> String {
    format!(
        r#""SeqNum": {number}, "CommHash": {communicator}, "Rank": {rank}, "Count": {count}, "Datatype": "ncclBfloat16", "Algorithm": "RING", "Protocol": "LL", "nChannels": 1"#
    )
}

fn other(communicator: u64, rank: u32, peer: u32, count: u64) -> String {
    format!(
        r#""CommHash": {communicator}, "Rank": {rank}, "Peer": {peer}, "Count": {count}, "Datatype": "ncclInt8", "nChannels": 1"#
    )
}

/// Two ranks: an all-reduce, and a message from 0 to 1.
pub(crate) fn sample() -> Vec<Input> {
    (0..2)
        .map(|rank| {
            let mut file = File::new(70 + rank);
            file.event("Group", "GROUP", 'b', 90.0, r#""groupId": 0"#);
            file.collective("AllReduce", &sum(7, rank, 0, 1_000), 100.0, Some(1_000_000));
            file.event("Group", "GROUP", 'e', 99.0, "");
            let kind = if rank == 0 { "Send" } else { "Recv" };
            file.message(kind, &other(7, rank, 1 - rank, 4_096), 200.0, Some(1_100_000));
            file.end(&format!("n0_7_{rank}.json"))
        })
        .collect()
}

fn read(inputs: &[Input]) -> Result<(Workload, Coverage), ImportError> {
    import("nccl-profiler", inputs, &Options::default())
}

fn example() -> Vec<Input> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/traces/nccl-profiler");
    expand(&[folder]).unwrap()
}

fn noted(coverage: &Coverage, part: &str) -> bool {
    coverage.notes().iter().any(|note| note.contains(part))
}

/// Communicators' members, in order of their members.
fn groups(workload: &Workload) -> Vec<Vec<u32>> {
    let ranks =
        |group: &windtunnel_workload::program::Communicator| group.ranks.iter().map(|rank| rank.0).collect();
    let mut groups: Vec<Vec<u32>> = workload.communicators.iter().map(ranks).collect();
    groups.sort();
    groups
}

/// Computations of a rank in ns, in order.
fn computed(workload: &Workload, rank: u32) -> Vec<u64> {
    let ops = workload.program(RankId(rank)).ops.iter();
    ops.filter_map(|op| {
        if let OpKind::Calc { duration, .. } = op.kind { Some(duration.ps() / 1_000) } else { None }
    })
    .collect()
}

/// Bytes of a rank's collectives, in order.
fn collectives(workload: &Workload, rank: u32) -> Vec<(CollectiveKind, u64)> {
    let program = workload.program(RankId(rank));
    let spec = |op: &windtunnel_workload::Operation| {
        let OpKind::Collective { spec, .. } = op.kind else { return None };
        let spec = &program.specs[spec as usize];
        Some((spec.kind, spec.bytes.get()))
    };
    program.ops.iter().filter_map(spec).collect()
}

#[test]
fn the_example_has_tensor_and_data_parallelism_and_messages_of_a_ring() {
    let inputs = example();
    let (workload, coverage) = read(&inputs).unwrap();
    assert_eq!(groups(&workload), [vec![0, 1], vec![0, 1, 2, 3], vec![0, 2], vec![1, 3], vec![2, 3]]);
    for rank in 0..4 {
        use CollectiveKind::{AllGather, AllReduce, Broadcast, ReduceScatter};
        let step = [(AllGather, 2 << 20), (AllReduce, 8 << 20), (ReduceScatter, 16 << 20)];
        let all: Vec<(CollectiveKind, u64)> =
            step.into_iter().chain(step).chain([(Broadcast { root: 2 }, 4_096)]).collect();
        assert_eq!(collectives(&workload, rank), all, "rank {rank}");
        // From kernel to kernel by the GPU's clock; both messages of a ring begin at once.
        let step = [470_000, 440_000, 880_000];
        let gaps = [&step[..], &[2_600_000], &step, &[1_600_000]].concat();
        assert_eq!(computed(&workload, rank), gaps, "rank {rank}");
    }
    let messages = |verdict| (coverage.of("send", verdict), coverage.of("receive", verdict));
    assert_eq!(messages(Treatment::Mapped), (8, 8));
    assert_eq!(coverage.of("communicator", Treatment::Guessed), 5);
    assert_eq!(coverage.total(Treatment::Dropped).operations, 0);
    // Each pair of a begin and an end is one thing, and a gap is one.
    let text: String =
        inputs.iter().map(|input| String::from_utf8(input.whole().unwrap()).unwrap()).collect();
    let pairs = text.matches(r#""ph": "b""#).count();
    assert_eq!(pairs, text.matches(r#""ph": "e""#).count());
    let counted: u64 = Treatment::ALL.iter().map(|verdict| coverage.total(*verdict).operations).sum();
    assert_eq!(counted, pairs as u64 + 5 + 4 * 8);
    assert!(!noted(&coverage, "host") && !noted(&coverage, "bracket") && !noted(&coverage, "pools"));
}

#[test]
fn messages_of_a_group_are_under_way_at_once_and_others_one_after_another() {
    for grouped in [true, false] {
        let inputs: Vec<Input> = (0..2)
            .map(|rank| {
                let mut file = File::new(5 + rank);
                if grouped {
                    file.event("Group API", "GROUP_API", 'b', 0.0, r#""groupApiId": 0, "groupDepth":1"#);
                }
                for (kind, at) in [("Send", 10.0), ("Recv", 12.0)] {
                    file.message(kind, &other(3, rank, 1 - rank, 1 << 30), at, None);
                }
                if grouped {
                    file.event("Group API", "GROUP_API", 'e', 70.0, "");
                }
                file.collective("AllReduce", &sum(3, rank, 0, 8), 100.0, None);
                file.end(&format!("a_3_{rank}.json"))
            })
            .collect();
        let (workload, coverage) = read(&inputs).unwrap();
        let program = workload.program(RankId(0));
        let kinds: Vec<bool> =
            program.ops.iter().map(|op| matches!(op.kind, OpKind::Receive { .. })).collect();
        let receive = kinds.iter().position(|&is| is).unwrap() as u32;
        assert_eq!(program.prerequisites[receive as usize] as usize, usize::from(!grouped), "{grouped}");
        // The all-reduce waits for both, behind what lies between.
        assert_eq!(computed(&workload, 0), [33_000]);
        assert!(noted(&coverage, "times of the host"));
    }
}

#[test]
fn what_nccl_2_28_3_writes_is_no_json_and_read() {
    let inputs: Vec<Input> = (0..2)
        .map(|rank| {
            let mut file = File::new(5 + rank);
            file.event("Group API", "GROUP_API", 'b', 0.0, r#""groupApiId": 0, "groupDepth":1"#);
            file.event(
                "KernelLaunch",
                "KERNEL_LAUNCH",
                'b',
                0.0,
                r#""groupId": 0, "Stream": 0x5020000567d0"#,
            );
            file.event("KernelLaunch", "KERNEL_LAUNCH", 'e', 1.0, "");
            let call =
                r#""count": 8, "datatype": ncclFloat32, "root": 1, "GraphCaptured":0, "Stream": (nil)"#;
            file.event("Broadcast", "COLL_API", 'b', 0.0, call);
            file.collective("Broadcast", &sum(3, rank, 0, 8), 100.0, Some(9));
            file.event("Broadcast", "COLL_API", 'e', 7.0, "");
            file.event("Group API", "GROUP_API", 'e', 8.0, "");
            file.end(&format!("a_3_{rank}.json"))
        })
        .collect();
    let (workload, coverage) = read(&inputs).unwrap();
    assert_eq!(collectives(&workload, 0), [(CollectiveKind::Broadcast { root: 1 }, 16)]);
    assert_eq!(coverage.of("collective: broadcast", Treatment::Mapped), 2);
    assert_eq!(coverage.of("event KERNEL_LAUNCH", Treatment::Mapped), 2);
}

#[test]
fn what_nccl_2_23_writes_has_types_by_number_and_no_root() {
    let inputs: Vec<Input> = (0..2)
        .map(|rank| {
            let mut file = File::new(5);
            let said = sum(3, rank, 0, 8).replace("\"ncclBfloat16\"", "8");
            file.collective("Reduce", &said, 100.0, None);
            let said = sum(3, rank, 0, 8).replace("\"ncclBfloat16\"", "99");
            file.collective("AllGather", &said, 200.0, None);
            // Two hosts, the same number of a process.
            file.end(&format!("dump-node-{rank}-4711.txt"))
        })
        .collect();
    let (workload, coverage) = read(&inputs).unwrap();
    let expected = [(CollectiveKind::Reduce { root: 0 }, 64), (CollectiveKind::AllGather, 64)];
    assert_eq!(collectives(&workload, 1), expected);
    assert_eq!(coverage.of("collective: reduce", Treatment::Guessed), 2);
    assert_eq!(coverage.of("collective: all-gather", Treatment::Guessed), 2);
}

#[test]
fn collectives_by_copy_engines_are_those_of_their_file() {
    let file = |rank: u32, name: &str| {
        let mut file = File::new(5 + rank);
        file.event(
            "AllGather",
            "CE_COLL",
            'b',
            10.0,
            r#""eventId": 1, "count": 100, "datatype": "ncclFloat16", "strategy": "x""#,
        );
        file.event("CeSync", "CE_SYNC", 'b', 10.0, r#""eventId": 2, "nRanks": 2"#);
        file.event("CeSync", "CE_SYNC", 'e', 11.0, "");
        file.event("AllGather", "CE_COLL", 'e', 30.0, "");
        file.end(name)
    };
    let (workload, coverage) = read(&[file(0, "a_3_0.json"), file(1, "a_3_1.json")]).unwrap();
    assert_eq!(collectives(&workload, 0), [(CollectiveKind::AllGather, 400)]);
    assert_eq!(coverage.of("event CE_SYNC", Treatment::Mapped), 2);
    // A file that was renamed says nothing; beside collectives that do it is theirs.
    let (_, coverage) = read(&[file(0, "x.json"), sample().remove(0), sample().remove(1)]).unwrap();
    assert_eq!(coverage.of("event CE_COLL", Treatment::Dropped), 1);
}

#[test]
fn calls_that_fell_out_of_a_pool_are_told_and_the_others_matched_by_number() {
    let inputs: Vec<Input> = (0..2)
        .map(|rank| {
            let mut file = File::new(5 + rank);
            // Of rank 1 the pool was smaller: it kept the last two sums and one message.
            let first = if rank == 0 { 2 } else { 4 };
            for number in first..6 {
                let at = 1_000.0 * f64::from(number);
                file.collective(
                    "AllReduce",
                    &sum(3, rank, number, u64::from(number)),
                    at,
                    Some(1 + 1_000_000 * u64::from(number)),
                );
                if number == 5 || rank == 0 {
                    let kind = if rank == 0 { "Send" } else { "Recv" };
                    file.message(
                        kind,
                        &other(3, rank, 1 - rank, 8),
                        at + 500.0,
                        Some(1_500_000 * u64::from(number)),
                    );
                }
                // The other kind has numbers of its own: that they are all there loses none.
                if number == 5 {
                    file.collective("Broadcast", &sum(3, rank, 0, 9), at + 900.0, Some(9_900_000));
                }
            }
            file.end(&format!("a_3_{rank}.json"))
        })
        .collect();
    let (workload, coverage) = read(&inputs).unwrap();
    let sums = [4u64, 5].map(|count| (CollectiveKind::AllReduce, 2 * count));
    for rank in 0..2 {
        assert_eq!(
            collectives(&workload, rank),
            [&sums[..], &[(CollectiveKind::Broadcast { root: 0 }, 18)]].concat()
        );
    }
    assert!(noted(&coverage, "6 collectives fell out of the plugin's pools"), "{:?}", coverage.notes());
    assert_eq!(coverage.of("collective: all-reduce", Treatment::Approximated), 2);
    assert_eq!(
        (coverage.of("send", Treatment::Approximated), coverage.of("send", Treatment::Mapped)),
        (3, 1)
    );
    assert_eq!(coverage.of("receive", Treatment::Mapped), 1);
}

#[test]
fn a_file_that_is_cut_is_read_up_to_there() {
    let whole = String::from_utf8(sample()[0].whole().unwrap()).unwrap();
    let second = sample().remove(1);
    let lines = whole.lines().count();
    for kept in 3..=lines {
        let text: Vec<&str> = whole.lines().take(kept).collect();
        // With a comma, without one, and in the middle of a line.
        for text in
            [text.join("\n"), text.join("\n").trim_end_matches(',').to_owned(), text.join("\n") + "\n{\"na"]
        {
            let is_whole = kept == lines;
            let inputs = [Input::bytes("n0_7_0.json", text.into_bytes()), second.clone()];
            let (workload, coverage) = read(&inputs).unwrap();
            assert_eq!(noted(&coverage, "1 files end before their last bracket"), !is_whole);
            assert_eq!(workload.ranks(), 2);
        }
    }
    // An end that never came: the operation is there, without a time.
    let text: Vec<&str> = whole.lines().take(3).collect();
    let (_, coverage) = read(&[Input::bytes("n0_7_0.json", text.join("\n").into_bytes()), second]).unwrap();
    assert_eq!(coverage.of("collective: all-reduce", Treatment::Approximated), 1);
    assert_eq!(coverage.of("receive", Treatment::Approximated), 1);
}

#[test]
fn ranks_that_are_missing_are_named() {
    let error = read(&sample()[..1]).unwrap_err();
    assert!(error.found.contains("missing: rank 1"), "{error}");
    let options = Options { missing: Missing::Same, ..Options::default() };
    let (workload, _) = import("nccl-profiler", &sample()[..1], &options).unwrap();
    assert_eq!(workload.ranks(), 2);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let refused = |text: &str| read(&[Input::bytes("a_1_0.json", text.as_bytes().to_vec())]).unwrap_err();
    let event = |cat: &str, more: &str| {
        format!(r#"[{{"name": "AllReduce", "cat": "{cat}", "ph": "b"{more}}}, {{}}]"#)
    };
    let error = refused("[\n{}]\n");
    assert_eq!(error.found, "none");
    assert!(error.hint.unwrap().contains("NCCL_PROFILE_EVENT_MASK=70"));
    let error = refused(&event("COLL", r#", "ts": 1.0, "args": {"Rank": 0}"#));
    assert_eq!(
        error.to_string(),
        "a_1_0.json:byte 1: expected `CommHash` and `Rank` of an operation, found `{\"Rank\": 0}`"
    );
    let error = refused(&event("COLL", r#", "ts": "x", "args": {"Rank": 0, "CommHash": 1}"#));
    assert!(error.expected.starts_with("`ts` in microseconds"), "{error}");
    let error = refused(&event("COLL", r#", "ts": 1.0, "args": {"Rank": 4000000000, "CommHash": 1}"#));
    assert!(error.expected.contains("ranks"), "{error}");
    let error = refused("[5, {}]");
    assert!(error.expected.starts_with("an event in JSON"), "{error}");
    let error = refused("{\"a\": 1}");
    assert!(error.expected.starts_with("an array of events"), "{error}");
    assert_eq!(refused("[").found, "the end of the file");
}

#[test]
fn odd_events_are_counted_and_lose_nothing_else() {
    let mut inputs = sample();
    let odd = concat!(
        r#"{"name": "x", "cat": "COLL", "ph": "e", "id": 0, "pid": 70, "tid": 1, "ts": 1.0},"#,
        r#"{"name": "x", "cat": "LUNCH", "ph": "b", "id": 0, "pid": 70, "tid": 1, "ts": 1.0},"#,
        r#"{"name": "x", "cat": "LUNCH", "ph": "e", "id": 0, "pid": 70, "tid": 1, "ts": 1.0},"#,
        r#"{"name": "x", "cat": "GPU", "ph": "X", "id": 0, "pid": 70, "tid": 1, "ts": 1.0},"#,
        r#"{"name": "Idle", "cat": "PROXY", "ph": "b", "id": 0, "pid": 70, "tid": 1, "ts": 1.0},"#,
        r#"{"name": "Idle", "cat": "PROXY", "ph": "e", "id": 0, "pid": 70, "tid": 1, "ts": 1.0},"#,
    );
    let text = String::from_utf8(inputs[0].whole().unwrap()).unwrap();
    inputs[0] = Input::bytes("n0_7_0.json", text.replacen("[\n", &format!("[\n{odd}\n"), 1).into_bytes());
    let (before, _) = read(&sample()).unwrap();
    let (after, coverage) = read(&inputs).unwrap();
    assert_eq!(after.operations(), before.operations());
    for (kind, verdict) in [
        ("event COLL", Treatment::Dropped),
        ("event LUNCH", Treatment::Dropped),
        ("event GPU", Treatment::Dropped),
        ("event PROXY", Treatment::Mapped),
    ] {
        assert_eq!(coverage.of(kind, verdict), 1, "{kind}");
    }
    // Messages to oneself, and calls that no workload has.
    let mut file = File::new(9);
    file.message("Send", &other(7, 0, 0, 64), 10.0, None);
    file.collective("Gather", &sum(7, 0, 0, 64), 100.0, None);
    file.collective("AllReduce", &sum(7, 0, 0, 64), 200.0, None);
    let options = Options { missing: Missing::Same, ..Options::default() };
    let (_, coverage) = import("nccl-profiler", &[file.end("a_7_0.json")], &options).unwrap();
    assert_eq!(coverage.of("send", Treatment::Approximated), 1);
    assert_eq!(coverage.of("Gather", Treatment::Dropped), 1);
}
