"""`windtunnel runs`: what the index knows of every run, how it is asked, and what is taken off it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from conftest import RING
from windtunnel.engine import InputError
from windtunnel.source import read_source
from windtunnel.studies.filters import asked
from windtunnel.studies.point import Point
from windtunnel.studies.runner import run_points
from windtunnel.studies.said import said
from windtunnel.studies.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

pytestmark = pytest.mark.engine


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "ring.yaml"
    path.write_text(RING, encoding="utf-8")
    return path


def point(scenario: Path, hosts: float | str, **other: Any) -> Point:  # noqa: ANN401
    varied = {"topology.hosts": hosts, **other}
    return Point(read_source(scenario), (("topology.hosts", str(hosts)),), varied=varied)


@pytest.fixture
def filled(tmp_path: Path, scenario: Path) -> Path:
    """A store of two runs that are done and one that is refused, beside each other's scenario."""
    with Store(tmp_path / "runs") as store:
        points = [point(scenario, 4, share=0.1), point(scenario, 8, share=0.14), point(scenario, 0, share=True)]
        assert [o.state for o in run_points(points, store)] == ["done", "done", "refused"]
    return tmp_path / "runs"


def test_rows_that_are_not_done_have_name_seed_and_fidelity(tmp_path: Path, scenario: Path, filled: Path) -> None:
    with Store(filled) as store:
        (refused,) = store.rows("state = 'refused'")
        (done,) = store.rows("json_extract(varied, '$.\"topology.hosts\"') = 4")
        assert [refused[key] for key in ("name", "seed", "fidelity")] == ["ring", done["seed"], done["fidelity"]]
        store.queue([point(scenario, 16), Point(read_source(scenario), (("name", "'other'"), ("seed", "7")))])
        assert [row["name"] for row in store.rows("state = 'queued'")] == ["other", "ring"]
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: [", encoding="utf-8")
    assert said(Point(read_source(broken), seed=3)) == {"name": None, "seed": 3, "fidelity": None}


@pytest.mark.parametrize(
    ("filters", "hosts"),
    [
        (["hosts=4"], [4]),
        (["hosts=4.0"], [4]),
        (["topology.hosts=8", "state=done"], [8]),
        (["hosts=4", "state=refused"], []),
        (["share=0.1"], [4]),
        (["share=true"], [0]),
        (["share=1"], []),
        (["name=ring"], [4, 8, 0]),
        (["name=ring", "state=refused"], [0]),
        (["hosts=400"], []),
    ],
)
def test_keys_are_named_and_compared_as_the_list_prints_them(
    filled: Path, filters: list[str], hosts: list[int]
) -> None:
    with Store(filled) as store:
        what = asked(filters, store.keys())
        found = [row["varied"]["topology.hosts"] for row in store.listed(what)]
        assert sorted(found) == sorted(hosts)
        assert json.loads(store.listed_json(what)) == store.listed(what)


def test_a_figure_is_found_by_the_digits_that_are_given(filled: Path) -> None:
    with Store(filled) as store:
        (row,) = store.listed(asked(["hosts=4", "state=done"], store.keys()))
        for key, value in (("wall_s", row["wall_s"]), ("took", row["wall_s"]), *row["figures"].items()):
            given = f"{value:.4f}" if isinstance(value, float) else str(value)
            assert row in store.listed(asked([f"{key}={given}"], store.keys())), key
            assert row not in store.listed(asked([f"{key}={value + 1:.1f}"], store.keys())), key


def test_what_is_no_key_is_refused_with_the_nearest(filled: Path) -> None:
    with Store(filled) as store:
        for text, said_of_it in (
            ("hots=4", "did you mean `hosts`?"),
            ("nam=ring", "did you mean `name`?"),
            ("nonsense=3", "there are name, state"),
            ("id=one", "id: expected a number, found `one`"),
        ):
            with pytest.raises(InputError) as raised:
                asked([text], store.keys())
            assert said_of_it in str(raised.value)


def test_the_command_lists_the_newest_and_says_what_it_left_out(
    command: Command, filled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no such key: `nonsense`" in command("runs", "list", "nonsense=3", check=2).stderr
    from windtunnel.cli import main, runs  # noqa: PLC0415

    monkeypatch.setattr(runs, "SHOWN", 2)
    assert main(["runs", "list", "--store", str(filled)]) == 0
    shown = capsys.readouterr()
    # A narrow terminal breaks cells over lines, of which the first of a run begins with its number.
    numbers = [line.split()[0] for line in shown.out.splitlines() if line[:1].isdigit()]
    assert len(numbers) == 2
    assert "3" in numbers
    assert shown.err == "the newest 2; `--limit N` shows so many, `--json` all\n"
    assert main(["runs", "list", "--limit", "3", "--store", str(filled)]) == 0
    assert capsys.readouterr().err == ""


def test_a_refused_run_and_one_without_a_folder_are_shown_for_what_they_are(command: Command, filled: Path) -> None:
    (refused,) = json.loads(command("runs", "list", "state=refused", "--json").stdout)["runs"]
    record = json.loads(command("runs", "show", refused["id"], "--json").stdout)
    assert (record["state"], record["message"]) == ("refused", refused["message"])
    assert record["message"]
    (done,) = json.loads(command("runs", "list", "hosts=4", "state=done", "--json").stdout)["runs"]
    shutil.rmtree(filled / done["folder"])
    told = " ".join(command("runs", "show", done["id"], check=2).stderr.split())
    assert f"the folder of run {done['id']} is gone" in told
    assert f"`windtunnel runs rm {done['id']}` takes it off the list" in told
    (gone,) = json.loads(command("runs", "list", f"id={done['id']}", "--json").stdout)["runs"]
    assert (gone["state"], gone["message"], gone["folder"]) == ("interrupted", "its folder is gone", None)
    assert (
        f"run {done['id']} has no figures: interrupted" in command("runs", "compare", done["id"], "2", check=2).stderr
    )


def test_runs_are_removed_by_filters(command: Command, filled: Path) -> None:
    def listed(*filters: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(command("runs", "list", *filters, "--json").stdout)["runs"]
        return found

    (refused,), (small,) = listed("state=refused"), listed("hosts=4")
    assert json.loads(command("runs", "gc", "state=failed", "--json").stdout) == {"removed": []}
    assert json.loads(command("runs", "gc", "--json").stdout) == {"removed": [refused["id"]]}
    assert "did you mean `hosts`?" in command("runs", "rm", "hots=4", check=2).stderr
    assert json.loads(command("runs", "rm", "hosts=4", "--json").stdout) == {"removed": [small["id"]]}
    assert not (filled / small["folder"]).exists()
    (left,) = listed()
    assert (filled / left["folder"]).is_dir()


def test_a_run_by_name_that_fails_is_listed_until_it_is_done(command: Command, tmp_path: Path, scenario: Path) -> None:
    call = ("run", scenario, "--no-report")
    command(*call, "--set", "topology.hosts=0", check=2)
    assert not (tmp_path / "runs").exists(), "a refusal makes no store"
    command(*call, "--out", "runs/other")
    command(*call)
    command(*call, "--set", "topology.hosts=0", "--out", "runs/mine", check=2)
    (row,) = json.loads(command("runs", "list", "state=refused", "--json").stdout)["runs"]
    assert (row["name"], row["by_name"], row["folder"]) == ("ring", True, None)
    assert "topology" in row["message"]
    assert sorted(entry.name for entry in (tmp_path / "runs").iterdir() if entry.is_dir()) == ["other", "ring-flow"]
    command(*call, "--out", "runs/mine")
    states = [run["state"] for run in json.loads(command("runs", "list", "--json").stdout)["runs"]]
    assert states == ["done"] * 3
