//! What `windtunnel topology` is told: against closed forms and, for routes, the checks that the engine makes itself.

use std::path::Path;

use serde_json::{Value, json};
use windtunnel_scenario::api::{self, Failure};

const CLOS: &str = "\
shape: clos
hosts: 16
tiers:
  - {ports_down: 4, rate: 100 Gbps, length: 3 m}
  - {ports_down: 4, rate: 100 Gbps, length: 30 m}
host: {gpus: 1, nics: 1}
";

const FAT_TREE: &str = "shape: fat-tree\nk: 4\nrate: 100 Gbps\nlengths: [2 m, 20 m, 200 m]\nhost: {}\n";

fn ask(text: &str, request: Value) -> Value {
    let answer = api::topology(text, "a.yaml", Path::new("."), &request.to_string());
    serde_json::from_str(&answer.unwrap_or_else(|error| panic!("{error:?}"))).expect("JSON")
}

fn error(text: &str, request: Value) -> String {
    match api::topology(text, "a.yaml", Path::new("."), &request.to_string()) {
        Err(Failure::Input(error)) => error.to_string(),
        other => panic!("expected an error, found {other:?}"),
    }
}

#[test]
fn a_fat_tree_is_that_of_al_fares() {
    let answer = ask(FAT_TREE, json!({"analyse": true}));
    // k^3/4 hosts, 5k^2/4 switches, 3k^3/4 cables.
    assert_eq!(
        (&answer["hosts"], &answer["switches"], &answer["cables"]),
        (&json!(16), &json!(20), &json!(48))
    );
    assert_eq!(answer["bisection_bps"], json!(800_000_000_000u64));
    let analysis = &answer["analysis"];
    // Of 15 others 1 hangs on the same edge switch, 2 more are in the pod, by k/2 paths of 3 switches, 12 beyond, by
    // k^2/4 paths of 5.
    assert_eq!(analysis["hops"]["mean"], json!(f64::from(1 + 2 * 3 + 12 * 5) / 15.0));
    assert_eq!(analysis["paths"]["mean"], json!(f64::from(1 + 2 * 2 + 12 * 4) / 15.0));
    assert_eq!((&analysis["paths"]["min"], &analysis["paths"]["max"]), (&json!(1), &json!(4)));
    assert_eq!(analysis["hops"]["method"], json!("all pairs of hosts"));
    let lengths: Vec<&Value> =
        analysis["cables"].as_array().unwrap().iter().map(|row| &row["length_m"]).collect();
    assert_eq!(lengths, [&json!(2.0), &json!(20.0), &json!(200.0)]);
    let classes: u64 =
        analysis["length_classes"].as_array().unwrap().iter().map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(classes, 48);
}

#[test]
fn a_fabric_is_priced_without_being_looked_through() {
    let (priced, whole) = (ask(FAT_TREE, json!({"price": true})), ask(FAT_TREE, json!({"analyse": true})));
    assert_eq!(priced["cost"], whole["cost"]);
    assert!(priced["cost"].is_object());
    assert_eq!(priced["analysis"], Value::Null);
}

#[test]
fn a_path_is_laid_and_goes_around_what_failed() {
    let paths = json!([{"from": "host0", "to": "host4/gpu0", "entropy": 3}]);
    let whole = ask(CLOS, json!({"paths": paths}));
    let links = whole["paths"][0]["links"].as_array().unwrap();
    let spine = links[1]["to"].as_str().unwrap().to_owned();
    // 3 m, a switch, 30 m, a switch, 30 m, a switch, 3 m: 5 ns a metre, 500 ns a switch.
    assert_eq!(whole["paths"][0]["latency_ps"], json!((66 * 5 + 3 * 500) * 1_000));
    assert_eq!(whole["faults"], Value::Null);
    let fail = format!("link:leaf0 -> {spine}");
    let failed = ask(CLOS, json!({"paths": paths, "fail": [fail]}));
    assert_eq!(failed["paths"][0]["verdict"], "legal");
    assert_ne!(failed["paths"][0]["links"][1]["to"], json!(spine));
    assert_eq!(failed["faults"]["links"], json!([format!("leaf0 -> {spine}")]));
    let cut = json!({"paths": paths, "fail": ["switch:leaf1"]});
    assert_eq!(ask(CLOS, cut)["paths"][0]["verdict"], "unreachable");
}

