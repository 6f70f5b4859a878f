"""The tree of commands as Typer has it: for help, completion, and calls with something wrong in them."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from windtunnel.cli.app import COMMANDS, commands_of


class LazyGroup(TyperGroup):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002
        """Names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """Imports the command, or fails with the nearest name."""
        if cmd_name not in COMMANDS:
            from windtunnel.engine import nearest

            near = nearest(cmd_name, list(COMMANDS))
            hint = f"did you mean `{near}`?" if near else "`windtunnel --help` lists the commands"
            ctx.fail(f"no such command: `{cmd_name}`\n\nhint: {hint}")
        return commands_of(cmd_name).typer()

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002
        """Writes the list of commands from the table, without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


app = typer.Typer(
    cls=LazyGroup,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from windtunnel.version import __version__

        typer.echo(f"windtunnel {__version__}")
        raise typer.Exit


@app.callback()
def windtunnel(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """A wind tunnel for AI clusters: how long a training step takes on a fabric, and what it waits for."""
