"""`calibrate all` and what follows it: what is proposed, what goes on after a kill, scenarios, adopting twice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from conftest import ROOT
from windtunnel.calibrate.equation3 import hill_climb
from windtunnel.calibrate.loop import fit as fitting
from windtunnel.calibrate.loop.align import align
from windtunnel.calibrate.loop.drift import Detector
from windtunnel.calibrate.loop.effects import MOST_KINDS, OWN
from windtunnel.calibrate.loop.ledger import Ledger
from windtunnel.calibrate.loop.models import Models
from windtunnel.calibrate.loop.watch import Watch
from windtunnel.calibrate.methods import evolve
from windtunnel.calibrate.problem import Problem, Search
from windtunnel.engine import InputError
from windtunnel.validate.systems import read_systems

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from conftest import Command

TRAIN = """
windtunnel: 1
name: train
fidelity: flow
topology:
  shape: clos
  hosts: 2
  tiers: [{ports_down: 4, rate: 100 Gbps, length: 5 m}]
  host: {gpus: 1, nics: 1}
jobs: [{name: train, workload: {collective: {kind: all_reduce, bytes: 64 MiB}}}]
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "calibration") as ledger:
        yield ledger


def measured(ledger: Ledger, models: Models, kinds: Sequence[Sequence[Any]], factors: dict[str, float]) -> None:
    """Measurements by a truth that is the system's set with some constants changed, with half a per cent of noise."""
    first = models.first()
    truth = {name: value * factors.get(name, 1.0) for name, value in first.items()}
    draws = np.random.default_rng(4)
    ledger.put("system", models.system.name)
    with ledger.transaction():
        ledger.adopt(ledger.add(models.system.name, first, "as its file has it").id, "begun")
        for kind, seconds in zip(kinds, models.times(kinds, [truth])[0], strict=True):
            ledger.db.execute(
                "insert into measurements (source, line, at, kind, seconds, predicted, set_id, name) "
                "values ('x', 1, null, ?, ?, ?, 'x', null)",
                (json.dumps(kind), seconds * float(np.exp(0.005 * draws.standard_normal())), seconds),
            )


KINDS = [["collective", "all_reduce", 1 << size, hosts, 4] for hosts in (2, 4) for size in range(10, 30, 2)]


def test_what_is_known_only_in_combination_keeps_its_value(store: Ledger) -> None:
    models = Models(read_systems(None)["polaris"])
    measured(store, models, KINDS, {"nccl.launch": 1.25, "nccl.share_network.2": 0.9})
    before = store.current()
    assert before is not None
    found = fitting.calibrate(store, models, "least-squares", 0.0)
    moved = {n for n, value in found.proposed.constants.items() if value != before.constants[n]}
    assert moved == set(found.intervals)
    assert "nccl.share_network.2" in moved
    together = [name for name in found.unknown if name in found.values]
    assert "nccl.launch" in together
    assert any(abs(found.values[name] / before.constants[name] - 1) > 0.01 for name in together)
    assert found.after < found.before
    assert store.one("select count(*) from steps") == 0


def test_the_regression_of_section_7_1_goes_from_small_scales_to_the_largest(
    store: Ledger, tmp_path: Path, command: Command
) -> None:
    models = Models(read_systems(None)["polaris"])
    kinds = [["collective", "all_reduce", 1 << size, hosts, 4] for hosts in (2, 4, 8, 16) for size in range(12, 30, 4)]
    measured(store, models, kinds, {})
    with Ledger(tmp_path / "other") as other:
        measured(other, models, kinds[:4], {})
        with pytest.raises(InputError, match="two scales"):
            align(other, models)
    with store.transaction():
        # A tenth more of what is predicted, and a microsecond a GPU.
        for number, kind in store.db.execute("select id, kind from measurements").fetchall():
            _, _, _, hosts, ranks = json.loads(kind)
            store.db.execute(
                "update measurements set seconds = predicted * 1.1 + 1e-6 * ? where id = ?", (hosts * ranks, number)
            )
    found = align(store, models)
    assert (found.scales, found.largest, found.kinds) == ((8, 16, 32), 64, 5)
    assert found.before > 0.08
    assert found.after < 0.01
    said = " ".join(command("calibrate", "all", "--align").stdout.split())
    assert "regression on 8, 16, 32 GPUs: 5 kinds on 64 GPUs are off by 0." in said


