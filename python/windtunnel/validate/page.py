"""The board in docs/validation.md and the errors that runs show (`data/errors/training.json`): one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from windtunnel.engine import InputError
from windtunnel.results.folder import write_beside
from windtunnel.text import percent
from windtunnel.validate import front, targets
from windtunnel.validate.bands import text
from windtunnel.validate.output import markdown

if TYPE_CHECKING:
    from windtunnel.validate.board import Board
    from windtunnel.validate.score import Score

ROOT = Path(__file__).resolve().parents[3]
SYSTEMS = {
    "nccl-tests": "system, size",
    "nccl-scale": "system, size",
    "vidur-network": "system, size",
    "pico": "system",
}
"""The group by which tables of collectives show their systems."""
BEGIN, END = "<!-- board: made by `windtunnel validate --write` -->", "<!-- /board -->"
BOUGHT, BOUGHT_END = "<!-- ablations: made by `windtunnel validate --without all --write` -->", "<!-- /ablations -->"


class Published(NamedTuple):
    """An error that a simulator's authors published, and our table with the same measurements, if there is one."""

    simulator: str
    what: str
    error: str
    table: str | None
    source: str


PUBLISHED = (
    Published("vTrain", "mean, one host", "8.4 %", "vtrain-single", "Bang et al., MICRO 2024, section IV"),
    Published("vTrain", "mean, several hosts", "14.7 %", "vtrain-multi", "Bang et al., MICRO 2024, section IV"),
    Published("Sailor", "iterations on Clariden", "no figure at hand", "sailor", "Strati et al., SOSP 2025"),
    Published("SimAI", "mean, its authors' cluster", "1.9 %", None, "Wang et al., NSDI 2025, abstract"),
    Published("ATLAHS", "its authors' traces", "below 5 %", None, "Shen et al. 2025, arXiv:2505.08936, abstract"),
    Published("Arcadia", "mean, Meta's clusters, packets", "below 5 %", None, "Wang et al., NSDI 2026, section 1"),
    Published("Arcadia", "mean, Meta's clusters, flows", "below 10 %", None, "Wang et al., NSDI 2026, section 1"),
)
"""Errors as published: each on its authors' own measurements, most of which are not public."""


def renew(board: Board) -> list[Path]:
    """Writes the board into the page, and the errors by kind. Tables that were absent are named on the page."""
    page = ROOT / "docs" / "validation.md"
    new = _between(page, BEGIN, END, block(board))
    write_beside(page, new.encode())
    readme = ROOT / "README.md"
    write_beside(readme, front.renewed(readme.read_text(encoding="utf-8"), new).encode())
    errors = ROOT / "data" / "errors" / "training.json"
    errors.parent.mkdir(exist_ok=True)
    write_beside(errors, text(board.scores).encode())
    return [page, readme, errors]


def renew_ablations(text: str) -> Path:
    """Writes what mechanisms buy into the page."""
    page = ROOT / "docs" / "validation.md"
    write_beside(page, _between(page, BOUGHT, BOUGHT_END, text + "\n").encode())
    return page


def _between(page: Path, begin: str, end: str, block: str) -> str:
    """The page with `block` between two marks."""
    old = page.read_text(encoding="utf-8")
    first, last = old.find(begin), old.find(end)
    if first < 0 or last < first:
        raise InputError(f"{page}: the marks `{begin}` and `{end}` are not both there")
    return f"{old[:first]}{begin}\n\n{block}\n{old[last:]}"


def block(board: Board) -> str:
    """The board, its groups by kind, and published errors beside ours."""
    parts = [markdown(board).rstrip()]
    against = list(targets.lines(board))
    if against:
        parts.append("Against what was wanted:\n\n" + "\n".join([targets.HEAD, *against]))
    if board.absent:
        parts.append("Not in the folder: " + ", ".join(f"`{name}`" for name in board.absent) + ".")
    groups = [line for score in board.scores for line in _groups(score)]
    if groups:
        head = "| table | kind | rows | median error | 95th percentile | bias |\n|---|---|---:|---:|---:|---:|"
        parts.append("By kind:\n\n" + "\n".join([head, *groups]))
    systems = [line for score in board.scores for line in _groups(score, SYSTEMS.get(score.name, "none"))]
    if systems:
        head = "| table | system | rows | median error | 95th percentile | bias |\n|---|---|---:|---:|---:|---:|"
        parts.append("Collectives by system:\n\n" + "\n".join([head, *systems]))
    ours = {score.name: score for score in board.scores}
    lines = ["| simulator | of what | published | Windtunnel on the same rows | source |", "|---|---|---:|---:|---|"]
    for one in PUBLISHED:
        score = ours.get(one.table or "")
        own = (
            ""
            if score is None
            else f"{percent(mean_abs_error(score))} mean, {percent(score.figures.median_abs_error)} median"
        )
        lines.append(f"| {one.simulator} | {one.what} | {one.error} | {own} | {one.source} |")
    parts.append("Errors that others publish, each on its authors' measurements:\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def mean_abs_error(score: Score) -> float | None:
    """The mean of |predicted/measured - 1|, which some publish instead of the median."""
    errors = [abs(p / row.measured - 1) for p, row in zip(score.predicted, score.rows, strict=True)]
    return sum(errors) / len(errors) if errors else None


def _groups(score: Score, by: str = "kind") -> list[str]:
    found = [group for group in score.groups() if by in group["by"]]
    if len(found) < 2:
        return []
    return [
        f"| `{score.name}` | {group['by'][by]} | {group['rows']} | {percent(group['median_abs_error'])} | "
        f"{percent(group['p95_abs_error'])} | {percent(group['bias'], signed=True)} |"
        for group in found
    ]
