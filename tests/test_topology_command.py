"""`windtunnel topology` from end to end: what it prints, answers, writes and refuses."""

from __future__ import annotations

import binascii
import json
import re
import struct
import xml.etree.ElementTree as ET  # our own output
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

TOPOLOGIES = ROOT / "examples" / "topologies"
SHAPES = sorted(path.stem for path in TOPOLOGIES.glob("*.yaml"))
NEAR = "\n\nhint: did you mean `ecmp`?"
FAIL = "\n\nhint: such as `--fail switch:spine0` or `--fail 'link:leaf0 -> spine1'`"
CLOS, FAT_TREE = TOPOLOGIES / "clos.yaml", TOPOLOGIES / "fat-tree.yaml"

pytestmark = pytest.mark.engine


def answer(command: Command, *arguments: str | Path, check: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("topology", *arguments, "--json", check=check).stdout)
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_counted_priced_checked_and_drawn(shape: str, command: Command, tmp_path: Path) -> None:
    done = command("topology", TOPOLOGIES / f"{shape}.yaml", check=None)
    if "this version has no shape" in done.stderr:
        pytest.skip(done.stderr.strip())
    found = answer(command, TOPOLOGIES / f"{shape}.yaml", "--check", "--svg", tmp_path / "t.svg")
    written = re.search(r"^shape: (.+)$", (TOPOLOGIES / f"{shape}.yaml").read_text(), flags=re.MULTILINE)
    assert written is not None
    assert found["shape"] == written[1]
    assert found["check"]["ok"]
    cables = sum(cable["count"] for cable in found["analysis"]["cables"])
    assert cables == found["cables"]
    cost = found["cost"]
    assert sum(item["count"] for item in cost["items"] if item["kind"] == "cable") == cables
    assert cost["total_usd"] == pytest.approx(sum(item["usd"] for item in cost["items"]))
    assert cost["power_w"] == pytest.approx(sum(item["power_w"] for item in cost["items"]))
    assert all(row["source"] for row in cost["evidence"])
    root = ET.parse(tmp_path / "t.svg").getroot()  # noqa: S314
    assert len(list(root.iter())) < 1_000
    shown = command("topology", TOPOLOGIES / f"{shape}.yaml").stdout
    assert shown.startswith(f"{written[1]} · ")
    for word in ("bisection", "longest path", "switches on the way", "cost and power", "oversubscribed"):
        assert word in shown, word


