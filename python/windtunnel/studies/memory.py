"""How many runs fit beside each other."""

from __future__ import annotations

from pathlib import Path

SHARE = 0.8
"""Part of the free memory that runs may take together."""

INTERPRETER = 150 * 2**20
"""Resident bytes of a worker beside its engine: Python, polars, numpy."""


def available_bytes() -> int:
    """Memory that may be taken without swapping: the kernel's estimate, or what the control group leaves if less."""
    info = Path("/proc/meminfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    limit, used = (_number(Path("/sys/fs/cgroup") / name) for name in ("memory.max", "memory.current"))
    if limit is not None and used is not None:
        found.append(limit - used)
    return max(0, min(found)) if found else 2**63


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


class Room:
    """How many runs may go at once, learnt from those that ended.

    The first run goes alone; then as many as fit if each takes what the largest so far took.
    """

    def __init__(self, most: int, available: int | None = None) -> None:
        self.most = most
        self._available = SHARE * (available_bytes() if available is None else available)
        self.largest = 0

    def learn(self, engine_bytes: int) -> None:
        """A run took so many bytes of the engine's at its peak."""
        self.largest = max(self.largest, engine_bytes)

    def at_once(self) -> int:
        """Runs that may go at once, 1 or more."""
        if self.largest == 0:
            return 1
        return max(1, min(self.most, int(self._available / (self.largest + INTERPRETER))))
