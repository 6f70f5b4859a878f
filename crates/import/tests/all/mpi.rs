//! MPI traces of other tools: what has no partner, communicators beside the world, calls of every kind.

use windtunnel_import::input::Input;
use windtunnel_import::{Coverage, ImportError, Options, Treatment};
use windtunnel_kernel::RankId;
use windtunnel_workload::collectives::CollectiveKind;
use windtunnel_workload::{OpKind, Peer, Workload};

use crate::small::import;

fn texts(kind: &str, files: &[String]) -> Result<(Workload, Coverage), ImportError> {
    let inputs: Vec<Input> = (0..)
        .zip(files)
        .map(|(rank, text)| Input::bytes(format!("t-{rank}.txt"), text.clone().into_bytes()))
        .collect();
    import(kind, &inputs, &Options::default())
}

/// Kinds and sizes of a rank's collectives.
fn collectives(workload: &Workload, rank: u32) -> Vec<(CollectiveKind, u64)> {
    workload.program(RankId(rank)).specs.iter().map(|spec| (spec.kind, spec.bytes.get())).collect()
}

/// What a rank sends: to whom, and bytes.
fn sent(workload: &Workload, rank: u32) -> Vec<(u32, u64)> {
    let ops = &workload.program(RankId(rank)).ops;
    ops.iter()
        .filter_map(|op| match op.kind {
            OpKind::Send { peer: Peer::Rank(to), bytes, .. } => Some((to.0, bytes.get())),
            _ => None,
        })
        .collect()
}

fn receives(workload: &Workload, rank: u32) -> usize {
    let ops = &workload.program(RankId(rank)).ops;
    ops.iter().filter(|op| matches!(op.kind, OpKind::Receive { .. })).count()
}

/// Whether each send has its receive.
fn is_matched(workload: &Workload) -> bool {
    let messages = windtunnel_workload::lower::to_messages(workload, |_| {}).unwrap();
    windtunnel_workload::goal::check(&messages).is_complete()
}

/// A DUMPI trace of the calls (function, arguments).
fn dumpi(calls: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut file = b"\xff\xaa\xddDUMPI".to_vec();
    file.extend([0; 8]);
    for (time, (function, arguments)) in (0u32..).zip(calls) {
        file.extend(function.to_be_bytes());
        file.extend([0x48, 0, 0]);
        for at in [5_000 * time, 5_000 * time + 1_000] {
            file.extend([0, 0]);
            file.extend(at.to_be_bytes());
        }
        file.extend(arguments);
    }
    let header = file.len() as u64;
    file.extend([1, 0, 0]);
    file.extend(header.to_be_bytes());
    for section in [8u64, 0, 0] {
        file.extend(section.to_be_bytes());
    }
    file
}

/// Numbers of 32 bits (`i`) and of 16 (`d`, `c`) as DUMPI has them.
fn arguments(form: &str, values: &[i32]) -> Vec<u8> {
    form.bytes()
        .zip(values)
        .flat_map(|(form, value)| {
            if form == b'i' { value.to_be_bytes().to_vec() } else { (*value as u16).to_be_bytes().to_vec() }
        })
        .collect()
}

fn dumpi_program(rank: i32, ranks: i32, calls: &[(u16, Vec<u8>)]) -> Input {
    let mut all = vec![(81, arguments("ci", &[2, ranks])), (82, arguments("ci", &[2, rank]))];
    all.extend_from_slice(calls);
    all.push((125, Vec::new()));
    Input::bytes(format!("d-{rank}.bin"), dumpi(&all))
}

#[test]
fn nobody_of_a_dumpi_trace_is_no_source() {
    // Ranks in a row: of the first the left neighbour is nobody (-2), of the last the right one.
    let inputs: Vec<Input> = (0..2)
        .map(|rank| {
            let (right, left) = (if rank == 1 { -2 } else { 1 }, if rank == 0 { -2 } else { 0 });
            dumpi_program(
                rank,
                2,
                &[
                    (33, arguments("idiiidiic", &[100, 9, right, 5, 100, 9, left, 5, 2])),
                    (34, arguments("idiiiic", &[50, 9, right, 6, left, 6, 2])),
                    (30, arguments("idiici", &[10, 9, left, 7, 2, 77])),
                    (26, arguments("idiici", &[10, 9, right, 7, 2, 78])),
                    (31, arguments("i", &[77])),
                    (31, arguments("i", &[78])),
                    (13, arguments("i", &[77])),
                    (13, arguments("i", &[78])),
                ],
            )
        })
        .collect();
    let (workload, coverage) = import("dumpi", &inputs, &Options::default()).unwrap();
    assert_eq!(sent(&workload, 0), [(1, 400), (1, 200), (1, 40)]);
    assert_eq!((receives(&workload, 0), receives(&workload, 1)), (0, 3));
    assert_eq!(coverage.of("non-blocking receive", Treatment::Approximated), 3);
    assert!(is_matched(&workload));
}

