"""Layouts on the terminal and as a table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from windtunnel.cli.console import out
from windtunnel.layout.search import is_own
from windtunnel.text import UNKNOWN, count, duration, percent, size

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel.layout.job import Job
    from windtunnel.layout.search import Fabric, Row

_SIZES = ("tp", "cp", "ep", "pp", "dp", "zero")


def show(job: Job, rows: list[Row], fabric: Fabric, *, top: int, refused: bool) -> None:
    """The best rows, then how many others there are and why; with `refused` each of them."""
    done = [row for row in rows if row.state == "done" and row.time(fabric) is not None]
    console = out()
    console.print(Text(f"{job.own['model']} on {job.gpus} GPUs, {len(rows):,} layouts", style="bold"))
    console.print()
    if done:
        console.print(_best(job, done[: len(done) if refused else top], fabric))
    own = next((row for row in rows if is_own(job, row.layout)), None)
    if own is not None and done and own not in done[:top]:
        seconds, best = own.time(fabric), done[0].time(fabric)
        said = (
            own.message if seconds is None or best is None else f"{duration(seconds)}, {seconds / best:.2f} × the best"
        )
        console.print()
        console.print(f"the scenario's own layout: {said}", markup=False)
    rest = [row for row in rows if row not in done]
    if rest:
        console.print()
    if refused:
        for row in rest:
            said = ", ".join(f"{key} {value}" for key, value in row.record().items() if key in (*_SIZES, "schedule"))
            more = f"chunks {row.layout.chunks}, micro-batch {row.layout.micro_batch}, {row.layout.recompute}"
            console.print(f"{row.state}: {said}, {more}: {row.message}", markup=False, style="dim", soft_wrap=True)
        return
    for text, number in reasons(rest).items():
        console.print(f"{number:>6,}  {text}", markup=False, style="dim")


def reasons(rows: list[Row]) -> dict[str, int]:
    """Why rows have no time, and how many each: figures left out, the most frequent first."""
    found: dict[str, int] = {}
    for row in rows:
        text = row.message or row.state
        if row.state == "slower":
            text = "not run: by their computations, or by the cost model, they take longer than the best"
        elif "GiB missing" in text:
            text = "refused: too little memory"
        else:
            text = f"{row.state}: {re.sub(r'[0-9][0-9.,]*', 'n', text)}"
        found[text] = found.get(text, 0) + 1
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _best(job: Job, rows: list[Row], fabric: Fabric) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    sizes = [key for key in _SIZES if key != "ep" or job.experts]
    for name in ("", "iteration", *(["ideal"] if fabric == "real" else []), "MFU", "tokens/s", "memory", *sizes):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("schedule", no_wrap=True)
    for name in ("micro", "recompute"):
        table.add_column(name)
    for i, row in enumerate(rows, start=1):
        layout = row.layout
        schedule = UNKNOWN if layout.pp == 1 else layout.schedule + (f" {layout.chunks}" if layout.chunks > 1 else "")
        memory = UNKNOWN if row.memory_bytes is None else size(row.memory_bytes)
        cells = [str(i), duration(row.time(fabric)), *([duration(row.ideal_s)] if fabric == "real" else [])]
        cells += [percent(row.mfu), count(row.tokens_per_s), memory, *(str(getattr(layout, key)) for key in sizes)]
        cells += [schedule, str(layout.micro_batch), layout.recompute]
        table.add_row(*cells, style="bold" if is_own(job, row.layout) else None)
    return table


def write_table(rows: list[Row], target: Path) -> None:
    """All rows as Parquet or CSV."""
    import io

    import polars as pl

    from windtunnel.results.folder import write_beside

    frame = pl.DataFrame([row.record() for row in rows], infer_schema_length=None)
    if target.suffix == ".csv":
        write_beside(target, frame.write_csv().encode())
        return
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    write_beside(target, buffer.getvalue())
