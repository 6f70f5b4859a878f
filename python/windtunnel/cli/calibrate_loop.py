"""The commands of `windtunnel calibrate` that keep a store: watching, sets, and fits on what was watched."""

from __future__ import annotations

import json as json_module
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from windtunnel.cli.app import DONE, FAILED
from windtunnel.cli.console import out, print_json, talk
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.engine import InputError

if TYPE_CHECKING:
    from windtunnel.calibrate.loop.ledger import Ledger
    from windtunnel.calibrate.loop.models import Models

app = Commands()

STORE = Path("calibration")
StoreOption = Annotated[Path, Option("--store", metavar="DIR", help="Folder of measurements, sets and alarms.")]


@app.command()
def network(
    scenario: Annotated[Path, Argument(metavar="SCENARIO", help="Scenario that stands for the measurements.")],
    table: Annotated[
        Path,
        Argument(metavar="TABLE", help="CSV: a column for each key that varies, `measured`, perhaps `group`."),
    ],
    constants: Annotated[
        list[str],
        Option("--constant", metavar="KEY=FROM..TO UNIT", help="A key to fit and its bounds. Repeatable."),
    ],
    metric: Annotated[str, Option(metavar="PATH", help="Figure of the summary that was measured.")] = (
        "jobs[0].iteration_time_s.mean"
    ),
    method: Annotated[str, Option(help="`least-squares`, `hill`, `cma` or `bayes`.")] = "least-squares",
    store: Annotated[Path, Option(help="Folder of runs.")] = Path("runs"),
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
    place: Annotated[str, Argument(metavar="DIR|URL", help="Where measurements come in: a folder, a file, a URL.")],
    system: Annotated[str, Option(metavar="NAME", help="A system of `data/systems`, or the path of one.")],
    store: StoreOption = STORE,
    scenarios: Annotated[
        list[str] | None,
        Option("--scenario", metavar="JOB=FILE", help="The scenario of a job whose iterations come in. Repeatable."),
    ] = None,
    once: Annotated[bool, Option("--once", help="Take what is there, say it, and end.")] = False,
    every: Annotated[float, Option(metavar="SECONDS", min=0.1, help="How often to look.")] = 60.0,
) -> int:
    """Predict measurements as they come in, and say which constant has moved; proposes sets and adopts none.

    Reads logs of nccl-tests (`.log`, `.txt`, `.out`), records of NCCL's Inspector and iterations of jobs (`.jsonl`),
    tables of flows (`.csv`: `bytes`, `fct_us`, perhaps `class`) and traces of PyTorch's profiler (`.json`), packed
    (`.gz`) or not, rotated (`flows.csv.1`) or not. With `--once` it ends with 1 where something could not be read.
    """
    import datetime as dt
    import time

    from windtunnel.calibrate.loop.files import write_page
    from windtunnel.calibrate.loop.judged import day_line
    from windtunnel.calibrate.loop.ledger import Ledger
    from windtunnel.calibrate.loop.models import Models
    from windtunnel.calibrate.loop.watch import Watch

    pairs = dict(pair.partition("=")[::2] for pair in scenarios or [])
    missing = [path for path in pairs.values() if not Path(path).is_file()]
    if missing:
        raise InputError(f"{missing[0] or '--scenario'}: no such file\n\nhint: expected JOB=FILE")
    if not place.startswith(("http://", "https://")) and not Path(place).exists():
        raise InputError(f"{place}: no such folder or file")
    known = _system(system)
    with Ledger(store) as ledger:
        told = out().print if once else talk().print
        # Paths are kept whole: the store is asked from other folders too.
        given = {job: str(Path(path).resolve()) for job, path in pairs.items()}
        models = Models(known, {**ledger.scenarios(apart_from=given), **given})
        watching = Watch(ledger, models, lambda line: told(Text(line), soft_wrap=True))
        ledger.put("system", str(Path(system).resolve()) if Path(system).is_file() else system)
        ledger.keep_scenarios(given)
        while True:
            heard = watching.scan(place)
            now = dt.datetime.now(tz=dt.UTC)
            if once or ledger.get("day", f"{now:%Y-%m-%d}") != f"{now:%Y-%m-%d}":
                out().print(Text(day_line(ledger, now)), soft_wrap=True)
                write_page(ledger)
            ledger.put("day", f"{now:%Y-%m-%d}")
            if once:
                for waiting in heard.waiting:
                    out().print(Text(waiting), soft_wrap=True)
                out().print(f"wrote {store / 'index.html'}", markup=False, soft_wrap=True)
                return FAILED if heard.failed else DONE
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


def _models(ledger: Ledger) -> Models:
    """What predicts the measurements of a store: its system, and the scenarios of its jobs."""
    from windtunnel.calibrate.loop.models import Models

    return Models(_system(str(ledger.get("system"))), ledger.scenarios())


