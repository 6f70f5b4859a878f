"""`windtunnel workload`: what a workload consists of, and workloads made of others."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

from windtunnel import engine
from windtunnel.cli.console import out, print_json, talk
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.cli.show_json import show_json
from windtunnel.engine import InputError

app = Commands(no_args_is_help=True)

File = Annotated[
    Path,
    Argument(
        help="Workload: `.wtw`, `.jsonl`, or GOAL as `.goal` or `.bin`; or a recording, or a folder of them.",
        metavar="FILE",
    ),
]
Out = Annotated[Path, Option("-o", "--out", help="Workload to write, in the form that its name says.")]
Json = Annotated[bool, Option("--json", help="Print JSON and nothing else.")]
SHOWN = 15
"""Rows of a list that is longer in JSON."""


@app.callback()
def workload() -> None:
    """Count, convert, scale, cut, merge, regroup, decompose and explain workloads of any form."""


@app.command()
def stats(
    file: File,
    matrix: Annotated[
        Path | None, Option(metavar="CSV", help="Write bytes from each rank to each, collectives as messages.")
    ] = None,
    json: Json = False,
) -> None:
    """Say what FILE consists of: collectives by size, computation by label, streams, steps."""
    from windtunnel.results.folder import write_beside

    answer = _edit({"do": "stats", "file": _existing(file), "matrix": matrix is not None})
    rows = answer.pop("matrix_bytes", None)
    if matrix is not None and rows is not None:
        text = "\n".join(",".join(map(str, row)) for row in rows) + "\n"
        write_beside(matrix, text.encode())
    if json:
        print_json(json_module.dumps(answer))
        return
    _told_of_recordings(answer)
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
    gpu: Annotated[
        str | None,
        Option(metavar="FROM=TO", help="Computation on another GPU: products by peak rates, the rest by memory."),
    ] = None,
    format_: Annotated[str | None, Option("--format", help="Format whose peaks --gpu compares; else bf16.")] = None,
    json: Json = False,
) -> None:
    """Make computation longer or shorter (another GPU) and messages larger or smaller (another type)."""
    from windtunnel.recording.other_gpu import factors, said

    rules = [_rule(text) for text in compute or []]
    if format_ is not None and gpu is None:
        raise InputError("--format: it is the format whose peaks `--gpu FROM=TO` compares, found no `--gpu`")
    of_gpu = None if gpu is None else factors(gpu, format_ or "bf16")
    request = {"do": "scale", "file": _existing(file), "out": str(target), "compute": rules, "bytes": size}
    answer = _edit(request | {"gpu": of_gpu})
    _told(answer, json=json)
    if not json:
        for line in said(answer.get("classes", ())):
            out().print(line, markup=False, soft_wrap=True)


@app.command(name="slice")
def slice_(
    file: File,
    target: Out,
    steps: Annotated[
        str | None, Option(metavar="FIRST[..LAST]", help="Steps, such as `ProfilerStep#4..ProfilerStep#5`.")
    ] = None,
    repeats: Annotated[
        str | None,
        Option(metavar="FIRST[..LAST]", help="Iterations from 0 on, where nothing marks steps and operations repeat."),
    ] = None,
    json: Json = False,
) -> None:
    """Cut recorded steps out of FILE (`workload stats` lists them), or iterations where its operations repeat."""
    if (steps is None) == (repeats is None):
        found = "neither" if steps is None else "both"
        raise InputError(
            f"workload slice: expected `--steps` or `--repeats`, found {found}\n\nhint: `windtunnel workload "
            "stats FILE` lists steps; without any `--repeats 0` cuts the first iteration out"
        )
    request: dict[str, Any] = {"do": "slice", "file": _existing(file), "out": str(target)}
    if steps is not None:
        first, _, last = steps.partition("..")
        request["steps"] = (first, last or first)
    else:
        request["repeats"] = _iterations(repeats or "")
    answer = _edit(request)
    _told(answer, json=json)
    if json:
        return
    if "repeats" in answer:
        seen = answer["repeats"]
        out().print(
            f"{seen['count']:,} repetitions of {seen['period']:,} operations on the first rank that does anything, "
            f"{seen['before']:,} before and {seen['behind']:,} behind them",
            markup=False,
            soft_wrap=True,
        )
    if answer["collectives_left_out"]:
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
    shared: Annotated[
        bool, Option("--shared", help="Several may stand on one rank: they run beside each other and share its NICs.")
    ] = False,
    json: Json = False,
) -> None:
    """Put workloads side by side, each on ranks of its own, or on shared ones."""
    parts = [_part(text) for text in sources]
    request = {"do": "merge", "parts": parts, "out": str(target), "placing": placing, "seed": seed, "shared": shared}
    _told(_edit(request), json=json)


@app.command()
def regroup(
    file: File,
    target: Out,
    into: Annotated[int, Option(min=1, help="GPUs of a host afterwards.")] = 1,
    from_: Annotated[int, Option("--from", min=1, help="GPUs that a rank of FILE stands for, told by streams.")] = 1,
    streams: Annotated[int | None, Option(min=1, help="Streams of a GPU in FILE; evenly if left out.")] = None,
    groups: Annotated[
        str | None, Option(metavar="GPUS;GPUS...", help="GPUs of each host, such as `0-2,5;3,4`, in place of --into.")
    ] = None,
    placing: Annotated[str, Option(help="packed, round-robin or random.")] = "packed",
    seed: Annotated[int, Option(min=0, help="Of a random placing.")] = 0,
    form: Annotated[str, Option(help="nodes (a host is a rank) or ranks (a GPU is a rank, renumbered).")] = "nodes",
    inside: Annotated[str, Option(help="Messages inside a host: copy or drop.")] = "copy",
    rate: Annotated[str, Option(help="What a GPU copies to another of its host.")] = "3600 Gbps",
    latency: Annotated[str, Option(help="What each copy takes beside.")] = "0 ns",
    nics: Annotated[int | None, Option(min=1, max=255, help="NICs of a host; those of its GPUs if left out.")] = None,
    algorithm: Annotated[str | None, Option(help="Of collectives, which become messages; by size if left out.")] = None,
    json: Json = False,
) -> None:
    """Put the GPUs of FILE on other hosts: 2 hosts of 8 become 4 of 4, with copies inside and messages between."""
    request = {
        "do": "regroup",
        "file": _existing(file),
        "out": str(target),
        "from": from_,
        "streams": streams,
        "groups": None if groups is None else _groups(groups),
        "into": into,
        "placing": placing,
        "seed": seed,
        "ranks": _one_of("--form", form, ("nodes", "ranks")) == "ranks",
        "nics": nics,
        "drop": _one_of("--inside", inside, ("copy", "drop")) == "drop",
        "rate_bps": quantity("--rate", rate, "rate"),
        "latency_ps": quantity("--latency", latency, "time"),
        "algorithm": algorithm,
    }
    answer = _edit(request)
    _told(answer, json=json)
    if json or "messages_between" not in answer:
        return
    copies = "copies" if inside == "copy" else "dropped"
    out().print(
        f"{answer['messages_between']:,} messages of {answer['bytes_between']:,} B go between hosts; "
        f"{answer['messages_inside']:,} of {answer['bytes_inside']:,} B lie inside and are {copies}",
        markup=False,
        soft_wrap=True,
    )
    for key, said in (
        ("calls_of_collectives_as_messages", "calls of collectives became messages"),
        ("edges_as_messages", "dependencies within a rank became messages of one byte"),
        ("wildcards_named", "receives from any source or of any tag name their sender now, in program order"),
    ):
        if answer[key]:
            out().print(f"{answer[key]:,} {said}", markup=False, soft_wrap=True)


@app.command()
def decompose(
    file: File,
    target: Out,
    algorithm: Annotated[
        str | None,
        Option(
            help="ring, tree, pat, nvls, nvlstree, collnetdirect or collnetchain (NCCL_ALGO); the tuner's if left out."
        ),
    ] = None,
    protocol: Annotated[str | None, Option(help="simple, ll or ll128 (NCCL_PROTO); the tuner's if left out.")] = None,
    channels: Annotated[int | None, Option(min=1, max=64, help="Channels; the tuner's if left out.")] = None,
    buffer: Annotated[str | None, Option(metavar="SIZE", help="Buffer between two GPUs (NCCL_BUFFSIZE).")] = None,
    chunk: Annotated[str | None, Option(metavar="SIZE", help="Most data of a step; by the buffer if left out.")] = None,
    env: Annotated[
        list[str] | None, Option(metavar="NAME=VALUE", help="NCCL's environment, where no option says it.")
    ] = None,
    reduce_rate: Annotated[
        str | None, Option(metavar="RATE", help="What a channel's threads sum or copy; no time if left out.")
    ] = None,
    launch: Annotated[bool, Option("--launch", help="Begin each call with its launch.")] = False,
    switches: Annotated[
        str, Option(help="Switches that sum: next-best (the tuner's, without them) or ranks (that stand for them).")
    ] = "next-best",
    on: Annotated[
        Path | None, Option(metavar="SCENARIO", help="Scenario whose topology and network the tuner is asked of.")
    ] = None,
    gpus: Annotated[int | None, Option(min=1, help="GPUs of a host, without --on; 8 if ranks fill them.")] = None,
    rate: Annotated[str, Option(help="Rate of a NIC, without --on.")] = "400 Gbps",
    json: Json = False,
) -> None:
    """Write FILE with collectives as NCCL's sends, receives and reductions, channel by channel."""
    from windtunnel.recording.decompose import decompose as answer

    _existing(file)
    environment = dict(_variable(text) for text in env or [])
    given = {"NCCL_ALGO": algorithm, "NCCL_PROTO": protocol}
    if channels is not None:
        given |= {"NCCL_MIN_NCHANNELS": str(channels), "NCCL_MAX_NCHANNELS": str(channels)}
    if buffer is not None:
        given["NCCL_BUFFSIZE"] = str(quantity("--buffer", buffer, "size"))
    environment |= {name: value for name, value in given.items() if value is not None}
    found = answer(
        file,
        target,
        environment=environment,
        chunk=None if chunk is None else quantity("--chunk", chunk, "size"),
        reduce_bps=None if reduce_rate is None else quantity("--reduce-rate", reduce_rate, "rate"),
        launch=launch,
        switches=_one_of("--switches", switches, ("next-best", "ranks")) == "ranks",
        on=on,
        gpus=gpus,
        rate=rate,
    )
    if json:
        print_json(json_module.dumps(found))
        return
    rows = found.pop("collectives")
    _told(found, json=False)
    for key, said in (
        ("ranks_of_nvlink_switches", "stand for NVLink's switches, one a scale-up domain"),
        ("ranks_of_network_switches", "stands for the network's switches"),
    ):
        if found[key]:
            out().print(f"{found[key]:,} of the last ranks {said}", markup=False, soft_wrap=True)
    show_json(json_module.dumps({"collectives": rows[:SHOWN]}))
    replaced = sum(row["count"] for row in rows if row["instead_of_switches"])
    if replaced:
        out().print(
            f"{replaced:,} collectives that NCCL would have switches sum are done by the next best: messages between "
            "ranks cannot tell sums in switches (`--switches ranks` has ranks stand for them)",
            markup=False,
            soft_wrap=True,
        )


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
        start = _start(time, text)
    else:
        name = text
    file, at, rank = name.rpartition("@")
    if not at or not rank.isdecimal():
        file, rank = name, ""
    return _existing(Path(file)), int(rank) if rank else None, start


