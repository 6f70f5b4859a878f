"""Months of jobs through the installed package: logs, shapes, schedulers, accounts."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import random
import re
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import windtunnel
from conftest import ROOT
from windtunnel.report import timeline, write_report
from windtunnel.results.rows import Rows

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command, Interrupted

pytestmark = pytest.mark.engine

EXAMPLE = ROOT / "examples" / "philly-month.yaml"
SCHEDULERS = ("fcfs", "first-fit", "sjf", "smallest", "edf", "easy", "conservative", "priority", "gang", "mast")
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
        "never_ran": 0,
        "running": 0,
        "steps": 0,
        "rows": 1,
        "reasons": [{"reason": "`duration` is missing", "rows": 1, "first_line": 3}],
    }


SACCT = """\
JobID|User|Account|Partition|QOS|Submit|Start|End|ElapsedRaw|Timelimit|AllocTRES|State
1|ann|bio|a100|normal|2024-03-01T10:00:00|2024-03-01T10:00:05|2024-03-01T10:01:45|100|00:01:00|gres/gpu=8|COMPLETED
1.batch||bio|||2024-03-01T10:00:05|2024-03-01T10:00:05|2024-03-01T10:01:45|100||gres/gpu=8|COMPLETED
2|bob|bio|h100|high|2024-03-01T10:00:01|2024-03-01T10:00:05|Unknown|500|01:00:00|gres/gpu=4|RUNNING
3|bob||h100|high|2024-03-01T10:00:02|2024-03-01T10:00:05|2024-03-01T10:01:05|60|00:01:00|gres/gpu=4|CANCELLED by 7
4|cy|phy|a100|normal|2024-03-01T10:00:03|Unknown|Unknown|0|01:00:00|gres/gpu=4|PENDING
5|cy|phy|a100|normal|2024-03-01T10:00:04|2024-03-01T10:00:05|2024-03-01T10:00:09|4|01:00:00|cpu=4|COMPLETED
"""


def test_what_a_log_says_reaches_the_table_and_what_it_hides_is_told(command: Command, tmp_path: Path) -> None:
    (tmp_path / "jobs.txt").write_text(SACCT)
    (tmp_path / "a.yaml").write_text(CLUSTER % "{log: jobs.txt, format: slurm, estimates: asked}")
    done = command("run", "a.yaml", "--scheduler", "easy")
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert [line.split(":")[1].strip()[:40] for line in warnings] == [
        "the log has 2 partitions (`h100` 2 jobs,",
        "1 job was running as the log was written",
        "1 job ran for longer than asked for, by ",
    ]
    assert "by up to 40 s" in warnings[2]
    result = windtunnel.load(tmp_path / "runs" / "cluster-job")
    cluster = result.summary["cluster"]
    assert cluster["skipped"] == {
        "without_gpus": 1, "never_ran": 1, "running": 0, "steps": 1, "rows": 0, "reasons": [],
    }  # fmt: skip
    log = {key: value for key, value in cluster["log"].items() if key != "warnings"}
    assert log == {"running": 1, "beyond_limit": 1, "most_beyond_s": 40.0, "appended": 0, "partitions": 2}
    assert result.jobs.height + 3 == len(SACCT.splitlines()) - 1
    columns = ["user", "account", "partition", "queue", "log_state", "log_submitted"]
    assert result.jobs.sort("job").select(columns).rows() == [
        ("ann", "bio", "a100", "normal", "COMPLETED", "2024-03-01T10:00:00Z"),
        ("bob", "bio", "h100", "high", "RUNNING", "2024-03-01T10:00:01Z"),
        ("bob", None, "h100", "high", "CANCELLED", "2024-03-01T10:00:02Z"),
    ]
    left_out = windtunnel.run(tmp_path / "a.yaml", overrides={"jobs.running": "leave_out"}).summary["cluster"]
    assert (left_out["jobs"], left_out["skipped"]["running"], left_out["log"]["running"]) == (2, 1, 0)
    # With a network the jobs have what the log says too, and the summary what it lacks.
    collective = "{collective: {kind: all_reduce, algorithm: ring, bytes: 1 MiB}}"
    kinds = f"[{{name: ring, iterations: 2, workload: {collective}}}]"
    tiers = "tiers: [{ports_down: 4, rate: 400 Gbps, length: 5 m}]"
    topology = f"{{shape: clos, hosts: 4, {tiers}, host: {{gpu: H100-SXM, gpus: 8, nics: 1, nic: ConnectX-7}}}}"
    overrides = {"fidelity": "flow", "jobs.workloads": kinds, "topology": topology}
    shared = windtunnel.run(tmp_path / "a.yaml", overrides=overrides)
    assert shared.summary["cluster"]["skipped"] == cluster["skipped"]
    assert shared.jobs.sort("submit_s").select(columns).rows() == result.jobs.sort("job").select(columns).rows()
    # Jobs that are drawn are nobody's.
    drawn = windtunnel.run(CLUSTER % "{like: philly, count: 20, scale: {max_gpus: 32}}")
    assert drawn.jobs.select(columns).null_count().row(0) == (20,) * 6
    assert {drawn.jobs.schema[column] for column in columns} == {pl.String}
    assert drawn.summary["cluster"]["log"] is None


def test_the_example_of_a_slurm_log_counts_every_row() -> None:
    path = ROOT / "examples" / "slurm-log.yaml"
    rows = (path.parent / "slurm-log.txt").read_text().splitlines()[1:]
    found = {name: windtunnel.run(path, overrides={"cluster.scheduler": name}) for name in ("fcfs", "easy")}
    cluster = found["easy"].summary["cluster"]
    skipped = cluster["skipped"]
    assert cluster["jobs"] + skipped["steps"] + skipped["never_ran"] + skipped["without_gpus"] == len(rows)
    assert skipped["steps"] == sum(".batch|" in row for row in rows)
    assert cluster["log"]["running"] == sum(row.endswith("|RUNNING") and ".batch|" not in row for row in rows)
    assert (cluster["log"]["partitions"], len(cluster["log"]["warnings"])) == (2, 3)
    waiting = {name: result.summary["cluster"]["waiting_s"]["mean"] for name, result in found.items()}
    assert waiting["easy"] < waiting["fcfs"]
    by_user = found["easy"].jobs.group_by("user").len()
    assert by_user["len"].sum() == cluster["jobs"]
    assert by_user["user"].null_count() == 0


def test_schedulers_of_other_programs_are_told_their_names_here(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CLUSTER % "[{name: a, gpus: 4, duration: 1 h}]")
    for name, here in (("backfill", "easy"), ("sched/backfill", "easy"), ("FIFO", "fcfs"), ("preemption", "priority")):
        refused = command("run", "a.yaml", "--scheduler", name, check=2)
        assert f"no scheduler `{name}`" in refused.stderr
        assert re.search(f"hint: .*`{here}`", refused.stderr), refused.stderr
    assert "did you mean `easy`?" in command("run", "a.yaml", "--scheduler", "eassy", check=2).stderr


def test_lenient_is_for_jobs_of_a_log(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CLUSTER % "[{name: a, gpus: 4, duration: 1 h}]")
    refused = command("run", "a.yaml", "--lenient", check=2)
    assert refused.stderr.startswith("error: --lenient: expected jobs of a log, found a list of jobs\n\nhint: ")


def test_jobs_one_after_another_end_with_the_calendar(command: Command, tmp_path: Path) -> None:
    header = "timestamp,duration,num_gpus,gpu_time,cluster\n"
    rows = [f"2017-10-09 07:00:0{i},3000000000,8,320,b" for i in range(7)]
    (tmp_path / "jobs.csv").write_text(header + "\n".join(rows) + "\n")
    # Of 95 years each, one at a time: the third ends after 285, the fourth after 380.
    (tmp_path / "a.yaml").write_text(CLUSTER % "{log: jobs.csv, format: philly, scale: {gpus: 4}}")
    told = re.compile(
        r"error: a.yaml: jobs: job 3 \(jobs.csv:5\) goes on beyond the 292 years that the calendar counts"
    )
    for scheduler in ("fcfs", "easy", "conservative"):
        done = command("run", "a.yaml", "--scheduler", scheduler, check=2)
        assert told.match(done.stderr), done.stderr


def test_messages_call_listed_jobs_by_their_names(command: Command, tmp_path: Path) -> None:
    # In order of submission `wide` is job 1, in the list it is the third.
    jobs = (
        "[{name: late, gpus: 4, duration: 1 h, submit: 3 h}, {name: first, gpus: 4, duration: 3 h},"
        " {name: wide, gpus: 12, duration: 1 h, submit: 2 h}]"
    )
    (tmp_path / "a.yaml").write_text(CLUSTER % jobs)
    mtbf = "cluster.faults=[{class: host, mtbf: 1 min, repair: 1 s}]"
    done = command("run", "a.yaml", "--set", mtbf, check=1)
    assert re.match(r"error: a.yaml: jobs\[2\]: job `wide` was interrupted 10000 times in a row", done.stderr)
    own = "from windtunnel.policies import Placement, Scheduler\n\n\n"
    own += "class Never(Scheduler):\n    def decide(self):\n        return None\n\n\n"
    own += "class Twice(Placement):\n    def place(self, free, need):\n        return [0] * need.gpus\n"
    (tmp_path / "own.py").write_text(own)
    done = command("run", "a.yaml", "--scheduler", "own.py:Never", check=1)
    assert done.stderr.startswith("error: a.yaml: jobs[1]: job `first` waits for ever: scheduler ")
    done = command("run", "a.yaml", "--placement", "own.py:Twice", check=2)
    assert "gives job 0 (`first`) GPU 0, which is not free or given twice" in done.stderr


def test_a_suspended_job_that_moves_keeps_its_work(tmp_path: Path) -> None:
    # Host 0 is drained while a job is in the memory of its GPUs.
    # It goes on at host 1, where a fault takes it back to what it had done by then.
    (tmp_path / "faults.csv").write_text("time_s,component,repair_s\n988,software host1/gpu0,0\n")
    header = "timestamp,duration,num_gpus,gpu_time,cluster\n"
    (tmp_path / "jobs.csv").write_text(header + "2017-10-09 07:00:00,3600,2,7200,a\n" * 3)
    listed = ", ".join(f"{{name: {name}, gpus: 2, duration: 1 h}}" for name in "abc")
    operations = (
        "topology: {hosts: 2, host: {gpus: 2}}\ncluster: {scheduler: gang, slice: 5 min, faults: [{log: faults.csv}],"
        " maintenance: [{part: host0, at: 20 min, for: 10 min, notice: 10 min}]}\n"
    )
    text = CLUSTER.replace("topology: {hosts: 4, host: {gpus: 8}}\n", operations)
    found = []
    for name, jobs in (("list", f"[{listed}]"), ("log", "{log: jobs.csv, format: philly}")):
        (tmp_path / f"{name}.yaml").write_text(text % jobs)
        found.append(windtunnel.run(tmp_path / f"{name}.yaml", out=tmp_path / name).summary["cluster"])
    assert found[0]["busy_gpu_seconds"]["work"] == 3 * 2 * 3_600
    assert found[0] | {"skipped": None, "log": None} == found[1] | {"skipped": None, "log": None}


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


def test_a_log_shows_the_cluster_over_time(tmp_path: Path) -> None:
    result = windtunnel.run(EXAMPLE, overrides={"jobs.count": 4_000})
    cluster, usage, jobs = result.summary["cluster"], result.usage, result.jobs
    gpus, end = 512, cluster["makespan_s"]
    assert usage.height <= 512
    assert usage["span_s"].sum() == pytest.approx(end, rel=1e-9)
    for state, seconds in cluster["gpu_seconds"].items():
        assert (usage[state] * usage["span_s"]).sum() * gpus == pytest.approx(seconds, rel=1e-9, abs=1e-3)
    # Little's law without its expectations.
    assert (usage["waiting_jobs"] * usage["span_s"]).sum() == pytest.approx(jobs["waiting_s"].sum(), rel=1e-9)
    # Every job has one stay, on as many GPUs as it asked for.
    stays = result.placements
    held = stays.group_by("job").agg(pl.col("gpus").sum(), pl.col("start_s", "finish_s").unique().first()).sort("job")
    assert held["gpus"].to_list() == jobs.sort("job")["gpus"].to_list()
    assert held["start_s"].to_list() == jobs.sort("job")["start_s"].to_list()
    assert ((stays["finish_s"] - stays["start_s"]) * stays["gpus"]).sum() == pytest.approx(
        cluster["gpu_seconds"]["busy"], rel=1e-9
    )
    assert ((stays["gpu"] + stays["gpus"]) <= 8).all()
    page = write_report(result, tmp_path / "report.html").read_text(encoding="utf-8")
    figures = re.findall(r'<svg role="img" aria-label="([^"]*)"', page)
    assert figures == ["GPUs and jobs over time", "jobs over hosts", "waiting time by size"]
    # As much of the picture is a job's as the GPUs are busy.
    hosts, lanes = timeline.gpu_lanes(Rows.of(stays), end)
    assert hosts == list(range(int(stays["host"].max()) + 1))  # type: ignore[arg-type]
    assert sum(pixel >= 2 for lane in lanes for pixel in lane) / gpus / timeline.COLUMNS == pytest.approx(
        cluster["utilisation"], abs=0.002
    )


def test_the_picture_of_many_jobs_is_bounded() -> None:
    draw = np.random.default_rng(1)
    rows = 300_000
    start = draw.random(rows) * 1e6
    stays = pl.DataFrame({
        "job": np.arange(rows), "host": draw.integers(0, 500, rows) * 4, "gpu": draw.integers(0, 4, rows),
        "gpus": np.full(rows, 4), "start_s": start, "finish_s": start + 1e4 * draw.random(rows),
    })  # fmt: skip
    began = time.process_time()
    chart = timeline.hosts_chart(Rows.of(stays), 1.1e6)
    assert time.process_time() - began < 5
    assert len(chart) < 2_000_000
    jobs = pl.DataFrame({"gpus": draw.integers(1, 129, rows), "submit_s": start, "start_s": start + draw.random(rows)})
    assert len(timeline.waiting_chart(Rows.of(jobs))) < 100_000


def test_what_fails_is_in_the_picture() -> None:
    stays = pl.DataFrame({"job": ["a", "b"], "host": [0, 1], "gpu": [0, 2], "gpus": [4, 2], "start_s": [0.0, 50.0],
                          "finish_s": [100.0, float("nan")]})  # fmt: skip
    faults = pl.DataFrame({"cause": ["host", "gpu", "switch"], "component": ["host1", "host0/gpu3", "leaf0"],
                           "time_s": [0.0, 100.0, 0.0], "repair_s": [40.0, 50.0, 200.0],
                           "jobs": [0, 1, 0]})  # fmt: skip
    placed, broken = Rows.of(stays), Rows.of(faults)
    hosts, lanes = timeline.gpu_lanes(placed, 200.0, broken)
    assert hosts == [0, 1]
    assert [len(lane) for lane in lanes] == [timeline.COLUMNS] * 8
    at = {second: [lane[second * timeline.COLUMNS // 200] for lane in lanes] for second in (10, 45, 60, 120, 190)}
    assert at[10] == [2, 2, 2, 2, 1, 1, 1, 1]
    assert at[45] == [2, 2, 2, 2, 0, 0, 0, 0]
    assert at[60] == [2, 2, 2, 2, 0, 0, 3, 3]
    assert at[120] == [0, 0, 0, 1, 0, 0, 3, 3]
    assert at[190] == [0, 0, 0, 0, 0, 0, 3, 3]
    assert timeline.hosts_chart(placed, 200.0, broken).count("<svg") == 1


def test_the_shared_cluster_shows_what_it_says(tmp_path: Path) -> None:
    result = windtunnel.run(ROOT / "examples" / "shared-cluster.yaml")
    conserved(dict(result.summary), 256)
    cluster, stays = result.summary["cluster"], result.placements
    assert cluster["faults"]["gpu"]["count"] > 0 < cluster["faults"]["switch"]["count"]
    assert cluster["interruptions"] > 0 < cluster["busy_gpu_seconds"]["lost"]
    # A spare host, one of the last two, took the place of one that had failed.
    assert stays["host"].max() >= 30  # type: ignore[operator]
    held = ((stays["finish_s"] - stays["start_s"]) * stays["gpus"]).sum()
    assert held == pytest.approx(cluster["gpu_seconds"]["busy"], rel=1e-9)
    assert cluster["waiting_s"]["mean"] > 0 < cluster["congestion"]["by_other_jobs_s"]
    page = write_report(result, tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.findall(r'<svg role="img" aria-label="([^"]*)"', page) == [
        "GPUs and jobs over time", "jobs over hosts", "waiting time by size", "links over the calendar",
    ]  # fmt: skip


ENDLESS = {
    # Time slices of a second over a month.
    "philly-month": ["jobs.count=400000", "cluster={scheduler: gang, slice: 1 s}"],
    # Every iteration: beside `--full`.
    "shared-cluster": ["jobs.count=400"],
}


@pytest.mark.parametrize("name", ENDLESS)
def test_ctrl_c_leaves_what_there_is(tmp_path: Path, interrupted: Interrupted, name: str) -> None:
    settings = [word for setting in ENDLESS[name] for word in ("--set", setting)]
    full = ["--full"] if name == "shared-cluster" else []
    result = interrupted(ROOT / "examples" / f"{name}.yaml", *settings, *full, after=12)
    cluster = result.summary["cluster"]
    assert 0 <= cluster["finished"] < cluster["jobs"]
    # What was counted up to then is whole.
    usage = result.usage
    gpus = {"philly-month": 512, "shared-cluster": 256}[name]
    assert usage["span_s"].sum() * gpus == pytest.approx(sum(cluster["gpu_seconds"].values()), rel=1e-9, abs=1e-6)
    if name == "shared-cluster":
        assert result.placements.filter(pl.col("finish_s").is_null()).height > 0
    else:
        assert result.jobs.height == cluster["finished"] > 0
    assert write_report(result, tmp_path / "report.html").read_text().count("this result is partial") == 1
