"""A simulated year of measurements with steps in constants, and steps in every constant of NCCL's model."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from windtunnel.calibrate.loop.drift import A_YEAR
from windtunnel.calibrate.loop.judged import taken
from windtunnel.calibrate.loop.ledger import Ledger
from windtunnel.calibrate.loop.models import Models
from windtunnel.calibrate.loop.watch import Watch
from windtunnel.experiments.drifts import Plan
from windtunnel.validate.systems import read_systems

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

DAYS, EVERY, NOISE, STEP = 365, 30, 0.007, 0.03
SIZES = (2048, 65536, 1 << 20, 1 << 24)
TRUE = {"latency.leaf": 6e-6, "rate.leaf": 22e9, "latency.spine": 11e-6, "rate.spine": 19e9, "pace.train": 1.0}

SEEDS, TRIALS = (11, 12, 13), 4
FINDABLE = 0.9
"""Share of a constant's steps that the best possible detector finds within 20 measurements: then it is findable."""
KINDS, NIGHTLY = "three operations, 0.7% of noise", "seven operations, noise as measured"
WHY = {
    "all": "the best possible detector, which is told what moves, how far and when, finds this share: see the bound in "
    "the table. Most of the 46 constants move no row, or few, or all by less than noise; 14 move none at all here",
    "findable": "the best possible detector needs 3.3 standard deviations for half of the steps, one that does not "
    "know what moves, how far or when 5.3 at the same false alarms: what has less than 7 within 20 logs is found later",
}
WHY["findable_few"] = WHY["findable"]


def _noise(size: int) -> float:
    """Noise of a row on several hosts, from the two columns of each line of public logs, all-reduce on Polaris."""
    return 0.017 if size < 1 << 16 else 0.023 if size < 1 << 20 else 0.010 if size < 1 << 24 else 0.0035


def _plans() -> dict[str, Plan]:
    """Eleven sizes of nine logs, and nccl-tests' 31 sizes of 28 logs (8 B to 8 GiB)."""
    few = ("all_reduce", "all_gather", "reduce_scatter")
    more = (*few, "alltoall", "broadcast", "reduce", "sendrecv")
    return {
        KINDS: Plan.of("polaris", few, (2, 4, 8), [1 << at for at in range(10, 31, 2)], lambda _: NOISE),
        NIGHTLY: Plan.of("polaris", more, (1, 2, 4, 8), [1 << at for at in range(3, 34)], _noise),
    }


def _steps() -> tuple[pl.DataFrame, pl.DataFrame]:
    """By plan and measurement: what was found of steps in all constants; and the same by constant."""
    plans, constants = [], []
    for name, plan in _plans().items():
        for rows in (True, False):
            what = {"plan": name, "a measurement is": "a row" if rows else "a log"}
            every = plan.steps(SEEDS, TRIALS, rows=rows)
            able = [one for one in every if one.within >= FINDABLE]
            found = [one for one in every if one.after is not None]
            # A year of whole logs of 31 rows has a million of them: one seed.
            seeds = SEEDS[:1] if name == NIGHTLY and not rows else SEEDS
            alarms = [plan.false_alarms(seed, A_YEAR, rows=rows) for seed in seeds]
            plans.append({
                **what,
                "bound": float(np.mean([one.within for one in every])),
                "found": len(found) / len(every),
                "findable constants": len({one.constant for one in able}),
                "of their steps": float(np.mean([one.after is not None for one in able])),
                "their bound": float(np.mean([one.within for one in able])),
                "named": float(np.mean([one.named for one in found])),
                "among those named": float(np.mean([one.among for one in found])),
                "names": float(np.mean([one.names for one in found])),
                "false alarms a year": float(np.mean(alarms)),
                "in the worst year": max(alarms),
            })  # fmt: skip
            for constant in plan.names:
                own = [one for one in every if one.constant == constant]
                seen = [one for one in own if one.after is not None]
                constants.append({
                    **what, "constant": constant, "bound": own[0].within, "found": len(seen) / len(own),
                    "named": float(np.mean([one.named for one in seen])) if seen else None,
                    "measurements": float(np.median([one.after for one in seen])) if seen else None,
                })  # fmt: skip
    return pl.DataFrame(plans), pl.DataFrame(constants, infer_schema_length=None)


def _day(draws: np.random.Generator, now: dict[str, float]) -> tuple[str, str]:
    """A day's flows and iterations, as lines of their files."""
    flows = []
    for _ in range(2):
        for kind in ("leaf", "spine"):
            for size in SIZES:
                seconds = now[f"latency.{kind}"] + size / now[f"rate.{kind}"]
                flows.append(f"{size},{1e6 * seconds * np.exp(NOISE * draws.standard_normal()):.5f},{kind}\n")
    steps = [
        json.dumps(
            {"job": "train", "iteration_s": 2.0 / now["pace.train"] * float(np.exp(NOISE * draws.standard_normal()))}
        )
        for _ in range(8)
    ]
    return "".join(flows), "".join(f"{step}\n" for step in steps)


