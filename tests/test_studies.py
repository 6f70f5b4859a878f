"""Many runs: designs, the store, the runner, and `windtunnel sweep` as a user has it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from conftest import RING, children
from windtunnel.engine import InputError
from windtunnel.source import read_source
from windtunnel.studies import design
from windtunnel.studies.design import axis, points, zipped
from windtunnel.studies.expression import Expression
from windtunnel.studies.memory import FLOOR, INTERPRETER, PER_GPU, Room, estimate
from windtunnel.studies.point import Point
from windtunnel.studies.runner import Limits, run_points
from windtunnel.studies.store import Store
from windtunnel.studies.study import Study

if TYPE_CHECKING:
    from conftest import Command
    from windtunnel.studies.runner import Progress

DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "ring.yaml"
    path.write_text(RING, encoding="utf-8")
    return path


# Expressions and designs


def test_expressions_are_arithmetic_over_names_and_paths() -> None:
    tree = {"topology": {"hosts": 8, "host": {"gpus": 4}}, "jobs": [{"iterations": 3}]}
    cases: list[tuple[str, object]] = [
        ("topology.hosts * topology.host.gpus / (tp * pp)", 4.0),
        ("jobs[0].iterations + 1", 4),
        ("tp <= 4 and not pp == 1", True),
        ("1 < tp < 8", True),
        ("tp in [1, 2]", False),
        ("max(tp, pp) // 3 + ceil(log2(9))", 5),
        ("-tp % 3", 2),
    ]
    for text, expected in cases:
        assert Expression(text, "here").value({"tp": 4, "pp": 2}, tree) == expected, text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tp +", "expected an expression"),
        ("tp / 0", "a division by 0"),
        ("9 ** 9 ** 9", "a power above 64"),
        ("__import__('os')", "has no meaning here"),
        ("(lambda: 1)()", "has no meaning here"),
        ("tpp * 2", "unknown name `tpp`"),
        ("topology.host", "the scenario has no `topology.host`"),
        ("tp.__class__", "the scenario has no `tp.__class__`"),
    ],
)
def test_what_is_no_expression_says_so(text: str, said: str) -> None:
    with pytest.raises(InputError, match="here") as error:
        Expression(text, "here").value({"tp": 4}, {"topology": {"hosts": 8}})
    assert said in str(error.value)


def test_axes_keep_units_and_steps() -> None:
    def values(given: object) -> list[Any]:
        return [row[0] for row in axis("k", given, "k").values]

    assert values({"from": 1, "to": 8, "scale": "log"}) == [1, 2, 4, 8]
    assert values({"from": 1, "to": 4}) == [1, 2, 3, 4]
    assert values({"from": "100 Gbps", "to": "800 Gbps", "scale": "log"}) == [
        "100 Gbps",
        "200 Gbps",
        "400 Gbps",
        "800 Gbps",
    ]
    assert values({"from": 0.0, "to": 1.0, "points": 5}) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert values({"from": "1.5 us", "to": "2.5 us", "points": 3}) == ["1.5 us", "2 us", "2.5 us"]
    assert values([1, "a", None]) == [1, "a", None]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "expected one value or more"),
        ({"from": 1}, "`from` or `to` is missing"),
        ({"from": 1, "to": "8 Gbps"}, "expected one unit at both ends"),
        ({"from": 0, "to": 8, "scale": "log"}, "begins above 0"),
        ({"from": 8, "to": 1}, "expected `from` at or below `to`"),
        ({"from": 1, "to": 8, "points": 0}, "expected a whole number from 1"),
        ({"from": "fast", "to": "slow"}, "expected a number or a quantity"),
        ({"from": 1, "to": 8, "step": 2}, "unknown key `step`"),
        (3, "expected a list of values"),
    ],
)
def test_axes_that_cannot_be_are_refused(given: object, said: str) -> None:
    with pytest.raises(InputError) as error:
        axis("k", given, "vary.k")
    assert str(error.value).startswith("vary.k")
    assert said in str(error.value)


def test_designs_fill_what_they_promise() -> None:
    a, b = axis("a", [1, 2, 3], "a"), axis("b", ["x", "y"], "b")
    grid = list(points("grid", [a, b], [], None, 0))
    assert grid == [{"a": i, "b": j} for i in (1, 2, 3) for j in ("x", "y")]
    both = zipped([a, axis("c", [7, 8, 9], "c")], "zip")
    assert list(points("grid", [both], [{"z": 0}], None, 0)) == [{"z": 0, "a": i, "c": i + 6} for i in (1, 2, 3)]
    with pytest.raises(InputError, match="equally many values, found a 3, b 2"):
        zipped([a, b], "zip")
    span = axis("s", {"from": 0.0, "to": 1.0}, "s")
    for kind in ("random", "sobol", "latin-hypercube"):
        drawn = [point["s"] for point in points(kind, [span, b], [], 64, 5)]
        assert drawn == [point["s"] for point in points(kind, [span, b], [], 64, 5)]
        assert len(drawn) == 64
        bins = [sum(i <= value * 16 < i + 1 for value in drawn) for i in range(16)]
        assert kind == "random" or bins == [4] * 16, (kind, bins)


def test_studies_derive_filter_and_repeat(tmp_path: Path, scenario: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        f"study: 1\nscenario: {scenario.name}\nseeds: 2\n"
        "vary: {topology.hosts: [4, 8, 16], 'jobs[0].iterations': [1, 2]}\n"
        "derive: {'topology.tiers[0].ports_down': hosts}\nfilter: hosts * iterations <= 16\n",
        encoding="utf-8",
    )
    planned = Study.read(study).plan()
    assert [(p.varied["topology.hosts"], p.varied["jobs[0].iterations"], p.seed) for p in planned] == [
        (hosts, n, seed) for hosts in (4, 8, 16) for n in (1, 2) if hosts * n <= 16 for seed in (3, 4)
    ]
    assert all(p.varied["topology.tiers[0].ports_down"] == p.varied["topology.hosts"] for p in planned)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("study: 2", "study: expected `1`"),
        ("study: 1\nvari: {a: [1]}", "did you mean `vary`?"),
        ("study: 1\nscenario: ring.yaml", "expected `vary` or `cases`"),
        ("study: 1\nscenario: ring.yaml\nvary: {a: [1]}\ndesign: sobol", "needs a number of points"),
        ("study: 1\nscenario: ring.yaml\nvary: {a: [1]}\nzip: [[a, b]]", "`b` is not in `vary`"),
        ("study: 1\nscenario: ring.yaml\nvary: {a: [1]}\nseeds: 0", "seeds: expected a whole number from 1"),
        ("study: 1\nscenario: rang.yaml\nvary: {a: [1]}", "no such file"),
        ("study: [1", ":1:"),
    ],
)
def test_studies_that_cannot_be_are_refused(scenario: Path, text: str, said: str) -> None:
    path = scenario.with_name("study.yaml")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        Study.read(path)
    assert said in str(error.value)


# The store and the runner


def asked(scenario: Path, *values: int) -> list[Point]:
    source = read_source(scenario)
    return [Point(source, (("jobs[0].iterations", str(n)),), varied={"jobs[0].iterations": n}) for n in values]


def figures(summary: dict[str, Any] | None) -> dict[str, Any] | None:
    machine = ("wall_time_s", "cpu_time_s", "peak_memory_bytes", "peak_rss_bytes")
    return None if summary is None else {key: value for key, value in summary.items() if key not in machine}


def test_outcomes_come_in_order_and_are_kept(tmp_path: Path, scenario: Path) -> None:
    wanted = asked(scenario, 5, 1, 0, 3)
    with Store(tmp_path / "runs") as store:
        first = list(run_points(wanted, store, limits=Limits(2)))
        assert [outcome.state for outcome in first] == ["done", "done", "refused", "done"]
        assert "iterations" in (first[2].message or "")
        again = list(run_points(wanted, store, limits=Limits(2)))
        assert [outcome.stored for outcome in again] == [True, True, False, True]
        anew = list(run_points(wanted, store, limits=Limits(1), fresh=True))
        assert not any(outcome.stored for outcome in anew)
        for one, two, three in zip(first, again, anew, strict=True):
            assert figures(one.summary) == figures(two.summary) == figures(three.summary)


def test_a_result_is_not_served_once_an_input_has_changed(tmp_path: Path, scenario: Path) -> None:
    flows = tmp_path / "flows.csv"
    flows.write_text("source,destination,bytes,start_ps\n0,1,1000000,0\n", encoding="utf-8")
    scenario.write_text(RING.replace("{pattern: ring, bytes: 1 MiB}", "{file: flows.csv}"), encoding="utf-8")
    with Store(tmp_path / "runs") as store:
        (first,) = run_points(asked(scenario, 1), store)
        (same,) = run_points(asked(scenario, 1), store)
        assert same.stored
        flows.write_text("source,destination,bytes,start_ps\n0,1,9000000,0\n", encoding="utf-8")
        (other,) = run_points(asked(scenario, 1), store)
        assert not other.stored
        assert first.summary is not None
        assert other.summary is not None
        assert other.summary["jobs"][0]["finish_s"] > 5 * first.summary["jobs"][0]["finish_s"]


def test_whatever_the_engine_reads_makes_a_stored_result_stale(tmp_path: Path, scenario: Path) -> None:
    """A topology of its own file in another folder, a sheet that this names, and a workload."""
    (tmp_path / "parts" / "sheets").mkdir(parents=True)
    sheet = tmp_path / "parts" / "sheets" / "nic.yaml"
    sheet.write_text((DATA / "nics" / "connectx-7.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    topology = tmp_path / "parts" / "topology.yaml"
    topology.write_text(
        "shape: clos\nhosts: 8\ntiers: [{ports_down: 8, rate: 100 Gbps, length: 5 m}]\n"
        "host: {gpus: 1, nics: 1, nic: sheets/nic.yaml}\n",
        encoding="utf-8",
    )
    flows = tmp_path / "flows.csv"
    flows.write_text("source,destination,bytes\n0,1,1000000\n", encoding="utf-8")
    text = RING.replace("{pattern: ring, bytes: 1 MiB}", "{file: flows.csv}")
    first, _, last = text.partition("topology: ")
    scenario.write_text(
        f"{first}topology: {{file: parts/topology.yaml}}\n{last.partition(chr(10))[2]}", encoding="utf-8"
    )
    with Store(tmp_path / "runs") as store:
        (outcome,) = run_points(asked(scenario, 1), store)
        assert outcome.summary is not None
        read = [one["name"] for one in outcome.summary["inputs"]]
        assert read == ["flows.csv", "parts/sheets/nic.yaml", "parts/topology.yaml"]
        seen = {outcome.summary["scenario_sha256"]}
        for path in (sheet, topology, flows):
            (again,) = run_points(asked(scenario, 1), store)
            assert again.stored, path
            path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
            (anew,) = run_points(asked(scenario, 1), store)
            assert anew.summary is not None
            assert not anew.stored, path
            seen.add(anew.summary["scenario_sha256"])
        assert len(seen) == 4


def test_what_the_bill_reads_makes_a_stored_result_stale(
    tmp_path: Path, scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of a GPU's sheet, of which the engine has its own copy, and the code of the bill."""
    from windtunnel import bill  # noqa: PLC0415
    from windtunnel.studies import recipe  # noqa: PLC0415

    scenario.write_text(RING.replace("host: {", "host: {gpu: H100-SXM, "), encoding="utf-8")
    known = bill.sheet_path("h100-sxm")
    assert known is not None
    sheet = tmp_path / "h100-sxm.yaml"
    sheet.write_bytes(known.read_bytes())
    monkeypatch.setattr(bill, "sheet_path", lambda name: sheet if name == "h100-sxm" else None)

    def is_stored() -> bool:
        with Store(tmp_path / "runs") as store:
            (outcome,) = run_points(asked(scenario, 1), store)
        assert outcome.summary is not None
        assert outcome.summary["cost"]["gpu_usd"] == 30_000
        return outcome.stored

    assert [is_stored(), is_stored()] == [False, True]
    sheet.write_text(sheet.read_text(encoding="utf-8").replace("USD", "kUSD"), encoding="utf-8")
    assert not is_stored()
    sheet.write_bytes(known.read_bytes())
    assert is_stored()
    monkeypatch.setattr(recipe, "build", lambda: "of another bill")
    assert not is_stored()


