"""Constants of NCCL's model: pools of kindred systems, and a system's own close to its pool.

A system's *kin* are the systems of its generation of GPUs and of its network. A *pool* is one set of constants for all
rows of all systems, in which kin count most; its middle are NCCL's own constants. A system's constants are fitted on all
its scales, with the pool of all *other* machines as the middle (`fit.settle`): what its rows leave open stays as its kin
have it. There are no constants for a size or a scale.

How good they are is judged on what no constant has seen: `without_scale` fits a system without one number of ranks on
hosts, `without_system` has nothing of a machine at all. Both are written beside the constants, and the board predicts
every row by them (`nccl-tests`, `nccl-systems`).
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.calibrate.fit import settle
from windtunnel.engine import InputError
from windtunnel.validate.collectives import OTHERS, TIMES, Asked, generation, kind_of_network, limits, machine
from windtunnel.validate.quantities import written
from windtunnel.validate.rows import Table
from windtunnel.validate.tables import nccl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from windtunnel.validate.systems import System

PROTOCOLS = ("LL", "LL128", "Simple")
PRIORS: dict[str, float | tuple[float, float, float]] = {
    "launch": 6.6e-6, "issue": 3e-6, "channel": 0.2e-6,
    "base": (1e-9, 7.4e-6, 1.8e-6), "hop_scale_up": (0.6e-6, 1.9e-6, 3.4e-6),
    "hop_tree": (5e-6, 8.5e-6, 14e-6), "hop_ring": (2.7e-6, 4e-6, 14e-6), "rendezvous": 5e-6,
    "answer": 10e-6, "handshake": 10e-6,
    "copy_launch": 7e-6,
    "share_scale_up": (0.25, 0.92, 0.96), "share_network": (0.25, 0.85, 0.92), "share_short": 0.2,
    "share_sums": 0.85, "base_sums": 25e-6,
    "exchange": 21.6e-6, "peer_scale_up": 1e-6, "peer_network": 2e-6, "peer_inject": 5e-6,
    "exchange_scale_up": 0.93, "exchange_network": 0.92, "exchange_single": 0.85,
    "exchange_long": 0.85, "slow_leaf": 10e9, "sustained": 1e9,
    "crowd": (0.05, 0.05, 0.15), "proxy": 0.3e-6, "peer_channels": 0.45,
}  # fmt: skip
"""NCCL's own constants (seconds, shares, bytes; LL, LL128, Simple), and inferred ones for what it has none of."""
OF_ONE_MACHINE = frozenset({"slow_leaf", "sustained", "copy_launch"})
"""Constants of a machine or a setting that few have: no pool is asked for them."""
NEGLIGIBLE = 0.02
"""A constant that changes no row by this share when it grows by half is not asked for."""
OVER = 1.2
"""No share is above this: sheets are rounded."""
POOL_BELIEF = 3.0
"""How strongly a pool holds to NCCL's constants: as so many rows would that are off by as much."""
SYSTEM_BELIEF = 3.0
"""How strongly a system's constants hold to those of its pool."""
KIN = {2: 1.0, 1: 0.3, 0: 0.05}
"""What a system counts in a pool by how much it has in common: generation of GPUs and network, one of them, none."""
EACH = 300.0
"""A system of more rows counts like one of so many in a pool."""


@dataclass
class Rows:
    """What is fitted: questions, seconds, weights, scales; a question that was measured often once, with its median."""

    asked: list[dict[str, Any]] = field(default_factory=list)
    measured: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    scales: list[str] = field(default_factory=list)
    count: int = 0
    """Measured rows."""

    def only(self, kept: Iterable[bool]) -> Rows:
        """The rows that are `kept`."""
        found = Rows()
        for keep, *row in zip(kept, self.asked, self.measured, self.weights, self.scales, strict=True):
            if keep:
                found.asked.append(row[0])
                found.measured.append(row[1])
                found.weights.append(row[2])
                found.scales.append(row[3])
        found.count = self.count * len(found.asked) // max(1, len(self.asked))
        return found


def rows_of(data: Path, systems: Mapping[str, System]) -> dict[str, Rows]:
    """The rows of every system that has some, by name."""
    folder = data / "collectives"
    if not (folder / "nccl_tests_runs.csv").is_file():
        raise InputError(f"no rows of nccl-tests in {data}\n\nhint: `--data` names a folder with measured tables")
    asked: dict[tuple[str, str], dict[str, Any]] = {}
    measured: dict[tuple[str, str], list[float]] = defaultdict(list)
    kinds: dict[tuple[str, str], tuple[object, ...]] = {}
    counts: Counter[str] = Counter()
    for point in nccl.points(folder, systems, Table("calibrate")):
        run = point.run
        if isinstance(run.system, str):
            continue
        question = nccl.asked_of(run.system, run, point.size)["collective"]
        question.pop("constants")
        key = (run.system.name, repr(question))
        asked[key] = question
        measured[key] += point.measured
        kinds[key] = (run.system.name, run.operation, run.ranks, point.size)
        counts[run.system.name] += 1
    alike = Counter(kinds.values())
    found: dict[str, Rows] = defaultdict(Rows)
    for key, question in asked.items():
        rows = found[key[0]]
        rows.asked.append(question)
        rows.measured.append(statistics.median(measured[key]))
        rows.weights.append(1.0 / alike[kinds[key]])
        rows.scales.append(nccl.scale_of(kinds[key][2]))  # type: ignore[arg-type]
    for name, rows in found.items():
        rows.count = counts[name]
    return dict(found)


