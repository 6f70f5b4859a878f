//! Every data sheet loads, every figure has a source, and models have their published sizes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use windtunnel_kernel::{BitRate, Bytes, Span};
use windtunnel_workload::model::{
    Dtype, Evidence, GpuSheet, KernelModel, KernelProfile, ModelKind, ModelSheet, NicSheet, OpticsKind,
    OpticsSheet, SheetError, SwitchSheet,
};

fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(folder);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{folder} is empty");
    paths
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path, text)
        })
        .collect()
}

fn named_like_its_file(path: &Path, name: &str) {
    assert_eq!(path.file_stem().unwrap().to_str().unwrap(), name.to_lowercase());
}

fn sourced(path: &Path, evidence: &[(String, Evidence, &str)]) {
    let mut keys = BTreeSet::new();
    for (key, _, source) in evidence {
        assert!(source.len() > 10, "{}: `{key}` has the source `{source}`", path.display());
        assert!(keys.insert(key), "{}: `{key}` twice", path.display());
    }
}

#[test]
fn every_gpu_sheet_loads_and_times_a_kernel() {
    let mut names = Vec::new();
    for (path, text) in files("gpus") {
        let sheet = GpuSheet::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        named_like_its_file(&path, &sheet.name);
        sourced(&path, &sheet.evidence());
        // One `source:` in the file for each figure that the schema lists: none is left out of `evidence`.
        assert_eq!(text.matches("source:").count(), sheet.evidence().len(), "{}", path.display());
        let dtype = if sheet.peak.bf16.is_some() { Dtype::Bf16 } else { Dtype::Fp16 };
        let kernels = KernelModel::new(&sheet, dtype, dtype, KernelProfile::default()).unwrap();
        let gemm = windtunnel_workload::model::Gemm::new(8192, 8192, 8192);
        let share = gemm.flops() as f64
            / kernels.gemm(gemm, dtype, dtype).seconds()
            / sheet.peak.of(dtype).unwrap().value.0;
        assert!((0.3..0.9).contains(&share), "{}: {share}", sheet.name);
        names.push(sheet.name);
    }
    for name in [
        "V100", "A100-40", "A100-80", "A40", "L40S", "H100-SXM", "H200", "H200-NVL", "H20", "H800", "B200",
        "B300", "GB200", "GB300", "GH200", "MI300X", "MI325X", "MI350X", "MI355X",
    ] {
        assert!(names.iter().any(|known| known == name), "{name} is missing");
    }
}

#[test]
fn h100_has_its_published_figures() {
    let text = files("gpus").into_iter().find(|(path, _)| path.ends_with("h100-sxm.yaml")).unwrap().1;
    let sheet = GpuSheet::parse(&text).unwrap();
    assert_eq!(sheet.memory.value, Bytes::new(81_559 << 20), "as nvidia-smi shows it");
    assert_eq!(sheet.memory_bandwidth.value, BitRate::from_bps(26_800_000_000_000));
    assert_eq!(sheet.peak.bf16.as_ref().unwrap().value.0, 989.4e12);
    assert_eq!(sheet.scale_up.rate.value, BitRate::from_gbps(3_600));
    assert_eq!(sheet.launch.value, Span::from_us(2));
    assert_eq!(sheet.efficiency.gemm.evidence, Evidence::Measured);
    assert!(sheet.overlap_slowdown.is_none());
}

#[test]
fn every_nic_and_switch_sheet_loads() {
    for (path, text) in files("nics") {
        let sheet = NicSheet::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        named_like_its_file(&path, &sheet.name);
        sourced(&path, &sheet.evidence());
        assert_eq!(text.matches("source:").count(), sheet.evidence().len(), "{}", path.display());
        assert!((100..=800).contains(&(sheet.rate.value.bps() / 1_000_000_000)), "{}", sheet.name);
    }
    for (path, text) in files("switches") {
        let sheet = SwitchSheet::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        named_like_its_file(&path, &sheet.name);
        sourced(&path, &sheet.evidence());
        assert_eq!(text.matches("source:").count(), sheet.evidence().len(), "{}", path.display());
    }
}

