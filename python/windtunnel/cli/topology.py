"""`windtunnel topology`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from windtunnel.cli.app import DONE, FAILED
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.engine import InputError

if TYPE_CHECKING:
    from windtunnel.topology_view.request import Asked

app = Commands()


@app.command()
def topology(
    file: Annotated[Path, Argument(help="Scenario, or a file whose root is a topology (YAML).", metavar="FILE")],
    path: Annotated[
        tuple[str, str] | None,
        Option("--path", metavar="A B", help="Show the way from A to B, such as `host0 host3/gpu1`, hop by hop."),
    ] = None,
    ecmp: Annotated[
        tuple[str, str] | None,
        Option("--ecmp", metavar="A B", help="Show the equal-cost ports of every switch from A to B."),
    ] = None,
    nic: Annotated[int, Option(min=0, max=255, help="NIC of the sending GPU.")] = 0,
    entropy: Annotated[int, Option(min=0, max=2**32 - 1, help="What tells flows of the same ends apart.")] = 0,
    seed: Annotated[
        int, Option(min=0, max=2**64 - 1, help="Seed of the hash that chooses among equal-cost ports.")
    ] = 0,
    balancer: Annotated[str, Option(help="ecmp, destination_modulo, spray or ideal.")] = "ecmp",
    hash_: Annotated[
        str, Option("--hash", help="mixed, crc16, crc32 or xor: what switches hash by, for --balancer ecmp.")
    ] = "mixed",
    switch_seeds: Annotated[
        bool | None,
        Option("--switch-seeds/--no-switch-seeds", help="Whether each switch has a seed (mixed: yes, others: no)."),
    ] = None,
    fail: Annotated[
        list[str] | None,
        Option(metavar="link:NAME|switch:NAME", help="Fail a cable or a switch, beside the file's. Repeatable."),
    ] = None,
    detour: Annotated[
        str | None, Option(help="allow or forbid ways that the rule does not know where it knows none.")
    ] = None,
    repair: Annotated[
        str, Option(help="converged: everybody knows of faults; local: only the neighbours.")
    ] = "converged",
    weighted: Annotated[bool, Option("--weighted", help="Weigh equal-cost ports by the paths behind them.")] = False,
    check: Annotated[bool, Option("--check", help="Prove wiring and routes; exit 1 if something is wrong.")] = False,
    svg: Annotated[Path | None, Option(metavar="OUT.svg", help="Draw the topology.")] = None,
    export: Annotated[
        str | None, Option(metavar="FORMAT", help="Write the graph as graphml, csv, topo (htsim) or ns3.")
    ] = None,
    output: Annotated[
        Path | None,
        Option("-o", "--output", metavar="FILE", help="Where --export goes (default: standard output)."),
    ] = None,
    json: Annotated[bool, Option("--json", help="Print JSON and nothing else.")] = False,
) -> int:
    """Count, price, draw and check the topology of FILE, and answer which way packets go."""
    from windtunnel.topology_view.request import Asked

    if output is not None and export is None:
        raise InputError("-o: there is nothing to write without `--export`\n\nhint: such as `--export graphml`")
    if json and export is not None and output is None:
        raise InputError("--export: standard output takes the JSON\n\nhint: name a file with `-o FILE`")
    asked = Asked(
        path=path, ecmp=ecmp, nic=nic, entropy=entropy, seed=seed, balancer=balancer, fail=fail or [], detour=detour,
        repair=repair, weighted=True if weighted else None, check=check, export=export, draw=svg is not None,
        whole=json, hash=hash_, switch_seeds=switch_seeds,
    )  # fmt: skip
    text, answer = _ask(file, asked)
    if svg is not None:
        from windtunnel.topology_view import draw
        from windtunnel.topology_view.export import write_text

        write_text(svg, draw(answer))
    if export is not None:
        from windtunnel.topology_view.export import write_text

        write_text(output, answer["export"]["text"])
    if json:
        from windtunnel.cli.console import print_json

        print_json(text)
    elif export is None or output is not None:
        from windtunnel.topology_view.show import show

        show(answer)
    _say_written(svg, output)
    return DONE if _sound(answer) else FAILED


def _ask(file: Path, asked: Asked) -> tuple[str, dict[str, Any]]:
    """The engine's answer as text and as read."""
    import json as json_module

    from windtunnel import engine
    from windtunnel.source import read_source

    request = json_module.dumps(asked.request())
    source = read_source(file)
    try:
        text = engine.topology(source.text, source.name, str(source.base), request)
    except InputError as error:
        raise InputError(asked.in_options(str(error))) from None
    return text, json_module.loads(text)


def _sound(answer: dict[str, Any]) -> bool:
    """Whether every path that was asked for has a route, and the check found nothing."""
    routed = all(path["verdict"] in {"legal", "detour"} for path in answer["paths"] or [])
    return routed and (answer["check"] is None or answer["check"]["ok"])


def _say_written(*paths: Path | None) -> None:
    from windtunnel.cli.console import talk

    for path in paths:
        if path is not None and str(path) != "-":
            talk().print(f"wrote {path}", markup=False, soft_wrap=True)
