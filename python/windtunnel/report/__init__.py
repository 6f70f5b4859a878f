"""Reports: of a run (`page.py`), of several beside each other (`runs/`), of a study (`study/`).

Each is one HTML file that needs no network, with its figures as SVG by hand (`axes.py`): a library that draws takes ten
times as long to load as a short run and its report take in all. `canvas.py` is for figures of experiments and of the
validation's page, which Matplotlib draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel.results import Result

__all__ = ["write_report"]


def write_report(result: Result, path: Path) -> Path:
    """Writes the report of `result` to `path` and returns it. What a run did not record is left out."""
    from windtunnel.report.page import write_report as write  # noqa: PLC0415

    return write(result, path)