#[test]
fn splits_are_counted_for_each_communicator_that_is_split() {
    // The world is split into one half of all and then into rows; that half is split into columns in between.
    let inputs: Vec<Input> = (0..4)
        .map(|rank| {
            let split = |parent: i32, color: i32, new: i32| (86, arguments("ciic", &[parent, color, 0, new]));
            dumpi_program(
                rank,
                4,
                &[
                    split(2, 0, 10),
                    split(10, rank % 2, 11),
                    split(2, rank / 2, 12),
                    split(10, rank / 2, 13),
                    (52, arguments("c", &[11])),
                    (52, arguments("c", &[12])),
                    (52, arguments("c", &[13])),
                ],
            )
        })
        .collect();
    let (workload, _) = import("dumpi", &inputs, &Options::default()).unwrap();
    let mut groups: Vec<Vec<u32>> =
        workload.communicators.iter().map(|group| group.ranks.iter().map(|rank| rank.0).collect()).collect();
    groups.sort();
    groups.dedup();
    assert_eq!(groups, [[0, 1], [0, 2], [1, 3], [2, 3]]);
}

/// A program of each rank as SimGrid has it.
fn simgrid(ranks: usize, prefix: &str, lines: impl Fn(usize) -> String) -> Vec<String> {
    (0..ranks)
        .map(|rank| {
            let all = format!("init\n{}\nfinalize", lines(rank));
            all.lines().map(|line| [&*format!("{prefix}{rank} "), line, "\n"].concat()).collect()
        })
        .collect()
}

#[test]
fn collectives_with_counts_of_each_rank_are_read() {
    let files = simgrid(4, "", |rank| {
        format!(
            "allgatherv {} 10 20 30 40 1 1\nscan 100 1e6 0\nexscan 50 0\nreducescatter 10 20 30 40 2e6 1",
            10 * (rank + 1)
        )
    });
    let (workload, coverage) = texts("simgrid", &files).unwrap();
    assert_eq!(
        collectives(&workload, 0),
        [
            (CollectiveKind::AllGather, 400),
            (CollectiveKind::AllReduce, 800),
            (CollectiveKind::AllReduce, 400),
            (CollectiveKind::ReduceScatter, 400)
        ]
    );
    // 1e6 and 2e6 operations at 1e9 a second.
    let computed: u64 = workload
        .program(RankId(1))
        .ops
        .iter()
        .filter_map(|op| if let OpKind::Calc { duration, .. } = op.kind { Some(duration.ps()) } else { None })
        .sum();
    assert_eq!(computed, 3_000_000_000);
    assert_eq!(coverage.of("collective: all-reduce", Treatment::Approximated), 8);
    assert_eq!(coverage.total(Treatment::Dropped).operations, 0);
}

#[test]
fn parts_of_a_gather_and_a_scatter_may_differ() {
    let files =
        simgrid(3, "", |rank| format!("gatherv {} 1 2 3 2 1 1\nscatterv 4 5 6 {} 0 1 1", rank + 1, rank + 4));
    let (workload, coverage) = texts("simgrid", &files).unwrap();
    // To rank 2, the root, 1 and 2 integers; from rank 0 5 and 6.
    assert_eq!(sent(&workload, 0), [(2, 4), (1, 20), (2, 24)]);
    assert_eq!(sent(&workload, 1), [(2, 8)]);
    assert_eq!(coverage.total(Treatment::Dropped).operations, 0);
    assert!(is_matched(&workload));
}

