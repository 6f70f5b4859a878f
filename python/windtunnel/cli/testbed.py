"""`windtunnel testbed`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from windtunnel.cli.app import DONE
from windtunnel.cli.console import out, print_json, talk
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.engine import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.testbed.compare import Judged
    from windtunnel.testbed.fabric import Shape

app = Commands(no_args_is_help=True)

JsonOption = Annotated[bool, Option("--json", help="Print JSON and nothing else.")]


@app.callback()
def testbed() -> None:
    """Build a real leaf–spine in network namespaces (root, Linux), send over it, and compare with predictions."""


@app.command()
def run(
    leaves: Annotated[int, Option(min=2, max=8, help="Leaves.")] = 4,
    hosts: Annotated[int, Option(min=1, max=8, help="Hosts of a leaf.")] = 2,
    spines: Annotated[int, Option(min=1, max=8, help="Spines.")] = 2,
    rate: Annotated[str, Option(metavar="RATE", help="Rate of every link.")] = "20 Mbps",
    queue: Annotated[str, Option(metavar="SIZE", help="What a port's queue holds.")] = "150 KB",
    size: Annotated[str, Option(metavar="SIZE", help="Mean size of a flow.")] = "800 KB",
    congestion: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="`reno`, `cubic`, `bbr`: the kernel's TCP. Repeatable.  [default: reno, cubic]"),
    ] = None,
    patterns: Annotated[
        list[str] | None, Option("--pattern", help="`permutation`, `incast`, `arrivals`. Repeatable.")
    ] = None,
    runs: Annotated[int, Option(min=1, max=50, help="Runs of each pattern and congestion control.")] = 4,
    file: Annotated[Path, Option("--out", metavar="FILE", help="The table of flows.")] = Path("testbed.csv"),
    acknowledgements: Annotated[
        str,
        Option(metavar="WAY", help="Whether they go `first` at ports, as in the packet model, or `among` data."),
    ] = "first",
    json: JsonOption = False,
) -> int:
    """Send flows over a testbed, write their completion times, and compare them with packet and flow fidelity."""
    from windtunnel.results.folder import write_beside
    from windtunnel.testbed import table
    from windtunnel.testbed.compare import TRANSPORTS
    from windtunnel.testbed.fabric import built, congestions
    from windtunnel.testbed.flows import PATTERNS, Done, drawn, send
    from windtunnel.testbed.shell import demand
    from windtunnel.validate.quantities import quantity

    shape = _shape((leaves, hosts, spines), rate, queue, acknowledgements)
    mean = round(quantity(size, "size", "--size"))
    names = congestion or ["reno", "cubic"]
    for name, known, option in [
        *((n, tuple(TRANSPORTS), "--congestion") for n in names),
        *((p, PATTERNS, "--pattern") for p in patterns or []),
    ]:
        if name not in known:
            raise InputError(f"{option}: no such: `{name}`\n\nhint: there are {', '.join(known)}")
    demand()
    congestions(names)
    if runs < 2:
        talk().print(
            "one run of each pattern and congestion control: the table is written, but fitting on one half and "
            "predicting the other needs two (`--runs 2`)"
        )
    done: list[Done] = []
    with built(shape) as fabric:
        for name in names:
            for pattern in patterns or PATTERNS:
                for seed in range(runs):
                    flows = drawn(pattern, seed, leaves, hosts, mean)
                    sent, seconds, bound = send(fabric, flows, name, len(done))
                    done.append(Done(f"{name}-{pattern}-{seed}", pattern, name, sent, seconds, bound))
                    talk().print(
                        f"{done[-1].name}: {len(sent)} flows, the longest {max(seconds):.2f} s"
                        + (", host-bound" if bound else ""),
                        style="dim",
                    )
                    # What there is stays, whatever comes.
                    write_beside(file, table.written(shape, done).encode())
    return _compared(file, json=json)


@app.command()
def compare(
    file: Annotated[Path, Argument(metavar="FILE", help="A table that `windtunnel testbed run` wrote.")],
    json: JsonOption = False,
) -> int:
    """Fit two constants on half of a table's runs, and predict the other half; needs no root."""
    return _compared(file, json=json)


