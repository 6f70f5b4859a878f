"""Schedulers and placements in Python, through the command and the API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import windtunnel
from windtunnel import InputError

if TYPE_CHECKING:
    import polars as pl

ROOT = Path(__file__).resolve().parents[1]
OWN = ROOT / "examples" / "own-policy" / "shortest_fits.py"

SCENARIO = """
windtunnel: 1
name: policies
seed: 3
fidelity: job
topology: {hosts: 4, host: {gpus: 8}}
jobs: {like: philly, count: 400, load: 0.9, scale: {max_gpus: 32, max_duration: 1 d}}
"""


def jobs(**options: object) -> pl.DataFrame:
    return windtunnel.run(SCENARIO, **options).jobs.sort("job")  # type: ignore[arg-type]


def written(folder: Path, text: str) -> str:
    file = folder / "mine.py"
    file.write_text("from windtunnel.policies import *\n\n\n" + text, encoding="utf-8")
    return str(file)


FCFS = """class Mine(Scheduler):
    def decide(self):
        free = sum(map(len, self.free))
        head = next(iter(self.waiting.values()), None)
        return Start(head.id) if head and head.gpus <= free and head.id not in self.refused else None
"""

PACKED = """class Mine(Placement):
    def place(self, free, need):
        gpus = []
        whole = sorted(host for host in free if len(free[host]) == 8)
        while need.gpus - len(gpus) >= 8 and whole:
            gpus += free[whole.pop(0)]
        left = need.gpus - len(gpus)
        if left:
            rest = {host: free[host] for host in free if not set(free[host]) & set(gpus)}
            enough = [host for host in rest if len(rest[host]) >= left]
            if enough:
                gpus += rest[min(enough, key=lambda host: (len(rest[host]), host))][:left]
            else:
                for host in sorted(rest, key=lambda host: (-len(rest[host]), host)):
                    gpus += rest[host][: need.gpus - len(gpus)]
        return gpus if len(gpus) == need.gpus else None
