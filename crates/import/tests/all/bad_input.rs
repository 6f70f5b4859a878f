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
    fn damaged_samples_never_panic(which in 0usize..13, at in any::<proptest::sample::Index>(), new in any::<u8>(), second in any::<proptest::sample::Index>()) {
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
