"""One pool and one loop over runs in all of Python: whatever asks for many runs asks the runner of studies."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT
from windtunnel.experiments.runner import MOST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Command

PACKAGE = ROOT / "python" / "windtunnel"

POOLS = {"multiprocessing", "concurrent", "joblib", "ray", "subprocess", "threading"}

MAY_START = {
    "studies/local.py": {"multiprocessing", "subprocess"},
    "studies/worker.py": {"multiprocessing"},
    # The testbed starts the kernel's tools and its hosts' programs, and no run.
    "testbed/shell.py": {"subprocess"},
    "testbed/programs.py": {"subprocess"},
    "testbed/sender.py": {"threading"},
    # The recorder starts the user's program, and no run.
    "recorder/launch.py": {"subprocess"},
    "recorder/capture.py": {"subprocess"},
}
"""Who may start processes, and by what."""

MAY_HEED = {"interrupts.py", "cli/study_progress.py", "simulation.py"}
"""Where `threading` hears of signals, tells whether they can be heeded, or holds the one run of a simulation."""

MAY_RUN = {"api.py", "studies/worker.py", "engine.py"}
"""A single run into a folder of its own, and the worker."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found


def test_only_the_local_executor_starts_processes() -> None:
    for name, tree in modules():
        pools = imported(tree) & POOLS - MAY_START.get(name, set())
        if name in MAY_HEED:
            pools -= {"threading"}
        if not name.startswith(("native", "cli/doctor", "cli/app")):
            assert not pools, f"{name} imports {pools}"


def test_only_two_places_run_the_engine() -> None:
    for name, tree in modules():
        calls = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and node.attr == "run"
            and isinstance(node.value, ast.Name)
            and node.value.id in ("engine", "_engine")
        ]
        assert not calls or name in MAY_RUN, f"{name} calls the engine itself"


@pytest.mark.parametrize("package", ["experiments", "validate", "whatif", "calibrate"])
def test_what_asks_for_many_runs_does_not_run_one_by_one(package: str) -> None:
    for name, tree in modules():
        if name.startswith(f"{package}/"):
            names = {
                alias.name
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) and node.module == "windtunnel.api"
                for alias in node.names
            }
            assert not names & {"run", "run_source"}, name


def test_studies_know_nothing_of_what_is_asked() -> None:
    """Arrows point down: `studies` imports scenarios, options and summaries."""
    above = ("experiments", "validate", "whatif", "calibrate", "cli", "report", "comparison")
    for name, tree in modules():
        if name.startswith("studies/"):
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module:
                    found = node.module.removeprefix("windtunnel.").partition(".")[0]
                    assert found not in above, f"{name} imports {node.module}"


EXPERIMENT = """
title: {title}
scenario: scenario.yaml
vary: [{{name: hosts, path: topology.hosts, values: [4, 8]}}]
claims:
  - {{claim: it takes time, observe: "jobs[0].finish_s", at: {{hosts: 4}}, expected: {{min: {least}}}}}
figure: {{x: hosts, y: "jobs[0].finish_s", kind: line}}
"""

SCENARIO = """
windtunnel: 1
name: ring
fidelity: flow
topology: {shape: clos, hosts: 8, tiers: [{ports_down: 8, rate: 100 Gbps, length: 5 m}], host: {gpus: 1, nics: 1}}
jobs: [{name: a, workload: {flows: {pattern: ring, bytes: 1 MiB}}}]
"""


def write(folder: Path, name: str, least: float, scenario: str = SCENARIO) -> None:
    (folder / "experiments" / name).mkdir(parents=True)
    (folder / "experiments" / name / "experiment.yaml").write_text(EXPERIMENT.format(title=name, least=least))
    (folder / "experiments" / name / "scenario.yaml").write_text(scenario)


@pytest.mark.engine
def test_all_experiments_on_one_page_and_nothing_twice(command: Command, tmp_path: Path) -> None:
    write(tmp_path, "holds", 0)
    write(tmp_path, "fails", 1e9)
    write(tmp_path, "broken", 0, SCENARIO.replace("ring, bytes", "wrong, bytes"))
    first = command("experiments", "run", "--all", "--json", check=1)
    said = {one["name"]: one for one in json.loads(first.stdout)["experiments"]}
    assert [said[name]["claims"][0]["holds"] for name in ("holds", "fails")] == [True, False]
    assert "unknown value `wrong`" in said["broken"]["error"]
    page = (tmp_path / "runs" / "experiments" / "index.html").read_text()
    assert page.count("<svg") == 2
    assert "1 of 2 claims of 2 experiments hold; 1 could not be run" in page
    again = command("experiments", "run", "holds")
    assert "2 points · 2 known before" in " ".join(again.stderr.split())
    anew = command("experiments", "run", "holds", "--fresh")
    assert "known before" not in anew.stderr
    (tmp_path / "experiments" / "holds" / "scenario.yaml").write_text(SCENARIO.replace("1 MiB", "2 MiB"))
    changed = command("experiments", "run", "holds")
    assert "known before" not in changed.stderr
    command("experiments", "run", check=2)
    command("experiments", "run", "holds", "--all", check=2)


CHAIN = """
from pathlib import Path

from windtunnel.experiments.runs import Asked, run_all

HERE = Path(__file__).parent


def observe(_results):
    with (HERE / "begun").open("a") as begun:
        begun.write("x")
    ends = []
    for hosts in range(2, 42):
        (result,) = run_all([Asked(HERE / "scenario.yaml", {"topology.hosts": hosts})])
        ends.append(result.summary["jobs"][0]["finish_s"])
    return {"longest": max(ends)}
"""


@pytest.mark.engine
def test_a_chain_of_single_runs_is_not_begun_again_for_each(command: Command, tmp_path: Path) -> None:
    """Forty runs, each asked for when the one before is known: begun `MOST` times beside others, and once alone."""
    write(tmp_path, "chain", 0, SCENARIO.replace("ports_down: 8", "ports_down: 64"))
    (tmp_path / "experiments" / "chain" / "experiment.py").write_text(CHAIN)
    command("experiments", "run", "--all", "--json")
    assert (tmp_path / "experiments" / "chain" / "begun").read_text() == "x" * (MOST + 1)