@pytest.mark.parametrize("method", ["least-squares", "hill", "cma"])
def test_a_fit_that_is_killed_goes_on(store: Ledger, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    if method == "cma":
        pytest.importorskip("cma", reason="cma is not installed")
    models = Models(read_systems(None)["polaris"])
    measured(store, models, KINDS[::2], {"nccl.share_network.2": 0.9})
    times = Models.times
    asked = 0
    most = 0

    def counted(self: Models, kinds: Any, sets: Any) -> list[list[float]]:  # noqa: ANN401
        nonlocal asked
        asked += 1
        if asked == most:
            raise KeyboardInterrupt
        return times(self, kinds, sets)

    monkeypatch.setattr(Models, "times", counted)
    whole = fitting.calibrate(store, models, method, 0.0, 600)
    needed, asked, most = asked, 0, int(0.7 * asked)
    with pytest.raises(KeyboardInterrupt):
        fitting.calibrate(store, models, method, 0.0, 600)
    asked, most = 0, 0
    again = fitting.calibrate(store, models, method, 0.0, 600)
    assert asked < 0.6 * needed
    assert again.intervals.keys() == whole.intervals.keys()
    if method != "cma":
        assert again.values == pytest.approx(whole.values, rel=1e-6)


def test_searches_stop_at_their_budget_and_say_where_they_stood() -> None:
    names = [f"c{i}" for i in range(8)]
    weights = np.random.default_rng(1).uniform(0.1, 1, (30, 8))

    def predict(sets: Any) -> np.ndarray:  # noqa: ANN401
        return np.array([weights @ np.array([one[name] for name in names]) for one in sets])

    start = dict.fromkeys(names, 1.0)
    truth = predict([{name: 1 + i / 10 for i, name in enumerate(names)}])[0]
    problem = Problem(start, dict.fromkeys(names, 0.2), dict.fromkeys(names, 5.0), truth, predict, np.full(30, 0.01))
    stopped = hill_climb(problem, 0.0, Search(50))
    assert stopped.reached is not None
    assert "evaluations, and still moving by steps of" in stopped.reached
    assert hill_climb(problem, 0.0).reached is None
    pytest.importorskip("cma", reason="cma is not installed")
    assert evolve(problem, 0.0, Search(50)).reached is not None


def test_scenarios_of_jobs_are_kept_and_a_changed_one_is_refused(tmp_path: Path, command: Command) -> None:
    (tmp_path / "train.yaml").write_text(TRAIN)
    (tmp_path / "own.yaml").write_text((ROOT / "examples" / "calibration" / "own-cluster.yaml").read_text())
    (tmp_path / "in").mkdir()
    steps = [json.dumps({"job": "train", "iteration_s": 0.02 + at / 1e5}) for at in range(20)]
    (tmp_path / "in" / "j.jsonl").write_text("\n".join(steps) + "\n")
    command("calibrate", "watch", "in", "--system", "own.yaml", "--scenario", "train=train.yaml", "--once")
    with Ledger(tmp_path / "calibration") as ledger:
        # The store is asked from other folders too.
        assert ledger.get("system") == str((tmp_path / "own.yaml").resolve())
    assert "pace.train  " in command("calibrate", "all").stdout
    adopted = command("calibrate", "adopt", "latest").stdout.split()[4].rstrip(";")
    record = json.loads((tmp_path / "calibration" / "systems" / "own-cluster.yaml").read_text())
    assert record["constants"]["pace.train"]["evidence"] == "calibrated"
    # No collective was measured: its constants are where they began.
    assert record["collectives"]["constants"]["evidence"] == "inferred"
    # Adopted twice it is adopted once, and there is one set to go back to.
    assert "went already by set" in command("calibrate", "adopt", adopted).stdout
    first = command("calibrate", "revert").stdout
    assert adopted not in first
    assert "nothing to go back to" in command("calibrate", "revert", check=2).stderr
    # Later watches know the scenario; a changed or lost one is told.
    command("calibrate", "watch", "in", "--system", "own.yaml", "--once")
    (tmp_path / "train.yaml").write_text(TRAIN.replace("64 MiB", "32 MiB"))
    assert "has changed since it predicted" in command("calibrate", "all", check=2).stderr
    (tmp_path / "train.yaml").unlink()
    assert "no such file, and it predicts" in command("calibrate", "diff", adopted, adopted, check=2).stderr


def test_drift_is_found_where_sizes_are_drawn(store: Ledger, tmp_path: Path) -> None:
    """Flows of sizes that never come again: 10% less of a rate is found, with few baselines."""
    draws = np.random.default_rng(1)
    models = Models(read_systems(None)["polaris"])
    said: list[str] = []
    lines = []
    for at in range(3000):
        size = int(draws.integers(10_000, 10_000_000))
        seconds = 5e-6 + size / (22e9 * (1.0 if at < 2000 else 0.9))
        lines.append(f"{size},{1e6 * seconds * np.exp(0.007 * draws.standard_normal()):.5f},leaf\n")
    (tmp_path / "f.csv").write_text("bytes,fct_us,class\n" + "".join(lines))
    heard = Watch(store, models, said.append).scan(str(tmp_path / "f.csv"))
    assert heard.measurements == 3000
    assert said
    assert "rate.leaf" in said[0].partition(" has moved")[0]
    assert len(Detector.of(store.get("detector")).kinds) <= 11 * (OWN + 1)
    measurement = store.one("select measurement from alarms")
    assert 2000 < measurement < 2100


def test_kinds_are_bounded_and_late_ones_are_watched_too(store: Ledger, tmp_path: Path) -> None:
    models = Models(read_systems(None)["polaris"])
    said: list[str] = []
    watch = Watch(store, models, said.append)
    # More kinds of three classes than are kept, then a class that comes late.
    lines = [f"{1 << (at % 30)},{5 + at / 1e3},c{at // 30}\n" for at in range(MOST_KINDS + 300)]
    (tmp_path / "a.csv").write_text("bytes,fct_us,class\n" + "".join(lines))
    watch.scan(str(tmp_path / "a.csv"))
    assert len(Detector.of(store.get("detector")).kinds) == MOST_KINDS
    assert any("the baselines of those not heard of for longest go" in line for line in said)
    said.clear()
    draws = np.random.default_rng(2)
    late = [
        f"16777216,{(800 if at < 60 else 900) * np.exp(0.005 * draws.standard_normal()):.4f},late\n"
        for at in range(100)
    ]
    (tmp_path / "b.csv").write_text("bytes,fct_us,class\n" + "".join(late))
    watch.scan(str(tmp_path / "b.csv"))
    assert any(line.startswith("rate.late has moved by") for line in said)