#[test]
fn equal_cost_ports_carry_weights_and_count_paths() {
    let answer = ask(FAT_TREE, json!({"ecmp": [{"from": 0, "to": "host15"}]}));
    let pair = &answer["ecmp"][0];
    assert_eq!((&pair["paths"], &pair["to_nic"]), (&json!(4), &json!("host15/nic0")));
    let switches = pair["planes"][0]["switches"].as_array().unwrap();
    // Edge, two in the middle, four cores, and down again.
    assert_eq!(switches.len(), 1 + 2 + 4 + 2 + 1);
    assert_eq!((&switches[0]["paths"], &switches[0]["hops_left"]), (&json!(4), &json!(4)));
    let last = switches.last().unwrap();
    assert_eq!((&last["share"], &last["ports"][0]["to"]), (&json!(1.0), &json!("host15/nic0")));
    // One core cable of agg0.0 lost: it keeps one path of two, and gets a third of the packets.
    let request =
        json!({"ecmp": [{"from": 0, "to": "host15"}], "fail": ["agg0.0 -> spine0"], "weighted": true});
    let pair = &ask(FAT_TREE, request)["ecmp"][0];
    assert_eq!(pair["paths"], json!(3));
    let shares: Vec<f64> = pair["planes"][0]["switches"][0]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| port["share"].as_f64().unwrap())
        .collect();
    assert_eq!(shares, [1.0 / 3.0, 2.0 / 3.0]);
}

#[test]
fn checks_hold_and_count_pairs() {
    for text in [CLOS, FAT_TREE] {
        let answer = ask(text, json!({"check": true}));
        assert_eq!(answer["check"]["ok"], json!(true), "{}", answer["check"]);
        let pairs = &answer["check"]["pairs"];
        assert_eq!(pairs["legal"], pairs["compared"]);
    }
    // Leaf 0 keeps spine 0 and leaf 1 keeps spine 1: two ordered pairs of leaves go through a valley.
    let fail: Vec<String> = [(0, 1), (0, 2), (0, 3), (1, 0), (1, 2), (1, 3)]
        .map(|(leaf, spine)| format!("link:leaf{leaf} -> spine{spine}"))
        .to_vec();
    let answer = ask(CLOS, json!({"check": {"pairs": 1_000}, "fail": fail}));
    let check = &answer["check"];
    assert_eq!(check["ok"], json!(true), "{check}");
    assert_eq!((&check["pairs"]["compared"], &check["pairs"]["detour"]), (&json!(12), &json!(2)));
    assert_eq!(check["pairs"]["detoured"], json!([["leaf1", "leaf0"], ["leaf0", "leaf1"]]));
    let answer = ask(CLOS, json!({"check": {}, "fail": fail, "detour": "forbid"}));
    let check = &answer["check"];
    assert_eq!((&check["ok"], &check["pairs"]["unreachable"]), (&json!(true), &json!(2)));
    // Only the ends know: whoever hashes to the dead cable behind a spine is lost there.
    let answer = ask(CLOS, json!({"check": {}, "fail": fail, "repair": "local"}));
    let check = &answer["check"];
    assert_eq!(check["ok"], json!(true), "{check}");
    assert!(check["pairs"]["blackhole"].as_u64().unwrap() > 0, "{check}");
}

