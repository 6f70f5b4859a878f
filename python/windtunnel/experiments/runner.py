"""Runs an experiment: its scenarios, its claims, its figure."""

from __future__ import annotations

import importlib.util
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.engine import InputError, RunError, nearest
from windtunnel.experiments import kept
from windtunnel.experiments.check import Results, Verdict, judge
from windtunnel.experiments.runs import Known, Means, Unknown, by
from windtunnel.experiments.spec import Experiment, read_experiment
from windtunnel.results import Result
from windtunnel.results.folder import write_beside
from windtunnel.shipped import SHIPPED
from windtunnel.source import override_text, read_source, read_text
from windtunnel.studies import point as studies
from windtunnel.studies.ask import opened
from windtunnel.studies.recipe import recipe
from windtunnel.studies.runner import run_points

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from types import ModuleType

    from windtunnel.studies.runner import Limits, Progress


MOST = 12
"""How often an experiment is asked what it observes while others are, before it is left to itself."""


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


@dataclass(frozen=True)
class Broken:
    """An experiment that found nothing, and why."""

    experiment: Experiment
    message: str

    @property
    def holds(self) -> bool:
        """Nothing was found, so nothing holds."""
        return False


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
    """The experiment called `name`, also by another of its names, or in the folder `name`."""
    folder = Path(name)
    if not (folder / "experiment.yaml").is_file():
        folder = home() / name
    if not (folder / "experiment.yaml").is_file():
        others = _others()
        if name in others:
            return others[name]
        near = nearest(name, [*names(), *others])
        hint = f"did you mean `{near}`?" if near else "`windtunnel experiments list` names them"
        raise InputError(f"no such experiment: `{name}`\n\nhint: {hint}")
    return read_experiment(folder)


def _others() -> dict[str, Experiment]:
    """Experiments by the other names that they go by."""
    # Few have any, and a file is only read whole where it says so.
    paths = [path for path in home().glob("*/experiment.yaml") if "\nalso:" in read_text(path)]
    found = [read_experiment(path.parent) for path in sorted(paths)]
    return {name: one for one in found for name in one.also}


def points_of(experiment: Experiment) -> list[studies.Point]:
    """What is run of `experiment`, in the order of its points."""
    options = {key: value for key, value in experiment.options.items() if key != "threads"}
    found = []
    for point in experiment.points():
        overrides = tuple((path, override_text(value)) for path, value in point.overrides.items())
        found.append(studies.Point(read_source(point.scenario), overrides, varied=point.place, **options))
    return found


