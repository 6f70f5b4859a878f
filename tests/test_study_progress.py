"""The line that studies say: the time left is that of the study in hand, not of those before it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from windtunnel.cli.study_progress import StudyProgress
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
