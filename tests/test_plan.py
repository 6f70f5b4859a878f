"""A plan is a value: it is what its scenario says, wherever it goes and whatever was set since."""

from __future__ import annotations

import concurrent.futures
import copy
import multiprocessing
import pickle
import shutil
from pathlib import Path

import pytest

import windtunnel
from windtunnel.determinism import first_difference

ROOT = Path(__file__).resolve().parents[1]
DENSE = ROOT / "examples/llama3-8b-fsdp.yaml"
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.yaml") if "windtunnel: 1" in path.read_text())


def test_a_key_is_set_as_on_the_command_line(tmp_path: Path) -> None:
    plan = windtunnel.Plan(DENSE)
    before = plan.digest["sha256"]
    other = plan.copy().set("jobs[0].iterations", 2).set({"seed": 9})
    assert plan.digest["sha256"] == before != other.digest["sha256"]
    assert (other.scenario["jobs"][0]["iterations"], other.scenario["seed"]) == (2, 9)
    once = windtunnel.run(DENSE, overrides={"jobs[0].iterations": 2}, seed=9, out=tmp_path / "once")
    assert first_difference(once, other.run(out=tmp_path / "set")) is None
    assert (
        once.summary["scenario_sha256"]
        == other.digest["sha256"]
        == windtunnel.load(tmp_path / "set").summary["scenario_sha256"]
    )
    assert other == windtunnel.Plan(DENSE, seed=9, overrides={"jobs[0].iterations": 2})


def test_what_is_refused_changes_nothing() -> None:
    plan = windtunnel.Plan(DENSE)
    before = plan.digest
    for key, value, told in (
        ("jobs[0].parallelism.tpp", 4, "did you mean `tp`"),
        ("jobs[0].iterations", "many", "jobs\\[0\\].iterations"),
        # Wrong for packets, said whatever the fidelity.
        ("network.transport", "dctp", "dctcp"),
    ):
        with pytest.raises(windtunnel.InputError, match=told):
            plan.set(key, value)
        assert plan.digest == before
    assert plan.set("jobs[0].iterations", 3).digest != before
    assert plan.set("jobs[0].iterations", None).scenario["jobs"][0].get("iterations") is None


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_the_same_plan_once_it_was_packed(path: Path) -> None:
    try:
        plan = windtunnel.Plan(path)
    except windtunnel.InputError as error:
        pytest.skip(f"needs more than a scenario: {error}")
    again: windtunnel.Plan = pickle.loads(pickle.dumps(plan))  # noqa: S301 - its own bytes
    assert again.digest == plan.digest
    assert again.explain() == plan.explain()
    assert again == plan


def test_keys_that_are_right_only_together_are_set_together() -> None:
    plan = windtunnel.Plan(DENSE)
    before = plan.digest
    # 64 GPUs: with one of them the layout has 128 ranks, or 32.
    both = {"jobs[0].parallelism.tp": 2, "jobs[0].parallelism.dp": 32}
    with pytest.raises(windtunnel.InputError):
        plan.copy().set("jobs[0].parallelism.tp", 2)
    for changes in (both, dict(reversed(both.items()))):
        other = plan.copy().set(changes)
        assert other == windtunnel.Plan(DENSE, overrides=changes) != plan
    with pytest.raises(windtunnel.InputError, match="unknown key `dpp`"):
        plan.set({**both, "jobs[0].parallelism.dpp": 32})
    assert plan.digest == before


def of_packed(plan: windtunnel.Plan) -> float:
    return float(plan.set("jobs[0].iterations", 2).run().summary["jobs"][0]["iteration_time_s"]["mean"])


@pytest.mark.engine
def test_another_process_needs_none_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "flows.csv").write_text("source,destination,bytes\n0,1,1000\n2,3,5000000\n", encoding="utf-8")
    topology = "shape: clos\nhosts: 4\ntiers: [{ports_down: 4, rate: 100 Gbps}]\nhost: {gpus: 1, nics: 1}\n"
    (tmp_path / "fabric.yaml").write_text(topology, encoding="utf-8")
    scenario = tmp_path / "a.yaml"
    scenario.write_text(
        "windtunnel: 1\nname: packed\nfidelity: packet\ntopology: {file: fabric.yaml}\n"
        "jobs: [{name: a, workload: {flows: {file: in/flows.csv}}}]\n",
        encoding="utf-8",
    )
    plan = windtunnel.Plan(scenario)
    assert [name for name, _ in plan.digest["inputs"] if not name.startswith("data/")] == [
        "fabric.yaml",
        "in/flows.csv",
    ]
    here = of_packed(plan.copy())
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        packed = pickle.dumps(plan)
        shutil.rmtree(tmp_path / "in")
        assert pool.submit(of_packed, pickle.loads(packed)).result(timeout=120) == here  # noqa: S301 - its own bytes


def test_bytes_of_something_else_are_refused(tmp_path: Path) -> None:
    packed = windtunnel.Plan(DENSE).__getstate__()[0]
    for torn in (
        b"",
        b"something else\n",
        packed[: len(packed) // 2],
        packed + b"more",
        packed.replace(b"llama", b"llema"),
    ):
        with pytest.raises(windtunnel.InputError):
            windtunnel.engine.Plan.unpack(torn, str(tmp_path))


def test_what_another_build_has_packed_is_refused(tmp_path: Path) -> None:
    plan = windtunnel.Plan(DENSE)
    packed = plan.__getstate__()[0]
    build = plan.digest["build"].encode()
    assert build in packed
    with pytest.raises(windtunnel.InputError, match=r"build `9\.9\.9` of the engine packed it"):
        windtunnel.engine.Plan.unpack(packed.replace(build, b"9.9.9"), str(tmp_path))


def test_a_copy_is_another_plan() -> None:
    plan = windtunnel.Plan(DENSE)
    for other in (plan.copy(), copy.copy(plan)):
        other.set("seed", 77)
        assert plan != other
        assert "seed" not in plan.scenario or plan.scenario["seed"] != 77
