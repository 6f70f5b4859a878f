"""How far off the board may be: the median and 95th percentile of the error that each kind of prediction is held to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from windtunnel.text import UNKNOWN, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windtunnel.validate.board import Board


class Target(NamedTuple):
    """What a table, or the rows of a group of it, is held to."""

    table: str
    group: tuple[str, str] | None
    median: float
    p95: float
    systems: str | None = None
    """Also each system by itself: the key of groups named `SYSTEM, GROUP`, or of any name where there is no group."""


TARGETS = (
    Target("vtrain-single", None, 0.05, 0.15),
    Target("vtrain-multi", None, 0.05, 0.20),
    Target("megatron-sc21", None, 0.08, 0.20),
    Target("korthikanti", None, 0.08, 0.20),
    Target("zero-bubble", None, 0.10, 0.25),
    Target("torchtitan", None, 0.12, 0.30),
    Target("megatron-bridge", ("kind", "dense"), 0.06, 0.15),
    Target("megatron-bridge", ("kind", "MoE"), 0.11, 0.30),
    Target("megatron-bridge", ("kind", "other chips and FP4"), 0.12, 0.35),
    Target("sailor", None, 0.18, 0.45),
    Target("mlperf", None, 0.20, 0.45),
    Target("mosaic-mpt", None, 0.10, 0.25),
    Target("dgxc", None, 0.07, 0.15),
    Target("ultrascale", None, 0.10, 0.30),
    Target("marin", None, 0.15, 0.40),
    Target("memory", None, 0.10, 0.25),
    Target("m4", ("load", "unloaded"), 0.05, 1.0),
    Target("m4", ("load", "loaded"), 0.15, 1.0),
    Target("nccl-tests", ("size", ">= 1 MiB"), 0.12, 0.40, "system, size"),
    Target("nccl-tests", ("size", "< 1 MiB"), 0.20, 0.60, "system, size"),
    Target("nccl-scale", None, 0.18, 0.50),
    Target("nccl-systems", None, 0.20, 0.60),
    Target("vidur-network", None, 0.12, 0.40),
    Target("aic-gemm", None, 0.10, 0.30, "GPU, format"),
    Target("aic-attention", None, 0.12, 0.30, "GPU, format"),
    Target("aic-moe", None, 0.15, 0.30, "GPU, format"),
    Target("pico", ("shown", "together"), 0.20, 0.60),
)

HEAD = "| table | rows of | median error | wanted | 95th percentile | wanted | |\n|---|---|---:|---:|---:|---:|---|"


def lines(board: Board) -> Iterator[str]:
    """A line of Markdown for each target whose rows are on the board."""
    scores = {score.name: score for score in board.scores}
    for target in TARGETS:
        score = scores.get(target.table)
        if score is None:
            continue
        groups = score.groups()
        rows = [("all", score.figures.record())]
        if target.group is not None:
            key, value = target.group
            rows = [(value, group) for group in groups if group["by"] == {key: value}]
            ends = f", {value}"
            of = [(group["by"].get(target.systems, ""), group) for group in groups]
            rows += [(name, group) for name, group in of if name.endswith(ends)]
        elif target.systems is not None:
            rows += [(group["by"][target.systems], group) for group in groups if target.systems in group["by"]]
        for name, found in rows:
            median, p95 = found["median_abs_error"], found["p95_abs_error"]
            held = median is not None and median <= target.median and p95 <= target.p95
            met = f"{len(score.failed)} rows could not be run" if score.failed else "" if held else "missed"
            if median is None and not score.failed:
                met = UNKNOWN
            yield (
                f"| `{target.table}` | {name} | {percent(median)} | {percent(target.median)} | {percent(p95)} | "
                f"{percent(target.p95)} | {met} |"
            )
