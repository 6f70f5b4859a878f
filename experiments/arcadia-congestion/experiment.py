"""Two drawn cases on the cluster of section 10.1, and who caused the congestion of each, found from results alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from ruamel.yaml import YAML

from windtunnel.experiments.runs import Asked, run_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results
    from windtunnel.results import Result

HERE = Path(__file__).resolve().parent
DAY_S = 86_400.0
SMALL, LARGE, INSIDE = 20, 60, 8
"""Hosts of jobs over all five pods, 4 or 12 in each, and of one inside a pod.

What is above a pod carries what 16 hosts send.
"""

Jobs = list[dict[str, Any]]


def job(name: str, hosts: int, submit_days: float, iterations: int) -> dict[str, Any]:
    """A recommendation model on whole hosts."""
    return {
        "name": name,
        "workload": {"model": "dlrm-1024", "global_batch": 8 * hosts * 512},
        "parallelism": {"dp": 8 * hosts},
        "iterations": iterations,
        "submit": f"{round(submit_days * DAY_S)} s",
        "locality": "pod" if hosts == INSIDE else "anywhere",
    }


def run(several: list[Jobs]) -> list[Result]:
    """Each of several lists of jobs on the scenario's fabric."""
    scenario = YAML(typ="safe").load((HERE / "scenario.yaml").read_text(encoding="utf-8"))
    placement = f"{HERE / 'placement.py'}:InTurn"
    return run_all([Asked({**scenario, "jobs": jobs}, placement=placement) for jobs in several])


def a_day(sizes: tuple[int, ...]) -> dict[int, float]:
    """Iterations a day of a job of each size that is alone but for one inside a pod."""
    ran = run([[job("alone", hosts, 0, 3), job("other", INSIDE, 0, 3)] for hosts in sizes])
    alone = [result.jobs.filter(pl.col("job") == "alone")["iteration_time_s"][0] for result in ran]
    return {hosts: DAY_S / float(time_s) for hosts, time_s in zip(sizes, alone, strict=True)}


def drawn(case: str, rates: dict[int, float]) -> tuple[Jobs, list[str]]:
    """Jobs of eight days in a drawn order under drawn names, and which of them overload the cluster.

    a: three small jobs leave a quarter of what is above the pods free; one large job comes for 3.8 days.
    b: two large jobs, each of which has room alone, and are there at the same time for some days.
    """
    draw = random.Random(f"arcadia-congestion {case}")  # noqa: S311 (a draw for a simulation)
    # (hosts, day of submission, days alone).
    if case == "a":
        plan = [(SMALL, draw.uniform(0.0, 0.8), draw.uniform(6.5, 8.0)) for _ in range(3)]
        plan.append((LARGE, draw.uniform(1.2, 2.8), 3.8))
    else:
        first = draw.uniform(0.2, 1.0)
        plan = [(LARGE, first, 3.5), (LARGE, first + draw.uniform(1.5, 2.5), 3.0)]
    plan += [(INSIDE, draw.uniform(0.0, 4.0), draw.uniform(2.0, 4.0)) for _ in range(2)]
    names = [f"job-{letter}" for letter in "abcdef"[: len(plan)]]
    draw.shuffle(names)
    jobs = [job(name, *entry[:2], round(entry[2] * rates[entry[0]])) for name, entry in zip(names, plan, strict=True)]
    return sorted(jobs, key=lambda entry: entry["name"]), [
        name for name, (hosts, *_) in zip(names, plan, strict=True) if hosts == LARGE
    ]


def suspects(jobs: Jobs, result: Result) -> list[str]:
    """Jobs without any one of which the congestion would not have been: each is left out in turn."""
    whole = covered(result.congestion)
    without = run([[other for other in jobs if other is not left_out] for left_out in jobs])
    return [
        left_out["name"]
        for left_out, rest in zip(jobs, without, strict=True)
        if covered(rest.congestion) <= 0.05 * whole
    ]


def observe(_results: Results) -> dict[str, Any]:
    """Periods of congestion in both cases, and what follows from them."""
    rates = a_day((SMALL, LARGE, INSIDE))
    found: dict[str, Any] = {}
    tables = []
    for case in ("a", "b"):
        jobs, truth = drawn(case, rates)
        (result,) = run([jobs])
        periods = result.congestion
        tables.append(periods.with_columns(case=pl.lit(case)))
        stays = {
            name: (start, end) for name, start, end in result.jobs.select("job", "start_s", "finish_s").iter_rows()
        }
        begin, end = max(stays[name][0] for name in truth), min(stays[name][1] for name in truth)
        inside = [entry["name"] for entry in jobs if entry["locality"] == "pod"]
        wide = [entry["name"] for entry in jobs if entry["name"] not in inside]
        found |= {
            f"{case}_found": suspects(jobs, result) == sorted(truth),
            f"{case}_days": covered(periods) / DAY_S,
            f"{case}_while": covered(periods) / (end - begin),
            f"{case}_outside": covered(periods) - covered(periods, begin, end),
            f"{case}_hit": len(set(periods["job"]) & set(wide)) / len(wide),
            f"{case}_inside": periods.filter(pl.col("job").is_in(inside)).height,
        }
    table = pl.concat(tables).sort("case", "from_s", "job")
    return {"congestion": table.with_columns(pl.col("from_s") / DAY_S, pl.col("until_s") / DAY_S), **found}


def covered(periods: pl.DataFrame, begin: float = 0.0, end: float = float("inf")) -> float:
    """Seconds between `begin` and `end` in which some period is."""
    total, last = 0.0, begin
    for start, until in periods.sort("from_s").select("from_s", "until_s").iter_rows():
        total += max(0.0, min(until, end) - max(start, last))
        last = max(last, min(until, end))
    return total


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Periods by job, as figure 24."""
    table: pl.DataFrame = observed["congestion"]
    rows = sorted({(case, job) for case, job in table.select("case", "job").iter_rows()})
    for case, name, begin, until in table.select("case", "job", "from_s", "until_s").iter_rows():
        axes.barh(rows.index((case, name)), until - begin, left=begin, color="#e45756" if case == "a" else "#4c78a8")
    axes.set_yticks(range(len(rows)), [f"{case}: {name}" for case, name in rows])
    axes.set(xlabel="days", xlim=(0, 9))
