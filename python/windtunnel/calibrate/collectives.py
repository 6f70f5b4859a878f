"""Constants of collectives on a system from part of its sizes: Vidur's dense tables of NCCL, PICO's of MPI.

Of Vidur one in sixteen sizes of each spacing, of MPI two of six powers of two, at most 512 ranks. The ids of the rows
go into `constants/NAME.json` beside the system's file with the residuals, and `windtunnel validate` never scores them.
Systems with runs of nccl-tests are fitted by `nccl`.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.calibrate.fit import Fitted, fit
from windtunnel.calibrate.nccl import PRIORS, PROTOCOLS
from windtunnel.engine import InputError
from windtunnel.results.folder import write_beside
from windtunnel.validate.collectives import OTHERS, TIMES, Asked, constants
from windtunnel.validate.quantities import written
from windtunnel.validate.rows import Table
from windtunnel.validate.systems import System
from windtunnel.validate.tables import pico, vidur

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


NEGLIGIBLE = 0.02
"""A constant that changes no row by this share when it grows by half is not asked for."""
OVER = 1.2
"""No share is above this: sheets are rounded."""


@dataclass
class Rows:
    """What is fitted: questions, seconds, weights, ids."""

    asked: list[dict[str, Any]] = field(default_factory=list)
    measured: list[float] = field(default_factory=list)
    kinds: list[tuple[object, ...]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def add(self, name: str, scenario: Mapping[str, Any], measured: float, kind: tuple[object, ...]) -> None:
        """Takes a row."""
        self.asked.append(dict(scenario["collective"]))
        self.measured.append(measured)
        self.kinds.append(kind)
        self.ids.append(name)

    @property
    def weights(self) -> list[float]:
        """A configuration counts once, however often it was measured."""
        counts = Counter(self.kinds)
        return [1.0 / counts[kind] for kind in self.kinds]


def rows_of(system: System, data: Path, systems: Mapping[str, System]) -> Rows:
    """The rows to fit on."""
    found = Rows()
    table = Table("calibrate")
    folder = data / "collectives"
    if (folder / "vidur_network").is_dir():
        for row in vidur.rows(folder / "vidur_network", systems, table):
            size = row.scenario["collective"]["bytes"]
            if row.system == system.name and _fitted_step(size):
                layout = tuple(row.scenario["collective"]["layout"].items())
                found.add(row.id, row.scenario, row.measured, (row.groups["kind"], layout, size))
    return found


def _fitted_step(size: int) -> bool:
    """One in sixteen of sizes in even steps, which are wider from 1 MiB and wider again from 16 MiB on."""
    step = 2048 if size < 1 << 20 else 1 << 15 if size < 1 << 24 else 1 << 17
    return (size // step) % 16 == 1


def _held(base: str, value: float) -> float:
    """A share is held below `OVER`."""
    return value if base in TIMES or base in OTHERS else min(value, OVER)


def _names() -> list[str]:
    return [
        f"{name}.{i}" if isinstance(value, tuple) else name
        for name, value in PRIORS.items()
        for i in (range(3) if isinstance(value, tuple) else (0,))
    ]


def _prior(name: str) -> float:
    base, _, at = name.partition(".")
    value = PRIORS[base]
    return value[int(at)] if isinstance(value, tuple) else value


def _set(values: Mapping[str, float], fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Constants as the engine takes them: priors, what the system's file states, `values`."""
    found: dict[str, Any] = {n: list(v) if isinstance(v, tuple) else v for n, v in PRIORS.items()}
    found.update(fixed)
    for name, value in values.items():
        base, _, at = name.partition(".")
        held = _held(base, value)
        if at:
            found[base][int(at)] = held
        else:
            found[base] = held
    return found


MPI_PRIORS: dict[str, float] = {
    "latency": 1.5e-6, "forward": 1e-6, "disturbance": 0.02e-6, "message": 0.5e-6, "segment": 0.5e-6, "plan": 20e-12,
    "block": 25e-9, "rendezvous": 2e-6, "post": 1e-6, "split": 1e-6, "register": 5e-6, "share": 0.9,
    "share_wide": 0.5, "share_fabric": 0.5, "inside": 8e9,
    "reduction": 8e9, "reduction_memory": 4e9, "copy": 6e9, "fresh": 2.5e9,
}  # fmt: skip
"""Constants of MPI's algorithms: orders of magnitude of the machines, inferred."""
MPI_SMALL_SCALE = 512