#[test]
fn a_drawing_names_every_node_of_a_small_fabric_and_every_cable_of_a_large_one() {
    let small = ask(FAT_TREE, json!({"draw": true}));
    let drawing = &small["drawing"];
    assert_eq!(drawing["level"], "nodes");
    assert_eq!(drawing["nodes"].as_array().unwrap().len(), 36);
    let count =
        |rows: &Value| rows.as_array().unwrap().iter().map(|row| row["count"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(count(&drawing["cables"]), 48);

    let large = "shape: fat-tree\nk: 36\nrate: 400 Gbps\nhost: {}\n";
    let answer = ask(large, json!({"draw": true, "fail": ["switch:spine0", "leaf0 -> agg0.0"]}));
    let drawing = &answer["drawing"];
    assert_eq!((&drawing["level"], &drawing["nodes"]), (&json!("groups"), &Value::Null));
    let groups = drawing["groups"].as_array().unwrap();
    // 36 pods and the cores.
    assert_eq!(groups.len(), 37);
    let inside: u64 = groups.iter().map(|group| count(&group["inside"])).sum();
    assert_eq!(inside + count(&drawing["between"]), answer["cables"].as_u64().unwrap());
    let members: u64 = groups.iter().map(|group| count(&group["members"])).sum();
    assert_eq!(members, 11_664 + answer["switches"].as_u64().unwrap());
    assert_eq!(groups[36]["failed_switches"], json!(1));
    let failed = |rows: &Value| {
        rows.as_array().unwrap().iter().map(|row| row["failed"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((failed(&groups[0]["inside"]), failed(&drawing["between"])), (1, 36));

    // More racks than there is room for: the middle is one group, nothing is left out.
    let wide = "shape: clos\nhosts: 800\ntiers:\n  - {ports_down: 4, rate: 100 Gbps}\n  - {ports_down: 200, rate: 100 Gbps}\nhost: {}\n";
    let answer = ask(wide, json!({"draw": true}));
    let groups = answer["drawing"]["groups"].as_array().unwrap();
    let repeats: u64 = groups.iter().map(|group| group["repeat"].as_u64().unwrap()).sum();
    assert_eq!((groups.len(), repeats), (18, 201));
    assert_eq!(groups[15]["name"], "rack15 … rack198");
}

#[test]
fn wrong_names_are_told_with_the_nearest_right_ones() {
    let cases = [
        (
            json!({"fail": ["switch:spin1"]}),
            "--fail switch:spin1: no switch `spin1`\n\nhint: did you mean `spine1`?",
        ),
        (
            json!({"fail": ["link:leaf0 -> leaf1"]}),
            "--fail link:leaf0 -> leaf1: no link `leaf0 -> leaf1`\n\nhint: did you mean `leaf0 -> spine1`?",
        ),
        (
            json!({"paths": [{"from": "host16", "to": 0}]}),
            "paths[0].from: there are 16 hosts, counted from 0, found `host16`\n\nhint: the last is `host15`",
        ),
        (
            json!({"paths": [{"from": 0, "to": 16}]}),
            "paths[0].to: there are 16 GPUs, counted from 0, found 16",
        ),
        (
            json!({"ecmp": [{"from": 0, "to": 1, "nic": 1}]}),
            "ecmp[0].nic: a GPU has 1 NIC, counted from 0, found 1",
        ),
    ];
    for (request, expected) in cases {
        assert_eq!(error(CLOS, request), expected);
    }
    let text = format!("{CLOS}failed: [spine9]\n");
    let expected = "a.yaml: failed[0]: no switch `spine9`\n\nhint: did you mean `spine0`?";
    assert_eq!(error(&text, json!({})), expected);
}

#[test]
fn a_key_of_another_shape_and_a_wrong_size_are_told() {
    let cases = [
        (
            format!("{CLOS}dimensions: [{{size: 4, rate: 1 Gbps}}]\n"),
            "a.yaml: dimensions: `dimensions` means nothing in shape `clos`, it belongs to `torus`, `mesh` and \
             `full-mesh`\n\nhint: `clos` has `hosts`, `tiers` and `planes`",
        ),
        (
            FAT_TREE.replace("k: 4", "k: 5"),
            "a.yaml: k: expected an even number of ports of a switch, found 5\n\nhint: 4 and 6 fit 16 and 54 NICs",
        ),
        (
            FAT_TREE.replace("host: {}", "host: {}\nhosts: 17"),
            "a.yaml: hosts: expected at most 16 hosts, found 17\n\nhint: raise `k`, or lower `hosts`",
        ),
        (
            CLOS.replace("gpus: 1, nics: 1", "gpus: 8, nics: 8, rails: 4"),
            "a.yaml: host.rails: expected a rail for each of the 8 NICs of a host, found 4\n\nhint: `rails: 8`, or \
             `host.nics: 4`",
        ),
        (
            format!("{CLOS}planes: 3\n"),
            "a.yaml: planes: expected planes that divide the NIC rate of 100000000000 bit/s, found 3\n\nhint: 2 and 4 do",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(error(&text, json!({})), expected);
    }
}
