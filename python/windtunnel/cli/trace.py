"""`windtunnel trace`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from windtunnel.cli.declare import Argument, Commands, Option

app = Commands()


@app.command()
def trace(
    run: Annotated[Path, Argument(help="Run folder.", metavar="RUN")],
    out: Annotated[
        Path | None,
        Option("-o", "--out", help="File to write, gzipped if it ends in .gz (default: RUN/trace.pftrace.gz)."),
    ] = None,
) -> None:
    """Write the timeline of RUN as a Perfetto trace: open it at ui.perfetto.dev."""
    from windtunnel.cli.console import talk
    from windtunnel.results import Result
    from windtunnel.trace import write_trace

    result = Result(run)
    result.check()
    with result.reading():
        path = write_trace(result, out or run / "trace.pftrace.gz")
    talk().print(f"wrote {path}", markup=False, soft_wrap=True)
