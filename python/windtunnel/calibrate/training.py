"""Constants of a system from measured iterations: the share of compute rates its GPUs sustain, its host's launches.

One constant at a time, on rows of the validation board that are named: the value at which the median of
ln(predicted/measured) is zero, found by bisection on its logarithm. It is refused where the rows hardly depend on it
(less than `WEAK` per unit of its logarithm) or where no value between `LOW` and `HIGH` times the start does it.
"""

from __future__ import annotations

import fnmatch
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.engine import InputError
from windtunnel.results.folder import write_beside
from windtunnel.validate.board import predicted_of
from windtunnel.validate.predict import predict
from windtunnel.validate.systems import FITTED, OWN, read_systems, with_constant
from windtunnel.validate.tables import READERS
from windtunnel.validate.written import written

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from windtunnel.validate.rows import Row
    from windtunnel.validate.systems import System

START: dict[str, float] = {"compute_share": 0.9, "dispatch": 150e-6, "straggle": 200e-6}
SUSTAINED = "sustained"
"""Figure of a GPU's sheet: what `compute_share` is where a job does not say."""
LOW, HIGH = 0.1, 20.0
WEAK = 0.2
ROUNDS = 9


@dataclass(frozen=True)
class Outcome:
    """A fitted value, or the reason why there is none."""

    value: float | None
    reason: str
    rows: Sequence[str]
    median: float
    spread: float
    """Median and 95th percentile of |predicted/measured - 1| over the rows."""


def text_of(constant: str, value: float) -> Any:  # noqa: ANN401
    """As a system's file has it."""
    return round(value, 3) if constant == "compute_share" else f"{value * 1e6:.4g} us"


def fit(system: str, constant: str, patterns: Sequence[str], data: Path) -> Outcome:
    """Fits `constant` of `system` on the rows whose ids match one of `patterns`."""
    if constant not in START:
        raise InputError(f"no such constant: `{constant}`\n\nhint: there are {', '.join(START)}")
    systems = read_systems(data)
    if system not in systems:
        raise InputError(f"no file of system `{system}`\n\nhint: there are {', '.join(sorted(systems))}")

    return _fit({system}, constant, patterns, data)


def fit_sustained(gpu: str, patterns: Sequence[str], data: Path) -> Outcome:
    """Fits the share of its kernels' rates that `gpu` sustains, on rows of `patterns` over all systems that have it."""
    systems = read_systems(data)
    having = {name for name, system in systems.items() if _gpu(system).lower() == gpu.lower()}
    if not having:
        known = sorted({_gpu(system) for system in systems.values()} - {""})
        raise InputError(f"no system has a GPU `{gpu}`\n\nhint: there are {', '.join(known)}")
    return _fit(having, "compute_share", patterns, data)


def _gpu(system: System) -> str:
    return str((system.record["topology"].get("host") or {}).get("gpu", ""))


