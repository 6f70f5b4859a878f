"""The report of several runs: what differs, bars and lines of all on one scale, and that it stands alone."""

from __future__ import annotations

import html
import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from synthetic import write_run
from test_study_page import checked
from windtunnel import InputError, Result
from windtunnel.breakdown import PARTS
from windtunnel.report.cdf import SHARES
from windtunnel.report.runs import write_runs_report
from windtunnel.text import duration

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

SCENARIO = "windtunnel: 1\nname: synthetic\ntopology: {hosts: 64}\n"


def run(folder: Path, *, hosts: int = 64, slower: float = 1.0, flows: int = 200) -> Result:
    """A run whose iterations take `slower` times as long, all of it exposed DP."""
    write_run(folder, stages=2, microbatches=2, flows=flows)
    summary = json.loads((folder / "summary.json").read_text())
    job = summary["jobs"][0]
    more = job["iteration_time_s"]["mean"] * (slower - 1)
    job["iteration_time_s"] = {key: value + more for key, value in job["iteration_time_s"].items()}
    job["exposed_s"]["dp"] += more
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "scenario.yaml").write_text(SCENARIO.replace("64", str(hosts)))
    return Result(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    base = tmp_path_factory.mktemp("runs")
    return [run(base / "a" / "flow"), run(base / "b" / "flow", hosts=32, slower=1.25), run(base / "last", slower=4.0)]


@pytest.fixture(scope="module")
def page(runs: list[Result], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "comparison.html"
    return write_runs_report(runs, path).read_text(encoding="utf-8")


def test_it_stands_alone(page: str) -> None:
    checked(page)
    assert "<script" not in page
    assert "@import" not in page
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)""", page)  # no report lies beside these runs
    assert len(page) < 2 << 20
    assert "prefers-color-scheme: dark" in page
    assert "max-width: 720px" in page


def test_it_has_every_section(page: str) -> None:
    assert re.findall(r"<h2>(.*?)</h2>", page) == [
        "Runs", "What differs", "Where an iteration goes", "Main figures", "Flow completion times",
        "Most loaded links", "Every figure that differs",
    ]  # fmt: skip


def test_runs_are_called_by_what_tells_them_apart(page: str) -> None:
    head = page.partition("What differs")[0]
    assert [name for name in ("a/flow", "b/flow", "last") if f"</span>{name}</td>" in head] == ["a/flow", "b/flow"]
    assert "/last</td>" in head


def test_what_differs_is_a_row(page: str) -> None:
    rows = page.partition("What differs")[2].partition("</section>")[0]
    assert re.search(r"topology.hosts</td><td[^>]*>64</td><td[^>]*>32</td><td[^>]*>64</td>", rows)
    assert "name</td>" not in rows


def test_bars_are_on_one_scale_and_tell_their_figures(page: str, runs: list[Result]) -> None:
    bars = page.partition("Where an iteration goes")[2].partition("</section>")[0]
    lanes = bars.split('<div class="stack">')[1:]
    means = [one.summary["jobs"][0]["iteration_time_s"]["mean"] for one in runs]
    for lane, mean in zip(lanes, means, strict=True):
        widths = [float(width) for width in re.findall(r"width:([0-9.]+)%", lane)]
        assert sum(widths) == pytest.approx(100 * mean / max(means), abs=0.1)
    said = [html.unescape(text) for text in re.findall(r'title="([^"]*)"', bars)]
    job = runs[1].summary["jobs"][0]
    dp = next(part for part in PARTS if part.key == "dp")
    expected = next(text for text in said if text.startswith("b/flow: exposed DP"))
    assert f"{100 * dp.seconds(job) / means[1]:.1f} %" in expected  # type: ignore[operator]
    assert ", +25.0 %" in bars
    assert ", 4.0×" in bars


def test_the_best_is_bold_and_others_are_measured_by_the_first(page: str) -> None:
    main = page.partition("Main figures")[2].partition("</section>")[0]
    row = main.partition("iteration time</td>")[2].partition("</tr>")[0]
    cells = row.split("</td>")
    assert "<strong>" in cells[0]
    assert "<strong>" not in cells[1]
    assert "+25.0 %" in cells[1]
    # Tokens a second are equal in all, so none is best.
    assert "<strong>" not in main.partition("tokens/s</td>")[2].partition("</tr>")[0]


def test_completion_times_are_those_of_the_table(page: str, runs: list[Result]) -> None:
    flows = runs[0].flows
    took = sorted((flows["finish_ps"].cast(float) - flows["start_ps"].cast(float)).to_list())
    figure = page.partition("Flow completion times")[2].partition("</section>")[0]
    assert f"a/flow: 100.0 % of flows take at most {duration(took[-1] / 1e12)}" in figure
    assert len(re.findall(r"<polyline", figure)) == len(runs)
    assert all(line.count(",") == len(SHARES) for line in re.findall(r'points="([^"]*)"', figure))


def test_jobs_are_matched_by_name(runs: list[Result], tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, names in zip(folders, (("a", "b"), ("b", "c")), strict=True):
        shutil.copytree(runs[0].path, folder)
        summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
        summary["jobs"] = [{**summary["jobs"][0], "name": name} for name in names]
        (folder / "summary.json").write_text(json.dumps(summary))
    text = write_runs_report([Result(folder) for folder in folders], tmp_path / "c.html").read_text(encoding="utf-8")
    checked(text)
    assert [title for title in re.findall(r"<h2>(.*?)</h2>", text) if "iteration goes" in title] == [
        "a: Where an iteration goes", "b: Where an iteration goes", "c: Where an iteration goes",
    ]  # fmt: skip


def test_too_few_and_too_many_are_refused(runs: list[Result], tmp_path: Path) -> None:
    for some in (runs[:1], runs * 3):
        with pytest.raises(InputError, match="expected from 2 to 8 runs"):
            write_runs_report(some, tmp_path / "c.html")
    assert not (tmp_path / "c.html").exists()


@pytest.mark.engine
def test_the_command_links_reports_that_lie_below(command: Command, runs: list[Result], tmp_path: Path) -> None:
    for name, one in zip("xy", runs, strict=False):
        shutil.copytree(one.path, tmp_path / name)
    (tmp_path / "x" / "report.html").write_text("", encoding="utf-8")
    command("report", tmp_path / "x", tmp_path / "y", "-o", tmp_path / "c.html")
    text = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert set(re.findall(r'href="([^"]*)"', text)) == {"x/report.html"}
    missing = command("report", tmp_path / "x", tmp_path / "z", check=2)
    assert "not a run folder" in missing.stderr
