"""Jobs over several buildings as the cables between these change: their share of bandwidth, their length.

Every pair of buildings has as many cables. What a building's NICs can send over what its cables to all others carry is
the *ratio*; it is set by the rate of the cables, so that what crosses them is spread over as many.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from windtunnel.experiments.runs import Asked, run_all
from windtunnel.experiments.spec import parse_yaml
from windtunnel.source import read_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from pathlib import Path
    from typing import TypeVar

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


def outermost(name: str) -> dict[str, Any]:
    """The override that makes pipelines (`PP-out`) or replicas (`DP-out`) of the first job outermost."""
    return {"jobs[0].parallelism.order": ORDERS[name]}
