"""Whether it is safe to take a part out of service.

The same scenario without the maintenance, with it now, later, and after the jobs there have moved away, each with
several seeds. Seeds are common to all: a component fails when it does whatever is drained, so what differs between two
runs of a seed is the drain and what follows from it. Job-hours lost of a seed: the sum over all jobs of how much later
each ends than without the drain. The mean's interval and the confidence of the verdict are Student's t over the seeds.
"""

from __future__ import annotations

import json
import math
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

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "y": 365 * 86400.0}

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
    interval: tuple[float, float]
    """95% interval of that mean."""
    lost_gpu_hours: float
    """Mean of the additional GPU-hours of work done again and of restarts."""
    interrupted: float
    """Mean of the jobs that the maintenance interrupted or moved."""
    verdict: str
    """`safe` if the interval is within the tolerance, `risky` if it is beyond, `unclear` otherwise."""
    confidence: float
    """That the mean is on the side of the tolerance where it was found."""
    by_seed: tuple[float, ...]
    """Job-hours lost of each seed."""


@dataclass(frozen=True)
class Drain:
    """What draining a part costs."""

    part: str
    lasts_s: float
    tolerance_job_hours: float
    job_hours: float
    """Job-hours from submission to end without the drain, mean over the seeds."""
    seeds: tuple[int, ...]
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
    tolerance: float | None = None,
    overrides: Mapping[str, object] | None = None,
    done: Callable[[int, int], None] | None = None,
) -> Drain:
    """Compares draining `part` of `scenario` from `at` on for `lasts` with doing it later or after moving jobs away.

    `notice` is how long before jobs move away. `tolerance` in job-hours tells safe from risky; by default a hundredth
    of the job-hours that the scenario takes. `done` hears of runs done, and of how many there are. Raises `InputError`
    for a bad scenario, part or time.
    """
    start, length, ahead = (seconds(at, "at"), seconds(lasts, "for"), seconds(notice, "notice"))
    if length <= 0:
        raise InputError(f"for: expected a time above 0, found `{lasts}`")
    if seeds < 2:
        raise InputError(f"seeds: expected at least 2, found {seeds}: one run shows no spread")
    source = read_source(scenario)
    planned, first = _written(source, overrides or {})
    numbers = tuple(range(first, first + seeds))
    begins = [start + count * length for count in LATER]
    runs = _Runs(scenario, dict(overrides or {}), planned, numbers, (3 + len(begins)) * seeds, done)

    window = {"part": part, "for": _text(length)}
    base = runs.of(None)
    now = runs.of({**window, "at": _text(start)})
    moved = runs.of({**window, "at": _text(start), "notice": _text(ahead), "jobs": "migrate"})
    begins, later = _later(runs, window, begins)

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
    runs: _Runs, window: Mapping[str, object], begins: Sequence[float]
) -> tuple[list[float], list[list[_Taken]]]:
    """The later starts that are possible, and their runs.

    Nothing but the start tells them from now, so what is refused is when the part is out already, by maintenance that
    the scenario has.
    """
    possible, found, refusal = [], [], None
    for begin in begins:
        try:
            found.append(runs.of({**window, "at": _text(begin)}))
        except InputError as error:
            refusal = error
            runs.left_out()
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


class _Runs:
    def __init__(
        self,
        scenario: str | Path | Mapping[str, Any],
        overrides: dict[str, object],
        planned: list[object],
        seeds: Sequence[int],
        count: int,
        done: Callable[[int, int], None] | None,
    ) -> None:
        self._scenario, self._overrides, self._planned = scenario, overrides, planned
        self._seeds, self._count, self._done, self._made = seeds, count, done, 0

    def of(self, window: dict[str, object] | None) -> list[_Taken]:
        """A run for every seed, with one window of maintenance more."""
        more = {} if window is None else {"cluster.maintenance": [*self._planned, window]}
        found = []
        for seed in self._seeds:
            result = run(self._scenario, seed=seed, overrides={**self._overrides, **more})
            found.append(_taken(result))
            self._made += 1
            if self._done is not None:
                self._done(self._made, self._count)
        return found

    def left_out(self) -> None:
        """The runs of a window that is not possible are not made."""
        self._count -= len(self._seeds)


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
    error = math.sqrt(sum((value - mean) ** 2 for value in lost) / (count - 1) / count)
    half = error * quantile((1 + LEVEL) / 2, count - 1)
    low, high = mean - half, mean + half
    verdict = "safe" if high <= limit else "risky" if low > limit else "unclear"
    distance = abs(limit - mean)
    confidence = cdf(distance / error, count - 1) if error > 0 else 1.0
    return Option(
        name=name,
        at_s=at,
        lost_job_hours=mean,
        interval=(low, high),
        lost_gpu_hours=_mean([b.lost_gpu_hours - a.lost_gpu_hours for a, b in zip(base, other, strict=True)]),
        interrupted=_mean([b.interrupted - a.interrupted for a, b in zip(base, other, strict=True)]),
        verdict=verdict,
        confidence=confidence,
        by_seed=tuple(lost),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _text(value: float) -> str:
    """Seconds as a scenario writes them, to the nanosecond."""
    return f"{value:.9f} s"
