"""Iteration times of the dense job over four buildings of which one is far, with equal chunks and with one larger."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.experiments.cuts import cut, outermost, times
from windtunnel.experiments.runs import Asked

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

SCENARIO = Path(__file__).resolve().parents[1] / "scaleacross-fig6" / "scenario.yaml"
LATENCIES = (50, 100, 500, 1000, 2000)
STAGES, CHUNKS = 20, 5


def larger(chunk: int) -> dict[str, Any]:
    """PP-out with this chunk of two layers a stage and all others of one: five chunks for six, so fewer messages."""
    layers = [2 if each == chunk else 1 for each in range(CHUNKS) for _ in range(STAGES)]
    return {
        **outermost("PP-out"),
        "jobs[0].parallelism.schedule.chunks": CHUNKS,
        "jobs[0].workload.training.layers_per_stage": layers,
    }


PLANS = {
    "PP-out": outermost("PP-out"),
    "DP-out": outermost("DP-out"),
    "PP-out, larger third": larger(2),
    "PP-out, larger first": larger(0),
}


SHORT = {"jobs[0].workload.model": "gpu-share-eighth.json", "jobs[0].workload.global_batch": 6400}
"""Chunks of an eighth of the computation, and 160 micro-batches for 20."""

WHY = {
    "larger_over_equal_2000": "five chunks for six leave a longer bubble, 9% of these 20 micro-batches, and save two "
    "rounds of messages, 16 ms; with chunks of an eighth of the computation and 160 micro-batches the larger one is "
    "6.0% slower at 50 us and 3.3% faster at 2000 us (`short`)"
}
"""By figure observed: why a claim on it does not hold."""


def observe(_: Results) -> dict[str, Any]:
    """Times by plan and latency of the far building's cables, and how the larger chunk compares."""
    found = times({
        (plan, us): Asked(SCENARIO, {**own, **cut(SCENARIO, far=("d", us))})
        for (plan, own), us in product(PLANS.items(), LATENCIES)
    })  # fmt: skip
    short = times({
        (plan, us): Asked(SCENARIO, {**PLANS[plan], **SHORT, **cut(SCENARIO, far=("d", us))})
        for plan, us in product(("PP-out", "PP-out, larger third"), (LATENCIES[0], LATENCIES[-1]))
    })  # fmt: skip
    over = {us: found["PP-out, larger third", us] / found["PP-out", us] for us in LATENCIES}
    equal = [found["PP-out", us] for us in LATENCIES]
    rows = [
        {"plan": plan + added, "latency_us": us, "iteration_s": seconds}
        for added, ran in (("", found), (", short", short))
        for (plan, us), seconds in ran.items()
    ]
    return {
        "iterations": pl.DataFrame(rows),
        **{f"larger_over_equal_{us}": value for us, value in over.items()},
        **{
            f"short_larger_over_equal_{us}": short["PP-out, larger third", us] / short["PP-out", us]
            for us in (LATENCIES[0], LATENCIES[-1])
        },
        "first_over_equal_2000": found["PP-out, larger first", 2000] / found["PP-out", 2000],
        "rise_larger_over_equal": over[2000] / over[50],
        "rises_with_latency": equal == sorted(equal) and equal[-1] > equal[0],
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Iteration time over that of PP-out at 50 us, as figure 19."""
    table: pl.DataFrame = observed["iterations"].filter(~pl.col("plan").str.ends_with("short"))
    base = table["iteration_s"][0]
    for (plan,), part in table.group_by("plan", maintain_order=True):
        axes.plot(part["latency_us"], part["iteration_s"] / base, marker="o", label=str(plan))
    axes.set(xlabel="latency to the far building (us)", ylabel="iteration time over that of PP-out at 50 us")
    axes.set_xscale("log")
    axes.legend(frameon=False)
