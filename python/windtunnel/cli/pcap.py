"""`windtunnel pcap`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from windtunnel.cli.declare import Argument, Commands, Option

app = Commands()


@app.command()
def pcap(
    run: Annotated[Path, Argument(help="Run folder.", metavar="RUN")],
    out: Annotated[Path | None, Option("-o", "--out", help="File to write (default: RUN/packets.pcapng).")] = None,
) -> None:
    """Write the packets that RUN captured (`results.packets`) as a pcapng file: open it in Wireshark."""
    from windtunnel.cli.console import talk
    from windtunnel.results import Result
    from windtunnel.trace.pcapng import write_pcapng

    result = Result(run)
    result.check()
    with result.reading():
        path = write_pcapng(result, out or run / "packets.pcapng")
    talk().print(f"wrote {path}", markup=False, soft_wrap=True)
