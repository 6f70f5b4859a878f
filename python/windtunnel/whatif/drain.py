"""Whether it is safe to take a part out of service.

The same scenario without the maintenance, with it now, later, and after the jobs there have moved away, each with
several seeds. Seeds are common to all: a component fails when it does whatever is drained, so what differs between two
runs of a seed is the drain and what follows from it. Job-hours lost of a seed: the sum over all jobs of how much later
each ends than without the drain. The mean's interval and the confidence of the verdict are Student's t over the seeds.

Of a log or a list of jobs where nothing fails all seeds are one run: there is nothing to be unsure of but when the
drain begins and what comes then. Each option is run once, and has no interval; with a `window` the instant is drawn for
each seed, the same for all, and the interval is that of the mean over instants of the window.
"""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.api import run
from windtunnel.engine import InputError
from windtunnel.source import override_text, read_source
from windtunnel.student import cdf, quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from windtunnel.results import Result
    from windtunnel.source import Source

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
    """Whether runs of two seeds differ without the drain: faults, or jobs that are drawn."""
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
    done: Callable[[int, int], None] | None = None,
) -> Drain:
    """Compares draining `part` of `scenario` from `at` on for `lasts` with doing it later or after moving jobs away.

    `notice` is how long before jobs move away. With a `window` such as `1 d` every start is put off by a part of it,
    drawn for each seed; without one, where nothing else is drawn either, each option is run once. `tolerance` in
    job-hours tells safe from risky; by default a hundredth of the job-hours that the scenario takes. `done` hears of
    runs done, and of how many there are. Raises `InputError` for a bad scenario, part or time.
    """
    start, length, ahead = (seconds(at, "at"), seconds(lasts, "for"), seconds(notice, "notice"))
    if length <= 0:
        raise InputError(f"for: expected a time above 0, found `{lasts}`")
    span = 0.0 if window is None else seconds(window, "window")
    if seeds < 2:
        raise InputError(f"seeds: expected at least 2, found {seeds}: one run shows no spread")
    source = read_source(scenario)
    planned, first = _written(source, overrides or {})
    numbers = tuple(range(first, first + seeds))
    begins = [start + count * length for count in LATER]
    runs = _Runs(scenario, dict(overrides or {}), planned, (3 + len(begins)) * seeds, done)

    base = [runs.base(seed) for seed in numbers[:2]]
    drawn = not base[0].same(base[1])
    if drawn:
        base += [runs.base(seed) for seed in numbers[2:]]
    else:
        numbers = numbers if span > 0 else numbers[:1]
        base = [base[0]] * len(numbers)
        runs.expect(2 + (2 + len(begins)) * len(numbers))
    # The same part of the window for all options, so that they can be compared.
    puts_off = [span * random.Random(f"drain {seed}").random() for seed in numbers]  # noqa: S311
    draws = list(zip(numbers, puts_off, strict=True))

    wanted = {"part": part, "for": _text(length)}
    now = runs.of(draws, start, wanted)
    moved = runs.of(draws, start, {**wanted, "notice": _text(ahead), "jobs": "migrate"})
    begins, later = _later(runs, draws, wanted, begins)

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


def _written(source: Source, overrides: Mapping[str, object]) -> tuple[list[object], int]:
    """Maintenance and seed of a scenario with its overrides. What is wrong with it, the engine says."""
    pairs = [(path, override_text(value)) for path, value in overrides.items()]
    root = json.loads(engine.scenario_tree(source.text, source.name, pairs))
    root = root if isinstance(root, dict) else {}
    cluster = root.get("cluster")
    planned = cluster.get("maintenance") if isinstance(cluster, dict) else None
    seed = root.get("seed")
    return planned if isinstance(planned, list) else [], seed if isinstance(seed, int) else 0


def _later(
    runs: _Runs, draws: Sequence[tuple[int, float]], window: Mapping[str, object], begins: Sequence[float]
) -> tuple[list[float], list[list[_Taken]]]:
    """The later starts that are possible, and their runs.

    Nothing but the start tells them from now, so what is refused is when the part is out already, by maintenance that
    the scenario has.
    """
    possible, found, refusal = [], [], None
    for begin in begins:
        try:
            found.append(runs.of(draws, begin, window))
        except InputError as error:
            refusal = error
        else:
            possible.append(begin)
    if refusal is not None and not found:
        raise refusal
    return possible, found


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
        scenario: str | Path | Mapping[str, Any],
        overrides: dict[str, object],
        planned: list[object],
        count: int,
        done: Callable[[int, int], None] | None,
    ) -> None:
        self._scenario, self._overrides, self._planned = scenario, overrides, planned
        self._count, self._done, self._made = count, done, 0

    def expect(self, count: int) -> None:
        """There will be so many runs, those that were made among them."""
        self._count = count

    def base(self, seed: int) -> _Taken:
        """The run of a seed without the drain."""
        return self._run(seed, {})

    def of(self, draws: Sequence[tuple[int, float]], start: float, window: Mapping[str, object]) -> list[_Taken]:
        """A run for every seed, with a window of maintenance more that begins at `start`, put off as the draw says."""
        found = []
        for seed, later in draws:
            more = {**window, "at": _text(start + later)}
            try:
                found.append(self._run(seed, {"cluster.maintenance": [*self._planned, more]}))
            except InputError:
                # What is not possible for one is not asked of the others.
                self._count -= len(draws) - len(found)
                raise
        return found

    def _run(self, seed: int, more: Mapping[str, object]) -> _Taken:
        found = _taken(run(self._scenario, seed=seed, overrides={**self._overrides, **more}))
        self._made += 1
        if self._done is not None:
            self._done(self._made, self._count)
        return found


def _taken(result: Result) -> _Taken:
    cluster = result.summary["cluster"]
    if result.summary["partial"]:
        raise KeyboardInterrupt
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
