//! Recordings damaged at random for as long as `WINDTUNNEL_FUZZ_SECONDS` says, each reader for itself; nothing without it.
//!
//! What is damaged: the samples of the tests, the seeds below `tests/corpus/KIND` (`broken…` are refused as they are), the recordings
//! of `examples/traces`, and those beside the project where they are there, each in turn for a second. What is asked: a workload or an error, within a minute,
//! and no memory by an announced length. Where it is not so, the files that did it are written below `target/tmp/fuzz`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use windtunnel_import::input::{Input, expand};
use windtunnel_import::{Missing, Options, detect, import_inputs, reader};

use crate::small::samples;

/// A round that takes longer never ends, as far as a user is concerned. The largest whole recording takes a second.
const LONGEST: Duration = Duration::from_mins(1);

/// How much more memory a round may ask for than any before: the largest recording takes 60 MB.
const MEMORY: u64 = 1 << 30;

/// Values at which arithmetic goes wrong.
const NUMBERS: [&str; 16] = [
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e308",
    "-0.5",
    "1e-300",
    "null",
];

/// Draws of one reader.
struct Draw(u64);

impl Draw {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below.max(1)
    }

    /// Changes one to nine places of `content`; `other` lends pieces.
    fn damage(&mut self, content: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(9) {
            if content.is_empty() {
                return;
            }
            let place = self.below(content.len());
            match self.below(9) {
                0 => {
                    // Seldom: most of what is cut tells little.
                    if self.below(4) == 0 {
                        content.truncate(place.max(1));
                    }
                }
                1 => content[place] = self.below(256) as u8,
                2 => content[place] ^= 1 << self.below(8),
                3 => content[place] = [0, 1, 0x7f, 0x80, 0xff, b'-', b'"', b'{'][self.below(8)],
                4 => {
                    let from = self.below(content.len());
                    let length = self.below(64).min(content.len() - from.max(place));
                    content.copy_within(from..from + length, place);
                }
                5 => {
                    // A number as text becomes another.
                    let text = content[place..].iter().take(400).position(u8::is_ascii_digit);
                    if let Some(from) = text.map(|at| place + at) {
                        let digits = content[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                        let new = NUMBERS[self.below(NUMBERS.len())].bytes();
                        content.splice(from..from + digits, new);
                    }
                }
                6 => {
                    // A binary number of 2, 4 or 8 bytes at an edge of its range.
                    let size = [2, 4, 8][self.below(3)].min(content.len() - place);
                    let value =
                        [u64::MAX, i64::MAX as u64, 1 << 63, 1 << 31, 0x7fff_ffff, 0x10_0000][self.below(6)];
                    let bytes = if self.below(2) == 0 { value.to_le_bytes() } else { value.to_be_bytes() };
                    content[place..place + size].copy_from_slice(&bytes[..size]);
                }
                7 => {
                    // A piece taken out or put in twice.
                    let length = self.below(200).min(content.len() - place);
                    if self.below(2) == 0 {
                        content.drain(place..place + length);
                    } else {
                        let piece = content[place..place + length].to_vec();
                        content.splice(place..place, piece);
                    }
                }
                _ => {
                    let from = self.below(other.len());
                    let length = self.below(200).min(other.len() - from);
                    content.splice(place..place, other[from..from + length].iter().copied());
                }
            }
        }
    }
}

/// What is read just now, for the watch.
type Current = Arc<Mutex<Option<(Instant, Vec<Input>)>>>;

/// Writes the files of a round that went wrong, and says where.
fn keep(name: &str, inputs: &[Input]) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    for (number, input) in inputs.iter().enumerate() {
        let content = input.whole().unwrap_or_default();
        std::fs::write(folder.join(format!("{number:03}-{}", input.leaf())), content).unwrap();
    }
    format!("its files are in {}", folder.display())
}

