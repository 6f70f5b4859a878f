"""GPUs that are slower than others: layers by their speeds, and what replicas of both kinds lose."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import windtunnel
from conftest import EIGHT_H100
from windtunnel.explore.search import Settings, even, search
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
name: generations
fidelity: flow
topology:
  shape: regions
  buildings:
    - {name: new, hosts: 2, tiers: [{ports_down: 16, rate: 400 Gbps, length: 5 m}, {ports_down: 4, rate: 400 Gbps}]}
    - {name: old, hosts: 1, tiers: [{ports_down: 16, rate: 400 Gbps, length: 5 m}, {ports_down: 4, rate: 400 Gbps}]}
  cross: [{between: [new, old], count: 2, rate: 400 Gbps, length: 10 km}]
  host: {gpu: H100-SXM, gpus: 4, nics: 4, nic: ConnectX-7}
network: {load_balancer: spray}
variation: {speeds: [{building: old, speed: 0.4}], nics: [{building: old, rate: 0.5}]}
jobs:
  - name: train
    workload: {model: llama3-8b, global_batch: 24, micro_batch: 1, sequence: 4096, training: {framework: nemo}}
    parallelism: {tp: 4, pp: 3, zero: 1}
"""
SPACE = Space(tp=(4,), cp=(1,), zero=(1,), micro_batches=(1,), recompute=("none",), divisors=True)
ACROSS = Candidate(4, 1, 1, 3, 1, 1, 1, "pp-out", "1f1b", 1, 0, 1, "none")
BESIDE = replace(ACROSS, pp=1, dp=3, zero=3, recompute="full")


def job(text: str = SCENARIO) -> Job:
    return read_job(read_source(text), [])


def ran(of: Job, it: Candidate, *overrides: tuple[str, object]) -> float:
    """Seconds of an iteration as flows."""
    values = {**it.values(of.place, of.own["parallelism"]), f"{of.place}.iterations": 1, **dict(overrides)}
    summary = windtunnel.run(of.source.text, overrides={"memory": "ignore", **values}).summary
    return float(summary["jobs"][0]["iteration_time_s"]["mean"])


def priced(of: Job, it: Candidate) -> tuple[float, float]:
    """Seconds of an iteration by the cost model, and of these how long a GPU waits for slower ones of its stage."""
    [answer] = answers(of.source, of.overrides, [it.choice(of.own["parallelism"], of.own["training"])])
    assert answer.iteration_s is not None
    return answer.iteration_s, answer.held_s


def test_a_building_is_as_slow_as_its_hosts_would_be() -> None:
    hosts = SCENARIO.replace("{building: old, ", "{host: 2, ")
    assert hosts.count("host: 2, ") == 2
    changes = {"jobs[0].iterations": 1, "jobs[0].workload.training.layers_per_stage": [13, 13, 6]}
    results = [windtunnel.run(text, overrides=changes).summary for text in (SCENARIO, hosts)]
    assert results[0]["jobs"] == results[1]["jobs"]
    it = replace(ACROSS, layers=(11, 11, 10))
    assert ran(job(), it) > 1.5 * ran(job(), it, ("variation", None))


@pytest.mark.parametrize(
    "it",
    [
        replace(ACROSS, layers=(13, 13, 6)),
        replace(ACROSS, layers=(14, 14, 4)),
        replace(ACROSS, schedule="zbv", chunks=2, layers=(7, 7, 3, 2, 6, 7)),
        replace(ACROSS, schedule="interleaved", chunks=2, layers=(7, 7, 3, 7, 7, 1), recompute="full"),
        BESIDE,
        replace(BESIDE, zero=1),
        replace(ACROSS, tp=2, dp=2, order="dp-out", layers=(11, 11, 10)),
        replace(ACROSS, tp=2, dp=2, layers=(14, 14, 4)),
    ],
    ids=lambda it: f"{it.schedule}-{it.order}-tp{it.tp}-dp{it.dp}-zero{it.zero}-{it.layers}",
)
def test_the_cost_model_follows_runs_on_gpus_of_two_speeds(it: Candidate) -> None:
    of = job()
    assert priced(of, it)[0] == pytest.approx(ran(of, it), rel=0.03)


