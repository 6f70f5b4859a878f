"""Times what Python does around the engine; prints figures and never fails.

Run by `make bench`, or `python benches/python_side.py`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import windtunnel
from windtunnel.report import write_report
from windtunnel.trace import write_trace

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from synthetic import write_run

if TYPE_CHECKING:
    from collections.abc import Callable


def best_of(runs: int, work: Callable[[], object]) -> float:
    """Least seconds of `runs` calls."""
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    """Prints one line per figure."""
    command = Path(sys.executable).with_name("windtunnel")

    def show_help() -> None:
        subprocess.run([command, "--help"], check=True, capture_output=True)

    show("windtunnel --help", best_of(5, show_help), "< 0.2 s")
    rng = np.random.default_rng(1)
    links = {f"link{i}": (4e11, 1e-6) for i in range(2000)}
    ends = rng.integers(0, 1000, (100_000, 2)).tolist()
    flows = [{"path": [f"link{a}", f"link{1000 + b}"], "bytes": 1e6} for a, b in ends]
    show(
        "simulate_flows, 100,000 flows on 2,000 links",
        best_of(1, lambda: windtunnel.simulate_flows(links, flows)),
        "",
    )
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(Path(folder) / "run", stages=8, microbatches=64, layers=50, flows=200_000)
        show(
            f"report of {run.operations.height:,} operations",
            best_of(2, lambda: write_report(run, run.path / "r.html")),
            "< 3 s",
        )
        show(
            f"trace of {run.operations.height:,} operations",
            best_of(2, lambda: write_trace(run, run.path / "t.gz")),
            "",
        )


def show(what: str, seconds: float, goal: str) -> None:
    """Prints a figure."""
    sys.stdout.write(f"{what:<50} {seconds:8.3f} s   {goal}\n")


if __name__ == "__main__":
    main()
