"""What-if drains through the installed package, and Student's t against tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from windtunnel.engine import InputError
from windtunnel.student import cdf, quantile
from windtunnel.whatif import drain

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
    # Nothing is drawn, so all seeds agree. At 10 h the job has worked 1.8 h since its second checkpoint, written until
    # 8.2 h. Hosts 2 and 3 are free, so it goes on after its restart, and writes as often as it would have.
    lost = 10 - 8.2 + 0.5
    assert now.by_seed == pytest.approx((lost, lost), abs=1e-5)
    assert now.lost_gpu_hours == pytest.approx(16 * lost, abs=1e-4)
    assert now.interrupted == 1
    assert now.interval[0] == pytest.approx(lost, abs=1e-5)
    # Moving at 9.5 h pays a write and the restart, and loses no work.
    assert moved.lost_gpu_hours == pytest.approx(16 * 0.5, abs=1e-4)
    assert moved.lost_job_hours == pytest.approx(0.1 + 0.5, abs=1e-5)
    assert later.lost_job_hours == min(mean for _, mean in found.later_starts)
    assert [start / 3600 for start, _ in found.later_starts] == [12, 14, 18, 26]
    assert found.best == "migrate"
    assert {option.confidence for option in found.options} == {1.0}
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
    for option in record["options"]:
        low, high = option["interval"]
        assert low <= option["lost_job_hours"] <= high
        assert 0.5 <= option["confidence"] <= 1
    shown = command(*words).stdout
    assert all(word in shown for word in ("now", "later", "migrate", "4 seeds", "job-hours lost"))


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
    assert drain(SCENARIO, "host1", at="10 h", lasts="2 h", seeds=2, overrides={"seed": 7}).seeds == (7, 8)


def test_later_starts_at_which_the_part_is_out_already_are_passed_over() -> None:
    heard: list[tuple[int, int]] = []
    scenario = {**SCENARIO, "cluster": PLANNED}
    found = drain(scenario, "host1", at="16 h", lasts="2 h", seeds=2, done=lambda *at: heard.append(at))
    # From 20 h on it is out for an hour.
    assert [start / 3600 for start, _ in found.later_starts] == [18, 24, 32]
    assert heard[-1] == (12, 12)
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
