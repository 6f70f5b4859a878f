"""The page of a sweep: its rows as the report draws them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.report.study.table import Table
    from windtunnel.studies.rows import Row
    from windtunnel.studies.study import Study


def write_study_page(study: Study, rows: Sequence[Row], metrics: Sequence[str], target: Path, remark: str) -> None:
    """Writes the page of `rows` to `target`; links to the runs are relative to it. `remark` stands below its title."""
    from windtunnel.report.study import study_page
    from windtunnel.results.folder import write_beside

    write_beside(target, study_page(_table(study, rows, metrics, target, remark)).encode())


def write_picture(study: Study, rows: Sequence[Row], metrics: Sequence[str], target: Path) -> None:
    """Writes the figure of the first metric to `target`, an SVG file."""
    from windtunnel.report.study import picture
    from windtunnel.results.folder import write_beside

    write_beside(target, picture(_table(study, rows, metrics, target), metrics[0]).encode())


def _table(study: Study, rows: Sequence[Row], metrics: Sequence[str], target: Path, remark: str = "") -> Table:
    from windtunnel.report.study.table import PageRow, Table
    from windtunnel.studies.study import short_names

    keys = study.varied_keys()
    short = short_names(keys)
    drawn = [
        PageRow(
            {short.get(key, key): row.varied.get(key) for key in keys},
            row.means, row.halves, row.state, row.message, _link(row.folder, target),
        )
        for row in rows
    ]  # fmt: skip
    return Table(study.name, [short.get(key, key) for key in keys], list(metrics), drawn, remark)


def _link(folder: str | None, target: Path) -> str | None:
    """The run's report if it has one, else its summary."""
    if folder is None:
        return None
    place = Path(folder)
    name = "report.html" if (place / "report.html").is_file() else "summary.json"
    return Path(os.path.relpath(place / name, target.parent)).as_posix()
