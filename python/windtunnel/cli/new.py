"""`windtunnel new`: crates of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from windtunnel.cli.declare import Argument, Commands, Option

app = Commands(no_args_is_help=False)


@app.callback()
def new() -> None:
    """Write a crate of your own to begin with, outside the repository."""


@app.command()
def transport(
    name: Annotated[
        str, Argument(metavar="NAME", help="Of the crate, its folder and its transport, such as `my-law`.")
    ],
    out: Annotated[Path, Option(metavar="FOLDER", help="Where the folder NAME goes.")] = Path(),
    source: Annotated[
        Path | None,
        Option(
            metavar="DIR", help="Checkout of Windtunnel to build against; the one that this command is of if left out."
        ),
    ] = None,
) -> None:
    """Write a crate with a transport NAME: its law, a scenario, tests, and a program. It takes Rust to build."""
    from windtunnel.cli.console import talk
    from windtunnel.new import new_transport

    folder = new_transport(name, out, source)
    talk().print(
        f"wrote {folder}\n\n  cd {folder}\n  cargo test\n  cargo run --release -- scenario.yaml",
        markup=False,
        soft_wrap=True,
    )
