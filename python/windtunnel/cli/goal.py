"""`windtunnel goal`: GOAL files, text or binary."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

from windtunnel import engine
from windtunnel.cli.app import DONE, FAILED
from windtunnel.cli.console import out, print_json, talk
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.cli.show_json import show_json
from windtunnel.engine import InputError

app = Commands(no_args_is_help=False)

File = Annotated[Path, Argument(help="GOAL file, text or binary.", metavar="FILE")]
Json = Annotated[bool, Option("--json", help="Print JSON and nothing else.")]


@app.callback()
def goal() -> None:
    """Check, count, convert, merge or run GOAL files."""


@app.command()
def check(file: File, json: Json = False) -> int:
    """Check FILE: its syntax, that its dependencies are acyclic, and that sends and receives match."""
    text = engine.goal_check(_existing(file))
    _print(text, as_json=json)
    return DONE if json_module.loads(text)["complete"] else FAILED


@app.command()
def stats(file: File, json: Json = False) -> None:
    """Count the ranks, operations and bytes of FILE."""
    _print(engine.goal_stats(_existing(file)), as_json=json)


@app.command()
def convert(
    source: Annotated[Path, Argument(help="GOAL file to read.", metavar="SOURCE")],
    target: Annotated[Path, Argument(help="File to write: binary if it ends in .bin, else text.", metavar="TARGET")],
) -> None:
    """Convert SOURCE from text to binary or back."""
    engine.goal_convert(_existing(source), str(target))


@app.command()
def merge(
    sources: Annotated[
        list[Path],
        Argument(
            help="GOAL files to merge; FILE@RANK says where its rank 0 goes, else after the one before.",
            metavar="SOURCE...",
        ),
    ],
    out: Annotated[Path, Option("-o", "--out", help="File to write.")],
) -> None:
    """Merge SOURCEs into one schedule, each on ranks of its own."""
    for source in sources:
        path, at, rank = str(source).rpartition("@")
        _existing(Path(path) if at and rank.isdecimal() else source)
    engine.goal_merge([str(source) for source in sources], str(out))


@app.command()
def run(
    file: File,
    loggops: Annotated[
        str,
        Option(
            metavar="L=2500,o=1500,…",
            help="Parameters in ns (L, o, g), ns per byte (G, O) and bytes (S): any that is not named is 0, S 65535.",
        ),
    ],
    receiver: Annotated[
        str, Option(help="held: busy for (s-1)G per message, as LogGOPSim; free: for o and g only.")
    ] = "held",
    json: Json = False,
) -> int:
    """Run FILE on the LogGOPS model; no topology is needed."""
    if receiver not in {"held", "free"}:
        raise InputError(f"--receiver: expected `held` or `free`, found `{receiver}`")
    text = engine.goal_run(_existing(file), loggops, receiver)
    if left_out := unnamed(loggops):
        values = ", ".join(f"{name}={'65535' if name == 'S' else '0'}" for name in left_out)
        talk().print(f"--loggops leaves out {', '.join(left_out)}: the run has {values}", soft_wrap=True)
    result = json_module.loads(text)
    if json:
        print_json(text)
    else:
        _show_run(result)
    return FAILED if result.get("stuck") else DONE


def unnamed(loggops: str) -> list[str]:
    """The parameters that `loggops` does not name, in their usual order: the model goes without them."""
    named = {part.partition("=")[0].strip() for part in loggops.split(",")}
    return [name for name in ("L", "o", "g", "G", "O", "S") if name not in named]


def _show_run(result: dict[str, Any]) -> None:
    finish = result["finish"]
    console = out()
    console.print(f"finished after {result['finish_max']:,} ns on {len(finish):,} ranks")
    for rank, time in list(enumerate(finish))[:16]:
        console.print(f"  rank {rank}: {time:,} ns")
    if len(finish) > 16:
        console.print(f"  … and {len(finish) - 16} more ranks (`--json` has them all)")
    stuck = result.get("stuck")
    if stuck:
        console.print(f"{len(stuck)} operations are stuck:", style="red")
        for entry in stuck[:20]:
            console.print(
                f"  rank {entry['rank']}, operation {entry['operation']} waits for {entry['waits_for']}",
                markup=False,
            )


def _print(text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(text)
    else:
        show_json(text)


def _existing(path: Path) -> str:
    if not path.is_file():
        raise InputError(f"no such file: `{path}`")
    return str(path)
