"""Jobs over two buildings: what is outermost, and plans as written, as Sailor chooses, and the explorer.

Each plan is run as flows; the explorer's is the fastest of the few that its cost model puts first. The plan as written
is the production layout that the explorer's paper starts from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.experiments.runs import Asked, run_all
from windtunnel.explore.search import Settings, search
from windtunnel.explore.space import Space
from windtunnel.layout.job import read_job
from windtunnel.source import override_text, read_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from windtunnel.explore.space import Candidate

PROVEN = 3
"""Layouts of the explorer that are run as flows."""


@dataclass(frozen=True)
class Plans:
    """Iteration times in seconds at one ratio, and the layouts that were chosen."""

    written_s: float
    sailor_s: float
    explorer_s: float
    sailor: Candidate
    explorer: Candidate

    @property
    def over_written(self) -> float:
        """How many times as fast as the plan that is written the explorer's is."""
        return self.written_s / self.explorer_s

    @property
    def over_sailor(self) -> float:
        """How many times as fast as Sailor's."""
        return self.sailor_s / self.explorer_s

    @property
    def sailor_over_written(self) -> float:
        """How many times as fast as the plan that is written Sailor's is."""
        return self.written_s / self.sailor_s


SPACE = Space(recompute=("none",))
"""What the explorer and Sailor choose from, where nothing else is said."""


def plans(scenario: Path, case: Mapping[str, Any], space: Space = SPACE) -> Plans:
    """The three plans of the scenario's first job, with the overrides of `case`, run as flows."""
    source = read_source(scenario)
    job = read_job(source, [(key, override_text(value)) for key, value in case.items()])
    found = search(job, space, Settings())
    baseline = found.sailor()
    if baseline is None:
        raise ValueError(f"{scenario}: Sailor has no layout that fits")
    best = [candidate for candidate, _ in found.rows[:PROVEN]]

    def asked(candidate: Candidate) -> Asked:
        return Asked(scenario, {**case, **candidate.values("jobs[0]", job.own["parallelism"])})

    ran = run_all([Asked(scenario, case), asked(baseline[0]), *map(asked, best)])
    written, theirs, *ours = [float(one.summary["jobs"][0]["iteration_time_s"]["mean"]) for one in ran]
    fastest = min(range(len(ours)), key=ours.__getitem__)
    return Plans(written, theirs, ours[fastest], baseline[0], best[fastest])


def table(by_ratio: Mapping[float, Plans]) -> pl.DataFrame:
    """A row a ratio."""
    return pl.DataFrame([
        {
            "ratio": ratio, "written_s": one.written_s, "sailor_s": one.sailor_s, "explorer_s": one.explorer_s,
            "sailor": _said(one.sailor), "explorer": _said(one.explorer),
        }
        for ratio, one in by_ratio.items()
    ])  # fmt: skip


def _said(candidate: Candidate) -> str:
    sizes = "-".join(str(getattr(candidate, key)) for key in ("tp", "cp", "ep", "pp", "dp"))
    chunks = f" {candidate.chunks}" if candidate.chunks > 1 else ""
    return f"{sizes} zero {candidate.zero} {candidate.order} {candidate.schedule}{chunks}"


def compared(scenario: Path, case: Mapping[str, Any], nics: int, cables: Sequence[int]) -> dict[str, Any]:
    """The three plans by the number of cables between the buildings, each of which has `nics`.

    Figures at the last number of cables, the least over all of them, and Sailor's over the plan as written at 1:4.
    """
    found = {nics / count: plans(scenario, {**case, "topology.cross[0].count": count}) for count in cables}
    last = found[nics / cables[-1]]
    return {
        "plans": table(found),
        "over_production": last.over_written,
        "sailor_over_production": last.sailor_over_written,
        "over_sailor": last.over_sailor,
        "pp_out": last.explorer.pp > 1 and last.explorer.order == "pp-out",
        "least_over_production": min(one.over_written for one in found.values()),
        "least_over_sailor": min(one.over_sailor for one in found.values()),
        "sailor_at_4": found[4].sailor_over_written,
    }


def draw_plans(by_ratio: pl.DataFrame, axes: Axes) -> None:
    """Speed over that of the plan as written, by the ratio."""
    for name, label in (("sailor_s", "Sailor"), ("explorer_s", "explorer")):
        axes.plot(by_ratio["ratio"], by_ratio["written_s"] / by_ratio[name], marker="o", label=label)
    axes.axhline(1, color="#888888", linewidth=0.8)
    axes.set(
        xlabel="oversubscription between the buildings, 1 to", ylabel="speed over the plan as written", ylim=(0, None)
    )
    axes.set_xscale("log", base=2)
    axes.legend(frameon=False)


def draw_orders(times: pl.DataFrame, x: str, y: str, axes: Axes) -> None:
    """A line for pipelines outermost and one for replicas: column `y` over column `x`."""
    for outermost, colour in (("PP-out", "#4c78a8"), ("DP-out", "#e45756")):
        part = times.filter(pl.col("outermost") == outermost).sort(x)
        axes.plot(part[x], part[y], color=colour, marker="o", label=outermost)
    axes.legend(frameon=False)
