"""Jobs over several buildings as the cables between these change: their share of bandwidth, their length.

Every pair of buildings has as many cables. What a building's NICs can send over what its cables to all others carry is
the *ratio*; it is set by the rate of the cables, so that what crosses them is spread over as many.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.experiments.buildings import plans, table
from windtunnel.experiments.runs import Asked, run_all
from windtunnel.experiments.spec import parse_yaml
from windtunnel.explore.space import Space
from windtunnel.source import read_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeVar

    from matplotlib.axes import Axes

    Key = TypeVar("Key", bound=Hashable)

DEFAULT_RATIO = 4.0
"""Stands in for the default ratio of the paper, which is not published: "around 1:3 to 1:8"."""
DEFAULT_US = 50.0
"""Latency of a cable in microseconds, 10 km: the default of the paper."""
NIC_GBPS = 400.0
US_PER_KM = 5.0
ORDERS = {"PP-out": ["tp", "cp", "ep", "dp", "pp"], "DP-out": ["tp", "cp", "ep", "pp", "dp"]}
"""What is outermost, and `order` of the parallelism that says so."""


@dataclass(frozen=True)
class Buildings:
    """What a scenario says of its buildings."""

    nics: int
    """NICs of each."""
    pairs: tuple[tuple[str, str], ...]
    """Pairs that cables join, in the order of the scenario."""
    cables: int
    """Cables of a pair."""

    @property
    def neighbours(self) -> int:
        """Buildings that one of them has cables to."""
        first = self.pairs[0][0]
        return sum(first in pair for pair in self.pairs)


@cache
def buildings(scenario: Path) -> Buildings:
    """The buildings of `scenario`, all equal and each joined to as many. Raises `ValueError` where they are not."""
    topology = parse_yaml(read_text(scenario), str(scenario))["topology"]
    hosts = {building["hosts"] for building in topology["buildings"]}
    counts = {cable["count"] for cable in topology["cross"]}
    if len(hosts) != 1 or len(counts) != 1:
        raise ValueError(f"{scenario}: buildings or cables differ")
    pairs = tuple((one, other) for one, other in (cable["between"] for cable in topology["cross"]))
    return Buildings(hosts.pop() * topology["host"]["nics"], pairs, counts.pop())


def cut(
    scenario: Path, ratio: float = DEFAULT_RATIO, latency_us: float = DEFAULT_US, far: tuple[str, float] | None = None
) -> dict[str, Any]:
    """Overrides that give every pair of buildings of `scenario` its cables.

    `far` names a building, and the latency in microseconds of its cables to all others.
    """
    found = buildings(scenario)
    rate = found.nics * NIC_GBPS / (ratio * found.neighbours * found.cables)
    values: dict[str, Any] = {}
    for index, pair in enumerate(found.pairs):
        us = far[1] if far is not None and far[0] in pair else latency_us
        values[f"topology.cross[{index}].rate"] = f"{rate:.6g} Gbps"
        values[f"topology.cross[{index}].length"] = f"{us / US_PER_KM:g} km"
    return values


def times(asked: Mapping[Key, Asked]) -> dict[Key, float]:
    """Iteration times in seconds of the first job of each run that is asked for, run together."""
    ran = run_all(list(asked.values()))
    means = (float(one.summary["jobs"][0]["iteration_time_s"]["mean"]) for one in ran)
    return dict(zip(asked, means, strict=True))


STEPS = ((4.0, 50.0), (8.0, 50.0), (16.0, 50.0), (4.0, 1000.0))
"""Ratios and latencies in microseconds at which models are compared; the first is what rises are over."""


def rises(scenario: Path, models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Iteration times of `models` (overrides by name) in both orders at `STEPS`, and how they rise from the first.

    `ratio_MODEL_ORDER` is the time at four times the default ratio over that at it, `ratio_MODEL_pp_over_dp` the rise
    of PP-out over that of DP-out, `latency_least` the least rise of all from 50 to 1000 us.
    """
    found = times({
        (model, name, step): Asked(scenario, {**outermost(name), **own, **cut(scenario, *step)})
        for (model, own), name, step in product(models.items(), ORDERS, STEPS)
    })  # fmt: skip
    by_ratio = {(m, o): found[m, o, STEPS[2]] / found[m, o, STEPS[0]] for m, o in product(models, ORDERS)}
    by_latency = {(m, o): found[m, o, STEPS[3]] / found[m, o, STEPS[0]] for m, o in product(models, ORDERS)}
    rows = [
        {"model": model, "outermost": name, "ratio": ratio, "latency_us": us, "iteration_s": seconds}
        for (model, name, (ratio, us)), seconds in found.items()
    ]
    return {
        "iterations": pl.DataFrame(rows),
        **{f"ratio_{model}_{name}": value for (model, name), value in by_ratio.items()},
        **{f"latency_{model}_{name}": value for (model, name), value in by_latency.items()},
        **{f"ratio_{model}_pp_over_dp": by_ratio[model, "PP-out"] / by_ratio[model, "DP-out"] for model in models},
        "ratio_dp_128_over_16": by_ratio["moe-128", "DP-out"] / by_ratio["moe-16", "DP-out"],
        "ratio_dp_128_over_dense": by_ratio["moe-128", "DP-out"] / by_ratio["dense", "DP-out"],
        "latency_least": min(by_latency.values()),
        "latency_pp_dense_over_128": by_latency["dense", "PP-out"] / by_latency["moe-128", "PP-out"],
        "latency_dp_over_pp": min(by_latency[model, "DP-out"] / by_latency[model, "PP-out"] for model in models),
    }


