"""How runs are called and coloured on a page that shows several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from windtunnel.report.html import Raw, text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from windtunnel.results import Result

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1", "#7f7f7f")
"""Okabe and Ito's, which people tell apart who do not see red or green; violet and grey for black and yellow."""

DASHES = ("none", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 2", "14 3 3 3")
"""Lines are told apart without colour too."""

MOST = len(COLOURS)
"""Runs of a page."""


@dataclass(frozen=True)
class Named:
    """A run with its short name, its colour and its dash."""

    run: Result
    name: str
    colour: str
    dash: str
    link: str | None
    """Its own report, from the page's folder."""

    def mark(self) -> Raw:
        """Its name behind its colour."""
        swatch = f'<span class="swatch" style="background:{self.colour}"></span>'
        inner = text(self.name) if self.link is None else f'<a href="{text(self.link)}">{text(self.name)}</a>'
        return Raw(f"{swatch}{inner}")


def named(runs: Sequence[Result], page: Path) -> list[Named]:
    """Runs by the shortest ends of their paths that tell them apart."""
    paths = [run.path.resolve() for run in runs]
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(set(paths)):
        depth += 1
    found = []
    for i, (run, path) in enumerate(zip(runs, paths, strict=True)):
        name = "/".join(path.parts[-depth:])
        if path in paths[:i]:
            name += f" ({i + 1})"
        found.append(Named(run, name, COLOURS[i], DASHES[i], _link(path / "report.html", page)))
    return found


def _link(report: Path, page: Path) -> str | None:
    """The way from the page to a run's report, where that is near enough to travel along."""
    folder = page.resolve().parent
    if not report.is_file() or not report.is_relative_to(folder):
        return None
    return report.relative_to(folder).as_posix()