def _year(*, adopt: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Steps with what came of them, and errors by day."""
    draws = np.random.default_rng(27)
    names = list(TRUE)
    now = dict(TRUE)
    steps: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger") as ledger:
        place = Path(folder) / "in"
        place.mkdir()
        models = Models(read_systems(None)["polaris"])
        watch = Watch(ledger, models, lambda _: None)
        (place / "flows.csv").write_text("bytes,fct_us,class\n")
        (place / "train.jsonl").touch()
        seen = 0
        for day in range(DAYS):
            if day >= 2 * EVERY and day % EVERY == 0:
                name = names[int(draws.integers(len(names)))]
                sign = 1 if draws.random() < 0.5 else -1
                now[name] *= 1 + sign * STEP
                first = int(ledger.one("select count(*) from measurements"))
                steps.append({"day": day, "constant": name, "from": first, "alarm": None, "after": None})
            flows, iterations = _day(draws, now)
            with (place / "flows.csv").open("a", encoding="utf-8") as file:
                file.write(flows)
            with (place / "train.jsonl").open("a", encoding="utf-8") as file:
                file.write(iterations)
            watch.scan(str(place))
            rows = ledger.db.execute("select name, measurement, proposed from alarms order by rowid").fetchall()
            for name, measurement, proposed in rows[seen:]:
                open_ = [one for one in steps if one["alarm"] is None and one["from"] < measurement]
                if open_:
                    kind = open_[-1]["constant"].partition(".")[2]
                    after = ledger.one(
                        "select count(*) from measurements where id > ? and id <= ? and kind like ?",
                        open_[-1]["from"], measurement, f'%"{kind}"%',
                    )  # fmt: skip
                    open_[-1].update(alarm=name, after=int(after))
                else:
                    steps.append({"day": day, "constant": None, "from": measurement, "alarm": name, "after": None})
                if adopt:
                    taken(ledger, models, proposed, "adopted")
            seen = len(rows)
            today = ledger.db.execute(
                "select seconds, predicted, kind from measurements order by id desc limit 24"
            ).fetchall()
            errors.append({"day": day, "rows": [(k, float(np.log(s / p))) for s, p, k in today]})
    return steps, errors


def _errors(errors: list[dict[str, Any]]) -> np.ndarray:
    """Mean error by day, %, beside what a kind was off by in the first month."""
    base: dict[str, list[float]] = {}
    for day in errors[:EVERY]:
        for kind, off in day["rows"]:
            base.setdefault(kind, []).append(off)
    means = {kind: float(np.mean(values)) for kind, values in base.items()}
    return np.array([100 * np.mean([abs(off - means[kind]) for kind, off in day["rows"]]) for day in errors])


def observe(_: Results) -> dict[str, Any]:
    """Both years, and steps in every constant."""
    plans, constants = _steps()
    logs = {row["plan"]: row for row in plans.iter_rows(named=True) if row["a measurement is"] == "a log"}
    watched, errors = _year(adopt=True)
    _, ignored = _year(adopt=False)
    real = [one for one in watched if one["constant"] is not None]
    found = [one for one in real if one["alarm"] is not None]
    with_, without = _errors(errors), _errors(ignored)
    return {
        "plans": plans,
        "constants": constants.sort("plan", "a measurement is", "bound", descending=[False, False, True]),
        "all": logs[NIGHTLY]["found"],
        "findable": logs[NIGHTLY]["of their steps"],
        "findable_few": logs[KINDS]["of their steps"],
        "names": logs[NIGHTLY]["named"],
        "names_few": logs[KINDS]["named"],
        "a_year": float(max(plans["false alarms a year"])),
        "steps": pl.DataFrame(watched, infer_schema_length=None),
        "days": pl.DataFrame({"day": range(DAYS), "watched_%": with_, "not_watched_%": without}),
        "found": len(found) / len(real),
        "named": float(np.mean([one["constant"] in str(one["alarm"]).split(" | ") for one in found])),
        "false": len(watched) - len(real),
        "delay": float(np.median([one["after"] for one in found])),
        "without": float(without[-30:].mean()),
        "with": float(with_[-30:].mean()),
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Error by day."""
    days = observed["days"]
    for name, label in (("not_watched_%", "not watched"), ("watched_%", "watched, proposals adopted")):
        axes.plot(days["day"], np.convolve(days[name], np.ones(7) / 7, mode="same"), label=label)
    axes.set(xlabel="day", ylabel="mean error (%)", ylim=(0, None))
    axes.legend()
