"""What an experiment observed is kept, and used while nothing that it was worked out from has changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from windtunnel.experiments import find, run_experiment, run_experiments
from windtunnel.experiments.kept import stamp

if TYPE_CHECKING:
    import polars as pl

ROOT = Path(__file__).parents[1]

FILE = """
title: A replay
source: nobody
claims:
  - {claim: it takes time, observe: time_s, expected: {min: 0}}
"""

CODE = """
from pathlib import Path
import polars as pl
from windtunnel.experiments.runs import Asked, run_all
from windtunnel.studies.noted import note_folder
from windtunnel.source import read_source

HERE = Path(__file__).parent

def observe(results):
    with (HERE.parent.parent / "asked").open("a") as file:
        file.write("x")
    note_folder(HERE.parent.parent / "measured")
    (one,) = run_all([Asked(HERE.parent.parent / "elsewhere" / "goal-replay.yaml")])
    time_s = one.summary["jobs"][0]["iteration_time_s"]["mean"]
    return {"time_s": time_s, "odd": {1, 2}, "none": None, "table": pl.DataFrame({"time_s": [time_s, float("nan")]})}

def draw(results, observed, axes):
    axes.plot([0.0, observed["time_s"]])
"""


class Folder:
    """An experiment that asks for a run of a file outside its own folder, and counts how often it is asked."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "experiments" / "replay"
        self.home.mkdir(parents=True)
        (self.home / "experiment.yaml").write_text(FILE)
        (self.home / "experiment.py").write_text(CODE)
        (root / "measured").mkdir()
        (root / "measured" / "times.csv").write_text("time\n1\n")
        (root / "elsewhere" / "workloads").mkdir(parents=True)
        shutil.copy(ROOT / "examples" / "goal-replay.yaml", root / "elsewhere")
        self.goal = root / "elsewhere" / "workloads" / "halo.goal"
        shutil.copy(ROOT / "examples" / "workloads" / "halo.goal", self.goal)

    def asked(self) -> int:
        place = self.root / "asked"
        return len(place.read_text()) if place.exists() else 0

    def run(self, *, out: str | None = "out", fresh: bool = False) -> tuple[float, pl.DataFrame, bytes]:
        """The figure of the claim, the table, and what was drawn."""
        folder = None if out is None else self.root / out
        found = run_experiment(find("replay"), out=folder, store=self.root / "runs", fresh=fresh)
        drawn = b"" if found.figure is None else found.figure.read_bytes()
        return found.verdicts[0].observed, found.tables["table"], drawn


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)


def test_what_has_not_changed_is_not_worked_out_again(folder: Folder) -> None:
    time_s, table, drawn = folder.run()
    again = folder.run(out="other")
    assert (again[0], again[2]) == (time_s, drawn)
    assert again[1].equals(table, null_equal=True)
    assert drawn
    assert folder.asked() == 1
    # Together with others, too, and another store knows nothing of it.
    (found,) = run_experiments([find("replay")], out=folder.root / "all", store=folder.root / "runs")
    assert found.holds
    assert (folder.root / "all" / "replay" / "figure.svg").read_bytes() == drawn
    assert folder.asked() == 1
    run_experiment(find("replay"), store=folder.root / "other-runs")
    assert folder.asked() == 2


def test_a_figure_that_was_never_drawn_is(folder: Folder) -> None:
    folder.run(out=None)
    assert folder.run()[2]
    assert folder.asked() == 2


@pytest.mark.parametrize(
    "what", ["code", "claims", "goal", "measured", "a new table", "seeds", "fresh", "damaged", "cut"]
)
def test_what_has_changed_is_worked_out_again(folder: Folder, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, _, _ = folder.run()
    kept = folder.root / "runs" / "observed" / "replay.json"
    if what == "code":
        (folder.home / "experiment.py").write_text(CODE + "\nMORE = 1\n")
    elif what == "claims":
        (folder.home / "experiment.yaml").write_text(FILE.replace("min: 0", "min: 0.0"))
    elif what == "goal":
        folder.goal.write_text(folder.goal.read_text().replace("1048576", "2097152"))
    elif what == "measured":
        (folder.root / "measured" / "times.csv").write_text("time\n12\n")
    elif what == "a new table":
        (folder.root / "measured" / "more.csv").write_text("time\n")
    elif what == "seeds":
        monkeypatch.setenv("WINDTUNNEL_SEEDS", "3")
    elif what == "damaged":
        kept.write_text(json.dumps(json.loads(kept.read_text()) | {"tables": {"table": "AAAA"}}))
    elif what == "cut":
        kept.write_bytes(kept.read_bytes()[:100])
    after, _, _ = folder.run(fresh=what == "fresh")
    assert folder.asked() == 2
    assert (after > before) == (what == "goal")


def test_claims_on_what_cannot_be_kept_are_judged_anew(folder: Folder) -> None:
    (folder.home / "experiment.yaml").write_text(
        FILE + "  - {claim: a set is none, observe: odd, expected: finished}\n"
    )
    folder.run()
    folder.run()
    assert folder.asked() == 2


def test_stamps_tell_files_apart(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    before = stamp(tmp_path)
    assert stamp(tmp_path) == before
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.pyc").write_text("1")
    assert stamp(tmp_path) == before
    (tmp_path / "a").rename(tmp_path / "b")
    assert stamp(tmp_path) != before
    assert stamp(tmp_path / "absent") == stamp(tmp_path / "absent too")
