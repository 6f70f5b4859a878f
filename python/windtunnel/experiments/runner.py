"""Runs an experiment: its scenarios, its claims, its figure."""

from __future__ import annotations

import importlib.util
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.api import run
from windtunnel.engine import InputError, nearest
from windtunnel.experiments.check import Results, Verdict, judge
from windtunnel.experiments.spec import Experiment, Point, read_experiment
from windtunnel.shipped import SHIPPED

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from windtunnel.results import Result


@dataclass(frozen=True)
class Outcome:
    """What an experiment found: a verdict per claim, tables to print, and its figure if it has one."""

    experiment: Experiment
    verdicts: list[Verdict]
    tables: dict[str, pl.DataFrame]
    figure: Path | None

    @property
    def holds(self) -> bool:
        """Whether every claim holds."""
        return all(verdict.holds for verdict in self.verdicts)


def home() -> Path:
    """The folder `experiments`: of the working folder or one above it, else of the checkout this package is in."""
    for folder in [Path.cwd(), *Path.cwd().parents, *Path(__file__).resolve().parents, SHIPPED]:
        if any((folder / "experiments").glob("*/experiment.yaml")):
            return folder / "experiments"
    raise InputError("there is no folder `experiments` here\n\nhint: run this in a checkout of Windtunnel")


def names() -> list[str]:
    """Names of the experiments there are."""
    return sorted(path.parent.name for path in home().glob("*/experiment.yaml"))


def find(name: str) -> Experiment:
    """The experiment called `name`, or in the folder `name`."""
    folder = Path(name)
    if not (folder / "experiment.yaml").is_file():
        folder = home() / name
    if not (folder / "experiment.yaml").is_file():
        near = nearest(name, list(names()))
        hint = f"did you mean `{near}`?" if near else "`windtunnel experiments list` names them"
        raise InputError(f"no such experiment: `{name}`\n\nhint: {hint}")
    return read_experiment(folder)


def run_experiment(
    experiment: Experiment,
    *,
    out: Path | None = None,
    started: Callable[[int, int, Point], None] | None = None,
) -> Outcome:
    """Runs every scenario of `experiment`, checks its claims, and draws its figure into `out`.

    `started` is told of each run: its number from 0, how many there are, and its place.
    """
    points = experiment.points()
    module = _module(experiment.folder)
    with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder:
        runs: list[tuple[Point, Result]] = []
        for i, point in enumerate(points):
            if started is not None:
                started(i, len(points), point)
            result = run(point.scenario, overrides=point.overrides, out=Path(folder) / f"{i:04d}", **experiment.options)
            if result.summary["partial"]:
                raise KeyboardInterrupt
            runs.append((point, result))
        results = Results(runs)
        observed: dict[str, Any] = dict(module.observe(results)) if module and hasattr(module, "observe") else {}
        verdicts = [judge(claim, results, observed) for claim in experiment.claims]
        figure = _draw(experiment, module, results, observed, out) if out is not None else None
    tables = {name: value for name, value in observed.items() if isinstance(value, pl.DataFrame)}
    return Outcome(experiment, verdicts, tables, figure)


def _module(folder: Path) -> ModuleType | None:
    path = folder / "experiment.py"
    if not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location(f"windtunnel_experiment_{folder.name.replace('-', '_')}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"cannot load `{path}`")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _draw(
    experiment: Experiment, module: ModuleType | None, results: Results, observed: dict[str, Any], out: Path
) -> Path | None:
    drawer = getattr(module, "draw", None)
    if drawer is None and experiment.figure is None:
        return None
    from windtunnel.experiments.figure import draw_figure  # noqa: PLC0415
    from windtunnel.report.canvas import figure, svg  # noqa: PLC0415
    from windtunnel.results.folder import write_beside  # noqa: PLC0415

    fig, axes = figure(4.2)
    if drawer is not None:
        drawer(results, observed, axes)
    elif experiment.figure is not None:
        draw_figure(experiment.figure, results, axes)
    axes.set_title(experiment.title)
    path = out / "figure.svg"
    write_beside(path, svg(fig, experiment.title).encode())
    return path
