"""Constants of NCCL's model: pools of kindred systems, and a system's own close to its pool.

A system's *kin* are the systems of its generation of GPUs and of its network. A *pool* is one set of constants for all
rows of all systems, in which kin count most; its middle are NCCL's own constants. A system's constants are fitted on
all its scales, with the pool of all *other* machines as the middle (`fit.settle`): what its rows leave open stays as
its kin have it. There are no constants for a size or a scale.

How good they are is judged on what no constant has seen: `without_scale` fits a system without one number of ranks on
hosts, `without_system` has nothing of a machine at all. Both are written beside the constants, and the board predicts
every row by them (`nccl-tests`, `nccl-systems`).
"""

from __future__ import annotations

import datetime as dt
import json
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.calibrate.fit import settle
from windtunnel.engine import InputError
from windtunnel.results.folder import write_beside
from windtunnel.validate.collectives import (
    OTHERS,
    TIMES,
    Asked,
    Ranks,
    generation,
    kind_of_network,
    limits,
    machine,
    section,
)
from windtunnel.validate.rows import Table
from windtunnel.validate.tables import aic_nccl, nccl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from windtunnel.validate.systems import System

PROTOCOLS = ("LL", "LL128", "Simple")
PRIORS: dict[str, float | tuple[float, float, float]] = {
    "launch": 6.6e-6, "issue": 3e-6, "channel": 0.2e-6,
    "base": (1e-9, 7.4e-6, 1.8e-6), "block": (10e9, 20e9, 20e9), "hop_scale_up": (0.6e-6, 1.9e-6, 3.4e-6),
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
TCP = "tcp"
EFA = "efa"
OTHER = "other"
PRIORS_OF: dict[str, dict[str, float | tuple[float, float, float]]] = {
    TCP: {
        "share_network": (0.0625, 0.85, 0.125), "exchange_network": 0.125,
        "hop_tree": (15e-6, 8.5e-6, 14e-6), "hop_ring": (15e-6, 4e-6, 14e-6), "peer_network": 15e-6,
        "crowd": (0.005, 0.005, 0.005),
    },
    EFA: {"hop_tree": (15e-6, 15e-6, 20e-6), "hop_ring": (15e-6, 15e-6, 20e-6), "peer_network": 15e-6},
}  # fmt: skip
"""The same for networks that differ from what NCCL's constants are of.

Over TCP messages go through the processors' sockets. A connection carries 25 Gbit/s: NCCL's documentation asks for
four threads of a connection each on networks of 100 Gbit/s (NCCL_SOCKET_NTHREADS), which is an eighth of a NIC of 200;
LL sends twice the bytes. A message passes two kernels and two copies, some 15 us. LL128 does not leave a host. The
processors are the limit, not what joins groups of switches: rings of 1 GiB take Polaris 488 ms on 8 hosts and 462 ms on
128. Over EFA
a message takes 15.5 us (AWS, 2019, of MPI on C5n), and Simple's some more, since its proxies wait for data before they
send a flag.
"""
OWN_OF: dict[str, frozenset[str]] = {
    EFA: frozenset(f"{hop}.{i}" for hop in ("hop_tree", "hop_ring") for i in range(3)) | {"peer_network"}
}
"""Constants of which rows of other networks say nothing: no machine of such a network has rows."""
OF_ONE_MACHINE = frozenset({"slow_leaf", "sustained", "copy_launch"})
"""Constants of a machine or a setting that few have: no pool is asked for them."""
UNSOURCED = frozenset({f"crowd.{i}" for i in range(3)})
"""Constants that no source states and few machines are large enough to tell: a pool has what those say of them."""
OF_HOST = frozenset({
    "launch", "issue", "channel", "base", "block", "hop_scale_up", "share_scale_up", "share_sums", "base_sums",
    "peer_scale_up", "exchange_scale_up",
})  # fmt: skip
"""Constants of what does not leave a host: networks that say nothing of one another share them."""
NEGLIGIBLE = 0.02
"""A constant that changes no row by this share when it grows by half is not asked for."""
OVER = 1.2
"""No share is above this: sheets are rounded."""
POOL_BELIEF = 10.0
"""How strongly a pool holds to NCCL's constants: as so many rows would that are off by as much."""
SYSTEM_BELIEF = 1.0
"""How strongly a system's constants hold to those of its pool."""
ALONE_BELIEF = 0.1
"""The same of constants that no other machine has."""
KIN = {2: 1.0, 1: 0.3, 0: 0.05}
"""What a system counts in a pool by how much it has in common: generation of GPUs and network, one of them, none."""
EACH = 300.0
"""A system of more rows counts like one of so many in a pool."""


@dataclass
class Rows:
    """What is fitted: questions, seconds, weights, scales; one that was measured often once, with its lower median."""

    asked: list[dict[str, Any]] = field(default_factory=list)
    measured: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    scales: list[str] = field(default_factory=list)
    count: int = 0
    """Measured rows."""

    def only(self, kept: Iterable[bool]) -> Rows:
        """The rows that are `kept`."""
        found = Rows()
        for keep, asked, measured, weight, scale in zip(
            kept, self.asked, self.measured, self.weights, self.scales, strict=True
        ):
            if keep:
                found.asked.append(asked)
                found.measured.append(measured)
                found.weights.append(weight)
                found.scales.append(scale)
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
    if (folder / aic_nccl.FILE).is_file():
        for row in aic_nccl.rows(folder, systems, Table("calibrate")):
            question = dict(row.scenario["collective"])
            question.pop("constants")
            key = (row.system, repr(question))
            asked[key] = question
            measured[key].append(row.measured)
            kinds[key] = (row.system, question["operation"], Ranks(1, question["layout"]["ranks"]), question["bytes"])
            counts[row.system] += 1
    alike = Counter(kinds.values())
    found: dict[str, Rows] = defaultdict(Rows)
    for key, question in asked.items():
        rows = found[key[0]]
        rows.asked.append(question)
        # What others send meanwhile only adds: of an even number of runs the lower of the two in the middle. A mean of
        # two would be of no run where one was disturbed, as a third of those on large parts of shared networks are.
        rows.measured.append(statistics.median_low(measured[key]))
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
    loose: frozenset[str],
    left: frozenset[str] = frozenset(),
) -> dict[str, float]:
    """All constants, fitted on (rows, limits that a system states, weight) of systems.

    They hold to `middle` by `belief`, `loose` ones by `ALONE_BELIEF`; `left` stay there.
    """
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
    beliefs = [ALONE_BELIEF if name in loose else belief for name in kept]
    return {**middle, **settle(kept, middle, measured, weights, predict, beliefs)}


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
                if machine(system) == without or not section(system, "kin", default=True):
                    continue
                # TCP goes through the processors: it says nothing of other networks, nor they of it.
                if (kind_of_network(system) == TCP) != (network == TCP):
                    continue
                common = (generation(system) == generation_) + (kind_of_network(system) == network)
                total = sum(rows.weights)
                parts.append((rows, limits(system), KIN[common] * min(1.0, EACH / total)))
            middle = flat({**PRIORS, **PRIORS_OF.get(network, {})})
            if network == TCP:
                others = self.kin(generation_, OTHER, without)
                shared = {n: v for n, v in others.items() if n.partition(".")[0] in OF_HOST}
                middle |= shared
            left = OF_ONE_MACHINE | OWN_OF.get(network, frozenset())
            self.pools[key] = middle if not parts else _fit(parts, middle, POOL_BELIEF, UNSOURCED, left)
        return self.pools[key]

    def without_system(self, name: str) -> dict[str, float]:
        """What nothing of its machine is known for."""
        system = self.systems[name]
        return self.kin(generation(system), kind_of_network(system), machine(system))

    def of(self, name: str, without: str | None = None, most: int | None = None) -> dict[str, float]:
        """A system's constants, on all its scales but one, of at most `most` ranks."""
        rows = self.rows[name]
        kept = rows.only(scale != without and (most is None or nccl.members(scale) <= most) for scale in rows.scales)
        middle = self.without_system(name)
        if not kept.asked:
            return middle
        return _fit([(kept, limits(self.systems[name]), 1.0)], middle, SYSTEM_BELIEF, OF_ONE_MACHINE)

    def errors(self, name: str, values: Mapping[str, float], scale: str | None = None) -> np.ndarray:
        """|predicted/measured - 1| of a system's rows, of one scale if given."""
        rows = self.rows[name].only(scale in {None, s} for s in self.rows[name].scales)
        (found,) = Asked(rows.asked).times([whole(values, limits(self.systems[name]))])
        off: np.ndarray = np.abs(np.array(found) / np.array(rows.measured) - 1.0)
        return off