def topologies(
    variants: Mapping[str, tuple[Path, Mapping[str, Any]]], steps: Sequence[tuple[float, float]]
) -> dict[tuple[str, str, tuple[float, float]], float]:
    """Iteration times in seconds by topology (a scenario and its overrides), order and step (ratio, latency in us)."""
    return times({
        (variant, name, step): Asked(scenario, {**own, **outermost(name), **cut(scenario, *step)})
        for (variant, (scenario, own)), name, step in product(variants.items(), ORDERS, steps)
    })  # fmt: skip


def inside(scenario: Path, tier: int, oversubscription: int) -> tuple[Path, dict[str, Any]]:
    """The topology of `scenario` with this oversubscription above `tier` of each building."""
    names = {name for pair in buildings(scenario).pairs for name in pair}
    key = "topology.buildings[{}].tiers[{}].oversubscription"
    return scenario, {key.format(index, tier): oversubscription for index in range(len(names))}


LONG = Space(
    tp=(8, 16, 32),
    zero=(3,),
    micro_batches=(1, 2),
    schedules=("1f1b", "dorapp", "zbv"),
    recompute=("none",),
)
"""Layouts of a job with long sequences: tensor parallelism over several hosts for who has no context parallelism."""


def speeds(scenario: Path, steps: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """The plan as written, Sailor's and the explorer's at each step (ratio, latency in us), and how they compare."""
    found = {step: plans(scenario, cut(scenario, *step), LONG) for step in steps}
    first, last = found[steps[0]], found[steps[-1]]
    stages = parse_yaml(read_text(scenario), str(scenario))["jobs"][0]["parallelism"]["pp"]
    rows = [table({ratio: one}).with_columns(latency_us=pl.lit(us)) for (ratio, us), one in found.items()]
    return {
        "plans": pl.concat(rows),
        "least_over_written": min(one.over_written for one in found.values()),
        "most_over_written": max(one.over_written for one in found.values()),
        "fewer_stages": all(one.explorer.pp < stages for one in found.values()),
        "far_over_near": last.over_written / first.over_written,
        "replicas_outermost": all(one.explorer.pp == 1 or one.explorer.order == "dp-out" for one in found.values()),
        "sailor_least_behind_written": min(1.0 / one.sailor_over_written for one in found.values()),
        "sailor_behind_explorer": first.over_sailor,
        "sailor_slowest": all(one.sailor_s > max(one.written_s, one.explorer_s) for one in found.values()),
        "sailor_tp": min(one.sailor.tp for one in found.values()),
    }


def draw_speeds(plans_by_step: pl.DataFrame, names: Sequence[str], axes: Axes) -> None:
    """Bars of speed over the plan as written, by ratio and latency."""
    steps = [f"1:{ratio:g}, {us:g} us" for ratio, us in plans_by_step.select("ratio", "latency_us").iter_rows()]
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        places = [place + index * width for place in range(len(steps))]
        axes.bar(places, plans_by_step["written_s"] / plans_by_step[name], width, label=name.removesuffix("_s"))
    axes.axhline(1, color="#888888", linewidth=0.8)
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(steps))], steps)
    axes.set(ylabel="speed over the plan as written")
    axes.legend(frameon=False)


