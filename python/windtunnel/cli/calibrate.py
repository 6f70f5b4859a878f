"""`windtunnel calibrate`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from windtunnel.cli.app import DONE
from windtunnel.cli.console import out, print_json, talk
from windtunnel.engine import InputError

if TYPE_CHECKING:
    from windtunnel.calibrate.training import Outcome

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def calibrate() -> None:
    """Fit the few constants of a system on stated rows, and write them with their evidence."""


@app.command()
def collectives(
    systems: Annotated[
        list[str] | None, typer.Argument(metavar="SYSTEM…", help="Systems; all with rows if left out.")
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of measured tables.")] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Say what is found and write nothing.")] = False,
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
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of measured tables.")] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Say what is found and write nothing.")] = False,
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
    gpu: Annotated[str, typer.Argument(metavar="GPU", help="Sheet of `data/gpus`, or a path.")],
    profiles: Annotated[
        list[Path], typer.Argument(metavar="PROFILE…", help="Kernel profiles, or Vidur's tables of a layer.")
    ],
    dry: Annotated[bool, typer.Option("--dry-run", help="Say what is found and write nothing.")] = False,
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
    measured: Annotated[Path, typer.Argument(metavar="PINGPONG.CSV", help="What `mpirun -n 2 loggops` printed.")],
    target: Annotated[
        Path | None, typer.Option("-o", "--out", help="Piece of a scenario to write; printed if left out.")
    ] = None,
    statistic: Annotated[str, typer.Option("--by", help="min or median of the round trips of a size.")] = "min",
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
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
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help="A system of `data/systems`.")],
    constant: Annotated[str, typer.Argument(metavar="CONSTANT", help="`compute_share`, `dispatch` or `straggle`.")],
    rows: Annotated[
        list[str], typer.Argument(metavar="ROW…", help="Rows of the board by id; `*` stands for any text.")
    ],
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of measured tables.")] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Say what is found and write nothing.")] = False,
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
    gpu: Annotated[str, typer.Argument(metavar="GPU", help="A GPU of `data/gpus`.")],
    rows: Annotated[
        list[str], typer.Argument(metavar="ROW…", help="Rows of the board by id; `*` stands for any text.")
    ],
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of measured tables.")] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Say what is found and write nothing.")] = False,
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
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help="A system of `data/systems` with recorded reads.")],
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of measured tables.")] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Say what is found and write nothing.")] = False,
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


STORE = Path("calibration")
StoreOption = Annotated[Path, typer.Option("--store", metavar="DIR", help="Folder of measurements, sets and alarms.")]


@app.command()
def network(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="Scenario that stands for the measurements.")],
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="CSV: a column for each key that varies, `measured`, perhaps `group`."),
    ],
    constants: Annotated[
        list[str],
        typer.Option("--constant", metavar="KEY=FROM..TO UNIT", help="A key to fit and its bounds. Repeatable."),
    ],
    metric: Annotated[str, typer.Option(metavar="PATH", help="Figure of the summary that was measured.")] = (
        "jobs[0].iteration_time_s.mean"
    ),
    method: Annotated[str, typer.Option(help="`least-squares`, `hill`, `cma` or `bayes`.")] = "least-squares",
    store: Annotated[Path, typer.Option(help="Folder of runs.")] = Path("runs"),
) -> int:
    """Fit keys of a scenario on measurements, by runs that are kept: of a network, a host, anything that has a key.

    Each group of rows is left out in turn and predicted by what was fitted without it.
    """
    from windtunnel.calibrate.keys import calibrate as fit

    found = fit(scenario, table, constants, metric, method, store)
    for name, value in found.values.items():
        interval = found.intervals.get(name)
        known = "known only in combination" if interval is None else f"95% from {interval[0]:.4g} to {interval[1]:.4g}"
        out().print(Text(f"{name}: {value:.4g} {found.units[name]}  ({known})"), soft_wrap=True)
    out().print(f"{found.rows} rows: median error {found.before:.2%}, fitted {found.after:.2%}")
    for group, error in found.left_out.items():
        out().print(Text(f"  {group} left out: {error:.2%}"))
    return DONE


@app.command()
def watch(
    place: Annotated[
        str, typer.Argument(metavar="DIR|URL", help="Where measurements come in: a folder, a file, a URL.")
    ],
    system: Annotated[str, typer.Option(metavar="NAME", help="A system of `data/systems`, or the path of one.")],
    store: StoreOption = STORE,
    scenarios: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario", metavar="JOB=FILE", help="The scenario of a job whose iterations come in. Repeatable."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Take what is there, say it, and end.")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="How often to look.")] = 60.0,
) -> int:
    """Predict measurements as they come in, and say which constant has moved; proposes sets and adopts none.

    Reads logs of nccl-tests (`.log`, `.txt`, `.out`), records of NCCL's Inspector and iterations of jobs (`.jsonl`),
    tables of flows (`.csv`: `bytes`, `fct_us`, perhaps `class`) and traces of PyTorch's profiler (`.json`, `.json.gz`).
    """
    import datetime as dt
    import time

    from windtunnel.calibrate.loop.files import write_page
    from windtunnel.calibrate.loop.ledger import Ledger
    from windtunnel.calibrate.loop.models import Models
    from windtunnel.calibrate.loop.watch import Watch, day_line

    pairs = dict(pair.partition("=")[::2] for pair in scenarios or [])
    missing = [path for path in pairs.values() if not Path(path).is_file()]
    if missing:
        raise InputError(f"{missing[0] or '--scenario'}: no such file\n\nhint: expected JOB=FILE")
    if not place.startswith(("http://", "https://")) and not Path(place).exists():
        raise InputError(f"{place}: no such folder or file")
    known = _system(system)
    with Ledger(store) as ledger:
        told = out().print if once else talk().print
        watching = Watch(ledger, Models(known, pairs), lambda line: told(Text(line), soft_wrap=True))
        ledger.put("system", system)
        while True:
            watching.scan(place)
            now = dt.datetime.now(tz=dt.UTC)
            if once or ledger.get("day", f"{now:%Y-%m-%d}") != f"{now:%Y-%m-%d}":
                out().print(Text(day_line(ledger, now)), soft_wrap=True)
                write_page(ledger)
            ledger.put("day", f"{now:%Y-%m-%d}")
            if once:
                out().print(f"wrote {store / 'index.html'}", markup=False, soft_wrap=True)
                return DONE
            time.sleep(every)


def _system(name: str) -> Any:  # noqa: ANN401
    from windtunnel.validate.systems import read_system, read_systems

    if Path(name).is_file():
        return read_system(Path(name))
    known = read_systems(None)
    if name not in known:
        raise InputError(
            f"no file of system `{name}`\n\nhint: there are {', '.join(sorted(known))}, or the path of one"
        )
    return known[name]


@app.command(name="all")
def everything(
    store: StoreOption = STORE,
    method: Annotated[
        str, typer.Option(help="`least-squares`, `hill` (equation 3), `cma` or `bayes`.")
    ] = "least-squares",
    penalty: Annotated[
        float, typer.Option("--lambda", min=0, help="Equation 3's penalty on reversed orders, in multiples of sigma.")
    ] = 0.0,
) -> int:
    """Fit every constant that the measurements of a store determine, and propose the set; says what they cannot tell.

    Collectives, transfers and iterations together. Each group (a scale, a class, a job) is left out in turn and
    predicted by what was fitted without it.
    """
    from windtunnel.calibrate.loop.fit import calibrate as fit
    from windtunnel.calibrate.loop.ledger import Ledger
    from windtunnel.calibrate.loop.models import Models

    with Ledger(store, create=False) as ledger:
        current = ledger.current()
        found = fit(ledger, Models(_system(str(ledger.get("system")))), method, penalty)
        start = current.constants if current is not None else {}
    for name, interval in sorted(found.intervals.items()):
        value = found.answer.values[name]
        out().print(
            Text(
                f"{name}  {value:.4g}  ({value / start[name] - 1:+.1%}; 95% from {value * interval.low:.4g} "
                f"to {value * interval.high:.4g})"
            )
        )
    together = [name for name in found.unknown if name in found.answer.values]
    if together:
        out().print(Text(f"known only in combination: {', '.join(sorted(together))}"), soft_wrap=True)
    alone = [name for name in found.unknown if name not in found.answer.values]
    if alone:
        out().print(Text(f"no measurement depends on: {', '.join(sorted(alone))}"), soft_wrap=True)
    if found.answer.discrepancy:
        out().print(f"the model's own discrepancy: {found.answer.discrepancy:.1%} a row")
    out().print(f"median error of all kinds {found.before:.1%}, fitted {found.after:.1%}")
    for group, (before, after) in found.left_out.items():
        out().print(Text(f"  {group} left out: {before:.1%}, by a fit without it {after:.1%}"))
    out().print(f"set {found.proposed.id} is proposed; `windtunnel calibrate adopt {found.proposed.id}` takes it")
    return DONE


@app.command()
def sets(store: StoreOption = STORE) -> int:
    """List the sets of constants of a store, the oldest first."""
    from windtunnel.calibrate.loop.ledger import Ledger

    with Ledger(store, create=False) as ledger:
        current = ledger.current()
        for one in ledger.sets():
            mark = "*" if current is not None and current.id == one.id else " "
            out().print(Text(f"{mark} {one.id}  {one.why}"), soft_wrap=True)
    return DONE


@app.command()
def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="A set, by its name or the beginning of it.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    store: StoreOption = STORE,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> int:
    """Say which constants differ between two sets, and how far each is from the latest measurements."""
    from windtunnel.calibrate.loop.ledger import Ledger
    from windtunnel.calibrate.loop.models import Models
    from windtunnel.calibrate.loop.watch import RECENT, error_of
    from windtunnel.cli.console import print_json

    with Ledger(store, create=False) as ledger:
        pair = [ledger.set(first), ledger.set(second)]
        names = sorted({name for one in pair for name in one.constants})
        values = {name: [one.constants.get(name) for one in pair] for name in names}
        changed = {name: both for name, both in values.items() if both[0] != both[1]}
        models = Models(_system(str(ledger.get("system"))))
        errors = [error_of(ledger, models, one, RECENT) for one in pair]
        if json_:
            errors_ = [
                {"rows": n, "median_abs_error": m if n else None, "p95_abs_error": p if n else None}
                for n, m, p in errors
            ]
            print_json(json.dumps({"sets": [one.id for one in pair], "changed": changed, "errors": errors_}))
            return DONE
        for name, (a, b) in changed.items():
            ratio = f"{b / a - 1:+.2%}" if a and b else ""
            out().print(Text(f"{name}  {_figure(a)} → {_figure(b)}  {ratio}".rstrip()))
        if not changed:
            out().print("no constant differs")
        for one, (rows, median, p95) in zip(pair, errors, strict=True):
            if rows:
                out().print(
                    Text(f"{one.id}: latest {rows} measurements, median error {median:.2%}, 95th percentile {p95:.2%}")
                )
    return DONE


def _figure(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


@app.command()
def adopt(
    name: Annotated[str, typer.Argument(metavar="SET", help="A set, by its name or the beginning of it, or `latest`.")],
    store: StoreOption = STORE,
) -> int:
    """Predict by a set from now on, and write the system's file with it, which scenarios name."""
    return _take(name, "adopted", store)


@app.command()
def revert(store: StoreOption = STORE) -> int:
    """Go back to the set before the last that was adopted."""
    from windtunnel.calibrate.loop.ledger import Ledger

    with Ledger(store, create=False) as ledger:
        rows = ledger.db.execute("select action, id from adoptions order by rowid").fetchall()
        stack: list[str] = []
        for action, id_ in rows:
            if action == "reverted":
                stack.pop()
            elif action == "grown":
                stack[-1] = id_
            else:
                stack.append(id_)
        if len(stack) < 2:
            raise InputError(f"{store}: nothing to go back to: no set was adopted after the first")
        before = stack[-2]
    return _take(before, "reverted", store)


def _take(name: str, action: str, store: Path) -> int:
    from windtunnel.calibrate.loop.files import system_file, write_page
    from windtunnel.calibrate.loop.ledger import Ledger
    from windtunnel.calibrate.loop.models import Models
    from windtunnel.calibrate.loop.watch import taken

    with Ledger(store, create=False) as ledger:
        system = _system(str(ledger.get("system")))
        found = taken(ledger, Models(system), name, action)
        path = system_file(ledger, system, found)
        write_page(ledger)
    out().print(Text(f"predictions go by set {found.id}; wrote {path}"), soft_wrap=True)
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
