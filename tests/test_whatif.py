"""What-if drains through the installed package, and Student's t against tables."""

from __future__ import annotations

import datetime as dt
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

import windtunnel
from windtunnel.engine import InputError
from windtunnel.student import cdf, quantile
from windtunnel.whatif import Means, add, change, drain, fail
from windtunnel.whatif.draws import reads_seed

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

pytestmark = pytest.mark.engine

SCENARIO: dict[str, Any] = {
    "windtunnel": 1,
    "name": "drain",
    "seed": 1,
    "fidelity": "job",
    "topology": {"hosts": 4, "host": {"gpus": 8}},
    "jobs": [
        {
            "name": "long",
            "gpus": 16,
            "duration": "40 h",
            "checkpoint": {"every": "4 h", "write": "6 min"},
            "restart": "30 min",
        },
        {"name": "short", "gpus": 8, "duration": "9 h"},
    ],
}


def test_student_is_that_of_the_tables() -> None:
    # Abramowitz and Stegun, table 26.10, and the closed forms of one and two degrees of freedom.
    for freedom, value in ((1, 12.706), (2, 4.303), (9, 2.262), (30, 2.042), (120, 1.980)):
        assert quantile(0.975, freedom) == pytest.approx(value, abs=5e-4)
    assert cdf(1.0, 1) == pytest.approx(0.75, abs=1e-12)
    assert cdf(2.0, 2) == pytest.approx(0.5 + 2 / (2 * 6**0.5), abs=1e-12)
    assert cdf(-1.5, 7) == pytest.approx(1 - cdf(1.5, 7), abs=1e-12)


def test_a_drain_costs_what_it_undoes() -> None:
    found = drain(SCENARIO, "host1", at="10 h", lasts="2 h", seeds=2)
    now, later, moved = found.options
    # Nothing is drawn, so one run says it all and there is no interval. At 10 h the job has worked 1.8 h since its
    # second checkpoint, written until 8.2 h. Hosts 2 and 3 are free, so it goes on after its restart, and writes as
    # often as it would have.
    lost = 10 - 8.2 + 0.5
    assert now.by_seed == pytest.approx((lost,), abs=1e-5)
    assert now.lost_gpu_hours == pytest.approx(16 * lost, abs=1e-4)
    assert now.interrupted == 1
    assert (found.drawn, found.seeds, found.window_s) == (False, (1,), 0.0)
    # Moving at 9.5 h pays a write and the restart, and loses no work.
    assert moved.lost_gpu_hours == pytest.approx(16 * 0.5, abs=1e-4)
    assert moved.lost_job_hours == pytest.approx(0.1 + 0.5, abs=1e-5)
    assert later.lost_job_hours == min(mean for _, mean in found.later_starts)
    assert [start / 3600 for start, _ in found.later_starts] == [12, 14, 18, 26]
    assert found.best == "migrate"
    assert {(option.interval, option.confidence) for option in found.options} == {(None, None)}
    strict = drain(SCENARIO, "host1", at="10 h", lasts="2 h", seeds=2, tolerance=2.0)
    assert strict.options[0].verdict == "risky"
    loose = drain(SCENARIO, "host1", at="10 h", lasts="2 h", seeds=2, tolerance=3.0)
    assert {option.verdict for option in loose.options} == {"safe"}


def test_a_drain_of_what_nobody_uses_costs_nothing() -> None:
    found = drain(SCENARIO, "host3", at="20 h", lasts="2 h", seeds=3)
    assert {option.lost_job_hours for option in found.options} == {0.0}
    assert {option.verdict for option in found.options} == {"safe"}


def test_the_command_says_the_same(command: Command, tmp_path: Path) -> None:
    faults = {"faults": [{"like": "llama3", "scale": 50, "repair": "3 h"}]}
    (tmp_path / "drain.yaml").write_text(json.dumps({**SCENARIO, "cluster": faults}))
    words = ("whatif", "drain", "host0", "drain.yaml", "--at", "10 h", "--for", "2 h", "--seeds", "4")
    record = json.loads(command(*words, "--json").stdout)
    assert [option["name"] for option in record["options"]] == ["now", "later", "migrate"]
    assert record["seeds"] == [1, 2, 3, 4]
    assert record["drawn"]
    for option in record["options"]:
        low, high = option["interval"]
        assert low <= option["lost_job_hours"] <= high
        assert 0.5 <= option["confidence"] <= 1
    shown = command(*words).stdout
    assert all(word in shown for word in ("now", "later", "migrate", "4 seeds", "job-hours lost"))


RARE: dict[str, Any] = {"faults": [{"class": "host", "mtbf": "50 d", "repair": "10 h"}]}