#[test]
fn every_optics_sheet_loads_and_longer_reach_costs_more() {
    let mut sheets = Vec::new();
    for (path, text) in files("optics") {
        let sheet = OpticsSheet::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        named_like_its_file(&path, &sheet.name);
        sourced(&path, &sheet.evidence());
        assert_eq!(text.matches("source:").count(), sheet.evidence().len(), "{}", path.display());
        assert!((0.05..=40.0).contains(&sheet.power.value.0), "{}", sheet.name);
        sheets.push(sheet);
    }
    let mut modules: Vec<_> = sheets.iter().filter(|sheet| sheet.kind == OpticsKind::Transceiver).collect();
    modules.sort_by_key(|sheet| (sheet.rate.value, sheet.reach.value));
    for pair in modules.windows(2).filter(|pair| pair[0].rate.value == pair[1].rate.value) {
        assert!(pair[0].price.value < pair[1].price.value, "{} {}", pair[0].name, pair[1].name);
        assert!(pair[0].power.value <= pair[1].power.value, "{} {}", pair[0].name, pair[1].name);
    }
}

/// `parameters` of a sheet is compared with its shape on loading; the Megatron models are compared here with the sizes
/// of arXiv:2104.04473 table 1, GPT-3 with arXiv:2005.14165, both in billions.
#[test]
fn every_model_sheet_loads_with_its_published_size() {
    let mut checked = 0;
    for (path, text) in files("models") {
        let sheet = ModelSheet::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        named_like_its_file(&path, &sheet.name);
        match sheet.kind {
            ModelKind::Transformer(model) => {
                let published = sheet
                    .name
                    .strip_prefix("megatron-")
                    .or(sheet.name.strip_prefix("gpt3-"))
                    .map(|size| size.trim_end_matches('b').parse::<f64>().unwrap());
                match published {
                    Some(billions) => {
                        let found = model.parameters() as f64 / 1e9;
                        assert!(
                            (found - billions).abs() <= 0.05 + 0.003 * billions,
                            "{}: {found}",
                            sheet.name
                        );
                        checked += 1;
                    }
                    None => checked += usize::from(sheet.parameters.is_some()),
                }
            }
            ModelKind::Dlrm(model) if sheet.name == "dlrm-1024" => {
                assert_eq!(model.tables.len(), 1_024, "a table for each GPU of the largest job");
            }
            // MLPerf's DLRM: 25 billion parameters at dimension 128, nearly all in tables.
            ModelKind::Dlrm(model) => {
                assert_eq!(model.tables.len(), 26);
                let billions = model.table_parameters() as f64 / 1e9;
                assert!((23.0..26.0).contains(&billions), "{billions}");
                assert_eq!(model.interaction_features(), 27 * 26 / 2 + 128);
            }
        }
    }
    assert_eq!(checked, 19, "models with a published size");
}

#[test]
fn a_wrong_sheet_says_where() {
    let text = files("switches").into_iter().find(|(path, _)| path.ends_with("quantum-2.yaml")).unwrap().1;
    let unit = SwitchSheet::parse(&text.replace("rate: {value: 400 Gbps", "rate: {value: 400"))
        .unwrap_err()
        .to_string();
    assert!(unit.contains("a unit is missing") && unit.contains("line 4"), "{unit}");
    let key = SwitchSheet::parse(&text.replace("latency:", "latncy:")).unwrap_err().to_string();
    assert!(key.contains("latncy") && key.contains("line 6"), "{key}");
    let source = SwitchSheet::parse(&text.replace(", source:", ", sauce:")).unwrap_err().to_string();
    assert!(source.contains("sauce"), "{source}");
    let outrun = SwitchSheet::parse(&text.replace("ports: {value: 64", "ports: {value: 65")).unwrap_err();
    assert!(matches!(outrun, SheetError::Inconsistent { .. }), "{outrun}");
    let model = files("models").into_iter().find(|(path, _)| path.ends_with("llama3-8b.json")).unwrap().1;
    let wrong = ModelSheet::parse(&model.replace("14336", "14337")).unwrap_err().to_string();
    assert_eq!(wrong, "sheet `llama3-8b`: shape has 8030654464 parameters, `parameters` says 8030261248");
}
