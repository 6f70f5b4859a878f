//! Products and attention by tiles and waves: closed forms, and what holds for every sheet and shape.

use windtunnel_workload::model::{
    AttentionShape, Device, Dtype, ExpertShape, Flash, Gemm, GpuSheet, KernelModel, KernelProfile, Rows,
    Tiles,
};

fn sheets() -> Vec<GpuSheet> {
    let folder = format!("{}/../../data/gpus", env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let all = paths.iter().map(|path| GpuSheet::parse(&std::fs::read_to_string(path).unwrap()).unwrap());
    all.filter(|sheet| sheet.kernels.is_some()).collect()
}

const DEVICE: Device = Device { sms: 100, peak: 1e14, bandwidth: 1e12, cache: 6e7 };

fn tiles() -> Tiles {
    Tiles {
        share: 0.5,
        feed: 1e12,
        store: 1e15,
        fill: 1e-6,
        tail: 0.5,
        memory: 1.0,
        serial: 1e-9,
        least: [128, 128],
        ..Tiles::PRIOR
    }
}

/// One tile of 128 by 128 takes 2·128·128·k over the multiprocessor's 5·10^11 operations a second; 101 tiles are one wave and
/// half of the 99 idle places of a second.
#[test]
fn waves_by_hand() {
    let tiles = Tiles { store: f64::INFINITY, ..tiles() };
    let tile = |k: f64| 1e-6 + 2.0 * 128.0 * 128.0 * k / 5e11;
    let time = |m, n, k| tiles.seconds(&DEVICE, Rows::Equal(1, m), n, k, 2.0, 0.0, 1.0);
    for (m, waves) in [(1, 1.0), (128, 1.0), (128 * 100, 1.0), (128 * 101, 1.505), (128 * 200, 2.0)] {
        let found = time(m, 128, 4096);
        // Two tiles may be one of twice the rows, which saves a fill.
        assert!((found / (waves * tile(4096.0)) - 1.0).abs() < 0.002, "{m}: {found}");
    }
    // The inner dimension goes in steps of 64.
    assert_eq!(time(128, 128, 4033), time(128, 128, 4096));
    // Half the clock, twice the time.
    let slow = tiles.seconds(&DEVICE, Rows::Equal(1, 128), 128, 4096, 2.0, 0.0, 0.5);
    assert!((slow / time(128, 128, 4096) - 2.0).abs() < 1e-9);
}

/// A single tile cut into 64 parts runs on 64 multiprocessors; the parts are added up.
#[test]
fn few_tiles_are_cut_along_the_inner_dimension() {
    let whole = tiles();
    let mut cut = whole.clone();
    cut.set("cut.time", 2e-6).unwrap();
    let time = |tiles: &Tiles, m| tiles.seconds(&DEVICE, Rows::Equal(1, m), 128, 65_536, 2.0, 0.0, 1.0);
    assert!(time(&cut, 128) < time(&whole, 128) / 30.0);
    // Two waves of tiles are not cut.
    assert_eq!(time(&cut, 128 * 200), time(&whole, 128 * 200));
    assert!(cut.set("splits", 1.0).unwrap_err().starts_with("no constant `splits`\n\nhint: there are share"));
}

/// Experts with few rows each fill a tile each; their weights are read once, those of experts without rows not at all.
#[test]
fn experts_fill_tiles_one_by_one() {
    let tiles = Tiles { least: [16, 64], ..tiles() };
    let shape = mixture(64, &[]);
    let time = |each: &[[u64; 2]]| tiles.experts(&DEVICE, each, shape, 2.0);
    assert_eq!(time(&[[1, 64]]), time(&[[0, 64], [1, 64]]));
    assert!(time(&[[64, 1], [0, 63]]) < time(&[[1, 64]]) / 3.0, "one expert's weights for 64");
    assert!(time(&[[1, 64]]) > 64.0 * 3.0 * 2.0 * 1024.0 * 1024.0 / 1e12, "all weights are read");
}

/// A benchmark that comes back to its operands while the cache has them moves them faster; one whose operands fill more than
/// the share that stays does not, nor does a job, which never comes back.
#[test]
fn operands_that_stay_in_the_cache_are_moved_faster() {
    let tiles = Tiles { cached: 3.0, resident: 0.5, least: [16, 64], ..tiles() };
    let cache = DEVICE.cache as u64;
    assert_eq!(tiles.missed(&DEVICE, 0), 1.0);
    assert_eq!(tiles.missed(&DEVICE, cache / 2), 1.0 / 3.0);
    assert_eq!(tiles.missed(&DEVICE, cache), 1.0);
    let between = tiles.missed(&DEVICE, cache / 2 + cache / 40);
    assert!((between - (0.5 + 0.5 / 3.0)).abs() < 1e-9, "{between}");
    let time =
        |returns: &[[u64; 2]]| tiles.experts(&DEVICE, &[[1, 8]], mixture(8, returns), 2.0) - tiles.launch;
    assert_eq!(time(&[]), time(&[[cache, 8]]));
    assert!(time(&[[1, 8]]) < 0.6 * time(&[]), "{:?} {:?}", time(&[[1, 8]]), time(&[]));
    // Of eight experts two are found again: some of the bytes are.
    let (all, none, some) = (time(&[[1, 8]]), time(&[]), time(&[[1, 2], [cache, 6]]));
    assert!(all < some && some < none, "{all} {some} {none}");
    assert_eq!(some, time(&[[cache, 6], [1, 2]]));
}

fn mixture(tokens: u64, returns: &[[u64; 2]]) -> ExpertShape<'_> {
    ExpertShape { hidden: 1024, inter: 1024, ups: 2, tokens, choices: tokens, timed: None, returns }
}

