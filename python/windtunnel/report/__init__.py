"""Reports: of a run (`page.py`), of several beside each other (`runs/`), of a study (`study/`).

Each is one HTML file that needs no network, with its figures as SVG. That of a run is drawn by matplotlib from its
tables; the others are drawn by hand.
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