def test_what_seldom_happens_is_drawn_nevertheless(command: Command, tmp_path: Path) -> None:
    """Four hosts for 40 h meet a fault in one of ten runs: seeds 23 and 24 without, 25 with one."""
    scenario = {**SCENARIO, "seed": 23, "cluster": RARE}
    found = drain(scenario, "host1", at="10 h", lasts="2 h", seeds=3)
    assert (found.drawn, found.seeds) == (True, (23, 24, 25))
    one, other, third = found.options[0].by_seed
    assert one == other != third
    assert found.options[0].interval is not None
    lost = change(scenario, {"jobs[0].restart": "2 h"}, means=Means(3, ("cluster.lost_gpu_s",))).differences[0]
    assert lost.by_seed[0] == lost.by_seed[1] != lost.by_seed[2]
    assert lost.interval is not None
    same = change(scenario, {"jobs[0].restart": "2 h"}, means=Means(2, ("cluster.lost_gpu_s",))).differences[0]
    assert same.interval is None
    (tmp_path / "rare.yaml").write_text(json.dumps(scenario))
    words = ("whatif", "drain", "host1", "rare.yaml", "--at", "10 h", "--for", "2 h", "--seeds", "2")
    done = command(*words)
    assert "2 seeds" in done.stdout
    assert "all seeds agree" in done.stderr
    assert "nothing" not in done.stderr
    # A change that brings the draw along.
    brought = change({**SCENARIO, "seed": 23}, {"cluster": RARE}, means=Means(3, ("cluster.lost_gpu_s",)))
    assert brought.seeds == (23, 24, 25)


NOTHING_DRAWN: dict[str, Any] = {
    "cluster": {"faults": [{"log": "faults.csv"}], "episodes": {"phase": "aligned"}},
    "fidelity": "flow",
    "network": {"load_balancer": "spray"},
    "variation": {"speeds": [{"hosts": [1], "factor": 0.9}]},
    "jobs": [{"name": "a", "workload": {"flows": {"pattern": "incast", "bytes": "1 MB"}}}],
}


@pytest.mark.parametrize(
    "drawn",
    [
        {"cluster": {"faults": [{"log": "faults.csv"}, {"class": "host", "mtbf": "100 d"}]}},
        {"cluster": {"faults": [{"like": "llama3"}]}},
        {"variation": {"kernel_noise": {"distribution": "normal", "cv": 0.01}}},
        {"jobs": {"like": "acme", "count": 10}},
        {"jobs": {"log": "jobs.csv", "priorities": [{"priority": 1, "share": 1}]}},
        {"jobs": {"log": "jobs.csv", "workloads": [{"name": "a"}, {"name": "b"}]}},
        {"jobs": {"log": "jobs.csv", "placement": "random"}},
        {"jobs": [{"name": "a", "placement": "random"}]},
        {"jobs": [{"name": "a", "workload": {"flows": {"pattern": "permutation"}}}]},
        {"jobs": [{"name": "a", "workload": {"flows": {"pattern": "ring", "bytes": "1 MB", "bytes_to": "2 MB"}}}]},
        {"cluster": {}, "jobs": [{"name": "a"}, {"name": "b"}]},
        {"network": {}},
        {"network": {"load_balancer": {"ecmp": {"hash": "crc32"}}}},
        {"fidelity": "packet"},
    ],
    ids=json.dumps,
)
def test_keys_tell_what_is_drawn(drawn: dict[str, Any]) -> None:
    assert not reads_seed(NOTHING_DRAWN)
    assert reads_seed({**NOTHING_DRAWN, **drawn})


LOG = """JobID|Submit|ElapsedRaw|Timelimit|AllocTRES|Partition|State
"""


def write_log(path: Path, jobs: int = 60) -> dict[str, Any]:
    """A week of jobs of one to three hosts on four, and the scenario that replays it."""
    draw = random.Random(4)  # noqa: S311
    rows, at = [], dt.datetime(2024, 3, 1, tzinfo=dt.UTC)
    for job in range(jobs):
        at += dt.timedelta(seconds=round(draw.expovariate(1 / 9_000)))
        lasts = round(draw.uniform(1_800, 30_000))
        gpus = draw.choice([2, 4, 8, 8, 16, 24])
        rows.append(f"{job}|{at:%Y-%m-%dT%H:%M:%S}|{lasts}|12:00:00|gres/gpu={gpus}|a|COMPLETED")
    path.write_text(LOG + "\n".join(rows) + "\n")
    jobs_of = {"log": str(path), "format": "slurm", "checkpoint": {"every": "1 h", "write": "2 min"}}
    return {**SCENARIO, "jobs": jobs_of, "cluster": {"scheduler": "easy"}}


