"""Graphs from files of other programs, through the command: read, recognised, routed, run and written again."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

pytestmark = pytest.mark.engine

PRODUCTION = ROOT.parent / "shared" / "data" / "jobs" / "lingjun2023_topo.csv.gz"

CLOS, TORUS, TABLES = (
    "a Clos, routed by rule",
    "a torus or mesh, routed by rule",
    "no regular shape, routed by tables",
)
ROUTING = {CLOS: "up-down", TORUS: "dimension-order", TABLES: "table"}
RECOGNISED = {CLOS: "clos", TORUS: "torus", TABLES: None}
DEFAULTS = "rate: 100 Gbps, latency: 500 ns"

LEAF_SPINE = """\
src,dst,rate,length,src_kind,dst_kind
h0,leaf0,100 Gbps,100 m,host,switch
h1,leaf0,100 Gbps,100 m,host,switch
h2,leaf1,100 Gbps,100 m,host,switch
h3,leaf1,100 Gbps,100 m,host,switch
leaf0,spine0,100 Gbps,200 m,switch,switch
leaf1,spine0,100 Gbps,200 m,switch,switch
leaf0,spine1,100 Gbps,200 m,switch,switch
leaf1,spine1,100 Gbps,200 m,switch,switch
"""

# Two switches of three hosts, cabled to each other: no tier above, and no mesh with as many hosts on every router.
UNEVEN = """\
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="k" for="node" attr.name="kind" attr.type="string"/>
  <key id="r" for="edge" attr.name="rate" attr.type="string"><default>100 Gbps</default></key>
  <key id="l" for="edge" attr.name="latency" attr.type="string"><default>1 us</default></key>
  <graph edgedefault="undirected">
    <node id="a"><data key="k">host</data></node>
    <node id="b"><data key="k">host</data></node>
    <node id="c"><data key="k">host</data></node>
    <node id="s"/>
    <node id="t"/>
    <edge source="a" target="s"/>
    <edge source="b" target="s"/>
    <edge source="c" target="t"/>
    <edge source="s" target="t"><data key="l">2 us</data></edge>
  </graph>
</graphml>
"""

RING = json.dumps(
    {
        "directed": False,
        "multigraph": False,
        "nodes": [{"id": f"r{i}", "kind": "switch"} for i in range(5)]
        + [{"id": f"n{i}", "kind": "host"} for i in range(5)],
        "edges": [
            {"source": f"r{i}", "target": f"r{(i + 1) % 5}", "rate": "200 Gbps", "latency": "1 us"} for i in range(5)
        ]
        + [{"source": f"n{i}", "target": f"r{i}", "rate": "200 Gbps", "latency": "100 ns"} for i in range(5)],
    }
)

HTSIM = """\
# 8 hosts, 2 leaves, 4 spines
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
"""

HPCC = """\
7 3 6
4 5 6
0 4 100Gbps 1us 0
1 4 100Gbps 1us 0
2 5 100Gbps 1us 0
3 5 100Gbps 1us 0
4 6 100Gbps 1us 0
5 6 100Gbps 1us 0
"""

# Two servers of two GPUs and an NVSwitch, two leaves (one a rail), one spine.
SIMAI = """\
9 2 2 3 10 H100
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
"""

ASTRA = "topology: [ Ring ]\nnpus_count: [ 6 ]\nbandwidth: [ 50.0 ]  # GB/s\nlatency: [ 500 ]  # ns\n"

SLURM = "SwitchName=leaf0 Nodes=n[0-1]\nSwitchName=leaf1 Nodes=n[2-3]\nSwitchName=top Switches=leaf[0-1]\n"


def infiniband() -> str:
    """Two leaves of two hosts under a spine, of which the listing has the leaves' records alone."""
    lines = ["#", "# Topology file: generated on Thu Jan  5 10:00:00 2026", "#"]
    for leaf in range(2):
        lines += ["vendid=0x2c9", f'Switch\t40 "S-b8cef60300e5d2a{leaf}"\t\t# "leaf{leaf}" enhanced port 0 lid 1 lmc 0']
        for port in range(1, 3):
            guid, node = f"c42a10300a1b2c{2 * leaf + port}", f"n{2 * leaf + port}"
            lines.append(f'[{port}]\t"H-0{guid}"[1]({guid}) \t# "{node} mlx5_0" lid 5 4xHDR')
        lines += [f'[21]\t"S-b8cef60300e5d2b0"[{leaf + 1}]\t\t# "spine0" lid 2 4xHDR', ""]
    return "\n".join(lines)


@dataclass(frozen=True)
class Sample:
    """A file and what must be found in it.

    Counts are of hosts, GPUs, switches and cables; the path is that from the first host to the last: slowest link in
    bps, latency in seconds, links.
    """

    file: str
    text: str
    counts: tuple[int, int, int, int]
    found: str
    path: tuple[float, float, int]
    more: str = ""