def names() -> list[str]:
    """Every constant; of three by protocol as `name.0` to `name.2`."""
    return [
        f"{name}.{i}" if isinstance(value, tuple) else name
        for name, value in PRIORS.items()
        for i in (range(3) if isinstance(value, tuple) else (0,))
    ]


def flat(constants: Mapping[str, Any]) -> dict[str, float]:
    """Constants by the names of `names`."""
    return {
        (f"{name}.{i}" if isinstance(value, list | tuple) else name): part
        for name, value in constants.items()
        for i, part in enumerate(value if isinstance(value, list | tuple) else [value])
    }


def whole(values: Mapping[str, float], fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Constants as the engine takes them: NCCL's own, `values`, and what a system's file states."""
    found: dict[str, Any] = {n: list(v) if isinstance(v, tuple) else v for n, v in PRIORS.items()}
    for name, value in values.items():
        base, _, at = name.partition(".")
        held = value if base in TIMES or base in OTHERS or base in UNBOUNDED else min(value, OVER)
        if at:
            found[base][int(at)] = held
        else:
            found[base] = held
    found.update(fixed)
    return found


UNBOUNDED = frozenset({"crowd", "peer_channels"})


def _fit(
    parts: Sequence[tuple[Rows, Mapping[str, Any], float]],
    middle: Mapping[str, float],
    belief: float,
    left: frozenset[str] = frozenset(),
) -> dict[str, float]:
    """All constants, fitted on (rows, limits that a system states, weight) of systems; `left` stay in the middle."""
    ready = [Asked(rows.asked) for rows, _, _ in parts]

    def predict(sets: list[dict[str, float]]) -> np.ndarray:
        found = [
            np.array(asked.times([whole({**middle, **values}, fixed) for values in sets]))
            for asked, (_, fixed, _) in zip(ready, parts, strict=True)
        ]
        return np.concatenate(found, axis=1)

    (base,) = predict([{}])
    asked_for = [name for name in names() if name not in left]
    changed = predict([{name: 1.5 * middle[name]} for name in asked_for])
    effect = np.abs(np.log(changed / base)).max(axis=1)
    kept = [name for name, size in zip(asked_for, effect, strict=True) if size > NEGLIGIBLE]
    measured = [value for rows, _, _ in parts for value in rows.measured]
    weights = [weight * value for rows, _, weight in parts for value in rows.weights]
    return {**middle, **settle(kept, middle, measured, weights, predict, belief)}


@dataclass
class Fits:
    """The constants of all systems, of their pools and of what is left out in turn, as `names` has them."""

    systems: Mapping[str, System]
    rows: Mapping[str, Rows]
    pools: dict[tuple[str, ...], dict[str, float]] = field(default_factory=dict)

    def kin(self, generation_: str, network: str, without: str | None) -> dict[str, float]:
        """The pool of a generation of GPUs and a network, without a machine."""
        key = (generation_, network, without or "")
        if key not in self.pools:
            parts = []
            for name, rows in self.rows.items():
                system = self.systems[name]
                if machine(system) == without:
                    continue
                common = (generation(system) == generation_) + (kind_of_network(system) == network)
                total = sum(rows.weights)
                parts.append((rows, limits(system), KIN[common] * min(1.0, EACH / total)))
            self.pools[key] = _fit(parts, flat(PRIORS), POOL_BELIEF, OF_ONE_MACHINE)
        return self.pools[key]

    def without_system(self, name: str) -> dict[str, float]:
        """What nothing of its machine is known for."""
        system = self.systems[name]
        return self.kin(generation(system), kind_of_network(system), machine(system))

    def of(self, name: str, without: str | None = None) -> dict[str, float]:
        """A system's constants, on all its scales but one."""
        rows = self.rows[name]
        kept = rows.only(scale != without for scale in rows.scales)
        middle = self.without_system(name)
        if not kept.asked:
            return middle
        return _fit([(kept, limits(self.systems[name]), 1.0)], middle, SYSTEM_BELIEF)

    def errors(self, name: str, values: Mapping[str, float], scale: str | None = None) -> np.ndarray:
        """|predicted/measured - 1| of a system's rows, of one scale if given."""
        rows = self.rows[name].only(scale in {None, s} for s in self.rows[name].scales)
        (found,) = Asked(rows.asked).times([whole(values, limits(self.systems[name]))])
        return np.abs(np.array(found) / np.array(rows.measured) - 1.0)


def told(values: Mapping[str, float], middle: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Constants with units, as files have them; of those equal to `middle` none."""
    grouped: dict[str, list[float]] = {}
    for name, value in whole(values, {}).items():
        parts = list(value) if isinstance(value, list) else [value]
        before = flat({name: PRIORS[name]} if middle is None else {name: whole(middle, {})[name]}).values()
        if middle is None or any(abs(a / b - 1.0) > 1e-4 for a, b in zip(parts, before, strict=True)):
            grouped[name] = parts
    found: dict[str, Any] = {}
    for base, parts in grouped.items():
        text = [
            written(v, "time" if base in TIMES else OTHERS[base])
            if base in TIMES or base in OTHERS
            else float(f"{v:.4g}")
            for v in parts
        ]
        found[base] = text if isinstance(PRIORS[base], tuple) else text[0]
    return found
