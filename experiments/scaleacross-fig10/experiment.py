"""Iteration times of mixtures of experts and a dense model over two buildings, PP 2, by the cables between them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.experiments.cuts import draw_rises, rises

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

SCENARIO = Path(__file__).resolve().parents[1] / "scaleacross-fig9" / "scenario.yaml"
# Of a fixed batch of 1,024 two micro-batches a pipeline are left; a layer a chunk makes 32 chunks of each. Gathers
# and reductions are rings, of which the paper speaks; the rule by size would take parallel trees (PAT) for small ones.
PP_2 = {
    "jobs[0].parallelism.pp": 2,
    "jobs[0].parallelism.schedule": {"name": "dorapp", "chunks": 32},
    "jobs[0].parallelism.collectives.dp": {"algorithm": "ring"},
}
MODELS = {
    "dense": {
        **PP_2, "jobs[0].workload.model": "dense.json", "jobs[0].parallelism.ep": 1, "jobs[0].parallelism.dp": 512,
    },
    "moe-16": {**PP_2, "jobs[0].workload.model": "moe-16.json", "jobs[0].parallelism.dp": 64},
    "moe-128": {**PP_2, "jobs[0].parallelism.dp": 64},
}  # fmt: skip


RINGS = (
    "of a ring over 64 replicas one edge leaves each building, so 16 rings never fill 32 cables; with 8 replicas on "
    "an eighth of the GPUs DP-out takes 3.53 times as long at 1:16 as at 1:4, PP-out 1.08 times"
)
HOPS = (
    "a ring's edges inside a building do not wait for the two that leave it: 63 steps take two long cables' time, so "
    "1000 us cost DP-out 2%, 1% and 8%, and PP-out, whose 32 chunks cross one by one in a pipeline that two "
    "micro-batches hardly fill, 25%, 12% and -1%. Where every step waits as for the longest way (`tuner: nccl` of "
    "today) the dense model takes 15 times as long under DP-out"
)
WHY = {
    "ratio_moe-128_DP-out": RINGS,
    "ratio_dp_128_over_dense": RINGS,
    "ratio_moe-128_pp_over_dp": RINGS,
    "latency_least": "with 128 experts gathers and reductions inside a building set PP-out's pace, and it takes 0.9% "
    "less at 1000 us; with one replica, so without them, 1000 us cost it 7.6%",
    "latency_dp_over_pp": HOPS,
}
"""By figure observed: why a claim on it does not hold."""


def observe(_: Results) -> dict[str, Any]:
    """Times by case, and how they rise."""
    return rises(SCENARIO, MODELS)


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Iteration time over that at the default ratio, as figure 10a."""
    draw_rises(observed["iterations"], axes)
