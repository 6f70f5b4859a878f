"""What is asked of the explorer is searched, or what became of it is said."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from conftest import EIGHT_H100, ROOT
from windtunnel.engine import InputError
from windtunnel.explore.search import Settings, search
from windtunnel.explore.space import Space
from windtunnel.layout.job import read_job
from windtunnel.layout.priced import answers
from windtunnel.source import read_source
from windtunnel.validate.board import data_folder

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command
    from windtunnel.explore.space import Candidate
    from windtunnel.layout.job import Job

SCENARIO = EIGHT_H100.replace("sequence: 2048", "sequence: 4096")
FEW = Space(tp=(2,), cp=(1,), pp=(2,), zero=(1,), micro_batches=(1,), recompute=("none",))


def job() -> Job:
    return read_job(read_source(SCENARIO), [])


def of(space: Space) -> tuple[list[Candidate], Counter[str]]:
    left_out: Counter[str] = Counter()
    space.check(job())
    return space.candidates(job(), left_out), left_out


def test_zbv_has_the_chunks_that_are_named() -> None:
    found, _ = of(replace(FEW, schedules=("zbv",), chunks=(4,)))
    assert [it.chunks for it in found] == [4]
    of_job = job()
    own, training = of_job.own["parallelism"], of_job.own["training"]
    assert found[0].choice(own, training)["parallelism"]["schedule"] == {"name": "zbv", "chunks": 4}
    asked = [replace(found[0], chunks=n).choice(own, training) for n in (2, 4)]
    two, four = answers(of_job.source, of_job.overrides, asked)
    assert two.iteration_s is not None
    assert four.iteration_s is not None
    assert two.iteration_s != four.iteration_s
    # Two where none are named.
    assert [it.chunks for it in of(replace(FEW, schedules=("zbv",)))[0]] == [2]


def test_chunks_that_no_schedule_can_have_are_refused() -> None:
    with pytest.raises(InputError, match="--chunks: 3 chunks are none that `zbv`, `1f1b` can have"):
        of(replace(FEW, schedules=("zbv", "1f1b"), chunks=(3,)))
    found, left_out = of(replace(FEW, schedules=("zbv",), chunks=(2, 3)))
    assert [it.chunks for it in found] == [2]
    assert left_out == {"`zbv` cannot have 3 chunks (`--chunks`)": 1}


def test_replicas_that_do_not_fit_are_counted() -> None:
    found, left_out = of(replace(FEW, schedules=("1f1b",), replicate=(3,)))
    assert found == []
    assert left_out == {"3 replicas of shards do not divide 2 data-parallel ranks (`--replicate`)": 1}
    _, left_out = of(replace(FEW, schedules=("1f1b",), zero=(0,), replicate=(2,)))
    assert list(left_out) == ["ZeRO 0 has no shards to have replicas of (`--replicate`)"]


def test_run_lengths_that_do_not_fit_are_counted() -> None:
    found, left_out = of(replace(FEW, schedules=("interleaved",), chunks=(2,), run_lengths=(1, 4)))
    assert [it.run_length for it in found] == [4]
    assert left_out == {"a run length of 1 is none from the pipeline's ranks to its micro-batches": 1}


def test_an_empty_space_names_the_sizes_that_emptied_it() -> None:
    found = search(job(), Space(tp=(8,), pp=(4,)), Settings())
    assert "`pp` 4 does not divide the 1 that tp x cp x ep leaves of 8 GPUs (`--pp`)" in found.empty()
    assert "no sizes fit the GPUs" not in found.empty()


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (Space(zero=(7,)), "--zero: expected 0 to 3, found 7"),
        (Space(recompute=("sometimes",)), "--recompute: no recomputation `sometimes`"),
        (Space(recompute=("ful",)), "did you mean `full`"),
        (Space(orders=("out",)), "--order: no order `out`"),
        (Space(ep=(4,)), "--ep: `llama3-8b` has no experts to share out"),
    ],
)
def test_wrong_values_are_told(space: Space, said: str) -> None:
    with pytest.raises(InputError, match=said):
        space.check(job())


def test_a_folder_of_measurements_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WINDTUNNEL_VALIDATION_DATA", str(tmp_path / "none"))
    with pytest.raises(InputError, match="none: no such folder"):
        data_folder(None)


def test_the_command_says_what_it_wrote_and_what_did_not_run(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    few = ["--tp", "4", "--cp", "1", "--zero", "1", "--micro-batch", "1", "--recompute", "none"]
    few += ["--store", str(tmp_path / "runs"), "--workers", "1"]
    refused = command("explore", path, *few, "--budget", "0", check=2)
    assert "--budget: expected more than 0" in refused.stderr
    assert "unit" not in refused.stderr
    saved = tmp_path / "new" / "best.yaml"
    ran = command("explore", path, *few, "--prove", "0", "--save", saved)
    assert f"wrote {saved}" in ran.stderr
    assert saved.is_file()
    # Half a minute of simulation each: the limit is looked at five times a second, and shorter runs may slip through.
    long = ["--set", "jobs[0].workload.global_batch=8192"]
    short = command("explore", path, *few, *long, "--prove", "2", "--time-limit", "0.001", check=1)
    assert "2 of 2 layouts gave no time as flows: " in short.stderr
    assert "longer than 0.001 s" in short.stderr


@pytest.mark.parametrize(
    ("key", "found", "hint"),
    [
        (
            "host: {gpu: A100-80, gpus: 8, nics: 8, nic: ConnectX-7}",
            "mixed.yaml:20:28: unknown key `gpus`, expected one of `gpu`, `scale_up`",
            "hint: hosts of all buildings have as many GPUs and the same NICs, which `topology.host` says",
        ),
        ("gpu: A100-80", "mixed.yaml:20:7: unknown key `gpu`", "hint: say it as `host: {gpu: A100-80}`"),
        ("host: {gpu: A100-90}", "A100-90", "hint: "),
    ],
)
def test_what_a_building_cannot_have_is_refused_with_what_to_do(
    command: Command, tmp_path: Path, key: str, found: str, hint: str
) -> None:
    text = (ROOT / "examples" / "explore-two-buildings.yaml").read_text(encoding="utf-8")
    path = tmp_path / "mixed.yaml"
    path.write_text(text.replace("    - name: west\n", f"    - name: west\n      {key}\n"), encoding="utf-8")
    refused = command("explore", path, "--prove", "0", check=2)
    assert found in refused.stderr
    assert hint in refused.stderr
