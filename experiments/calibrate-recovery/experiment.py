"""Constants are put into made-up measurements with noise, and what comes out is held against them; what to adopt."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from windtunnel.calibrate.loop.fit import FACTOR, problems_of
from windtunnel.calibrate.loop.ledger import Ledger
from windtunnel.calibrate.loop.models import Models
from windtunnel.calibrate.methods import identified
from windtunnel.calibrate.nccl import OVER, Fits, rows_of, whole
from windtunnel.calibrate.problem import Problem
from windtunnel.validate.board import data_folder
from windtunnel.validate.collectives import Asked, limits
from windtunnel.validate.systems import read_systems
from windtunnel.validate.tables import nccl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

SYSTEM = "polaris"
KINDS = [
    ["collective", operation, 1 << size, hosts, 4]
    for operation in ("all_reduce", "all_gather", "reduce_scatter")
    for hosts in (1, 2, 4, 8, 16, 32)
    for size in range(6, 34)
]
ASSUMED = 0.02
"""Noise that `calibrate all` assumes of rows that were measured once."""
NOISE, MOVED, SEEDS, PROMISED = 0.01, 0.1, range(1, 51), 0.02


def _recovered(models: Models, seed: int) -> list[dict[str, Any]]:
    """Of one draw, by constant that the rows depend on: how it is said to be known, and how far off it is."""
    draws = np.random.default_rng(seed)
    first = models.first()
    truth = {name: value * float(np.exp(MOVED * draws.standard_normal())) for name, value in first.items()}
    times = np.array(models.times(KINDS, [truth])[0])
    times *= np.exp(NOISE * draws.standard_normal(len(times)))
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "calibration") as ledger:
        with ledger.transaction():
            ledger.adopt(ledger.add(models.system.name, first, "as its file has it").id, "begun")
            for kind, seconds in zip(KINDS, times, strict=True):
                ledger.db.execute(
                    "insert into measurements (source, line, at, kind, seconds, predicted, set_id, name) "
                    "values ('made up', 1, null, ?, ?, ?, 'x', null)",
                    (json.dumps(kind), float(seconds), float(seconds)),
                )
        ((problem, _),) = problems_of(ledger, models).values()
    answer, intervals, _ = identified(problem, "least-squares")
    found = []
    for name, value in answer.values.items():
        interval = intervals.get(name)
        inside = None if interval is None else value * interval.low <= truth[name] <= value * interval.high
        said = "in combination" if interval is None else "determined" if interval.determined else "known"
        within = None if interval is None else interval.within
        off = value / truth[name] - 1
        found.append({"seed": seed, "constant": name, "said": said, "off": off, "within": within, "inside": inside})
    return found


def _adopted(fits: Fits, name: str) -> pl.DataFrame:
    """Errors of a system's rows on more than 32 GPUs, fitted on the others from the pool, by what takes its value."""
    rows, fixed, first = fits.rows[name], limits(fits.systems[name]), fits.without_system(name)
    asked, measured = Asked(rows.asked), np.array(rows.measured)

    def predict(sets: Sequence[Mapping[str, float]]) -> np.ndarray:
        return np.array(asked.times([whole({**first, **one}, fixed) for one in sets]))

    start = {key: value for key, value in first.items() if value > 0 and key not in fixed}
    share = ("share_", "exchange_")
    large = np.array([nccl.members(scale) > nccl.SMALL_SCALE for scale in rows.scales])
    problem = Problem(
        start,
        {key: value / FACTOR for key, value in start.items()},
        {key: min(v * FACTOR, max(OVER, v)) if key.startswith(share) else v * FACTOR for key, v in start.items()},
        measured,
        predict,
        np.full(len(measured), ASSUMED),
        np.flatnonzero(~large),
    )
    answer, intervals, _ = identified(problem, "least-squares")
    sets = {
        "nothing": {},
        "determined": {one: answer.values[one] for one, interval in intervals.items() if interval.determined},
        "known": {one: answer.values[one] for one in intervals},
        "all": answer.values,
    }
    off = np.abs(predict(list(sets.values())) / measured - 1)[:, large]
    return pl.DataFrame({"system": [name] * int(large.sum()), **dict(zip(sets, off, strict=True))})


def _adoption() -> pl.DataFrame:
    """The same of all systems that have rows on both sides."""
    data = data_folder(None)
    systems = read_systems(data)
    fits = Fits(systems, rows_of(data, systems))
    both = [
        name
        for name, rows in sorted(fits.rows.items())
        if len({nccl.members(scale) > nccl.SMALL_SCALE for scale in rows.scales}) == 2
    ]
    return pl.concat([_adopted(fits, name) for name in both])


def observe(_: Results) -> dict[str, Any]:
    """All draws, and the figures of the claims."""
    models = Models(read_systems(None)[SYSTEM])
    every = pl.DataFrame([row for seed in SEEDS for row in _recovered(models, seed)], infer_schema_length=None)
    known = every.filter(pl.col("said") != "in combination")
    determined = every.filter(pl.col("said") == "determined")
    unknown = every.filter(pl.col("said") == "in combination")
    by_constant = every.group_by("constant").agg(
        (pl.col("said") == "determined").sum().alias("determined"),
        (pl.col("said") == "known").sum().alias("known"),
        pl.col("within").median().alias("median_interval"),
        pl.col("inside").mean().alias("inside"),
        pl.col("off").abs().median().alias("median_error"),
        pl.col("off").abs().max().alias("largest_error"),
    )
    off = _adoption()
    figures = off.group_by("system").agg(pl.len().alias("rows"), pl.exclude("system").median()).sort("system")
    return {
        "adopted": figures,
        "adopted_p95": off.select(pl.exclude("system").quantile(0.95, "linear")),
        "known_over_nothing": float(np.median(off["known"]) / np.median(off["nothing"])),
        "rows": every,
        "by_constant": by_constant.sort("determined", "known", "constant", descending=[True, True, False]),
        "determined": len(determined) / len(SEEDS),
        "known": (len(known) - len(determined)) / len(SEEDS),
        "determined_within": _share(determined["off"].abs() <= PROMISED),
        "determined_inside": _share(determined["inside"]),
        "known_inside": _share(known["inside"]),
        "known_worst": float(known["off"].abs().to_numpy().max()),
        "unknown_within": _share(unknown["off"].abs() <= PROMISED),
    }


def _share(which: pl.Series) -> float:
    return float(which.cast(pl.Float64).to_numpy().mean())


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Errors against how far the interval goes."""
    known = observed["rows"].filter(pl.col("within").is_not_null())
    axes.plot(100 * known["within"], 100 * known["off"].abs(), ".", label="constants that have an interval")
    axes.axline((0, 0), slope=1, color="grey", label="the end of the interval")
    axes.axvline(100 * PROMISED, linestyle="--", color="grey", label="determined")
    axes.set(xlabel="95% interval (%)", ylabel="error (%)", xlim=(0, None), ylim=(0, None))
    axes.legend()
