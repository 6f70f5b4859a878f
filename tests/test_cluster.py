"""Months of jobs through the installed package: logs, shapes, schedulers, accounts."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import random
from typing import TYPE_CHECKING, Any

import pytest

import windtunnel
from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

pytestmark = pytest.mark.engine

EXAMPLE = ROOT / "examples" / "philly-month.yaml"
SCHEDULERS = ("fcfs", "first-fit", "sjf", "smallest", "easy", "conservative", "priority", "gang", "mast")
CLUSTER = """\
windtunnel: 1
name: cluster
seed: 3
fidelity: job
topology: {hosts: 4, host: {gpus: 8}}
jobs: %s
"""


def conserved(summary: dict[str, Any], gpus: int) -> None:
    cluster = summary["cluster"]
    assert sum(cluster["gpu_seconds"].values()) == pytest.approx(gpus * cluster["makespan_s"], rel=1e-12)
    assert cluster["finished"] == cluster["jobs"]


def write_log(path: Path, jobs: list[tuple[int, int, int]]) -> None:
    """A log in Philly's columns."""
    start = dt.datetime(2017, 10, 9, tzinfo=dt.UTC)
    with gzip.open(path, "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["timestamp", "duration", "num_gpus", "gpu_time", "cluster"])
        for submit, duration, gpus in jobs:
            at = start + dt.timedelta(seconds=submit)
            writer.writerow([at.strftime("%Y-%m-%d %H:%M:%S"), float(duration), gpus, float(duration * gpus), "a"])


def test_the_example_shows_what_it_says() -> None:
    found = {name: dict(windtunnel.run(EXAMPLE, overrides={"cluster.scheduler": name}).summary) for name in SCHEDULERS}
    waiting = {}
    for name, summary in found.items():
        conserved(summary, 512)
        assert summary["cluster"]["jobs"] == 23_000, name
        waiting[name] = summary["cluster"]["waiting_s"]["mean"]
    work = {summary["cluster"]["gpu_seconds"]["busy"] for summary in found.values()}
    assert max(work) == pytest.approx(min(work), rel=1e-12)
    for name in ("easy", "conservative", "sjf"):
        assert waiting[name] < waiting["fcfs"]
    hosts = windtunnel.run(EXAMPLE, overrides={"jobs.locality": "fewest-hosts"}).summary["cluster"]
    assert hosts["gpu_seconds"]["stranded"] > 0 == found["fcfs"]["cluster"]["gpu_seconds"]["stranded"]
    assert hosts["waiting_s"]["mean"] > waiting["fcfs"]


def test_a_log_is_replayed_job_by_job(tmp_path: Path) -> None:
    draw = random.Random(1)  # noqa: S311
    jobs = sorted((draw.randrange(5_000), draw.randrange(1, 600), draw.choice([1, 1, 2, 8, 24])) for _ in range(400))
    write_log(tmp_path / "jobs.csv.gz", jobs)
    log = f"{{log: {tmp_path}/jobs.csv.gz, format: philly}}"
    result = windtunnel.run(CLUSTER % log, overrides={"cluster.reaction_delay": "0 s"})
    conserved(dict(result.summary), 32)
    # First come, first served on 32 GPUs, the obvious way.
    first = jobs[0][0]
    free, now = 32, 0
    running: list[tuple[int, int]] = []
    expected = []
    for submit, duration, gpus in jobs:
        now = max(now, submit - first)
        running.sort()
        while running and (running[0][0] <= now or free < gpus):
            end, back = running.pop(0)
            now, free = max(now, end), free + back
        free -= gpus
        running.append((now + duration, gpus))
        expected.append(now)
    table = result.jobs.sort("job")
    assert table["start_s"].to_list() == expected
    assert table["finish_s"].to_list() == [start + job[1] for start, job in zip(expected, jobs, strict=True)]
    assert table["line"].to_list() == list(range(2, 402))
    asked = sum(duration * gpus for _, duration, gpus in jobs)
    assert result.summary["cluster"]["gpu_seconds"]["busy"] == asked


def test_holes_are_counted_where_they_are_allowed(command: Command, tmp_path: Path) -> None:
    header = "timestamp,duration,num_gpus,gpu_time,cluster\n"
    rows = ["2017-10-09 07:00:00,60,8,480,a", "2017-10-09 07:00:01,,8,0,a", "2017-10-09 07:00:02,60,0,0,a"]
    (tmp_path / "jobs.csv").write_text(header + "\n".join(rows) + "\n")
    (tmp_path / "a.yaml").write_text(CLUSTER % "{log: jobs.csv, format: philly}")
    refused = command("run", "a.yaml", check=2)
    assert "jobs.csv:3: `duration` is missing" in refused.stderr
    assert not (tmp_path / "runs").exists()
    done = command("run", "a.yaml", "--lenient", "--scheduler", "easy")
    assert "1 rows" in done.stdout
    skipped = windtunnel.load(tmp_path / "runs" / "cluster-job").summary["cluster"]["skipped"]
    assert skipped == {
        "without_gpus": 1,
        "rows": 1,
        "reasons": [{"reason": "`duration` is missing", "rows": 1, "first_line": 3}],
    }


def test_a_shape_is_fitted_to_a_log(tmp_path: Path) -> None:
    draw = random.Random(2)  # noqa: S311
    jobs, submit = [], 0
    for _ in range(3_000):
        submit += int(draw.expovariate(1 / 60))
        jobs.append((submit, 1 + int(draw.lognormvariate(6, 1)), draw.choice([1, 1, 1, 8])))
    write_log(tmp_path / "jobs.csv.gz", jobs)
    like = f"{{like: {tmp_path}/jobs.csv.gz, format: philly, count: 6000, load: 0.5}}"
    result = windtunnel.run(CLUSTER % like)
    conserved(dict(result.summary), 32)
    durations, gpus = result.jobs["duration_s"].to_list(), result.jobs["gpus"].to_list()
    mean = sum(duration for _, duration, _ in jobs) / len(jobs)
    assert sum(durations) / len(durations) == pytest.approx(mean, rel=0.1)
    assert gpus.count(8) / len(gpus) == pytest.approx(0.25, abs=0.03)
    asked = sum(duration * count for duration, count in zip(durations, gpus, strict=True))
    assert asked / (32 * max(result.jobs["submit_s"].to_list())) == pytest.approx(0.5, rel=1e-6)


def test_listed_jobs_need_no_workload_at_job_fidelity() -> None:
    jobs = """
  - {name: large, gpus: 32, duration: 2 h, priority: 0}
  - {name: small, gpus: 8, duration: 1 h, submit: 30 min, priority: 5}
"""

    def finish(scheduler: str) -> list[float]:
        overrides = {"cluster.scheduler": scheduler, "cluster.restart": "60 s", "cluster.reaction_delay": "0 s"}
        summary = windtunnel.run(CLUSTER % jobs, overrides=overrides).summary
        conserved(dict(summary), 32)
        return [job["finish_s"] for job in summary["jobs"]]

    assert finish("fcfs") == [7_200, 10_800]
    # Stopped after half an hour, on again an hour later, and a minute lost.
    assert finish("priority") == [1_800 + 3_600 + 60 + 5_400, 5_400]


def test_the_same_seed_gives_the_same_rows(command: Command) -> None:
    command("run", str(EXAMPLE), "--set", "jobs.count=2000", "--check-determinism", "--no-report")
