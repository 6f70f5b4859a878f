"""`windtunnel report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from windtunnel.cli.declare import Argument, Commands, Option

app = Commands()


@app.command()
def report(
    runs: Annotated[list[Path], Argument(help="Run folder; several make a page that compares them.", metavar="RUN…")],
    out: Annotated[
        Path | None,
        Option("-o", "--out", help="File to write (default: RUN/report.html, of several runs comparison.html)."),
    ] = None,
) -> None:
    """Write the HTML report of RUN, or of several beside each other: one file, no network needed to read it."""
    from contextlib import ExitStack

    from windtunnel.cli.console import talk
    from windtunnel.results import Result

    results = [Result(run) for run in runs]
    with ExitStack() as reading:
        for result in results:
            result.check()
            reading.enter_context(result.reading())
        if len(results) == 1:
            from windtunnel.report import write_report

            path = write_report(results[0], out or runs[0] / "report.html")
        else:
            from windtunnel.report.runs import write_runs_report

            path = write_runs_report(results, out or Path("comparison.html"))
    talk().print(f"wrote {path}", markup=False, soft_wrap=True)
