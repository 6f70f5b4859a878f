"""Long runs at packet fidelity: what they tell, and what an interrupt leaves."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import windtunnel

if TYPE_CHECKING:
    from conftest import Command

pytestmark = pytest.mark.engine

SCENARIO = """\
windtunnel: 1
name: long
seed: 1
fidelity: packet
topology:
  shape: clos
  hosts: 16
  tiers:
    - {ports_down: 4, rate: 400 Gbps, length: 30 m}
    - {ports_down: 4, rate: 400 Gbps, length: 100 m}
  host: {gpus: 1, nics: 1}
network: {mtu: 9000 B}
jobs:
  - name: flood
    workload: {flows: {pattern: permutation, bytes: 100 GB}}
    iterations: 1
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "long.yaml"
    path.write_text(SCENARIO)
    return path


def test_a_run_tells_its_progress_and_leaves_what_it_has(scenario: Path, tmp_path: Path) -> None:
    """In mid-iteration, after millions of packets: nothing of it has ended, all of it is counted."""
    program = Path(sys.executable).with_name("windtunnel")
    arguments = ["run", str(scenario), "--out", "partial"]
    with subprocess.Popen(
        [program, *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        # The first line comes after ten seconds, with the rate of packets' events.
        line = run.stderr.readline()
        run.send_signal(signal.SIGINT)
        asked = time.monotonic()
        shown, errors = run.communicate(timeout=60)
    assert run.returncode == 130, errors
    assert "Traceback" not in errors
    assert "PARTIAL" in shown
    assert re.fullmatch(r"simulated \S+ .?s · \S+ [kM] events/s.*\n", line), line
    # It looks up several times a second; the rest is the report.
    assert time.monotonic() - asked < 20
    result = windtunnel.load(tmp_path / "partial")
    summary = result.summary
    assert summary["partial"] is True
    assert summary["jobs"][0]["state"] == "interrupted"
    assert summary["events"] > summary["data_packet_hops"] > 100_000
    assert summary["network"]["bytes_delivered"] == 0
    assert result.links.height > 0
    assert summary["simulated_time_s"] > 0
    assert (tmp_path / "partial" / "report.html").is_file()


def test_progress_grows_to_one_inside_an_iteration(scenario: Path) -> None:
    """A ring's rounds count, also where its iteration is the only one."""
    seen: list[float] = []

    def watch(fraction: float | None, _simulated_s: float, _events: int) -> None:
        if fraction is not None:
            seen.append(fraction)

    ring = "{collective: {kind: all_reduce, algorithm: ring, bytes: 8 GiB}}"
    jobs = f"[{{name: ring, workload: {ring}, iterations: 1}}]"
    windtunnel.run(scenario, overrides={"jobs": jobs}, progress=watch)
    assert len(seen) > 3
    assert seen == sorted(seen)
    assert 0 < seen[len(seen) // 2] < 1


SPREAD = """\
windtunnel: 1
name: spread
fidelity: packet
topology:
  shape: clos
  hosts: 8
  tiers: [{ports_down: 8, rate: 400 Gbps, length: 5 m}]
  host: {gpu: H100-SXM, gpus: 8, nics: 1, nic: ConnectX-7}
jobs:
  - name: a
    placement: %s
    workload: {collective: {kind: all_reduce, bytes: 4 MiB, ranks: 8}}
"""


@pytest.mark.parametrize(("placement", "crosses"), [("packed", False), ("spread", True)])
def test_what_leaves_a_host_is_packets_however_ranks_are_placed(
    command: Command, tmp_path: Path, placement: str, *, crosses: bool
) -> None:
    (tmp_path / "spread.yaml").write_text(SPREAD % placement, encoding="utf-8")
    found = json.loads(command("run", tmp_path / "spread.yaml", "--json", "--no-report").stdout)
    assert (found["data_packet_hops"] > 0) == crosses


HOSTS_OF_TWO = """\
windtunnel: 1
name: hosts-of-two
seed: 4
fidelity: packet
topology:
  shape: clos
  hosts: 8
  tiers:
    - {ports_down: 2, rate: 100 Gbps, length: 30 m}
    - {ports_down: 4, rate: 100 Gbps, length: 100 m}
  host: {gpus: 2, nics: 1, nic: ConnectX-5, scale_up: {rate: 3600 Gbps, latency: 500 ns}}
network: {transport: dctcp}
results: {flows: all}
jobs:
  - name: mixed
    workload: {collective: {kind: all_to_all, algorithm: direct, bytes: 4 MiB}}
    iterations: 2
"""


def test_rows_of_flows_inside_and_outside_hosts_are_in_one_order_with_any_threads() -> None:
    """Those inside are another network's; how far the engines run ahead of it depends on their number."""
    tables = [windtunnel.run(HOSTS_OF_TWO, threads=threads).flows for threads in (1, 2, 3)]
    assert set(tables[0]["path"]) > {"scale-up"}
    assert tables[0]["finish_ps"].is_sorted()
    for table in tables[1:]:
        assert table.equals(tables[0])
