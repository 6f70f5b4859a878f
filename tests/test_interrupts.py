"""What ends a run before its end: signals, a caller's exception, a full disk, a kill; and what is left behind."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import windtunnel
from windtunnel.cli.app import main
from windtunnel.engine import TableWriter
from windtunnel.results.folder import written_beside
from windtunnel.results.owner import is_gone, owner

if TYPE_CHECKING:
    from conftest import Command

LONG: dict[str, Any] = {
    "windtunnel": 1, "name": "long", "fidelity": "packet", "network": {"transport": "none"},
    "topology": {"shape": "clos", "hosts": 16, "host": {"gpus": 1, "nics": 1},
                 "tiers": [{"ports_down": 16, "rate": "100 Gbps", "length": "5 m"}]},
    "jobs": [{"name": "a", "workload": {"flows": {"pattern": "all-to-all", "bytes": "1 GiB"}}}],
}  # fmt: skip

PROGRAM = Path(sys.executable).with_name("windtunnel")


def begun(folder: Path) -> subprocess.Popen[str]:
    """A run of many seconds whose folder is in the making."""
    (folder / "long.yaml").write_text(json.dumps(LONG), encoding="utf-8")
    call = [str(PROGRAM), "run", "long.yaml", "--out", "out", "--no-report"]
    process = subprocess.Popen(call, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        if list(folder.glob(".run-*")):
            time.sleep(0.5)
            return process
        time.sleep(0.1)
    raise AssertionError("the run never began")


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_a_partial_result(tmp_path: Path, number: signal.Signals) -> None:
    with begun(tmp_path) as process:
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert "interrupted: the result is partial" in errors
    assert "Traceback" not in errors
    result = windtunnel.load(tmp_path / "out")
    assert result.summary["partial"] is True
    assert result.manifest["interrupted_by"] == number.name
    assert not list(tmp_path.glob(".run-*"))


STUCK = """
import hashlib
from windtunnel._engine import *
from windtunnel import _engine

def stuck(*_):
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)  # detached from the interpreter, as the engine is

