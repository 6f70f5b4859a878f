//! Each format is read from a small text written by its rules, and refused where it is wrong, with place and hint.

use std::io::Read;

use windtunnel_kernel::{BitRate, Span};
use windtunnel_topology::graph::{Recognised, recognise};
use windtunnel_topology::import::{Format, Imported, detect, import};
use windtunnel_topology::{ClosSpec, Defaults, GraphSpec, HostSpec, NodeKind, Tier, Topology, TopologySpec};

const NO_DEFAULTS: Defaults = Defaults { rate: None, latency: None };
const DEFAULTS: Defaults =
    Defaults { rate: Some(BitRate::from_gbps(200)), latency: Some(Span::from_ns(500)) };

/// Reads a graph after its format has been detected.
fn graph(format: Format, text: &str, defaults: &Defaults) -> GraphSpec {
    assert_eq!(detect("t", text), Ok(format));
    match import(format, "t", text, defaults) {
        Ok(Imported::Graph(graph)) => graph,
        other => panic!("expected a graph, found {other:?}"),
    }
}

/// Place, message and hint of the error that reading gives.
fn fault(format: Format, text: &str, defaults: &Defaults) -> String {
    let error = import(format, "t", text, defaults).expect_err("a fault");
    let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{}: {error}{hint}", error.place())
}

/// Cables by the names of their ends.
fn cables(graph: &GraphSpec) -> Vec<(&str, &str, u64, u64)> {
    let name = |node: u32| graph.nodes[node as usize].name.as_str();
    graph
        .links
        .iter()
        .map(|link| (name(link.a), name(link.b), link.rate.bps() / 1_000_000, link.latency.ps()))
        .collect()
}

fn hosts(graph: &GraphSpec) -> Vec<&str> {
    let host = graph.nodes.iter().filter(|node| node.kind == NodeKind::Host);
    host.map(|node| node.name.as_str()).collect()
}

