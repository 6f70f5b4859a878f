"""Whether it is safe to take a part out of service.

The same scenario without the maintenance, with it now, later, and after the jobs there have moved away, each with
several seeds. Seeds are common to all: a component fails when it does whatever is drained, so what differs between two
runs of a seed is the drain and what follows from it. Job-hours lost of a seed: the sum over all jobs of how much later
each ends than without the drain. The mean's interval and the confidence of the verdict are Student's t over the seeds.

Of a log or a list of jobs where nothing fails all seeds are one run (`draws` looks whether that can be said): there is
nothing to be unsure of but when the drain begins and what comes then. Each option is run once, and has no interval;
with a `window` the instant is drawn for each seed, the same for all, and the interval is that of the mean over instants
of the window.
"""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.engine import InputError
from windtunnel.given import override_pairs
from windtunnel.native import consented
from windtunnel.results import Result
from windtunnel.source import read_source
from windtunnel.student import cdf, quantile
from windtunnel.studies.ask import failure, opened
from windtunnel.studies.point import Point
from windtunnel.studies.runner import run_points
from windtunnel.whatif.draws import reads_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from windtunnel.source import Source
    from windtunnel.studies.runner import Limits, Progress
    from windtunnel.studies.store import Store

UNITS = {unit: factor / 1e9 for unit, factor in engine.units("calendar")}
"""Units of the calendar, in seconds."""

LATER = (1, 2, 4, 8)
"""Later starts that are tried, in lengths of the maintenance after the first."""

LEVEL = 0.95
"""Confidence of intervals."""


@dataclass(frozen=True)
class Option:
    """One way to do it."""

    name: str
    """`now`, `later` or `migrate`."""
    at_s: float
    """When it begins."""
    lost_job_hours: float
    """Mean over the seeds of the job-hours lost."""
    interval: tuple[float, float] | None
    """95% interval of that mean; None where nothing is drawn, or all draws agree."""
    lost_gpu_hours: float
    """Mean of the additional GPU-hours of work done again and of restarts."""
    interrupted: float
    """Mean of the jobs that the maintenance interrupted or moved."""
    verdict: str
    """`safe` if the interval is within the tolerance, `risky` if it is beyond, `unclear` otherwise. Without an interval
    the one figure decides."""
    confidence: float | None
    """That the mean is on the side of the tolerance where it was found; None where there is no interval."""
    by_seed: tuple[float, ...]
    """Job-hours lost of each seed; one where nothing is drawn."""


@dataclass(frozen=True)
class Drain:
    """What draining a part costs."""

    part: str
    lasts_s: float
    tolerance_job_hours: float
    job_hours: float
    """Job-hours from submission to end without the drain, mean over the seeds."""
    seeds: tuple[int, ...]
    """Those that were run; one where nothing is drawn."""
    drawn: bool
    """Whether runs may hang on their seed without the drain: by faults, or jobs that are drawn."""
    window_s: float
    """In which the drain begins at a drawn instant; 0: it begins when it is said to."""
    options: tuple[Option, ...]
    later_starts: tuple[tuple[float, float], ...]
    """Start in seconds and mean job-hours lost of every later start that was tried."""
    best: str
    """Name of the option that loses least."""

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def seconds(text: str, what: str) -> float:
    """`4 h` in seconds."""
    found = re.fullmatch(r"\s*([0-9_]*\.?[0-9]+)\s*([a-z]+)\s*", text)
    if found is None or found[2] not in UNITS:
        units = ", ".join(f"`{unit}`" for unit in UNITS)
        raise InputError(f"{what}: expected a time such as `4 h`, found `{text}`\n\nhint: units are {units}")
    return float(found[1].replace("_", "")) * UNITS[found[2]]


