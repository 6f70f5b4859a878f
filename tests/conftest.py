"""What all tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import windtunnel
from synthetic import write_run

if TYPE_CHECKING:
    from windtunnel import Result

ROOT = Path(__file__).resolve().parents[1]

# A shell's background jobs and `nohup` start with these ignored, and children inherit that: tests ask what signals do.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _ignored in (signal.SIGHUP, signal.SIGTERM):
    signal.signal(_ignored, signal.SIG_DFL)

EIGHT_H100 = """
windtunnel: 1
name: small
fidelity: flow
topology:
  shape: clos
  hosts: 2
  tiers: [{ports_down: 16, rate: 400 Gbps, length: 5 m}]
  host: {gpu: H100-SXM, gpus: 4, nics: 4, nic: ConnectX-7}
jobs:
  - name: train
    workload: {model: llama3-8b, global_batch: 32, micro_batch: 1, sequence: 2048}
    parallelism: {tp: 4, dp: 2, zero: 1}
"""
"""Llama 3 8B on two hosts, small enough to be laid out in every way."""

RING = """
windtunnel: 1
name: ring
seed: 3
fidelity: flow
topology: {shape: clos, hosts: 8, tiers: [{ports_down: 8, rate: 100 Gbps, length: 5 m}], host: {gpus: 1, nics: 1}}
jobs: [{name: a, workload: {flows: {pattern: ring, bytes: 1 MiB}}}]
"""
"""Eight hosts that send to their neighbours: some milliseconds of a study."""

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Runs the installed command in an empty folder, without colours, 100 columns wide."""
    program = Path(sys.executable).with_name("windtunnel")

    def run(*arguments: str | Path, check: int | None = 0, **settings: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100", **settings}
        done = subprocess.run(
            [program, *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        if check is not None:
            assert done.returncode == check, done.stderr or done.stdout
        return done

    return run


def children() -> list[int]:
    """Numbers of the processes that this one has started and that live."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            stat = (entry / "stat").read_text() if entry.name.isdigit() else ""
        except OSError:
            continue
        state, parent, *_ = [*stat.rpartition(")")[2].split(), "", ""]
        if parent == str(os.getpid()) and state != "Z":
            found.append(int(entry.name))
    return found


Interrupted = Callable[..., "Result"]


@pytest.fixture
def interrupted(tmp_path: Path) -> Interrupted:
    """Runs the installed command, stops it by SIGINT after some seconds, and loads the partial result that it left."""
    program = Path(sys.executable).with_name("windtunnel")

    def run(*arguments: str | Path, after: float) -> Result:
        command = [str(program), "run", *map(str, arguments), "--no-report", "--out", "partial"]
        with subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            time.sleep(after)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=120)
        assert process.returncode == 130, errors
        assert "Traceback" not in errors
        assert "interrupted: the result is partial" in errors
        result = windtunnel.load(tmp_path / "partial")
        assert result.summary["partial"] is True
        return result

    return run


@pytest.fixture(scope="session")
def measured() -> Path:
    """The folder of measured tables, which is not shipped; a test that asks for it is skipped where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no measured tables in {folder}")
    return folder


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run folder with every table of flow fidelity, made by hand."""
    return write_run(tmp_path_factory.mktemp("runs") / "synthetic")
