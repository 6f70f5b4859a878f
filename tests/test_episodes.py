"""Jobs on a fabric through the installed package: groups, memo, threads, exchanges, and every iteration."""

from __future__ import annotations

from typing import Any

import pytest

import windtunnel

pytestmark = pytest.mark.engine


def cluster(jobs: list[dict[str, Any]] | dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """A leaf of four hosts of one GPU each; spines are shared."""
    return {
        "windtunnel": 1,
        "name": "episodes",
        "seed": 4,
        "fidelity": "flow",
        "topology": {
            "shape": "clos",
            "hosts": 64,
            "tiers": [{"ports_down": 4, "rate": "100 Gbps"}, {"ports_down": 16, "rate": "100 Gbps"}],
            "host": {"gpu": "H100-SXM", "gpus": 1, "nics": 1, "nic": "ConnectX-5"},
        },
        "network": {"exchange": "hosts"},
        "memory": "ignore",
        "results": {"operations": "none", "flows": "none"},
        "jobs": jobs,
        **more,
    }


def job(name: str, ranks: int, iterations: int, submit_ms: int = 0, placement: str = "packed") -> dict[str, Any]:
    return {
        "name": name,
        "workload": {"model": "dlrm", "global_batch": 16_384 * ranks},
        "parallelism": {"dp": ranks},
        "iterations": iterations,
        "submit": f"{submit_ms} ms",
        "placement": placement,
    }


def twelve(iterations: int) -> list[dict[str, Any]]:
    """Jobs of 2 to 12 GPUs that come one after the other, placed at random."""
    sizes = (4, 8, 2, 12, 6)
    return [
        job(f"job-{i}", sizes[i % 5], iterations * (10 + 37 * i % 7) // 10, i * iterations * 8, "random")
        for i in range(12)
    ]


def finishes(result: windtunnel.Result) -> list[float]:
    return [one["finish_s"] for one in result.summary["jobs"]]


def test_a_job_that_shares_no_link_runs_as_if_alone() -> None:
    both = windtunnel.run(cluster([job("a", 4, 50), job("b", 4, 90, 1)]))
    alone = windtunnel.run(cluster([job("a", 4, 50)]))
    assert finishes(both)[0] == finishes(alone)[0]
    episodes = both.summary["cluster"]["episodes"]
    assert (episodes["begun"], episodes["simulated"]) == (2, 1)


def test_neither_memo_nor_threads_change_a_result() -> None:
    scenario = cluster(twelve(200))
    one, two = (windtunnel.run(scenario, threads=threads) for threads in (1, 2))
    off = windtunnel.run(scenario, overrides={"cluster.episodes.memo": "off"})
    assert finishes(one) == finishes(two) == finishes(off)
    assert one.summary["cluster"] == two.summary["cluster"]
    for table in ("jobs", "usage", "heat", "congestion", "iterations"):
        assert one.table(table).equals(two.table(table)), table
    states = one.usage.select("busy", "idle", "stranded", "failed", "draining").sum_horizontal()
    assert states.to_list() == pytest.approx([1.0] * one.usage.height)
    assert one.summary["cluster"]["congestion"]["periods"] == one.congestion.height > 0


def test_fast_forwarding_is_near_every_iteration() -> None:
    noise = {"kernel_noise": {"distribution": "normal", "cv": 0.03}}
    scenario = cluster(twelve(300), variation=noise)
    fast, full = windtunnel.run(scenario), windtunnel.run(scenario, full=True)
    for a, b in zip(fast.summary["jobs"], full.summary["jobs"], strict=True):
        assert b["simulated_iterations"] == b["iterations"] > 4 * a["simulated_iterations"]
        error = (a["finish_s"] - a["start_s"]) / (b["finish_s"] - b["start_s"]) - 1
        # Short runs: a phase of an iteration is a hundredth of a job.
        assert abs(error) < 0.05, (a["name"], error)


def test_a_whole_exchange_takes_the_time_of_its_bytes() -> None:
    def seconds(exchange: str) -> float:
        scenario = {
            "windtunnel": 1,
            "name": "exchange",
            "fidelity": "flow",
            "topology": {
                "shape": "clos",
                "hosts": 4,
                "tiers": [{"ports_down": 4, "rate": "100 Gbps"}],
                "host": {"gpus": 4, "nics": 1, "scale_up": {"rate": "4000 GB/s", "latency": "1 ns"}},
            },
            "network": {"exchange": exchange, "mtu": "4096 B", "header": "96 B"},
            "jobs": [{"name": "a", "workload": {"collective": {"kind": "all_to_all", "algorithm": "direct",
                                                               "bytes": "64 MB"}}}],
        }  # fmt: skip
        return float(windtunnel.run(scenario).summary["jobs"][0]["iteration_time_s"]["mean"])

    # 16 ranks with blocks of 4 MB: a host has 4 x 12 of them for others.
    expected = 48 * 4e6 * 4096 / 4000 * 8 / 100e9
    assert seconds("hosts") == pytest.approx(expected, rel=1e-3)
    assert seconds("messages") == pytest.approx(expected, rel=0.01)


def test_a_queue_is_kept_and_the_run_ends_with_enough_jobs() -> None:
    jobs = {
        "like": "philly", "count": 400, "load": 1e6, "queue": 30, "ends": 60,
        "scale": {"max_gpus": 16, "max_duration": "1 h"},
        "workloads": [{"name": "dlrm", "workload": {"model": "dlrm"}, "batch_per_replica": 4096}],
    }  # fmt: skip
    result = windtunnel.run(cluster(jobs))
    summary = result.summary
    assert (summary["jobs"], summary["cluster"]["finished"]) == ([], 60)
    assert result.jobs["finish_s"].is_not_null().sum() == 60
    assert result.jobs["start_s"].is_null().sum() == 30
    total = sum(summary["cluster"]["gpu_seconds"].values())
    assert total == pytest.approx(64 * summary["simulated_time_s"], rel=1e-9)
    assert summary["cluster"]["samples_per_s_per_gpu"] > 0


def test_a_symmetric_memo_simulates_less_and_is_off_by_what_the_page_says() -> None:
    jobs = [job(f"job-{i}", 6, 200 + 40 * (i % 4), 30 * i) for i in range(24)]

    def spans(memo: str, balancer: str) -> tuple[list[float], dict[str, Any]]:
        overrides = {"cluster.episodes.memo": memo, "network.load_balancer": balancer}
        summary = windtunnel.run(cluster(jobs), overrides=overrides).summary
        if memo == "symmetric":
            assert any(one["constant"] == "episodes" for one in summary["evidence"])
        return [one["finish_s"] - one["start_s"] for one in summary["jobs"]], summary["cluster"]["episodes"]

    (exact, simulated), (alike, hits) = spans("exact", "ecmp"), spans("symmetric", "ecmp")
    assert hits["simulated"] < simulated["simulated"]
    assert hits["memo_hits"] > simulated["memo_hits"]
    errors = [abs(a / b - 1) for a, b in zip(alike, exact, strict=True)]
    # Half of a job's flows cross spines, and collide elsewhere: docs/cluster.md.
    assert 0.01 < sum(errors) / len(errors) < 0.16
    assert max(errors) < 0.6
    # Where nothing is hashed, what lies alike is alike.
    assert spans("symmetric", "ideal")[0] == spans("exact", "ideal")[0]
