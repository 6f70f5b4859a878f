//! Recordings beside the project: each is read or refused with a reason, and cut ones are refused.

use std::path::{Path, PathBuf};

use windtunnel_import::input::{Input, expand};
use windtunnel_import::{ImportError, Missing, Options, Treatment, detect, import, import_inputs};
use windtunnel_kernel::RankId;
use windtunnel_workload::collectives::CollectiveKind;

/// The folder of recorded data, if it is there.
pub(crate) fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    folder.join("traces_kineto").is_dir().then_some(folder)
}

/// The same for tests that are ignored without it.
fn there() -> PathBuf {
    data().expect("the build found it")
}

fn same() -> Options {
    Options { missing: Missing::Same, ..Options::default() }
}

pub(crate) fn files(data: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in ["traces_kineto", "traces_nsys", "traces_mpi", "traces_nccl", "storage"] {
        let entries =
            std::fs::read_dir(data.join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    files.sort();
    files
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn every_recording_is_read_or_refused_with_a_reason() {
    let data = there();
    let mut read = 0;
    for file in files(&data) {
        let inputs = expand(std::slice::from_ref(&file)).unwrap_or_else(|error| panic!("{error}"));
        let found = inputs.iter().find_map(|input| detect(input).unwrap());
        let Some(reader) = found else {
            eprintln!("not a recording: {}", file.display());
            continue;
        };
        match import_inputs(reader, &inputs, &same()) {
            Ok((workload, coverage)) => {
                read += 1;
                assert!(workload.operations() > 0, "{}", file.display());
                let total: u64 =
                    Treatment::ALL.into_iter().map(|treatment| coverage.total(treatment).operations).sum();
                assert!(total > 0, "{}", file.display());
            }
            Err(ImportError { expected, found, .. }) => assert!(!expected.is_empty() && !found.is_empty()),
        }
    }
    assert!(read >= 25, "{read} recordings were read");
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn dlrm_on_eight_gpus_has_its_collectives_with_their_sizes() {
    let data = there();
    let sources = ["param_dlrm_8rank_kineto.tar.gz", "param_dlrm_8rank_pytorch_et.tar.gz"]
        .map(|name| data.join("traces_kineto").join(name));
    let (workload, coverage) =
        import("kineto", &sources, &Options { strict: true, ..Options::default() }).unwrap();
    assert_eq!(workload.ranks(), 8);
    let program = workload.program(RankId(0));
    let kinds: Vec<(CollectiveKind, u64)> =
        program.specs.iter().map(|spec| (spec.kind, spec.bytes.get())).collect();
    // The three gradients of the dense part, in bytes, as the execution trace has them: 394,241 and 112 and 226,960 floats.
    for elements in [394_241, 112, 226_960] {
        assert!(kinds.contains(&(CollectiveKind::AllReduce, 4 * elements)), "{kinds:?}");
    }
    // The exchange of values sends rank 0's rows as split: 96, 224, 288, … of 4 bytes.
    let values = program
        .specs
        .iter()
        .find(|spec| spec.matrix.as_ref().is_some_and(|matrix| matrix[..3] == [384, 896, 1_152]));
    assert!(values.is_some(), "{kinds:?}");
    // Which stream the kernels wait for is taken by time.
    let verdicts = [Treatment::Mapped, Treatment::Guessed];
    assert_eq!(
        verdicts.map(|verdict| coverage.of("collective: all-to-all", verdict)).iter().sum::<u64>(),
        40
    );
    // By the starts of the kernels: rank 7 came last to the first five, 5 to two, 4 to the last one.
    let last = |rank| coverage.arrivals("world", rank).unwrap().last;
    assert_eq!((0..8).map(last).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 2, 0, 5]);
    // Rank 1 came to the first at -1.694 ms and rank 7 at 5.930 ms of one clock.
    assert!(coverage.arrivals("world", 1).unwrap().waited_ns > 7_624_000);
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn sweep3d_matches_every_message() {
    let data = there();
    let archive = data.join("traces_mpi/liballprof_sweep3d_2x2_and_bcast.tar.gz");
    let inputs: Vec<Input> =
        expand(&[archive]).unwrap().into_iter().filter(|input| input.name.contains(":sweep3d")).collect();
    let (workload, coverage) =
        import_inputs(windtunnel_import::reader("liballprof").unwrap(), &inputs, &Options::default())
            .unwrap();
    assert_eq!((workload.ranks(), coverage.of("send", Treatment::Mapped)), (4, 4 * 1_440));
    let messages = windtunnel_workload::lower::to_messages(&workload, |_| {}).unwrap();
    assert!(windtunnel_workload::goal::check(&messages).is_complete());
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn archives_of_score_p_match_every_message() {
    let data = there();
    // Each of the ten ranks sends 144 messages, of which some go to itself.
    for (name, part, ranks, sends) in [
        ("sstmacro_otf2_10rank.tar.gz", "", 10, 10 * 144),
        ("pipit_pingpong_otf2.tar.gz", "ping-pong-otf2/", 2, 16),
    ] {
        let path = data.join("traces_mpi").join(name);
        assert!(path.is_file(), "{}", path.display());
        let mut inputs = expand(&[path]).unwrap();
        inputs.retain(|input| input.name.contains(part));
        let reader = windtunnel_import::reader("otf2").unwrap();
        let (workload, coverage) = import_inputs(reader, &inputs, &Options::default()).unwrap();
        assert_eq!(workload.ranks(), ranks, "{name}");
        let kinds = ["send", "non-blocking send"];
        let treatments = [Treatment::Mapped, Treatment::Approximated];
        let sent: u64 =
            kinds.iter().flat_map(|kind| treatments.map(|treatment| coverage.of(kind, treatment))).sum();
        assert_eq!(sent, sends, "{name}");
        let messages = windtunnel_workload::lower::to_messages(&workload, |_| {}).unwrap();
        assert!(windtunnel_workload::goal::check(&messages).is_complete(), "{name}");
    }
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn cut_recordings_are_refused() {
    let data = there();
    for name in [
        "traces_kineto/hta_cp_simple_add.json.gz",
        "traces_kineto/tracelens_jax_conv_mi300.xplane.pb.gz",
        "traces_nsys/h100_2gpu_1s.sqlite.gz",
    ] {
        let path = data.join(name);
        assert!(path.is_file(), "{}", path.display());
        let input = expand(&[path]).unwrap().remove(0);
        let whole = input.whole().unwrap();
        let reader = detect(&input).unwrap().unwrap();
        for part in [3, 5, 7, 11] {
            let cut = Input::bytes(input.name.clone(), whole[..whole.len() / 13 * part].to_vec());
            assert!(import_inputs(reader, &[cut], &same()).is_err(), "{name} cut to {part}/13");
        }
    }
}
