//! Build script of crates whose tests compare with recorded data: sets `cfg(golden_data)` where the data lies beside the project.
//!
//! A test that needs it is `#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]`: without the data it shows as ignored,
//! never as passed, and with the data a file that is missing is a failure. After adding the data to a project that was built without,
//! touch this file.

use std::path::Path;

/// What the tests read, below the data's folder.
const NEEDED: [&str; 30] = [
    "compute_profiles/vidur_a100_Meta-Llama-3-70B_mlp.csv.gz",
    "compute_profiles/vidur_a100_Meta-Llama-3-8B_mlp.csv.gz",
    "compute_profiles/vidur_h100_Llama-2-70b-hf_mlp.csv.gz",
    "flows/hpcc_AliStorage2019.txt",
    "flows/hpcc_FbHdp_distribution.txt",
    "flows/hpcc_WebSearch_distribution.txt",
    "flows/trafficgen_DCTCP_CDF.txt",
    "flows/trafficgen_VL2_CDF.txt",
    "golden/goal/index.json",
    "golden/htsim/perm_1024_2MB.cm.gz",
    "golden/htsim/perm_128_16MB.cm.gz",
    "golden/htsim/perm_128_2MB.cm.gz",
    "golden/maxmin",
    "jobs/alea_hpc2n.swf.gz",
    "jobs/alibaba_gpu2023_openb_pod_list_default.csv.gz",
    "jobs/alibaba_gpu2025_disaggregated_DLRM_trace.csv.gz",
    "jobs/lingjun2023_topo.csv.gz",
    "jobs/philly_2017_jobs_pollux.csv.gz",
    "models/hf_via_llmservingsim/Llama-3.1-70B.json",
    "models/hf_via_llmservingsim/Llama-3.1-8B.json",
    "models/hf_via_llmservingsim/Mixtral-8x7B-v0.1.json",
    "models/hf_via_simai/deepseek_v3_config.json",
    "models/hf_via_simai/qwen3-235B-A22B_config.json",
    "models/hf_via_simai/qwen3-30B-A3B_config.json",
    "models/hf_via_simai/qwen3-8B_config.json",
    "storage",
    "traces_kineto",
    "traces_mpi",
    "traces_nccl",
    "traces_nsys",
];

#[allow(dead_code, reason = "the scenario crate has a build script of its own, which calls `tell`")]
fn main() {
    tell();
}

/// Tells cargo.
pub fn tell() {
    println!("cargo::rustc-check-cfg=cfg(golden_data)");
    println!("cargo::rerun-if-changed=../golden.rs");
    let data = Path::new("../../../shared/data");
    if NEEDED.iter().all(|path| data.join(path).exists()) {
        println!("cargo::rustc-cfg=golden_data");
        println!("cargo::rerun-if-changed=../../../shared/data/INDEX.md");
    }
}
