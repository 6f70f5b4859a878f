"""Energy and dollars of a token as objectives, over several numbers of GPUs."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import windtunnel
from conftest import EIGHT_H100
from windtunnel.engine import InputError
from windtunnel.explore.export import scenario
from windtunnel.explore.rates import check_objective, rate
from windtunnel.explore.search import Settings, search, spent
from windtunnel.explore.space import Space
from windtunnel.layout.job import read_job
from windtunnel.layout.priced import answers
from windtunnel.source import read_source

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command
    from windtunnel.explore.search import Row

SCENARIO = EIGHT_H100.replace("sequence: 2048", "sequence: 4096")
SPACE = Space(cp=(1,), zero=(1, 3), micro_batches=(1,), recompute=("none",), schedules=("1f1b", "interleaved"))
GPUS = (4, 8)


def test_the_bill_is_that_of_a_run(tmp_path: Path) -> None:
    for rent in ("", "prices: {gpu_hour: 2.50 USD}\n"):
        job = read_job(read_source(SCENARIO + rent), [])
        found = search(job, Space(tp=(4,), pp=(1,), zero=(1,), recompute=("none",)), Settings(), gpus=(4,))
        path = tmp_path / "best.yaml"
        path.write_text(scenario(job, found.rows[0][0]), encoding="utf-8")
        summary = windtunnel.run(path, overrides={"jobs[0].iterations": 1}).summary
        billed, ran = summary["cost"]["jobs"][0], summary["jobs"][0]
        seconds = ran["iteration_time_s"]["mean"]
        tokens = ran["tokens_per_s"] * seconds
        mine = rate(job, 4)
        assert mine.joules(seconds, tokens) == pytest.approx(1 / billed["tokens_per_j"])
        assert mine.dollars(seconds, tokens) == pytest.approx(1 / billed["tokens_per_usd"])


@pytest.mark.parametrize("objective", ["dollars", "energy"])
def test_the_cheapest_layout_is_found_over_several_numbers_of_gpus(objective: str) -> None:
    job = read_job(read_source(SCENARIO), [])
    found = search(job, SPACE, Settings(objective=objective), gpus=GPUS)
    best = found.ranked(objective)[0]
    candidates = SPACE.candidates(job, Counter(), GPUS)
    assert {it.gpus for it in candidates} == set(GPUS)
    own, training = job.own["parallelism"], job.own["training"]
    # One by one: the slowest of more GPUs is slower, so layouts on other numbers share no kernels.
    whole = [answers(job.source, job.overrides, [it.choice(own, training)])[0] for it in candidates]
    fit = [(it, answer) for it, answer in zip(candidates, whole, strict=True) if answer.iteration_s and answer.fits]
    assert best == min(fit, key=spent)
    settled = {row[0]: row[1] for row in found.rows if not row[1].least}
    assert all(settled.get(it, answer) == answer for it, answer in fit)
    # Half the GPUs take more than half as long again: a trade-off, which the front has.
    assert best[0].gpus == 4
    assert found.ranked("time")[0][0].gpus == 8
    assert {row[0].gpus for row in found.front()} == set(GPUS)
    for row in found.front():
        for other in found.rows:
            better = [
                (other[1].iteration_s or 0) < (row[1].iteration_s or 0),
                other[1].memory_bytes < row[1].memory_bytes,
                spent(other) < spent(row),
            ]
            assert not all(better)


def test_one_number_of_gpus_has_the_front_that_it_had() -> None:
    job = read_job(read_source(SCENARIO), [])
    found = search(job, SPACE, Settings())
    edge: list[Row] = []
    for row in found.rows:
        if not edge or row[1].memory_bytes < edge[-1][1].memory_bytes:
            edge.append(row)
    assert found.front() == edge


def test_an_objective_without_a_sheet_is_refused() -> None:
    job = read_job(read_source(SCENARIO.replace("gpu: H100-SXM", "gpu: a100-40")), [])
    with pytest.raises(InputError, match="--objective dollars: no sheet says what the machine costs"):
        check_objective(job, "dollars", 8)


def test_the_command_ranks_by_dollars(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    few = ["--cp", "1", "--zero", "1", "--micro-batch", "1", "--recompute", "none", "--schedule", "1f1b"]
    few += ["--gpus", "4,8", "--objective", "dollars", "--store", str(tmp_path / "runs"), "--workers", "1"]
    saved = tmp_path / "best.yaml"
    record = json.loads(command("explore", path, *few, "--prove", "3", "--json", "--save", saved).stdout)
    usd = [row["usd_per_token"] for row in record["rows"][:3]]
    assert usd == sorted(usd)
    assert record["gpus"] == record["best"]["layout"]["gpus"] == 4
    assert record["best"]["usd_per_token"] == record["usd_per_token"]
    assert "on 4 GPUs" in saved.read_text(encoding="utf-8")
    shown = command("explore", path, *few, "--prove", "0", COLUMNS="").stdout
    assert "US$/M tokens" in shown
    assert "llama3-8b on 4, 8 GPUs" in shown
    refused = command("explore", path, "--gpus", "4,9", check=2)
    assert "--gpus: expected from 1 to the 8 GPUs of the topology, found 9" in refused.stderr


def test_the_section_names_numbers_of_gpus_and_an_objective(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    few = "tp: [4], cp: [1], zero: [1], micro_batch: [1], recompute: [none], schedule: [1f1b], prove: 0"
    path.write_text(f"{SCENARIO}explore: {{{few}, gpus: [4, 8], objective: dollars}}\n", encoding="utf-8")
    store = ["--store", str(tmp_path / "runs"), "--json"]
    told = json.loads(command("explore", path, *store).stdout)
    assert (told["objective"], told["gpus"]) == ("dollars", 4)
    assert {row["layout"]["gpus"] for row in told["rows"]} == {4, 8}
    # Options go before them.
    other = json.loads(command("explore", path, *store, "--gpus", "8", "--objective", "time").stdout)
    assert (other["objective"], {row["layout"]["gpus"] for row in other["rows"]}) == ("time", {8})
    path.write_text(f"{SCENARIO}explore: {{{few}}}\n", encoding="utf-8")
    options = json.loads(command("explore", path, *store, "--gpus", "4,8", "--objective", "dollars").stdout)
    assert options == told
    # One number is a number, too.
    path.write_text(f"{SCENARIO}explore: {{{few}, gpus: 4, objective: energy}}\n", encoding="utf-8")
    one = json.loads(command("explore", path, *store).stdout)
    assert {row["layout"]["gpus"] for row in one["rows"]} == {4}
    assert one["objective"] == "energy"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("gpus: 0", "small.yaml: explore.gpus: expected whole numbers from 1, found 0"),
        ("gpus: many", "small.yaml: explore.gpus: expected whole numbers from 1, found many"),
        ("gpus: []", "small.yaml: explore.gpus: expected at least one number of GPUs, found an empty list"),
        ("gpus: [4, 9]", "explore.gpus: expected from 1 to the 8 GPUs of the topology, found 9"),
        ("objective: watts", "unknown value `watts`, expected one of `time`, `memory`, `energy`, `dollars`"),
        ("objective: dollars", "small.yaml: explore.objective: dollars: no sheet says what the machine costs"),
    ],
)
def test_a_wrong_number_or_objective_is_refused(command: Command, tmp_path: Path, said: str, message: str) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(f"{SCENARIO.replace('H100-SXM', 'a100-40')}explore: {{{said}}}\n", encoding="utf-8")
    refused = command("explore", path, "--store", str(tmp_path / "runs"), check=2)
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr
