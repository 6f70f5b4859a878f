"""Studies on a real Ray cluster of two nodes on this machine, one of which is killed."""

from __future__ import annotations

import json
import logging
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import windtunnel
from windtunnel.engine import InputError
from windtunnel.source import read_source
from windtunnel.studies.on_ray import RayExecutor, _unpacked
from windtunnel.studies.point import Point
from windtunnel.studies.runner import Limits, run_points
from windtunnel.studies.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Command
    from windtunnel.studies.point import Outcome
    from windtunnel.studies.runner import Progress

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("default")]

SCENARIO = """
windtunnel: 1
name: travels
seed: 3
fidelity: message
topology: {file: parts/topology.yaml}
jobs: [{name: a, iterations: 1, workload: {flows: {file: ../flows.csv}}}]
"""

MACHINE = ("wall_time_s", "cpu_time_s", "peak_memory_bytes", "peak_rss_bytes")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of two CPUs. Skipped where Ray is not installed."""
    ray: Any = pytest.importorskip("ray", reason="Ray is not installed: `pip install 'windtunnel[ray]'`")
    cluster_utils: Any = pytest.importorskip("ray.cluster_utils")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    made = cluster_utils.Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False},
    )
    made.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
    yield made
    ray.shutdown()
    made.shutdown()


def points(folder: Path, count: int) -> list[Point]:
    (folder / "study" / "parts").mkdir(parents=True)
    (folder / "study" / "parts" / "topology.yaml").write_text(
        "shape: clos\nhosts: 256\n"
        "tiers: [{ports_down: 16, rate: 100 Gbps, length: 5 m}, {ports_down: 16, rate: 100 Gbps, length: 5 m}]\n"
        "host: {gpus: 1, nics: 1}\n",
        encoding="utf-8",
    )
    rows = "".join(f"{a},{(a + b) % 256},100000\n" for a in range(256) for b in range(1, 40))
    (folder / "flows.csv").write_text(f"source,destination,bytes\n{rows}", encoding="utf-8")
    (folder / "study" / "travels.yaml").write_text(SCENARIO, encoding="utf-8")
    source = read_source(folder / "study" / "travels.yaml")
    return [Point(source, (("jobs[0].iterations", str(n)),), varied={"jobs[0].iterations": n}) for n in range(count)]


def kept(outcomes: list[Outcome]) -> list[tuple[str, str | None, dict[str, Any] | None]]:
    return [
        (o.state, o.message, None if o.summary is None else {k: v for k, v in o.summary.items() if k not in MACHINE})
        for o in outcomes
    ]


def test_a_node_killed_in_mid_study_costs_nothing(tmp_path: Path, cluster: Any) -> None:  # noqa: ANN401
    """Order, figures and refusals of local processes; resumed, nothing is run; a study of half its points goes on."""
    wanted = points(tmp_path, 60)
    node = next(iter(cluster.worker_nodes))
    killed = False

    def kill(progress: Progress) -> None:
        nonlocal killed
        # While it has a point in hand; where the head has been quicker all along, in the middle nevertheless.
        if not killed and progress.done >= 8 and (progress.running == 2 or progress.done >= 40):
            killed = True
            cluster.remove_node(node, allow_graceful=False)

    with Store(tmp_path / "ray") as store:
        assert len(list(run_points(wanted[:5], store, executor=RayExecutor()))) == 5
        before = {str(o.folder) for o in run_points(wanted[:5], store, executor=RayExecutor()) if o.stored}
        assert len(before) == 4, "one is refused, which is asked again"
        found = list(run_points(wanted, store, executor=RayExecutor(), progress=kill, tables=False))
        assert [o.stored for o in found[:5]] == [False, True, True, True, True]
        again = list(run_points(wanted, store, executor=RayExecutor()))
        assert [o.stored for o in again] == [False] + [True] * 59
        assert {row["state"] for row in store.rows()} == {"done", "refused"}
    assert killed, "the study was over before the node was killed"
    with Store(tmp_path / "local") as store:
        local = list(run_points(wanted, store))
    assert kept(found) == kept(again) == kept(local)
    for here, there in zip(found, local, strict=True):
        if here.folder is None or there.folder is None:
            continue
        assert here.folder.relative_to(tmp_path / "ray") == there.folder.relative_to(tmp_path / "local")
        one, two = (json.loads((folder / "manifest.json").read_text()) for folder in (here.folder, there.folder))
        assert {**one["study"], "begun": 0} == {**two["study"], "begun": 0}
        assert (here.folder / "scenario.yaml").read_bytes() == (there.folder / "scenario.yaml").read_bytes()


def test_limits_hold_on_ray_from_the_begin_of_a_run(tmp_path: Path, cluster: Any, monkeypatch: Any) -> None:  # noqa: ANN401
    """Neither the queue nor the start of processes counts; one that takes too long or too much is a row, as here."""
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    source = read_source(tmp_path / "small.yaml")
    short = [Point(source, (("seed", str(n)),)) for n in range(8)]
    slow = Point(source, (("jobs[0].iterations", "5000000"),), full=True)
    with Store(tmp_path / "runs") as store:
        found = list(run_points([slow, *short], store, limits=Limits(seconds=2.5), executor=RayExecutor()))
        assert [o.state for o in found] == ["failed"] + ["done"] * 8
        assert found[0].message == "took longer than 2.5 s"
        assert 2.5 < found[0].wall_s < 10
        # Long enough to be looked at.
        busy = ("jobs[0].iterations", "20000")
        asked = [Point(source, (("seed", str(n)), busy), full=True) for n in range(20, 22)]
        large = list(run_points(asked, store, limits=Limits(memory_bytes=10 * 2**20), executor=RayExecutor()))
        assert [(o.state, o.message) for o in large] == [("failed", "took more than 10 MiB")] * 2
        # Where a study is run is a matter of its limits: all commands that have such ask so.
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        last = list(run_points([Point(source, (("seed", "30"),))], store, limits=Limits(engine="ray")))
        assert [o.state for o in last] == ["done"]


def test_what_ray_does_not_keep_is_refused(command: Command, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    calls = [
        ["sweep", "small.yaml", "--vary", "seed=1,2"],
        ["layouts", "small.yaml"],
        ["explore", "small.yaml"],
        ["validate"],
        ["whatif", "set", "seed=1", "small.yaml"],
        ["experiments", "run", "nuwa"],
    ]
    for call in calls:
        refused = command(*call, "--engine", "ray", "--memory", "2 GB", check=2)
        assert "--memory: Ray keeps runs apart by the memory of its machines" in " ".join(refused.stderr.split())
        unknown = command(*call, "--engine", "slurm", check=2)
        assert "--engine: expected `local`, `ray` or `ray:ADDRESS`, found `slurm`" in " ".join(unknown.stderr.split())
    with pytest.raises(InputError, match="Ray keeps runs apart"):
        windtunnel.sweep(tmp_path / "small.yaml", vary={"seed": [1]}, engine="ray", memory_bytes=2**31)


STUDY = """
study: 1
scenario: small.yaml
set: {fidelity: packet}  # a run takes long enough for whoever asks to be there when it is to be killed
metrics: ['jobs[0].finish_s']
vary: {topology.hosts: {from: 4, to: 13}, 'jobs[0].iterations': {from: -2, to: 17}}
"""

SMALL = """
windtunnel: 1
name: small
fidelity: flow
topology: {shape: clos, hosts: 8, tiers: [{ports_down: 16, rate: 100 Gbps, length: 5 m}], host: {gpus: 1, nics: 1}}
jobs: [{name: a, workload: {flows: {pattern: all-to-all, bytes: 1 MiB}}}]
"""


def test_200_points_on_ray_killed_five_times(tmp_path: Path, cluster: Any) -> None:  # noqa: ANN401
    """Who asks is killed: 200 rows, 30 of them refused, no point twice to its end, those of an undisturbed sweep."""
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    program = Path(sys.executable).with_name("windtunnel")
    local = [str(program), "sweep", str(tmp_path / "study.yaml"), "--json"]
    call = [*local, "--engine", f"ray:{cluster.address}"]
    draw = random.Random(3)  # noqa: S311
    seen: dict[str, float] = {}

    def placed() -> dict[str, float]:
        found = (tmp_path / "runs" / "points").glob("[0-9a-f]*/*/manifest.json")
        return {str(path): path.stat().st_mtime for path in found}

    for _ in range(5):
        with subprocess.Popen(call, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            enough = len(seen) + draw.randint(1, 16)
            while len(placed()) < enough:
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        now = placed()
        assert seen.items() <= now.items(), "a point was run twice to its end"
        seen = now
    whole = tmp_path / "whole"
    whole.mkdir()
    answers = [
        json.loads(subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True).stdout)["rows"]
        for command, folder in ((call, tmp_path), (local, whole))
    ]
    assert seen.items() <= placed().items()
    shown, undisturbed = answers
    assert len(shown) == 200
    assert [row["state"] for row in shown].count("refused") == 30
    assert shown == undisturbed, "rows, and the places of their folders"


def test_files_keep_their_places(tmp_path: Path) -> None:
    files = {"a.csv": b"1", "parts/b.yaml": b"2", "../../c.csv": b"3", "../d/e.csv": b"4"}
    base = _unpacked(files, tmp_path / "files")
    assert {name: (base / name).read_bytes() for name in files} == files
    assert all((tmp_path / "files") in (base / name).resolve().parents for name in files)