def drain(
    scenario: str | Path | Mapping[str, Any],
    part: str,
    *,
    at: str,
    lasts: str,
    notice: str = "30 min",
    seeds: int = 10,
    window: str | None = None,
    tolerance: float | None = None,
    overrides: Mapping[str, object] | None = None,
    store: Path | None = None,
    limits: Limits | None = None,
    fresh: bool = False,
    done: Callable[[int, int], None] | None = None,
    allow_native: bool = False,
) -> Drain:
    """Compares draining `part` of `scenario` from `at` on for `lasts` with doing it later or after moving jobs away.

    `notice` is how long before jobs move away. With a `window` such as `1 d` every start is put off by a part of it,
    drawn for each seed; without one, where nothing else is drawn either, each option is run once. `tolerance` in
    job-hours tells safe from risky; by default a hundredth of the job-hours that the scenario takes. `done` hears of
    runs done, and of how many there are. Runs are kept in `store`, where unchanged ones are taken from unless `fresh`;
    without one they are gone afterwards. `allow_native` lets the library of `network.backend` run in their processes.
    Raises `InputError` for a bad scenario, part or time.
    """
    start, length, ahead = (seconds(at, "at"), seconds(lasts, "for"), seconds(notice, "notice"))
    if length <= 0:
        raise InputError(f"for: expected a time above 0, found `{lasts}`")
    span = 0.0 if window is None else seconds(window, "window")
    if seeds < 2:
        raise InputError(f"seeds: expected at least 2, found {seeds}: one run shows no spread")
    source = read_source(scenario)
    root = _written(source, overrides or {})
    cluster, first = root.get("cluster"), root.get("seed")
    planned = cluster.get("maintenance") if isinstance(cluster, dict) else None
    planned = planned if isinstance(planned, list) else []
    first = first if isinstance(first, int) else 0
    numbers = tuple(range(first, first + seeds))
    begins = [start + count * length for count in LATER]
    pairs = override_pairs(overrides)
    with opened(store) as kept:
        runs = _Runs(source, pairs, kept, limits, fresh, done, allow_native=allow_native)
        base = runs.taken([(seed, {}) for seed in numbers[:2]], expected=(3 + len(begins)) * seeds)
        drawn = reads_seed(root) or not base[0].same(base[1])
        if not drawn:
            numbers = numbers if span > 0 else numbers[:1]
        # The same part of the window for all options, so that they can be compared.
        puts_off = [span * random.Random(f"drain {seed}").random() for seed in numbers]  # noqa: S311
        draws = list(zip(numbers, puts_off, strict=True))

        def of(begin: float, more: Mapping[str, object]) -> list[_Asked]:
            """A run for every seed, with a window of maintenance that begins then, put off as the draw says."""
            return [
                (seed, {"cluster.maintenance": [*planned, {**more, "at": _text(begin + later)}]})
                for seed, later in draws
            ]

        wanted = {"part": part, "for": _text(length)}
        ways = [of(start, wanted), of(start, {**wanted, "notice": _text(ahead), "jobs": "migrate"})]
        ways += [of(begin, wanted) for begin in begins]
        rest: list[_Asked] = [(seed, {}) for seed in numbers[2:]] if drawn else []
        found = iter(runs.tried([*rest, *(one for way in ways for one in way)]))
        base = [*base, *(_sure(next(found)) for _ in rest)] if drawn else [base[0]] * len(numbers)
        now, moved = ([_sure(next(found)) for _ in draws] for _ in range(2))
        begins, later = _possible(begins, [[next(found) for _ in draws] for _ in begins])

    hours = _mean([float(taken.hours) for taken in base])
    limit = hours / 100 if tolerance is None else tolerance
    means = [_mean(_lost(base, taken)) for taken in later]
    best_later = min(range(len(later)), key=lambda index: means[index])
    options = (
        _option("now", start, base, now, limit),
        _option("later", begins[best_later], base, later[best_later], limit),
        _option("migrate", start, base, moved, limit),
    )
    return Drain(
        part=part,
        lasts_s=length,
        tolerance_job_hours=limit,
        job_hours=hours,
        seeds=numbers,
        drawn=drawn,
        window_s=span,
        options=options,
        later_starts=tuple(zip(begins, means, strict=True)),
        best=min(options, key=lambda option: option.lost_job_hours).name,
    )


def _written(source: Source, overrides: Mapping[str, object]) -> dict[str, Any]:
    """A scenario with its overrides. What is wrong with it, the engine says."""
    pairs = override_pairs(overrides)
    root = json.loads(engine.scenario_tree(source.text, source.name, pairs))
    return root if isinstance(root, dict) else {}


_Asked = tuple[int, dict[str, object]]
"""A seed, and the keys that are set beside the overrides."""


def _possible(
    begins: Sequence[float], tried: Sequence[list[_Taken | Exception]]
) -> tuple[list[float], list[list[_Taken]]]:
    """The later starts that are possible, and their runs.

    Nothing but the start tells them from now, so what is refused is when the part is out already, by maintenance that
    the scenario has.
    """
    possible, found = [], []
    refusals = [[one for one in runs if isinstance(one, Exception)] for runs in tried]
    for begin, runs, refused in zip(begins, tried, refusals, strict=True):
        if any(not isinstance(one, InputError) for one in refused):
            raise refused[0]
        if not refused:
            possible.append(begin)
            found.append([one for one in runs if isinstance(one, _Taken)])
    if not found:
        raise next(one for refused in refusals for one in refused)
    return possible, found


