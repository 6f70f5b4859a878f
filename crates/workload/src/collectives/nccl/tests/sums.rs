//! Sums in NVLink's switches: channels by generation and version, loops by hand, and what public logs say.

use super::{dgx_h100, on};
use crate::collectives::nccl::{
    Algorithm, Architecture, Communicator, Constants, Function, Hardware, Settings,
};

/// A domain of `gpus` B200, links as NCCL counts them.
fn blackwell(gpus: u32) -> Hardware {
    Hardware { architecture: Architecture::Blackwell, scale_up: 721.8e9, gpus, nics: gpus, ..dgx_h100() }
}

/// Channels, and seconds beside launch, channels and base.
fn summed(hardware: &Hardware, domains: u32, function: Function, bytes: u64, version: &str) -> (u32, f64) {
    let mut settings = Settings::default();
    for (name, value) in [("NCCL_VERSION", version), ("NCCL_ALGO", "NVLS,NVLSTree")] {
        assert_eq!(settings.set(name, value), Ok(true), "{name}");
    }
    let layout = on(domains, hardware.gpus);
    let communicator = Communicator { hardware, layout, settings: &settings };
    let choice = communicator.choose(function, bytes).expect("switches sum");
    assert!(matches!(choice.algorithm, Algorithm::Nvls | Algorithm::NvlsTree));
    let constants = Constants::default();
    let before = constants.launch + f64::from(choice.channels) * constants.channel + constants.base_sums;
    (choice.channels, communicator.time_of(function, choice, bytes, &constants) - before)
}

#[test]
fn channels_are_those_of_the_generation_and_the_version() {
    let channels = |hardware: &Hardware, domains, version| {
        summed(hardware, domains, Function::AllReduce, 1 << 30, version).0
    };
    assert_eq!(channels(&dgx_h100(), 1, "2.29.2"), 16);
    assert_eq!(channels(&blackwell(8), 1, "2.26.2"), 32);
    assert_eq!(channels(&blackwell(8), 1, "2.27.3"), 24);
    assert_eq!(channels(&blackwell(72), 1, "2.27.3"), 24);
    assert_eq!(channels(&blackwell(8), 4, "2.27.3"), 32);
}

/// 1 GiB and 16 MiB on 8 H100 by hand: 64 · 16 · 8 · 128 KiB are 1 GiB, so that 1 GiB goes by chunks of 128 KiB; 16 MiB are less than
/// 8 loops of 64 KiB chunks and no less than 2 of 32 KiB.
#[test]
fn a_loop_more_for_each_stage() {
    let rate = 370.8e9 * Constants::default().share_sums;
    for (function, bytes, chunk, sent, stages) in [
        (Function::AllReduce, 1u64 << 30, 128 << 10, 8.0 / 7.0, 2.0),
        (Function::AllReduce, 16 << 20, 32 << 10, 8.0 / 7.0, 2.0),
        (Function::AllGather, 1 << 30, 128 << 10, 7.0 / 8.0, 1.0),
        (Function::ReduceScatter, 16 << 20, 32 << 10, 7.0 / 8.0, 1.0),
    ] {
        let (_, found) = summed(&dgx_h100(), 1, function, bytes, "2.26.2");
        let expected = (bytes as f64 * sent + stages * f64::from(16 * 8 * chunk)) / rate;
        assert!((found / expected - 1.0).abs() < 1e-9, "{function:?} {bytes}: {found} {expected}");
    }
    // What is smaller than a loop goes through each stage whole.
    let (_, found) = summed(&dgx_h100(), 1, Function::AllReduce, 1024, "2.26.2");
    assert!((found / (3.0 * 1024.0 * 8.0 / 7.0 / rate) - 1.0).abs() < 1e-9, "{found}");
}

/// CoreWeave's log of 72 GB200 (NCCL 2.26.2, github.com/coreweave/nccl-tests README.md): from 2 to 8 GiB a second loses 2.45 ms a GB at
/// the least and 0.5 ms besides. No constant was fitted on it, nor on any Blackwell.
#[test]
fn what_a_rack_takes_besides_its_bytes_grows_with_its_gpus() {
    let time = |gpus, bytes| summed(&blackwell(gpus), 1, Function::AllReduce, bytes, "2.26.2").1;
    let besides = |gpus| 2.0 * time(gpus, 4 << 30) - time(gpus, 8 << 30);
    assert!((0.3e-3..0.7e-3).contains(&besides(72)), "{}", besides(72));
    assert!(besides(8) < besides(72) / 4.0, "{}", besides(8));
    // Bytes alone: Blackwell keeps 0.74 / 0.85 of the share that Hopper keeps of its links.
    let slope = (time(8, 16 << 30) - time(8, 8 << 30)) / f64::from(8u32) / f64::from(1u32 << 30) * 7.0 / 8.0;
    let share = Constants::default().share_sums * 0.74 / 0.85;
    assert!((slope * 721.8e9 * share - 1.0).abs() < 0.01, "{slope}");
}
