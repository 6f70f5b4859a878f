"""Buildings with GPUs of their own: what ranks take by where they lie, and what the explorer makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import windtunnel
from windtunnel.explore.rates import rate
from windtunnel.explore.search import Settings, search
from windtunnel.explore.space import Candidate, Space
from windtunnel.layout.job import read_job
from windtunnel.layout.priced import answers
from windtunnel.source import read_source

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command
    from windtunnel.layout.job import Job

SCENARIO = """
windtunnel: 1
name: kinds
fidelity: flow
topology:
  shape: regions
  buildings:
    - {name: new, hosts: 2, tiers: [{ports_down: 16, rate: 400 Gbps, length: 5 m}, {ports_down: 4, rate: 400 Gbps}]}
    - name: old
      hosts: 1
      host: {gpu: A100-80}
      tiers: [{ports_down: 16, rate: 400 Gbps, length: 5 m}, {ports_down: 4, rate: 400 Gbps}]
  cross: [{between: [new, old], count: 2, rate: 400 Gbps, length: 10 km}]
  host: {gpu: H100-SXM, gpus: 4, nics: 4, nic: ConnectX-7}
network: {load_balancer: spray}
variation: {nics: [{building: old, rate: 0.5}]}
jobs:
  - name: train
    workload: {model: llama3-8b, global_batch: 24, micro_batch: 1, sequence: 4096, training: {framework: nemo}}
    parallelism: {tp: 4, pp: 3, zero: 1}