#[test]
fn edge_lists() {
    let text = "# two hosts\nsrc,dst,rate,latency,count,loss\n\nh0,s0,400 Gbps,500 ns,,\n\"h1\", s0 ,100 Gbps,1 us,2,1e-6\n";
    let read = graph(Format::EdgeList, text, &NO_DEFAULTS);
    assert_eq!(
        cables(&read),
        [("h0", "s0", 400_000, 500_000), ("h1", "s0", 100_000, 1_000_000), ("h1", "s0", 100_000, 1_000_000)]
    );
    assert_eq!(hosts(&read), ["h0", "h1"]);
    assert_eq!((read.links[0].loss, read.links[1].loss), (0.0, 1e-6));
    // A length is a latency of 5 ns a metre; kinds may be told.
    let text =
        "src,dst,length,src_kind,dst_kind,dst_tier\nr0,r1,30 m,switch,switch,1\nh,r0,1 m,host,switch,0\n";
    let read = graph(Format::EdgeList, text, &DEFAULTS);
    assert_eq!(cables(&read), [("r0", "r1", 200_000, 150_000), ("h", "r0", 200_000, 5_000)]);
    assert_eq!(hosts(&read), ["h"]);
    assert_eq!(read.nodes.iter().map(|node| node.tier).collect::<Vec<_>>(), [Some(0), Some(1), None]);

    let fault = |text: &str| fault(Format::EdgeList, text, &NO_DEFAULTS);
    assert_eq!(
        fault("src,dst,rte\n"),
        "t:1: expected one of `src`, `dst`, `src_kind`, `dst_kind`, `src_tier`, `dst_tier`, `rate`, `latency`, `length`, \
         `loss`, `count`, found `rte` (did you mean `rate`?)"
    );
    assert_eq!(fault("src,rate\n"), "t:1: expected `dst` in the header, found none");
    assert_eq!(fault("src,dst,src\n"), "t:1: expected `src` once in the header, found it again");
    assert_eq!(
        fault("src,dst,latency\na,b,5 ns\n"),
        "t:2: expected a rate for the link between `a` and `b`, found none (the file does not say it: give a default \
         such as `400 Gbps`)"
    );
    assert_eq!(
        fault("src,dst,rate,latency\na,b,-4 Gbps,5 ns\n"),
        "t:2: `rate`: expected a rate such as `400 Gbps`, found `-4 Gbps`: it is below 0"
    );
    assert!(fault("src,dst,rate,latency\na,b,400,5 ns\n").contains("a unit is missing"));
    assert_eq!(
        fault("src,dst,rate,latency\na,b,0 Gbps,5 ns\n"),
        "t:2: expected a rate above 0 between `a` and `b`, found 0"
    );
    assert_eq!(
        fault("src,dst,rate,latency\na,b,4 Gbps,5 ns\nb,a,4 Gbps,5 ns\n"),
        "t:3: expected every link once, found `b` -- `a` twice, first at line 2 (several parallel cables are one row \
         with a `count`)"
    );
    assert_eq!(
        fault("src,dst,rate,latency\na,s,4 Gbps,5 ns\nb,s,4 Gbps,5 ns\nc,x,4 Gbps,5 ns\n"),
        "t:4: expected one connected graph, found 2 parts: one of 3 nodes with `a`, one of 2 nodes with `c` (a link is \
         missing between the parts, or a name is misspelt)"
    );
    assert_eq!(
        fault("src,dst,rate,latency\na,a,4 Gbps,5 ns\n"),
        "t:2: expected a link between two nodes, found one from `a` to itself"
    );
    assert_eq!(fault("src,dst,rate\na,b\n"), "t:2: expected 3 fields as in the header, found 2");
    assert_eq!(
        fault("src,dst,rate,latency,src_kind\na,b,1 Gbps,1 ns,hots\n"),
        "t:2: expected a kind, `host` or `switch`, found `hots`"
    );
    assert_eq!(
        fault("src,dst,rate,latency,src_kind\na,b,1 Gbps,1 ns,host\na,c,1 Gbps,1 ns,switch\n"),
        "t:3: expected `kind` to be `host` for `a` as before, found `switch`"
    );
    assert_eq!(
        fault("src,dst,rate,latency,loss\na,b,1 Gbps,1 ns,1.5\n"),
        "t:2: expected a loss in [0, 1), found 1.5 (a loss is a probability: 1e-6 is one packet in a million)"
    );
    assert_eq!(
        fault("src,dst,rate,latency,length\na,b,1 Gbps,1 ns,1 m\n"),
        "t:2: expected either `latency` or `length`, found both"
    );
}

/// As networkx 3 writes it.
const GRAPHML: &str = r#"<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
  <key id="d2" for="edge" attr.name="latency" attr.type="string"><default>1 us</default></key>
  <key id="d1" for="edge" attr.name="rate" attr.type="string" />
  <key id="d0" for="node" attr.name="kind" attr.type="string" />
  <key id="d9" for="node" attr.name="color" attr.type="string" />
  <graph edgedefault="undirected">
    <node id="h0"><data key="d0">host</data><data key="d9">red</data></node>
    <node id="h&amp;1"><data key="d0">host</data></node>
    <node id="s" />
    <edge source="h0" target="s"><data key="d1">400 Gbps</data></edge>
    <edge source="h&amp;1" target="s"><data key="d1">100 Gbps</data><data key="d2">2 us</data></edge>
  </graph>
</graphml>
"#;

