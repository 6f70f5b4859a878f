"""Switches as buyers know them: pauses, queues and their results, through the installed command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

if TYPE_CHECKING:
    from conftest import Command

pytestmark = pytest.mark.engine

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "lossless-incast.yaml"
BUFFER = "network.buffers=[{size: 1 MB}]"

RING = """\
windtunnel: 1
name: ring
fidelity: packet
topology:
  shape: torus
  dimensions: [{size: 5, rate: 400 Gbps, length: 20 m}]
  nic_link: {rate: 400 Gbps, length: 3 m}
  host: {gpus: 1, nics: 1}
network: {transport: none, buffers: [{size: 2 MB}], pfc: {xoff: 20 KB}}
jobs:
  - name: exchange
    workload: {flows: {file: two-on.csv}}
"""

TWO_CLASSES = """\
windtunnel: 1
name: classes
fidelity: packet
topology:
  shape: clos
  hosts: 8
  tiers: [{ports_down: 8, rate: 400 Gbps, length: 5 m}]
  host: {gpus: 1, nics: 1}
network:
  transport: none
  discipline: dwrr
  queues:
    - {name: rest, weight: 1}
    - {name: gradients, classes: [dp], weight: 3}
jobs:
  - name: incast
    workload: {flows: {pattern: incast, bytes: 1 MiB}}
"""


def network(command: Command, scenario: Path, *overrides: str) -> dict[str, Any]:
    words = [word for text in overrides for word in ("--set", text)]
    done = command("run", scenario, "--json", "--no-report", *words)
    return dict(json.loads(done.stdout)["network"])


def test_an_incast_loses_nothing_where_switches_pause(command: Command) -> None:
    paused = network(command, EXAMPLE)
    assert paused["packets_dropped"] == 0
    assert paused["pfc_pauses"] > 0
    tiers = paused["pfc_pause_by_tier_s"]
    assert paused["pfc_pause_s"] == pytest.approx(sum(tiers.values()))
    # Hosts are paused by their leaves, spines by the leaf of the crowd, leaves by spines.
    assert set(tiers) == {"nic-up", "leaf-up", "leaf-down"}
    dropping = network(command, EXAMPLE, "network.transport=dctcp", "network.pfc=null", BUFFER)
    assert dropping["packets_dropped"] > 100
    assert dropping["pfc_pause_s"] == 0


def test_congestion_control_pauses_less(command: Command) -> None:
    crowd = network(command, EXAMPLE)
    slowed = network(command, EXAMPLE, "network.transport=dctcp")
    assert slowed["packets_dropped"] == 0
    assert slowed["pfc_pause_s"] < 0.1 * crowd["pfc_pause_s"]


def test_links_tell_their_pauses(command: Command, tmp_path: Path) -> None:
    command("run", EXAMPLE, "--out", tmp_path / "run", "--no-report")
    links = pl.read_parquet(tmp_path / "run" / "links" / "*.parquet")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())["network"]
    assert links["pauses"].sum() == summary["pfc_pauses"]
    assert int(links["paused_ps"].sum()) / 1e12 == pytest.approx(summary["pfc_pause_s"])
    assert links["watchdog_dropped"].sum() == 0
    constants = {row["constant"] for row in json.loads((tmp_path / "run" / "summary.json").read_text())["evidence"]}
    assert not any("buffer" in constant for constant in constants), "the example gives its own"


def test_buffers_come_from_a_sheet(command: Command) -> None:
    words = ("--set", "network.buffers=[]", "--json", "--no-report")
    found = json.loads(command("run", EXAMPLE, *words).stdout)
    (row,) = [row for row in found["evidence"] if row["constant"].endswith("buffer")]
    # A leaf has 8 ports of 400 Gbps and a spine 4: of the sheets with such ports the smallest.
    assert row["constant"] == "switch Tomahawk-3: buffer"
    assert row["kind"] == "inferred"
    assert found["network"]["packets_dropped"] == 0


def test_a_cycle_of_pauses_is_named(command: Command, tmp_path: Path) -> None:
    (tmp_path / "ring.yaml").write_text(RING)
    # Each router passes on what the one before it sends: more than its link takes.
    rows = [f"{host},{(host + 2) % 5},16000000\n" for host in range(5)]
    (tmp_path / "two-on.csv").write_text("source,destination,bytes\n" + "".join(rows))
    done = command("run", "ring.yaml", "--json", check=1)
    assert done.stdout == ""
    assert "the run cannot go on: 5 links are paused by `pfc`" in done.stderr
    assert "hint: " in done.stderr
    # Every switch stands once on each side.
    links = [line.split(" -> ") for line in done.stderr.splitlines() if " -> " in line]
    assert len(links) == 5
    assert {left.strip() for left, _ in links} == {right.strip() for _, right in links}
    command("run", "ring.yaml", "--no-report", "--set", "network.pfc=null", "--set", "network.buffers=[]")


def test_classes_have_queues(command: Command, tmp_path: Path) -> None:
    (tmp_path / "classes.yaml").write_text(TWO_CLASSES)
    # All of it is `other`, in one queue or two: the port is never idle, so the last byte comes at the same instant.
    two = json.loads(command("run", "classes.yaml", "--json", "--no-report").stdout)
    words = ("--set", "network.queues=[]")
    one = json.loads(command("run", "classes.yaml", "--json", "--no-report", *words).stdout)
    assert two["flows"]["fct_max_s"] == one["flows"]["fct_max_s"]
    # Shaped to a quarter of the rate it takes four times as long.
    words = ("--set", "network.queues=[{name: all, rate: 100 Gbps}]")
    slow = json.loads(command("run", "classes.yaml", "--json", "--no-report", *words).stdout)
    assert slow["flows"]["fct_max_s"] == pytest.approx(4 * one["flows"]["fct_max_s"], rel=0.02)