def run_experiment(
    experiment: Experiment,
    *,
    out: Path | None = None,
    store: Path | None = None,
    limits: Limits | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Runs every scenario of `experiment`, checks its claims, and draws its figure into `out`.

    Runs are kept in `store`, where those that are there and unchanged are taken from unless `fresh`; without one they
    are gone afterwards. Raises what the first run that gave no result says.
    """
    with opened(store) as where:
        means = Means(where, limits, fresh, progress)
        points = points_of(experiment)
        module = module_of(experiment.folder)
        results = means.results(points)
        known = None if fresh else kept.find(where, experiment, points)
        return _concluded(experiment, module, results, means, out, known)


def run_experiments(
    experiments: Sequence[Experiment],
    *,
    out: Path | None = None,
    store: Path | None = None,
    limits: Limits | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> list[Outcome | Broken]:
    """Runs the scenarios of all `experiments` together, then checks the claims of each; figures go into `out/NAME`."""
    asked: list[list[studies.Point] | Broken] = []
    modules: list[ModuleType | None] = []
    for experiment in experiments:
        modules.append(None)
        try:
            modules[-1] = module_of(experiment.folder)  # before anything is run, so that a typing error costs nothing
            asked.append(points_of(experiment))
        except Exception as error:  # noqa: BLE001
            asked.append(Broken(experiment, _said(error)))
    with opened(store) as where:
        every = [point for points in asked if not isinstance(points, Broken) for point in points]
        ran = iter(list(run_points(every, where, limits=limits, fresh=fresh, tables=True, progress=progress)))
        outcomes = [[next(ran) for _ in points] if not isinstance(points, Broken) else [] for points in asked]
        means = [Means(where, limits, fresh, progress) for _ in experiments]
        known: dict[int, kept.Observed] = {}
        for i, (experiment, points) in enumerate(zip(experiments, asked, strict=True)):
            before = None if fresh or isinstance(points, Broken) else kept.find(where, experiment, points)
            if before is not None and before.serves(
                experiment, drawn=out is not None and _draws(experiment, modules[i])
            ):
                known[i] = before
        observed = _observed(experiments, modules, outcomes, means, known)
        found: list[Outcome | Broken] = []
        for i, (experiment, points) in enumerate(zip(experiments, asked, strict=True)):
            if isinstance(points, Broken):
                found.append(points)
                continue
            folder = None if out is None else out / experiment.name
            found.append(
                _concluded_or_broken(
                    experiment, modules[i], outcomes[i], means[i], folder, known.get(i), observed.get(i)
                )
            )
    return found


def _observed(
    experiments: Sequence[Experiment],
    modules: Sequence[ModuleType | None],
    outcomes: Sequence[Sequence[studies.Outcome]],
    means: Sequence[Means],
    but: Container[int],
) -> dict[int, dict[str, Any]]:
    """What experiments observe, by their number, the runs that they ask for beside each other; none of `but`.

    Each is asked until it wants a run that is not known; then those of all are run together, and it is asked again.
    What fails, or wants the same again, is left to be told when the experiment is concluded, and so is one that was
    asked `MOST` times: of a chain of single runs each costs all that was observed before it.
    """
    found: dict[int, dict[str, Any]] = {}
    ran: set[str] = set()
    waiting = [
        i for i, several in enumerate(outcomes) if i not in but and all(one.folder is not None for one in several)
    ]
    for _round in range(MOST):
        if not waiting:
            break
        wanted: dict[str, studies.Point] = {}
        still = []
        for i in waiting:
            results = [Result(one.folder) for one in outcomes[i] if one.folder is not None]
            own = means[i]
            known = Known(own.store, own.limits, own.fresh, own.progress, own.read, frozenset(ran))
            try:
                with by(known):
                    found[i] = _observe(modules[i], Results(list(zip(experiments[i].points(), results, strict=True))))
            except Unknown as unknown:
                new = {recipe(point): point for point in unknown.points}
                if not new.keys() <= ran:
                    wanted |= new
                    still.append(i)
            except Exception:  # noqa: BLE001, S112
                continue
        if wanted:
            own = means[0]
            every = list(wanted.values())
            for _outcome in run_points(
                every, own.store, limits=own.limits, fresh=own.fresh, tables=True, progress=own.progress
            ):
                pass
        ran |= wanted.keys()
        waiting = still
    return found


def _observe(module: ModuleType | None, found: Results) -> dict[str, Any]:
    return dict(module.observe(found)) if module and hasattr(module, "observe") else {}


def _concluded_or_broken(
    experiment: Experiment,
    module: ModuleType | None,
    outcomes: Sequence[studies.Outcome],
    means: Means,
    out: Path | None,
    known: kept.Observed | None,
    observed: dict[str, Any] | None,
) -> Outcome | Broken:
    """What an experiment found, or why it found nothing: one that cannot be run does not end the others."""
    failed = next((outcome for outcome in outcomes if outcome.folder is None), None)
    if failed is not None:
        return Broken(experiment, failed.detail or failed.message or failed.state)
    results = [Result(outcome.folder) for outcome in outcomes if outcome.folder is not None]
    try:
        return _concluded(experiment, module, results, means, out, known, observed)
    except Exception as error:  # noqa: BLE001
        return Broken(experiment, _said(error))


def _said(error: Exception) -> str:
    """What went wrong in an experiment; where, if its own Python did."""
    if isinstance(error, InputError | RunError):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"


def _concluded(
    experiment: Experiment,
    module: ModuleType | None,
    results: list[Result],
    means: Means,
    out: Path | None,
    known: kept.Observed | None,
    observed: dict[str, Any] | None = None,
) -> Outcome:
    """Judges and draws; `known` is what is kept from an earlier time, `observed` what `observe` gave just now."""
    found = Results(list(zip(experiment.points(), results, strict=True)))
    drawn = out is not None and _draws(experiment, module)
    if known is None or not known.serves(experiment, drawn=drawn):
        if observed is None:
            with by(means):
                observed = _observe(module, found)
        figure = _drawn(experiment, module, found, observed) if drawn else None
        known = kept.Observed(observed, figure)
        kept.keep(means.store, experiment, points_of(experiment), known, means.read)
    verdicts = [judge(claim, found, known.values) for claim in experiment.claims]
    tables = {name: value for name, value in known.values.items() if isinstance(value, pl.DataFrame)}
    path = None
    if out is not None and known.figure is not None:
        path = out / "figure.svg"
        write_beside(path, known.figure)
    return Outcome(experiment, verdicts, tables, path)


def module_of(folder: Path) -> ModuleType | None:
    """`experiment.py` of a folder, if there is one."""
    path = folder / "experiment.py"
    if not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location(f"windtunnel_experiment_{folder.name.replace('-', '_')}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"cannot load `{path}`")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _draws(experiment: Experiment, module: ModuleType | None) -> bool:
    return experiment.figure is not None or hasattr(module, "draw")


def _drawn(experiment: Experiment, module: ModuleType | None, results: Results, observed: dict[str, Any]) -> bytes:
    drawer = getattr(module, "draw", None)
    from windtunnel.experiments.figure import draw_figure  # noqa: PLC0415
    from windtunnel.report.canvas import figure, svg  # noqa: PLC0415

    fig, axes = figure(4.2)
    if drawer is not None:
        drawer(results, observed, axes)
    elif experiment.figure is not None:
        draw_figure(experiment.figure, results, axes)
    axes.set_title(experiment.title)
    return svg(fig, experiment.title).encode()
