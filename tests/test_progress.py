"""What a caller of `run` and the terminal are told while a run goes."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

import windtunnel
from windtunnel.cli.progress import Line

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

TRAINS: dict[str, Any] = {
    "windtunnel": 1, "name": "trains", "fidelity": "flow",
    "topology": {"shape": "clos", "hosts": 4, "tiers": [{"ports_down": 4, "rate": "100 Gbps"}],
                 "host": {"gpu": "H100-SXM", "gpus": 1, "nics": 1, "nic": "ConnectX-5"}},
    "jobs": [{"name": "a", "workload": {"model": "opt-350m", "global_batch": 8, "micro_batch": 1, "sequence": 512},
              "parallelism": {"dp": 4}, "iterations": 2}],
}  # fmt: skip


@pytest.mark.engine
def test_a_callback_of_four_hears_the_phases_in_order() -> None:
    told: list[tuple[str, float | None]] = []
    windtunnel.run(TRAINS, threads=1, progress=lambda part, _seconds, _events, phase: told.append((phase, part)))
    phases = [phase for phase, _ in groupby(phase for phase, _ in told)]
    assert [phase for phase in phases if phase != "ideal fabric"] == ["preparing", "simulating", "writing"]
    for phase in phases:
        parts = [part for of, part in told if of == phase]
        assert parts[0] == 0.0
        assert None not in parts
        assert parts == sorted(part or 0.0 for part in parts)


@pytest.mark.engine
def test_a_callback_of_three_hears_parts_of_the_simulation_alone() -> None:
    told: list[float | None] = []

    def watch(part: float | None, _seconds: float, _events: int) -> None:
        told.append(part)

    windtunnel.run(TRAINS, threads=1, progress=watch)
    assert told[0] is None
    assert 0.0 in told


@pytest.mark.engine
def test_an_exception_while_writing_leaves_no_result(tmp_path: Path) -> None:
    def watch(_part: float | None, _seconds: float, _events: int, phase: str) -> None:
        if phase == "writing":
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        windtunnel.run(TRAINS, progress=watch, out=tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out.journal"]


@pytest.mark.engine
def test_threads_that_cannot_help_are_one_line(tmp_path: Path, command: Command) -> None:
    (tmp_path / "trains.yaml").write_text(json.dumps(TRAINS), encoding="utf-8")
    done = command("run", "trains.yaml", "--threads", "8", "--no-report", "--out", "out")
    lines = [line for line in done.stderr.splitlines() if "--threads" in line]
    said = "`--threads 8`: 2 are of use, one thread simulates a network at flow fidelity"
    assert lines == [f"{said}, and another one the ideal fabric beside it"]
    done = command("run", "trains.yaml", "--threads", "2", "--no-report", "--out", "out")
    assert "--threads" not in done.stderr


def test_each_phase_has_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0
    monkeypatch.setattr("windtunnel.cli.progress.time.monotonic", lambda: clock)
    line = Line()
    assert line.of(0.0, 0.0, 0, "preparing") == "preparing · 0%"
    clock = 4.0
    assert line.of(0.5, 0.0, 0, "preparing") == "preparing · 50% · 4.000 s left"
    clock = 10.0
    assert line.of(0.0, 0.0, 0, "simulating") == "simulated 0 s · 0%"
    clock = 12.0
    assert line.of(0.5, 1.0, 4_000, "simulating") == "simulated 1.000 s · 2.000 k events/s · 50% · 2.000 s left"