/// A library that timed its kernels with even experts computes skewed ones by the tile that was best for even ones: never
/// faster than the best, equal where experts are even, and slower where one expert takes all.
#[test]
fn skewed_experts_run_by_the_tile_of_even_ones() {
    let free = Tiles { least: [16, 64], ..tiles() };
    let timed = Tiles { timed: true, ..free.clone() };
    let time = |tiles: &Tiles, each: &[[u64; 2]]| {
        tiles.experts(&DEVICE, each, ExpertShape { timed: Some([1024, 64]), ..mixture(1024, &[]) }, 2.0)
    };
    assert_eq!(time(&timed, &[[16, 64]]), time(&free, &[[16, 64]]));
    let skewed = [[50_000, 1], [0, 63]];
    let (even, best) = (time(&timed, &skewed), time(&free, &skewed));
    assert!(even > 1.05 * best, "{even} {best}");
    for rows in [1, 7, 64, 300, 5000] {
        assert!(time(&timed, &[[rows, 64]]) >= time(&free, &[[rows, 64]]), "{rows}");
    }
    // Fewer choices than experts: so many experts have a row.
    assert_eq!(Rows::Spread(64, [32, 128]).total(), 16);
}

/// SGLang's kernels have two tiles, and take the small one while tokens are no more than the rank's experts.
#[test]
fn a_rank_with_few_tokens_has_a_tile_of_its_own() {
    let two = Tiles { few: Some([16, 32]), only: Some([64, 64]), ..tiles() };
    let one = |only| Tiles { only: Some(only), ..tiles() };
    let time = |tiles: &Tiles, tokens| {
        tiles.experts(&DEVICE, &[[1, tokens], [0, 64 - tokens]], mixture(tokens, &[]), 2.0)
    };
    assert_eq!(time(&two, 64), time(&one([16, 32]), 64));
    let many = |tiles: &Tiles| tiles.experts(&DEVICE, &[[2, 64]], mixture(65, &[]), 2.0);
    assert_eq!(many(&two), many(&one([64, 64])));
    assert_ne!(many(&two), many(&one([16, 32])));
}