def test_a_log_is_run_once_or_at_drawn_instants(tmp_path: Path) -> None:
    scenario = write_log(tmp_path / "jobs.txt")
    heard: list[tuple[int, int]] = []
    once = drain(scenario, "host1", at="2 d", lasts="6 h", done=lambda *at: heard.append(at))
    # Two runs to see that nothing is drawn, and one for each of the six ways to do it.
    assert heard[-1] == (8, 8)
    assert {option.interval for option in once.options} == {None}
    assert once.seeds == (1,)
    spread = drain(scenario, "host1", at="2 d", lasts="6 h", seeds=6, window="1 d")
    assert (spread.drawn, spread.seeds, spread.window_s) == (False, (1, 2, 3, 4, 5, 6), 86_400.0)
    now = spread.options[0]
    assert len(set(now.by_seed)) > 3
    assert now.interval is not None
    assert now.interval[0] < now.lost_job_hours < now.interval[1]
    assert now.confidence is not None
    assert now.confidence < 1


def test_the_interval_covers_the_mean_over_the_window(tmp_path: Path) -> None:
    scenario = write_log(tmp_path / "jobs.txt", jobs=40)
    # The truth: every hour of the window.
    without = ends(scenario, tmp_path)
    truth = sum(ends(drained(scenario, 48.5 + hour), tmp_path) - without for hour in range(24)) / 24 / 3600
    covered = 0
    for first in (1, 9, 17, 25):
        found = drain(scenario, "host1", at="2 d", lasts="6 h", seeds=8, window="1 d", overrides={"seed": first})
        low, high = found.options[0].interval or (0.0, 0.0)
        covered += low <= truth <= high
    assert covered >= 3


def drained(scenario: dict[str, Any], hours: float) -> dict[str, Any]:
    """The scenario with six hours of maintenance of a host."""
    window = {"part": "host1", "at": f"{hours} h", "for": "6 h"}
    return {**scenario, "cluster": {**scenario["cluster"], "maintenance": [window]}}


def ends(scenario: dict[str, Any], folder: Path) -> float:
    """Seconds at which the jobs end, summed."""
    return float(windtunnel.run(scenario, out=folder / "run").jobs["finish_s"].sum())


PLANNED: dict[str, Any] = {"maintenance": [{"part": "host1", "at": "20 h", "for": "1 h"}]}


def test_overrides_hold_for_all_runs_alike() -> None:
    found = drain(SCENARIO, "host1", at="10 h", lasts="2 h", seeds=2)
    scenario = {**SCENARIO, "cluster": PLANNED}
    for key, value in (("cluster.maintenance", []), ("cluster", None)):
        assert drain(scenario, "host1", at="10 h", lasts="2 h", seeds=2, overrides={key: value}) == found
    written = drain({**SCENARIO, "cluster": PLANNED}, "host1", at="10 h", lasts="2 h", seeds=2)
    assert written != found
    given = drain(SCENARIO, "host1", at="10 h", lasts="2 h", seeds=2, overrides={"cluster": PLANNED})
    assert given == written
    moved = drain(scenario, "host1", at="10 h", lasts="2 h", seeds=2, overrides={"cluster.maintenance[0].at": "23 h"})
    planned = {"maintenance": [{**PLANNED["maintenance"][0], "at": "23 h"}]}
    assert moved == drain({**SCENARIO, "cluster": planned}, "host1", at="10 h", lasts="2 h", seeds=2)
    assert drain(SCENARIO, "host1", at="10 h", lasts="2 h", seeds=2, overrides={"seed": 7}).seeds == (7,)


def test_later_starts_at_which_the_part_is_out_already_are_passed_over() -> None:
    heard: list[tuple[int, int]] = []
    scenario = {**SCENARIO, "cluster": PLANNED}
    found = drain(scenario, "host1", at="16 h", lasts="2 h", seeds=2, done=lambda *at: heard.append(at))
    # From 20 h on it is out for an hour.
    assert [start / 3600 for start, _ in found.later_starts] == [18, 24, 32]
    # Two to see that nothing is drawn; now, migrated, and three of the four later starts.
    assert heard[-1] == (7, 7)
    with pytest.raises(InputError, match=r"maintenance\[1\]: `host1` is out for maintenance already"):
        drain(scenario, "host1", at="19 h", lasts="2 h", seeds=2)
    long = {"maintenance": [{"part": "host1", "at": "20 h", "for": "10 d"}]}
    with pytest.raises(InputError, match="is out for maintenance already"):
        drain({**SCENARIO, "cluster": long}, "host1", at="18 h", lasts="2 h", seeds=2)