def test_a_drawing_of_many_hosts_is_small(command: Command, tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_text(
        "shape: clos\nhosts: 16384\ntiers: [{ports_down: 32, rate: 400 Gbps, length: 3 m}, "
        "{ports_down: 32, rate: 400 Gbps, length: 50 m}, {ports_down: 64, rate: 400 Gbps, length: 300 m}]\n"
        "host: {gpus: 1, nics: 1}\n"
    )
    command("topology", "large.yaml", "--svg", "a.svg", "--path", "host0", "host16383")
    command("topology", "large.yaml", "--svg", "b.svg", "--path", "host0", "host16383")
    text = (tmp_path / "a.svg").read_bytes()
    assert text == (tmp_path / "b.svg").read_bytes()
    assert len(text) < 300_000
    assert b"16,384 hosts" in text
    assert b"more alike" in text
    assert b"host16383" in text


def test_a_path_is_told_link_by_link(command: Command) -> None:
    found = answer(command, FAT_TREE, "--path", "host0", "host15", "--entropy", "3")
    (path,) = found["paths"]
    assert path["verdict"] == "legal"
    assert [link["from"] for link in path["links"][1:]] == [link["to"] for link in path["links"][:-1]]
    assert path["latency_ps"] == sum(link["latency_ps"] for link in path["links"])
    shown = command("topology", FAT_TREE, "--path", "host0", "host15", "--entropy", "3").stdout
    for link in path["links"]:
        assert link["name"] in shown
    assert "slowest link 100 Gbps" in shown
    assert "cost and power" not in shown

    def names(entropy: int) -> tuple[str, ...]:
        found = answer(command, FAT_TREE, "--path", "0", "15", "--entropy", str(entropy))
        return tuple(link["name"] for link in found["paths"][0]["links"])

    chosen = {names(entropy) for entropy in range(12)}
    assert 2 <= len(chosen) <= 4


def test_switches_hash_the_five_tuple_as_asked(command: Command) -> None:
    # Seed 0: the source port is 49152 + entropy.
    def spine(entropy: int, *arguments: str) -> str:
        ways = ("--path", "host0", "host9", "--entropy", str(entropy))
        (path,) = answer(command, CLOS, *ways, *arguments)["paths"]
        return str(path["links"][1]["name"]).split(" -> ")[1]

    (ways,) = answer(command, CLOS, "--ecmp", "host0", "host9")["ecmp"]
    spines = [f"spine{number}" for number in range(ways["paths"])]
    assert len(spines) == 8
    for entropy in range(4):
        tuple_ = struct.pack(">BIIHH", 17, 0x0A000000, 0x0A000000 + 9 * 8, 49152 + entropy, 4791)
        expected = zlib.crc32(tuple_) % len(spines)
        assert spine(entropy, "--hash", "crc32") == spines[expected]
        assert spine(entropy, "--hash", "crc16") == spines[binascii.crc_hqx(tuple_, 0) % len(spines)]
        assert spine(entropy, "--hash", "mixed", "--switch-seeds") == spine(entropy)
    assert command("topology", CLOS, "--path", "0", "9", "--hash", "crc", check=2).stderr.startswith(
        "error: --hash: expected one of `mixed`, `crc16`, `crc32`, `xor`"
    )


def test_equal_cost_ports_lose_what_failed(command: Command) -> None:
    (whole,) = answer(command, FAT_TREE, "--ecmp", "host0", "host15")["ecmp"]
    assert whole["paths"] == 4
    broken = answer(command, FAT_TREE, "--ecmp", "host0", "host15", "--fail", "switch:spine0")
    assert broken["ecmp"][0]["paths"] == 3
    assert broken["faults"]["switches"] == ["spine0"]
    weighted = answer(command, FAT_TREE, "--ecmp", "host0", "host15", "--fail", "switch:spine0", "--weighted")
    first = weighted["ecmp"][0]["planes"][0]["switches"][0]
    assert sorted(port["weight"] for port in first["ports"]) == [1, 2]
    shown = command("topology", FAT_TREE, "--ecmp", "host0", "host15", "--fail", "switch:spine0", "--weighted").stdout
    assert "failed: switch spine0" in shown
    assert "3 paths" in shown
    assert "(2)" in shown


def test_a_pair_without_a_route_is_exit_1(command: Command) -> None:
    cut = ["--fail", "link:host0/nic0 -> leaf0"]
    shown = command("topology", FAT_TREE, "--path", "host0", "host15", *cut, check=1).stdout
    assert "unreachable" in shown
    found = answer(command, FAT_TREE, "--path", "host0", "host15", *cut, check=1)
    assert found["paths"][0]["links"] == []


def test_detours_are_named_or_forbidden(command: Command) -> None:
    # A leaf without uplinks but one, whose aggregation switch has lost its core: only a valley is left.
    faults = ["--fail", "link:leaf0 -> agg0.1", "--fail", "link:agg0.0 -> spine0", "--fail", "link:agg0.0 -> spine2"]
    shown = command("topology", FAT_TREE, "--path", "host0", "host15", *faults).stdout
    assert "a detour" in shown
    command("topology", FAT_TREE, "--path", "host0", "host15", *faults, "--detour", "forbid", check=1)


@pytest.mark.parametrize("fmt", ["graphml", "csv", "topo", "ns3"])
def test_exports_are_read_back(fmt: str, command: Command, tmp_path: Path) -> None:
    name = {"graphml": "x.graphml", "csv": "x.csv", "topo": "x.topo", "ns3": "topology.txt"}[fmt]
    done = command("topology", FAT_TREE, "--export", fmt, "-o", name)
    assert done.stderr == f"wrote {name}\n"
    assert not list(tmp_path.glob(".*.part"))
    assert command("topology", FAT_TREE, "--export", fmt).stdout == (tmp_path / name).read_text()
    kind = {"csv": "edge-list", "topo": "htsim"}.get(fmt, fmt)
    (tmp_path / "again.yaml").write_text(f"shape: graph\ngraph: {{file: {name}, format: {kind}, rate: 100 Gbps}}\n")
    assert answer(command, "again.yaml")["hosts"] == 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--detour", "alow"],
         "--detour: expected one of `allow`, `forbid`, found `alow`\n\nhint: did you mean `allow`?"),
        (["--repair", "remote"], "--repair: expected one of `converged`, `local`, found `remote`"),
        (["--balancer", "ecpm"],
         "--balancer: expected one of `ecmp`, `destination_modulo`, `spray`, `ideal`, found `ecpm`" + NEAR),
        (["--fail", "spine0"],
         "--fail: expected link:NAME or switch:NAME, found `spine0`" + FAIL),
        (["-o", "x.csv"], "-o: there is nothing to write without `--export`\n\nhint: such as `--export graphml`"),
        (["--json", "--export", "csv"], "--export: standard output takes the JSON\n\nhint: name a file with `-o FILE`"),
        (["--export", "dot"], "--export: expected one of `graphml`, `csv`, `topo`, `ns3`, found `dot`"),
    ],
)  # fmt: skip
def test_bad_options_are_refused(arguments: list[str], message: str, command: Command) -> None:
    done = command("topology", CLOS, *arguments, check=2)
    assert done.stderr == f"error: {message}\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments", [["--fail", "switch:spin0"], ["--path", "host0", "host99"], ["--ecmp", "host1", "h"]]
)
def test_unknown_names_are_refused(arguments: list[str], command: Command, tmp_path: Path) -> None:
    done = command("topology", FAT_TREE, *arguments, "--svg", "x.svg", check=2)
    assert done.stderr.startswith("error: ")
    assert arguments[-1].removeprefix("switch:") in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--path", "host0", "host99"], "--path host0 host99: there are 16 hosts, counted from 0, found `host99`"),
        (["--ecmp", "host0", "spine0"], "--ecmp host0 spine0: no GPU `spine0`"),
        (["--path", "host0", "host1", "--nic", "1"], "--nic: a GPU has 1 NIC, counted from 0, found 1"),
        (["--path", "host0", "host1", "--entropy", str(2**32)], "invalid value for `--entropy`: expected "),
        (["--path", "host0", "host1", "--seed", str(2**64)], "invalid value for `--seed`: expected "),
    ],
)
def test_a_refusal_names_the_option(arguments: list[str], message: str, command: Command) -> None:
    assert command("topology", FAT_TREE, *arguments, check=2).stderr.startswith(f"error: {message}")


