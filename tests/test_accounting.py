"""What is counted once and means the same everywhere: iterations, payload, the ideal fabric, rows of stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import windtunnel
from windtunnel.cli.show_run import figures

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

NETWORKED = ("message", "flow", "packet")
MIB = 2**20


def scene(jobs: list[dict[str, Any]], hosts: int = 8, gpus: int = 1, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Hosts of one NIC of 100 Gbps on two leaves."""
    tiers = [{"ports_down": hosts // 2, "rate": "100 Gbps"}, {"ports_down": 4, "rate": "100 Gbps"}]
    host: dict[str, Any] = {"gpus": gpus, "nics": 1}
    if gpus > 1:
        host["scale_up"] = {"rate": "1600 Gbps", "latency": "500 ns"}
    return {
        "windtunnel": 1, "name": "accounting", "seed": 5, "fidelity": "flow",
        "topology": {"shape": "clos", "hosts": hosts, "host": host, "tiers": tiers}, "jobs": jobs, **more,
    }  # fmt: skip


def collective(name: str, kind: str, algorithm: str, iterations: int, **more: object) -> dict[str, Any]:
    workload = {"collective": {"kind": kind, "algorithm": algorithm, "bytes": "1 MiB", **more}}
    return {"name": name, "workload": workload, "iterations": iterations}


def pattern(name: str, kind: str, size: str, iterations: int, ranks: int) -> dict[str, Any]:
    flows = {"pattern": kind, "bytes": size, "ranks": ranks}
    return {"name": name, "workload": {"flows": flows}, "iterations": iterations}


def time_of(job: dict[str, Any]) -> float:
    return float(job["finish_s"] - job["start_s"])


@pytest.mark.parametrize("fidelity", ["job", *NETWORKED])
@pytest.mark.parametrize("full", [False, True])
def test_the_mean_iteration_is_that_of_all(fidelity: str, full: bool) -> None:
    """Senders of an incast run ahead: the first iteration takes longest, and used not to count."""
    scenario = scene([pattern("a", "incast", "1 MiB", 20, 8)])
    job = windtunnel.run(scenario, fidelity=fidelity, full=full).summary["jobs"][0]
    assert job["iteration_time_s"]["mean"] * 20 == pytest.approx(time_of(job), rel=1e-6, abs=2e-9)
    assert (job["undone_iterations"], job["outside_iterations_s"]) == (0, 0)
    assert job["iteration_time_s"]["max"] >= job["iteration_time_s"]["mean"] >= job["iteration_time_s"]["p50"] * 0.5


@pytest.mark.parametrize("fidelity", NETWORKED)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    ("job", "messages", "size"),
    [
        (collective("a", "all_reduce", "ring", 50), 2 * 8 * 7, 2 * 7 * MIB),
        (collective("a", "all_gather", "ring", 50), 8 * 7, 7 * MIB),
        (collective("a", "all_to_all", "direct", 50), 8 * 7, 7 * MIB),
        (collective("a", "broadcast", "binomial", 50), 7, 7 * MIB),
        (collective("a", "all_reduce", "recursive", 50), 2 * 8 * 3, 2 * 7 * MIB),
        (pattern("a", "all-to-all", "64 KiB", 50, 8), 56, 56 * 65536),
    ],
    ids=lambda value: str(value.get("workload")) if isinstance(value, dict) else None,
)
def test_payload_is_that_of_the_run(
    job: dict[str, Any],
    messages: int,
    size: int,
    fidelity: str,
    full: bool,
) -> None:
    """It was that of four iterations of fifty, and rings at flow fidelity were no message."""
    network = windtunnel.run(scene([job]), fidelity=fidelity, full=full).summary["network"]
    assert (network["messages"], network["bytes_delivered"]) == (50 * messages, 50 * size)
    assert (network["undone_messages"], network["undone_bytes"]) == (0, 0)
    if fidelity == "packet" and full:
        # The network's own count, message by message.
        assert (network["simulated_messages"], network["simulated_bytes"]) == (50 * messages, 50 * size)


def test_messages_inside_hosts_count_as_messages_and_have_no_completion_time() -> None:
    scenario = scene([pattern("a", "all-to-all", "64 KiB", 3, 16)], gpus=2)
    for fidelity in NETWORKED:
        summary = windtunnel.run(scenario, fidelity=fidelity, full=True).summary
        assert summary["network"]["messages"] == 3 * 16 * 15, fidelity
        assert summary["network"]["simulated_messages"] == 3 * 16 * 15, fidelity
        assert summary["flows"]["count"] == 3 * 16 * 14, fidelity


def interrupted(folder: Path, fidelity: str, *, full: bool) -> windtunnel.Result:
    """A job that writes every 5 iterations loses its host in the 13th or so; another one makes it two jobs."""
    log = folder / "faults.csv"
    log.write_text("time_s,component,repair_s\n0.0032,host1,0.001\n", encoding="utf-8")
    jobs = [
        {**collective("a", "all_reduce", "ring", 40, ranks=4), "checkpoint": {"iterations": 5, "write": "50 us"}},
        {**collective("b", "all_reduce", "ring", 3, ranks=4), "submit": "40 ms"},
    ]
    cluster = {"restart": "100 us", "faults": [{"log": str(log)}]}
    return windtunnel.run(scene(jobs, cluster=cluster), fidelity=fidelity, full=full)


@pytest.mark.parametrize(("fidelity", "full"), [("flow", False), ("packet", False), ("flow", True), ("packet", True)])
def test_what_an_interruption_undid_is_counted_apart(tmp_path: Path, fidelity: str, full: bool) -> None:
    found = interrupted(tmp_path, fidelity, full=full)
    job, network = found.summary["jobs"][0], found.summary["network"]
    assert job["interruptions"] == 1
    assert 0 < job["undone_iterations"] < 6
    mean, done = job["iteration_time_s"]["mean"], 40 + job["undone_iterations"]
    assert mean * done + job["outside_iterations_s"] == pytest.approx(time_of(job), rel=1e-6)
    # Seven writes, a restart, and the wait for the host.
    assert job["outside_iterations_s"] > 7 * 50e-6 + 100e-6
    each = 2 * 4 * 3
    assert network["messages"] == (40 + 3) * each
    assert network["undone_messages"] == pytest.approx(job["undone_iterations"] * each, abs=1)


@pytest.mark.parametrize("full", [False, True])
def test_rows_of_two_stays_do_not_mix(tmp_path: Path, full: bool) -> None:
    found = interrupted(tmp_path, "flow", full=full)
    rows = found.iterations.filter(pl.col("job") == "a")
    again = rows.group_by("iteration").agg(pl.len()).filter(pl.col("len") > 1)
    assert full is False or again.height > 0
    assert rows["episode"].n_unique() > 1
    assert rows.select("episode", "iteration").is_unique().all()
    if not full:
        steps = found.critical_path.filter(pl.col("job") == "a")
        assert steps.select("episode", "iteration", "step").is_unique().all()
    # What was cut is no iteration.
    longest = found.summary["jobs"][0]["iteration_time_s"]["max"]
    assert longest <= (rows["finish_ps"] - rows["start_ps"]).max() / 1e12 * (1 + 1e-9)  # type: ignore[operator]


def trained(**more: Any) -> dict[str, Any]:  # noqa: ANN401
    workload: dict[str, Any] = {"model": "opt-350m", "global_batch": 4, "micro_batch": 1, "sequence": 512}
    workload["training"] = {"framework": "none"}
    first, second = (
        {"name": name, "workload": workload, "parallelism": {"dp": 4}, "iterations": 3} for name in ("a", "b")
    )
    found = scene([first, second], **more)
    found["topology"]["host"]["gpu"] = "H100-SXM"
    return found


def test_slow_hosts_are_those_of_the_jobs_that_have_them() -> None:
    """Job `a` has hosts 0 to 3, `b` 4 to 7; the ideal fabric knows no slow host, `job` fidelity that of the job."""
    slow = trained(variation={"speeds": [{"host": 0, "speed": 0.5}], "nics": [{"host": 5, "rate": 0.5}]})
    plain = {job["name"]: job for job in windtunnel.run(trained(), fidelity="job").summary["jobs"]}
    a, b = windtunnel.run(slow, fidelity="job").summary["jobs"]
    ideal = plain["a"]["iteration_time_s"]["mean"]
    assert a["ideal_iteration_time_s"] == b["ideal_iteration_time_s"] == pytest.approx(ideal, rel=1e-9)
    # Half the speed doubles the computation of `a`, half the rate the communication of `b`. The first gradients leave
    # before the last are computed, so a part of the computation hides behind them.
    computed = windtunnel.run(trained()).summary["jobs"][0]["compute_s"]
    assert 0.6 * computed < a["iteration_time_s"]["mean"] - ideal <= computed
    assert 0.6 * computed < 2 * ideal - b["iteration_time_s"]["mean"] <= computed
    for at, job in zip((a, b), windtunnel.run(slow).summary["jobs"], strict=True):
        # Only NICs are busy: nothing else is shared.
        assert job["iteration_time_s"]["mean"] == pytest.approx(at["iteration_time_s"]["mean"], rel=0.02)
        assert job["ideal_iteration_time_s"] == pytest.approx(ideal, rel=1e-9)


def test_a_job_that_was_spread_is_compared_with_the_better_placement() -> None:
    """Four GPUs to a NIC: spread over hosts an all-to-all has four NICs for one."""
    job = pattern("a", "all-to-all", "4 MiB", 2, 8) | {"placement": "spread"}
    found = windtunnel.run(scene([job], gpus=4)).summary["jobs"][0]
    assert found["ideal_iteration_time_s"] <= found["iteration_time_s"]["mean"] * (1 + 1e-9)
    packed = windtunnel.run(scene([{**job, "placement": "packed"}], gpus=4)).summary["jobs"][0]
    assert found["ideal_iteration_time_s"] <= packed["ideal_iteration_time_s"]


def test_a_fabric_never_costs_less_than_nothing_without_a_word() -> None:
    job = windtunnel.run(scene([collective("a", "all_reduce", "ring", 3)])).summary["jobs"][0]
    said = {name: remark for name, _, remark in figures(job, "flow")}["ideal fabric"]
    assert said.startswith("this fabric takes +")
    job["iteration_time_s"]["mean"] = job["ideal_iteration_time_s"] * 0.9
    said = {name: remark for name, _, remark in figures(job, "message")}["ideal fabric"]
    assert said.startswith("shorter than on the ideal fabric by 10.0 %: `message`")


def test_message_fidelity_takes_the_slowest_link_of_a_path() -> None:
    """A single link of 25 Gbps behind NICs of 100; cut over four of them messages go at the NIC's rate."""

    def time(balancer: str, fidelity: str) -> float:
        scenario = scene([pattern("a", "permutation", "16 MiB", 1, 2)], hosts=2, network={"load_balancer": balancer})
        scenario["topology"]["tiers"] = [
            {"ports_down": 1, "rate": "100 Gbps"},
            {"ports_down": 2, "rate": "25 Gbps"},
        ]
        return float(windtunnel.run(scenario, fidelity=fidelity).summary["jobs"][0]["iteration_time_s"]["mean"])

    for balancer in ("ecmp", "spray"):
        assert time(balancer, "message") == pytest.approx(time(balancer, "flow"), rel=0.01), balancer
    assert time("ecmp", "message") > 3.5 * time("spray", "message")
