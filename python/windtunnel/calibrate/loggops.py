"""Parameters of LogGOPS from ping-pongs of two ranks, as Netgauge takes them.

`tracers/examples/loggops.c` measures round trips PRTT(n, d, s): rank 0 sends n messages of s bytes with a delay d between
them, rank 1 answers the last with one of s bytes. With LogGOPS (Hoefler et al., "Low-Overhead LogGP Parameter Assessment
for Modern Interconnection Networks", IPDPS 2007, section 3):

* PRTT(1, 0, s) = 2 (L + 2 o(s) + (s - 1) G), with o(s) = o + (s - 1) O;
* (PRTT(n, 0, s) - PRTT(1, 0, s)) / (n - 1) = max(o(s), g + (s - 1) G);
* (PRTT(n, d, s) - PRTT(1, 0, s)) / (n - 1) - d = o(s), where d is longer than a round trip.

S, the largest message that is sent eagerly, is the size at which o(s) leaps: beyond it a send waits for its receiver. All
parameters come from messages up to S but G, which is that of all sizes. Each fit is of least relative residuals, in which what lies far
away from the rest hardly counts (Huber).
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.engine import InputError
from windtunnel.source import read_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COLUMNS = ("messages", "bytes", "delay_ns", "min_ns", "median_ns")
LEAP = 2.5
"""How much longer than the line through the sizes before it o(s) is at the first size that is not eager."""
WAITS = 0.5
"""A send that waits for its receiver takes at least this share of half a round trip."""
ROUNDS = 20
FEWEST = 4
"""Sizes without which nothing is fitted."""


@dataclass(frozen=True)
class LogGops:
    """Times in ns, G and O in ns a byte, S in bytes; `eager_seen` is whether a leap told S."""

    L: float
    o: float
    g: float
    G: float
    O: float  # noqa: E741
    S: int
    eager_seen: bool
    residuals: Sequence[tuple[int, float, float]]
    """Bytes, measured and fitted half round trip in ns."""

    def half_round_trip(self, size: int) -> float:
        """ns from the send of `size` bytes to the end of its receive."""
        return self.L + 2 * (self.o + (size - 1) * self.O) + (size - 1) * self.G


def read(path: Path, statistic: str) -> dict[tuple[bool, bool], dict[int, tuple[int, float, float]]]:
    """Measurements by (several messages, with a delay) and bytes: messages, delay and round trip in ns.

    Raises:
        InputError: the file is no such table, or a number in it is none.
    """
    rows = csv.reader(io.StringIO(read_text(path)))
    header = next(rows, [])
    if tuple(header) != COLUMNS:
        raise InputError(
            f"{path}:1: expected the columns `{','.join(COLUMNS)}`, found `{','.join(header)[:80]}`\n\n"
            "hint: `mpirun -n 2 loggops > pingpong.csv` writes it (tracers/examples/loggops.c)"
        )
    column = COLUMNS.index(f"{statistic}_ns")
    found: dict[tuple[bool, bool], dict[int, tuple[int, float, float]]] = {}
    for line, row in enumerate(rows, start=2):
        try:
            messages, size = int(row[0]), int(row[1])
            delay, took = float(row[2]), float(row[column])
        except (ValueError, IndexError):
            raise InputError(f"{path}:{line}: expected five numbers, found `{','.join(row)[:80]}`") from None
        if messages < 1 or size < 1 or delay < 0 or not 0 < took < 1e15:  # noqa: PLR2004 (eleven days)
            raise InputError(f"{path}:{line}: expected messages, bytes and times above 0, found `{','.join(row)[:80]}`")
        found.setdefault((messages > 1, delay > 0), {})[size] = (messages, delay, took)
    return found


def _line(sizes: np.ndarray, times: np.ndarray) -> tuple[float, float]:
    """Value at one byte and slope, neither below 0, of least relative squares."""
    from scipy.optimize import nnls

    design = np.stack([np.ones_like(sizes, dtype=float), sizes - 1.0], axis=1)
    scale = 1 / np.maximum(times, 1e-3)
    weights = np.ones_like(times)
    for _ in range(ROUNDS):
        solved, _rest = nnls(design * (weights * scale)[:, None], times * weights * scale)
        away = np.abs(design @ solved * scale - 1)
        # What other programs disturbed lies far away from the rest, and hardly counts.
        weights = np.sqrt(np.minimum(1.0, 1.5 * max(float(np.median(away)), 1e-6) / np.maximum(away, 1e-9)))
    return float(solved[0]), float(solved[1])


def fit(path: Path, statistic: str = "min") -> LogGops:
    """Fits the parameters on a table of ping-pongs, by the least or the median round trip.

    Raises:
        InputError: measurements are missing.
    """
    table = read(path, statistic)
    ones, bursts, spaced = (table.get(key, {}) for key in ((False, False), (True, False), (True, True)))
    sizes = sorted(set(ones) & set(bursts) & set(spaced))
    if len(sizes) < FEWEST:
        raise InputError(
            f"{path}: expected one message, several, and several with a delay of at least {FEWEST} sizes, "
            f"found {len(sizes)} sizes that have all three"
        )
    at = np.array(sizes, dtype=float)
    one = np.array([ones[size][2] for size in sizes])
    gap = np.array([(bursts[size][2] - ones[size][2]) / (bursts[size][0] - 1) for size in sizes])
    own = np.array([(spaced[size][2] - ones[size][2]) / (spaced[size][0] - 1) - spaced[size][1] for size in sizes])
    gap, own = np.maximum(gap, 1.0), np.maximum(own, 1.0)
    eager = _eager(at, own, one / 2)
    overhead, per_byte = _line(at[:eager], own[:eager])
    per_gap, slope = _line(at, gap)
    # One message has no gap before it: what is left of the shortest ones is latency.
    left = one[:eager] / 2 - 2 * (overhead + (at[:eager] - 1) * per_byte) - (at[:eager] - 1) * slope
    latency = max(float(np.median(left[: max(FEWEST, eager // 2)])), 0.0)
    found = LogGops(
        L=latency,
        o=overhead,
        g=per_gap,
        G=slope,
        O=per_byte,
        S=int(at[eager - 1]),
        eager_seen=eager < len(sizes),
        residuals=[],
    )
    rows = [(size, float(time) / 2, found.half_round_trip(size)) for size, time in zip(sizes, one, strict=True)]
    return replace(found, residuals=rows)


def _eager(sizes: np.ndarray, own: np.ndarray, half: np.ndarray) -> int:
    """How many sizes are eager: all before the first leap of o(s) after which it stays high."""
    for split in range(FEWEST, len(sizes)):
        start, slope = _line(sizes[:split], own[:split])
        expected = start + slope * (sizes[split:] - 1)
        later = slice(split, split + 3)
        if bool(np.all((own[later] > LEAP * expected[:3]) & (own[later] > WAITS * half[later]))):
            return split
    return len(sizes)


def record(found: LogGops) -> dict[str, Any]:
    """What `network.loggops` of a scenario takes."""
    return {
        "L": f"{found.L:.0f} ns",
        "o": f"{found.o:.0f} ns",
        "g": f"{found.g:.0f} ns",
        "G": float(f"{found.G:.5g}"),
        "O": float(f"{found.O:.5g}"),
        "S": f"{found.S} B",
    }


def text_of(found: LogGops, source: str) -> str:
    """A piece of a scenario, with where its figures come from."""
    errors = [abs(fitted / measured - 1) for _, measured, fitted in found.residuals]
    lines = [
        f"# Fitted by `windtunnel calibrate loggops` on {len(errors)} sizes of {source}: half a round trip is off by",
        f"# {np.median(errors):.1%} in the median, {max(errors):.1%} at most.",
        "network:",
        "  loggops:",
    ]
    return "\n".join([*lines, *(f"    {key}: {value}" for key, value in record(found).items())]) + "\n"