#[test]
fn graphml() {
    let read = graph(Format::GraphMl, GRAPHML, &NO_DEFAULTS);
    assert_eq!(cables(&read), [("h0", "s", 400_000, 1_000_000), ("h&1", "s", 100_000, 2_000_000)]);
    assert_eq!(hosts(&read), ["h0", "h&1"]);
    let fault = |from: &str, to: &str| {
        assert!(GRAPHML.contains(from), "{from}");
        fault(Format::GraphMl, &GRAPHML.replacen(from, to, 1), &NO_DEFAULTS)
    };
    assert_eq!(
        fault("target=\"s\"", "target=\"h2\""),
        "t:11:5: expected one of the 3 nodes, found `h2` (did you mean `h0`?)"
    );
    assert_eq!(
        fault("<node id=\"s\" />", "<node id=\"h0\" />"),
        "t:10:5: expected every node once, found `h0` twice, first at line 8"
    );
    assert!(fault("undirected", "directed").starts_with("t:11:5: expected a link back from `s` to `h0`"));
    assert!(fault("400 Gbps", "400").starts_with("t:11:34: `rate`: expected a rate"));
    assert!(fault("</graph>", "").starts_with("t:14:"), "{}", fault("</graph>", ""));
    assert_eq!(fault("id=\"h0\"", ""), "t:8:5: expected `id` in `<node>`, found none");
    let twice = "<edge source=\"s\" target=\"h0\"><data key=\"d1\">1 Gbps</data></edge></graph>";
    assert!(fault("</graph>", twice).contains("`s` -- `h0` twice, first at line 11"));
    // With ids, as of a multigraph, edges may be parallel.
    let parallel = GRAPHML.replace("<edge ", "<edge id=\"1\" ").replacen(
        "</graph>",
        &twice.replace("<edge", "<edge id=\"3\""),
        1,
    );
    assert_eq!(graph(Format::GraphMl, &parallel, &NO_DEFAULTS).links.len(), 3);
    // Both directions of a directed graph are one cable.
    let directed = r#"<graphml><key id="r" for="edge" attr.name="rate"/><graph edgedefault="directed">
      <node id="a"/><node id="b"/>
      <edge source="a" target="b"><data key="r">4 Gbps</data></edge>
      <edge source="b" target="a"><data key="r">4 Gbps</data></edge></graph></graphml>"#;
    assert_eq!(cables(&graph(Format::GraphMl, directed, &DEFAULTS)), [("a", "b", 4_000, 500_000)]);
    let uneven = directed.replacen("4 Gbps", "5 Gbps", 1);
    let error = import(Format::GraphMl, "t", &uneven, &DEFAULTS).unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected the same rate in both directions of `a` -- `b`, found 5000000000 bps and 4000000000 bps"
    );
}

#[test]
fn node_link_json() {
    // networkx 3.4 and later write `edges`, earlier ones `links`.
    let text = r#"{"directed": false, "multigraph": false, "graph": {}, "nodes": [{"kind": "host", "id": 0}, {"id": "s"}],
        "links": [{"source": 0, "target": "s", "rate": "400 Gbps", "latency": "1 us", "count": 2, "weight": 1}]}"#;
    let read = graph(Format::NodeLink, text, &NO_DEFAULTS);
    assert_eq!(cables(&read), [("0", "s", 400_000, 1_000_000); 2]);
    assert_eq!(graph(Format::NodeLink, &text.replace("links", "edges"), &NO_DEFAULTS), read);
    let fault = |from: &str, to: &str| fault(Format::NodeLink, &text.replacen(from, to, 1), &NO_DEFAULTS);
    assert_eq!(
        fault("\"target\": \"s\"", "\"target\": \"t\""),
        "t: links[0].target: expected one of the 2 nodes, found `t` (did you mean `0`?)"
    );
    assert!(fault("\"400 Gbps\"", "400").starts_with("t: links[0].rate: `rate`: expected a rate"));
    assert!(fault("\"400 Gbps\"", "-400").ends_with("it is below 0"));
    assert_eq!(
        fault("\"count\": 2", "\"count\": 0"),
        "t: links[0].count: expected a whole number of at least 1 for `count`, found `0`"
    );
    assert_eq!(
        fault("\"id\": 0", "\"id\": \"s\""),
        "t: nodes[1].id: expected every node once, found `s` twice, first at `nodes[0].id`"
    );
    assert!(fault("{\"id\": \"s\"}", "7").starts_with("t: nodes[1]: expected an object, found 7"));
    assert!(
        fault("\"graph\": {},", "\"graph\": {").starts_with("t:2:112: expected JSON, found an error: EOF")
    );
}

const HTSIM: &str = "# leaf-spine
Nodes 8
Tiers 2
Podsize 8