@app.command(name="all")
def everything(
    store: StoreOption = STORE,
    method: Annotated[str, Option(help="`least-squares`, `hill` (equation 3), `cma` or `bayes`.")] = "least-squares",
    penalty: Annotated[
        float | None,
        Option(
            "--lambda",
            metavar="SIGMAS",
            min=0,
            help="Equation 3's penalty on reversed orders, in sigmas; left out, section C.1's sweep chooses it.",
        ),
    ] = None,
    evaluations: Annotated[
        int, Option(metavar="COUNT", min=1, help="Sets that `hill` or `cma` may try, in all fits together.")
    ] = 40_000,
    align: Annotated[
        bool,
        Option(
            "--align",
            help="Also the regression of Arcadia's section 7.1: fitted on small scales, judged on the largest.",
        ),
    ] = False,
) -> int:
    """Fit every constant that the measurements of a store tell, and propose the set; says how well each is known.

    A constant is determined where its 95% interval is within 2%, and known to what the interval says up to 10%.
    Collectives, transfers and iterations, one class after the other; what was found is kept, and a fit that was killed
    goes on. Each group (a scale, a class, a job) is left out in turn and predicted by what was fitted without it. What
    is known only in combination keeps its value.
    """
    from windtunnel.calibrate.loop.align import align as regression
    from windtunnel.calibrate.loop.fit import calibrate as fit
    from windtunnel.calibrate.loop.ledger import Ledger

    with Ledger(store, create=False) as ledger:
        current = ledger.current()
        models = _models(ledger)
        aligned = regression(ledger, models) if align else None
        found = fit(ledger, models, method, penalty, evaluations)
        start = current.constants if current is not None else {}
    for name, interval in sorted(found.intervals.items()):
        value = found.values[name]
        out().print(
            Text(
                f"{name}  {value:.4g}  ({value / start[name] - 1:+.1%}; {interval.words}: 95% from "
                f"{value * interval.low:.4g} to {value * interval.high:.4g})"
            )
        )
    together = [name for name in found.unknown if name in found.values]
    if together:
        out().print(Text(f"known only in combination: {', '.join(sorted(together))}"), soft_wrap=True)
    alone = [name for name in found.unknown if name not in found.values]
    if alone:
        out().print(Text(f"no measurement depends on: {', '.join(sorted(alone))}"), soft_wrap=True)
    if found.discrepancy:
        out().print(f"the model's own discrepancy: {found.discrepancy:.1%} a row")
    for name, multiple in found.multiples.items():
        how = "chosen by section C.1's sweep" if penalty is None else "as given"
        out().print(Text(f"{name}: lambda is {multiple:g} sigma, {how}"), soft_wrap=True)
    for name, reached in found.reached.items():
        out().print(Text(f"{name}: stopped by `--evaluations` after {reached}"), soft_wrap=True)
    rest = f" (with what is known in combination moved too, {found.together:.1%})" if together else ""
    out().print(f"median error of all kinds {found.before:.1%}, with what is known {found.after:.1%}{rest}")
    for group, (before, after) in found.left_out.items():
        out().print(Text(f"  {group} left out: {before:.1%}, by a fit without it {after:.1%}"))
    if aligned is not None:
        terms = ", ".join(f"{value:.3g} {name}" for name, value in aligned.coefficients.items())
        out().print(
            Text(
                f"regression on {', '.join(map(str, aligned.scales))} GPUs: {aligned.kinds} kinds on {aligned.largest} "
                f"GPUs are off by {aligned.after:.1%} (without it {aligned.before:.1%}); {terms}"
            ),
            soft_wrap=True,
        )
    out().print(f"set {found.proposed.id} is proposed; `windtunnel calibrate adopt {found.proposed.id}` takes it")
    return DONE


