"""The explorer: the cost model against runs, the space and its accounts, the proof, and what is written down."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

import windtunnel
from conftest import EIGHT_H100, ROOT
from windtunnel.engine import InputError
from windtunnel.experiments import find, run_experiment
from windtunnel.explore.accuracy import WIDE, compared, drawn, errors
from windtunnel.explore.export import scenario
from windtunnel.explore.prove import prove, reordering
from windtunnel.explore.search import NEAR, Found, Settings, even, search
from windtunnel.explore.space import Candidate, Space
from windtunnel.layout import search as layouts
from windtunnel.layout.job import explain, read_job
from windtunnel.layout.priced import answers
from windtunnel.layout.space import Space as LayoutSpace
from windtunnel.source import read_source
from windtunnel.studies.runner import Limits
from windtunnel.studies.store import Store
from windtunnel.validate.score import spearman

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command
    from windtunnel.layout.job import Job

NETWORK = "network: {mtu: 4150 B, header: 66 B, load_balancer: spray}\n"
SCENARIO = EIGHT_H100.replace("jobs:\n", f"{NETWORK}jobs:\n").replace("sequence: 2048", "sequence: 4096")
EACH = 8
"""Layouts of each scenario; `explore-accuracy` has fifty."""


def job(text: str = SCENARIO) -> Job:
    return read_job(read_source(text), [])


@pytest.mark.parametrize("where", ["hall", "clos", "buildings", "moe", "predicting"])
@pytest.mark.parametrize("seed", [5, 90210])
def test_the_cost_model_is_near_what_flows_say(where: str, seed: int, tmp_path: Path) -> None:
    file = "moe" if where == "predicting" else where
    of = job((ROOT / "experiments" / "explore-accuracy" / f"{file}.yaml").read_text(encoding="utf-8"))
    if where == "predicting":
        of = read_job(of.source, [("jobs[0].workload.training.multi_token_prediction", "1")])
    with Store(tmp_path / "runs") as store:
        rows = compared(of, EACH, seed, store, Limits(workers=1))
    found = errors(error for _, error in rows)
    assert found.number == EACH
    assert found.largest < 0.05, rows
    assert abs(found.mean) < 0.02, rows


ACROSS = (
    ("clos", Candidate(16, 1, 1, 4, 1, 0, 1, "pp-out", "interleaved", 8, 32, 4, "none")),
    ("buildings", Candidate(4, 1, 1, 4, 4, 1, 1, "pp-out", "dorapp", 8, 0, 2, "none")),
    ("buildings", Candidate(16, 1, 1, 2, 2, 3, 2, "pp-out", "interleaved", 2, 0, 2, "none")),
)
"""Where messages, or exchanges of tensor parallelism, meet others on links: 5 to 12% off where that is left out."""


@pytest.mark.parametrize(("where", "candidate"), ACROSS)
def test_what_meets_on_a_link_is_slower_in_the_cost_model_too(where: str, candidate: Candidate, tmp_path: Path) -> None:
    of = job((ROOT / "experiments" / "explore-accuracy" / f"{where}.yaml").read_text(encoding="utf-8"))
    choice = candidate.choice(of.own["parallelism"], of.own["training"])
    (answer,) = answers(of.source, of.overrides, [choice])
    with Store(tmp_path / "runs") as store:
        (row,) = prove(of, [(candidate, answer)], store, flows=1, limits=Limits(workers=1))
    assert answer.iteration_s == pytest.approx(row.flow_s, rel=0.03)


SEVEN = ("1f1b", "interleaved", "zb-h1", "zb-h2", "dorapp", "zbv", "gpipe")
PLACES = {
    "hall": (SCENARIO, Space(schedules=SEVEN, zero=(0, 1, 2, 3))),
    "buildings": (
        (ROOT / "examples" / "explore-two-buildings.yaml").read_text(encoding="utf-8"),
        Space(schedules=SEVEN, zero=(0, 1), replicate=(1,)),
    ),
}


@pytest.mark.parametrize("where", PLACES)
def test_the_cost_model_is_near_in_the_examples_too(where: str, tmp_path: Path) -> None:
    text, space = PLACES[where]
    with Store(tmp_path / "runs") as store:
        rows = compared(job(text), EACH, 5, store, Limits(workers=1), space)
    found = errors(error for _, error in rows)
    assert found.number == EACH
    assert found.largest < 0.05, rows
    assert abs(found.mean) < 0.02, rows


def test_memory_is_what_a_run_says() -> None:
    of = job()
    for candidate, answer in drawn(of, 6, 3, WIDE):
        values = candidate.values(of.place, of.own["parallelism"])
        changes = {key.removeprefix(f"{of.place}."): value for key, value in values.items()}
        _, told = explain(of.source, [], 0, changes)
        assert answer.memory_bytes == told["memory"]["total"]


def test_an_answer_does_not_depend_on_the_others() -> None:
    of = job()
    rows = drawn(of, 20, 1, WIDE)
    own, training = of.own["parallelism"], of.own["training"]
    for candidate, answer in rows:
        (alone,) = answers(of.source, of.overrides, [candidate.choice(own, training)])
        assert alone == answer


def test_every_candidate_has_a_row_or_is_counted() -> None:
    of = job()
    found = search(of, Space(), Settings())
    accounts = found.accounts
    assert found.tried == len(found.rows) + sum(accounts.refused.values()) + accounts.too_large
    times = [answer.iteration_s or 0.0 for _, answer in found.rows]
    assert times == sorted(times)
    assert found.whole
    assert not found.stopped
    front = found.front()
    assert front[0] == found.rows[0]
    assert all(a[1].memory_bytes > b[1].memory_bytes for a, b in pairwise(front))
    baseline = found.sailor()
    assert baseline is not None
    assert baseline[0].schedule == "1f1b"


@pytest.mark.parametrize("where", PLACES)
def test_asking_for_bounds_first_finds_what_following_every_layout_does(where: str) -> None:
    of = job(PLACES[where][0])
    space = Space(tp=(1, 2, 8), cp=(1, 2), zero=(1, 3), micro_batches=(1, 2), recompute=("none",))
    how = Settings(settled=25)
    found = search(of, space, how)
    candidates = space.candidates(of, Counter())
    own, training = of.own["parallelism"], of.own["training"]
    choices = {candidate: candidate.choice(own, training) for candidate in candidates}
    asked = list(choices.values())
    bounds = answers(of.source, of.overrides, asked, depth="line")
    whole = answers(of.source, of.overrides, asked, depth="apart")
    pairs = [(a, b) for a, b in zip(bounds, whole, strict=True) if b.iteration_s is not None and b.fits]
    least = [(a.iteration_s or 0.0) / (b.iteration_s or 1.0) for a, b in pairs if a.least]
    assert len(least) > 100
    assert max(least) < 1 / NEAR
    assert min(least) < 0.9
    assert not any(b.least for b in whole)
    # The obvious search: every layout followed, then the best and the front closely, until none is new.
    known = {one: answer for one, answer in zip(candidates, whole, strict=True) if answer.iteration_s and answer.fits}
    closely: set[Candidate] = set()
    while True:
        slow = Found(sorted(known.items(), key=lambda row: (row[1].iteration_s or 0.0, row[0])))
        fresh = sorted({row[0] for row in [*slow.rows[: how.settled], *slow.front()]} - closely)
        if not fresh:
            break
        closely.update(fresh)
        known.update(zip(fresh, answers(of.source, of.overrides, [choices[one] for one in fresh]), strict=True))
    assert found.rows[: how.settled] == slow.rows[: how.settled]
    # Followed closely a layout can be faster than followed apart: one more may be found to be on the front, none less.
    for _, slower in slow.front():
        room, seconds = slower.memory_bytes, slower.iteration_s or 0.0
        assert any(it.memory_bytes <= room and (it.iteration_s or 0.0) <= seconds for _, it in found.front())
    assert not any(answer.least for _, answer in found.front())
    knobs = found.by_knob()
    assert {"tp", "zero", "schedule"} <= knobs.keys()
    assert knobs == slow.by_knob()
    assert found.sailor() == slow.sailor()


def test_layers_move_between_stages() -> None:
    of = job()
    space = Space(tp=(2,), cp=(1,), pp=(4,), zero=(1,), schedules=("1f1b",), micro_batches=(1,), recompute=("full",))
    plain = search(of, space, Settings())
    moved = search(of, space, Settings(uneven=True, keep=1, perturb=200, ratio=2.0))
    assert (moved.rows[0][1].iteration_s or 0) < (plain.rows[0][1].iteration_s or 0)
    for candidate, _ in moved.rows[1:]:
        if candidate.layers:
            inner = [n for n in candidate.layers if n]
            assert sum(candidate.layers) == 32
            assert max(inner) <= 2 * min(inner)
    # The head costs the last stage as much as some layers.
    assert moved.rows[0][0].layers[-1] < 8
    assert moved.rows == search(of, space, Settings(uneven=True, keep=1, perturb=200, ratio=2.0)).rows
    assert even(10, 4) == [3, 3, 2, 2]
    assert even(2, 4) is None


def test_the_proof_reports_how_the_order_changed(tmp_path: Path) -> None:
    of = job()
    found = search(of, Space(tp=(2, 4), cp=(1,), zero=(1,), micro_batches=(1,), recompute=("none",)), Settings())
    with Store(tmp_path / "runs") as store:
        rows = prove(of, found.rows, store, flows=3, packets=0, limits=Limits(workers=1))
    ran = [row for row in rows if row.flow_s is not None]
    assert rows[:3] == ran
    assert [row.flow_s for row in ran] == sorted(row.flow_s or 0 for row in ran)
    told = reordering(rows)
    assert told["proven"] == 3
    assert told["pairs"] == 3
    assert (told["largest_error"] or 1) < 0.05


def test_layouts_finds_the_same_best(tmp_path: Path) -> None:
    """`windtunnel layouts` runs whatever may be among the best; over the same space the explorer comes to the same."""
    of = job()
    few = Space(cp=(1,), zero=(1,), micro_batches=(1,), recompute=("none",), schedules=("1f1b",))
    same = LayoutSpace(zero=(1,), micro_batches=(1,), recompute=("none",), schedules=("1f1b",))
    found = search(of, few, Settings())
    with Store(tmp_path / "runs") as store:
        proven = prove(of, found.rows, store, flows=3, limits=Limits(workers=1))
        run = layouts.search(of, store, space=same, fabric="real", top=3, limits=Limits(workers=1))
    times = {(row.layout.tp, row.layout.pp, row.layout.dp): row.real_s for row in run if row.layout.cp == 1}
    # Some of the three best of `layouts` have context parallelism: not all of the explorer's three are run there.
    both = [(times[it.tp, it.pp, it.dp], row.flow_s) for row in proven[:3] for it in [row.candidate]]
    both = [(here, there) for here, there in both if here is not None]
    assert len(both) >= 2
    assert all(here == there for here, there in both)
    assert proven[0].flow_s == min(seconds for seconds in times.values() if seconds is not None)


def test_layouts_ranks_as_the_cost_model_does(tmp_path: Path) -> None:
    """Every layout that `windtunnel layouts --all` runs, by its time and by the cost model of the explorer."""
    of = job()
    space = LayoutSpace(zero=(1, 3), micro_batches=(1, 2), recompute=("none",), chunks=(2, 4))
    with Store(tmp_path / "runs") as store:
        run = layouts.search(of, store, space=space, fabric="ideal", top=None, limits=Limits(workers=1))
    ran = [(row.layout, row.ideal_s) for row in run if row.ideal_s is not None]
    own, training = of.own["parallelism"], of.own["training"]
    choices = [Candidate(
        it.tp, it.cp, it.ep, it.pp, it.dp, it.zero, 1, of.own["order"],
        it.schedule, it.chunks, 0, it.micro_batch, it.recompute,
    ).choice(own, training) for it, _ in ran]  # fmt: skip
    told = [answer.iteration_s for answer in answers(of.source, of.overrides, choices, ideal=True)]
    measured = np.array([seconds for _, seconds in ran])
    estimated = np.array(told, dtype=float)
    assert len(ran) >= 40
    assert (spearman(estimated, measured) or 0) >= 0.99
    assert measured[estimated.argmin()] <= 1.01 * measured.min()
    assert np.abs(estimated / measured - 1).max() < 0.05


def test_the_winner_is_a_scenario_that_takes_as_long(tmp_path: Path) -> None:
    of = job()
    found = search(of, Space(schedules=("interleaved",), pp=(2,)), Settings())
    candidate, answer = found.rows[0]
    path = tmp_path / "best.yaml"
    path.write_text(scenario(of, candidate), encoding="utf-8")
    result = windtunnel.run(path, overrides={"jobs[0].iterations": 1})
    assert result.summary["jobs"][0]["iteration_time_s"]["mean"] == pytest.approx(answer.iteration_s, rel=0.05)


def test_the_command_and_its_refusals(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    few = ["--tp", "4", "--cp", "1", "--zero", "1", "--micro-batch", "1", "--recompute", "none", "--prove", "1"]
    store = ["--store", str(tmp_path / "runs"), "--workers", "1"]
    ran = command("explore", path, *few, *store, "--json", "--page", tmp_path / "page.html")
    record = json.loads(ran.stdout)
    assert record["proof"]["proven"] == 1
    assert not record["interrupted"]
    assert record["best"]["flow_s"] > 0
    assert record["energy_j_per_token"] > 0
    assert record["rows"][0] == record["best"]
    assert "Time against memory" in (tmp_path / "page.html").read_text(encoding="utf-8")
    for options, said in (
        (["--tp", "3"], "--tp: none of 3 divides the 8 GPUs"),
        (["--schedule", "dorap"], "hint: did you mean `dorapp`?"),
        (["--order", "out"], "--order: no order `out`"),
        (["--budget", "0 GiB"], "--budget: expected more than 0"),
        (["--budget", "1 GiB"], "GiB, and a GPU may hold 1.0 GiB"),
        (["--settings", "megatorn"], "expected one of `megatron`"),
        (["--micro-batch", "64"], "no layout of the space can run"),
    ):
        refused = command("explore", path, *options, *store, check=2)
        assert said in refused.stderr, refused.stderr


SECTION = "explore: {tp: [4], cp: [1], zero: [1], micro_batch: [1], recompute: [none], prove: 0, budget: 70 GiB}\n"


def test_the_section_says_what_is_searched(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO + SECTION, encoding="utf-8")
    store = ["--store", str(tmp_path / "runs"), "--json"]
    record = json.loads(command("explore", path, *store).stdout)
    assert {row["layout"]["tp"] for row in record["rows"]} == {4}
    assert record["proof"]["proven"] == 0
    # An option goes before the section.
    other = json.loads(command("explore", path, *store, "--tp", "2").stdout)
    assert {row["layout"]["tp"] for row in other["rows"]} == {2}
    options = ["--tp", "4", "--cp", "1", "--zero", "1", "--micro-batch", "1", "--recompute", "none"]
    options += ["--prove", "0", "--budget", "70 GiB"]
    (tmp_path / "bare.yaml").write_text(SCENARIO, encoding="utf-8")
    bare = json.loads(command("explore", tmp_path / "bare.yaml", *options, *store).stdout)
    assert bare["rows"] == record["rows"]
    # A run does not read it.
    assert windtunnel.run(path).summary["jobs"] == windtunnel.run(tmp_path / "bare.yaml").summary["jobs"]


def test_a_wrong_section_is_refused(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    for text, said in (
        ("tp: 4", "small.yaml: explore.tp: expected a list, such as `[4]`, found `4`"),
        ("tp: []", "explore.tp: expected at least one value"),
        ("tp: [0]", "explore.tp: expected whole numbers from 1, found 0"),
        ("tp: [3]", "none of 3 divides the 8 GPUs"),
        ("budget: 0 GiB", "small.yaml: explore.budget: expected more than 0"),
        ("ratio: 0.5", "explore.ratio: expected a number from 1"),
        ("keep: 0", "explore.keep: expected a whole number from 1, found 0"),
        ("prove: 1, packet: 2", "2 layouts packet by packet are more than the 1 that run as flows"),
        ("objective: speed", "unknown value `speed`, expected one of `time`, `memory`"),
        ("tq: [4]", "tq"),
        ("cp: [4], context_least: 4096", "a context-parallel rank has fewer than 4,096 tokens"),
    ):
        path.write_text(f"{SCENARIO}explore: {{{text}}}\n", encoding="utf-8")
        refused = command("explore", path, "--store", str(tmp_path / "runs"), check=2)
        assert said in refused.stderr, (text, refused.stderr)
        assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("name", ["scaleacross-fig4", "scaleacross-fig16"])
def test_experiments_of_the_paper_hold(name: str) -> None:
    found = run_experiment(find(str(ROOT / "experiments" / name)))
    assert all(verdict.holds for verdict in found.verdicts), found.verdicts


def test_a_stopped_search_gives_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    of = job()
    monkeypatch.setattr("windtunnel.layout.priced.AT_ONCE", 16)

    def stop(_: str, done: int, __: int) -> None:
        if done >= 32:
            raise KeyboardInterrupt

    found = search(of, Space(), Settings(), progress=stop)
    assert found.stopped
    assert found.tried == 32
    assert found.rows


def test_a_contradiction_is_told() -> None:
    with pytest.raises(InputError, match="expected whole numbers from 1, found 0"):
        Space(micro_batches=(0,)).check(job())
