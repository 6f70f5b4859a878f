"""The front door: what starts at once, examples, a first scenario, completion, and Python beside `run`."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

import windtunnel
from windtunnel import shipped
from windtunnel.first import first_scenario
from windtunnel.layout.job import read_job
from windtunnel.source import read_source

if TYPE_CHECKING:
    from conftest import Command

RING = """
windtunnel: 1
name: ring
fidelity: flow
topology: {shape: clos, hosts: 4, tiers: [{ports_down: 8, rate: 100 Gbps, length: 5 m}], host: {gpus: 1, nics: 1}}
jobs: [{name: a, workload: {collective: {kind: all_reduce, bytes: 1 MiB}}}]
"""


def spent(code: str) -> float:
    """CPU seconds of a Python that does `code`, the least of three."""
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def test_the_version_loads_nothing() -> None:
    code = """
import sys
from windtunnel.cli import main
main(["--version"])
slow = {"typer", "importlib.metadata", "numpy", "polars", "windtunnel._engine"} & set(sys.modules)
assert not slow, slow
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert spent("from windtunnel.cli import main; main(['--version'])") < spent("pass") + 0.04


def test_completion_names_commands_and_options(command: Command) -> None:
    asked = {"_WINDTUNNEL_COMPLETE": "complete_bash", "COMP_WORDS": "windtunnel lay", "COMP_CWORD": "1"}
    assert command(**asked).stdout.split() == ["layouts"]
    asked = {"_WINDTUNNEL_COMPLETE": "complete_bash", "COMP_WORDS": "windtunnel run --fid", "COMP_CWORD": "2"}
    assert command(**asked).stdout.split() == ["--fidelity"]


@pytest.mark.parametrize("arguments", [("run", "--no-report"), ("topology",), ("layouts", "--top", "1")])
def test_a_dash_is_standard_input(arguments: tuple[str, ...], tmp_path: Path) -> None:
    text = first_scenario("llama3-8b", 8, "H200", "rails") if arguments[0] == "layouts" else RING
    program = Path(sys.executable).with_name("windtunnel")
    done = subprocess.run(
        [program, arguments[0], "-", *arguments[1:], "--json"],
        input=text, capture_output=True, text=True, cwd=tmp_path, check=True, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert json.loads(done.stdout)


def test_every_example_is_listed_and_says_what_it_is(command: Command) -> None:
    rows = json.loads(command("example", "--json").stdout)
    assert {row["name"] for row in rows} == set(shipped.examples())
    assert {"llama3-8b-fsdp", "topologies/dragonfly", "studies/layouts"} <= {row["name"] for row in rows}
    assert all(row["title"] for row in rows)


@pytest.mark.parametrize("name", ["goal-replay", "topologies/imported", "studies/layouts", "connection-matrix"])
def test_an_example_comes_with_the_files_that_it_names(command: Command, tmp_path: Path, name: str) -> None:
    command("example", name, "--out", "here")
    written = {path.relative_to(tmp_path / "here").as_posix() for path in (tmp_path / "here").rglob("*.*")}
    assert f"{name}.yaml" in written
    assert len(written) == 2
    if "/" not in name:
        command("run", tmp_path / "here" / f"{name}.yaml", "--explain")
    assert "is there already" in command("example", name, "--out", "here", check=2).stderr


def test_an_example_of_another_name_is_said(command: Command) -> None:
    assert "did you mean `goal-replay`?" in command("example", "goal-reply", check=2).stderr
    assert command("example", "goal-replay", "--print").stdout.startswith("#")


@pytest.mark.parametrize(
    ("what", "gpus", "fabric"),
    [
        ("llama3-8b", "64 h100-sxm", "rails"),
        ("mixtral-8x7b", "16 H200", "2:1"),
        ("all-reduce", "4 A100-80", "fat-tree"),
    ],
)
def test_a_first_scenario_runs_as_it_is_written(command: Command, what: str, gpus: str, fabric: str) -> None:
    command("init", "first.yaml", "--what", what, "--gpus", gpus, "--fabric", fabric)
    summary = json.loads(command("run", "first.yaml", "--no-report", "--json").stdout)
    assert summary["jobs"][0]["ranks"] == int(gpus.split(maxsplit=1)[0])
    assert "is there already" in command("init", "first.yaml", check=2).stderr


def test_questions_have_defaults_where_nobody_answers(command: Command, tmp_path: Path) -> None:
    command("init")
    assert read_job(read_source(tmp_path / "scenario.yaml"), []).gpus == 64


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (("--what", "lama3-8b"), "did you mean `llama3-8b`?"),
        (("--gpus", "64"), "expected a number and a kind"),
        (("--gpus", "12 H200"), "whole hosts"),
        (("--gpus", "8 H20O"), "did you mean"),
        (("--fabric", "ring"), "expected `rails`"),
        (("--what", "llama3-405b", "--gpus", "8 A40"), "does not fit 8 GPUs"),
    ],
)
def test_answers_that_are_no_good_are_said(command: Command, answers: tuple[str, ...], said: str) -> None:
    assert said in command("init", "x.yaml", *answers, check=2).stderr


# Python


def test_python_explains_and_looks_at_topologies() -> None:
    found = windtunnel.explain(first_scenario("llama3-8b", 8, "H200", "rails"))
    assert found["jobs"][0]["model"]["layers"] == 32
    whole = windtunnel.topology(RING, path=("host0", "host3"))
    assert whole["hosts"] == 4
    assert whole["paths"][0]["verdict"] == "legal"
    assert windtunnel.topology(RING, overrides={"topology.hosts": np.int64(8)})["hosts"] == 8
    with pytest.raises(windtunnel.InputError, match="there are 4 hosts"):
        windtunnel.topology(RING, path=("host0", "host9"))


def test_names_in_python_stay_functions() -> None:
    windtunnel.explain(RING)
    windtunnel.topology(RING)
    assert callable(windtunnel.topology)
    assert callable(windtunnel.layouts)
    assert callable(windtunnel.sweep)
    assert set(windtunnel.__all__) <= set(dir(windtunnel))


def test_python_compares_two_runs(tmp_path: Path) -> None:
    then = windtunnel.run(RING, out=tmp_path / "then")
    now = windtunnel.run(RING, overrides={"jobs[0].workload.collective.bytes": "4 MiB"})
    found = windtunnel.compare(now, tmp_path / "then")
    assert found.to_json()["knobs"][0]["key"] == "jobs[0].workload.collective.bytes"
    assert then.summary["scenario"] == "ring"


def test_python_sweeps_over_numpy_values(tmp_path: Path) -> None:
    frame = windtunnel.sweep(RING, vary={"topology.hosts": np.array([2, 4])}, workers=1, store=tmp_path / "runs")
    times = frame["jobs[0].iteration_time_s.mean"]
    assert frame["topology.hosts"].to_list() == [2, 4]
    assert times[0] < times[1]
    assert all((Path(folder) / "summary.json").is_file() for folder in frame["folder"])
    single = windtunnel.run(RING, overrides={"topology.hosts": np.int64(2)})
    assert single.summary["jobs"][0]["iteration_time_s"]["mean"] == times[0]


def test_python_lays_out(tmp_path: Path) -> None:
    frame = windtunnel.layouts(
        first_scenario("llama3-8b", 8, "H200", "rails"), top=2, micro_batches=[1], zero=[1], recompute=["none"],
        schedules=["1f1b"], workers=1, store=tmp_path / "runs",
    )  # fmt: skip
    assert frame["state"][0] == "done"
    assert frame["ideal_s"][0] == frame["ideal_s"].min()
    assert frame.filter(pl.col("state") == "done").height >= 2


def test_a_notebook_shows_runs_and_their_figures() -> None:
    """What its cells do, and what it asks of their values: `_repr_html_`."""
    result = windtunnel.run(first_scenario("llama3-8b", 8, "H200", "rails"))
    shown = result._repr_html_()
    assert "<table>" in shown
    assert "MFU" in shown
    for name in ("waterfall", "gantt", "cdf"):
        drawing = getattr(result.plot, name)()
        assert drawing._repr_html_().count("<svg") == 1
        assert drawing.svg.startswith("<svg")


def test_the_notebook_runs(tmp_path: Path) -> None:
    """`examples/notebook.ipynb`, cell by cell as Jupyter would, in a folder of its own."""
    notebook = json.loads((shipped.root() / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))
    code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    script = tmp_path / "cells.py"
    indented = "".join(f"    {line}\n" for line in code.splitlines())
    script.write_text(f"if __name__ == '__main__':\n{indented}", encoding="utf-8")
    subprocess.run([sys.executable, script], cwd=tmp_path, check=True, timeout=300)
    assert all(not cell.get("outputs") for cell in notebook["cells"])


def test_an_explanation_is_a_table_of_stages(command: Command) -> None:
    shown = command("run", shipped.root() / "examples" / "llama3-70b-256xH100.yaml", "--explain").stdout
    assert max(map(len, shown.splitlines())) <= 100
    lines = [line.split() for line in shown.splitlines()]
    # Forty stages, of which all but the first and the last do the same.
    assert [line[:2] for line in lines if line and line[-1] in {"embedding", "head"}] == [["0", "0-1"], ["39", "78-79"]]
    assert any(line[:2] == ["1-38", "2-77"] for line in lines)
    totals = [line for line in lines if len(line) == 14 and line[0].isdigit()]
    assert [line[0] for line in totals] == [str(rank) for rank in range(8)]
