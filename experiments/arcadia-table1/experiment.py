"""The three properties of table 1, each by a run."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from windtunnel.calibrate.loop.ledger import Ledger
from windtunnel.calibrate.loop.models import Models
from windtunnel.calibrate.loop.watch import Watch
from windtunnel.experiments.runs import Asked, run_all
from windtunnel.validate.systems import read_systems

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results

JOB = Path(__file__).resolve().parent / "job.yaml"
BATCH = 524_288
"""Samples of an iteration of `job.yaml`."""
QUIET, DAYS, NOISE, STEP = 40, 60, 0.007, 0.03
"""Days before the step and in all; noise of a measurement; the step."""


def drift() -> tuple[int, str | None, int]:
    """Alarms before a step of the pace of iterations, what the first one after it names, and measurements until it."""
    draws = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger") as ledger:
        place = Path(folder) / "in"
        place.mkdir()
        watch = Watch(ledger, Models(read_systems(None)["polaris"]), lambda _: None)
        stepped = 0
        for day in range(DAYS):
            if day == QUIET:
                stepped = int(ledger.one("select count(*) from measurements"))
            pace = 1 + STEP if day >= QUIET else 1.0
            with (place / "train.jsonl").open("a", encoding="utf-8") as file:
                for _ in range(8):
                    seconds = 2.0 * pace * float(np.exp(NOISE * draws.standard_normal()))
                    file.write(json.dumps({"job": "train", "iteration_s": seconds}) + "\n")
            watch.scan(str(place))
        alarms = ledger.db.execute("select name, measurement from alarms order by rowid").fetchall()
        before = sum(measurement <= stepped for _, measurement in alarms)
        after = [(name, measurement - stepped) for name, measurement in alarms if measurement > stepped]
    return before, *(after[0] if after else (None, 10**9))


def observe(results: Results) -> dict[str, Any]:
    """A figure for each property."""
    quarter = {"jobs[0].workload.global_batch": BATCH // 4}
    packets, less = run_all([Asked(JOB, fidelity="packet"), Asked(JOB, quarter)])
    cluster, job = (results.at(scenario=name).summary for name in ("cluster", "job"))
    one = job["jobs"][0]
    mean = one["iteration_time_s"]["mean"]
    parts = {
        "compute": one["compute_s"],
        **{f"exposed {name}": seconds for name, seconds in one["exposed_s"].items()},
        "bubble": one["bubble_s"],
        "stragglers": one["straggler_s"],
        "host": one["host_s"],
    }
    fewer = less.summary["jobs"][0]["exposed_s"]
    before, named, after = drift()
    return {
        "where an iteration goes": pl.DataFrame({"part": list(parts), "seconds": list(parts.values())}),
        "cluster_cpu_s": cluster["cpu_time_s"],
        "packets_over_flows": packets.summary["jobs"][0]["iteration_time_s"]["mean"] / mean,
        "parts_over_iteration": sum(parts.values()) / mean,
        "exchange": 4 * fewer["ep"] / one["exposed_s"]["ep"],
        "gradients": fewer["dp"] / one["exposed_s"]["dp"],
        "measurements": after,
        "named": named == "pace.train",
        "before": before,
    }
