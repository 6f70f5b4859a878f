"""`windtunnel init`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.engine import InputError

app = Commands()

QUESTIONS = {
    "what": "What runs: a model such as `llama3-8b`, or `all-reduce`?",
    "gpus": "On what: a number of GPUs and their kind, such as `64 H100-SXM`?",
    "fabric": "Over what: `rails`, `fat-tree`, or `2:1` and the like for an oversubscribed one?",
}
DEFAULTS = {"what": "llama3-8b", "gpus": "64 H100-SXM", "fabric": "rails"}


@app.command()
def init(
    file: Annotated[Path, Argument(metavar="FILE", help="Scenario to write.")] = Path("scenario.yaml"),
    what: Annotated[str | None, Option(metavar="MODEL|all-reduce", help="The first answer.")] = None,
    gpus: Annotated[str | None, Option(metavar="'N KIND'", help="The second answer.")] = None,
    fabric: Annotated[str | None, Option(metavar="NAME", help="The third answer.")] = None,
) -> None:
    """Ask three questions and write a commented scenario, ready to run. Questions with an option are not asked."""
    from windtunnel.cli.console import talk
    from windtunnel.first import first_scenario
    from windtunnel.results.folder import write_beside

    if file.exists():
        raise InputError(f"`{file}` is there already\n\nhint: name another file")
    given = {"what": what, "gpus": gpus, "fabric": fabric}
    answers = {key: value if value is not None else _ask(key) for key, value in given.items()}
    match = re.fullmatch(r"\s*([0-9]+)\s+(\S+)\s*", answers["gpus"])
    if match is None:
        raise InputError(f"--gpus: expected a number and a kind, such as `64 H100-SXM`, found `{answers['gpus']}`")
    text = first_scenario(answers["what"].strip(), int(match[1]), match[2], answers["fabric"].strip())
    write_beside(file, text.encode())
    talk().print(f"wrote {file}\n\n  windtunnel run {file}", markup=False, soft_wrap=True)


def _ask(key: str) -> str:
    """The answer on a terminal; what is most usual elsewhere."""
    if not sys.stdin.isatty():
        return DEFAULTS[key]
    import typer

    answer: str = typer.prompt(QUESTIONS[key], default=DEFAULTS[key])
    return answer