GENERATIONS = ("volta", "ampere", "hopper", "blackwell")
NETWORKS = ("connectx", "slingshot", EFA, "thor", OTHER, TCP)
"""Kin of which pools are written, whether or not rows of some were measured."""


def write(data: Path, systems: Mapping[str, System], folder: Path, progress: Callable[[str], None]) -> list[Path]:
    """Fits everything and writes `NAME.json` of every system with rows and `pools.json` into `folder`.

    `progress` is told a line for each system.
    """
    fits = Fits(systems, rows_of(data, systems))
    today = str(dt.datetime.now(tz=dt.UTC).date())
    written_: list[Path] = []

    def put(name: str, record: dict[str, Any]) -> None:
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}.json"
        write_beside(path, (json.dumps(record, indent=1) + "\n").encode())
        written_.append(path)

    for name, rows in sorted(fits.rows.items()):
        constants = fits.of(name)
        without = {scale: fits.of(name, scale) for scale in sorted(set(rows.scales))}
        left_out = np.concatenate([fits.errors(name, values, scale) for scale, values in without.items()])
        unseen = fits.errors(name, fits.without_system(name))
        errors = {
            "fitted": _figures(fits.errors(name, constants)),
            "without_scale": _figures(left_out),
            "without_system": _figures(unseen),
        }
        put(
            name,
            {
                "system": name,
                "evidence": "calibrated",
                "source": f"{rows.count} rows of nccl-tests on all scales of {name}; prior: the pool of other machines",
                "date": today,
                "errors": errors,
                "constants": plain(constants),
                "without": {scale: plain(values) for scale, values in without.items()},
            },
        )
        progress(
            f"{name}: {rows.count} rows; median and 95th percentile of the error "
            + ", ".join(f"{kind.replace('_', ' ')} {m:.1%}, {p:.1%}" for kind, (m, p) in errors.items())
        )
    machines = sorted({machine(systems[name]) for name in fits.rows})
    put(
        "pools",
        {
            "evidence": "calibrated",
            "source": f"nccl-tests of {len(machines)} machines: kin count most, with NCCL's own constants as prior",
            "date": today,
            "pools": [
                {
                    "generation": generation_,
                    "network": network,
                    "constants": even(fits.kin(generation_, network, None)),
                }
                for network in NETWORKS
                for generation_ in GENERATIONS
            ],
            "without": {name: even(fits.without_system(name)) for known in machines for name in _of(fits, known)},
        },
    )
    return written_


def _of(fits: Fits, known: str) -> list[str]:
    return [name for name in sorted(fits.rows) if machine(fits.systems[name]) == known]


def _figures(errors: np.ndarray) -> list[float]:
    return [round(float(np.median(errors)), 4), round(float(np.percentile(errors, 95)), 4)]


def even(values: Mapping[str, float]) -> dict[str, Any]:
    """The same for machines that nobody has measured: more bytes never take less there."""
    return {**plain(values), "even": True}


def plain(values: Mapping[str, float]) -> dict[str, Any]:
    """Constants as the engine takes them: seconds, bytes per second, bytes and shares to four figures."""
    found: dict[str, Any] = {}
    for name, value in whole(values, {}).items():
        found[name] = [float(f"{v:.4g}") for v in value] if isinstance(value, list) else float(f"{value:.4g}")
    return found
