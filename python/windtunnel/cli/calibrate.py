"""`windtunnel calibrate`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from windtunnel.cli import calibrate_loop
from windtunnel.cli.app import DONE
from windtunnel.cli.console import out, print_json, talk
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.engine import InputError

if TYPE_CHECKING:
    from windtunnel.calibrate.training import Outcome

app = Commands(no_args_is_help=True)
app.commands += calibrate_loop.app.commands


@app.callback()
def calibrate() -> None:
    """Fit the few constants of a system on stated rows, and write them with their evidence."""


@app.command()
def collectives(
    systems: Annotated[
        list[str] | None, Argument(metavar="SYSTEM…", help="Systems; all with rows if left out.")
    ] = None,
    data: Annotated[Path | None, Option(metavar="DIR", help="Folder of measured tables.")] = None,
    dry: Annotated[bool, Option("--dry-run", help="Say what is found and write nothing.")] = False,
) -> int:
    """Fit the constants of NCCL's model and of MPI's algorithms.

    Systems with runs of nccl-tests are fitted together (`data/nccl`): each on all its scales, without each scale in
    turn, and without each machine in turn, which is what the board predicts their rows by. SYSTEM names others.
    """
    import numpy as np

    from windtunnel.calibrate import collectives as fitting
    from windtunnel.validate.board import data_folder
    from windtunnel.validate.collectives import section
    from windtunnel.validate.systems import read_systems

    folder = data_folder(data)
    known = read_systems(folder)
    with_rows = [name for name, system in known.items() if "collectives" in system.record]
    for name in systems or []:
        if name not in known:
            raise InputError(f"no file of system `{name}`\n\nhint: there are {', '.join(sorted(with_rows))}")
    own = {name for name in with_rows if section(known[name], "rows") is not None or name.startswith("aic-")}
    if not systems or own & set(systems):
        from windtunnel.calibrate import nccl
        from windtunnel.validate.written import DATA

        target = Path(mkdtemp()) if dry else DATA / "nccl"
        paths = nccl.write(folder, known, target, lambda line: out().print(Text(line)))
        if not dry:
            out().print(f"wrote {len(paths)} files in {target}", markup=False, soft_wrap=True)
    for name in [name for name in systems or with_rows if name not in own]:
        try:
            by_mpi = section(known[name], "rows") is None
            fitted = fitting.calibrate_mpi if by_mpi else fitting.calibrate
            found, rows = fitted(known[name], folder, known)
        except InputError:
            if systems:
                raise
            talk().print(f"{name}: no rows to fit on", style="dim")
            continue
        errors = np.abs(np.expm1(found.residuals))
        out().print(
            Text(
                f"{name}: {len(found.values)} constants on {len(rows.ids)} rows, "
                f"median residual {np.median(errors):.1%}, 95th percentile {np.percentile(errors, 95):.1%}"
            )
        )
        for constant, reason in sorted(found.refused.items()):
            if not reason.startswith("no row"):
                out().print(Text(f"  refused {constant}: {reason}", style="dim"))
        if not dry:
            path = fitting.write(
                known[name], fitting.record_mpi(found, rows) if by_mpi else fitting.record(found, rows)
            )
            out().print(f"  wrote {path}", markup=False, soft_wrap=True)
    return DONE


@app.command()
def dispatchers(
    data: Annotated[Path | None, Option(metavar="DIR", help="Folder of measured tables.")] = None,
    dry: Annotated[bool, Option("--dry-run", help="Say what is found and write nothing.")] = False,
) -> int:
    """Fit the constants of what takes tokens to experts (DeepEP), on all GPUs and without each in turn."""
    from windtunnel.calibrate import dispatchers as fitting
    from windtunnel.validate.board import data_folder
    from windtunnel.validate.systems import read_systems

    folder = data_folder(data)
    record = fitting.calibrate(folder, read_systems(folder), lambda line: out().print(Text(line)))
    if not dry:
        out().print(f"wrote {fitting.write(record)}", markup=False, soft_wrap=True)
    return DONE


@app.command()
def kernels(
    gpu: Annotated[str, Argument(metavar="GPU", help="Sheet of `data/gpus`, or a path.")],
    profiles: Annotated[
        list[Path], Argument(metavar="PROFILE…", help="Kernel profiles, or Vidur's tables of a layer.")
    ],
    dry: Annotated[bool, Option("--dry-run", help="Say what is found and write nothing.")] = False,
) -> int:
    """Fit a GPU's curve of matrix products, its share of memory bandwidth and its launch on measured kernels.

    On tables of kernels by GPU (docs/hosts.md): the constants of tiles and waves, by family and format.
    """
    import datetime as dt

    from windtunnel.calibrate import kernels as fitting
    from windtunnel.calibrate import tiles
    from windtunnel.results.folder import write_beside
    from windtunnel.source import read_text

    path = fitting.sheet_path(gpu)
    sheet = read_text(path)
    missing = [profile for profile in profiles if not profile.is_file()]
    if missing:
        raise InputError(f"{missing[0]}: no such file")
    if tiles.table_of(profiles[0]) is not None:
        fits = []
        for fit in tiles.fit_all(tiles.read(path.stem, profiles)):
            fits.append(fit)
            for line in tiles.lines(fit):
                out().print(Text(line))
        if not dry:
            today = dt.datetime.now(dt.UTC).date()
            record = path.parents[1] / "kernels" / f"{path.stem}.json"
            old = json_module.loads(read_text(record)) if record.is_file() else {}
            names = [profile.name for profile in profiles]
            write_beside(path, tiles.rewritten(sheet, fits, names, today).encode())
            record.parent.mkdir(exist_ok=True)
            write_beside(record, tiles.text_of(tiles.record(old, fits)).encode())
            out().print(f"wrote {path} and {record}", markup=False, soft_wrap=True)
        return DONE
    rows = [kernel for profile in profiles for kernel in fitting.read(profile)]
    peak, bandwidth = fitting.rates(sheet, path, {kernel.dtype for kernel in rows})
    found = fitting.fit(path.stem, rows, [profile.name for profile in profiles], peak=peak, bandwidth=bandwidth)
    for line in fitting.lines(found):
        out().print(Text(line))
    for name, reason in found.refused.items():
        out().print(Text(f"refused {name}: {reason}", style="dim"))
    if not (found.gemm or found.memory or found.launch):
        raise InputError("the rows determine nothing of the sheet")
    if not dry:
        write_beside(path, fitting.rewritten(sheet, found, dt.datetime.now(dt.UTC).date()).encode())
        out().print(f"wrote {path}", markup=False, soft_wrap=True)
    return DONE


@app.command()
def loggops(
    measured: Annotated[Path, Argument(metavar="PINGPONG.CSV", help="What `mpirun -n 2 loggops` printed.")],
    target: Annotated[
        Path | None, Option("-o", "--out", help="Piece of a scenario to write; printed if left out.")
    ] = None,
    statistic: Annotated[str, Option("--by", help="min or median of the round trips of a size.")] = "min",
    json: Annotated[bool, Option("--json", help="Print JSON and nothing else.")] = False,
) -> int:
    """Fit LogGOPS (L, o, g, G, O, S) on ping-pongs of two MPI ranks, as Netgauge does."""
    from windtunnel.calibrate import loggops as fitting
    from windtunnel.results.folder import write_beside

    if statistic not in ("min", "median"):
        raise InputError(f"--by: expected `min` or `median`, found `{statistic}`")
    found = fitting.fit(measured, statistic)
    text = fitting.text_of(found, measured.name)
    if target is not None:
        write_beside(target, text.encode())
    if json:
        rows = [{"bytes": size, "measured_ns": ns, "fitted_ns": fitted} for size, ns, fitted in found.residuals]
        print_json(json_module.dumps({"loggops": fitting.record(found), "half_round_trips": rows}))
        return DONE
    if target is None:
        out().print(text, end="", markup=False, soft_wrap=True)
    else:
        errors = sorted(abs(fitted / ns - 1) for _, ns, fitted in found.residuals)
        out().print(
            f"wrote {target}: half a round trip is off by {errors[len(errors) // 2]:.1%} in the median, "
            f"{errors[-1]:.1%} at most",
            markup=False,
            soft_wrap=True,
        )
    if not found.eager_seen:
        talk().print("note: no size at which a send waits for its receiver: S is the largest that was measured")
    return DONE


@app.command()
def training(
    system: Annotated[str, Argument(metavar="SYSTEM", help="A system of `data/systems`.")],
    constant: Annotated[str, Argument(metavar="CONSTANT", help="`compute_share`, `dispatch` or `straggle`.")],
    rows: Annotated[list[str], Argument(metavar="ROW…", help="Rows of the board by id; `*` stands for any text.")],
    data: Annotated[Path | None, Option(metavar="DIR", help="Folder of measured tables.")] = None,
    dry: Annotated[bool, Option("--dry-run", help="Say what is found and write nothing.")] = False,
) -> int:
    """Fit a constant on measured iterations: the share of compute rates sustained, or the host's time a launch."""
    from windtunnel.calibrate import training as fitting
    from windtunnel.validate.board import data_folder

    outcome = fitting.fit(system, constant, rows, data_folder(data))
    record = _told(system, constant, constant, outcome)
    if not dry:
        path = fitting.write(system, constant, record, data_folder(data))
        out().print(f"wrote {path}", markup=False, soft_wrap=True)
    return DONE


