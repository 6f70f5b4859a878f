"""What stands above asks here: for all results of some points, from a store or from one for the moment."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.engine import InputError, RunError
from windtunnel.studies.runner import run_points
from windtunnel.studies.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from windtunnel.results import Result
    from windtunnel.studies.point import Outcome, Point
    from windtunnel.studies.runner import Limits, Progress


@contextmanager
def opened(store: Path | Store | None) -> Iterator[Store]:
    """The store in a folder, or one that is open; without one, a store that is gone afterwards."""
    if isinstance(store, Store):
        yield store
        return
    if store is not None:
        with Store(store) as found:
            yield found
        return
    with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder, Store(Path(folder)) as found:
        yield found


summaries = run_points
"""Outcomes of points, in order and as soon as all before them are known, with summaries but without tables."""

with_tables = partial(run_points, tables=True)
"""As `summaries`, of runs whose folders in the store have their tables."""


def results(
    points: Sequence[Point],
    store: Store,
    *,
    limits: Limits | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> list[Result]:
    """Results of `points` with their tables, in order; they lie in the store.

    Raises what the first that gave none says: `InputError` where it was refused, else `RunError`.
    """
    from windtunnel.results import Result

    found = []
    for outcome in with_tables(points, store, limits=limits, fresh=fresh, progress=progress):
        if outcome.folder is None:
            raise failure(outcome)
        found.append(Result(outcome.folder))
    return found


def failure(outcome: Outcome) -> Exception:
    """What went wrong, as an exception."""
    kind = InputError if outcome.state == "refused" else RunError
    return kind(outcome.detail or outcome.message or outcome.state)