def by_step(found: Mapping[tuple[str, str, tuple[float, float]], float], column: str) -> pl.DataFrame:
    """Times of `topologies` as a table, with the `ratio` or the `latency_us` of each step as `column`."""
    which = ("ratio", "latency_us").index(column)
    return pl.DataFrame(
        [
            {"topology": variant, "outermost": name, column: step[which], "iteration_s": seconds}
            for (variant, name, step), seconds in found.items()
        ]
    )


def growths(
    found: Mapping[tuple[str, str, tuple[float, float]], float], steps: Sequence[tuple[float, float]]
) -> dict[str, float]:
    """How much times of A1 to A3 and B1 to B3 grow from the first step to the last, and growths over each other."""
    names = dict.fromkeys(variant for variant, _, _ in found)
    growth = {
        (variant, name): found[variant, name, steps[-1]] / found[variant, name, steps[0]]
        for variant, name in product(names, ORDERS)
    }
    return {
        "pp_over_dp_least": min(growth[variant, "PP-out"] / growth[variant, "DP-out"] for variant in names),
        **{f"growth_{variant}_{name}": value for (variant, name), value in growth.items()},
        **{f"a3_over_a1_{name}": growth["A3", name] / growth["A1", name] for name in ORDERS},
        **{f"b3_over_b2_{name}": growth["B3", name] / growth["B2", name] for name in ORDERS},
    }


def costs(
    found: Mapping[tuple[str, str, tuple[float, float]], float], steps: Sequence[tuple[float, float]]
) -> dict[str, float]:
    """What more and smaller buildings (A4 for A1, B4 for B1) cost at the first step and at the last."""
    places = (("first", steps[0]), ("last", steps[-1]))
    cost = {
        (series, name, place): found[f"{series}4", name, step] / found[f"{series}1", name, step]
        for series, name, (place, step) in product("AB", ORDERS, places)
    }
    return {
        **{f"cost_{series}_{name}_{place}": value for (series, name, place), value in cost.items()},
        **{
            f"pp_over_dp_{series}_{place}": cost[series, "PP-out", place] / cost[series, "DP-out", place]
            for series, (place, _) in product("AB", places)
        },
    }


def draw_topologies(iterations: pl.DataFrame, x: str, label: str, axes: Axes) -> None:
    """Iteration times by column `x` over those of the first topology of a series at its first value."""
    base: dict[str, float] = {}
    for (variant, name), part in iterations.group_by("topology", "outermost", maintain_order=True):
        series = f"{str(variant)[0]} {name}"
        base.setdefault(series, part["iteration_s"][0])
        style = "-" if name == "PP-out" else "--"
        axes.plot(part[x], part["iteration_s"] / base[series], style, marker="o", label=f"{variant}, {name}")
    axes.set(xlabel=label, ylabel="iteration time over the first")
    axes.set_xscale("log", base=2)
    axes.legend(frameon=False, fontsize=7)


def draw_rises(iterations: pl.DataFrame, axes: Axes) -> None:
    """Iteration times at 50 us over that at the default ratio, by the ratio: a line for each model and order."""
    near = iterations.filter(pl.col("latency_us") == DEFAULT_US)
    for (model, name), part in near.group_by("model", "outermost", maintain_order=True):
        base = part["iteration_s"][0]
        style = "-" if name == "PP-out" else "--"
        axes.plot(part["ratio"], part["iteration_s"] / base, style, marker="o", label=f"{model}, {name}")
    axes.set(xlabel="oversubscription between the buildings, 1 to", ylabel="iteration time over that at 1:4")
    axes.set_xscale("log", base=2)
    axes.legend(frameon=False)


def outermost(name: str) -> dict[str, Any]:
    """The override that makes pipelines (`PP-out`) or replicas (`DP-out`) of the first job outermost."""
    return {"jobs[0].parallelism.order": ORDERS[name]}