@app.command()
def sustained(
    gpu: Annotated[str, Argument(metavar="GPU", help="A GPU of `data/gpus`.")],
    rows: Annotated[list[str], Argument(metavar="ROW…", help="Rows of the board by id; `*` stands for any text.")],
    data: Annotated[Path | None, Option(metavar="DIR", help="Folder of measured tables.")] = None,
    dry: Annotated[bool, Option("--dry-run", help="Say what is found and write nothing.")] = False,
) -> int:
    """Fit the share of its kernels' rates that a GPU sustains in training, over all systems that have it."""
    from windtunnel.calibrate import training as fitting
    from windtunnel.validate.board import data_folder

    outcome = fitting.fit_sustained(gpu, rows, data_folder(data))
    record = _told(gpu, "compute_share", fitting.SUSTAINED, outcome)
    for path in [] if dry else fitting.write_sustained(gpu, record):
        out().print(f"wrote {path}", markup=False, soft_wrap=True)
    return DONE


@app.command()
def hosts(
    system: Annotated[str, Argument(metavar="SYSTEM", help="A system of `data/systems` with recorded reads.")],
    data: Annotated[Path | None, Option(metavar="DIR", help="Folder of measured tables.")] = None,
    dry: Annotated[bool, Option("--dry-run", help="Say what is found and write nothing.")] = False,
) -> int:
    """Fit what a server of reads adds: its latency, what it prepares, and what stands in front of its link."""
    from windtunnel.calibrate import hosts as fitting
    from windtunnel.calibrate.training import write
    from windtunnel.validate.board import data_folder
    from windtunnel.validate.systems import read_systems
    from windtunnel.validate.tables.m4 import CONSTANT

    folder = data_folder(data)
    known = read_systems(folder)
    if system not in known:
        raise InputError(f"no file of system `{system}`\n\nhint: recorded reads are of `m4-testbed`")
    record = fitting.calibrate(known[system], folder)
    for name, value in [("all runs", record["value"]), *((f"without {n}", v) for n, v in record["without"].items())]:
        out().print(Text(f"{system}, {name}: " + ", ".join(f"{key} {text}" for key, text in value.items())))
    if not dry:
        out().print(f"wrote {write(system, CONSTANT, record, folder)}", markup=False, soft_wrap=True)
    return DONE


def _told(of: str, constant: str, name: str, outcome: Outcome) -> dict[str, Any]:
    """The record of a constant that was fitted, which is said as `name`."""
    import datetime as dt

    from windtunnel.calibrate.training import record

    found = record(constant, outcome, dt.datetime.now(dt.UTC).date())
    out().print(
        Text(
            f"{of}: {name} {found['value']} on {len(outcome.rows)} rows, median absolute residual "
            f"{outcome.median:.1%}, 95th percentile {outcome.spread:.1%}"
        )
    )
    return found