#[test]
fn sends_with_receives_tests_of_all_and_places_are_no_losses() {
    let files = simgrid(4, "", |rank| {
        format!(
            "sendRecv 100 {} 100 {} 0 1\nisend {} 5 10\nirecv {} 5 10\ntestall\nlocation a.c 3\niprobe 0 0",
            (rank + 1) % 4,
            (rank + 3) % 4,
            (rank + 1) % 4,
            (rank + 3) % 4
        )
    });
    let (workload, coverage) = texts("simgrid", &files).unwrap();
    assert_eq!(sent(&workload, 3), [(0, 800), (0, 10)]);
    assert!(is_matched(&workload));
    assert_eq!(coverage.total(Treatment::Dropped).operations, 0);
    assert_eq!(coverage.of("wait", Treatment::Guessed), 4);
    assert_eq!(coverage.of("tag of sendRecv", Treatment::Guessed), 4);
    assert_eq!(coverage.of("other calls", Treatment::Mapped), 16);
}

#[test]
fn old_traces_call_ranks_p_and_know_no_tags() {
    let files = simgrid(2, "p", |rank| {
        if rank == 0 { "compute 5\nsend p1 1e3\nisend p1 7\nwait" } else { "recv p0 1e3\nirecv p0\nwait" }
            .to_owned()
    });
    let inputs = [Input::bytes("p0.txt", files[0].clone().into_bytes())];
    assert_eq!(windtunnel_import::detect(&inputs[0]).unwrap().unwrap().entry().name, "simgrid");
    let (workload, _) = texts("simgrid", &files).unwrap();
    assert_eq!(sent(&workload, 0), [(1, 1_000), (1, 7)]);
    assert!(is_matched(&workload));
    let error = texts("simgrid", &["x0 init\n".to_owned()]).unwrap_err();
    assert_eq!((error.found.as_str(), error.hint.is_some()), ("`x0`", true));
}

/// Programs of each rank as liballprof has them: 4-byte elements are `2,4,4`.
fn liballprof(ranks: usize, lines: impl Fn(usize) -> String) -> Vec<String> {
    (0..ranks)
        .map(|rank| {
            format!(
                "# collprof 0.9\nMPI_Init:-:1:2:1.0\nMPI_Comm_rank:1.0:0,{rank},{ranks}:5:2.0\n{}\nMPI_Finalize:9000.0:-\n",
                lines(rank)
            )
        })
        .collect()
}

#[test]
fn ranks_of_a_communicator_are_its_own() {
    // Two pairs, {0, 2} and {1, 3}, with an id each: the receiver is rank 1 of its pair.
    let pair = |rank: usize, id: usize| {
        let (place, call) = (rank / 2, if rank < 2 { "Send" } else { "Recv" });
        let status = if rank < 2 { "" } else { "1:" };
        format!("MPI_{call}:2000.0:64:100:2,4,4:{}:7:{id},{place},2:{status}2010.0", 1 - place)
    };
    let (workload, coverage) = texts("liballprof", &liballprof(4, |rank| pair(rank, 3 + rank % 2))).unwrap();
    assert_eq!((sent(&workload, 0), sent(&workload, 1)), (vec![(2, 400)], vec![(3, 400)]));
    assert!(is_matched(&workload));
    assert_eq!(coverage.total(Treatment::Dropped).operations, 0);
    // With one id for both nothing says who is in which: dropped, and their time stays.
    let (workload, coverage) = texts("liballprof", &liballprof(4, |rank| pair(rank, 3))).unwrap();
    assert_eq!(sent(&workload, 0), []);
    assert_eq!((coverage.of("send", Treatment::Dropped), coverage.of("receive", Treatment::Dropped)), (2, 2));
    // But a split that is recorded does.
    let split = liballprof(4, |rank| {
        let made = format!("MPI_Comm_split:3.0:0,{rank},4:{}:0:3:4.0\n", rank % 2);
        made + &pair(rank, 3) + &format!("\nMPI_Barrier:3000.0:3,{},2:3001.0", rank / 2)
    });
    let (workload, coverage) = texts("liballprof", &split).unwrap();
    assert_eq!((sent(&workload, 0), sent(&workload, 1)), (vec![(2, 400)], vec![(3, 400)]));
    assert_eq!(coverage.of("collective: barrier", Treatment::Mapped), 4);
    // A rank that the communicator does not have.
    let error =
        texts("liballprof", &liballprof(4, |rank| pair(rank, 3 + rank % 2).replace(":1:7:", ":5:7:")));
    assert_eq!(error.unwrap_err().expected, "a rank below 2 of its communicator");
}