run = explain = stuck
"""
"""An engine that does not return, and never asks whether it should."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("what", ["run", "explain"])
def test_a_signal_ends_a_run_whatever_the_engine_does(tmp_path: Path, number: signal.Signals, what: str) -> None:
    (tmp_path / "long.yaml").write_text(json.dumps(LONG), encoding="utf-8")
    (tmp_path / "stuck.py").write_text(STUCK, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "WINDTUNNEL_ENGINE": "stuck"}
    call = [str(PROGRAM), "run", "long.yaml", "--out", "out", *(["--explain"] if what == "explain" else [])]
    with subprocess.Popen(call, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(600):
            if cpu_seconds(process.pid) > 0.6:
                break
            time.sleep(0.1)
        process.send_signal(number)
        began = time.monotonic()
        _, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 10
    if what == "explain" and number != signal.SIGINT:
        assert process.returncode == -number
    else:
        assert process.returncode == 128 + number, errors
        assert errors == "error: interrupted while the engine was busy: there is no partial result\n"
    assert not list(tmp_path.glob(".run-*"))
    assert not (tmp_path / "out").exists()


def test_a_second_signal_waits_for_nobody(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(STUCK, encoding="utf-8")
    (tmp_path / "long.yaml").write_text(json.dumps(LONG), encoding="utf-8")
    code = """
import sys
from windtunnel import interrupts
from windtunnel.cli import main

interrupts.PATIENCE = 60
sys.exit(main())
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "WINDTUNNEL_ENGINE": "stuck"}
    call = [sys.executable, "-c", code, "run", "long.yaml", "--out", "out"]
    with subprocess.Popen(call, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        while cpu_seconds(process.pid) < 0.6:
            time.sleep(0.1)
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
        _, errors = process.communicate(timeout=50)
    assert process.returncode == 128 + signal.SIGTERM, errors


SLOW = """
import hashlib
from windtunnel._engine import *

def run(*arguments):
    hashlib.pbkdf2_hmac("sha256", b"", b"", %d)
    progress = arguments[-1]
    progress(0.5, 0.0, 0, "simulating")
    raise AssertionError("it went on")
"""
"""An engine that says nothing for some seconds, and then asks."""


def test_a_process_of_python_is_not_ended(tmp_path: Path) -> None:
    """A notebook's kernel outlives a Ctrl-C for which the engine has no ear, however often it comes."""
    began = time.process_time()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 200_000)
    rounds = int(200_000 * 4 / (time.process_time() - began))
    (tmp_path / "slow.py").write_text(SLOW % rounds, encoding="utf-8")
    code = """
import os, signal, threading, time
import windtunnel

def send():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=send, daemon=True).start()
try:
    windtunnel.run("name: x")
except KeyboardInterrupt:
    print("interrupted")
time.sleep(0.1)
print("alive")
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "WINDTUNNEL_ENGINE": "slow"}
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, env=environment, cwd=tmp_path, timeout=50, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "interrupted\nalive\n"), done.stderr


@pytest.mark.engine
def test_a_signal_to_a_short_run_is_not_lost(tmp_path: Path) -> None:
    """Runs that end before the engine asks leave their results, and a loop of them ends at Ctrl-C."""
    code = """
import os, signal, sys
import windtunnel
from windtunnel import api

simulated = api._simulated
def interrupted(*arguments):
    text = simulated(*arguments)
    os.kill(os.getpid(), signal.SIGINT)
    return text
api._simulated = interrupted
try:
    windtunnel.run(sys.argv[1], out="out")
except KeyboardInterrupt:
    print(windtunnel.load("out").summary["partial"])
"""
    small = {**LONG, "jobs": [{"name": "a", "workload": {"flows": {"pattern": "ring", "bytes": "1 KB"}}}]}
    (tmp_path / "small.yaml").write_text(json.dumps(small), encoding="utf-8")
    call = [sys.executable, "-c", code, "small.yaml"]
    done = subprocess.run(call, cwd=tmp_path, timeout=50, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def cpu_seconds(pid: int) -> float:
    """What a process has taken of the processors."""
    ticks = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.engine
def test_what_a_killed_run_leaves_is_removed_by_the_next(tmp_path: Path, command: Command) -> None:
    with begun(tmp_path) as process:
        process.kill()
    assert len(list(tmp_path.glob(".run-*"))) == 1
    live = tmp_path / f".run-{owner()}-abcdefgh"
    elsewhere = tmp_path / ".run-00000000.1.1-abcdefgh"
    for folder in (live, elsewhere):
        folder.mkdir()
    small = {**LONG, "jobs": [{"name": "a", "workload": {"flows": {"pattern": "ring", "bytes": "1 KB"}}}]}
    (tmp_path / "small.yaml").write_text(json.dumps(small), encoding="utf-8")
    command("run", "small.yaml", "--out", "out", "--no-report")
    assert sorted(tmp_path.glob(".run-*")) == sorted([live, elsewhere])


def test_owners_are_told_apart() -> None:
    assert not is_gone(owner())
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        host, _, _ = owner().split(".")
        ticks = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        name = f"{host}.{process.pid}.{ticks}"
        assert not is_gone(name)
        # A number that another process has now.
        assert is_gone(f"{host}.{process.pid}.{int(ticks) - 1}")
        process.kill()
    assert is_gone(name)
    assert not is_gone("l4o2d4nw")


@pytest.mark.engine
def test_an_exception_of_progress_is_raised(tmp_path: Path) -> None:
    calls = 0

    def progress(_fraction: float | None, _simulated_s: float, _events: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        windtunnel.run(LONG, progress=progress, out=tmp_path / "out")
    assert calls == 2

    def phased(_fraction: float | None, _simulated_s: float, _events: int, phase: str) -> None:
        heard.append(phase)
        if phase == "simulating":
            raise ZeroDivisionError("mine")

    # Nobody who has raised is called again, of whatever phase.
    heard: list[str] = []
    with pytest.raises(ZeroDivisionError, match="mine"):
        windtunnel.run(LONG, progress=phased, out=tmp_path / "out")
    assert heard.count("simulating") == 1
    assert heard[-1] == "simulating"
    # Nothing stands in the run's place; what is left can go on.
    assert [path.name for path in tmp_path.iterdir()] == ["out.journal"]


def test_a_full_disk_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "part-00000.parquet").symlink_to("/dev/full")
    writer = TableWriter(tmp_path)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as error:
        writer.sink("jobs", {"value": np.arange(1 << 18, dtype=np.uint64)})
    assert error.value.errno == errno.ENOSPC
    # Whoever runs writes into a folder beside the run's place; the one that stays is told.
    assert error.value.filename == str(tmp_path.parent)


SHORT: dict[str, Any] = {
    "windtunnel": 1, "name": "short", "fidelity": "job", "topology": {"hosts": 1, "host": {"gpus": 8}},
    "jobs": [{"name": "a", "gpus": 8, "duration": "1 h"}],
}  # fmt: skip


def is_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.engine
def test_a_full_disk_leaves_what_a_run_can_go_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.1"
    with monkeypatch.context() as patched:
        patched.setattr("windtunnel.api.with_bill", is_full)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as error:
            windtunnel.run(SHORT, out=out)
    assert error.value.__notes__ == [
        f"`{out}.journal` was left: once there is space, `windtunnel run --resume {out}` goes on with it"
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["out.1.journal"]
    assert windtunnel.resume(out).summary["jobs"][0]["state"] == "finished"
    assert [path.name for path in tmp_path.iterdir()] == ["out.1"]

    def cut(*_: object) -> None:
        (tmp_path / "cut.journal").write_bytes(b"")
        is_full()

    # What is too short to go on with helps nobody.
    monkeypatch.setattr("windtunnel.api.with_bill", cut)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as error:
        windtunnel.run(SHORT, out=tmp_path / "cut")
    assert not hasattr(error.value, "__notes__")
    assert [path.name for path in tmp_path.iterdir()] == ["out.1"]


def test_the_command_says_what_a_full_disk_leaves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = OSError(errno.ENOSPC, "", "runs")
    told.add_note("`runs/a.journal` was left")
    of_engine = windtunnel.InputError(f"h.bin: No space left on device (os error {errno.ENOSPC})")
    for error, said in (
        (told, "`runs`; `runs/a.journal` was left"),
        (OSError(errno.ENOSPC, "", "runs"), "`runs`; nothing was left there"),
        (of_engine, "`h.bin`; nothing was left there"),
    ):

        def fail(_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr("windtunnel.cli.app.plain_call", fail)
        assert main(["goal", "convert", "h.goal", "h.bin"]) == 1
        hint = "hint: free some space, or write elsewhere with `--out`"
        assert capsys.readouterr().err == f"error: the disk is full: {said}\n\n{hint}\n"


def test_nothing_is_written_once_a_run_has_failed(tmp_path: Path) -> None:
    def fail() -> None:
        with written_beside(tmp_path) as (fresh, _), TableWriter(fresh) as writer:
            writer.sink("jobs", {"value": np.arange(3, dtype=np.uint64)})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.engine
def test_names_that_no_file_system_takes_are_found_before_the_run(command: Command, tmp_path: Path) -> None:
    (tmp_path / "long.yaml").write_text(json.dumps({**LONG, "name": "x" * 300}), encoding="utf-8")
    done = command("run", "long.yaml", check=2)
    assert "at most 255 bytes for the run's folder, found 307" in done.stderr
    done = command("run", "long.yaml", "--out", "y" * 256, check=2)
    assert done.stderr.startswith("error: --out: expected a name of at most 255 bytes")


def test_a_pipe_that_is_closed_is_no_failure(tmp_path: Path) -> None:
    shell = f"{PROGRAM} schema | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("141", "")
