"""Every example runs, and shows what its text says."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import windtunnel
from windtunnel import engine
from windtunnel.source import read_source
from windtunnel.validate.collectives import Ranks, dispatched, times
from windtunnel.validate.systems import read_systems

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SCENARIOS = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
DEMO = "llama3-70b-512xH100"
pytestmark = pytest.mark.engine


@cache
def summary(name: str, *overrides: tuple[str, object], fidelity: str | None = None) -> dict[str, Any]:
    result = windtunnel.run(EXAMPLES / f"{name}.yaml", overrides=dict(overrides), fidelity=fidelity)
    return dict(result.summary)


def job(name: str, *overrides: tuple[str, object], fidelity: str | None = None) -> dict[str, Any]:
    return dict(summary(name, *overrides, fidelity=fidelity)["jobs"][0])


def mean(name: str, *overrides: tuple[str, object], fidelity: str | None = None) -> float:
    return float(job(name, *overrides, fidelity=fidelity)["iteration_time_s"]["mean"])


# Runs of more than half a minute are made small here too.
LARGE = {"mrc-131072"}


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_example_explains_its_time(name: str) -> None:
    found = summary(name, *(SMALL[name] if name in LARGE else ()))
    assert not found["partial"]
    for one in found["jobs"]:
        assert one["state"] == "finished"
        if found["fidelity"] == "job":
            continue
        parts = one["compute_s"] + sum(one["exposed_s"].values())
        parts += one["bubble_s"] + one["straggler_s"] + one["host_s"]
        assert parts == pytest.approx(one["iteration_time_s"]["mean"], rel=1e-9)
        # One iteration from a cold start, where iterations may overlap a little otherwise.
        assert one["ideal_iteration_time_s"] <= one["iteration_time_s"]["mean"] * 1.001


@pytest.mark.parametrize("name", SCENARIOS)
def test_examples_warn_of_nothing_but_what_they_show(name: str) -> None:
    found = summary(name, *(SMALL[name] if name in LARGE else ()))
    said = [*found["warnings"], *(warning for one in found["jobs"] for warning in one.get("warnings", []))]
    said += ((found["cluster"] or {}).get("log") or {}).get("warnings", [])
    text = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")
    head = text[: text.index("windtunnel: 1")]
    assert bool(said) == ("the warnings" in head), said


BENCHES = EXAMPLES.parent / "benches" / "scenarios"


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHES.glob("*.yaml")))
def test_what_the_benches_run_can_be_run(name: str) -> None:
    source = read_source(BENCHES / f"{name}.yaml")
    options = {"threads": None, "seed": None, "fidelity": None, "full": False, "explain": True}
    assert engine.explain(source.text, source.name, str(source.base), [], options)


P, W = "jobs[0].parallelism", "jobs[0].workload"
JUMBO = ("network.mtu", "9000 B")
SMALL_MODEL = ((f"{W}.model", "megatron-1.7b"), (f"{W}.sequence", 2048))

# What makes the large ones small: every packet is followed.
SMALL: dict[str, tuple[tuple[str, object], ...]] = {
    "llama3-70b-512xH100": (
        JUMBO, *SMALL_MODEL, ("topology.hosts", 16), (f"{W}.global_batch", 16), (f"{P}.dp", 4),
        ("jobs[0].iterations", 1),
    ),
    "llama3-70b-256xH100": (
        JUMBO, *SMALL_MODEL, ("topology.hosts", 8), (f"{W}.global_batch", 32), (f"{P}.dp", 2),
        (f"{P}.schedule.chunks", 1),
    ),
    "explore-one-hall": (JUMBO, *SMALL_MODEL, (f"{W}.global_batch", 16)),
    "explore-two-buildings": (JUMBO, *SMALL_MODEL, (f"{W}.global_batch", 16)),
    "explore-two-generations": (
        JUMBO, *SMALL_MODEL, (f"{W}.global_batch", 16), (f"{W}.training.layers_per_stage", "[10, 10, 4]"),
    ),
    "data-loading": (
        ("jobs[0].iterations", 10), ("jobs[1].iterations", 4), ("jobs[2].iterations", 4),
        ("jobs[1].data.bytes", "400 MB"), ("jobs[2].data.bytes", "400 MB"), ("cluster.storage.request", "4 MiB"),
        ("cluster.episodes.iterations", 1), ("cluster.episodes.max_iterations", 1),
    ),
    "elastic": (
        JUMBO, *SMALL_MODEL, ("topology.hosts", 2), (f"{W}.global_batch", 48), (f"{P}.dp", 16),
        ("jobs[0].iterations", 40), ("jobs[0].elastic.min", 8), ("jobs[0].restart", "2 s"),
        ("jobs[0].checkpoint", "{iterations: 10, write: 1 s}"),
        ("jobs[1].workload", "{model: megatron-1.7b, sequence: 2048, global_batch: 8}"),
        ("jobs[1].parallelism.dp", 4), ("jobs[1].submit", "2 s"), ("jobs[1].iterations", 10),
        ("cluster.faults", "[]"), ("cluster.episodes.iterations", 1),
    ),
    "fabric-design": (
        JUMBO, ("topology.hosts", 4), ("topology.tiers[0].ports_down", 16), (f"{W}.global_batch", 8),
        (f"{W}.sequence", 512), (f"{P}.ep", 2), (f"{P}.dp", 2),
    ),
    "llama3-8b-fsdp": (JUMBO, *SMALL_MODEL, ("topology.hosts", 2), (f"{W}.global_batch", 16), (f"{P}.dp", 16)),
    "llama3-8b-hsdp": (JUMBO, *SMALL_MODEL),
    "mixtral-8x7b-ep": (
        JUMBO, ("topology.hosts", 2), (f"{W}.global_batch", 16), (f"{W}.sequence", 1024), (f"{P}.dp", 2)
    ),
    "muon": (
        JUMBO, ("topology.hosts", 2), (f"{W}.model", "mixtral-8x7b"), (f"{W}.global_batch", 16),
        (f"{W}.sequence", 1024), (f"{P}.dp", 2),
    ),
    "deepseek-v3-experts": (
        JUMBO, ("topology.hosts", 4), ("topology.tiers[0].ports_down", 2), (f"{W}.model", "mixtral-8x7b"),
        (f"{W}.global_batch", 16), (f"{W}.sequence", 512), (f"{W}.training.precision", "bf16"),
        (f"{W}.training.layers_per_stage", "null"), (f"{P}.ep", 8), (f"{P}.dp", 2), (f"{P}.pp", 2),
    ),
    "mrc-131072": (
        ("topology.hosts", 64), ("topology.tiers[0].ports_down", 16), ("topology.tiers[1].ports_down", 16),
        ("topology.failed", "[host20/nic0 -> plane3/leaf1]"), (f"{W}.collective.bytes", "8 MiB"),
    ),
    "ring-all-reduce": ((f"{W}.collective.bytes", "64 MiB"),),
    "in-network-all-reduce": ((f"{W}.collective.bytes", "2 MB"),),
    "shared-cluster": (
        ("seed", 7), ("jobs.count", 12), ("jobs.scale", "{gpus: 16, max_gpus: 32, max_duration: 1 h}"),
        ("jobs.workloads", "[{name: ring, workload: {collective: {kind: all_reduce, bytes: 4 MiB}}}]"),
        ("network.exchange", "messages"), ("cluster.episodes.iterations", 1),
    ),
    "stragglers": (JUMBO, *SMALL_MODEL, ("jobs[0].iterations", 1)),
    "torus-all-reduce": ((f"{W}.collective.bytes", "32 MiB"),),
    "two-jobs": (
        ("jobs[0].workload.collective.bytes", "64 MiB"), ("jobs[1].workload.collective.bytes", "16 MiB"),
        ("jobs[0].iterations", 4), ("jobs[1].iterations", 8), ("cluster.episodes.iterations", 1),
    ),
    "zero-bubble": (JUMBO,),
}  # fmt: skip

# Messages between hosts; the others stay inside a scale-up domain.
INSIDE = {"dlrm-figure25"}


def fidelity_of(name: str) -> str:
    found = re.search(r"^fidelity: (\w+)", (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


# A calendar of months has no packets to follow.
@pytest.mark.parametrize("name", [name for name in SCENARIOS if fidelity_of(name) != "job"])
def test_every_example_runs_at_packet_fidelity(name: str) -> None:
    small = SMALL.get(name, ())
    written_for_packets = fidelity_of(name) == "packet"
    found = summary(name, *small, fidelity=None if written_for_packets else "packet")
    assert found["fidelity"] == "packet"
    assert not found["partial"]
    assert (found["data_packet_hops"] > 0) == (name not in INSIDE)
    # What was sent arrived, whatever was lost on the way.
    assert found["network"]["bytes_delivered"] > 0
    for one in found["jobs"]:
        assert one["state"] == "finished"
        parts = one["compute_s"] + sum(one["exposed_s"].values())
        parts += one["bubble_s"] + one["straggler_s"] + one["host_s"]
        assert parts == pytest.approx(one["iteration_time_s"]["mean"], rel=1e-9)
    if written_for_packets:
        # They show what flows do not see.
        return
    flow = summary(name, *small, fidelity="flow")
    for one, fluid in zip(found["jobs"], flow["jobs"], strict=True):
        # Coupled rings wait for their slowest edge at every step, which packets do not: they may be a third faster.
        # From start to end: which of its iterations a job ends within an episode, and shows, hangs on others.
        took = [job["finish_s"] - job["start_s"] for job in (one, fluid)]
        assert took[0] == pytest.approx(took[1], rel=0.4)


FOLDED = "../experiments/dcsim-training/mixtral-2-layers.json"
SMALLER = {
    "mixtral-8x7b-ep": ((f"{W}.model", FOLDED), (f"{W}.sequence", 512)),
    "llama3-8b-hsdp": ((f"{W}.model", "opt-350m"),),
}


@pytest.mark.parametrize(
    "name", ["llama3-70b-256xH100", "llama3-70b-512xH100", "llama3-8b-fsdp", "llama3-8b-hsdp", "mixtral-8x7b-ep"]
)
def test_training_runs_over_dcsim_unchanged(name: str) -> None:
    # Smaller, since every packet is followed; of the network the transport alone is another.
    small = (*SMALL[name], *SMALLER.get(name, ()), ("network.transport", "dcsim"))
    found = summary(name, *small, fidelity="packet")
    assert [job["state"] for job in found["jobs"]] == ["finished"]
    figures = found["network"]["transport"]["figures"]
    assert figures["data_left"] == figures["data_packets_arrived"] > 0
    assert figures["data_lost_in_network"] == figures["data_overdue"] == 0


def test_the_demo_keeps_most_of_the_peak() -> None:
    found = job(DEMO)
    assert found["ranks"] == 512
    assert 0.4 < found["mfu"] < 0.6
    assert found["memory_bytes_per_gpu"] < 80e9
    # The picture in the README is of this run.
    readme = (EXAMPLES.parent / "README.md").read_text()
    picture = readme[readme.index("<!-- demo output -->") : readme.index("<!-- /demo output -->")]
    seconds = re.search(r"iteration time +([0-9.]+) s", picture)
    assert seconds is not None
    assert float(seconds[1]) == pytest.approx(found["iteration_time_s"]["mean"], rel=1e-3)


def test_a_ring_reaches_its_bound_on_an_ideal_fabric() -> None:
    bound = 2 * 63 / 64 * 2**30 * 8 / 400e9 * 4150 / (4150 - 66)
    ideal = job("ring-all-reduce")["ideal_iteration_time_s"]
    # Blocks queue for the edges between hosts, so of 126 dependent steps only the last one's latency is seen. One edge
    # of eight goes to another host: 160 m of cable at 5 ns, three switches of 500 ns, and ConnectX-7's 700 ns and two
    # overheads of 300 ns; seven take NVLink's 600 ns.
    step = (160 * 5e-9 + 3 * 500e-9 + 700e-9 + 2 * 300e-9 + 7 * 600e-9) / 8
    assert ideal == pytest.approx(bound + step, rel=1e-6)
    assert mean("ring-all-reduce") > 1.5 * ideal
    assert mean("ring-all-reduce", ("jobs[0].workload.collective.algorithm", "hierarchical")) < ideal / 4
    # Eight rings at once carry an eighth each, over the one leaf of their rail.
    several = mean("ring-all-reduce", ("jobs[0].workload.collective.algorithm", "multi_ring"))
    rail = (60 * 5e-9 + 500e-9 + 700e-9 + 2 * 300e-9 + 7 * 600e-9) / 8
    assert several == pytest.approx(bound / 8 + rail, rel=1e-6)
    size = ("network.collectives.tuner", "size")
    assert mean("ring-all-reduce", ("jobs[0].workload.collective.algorithm", "auto"), size) == several
    # NCCL's rings are as many, at Simple's share of the NICs.
    assert several < mean("ring-all-reduce", ("jobs[0].workload.collective.algorithm", "auto")) < 1.3 * several


def test_a_hidden_halo_exchange_leaves_compute() -> None:
    found = job("goal-replay")
    assert found["compute_s"] == pytest.approx(290e-6)
    assert found["iteration_time_s"]["mean"] < 292e-6


def test_hand_written_exchanges_are_exposed_as_they_are_labelled() -> None:
    exposed = job("dlrm-figure25")["exposed_s"]
    assert exposed["ep"] > 0
    assert exposed["other"] == 0
    assert job("dlrm-model")["exposed_s"]["ep"] > 0


def test_hashed_paths_collide_and_sprayed_ones_do_not() -> None:
    line_rate = 16 * 2**20 * 8 / 100e9 * 4150 / (4150 - 66)
    assert job("permutation")["ideal_iteration_time_s"] == pytest.approx(line_rate, rel=0.01)
    assert mean("permutation") > 2 * line_rate
    assert mean("permutation", ("network.load_balancer", "spray")) == pytest.approx(line_rate, rel=0.01)


def test_an_incast_keeps_its_receiver_busy() -> None:
    busy = 7e6 * 8 / 100e9 * 4150 / (4150 - 66)
    assert mean("connection-matrix") == pytest.approx(busy, rel=0.01)


def test_experts_across_hosts_expose_more() -> None:
    inside = job("mixtral-8x7b-ep")["exposed_s"]["ep"]
    across = job("mixtral-8x7b-ep", ("jobs[0].parallelism.order", "[tp, cp, dp, ep, pp]"))["exposed_s"]["ep"]
    assert 0 < inside < across / 3


def test_a_dispatcher_takes_what_its_closed_form_says() -> None:
    given = (
        (f"{P}.dp", 1), (f"{W}.global_batch", 8), ("memory", "ignore"), (f"{W}.training.dispatcher", "deepep"),
    )  # fmt: skip
    bytes_of_copies = 4096 * 2 * 4096 * 2
    routing = {"experts": 8, "top_k": 2, "sms": 20}
    system = read_systems(Path("absent"))["eos"]
    asked = [
        dispatched(system, bytes_of_copies, Ranks(1, 8), {**routing, "combine": combine})["collective"]
        for combine in (False, True)
    ]
    # 32 layers: out and back, forward and backward.
    expected = 2 * 32 * sum(times(asked)[0])
    assert job("mixtral-8x7b-ep", *given)["exposed_s"]["ep"] == pytest.approx(expected, rel=0.05)


def test_tokens_go_once_to_a_host() -> None:
    name, key = "deepseek-v3-experts", f"{W}.training"

    def exposed(*given: tuple[str, object]) -> float:
        return float(job(name, *given)["exposed_s"]["ep"])

    # 5.3 of 8 hosts have one of a token's eight experts; a copy for each of these would go to 7 other hosts.
    once = exposed()
    assert 0.55 < once / exposed((f"{key}.dispatcher", "all_to_all"), (f"{key}.dispatcher_sms", "null")) < 0.75
    assert exposed((f"{key}.routing_domains", 4)) < 0.75 * once
    assert exposed((f"{key}.overlap_shared", "true")) < once
    assert exposed((f"{key}.expert_imbalance", 1.3)) > 1.25 * once


def test_a_module_that_predicts_lengthens_the_last_stage() -> None:
    """A layer, a projection and a second head on the stage that has seven layers; three fewer there make up for it."""
    name, key = "deepseek-v3-experts", f"{W}.training"
    module = (f"{key}.multi_token_prediction", 1)
    fewer = (module, (f"{key}.layers_per_stage", "[8, 8, 8, 8, 8, 8, 8, 5]"))
    plain = mean(name)
    assert 1.05 < mean(name, module) / plain < 1.2
    assert 1.0 < mean(name, *fewer) / plain < 1.06
    # What is counted as useful grows too: utilisation is that without the module.
    assert job(name, *fewer)["mfu"] == pytest.approx(job(name)["mfu"], rel=0.02)


def test_prefetch_hides_gathers_and_hybrid_shards_spare_the_fabric() -> None:
    assert (
        job("llama3-8b-fsdp")["exposed_s"]["dp"] * 5
        < (job("llama3-8b-fsdp", ("jobs[0].parallelism.prefetch", 0))["exposed_s"]["dp"])
    )
    carried = {
        name: sum(link["bytes"] for link in summary(name)["network"]["links_most_loaded"])
        for name in ("llama3-8b-fsdp", "llama3-8b-hsdp")
    }
    assert carried["llama3-8b-hsdp"] < carried["llama3-8b-fsdp"]
    assert job("llama3-8b-hsdp")["memory_bytes_per_gpu"] > job("llama3-8b-fsdp")["memory_bytes_per_gpu"]


SCHEDULE = "jobs[0].parallelism.schedule.name"


def test_a_split_backward_fills_bubbles_and_exposes_reductions() -> None:
    split, fused = job("zero-bubble"), job("zero-bubble", (SCHEDULE, "1f1b"))
    assert split["bubble_s"] < 0.6 * fused["bubble_s"]
    assert split["exposed_s"]["tp"] > fused["exposed_s"]["tp"]


@pytest.mark.parametrize("schedule", ["interleaved", "zbv", "dorapp", "dualpipe", "dualpipev", "zb-h2", "zb-2p"])
def test_other_schedules(schedule: str) -> None:
    even = ("jobs[0].workload.training.layers_per_stage", None)
    assert (
        0 < job("zero-bubble", (SCHEDULE, schedule), even)["bubble_s"] < mean("zero-bubble", (SCHEDULE, schedule), even)
    )


def test_variation_shows_where_it_should() -> None:
    def varied(variation: str) -> dict[str, Any]:
        return job("stragglers", ("variation", variation))

    plain = varied("{}")
    assert plain["straggler_s"] == 0
    noisy = varied("{kernel_noise: {distribution: lognormal, cv: 0.02}}")
    assert noisy["straggler_s"] > 0
    # All wait for the slow host: its computation is the iteration's.
    slow = varied("{speeds: [{host: 2, speed: 0.9}]}")
    assert slow["compute_s"] + slow["straggler_s"] == pytest.approx(plain["compute_s"] / 0.9, rel=0.02)
    halved = varied("{nics: [{host: 1, nic: 3, rate: 0.5}]}")
    assert halved["compute_s"] == plain["compute_s"]
    assert halved["exposed_s"]["dp"] > 2 * plain["exposed_s"]["dp"]


def test_oversubscription_loads_the_uplinks() -> None:
    found = summary("oversubscribed-planes")
    assert found["network"]["links_most_loaded"][0]["tier"].startswith("leaf")
    even = mean("oversubscribed-planes", ("topology.tiers[0].oversubscription", 1))
    assert even < found["jobs"][0]["iteration_time_s"]["mean"]


def test_jobs_that_share_links_slow_each_other() -> None:
    shared = summary("two-jobs")["jobs"]
    apart = summary("two-jobs", ("jobs[0].placement", "packed"), ("jobs[1].placement", "packed"))["jobs"]
    assert shared[0]["iteration_time_s"]["mean"] > 1.2 * apart[0]["iteration_time_s"]["mean"]


def test_the_script_finds_what_overlap_is_worth() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "by_hand.py"], capture_output=True, text=True, timeout=120, check=True
    )
    late, beside = (float(line.split()[-2]) for line in done.stdout.splitlines())
    # Eight passes of 4 ms; 256 MiB are reduced afterwards, or all but the last 32 MiB meanwhile. NCCL's launch and hops
    # do not shrink with the bytes.
    assert late > beside > 32
    assert 6 < (late - 32) / (beside - 32) < 8


def test_switches_that_hash_alike_leave_uplinks_idle() -> None:
    seeds = "network.load_balancer.ecmp.switch_seeds"
    alike, seeded = mean("ecmp-hash"), mean("ecmp-hash", (seeds, True))
    assert alike > 1.5 * seeded
    # 16 queue pairs of a message spread evenly by CRC-32, as draws do not.
    drawn = mean("ecmp-hash", ("network.load_balancer.ecmp.hash", "mixed"), (seeds, False))
    assert drawn > 1.05 * alike


def test_packets_that_overtake_one_another_are_lost_to_those_who_count_them() -> None:
    back, three = ("network.recovery", "go_back_n"), ("network.recovery.selective.reorder", 3)
    found = {row: summary("many-paths", *row) for row in [(), (back,), (three,)]}
    again = {row: one["network"]["retransmissions"] for row, one in found.items()}
    lost = found[()]["network"]["packets_dropped"]
    packets = 32 * 257
    assert again[()] <= lost + packets / 1000
    assert again[(back,)] > packets / 2
    assert again[(three,)] > packets / 20
    assert [len(one["warnings"]) for one in found.values()] == [0, 1, 1]
    slowest = {row: one["flows"]["fct_max_s"] for row, one in found.items()}
    assert slowest[(back,)] > 1.5 * slowest[()]
