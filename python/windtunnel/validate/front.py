"""The table of README.md: what the board says of the tables that a newcomer asks for, never behind it."""

from __future__ import annotations

import re

BEGIN, END = "<!-- front: made by `windtunnel validate --write` -->", "<!-- /front -->"

SHOWN = (
    ("vtrain-single", "vTrain: iterations on one host of A100"),
    ("vtrain-multi", "vTrain: on several"),
    ("megatron-sc21", "Megatron-LM SC'21, 32 to 3,072 A100"),
    ("mosaic-mpt", "MosaicML's MPT, 8 to 512 A100 and H100"),
    ("torchtitan", "torchtitan, H100"),
    ("ultrascale", "Ultra-Scale Playbook: layouts on 8 to 256 H100"),
    ("dgxc", "NVIDIA DGX Cloud, H100 to 2,048 GPUs"),
    ("megatron-bridge", "Megatron-Bridge, H100 to GB300"),
    ("mlperf", "MLPerf Training v4.0 to v5.1"),
    ("nccl-tests", "nccl-tests, as operators published them, without the scale predicted"),
    ("nccl-systems", "nccl-tests, without the machine predicted"),
    ("vidur-network", "Vidur's collectives on A40, A100 and H100"),
    ("pico", "PICO: MPI collectives on Leonardo, LUMI, MareNostrum 5, Fugaku"),
    ("m4", "m4's testbed: RDMA reads, flow by flow"),
    ("aic-gemm", "matrix products of A100 to GB300, blocks of shapes left out"),
    ("traces", "recorded programs, replayed"),
)
"""Tables in the order of the page, and what each holds."""


def rows_of_page(page: str) -> dict[str, tuple[int, str, str]]:
    """The rows, median and 95th percentile that the page's board states, by table."""
    pattern = re.compile(r"^\| `([a-z0-9-]+)` \| (\d+) \| ([^|]+) \| ([^|]+) \|", re.MULTILINE)
    found: dict[str, tuple[int, str, str]] = {}
    for m in pattern.finditer(page):
        found.setdefault(m[1], (int(m[2]), m[3].strip(), m[4].strip()))
    return found


def block(page: str) -> str:
    """The table for README.md, of a docs/validation.md with a board."""
    stated = rows_of_page(page)
    lines = ["| measured | rows | median | p95 |", "|---|---:|---:|---:|"]
    for name, what in SHOWN:
        if name in stated:
            rows, median, p95 = stated[name]
            lines.append(f"| {what} (`{name}`) | {rows:,} | {median} | {p95} |")
    return "\n".join(lines)


def renewed(readme: str, page: str) -> str:
    """`readme` with the table of `page` between its marks; as it is where the marks are not both there."""
    begin, end = readme.find(BEGIN), readme.find(END)
    if begin < 0 or end < begin:
        return readme
    return f"{readme[:begin]}{BEGIN}\n{block(page)}\n{readme[end:]}"