def test_layers_go_by_the_speeds_of_stages() -> None:
    of = job()
    best, answer = search(of, SPACE, Settings()).rows[0]
    # Pipelines over the buildings: the old one has the last of three stages, at less than half of the layers.
    assert (best.pp, best.order) == (3, "pp-out")
    by_rank = [sum(best.layers[rank :: best.pp]) for rank in range(best.pp)]
    if best.schedule == "zbv":
        by_rank = [best.layers[rank] + best.layers[-1 - rank] for rank in range(best.pp)]
    assert sum(by_rank) == of.layers
    assert max(by_rank[:2]) - min(by_rank[:2]) <= 1
    assert by_rank[2] < 0.5 * by_rank[0]
    assert answer.held_s == 0
    # Which a run confirms: about equal layers take half as long again.
    plain = replace(best, layers=tuple(even(of.layers, best.stages) or ()))
    assert ran(of, plain) > 1.4 * ran(of, best)
    # Nothing else than speeds asks for it.
    alike = search(job(SCENARIO.replace("speeds: [{building: old, speed: 0.4}], ", "")), SPACE, Settings())
    assert all(not row[0].layers for row in alike.rows)


def test_replicas_of_both_kinds_wait_for_the_slower() -> None:
    of = job()
    seconds, held = priced(of, BESIDE)
    # Two GPUs of three wait 0.6 of the computation.
    [answer] = answers(of.source, of.overrides, [BESIDE.choice(of.own["parallelism"], of.own["training"])])
    assert held == pytest.approx(2 / 3 * 0.6 * answer.compute_s)
    assert 0.2 * seconds < held < 0.4 * seconds
    assert priced(of, replace(ACROSS, layers=(13, 13, 6)))[1] == 0


def test_uneven_stages_begin_where_the_head_counts() -> None:
    """Of equal GPUs too: the last stage has the head beside its layers, and some less of these."""
    of = job(EIGHT_H100)
    space = Space(
        tp=(2,), cp=(1,), pp=(4,), zero=(1,), micro_batches=(1,), recompute=("none",), schedules=("1f1b",),
    )  # fmt: skip
    even_stages = search(of, space, Settings()).rows[0]
    best = search(of, space, Settings(uneven=True, perturb=1)).rows[0]
    assert best[0].layers[-1] < min(best[0].layers[1:-1])
    assert (best[1].iteration_s or 0) < 0.99 * (even_stages[1].iteration_s or 0)
    assert ran(of, best[0]) < 0.99 * ran(of, even_stages[0])


def test_the_command_tells_of_it(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    few = ["--tp", "4", "--cp", "1", "--zero", "1", "--micro-batch", "1", "--recompute", "none", "--divisors"]
    few += ["--prove", "1", "--store", str(tmp_path / "runs"), "--workers", "1"]
    saved = tmp_path / "best.yaml"
    record = json.loads(command("explore", path, *few, "--json", "--save", saved).stdout)
    best = record["best"]
    assert sum(best["layout"]["layers"]) == 32
    assert best["held_s"] == 0
    assert best["estimated_s"] == pytest.approx(best["flow_s"], rel=0.03)
    assert "layers_per_stage" in saved.read_text(encoding="utf-8")
    beside = ["--pp", "1", "--prove", "0", "--zero", "3", "--recompute", "full"]
    other = command("explore", path, *few, *beside, COLUMNS="")
    assert "of an iteration on average, for others of its stage are slower" in " ".join(other.stdout.split())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("{building: old, speed", "{building: odl, speed"), "variation.speeds[0].building: no building `odl`"),
        (("{building: old, rate", "{building: old, host: 1, rate"), "expected `building` or `host`, found both"),
    ],
)
def test_what_is_not_there_is_refused(command: Command, tmp_path: Path, change: tuple[str, str], said: str) -> None:
    path = tmp_path / "two.yaml"
    assert change[0] in SCENARIO
    path.write_text(SCENARIO.replace(*change), encoding="utf-8")
    refused = command("explore", path, "--store", str(tmp_path / "runs"), check=2)
    assert said in refused.stderr
    assert "hint: " in refused.stderr