def calibrate_mpi(system: System, data: Path, _systems: Mapping[str, System]) -> tuple[Fitted, Rows]:
    """Fits the constants of MPI's algorithms on `system`: half of PICO's sizes, at most 512 ranks."""
    rows = Rows()
    folder = data / "collectives"
    if (folder / "pico_mpi_collectives.csv.gz").is_file():
        for row in pico.rows(folder, {system.name: system}, Table("calibrate")):
            asked = row.scenario["mpi"]
            exponent = (int(asked["bytes"]).bit_length() - 1) % 6
            if exponent in {2, 4} and int(row.groups["scale"].split()[0]) <= MPI_SMALL_SCALE:
                rows.asked.append(dict(asked))
                rows.measured.append(row.measured)
                rows.kinds.append((row.groups["algorithm"], row.groups["scale"], asked["bytes"], asked["ports"]))
                rows.ids.append(row.id)
    if not rows.ids:
        raise InputError(f"no rows of system `{system.name}` to fit on in {data}")
    stated = pico.constants(System(system.name, system.path, {**system.record, "constants": {}}))
    ready = pico.Asked(rows.asked)

    def predict(sets: list[dict[str, float]]) -> np.ndarray:
        return np.array(ready.times([{**MPI_PRIORS, **stated, **values} for values in sets]))

    (base,) = predict([{}])
    changed = predict([{name: 1.5 * prior} for name, prior in MPI_PRIORS.items()])
    effect = np.abs(np.log(changed / base)).max(axis=1)
    names = [name for name, size in zip(MPI_PRIORS, effect, strict=True) if size > NEGLIGIBLE]
    found = fit(names, [MPI_PRIORS[name] for name in names], rows.measured, rows.weights, predict)
    found.refused.update({name: "no row depends on it" for name in MPI_PRIORS if name not in names})
    return found, rows


def calibrate(system: System, data: Path, systems: Mapping[str, System]) -> tuple[Fitted, Rows]:
    """Fits the constants of `system`. Raises `InputError` where there are no rows to fit on."""
    rows = rows_of(system, data, systems)
    if not rows.ids:
        raise InputError(f"no rows of system `{system.name}` to fit on in {data}")
    stated = {
        name: value
        for name, value in constants(system).items()
        if name in {"eager", "pulled", "short_message", "inject"}
    }
    asked = Asked(rows.asked)

    def predict(sets: list[dict[str, float]]) -> np.ndarray:
        return np.array(asked.times([_set(values, stated) for values in sets]))

    (base,) = predict([{}])
    changed = predict([{name: 1.5 * _prior(name)} for name in _names()])
    effect = np.abs(np.log(changed / base)).max(axis=1)
    names = [name for name, size in zip(_names(), effect, strict=True) if size > NEGLIGIBLE]
    found = fit(names, [_prior(name) for name in names], rows.measured, rows.weights, predict)
    for name in _names():
        if name not in names:
            found.refused[name] = "no row depends on it"
    return found, rows


def record_mpi(found: Fitted, rows: Rows) -> str:
    """`constants/NAME.json` of a machine of MPI."""
    values = {name: MPI_PRIORS[name] for name in MPI_PRIORS} | found.values
    text = {
        name: written(v)
        if pico.KINDS.get(name) == "time"
        else f"{v / 1e9:.4g} GB/s"
        if name in pico.KINDS
        else float(f"{v:.4g}")
        for name, v in values.items()
    }
    return _file("mpi", text, found, rows, "PICO")


def record(found: Fitted, rows: Rows) -> str:
    """`constants/NAME.json`."""
    values: dict[str, Any] = {}
    grouped: dict[str, dict[int, float]] = defaultdict(dict)
    for name, value in found.values.items():
        base, _, at = name.partition(".")
        grouped[base][int(at or 0)] = _held(base, value)
    for base, parts in grouped.items():
        prior = PRIORS[base]
        whole = [parts.get(i, p) for i, p in enumerate(prior)] if isinstance(prior, tuple) else [parts[0]]
        text = [
            written(v, "time" if base in TIMES else OTHERS[base])
            if base in TIMES or base in OTHERS
            else float(f"{v:.4g}")
            for v in whole
        ]
        values[base] = text if isinstance(prior, tuple) else text[0]
    return _file("nccl", values, found, rows, "nccl-tests and Vidur")


def _file(key: str, values: Mapping[str, Any], found: Fitted, rows: Rows, tables: str) -> str:
    errors = np.abs(np.expm1(found.residuals))
    constant = {
        "value": dict(values),
        "evidence": "calibrated",
        "source": f"{len(rows.ids)} rows of {tables}, those listed; median absolute residual {np.median(errors):.1%}, "
        f"95th percentile {np.percentile(errors, 95):.1%}",
        "date": str(dt.datetime.now(tz=dt.UTC).date()),
        "refused": {_label(name): reason for name, reason in sorted(found.refused.items())},
        "fitted": rows.ids,
    }
    return json.dumps({key: constant}, indent=1) + "\n"


def _label(name: str) -> str:
    base, _, at = name.partition(".")
    return f"{base} of {PROTOCOLS[int(at)]}" if at else base


def write(system: System, text: str) -> Path:
    """Writes the constants beside the system's file, where others may be already."""
    path = system.path.parent / "constants" / f"{system.path.stem}.json"
    old = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.parent.mkdir(exist_ok=True)
    write_beside(path, (json.dumps({**old, **json.loads(text)}, indent=1) + "\n").encode())
    return path