Tier 0
Downlink_speed_Gbps 400
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 500
Tier 1
Downlink_speed_Gbps 400
Radix_Down 2
Downlink_Latency_ns 1000
Switch_Latency_ns 300
";

const HTSIM_3: &str = "nodes 64\ntiers 3\npodsize 16\ntier 0\ndownlink_speed_gbps 100\nradix_up 2\nradix_down 4
oversubscribed 2\ndownlink_latency_ns 100\nqueue_up 10000\ntier 1\ndownlink_speed_gbps 100\nradix_up 4\nradix_down 8
bundle 2\ndownlink_latency_ns 200\noversubscribed 2\ntier 2\ndownlink_speed_gbps 100\nradix_down 4\nbundle 1
downlink_latency_ns 400\n";

#[test]
fn htsim() {
    assert_eq!(detect("t", HTSIM), Ok(Format::Htsim));
    let read = |text: &str| match import(Format::Htsim, "t", text, &NO_DEFAULTS) {
        Ok(Imported::Clos(spec)) => spec,
        other => panic!("expected a Clos, found {other:?}"),
    };
    let gbps = BitRate::from_gbps(400);
    let mut tiers = vec![Tier::new(4, gbps), Tier::new(2, gbps)];
    (tiers[0].length_mm, tiers[1].length_mm) = (100_000, 200_000);
    tiers[1].switch_latency = Span::from_ns(300);
    assert_eq!(read(HTSIM), ClosSpec::new(8, HostSpec::new(1, 1, gbps), tiers));
    // Three tiers: 4 pods of 4 leaves of 4 hosts; a leaf has 2 cables to the 1 aggregation switch of its pod.
    let spec = read(HTSIM_3);
    let topology = Topology::new(&TopologySpec::Clos(spec)).expect("a Clos");
    let switches: Vec<u64> = topology.summary().tiers.iter().map(|tier| tier.switches).collect();
    assert_eq!(switches, [16, 4, 4]);

    let fault = |from: &str, to: &str| {
        assert!(HTSIM.contains(from), "{from}");
        fault(Format::Htsim, &HTSIM.replacen(from, to, 1), &NO_DEFAULTS)
    };
    assert_eq!(
        fault("Radix_Up 4", "Radix_Up 2"),
        "t:9:10: expected `Oversubscribed` to be 2: 4 ports down of 400 Gbps over 2 up of 400 Gbps, found 1 (set \
         `Oversubscribed 2`, or change `Radix_Up` in tier 0)"
    );
    assert_eq!(
        fault("Radix_Down 2", "Radix_Down 4"),
        "t:13:12: expected `Radix_Down` to be 2, a `Bundle` of 1 to each of the 2 leaves of a pod, found 4"
    );
    assert_eq!(
        fault("Podsize 8", "Podsize 4"),
        "t:4:9: expected `Podsize` to be the 8 `Nodes`, as there is no tier above the pods, found 4"
    );
    assert_eq!(
        fault("Podsize 8", "Podsize 6"),
        "t:4:9: expected `Podsize` to be a multiple of the 4 hosts of a leaf (`Radix_Down` of tier 0), found 6 (the \
         next is 8)"
    );
    assert_eq!(fault("Radix_Up 4\n", ""), "t:6:1: expected `Radix_Up` in tier 0, found none");
    assert_eq!(
        fault("Radix_Up 4", "Radix_Down 4"),
        "t:9:1: expected `Radix_Down` once in a tier, found it again"
    );
    assert!(fault("Radix_Up 4", "Radix_Upp 4").ends_with("found `Radix_Upp` (did you mean `Radix_Up`?)"));
    assert_eq!(
        fault("Nodes 8", "Nodes many"),
        "t:2:7: expected a whole number of at least 0 for `Nodes`, found `many`"
    );
    assert_eq!(fault("Nodes 8\n", ""), "t: expected `Nodes` in the header, found none");
    assert_eq!(fault("Tiers 2", "Tiers 4"), "t:3:7: expected `Tiers` to be 2 or 3, found 4");
    assert!(fault("Tiers 2", "Tiers 3").starts_with("t:11:1: expected 3 blocks `Tier`"));
    assert!(
        fault("Radix_Down 4", "Radix_Down 0").starts_with("t:8:12: expected `Radix_Down` to be at least 1")
    );
}

