//! `simulate_flows` against finish times recorded from SimGrid's raw max-min model.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde_json::Value;
use windtunnel_fabric::flow::simulate_flows;

fn load(path: &Path) -> Value {
    let mut text = String::new();
    let file = std::fs::File::open(path).expect("a golden file is readable");
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("it is gzip");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn golden_cases_within_1e_minus_9() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/golden/maxmin"));
    let files = std::fs::read_dir(folder).expect("recorded cases");
    let mut seen = 0;
    for file in files {
        let path = file.expect("the folder is readable").path();
        let case = load(&path);
        let number = |value: &Value| value.as_f64().expect("a number");
        let links = case["links"].as_array().expect("links");
        let index: BTreeMap<&str, u32> =
            links.iter().enumerate().map(|(i, link)| (link["name"].as_str().unwrap(), i as u32)).collect();
        let capacities: Vec<f64> = links.iter().map(|link| number(&link["bw_Bps"]) * 8.0).collect();
        let latencies: Vec<f64> = links.iter().map(|link| number(&link["lat_s"])).collect();
        let flows = case["flows"].as_array().expect("flows");
        let (mut offsets, mut path_links) = (vec![0], Vec::new());
        for flow in flows {
            path_links
                .extend(flow["path"].as_array().unwrap().iter().map(|name| index[name.as_str().unwrap()]));
            offsets.push(path_links.len());
        }
        let column = |name: &str| flows.iter().map(|flow| number(&flow[name])).collect::<Vec<f64>>();
        let weights = vec![1.0; flows.len()];
        let finish = simulate_flows(
            &capacities,
            &latencies,
            &offsets,
            &path_links,
            &column("size_B"),
            &column("start_s"),
            &weights,
        )
        .expect("a golden case is valid");
        let worst =
            column("finish_s").iter().zip(&finish).map(|(e, f)| (f / e - 1.0).abs()).fold(0.0, f64::max);
        println!("{}: {} flows, worst relative error {worst:.1e}", path.display(), flows.len());
        assert!(worst < 1e-9, "{}: {worst}", path.display());
        seen += 1;
    }
    assert!(seen >= 5, "{seen} cases");
}
