"""The HTML report: complete, offline, and its figures say what the tables say."""

from __future__ import annotations

import html
import json
import re
import time
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import windtunnel
from conftest import EIGHT_H100, RING
from synthetic import operations, write_run
from windtunnel.cli import show_run
from windtunnel.report import gantt, write_report
from windtunnel.report.axes import Axis, time_unit
from windtunnel.report.cdf import SHARES, SPOKEN, Line, cdf, completion
from windtunnel.report.heatmap import MOST_ROWS, grid, heatmap
from windtunnel.report.page import OF_THE_MACHINE
from windtunnel.results import rows
from windtunnel.results.rows import Rows, rows_of
from windtunnel.text import UNKNOWN, duration, percent, rate
from windtunnel.trace import write_trace

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel import Result


@pytest.fixture(scope="module")
def page(finished_run: Result, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(finished_run, path).read_text(encoding="utf-8")


def test_a_table_of_many_links_is_drawn_as_one_of_few(
    finished_run: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = [write_report(finished_run, tmp_path / "few.html"), write_trace(finished_run, tmp_path / "few.json")]
    few = [path.read_bytes() for path in drawn]
    monkeypatch.setattr(rows, "FEW", 0)
    drawn = [write_report(finished_run, tmp_path / "many.html"), write_trace(finished_run, tmp_path / "many.json")]
    assert [path.read_bytes() for path in drawn] == few
    assert heatmap(finished_run).count("<image") >= 2


def test_it_needs_no_network(page: str) -> None:
    links = re.findall(r"""(?:src|href)\s*=\s*["']([^"'#][^"']*)""", page)
    assert all(link.startswith("data:") for link in links)
    assert "<script" not in page
    assert "@import" not in page


def test_it_has_every_figure_and_table(page: str) -> None:
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == [
        "Where an iteration goes", "Iterations", "One pipeline", "Longest steps of the critical path", "Links",
        "Flow completion times", "Evidence", "Manifest",
    ]  # fmt: skip
    figures = re.findall(r'<svg role="img" aria-label="([^"]*)"', page)
    assert figures == [
        "iteration waterfall", "Gantt chart of one pipeline", "link utilisation", "completion times of flows",
    ]  # fmt: skip
    for value in ("63.02 ms", "41.2 %", "61.40 GiB", "NVIDIA H100 data sheet", "leaf0 -&gt; spine3", "ab" * 32):
        assert value in page


def test_completion_times_are_the_same_whether_few_or_many(
    finished_run: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = completion(finished_run, "flows")
    monkeypatch.setattr("windtunnel.report.cdf.few_rows", lambda *_: None)
    assert completion(finished_run, "flows") == few
    assert few[""][0] == sum(count for path, (count, _) in few.items() if path)


def test_its_elements_are_closed_and_its_figures_are_xml(page: str) -> None:
    open_tags: list[str] = []

    class Check(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
            if tag not in {"meta", "br"}:
                open_tags.append(tag)

        def handle_startendtag(self, tag: str, attrs: object) -> None:
            pass

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Check().feed(page)
    assert open_tags == []
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ET.fromstring(svg)  # noqa: S314


def test_figures_say_their_values_to_who_points_at_them(page: str, finished_run: Result) -> None:
    said = [html.unescape(text) for text in re.findall(r"<title>([^<]*)</title>", page.partition("<body>")[2])]
    first = finished_run.iterations.row(0, named=True)
    share = first["compute_ps"] / (first["finish_ps"] - first["start_ps"])
    assert f"iteration 0: compute {duration(first['compute_ps'] / 1e12)}, {100 * share:.1f} % of it" in said
    marks = [text for text in said if text.startswith("all: ")]
    assert [text.partition(" take at most ")[0] for text in marks] == [
        f"all: {percent(share)} of flows" for share in SPOKEN
    ]
    assert any(text.startswith("stage 0, compute: ") and "forward" in text for text in said)
    link = finished_run.links.row(0, named=True)
    assert any(text.startswith(link["name"]) and text.endswith("% at most") for text in said)


def test_the_same_run_gives_the_same_bytes(finished_run: Result, tmp_path: Path) -> None:
    one = write_report(finished_run, tmp_path / "a.html").read_bytes()
    assert write_report(finished_run, tmp_path / "b.html").read_bytes() == one


@pytest.mark.engine
def test_equal_runs_have_equal_reports_whenever_and_wherever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs, another number of threads and another machine: what tells them apart is in the manifest alone."""
    pages = []
    for threads in (1, 2):
        monkeypatch.setattr("windtunnel.results.manifest.machine", lambda cores=threads: {"cores": 1000 + cores})
        monkeypatch.setattr("sys.argv", ["windtunnel", f"call-{threads}"])
        run = windtunnel.run(EIGHT_H100, threads=threads)
        summary = json.loads((run.path / "summary.json").read_text())
        # A clock that is sure to differ.
        for record, name in ((summary, "summary.json"), (run.manifest, "manifest.json")):
            changed = {**record, "wall_time_s": 1234.5 + threads, "finished": f"2001-01-0{threads}"}
            (run.path / name).write_text(json.dumps(changed))
        again = windtunnel.load(run.path)
        assert again.manifest["options"] == {"threads": threads}
        assert {*OF_THE_MACHINE} <= {*again.manifest, *again.manifest["options"]}
        pages.append(write_report(again, tmp_path / f"{threads}.html").read_text(encoding="utf-8"))
    assert pages[0] == pages[1]
    shown = pages[0].partition("<h2>Manifest</h2>")[2]
    assert "scenario_sha256" in shown
    assert not [key for key in OF_THE_MACHINE if f"<td>{key}</td>" in shown or f'"{key}"' in shown]


def test_times_within_a_decade_have_marks() -> None:
    assert Axis(1.2, 8.0, 0, 1, log=True).ticks() == [2, 5]
    assert Axis(0.9, 11.0, 0, 1, log=True).ticks() == [1, 2, 5, 10]
    assert Axis(0.5, 2000.0, 0, 1, log=True).ticks() == [1, 10, 100, 1000]
    for longest in (0.0013, 0.002, 0.008, 0.011, 0.02):
        times = [0.0012 + (longest - 0.0012) * i / (len(SHARES) - 1) for i in range(len(SHARES))]
        figure = cdf([Line("all", "#000000", times)], "flows")
        marks = re.findall(r"<text [^>]*>([^<]* [mµ]s)</text>", figure)
        assert len(marks) >= 2, longest


@pytest.mark.engine
@pytest.mark.parametrize("fidelity", ["message", "flow"])
def test_a_run_of_bare_messages_has_no_pipeline_and_no_empty_chart(tmp_path: Path, fidelity: str) -> None:
    run = windtunnel.run(RING, fidelity=fidelity, overrides={"results.operations": "all"})
    assert "operations" in run.tables
    page = write_report(run, tmp_path / "r.html").read_text(encoding="utf-8")
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert "One pipeline" not in headings
    # Every section has something below its remark.
    for body in re.findall(r"<section>(.*?)</section>", page, flags=re.DOTALL):
        assert "<svg" in body or "<table" in body, body[:200]


def test_operations_that_take_no_time_are_no_chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As sends and receives of bare messages, which are posted and gone."""

    def posted(*given: int) -> dict[str, Any]:
        rows = operations(*given)
        return {**rows, "start_ps": rows["finish_ps"]}

    monkeypatch.setattr("synthetic.operations", posted)
    run = write_run(tmp_path / "run", stages=2, microbatches=2, flows=20)
    page = write_report(run, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Iterations" in re.findall(r"<h2>(.*?)</h2>", page)
    assert "Gantt" not in page
    assert "One pipeline" not in page


def test_links_say_their_rates(page: str, finished_run: Result) -> None:
    shown = page.partition("most loaded links</th>")[2].partition("</table>")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", shown, flags=re.DOTALL)]
    rates = dict(rows_of(finished_run, "links").each("name", "rate_bps"))
    found = {row[0]: row[2] for row in rows if row}
    assert found == {
        link["name"]: rate(rates[link["name"]]) for link in finished_run.summary["network"]["links_most_loaded"]
    }
    assert UNKNOWN not in found.values()


def test_it_can_be_read_on_a_narrow_screen(page: str) -> None:
    """At 420 px: sections scroll by themselves, figures keep a size at which their text can be read."""
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in page
    narrow = page.partition("@media (max-width: 720px) {")[2].partition("\n}")[0]
    assert "overflow-x: auto" in narrow.partition("section {")[2].partition("}")[0]
    assert "section > svg { min-width: 720px; }" in narrow
    for body in re.findall(r"<section>(.*?)</section>", page, flags=re.DOTALL):
        outside = re.sub(r"<svg.*?</svg>|<div class=\"scroll\">.*?</div>", "", body, flags=re.DOTALL)
        assert "<svg" not in outside
        assert not re.findall(r"width:\s*\d{3,}px", outside)


def test_a_hundred_thousand_operations_take_under_three_seconds(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", stages=8, microbatches=64, layers=50, flows=100_000)
    assert run.operations.height > 100_000
    began = time.process_time()
    path = write_report(run, tmp_path / "r.html")
    assert time.process_time() - began < 3
    assert path.stat().st_size < 2_000_000


def test_a_pixel_shows_what_fills_most_of_it() -> None:
    width = 1 / gantt.COLUMNS
    start = [0.0, 2.0 * width, 2.6 * width, 10.0 * width]
    finish = [2.0 * width, 2.6 * width, 3.0 * width, 10.05 * width]
    pixels = gantt.rasterise(start, finish, [0, 1, 2, 3])
    none = gantt.NOTHING
    assert list(pixels[:5]) == [0, 0, 1, none, none]
    assert pixels[10] == none  # a twentieth is not shown
    assert len(pixels) == gantt.COLUMNS
    assert gantt.runs(pixels) == [(0, 0, 2), (1, 2, 1)]


def test_a_lane_covers_the_time_its_operations_take() -> None:
    rng = np.random.default_rng(3)
    edges = np.sort(rng.random(200))
    start, finish = edges[::2], edges[1::2]
    pixels = gantt.rasterise(start.tolist(), finish.tolist(), [0] * 100)
    covered = sum(pixel != gantt.NOTHING for pixel in pixels) / gantt.COLUMNS
    assert covered == pytest.approx((finish - start).sum(), abs=100 / gantt.COLUMNS)


def test_pixels_are_those_of_a_slow_reference() -> None:
    """Whatever operations follow each other in a stream: a pixel shows the kind that has most of it."""
    rng = np.random.default_rng(5)
    edges = np.sort(np.concatenate([rng.random(60), 0.3 + 0.01 * rng.random(400), [0.0, 1.0]]))
    start, finish = edges[:-1], edges[1:]
    kinds = rng.integers(0, 6, len(start))
    filled = np.zeros((6, gantt.COLUMNS))
    for a, b, kind in zip(start, finish, kinds, strict=True):
        pixel = np.arange(gantt.COLUMNS)
        filled[kind] += np.clip(np.minimum(b * gantt.COLUMNS, pixel + 1) - np.maximum(a * gantt.COLUMNS, pixel), 0, 1)
    pixels = np.array(gantt.rasterise(start.tolist(), finish.tolist(), kinds.tolist()))
    shown = np.take_along_axis(filled, pixels[None, :].astype(int), axis=0)[0]
    assert shown == pytest.approx(filled.max(axis=0))


def test_colours_follow_kind_dimension_and_label() -> None:
    rows = Rows({
        "label": ["F0.0", "I1.3 attention", "W0.1 mlp", "Fused optimiser", "B0.1 gradient", "x"],
        "kind": ["calc", "calc", "calc", "calc", "collective", "send"],
        "dimension": ["other", "other", "other", "other", "dp", "other"],
    })  # fmt: skip
    names = list(gantt.KINDS)
    assert [names[k] for k in gantt.kinds_of(rows)] == ["forward", "backward", "weight", "compute", "dp", "other"]


def test_many_links_share_rows_and_the_fullest_shows() -> None:
    bins = np.zeros((1000, 4))
    bins[517, 2] = 0.9
    cells = grid(bins.tolist())
    assert (len(cells), len(cells[0])) == (MOST_ROWS, 4)
    full = [(row, column) for row, values in enumerate(cells) for column, value in enumerate(values) if value]
    assert full == [(517 * MOST_ROWS // 1000, 2)]
    assert cells[full[0][0]][2] == 0.9


@pytest.mark.parametrize("table", ["operations", "flows", "links", "iterations", "critical_path", "jobs"])
def test_rows_are_those_of_polars(finished_run: Result, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short table is read by the engine, a long one by polars: both say the same."""
    short = rows_of(finished_run, table).columns
    assert short == finished_run.table(table).to_dict(as_series=False)
    last = table in ("operations", "critical_path")
    some = rows_of(finished_run, table, job="pretrain", last=last) if "job" in short else None
    monkeypatch.setattr("windtunnel.results.rows.FEW", 0)
    assert rows_of(finished_run, table).columns == short
    if some is not None:
        assert some.height > 0
        assert rows_of(finished_run, table, job="pretrain", last=last).columns == some.columns


def test_a_report_is_the_same_however_its_tables_are_read(
    finished_run: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = write_report(finished_run, tmp_path / "a.html").read_bytes()
    monkeypatch.setattr("windtunnel.results.rows.FEW", 0)
    assert write_report(finished_run, tmp_path / "b.html").read_bytes() == one


def test_a_run_that_knows_nothing_still_has_a_report(finished_run: Result, tmp_path: Path) -> None:
    summary = json.loads((finished_run.path / "summary.json").read_text())
    kept = {"name", "state", "ranks", "iterations", "simulated_iterations", "exposed_s", "iteration_time_s"}
    (job,) = summary["jobs"]
    unknown = {key: value if key in kept else None for key, value in job.items()}
    unknown["exposed_s"] = dict.fromkeys(job["exposed_s"])
    unknown["iteration_time_s"] = dict.fromkeys(job["iteration_time_s"])
    summary.update(jobs=[unknown], partial=True, evidence=[], network=dict.fromkeys(summary["network"]), flows=None)
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "manifest.json").write_text("{}")
    page = write_report(windtunnel.load(tmp_path), tmp_path / "r.html").read_text()
    assert "this result is partial" in page
    assert "<svg" not in page
    show_run.show(windtunnel.load(tmp_path))


def contrast(one: str, other: str) -> float:
    """Of two colours, by WCAG 2.1."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_it_can_be_read_on_light_and_on_dark(page: str) -> None:
    names = re.findall(r":root \{([^}]*)\}", page)
    light, dark = (dict(re.findall(r"(--\w+): (#\w{6}|white)", rules)) for rules in names)
    assert light.keys() == dark.keys() == {"--ink", "--muted", "--line", "--paper", "--ground"}
    assert page.index("prefers-color-scheme: dark") < page.index(dark["--ink"])
    for colours in (light, dark):
        paper = colours["--paper"].replace("white", "#ffffff")
        for name in ("--ink", "--muted"):
            assert contrast(colours[name], paper) >= 4.5, name
            assert contrast(colours[name], colours["--ground"].replace("white", "#ffffff")) >= 4.5, name
    # Text and lines of figures are the page's; nothing is painted behind them.
    figures = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert figures
    for figure in figures:
        assert "var(--muted, #616e7c)" in figure
        bare = re.sub(r"var\(--\w+, #\w{6}\)", "", figure)
        assert not re.search(r"#(?:1f2933|616e7c|e4e7eb|000000)", bare)
    # Text that has no colour of its own, as that of legends.
    assert "svg text { fill: var(--ink); }" in page


@pytest.mark.parametrize(
    ("longest_s", "unit"),
    [(1.5e-9, "ns"), (3e-6, "µs"), (0.02, "ms"), (1.9, "ms"), (2.0, "s"), (299.0, "s"), (300.0, "min"), (7_200.0, "h"),
     (172_799.0, "h"), (172_800.0, "d"), (3e7, "d")],
)  # fmt: skip
def test_axes_of_time_have_the_unit_of_texts(longest_s: float, unit: str) -> None:
    scale, found = time_unit(longest_s)
    assert found == unit
    assert duration(longest_s).endswith(f" {unit}") or unit == "ms"
    assert longest_s / scale < 100_000
