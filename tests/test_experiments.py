"""Experiments: their file, their runs, their claims. The runs are stood in for."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

import windtunnel
from windtunnel.experiments import Broken, find, names, run_experiment, run_experiments
from windtunnel.experiments.check import Results, judge, lookup
from windtunnel.experiments.runner import module_of
from windtunnel.experiments.runs import Means
from windtunnel.experiments.spec import Claim, parse_yaml, read_experiment

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel.studies.point import Point

FILE = """
title: Ring against tree
source: Thakur 2005
scenario: scenario.yaml
cases:
  small: {bytes: 1}
  large: {bytes: 100}
vary:
  - {name: algorithm, path: "jobs[0].algorithm", values: [ring, tree]}
options: {fidelity: message, seed: 3}
claims:
  - claim: ring moves the bytes at line rate
    observe: time_s
    at: {case: large, algorithm: ring}
    expected: 100
    tolerance: 1 %
  - claim: tree wins when small
    observe: time_s
    at: {case: small}
    expected: {order: [{algorithm: tree}, {algorithm: ring}]}
  - claim: ring wins when large
    observe: time_s
    at: {case: large, algorithm: ring}
    over: {algorithm: tree}
    expected: {max: 0.6}
  - {claim: the sum is right, observe: total, expected: 312, source: arithmetic}
figure: {x: case, y: time_s, series: algorithm, kind: bar}
"""

CODE = """
import polars as pl

def observe(results):
    times = [result.summary["time_s"] for place, result in results]
    return {"total": sum(times), "times": pl.DataFrame({"time_s": times})}
"""

places: list[dict[str, Any]] = []
"""Of the points that were run."""

TIMES = {("1", "ring"): 8.0, ("1", "tree"): 3.0, ("100", "ring"): 100.5, ("100", "tree"): 200.5}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An experiment whose runs are stood in for."""
    folder = tmp_path / "experiments" / "ring-tree"
    folder.mkdir(parents=True)
    (folder / "experiment.yaml").write_text(FILE)
    (folder / "experiment.py").write_text(CODE)

    (folder / "scenario.yaml").write_text("windtunnel: 1\n")

    def results(_means: Means, points: list[Point]) -> list[SimpleNamespace]:
        assert {(p.source.name, p.fidelity, p.seed) for p in points} == {(str(folder / "scenario.yaml"), "message", 3)}
        times = [TIMES[values["bytes"], values["jobs[0].algorithm"]] for values in (dict(p.overrides) for p in points)]
        places.extend(point.varied for point in points)
        return [SimpleNamespace(summary={"partial": False, "time_s": time_s}) for time_s in times]

    monkeypatch.setattr(Means, "results", results)
    places.clear()
    monkeypatch.chdir(tmp_path)
    return folder


def test_claims_are_checked_and_the_figure_is_drawn(folder: Path, tmp_path: Path) -> None:
    outcome = run_experiment(find("ring-tree"), out=tmp_path / "out")
    assert [verdict.record() for verdict in outcome.verdicts] == [
        {"claim": "ring moves the bytes at line rate", "source": "Thakur 2005", "expected": 100, "observed": 100.5,
         "holds": True},
        {"claim": "tree wins when small", "source": "Thakur 2005", "expected": "algorithm tree < algorithm ring",
         "observed": [3.0, 8.0], "holds": True},
        {"claim": "ring wins when large", "source": "Thakur 2005", "expected": {"max": 0.6}, "observed": 100.5 / 200.5,
         "holds": True},
        {"claim": "the sum is right", "source": "arithmetic", "expected": 312, "observed": 312.0, "holds": True},
    ]  # fmt: skip
    assert outcome.holds
    assert outcome.tables["times"].height == 4
    assert [(p["case"], p["algorithm"]) for p in places] == [
        ("small", "ring"), ("small", "tree"), ("large", "ring"), ("large", "tree")
    ]  # fmt: skip
    assert outcome.figure is not None
    ET.parse(outcome.figure)  # noqa: S314
    assert read_experiment(folder).name == "ring-tree"


@pytest.mark.parametrize(
    ("expected", "tolerance", "observed", "holds"),
    [
        (10, "5 %", 10.5, True),
        (10, "5 %", 10.6, False),
        (10, 0.2, 9.8, True),
        (10, 0, 10.0001, False),
        ({"min": 1}, 0, 0.99, False),
        ({"min": 1}, "2 %", 0.99, True),
        ({"min": 1, "max": 2}, 0, 2.5, False),
        (True, 0, True, True),
        ("finished", 0, "partial", False),
        (10, 0, None, False),
    ],
)
def test_what_holds(expected: object, tolerance: object, observed: object, holds: bool) -> None:
    relative = isinstance(tolerance, str)
    width = float(str(tolerance).rstrip(" %")) / (100 if relative else 1)
    claim = Claim("c", "s", "x", {}, None, expected, width, relative)
    assert judge(claim, Results([]), {"x": observed}).holds is holds


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("title:", "titel:", "unknown key: `titel`\n\nhint: did you mean `title`?"),
        ("observe: total", "observes: total", "claims[3]: unknown key: `observes`\n\nhint: did you mean `observe`?"),
        (
            "tolerance: 1 %",
            "tolerance: little",
            "claims[0].tolerance: expected a number or a percentage, found `little`",
        ),
        ("values: [ring, tree]", "values: 3", "vary[0].values: expected a list, found `3`"),
        ("fidelity: message", "fidelty: message", "options: unknown key: `fidelty`\n\nhint: did you mean `fidelity`?"),
        ("{max: 0.6}", "{maximum: 0.6}", "claims[2].expected: unknown key: `maximum`\n\nhint: did you mean `max`?"),
    ],
)
def test_a_wrong_file_is_named_by_place(folder: Path, before: str, after: str, message: str) -> None:
    (folder / "experiment.yaml").write_text(FILE.replace(before, after))
    with pytest.raises(windtunnel.InputError) as error:
        read_experiment(folder)
    assert str(error.value) == f"{folder / 'experiment.yaml'}: {message}"