#[test]
fn nobody_of_a_liballprof_trace_is_no_source() {
    for (world, nobody) in [(0, -2), (1_140_850_688, -1)] {
        let files = liballprof(2, |rank| {
            let any = if nobody == -2 { -1 } else { -2 };
            let other = if rank == 0 {
                format!("MPI_Send:2100.0:64:10:2,4,4:1:7:{world},0,2:2101.0")
            } else {
                format!("MPI_Recv:2100.0:64:10:2,4,4:{any}:7:{world},1,2:5:2101.0")
            };
            format!(
                "MPI_Irecv:2000.0:64:100:2,4,4:{nobody}:7:{world},{rank},2:11:2001.0\nMPI_Wait:2002.0:11:0:2003.0\n{other}"
            )
        });
        let (workload, coverage) = texts("liballprof", &files).unwrap();
        assert_eq!(coverage.of("non-blocking receive", Treatment::Approximated), 2);
        assert_eq!((sent(&workload, 0), receives(&workload, 1)), (vec![(1, 40)], 1));
    }
}

#[test]
fn calls_of_a_plain_meaning_are_no_losses() {
    let files = liballprof(2, |rank| {
        let (peer, c, t) = (1 - rank, format!("0,{rank},2"), "2,4,4");
        format!(
            "MPI_Irecv:10.0:0:100:{t}:{peer}:7:{c}:800:11.0\nMPI_Isend:12.0:0:100:{t}:{peer}:7:{c}:808:13.0\n\
             MPI_Waitany:14.0:2:800:7000:0:15.0\nMPI_Test:16.0:808:7000:0:17.0\nMPI_Test:18.0:808:7000:0:19.0\n\
             MPI_Isend:20.0:0:5:{t}:{peer}:8:{c}:808:21.0\nMPI_Irecv:22.0:0:5:{t}:{peer}:8:{c}:800:23.0\n\
             MPI_Waitall:24.0:2:800:0:25.0\n\
             MPI_Gather:30.0:0:100:{t}:0:100:{t}:1:{c}:31.0\nMPI_Scatterv:32.0:0:3,4:0,3:{t}:0:{}:{t}:0:{c}:33.0\n\
             MPI_Allgatherv:34.0:0:{}:{t}:0:9:1,2:9:0,1:{t}:{c}:35.0\n\
             MPI_Alltoallv:36.0:0:1,2:0,1:{t}:0:1,2:0,1:{t}:{c}:37.0\nMPI_Iallreduce:38.0:0:0:50:{t}:3:{c}:900:39.0\n\
             MPI_Wait:40.0:900:0:41.0\nMPI_Reduce_scatter:42.0:0:0:3,4:{t}:3:{c}:43.0\n\
             MPI_Send_init:44.0:0:6:{t}:{peer}:9:{c}:600:45.0\nMPI_Recv_init:46.0:0:6:{t}:{peer}:9:{c}:608:47.0\n\
             MPI_Startall:48.0:2:600:49.0\nMPI_Waitall:50.0:2:600:0:51.0",
            3 + rank,
            1 + rank
        )
    });
    let (workload, coverage) = texts("liballprof", &files).unwrap();
    assert_eq!(coverage.first_dropped(), None);
    assert_eq!(
        collectives(&workload, 0),
        [
            (CollectiveKind::AllGather, 12),
            (CollectiveKind::AllToAllV, 24),
            (CollectiveKind::AllReduce, 200),
            (CollectiveKind::ReduceScatter, 28)
        ]
    );
    // 100, 5 and 6 elements to the other and 100 for the gather of root 1; 4 for the scatter from root 0.
    assert_eq!(sent(&workload, 0), [(1, 400), (1, 20), (1, 400), (1, 16), (1, 24)]);
    assert_eq!(sent(&workload, 1), [(0, 400), (0, 20), (0, 24)]);
    assert!(is_matched(&workload));
    // The index of a wait and the flags of tests are addresses: of two tests the last one found its request done.
    assert_eq!(coverage.of("wait", Treatment::Guessed), 4);
    assert_eq!(coverage.of("test without success", Treatment::Guessed), 2);
}