def _fit(of: Collection[str], constant: str, patterns: Sequence[str], data: Path) -> Outcome:
    names = sorted({pattern.partition("/")[0] for pattern in patterns})
    unknown = [name for name in names if name not in READERS]
    if unknown:
        raise InputError(f"no such table: `{unknown[0]}`\n\nhint: rows are named TABLE/ROW")
    systems = read_systems(data)

    def residuals(value: float) -> tuple[list[Row], np.ndarray]:
        changed = {name: with_constant(systems[name], constant, text_of(constant, value)) for name in of}
        rows = _rows(names, patterns, of, data, {**systems, **changed})
        results = predict(rows)
        times = [predicted_of(row, results) for row in rows]
        kept = [(row, time) for row, time in zip(rows, times, strict=True) if isinstance(time, float)]
        return [row for row, _ in kept], np.log([time / row.measured for row, time in kept])

    start = START[constant]
    rows, first = residuals(start)
    if not rows:
        raise InputError(f"no row of {', '.join(sorted(of))} that runs matches {', '.join(patterns)}")
    ids = [row.id for row in rows]
    _, second = residuals(start * 1.3)
    slope = float(np.median(second - first)) / float(np.log(1.3))
    if abs(slope) < WEAK:
        return Outcome(None, f"the rows hardly depend on it (d ln t / d ln value = {slope:.2f})", ids, *_size(first))
    low, high = np.log(start * LOW), np.log(start * HIGH)
    if constant == "compute_share":
        high = min(high, np.log(1.5))
    middle, found = float(np.log(start)), first
    for _ in range(ROUNDS):
        off = float(np.median(found))
        if abs(off) < 1e-3:
            break
        # Too slow: a larger share, or a shorter launch.
        if (off > 0) == (slope < 0):
            low = middle
        else:
            high = middle
        step = middle - off / slope
        middle = step if low < step < high else (low + high) / 2
        _, found = residuals(float(np.exp(middle)))
    if abs(float(np.median(found))) > 0.02:
        return Outcome(None, "no value in reach brings the rows to their median", ids, *_size(found))
    return Outcome(float(np.exp(middle)), "", ids, *_size(found))


def _size(residuals: np.ndarray) -> tuple[float, float]:
    errors = np.abs(np.expm1(residuals))
    return float(np.median(errors)), float(np.percentile(errors, 95))


def _rows(
    names: Sequence[str], patterns: Sequence[str], of: Collection[str], data: Path, systems: Mapping[str, System]
) -> list[Row]:
    found = []
    for name in names:
        table = READERS[name](data, systems)
        every = [] if table is None else [*table.rows, *table.left_out]
        found += [row for row in every if row.system in of and any(fnmatch.fnmatchcase(row.id, p) for p in patterns)]
    return found


def record(constant: str, outcome: Outcome, today: dt.date) -> dict[str, Any]:
    """The constant as a system's file has it."""
    if outcome.value is None:
        raise InputError(f"`{constant}`: {outcome.reason}")
    return {
        "value": text_of(constant, outcome.value),
        "evidence": "calibrated",
        "source": f"windtunnel calibrate training: the rows listed; median absolute residual {outcome.median:.1%}, "
        f"95th percentile {outcome.spread:.1%}",
        "date": today.isoformat(),
        "fitted": list(outcome.rows),
    }


def write(system: str, constant: str, found: Mapping[str, Any], data: Path) -> Path:
    """Writes the constant beside the system's file (`constants/NAME.json`), where others may be already."""
    path = read_systems(data)[system].path
    beside = path.parent / "constants" / f"{path.stem}.json"
    old = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    beside.parent.mkdir(exist_ok=True)
    write_beside(beside, (json.dumps({**old, constant: dict(found)}, indent=1) + "\n").encode())
    return beside


def write_sustained(gpu: str, found: Mapping[str, Any]) -> list[Path]:
    """Writes the figure into the GPU's sheet, and its rows beside it; the engine has it when it is built anew."""
    folder = OWN.parent / "gpus"
    path = next((path for path in folder.glob("*.yaml") if _name(path).lower() == gpu.lower()), None)
    if path is None:
        raise InputError(f"{folder}: no sheet of `{gpu}`")
    line = f'{SUSTAINED}: {{value: {found["value"]}, evidence: calibrated, source: "{found["source"]}"}}'
    old = [text for text in path.read_text(encoding="utf-8").splitlines() if not text.startswith(f"{SUSTAINED}:")]
    write_beside(path, ("\n".join([*old, line]) + "\n").encode())
    beside = folder.parent / FITTED / folder.name / f"{_name(path).lower()}.json"
    before = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    beside.parent.mkdir(parents=True, exist_ok=True)
    write_beside(beside, (json.dumps({**before, SUSTAINED: dict(found)}, indent=1) + "\n").encode())
    written.cache_clear()
    return [path, beside]


def _name(sheet: Path) -> str:
    found = re.search(r"^name: *(.+)$", sheet.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].strip() if found else sheet.stem
