//! What `Rank` of a collective is in Kineto's traces, and files that were merged.

use windtunnel_import::input::Input;
use windtunnel_import::{Coverage, ImportError, Options, Treatment};
use windtunnel_kernel::RankId;
use windtunnel_workload::collectives::CollectiveKind;
use windtunnel_workload::{OpKind, Peer, Workload};

use crate::account::row;
use crate::small::import;

/// A collective of `count` bfloat16 in a group; `rank` is what PyTorch writes as `Rank`.
fn call(name: &str, count: u32, group: (&str, &str), rank: u32, more: &str) -> String {
    let (group, ranks) = group;
    format!(
        r#""Collective name":"{name}","In msg nelems":{count},"Out msg nelems":{count},"Group size":{},"dtype":"BFloat16","Process Group Name":"{group}","Process Group Ranks":"{ranks}","Rank":{rank}{more}"#,
        ranks.matches(',').count() + 1
    )
}

/// Kernels of 50 us on one stream of one device, each behind its launch by `pid`.
fn events(pid: u32, at: u32, calls: &[String]) -> String {
    let mut events = Vec::new();
    for (place, said) in (0u32..).zip(calls) {
        let (at, correlation) = (at + place * 60, pid * 100 + place);
        events.push(format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":{pid},"tid":{pid},"ts":{at},"dur":2,"args":{{"correlation":{correlation}}}}}"#
        ));
        events.push(format!(
            r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce","pid":0,"tid":7,"ts":{},"dur":50,"args":{{"stream":7,"correlation":{correlation},{said}}}}}"#,
            at + 5
        ));
    }
    events.join(",")
}

fn file(rank: u32, world: u32, calls: &[String]) -> Input {
    let text = format!(
        r#"{{"schemaVersion":1,"distributedInfo":{{"rank":{rank},"world_size":{world}}},"traceEvents":[{}]}}"#,
        events(100 + rank, 1_000, calls)
    );
    Input::bytes(format!("rank{rank}.json"), text.into_bytes())
}

fn read(world: u32, calls: impl Fn(u32) -> Vec<String>) -> Result<(Workload, Coverage), ImportError> {
    let inputs: Vec<Input> = (0..world).map(|rank| file(rank, world, &calls(rank))).collect();
    import("kineto", &inputs, &Options::default())
}

#[test]
fn a_rank_has_a_place_of_its_own_in_each_of_its_groups() {
    let (workload, coverage) = read(4, |rank| {
        let tp = ("tp", if rank < 2 { "[0, 1]" } else { "[2, 3]" });
        let dp = ("dp", if rank % 2 == 0 { "[0, 2]" } else { "[1, 3]" });
        let world = ("0", "[0, 1, 2, 3]");
        vec![
            call("allreduce", 1_000, tp, rank % 2, ""),
            call("allreduce", 2_000, dp, rank / 2, ""),
            call("allreduce", 10, world, rank, ""),
        ]
    })
    .unwrap();
    assert_eq!(workload.communicators.len(), 5);
    assert_eq!(coverage.of("collective: all-reduce", Treatment::Mapped), 12);
}

#[test]
fn the_root_of_a_broadcast_is_its_rank() {
    let world = ("0", "[0, 1]");
    let calls = |rank: u32| {
        vec![
            call("broadcast", 100, world, 1, ""),
            call("_reduce_oop", 100, world, 0, ""),
            call("allreduce", 10, world, rank, ""),
        ]
    };
    let (workload, _) = read(2, calls).unwrap();
    let kinds: Vec<CollectiveKind> = workload.program(RankId(0)).specs.iter().map(|spec| spec.kind).collect();
    assert_eq!(kinds[0], CollectiveKind::Broadcast { root: 1 });
    assert_eq!(kinds[1], CollectiveKind::Reduce { root: 0 });
    // Where none is said, the first member is a guess.
    let (_, coverage) = read(2, |_| vec![call("broadcast", 100, world, 9, "")]).unwrap();
    let why = "its root is not recorded: taken for the first member";
    assert_eq!(row(&coverage, "collective: broadcast", why), (2, 400));
}

#[test]
fn the_other_rank_of_a_message_is_its_rank_in_the_group() {
    // Ranks 1 and 3 in a group, where each calls the other by its place; with and without the global rank.
    for said in [true, false] {
        let (workload, coverage) = read(4, |rank| {
            let pair = ("pp", "[1, 3]");
            let world = call("allreduce", 10, ("0", "[0, 1, 2, 3]"), rank, "");
            let dst = if said { r#","Dst Rank":3"# } else { "" };
            let src = if said { r#","Src Rank":1"# } else { "" };
            match rank {
                1 => vec![call("send", 1_000, pair, 1, dst), world],
                3 => vec![call("recv", 1_000, pair, 0, src), world],
                _ => vec![world],
            }
        })
        .unwrap();
        assert_eq!(coverage.of("send", Treatment::Mapped), 1);
        let sends = workload.program(RankId(1)).ops.iter().any(|op| {
            matches!(op.kind, OpKind::Send { peer: Peer::Rank(RankId(3)), bytes, .. } if bytes.get() == 2_000)
        });
        assert!(sends, "{said}");
    }
}

#[test]
fn ranks_merged_into_one_file_are_told_by_what_they_say_and_by_their_kernels() {
    let refused = |head: &str, events: &str| {
        let text = format!(r#"{{"schemaVersion":1,{head}"traceEvents":[{events}]}}"#);
        let input = Input::bytes("merged", text.into_bytes());
        let error = import("kineto", &[input], &Options::default()).unwrap_err();
        assert!(error.hint.as_ref().unwrap().contains("merged"), "{error}");
        error.found
    };
    let world = ("0", "[0, 1]");
    let own = |rank: u32, at: u32| events(100 + rank, at, &[call("allreduce", 10, world, rank, "")]);
    let none = |rank: u32, at: u32| own(rank, at).replace(&format!(r#","Rank":{rank}"#), "");
    let two = r#""distributedInfo":{"rank":0,"world_size":2},"distributedInfo":{"rank":1,"world_size":2},"#;
    assert_eq!(refused(two, &own(0, 1_000)), "`distributedInfo` of ranks 0 and 1");
    let both = format!("{},{}", own(0, 1_000), own(1, 2_000));
    assert_eq!(refused("", &both), "ranks 0 and 1 of group `0`");
    let both = format!("{},{}", none(0, 1_000), none(1, 1_010));
    assert_eq!(refused("", &both), "launches of 2 processes whose collectives overlap on one stream");
    // One behind the other they may be a process and its child.
    let both = format!("{},{}", none(0, 1_000), none(1, 2_000));
    let head = r#""distributedInfo":{"rank":0,"world_size":2},"#;
    let text = format!(r#"{{"schemaVersion":1,{head}"traceEvents":[{both}]}}"#);
    let options = Options { missing: windtunnel_import::Missing::Alone, ..Options::default() };
    import("kineto", &[Input::bytes("one", text.into_bytes())], &options).unwrap();
}
