"""Jobs on a fabric through the installed package: groups, memo, threads, exchanges, and every iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import windtunnel

if TYPE_CHECKING:
    from pathlib import Path

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
    scenario = cluster(twelve(600), variation=noise)
    fast, full = windtunnel.run(scenario), windtunnel.run(scenario, full=True)
    for a, b in zip(fast.summary["jobs"], full.summary["jobs"], strict=True):
        assert b["simulated_iterations"] == b["iterations"] > 4 * a["simulated_iterations"]
        error = (a["finish_s"] - a["start_s"]) / (b["finish_s"] - b["start_s"]) - 1
        # Short runs: a phase of an iteration is a hundredth of a job.
        assert abs(error) < 0.05, (a["name"], error)


@pytest.mark.parametrize("iterations", [60, 400])
def test_short_iterations_meet_long_ones_as_often_as_in_a_whole_run(iterations: int) -> None:
    """A job of 63 us an iteration (alone) beside one of 92 ms, over 16 instants at which it comes."""

    def times(at_us: int, *, full: bool) -> float:
        long = {
            "name": "long",
            "workload": {"model": "opt-350m", "global_batch": 4, "micro_batch": 1, "sequence": 512},
            "parallelism": {"dp": 4},
            "placement": "spread",
            "iterations": 12,
        }
        short = {
            "name": "short",
            "workload": {"collective": {"kind": "all_gather", "bytes": "1 MB", "ranks": 4}},
            "placement": "spread",
            "submit": f"{at_us} us",
            "iterations": iterations,
        }
        scenario = cluster([long, short], seed=at_us)
        tiers = [{"ports_down": 4, "rate": "100 Gbps", "oversubscription": 2}, {"ports_down": 4, "rate": "100 Gbps"}]
        scenario["topology"] |= {"hosts": 4, "tiers": tiers}
        scenario["topology"]["host"] |= {"gpus": 2, "nics": 2}
        one = windtunnel.run(scenario, full=full).summary["jobs"][1]
        time = float(one["finish_s"] - one["start_s"])
        assert one["iteration_time_s"]["mean"] * iterations == pytest.approx(time, rel=0.03)
        return time

    instants = range(100_000, 700_000, 37_919)
    fast, full = (sum(times(at, full=full) for at in instants) / len(instants) for full in (False, True))
    # The deviation of one such time is a fifth of their mean.
    assert fast == pytest.approx(full, rel=0.12)


def test_ranks_that_run_ahead_are_followed_until_they_do_not() -> None:
    """The pace of the last rank is known after two iterations, and another once all are as far ahead as they can be."""
    for workload, hosts, gpus in (
        ({"flows": {"pattern": "permutation", "bytes": "16 KB", "ranks": 12}}, 12, 1),
        ({"flows": {"pattern": "ring", "bytes": "256 KB", "ranks": 8}}, 8, 2),
        ({"collective": {"kind": "reduce", "algorithm": "binomial", "bytes": "1 MB", "ranks": 5}}, 8, 1),
    ):
        one = {"name": "one", "workload": workload, "iterations": 150, "placement": "random"}
        scenario = cluster([one])
        scenario["topology"] |= {"hosts": hosts}
        scenario["topology"]["host"] |= {"gpus": gpus, "nics": gpus}
        fast, full = (finishes(windtunnel.run(scenario, full=full))[0] for full in (False, True))
        assert fast == pytest.approx(full, rel=0.02), workload


def test_simulated_iterations_stand_for_those_between() -> None:
    """Many short episodes at the beginning of a long job's time are not most of what it does."""
    short = [job(f"short-{i}", 6, 40, 100 + 600 * i, "random") for i in range(6)]
    result = windtunnel.run(cluster([job("long", 12, 2000, 0, "random"), *short]))
    for one in result.summary["jobs"]:
        time = one["finish_s"] - one["start_s"]
        assert one["iteration_time_s"]["mean"] * one["iterations"] == pytest.approx(time, rel=0.03), one["name"]
    first = result.summary["jobs"][0]
    mine = result.iterations.filter(job="long")
    # What is simulated of it is slower than what it does alone most of the time.
    simulated = ((mine["finish_ps"] - mine["start_ps"]) / 1e12).mean()
    assert first["simulated_iterations"] < 200
    assert simulated > 1.02 * first["iteration_time_s"]["mean"]
    assert first["iteration_time_s"]["mean"] * 2000 == pytest.approx(first["finish_s"] - first["start_s"], rel=0.002)
    assert first["iteration_time_s"]["p50"] < first["iteration_time_s"]["mean"] < first["iteration_time_s"]["max"]


