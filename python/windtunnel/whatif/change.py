"""What a change would do: a scenario with itself and with the change, run with the same seeds.

What is drawn is drawn alike on both sides (a component fails when it does), so the difference of two runs of a seed is
the change and what follows from it. Its mean over the seeds has a 95% interval by Student's t. Where nothing is drawn
(`draws` looks) all seeds are one run; then each side is run once, and there is no interval.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.engine import InputError
from windtunnel.given import override_pairs
from windtunnel.native import consented
from windtunnel.results.folder import write_beside
from windtunnel.source import override_text, read_source
from windtunnel.student import quantile
from windtunnel.studies.ask import failure, opened, summaries
from windtunnel.studies.point import Point
from windtunnel.studies.rows import figures, metric
from windtunnel.whatif.drain import seconds
from windtunnel.whatif.draws import reads_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from windtunnel.source import Source
    from windtunnel.studies.runner import Limits, Progress
    from windtunnel.studies.store import Store

LEVEL = 0.95

FIRST_LOOKED_AT = (
    "jobs[0].iteration_time_s.mean", "cluster.makespan_s", "cluster.waiting_s.mean", "cluster.goodput",
    "cluster.lost_gpu_s", "cluster.utilisation",
)  # fmt: skip
"""Figures that are compared where nobody says which; those that both sides have."""


@dataclass(frozen=True)
class Difference:
    """How a figure changes."""

    metric: str
    before: float
    after: float
    """Means over the seeds."""
    difference: float
    """Mean of after less before, seed by seed."""
    interval: tuple[float, float] | None
    """95% interval of that mean; None where nothing is drawn, or all draws agree."""
    by_seed: tuple[float, ...]

    @property
    def is_same(self) -> bool:
        """Whether nothing changes, whatever the seed."""
        return not any(self.by_seed)

    @property
    def is_sure(self) -> bool:
        """Whether the interval says which way it goes."""
        return self.interval is None or not self.interval[0] <= 0 <= self.interval[1]


@dataclass(frozen=True)
class Change:
    """What a change does."""

    what: str
    seeds: tuple[int, ...]
    """Those that were run; one where nothing is drawn."""
    differences: tuple[Difference, ...]

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class Means:
    """How the runs of a change are made, and where they are kept: nowhere without a store."""

    seeds: int = 10
    metrics: tuple[str, ...] = ()
    store: Path | None = None
    limits: Limits | None = None
    fresh: bool = False
    progress: Callable[[Progress], None] | None = None
    allow_native: bool = False
    """Whether the library of `network.backend` may run."""


def change(
    scenario: str | Path | Mapping[str, Any],
    keys: Mapping[str, object],
    *,
    what: str | None = None,
    overrides: Mapping[str, object] | None = None,
    means: Means | None = None,
) -> Change:
    """Compares `scenario`, with `overrides` on both sides, with itself where `keys` are set.

    Raises `InputError` for a bad scenario, key or metric, and what a run that fails says.
    """
    means = means or Means()
    if means.seeds < 2:
        raise InputError(f"seeds: expected at least 2, found {means.seeds}: one run shows no spread")
    source = read_source(scenario)
    before = override_pairs(overrides)
    after = [*before, *override_pairs(keys)]
    trees = [_tree(source, side) for side in (before, after)]
    seed = trees[0].get("seed")
    first = seed if isinstance(seed, int) else 0
    numbers = range(first, first + means.seeds)
    with opened(means.store) as store:
        found = _both(source, before, after, numbers[:2], store, means)
        metrics = means.metrics or _shared(found)
        differ = any(_figures(side[0], metrics) != _figures(side[1], metrics) for side in found)
        drawn = differ or any(reads_seed(tree) for tree in trees)
        if drawn and len(numbers) > 2:
            rest = _both(source, before, after, numbers[2:], store, means)
            found = tuple([*one, *more] for one, more in zip(found, rest, strict=True))
    seeds = tuple(numbers) if drawn else (numbers[0],)
    sides = [[_figures(summary, metrics) for summary in side[: len(seeds)]] for side in found]
    told = what or ", ".join(f"{key}={override_text(value)}" for key, value in keys.items())
    return Change(told, seeds, tuple(_difference(path, *sides) for path in metrics))


def fail(
    scenario: str | Path | Mapping[str, Any],
    part: str,
    *,
    at: str | None = None,
    lasts: str | None = None,
    overrides: Mapping[str, object] | None = None,
    means: Means | None = None,
) -> Change:
    """What the failure of `part` does: from the start to the end, or from `at` on for `lasts`.

    From the start on it is one of `topology.failed`, a cable or a switch. With `at` it is one of `cluster.faults`, any
    component: the jobs that it hits are interrupted, spares take over, and it is repaired after `lasts`.
    """
    means = means or Means()
    if (at is None) != (lasts is None):
        raise InputError("expected `--at` and `--for` together, found one of them")
    source = read_source(scenario)
    tree = _tree(source, override_pairs(overrides))
    if at is None or lasts is None:
        failed = _list(tree, "topology", "failed")
        return change(
            scenario, {"topology.failed": [*failed, part]}, what=f"{part} fails", overrides=overrides, means=means
        )
    text = f"time_s,component,repair_s\n{seconds(at, 'at'):.9f},{part},{seconds(lasts, 'for'):.9f}\n"
    name = f"fault-{hashlib.sha256(text.encode()).hexdigest()[:16]}.csv"
    with opened(means.store) as store:
        path = (store.root / "whatif" / name).absolute()
        write_beside(path, text.encode())
        return change(
            scenario,
            {"cluster.faults": [*_list(tree, "cluster", "faults"), {"log": str(path)}]},
            what=f"{part} fails after {at} for {lasts}",
            overrides=overrides,
            means=means,
        )


def add(
    scenario: str | Path | Mapping[str, Any],
    hosts: int,
    *,
    overrides: Mapping[str, object] | None = None,
    means: Means | None = None,
) -> Change:
    """What so many hosts more do, or fewer where negative."""
    tree = _tree(read_source(scenario), override_pairs(overrides))
    topology = tree.get("topology")
    present = topology.get("hosts") if isinstance(topology, dict) else None
    if not isinstance(present, int) or isinstance(present, bool):
        raise InputError("the scenario's topology does not say its number of hosts\n\nhint: `windtunnel whatif set`")
    if present + hosts < 1:
        raise InputError(f"expected hosts to remain, found {present} and {hosts} to add")
    said = f"{hosts} hosts more" if hosts >= 0 else f"{-hosts} hosts fewer"
    return change(scenario, {"topology.hosts": present + hosts}, what=said, overrides=overrides, means=means)


def _tree(source: Source, overrides: list[tuple[str, str]]) -> dict[str, Any]:
    tree = json.loads(engine.scenario_tree(source.text, source.name, overrides))
    return tree if isinstance(tree, dict) else {}


def _list(tree: dict[str, Any], section: str, key: str) -> list[Any]:
    inner = tree.get(section)
    found = inner.get(key) if isinstance(inner, dict) else None
    return found if isinstance(found, list) else []


_Sides = tuple[list[dict[str, Any]], ...]
"""Summaries by seed, of the scenario as it is and changed."""


def _both(
    source: Source,
    before: list[tuple[str, str]],
    after: list[tuple[str, str]],
    numbers: Sequence[int],
    store: Store,
    means: Means,
) -> _Sides:
    points = [
        Point(source, tuple(side), seed=seed, varied={"side": name, "seed": seed})
        for name, side in (("before", before), ("after", after))
        for seed in numbers
    ]
    points = consented(points, allow=means.allow_native)
    outcomes = list(summaries(points, store, limits=means.limits, fresh=means.fresh, progress=means.progress))
    for outcome in outcomes:
        if outcome.summary is None:
            raise failure(outcome)
    found = [outcome.summary for outcome in outcomes if outcome.summary is not None]
    return found[: len(numbers)], found[len(numbers) :]


def _shared(sides: _Sides) -> tuple[str, ...]:
    known = [dict(figures(summary)) for side in sides for summary in side]
    return tuple(path for path in FIRST_LOOKED_AT if all(one.get(path) is not None for one in known))


def _figures(summary: dict[str, Any], metrics: Sequence[str]) -> dict[str, float]:
    found = {path: metric(summary, path) for path in metrics}
    missing = next((path for path, value in found.items() if value is None), None)
    if missing is not None:
        raise InputError(f"`{missing}` is unknown in a run, and cannot be compared")
    return {path: value for path, value in found.items() if value is not None}


def _difference(path: str, before: list[dict[str, float]], after: list[dict[str, float]]) -> Difference:
    by_seed = [b[path] - a[path] for a, b in zip(before, after, strict=True)]
    mean = fmean(by_seed)
    interval = None
    # A few draws that agree say nothing of how far others may be.
    if len(set(by_seed)) > 1:
        half = quantile((1 + LEVEL) / 2, len(by_seed) - 1) * stdev(by_seed) / math.sqrt(len(by_seed))
        interval = (mean - half, mean + half)
    here, there = (fmean(one[path] for one in side) for side in (before, after))
    return Difference(path, here, there, mean, interval, tuple(by_seed))
