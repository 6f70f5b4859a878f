//! All-to-alls that are merged where it does not matter, against the same scenarios message by message.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::{Value, json};
use windtunnel_kernel::RandomStream;
use windtunnel_scenario::api::{Failure, RunRequest, run};
use windtunnel_scenario::table::Discard;

/// A folder with small models of experts.
fn models() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("exchanges");
        std::fs::create_dir_all(&folder).expect("room");
        for (name, hidden, layers) in [("small", 512, 2), ("large", 2048, 4)] {
            let config = json!({
                "model_type": "mixtral", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": 8,
                "num_key_value_heads": 8, "intermediate_size": hidden * 2, "vocab_size": 1024, "num_local_experts": 16,
                "num_experts_per_tok": 2,
            });
            std::fs::write(folder.join(format!("{name}.json")), config.to_string()).expect("room");
        }
        folder
    })
}

/// The summary of a run; `None` if the scenario is refused.
fn summary(text: &str, exchange: &str) -> Option<Value> {
    let request = RunRequest {
        text: text.to_owned(),
        source: "exchanges.yaml".to_owned(),
        base: models().to_owned(),
        overrides: vec![("network.exchange".to_owned(), exchange.to_owned())],
        ..RunRequest::default()
    };
    match run(&request, &mut Discard, &mut Discard) {
        Ok(summary) => Some(serde_json::from_str(&summary).expect("a summary is JSON")),
        Err(Failure::Input(_)) => None,
        Err(other) => panic!("{other:?}\n{text}"),
    }
}

fn means(summary: &Value) -> Vec<f64> {
    let jobs = summary["jobs"].as_array().expect("jobs").iter();
    jobs.map(|job| job["iteration_time_s"]["mean"].as_f64().expect("a time")).collect()
}

/// A scenario drawn from `seed`: the fabric's shape and width, skews, where experts stand, how many jobs there are.
fn drawn(seed: u64) -> String {
    let mut random = RandomStream::new(seed, "exchanges", 0);
    let mut pick = |most: usize| random.below(most as u64) as usize;
    let gpus = [1, 2, 4][pick(3)];
    let nics = [gpus, gpus, 1][pick(3)];
    let hosts = [2, 4, 8][pick(3)];
    let ports = hosts * nics;
    let mut text = format!(
        "windtunnel: 1\nname: drawn\nseed: {seed}\nfidelity: flow\nmemory: ignore\ntopology:\n  shape: clos\n  hosts: {hosts}\n  tiers:\n"
    );
    match pick(3) {
        0 => writeln!(text, "    - {{ports_down: {ports}, rate: 100 Gbps, length: 5 m}}"),
        _ => writeln!(
            text,
            "    - {{ports_down: {}, rate: 100 Gbps, length: 5 m, oversubscription: {}}}\n    - {{ports_down: 32, rate: 100 \
             Gbps, length: 50 m}}",
            (ports / 2).max(2),
            [1, 1, 2][pick(3)]
        ),
    }
    .expect("a string takes all");
    let balancer = ["ecmp", "spray", "ideal"][pick(3)];
    writeln!(text, "  host: {{gpu: H100-SXM, gpus: {gpus}, nics: {nics}, nic: ConnectX-5}}\nnetwork: {{load_balancer: {balancer}}}")
        .expect("a string takes all");
    match pick(5) {
        0 | 1 => {}
        2 => text += "variation: {kernel_noise: {distribution: normal, cv: 0.0005}}\n",
        3 => text += "variation: {kernel_noise: {distribution: lognormal, cv: 0.03}}\n",
        _ => text += "variation: {speeds: [{host: 1, speed: 0.97}], nics: [{host: 0, rate: 0.8}]}\n",
    }
    let ranks = gpus * hosts;
    let jobs = if ranks >= 8 { [1, 1, 1, 2][pick(4)] } else { 1 };
    text += "results: {operations: none, flows: none}\njobs:\n";
    for job in 0..jobs {
        let ranks = ranks / jobs;
        let ep = [ranks, ranks, (ranks / 2).max(1)][pick(3)].min(16);
        let pp = if ranks / ep > 1 { [1, 2][pick(2)] } else { 1 };
        let dp = (ranks / ep / pp).max(1);
        let order = ["[tp,cp,ep,dp,pp]", "[tp,cp,dp,ep,pp]"][pick(2)];
        writeln!(
            text,
            "  - name: job{job}\n    workload: {{model: {}.json, global_batch: {}, micro_batch: 1, sequence: {}, training: \
             {{expert_imbalance: {}}}}}\n    parallelism: {{ep: {ep}, pp: {pp}, dp: {dp}, order: {order}}}\n    iterations: \
             {}\n    placement: {}",
            ["small", "large"][pick(2)],
            ep * dp * [1, 2, 4][pick(3)],
            [128, 1024][pick(2)],
            ["1.0", "1.0", "1.3"][pick(3)],
            1 + pick(3),
            ["packed", "random"][pick(2)],
        )
        .expect("a string takes all");
    }
    text
}

#[test]
fn the_bound_covers_the_difference_from_message_by_message() {
    let (mut ran, mut whole, mut apart) = (0, 0, 0);
    let mut worst: f64 = 0.0;
    for seed in 0..150 {
        let text = drawn(seed);
        let Some(auto) = summary(&text, "auto") else { continue };
        let messages = summary(&text, "messages").expect("it ran before");
        ran += 1;
        let exchanges = &auto["network"]["exchanges"];
        let bound = exchanges["error_bound"].as_f64().unwrap_or(0.0);
        for (auto, messages) in means(&auto).into_iter().zip(means(&messages)) {
            let error = (auto / messages - 1.0).abs();
            assert!(error <= bound + 1e-12, "seed {seed}: {error} beyond {bound}\n{exchanges}\n{text}");
        }
        // Whatever is merged, as much was sent.
        for key in ["messages", "bytes_delivered"] {
            let of = |summary: &Value| summary["network"][key].as_u64();
            assert_eq!(of(&auto), of(&messages), "seed {seed}: {key}\n{text}");
        }
        worst = worst.max(bound);
        whole += exchanges["whole"].as_u64().unwrap_or(0);
        apart += exchanges["by_message"].as_u64().unwrap_or(0);
    }
    assert!(ran > 100 && whole > 1_000 && apart > 1_000, "{ran} {whole} {apart}");
    assert!(worst < 0.04, "{worst}");
}
