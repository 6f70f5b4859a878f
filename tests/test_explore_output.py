"""What a search prints where nobody watches, and what is left of one that was stopped."""

from __future__ import annotations

import json
import time
from dataclasses import fields
from typing import TYPE_CHECKING

from conftest import EIGHT_H100
from windtunnel.cli.show_explore import STOPPED, show
from windtunnel.explore.outcome import outcome
from windtunnel.explore.prove import Proven
from windtunnel.explore.search import Settings, search
from windtunnel.explore.space import Space
from windtunnel.layout import priced
from windtunnel.layout.job import read_job
from windtunnel.source import read_source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from conftest import Command

SCENARIO = EIGHT_H100.replace("sequence: 2048", "sequence: 4096")
FEW = ["--tp", "2", "--pp", "2", "--cp", "1", "--zero", "1", "--micro-batch", "1", "--recompute", "none"]


def test_a_table_on_a_pipe_is_whole_and_heeds_columns(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    asked = [path, *FEW, "--prove", "0", "--store", str(tmp_path / "runs")]
    told = command("explore", *asked, COLUMNS="").stdout
    assert "…" not in told
    assert "interleaved 8 N 4" in told
    assert "recompute" in told
    narrow = command("explore", *asked, COLUMNS="60").stdout
    assert max(map(len, narrow.splitlines())) <= 60


def test_the_first_lot_is_small_and_from_everywhere() -> None:
    """A search that is stopped after its first lot has layouts that fit: in order the first have no parallelism."""
    job = read_job(read_source(SCENARIO), [])

    def stop(_: str, done: int, __: int) -> None:
        assert done <= priced.FIRST
        raise KeyboardInterrupt

    found = search(job, Space(), Settings(), progress=stop)
    assert found.stopped
    assert 0 < found.tried <= priced.FIRST
    assert len({(row[0].tp, row[0].pp) for row in found.rows}) > 3


class Lots:
    """In the engine's place: how many choices it is asked of at once."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def answers(self, text: str, tell: Callable[[str], None]) -> None:
        """Answers nothing of as many."""
        number = len(json.loads(text)["choices"])
        self.seen.append(number)
        names = [field.name for field in fields(priced.Answer)]
        tell(json.dumps({"answers": [dict.fromkeys(names)] * number}))


def test_lots_grow_no_further_than_they_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    job = read_job(read_source(SCENARIO), [])
    estimates = priced.Estimates(job.source, job.overrides)
    for short, said in ((0.5, [64, 128, 256, 512, 40]), (0.0, [*[64] * 15, 40])):
        monkeypatch.setattr(priced, "SHORT_S", short)
        lots = Lots()
        monkeypatch.setattr(estimates, "_estimates", lots)
        assert len(estimates.answers([{}] * 1000)) == 1000
        assert lots.seen == said


def test_what_was_stopped_is_marked_beside_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    job = read_job(read_source(SCENARIO), [])
    began = time.perf_counter()

    def stop(_: str, __: int, ___: int) -> None:
        if time.perf_counter() > began:
            raise KeyboardInterrupt

    found = search(job, Space(), Settings(), progress=stop)
    rows = [Proven(candidate, answer, i) for i, (candidate, answer) in enumerate(found.rows)]
    show(job, found, rows, outcome(job, found, rows, top=3), None, top=3)
    assert STOPPED in capsys.readouterr().out
