"""What the board leaves: rows as CSV, a page as HTML, and the table of docs/validation.md."""

from __future__ import annotations

import csv
import io
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windtunnel.report.canvas import figure, svg
from windtunnel.report.html import Raw, page, section, table
from windtunnel.text import UNKNOWN, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from windtunnel.validate.board import Board
    from windtunnel.validate.rows import Row
    from windtunnel.validate.score import Figures, Score

SPREAD = ("size", "scale", "chip")
"""Groups by which the page shows errors as points."""

HEAD = ("rows", "median error", "95th percentile", "largest", "bias", "rank correlation")


def cells(figures: Figures) -> list[str]:
    """Figures as a line of a table."""
    rank = UNKNOWN if figures.rank_correlation is None else f"{figures.rank_correlation:.3f}"
    return [
        str(figures.rows),
        percent(figures.median_abs_error),
        percent(figures.p95_abs_error),
        percent(figures.max_abs_error),
        percent(figures.bias, signed=True),
        rank,
    ]


@contextmanager
def rows_as_they_come(folder: Path) -> Iterator[Callable[[Row, float], None]]:
    """Writes each row that is predicted to `folder/rows.tsv` at once: id, measured, predicted.

    The file is gone when all rows are known, and stays where that was interrupted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rows.tsv"
    with path.open("w", encoding="utf-8") as file:

        def told(row: Row, predicted: float) -> None:
            file.write(f"{row.id}\t{row.measured:.6g}\t{predicted:.6g}\n")
            file.flush()

        yield told
    path.unlink()


def rows_csv(score: Score) -> str:
    """Every row: id, system, measured, predicted, error, groups, and why it could not be run."""
    names = sorted({name for row in [*score.rows, *(f.row for f in score.failed)] for name in row.groups})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "system", "measured", "predicted", "error", *names, "failed"])
    for row, predicted in zip(score.rows, score.predicted, strict=True):
        error = predicted / row.measured - 1
        groups = [row.groups.get(name, "") for name in names]
        writer.writerow([row.id, row.system, f"{row.measured:.9g}", f"{predicted:.9g}", f"{error:.6f}", *groups, ""])
    for f in score.failed:
        groups = [f.row.groups.get(name, "") for name in names]
        writer.writerow([f.row.id, f.row.system, f"{f.row.measured:.9g}", "", "", *groups, f.reason])
    return text.getvalue()


def html(board: Board) -> str:
    """A page: all tables, then each with predicted against measured and its groups."""
    overview = table(
        ("table", *HEAD), [[score.name, *cells(score.figures)] for score in board.scores], numbers=range(1, 7)
    )
    parts = [
        Raw("<header><h1>Validation</h1><p>Predictions against published measurements.</p></header>"),
        section("All tables", "Errors are |predicted/measured - 1| of time.", overview),
        *[_section(score) for score in board.scores],
    ]
    return page("Windtunnel: validation", *parts)


def _section(score: Score) -> Raw:
    content: list[str] = []
    if score.rows:
        content.append(_scatter(score))
        content += [_spread(score, key) for key in SPREAD if len({row.groups.get(key) for row in score.rows}) > 1]
        groups = [
            [
                *next(iter(group["by"].items())),
                group["rows"],
                *(percent(group[key]) for key in ("median_abs_error", "p95_abs_error")),
            ]
            for group in score.groups()
        ]
        content.append(table(("by", "value", "rows", "median error", "95th percentile"), groups, numbers=(2, 3, 4)))
    if score.facts:
        content.append(table(("besides", "value"), [(name, f"{value:.3f}") for name, value in score.facts.items()]))
    if score.failed:
        content.append(table(("could not be run", "because"), [(f.row.id, f.reason) for f in score.failed]))
    if score.excluded:
        content.append(table(("left out because", "rows"), [(e.reason, e.rows) for e in score.excluded], numbers=(1,)))
    return section(score.name, "", *content)


def _scatter(score: Score) -> str:
    fig, axes = figure(4.2)
    measured = [row.measured for row in score.rows]
    low, high = min([*measured, *score.predicted]) * 0.8, max([*measured, *score.predicted]) * 1.25
    axes.plot([low, high], [low, high], color="0.4", linewidth=1)
    for factor in (0.8, 1.25):
        axes.plot([low, high], [low * factor, high * factor], color="0.75", linewidth=1, linestyle="--")
    axes.scatter(measured, score.predicted, s=12, alpha=0.7, zorder=3)
    axes.set(
        xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), xlabel="measured (s)", ylabel="predicted (s)"
    )
    return svg(fig, score.name)


def _spread(score: Score, key: str) -> str:
    """Errors with their sign, a column for each value of a group, in the order of its numbers."""
    values = sorted({row.groups.get(key, "") for row in score.rows}, key=_by_number)
    places = {value: i for i, value in enumerate(values)}
    fig, axes = figure(3.0)
    errors = [100 * (p / row.measured - 1) for p, row in zip(score.predicted, score.rows, strict=True)]
    axes.axhline(0, color="0.4", linewidth=1)
    axes.scatter([places[row.groups.get(key, "")] for row in score.rows], errors, s=10, alpha=0.5, zorder=3)
    axes.set(ylabel="error (%)", xlabel=key)
    axes.set_xticks(range(len(values)), values, rotation=30 if len(values) > 6 else 0, fontsize=7)
    return svg(fig, f"{score.name} by {key}")


def _by_number(text: str) -> tuple[float, str]:
    found = re.search(r"\d+(?:\.\d+)?", text)
    return (float(found[0]) if found else 0.0, text)


def markdown(board: Board) -> str:
    """The table of docs/validation.md."""
    lines = [f"| table | {' | '.join(HEAD)} |", "|---|" + "---:|" * len(HEAD)]
    lines += [f"| `{score.name}` | {' | '.join(cells(score.figures))} |" for score in board.scores]
    facts = [f"- `{s.name}`: {name}: {value:.3f}" for s in board.scores for name, value in s.facts.items()]
    lines += ["", "Besides:", "", *facts] if facts else []
    left_out = [f"- `{s.name}`: {e.rows} rows, {e.reason}" for s in board.scores for e in s.excluded]
    return "\n".join([*lines, "", *(["Left out:", "", *left_out] if left_out else [])]).rstrip() + "\n"
