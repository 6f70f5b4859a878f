"""Errors of fast-forwarding over random mixes of jobs that come and go within each other's iterations."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.experiments.runs import Asked, run_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results
    from windtunnel.results import Result

HERE = Path(__file__).resolve().parent
MIXES = 150
"""Of each kind."""

# Beside this file, which is not on the path.
_spec = importlib.util.spec_from_file_location("fast_forward_mixes", HERE / "mixes.py")
if _spec is None or _spec.loader is None:
    msg = "mixes.py is not beside this file"
    raise ImportError(msg)
mixes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(mixes)


def spans(result: Result) -> dict[str, float]:
    """Time of each job from start to end."""
    return {job["name"]: job["finish_s"] - job["start_s"] for job in result.summary["jobs"]}


def places(result: Result) -> dict[str, set[int]]:
    """Hosts of each job."""
    found: dict[str, set[int]] = {}
    for job, host in result.table("placements").select("job", "host").iter_rows():
        found.setdefault(job, set()).add(host)
    return found


def _mix(number: int, writing: float, failing: bool) -> tuple[dict[str, Any], dict[str, str], dict[str, float]]:
    """A mix's scenario, the texts of the files that it names, and the lengths of its jobs."""
    with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder:
        scenario, lengths = mixes.mix(number, Path(folder), writing=writing, failing=failing)
        files = {path.name: path.read_text(encoding="utf-8") for path in sorted(Path(folder).iterdir())}
    return scenario, files, lengths


def compared(numbers: range, *, writing: float = 0.0, failing: bool = False) -> tuple[pl.DataFrame, dict[str, float]]:
    """Error of each job of these mixes; mixes left out as jobs stood elsewhere, jobs interrupted, and CPU seconds."""
    rows: list[dict[str, Any]] = []
    elsewhere, interrupted, fast_s, full_s = 0, 0, 0.0, 0.0
    made = [_mix(number, writing, failing) for number in numbers]
    asked = [Asked(text, files=files, full=full) for text, files, _ in made for full in (False, True)]
    ran = iter(run_all(asked))
    for number, (*_, lengths) in zip(numbers, made, strict=True):
        fast, full = next(ran), next(ran)
        fast_s, full_s = fast_s + fast.summary["cpu_time_s"], full_s + full.summary["cpu_time_s"]
        if places(fast) != places(full):
            elsewhere += 1
            continue
        faults = full.summary["cluster"].get("faults") or {}
        interrupted += sum(of["interruptions"] for of in faults.values())
        reference = spans(full)
        rows += [
            {
                "mix": number,
                "job": job["name"],
                "length": lengths[job["name"]],
                "error": (job["finish_s"] - job["start_s"]) / reference[job["name"]] - 1,
                "band": job["time_band_s"] / reference[job["name"]],
            }
            for job in fast.summary["jobs"]
        ]
    return pl.DataFrame(rows), {
        "elsewhere": elsewhere,
        "interrupted": interrupted,
        "fast_s": fast_s,
        "full_s": full_s,
    }


def figures(errors: pl.DataFrame) -> dict[str, float]:
    """Mean error by length of iterations, what 99 of 100 jobs are within, and how many are within their own band."""
    length, error = pl.col("length"), pl.col("error")
    classes = {"longest": length == 1, "middle": (length < 1) & (length >= 0.3), "short": length < 0.3}
    means = {f"mean_{name}": float(errors.filter(kind)["error"].mean()) for name, kind in classes.items()}
    # Times are of whole nanoseconds.
    covered = float(errors.select((error.abs() <= pl.col("band") + 1e-9).mean()).item())
    return means | {"covered": covered, "p99": float(errors.select(error.abs().quantile(0.99)).item())}


def stream_error() -> float:
    """The largest error of the long job over three seeds."""
    asked = [Asked(json.dumps(mixes.stream(seed)), full=full) for seed in (1, 2, 3) for full in (False, True)]
    found = [spans(result)["long"] for result in run_all(asked)]
    return max(abs(fast / full - 1) for fast, full in zip(found[::2], found[1::2], strict=True))


def observe(_results: Results) -> dict[str, Any]:
    """Errors by class."""
    plain, plain_costs = compared(range(MIXES))
    writing, writing_costs = compared(range(1000, 1000 + MIXES), writing=0.3)
    failing, failing_costs = compared(range(2000, 2000 + MIXES), writing=0.3, failing=True)
    costs = {"plain": plain_costs, "writing": writing_costs, "failing": failing_costs}
    return {
        **figures(plain),
        **{f"{name}_writing": value for name, value in figures(writing).items()},
        **{f"{name}_failing": value for name, value in figures(failing).items()},
        "interrupted": failing_costs["interrupted"],
        "stream": stream_error(),
        "costs": pl.DataFrame([{"mixes": kind, **row} for kind, row in costs.items()]).with_columns(
            pl.col(pl.Float64).round(2)
        ),
        "errors": pl.concat([plain, writing, failing]).sort(pl.col("error").abs(), descending=True).head(20),
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """The largest errors by the length of iterations."""
    table: pl.DataFrame = observed["errors"]
    axes.scatter(table["length"], 100 * table["error"])
    axes.set(xlabel="iteration over the longest of its mix", ylabel="error of a job's time (%), the 20 largest")
    axes.set_xscale("log")