#[test]
fn ns3_of_hpcc() {
    let text = "5 2 4\n3 4\n0 3 100Gbps 1us 0\n1 3 100Gbps 1000ns 0.000000\n2 4 100Gbps 0.001ms 0\n3 4 400Gbps 1us 0.5\n";
    let read = graph(Format::Ns3, text, &NO_DEFAULTS);
    assert_eq!(hosts(&read), ["0", "1", "2"]);
    assert!(read.links.iter().all(|link| link.latency == Span::from_us(1)));
    assert_eq!((read.links[3].rate, read.links[3].loss), (BitRate::from_gbps(400), 0.5));
    let fault = |from: &str, to: &str| fault(Format::Ns3, &text.replacen(from, to, 1), &NO_DEFAULTS);
    assert_eq!(
        fault("2 4 100", "2 7 100"),
        "t:5:3: expected one of the 5 nodes, found `7` (did you mean `4`?)"
    );
    assert_eq!(fault("5 2 4", "5 2 5"), "t:6: expected 5 links as in the first line, found 4");
    assert_eq!(
        fault("5 2 4", "5 2"),
        "t:1: expected `nodes switches links` or `nodes gpus_per_server nvswitches switches links gpu_type`, found 2 words"
    );
    assert_eq!(fault("3 4\n", "3 3\n"), "t:2:3: expected every node once, found `3` twice");
    assert_eq!(
        fault("3 4\n", "3 4 1\n"),
        "t:2:5: expected 2 switch ids as in the first line, found `1` beyond them"
    );
    assert!(fault("1 3 100Gbps", "0 3 100Gbps").contains("`0` -- `3` twice, first at line 3"));
    assert!(fault("100Gbps", "-100Gbps").starts_with("t:3:5: `rate`: expected a rate"));
    assert_eq!(fault("1us 0\n", "1us\n"), "t:3: expected `src dst rate delay loss`, found 4 words");
}

/// Two servers of two GPUs, an NVSwitch each, two leaves (one a rail) and a spine.
const SIMAI: &str = "9 2 2 3 10 H100
4 5 6 7 8
0 4 2880Gbps 0.000025ms 0
1 4 2880Gbps 0.000025ms 0
2 5 2880Gbps 0.000025ms 0
3 5 2880Gbps 0.000025ms 0
0 6 400Gbps 0.0005ms 0
1 7 400Gbps 0.0005ms 0
2 6 400Gbps 0.0005ms 0
3 7 400Gbps 0.0005ms 0
6 8 400Gbps 0.0005ms 0
7 8 400Gbps 0.0005ms 0
";

#[test]
fn ns3_of_simai() {
    let read = graph(Format::Ns3, SIMAI, &NO_DEFAULTS);
    assert_eq!(hosts(&read), ["server0", "server1"]);
    let host = read.host.expect("what is inside a host");
    assert_eq!((host.gpus, host.nics, host.scale_up.size), (2, 2, None));
    assert_eq!((host.scale_up.rate, host.scale_up.latency), (BitRate::from_gbps(2880), Span::from_ns(50)));
    assert_eq!(read.links.len(), 6);
    assert_eq!(cables(&read)[..2], [("server0", "6", 400_000, 500_000), ("server0", "7", 400_000, 500_000)]);
    let Some(Recognised::Clos(spec, _)) = recognise(&read) else { panic!("expected rails") };
    assert!(spec.host.rails && spec.host.gpus == 2);
    assert_eq!(detect("t", SIMAI), Ok(Format::Ns3));

    let fault = |from: &str, to: &str| fault(Format::Ns3, &SIMAI.replacen(from, to, 1), &NO_DEFAULTS);
    assert_eq!(
        fault("9 2 2", "9 3 2"),
        "t:1: expected `gpus_per_server` to be a number that divides the 4 GPUs, found 3"
    );
    assert_eq!(
        fault("2 5 2880", "2 4 2880"),
        "t:5: expected an NVSwitch to join the GPUs of one server, found 4 at server0 and server1 (raise \
         `gpus_per_server` to all GPUs of the NVLink domain)"
    );
    assert!(
        fault("3 5 2880", "3 5 1440")
            .contains("`NVLink rate of GPU 3` to be 2880 Gbps as of GPU 0, found 1440")
    );
    assert!(
        fault("3 7 400", "3 2 400")
            .contains("links from a GPU to a switch or between switches, found 2 -- 3")
    );
    assert!(fault("3 7 400", "6 7 400").contains("`NICs of GPU 3` to be 1 as of GPU 0, found 0"));
}

