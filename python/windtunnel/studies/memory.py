"""How many runs fit beside each other, by memory.

A run's need is estimated from its scenario, as so many bytes a GPU of its topology, and learnt from the runs that
ended or that were seen to grow: the ratio of need to estimate is the largest that was seen. Runs are admitted while
their needs fit together. An estimate may be wrong; then the youngest run gives way before memory is out, and its need
is known better when its turn comes again.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel import engine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windtunnel.studies.point import Point

SHARE = 0.8
"""Part of the free memory that runs may take together."""

RESERVE = 0.08
"""Part of the machine's memory below which the free part must not fall: then the youngest runs give way."""

INTERPRETER = 110 * 2**20
"""Resident bytes of a worker beside its engine: Python, polars, numpy."""

FLOOR = 32 * 2**20
"""Bytes of an engine's run of any size, before anything is known."""

PER_GPU = 160 * 2**10
"""Bytes that a GPU takes, before anything is known. Llama 3 405B on 16,384 GPUs at flow fidelity: 135 KiB each."""


def available_bytes() -> int:
    """Memory that may be taken without swapping: the kernel's estimate, or what the control group leaves if less."""
    found = [_of_system("MemAvailable:")]
    limit, used = (_number(Path("/sys/fs/cgroup") / name) for name in ("memory.max", "memory.current"))
    if limit is not None and used is not None:
        found.append(limit - used + (_reclaimable() or 0))
    known = [value for value in found if value is not None]
    return max(0, min(known)) if known else 2**63


def total_bytes() -> int:
    """Memory of the machine, or of its control group if less."""
    found = [_of_system("MemTotal:"), _number(Path("/sys/fs/cgroup/memory.max"))]
    known = [value for value in found if value is not None]
    return min(known) if known else 2**63


def resident_bytes(pid: int) -> int:
    """What a process has in memory; 0 where the system does not say."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * 4096


def _of_system(name: str) -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)


def _reclaimable() -> int | None:
    """Of a control group's use, files in memory that can be dropped."""
    try:
        lines = Path("/sys/fs/cgroup/memory.stat").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), None)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def estimate(point: Point) -> int:
    """Bytes that the engine may need for `point`: only the ratio between points matters once a run has ended."""
    hosts, gpus = _size(point.source.text, tuple(pair for pair in point.overrides if pair[0].startswith("topology")))
    return FLOOR + PER_GPU * hosts * gpus


@lru_cache(maxsize=4096)
def _size(text: str, overrides: tuple[tuple[str, str], ...]) -> tuple[int, int]:
    """Hosts and GPUs of a host, as far as the text says."""
    keys = {"topology.hosts", "topology.host.gpus"}
    if overrides and all(re.fullmatch(r"\d+", value) for key, value in overrides if key in keys):
        simple = dict(overrides)
        if all(key in keys or key.startswith("topology.tiers") for key in simple):
            hosts, gpus = _size(text, ())
            return int(simple.get("topology.hosts", hosts)), int(simple.get("topology.host.gpus", gpus))
    try:
        tree: Any = json.loads(engine.scenario_tree(text, "scenario", list(overrides)))
    except engine.InputError:
        return 1, 1
    topology = tree.get("topology") if isinstance(tree, dict) else None
    topology = topology if isinstance(topology, dict) else {}
    host = topology.get("host")
    return _count(topology.get("hosts")), _count(host.get("gpus") if isinstance(host, dict) else None)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**32 else 1


class Room:
    """Whether a further run fits. `budget` is what all may take together; of what is free, `SHARE`, if None."""

    def __init__(self, most: int, budget: int | None = None) -> None:
        self.most = most
        self.budget = int(SHARE * available_bytes()) if budget is None else budget
        self.ratio = 1.0
        self.learnt = False

    def learn(self, estimated: int, engine_bytes: int) -> None:
        """A run took so many bytes of the engine's at its peak, or has them now."""
        seen = engine_bytes / estimated
        self.ratio = max(self.ratio, seen) if self.learnt else max(seen, 0.0)
        self.learnt = True

    def grow(self, estimated: int, engine_bytes: int) -> None:
        """A run that has not ended has so many bytes: it needs no less."""
        self.ratio = max(self.ratio, engine_bytes / estimated)

    def need(self, estimated: int) -> int:
        """Bytes that a run takes with its process."""
        return INTERPRETER + int(self.ratio * estimated)

    def fits(self, estimated: int, beside: Iterable[int]) -> bool:
        """Whether a run of this estimate fits beside those of the others. Alone, every run does."""
        others = list(beside)
        if not others:
            return True
        return len(others) < self.most and self.need(estimated) + sum(map(self.need, others)) <= self.budget
