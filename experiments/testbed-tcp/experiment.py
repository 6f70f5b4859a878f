"""Runs of the testbed, predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.testbed.compare import judged
from windtunnel.testbed.fabric import Shape, built, congestions
from windtunnel.testbed.flows import PATTERNS, Done, drawn, send
from windtunnel.testbed.shell import demand

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

TCPS = ("reno", "cubic")
RUNS = 4
SIZE = 800_000


def observe(_: Results) -> dict[str, Any]:
    """The runs, and how far off each fidelity is."""
    shape = Shape()
    demand()
    congestions(TCPS)
    runs: list[Done] = []
    with built(shape) as fabric:
        for name in TCPS:
            for pattern in PATTERNS:
                for seed in range(RUNS):
                    flows = drawn(pattern, seed, shape.leaves, shape.hosts, SIZE)
                    sent, seconds, bound = send(fabric, flows, name, len(runs))
                    runs.append(Done(f"{name}-{pattern}-{seed}", pattern, name, sent, seconds, bound))
    found = {one.fidelity: one for one in judged(shape, runs)}
    rows = [
        {"fidelity": one.fidelity, "what": name, "median_error": error}
        for one in found.values()
        for name, error in one.by_pattern.items()
    ]
    return {
        "errors": pl.DataFrame(rows),
        "packet": found["packet"].median_abs_error,
        "flow": found["flow"].median_abs_error,
        "fast_enough": sum(not run.host_bound for run in runs) / len(runs),
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Bars by pattern and TCP."""
    found = observed["errors"]
    for at, fidelity in enumerate(("packet", "flow")):
        part = found.filter(found["fidelity"] == fidelity)
        axes.bar([i + 0.4 * at for i in range(len(part))], 100 * part["median_error"], width=0.4, label=fidelity)
        axes.set_xticks([i + 0.2 for i in range(len(part))], part["what"].to_list(), rotation=30, fontsize=7)
    axes.set(ylabel="median error of a flow (%)")
    axes.legend()
