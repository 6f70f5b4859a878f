"""`windtunnel import`: recordings of real applications as workloads."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from rich.text import Text

from windtunnel import engine
from windtunnel.cli.app import DONE
from windtunnel.cli.console import out, print_json, talk
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.engine import InputError
from windtunnel.text import count, duration, size

app = Commands()


@app.command("import")
def import_(
    arguments: Annotated[
        list[str],
        Argument(
            metavar="KIND SOURCE...",
            help="`auto` or a kind of recording, and its files, folders or archives: one file a rank.",
        ),
    ],
    target: Annotated[
        Path | None,
        Option(
            "-o", "--out", help="Workload to write: `.wtw` (compact), `.jsonl`, or `.goal` or `.bin` (messages alone)."
        ),
    ] = None,
    detect: Annotated[bool, Option("--detect", help="Say of which kind each SOURCE is; no KIND.")] = False,
    strict: Annotated[bool, Option("--strict", help="Fail if anything is dropped.")] = False,
    missing: Annotated[
        str, Option(help="Ranks that were not recorded: refuse, same (as a recorded one) or alone.")
    ] = "refuse",
    only: Annotated[
        str, Option(metavar="TEXT", help="Only files whose name, or an archive's member's, has TEXT.")
    ] = "",
    algorithm: Annotated[str | None, Option(help="Algorithm of all collectives; by size if left out.")] = None,
    flops: Annotated[float | None, Option(help="FLOP/s of a rank, for recordings that count operations.")] = None,
    architecture: Annotated[
        str | None, Option(help="Of storage: replicated, direct-drive, or a description FILE.yaml.")
    ] = None,
    json: Annotated[bool, Option("--json", help="Print JSON and nothing else.")] = False,
) -> int:
    """Make a workload of recordings, and say what of them is in it (also in OUT.coverage.json)."""
    if detect:
        return _detect(arguments, json=json)
    kind, *sources = arguments
    if not sources:
        raise InputError(
            f"expected `KIND SOURCE...`, found `{kind}` alone\n\nhint: `windtunnel import auto {kind} -o workload.wtw`"
        )
    if target is None:
        raise InputError("`-o` is missing\n\nhint: `-o workload.wtw`")
    _existing(sources)
    request = {
        "kind": kind,
        "sources": sources,
        "only": only,
        "out": str(target),
        "strict": strict,
        "missing": missing,
        "algorithm": algorithm,
        "flops": flops,
        "architecture": architecture,
    }
    text = engine.import_recordings(json_module.dumps(request))
    if json:
        print_json(text)
    else:
        _show(json_module.loads(text))
    return DONE


def _detect(sources: list[str], *, json: bool) -> int:
    _existing(sources)
    text = engine.detect_recordings(sources)
    if json:
        print_json(text)
        return DONE
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("file", "kind", ""):
        table.add_column(name, overflow="fold")
    for row in json_module.loads(text):
        table.add_row(Text(row["file"]), Text(row["kind"] or "not known"), Text(row["about"] or ""))
    out().print(table)
    return DONE


def _existing(sources: list[str]) -> None:
    for source in sources:
        if not Path(source).exists():
            raise InputError(f"no such file: `{source}`")


def _show(answer: dict[str, Any]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("what")
    table.add_column("became")
    for name in ("number", "bytes", "time"):
        table.add_column(name, justify="right")
    table.add_column("why", overflow="fold")
    for row in answer["rows"]:
        cells = [count(row["operations"]), size(row["bytes"]), duration(row["time_s"])]
        table.add_row(Text(row["kind"]), row["verdict"], *cells, Text(row["reason"]))
    table.add_section()
    for verdict, sum_ in answer["totals"].items():
        cells = [count(sum_["operations"]), size(sum_["bytes"]), duration(sum_["time_s"])]
        table.add_row("all", verdict, *cells, "")
    out().print(table)
    for note in answer["notes"]:
        talk().print(f"note: {note}", markup=False, soft_wrap=True)
    _show_arrivals(answer["arrivals"])
    workload = answer["workload"]
    out().print(
        f"wrote {workload['file']}: {workload['ranks']:,} ranks, {workload['operations']:,} operations, "
        f"{workload['communicators']:,} communicators",
        markup=False,
        soft_wrap=True,
    )


def _show_arrivals(arrivals: list[dict[str, Any]]) -> None:
    """Of each group the ranks that came last most often; waiting for them is no time of the network."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in arrivals:
        groups.setdefault(row["group"], []).append(row)
    for group, rows in groups.items():
        latest = sorted((row for row in rows if row["last"]), key=lambda row: (-row["last"], row["rank"]))[:3]
        shown = ", ".join(
            f"rank {row['rank']} to {row['last']:,} (holding up the others by {duration(row['held_up_s'])})"
            for row in latest
        )
        waited = sum(row["waited_s"] for row in rows) / len(rows)
        out().print(
            f"of {rows[0]['collectives']:,} collectives of `{group}`, who came last: {shown}; "
            f"a rank waited {duration(waited)} for others",
            markup=False,
            soft_wrap=True,
        )