#[test]
fn astra_sim() {
    let text = "topology: [ Ring, Switch ]\nnpus_count: [ 5, 3 ]\nbandwidth: [ 100.0, 50 ]  # GB/s\nlatency: [ 500, 1000.5 ]  # ns\n";
    let read = graph(Format::AstraSim, text, &NO_DEFAULTS);
    assert_eq!(hosts(&read).len(), 15);
    // 15 own cables, 3 rings of 5, 5 switches of 3.
    assert_eq!(read.links.len(), 15 + 15 + 15);
    let gib = |gb: u64| gb * 8 * (1 << 30);
    // A router: twice the ring's rate and once the switch's.
    assert_eq!(read.links[0].rate, BitRate::from_bps(2 * gib(100) + gib(50)));
    assert_eq!(
        (read.links[15].rate, read.links[15].latency),
        (BitRate::from_bps(gib(100)), Span::from_ns(500))
    );
    assert_eq!(
        (read.links[30].rate, read.links[30].latency),
        (BitRate::from_bps(gib(50)), Span::from_ps(1_000_500))
    );
    let ends = cables(&read);
    assert_eq!((ends[15].0, ends[15].1), ("npu0/router", "npu1/router"));
    assert_eq!((ends[30].0, ends[30].1), ("npu0/router", "dimension1/switch0"));
    assert_eq!((ends[31].0, ends[32].0), ("npu5/router", "npu10/router"));
    // Rings alone are a torus, a switch alone is a star.
    let one = |block: &str, npus: u32| {
        let text = format!("topology: [{block}]\nnpus_count: [{npus}]\nbandwidth: [50]\nlatency: [500]\n");
        recognise(&graph(Format::AstraSim, &text, &NO_DEFAULTS)).map(|found| found.describe())
    };
    assert_eq!(one("Ring", 8).as_deref(), Some("ring of 8"));
    assert_eq!(one("Switch", 8).as_deref(), Some("star"));
    assert_eq!(one("FullyConnected", 8), None);

    let fault = |from: &str, to: &str| fault(Format::AstraSim, &text.replacen(from, to, 1), &NO_DEFAULTS);
    assert_eq!(
        fault("Ring", "Mesh"),
        "t:1:13: expected one of `Ring`, `FullyConnected`, `Switch`, found `Mesh`"
    );
    assert_eq!(
        fault("[ 5, 3 ]", "[ 5 ]"),
        "t: expected `npus_count` to be one entry for each of the 2 dimensions of `topology`, found 1"
    );
    assert_eq!(fault("100.0", "-100.0"), "t:3:14: expected a bandwidth above 0 GB/s, found `-100`");
    assert!(fault("latency", "latencies").starts_with("t:"), "{}", fault("latency", "latencies"));
}