def test_a_store_that_moved_or_lost_its_index_serves_on(tmp_path: Path, scenario: Path) -> None:
    with Store(tmp_path / "runs") as store:
        list(run_points(asked(scenario, 1, 2), store))
    (tmp_path / "runs").rename(tmp_path / "moved")
    with Store(tmp_path / "moved") as store:
        assert all(outcome.stored for outcome in run_points(asked(scenario, 1, 2), store))
    for index in (tmp_path / "moved").glob("index.sqlite*"):
        index.unlink()
    with Store(tmp_path / "moved") as store:
        assert len(store.rows()) == 2
        assert all(outcome.stored for outcome in run_points(asked(scenario, 1, 2), store))
    (tmp_path / "moved" / "index.sqlite").write_bytes(b"no database at all" * 100)
    with Store(tmp_path / "moved") as store:
        assert all(outcome.stored for outcome in run_points(asked(scenario, 1, 2), store))


def test_a_newer_store_is_refused(tmp_path: Path) -> None:
    import sqlite3  # noqa: PLC0415

    Store(tmp_path / "runs").close()
    with sqlite3.connect(tmp_path / "runs" / "index.sqlite") as db:
        db.execute("pragma user_version = 99")
    with pytest.raises(InputError, match="is of version 99"):
        Store(tmp_path / "runs")


