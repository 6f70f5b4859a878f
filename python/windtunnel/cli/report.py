"""`windtunnel report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="Run folder.", metavar="RUN")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write (default: RUN/report.html).")] = None,
) -> None:
    """Write the HTML report of RUN: one file, no network needed to read it."""
    from windtunnel.cli.console import talk
    from windtunnel.report import write_report
    from windtunnel.results import Result

    result = Result(run)
    result.check()
    with result.reading():
        path = write_report(result, out or run / "report.html")
    talk().print(f"wrote {path}", markup=False, soft_wrap=True)