@app.command()
def train(
    leaves: Annotated[int, Option(min=2, max=8, help="Leaves.")] = 4,
    hosts: Annotated[int, Option(min=1, max=8, help="Hosts of a leaf, each with a rank.")] = 2,
    spines: Annotated[int, Option(min=1, max=8, help="Spines.")] = 2,
    rate: Annotated[str, Option(metavar="RATE", help="Rate of every link.")] = "20 Mbps",
    queue: Annotated[str, Option(metavar="SIZE", help="What a port's queue holds.")] = "150 KB",
    runs: Annotated[int, Option(min=1, max=50, help="Runs: of a model each, its ranks on drawn hosts.")] = 8,
    python: Annotated[
        str | None,
        Option(metavar="PATH", help="A Python that has PyTorch.  [default: $WINDTUNNEL_TORCH_PYTHON, else this one]"),
    ] = None,
    file: Annotated[Path, Option("--out", metavar="FILE", help="What was measured, a run a line.")] = Path(
        "training.jsonl"
    ),
    saved: Annotated[
        Path | None, Option("--from", metavar="FILE", help="Compare what FILE has, and train nothing; needs no root.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Train small transformers by PyTorch and gloo over a testbed, and predict the time of a step from packets."""
    from windtunnel.results.folder import write_beside
    from windtunnel.testbed import kept, training

    if saved is not None:
        return _predicted(saved, json=json)
    shape = _shape((leaves, hosts, spines), rate, queue)
    done: list[training.Trained] = []
    for run in training.trained(shape, runs, python or training.usual_python()):
        done.append(run)
        talk().print(
            f"{run.name}: a step of {run.step:.2f} s" + (", host-bound" if run.host_bound else ""), style="dim"
        )
        write_beside(file, kept.written(shape, done).encode())
    return _predicted(file, json=json)


@app.command()
def mpi(
    leaves: Annotated[int, Option(min=2, max=8, help="Leaves.")] = 4,
    hosts: Annotated[int, Option(min=1, max=8, help="Hosts of a leaf, each with a rank.")] = 2,
    spines: Annotated[int, Option(min=1, max=8, help="Spines.")] = 2,
    rate: Annotated[str, Option(metavar="RATE", help="Rate of every link.")] = "20 Mbps",
    queue: Annotated[str, Option(metavar="SIZE", help="What a port's queue holds.")] = "150 KB",
    algorithms: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="`ring`, `recursive`, `doubling`: algorithms of a launch. Repeatable."),
    ] = None,
    sizes: Annotated[
        list[str] | None,
        Option("--size", metavar="SIZE", help="Of collectives. Repeatable.  [default: 1 KiB to 1 MiB]"),
    ] = None,
    congestion: Annotated[str, Option(metavar="NAME", help="`reno`, `cubic`, `bbr`: the kernel's TCP.")] = "cubic",
    runs: Annotated[int, Option(min=1, max=50, help="Launches of each set of algorithms, on drawn hosts.")] = 2,
    file: Annotated[Path, Option("--out", metavar="FILE", help="What was measured, a launch a line.")] = Path(
        "mpi.jsonl"
    ),
    saved: Annotated[
        Path | None, Option("--from", metavar="FILE", help="Compare what FILE has, and run nothing; needs no root.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Run Open MPI's collectives over a testbed, and predict their times at packet and flow fidelity."""
    from windtunnel.results.folder import write_beside
    from windtunnel.testbed import kept
    from windtunnel.testbed import mpi as program
    from windtunnel.testbed.compare import TRANSPORTS
    from windtunnel.testbed.schedules import SETS
    from windtunnel.validate.quantities import quantity

    if saved is not None:
        return _collectives(saved, json=json)
    names = algorithms or list(SETS)
    for name, known, option in [*((n, SETS, "--algorithms") for n in names), (congestion, TRANSPORTS, "--congestion")]:
        if name not in known:
            raise InputError(f"{option}: no such: `{name}`\n\nhint: there are {', '.join(known)}")
    shape = _shape((leaves, hosts, spines), rate, queue, "short")
    amounts = [round(quantity(size, "size", "--size")) for size in sizes or []] or list(program.SIZES)
    done: list[program.Launched] = []
    for run in program.launches(shape, names, amounts, runs, congestion):
        done.append(run)
        bound = sum(run.host_bound(one) for one in run.measured)
        said = f"{run.name}: {len(run.measured)} programs" + (f", {bound} host-bound" if bound else "")
        talk().print(said, style="dim")
        write_beside(file, kept.written(shape, done).encode())
    return _collectives(file, json=json)


@app.command()
def clean(
    living: Annotated[bool, Option("--all", help="Also those whose process still runs.")] = False,
) -> int:
    """Take away what testbeds have left that were killed."""
    from windtunnel.testbed.fabric import remove
    from windtunnel.testbed.mpi import swept
    from windtunnel.testbed.shell import demand

    demand()
    gone = remove(living=living)
    swept()
    out().print(f"{len(gone)} namespaces taken away")
    return DONE


def _shape(sizes: tuple[int, int, int], rate: str, queue: str, acknowledgements: str = "first") -> Shape:
    """The shape that options say. Raises `InputError` for what is no testbed."""
    from windtunnel.testbed.fabric import Shape
    from windtunnel.validate.quantities import quantity

    bits, held = round(8 * quantity(rate, "rate", "--rate")), round(quantity(queue, "size", "--queue"))
    shape = Shape(*sizes, bits, held, acknowledgements)
    shape.check()
    return shape


def _compared(file: Path, *, json: bool) -> int:
    from windtunnel.testbed import table
    from windtunnel.testbed.compare import judged

    shape, runs = table.read(file)
    bound = [run.name for run in runs if run.host_bound]
    found = judged(shape, runs)
    if json:
        record = {"runs": len(runs), "host_bound": bound, "fidelities": [one.record() for one in found]}
        print_json(json_module.dumps(record))
        return DONE
    _show(found)
    if bound:
        out().print(Text(f"host-bound, left out: {', '.join(bound)}"), soft_wrap=True)
    return DONE


def _predicted(file: Path, *, json: bool) -> int:
    from windtunnel.testbed import training
    from windtunnel.testbed.predict import record

    found = record(*training.read(file))
    if json:
        print_json(json_module.dumps(found))
        return DONE
    for run in found["runs"]:
        error = "fitted on" if run["error"] is None else f"predicted {run['predicted']:.3f} s, {run['error']:+.1%}"
        error = "host-bound, left out" if run["host_bound"] else error
        out().print(
            f"{run['name']}: {run['measured']:.3f} s measured, {run['simulated']:.3f} s simulated, {error}",
            soft_wrap=True,
        )
    if found["fit"] is None:
        out().print("too few runs: half of them are fitted on, and the other half predicted")
        return DONE
    out().print(
        Text(
            f"packet: median error of a step {found['median_abs_error']:.1%}, largest {found['largest_abs_error']:.1%} "
            f"of runs not fitted on; without constants {found['raw']:.1%}; {found['fit']['besides'] * 1e3:.1f} ms "
            f"besides, factor {found['fit']['factor']:.3f}"
        ),
        soft_wrap=True,
    )
    return DONE


def _collectives(file: Path, *, json: bool) -> int:
    from windtunnel.testbed import mpi as program
    from windtunnel.testbed.mpi_predict import record

    found = record(*program.read(file))
    if json:
        print_json(json_module.dumps(found))
        return DONE
    if not found["fidelities"]:
        out().print("too few collectives: constants are fitted on half of their kinds, and the other half predicted")
    for row in found["programs"]:
        errors = ", ".join(f"{name} {error:+.1%}" for name, error in row["errors"].items() if error is not None)
        out().print(
            f"{row['launch']} {row['program']} ({row['algorithm']}): {row['measured'] * 1e3:.2f} ms measured, "
            + ("host-bound, left out" if row["host_bound"] else errors or "not predicted"),
            soft_wrap=True,
        )
    for name, one in found["fidelities"].items():
        costs = " and ".join(f"{1e6 * seconds:.0f}" for seconds in one["overheads"])
        kinds = ", ".join(f"{kind} {error:.1%}" for kind, error in one["by_kind"].items())
        out().print(
            Text(
                f"{name}: median error of a collective {one['median_abs_error']:.1%}, 95th percentile "
                f"{one['p95_abs_error']:.1%}, with {costs} µs a message fitted on other kinds; {kinds}"
            ),
            soft_wrap=True,
        )
    return DONE


def _show(found: Sequence[Judged]) -> None:
    if not found:
        out().print("too few runs: half of them are fitted on, and the other half predicted")
    for one in found:
        out().print(
            Text(
                f"{one.fidelity}: {one.flows} flows of runs not fitted on: median error of a flow "
                f"{one.median_abs_error:.1%} (95th percentile {one.p95_abs_error:.1%}; without constants {one.raw:.1%}"
                f"), of a run's median flow {one.median_of_runs:.1%}; {one.fit.besides * 1e3:.1f} ms besides, factor "
                f"{one.fit.factor:.3f}"
            ),
            soft_wrap=True,
        )
        for name, error in one.by_pattern.items():
            out().print(f"  {name}: {error:.1%}")