SAMPLES = {
    "edge-list": Sample("fabric.csv", LEAF_SPINE, (4, 4, 4, 8), CLOS, (100e9, 3e-6, 4)),
    "graphml": Sample("fabric.graphml", UNEVEN, (3, 3, 2, 4), TABLES, (100e9, 4e-6, 3)),
    "node-link": Sample("fabric.json", RING, (5, 5, 5, 10), TORUS, (200e9, 1.2e-6, 3)),
    "htsim": Sample("fabric.topo", HTSIM, (8, 8, 6, 16), CLOS, (400e9, 3.3e-6, 4)),
    "ns3 of HPCC": Sample("topology.txt", HPCC, (4, 4, 3, 6), CLOS, (100e9, 4e-6, 4)),
    "ns3 of SimAI": Sample("topology.txt", SIMAI, (2, 4, 3, 6), CLOS, (400e9, 1e-6, 2)),
    # An NPU has a router of its own, on a cable of both links' rate: 50 GB/s are 50 x 2^30 B/s.
    "astra-sim": Sample("network.yml", ASTRA, (6, 6, 6, 12), TORUS, (50 * 8 * 2**30, 5e-7, 3)),
    "slurm": Sample("topology.conf", SLURM, (4, 4, 3, 6), CLOS, (100e9, 2e-6, 4), DEFAULTS),
    "infiniband": Sample("ibnetdiscover.out", infiniband(), (4, 4, 3, 6), CLOS, (200e9, 2e-6, 4), "latency: 500 ns"),
    "locations": Sample(
        "hosts.csv", "ip,PSW,ASW\na,P,S1\nb,P,S1\nc,P,S2\nd,P,S2\n", (4, 4, 3, 6), CLOS, (100e9, 2e-6, 4), DEFAULTS
    ),
}


def write(folder: Path, file: str, text: str | bytes, more: str = "", name: str = "fabric.yaml") -> str:
    """A topology that reads the file."""
    (folder / file).write_bytes(text.encode() if isinstance(text, str) else text)
    (folder / name).write_text(f"shape: graph\ngraph: {{file: {file}{', ' if more else ''}{more}}}\n")
    return name


def answer(command: Command, *arguments: str | Path, check: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("topology", *arguments, "--json", check=check).stdout)
    return found


def counts(found: dict[str, Any]) -> tuple[int, ...]:
    return tuple(found[key] for key in ("hosts", "gpus", "switches", "cables"))


def essence(found: dict[str, Any]) -> dict[str, Any]:
    """What two descriptions of one network share."""
    keys = ("tiers", "bisection_bps", "diameter_links", "diameter_latency_ps", "recognised", "routing")
    analysis = {key: found["analysis"][key] for key in ("cables", "hops", "paths")}
    return {"counts": counts(found), **{key: found[key] for key in keys}, **analysis}


@pytest.mark.parametrize("case", SAMPLES)
def test_a_format_is_read_counted_recognised_and_routed(case: str, command: Command, tmp_path: Path) -> None:
    sample = SAMPLES[case]
    file = write(tmp_path, sample.file, sample.text, sample.more)
    found = answer(command, file, "--path", "host0", f"host{sample.counts[0] - 1}", "--check")
    assert found["shape"] == "graph"
    assert counts(found) == sample.counts
    assert found["check"]["ok"]
    assert (found["recognised"], found["routing"]) == (RECOGNISED[sample.found], ROUTING[sample.found])
    (path,) = found["paths"]
    assert path["verdict"] == "legal"
    slowest = min(link["rate_bps"] for link in path["links"])
    assert (slowest, path["latency_ps"] / 1e12, len(path["links"])) == (pytest.approx(sample.path[0]), *sample.path[1:])
    # The terminal says it too, and the format's name reads what was detected.
    shown = command("topology", file).stdout
    assert sample.found in " ".join(shown.split())
    assert f"{sample.counts[0]} hosts" in shown
    named = f"format: {case.partition(' ')[0]}" + (f", {sample.more}" if sample.more else "")
    named_file = write(tmp_path, sample.file, sample.text, named, "named.yaml")
    assert essence(answer(command, named_file)) == essence(answer(command, file))


def test_equal_cost_ports_of_an_imported_clos_are_those_of_the_file(command: Command, tmp_path: Path) -> None:
    file = write(tmp_path, "fabric.csv", LEAF_SPINE)
    assert answer(command, file, "--ecmp", "host0", "host3")["ecmp"][0]["paths"] == 2
    assert answer(command, file, "--ecmp", "host0", "host1")["ecmp"][0]["paths"] == 1
    assert answer(command, file, "--ecmp", "host0", "host3", "--fail", "switch:spine1")["ecmp"][0]["paths"] == 1


SCENARIO = """\
windtunnel: 1
name: imported
seed: 7
fidelity: flow
topology: {%s, host: {gpus: 1, nics: 1}}
network: {mtu: 4150 B, header: 66 B}
jobs:
  - name: a
    workload: {collective: {kind: all_to_all, bytes: 8 MiB}}
    iterations: 2
"""