#[test]
fn slurm() {
    assert_eq!(
        fault(Format::Slurm, "# tree\nSwitchName=leaf[0-1] Nodes=n[0-1]\n", &DEFAULTS),
        "t:2:12: expected one name for `SwitchName`, found `leaf[0-1]`"
    );
    let text = "# tree\nSwitchName=s0 Nodes=n[0-1],login LinkSpeed=100\nswitchname=s1 \\\n  nodes=n[2-3]\nSwitchName=top Switches=s[0-1]\n";
    let read = graph(Format::Slurm, text, &DEFAULTS);
    assert_eq!(hosts(&read), ["n0", "n1", "login", "n2", "n3"]);
    let ends: Vec<(&str, &str)> = cables(&read).into_iter().map(|(a, b, ..)| (a, b)).collect();
    assert_eq!(
        ends,
        [
            ("n0", "s0"),
            ("n1", "s0"),
            ("login", "s0"),
            ("n2", "s1"),
            ("n3", "s1"),
            ("s0", "top"),
            ("s1", "top")
        ]
    );
    assert_eq!(read.links[0].rate, BitRate::from_gbps(200));
    assert!(
        fault(Format::Slurm, text, &NO_DEFAULTS)
            .starts_with("t:2:21: expected a rate for the link between `n0`")
    );
    let fault = |from: &str, to: &str| fault(Format::Slurm, &text.replacen(from, to, 1), &DEFAULTS);
    assert_eq!(
        fault("s[0-1]", "s[0-2]"),
        "t:5:25: expected one of the 8 nodes, found `s2` (did you mean `s0`?)"
    );
    assert_eq!(
        fault("nodes=n", "node=n"),
        "t:4:3: expected one of `SwitchName`, `Nodes`, `Switches`, `LinkSpeed`, found `node` (did you mean `Nodes`?)"
    );
    assert_eq!(
        fault("switchname=s1", "switchname=s0"),
        "t:3:12: expected every node once, found `s0` twice, first at line 2"
    );
    assert!(fault("Switches=s[0-1]", "Switches=s0").contains("found 2 parts"));
    assert!(fault("n[2-3]", "n[2-").contains("expected a list of names such as `host[1-4,7]`"));
    assert!(fault("SwitchName=s0", "BlockName=s0").contains("block plugin"));
}

const INFINIBAND: &str = "#
# Topology file: generated on Thu Jan  5 10:00:00 2026
#
vendid=0x2c9
devid=0xd2f2
switchguid=0xb8cef60300e5d2a0(b8cef60300e5d2a0)
Switch\t40 \"S-b8cef60300e5d2a0\"\t\t# \"MF0;leaf1:MQM8790/U1\" enhanced port 0 lid 1 lmc 0
[1]\t\"H-0c42a10300a1b2c4\"[1](c42a10300a1b2c4) \t\t# \"node01 mlx5_0\" lid 5 4xHDR
[2]\t\"H-0c42a10300a1b2c8\"[1](c42a10300a1b2c8) \t\t# \"node02 HCA-1\" lid 6 2xHDR
[21]\t\"S-b8cef60300e5d2b0\"[1]\t\t# \"MF0;spine1:MQM8790/U1\" lid 2 4xHDR
[22]\t\"S-b8cef60300e5d2b0\"[2]\t\t# \"MF0;spine1:MQM8790/U1\" lid 2 4xHDR

vendid=0x2c9
switchguid=0xb8cef60300e5d2b0(b8cef60300e5d2b0)
Switch\t40 \"S-b8cef60300e5d2b0\"\t\t# \"MF0;spine1:MQM8790/U1\" enhanced port 0 lid 2 lmc 0
[1]\t\"S-b8cef60300e5d2a0\"[21]\t\t# \"MF0;leaf1:MQM8790/U1\" lid 1 4xHDR
[2]\t\"S-b8cef60300e5d2a0\"[22]\t\t# \"MF0;leaf1:MQM8790/U1\" lid 1 4xHDR
[7]\t\"H-0c42a10300a1b2cc\"[1](c42a10300a1b2cc) \t\t# \"node01 mlx5_1\" lid 7 4xEDR

vendid=0x2c9
caguid=0xc42a10300a1b2c4
Ca\t1 \"H-0c42a10300a1b2c4\"\t\t# \"node01 mlx5_0\"
[1](c42a10300a1b2c4) \t\"S-b8cef60300e5d2a0\"[1]\t\t# lid 5 lmc 0 \"MF0;leaf1:MQM8790/U1\" lid 1 4xHDR
";

