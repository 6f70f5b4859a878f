"""Layouts of a job: the space, what is known before a run, and the search, against a search that runs everything."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import windtunnel
from conftest import EIGHT_H100
from windtunnel.engine import InputError
from windtunnel.layout.examine import examine
from windtunnel.layout.job import Job, read_job
from windtunnel.layout.search import Row, search
from windtunnel.layout.space import Layout, Space
from windtunnel.source import read_source
from windtunnel.studies.store import Store

if TYPE_CHECKING:
    from conftest import Command

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "llama3-70b-256xH100.yaml"

SCENARIO = EIGHT_H100

SMALL = Space(micro_batches=(1, 2), zero=(1,), recompute=("none",))


@pytest.fixture
def job() -> Job:
    return read_job(read_source(SCENARIO), [])


@pytest.fixture
def found(job: Job, tmp_path: Path) -> list[Row]:
    with Store(tmp_path / "all") as store:
        return search(job, store, space=SMALL, top=None)


def test_the_space_has_every_product_once(job: Job) -> None:
    layouts = Space().layouts(job)
    assert len(layouts) == len(set(layouts))
    sizes = {(each.tp, each.cp, each.ep, each.pp, each.dp) for each in layouts}
    # Powers of two: ways to share three factors of two among tp, cp, pp and dp; a dense model has no experts.
    assert len(sizes) == math.comb(3 + 3, 3)
    assert all(math.prod(each) == 8 for each in sizes)
    assert {each.chunks for each in layouts if each.pp == 2 and each.schedule == "interleaved"} == {2, 4, 8}


def test_all_divisors_are_more_than_powers_of_two() -> None:
    source = read_source(SCENARIO.replace("hosts: 2", "hosts: 3").replace("tp: 4, dp: 2", "tp: 4, dp: 3"))
    twelve = read_job(source, [])
    assert {each.tp for each in Space().layouts(twelve)} == {1, 2, 4}
    assert {each.tp for each in Space(divisors=True).layouts(twelve)} == {1, 2, 3, 4, 6, 12}


def test_experts_are_laid_out_where_there_are_any() -> None:
    source = read_source(SCENARIO.replace("llama3-8b", "mixtral-8x7b"))
    assert {each.ep for each in Space().layouts(read_job(source, []))} == {1, 2, 4, 8}


def test_memory_is_that_of_a_run_and_the_least_time_is_below_it(job: Job, found: list[Row]) -> None:
    done = [row for row in found if row.state == "done"]
    assert len(done) > 20
    for row in done:
        before = examine(job, row.layout)
        assert before.reason is None
        assert before.memory_bytes == row.memory_bytes
        assert row.least_s is not None
        assert row.ideal_s is not None
        assert row.least_s <= row.ideal_s


def test_what_is_not_run_could_not_have_been_among_the_best(job: Job, found: list[Row], tmp_path: Path) -> None:
    with Store(tmp_path / "few") as store:
        few = search(job, store, space=SMALL, top=3)
    assert len(few) == len(found)
    assert [row.layout for row in few[:3]] == [row.layout for row in found[:3]]
    assert [row.ideal_s for row in few[:3]] == [row.ideal_s for row in found[:3]]
    left = [row for row in few if row.state == "slower"]
    assert left
    for row in few:
        if row.ideal_s is not None and row.least_s is not None:
            assert row.least_s <= row.ideal_s * (1 + 1e-9), row.layout
    exact = {row.layout: row.ideal_s for row in found}
    for row in left:
        assert row.message is not None
        assert "not run: it takes at least" in row.message
        assert (exact[row.layout] or 0.0) >= (row.least_s or 0.0)


def test_nothing_is_refused_silently(job: Job, tmp_path: Path) -> None:
    space = Space(micro_batches=(1, 32), zero=(0,), recompute=("none",), schedules=("1f1b", "interleaved"), chunks=(3,))
    with Store(tmp_path / "store") as store:
        rows = search(job, store, space=space, top=2)
    reasons = [row.message or "" for row in rows if row.state == "refused"]
    assert any("does not divide" in text or "do not divide" in text for text in reasons)
    assert any("is not a multiple of micro_batch" in text for text in reasons)
    assert any("GiB missing" in text for text in reasons)
    assert all(text and not text.startswith("<scenario>") for text in reasons)


def test_the_real_fabric_ranks_what_the_ideal_one_cannot_tell_apart(job: Job, tmp_path: Path) -> None:
    space = Space(micro_batches=(1,), zero=(1,), recompute=("none",), schedules=("1f1b",))
    with Store(tmp_path / "store") as store:
        rows = search(job, store, space=space, fabric="real", top=2)
    assert rows[0].real_s is not None
    assert rows[0].ideal_s is not None
    assert rows[0].real_s >= rows[0].ideal_s * (1 - 1e-9)
    overrides = {key: value for key, value in rows[0].layout.keys("jobs[0]").items() if value is not None}
    run = windtunnel.run(SCENARIO, overrides={**overrides, "jobs[0].iterations": 1})
    assert run.summary["jobs"][0]["iteration_time_s"]["mean"] == rows[0].real_s


def test_layouts_on_the_command_line(command: Command, tmp_path: Path) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    few = ("--micro-batch", "1", "--zero", "1", "--schedule", "1f1b", "--recompute", "none", "--top", "2")
    shown = command("layouts", scenario, *few, "--out", "all.parquet")
    assert "llama3-8b on 8 GPUs" in shown.stdout
    assert "memory" in shown.stdout
    frame = pl.read_parquet(tmp_path / "all.parquet")
    rows = json.loads(command("layouts", scenario, *few, "--json").stdout)["rows"]
    assert len(rows) == frame.height
    assert rows[0]["ideal_s"] == min(row["ideal_s"] for row in rows if row["ideal_s"] is not None)
    assert {"tp", "cp", "ep", "pp", "dp", "zero", "schedule", "chunks", "micro_batch", "recompute"} <= set(rows[0])


def test_run_takes_the_fastest_layout(command: Command, tmp_path: Path) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(SCENARIO.replace("global_batch: 32", "global_batch: 8"), encoding="utf-8")
    given = json.loads(command("run", scenario, "--no-report", "--json").stdout)
    ran = command("run", scenario, "--layout", "auto", "--no-report", "--json")
    assert "layout of 8 GPUs, the fastest of" in ran.stderr
    best, own = (each["jobs"][0]["ideal_iteration_time_s"] for each in (json.loads(ran.stdout), given))
    assert best < own
    assert "expected `auto`" in command("run", scenario, "--layout", "best", check=2).stderr


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("jobs: [{name: a, gpus: 4, duration: 1 s}]", {}, "expected a `model`"),
        (SCENARIO.partition("jobs:")[2], {"name": "trian"}, "did you mean `train`?"),
        (SCENARIO.partition("jobs:")[2], {"gpus": 9}, "expected from 1 to the 8 GPUs"),
        (SCENARIO.partition("jobs:")[2].replace("llama3-8b", "dlrm"), {}, "expected a transformer"),
    ],
)
def test_what_cannot_be_laid_out_is_said(text: str, options: dict[str, object], said: str) -> None:
    text = text if text.startswith("jobs") else f"jobs:{text}"
    source = read_source(SCENARIO.partition("jobs:")[0] + text)
    with pytest.raises(InputError) as caught:
        read_job(source, [], **options)  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_a_published_layout_is_in_the_space_and_fits() -> None:
    """Megatron-Bridge's Llama-3-70B on H100: TP 4, PP 8, 5 chunks (docs/layouts.md says where it stands)."""
    job = read_job(read_source(EXAMPLE), [])
    assert job.gpus == 256
    published = Layout(4, 1, 1, 8, 8, 1, "interleaved", 5, 1, "none")
    assert published in Space().layouts(job)
    before = examine(job, published)
    assert before.reason is None
    assert before.least_s is not None