@pytest.mark.parametrize("megabytes", [24, 40, 48])
def test_what_a_short_load_slows_counts_for_as_long_as_it_lasts(megabytes: int) -> None:
    """A load that ends before the iterations do that are simulated of the job beside it."""
    works = {
        "name": "works",
        "workload": {"collective": {"kind": "all_gather", "bytes": "16 MB", "ranks": 4}},
        "placement": "spread",
        "iterations": 20,
    }
    loads = {
        "name": "loads",
        "workload": {"model": "opt-350m", "global_batch": 2, "micro_batch": 1, "sequence": 512},
        "parallelism": {"dp": 2},
        "submit": "10 ms",
        "data": {"bytes": f"{megabytes} MB"},
    }
    scenario = cluster([works, loads], cluster={"storage": {"hosts": ["host5"], "request": "8 MiB"}})
    scenario["topology"] |= {"hosts": 6, "tiers": [{"ports_down": 6, "rate": "100 Gbps"}]}
    scenario["topology"]["host"]["gpus"] = 4
    del scenario["network"]
    first = windtunnel.run(scenario).summary["jobs"][0]
    assert first["iteration_time_s"]["mean"] * 20 == pytest.approx(first["finish_s"] - first["start_s"], rel=0.03)


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


def rings(name: str, ranks: int, iterations: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    collective = {"kind": "all_reduce", "algorithm": "ring", "bytes": "64 MiB", "ranks": ranks}
    return {"name": name, "workload": {"collective": collective}, "iterations": iterations, **more}


def logged(folder: Path, *rows: str) -> list[dict[str, Any]]:
    (folder / "faults.csv").write_text("time_s,component,repair_s\n" + "\n".join(rows) + "\n")
    return [{"log": str(folder / "faults.csv")}]


def test_an_interrupted_job_goes_back_to_its_checkpoint_where_every_iteration_is_simulated(tmp_path: Path) -> None:
    write, restart, reaction = 5e-3, 7e-3, 1e-3
    life = {"checkpoint": {"iterations": 20, "write": f"{write} s"}, "restart": f"{restart} s"}
    jobs = [rings("a", 4, 100, **life), rings("b", 4, 150)]
    plain = windtunnel.run(cluster(jobs), full=True)
    one = plain.iterations.filter(plain.iterations["job"] == "a")
    span = float((one["finish_ps"] - one["start_ps"]).median()) / 1e12  # type: ignore[arg-type]
    assert finishes(plain)[0] == pytest.approx(100 * span + 4 * write, rel=1e-6)
    # In the middle of the third stretch: 40 iterations are safe, 60 and two writes are left.
    at = 50 * span + 2 * write
    troubled = cluster(jobs, cluster={"faults": logged(tmp_path, f"{at:.9f},software host0/gpu0,0")})
    full = windtunnel.run(troubled, full=True)
    expected = at + reaction + restart + 60 * span + 2 * write
    assert finishes(full)[0] == pytest.approx(expected, rel=1e-6)
    # Who shares no link with it hears nothing of it.
    assert finishes(full)[1] == finishes(plain)[1]
    found = full.summary["cluster"]
    assert found["interruptions"] == full.summary["jobs"][0]["interruptions"] == 1
    assert sum(found["gpu_seconds"].values()) == pytest.approx(64 * found["makespan_s"], rel=1e-12)
    assert found["busy_gpu_seconds"]["lost"] == pytest.approx(4 * 10 * span, rel=1e-3)
    assert found["busy_gpu_seconds"]["checkpoint"] == pytest.approx(4 * 4 * write, rel=1e-6)
    assert finishes(windtunnel.run(troubled))[0] == pytest.approx(expected, rel=1e-6)
    # A checkpoint by time is written as the iteration ends in which it is due.
    timed = [{**jobs[0], "checkpoint": {"every": f"{19.5 * span:.9f} s", "write": f"{write} s"}}, jobs[1]]
    assert finishes(windtunnel.run(cluster(timed), full=True))[0] == pytest.approx(100 * span + 4 * write, rel=1e-6)


def test_jobs_go_round_what_has_failed_where_every_iteration_is_simulated(tmp_path: Path) -> None:
    jobs = [rings(name, 12, 60, placement="random") for name in ("a", "b")]
    plain = windtunnel.run(cluster(jobs), full=True)
    end = max(finishes(plain))
    # Three of four spines are out from the third of its time on, for longer than it takes.
    rows = [f"{end / 3:.9f},spine{i},{10 * end:.9f}" for i in range(3)]
    troubled = cluster(jobs, cluster={"faults": logged(tmp_path, *rows)})
    full, fast = windtunnel.run(troubled, full=True), windtunnel.run(troubled)
    assert full.summary["cluster"]["interruptions"] == 0
    assert max(finishes(full)) > 1.05 * end
    assert finishes(full) == pytest.approx(finishes(fast), rel=0.02)
    # Every byte arrives, whatever way it was on.
    assert full.summary["network"]["simulated_bytes"] == plain.summary["network"]["simulated_bytes"]


def test_fast_forwarding_is_near_every_iteration_where_a_job_is_interrupted(tmp_path: Path) -> None:
    # A checkpoint soon after another, so that which of two was the last one makes no difference to speak of.
    life = {"checkpoint": {"iterations": 4, "write": "1 ms"}, "restart": "20 ms", "placement": "packed"}
    jobs = [{**one, **life} for one in twelve(200)]
    noise = {"kernel_noise": {"distribution": "normal", "cv": 0.03}}
    troubled = cluster(jobs, variation=noise, cluster={"faults": logged(tmp_path, "6.0,software host0/gpu0,0")})
    full, fast = windtunnel.run(troubled, full=True), windtunnel.run(troubled)
    hit = [one["name"] for one in full.summary["jobs"] if one["interruptions"]]
    assert hit == [one["name"] for one in fast.summary["jobs"] if one["interruptions"]] != []
    spans = [[one["finish_s"] - one["start_s"] for one in result.summary["jobs"]] for result in (fast, full)]
    errors = [abs(a / b - 1) for a, b in zip(*spans, strict=True)]
    assert sum(errors) / len(errors) < 0.015, errors
    assert max(errors) < 0.05, errors


def test_a_symmetric_memo_simulates_less_and_is_off_by_what_the_page_says() -> None:
    # Groups last for many iterations: where they change more often each is simulated, whatever lies alike.
    jobs = [job(f"job-{i}", 6, 8_000 + 1_600 * (i % 4), 1_200 * i) for i in range(24)]

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


def test_short_writes_of_neighbours_do_not_end_fast_forwarding() -> None:
    """Six jobs that share spines write for 0.7% of their time, every eight iterations: below half of `tolerance`."""
    writes = {"checkpoint": {"every": "200 ms", "write": "1.4 ms"}, "restart": "1 s"}
    jobs = [job(f"job-{i}", 6, 1500, 40 * i, "random") | writes for i in range(6)]
    noise = {"kernel_noise": {"distribution": "normal", "cv": 0.03}}
    found = windtunnel.run(cluster(jobs, variation=noise)).summary["jobs"]
    assert sum(one["simulated_iterations"] for one in found) < 0.1 * sum(one["iterations"] for one in found)
    plain = windtunnel.run(cluster([one | {"checkpoint": None} for one in jobs], variation=noise)).summary["jobs"]
    for writing, other in zip(found, plain, strict=True):
        # It pays for its own writes, and is held to gain from those of others no more than the tolerance.
        assert 1.0 <= writing["checkpoint_s"] / 0.0014 < 1.1 * (writing["finish_s"] / 0.2)
        assert writing["finish_s"] == pytest.approx(other["finish_s"] + writing["checkpoint_s"], rel=0.02)