def _start(time: str, text: str) -> int:
    try:
        return quantity("start", time, "time")
    except InputError:
        raise InputError(f"expected a time such as `+5ms`, found `+{time}` in `{text}`") from None


def quantity(option: str, text: str, kind: str) -> int:
    """A quantity with its unit (`rate` in bit/s, `time` in ps, `size` in bytes).

    Raises:
        InputError: no number, no unit, or another kind's.

    """
    for unit, factor in sorted(engine.units(kind), key=lambda entry: -len(entry[0])):
        number = text.strip().removesuffix(unit).strip()
        if number != text.strip() and number.replace(".", "", 1).isdecimal():
            return round(float(number) * factor)
    known = "`, `".join(unit for unit, _ in engine.units(kind))
    raise InputError(f"{option}: expected a {kind}, found `{text}`\n\nhint: the units are `{known}`")


def _one_of(option: str, text: str, names: tuple[str, ...]) -> str:
    if text not in names:
        raise InputError(f"{option}: expected `{'` or `'.join(names)}`, found `{text}`")
    return text


def _groups(text: str) -> list[list[int]]:
    """GPUs of each host of `0-2,5;3,4`."""
    hosts = []
    for host in text.split(";"):
        gpus: list[int] = []
        for part in host.split(","):
            first, dash, last = part.strip().partition("-")
            if not first.isdecimal() or (dash and not last.isdecimal()) or len(first + last) > 9:
                raise InputError(f"--groups: expected GPUs such as `0-2,5;3,4`, found `{part.strip()}` in `{text}`")
            gpus.extend(range(int(first), int(last or first) + 1))
            if len(gpus) > 1 << 24:
                raise InputError(f"--groups: expected at most {1 << 24:,} GPUs, found `{part.strip()}`")
        hosts.append(gpus)
    return hosts


