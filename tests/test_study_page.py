"""The page of a study: which figure for how many axes, what it says, where it leads, and that it stands alone."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import product
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

import windtunnel
from conftest import EIGHT_H100
from windtunnel.better import larger_is_better
from windtunnel.engine import InputError
from windtunnel.report.axes import numbers
from windtunnel.report.study import picture, study_page
from windtunnel.report.study.front import front
from windtunnel.report.study.table import PageRow, Table
from windtunnel.studies.rows import Row, best, figures, ranked
from windtunnel.words import figure_text

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

TIME, RATE = "jobs[0].iteration_time_s.mean", "jobs[0].tokens_per_s"

VOID = {"meta", "br", "img", "link"}


class _Checked(HTMLParser):
    """Every element is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        assert all(not (name in {"src", "onload"} or (value or "").startswith("http")) or name == "xmlns"
                   for name, value in attrs)  # fmt: skip
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(text: str) -> dict[str, int]:
    parser = _Checked()
    parser.feed(text)
    assert not parser.open
    assert "nan" not in re.sub(r"<title>.*?</title>", "", text.partition("<svg")[2], flags=re.DOTALL).split()
    return parser.count


def study(*levels: tuple[str, list[object]], refused: int = 0) -> Table:
    names = [name for name, _ in levels]
    rows = []
    for i, values in enumerate(product(*(each for _, each in levels))):
        done = i >= refused
        rows.append(
            PageRow(
                dict(zip(names, values, strict=True)),
                {TIME: 0.01 * (i + 1) if done else None, RATE: 1e4 / (i % 3 + 1) if done else None},
                {TIME: 0.001 if done else None, RATE: None},
                "done" if done else "refused",
                None if done else "pipeline rank 0 needs <more> than there is",
                f"points/{i}/summary.json" if done else None,
            )
        )
    return Table("a & b", names, [TIME, RATE], rows)


def test_one_axis_is_a_line_with_intervals() -> None:
    text = study_page(study(("hosts", [8, 16, 32]), refused=1))
    count = checked(text)
    assert count["polyline"] >= 3  # a line for each figure, and the front
    assert "95% intervals" in text
    assert text.count("±") >= 2
    assert "×" in text
    assert "&lt;more&gt;" in text
    assert "<more>" not in text


def test_two_axes_are_a_map() -> None:
    text = study_page(study(("tp", [1, 2, 4]), ("size", ["1 MiB", "64 MiB"]), refused=2))
    count = checked(text)
    assert count["rect"] == 2 * 6
    assert "stroke-dasharray" in text
    assert "The ring marks the best" in text


def test_more_axes_are_parallel_coordinates_and_a_front() -> None:
    table = study(("tp", [1, 2]), ("pp", [1, 2, 4]), ("cp", [1, 2]), refused=1)
    text = study_page(table)
    checked(text)
    assert "A line is a point" in text
    assert 'class="front"' in text
    assert text.count("<svg") == 3
    for i in range(1, 12):
        assert f'href="points/{i}/summary.json"' in text


def test_a_key_that_takes_one_value_is_no_axis() -> None:
    assert "The ring marks the best" in study_page(study(("tp", [1, 2]), ("zero", [1]), ("pp", [1, 2])))


def test_the_front_is_what_none_beats() -> None:
    rows = study(("x", list(range(12)))).rows
    edge = front(rows, TIME, RATE)
    for row in rows:
        beaten = any(
            (other.means[TIME] or 0) <= (row.means[TIME] or 0)
            and (other.means[RATE] or 0) >= (row.means[RATE] or 0)
            and other is not row
            and (other.means[TIME], other.means[RATE]) != (row.means[TIME], row.means[RATE])
            for other in rows
        )
        assert (row in edge) == (not beaten)


@pytest.mark.parametrize("values", [[1.0], [0.0, 5.0], [1e-6, 3.0], [-2.0, 7.5], [3.0, 3.0], [1e9, 1.2e9]])
def test_axes_have_round_ticks_inside_them(values: list[float]) -> None:
    axis = numbers(values, 0, 100)
    ticks = axis.ticks()
    assert len(ticks) >= 2
    assert all(axis.low <= tick <= axis.high for tick in ticks)
    assert all(0 <= axis.at(value) <= 100 for value in values)


def test_a_study_without_results_still_has_a_page() -> None:
    text = study_page(study(("tp", [1, 2]), refused=2))
    checked(text)
    assert "refused" in text


def test_sweep_writes_a_page_that_leads_to_its_runs(command: Command, tmp_path: Path) -> None:
    scenario = tmp_path / "ring.yaml"
    scenario.write_text(
        "windtunnel: 1\nname: ring\nfidelity: message\n"
        "topology: {shape: clos, hosts: 4, tiers: [{ports_down: 8, rate: 100 Gbps, length: 5 m}], "
        "host: {gpus: 1, nics: 1}}\njobs: [{name: a, workload: {flows: {pattern: ring, bytes: 1 MiB}}}]\n",
        encoding="utf-8",
    )
    command("sweep", scenario, "--vary", "topology.hosts=2,4", "--vary", "jobs[0].workload.flows.bytes=1 MiB,2 MiB")
    text = (tmp_path / "runs" / "ring.html").read_text(encoding="utf-8")
    checked(text)
    links = set(re.findall(r'href="([^"]+)"', text))
    assert len(links) == 4
    assert all((tmp_path / "runs" / link).is_file() for link in links)
    assert "prefers-color-scheme: dark" in text
    assert 'content="width=device-width' in text