def test_yaml_is_that_of_today() -> None:
    assert parse_yaml("{fold: off, rate: 1e9}", "x") == {"fold": "off", "rate": 1e9}
    with pytest.raises(windtunnel.InputError, match="x:2:1: "):
        parse_yaml("a: {\n", "x")


def test_names_are_suggested(folder: Path) -> None:
    assert folder.is_dir()
    with pytest.raises(windtunnel.InputError) as error:
        find("rign-tree")
    assert str(error.value) == "no such experiment: `rign-tree`\n\nhint: did you mean `ring-tree`?"


def test_a_place_must_be_one_run(folder: Path) -> None:
    point = read_experiment(folder).points()[0]
    results = Results([(point, SimpleNamespace(summary={"a": [{"b": 1}]}))])  # type: ignore[list-item]
    assert results.figure("a[0].b", {"algorithm": "ring"}) == 1
    with pytest.raises(windtunnel.InputError, match="0 runs at algorithm tree, expected one"):
        results.at(algorithm="tree")


def test_a_missing_figure_is_named() -> None:
    summary = json.loads('{"jobs": [{"mfu": 0.4, "host_s": 1}]}')
    assert lookup(summary, "jobs[0].mfu") == 0.4
    with pytest.raises(windtunnel.InputError, match=r"the summary has no `jobs\[0\]\.mfo`: `mfo` is not there"):
        lookup(summary, "jobs[0].mfo")
    with pytest.raises(windtunnel.InputError, match="`3` is not there"):
        lookup(summary, "jobs[3].mfu")


@pytest.mark.parametrize("name", names())
def test_every_experiment_loads(name: str) -> None:
    """Also those whose runs take too long for a test."""
    module_of(find(name).folder)


def test_one_that_is_broken_does_not_end_the_others(tmp_path: Path) -> None:
    bodies = {
        "missing": "from windtunnel.engine import no_such_thing\n",
        "raising": "def observe(_):\n    return {}['x']\n",
        "sound": "def observe(_):\n    return {'x': 1}\n",
    }
    claim = "title: a\nclaims: [{claim: one, observe: x, expected: 1, source: here}]\n"
    experiments = []
    for name, body in bodies.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "experiment.yaml").write_text(claim, encoding="utf-8")
        (tmp_path / name / "experiment.py").write_text(body, encoding="utf-8")
        experiments.append(read_experiment(tmp_path / name))
    missing, raising, sound = run_experiments(experiments, store=tmp_path / "runs")
    assert isinstance(missing, Broken)
    assert missing.message.startswith("ImportError: cannot import name 'no_such_thing'")
    assert isinstance(raising, Broken)
    assert raising.message == f"KeyError: 'x' ({tmp_path / 'raising' / 'experiment.py'}:2)"
    assert sound.holds


@pytest.mark.engine
@pytest.mark.parametrize("fresh", [False, True])
def test_what_experiments_ask_for_is_run_together(tmp_path: Path, fresh: bool) -> None:
    """Each asks twice, the second time by what came first; none is observed to its end more than once."""
    text = SCENARIO.replace("\n", "\\n")
    experiments = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "experiment.yaml").write_text(
            "title: a\nclaims: [{claim: one, observe: x, expected: 2, source: here}]\n", encoding="utf-8"
        )
        (tmp_path / name / "experiment.py").write_text(
            f"""
from pathlib import Path
from windtunnel.experiments.runs import Asked, run_all

def observe(_):
    (one,) = run_all([Asked("{text}", seed={len(name)})])
    (two,) = run_all([Asked("{text}", seed=one.summary["seed"] + 10)])
    with (Path(__file__).parent / "ends").open("a") as file:
        file.write("x")
    return {{"x": len({{one.summary["seed"], two.summary["seed"]}})}}
""",
            encoding="utf-8",
        )
        experiments.append(read_experiment(tmp_path / name))
    totals: list[int] = []
    found = run_experiments(
        experiments, store=tmp_path / "runs", fresh=fresh, progress=lambda where: totals.append(where.total)
    )
    assert all(one.holds for one in found), found
    assert set(totals) - {0} == {2}
    for name in ("first", "second"):
        assert (tmp_path / name / "ends").read_text(encoding="utf-8") == "x"


SCENARIO = """windtunnel: 1
name: ring
fidelity: message
topology: {shape: clos, hosts: 4, tiers: [{ports_down: 8, rate: 100 Gbps, length: 5 m}], host: {gpus: 1, nics: 1}}
jobs: [{name: a, workload: {collective: {kind: all_reduce, bytes: 1 MiB}}}]
"""


def test_an_experiment_goes_by_its_other_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "experiment.yaml"
    file.write_text(file.read_text().replace("\nsource:", "\nalso: [rings, thakur-fig3]\nsource:", 1))
    monkeypatch.chdir(folder.parent.parent)
    assert find("thakur-fig3").name == find("rings").name == "ring-tree"
    assert names() == ["ring-tree"]
    with pytest.raises(windtunnel.InputError, match="did you mean `thakur-fig3`"):
        find("thakur-fig2")
    file.write_text(file.read_text().replace("[rings, thakur-fig3]", "rings"))
    with pytest.raises(windtunnel.InputError, match="also: expected a list of names, found `rings`"):
        find("ring-tree")
