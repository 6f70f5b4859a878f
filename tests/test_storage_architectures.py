"""`windtunnel import storage --architecture`: requests become the messages that the description says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

pytestmark = pytest.mark.engine
# A read of 4 KiB and a write of 8 KiB of one device, of which the first opens it.
TRACE = "0,8,4096,R,0.0\n0,16,8192,W,0.001\n"
SCENARIO = """
windtunnel: 1
name: store
fidelity: flow
topology: {shape: clos, hosts: 16, tiers: [{ports_down: 16, rate: 100 Gbps, length: 5 m}],
  host: {gpus: 1, nics: 1, nic: ConnectX-6}}
jobs: [{name: store, workload: {file: store.wtw}, iterations: 1}]
"""


def stats(command: Command, tmp_path: Path, *arguments: str | Path) -> dict[str, int]:
    trace, target = tmp_path / "trace.spc", tmp_path / "store.wtw"
    trace.write_text(TRACE)
    command("import", "storage", trace, "-o", target, *arguments)
    found: dict[str, int] = json.loads(command("workload", "stats", target, "--json").stdout)
    return found


def test_the_replicated_store_sends_what_it_did_before(command: Command, tmp_path: Path) -> None:
    found = stats(command, tmp_path)
    # Request and data of the read; write, two copies, two answers of servers, one of the store.
    assert (found["ranks"], found["sends"], found["receives"]) == (1 + 3, 2 + 6, 2 + 6)
    assert found["sent_bytes"] == 64 + 4096 + 3 * 8192 + 3 * 64


def test_direct_drive_asks_its_services(command: Command, tmp_path: Path) -> None:
    found = stats(command, tmp_path, "--architecture", "direct-drive")
    # Five messages open the device; four of the read; the write, three changes, three answers, one more.
    assert (found["ranks"], found["sends"]) == (1 + 3 + 2 + 2 + 1 + 1, 5 + 4 + 8)
    assert found["sent_bytes"] == 5 * 128 + 3 * 128 + 4096 + 4 * 8192 + 4 * 128
    scenario = tmp_path / "store.yaml"
    scenario.write_text(SCENARIO)
    summary = json.loads(command("run", scenario, "--json", "--no-report", "--out", tmp_path / "run").stdout)
    # The second request comes after 1 ms; then the CCS works 2 us and a BSS 10 us, and messages take some us.
    assert 1.012e-3 < summary["jobs"][0]["iteration_time_s"]["mean"] < 1.03e-3


def test_an_architecture_of_ones_own(command: Command, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        "name: own\nextent: 64 KiB\ncopies: 1\ncontrol: 32 B\nroles: {disk: {ranks: 1, by: first}}\n"
        "read:\n  - {from: client, to: disk, bytes: control}\n  - {from: disk, to: client, bytes: data}\n"
        "write:\n  - {from: client, to: disk, bytes: data}\n  - {from: disk, to: client, bytes: control}\n"
    )
    found = stats(command, tmp_path, "--architecture", own)
    assert (found["ranks"], found["sends"], found["sent_bytes"]) == (2, 4, 32 + 4096 + 8192 + 32)


@pytest.mark.parametrize(
    ("architecture", "said"),
    [("direct-driv", "did you mean `direct-drive`?"), ("none.yaml", "No such file"), (ROOT / "mkdocs.yml", "expected")],
)
def test_what_is_no_architecture_is_refused(
    command: Command, tmp_path: Path, architecture: str | Path, said: str
) -> None:
    trace = tmp_path / "trace.spc"
    trace.write_text(TRACE)
    yaml = tmp_path / "x.yaml"
    if isinstance(architecture, str):
        argument: str | Path = architecture
    else:
        yaml.write_text(architecture.read_text())
        argument = yaml
    done = command("import", "storage", trace, "-o", tmp_path / "s.wtw", "--architecture", argument, check=2)
    assert said in done.stderr
    assert not (tmp_path / "s.wtw").exists()
