"""The builder of workloads written by hand."""

from __future__ import annotations

import doctest
import json
from typing import TYPE_CHECKING

import pytest

import windtunnel
import windtunnel.workload
from windtunnel import Workload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_the_example_in_the_documentation() -> None:
    tried = doctest.testmod(windtunnel.workload)
    assert tried.attempted > 0
    assert tried.failed == 0


def test_every_kind_of_line(tmp_path: Path) -> None:
    step = Workload(ranks=3)
    pair = step.communicator("pair", (0, 2))
    a = step.compute(0, "120 us", id="a")
    step.collective([0, 2], "all_gather", pair, "64 MiB", after=[a], stream=1)
    step.send(0, 1, "1 MiB", tag=3, after=[a])
    step.receive(1, "any", tag="any", dimension="pp")
    lines = [json.loads(line) for line in step.write(tmp_path / "w.jsonl").read_text().splitlines()]
    assert lines == [
        {"windtunnel_workload": 1, "ranks": 3},
        {"communicator": "pair", "ranks": [0, 2]},
        {"rank": 0, "id": "a", "compute": "120 us"},
        {"ranks": [0, 2], "id": "all_gather-1", "collective": "all_gather", "communicator": "pair", "bytes": "64 MiB",
         "after": ["a"], "stream": 1},
        {"rank": 0, "id": "send-2", "send": {"to": 1, "bytes": "1 MiB", "tag": 3}, "after": ["a"]},
        {"rank": 1, "id": "receive-3", "receive": {"from": "any", "tag": "any"}, "dimension": "pp"},
    ]  # fmt: skip


def test_the_engine_runs_what_is_written(tmp_path: Path) -> None:
    """Every kind of line, on a fabric where the times can be worked out."""
    step = Workload(ranks=2)
    everyone = step.communicator("everyone", [0, 1])
    a = step.compute("all", "100 us")
    step.send(0, 1, "1 MB", tag=7, after=[a], dimension="pp")
    got = step.receive(1, 0, tag=7, dimension="pp")
    both = step.compute(1, "50 us", after=[got], id="both")
    step.compute(0, "1 us", id="both", after=[a])
    step.collective("all", "all_reduce", everyone, "2 MB", after=[both], dimension="dp", algorithm="ring")
    scenario = {
        "windtunnel": 1,
        "name": "by-hand",
        "fidelity": "flow",
        "topology": {
            "shape": "clos",
            "hosts": 2,
            "tiers": [{"ports_down": 2, "rate": "100 Gbps"}],
            "host": {},
            "switch": {"latency": "0 ns"},
        },
        "network": {"header": "0 B"},
        "jobs": [{"name": "step", "workload": {"file": str(step.write(tmp_path / "step.jsonl"))}}],
    }
    job = windtunnel.run(scenario).summary["jobs"][0]
    # 100 us, 1 MB at 100 Gbps in 80 us, 50 us; then the ring of two moves 1 MB twice.
    assert job["iteration_time_s"]["mean"] == pytest.approx(390e-6)
    assert job["exposed_s"]["dp"] == pytest.approx(160e-6)


def test_mistakes_are_named() -> None:
    step = Workload(ranks=2)
    step.communicator("dp", [0, 1])
    step.compute("all", "1 us", id="a")
    mistakes: dict[str, Callable[[], object]] = {
        "no such rank: `2`, expected 0 to 1": lambda: step.compute(2, "1 us"),
        "two operations have the id `a`": lambda: step.compute(0, "1 us", id="a"),
        "operation `b`: no earlier operation has the id `z`": lambda: step.compute(0, "1 us", id="b", after=["z"]),
        "operation `b`: expected a list of ids in `after`, found `'a'`": lambda: step.compute(
            0, "1 us", id="b", after="a"
        ),
        "no such communicator: `pp`\n\nhint: there are `dp`, `world`": lambda: step.collective(
            0, "all_reduce", "pp", "1 B"
        ),
        "communicator `x`: a rank is named twice": lambda: step.communicator("x", [0, 0]),
        "communicator `world`: it is there already, with all ranks in order": lambda: step.communicator("world", [0]),
        "communicator `x`: it has no rank": lambda: step.communicator("x", []),
        "ranks: expected a whole number of at least 1, found `0`": lambda: Workload(ranks=0),
    }
    before = step.text()
    for message, mistake in mistakes.items():
        with pytest.raises(windtunnel.InputError) as error:
            mistake()
        assert str(error.value) == message
    assert step.text() == before
