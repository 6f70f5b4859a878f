"""Runs that an experiment's `observe` asks for: through the one runner, kept in the store of the experiments.

from windtunnel.experiments.runs import Asked, run_all

fast, full = run_all([Asked(text), Asked(text, full=True)])
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.source import override_text, read_source
from windtunnel.studies.ask import results
from windtunnel.studies.noted import Read, reading
from windtunnel.studies.point import Point
from windtunnel.studies.recipe import recipe
from windtunnel.studies.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from windtunnel.results import Result
    from windtunnel.studies.runner import Limits, Progress


@dataclass(frozen=True)
class Asked:
    """A run that is asked for, with the options of `windtunnel.run`; `placement` names a class by its file's path."""

    scenario: str | Path | Mapping[str, Any]
    overrides: Mapping[str, object] = field(default_factory=dict)
    full: bool = False
    seed: int | None = None
    fidelity: str | None = None
    placement: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts by file name that the scenario finds in its folder."""

    def point(self) -> Point:
        """As the runner has it. Raises `InputError` if the scenario cannot be read."""
        return Point(
            read_source(self.scenario),
            tuple((path, override_text(value)) for path, value in self.overrides.items()),
            seed=self.seed,
            fidelity=self.fidelity,
            full=self.full,
            files=tuple(self.files.items()),
            policies=() if self.placement is None else (("placement", self.placement),),
        )


@dataclass(frozen=True)
class Means:
    """Where runs are kept and how they are run."""

    store: Store
    limits: Limits | None = None
    fresh: bool = False
    progress: Callable[[Progress], None] | None = None
    read: Read = field(default_factory=Read)

    def results(self, points: Sequence[Point]) -> list[Result]:
        """Results of `points`, in order."""
        found = results(points, self.store, limits=self.limits, fresh=self.fresh, progress=self.progress)
        self.read.note(points, found)
        return found


class Unknown(BaseException):
    """What was asked for has not been run yet. No `except Exception` of an experiment takes it for a failure."""

    def __init__(self, points: list[Point]) -> None:
        super().__init__(f"{len(points)} runs")
        self.points = points


@dataclass(frozen=True)
class Known(Means):
    """Gives what is known and runs nothing: `Unknown` is raised for the rest."""

    ran: frozenset[str] = frozenset()
    """Keys of what was run anew for `fresh`."""

    def results(self, points: Sequence[Point]) -> list[Result]:
        """Results of `points`, if all are known."""
        from windtunnel.results import Result  # noqa: PLC0415

        found = list(self.store.find_all(points, tables=True))
        fresh = [not self.fresh or recipe(point) in self.ran for point in points]
        if not all(fresh) or any(outcome is None for outcome in found):
            raise Unknown(list(points))
        known = [Result(outcome.folder) for outcome in found if outcome is not None and outcome.folder is not None]
        self.read.note(points, known)
        return known


_means: ContextVar[Means] = ContextVar("means of an experiment")

_kept: list[tempfile.TemporaryDirectory[str]] = []
"""Of runs that are asked for outside an experiment: gone with this process."""


@contextmanager
def by(means: Means) -> Iterator[None]:
    """Within it, `run_all` goes by `means`."""
    token = _means.set(means)
    try:
        with reading(means.read):
            yield
    finally:
        _means.reset(token)


def run_all(asked: Sequence[Asked]) -> list[Result]:
    """Results of what is asked, in order; what was run before and is unchanged is not run again."""
    points = [one.point() for one in asked]
    means = _means.get(None)
    if means is not None:
        return means.results(points)
    if not _kept:
        _kept.append(tempfile.TemporaryDirectory(prefix="windtunnel-"))
    with Store(Path(_kept[0].name)) as store:
        return results(points, store)


def means() -> Means | None:
    """By what the experiment that is being concluded goes; None outside one."""
    return _means.get(None)
