"""`windtunnel layouts`."""

from __future__ import annotations

import json as json_module
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from windtunnel.cli.app import DONE, FAILED, INTERRUPTED
from windtunnel.cli.console import say
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.cli.option_lists import names, numbers
from windtunnel.cli.search_bar import SearchBar
from windtunnel.cli.study_options import (
    EngineOption,
    MemoryOption,
    TimeLimitOption,
    WorkersOption,
    limits_of,
)
from windtunnel.engine import InputError
from windtunnel.results.folder import TABLES, check_file

if TYPE_CHECKING:
    from windtunnel.source import Source

app = Commands()


@app.command()
def layouts(
    scenario: Annotated[Path, Argument(help="Scenario file (YAML), `-` for standard input.", metavar="SCENARIO")],
    job: Annotated[str | None, Option(metavar="NAME", help="Which job (default: the first).")] = None,
    gpus: Annotated[
        int | None, Option(min=1, help="GPUs to lay it out on (default: those of its layout, else all).")
    ] = None,
    fabric: Annotated[
        str,
        Option(help="Rank on the `ideal` fabric, where NICs alone are shared, or on the scenario's `real` one."),
    ] = "ideal",
    top: Annotated[int, Option(min=1, help="How many of the best must be exact.")] = 20,
    all_: Annotated[bool, Option("--all", help="Run every layout that fits, not those that can be best.")] = False,
    schedule: Annotated[str | None, Option(metavar="NAMES", help="Schedules (default: 1f1b,interleaved).")] = None,
    chunks: Annotated[
        str | None, Option(metavar="NUMBERS", help="Chunks of `interleaved` (default: those that divide, to 8).")
    ] = None,
    micro_batch: Annotated[str | None, Option(metavar="NUMBERS", help="Default: 1,2,4 and the file's.")] = None,
    zero: Annotated[str | None, Option(metavar="NUMBERS", help="ZeRO stages (default: 1,3 and the file's).")] = None,
    recompute: Annotated[str | None, Option(metavar="NAMES", help="Default: none,full and the file's.")] = None,
    divisors: Annotated[
        bool, Option("--divisors", help="Sizes take all divisors of the GPUs, not powers of two alone.")
    ] = False,
    overrides: Annotated[
        list[str] | None, Option("--set", metavar="PATH=VALUE", help="Set a key of the scenario. Repeatable.")
    ] = None,
    refused: Annotated[bool, Option("--refused", help="Print also those that were refused or not run.")] = False,
    workers: WorkersOption = None,
    time_limit: TimeLimitOption = None,
    memory: MemoryOption = None,
    engine: EngineOption = "local",
    fresh: Annotated[bool, Option("--fresh", help="Run all anew.")] = False,
    store: Annotated[Path, Option(help="Folder of runs.")] = Path("runs"),
    out: Annotated[Path | None, Option(metavar="FILE", help="Table of all layouts (.parquet or .csv).")] = None,
    json: Annotated[bool, Option("--json", help="Print the rows as JSON and nothing else.")] = False,
) -> int:
    """List every layout of a job on its GPUs, with its memory, and rank them by the time of an iteration."""
    from windtunnel.cli.run import parse_override
    from windtunnel.cli.show_layouts import show, write_table
    from windtunnel.layout.job import read_job
    from windtunnel.layout.search import search
    from windtunnel.layout.space import Space
    from windtunnel.source import read_source
    from windtunnel.studies.store import Store

    if fabric not in ("ideal", "real"):
        raise InputError(f"--fabric: expected `ideal` or `real`, found `{fabric}`")
    check_file(out, "--out", TABLES)
    limits = limits_of(workers, time_limit, memory=memory, engine=engine)
    space = Space(
        schedules=names(schedule) or Space.schedules,
        chunks=numbers("--chunks", chunks, 2),
        micro_batches=numbers("--micro-batch", micro_batch, 1),
        zero=numbers("--zero", zero, 0),
        recompute=names(recompute),
        divisors=divisors,
    )
    pairs = [parse_override(text) for text in overrides or []]
    asked = read_job(read_source(scenario), pairs, job, gpus)
    with Store(store) as opened, SearchBar("examining") as bar:
        try:
            rows = search(
                asked, opened, space=space, fabric="real" if fabric == "real" else "ideal",
                top=None if all_ else top, limits=limits, fresh=fresh,
                examining=partial(bar.at, "examining"), progress=bar.ran,
            )  # fmt: skip
        except KeyboardInterrupt:
            say("interrupted: what has run is kept; the same command goes on")
            return INTERRUPTED
    if out is not None:
        write_table(rows, out)
    if json:
        from windtunnel.cli.console import print_json

        print_json(json_module.dumps({"rows": [row.record() for row in rows]}))
    else:
        show(asked, rows, "real" if fabric == "real" else "ideal", top=top, refused=refused)
    return DONE if any(row.state == "done" for row in rows) else FAILED


def best_layout(source: Source, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Overrides that lay the first job of a scenario out as is fastest on an ideal fabric: `run --layout auto`."""
    from windtunnel.layout.job import read_job
    from windtunnel.layout.search import search
    from windtunnel.source import override_text
    from windtunnel.studies.store import Store

    job = read_job(source, pairs)
    with Store(Path("runs")) as store, SearchBar("examining") as bar:
        rows = search(job, store, top=1, examining=partial(bar.at, "examining"), progress=bar.ran)
    best = rows[0]
    if best.state != "done":
        said = best.message or "none fits"
        raise InputError(f"{source.name}: no layout of {job.gpus} GPUs can run: {said}")
    values = best.layout.keys(job.place)
    shown = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in values.items() if value is not None)
    say(f"layout of {job.gpus} GPUs, the fastest of {len(rows):,}: {shown}")
    return [
        (f"{job.place}.workload.training.layers_per_stage", "null"),
        *((key, override_text(value)) for key, value in values.items()),
    ]