def test_tiers_of_buildings_are_added_up(command: Command) -> None:
    # Of 3 x 8 leaves x 8 rails, 8 up; 16 ports down against 8 up; a spine of `a` has a cable to each pod of 8.
    found = answer(command, TOPOLOGIES / "regions.yaml")
    leaf, agg, spine = found["tiers"]
    assert (leaf["ports_down"], leaf["ports_up"], leaf["oversubscription"]) == (8, 8, 1.0)
    assert (agg["ports_down"], agg["ports_up"], agg["oversubscription"]) == (16, 8, 2.0)
    assert agg["rate_down_bps"] == spine["rate_down_bps"] == 400_000_000_000
    assert spine["ports_down_used"] == 640
    assert spine["oversubscription"] == 640 / (2 * (32 + 32 + 16))
    shown = command("topology", TOPOLOGIES / "regions.yaml").stdout
    priced = [line.split()[0] for line in shown.split("cost and power")[1].splitlines()[1:4]]
    assert priced == ["leaf", "agg", "spine"]
    assert shown.split("cost and power")[1].count("spine") == 1
    assert all(str(each["total_m"]) != "-0.0" for each in found["analysis"]["length_classes"])


def test_a_single_host_is_a_topology(command: Command, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(
        "shape: clos\nhosts: 1\ntiers: [{ports_down: 8, rate: 100 Gbps}]\nhost: {gpus: 1, nics: 1}\n"
    )
    shown = command("topology", "one.yaml", "--check", "--svg", "one.svg").stdout
    assert shown.startswith("clos · 1 host · 1 GPU · 1 switch · 1 cable\n")
    assert shown.endswith("0 pairs of switches to compare\n")


def test_a_drawing_names_the_buildings(command: Command, tmp_path: Path) -> None:
    text = (TOPOLOGIES / "regions.yaml").read_text()
    for old, new in (("a", "east"), ("b", "west"), ("c", "south")):
        text = text.replace(f"name: {old}\n", f"name: {new}\n")
    text = text.replace("[a, b]", "[east, west]").replace("[b, c]", "[west, south]").replace("[a, c]", "[east, south]")
    (tmp_path / "regions.yaml").write_text(text)
    command("topology", "regions.yaml", "--svg", "t.svg", "--path", "host0", "host100")
    drawn = (tmp_path / "t.svg").read_text()
    assert all(name in drawn for name in ("east", "west", "south"))
    assert "building0" not in drawn


def test_a_model_prices_all_switches(command: Command, tmp_path: Path) -> None:
    text = CLOS.read_text() + "switch: {model: tomahawk-5}\n"
    (tmp_path / "t5.yaml").write_text(text)
    cost = answer(command, "t5.yaml")["cost"]
    assert {item["sheet"] for item in cost["items"] if item["kind"] == "switch"} == {"Tomahawk-5"}
    (tmp_path / "t9.yaml").write_text(text.replace("tomahawk-5", "tomahawk-51"))
    done = command("topology", "t9.yaml", check=2)
    assert "no sheet `tomahawk-51` in data/switches" in done.stderr
