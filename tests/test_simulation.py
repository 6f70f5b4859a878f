"""A run whose clock the caller moves."""

from __future__ import annotations

from pathlib import Path

import pytest

import windtunnel
from windtunnel.determinism import first_difference
from windtunnel.policies import Scheduler, Start

pytestmark = pytest.mark.engine
ROOT = Path(__file__).resolve().parents[1]
MONTH = ROOT / "examples/shared-cluster.yaml"
FEW = {"jobs.count": 8}


@pytest.mark.parametrize("fidelity", ["flow", "job"])
def test_it_stands_where_it_is_told_to(tmp_path: Path, fidelity: str) -> None:
    once = windtunnel.run(MONTH, overrides=FEW, fidelity=fidelity, out=tmp_path / "once")
    with windtunnel.Simulation(MONTH, overrides=FEW, fidelity=fidelity, out=tmp_path / "held") as run:
        seen, hour = [], 0
        while not run.ended:
            run.advance_until(hour * 600.0)
            events = run.events()
            assert all(event.time_s <= hour * 600.0 for event in events) or run.ended
            if run.next_s is not None:
                assert run.next_s > hour * 600.0 >= run.now_s
            seen += events
            hour += 1
        result = run.finish()
    assert hour > 5
    assert first_difference(once, result) is None
    for job in once.jobs.iter_rows(named=True):
        story = [event.what for event in seen if event.job == job["job"] and event.what != "fault"]
        assert story[0] == "submitted"
        assert story[-1] == "ended"
        last = [event.time_s for event in seen if event.job == job["job"]][-1]
        assert last == pytest.approx(job["finish_s"], abs=1e-6)
    faults = [event for event in seen if event.what == "fault"]
    assert len(faults) == once.scan("faults").collect().height
    assert [event.component for event in faults] == once.scan("faults").collect()["component"].to_list()


def test_step_by_step(tmp_path: Path) -> None:
    plan = windtunnel.Plan(MONTH, overrides=FEW)
    with windtunnel.Simulation(plan, out=tmp_path / "run") as run:
        instants = [run.step().now_s for _ in range(5)]
        assert instants == sorted(set(instants))
        assert run.next_s is not None
    # One that was closed can go on.
    assert windtunnel.load(tmp_path / "run").summary["partial"]
    assert not windtunnel.resume(tmp_path / "run").summary["partial"]


class Broken(Scheduler):
    """Fails at its third decision."""

    calls = 0

    def decide(self) -> Start | None:
        self.calls += 1
        if self.calls > 3:
            raise ValueError("three are enough")
        head = next(iter(self.waiting), None)
        return None if head is None or head in self.refused else Start(head)


def test_what_fails_is_raised_where_somebody_waits() -> None:
    run = windtunnel.Simulation(MONTH, overrides=FEW, scheduler=Broken)
    with pytest.raises(windtunnel.InputError, match="three are enough"):
        run.finish()
    with pytest.raises(windtunnel.InputError, match="no such file"):
        windtunnel.Simulation("nowhere.yaml").advance_until(1.0)
    with pytest.raises(windtunnel.InputError, match="expected seconds"):
        windtunnel.Simulation(MONTH, overrides=FEW).advance_until(-1.0)


def test_a_failure_says_of_which_kind_it_is(tmp_path: Path) -> None:
    tiers = [{"ports_down": 2, "rate": "1 Gbps"}]
    topology = {"shape": "clos", "hosts": 2, "tiers": tiers, "host": {"gpus": 1}}
    text = {"windtunnel": 1, "name": "stuck", "fidelity": "message", "topology": topology}
    stuck = windtunnel.Workload(ranks=2)
    stuck.receive(0, 1, tag=3)
    with pytest.raises(windtunnel.RunError, match="never comes") as caught:
        windtunnel.run({**text, "jobs": [{"name": "a", "workload": {"file": str(stuck.write(tmp_path / "a.jsonl"))}}]})
    assert caught.value.why == "stuck"