def test_bad_questions_are_told_what_is_wrong(command: Command, tmp_path: Path) -> None:
    (tmp_path / "drain.yaml").write_text(json.dumps(SCENARIO))
    done = command("whatif", "drain", "hots0", "drain.yaml", "--at", "10 h", "--for", "2 h", check=2)
    assert "maintenance[0].part: no component `hots0`" in done.stderr
    assert "did you mean `host0`?" in done.stderr
    with pytest.raises(InputError, match="at: expected a time such as `4 h`, found `10`"):
        drain(SCENARIO, "host0", at="10", lasts="2 h")


# Other changes


FABRIC: dict[str, Any] = {
    "windtunnel": 1,
    "name": "fabric",
    "fidelity": "flow",
    "topology": {
        "shape": "clos",
        "hosts": 8,
        "tiers": [
            {"ports_down": 4, "oversubscription": 2, "rate": "100 Gbps", "length": "5 m"},
            {"ports_down": 2, "rate": "100 Gbps", "length": "5 m"},
        ],
        "host": {"gpus": 1, "nics": 1},
    },
    "network": {"load_balancer": "spray"},
    "jobs": [{"name": "a", "workload": {"flows": {"pattern": "all-to-all", "bytes": "100 MB"}}}],
}


def test_a_failed_spine_takes_its_share_of_the_capacity() -> None:
    """Of two spines: 16 pairs cross at 2/16 of a cable each, which is less than a NIC's 1/7; with one spine at 1/16."""
    found = change(FABRIC, {"topology.failed": ["spine0"]}, means=Means(2))
    same = fail(FABRIC, "spine0", means=Means(2))
    assert found.differences == same.differences
    (makespan,) = [one for one in same.differences if one.metric == "cluster.makespan_s"]
    assert makespan.after / makespan.before == pytest.approx(2, rel=0.01)
    assert makespan.interval is None
    assert same.seeds == (0,)
    with pytest.raises(InputError, match="spine9"):
        fail(FABRIC, "spine9", means=Means(2))


def test_a_failure_at_a_time_costs_what_it_undoes() -> None:
    """As a drain without notice: 1.8 h of work since the second checkpoint, and the restart."""
    found = fail(SCENARIO, "host1", at="10 h", lasts="2 h", means=Means(2, ("cluster.lost_gpu_s",)))
    (lost,) = found.differences
    assert lost.difference == pytest.approx(16 * 3600 * (10 - 8.2 + 0.5), rel=1e-6)
    with pytest.raises(InputError, match="together"):
        fail(SCENARIO, "host1", at="10 h")


def test_differences_are_paired_and_have_an_interval() -> None:
    """Mean and interval are those of the differences seed by seed, by hand."""
    scenario = {**SCENARIO, "cluster": {"faults": [{"class": "host", "mtbf": "60 h", "repair": "3 h"}]}}
    found = change(scenario, {"jobs[0].restart": "2 h"}, means=Means(5, ("cluster.lost_gpu_s",)))
    (lost,) = found.differences
    assert found.seeds == (1, 2, 3, 4, 5)
    each = []
    for seed in found.seeds:
        here, there = (
            windtunnel.run(scenario, seed=seed, overrides=more).summary["cluster"]["lost_gpu_s"]
            for more in ({}, {"jobs[0].restart": "2 h"})
        )
        each.append(there - here)
    assert lost.by_seed == pytest.approx(each)
    assert lost.difference == pytest.approx(sum(each) / 5)
    assert lost.interval is not None
    mean = sum(each) / 5
    half = 2.776 * (sum((value - mean) ** 2 for value in each) / 4 / 5) ** 0.5
    assert lost.interval == pytest.approx((mean - half, mean + half), rel=1e-3)


def test_more_hosts_let_jobs_wait_less(command: Command, tmp_path: Path) -> None:
    crowded = {**SCENARIO, "jobs": [{"name": f"j{i}", "gpus": 16, "duration": "10 h"} for i in range(4)]}
    found = add(crowded, 4, means=Means(2))
    waiting = {one.metric: one for one in found.differences}["cluster.waiting_s.mean"]
    assert waiting.before == pytest.approx(5 * 3600)
    assert waiting.after == 0
    with pytest.raises(InputError, match="expected hosts to remain"):
        add(crowded, -4, means=Means(2))
    (tmp_path / "crowded.yaml").write_text(json.dumps(crowded))
    shown = command("whatif", "add", "4", "crowded.yaml", "--seeds", "2").stdout
    assert "4 hosts more; nothing is drawn: 1 run each" in shown
    again = command("whatif", "set", "topology.hosts=8", "crowded.yaml", "--seeds", "2", "--json").stdout
    assert (
        json.loads(again)["differences"][0]["before"]
        == json.loads(json.dumps(found.record()))["differences"][0]["before"]
    )
    bad = command("whatif", "set", "topology.hostz=8", "crowded.yaml", check=2).stderr
    assert "did you mean `hosts`?" in bad