/// The most memory that the process has ever asked for, in bytes; 0 where the system does not say.
fn asked_for() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Ends the process where a round does not end.
fn watch(name: &'static str, current: &Current) {
    let current = Arc::downgrade(current);
    std::thread::spawn(move || {
        while let Some(current) = current.upgrade() {
            if let Some((begun, inputs)) = &*current.lock().unwrap()
                && begun.elapsed() > LONGEST
            {
                eprintln!("{name}: a round takes more than {LONGEST:?}; {}", keep(name, inputs));
                std::process::abort();
            }
            drop(current);
            std::thread::sleep(Duration::from_secs(1));
        }
    });
}

/// Recordings of the kind `name` to be damaged.
fn recordings(name: &str) -> Vec<Vec<Input>> {
    let of_kind = |inputs: &Vec<Input>| {
        inputs.iter().find_map(|input| detect(input).unwrap()).is_some_and(|found| found.entry().name == name)
    };
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<PathBuf> =
        crate::recorded::data().map_or(Vec::new(), |data| crate::recorded::files(&data));
    paths.extend(entries(&crate_folder.join("../../examples/traces")));
    paths.sort();
    let samples = samples().into_iter().filter(|(kind, _)| *kind == name).map(|(_, inputs)| inputs);
    let files = paths.iter().map(in_memory).filter(of_kind);
    samples.chain(seeds(name).into_iter().map(|(_, inputs)| inputs)).chain(files).collect()
}

/// What is in a folder, in order; nothing where there is none.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn in_memory(path: &PathBuf) -> Vec<Input> {
    let inputs = expand(std::slice::from_ref(path)).unwrap();
    inputs.iter().map(|input| Input::bytes(input.name.clone(), input.whole().unwrap())).collect()
}

/// The seeds of a reader, by name: whole ones, and broken ones that it refuses. None has to be recognised.
fn seeds(name: &str) -> Vec<(String, Vec<Input>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name);
    let leaf = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    entries(&folder).iter().map(|path| (leaf(path), in_memory(path))).collect()
}

/// Seeds from which damage begins: of each reader at least a whole and a broken one, and they are what their names say.
#[test]
fn every_reader_has_seeds_that_are_read_or_refused() {
    for known in windtunnel_import::READERS {
        let name = known.entry().name;
        let seeds = seeds(name);
        let broken = |seed: &str| seed.starts_with("broken");
        assert!(seeds.iter().any(|(seed, _)| broken(seed)), "{name}");
        assert!(seeds.iter().any(|(seed, _)| !broken(seed)), "{name}");
        for (seed, inputs) in &seeds {
            match import_inputs(known, inputs, &Options::default()) {
                Ok((workload, _)) => {
                    assert!(!broken(seed) && workload.operations() > 0, "{name}/{seed} is read");
                }
                Err(error) => {
                    assert!(broken(seed), "{name}/{seed}: {error}");
                    assert!(!error.file.is_empty() && !error.expected.is_empty() && !error.found.is_empty());
                }
            }
        }
    }
}

/// How long each reader is fuzzed.
fn seconds() -> u64 {
    std::env::var("WINDTUNNEL_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Damages each of `all` in turn and hands it to `read`, which may answer anything but a panic.
#[expect(clippy::disallowed_methods, reason = "the clock says when to stop, and nothing else")]
fn damage(name: &'static str, all: &[Vec<Input>], read: impl Fn(&mut Draw, &[Input])) {
    assert!(!all.is_empty(), "no recording of {name} to damage");
    let current = Current::default();
    watch(name, &current);
    let mut draw =
        Draw(name.bytes().fold(1u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte))));
    let (begun, mut rounds) = (Instant::now(), 0u64);
    let whole: Vec<Vec<Vec<u8>>> =
        all.iter().map(|inputs| inputs.iter().map(|input| input.whole().unwrap()).collect()).collect();
    let mut most = asked_for();
    for turn in 0.. {
        if begun.elapsed().as_secs() >= seconds() {
            break;
        }
        let (inputs, whole, slice) = (&all[turn % all.len()], &whole[turn % all.len()], Instant::now());
        while slice.elapsed() < Duration::from_secs(1) {
            let which = draw.below(whole.len());
            let mut content = whole[which].clone();
            let lender = draw.below(whole.len());
            draw.damage(&mut content, &whole[lender]);
            let mut damaged = inputs.clone();
            damaged[which] = Input::bytes(inputs[which].name.clone(), content);
            *current.lock().unwrap() = Some((Instant::now(), damaged.clone()));
            let done = catch_unwind(AssertUnwindSafe(|| read(&mut draw, &damaged)));
            assert!(done.is_ok(), "{name}: {}", keep(name, &damaged));
            *current.lock().unwrap() = None;
            let now = asked_for();
            assert!(now < most + MEMORY, "{name}: {} MB of memory; {}", now >> 20, keep(name, &damaged));
            most = most.max(now);
            rounds += 1;
        }
    }
    eprintln!("{name}: {rounds} rounds over {} recordings in {} s", all.len(), begun.elapsed().as_secs());
}