#[test]
fn infiniband() {
    let read = graph(Format::InfiniBand, INFINIBAND, &DEFAULTS);
    assert_eq!(hosts(&read), ["node01", "node02"]);
    let (leaf, spine) = ("MF0;leaf1:MQM8790/U1", "MF0;spine1:MQM8790/U1");
    assert_eq!(
        cables(&read),
        [
            (leaf, "node01", 200_000, 500_000),
            (leaf, "node02", 100_000, 500_000),
            (leaf, spine, 200_000, 500_000),
            (leaf, spine, 200_000, 500_000),
            (spine, "node01", 100_000, 500_000),
        ]
    );
    assert!(fault(Format::InfiniBand, INFINIBAND, &NO_DEFAULTS).starts_with("t:8: expected a latency"));
    let fault =
        |from: &str, to: &str| fault(Format::InfiniBand, &INFINIBAND.replacen(from, to, 1), &DEFAULTS);
    assert!(fault("lid 1 4xHDR\n[2]", "lid 1 4xEDR\n[2]").contains("the same rate in both directions"));
    assert!(fault("4xHDR", "4xWDR").contains("a width and a speed such as `4xHDR`"));
    assert!(
        fault("\"S-b8cef60300e5d2a0\"[22]", "\"S-b8cef60300e5d2a0\"[23]")
            .contains("`S-b8cef60300e5d2b0[2]` to be cabled to `S-b8cef60300e5d2a0[22]` as before")
    );
    assert!(fault("[2]\t\"H-", "[x]\t\"H-").contains("expected a port such as"));
}

#[test]
fn locations() {
    let text = "ip,DSW,PSW,ASW\na,G,P1,S1\nb,G,P1,S1\nc,G,P2,S1\n";
    let read = graph(Format::Locations, text, &DEFAULTS);
    // S1 of P1 and S1 of P2 are two leaves.
    assert_eq!(read.nodes.len(), 3 + 1 + 2 + 2);
    assert_eq!(read.links.len(), 7);
    let fault = |from: &str, to: &str| fault(Format::Locations, &text.replacen(from, to, 1), &DEFAULTS);
    assert_eq!(fault("b,G", "a,G"), "t:3: expected every node once, found `a` twice, first at line 2");
    assert_eq!(fault("P2,S1", ",S1"), "t:4: expected a switch in column `PSW`, found nothing");
    assert_eq!(fault("DSW", "PSW"), "t:1: expected `PSW` once in the header, found it again");
    assert!(fault("c,G", "c,H").contains("found 2 parts"));
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn the_production_topology_of_2023() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/jobs/lingjun2023_topo.csv.gz");
    let packed = std::fs::read(path).expect("the recorded topology");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("a gzipped text");
    let read = graph(Format::Locations, &text, &DEFAULTS);
    // Counted with a spreadsheet: 847 hosts, 119 pairs of PSW and ASW, 3 PSWs, 1 DSW.
    assert_eq!((read.host_count(), read.switch_count()), (847, 119 + 3 + 1));
    assert_eq!(read.links.len(), 847 + 119 + 3);
    let error = import(Format::Locations, "topo.csv", &text, &NO_DEFAULTS).expect_err("no rates");
    assert_eq!(error.place(), "topo.csv:2");
}

#[test]
fn no_text_makes_a_reader_panic() {
    // Every prefix of every sample, and every sample with one letter replaced.
    let samples = [
        GRAPHML,
        HTSIM,
        HTSIM_3,
        SIMAI,
        INFINIBAND,
        "src,dst,rate\na,b,1 Gbps\n",
        "SwitchName=s Nodes=n[0-3]x[1,2]\n",
    ];
    for sample in samples {
        let letters: Vec<(usize, char)> = sample.char_indices().collect();
        for &(at, letter) in letters.iter().step_by(3) {
            let replaced = |new: &str| format!("{}{new}{}", &sample[..at], &sample[at + letter.len_utf8()..]);
            for text in [sample[..at].to_owned(), replaced(""), replaced("9"), replaced("\"")] {
                let _ = detect("t", &text);
                for format in Format::ALL {
                    let _ = import(format, "t", &text, &DEFAULTS);
                }
            }
        }
    }
}
