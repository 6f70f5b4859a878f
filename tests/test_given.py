"""What a run is given: paths, text, mappings, standard input, values of NumPy's, classes; and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import windtunnel
from windtunnel.policies import Placement, Scheduler, Start

if TYPE_CHECKING:
    from conftest import Command

SCENARIO: dict[str, Any] = {
    "windtunnel": 1, "name": "given", "fidelity": "job", "topology": {"hosts": 4, "host": {"gpus": 8}},
    "jobs": [{"name": f"j{i}", "gpus": 32, "duration": "1 h"} for i in range(3)],
}  # fmt: skip


class Last(Scheduler):
    """The newest job first."""

    def decide(self) -> Start | None:
        for job in reversed(self.waiting):
            if self.waiting[job].gpus <= sum(map(len, self.free)):
                return Start(job)
        return None


@pytest.mark.engine
def test_a_class_is_a_policy(tmp_path: Path) -> None:
    of_class = windtunnel.run(SCENARIO, scheduler=Last)
    starts = [job["start_s"] for job in of_class.summary["jobs"]]
    assert starts == sorted(starts, reverse=True)
    assert of_class.manifest["options"]["scheduler"] == "test_given:Last"
    file = tmp_path / "mine.py"
    body = Path(__file__).read_text(encoding="utf-8").partition("class Last")[2].partition("\n\n\n")[0]
    file.write_text(f"from windtunnel.policies import Scheduler, Start\nclass Last{body}\n", encoding="utf-8")
    of_file = windtunnel.run(SCENARIO, scheduler=f"{file}:Last")
    assert [job["start_s"] for job in of_file.summary["jobs"]] == starts


@pytest.mark.engine
def test_a_class_of_a_notebook_is_one_too() -> None:
    cell = "class Mine(Scheduler):\n    def decide(self):\n"
    cell += "        return next((Start(job) for job in self.waiting), None)\n"
    names: dict[str, Any] = {"Scheduler": Scheduler, "Start": Start, "__name__": "__main__"}
    exec(compile(cell, "<cell 3>", "exec"), names)  # noqa: S102
    run = windtunnel.run({**SCENARIO, "jobs": SCENARIO["jobs"][:1]}, scheduler=names["Mine"])
    assert run.summary["jobs"][0]["state"] == "finished"
    broken = cell.replace("next(", "nxt(")
    exec(compile(broken, "<cell 4>", "exec"), names)  # noqa: S102
    with pytest.raises(windtunnel.InputError, match=r"<cell 4>:3: NameError"):
        windtunnel.run(SCENARIO, scheduler=names["Mine"])


@pytest.mark.parametrize(
    ("policy", "said"),
    [(Placement, "is no scheduler"), (int, "is no scheduler"), (Scheduler, "has no method `decide`"), (3, "found `3`")],
)
def test_other_policies_are_refused(policy: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(windtunnel.InputError, match=said):
        windtunnel.run(SCENARIO, scheduler=policy)


@pytest.mark.engine
def test_values_of_numpy_are_numbers() -> None:
    given = {"jobs[0].gpus": np.int64(8), "jobs[0].priority": np.int32(2), "jobs[1].gpus": np.array(16)}
    jobs = windtunnel.run({**SCENARIO, "seed": np.uint32(5)}, overrides=given).summary["jobs"]
    assert [job["ranks"] for job in jobs] == [8, 16, 32]


@pytest.mark.engine
def test_seed_and_threads_may_be_numpys(tmp_path: Path) -> None:
    """Beside the scenario too, in the journal and the manifest, of runs, plans and what goes on."""
    yes: Any = np.all([1])
    options: dict[str, Any] = {"seed": np.int64(3), "threads": np.uint8(1), "full": yes}
    asked = windtunnel.run(SCENARIO, **options, out=tmp_path / "run").manifest
    assert (asked["seed"], asked["options"]) == (3, {"seed": 3, "threads": 1, "full": True})
    plan = windtunnel.Plan(SCENARIO, seed=np.int64(3), full=yes)  # type: ignore[arg-type]
    done = plan.run(threads=np.int64(1), allow_native=yes, out=tmp_path / "plan")  # type: ignore[arg-type]
    assert (done.manifest["seed"], done.manifest["options"]) == (3, {"threads": 1, "full": True, "allow_native": True})

    def stop(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        windtunnel.run(SCENARIO, seed=np.int64(3), out=tmp_path / "cut", progress=stop)  # type: ignore[arg-type]
    went_on = windtunnel.resume(tmp_path / "cut", threads=np.int64(1))  # type: ignore[arg-type]
    assert (went_on.manifest["seed"], went_on.manifest["options"]) == (3, {"seed": 3, "threads": 1})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seed": "x"}, "seed: expected a whole number from 0 to 18,446,744,073,709,551,615, found `'x'`"),
        ({"seed": -1}, "seed: expected a whole number from 0 "),
        ({"seed": 1.5}, "found `1.5`"),
        ({"seed": True}, "found `True`"),
        ({"seed": 1 << 64}, "found `18446744073709551616`"),
        ({"threads": 0}, "threads: expected a whole number from 1 to 4,294,967,295, found `0`"),
        ({"threads": np.float64(2)}, r"found `np.float64\(2.0\)`"),
        ({"fidelity": 3}, "fidelity: expected a name such as `flow`, found `3`"),
        ({"overrides": [1]}, r"overrides: expected a mapping such as `\{'seed': 7\}`, found `\[1\]`"),
        ({"overrides": {1: 2}}, r"overrides: expected a key such as `jobs\[0\].parallelism.tp`, found `1`"),
    ],
    ids=str,
)
def test_other_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(windtunnel.InputError, match=said):
        windtunnel.run(SCENARIO, **options)
    threads = {"threads": options.pop("threads")} if "threads" in options else {}
    with pytest.raises(windtunnel.InputError, match=said):
        windtunnel.Plan(SCENARIO, **options).run(**threads)


@pytest.mark.parametrize("scenario", [42, None, 1.5, ["a"]])
def test_what_is_no_scenario_is_refused(scenario: Any) -> None:  # noqa: ANN401
    with pytest.raises(windtunnel.InputError, match="expected a path, YAML text or a mapping"):
        windtunnel.run(scenario)


@pytest.mark.engine
def test_a_scenario_comes_from_standard_input(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("windtunnel")
    call = [str(program), "run", "-", "--json", "--no-report"]
    done = subprocess.run(call, input=json.dumps(SCENARIO), cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["scenario"] == "given"
    bad = subprocess.run(call, input="windtunnel: 1\nnam: x", cwd=tmp_path, capture_output=True, text=True, check=False)
    assert bad.returncode == 2
    assert "<standard input>:2:1" in bad.stderr


def test_utf_16_is_named(tmp_path: Path, command: Command) -> None:
    (tmp_path / "wide.yaml").write_text("windtunnel: 1", encoding="utf-16")
    assert "is UTF-16 text, expected UTF-8" in command("run", "wide.yaml", check=2).stderr


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_named_with_and_without_a_mark(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "wide.yaml").write_text("windtunnel: 1", encoding=encoding)
    with pytest.raises(windtunnel.InputError, match="is UTF-16 text, expected UTF-8"):
        windtunnel.run(tmp_path / "wide.yaml")


def test_list_alone_lists_the_kinds(command: Command) -> None:
    listed = [line.split()[0] for line in command("list").stdout.splitlines()]
    assert {"transports", "topologies", "gpus", "schedulers"} <= set(listed)
    assert [entry["name"] for entry in json.loads(command("list", "--json").stdout)] == listed