def test_a_run_that_takes_too_long_fails_alone(tmp_path: Path, scenario: Path) -> None:
    slow = [Point(read_source(scenario), (("jobs[0].iterations", "5000000"),), full=True, varied={"n": 5000000})]
    with Store(tmp_path / "runs") as store:
        late, fine = run_points([*slow, *asked(scenario, 1)], store, limits=Limits(1, seconds=4))
        assert (late.state, fine.state) == ("failed", "done")
        assert late.message == "took longer than 4 s"
        assert [row["state"] for row in store.rows("state = 'failed'")] == ["failed"]


def test_a_limit_of_time_counts_the_run_and_not_the_start_of_its_process(
    tmp_path: Path, scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from windtunnel.studies import local  # noqa: PLC0415

    local.end_idle()
    monkeypatch.setattr(local, "START", f"import time; time.sleep(2); {local.START}")
    with Store(tmp_path / "runs") as store:
        (outcome,) = run_points(asked(scenario, 1), store, limits=Limits(1, seconds=1.5))
    assert (outcome.state, outcome.message) == ("done", None)


@pytest.mark.parametrize(("deaths", "state"), [(1, "done"), (2, "failed")])
def test_a_worker_that_dies_takes_no_other_point_along(tmp_path: Path, scenario: Path, deaths: int, state: str) -> None:
    """Killed once, a point is run again; killed twice, it fails. Its neighbours are done."""
    one, two = asked(scenario, 1, 2)
    hunted = Point(read_source(scenario), (("jobs[0].iterations", "60000"),), full=True, varied={"hunted": True})
    killed = 0
    dead: set[int] = set()

    def hunt(progress: Progress) -> None:
        nonlocal killed
        if progress.slowest is None or not progress.slowest.varied.get("hunted") or killed == deaths:
            return
        # Not before it has been at work for a while: one killed as it starts has not been given the point yet.
        if progress.slowest_s < 0.2 or not (prey := set(children()) - dead):
            return
        killed += 1
        for number in prey:
            os.kill(number, signal.SIGKILL)
        dead.update(prey)

    with Store(tmp_path / "runs") as store:
        found = list(run_points([one, hunted, two], store, limits=Limits(1), progress=hunt))
    assert killed == deaths
    assert [outcome.state for outcome in found] == ["done", state, "done"]
    assert state == "done" or found[1].message == "the process that ran it died (signal 9), twice; out of memory?"


def test_room_is_learnt_from_what_ended() -> None:
    gib = 2**30
    size = gib
    room = Room(8, 24 * gib)

    def at_once(estimated: int) -> int:
        beside: list[int] = []
        while room.fits(estimated, beside):
            beside.append(estimated)
        return len(beside)

    room.learn(size, 6 * gib - INTERPRETER)
    assert at_once(size) == 4
    room.learn(size, gib)
    assert at_once(size) == 4, "the largest counts"
    assert at_once(2 * size) == 2, "what is twice as large takes twice as much"
    room.grow(size, 10 * gib)
    assert at_once(size) == 2, "so does one that has not ended"
    room.learn(size, 40 * gib)
    assert at_once(size) == 1
    small = Room(8, 24 * gib)
    assert at_once(size) == 1
    small.learn(size, 2**20)
    beside: list[int] = []
    while small.fits(size, beside):
        beside.append(size)
    assert len(beside) == 8


def test_the_estimate_follows_the_size_of_the_topology(scenario: Path) -> None:
    source = read_source(scenario)

    def gpus(*overrides: tuple[str, str]) -> float:
        return (estimate(Point(source, overrides)) - FLOOR) / PER_GPU

    assert gpus() == 8
    assert gpus(("topology.hosts", "64")) == 64
    assert gpus(("topology.hosts", "64"), ("topology.host.gpus", "4"), ("jobs[0].iterations", "9")) == 256
    assert gpus(("topology", "{shape: clos, hosts: 5, host: {gpus: 3}}")) == 15
    assert gpus(("topology", "{file: elsewhere.yaml}")) == 1


# The command


def test_sweep_prints_its_rows_best_first(command: Command, tmp_path: Path, scenario: Path) -> None:
    varied = ("--vary", "topology.tiers[0].rate=100 Gbps:400 Gbps:log", "--vary", "jobs[0].iterations=0,1,2")
    done = command("sweep", scenario, *varied, "--metric", "jobs[0].finish_s", "--seeds", "2")
    lines = done.stdout.splitlines()
    assert lines[1].split()[:3] == ["400", "Gbps", "1"]
    assert lines[1].rstrip().endswith("best")
    assert sum(line.startswith("refused: ") for line in lines) == 3
    table = pl.read_parquet(tmp_path / "runs" / "ring.parquet")
    assert table.shape[0] == 9
    assert table["state"].to_list().count("done") == 6
    answer = json.loads(
        command("sweep", scenario, *varied, "--metric", "jobs[0].finish_s", "--seeds", "2", "--json").stdout
    )
    assert [row["metrics"]["jobs[0].finish_s"] for row in answer["rows"]] == table["jobs[0].finish_s"].to_list()
    listed = json.loads(command("runs", "list", "topology.tiers[0].rate=400 Gbps", "state=done", "--json").stdout)
    assert len(listed["runs"]) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--vary", "jobs[0].iteratoins=1,2"], "did you mean `iterations`?"),
        (["--vary", "jobs[0].iterations=1,2", "--metric", "jobs[0].finish"], "did you mean `jobs[0].finish_s`?"),
        (["--vary", "jobs[0].iterations"], "expected PATH=VALUES"),
        (["--vary", "jobs[0].iterations=1:8:lag"], "expected `FROM:TO[:log][:POINTS]`"),
        (["--vary", "jobs[0].iterations=1,2", "--design", "sobol"], "--points"),
        (["--vary", "jobs[0].iterations=1:2000000"], "from 1 to 1000000"),
        (["--vary", "jobs[0].iterations=1:2000", "--vary", "topology.hosts=1:2000"], "is the most"),
        ([], "no study"),
    ],
)
def test_bad_sweeps_are_refused(command: Command, scenario: Path, arguments: list[str], said: str) -> None:
    done = command("sweep", scenario, *arguments, check=2)
    assert said in done.stderr


