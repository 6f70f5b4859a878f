"""Long iterations from two short ones.

Once a pipeline is full, every further round of micro-batches takes the same time: the time of an iteration is affine in
the number of rounds. An iteration of more than `ROUNDS[-1]` rounds of pp micro-batches is therefore run with two and
with three rounds, and the difference stands for each of the others.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ROUNDS = (2, 3)
"""Rounds of the two short iterations."""


def shortened(scenario: Mapping[str, Any]) -> list[tuple[dict[str, Any], float]]:
    """The scenarios to run for `scenario`, each with its time's weight in the whole; one of weight 1 if it is short."""
    job = scenario["jobs"][0]
    layout, workload = job["parallelism"], job["workload"]
    replicas = int(layout.get("dp", 1)) * int(layout.get("ep", 1))
    one = int(workload.get("micro_batch", 1)) * replicas * int(layout.get("pp", 1))
    rounds = int(workload["global_batch"]) / one
    if rounds <= ROUNDS[-1] or layout.get("reduce") == "every":
        return [(dict(scenario), 1.0)]
    first, second = ROUNDS
    further = (rounds - first) / (second - first)
    return [(_with(scenario, first * one), 1.0 - further), (_with(scenario, second * one), further)]


def _with(scenario: Mapping[str, Any], batch: int) -> dict[str, Any]:
    short = copy.deepcopy(dict(scenario))
    short["jobs"][0]["workload"]["global_batch"] = batch
    return short