def _rule(text: str) -> tuple[str, float]:
    label, equals, factor = text.rpartition("=")
    try:
        if equals:
            return label, float(factor)
    except ValueError:
        pass
    raise InputError(f"--compute: expected `LABEL=FACTOR`, found `{text}`\n\nhint: `--compute '*=0.5'` halves all")


def _iterations(text: str) -> tuple[int, int]:
    """Numbers of the first and the last iteration of `1..3` or `1`."""
    first, dots, last = text.partition("..")
    last = last if dots else first
    if not (first.isdecimal() and last.isdecimal() and len(first + last) < 19):
        raise InputError(f"--repeats: expected iterations such as `0` or `1..3`, found `{text}`")
    return int(first), int(last)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"--env: expected `NAME=VALUE`, found `{text}`\n\nhint: `--env NCCL_ALGO=ring`")
    return name, value


def _edit(request: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = json_module.loads(engine.edit_workload(json_module.dumps(request)))
    return answer


def _told(answer: dict[str, Any], *, json: bool) -> None:
    if json:
        print_json(json_module.dumps(answer))
        return
    _told_of_recordings(answer)
    out().print(
        f"wrote {answer['file']}: {answer['ranks']:,} ranks, {answer['operations']:,} operations",
        markup=False,
        soft_wrap=True,
    )


def _told_of_recordings(answer: dict[str, Any]) -> None:
    """What is not as it was recorded, of each recording that was read in place of a workload."""
    for read in answer.pop("recordings", ()):
        parts = [f"{read[verdict]:,} {verdict}" for verdict in ("approximated", "guessed", "dropped") if read[verdict]]
        if parts:
            talk().print(
                f"note: {read['file']}, a recording ({read['kind']}): {', '.join(parts)}; "
                f"`windtunnel import {read['kind']}` says why",
                markup=False,
                soft_wrap=True,
            )


def _existing(path: Path) -> str:
    if not path.exists():
        hint = ""
        if path.suffix == ".et" and path.with_suffix(".0.et").is_file():
            hint = f"\n\nhint: `{path.with_suffix('.0.et')}` is one rank of it: give the folder of all ranks"
        raise InputError(f"no such file: `{path}`{hint}")
    return str(path)