def test_names_of_studies_stay_inside_the_store(command: Command, tmp_path: Path, scenario: Path) -> None:
    command("sweep", scenario, "--vary", "jobs[0].iterations=1", "--name", "../../escape")
    assert [path.name for path in (tmp_path / "runs").glob("*.parquet")] == ["escape.parquet"]


def test_a_killed_sweep_goes_on_where_it_stopped(tmp_path: Path, scenario: Path) -> None:
    """60 points, 5 of them refused, killed five times: the rows of an undisturbed sweep, no point done twice."""
    program = Path(sys.executable).with_name("windtunnel")
    call = [str(program), "sweep", str(scenario), "--vary", "jobs[0].iterations=0:11"]
    call += ["--vary", "topology.hosts=4,5,6,7,8", "--metric", "jobs[0].finish_s", "--json", "--workers", "2"]
    draw = random.Random(1)  # noqa: S311
    placed: dict[Path, float] = {}

    def look() -> None:
        for folder in (tmp_path / "runs" / "points").glob("*/*"):
            if not folder.name.startswith("."):
                assert placed.setdefault(folder, folder.stat().st_mtime) == folder.stat().st_mtime, folder

    for _ in range(5):
        with subprocess.Popen(call, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(draw.uniform(0.3, 2.5))
            process.send_signal(signal.SIGKILL)
        look()
    shown = json.loads(subprocess.run(call, cwd=tmp_path, capture_output=True, check=True, text=True).stdout)["rows"]
    look()
    whole = tmp_path / "whole"
    whole.mkdir()
    undisturbed = json.loads(subprocess.run(call, cwd=whole, capture_output=True, check=True, text=True).stdout)["rows"]
    assert [(row["varied"], row["state"], row["metrics"]) for row in shown] == [
        (row["varied"], row["state"], row["metrics"]) for row in undisturbed
    ]
    assert [row["state"] for row in shown].count("refused") == 5
    for row in undisturbed:
        if row["folder"] is not None:
            here, there = (
                json.loads((base / row["folder"] / "summary.json").read_text()) for base in (tmp_path, whole)
            )
            assert figures(here) == figures(there)


def test_studies_of_the_examples_say_what_they_show(command: Command, tmp_path: Path) -> None:
    """2:1 costs 1 MiB nothing and 64 MiB half as much again; from there each doubling is paid for."""
    study = Path(__file__).resolve().parents[1] / "examples" / "studies" / "oversubscription.yaml"
    rows = json.loads(command("sweep", study, "--json").stdout)["rows"]
    times = {tuple(row["varied"].values()): row["metrics"]["jobs[0].iteration_time_s.mean"] for row in rows}
    assert len(times) == 8
    assert times[2, "1 MiB"] < 1.02 * times[1, "1 MiB"]
    assert 1.4 < times[2, "64 MiB"] / times[1, "64 MiB"] < 1.6
    for size in ("1 MiB", "64 MiB"):
        assert times[8, size] > 1.4 * times[4, size]
    assert (tmp_path / "runs" / "oversubscription.parquet").is_file()


def example(tmp_path: Path, name: str, *smaller: tuple[str, str]) -> Path:
    """A study of the examples with fewer values."""
    folder = Path(__file__).resolve().parents[1] / "examples"
    text = (folder / "studies" / f"{name}.yaml").read_text(encoding="utf-8")
    for whole, part in (("scenario: ../", f"scenario: {folder}/"), *smaller):
        assert whole in text
        text = text.replace(whole, part)
    path = tmp_path / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_larger_job_pays_more_for_oversubscription(command: Command, tmp_path: Path) -> None:
    study = example(tmp_path, "job-size", ("[4, 8, 16]", "[4, 8]"), ("[1, 2, 4, 8]", "[1, 2]"))
    rows = json.loads(command("sweep", study, "--json").stdout)["rows"]
    times = {tuple(row["varied"].values()): row["metrics"]["jobs[0].iteration_time_s.mean"] for row in rows}
    assert 1.25 < times[4, 2] / times[4, 1] < 1.4
    assert 1.6 < times[8, 2] / times[8, 1] < 1.75


def test_buffers_end_losses_and_not_the_time(command: Command, tmp_path: Path) -> None:
    study = example(tmp_path, "buffers", ("[500 KB, 1 MB, 2 MB, 4 MB, 8 MB]", "[1 MB, 8 MB]"))
    rows = json.loads(command("sweep", study, "--json").stdout)["rows"]
    at = {tuple(row["varied"].values()): row["metrics"] for row in rows}
    for transport in ("dctcp", "swift"):
        assert at[transport, "8 MB"]["network.packets_dropped"] == 0
        assert at[transport, "1 MB"]["network.packets_dropped"] > 100
        assert at[transport, "8 MB"]["jobs[0].finish_s"] < 1.06 * 2.56e-3
    assert at["dcqcn", "8 MB"]["network.packets_dropped"] > 10_000
    assert at["dcqcn", "8 MB"]["jobs[0].finish_s"] > 1.8 * 2.56e-3


def test_a_doubling_of_tp_costs_more_than_one_of_pp(command: Command, tmp_path: Path) -> None:
    """And what memory refuses stands below with what is missing."""
    smaller = (("tp: [1, 2, 4, 8]", "tp: [1, 4, 8]"), ("cp: [1, 2, 4]", "cp: [2]"), ("pp: [1, 2, 4, 8]", "pp: [2, 4]"))
    rows = json.loads(command("sweep", example(tmp_path, "layouts", *smaller), "--json").stdout)["rows"]
    at = {tuple(row["varied"].values()): row for row in rows}
    assert list(at) == [(1, 2, 2, 64), (1, 2, 4, 32), (4, 2, 2, 16), (4, 2, 4, 8), (8, 2, 2, 8), (8, 2, 4, 4)]
    times = {layout: row["metrics"]["jobs[0].iteration_time_s.mean"] for layout, row in at.items()}
    fastest = times[4, 2, 2, 16]
    assert 1.03 < times[4, 2, 4, 8] / fastest < 1.07
    assert 1.13 < times[8, 2, 2, 8] / fastest < 1.19
    for refused in ((1, 2, 2, 64), (1, 2, 4, 32)):
        assert at[refused]["state"] == "refused"
        assert "GiB missing" in at[refused]["message"]


def test_receivers_that_serve_the_least_left_have_the_lower_median(command: Command, tmp_path: Path) -> None:
    study = example(
        tmp_path, "receiver-driven", ("[homa, sird, expresspass, dcpim, phost, eqds]", "[homa, eqds, phost]")
    )
    rows = json.loads(command("sweep", study, "--json").stdout)["rows"]
    at = {row["varied"]["network.transport"]: row["metrics"] for row in rows}
    for transport in ("homa", "eqds"):
        assert 1 <= at[transport]["flows.fct_max_s"] / 738e-6 < 1.005
    assert at["phost"]["flows.fct_max_s"] > 1.2 * 738e-6
    for transport in ("homa", "phost"):
        assert at[transport]["flows.fct_p50_s"] < 290e-6
    assert at["eqds"]["flows.fct_p50_s"] > 500e-6


def test_large_designs_are_counted_before_they_are_made() -> None:
    axes = [axis("a", {"from": 1, "to": 1000}, "a"), axis("b", {"from": 1, "to": 1000}, "b")]
    assert design.size("grid", axes, [], None) == 1_000_000
    assert design.size("random", axes, [{"c": 1}, {"c": 2}], 50) == 100


def test_workers_do_not_outlive_a_killed_parent(tmp_path: Path, scenario: Path) -> None:
    if not Path("/proc").is_dir():
        pytest.skip("needs /proc to see processes")
    program = Path(sys.executable).with_name("windtunnel")
    call = [str(program), "sweep", str(scenario), "--vary", "jobs[0].iterations=1:400", "--workers", "2"]
    marker = f"WINDTUNNEL_TEST_{os.getpid()}"
    with subprocess.Popen(call, cwd=tmp_path, env={**os.environ, marker: "1"}, stderr=subprocess.DEVNULL) as process:
        while not any((tmp_path / "runs" / "points").glob("*/*/summary.json")):
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)

    def ours(pid: str) -> bool:
        try:
            return marker.encode() in (Path("/proc") / pid / "environ").read_bytes()
        except OSError:
            return False

    # One that was being started dies as it finds its pipe closed.
    for _ in range(300):
        left = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and ours(entry.name)]
        if not left:
            return
        time.sleep(0.1)
    raise AssertionError(f"{left} live on")