fn fuzz(name: &'static str) {
    if seconds() == 0 {
        return;
    }
    let known = reader(name).unwrap();
    damage(name, &recordings(name), |draw, inputs| {
        let missing = [Missing::Same, Missing::Same, Missing::Alone, Missing::Refuse][draw.below(4)];
        let options = Options { missing, strict: draw.below(8) == 0, flops: Some(5e9), ..Options::default() };
        let _ = detect(&inputs[0]);
        let _ = import_inputs(known, inputs, &options);
    });
}

macro_rules! each {
    ($($test:ident $name:literal)*) => { $(#[test] fn $test() { fuzz($name); })* };
}

each! {
    chakra "chakra"
    dumpi "dumpi"
    flight_recorder "flight-recorder"
    inspector "inspector"
    kineto "kineto"
    liballprof "liballprof"
    mpi "mpi"
    nccl_profiler "nccl-profiler"
    nsys "nsys"
    otf2 "otf2"
    simgrid "simgrid"
    storage "storage"
    xplane "xplane"
}

#[test]
fn every_reader_is_fuzzed() {
    let here = include_str!("fuzz.rs");
    for known in windtunnel_import::READERS {
        assert!(here.contains(&format!(" \"{}\"\n", known.entry().name)), "{}", known.entry().name);
        assert!(!recordings(known.entry().name).is_empty(), "{}", known.entry().name);
    }
}

/// Storage architectures are files of a user's too.
#[test]
fn architecture() {
    if seconds() == 0 {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/storage");
    let all: Vec<Vec<Input>> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| vec![Input::bytes("a.yaml", std::fs::read(entry.unwrap().path()).unwrap())])
        .collect();
    let trace = [Input::bytes("a.spc", &b"0,100,4096,R,0.5\n1,2048,8192,w,0.500001\n"[..])];
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-architecture.yaml");
    damage("architecture", &all, |_, inputs| {
        std::fs::write(&file, inputs[0].whole().unwrap()).unwrap();
        let architecture = Some(file.display().to_string());
        let _ = import_inputs(
            reader("storage").unwrap(),
            &trace,
            &Options { architecture, ..Options::default() },
        );
    });
}

/// Compressed files and archives are damaged as they are.
#[test]
fn packed() {
    if seconds() == 0 {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/packed");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.extend(crate::recorded::data().map_or(Vec::new(), |data| crate::recorded::files(&data)));
    paths.sort();
    paths.retain(|path| path.to_string_lossy().contains(".t") && path.metadata().unwrap().len() < 200_000);
    // The name ends in something that is read as it is: `Input::bytes` would unpack what begins like gzip.
    let shielded =
        |path: &PathBuf| vec![Input::bytes("shielded", [b"#", &*std::fs::read(path).unwrap()].concat())];
    let all: Vec<Vec<Input>> = paths.iter().map(shielded).collect();
    let file = folder.join("fuzz-packed");
    damage("packed", &all, |_, inputs| {
        std::fs::write(&file, inputs[0].whole().unwrap_or_default().get(1..).unwrap_or_default()).unwrap();
        let Ok(inputs) = expand(std::slice::from_ref(&file)) else { return };
        if let Some(known) = inputs.iter().find_map(|input| detect(input).ok().flatten()) {
            let _ = import_inputs(known, &inputs, &Options { missing: Missing::Same, ..Options::default() });
        }
    });
}
