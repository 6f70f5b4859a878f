"""Faults, spares and checkpoints through the installed package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import windtunnel
from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

pytestmark = pytest.mark.engine

EXAMPLE = ROOT / "examples" / "faults.yaml"


def example(**overrides: object) -> windtunnel.Result:
    return windtunnel.run(EXAMPLE, overrides={key.replace("__", "."): value for key, value in overrides.items()})


def cluster(result: windtunnel.Result) -> dict[str, Any]:
    return dict(result.summary["cluster"])


def test_the_example_shows_what_it_says() -> None:
    result = example()
    found = cluster(result)
    gpus = 64 * 8
    assert sum(found["gpu_seconds"].values()) == pytest.approx(gpus * found["makespan_s"], rel=1e-12)
    assert sum(found["busy_gpu_seconds"].values()) == pytest.approx(found["gpu_seconds"]["busy"], rel=1e-12)
    asked = (256 * 30 + 128 * 20 + 112 * 15 + 112 * 10) * 86400
    assert found["busy_gpu_seconds"]["work"] == pytest.approx(asked, rel=1e-9)
    assert found["interruptions"] == sum(job["interruptions"] for job in result.summary["jobs"])
    lost = sum(job["lost_s"] * job["ranks"] for job in result.summary["jobs"])
    assert found["lost_gpu_s"] == pytest.approx(lost, rel=1e-9)
    # As many faults a day as 5,000 GPUs have: ten times Llama 3's 419 in 54 days at 16,384 GPUs.
    count = sum(cause["count"] for cause in found["faults"].values())
    expected = 10 * 419 / 54 * (gpus / 16384) * found["makespan_s"] / 86400
    assert abs(count - expected) < 4 * expected**0.5
    rarely = example(**{"jobs[0]__checkpoint": {"every": "4 h", "write": "2 min"}})
    assert cluster(rarely)["lost_gpu_s"] > found["lost_gpu_s"]
    assert cluster(rarely)["busy_gpu_seconds"]["checkpoint"] < found["busy_gpu_seconds"]["checkpoint"]
    without = example(cluster__spares__hosts=0, topology__hosts=62)
    assert cluster(without)["makespan_s"] > found["makespan_s"]


def test_every_fault_has_a_row() -> None:
    result = example()
    rows, found = result.table("faults"), cluster(result)
    assert rows.height == sum(cause["count"] for cause in found["faults"].values())
    assert rows["time_s"].is_sorted()
    assert rows["jobs"].sum() == found["interruptions"]
    assert rows["lost_gpu_s"].sum() == pytest.approx(found["busy_gpu_seconds"]["lost"], rel=1e-9)
    for cause, of in rows.partition_by("cause", as_dict=True).items():
        assert of.height == found["faults"][cause[0]]["count"]
    assert set(rows["job"].to_list()) <= {"", "large", "middle", "small", "waits"}


def test_the_same_faults_whatever_else_changes() -> None:
    def seen(**overrides: object) -> set[tuple[float, str]]:
        rows = example(**overrides).table("faults")
        early = rows.filter(rows["time_s"] < 10 * 86400)
        return set(early.select("time_s", "component").iter_rows())

    plain = seen()
    assert len(plain) > 10
    assert seen(cluster__scheduler="fcfs", cluster__spares__hosts=0) == plain
    assert seen(**{"jobs[0]__gpus": 64}) == plain
    assert seen(seed=2) != plain


def test_results_do_not_depend_on_threads(command: Command, tmp_path: Path) -> None:
    done = command("run", EXAMPLE, "--check-determinism", "--out", tmp_path / "run", "--no-report")
    assert "deterministic" in done.stderr


def test_an_elastic_job_goes_on_without_what_has_failed() -> None:
    scenario: dict[str, Any] = {
        "windtunnel": 1,
        "name": "elastic",
        "fidelity": "job",
        "topology": {"hosts": 2, "host": {"gpus": 8}},
        "jobs": [{"name": "a", "gpus": 16, "duration": "10 h", "checkpoint": {"every": "1 h", "write": "0 s"}}],
        "cluster": {"maintenance": [{"part": "host1", "at": "5 h", "for": "40 h", "jobs": "migrate"}]},
    }
    rigid = windtunnel.run(scenario).summary["jobs"][0]
    scenario["jobs"][0]["elastic"] = {"min": 8}
    elastic = windtunnel.run(scenario).summary["jobs"][0]
    # Half of the work is done as the host goes; the rest takes twice as long on the other, or waits for the host.
    assert rigid["finish_s"] == pytest.approx((45 + 5) * 3600, abs=1)
    assert elastic["finish_s"] == pytest.approx((5 + 10) * 3600, abs=1)


def test_the_terminal_names_the_causes(command: Command, tmp_path: Path) -> None:
    shown = command("run", EXAMPLE, "--out", tmp_path / "run", "--no-report").stdout
    assert all(word in shown for word in ("interruptions", "goodput", "failed"))