"""
ACROSS = Candidate(4, 1, 1, 3, 1, 1, 1, "pp-out", "1f1b", 1, 0, 1, "none")
BESIDE = replace(ACROSS, pp=1, dp=3, zero=3, recompute="full")
OWN = "topology.buildings[1].host"
LAYERS = ("jobs[0].workload.training.layers_per_stage", [13, 13, 6])
FEW = {"jobs[0].iterations": 1, "memory": "ignore", LAYERS[0]: LAYERS[1]}

pytestmark = pytest.mark.engine


def job(text: str = SCENARIO) -> Job:
    return read_job(read_source(text), [])


def summary(*overrides: tuple[str, object], fidelity: str | None = None, text: str = SCENARIO) -> dict[str, Any]:
    return dict(windtunnel.run(text, overrides=FEW | dict(overrides), fidelity=fidelity).summary)


def seconds(*overrides: tuple[str, object], fidelity: str | None = None, text: str = SCENARIO) -> float:
    return float(summary(*overrides, fidelity=fidelity, text=text)["jobs"][0]["iteration_time_s"]["mean"])


def ran(of: Job, it: Candidate) -> float:
    """Seconds of an iteration as flows."""
    values = it.values(of.place, of.own["parallelism"])
    return seconds((LAYERS[0], None), *values.items())


@pytest.mark.parametrize("fidelity", ["flow", "message", "packet"])
def test_sheets_that_say_the_same_make_no_difference(fidelity: str) -> None:
    named = summary((OWN, {"gpu": "H100-SXM"}), fidelity=fidelity)
    assert named["jobs"] == summary((OWN, None), fidelity=fidelity)["jobs"]


@pytest.mark.parametrize("fidelity", ["flow", "message"])
def test_ranks_take_what_the_gpus_take_on_which_they_lie(fidelity: str) -> None:
    """Replicas on both kinds: those of the old one set the pace, and compute as on a machine of its kind."""
    layout = {"tp": 4, "pp": 1, "dp": 3, "zero": 0}
    each = (("jobs[0].parallelism", layout), (LAYERS[0], None))
    both = summary(*each, fidelity=fidelity)["jobs"][0]
    old = summary(*each, ("topology.host.gpu", "A100-80"), fidelity=fidelity)["jobs"][0]
    new = summary(*each, (OWN, None), fidelity=fidelity)["jobs"][0]
    assert both["iteration_time_s"]["mean"] == pytest.approx(old["iteration_time_s"]["mean"], rel=0.02)
    assert both["iteration_time_s"]["mean"] > 2 * new["iteration_time_s"]["mean"]
    # The way through the iteration that nothing could shorten goes by the old GPUs.
    assert both["compute_s"] == pytest.approx(old["compute_s"], rel=0.02)


def test_packets_and_flows_agree_on_two_kinds() -> None:
    assert seconds(fidelity="packet") == pytest.approx(seconds(), rel=0.01)
    assert seconds(fidelity="message") == pytest.approx(seconds(), rel=0.02)


def test_a_job_has_the_gpus_of_the_building_that_it_gets() -> None:
    """Two jobs of a building each: the second lies on the old GPUs, and takes what it would on a machine of these."""
    one = {
        "workload": {
            "model": "llama3-8b", "global_batch": 8, "micro_batch": 1, "sequence": 4096,
            "training": {"framework": "nemo"},
        },
        "parallelism": {"tp": 4, "zero": 0}, "iterations": 2,
    }  # fmt: skip
    many = [("jobs", [{"name": name, **one} for name in "abc"]), (LAYERS[0], None)]
    lone = [("jobs", [{"name": "a", **one}]), (LAYERS[0], None)]

    def times(*changes: tuple[str, object]) -> list[float]:
        given = {"memory": "ignore", **{key: value for key, value in changes if value is not None}}
        jobs = windtunnel.run(SCENARIO, overrides=given).summary["jobs"]
        return [float(one["iteration_time_s"]["mean"]) for one in jobs]

    first, second, third = times(*many)
    assert first == pytest.approx(second, rel=1e-6)
    assert first == pytest.approx(times(*lone)[0], rel=0.005)
    assert third == pytest.approx(times(*lone, ("topology.host.gpu", "A100-80"))[0], rel=0.005)
    assert third > 2 * first


def test_links_inside_a_host_are_those_of_its_building() -> None:
    slow = {"gpu": "A100-80", "scale_up": {"rate": "20 GB/s"}}
    even = (LAYERS[0], [11, 11, 10])
    assert seconds(even, (OWN, slow)) > 1.1 * seconds(even)
    # Nobody lies there: the first building has room enough.
    inside = (("jobs[0].parallelism", {"tp": 4, "pp": 2, "zero": 1}), (LAYERS[0], None))
    assert seconds(*inside, (OWN, slow)) == seconds(*inside)


def test_each_kind_has_its_own_memory(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(SCENARIO.replace("A100-80", "A100-40"), encoding="utf-8")
    # Parameters and optimiser alone: 16 bytes for each of 8 billion over two GPUs.
    whole = ["--set", "jobs[0].parallelism={tp: 2, dp: 6, zero: 0}", "--json", "--out", str(tmp_path / "run")]
    refused = command("run", path, *whole, check=2)
    assert "but a A100-40 has 40.0 GiB" in refused.stderr
    fits = command("run", path, *whole, "--set", "jobs[0].parallelism={tp: 2, dp: 4, zero: 0}")
    memory = json.loads(fits.stdout)["jobs"][0]["memory"]
    assert 40 * 2**30 < memory["total"] <= memory["capacity"]
    # The cost model knows it by its pipeline rank.
    of = job(SCENARIO.replace("A100-80", "A100-40"))
    own = (of.own["parallelism"], of.own["training"])
    [there] = answers(of.source, of.overrides, [replace(ACROSS, tp=2, pp=1, dp=6, zero=0).choice(*own)])
    [here] = answers(of.source, of.overrides, [replace(ACROSS, tp=2, pp=1, dp=4, zero=0).choice(*own)])
    assert there.capacity_bytes == 40 * 2**30 < there.memory_bytes
    assert here.capacity_bytes == memory["capacity"]
    assert here.memory_bytes == pytest.approx(memory["total"], rel=1e-3)


@pytest.mark.parametrize(
    "it",
    [
        replace(ACROSS, layers=(13, 13, 6)),
        replace(ACROSS, schedule="zbv", chunks=2, layers=(7, 7, 3, 2, 6, 7)),
        replace(ACROSS, schedule="interleaved", chunks=2, layers=(7, 7, 3, 7, 7, 1), recompute="full"),
        BESIDE,
        replace(BESIDE, zero=1),
        replace(BESIDE, tp=2, dp=6, replicate=3, zero=3),
        replace(ACROSS, tp=2, dp=2, order="dp-out", layers=(11, 11, 10)),
        replace(ACROSS, tp=2, dp=2, layers=(14, 14, 4)),
    ],
    ids=lambda it: f"{it.schedule}-{it.order}-tp{it.tp}-dp{it.dp}-zero{it.zero}-x{it.replicate}-{it.layers}",
)
def test_the_cost_model_follows_runs_on_two_kinds(it: Candidate) -> None:
    of = job()
    [answer] = answers(of.source, of.overrides, [it.choice(of.own["parallelism"], of.own["training"])])
    assert answer.iteration_s == pytest.approx(ran(of, it), rel=0.02)


def test_layers_go_by_what_they_take_on_each_kind() -> None:
    of = job()
    space = Space(tp=(4,), cp=(1,), zero=(1,), micro_batches=(1,), recompute=("none",), divisors=True)
    best, answer = search(of, space, Settings()).rows[0]
    assert (best.pp, best.order) == (3, "pp-out")
    by_rank = [sum(best.layers[rank :: best.pp]) for rank in range(best.pp)]
    if best.schedule == "zbv":
        by_rank = [best.layers[rank] + best.layers[-1 - rank] for rank in range(best.pp)]
    assert sum(by_rank) == of.layers
    assert by_rank[2] < 0.5 * min(by_rank[:2])
    assert answer.held_s == 0
    assert ran(of, best) == pytest.approx(answer.iteration_s, rel=0.01)
    # Two GPUs of three wait for the third.
    [beside] = answers(of.source, of.overrides, [BESIDE.choice(of.own["parallelism"], of.own["training"])])
    assert 0.3 * beside.compute_s < beside.held_s < 2 / 3 * beside.compute_s


def test_explanations_name_the_gpus_of_stages() -> None:
    told = windtunnel.explain(SCENARIO, overrides={LAYERS[0]: LAYERS[1]})
    assert told["topology"]["gpu_sheets"] == ["H100-SXM", "A100-80"]
    stages = told["jobs"][0]["model"]["stages"]
    assert [stage["gpus"] for stage in stages] == [["H100-SXM"], ["H100-SXM"], ["A100-80"]]
    # By layer the last one takes more than twice as long, with the head beside.
    assert stages[2]["forward_compute_s"] / 6 > 2 * stages[1]["forward_compute_s"] / 13


def test_mfu_and_bill_are_of_the_gpus_that_are_there() -> None:
    """Powers are 700 W and 400 W, peaks 989.4 and 312 TFLOPS."""
    found = summary(("topology.buildings[1].hosts", 2), ("jobs[0].parallelism", {"tp": 4, "pp": 3, "zero": 1}))
    assert found["cost"]["gpus_power_w"] == 8 * 700 + 8 * 400
    assert found["jobs"][0]["expected_error"] is None
    one, alone = found["jobs"][0], summary((OWN, None))["jobs"][0]
    per_flop = one["mfu"] * one["iteration_time_s"]["mean"] / (alone["mfu"] * alone["iteration_time_s"]["mean"])
    assert per_flop == pytest.approx(3 * 989.4 / (2 * 989.4 + 312), rel=1e-3)
    of = job()
    first, all_of_them = rate(of, 8), rate(of, 12)
    assert first.watts is not None
    assert all_of_them.watts is not None
    assert all_of_them.watts - 1.5 * first.watts == pytest.approx(4 * (400 - 700))


def test_kernels_of_one_file_or_of_each_sheet(tmp_path: Path) -> None:
    rows = "kernel,m,n,k,dtype,time\nlayer_forward,4096,4096,4,bf16,{} us\nlayer_backward,4096,4096,4,bf16,{} us\n"
    for name, time in (("new", 5000), ("old", 20000)):
        (tmp_path / f"{name}.csv").write_text(rows.format(time, 2 * time), encoding="utf-8")
    path = tmp_path / "two.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    key = "jobs[0].workload.training.profile"

    def forwards(profile: object) -> list[float]:
        told = windtunnel.explain(path, overrides={LAYERS[0]: LAYERS[1], key: profile})
        return [stage["forward_compute_s"] / layers for stage, layers in zip(
            told["jobs"][0]["model"]["stages"], LAYERS[1], strict=True)]  # fmt: skip

    by_sheet = forwards({"H100-SXM": "new.csv", "A100-80": "old.csv"})
    assert by_sheet[1] == pytest.approx(5e-3, rel=1e-6)
    assert by_sheet[2] > 20e-3
    assert forwards("new.csv")[2] < by_sheet[2] - 14e-3
    # What a sheet has no file of, it says itself.
    assert forwards({"A100-80": "old.csv"})[1] == forwards(None)[1]
    with pytest.raises(windtunnel.InputError, match=r"profile\.A100-40: no GPU here has such a sheet"):
        forwards({"A100-40": "old.csv"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("host: {gpu: A100-80}", "host: {gpu: A100-8}"), "no sheet `A100-8` in data/gpus"),
        (("{gpu: H100-SXM, gpus", "{gpus"), "buildings[0].host.gpu: no data sheet of the GPUs of building `new`"),
        (("host: {gpu: A100-80}", "gpu: A100-80"), "unknown key `gpu`"),
        (("host: {gpu: A100-80}", "host: {gpus: 8}"), "unknown key `gpus`"),
        (("host: {gpu: A100-80}", "nic: ConnectX-6"), "unknown key `nic`"),
        (("host: {gpu: A100-80}", "host: {scale_up: {rate: 0 Gbps}}"), "host.scale_up.rate: expected a rate above 0"),
        (("training: {framework: nemo}", "training: {precision: fp8}"), "`A100-80` has no rate for `fp8`"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_refused(command: Command, tmp_path: Path, change: tuple[str, str], said: str) -> None:
    path = tmp_path / "two.yaml"
    assert change[0] in SCENARIO
    path.write_text(SCENARIO.replace(*change), encoding="utf-8")
    search_too = "fp8" not in said
    explored = [["explore", path, "--store", str(tmp_path / "runs")]] if search_too else []
    for asked in (*explored, ["run", path, "--out", str(tmp_path / "run")]):
        refused = command(*asked, check=2)
        assert said in refused.stderr
        assert "hint: " in refused.stderr or "scale_up" in said


def test_recommendation_models_are_refused_on_several_kinds() -> None:
    text = SCENARIO.split("jobs:", maxsplit=1)[0]
    text += "jobs: [{name: a, workload: {model: dlrm, global_batch: 1024}, parallelism: {dp: 12}}]"
    with pytest.raises(windtunnel.InputError, match="recommendation models on GPUs of several data sheets"):
        windtunnel.run(text)