/// Over every sheet and format: time never falls as a dimension grows, and is never less than the peak or the bandwidth
/// allows.
#[test]
fn products_grow_and_keep_to_peak_and_bandwidth() {
    for sheet in sheets() {
        for dtype in [Dtype::Bf16, Dtype::Fp8, Dtype::Fp4] {
            let Some(peak) = sheet.peak.of(dtype) else { continue };
            let kernels = KernelModel::new(&sheet, dtype, Dtype::Bf16, KernelProfile::default()).unwrap();
            let cache = sheet.kernels.as_ref().unwrap().cache.value.get();
            let time = |m, n, k| kernels.gemm(Gemm::new(m, n, k), dtype, Dtype::Bf16);
            let sizes = [1, 7, 64, 65, 200, 1000, 1024, 1025, 3000, 8192, 8193, 50_000];
            for a in sizes {
                for b in sizes {
                    for pair in sizes.windows(2) {
                        let place = format!("{} {}: {a} {b} {pair:?}", sheet.name, dtype.name());
                        assert!(time(pair[0], a, b) <= time(pair[1], a, b), "m, {place}");
                        assert!(time(a, pair[0], b) <= time(a, pair[1], b), "n, {place}");
                        assert!(time(a, b, pair[0]) <= time(a, b, pair[1]), "k, {place}");
                    }
                    let gemm = Gemm::new(a, b, 4096);
                    let bytes = dtype.bytes(4096 * (a + b)) + 2 * a * b;
                    let seconds = time(a, b, 4096).seconds();
                    assert!(gemm.flops() as f64 <= peak.value.0 * seconds, "{} {a} {b}", sheet.name);
                    let rate = sheet.memory_bandwidth.value.bytes_per_second();
                    assert!(bytes < cache || bytes as f64 <= rate * seconds, "{} {a} {b}", sheet.name);
                }
            }
        }
    }
}

fn shape(batch: u64, positions: u64, causal: bool, window: u64) -> AttentionShape {
    AttentionShape {
        batch,
        heads: 16,
        kv_heads: 4,
        queries: positions,
        keys: positions,
        query_dim: 128,
        value_dim: 128,
        causal,
        window,
    }
}

/// Attention grows with batch and positions, a mask never costs time, and the peak holds. Nor does a window by the same
/// kernels; where a sheet knows others for it, which were measured to be slower, the wider window takes as long or longer.
#[test]
fn attention_grows_and_windows_save() {
    for sheet in sheets() {
        let kernels = sheet.kernels.as_ref().unwrap();
        let peak = sheet.peak.bf16.as_ref().unwrap().value.0;
        let device = kernels.device(peak, sheet.memory_bandwidth.value.bytes_per_second());
        let Some(found) = &kernels.attention.bf16 else { continue };
        let flash = &found.value;
        let alike = Flash { windowed: Vec::new(), ..flash.clone() };
        let time = |batch, positions, causal, window| {
            flash.seconds(&device, &shape(batch, positions, causal, window), 2.0, 2.0, 1.0, 1.0)
        };
        for pair in [16, 100, 128, 129, 1000, 4096, 5000, 16_384].windows(2) {
            for batch in [1, 3, 64] {
                let place = format!("{} {batch} {pair:?}", sheet.name);
                assert!(time(batch, pair[0], true, 0) <= time(batch, pair[1], true, 0), "{place}");
                assert!(time(batch, pair[1], true, 0) <= time(batch + 1, pair[1], true, 0), "{place}");
                assert!(time(batch, pair[1], true, 0) <= time(batch, pair[1], false, 0), "{place}");
                assert!(time(batch, pair[1], true, 16) <= time(batch, pair[1], true, 64), "{place}");
                assert_eq!(time(batch, pair[1], true, pair[1]), time(batch, pair[1], true, 0), "{place}");
                let same =
                    |window| alike.seconds(&device, &shape(batch, pair[1], true, window), 2.0, 2.0, 1.0, 1.0);
                assert!(same(128) <= same(1024), "{place}");
                assert!(same(1024) <= same(0), "{place}");
                let flops = shape(batch, pair[1], true, 0).flops() as f64;
                assert!(flops <= peak * time(batch, pair[1], true, 0), "{place}");
            }
        }
    }
}

/// Blocks up to the diagonal: 1 + 2 + ... of them.
#[test]
fn blocks_under_a_mask_by_hand() {
    let mut flash = windtunnel_workload::model::Flash::prior();
    for (name, value) in
        [("share.128", 0.5), ("feed", f64::INFINITY), ("fill", 0.0), ("tail", 0.0), ("serial", 1e-9)]
    {
        flash.set(name, value).unwrap();
    }
    let time = |positions, causal, window| {
        flash.seconds(&DEVICE, &shape(100, positions, causal, window), 0.0, 0.0, 1.0, 1.0)
    };
    let block = 4.0 * 128.0 * 128.0 * 128.0 / 5e11;
    let heads = 16.0 * 100.0 / 100.0;
    // Blocks of 16, as loads are free: 128 of queries are 128·129/2 blocks, each a 64th of the work of one of 128.
    assert!((time(2048, true, 0) / (heads * 8256.0 * block / 64.0) - 1.0).abs() < 1e-6);
    assert!((time(2048, false, 0) / (heads * 16_384.0 * block / 64.0) - 1.0).abs() < 1e-6);
    // A window of 64 touches five blocks of keys, but for the first four.
    assert!((time(2048, true, 64) / (heads * (10.0 + 124.0 * 5.0) * block / 64.0) - 1.0).abs() < 1e-6);
}

