"""Constants of the dispatcher of tokens to experts: one set for all GPUs, and one without each of them.

All runs of `aic_deepep.csv.gz` are fitted together, dispatches and combinations apart. What the board predicts a GPU's
runs by has not seen any of them.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.calibrate.fit import fit
from windtunnel.engine import InputError
from windtunnel.results.folder import write_beside
from windtunnel.validate.collectives import Asked
from windtunnel.validate.tables import aic_deepep
from windtunnel.validate.written import DATA, written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from windtunnel.validate.rows import Row
    from windtunnel.validate.systems import System

PRIORS = {"start": 30e-6, "doubling": 10e-6, "sm": 20e9, "own": 1.0, "crossing": 1.0}
"""Where a fit begins, as `Constants` of `dispatcher.rs`; times in seconds, rates in bytes per second."""
WAYS = ("dispatch", "combine")
PLACE = ("dispatchers", "deepep")


def calibrate(data: Path, systems: Mapping[str, System], tell: Callable[[str], None]) -> dict[str, Any]:
    """The record of all constants: `constants`, and `without` each GPU, each with how far its runs are off."""
    table = aic_deepep.read(data, systems)
    if table is None or not table.rows:
        raise InputError(f"no runs of a dispatcher in {data}\n\nhint: `--data` names a folder with measured tables")
    gpus = sorted({row.groups["system"] for row in table.rows})
    constants, errors = _fitted(table.rows)
    tell(f"{len(table.rows)} runs: median residual {np.median(errors):.1%}, 95th percentile {_tail(errors):.1%}")
    without = {}
    for gpu in gpus:
        without[gpu], _ = _fitted([row for row in table.rows if row.groups["system"] != gpu])
        unseen = _errors([row for row in table.rows if row.groups["system"] == gpu], without[gpu])
        tell(f"{gpu}, by the runs of the others: median {np.median(unseen):.1%}, 95th percentile {_tail(unseen):.1%}")
    today = dt.datetime.now(dt.UTC).date()
    return {
        "source": f"windtunnel calibrate dispatchers on {aic_deepep.FILE}: {len(table.rows)} runs; {today}",
        "constants": constants,
        "without": without,
    }


def write(record: Mapping[str, Any]) -> Path:
    """Writes the record; returns its path."""
    path = DATA.joinpath(PLACE[0], f"{PLACE[1]}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_beside(path, (json.dumps(record, indent=1) + "\n").encode())
    written.cache_clear()
    return path


def _fitted(rows: Sequence[Row]) -> tuple[dict[str, dict[str, float]], np.ndarray]:
    """The constants of both ways, and the errors of `rows` by them."""
    found = {way: dict(PRIORS) for way in WAYS}
    for way in WAYS:
        own = [row for row in rows if row.groups["kind"] == way]
        asked = Asked([row.scenario["collective"] for row in own])

        def predict(variants: list[dict[str, float]], way: str = way, asked: Asked = asked) -> np.ndarray:
            told = [{"dispatcher": {**found, way: {**PRIORS, **values}}} for values in variants]
            return np.array(asked.times(told))

        outcome = fit(list(PRIORS), list(PRIORS.values()), [row.measured for row in own], [1.0] * len(own), predict)
        found[way] |= {name: float(f"{value:.4g}") for name, value in outcome.values.items()}
    return found, _errors(rows, found)


def _errors(rows: Sequence[Row], constants: Mapping[str, Any]) -> np.ndarray:
    (times,) = Asked([row.scenario["collective"] for row in rows]).times([{"dispatcher": dict(constants)}])
    errors: np.ndarray = np.abs(np.array(times) / np.array([row.measured for row in rows]) - 1)
    return errors


def _tail(errors: np.ndarray) -> float:
    return float(np.percentile(errors, 95))
