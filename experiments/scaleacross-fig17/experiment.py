"""Times of Send-Recv and AllReduce between two clusters, by size and distance."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.experiments.runs import Asked, run_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

HERE = Path(__file__).resolve().parent
KM = (1, 10, 100, 300, 1000)
BYTES = {"1 KB": 1e3, "1 MB": 1e6, "16 MB": 16e6, "256 MB": 256e6, "2 GB": 2e9}
LARGEST = "2 GB"
LINE = 400e9
"""Bits a second of a NIC."""
PS_PER_KM = 5e6
OPERATIONS = {
    "Send-Recv": (HERE / "send-recv.yaml", "jobs[0].workload.flows.bytes", 1),
    "AllReduce": (HERE / "all-reduce.yaml", "jobs[0].workload.collective.bytes", 8),
}
"""Scenario, the key of its size, and NICs of a cluster that it may use."""

WHY = {
    "all_reduce_2gb_linear": "the paper puts its curve, which is not even monotonic, down to buffers and channels that "
    "were tuned by hand beyond 100 km; at flow fidelity a collective has as much in flight as its links hold",
}
"""By figure observed: why a claim on it does not hold."""


def observe(_: Results) -> dict[str, Any]:
    """Times by operation, size and distance; straight lines through them; throughput behind limited buffers."""
    asked = [
        (operation, size, km, Asked(file, {"topology.cross[0].length": f"{km} km", key: size}))
        for operation, (file, key, _) in OPERATIONS.items()
        for size in BYTES
        for km in KM
    ]
    file, key, _ = OPERATIONS["Send-Recv"]
    far = {"topology.cross[0].length": "100 km", key: "256 MB", "network.window": "4 MiB"}
    limited = [Asked(file, {**far, "network.queue_pairs": count}, fidelity="packet") for count in (1, 8)]
    times = [
        float(one.summary["jobs"][0]["iteration_time_s"]["mean"])
        for one in run_all([*(one for *_, one in asked), *limited])
    ]
    rows = [
        (operation, size, km, time, BYTES[size] * 8 / time / OPERATIONS[operation][2] / LINE)
        for (operation, size, km, _), time in zip(asked, times, strict=False)
    ]
    table = pl.DataFrame(rows, schema=["operation", "size", "km", "time_s", "share of line rate"], orient="row")
    lines = {
        (operation, size): _line(part["km"].to_list(), part["time_s"].to_list())
        for (operation, size), part in table.group_by("operation", "size", maintain_order=True)
    }
    share = {(operation, size, km): value for operation, size, km, _, value in rows}
    bound = [time * 1e12 / (PS_PER_KM * km) for _, _, km, time, _ in rows]
    one, eight = times[-2:]
    return {
        "times": table,
        "send_recv_linear": min(fit for (name, _), (_, fit) in lines.items() if name == "Send-Recv"),
        "send_recv_us_per_km": max((slope for (name, _), (slope, _) in lines.items() if name == "Send-Recv")) * 1e6,
        "all_reduce_linear": min(
            fit for (name, size), (_, fit) in lines.items() if name == "AllReduce" and size != LARGEST
        ),
        "all_reduce_us_per_km": min(slope for (name, _), (slope, _) in lines.items() if name == "AllReduce") * 1e6,
        "all_reduce_2gb_linear": lines["AllReduce", LARGEST][1],
        "most_over_bound": 1 / min(bound),
        "share_rises_with_size": all(_rises([share[name, size, KM[-1]] for size in BYTES]) for name in OPERATIONS),
        "send_recv_over_all_reduce": min(
            share["Send-Recv", size, km] / share["AllReduce", size, km] for size in BYTES for km in KM
        ),
        "one_buffer_gbps_100km": BYTES["256 MB"] * 8 / one / 1e9,
        "eight_over_one_100km": one / eight,
    }


def _rises(values: Sequence[float]) -> bool:
    return all(a < b for a, b in pairwise(values))


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope of the straight line of least squares, and R²."""
    n = len(x)
    mean_x, mean_y = sum(x) / n, sum(y) / n
    xx = sum((a - mean_x) ** 2 for a in x)
    xy = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    yy = sum((b - mean_y) ** 2 for b in y)
    return xy / xx, xy * xy / (xx * yy)


def draw(_: Results, observed: Mapping[str, Any], axes: Axes) -> None:
    """Completion time over distance."""
    table: pl.DataFrame = observed["times"]
    colours = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2")
    for size, colour in zip(BYTES, colours, strict=True):
        for operation, line in (("Send-Recv", "-"), ("AllReduce", "--")):
            part = table.filter(pl.col("operation") == operation, pl.col("size") == size).sort("km")
            axes.plot(part["km"], part["time_s"], line, color=colour, marker="o", label=f"{operation}, {size}")
    axes.set(xlabel="distance (km)", ylabel="completion time (s)", xscale="log", yscale="log")
    axes.legend(frameon=False, fontsize="small")
