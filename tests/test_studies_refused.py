"""Studies that are no good, and sweeps from Python and the command line: told before anything runs, with the place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import windtunnel
from conftest import EIGHT_H100, RING
from windtunnel.engine import InputError
from windtunnel.source import read_source
from windtunnel.studies.design import axis, different, points
from windtunnel.studies.point import Outcome, Point
from windtunnel.studies.rows import rows
from windtunnel.studies.study import Study

if TYPE_CHECKING:
    from conftest import Command

HEAD = "study: 1\nscenario: ring.yaml\n"
COUNT = "jobs[0].iterations"


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "ring.yaml"
    path.write_text(RING, encoding="utf-8")
    return path


# Equal points, which would count as seeds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cases: [{topology.hosts: 2}, {topology.hosts: 4}, {topology.hosts: 2}]", "cases[2]: the same as cases[0]"),
        ("cases: [{topology.hosts: 2}]\nvary: {topology.hosts: [4, 8]}", "is in `cases` and varied too"),
        ("vary: {topology.hosts: [2, 4]}\nderive: {topology.hosts: '4'}", "`topology.hosts` is varied and derived too"),
        ("cases: [{a: 2}]\nderive: {a: '4'}", "`a` is in `cases` and derived too"),
        ("vary: {a: [2, '2']}", "vary.a: `2` is named twice"),
        ("vary: {seed: [1, 2]}\nseeds: 2", "`seed` is varied, and each point has 2 seeds of its own"),
        ("cases: [{seed: 1}, {seed: 2}]\nseeds: 2", "`seed` is in `cases`, and each point has 2 seeds"),
    ],
)
def test_points_that_would_be_equal_are_refused(scenario: Path, text: str, said: str) -> None:
    path = scenario.with_name("study.yaml")
    path.write_text(HEAD + text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        Study.read(path).plan()
    assert str(error.value).startswith(str(path))
    assert said in str(error.value)
    assert "hint: " in str(error.value)


def test_a_key_that_two_options_vary_is_refused(command: Command, scenario: Path) -> None:
    done = command("sweep", scenario, "--vary", "topology.hosts=2,4", "--vary", "topology.hosts=8", check=2)
    assert "`topology.hosts` is varied twice" in done.stderr
    done = command("sweep", scenario, "--vary", "seed=1,2", "--follow", "2%", check=2)
    assert "`seed` is varied, and each point has 2 seeds of its own" in done.stderr
    assert not (scenario.parent / "runs").exists()


def test_a_design_that_draws_a_point_again_has_it_once(command: Command, scenario: Path) -> None:
    for kind in ("random", "sobol", "latin-hypercube"):
        drawn = list(points(kind, [axis("a", [1, 2], "a")], [{"c": 0}, {"c": 1}], 8, 3))
        assert len(drawn) == 16
        kept = different(drawn)
        assert sorted((one["c"], one["a"]) for one in kept) == [(0, 1), (0, 2), (1, 1), (1, 2)]
        assert kept == [one for i, one in enumerate(drawn) if one not in drawn[:i]], "in the order of their first"
    asked = ("--vary", "topology.hosts=2,4", "--design", "random", "--points", "8", "--metric", "jobs[0].finish_s")
    done = command("sweep", scenario, *asked, "--workers", "2")
    said = " ".join(done.stderr.split())
    assert "of 8 points that `random` drew 2 differ: the others are left out" in said
    assert "2 points · 2 run in" in said
    assert "memory" not in said
    assert "±" not in done.stdout
    assert [row["runs"] for row in json.loads(command("sweep", scenario, *asked, "--json").stdout)["rows"]] == [1, 1]


def test_neighbours_are_one_row_only_if_the_seed_alone_differs(scenario: Path) -> None:
    """1 and true are equal to Python, and are two values."""
    source = read_source(scenario)
    planned = [Point(source, (("k", text),), seed, varied={"k": value})
               for text, value in (("1", 1), ("true", True)) for seed in (1, 2)]  # fmt: skip
    done = [Outcome("done", '{"x": 1}', None, None, 0.0, 0.0, stored=False) for _ in planned]
    assert [row.runs for row in rows(planned, done, ["x"])] == [2, 2]


# What ended in a traceback, or in refused rows


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vary: {a: {from: 100 Gbps, to: .inf Gbps}}", "vary.a.to: expected a number or a quantity"),
        ("vary: {a: {from: ., to: 8}}", "vary.a.from: expected a number or a quantity"),
        ("vary: {a: {from: 1.2.3 m, to: 8 m}}", "vary.a.from: expected a number or a quantity"),
        ("vary: {a: {from: -1.0e+308, to: 1.0e+308}}", "vary.a: expected ends that are less far apart"),
        ("vary: {a: {from: 1.0e-300, to: 1.0e+300, scale: log}}", "vary.a: expected ends that are less far apart"),
        ("vary: {5: [1, 2]}", "vary: expected a key of the scenario, found `5`"),
        ("vary: {a: [1, 2]}\nmetrics: 5", "metrics: expected a list of figures of the summary, found `5`"),
        ("vary: {a: [1, 2]}\nmetrics: [5]", "metrics: expected a list of figures"),
        ("vary: {a: [1, 2]}\nzip: [[[a]]]", "zip: expected a list of lists of keys"),
        ("vary: {a: [1, 2], b: [1, 2]}\nzip: [[a, b, a]]", "zip: `a` is named twice"),
        ("vary: {a: [1, 2]}\nzip: [[]]", "zip: expected a list of lists of keys"),
        ("vary: {a: [1, 2]}\ndesign: random\npoints: true", "points: `design: random` needs a number of points"),
        ("vary: {a: [1, 2]}\npoints: 5", "points: goes with a design that draws"),
        ("vary: {a: [1, 2]}\nset: {fidelity: foo}", "set.fidelity: expected one of `job`, `message`, `flow`, `packet`"),
        ("vary: {a: [1, 2]}\nset: {b: [1, .inf]}", "set.b: expected finite values, found `inf`"),
        ("cases: [{}]", "cases[0]: expected keys with their values, found none"),
        ("cases: [{a: 1}, {a: .inf}]", "cases[1].a: expected finite values, found `inf`"),
        ("cases: [{5: 1}]", "cases[0]: expected a key of the scenario, found `5`"),
        ("cases: {a: 1}", "cases: expected a list of records"),
    ],
)
def test_studies_are_refused_with_their_place(scenario: Path, text: str, said: str) -> None:
    path = scenario.with_name("study.yaml")
    path.write_text(HEAD + text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        Study.read(path)
    assert str(error.value).startswith(f"{path}: {said}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--vary", "topology.hosts=.:8"], "expected a number or a quantity such as `100 Gbps`, found `.`"),
        (["--vary", "topology.hosts=2,4", "--fidelity", "foo"], "--fidelity: expected one of `job`, `message`, `flow`"),
        (["--vary", "topology.hosts=2,4", "--set", "fidelity=foo"], "fidelity: unknown value `foo`"),
        (["--vary", "topology.hosts=2,4", "--set", "jobs[0].iterations=.inf"], "expected a finite number, found"),
    ],
)
def test_options_are_refused_before_anything_runs(
    command: Command, scenario: Path, arguments: list[str], said: str
) -> None:
    done = command("sweep", scenario, *arguments, check=2)
    assert said in " ".join(done.stderr.split())
    assert not (scenario.parent / "runs").exists()


# Python


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"vary": {"topology.hsots": [2]}}, "did you mean `hosts`?"),
        ({"vary": {"topology.tiers[0].rate": [100, 200]}}, "a unit is missing"),
        ({"vary": {"topology.hosts": 5}}, "vary['topology.hosts']: expected a list of values"),
        ({"vary": {"topology.hosts": "248"}}, "vary['topology.hosts']: expected a list of values"),
        ({"vary": {5: [1]}}, "vary: expected keys of the scenario, found `5`"),
        ({"vary": ["topology.hosts"]}, "vary: expected a mapping"),
        ({"vary": {COUNT: [1]}, "seeds": 0}, "seeds: expected a whole number from 1, found `0`"),
        ({"vary": {COUNT: [1]}, "metrics": 5}, "metrics: expected a list of figures"),
        ({"vary": {COUNT: [1]}, "fidelity": "foo"}, "fidelity: expected one of `job`"),
        ({"vary": {COUNT: [1]}, "metrics": ["jobs[0].finish"]}, "did you mean `jobs[0].finish_s`?"),
    ],
)
def test_python_refuses_what_the_command_does(tmp_path: Path, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        windtunnel.sweep(RING, workers=1, store=tmp_path / "runs", **asked)
    assert said in str(error.value)
    assert "--metric" not in str(error.value)


def test_python_takes_one_metric_by_its_name() -> None:
    frame = windtunnel.sweep(RING, vary={"topology.hosts": (2, 4)}, metrics="jobs[0].finish_s", workers=1)
    assert frame.columns[:3] == ["topology.hosts", "jobs[0].finish_s", "jobs[0].finish_s ±"]
    assert frame["state"].to_list() == ["done", "done"]


def test_layouts_without_a_store_name_no_folder(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"top": 1, "micro_batches": [1], "schedules": ["1f1b"], "workers": 1}
    frame = windtunnel.layouts(EIGHT_H100, **asked)
    assert "done" in frame["state"].to_list()
    assert frame["folder"].to_list() == [None] * len(frame)
    kept = windtunnel.layouts(EIGHT_H100, store=tmp_path / "runs", **asked)
    assert all(Path(folder).is_dir() for folder in kept.filter(pl.col("state") == "done")["folder"].drop_nulls())
    assert kept["folder"].null_count() < len(kept)


def test_a_script_without_a_main_guard_sweeps(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import windtunnel\nprint('once')\nframe = windtunnel.sweep({RING!r}, vary={{'topology.hosts': [2, 4]}}, "
        "metrics=['jobs[0].finish_s'], workers=2)\nprint(frame['state'].to_list())\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines() == ["once", "['done', 'done']"]


# Standard input


@pytest.mark.parametrize("named", [True, False])
def test_a_study_is_read_from_standard_input(tmp_path: Path, scenario: Path, named: bool) -> None:
    program = Path(sys.executable).with_name("windtunnel")
    text = f"{HEAD}vary: {{topology.hosts: [2, 4]}}\nmetrics: ['jobs[0].finish_s']\n" + "name: piped\n" * named
    assert scenario.is_file()
    done = subprocess.run(
        [program, "sweep", "-"], input=text, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / ("piped.parquet" if named else "standard-input.parquet")).is_file()
    bad = subprocess.run(
        [program, "sweep", "-"], input=f"{HEAD}vari: 1\n", cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert bad.returncode == 2
    assert "<standard input>: unknown key `vari`" in bad.stderr