@app.command()
def seen(
    store: StoreOption = STORE,
    json: Annotated[bool, Option("--json", help="Print JSON and nothing else.")] = False,
) -> int:
    """Say which constants' steps of 3% the measurements of a store show, after how many logs, and which they cannot.

    Logs are as they came, with their noise as it was. The bound is the share of steps that any detector finds within 20
    logs, or 20 single measurements, at one false alarm a year.
    """
    from windtunnel.calibrate.loop.drift import Detector
    from windtunnel.calibrate.loop.ledger import Ledger
    from windtunnel.calibrate.loop.seen import WITHIN, shown
    from windtunnel.calibrate.loop.seen import seen as judged

    with Ledger(store, create=False) as ledger:
        groups = ledger.get("groups", {"told_apart": [], "not_seen": []})
        detector = Detector.of(ledger.get("detector", {}))
    found = judged(detector, groups["told_apart"])
    if json:
        record = {
            "logs": detector.logs,
            "within": WITHIN,
            "constants": [
                {
                    "names": one.name.split(" | "),
                    "found_within": one.within,
                    "needs": one.needs if math.isfinite(one.needs) else None,
                    "least": one.least if math.isfinite(one.least) else None,
                }
                for one in found
            ],
            "not_seen": groups["not_seen"],
        }
        print_json(json_module.dumps(record))
        return DONE
    if not found:
        out().print("nothing was tested yet: a kind is tested once it was measured 16 times and more")
    for one in found:
        name = one.name.replace(" | ", " or ")
        if one.within >= 0.5:
            said = f"is found after {shown(one.needs)} logs"
        else:
            said = f"cannot be seen within {WITHIN}: needs {shown(one.needs)} logs"
        limit = f"; any detector needs {shown(one.least)}, and finds {one.within:.0%} within {WITHIN}"
        out().print(Text(f"{name}  {said}{limit}"), soft_wrap=True)
    if groups["not_seen"]:
        out().print(Text(f"no measurement depends on: {', '.join(groups['not_seen'])}"), soft_wrap=True)
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
    first: Annotated[str, Argument(metavar="A", help="A set, by its name or the beginning of it.")],
    second: Annotated[str, Argument(metavar="B", help="Another.")],
    store: StoreOption = STORE,
    data: Annotated[Path | None, Option(metavar="DIR", help="Folder of measured tables.")] = None,
    json: Annotated[bool, Option("--json", help="Print JSON and nothing else.")] = False,
) -> int:
    """Say which constants differ between two sets, and how far each is off: the latest measurements, and the board."""
    from windtunnel.calibrate.loop.board import board_errors
    from windtunnel.calibrate.loop.judged import RECENT, error_of
    from windtunnel.calibrate.loop.ledger import Ledger

    with Ledger(store, create=False) as ledger:
        pair = [ledger.set(first), ledger.set(second)]
        models = _models(ledger)
        system = models.system
        errors = [error_of(ledger, models, one, RECENT) for one in pair]
    names = sorted({name for one in pair for name in one.constants})
    values = {name: [one.constants.get(name) for one in pair] for name in names}
    changed = {name: both for name, both in values.items() if both[0] != both[1]}
    board = board_errors(system, pair, data) if any(name.startswith("nccl.") for name in changed) else []
    told = [("latest measurements", errors), (f"nccl-tests rows of {system.name} on the board", board)]
    if json:
        record: dict[str, Any] = {"sets": [one.id for one in pair], "changed": changed}
        for key, (_, found) in zip(("errors", "board"), told, strict=True):
            record[key] = [
                {"rows": n, "median_abs_error": m if n else None, "p95_abs_error": p if n else None}
                for n, m, p in found
            ]
        print_json(json_module.dumps(record))
        return DONE
    for name, (a, b) in changed.items():
        ratio = f"{b / a - 1:+.2%}" if a and b else ""
        out().print(Text(f"{name}  {_figure(a)} → {_figure(b)}  {ratio}".rstrip()))
    if not changed:
        out().print("no constant differs")
    for what, found in told:
        for one, (rows, median, p95) in zip(pair, found, strict=False):
            if rows:
                out().print(
                    Text(f"{one.id}: {rows} {what}: median error {median:.2%}, 95th percentile {p95:.2%}"),
                    soft_wrap=True,
                )
    return DONE


def _figure(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


@app.command()
def adopt(
    name: Annotated[str, Argument(metavar="SET", help="A set, by its name or the beginning of it, or `latest`.")],
    store: StoreOption = STORE,
) -> int:
    """Predict by a set from now on, and write the system's file with it, which scenarios name."""
    return _take(name, "adopted", store)


@app.command()
def revert(store: StoreOption = STORE) -> int:
    """Go back to the set before the last that was adopted."""
    from windtunnel.calibrate.loop.ledger import Ledger

    with Ledger(store, create=False) as ledger:
        before = ledger.before()
    if before is None:
        raise InputError(f"{store}: nothing to go back to: no set was adopted after the first")
    return _take(before, "reverted", store)


def _take(name: str, action: str, store: Path) -> int:
    from windtunnel.calibrate.loop.files import system_file, write_page
    from windtunnel.calibrate.loop.judged import taken
    from windtunnel.calibrate.loop.ledger import Ledger

    with Ledger(store, create=False) as ledger:
        models = _models(ledger)
        current = ledger.current()
        already = current is not None and current.id == ledger.set(name).id
        found = taken(ledger, models, name, action)
        path = system_file(ledger, models.system, found)
        write_page(ledger)
    by = "go by set" if not already else "went already by set"
    out().print(Text(f"predictions {by} {found.id}; wrote {path}"), soft_wrap=True)
    return DONE