def test_a_picture_stands_alone_and_follows_its_reader() -> None:
    for made in (study(("tp", [1, 2, 4])), study(("tp", [1, 2]), ("pp", [1, 2, 4]))):
        drawn = picture(made, TIME)
        ET.fromstring(drawn)  # noqa: S314
        assert "<a " not in drawn
        assert "prefers-color-scheme: dark" in drawn
        assert set(re.findall(r"var\((--[a-z]+)\)", drawn)) <= set(re.findall(r"(--[a-z]+):", drawn))
        assert len(drawn) < 30_000
    with pytest.raises(InputError, match="nothing to draw"):
        picture(study(("tp", [1, 2])), "jobs[0].none")


# Which way figures are better, and how they are said

FIGURES = [
    ("jobs[0].iteration_time_s.mean", 0.0123, "12.30 ms", False),
    ("jobs[0].exposed_s.tp", 0.1, "100.0 ms", False),
    ("jobs[0].tokens_per_s", 71_640.0, "71,640", True),
    ("jobs[0].samples_per_s", 12.5, "12.50", True),
    ("jobs[0].mfu", 0.477, "47.7 %", True),
    ("jobs[0].memory_bytes_per_gpu", 2.0**34, "16.00 GiB", False),
    ("jobs[0].memory.total", 2.0**34, "16.00 GiB", False),
    ("jobs[0].lost_s", 5.0, "5.000 s", False),
    ("flows.fct_p99_s", 0.001, "1.000 ms", False),
    ("network.packets_dropped", 12.0, "12", False),
    ("network.loss_rate", 0.25, "25.0 %", False),
    ("network.pfc_pause_by_tier_s.nic-up", 1e-4, "100.0 µs", False),
    ("network.links_most_loaded[0].utilisation", 0.9, "90.0 %", False),
    ("cluster.utilisation", 0.9, "90.0 %", True),
    ("cluster.goodput", 0.9, "90.0 %", True),
    ("cluster.finished", 7.0, "7", True),
    ("cluster.samples_per_s_per_gpu", 0.00123, "0.00123", True),
    ("cluster.gpu_seconds.idle", 400.0, "6.667 min", False),
    ("cluster.busy_gpu_seconds.lost", 400.0, "6.667 min", False),
    ("cluster.fragmentation", 0.5, "50.0 %", False),
    ("cluster.makespan_s", 60.0, "60.00 s", False),
    ("cluster.slowdown.mean", 1.5, "1.500", False),
    ("cost.fabric_usd", 1e6, "1,000,000 US$", False),
    ("cost.power_w", 3e4, "30.00 kW", False),
    ("cost.energy_j", 1.6e6, "1.600 MJ", False),
    ("cost.jobs[0].iteration_energy_j", 1.6e6, "1.600 MJ", False),
    ("cost.jobs[0].tokens_per_j", 0.0031, "0.0031", True),
    ("cost.run_usd", 12.5, "12.50 US$", False),
    ("cost.jobs[0].tokens_per_usd", 2e6, "2,000,000", True),
]


@pytest.mark.parametrize(("metric", "value", "said", "larger"), FIGURES)
def test_figures_have_their_unit_and_a_better_end(metric: str, value: float, said: str, larger: bool) -> None:
    assert figure_text(metric, value) == said
    assert larger_is_better(metric) is larger


def test_more_is_better_of_nothing_else_in_a_summary() -> None:
    """All figures of a run with a model: what has come to the summary since is decided here."""
    result = windtunnel.run(EIGHT_H100)
    found = {path for path, _ in figures(result.summary) if larger_is_better(path)}
    assert found == {
        "jobs[0].tokens_per_s",
        "jobs[0].samples_per_s",
        "jobs[0].mfu",
        "cluster.utilisation",
        "cluster.goodput",
        "cluster.finished",
        "cluster.samples_per_s_per_gpu",
        "cost.jobs[0].tokens_per_j",
        "cost.jobs[0].tokens_per_usd",
    }


@pytest.mark.parametrize("metric", ["jobs[0].mfu", "cost.jobs[0].tokens_per_j", "jobs[0].finish_s"])
def test_the_terminal_and_the_page_have_one_best(metric: str) -> None:
    values = [0.466, 0.477, None, 0.471]
    rows = [
        Row({"k": i}, "refused" if v is None else "done", None, 1, {metric: v}, {metric: None}, None)
        for i, v in enumerate(values)
    ]
    table = Table("s", ["k"], [metric], [PageRow(r.varied, r.means, r.halves, r.state, None, None) for r in rows])
    order = [0, 3, 1] if metric.endswith("_s") else [1, 3, 0]
    assert ranked(rows, metric) == order
    assert best(rows, metric) == order[0]
    drawn = table.best(metric)
    assert drawn is not None
    assert drawn.values == {"k": order[0]}
