"""What the tables of a run say about each other: times that sum up, bytes that are conserved, rows in order."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import windtunnel
from windtunnel.breakdown import PARTS

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel import Result

pytestmark = pytest.mark.engine

MTU, HEADER = 4150, 66

SCENARIO: dict[str, Any] = {
    "windtunnel": 1,
    "name": "tables",
    "seed": 3,
    "fidelity": "flow",
    "topology": {
        "shape": "clos",
        "hosts": 4,
        "tiers": [
            {"ports_down": 2, "oversubscription": 2, "rate": "400 Gbps", "length": "30 m"},
            {"ports_down": 16, "rate": "400 Gbps", "length": "100 m"},
        ],
        "host": {"gpu": "H100-SXM", "gpus": 8, "nics": 8, "nic": "ConnectX-7", "rails": True},
    },
    "network": {"mtu": f"{MTU} B", "header": f"{HEADER} B"},
    "jobs": [
        {
            "name": "pretrain",
            "workload": {"model": "llama3-8b", "global_batch": 16, "micro_batch": 1, "sequence": 2048},
            "parallelism": {"tp": 4, "pp": 2, "dp": 4, "zero": 1, "order": ["tp", "cp", "ep", "dp", "pp"]},
            "iterations": 3,
        }
    ],
    "variation": {"kernel_noise": {"distribution": "lognormal", "cv": 0.02}},
}

TWO_JOBS: list[dict[str, Any]] = [
    {**SCENARIO["jobs"][0], "name": "first", "parallelism": {"tp": 4, "pp": 2, "dp": 2}, "iterations": 4},
    {
        "name": "second",
        "workload": {"collective": {"kind": "all_reduce", "bytes": "64 MiB", "ranks": 16}},
        "iterations": 6,
        "submit": "20 ms",
    },
]


@pytest.fixture(scope="module", params=["flow", "message"])
def result(request: pytest.FixtureRequest) -> Result:
    return windtunnel.run(SCENARIO, fidelity=request.param)


@pytest.fixture(scope="module")
def flow() -> Result:
    return windtunnel.run(SCENARIO, overrides={"results.operations": "all"})


def test_the_parts_of_each_iteration_sum_to_it_in_picoseconds(result: Result) -> None:
    rows = result.iterations.to_dicts()
    assert [row["iteration"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert sum(int(row[part.column]) for part in PARTS) == row["finish_ps"] - row["start_ps"]
        assert row["compute_ps"] > 0
    for before, after in pairwise(rows):
        assert after["start_ps"] == before["finish_ps"]


def test_the_critical_path_is_the_iteration(result: Result) -> None:
    iterations = {row["iteration"]: row for row in result.iterations.to_dicts()}
    paths = result.critical_path.partition_by("iteration", as_dict=True, maintain_order=True)
    assert [key[0] for key in paths] == list(iterations)
    columns = {part.column.removesuffix("_ps").removeprefix("exposed_"): part.column for part in PARTS}
    for (number,), path in paths.items():
        whole = iterations[number]
        assert path["step"].to_list() == list(range(path.height))
        assert path["start_ps"][0] == whole["start_ps"]
        assert path["finish_ps"][-1] == whole["finish_ps"]
        assert path["start_ps"][1:].to_list() == path["finish_ps"][:-1].to_list()
        spent: dict[str, int] = {}
        for row in path.iter_rows(named=True):
            spent[row["category"]] = spent.get(row["category"], 0) + row["finish_ps"] - row["start_ps"]
        assert spent.keys() <= columns.keys()
        for category, column in columns.items():
            assert spent.get(category, 0) == whole[column], category


def test_the_jobs_table_says_what_the_summary_says(result: Result) -> None:
    (row,), (job,) = result.jobs.to_dicts(), result.summary["jobs"]
    assert (row["job"], row["state"], row["ranks"]) == (job["name"], "finished", 32)
    assert row["iteration_time_s"] == job["iteration_time_s"]["mean"]
    spans = (result.iterations["finish_ps"] - result.iterations["start_ps"]).to_list()
    assert job["iteration_time_s"]["mean"] == pytest.approx(sum(spans) / len(spans) / 1e12, rel=1e-12)
    assert job["iteration_time_s"]["max"] == max(spans) / 1e12


def test_bytes_that_leave_the_hosts_are_on_their_links(flow: Result) -> None:
    """Every message beyond its host crosses one link up from a NIC and one down to one, headers included.

    Of a coupled group that goes beyond, some edges may stay inside.
    """
    flows = flow.flows
    assert (flows["finish_ps"] >= flows["start_ps"]).all()
    beyond = flows.filter(pl.col("path") != "scale-up")
    single = int(beyond.filter(pl.col("edges") == 1)["bytes"].sum())
    payload = int(beyond["bytes"].sum())
    assert payload > 0
    links = flow.links
    for tier in ("nic-up", "nic-down"):
        wire = int(links.filter(pl.col("tier") == tier)["bytes"].sum())
        # A header per packet; each link's bytes are rounded.
        assert single * MTU / (MTU - HEADER) <= wire + links.height
        most = payload * MTU / (MTU - HEADER) + HEADER * int(beyond["edges"].sum()) * 64
        assert wire <= most + links.height
    assert flow.summary["network"]["simulated_bytes"] == int(flows["bytes"].sum())
    # All of a host's traffic upwards is no less than what its leaf hands on.
    above = int(links.filter(pl.col("tier").str.starts_with("leaf-up"))["bytes"].sum())
    assert above <= int(links.filter(pl.col("tier") == "nic-up")["bytes"].sum())


def test_no_link_carries_more_than_its_rate(flow: Result) -> None:
    links = flow.links
    assert links.height > 0
    assert (links["utilisation"] <= links["peak_utilisation"] + 1e-9).all()
    assert (links["peak_utilisation"] <= 1 + 1e-6).all()
    assert links["link"].is_unique().all()
    for row in links.head(50).iter_rows(named=True):
        in_bins = sum(row["utilisation_bins"]) * row["bin_span_ps"] / 1e12 * row["rate_bps"] / 8
        assert in_bins == pytest.approx(row["bytes"], rel=1e-6, abs=1)
    most = flow.summary["network"]["links_most_loaded"]
    assert [link["utilisation"] for link in most] == sorted((link["utilisation"] for link in most), reverse=True)


def test_operations_are_of_every_rank_and_in_time(flow: Result) -> None:
    operations = flow.operations
    assert sorted(operations["rank"].unique().to_list()) == list(range(32))
    assert set(operations["kind"].unique()) <= {"calc", "send", "receive", "collective"}
    assert (operations["ready_ps"] <= operations["start_ps"]).all()
    assert (operations["start_ps"] <= operations["finish_ps"]).all()
    before, last = flow.iterations.filter(pl.col("iteration") >= 1).to_dicts()
    assert operations["iteration"].unique().to_list() == [2]
    assert operations["finish_ps"].max() == last["finish_ps"]
    # A rank goes on as soon as it is done; the iteration before ends with the last rank.
    assert before["start_ps"] < operations["start_ps"].min() < last["finish_ps"]


def test_messages_are_counted_and_timed() -> None:
    result = windtunnel.run(SCENARIO, fidelity="message")
    messages, network = result.messages, result.summary["network"]
    assert messages.height == network["simulated_messages"]
    assert int(messages["bytes"].sum()) == network["simulated_bytes"] <= network["bytes_delivered"]
    apart = messages.filter(pl.col("path") != "scale-up")
    assert 0 < apart.height == result.summary["flows"]["count"]
    spans = (apart["finish_ps"] - apart["start_ps"]).sort()
    assert result.summary["flows"]["fct_max_s"] == spans[-1] / 1e12
    assert result.summary["flows"]["fct_mean_s"] == pytest.approx(spans.mean() / 1e12, rel=1e-9)  # type: ignore[operator]


def test_several_jobs_share_the_machine() -> None:
    result = windtunnel.run({**SCENARIO, "jobs": TWO_JOBS})
    first, second = result.summary["jobs"]
    assert (first["name"], first["ranks"], second["name"], second["ranks"]) == ("first", 16, "second", 16)
    assert first["state"] == second["state"] == "finished"
    assert first["start_s"] == 0
    assert second["submit_s"] == 0.02
    assert second["start_s"] >= 0.02
    assert result.summary["cluster"]["makespan_s"] == max(first["finish_s"], second["finish_s"])
    busy = 16 * (first["finish_s"] - first["start_s"]) + 16 * (second["finish_s"] - second["start_s"])
    gpu_seconds = result.summary["cluster"]["gpu_seconds"]
    assert gpu_seconds["busy"] == pytest.approx(busy, rel=1e-9)
    whole = sum(gpu_seconds.values())
    assert whole == pytest.approx(32 * result.summary["cluster"]["makespan_s"], rel=1e-9)
    assert set(result.iterations["job"].unique()) == {"first", "second"}
    # Neither is faster in company than alone, phases and warm-up apart.
    alone = windtunnel.run({**SCENARIO, "jobs": TWO_JOBS[:1]}).summary["jobs"][0]
    assert first["iteration_time_s"]["mean"] >= alone["iteration_time_s"]["mean"] * 0.999


def test_a_job_that_waits_for_room() -> None:
    """Two jobs of all GPUs: the second starts when the first has ended, a reaction later."""
    job = {"name": "a", "workload": {"collective": {"kind": "all_reduce", "bytes": "64 MiB"}}, "iterations": 2}
    result = windtunnel.run({**SCENARIO, "jobs": [job, {**job, "name": "b"}]})
    first, second = result.summary["jobs"]
    assert second["start_s"] == pytest.approx(first["finish_s"] + 1e-3, abs=1e-9)
    assert result.summary["cluster"]["waiting_s"]["p99"] == pytest.approx(second["start_s"], abs=1e-9)


def test_fidelities_agree_on_a_training_step() -> None:
    """The same text at three fidelities. On this fabric little waits for the network.

    Flow and message agree within 3%; job fidelity is the time on an ideal fabric: never above flow, within 3% of it.
    """
    quiet = {key: value for key, value in SCENARIO.items() if key != "variation"}
    runs = {name: windtunnel.run(quiet, fidelity=name) for name in ("job", "message", "flow")}
    mean = {name: run.summary["jobs"][0]["iteration_time_s"]["mean"] for name, run in runs.items()}
    assert mean["message"] == pytest.approx(mean["flow"], rel=0.03)
    assert mean["job"] <= mean["flow"] * (1 + 1e-9)
    assert mean["job"] == pytest.approx(mean["flow"], rel=0.03)
    job = runs["job"].summary["jobs"][0]
    assert job["ideal_iteration_time_s"] == runs["flow"].summary["jobs"][0]["ideal_iteration_time_s"]
    assert job["compute_s"] is None
    assert job["exposed_s"] == dict.fromkeys(("tp", "cp", "ep", "pp", "dp", "other"))
    compute = {name: runs[name].summary["jobs"][0]["compute_s"] for name in ("message", "flow")}
    assert compute["message"] == pytest.approx(compute["flow"], rel=0.01)


def test_a_given_duration_at_job_fidelity() -> None:
    job = {**SCENARIO["jobs"][0], "duration": "30 s"}
    found = windtunnel.run({**SCENARIO, "jobs": [job]}, fidelity="job").summary
    assert found["jobs"][0]["iteration_time_s"]["mean"] == pytest.approx(10, rel=1e-12)
    assert found["jobs"][0]["finish_s"] == pytest.approx(30, rel=1e-9)
    assert found["jobs"][0]["ideal_iteration_time_s"] is None


def test_a_hand_written_workload_runs(tmp_path: Path) -> None:
    """Two ranks: 1 ms of computation, then a sum of 64 MiB between hosts."""
    workload = windtunnel.Workload(ranks=9)
    pair = workload.communicator("pair", (0, 8))
    gemm = workload.compute([0, 8], "1 ms")
    workload.collective([0, 8], "all_reduce", pair, "64 MiB", after=[gemm])
    path = workload.write(tmp_path / "two.jsonl")
    found = windtunnel.run({**SCENARIO, "jobs": [{"name": "two", "workload": {"file": str(path)}}], "variation": {}})
    (job,) = found.summary["jobs"]
    assert job["compute_s"] == pytest.approx(1e-3, rel=1e-12)
    assert job["exposed_communication_s"] > 0
    assert json.loads((found.path / "summary.json").read_text(encoding="utf-8")) == found.summary
