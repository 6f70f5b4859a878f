"""`windtunnel workload`: what a workload consists of, and workloads made of others."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

from windtunnel import engine
from windtunnel.cli.console import out, print_json
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.cli.show_json import show_json
from windtunnel.engine import InputError

app = Commands(no_args_is_help=True)

File = Annotated[Path, Argument(help="Workload: `.wtw`, `.jsonl`, or GOAL as `.goal` or `.bin`.", metavar="FILE")]
Out = Annotated[Path, Option("-o", "--out", help="Workload to write, in the form that its name says.")]
Json = Annotated[bool, Option("--json", help="Print JSON and nothing else.")]
SHOWN = 15
"""Rows of a list that is longer in JSON."""


@app.callback()
def workload() -> None:
    """Count, convert, scale, cut, merge and explain workloads of any form."""


@app.command()
def stats(
    file: File,
    matrix: Annotated[
        Path | None, Option(metavar="CSV", help="Write bytes from each rank to each, collectives as messages.")
    ] = None,
    json: Json = False,
) -> None:
    """Say what FILE consists of: collectives by size, computation by label, streams, steps."""
    answer = _edit({"do": "stats", "file": _existing(file), "matrix": matrix is not None})
    rows = answer.pop("matrix_bytes", None)
    if matrix is not None and rows is not None:
        text = "\n".join(",".join(map(str, row)) for row in rows) + "\n"
        matrix.write_text(text, encoding="utf-8")
    if json:
        print_json(json_module.dumps(answer))
        return
    for key in ("collectives", "computation"):
        answer[key] = answer[key][:SHOWN]
    show_json(json_module.dumps(answer))


@app.command()
def convert(
    source: File,
    target: Annotated[Path, Argument(help="Workload to write, in the form that its name says.")],
    json: Json = False,
) -> None:
    """Write SOURCE in another form; in GOAL collectives become messages."""
    _told(_edit({"do": "convert", "file": _existing(source), "out": str(target)}), json=json)


@app.command()
def scale(
    file: File,
    target: Out,
    compute: Annotated[
        list[str] | None,
        Option(metavar="LABEL=FACTOR", help="Computations by label, `*` for any text; the first that fits."),
    ] = None,
    size: Annotated[float, Option(metavar="FACTOR", help="All payloads: 0.5 for half as many bytes.")] = 1.0,
    json: Json = False,
) -> None:
    """Make computation longer or shorter (another GPU) and messages larger or smaller (another type)."""
    rules = [_rule(text) for text in compute or []]
    request = {"do": "scale", "file": _existing(file), "out": str(target), "compute": rules, "bytes": size}
    _told(_edit(request), json=json)


@app.command(name="slice")
def slice_(
    file: File,
    steps: Annotated[str, Option(metavar="FIRST[..LAST]", help="Steps, such as `ProfilerStep#4..ProfilerStep#5`.")],
    target: Out,
    json: Json = False,
) -> None:
    """Cut recorded steps out of FILE; `workload stats` lists them."""
    first, _, last = steps.partition("..")
    request = {"do": "slice", "file": _existing(file), "out": str(target), "first": first, "last": last or first}
    answer = _edit(request)
    _told(answer, json=json)
    if answer["collectives_left_out"] and not json:
        out().print(f"{answer['collectives_left_out']:,} collectives lie across the cut and are left out")


@app.command()
def merge(
    sources: Annotated[
        list[str],
        Argument(metavar="FILE[@RANK][+TIME]...", help="Workloads; @RANK is where one begins, +TIME how much later."),
    ],
    target: Out,
    placing: Annotated[str, Option(help="packed, round-robin or random.")] = "packed",
    seed: Annotated[int, Option(min=0, help="Of a random placing.")] = 0,
    json: Json = False,
) -> None:
    """Put workloads side by side, each on ranks of its own."""
    parts = [_part(text) for text in sources]
    _told(_edit({"do": "merge", "parts": parts, "out": str(target), "placing": placing, "seed": seed}), json=json)


@app.command()
def explain(
    file: File,
    target: Annotated[Path, Option("-o", "--out", help="HTML page to write.")] = Path("explained.html"),
    on: Annotated[
        Path | None, Option(metavar="SCENARIO", help="Scenario whose topology and network it is replayed on.")
    ] = None,
    gpus: Annotated[int | None, Option(min=1, help="GPUs of a host, without --on; 8 if ranks fill them.")] = None,
    rate: Annotated[str, Option(help="Rate of a NIC, without --on.")] = "400 Gbps",
    fidelity: Annotated[str | None, Option(help="message, flow or packet; flow if left out.")] = None,
    json: Json = False,
) -> None:
    """Say who arrives last, what communication is exposed, and what would help, on one HTML page."""
    from windtunnel.recording import explain as answer
    from windtunnel.report.recording import recording_page
    from windtunnel.results.folder import write_beside
    from windtunnel.text import duration

    _existing(file)
    found = answer(file, on=on, gpus=gpus, rate=rate, fidelity=fidelity)
    write_beside(target, recording_page(found).encode())
    if json:
        print_json(json_module.dumps(found.record()))
        return
    exposed = sum(found.exposed_s.values())
    ideal = f"{duration(found.ideal_fabric_s)} on an ideal fabric, " if found.ideal_fabric_s is not None else ""
    out().print(
        f"{duration(found.replayed_s)} replayed: {duration(exposed)} of exposed communication; {ideal}"
        f"{duration(found.no_stragglers_s)} without stragglers",
        markup=False,
        soft_wrap=True,
    )
    last = max(found.arrivals, key=lambda row: (row["last"], -row["rank"]), default=None)
    if last is not None:
        out().print(
            f"rank {last['rank']} came last to {last['last']:,} of {last['collectives']:,} collectives "
            f"of `{last['group']}`",
            markup=False,
            soft_wrap=True,
        )
    out().print(f"wrote {target}", markup=False, soft_wrap=True)


def _part(text: str) -> tuple[str, int | None, int]:
    """File, rank and start in ps of `FILE@RANK+TIME`."""
    name, plus, time = text.rpartition("+")
    start = 0
    if plus:
        start = _picoseconds(time, text)
    else:
        name = text
    file, at, rank = name.rpartition("@")
    if not at or not rank.isdecimal():
        file, rank = name, ""
    return _existing(Path(file)), int(rank) if rank else None, start


def _picoseconds(time: str, text: str) -> int:
    for unit, factor in sorted(engine.units("time"), key=lambda entry: -len(entry[0])):
        number = time.removesuffix(unit).strip()
        if number != time.strip() and number.replace(".", "", 1).isdecimal():
            return round(float(number) * factor)
    raise InputError(f"expected a time such as `+5ms`, found `+{time}` in `{text}`")


def _rule(text: str) -> tuple[str, float]:
    label, equals, factor = text.rpartition("=")
    try:
        if equals:
            return label, float(factor)
    except ValueError:
        pass
    raise InputError(f"--compute: expected `LABEL=FACTOR`, found `{text}`\n\nhint: `--compute '*=0.5'` halves all")


def _edit(request: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = json_module.loads(engine.edit_workload(json_module.dumps(request)))
    return answer


def _told(answer: dict[str, Any], *, json: bool) -> None:
    if json:
        print_json(json_module.dumps(answer))
        return
    out().print(
        f"wrote {answer['file']}: {answer['ranks']:,} ranks, {answer['operations']:,} operations",
        markup=False,
        soft_wrap=True,
    )


def _existing(path: Path) -> str:
    if not path.is_file():
        raise InputError(f"no such file: `{path}`")
    return str(path)