/// A constant that cannot be is refused with its line, what was expected and what was found.
#[test]
fn wrong_constants_of_a_sheet_are_named() {
    let path = format!("{}/../../data/gpus/h100-sxm.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().position(|line| line.trim_start().starts_with("bf16: {value: {")).unwrap();
    let row = text.lines().nth(line).unwrap();
    let after = |key: &str| {
        let from = row.find(&format!("{key}: ")).unwrap();
        row[from..].split([',', '}']).next().unwrap()
    };
    for (key, found, expected) in [
        ("memory", "memory: 1.5", "expected a share above 0 and at most 1, found `1.5`"),
        ("feed", "feed: 12", "expected a rate"),
        ("fill", "fill: 3 GB/s", "expected a time"),
        ("tail", "tails: 1", "unknown field"),
    ] {
        let wrong = text.replacen(row, &row.replacen(after(key), found, 1), 1);
        let error = GpuSheet::parse(&wrong).unwrap_err().to_string();
        assert!(error.contains(expected), "{found}: {error}");
        assert!(error.contains(&format!("line {}", line + 1)), "{found}: {error}");
    }
    let wrong = text.replacen("[[64, ", "[[640, ", 1);
    let error = GpuSheet::parse(&wrong).unwrap_err().to_string();
    assert!(
        error.contains(
            "`kernels.attention.bf16`: `share` and `windowed` must have pairs of features, ascending"
        ),
        "{error}"
    );
}

/// A default kernel has one tile, and so is never faster than the best of all; alone it is what that tile takes.
#[test]
fn a_kernel_with_one_tile_is_no_faster_than_the_fastest() {
    let free = Tiles { least: [16, 64], ..tiles() };
    let time = |tiles: &Tiles, m| tiles.seconds(&DEVICE, Rows::Equal(8, m), 512, 4096, 2.0, 0.0, 1.0);
    for m in [1, 16, 100, 128, 1000, 5000] {
        let each: Vec<_> = [[16, 64], [64, 256], [128, 128], [256, 128]]
            .map(|only| time(&Tiles { only: Some(only), ..free.clone() }, m))
            .into();
        assert!(each.iter().all(|&one| one >= time(&free, m)), "{m}");
    }
    // One tile of 128 by 128 of each of 8 matrices, 4 columns of tiles: 32 tiles, one wave.
    let one = Tiles { only: Some([128, 128]), store: f64::INFINITY, ..free };
    let tile = 1e-6 + 2.0 * 128.0 * 128.0 * 4096.0 / 5e11;
    assert!((time(&one, 1) / tile - 1.0).abs() < 0.002);
}

/// A window that leaves keys out takes kernels of its own; one that does not, and a sheet that knows none, do not.
#[test]
fn a_window_takes_its_own_share_of_the_peak() {
    let flash = Flash { share: vec![[128.0, 0.8]], serial: 1e-9, ..Flash::prior() };
    let slower = Flash { windowed: vec![[128.0, 0.4]], ..flash.clone() };
    let shape = |window| AttentionShape {
        batch: 1,
        heads: 64,
        kv_heads: 8,
        queries: 8192,
        keys: 8192,
        query_dim: 128,
        value_dim: 128,
        causal: true,
        window,
    };
    let time = |flash: &Flash, window| flash.seconds(&DEVICE, &shape(window), 2.0, 2.0, 1.0, 1.0);
    for window in [0, 8192, 10_000] {
        assert_eq!(time(&slower, window), time(&flash, window));
    }
    let free = Flash { feed: 1e18, fill: 1e-12, ..flash.clone() };
    let half = Flash { windowed: slower.windowed.clone(), ..free.clone() };
    // Without loads and starts half the share is twice the time.
    assert!((time(&half, 4096) / time(&free, 4096) - 2.0).abs() < 1e-3);
    assert!(time(&slower, 4096) > time(&flash, 4096));
}
