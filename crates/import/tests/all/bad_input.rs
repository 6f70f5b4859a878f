//! Cut and damaged recordings: an error with a place, never a panic.

use proptest::prelude::*;
use windtunnel_import::input::Input;
use windtunnel_import::{Missing, Options, READERS, import_inputs};

use crate::small::samples;

fn options() -> Options {
    Options { missing: Missing::Same, ..Options::default() }
}

/// The bytes of an input.
fn bytes(input: &Input) -> Vec<u8> {
    input.whole().unwrap()
}

#[test]
fn every_cut_of_every_sample_is_an_error_or_a_workload() {
    for (name, inputs) in samples() {
        let whole = bytes(&inputs[0]);
        let reader = windtunnel_import::reader(name).unwrap();
        for cut in 0..whole.len() {
            let mut cut_inputs = inputs.clone();
            cut_inputs[0] = Input::bytes(inputs[0].name.clone(), whole[..cut].to_vec());
            let result = import_inputs(reader, &cut_inputs, &options());
            // Documents have an end, and programs a last call; of other lines some may be gone.
            let end = if name == "liballprof" { "Finalize:30.0:-\n".len() } else { 2 };
            let text = !inputs[0].leaf().ends_with("et");
            let whole_only = ["kineto", "chakra", "flight-recorder", "liballprof", "simgrid", "mpi", "otf2"];
            if text && whole_only.contains(&name) && cut + end < whole.len() {
                assert!(result.is_err(), "{name} cut at {cut} of {}", whole.len());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_bytes_never_panic(content in proptest::collection::vec(any::<u8>(), 0..400)) {
        for reader in READERS {
            let _ = import_inputs(reader, &[Input::bytes("x.et", content.clone())], &options());
            let _ = reader.detects(&content, "x");
        }
        let _ = windtunnel_import::pickle::read("x", &content);
    }

    #[test]
    fn damaged_samples_never_panic(which in 0usize..12, at in any::<proptest::sample::Index>(), new in any::<u8>(), second in any::<proptest::sample::Index>()) {
        let all = samples();
        let (name, inputs) = &all[which % all.len()];
        let mut content = bytes(&inputs[0]);
        let place = at.index(content.len());
        content[place] = new;
        let place = second.index(content.len());
        content[place] = content[place].wrapping_add(1);
        let mut damaged = inputs.clone();
        damaged[0] = Input::bytes(inputs[0].name.clone(), content);
        let _ = import_inputs(windtunnel_import::reader(name).unwrap(), &damaged, &options());
    }
}

/// Damages recordings beside the project for as long as `WINDTUNNEL_FUZZ_SECONDS` says, each in turn; nothing without it.
#[test]
#[expect(clippy::disallowed_methods, reason = "the clock says when to stop, and nothing else")]
fn recorded_files_damaged_for_a_while() {
    let seconds: u64 =
        std::env::var("WINDTUNNEL_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let Some(data) = crate::recorded::data().filter(|_| seconds > 0) else { return };
    let mut state = 1u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    for file in crate::recorded::files(&data) {
        let inputs = windtunnel_import::input::expand(std::slice::from_ref(&file)).unwrap();
        let Some(reader) = inputs.iter().find_map(|input| windtunnel_import::detect(input).unwrap()) else {
            continue;
        };
        let whole: Vec<Vec<u8>> = inputs.iter().map(bytes).collect();
        let begun = std::time::Instant::now();
        let mut rounds = 0u64;
        while begun.elapsed().as_secs() < seconds {
            let which = draw(whole.len());
            let mut content = whole[which].clone();
            for _ in 0..=draw(8) {
                let place = draw(content.len());
                match draw(4) {
                    0 => content.truncate(place.max(1)),
                    1 => content[place] = draw(256) as u8,
                    2 => content[place] ^= 1 << draw(8),
                    _ => {
                        let from = draw(content.len());
                        let length = draw(64).min(content.len() - from.max(place));
                        content.copy_within(from..from + length, place);
                    }
                }
            }
            let mut damaged = inputs.clone();
            damaged[which] = Input::bytes(inputs[which].name.clone(), content);
            let _ = import_inputs(reader, &damaged, &options());
            rounds += 1;
        }
        eprintln!("{}: {rounds} rounds", file.display());
    }
}
