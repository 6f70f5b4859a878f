"""The lines that studies say: on the way (the time left is that of the study in hand), and at the end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.cli.study_progress import StudyProgress, end, line, record
from windtunnel.source import Source
from windtunnel.studies.point import Point
from windtunnel.studies.runner import Progress

if TYPE_CHECKING:
    import pytest


def stands(done: int, total: int) -> Progress:
    return Progress(done=done, total=total, stored=0, running=1, slowest=None, slowest_s=0.0)


def test_a_second_study_counts_from_its_own_start(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    said: list[str] = []
    progress = StudyProgress(0, said.append)
    for at, done, total in [(100, 0, 10), (200, 5, 10), (7000, 10, 10), (7000, 0, 4), (7010, 1, 4)]:
        now[0] = at
        progress(stands(done, total))
    assert said[1].endswith("5 of 10 points · 100.0 s left")
    assert said[-1].endswith("1 of 4 points · 30.00 s left")


def point(**varied: object) -> Point:
    return Point(Source("", "a.yaml", Path()), varied={f"topology.{key}": value for key, value in varied.items()})


def test_the_slowest_that_runs_is_named() -> None:
    progress = Progress(done=2, total=10, stored=1, running=2, slowest=point(hosts=8, rate="1 Gbps"), slowest_s=90.0)
    assert line(progress, 5.0) == (
        "2 of 10 points · 1 known before · 40.00 s left · slowest for 90.00 s: hosts=8, rate=1 Gbps"
    )


def ended(done: int, **more: object) -> Progress:
    base: dict[str, object] = {"total": done, "stored": 0, "running": 0, "slowest": None, "slowest_s": 0.0}
    return Progress(done, **{**base, **more})  # type: ignore[arg-type]


def test_the_end_says_what_ran_and_what_took_longest() -> None:
    first = ended(8, stored=3, at_once=2, asked=2, longest=point(hosts=4), longest_s=1.5)
    assert end([first], 7.04) == (
        "8 points · 3 known before · 5 run in 7.000 s · 2 beside each other at most · slowest 1.500 s: hosts=4"
    )
    held = ended(8, at_once=1, asked=4, gave_way=2)
    assert "1 beside each other at most of 4 that might: memory, 2 put off as memory ran out" in end([held], 1.0)
    assert end([ended(3, stored=3)], 1.0) == "3 points · 3 known before"


def test_equal_points_and_short_rounds_are_no_want_of_memory() -> None:
    alike = ended(8, at_once=2, asked=4, alike=6)
    assert "memory" not in end([alike], 1.0)
    rounds = [ended(2, at_once=2, asked=4), ended(1, at_once=1, asked=4)]
    assert "memory" not in end(rounds, 1.0)


def test_the_end_is_of_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = StudyProgress(4, lambda _: None)
    assert progress.end() == ""
    for at, done, longest_s in [(110, 4, 3.0), (115, 4, 1.0), (130, 2, 2.0)]:
        progress.begin()
        now[0] = at
        progress(ended(done, at_once=2, asked=2, longest=point(hosts=done), longest_s=longest_s))
    assert progress.kept() == "10 of 10"
    now[0] = 200.0
    assert progress.end() == ("10 points · 10 run in 30.00 s · 2 beside each other at most · slowest 3.000 s: hosts=4")
    assert progress.record() == {
        "points": 10, "known": 0, "run": 10, "wall_s": 30.0, "beside": 2, "workers": 2, "memory": False, "put_off": 0,
        "slowest": {"varied": {"topology.hosts": 4}, "wall_s": 3.0},
    }  # fmt: skip
    assert record([], 0.0)["slowest"] is None
