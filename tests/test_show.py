"""What a run prints."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from windtunnel.cli import show_json, show_run
from windtunnel.cli.progress import status_line

if TYPE_CHECKING:
    from windtunnel import Result

RUN = """\
synthetic · flow fidelity · 512 ranks · seed 1

iteration time                63.02 ms
ideal fabric                  60.50 ms  this fabric takes +4.2 %
tokens/s                    66,555,125  129,990 per GPU
MFU                             41.2 %  model FLOPs over peak FLOPs
memory per GPU  61.40 GiB of 80.00 GiB  weights 16.40 GiB, gradients 16.40 GiB, optimiser 6.200 GiB,
                                        activations 20.40 GiB, buffers 2.000 GiB

where an iteration goes      time   share
compute                  48.00 ms  76.2 %  █████████████████████
exposed TP                    0 s   0.0 %
exposed CP                    0 s   0.0 %
exposed EP                    0 s   0.0 %
exposed PP               600.0 µs   1.0 %
exposed DP               3.000 ms   4.8 %  █
exposed other                 0 s   0.0 %
pipeline bubble          11.20 ms  17.8 %  █████
stragglers               200.0 µs   0.3 %
host                     20.00 µs   0.0 %

2,000 flows: completion mean 400.0 µs, p50 300.0 µs, p99 2.000 ms, max 4.000 ms

"""


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is printed on a console 100 columns wide."""
    text = io.StringIO()
    console = Console(file=text, width=100, highlight=False)
    monkeypatch.setattr(show_run, "out", lambda: console)
    monkeypatch.setattr(show_json, "out", lambda: console)
    return text


def lines(text: io.StringIO) -> str:
    return "".join(line.rstrip() + "\n" for line in text.getvalue().splitlines())


def test_a_run(finished_run: Result, printed: io.StringIO) -> None:
    show_run.show(finished_run)
    shown = lines(printed)
    assert shown.startswith(RUN)
    assert "most loaded links  tier      utilisation    carried" in shown
    assert "constants: 1 data sheet, 1 inferred\nsimulated 189.1 ms in 1.500 s, 1,234,567 events\n" in shown


def test_many_jobs_make_a_table(finished_run: Result, printed: io.StringIO) -> None:
    job = finished_run.summary["jobs"][0]
    jobs = [{**job, "name": f"job{i}", "mfu": None, "iteration_time_s": None, "tokens_per_s": None} for i in range(6)]

    class Many:
        """A run of six jobs that never finished an iteration."""

    many: Any = Many()
    many.summary = {**finished_run.summary, "jobs": jobs, "partial": True}
    many.path, many.tables = finished_run.path, []
    show_run.show(many)
    shown = lines(printed)
    assert "PARTIAL" in shown
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("job")] == [
        "job",
        *(j["name"] for j in jobs),
    ]


def test_json_becomes_tables_with_units(printed: io.StringIO) -> None:
    show_json.show_json(json.dumps({
        "hosts": 64, "setup_s": 0.01, "peak_memory_bytes": 1 << 20, "unknown": None,
        "tiers": [{"name": "leaf", "rate_bps": 4e11}, {"name": "spine", "rate_bps": 8e11}],
    }))  # fmt: skip
    assert lines(printed) == (
        "hosts        64\nsetup        10.00 ms\npeak memory  1.000 MiB\nunknown      –\n\ntiers\n"
        "  name       rate\n  leaf   400 Gbps\n  spine  800 Gbps\n"
    )


def test_progress_says_simulated_time_rate_and_time_left() -> None:
    assert status_line(0.25, 1.5, 3_000_000, 2.0) == "simulated 1.500 s · 1.500 M events/s · 25% · 6.000 s left"
    assert status_line(None, 0.0, 0, 0.0) == "simulated 0 s"
    assert status_line(0.0, 0.0, 0, 1.0) == "simulated 0 s · 0 events/s · 0%"


def test_progress_names_the_phase() -> None:
    assert status_line(0.5, 0.0, 0, 2.0, "preparing") == "preparing · 50% · 2.000 s left"
    line = status_line(0.2, 1.5, 4_000_000, 2.0, "ideal fabric")
    assert line == "ideal fabric · simulated 1.500 s · 2.000 M events/s · 20% · 8.000 s left"