def _sure(found: _Taken | Exception) -> _Taken:
    if isinstance(found, Exception):
        raise found
    return found


@dataclass(frozen=True)
class _Taken:
    """What is kept of a run."""

    ends: pl.DataFrame
    hours: float
    lost_gpu_hours: float
    interrupted: float

    def same(self, other: _Taken) -> bool:
        """Whether every job ended when it did in `other`."""
        return self.ends.equals(other.ends) and self.lost_gpu_hours == other.lost_gpu_hours


class _Runs:
    def __init__(
        self,
        source: Source,
        overrides: list[tuple[str, str]],
        store: Store,
        limits: Limits | None,
        fresh: bool,
        done: Callable[[int, int], None] | None,
        *,
        allow_native: bool,
    ) -> None:
        self._source, self._overrides, self._store = source, overrides, store
        self._limits, self._fresh, self._done = limits, fresh, done
        self._allow_native = allow_native
        self._made = 0

    def taken(self, asked: Sequence[_Asked], expected: int) -> list[_Taken]:
        """What is kept of runs of which each must be possible, of so many that are expected."""
        return [_sure(found) for found in self._run(asked, expected)]

    def tried(self, asked: Sequence[_Asked]) -> list[_Taken | Exception]:
        """What is kept of each run, or why there is none."""
        found = self._run(asked, self._made + len(asked))
        if self._done is not None:
            self._done(self._made, self._made)
        return found

    def _run(self, asked: Sequence[_Asked], expected: int) -> list[_Taken | Exception]:
        points = []
        for seed, more in asked:
            pairs = override_pairs(more)
            points.append(Point(self._source, (*self._overrides, *pairs), seed=seed, varied={"seed": seed}))
        points = consented(points, allow=self._allow_native)

        def heard(progress: Progress) -> None:
            if self._done is not None and progress.done:
                self._done(self._made + progress.done, max(expected, self._made + progress.done))

        found: list[_Taken | Exception] = []
        for outcome in run_points(
            points, self._store, limits=self._limits, fresh=self._fresh, tables=True, progress=heard
        ):
            try:
                found.append(failure(outcome) if outcome.folder is None else _taken(Result(outcome.folder)))
            except InputError as error:
                found.append(error)
        self._made += sum(isinstance(one, _Taken) for one in found)
        return found


def _taken(result: Result) -> _Taken:
    cluster = result.summary["cluster"]
    if cluster["finished"] != cluster["jobs"]:
        raise InputError(
            f"{cluster['finished']} of {cluster['jobs']} jobs ended: a comparison needs all of them\n\n"
            "hint: leave `jobs.ends` out"
        )
    jobs = result.jobs.select("job", "submit_s", "finish_s")
    maintenance = (cluster.get("faults") or {}).get("maintenance", {"interruptions": 0})
    return _Taken(
        ends=jobs.select("job", "finish_s").sort("job"),
        hours=float((jobs["finish_s"] - jobs["submit_s"]).sum()) / 3600,
        lost_gpu_hours=float(cluster["lost_gpu_s"]) / 3600,
        interrupted=float(maintenance["interruptions"]),
    )


def _lost(base: list[_Taken], other: list[_Taken]) -> list[float]:
    """Job-hours lost, by seed."""
    return [
        float((there.ends["finish_s"] - here.ends["finish_s"]).sum()) / 3600
        for here, there in zip(base, other, strict=True)
    ]


def _option(name: str, at: float, base: list[_Taken], other: list[_Taken], limit: float) -> Option:
    lost = _lost(base, other)
    mean, count = _mean(lost), len(lost)
    interval, confidence = None, None
    if count > 1:
        error = math.sqrt(sum((value - mean) ** 2 for value in lost) / (count - 1) / count)
        # A few draws that agree say nothing of how far others may be.
        if error > 1e-9 * max(1.0, abs(mean)):
            half = error * quantile((1 + LEVEL) / 2, count - 1)
            interval = (mean - half, mean + half)
            confidence = cdf(abs(limit - mean) / error, count - 1)
    low, high = interval or (mean, mean)
    return Option(
        name=name,
        at_s=at,
        lost_job_hours=mean,
        interval=interval,
        lost_gpu_hours=_mean([b.lost_gpu_hours - a.lost_gpu_hours for a, b in zip(base, other, strict=True)]),
        interrupted=_mean([b.interrupted - a.interrupted for a, b in zip(base, other, strict=True)]),
        verdict="safe" if high <= limit else "risky" if low > limit else "unclear",
        confidence=confidence,
        by_seed=tuple(lost),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _text(value: float) -> str:
    """Seconds as a scenario writes them, to the nanosecond."""
    return f"{value:.9f} s"