def test_a_run_is_that_of_the_same_clos(command: Command, tmp_path: Path) -> None:
    """Latencies of a graph hold all of a switch's delay, so the Clos has none of its own."""
    (tmp_path / "fabric.csv").write_text(LEAF_SPINE)
    (tmp_path / "graph.yaml").write_text(SCENARIO % "shape: graph, graph: {file: fabric.csv}")
    tiers = "[{ports_down: 2, rate: 100 Gbps, length: 100 m}, {ports_down: 2, rate: 100 Gbps, length: 200 m}]"
    clos = f"shape: clos, hosts: 4, tiers: {tiers}, switch: {{latency: 0 ns}}"
    (tmp_path / "clos.yaml").write_text(SCENARIO % clos)

    def times(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        found = json.loads(command("run", name, "--json", "--no-report", "--out", name.removesuffix(".yaml")).stdout)
        (job,) = found["jobs"]
        return job["iteration_time_s"], job["exposed_s"]

    imported = times("graph.yaml")
    assert imported == times("clos.yaml")
    # A host sends three quarters of the bytes, less or more headers, at 100 Gbps at best.
    bound = 0.75 * 8 * 2**20 * 8 / 100e9 * 4150 / (4150 - 66)
    assert bound <= imported[0]["mean"] < 3 * bound


FORMATS = {"graphml": "graphml", "csv": "edge-list", "topo": "htsim", "ns3": "ns3"}


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_written_is_read_as_the_same_network(form: str, command: Command, tmp_path: Path) -> None:
    first = write(tmp_path, "fabric.csv", LEAF_SPINE)
    command("topology", first, "--export", form, "-o", "written.txt")
    again = write(tmp_path, "again.txt", (tmp_path / "written.txt").read_text(), f"format: {FORMATS[form]}", "b.yaml")
    assert essence(answer(command, again)) == essence(answer(command, first))


@pytest.mark.parametrize("form", ["graphml", "csv", "ns3"])
def test_irregular_graphs_are_written_too(form: str, command: Command, tmp_path: Path) -> None:
    first = write(tmp_path, "fabric.graphml", UNEVEN)
    command("topology", first, "--export", form, "-o", "written.txt")
    again = write(tmp_path, "again.txt", (tmp_path / "written.txt").read_text(), name="b.yaml")
    assert essence(answer(command, again)) == essence(answer(command, first))


def test_what_a_format_cannot_express_is_an_error(command: Command, tmp_path: Path) -> None:
    file = write(tmp_path, "fabric.graphml", UNEVEN)
    done = command("topology", file, "--export", "topo", "-o", "written.topo", check=2)
    assert "expected a leaf-spine or a fat tree for htsim, found another shape" in done.stderr
    assert not (tmp_path / "written.topo").exists()


def test_a_loss_of_a_tier_is_kept_through_a_file(command: Command, tmp_path: Path) -> None:
    (tmp_path / "lossy.yaml").write_text(
        "shape: clos\nhosts: 4\ntiers: [{ports_down: 2, rate: 100 Gbps, length: 100 m}, "
        "{ports_down: 2, rate: 100 Gbps, length: 200 m, loss: 1e-5}]\n"
        "host: {gpus: 1, nics: 1}\nswitch: {latency: 0 ns}\n"
    )
    command("topology", "lossy.yaml", "--export", "csv", "-o", "lossy.csv")
    again = write(tmp_path, "lossy.csv", (tmp_path / "lossy.csv").read_text(), name="b.yaml")

    def losses(name: str) -> list[float]:
        (path,) = answer(command, name, "--path", "host0", "host3")["paths"]
        return [link["loss"] for link in path["links"]]

    assert losses("lossy.yaml") == losses(again) == [0.0, 1e-5, 1e-5, 0.0]
    assert answer(command, again)["recognised"] == "clos"
    done = command("topology", "lossy.yaml", "--export", "topo", check=2)
    assert "expected cables without loss for htsim, found 0.00001 in tier 1" in done.stderr


def test_a_file_may_be_compressed(command: Command, tmp_path: Path) -> None:
    plain = write(tmp_path, "fabric.csv", LEAF_SPINE)
    packed = write(tmp_path, "fabric.csv.gz", gzip.compress(LEAF_SPINE.encode()), name="packed.yaml")
    assert essence(answer(command, packed)) == essence(answer(command, plain))


def test_the_production_topology_of_2023(command: Command, tmp_path: Path) -> None:
    if not PRODUCTION.is_file():
        pytest.skip("no ../shared/data/jobs/lingjun2023_topo.csv.gz")
    file = write(tmp_path, "topo.csv.gz", PRODUCTION.read_bytes(), DEFAULTS)
    found = answer(command, file, "--path", "host0", "host846")
    rows = {tuple(row.split(",")) for row in gzip.decompress(PRODUCTION.read_bytes()).decode().split()[1:]}
    assert found["hosts"] == len({row[0] for row in rows}) == 847
    # A switch's name holds below its parent.
    switches = len({row[1:4] for row in rows}) + len({row[1:3] for row in rows}) + len({row[1] for row in rows})
    assert found["switches"] == switches
    assert found["cables"] == 847 + switches - 1
    assert found["paths"][0]["verdict"] == "legal"
    assert command("topology", file, "--check").returncode == 0