"""


def test_first_come_first_served_in_python_is_that_of_the_engine(tmp_path: Path) -> None:
    own = jobs(scheduler=written(tmp_path, FCFS) + ":Mine")
    assert own.equals(jobs(overrides={"cluster.scheduler": "fcfs"}))


def test_it_goes_by_deadlines_as_the_engine_does(tmp_path: Path) -> None:
    first = "min(self.waiting.values(), key=lambda job: (job.deadline_s, job.id), default=None)"
    earliest = FCFS.replace("next(iter(self.waiting.values()), None)", first)
    due = {"jobs.deadline": 4}
    own = jobs(scheduler=written(tmp_path, earliest) + ":Mine", overrides=due)
    assert own.equals(jobs(overrides={**due, "cluster.scheduler": "edf"}))
    assert not own.equals(jobs(overrides={**due, "cluster.scheduler": "fcfs"}))


def test_it_is_so_too_where_hosts_fail_and_spares_take_over(tmp_path: Path) -> None:
    troubles = {
        "cluster.faults": [
            {"class": "host", "mtbf": "3 d", "repair": "9 h"},
            {"class": "gpu", "mtbf": "10 d", "repair": "2 h"},
        ],
        "cluster.spares": {"hosts": 1, "delay": "10 min"},
        "cluster.maintenance": [{"part": "host1", "at": "1 d", "for": "1 d", "notice": "12 h", "jobs": "migrate"}],
        "jobs.scale.max_gpus": 24,
        "jobs.checkpoint": {"every": "1 h", "write": "1 min"},
    }
    # Jobs that were interrupted stand at the end of `waiting`.
    by_age = FCFS.replace(
        "next(iter(self.waiting.values()), None)", "min(self.waiting.values(), key=lambda j: j.id, default=None)"
    )
    own = windtunnel.run(SCENARIO, scheduler=written(tmp_path, by_age) + ":Mine", overrides=troubles)
    engine = windtunnel.run(SCENARIO, overrides={**troubles, "cluster.scheduler": "fcfs"})
    assert engine.summary["cluster"]["interruptions"] > 10
    assert own.jobs.equals(engine.jobs)
    assert own.table("faults").equals(engine.table("faults"))
    # Those that it sees as free are.
    named = by_age.replace("Start(head.id)", "Start(head.id, sorted(self.free[0])[: head.gpus])")
    chosen = windtunnel.run(SCENARIO, scheduler=written(tmp_path, named) + ":Mine", overrides=troubles)
    assert chosen.summary["cluster"]["finished"] == 400


def test_a_placement_in_python_gives_what_the_engine_would_count(tmp_path: Path) -> None:
    own = windtunnel.run(SCENARIO, placement=written(tmp_path, PACKED) + ":Mine").summary["cluster"]
    packed = windtunnel.run(SCENARIO).summary["cluster"]
    # Anywhere is legal, so which GPUs a job gets changes no time.
    assert own["gpu_seconds"] == packed["gpu_seconds"]
    assert own["waiting_s"] == packed["waiting_s"]


def test_the_example_starts_short_jobs_first_and_is_the_same_each_time() -> None:
    own = windtunnel.run(SCENARIO, scheduler=f"{OWN}:ShortestFits")
    again = windtunnel.run(SCENARIO, scheduler=f"{OWN}:ShortestFits")
    assert own.jobs.equals(again.jobs)
    waits = [result["cluster"]["waiting_s"]["mean"] for result in (own.summary, windtunnel.run(SCENARIO).summary)]
    assert waits[0] < waits[1]
    hosts = windtunnel.run(SCENARIO, placement=f"{OWN}:FullestHosts").summary["cluster"]
    assert hosts["finished"] == 400


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("raise KeyError('x')", "mine.py:6: KeyError: 'x' (job 0)"),
        ("return 'now'", "mine.py:5: Mine.decide: expected `Start`, `Stop` or None, found `'now'`"),
        ("return Start(10**6)", "mine.py:5: Mine.decide: there is no job `1000000`"),
        ("return Stop(0)", "mine.py:5: Mine.decide: job 0 is to stop, but does not run"),
        (
            "return Start(0, gpus=['a'])",
            "mine.py:5: Mine.decide: the GPUs of job 0: expected whole numbers, found `['a']`",
        ),
        ("return Start(0, gpus=[1, 2, 3])", "Mine.decide` starts job 0 on 3 GPUs, expected 1"),
        ("return Start(0, gpus=[999])", "Mine.decide` starts job 0 on GPU 999, which is not free"),
        ("return Start(0, region=2)", "job 0 is to start in region `2`, expected less than 1"),
        (
            "return Stop(0) if self.running else Start(0)",
            "mine.py:5: Mine.decide: job 0 is stopped more than 100 times at one instant, 0 s",
        ),
    ],
)
def test_a_scheduler_at_fault_is_named_with_its_place(tmp_path: Path, body: str, expected: str) -> None:
    name = written(tmp_path, f"class Mine(Scheduler):\n    def decide(self):\n        {body}\n") + ":Mine"
    out = tmp_path / "run"
    with pytest.raises(InputError) as raised:
        windtunnel.run(SCENARIO, scheduler=name, out=out)
    assert expected in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["mine.py"]


def test_a_run_that_waits_for_a_scheduler_tells_its_progress(tmp_path: Path) -> None:
    """By the clock, not by events: Ctrl-C is looked for at the same time."""
    slow = FCFS.replace("        free =", "        __import__('time').sleep(0.002)\n        free =")
    told: list[float | None] = []
    windtunnel.run(
        SCENARIO,
        scheduler=written(tmp_path, slow) + ":Mine",
        progress=lambda fraction, _seconds, _events: told.append(fraction),
    )
    # 400 jobs are asked about at least twice each, 1.6 s.
    assert len(told) >= 4
    assert told == sorted(told, key=lambda fraction: fraction or 0.0)


def test_a_scheduler_that_gives_a_taken_gpu_is_told_which(tmp_path: Path) -> None:
    body = (
        "        head = next(iter(self.waiting.values()), None)\n"
        "        return head and Start(head.id, range(head.gpus))"
    )
    name = written(tmp_path, f"class Mine(Scheduler):\n    def decide(self):\n{body}\n") + ":Mine"
    with pytest.raises(InputError, match=r"mine.py:5: Mine.decide` starts job \d+ on GPU 0, which is not free"):
        windtunnel.run(SCENARIO, scheduler=name)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return [0] * need.gpus", "gives job"),
        ("return [0, 1, 2, 3, 4]", "gives job 0 5 GPUs, expected 1"),
        ("return 7", "mine.py:5: Mine.place: asked for"),
        ("return None", "more than the cluster can"),
        ("return free[99]", "mine.py:6: KeyError: 99, asked for"),
    ],
)
def test_a_placement_at_fault_is_named_with_its_place(tmp_path: Path, body: str, expected: str) -> None:
    name = written(tmp_path, f"class Mine(Placement):\n    def place(self, free, need):\n        {body}\n") + ":Mine"
    with pytest.raises(InputError) as raised:
        windtunnel.run(SCENARIO, placement=name)
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nowhere.py:Mine", "--scheduler: there is no file `nowhere.py`"),
        (f"{OWN}:ShortestFit", "has no class `ShortestFit`\n\nhint: did you mean `ShortestFits`?"),
        (f"{OWN}:FullestHosts", "`FullestHosts` is no scheduler: derive it from `windtunnel.policies.Scheduler`"),
    ],
)
def test_a_class_that_is_none_is_told(name: str, expected: str) -> None:
    with pytest.raises(InputError) as raised:
        windtunnel.run(SCENARIO, scheduler=name)
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("scheduler", "pass", "mine.py:4: scheduler `Mine` has no method `decide`\n\nhint: write `def decide(self)`"),
        ("scheduler", "def decides(self): pass", "has no method `decide`\n\nhint: is `decides` meant to be it?"),
        ("placement", "pass", "mine.py:4: placement `Mine` has no method `place`"),
        ("placement", "pass", "hint: write `def place(self, free, need)`"),
    ],
)
def test_a_class_without_its_method_is_told_which(tmp_path: Path, kind: str, body: str, expected: str) -> None:
    name = written(tmp_path, f"class Mine({kind.capitalize()}):\n    {body}\n")
    with pytest.raises(InputError) as raised:
        windtunnel.run(SCENARIO, **{kind: f"{name}:Mine"})  # type: ignore[arg-type]
    assert expected in str(raised.value)
    with pytest.raises(InputError, match=rf"`{kind.capitalize()}` is only what {kind}s derive from"):
        windtunnel.run(SCENARIO, **{kind: f"{name}:{kind.capitalize()}"})  # type: ignore[arg-type]


def test_a_file_that_does_not_load_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mine.py:4: expected ':'"):
        windtunnel.run(SCENARIO, scheduler=written(tmp_path, "class Mine(Scheduler)\n") + ":Mine")


def test_a_second_interrupt_inside_a_policy_interrupts(tmp_path: Path) -> None:
    body = "signal.raise_signal(signal.SIGINT)\n        signal.raise_signal(signal.SIGINT)"
    text = f"import signal\n\n\nclass Mine(Scheduler):\n    def decide(self):\n        {body}\n"
    with pytest.raises(KeyboardInterrupt):
        windtunnel.run(SCENARIO, scheduler=written(tmp_path, text) + ":Mine")


LISTED = """
windtunnel: 1
name: listed
fidelity: flow
topology: {shape: clos, hosts: 4, tiers: [{ports_down: 4, rate: 100 Gbps}], host: {gpus: 8}}
jobs:
  - {name: a, workload: {collective: {kind: all_reduce, bytes: 1 MB, ranks: 8}}}
"""


@pytest.mark.engine
@pytest.mark.parametrize("scenario", [SCENARIO, LISTED])
def test_jobs_that_nothing_will_start_are_no_result(tmp_path: Path, scenario: str) -> None:
    """Drawn or listed: with GPUs free and nothing to come, a scheduler that starts none ends the run."""
    never = written(tmp_path, "class Mine(Scheduler):\n    def decide(self):\n        return None\n")
    with pytest.raises(windtunnel.RunError, match=r"waits for ever: scheduler `.*Mine\.decide` does not start it"):
        windtunnel.run(scenario, scheduler=f"{never}:Mine")
