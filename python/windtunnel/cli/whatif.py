"""`windtunnel whatif`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table

from windtunnel.cli.app import DONE, INTERRUPTED
from windtunnel.cli.console import out, print_json, talk
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.cli.run import parse_override
from windtunnel.cli.study_options import (
    EngineOption,
    FreshOption,
    MemoryOption,
    NativeOption,
    WorkersOption,
    limits_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from windtunnel.studies.runner import Limits
    from windtunnel.whatif import Change, Means

KEPT = "interrupted: the runs that were done are kept; the same command goes on"

AGREE = "all seeds agree, so there is no interval; what is drawn seldom needs more of them: `--seeds`"

ScenarioArgument = Annotated[Path, Argument(metavar="SCENARIO", help="Scenario file (YAML).")]
SeedsOption = Annotated[int, Option("--seeds", min=2, help="Runs of each side, with as many seeds.")]
MetricOption = Annotated[
    list[str] | None, Option("--metric", metavar="PATH", help="Figure of the summary. Repeatable.")
]
SetOption = Annotated[
    list[str] | None,
    Option("--set", metavar="PATH=VALUE", help="Set a key of the scenario on both sides. Repeatable."),
]
StoreOption = Annotated[Path, Option("--store", help="Folder of runs.")]
JsonOption = Annotated[bool, Option("--json", help="Print JSON and nothing else.")]

app = Commands(no_args_is_help=True)


@app.callback()
def whatif() -> None:
    """Compare a scenario with itself, one thing changed."""


@app.command()
def drain(
    part: Annotated[
        str,
        Argument(metavar="PART", help="Name of a switch, host, GPU, NIC, cable, rack or pod, such as `leaf0`."),
    ],
    scenario: Annotated[Path, Argument(metavar="SCENARIO", help="Scenario file (YAML).")],
    at: Annotated[str, Option("--at", metavar="TIME", help="When it would begin, such as `2 d`.")],
    lasts: Annotated[str, Option("--for", metavar="TIME", help="How long it lasts, such as `4 h`.")],
    notice: Annotated[str, Option(metavar="TIME", help="How long before jobs would move away.")] = "30 min",
    seeds: Annotated[int, Option(min=2, help="Runs of each option, with as many seeds.")] = 10,
    window: Annotated[
        str | None,
        Option(
            metavar="TIME",
            help="Put every start off by a drawn part of this, such as `1 d`: how much hangs on the instant.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        Option(min=0, metavar="HOURS", help="Job-hours that may be lost; a hundredth of those it takes if left out."),
    ] = None,
    scheduler: Annotated[str | None, Option(metavar="NAME", help="Scheduler, in place of the scenario's.")] = None,
    lenient: Annotated[
        bool, Option("--lenient", help="Leave out rows of a job log that have holes, and count them.")
    ] = False,
    overrides: Annotated[
        list[str] | None, Option("--set", metavar="PATH=VALUE", help="Set a key of the scenario. Repeatable.")
    ] = None,
    fresh: FreshOption = False,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    engine: EngineOption = "local",
    allow_native: NativeOption = False,
    store: StoreOption = Path("runs"),
    json: JsonOption = False,
) -> int:
    """Drain PART of SCENARIO now, later, or after its jobs have moved away: and say whether that is safe."""
    from windtunnel.cli.study_progress import study_progress
    from windtunnel.text import count, duration, percent
    from windtunnel.whatif import drain as compare

    pairs: dict[str, object] = dict(parse_override(text) for text in overrides or [])
    if scheduler is not None:
        pairs["cluster.scheduler"] = scheduler
    if lenient:
        pairs["jobs.lenient"] = True
    with study_progress(0) as progress:
        try:
            found = compare(
                scenario,
                part,
                at=at,
                lasts=lasts,
                notice=notice,
                seeds=seeds,
                window=window,
                tolerance=tolerance,
                overrides=pairs,
                store=store,
                limits=limits_of(workers, memory=memory, engine=engine),
                fresh=fresh,
                allow_native=allow_native,
                done=None if json else progress.count,
            )
        except KeyboardInterrupt:
            talk().print(KEPT)
            return INTERRUPTED
    if json:
        print_json(json_module.dumps(found.record(), indent=2))
        return DONE
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("option", "begins"):
        table.add_column(name)
    for name in ("job-hours lost", "95% interval", "GPU-hours lost", "jobs hit"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for option in found.options:
        interval = "–" if option.interval is None else " to ".join(count(bound) for bound in option.interval)
        sure = "" if option.confidence is None else f" ({percent(option.confidence)} sure)"
        table.add_row(
            option.name,
            duration(option.at_s),
            count(option.lost_job_hours),
            interval,
            count(option.lost_gpu_hours),
            count(option.interrupted),
            f"{option.verdict}{sure}",
        )
    out().print(table)
    runs = f"{len(found.seeds)} seeds" if len(found.seeds) > 1 else "1 run each"
    if found.window_s > 0:
        runs += f", each put off by up to {duration(found.window_s)}"
    out().print(
        f"{found.part} out for {duration(found.lasts_s)}; {runs}; "
        f"tolerance {count(found.tolerance_job_hours)} of {count(found.job_hours)} job-hours; "
        f"least is lost: {found.best}",
        markup=False,
    )
    if len(found.seeds) == 1:
        talk().print(
            "nothing in this scenario is drawn, so there is no interval; "
            "`--window '1 d'` says how much hangs on the instant",
            markup=False,
        )
    elif all(option.interval is None for option in found.options):
        talk().print(AGREE, markup=False)
    return DONE


@app.command()
def fail(
    part: Annotated[str, Argument(metavar="PART", help="A component, such as `spine0` or `leaf0 -> spine1`.")],
    scenario: ScenarioArgument,
    at: Annotated[
        str | None, Option("--at", metavar="TIME", help="When it fails; from the start on if left out.")
    ] = None,
    lasts: Annotated[str | None, Option("--for", metavar="TIME", help="Until it is repaired.")] = None,
    seeds: SeedsOption = 10,
    metrics: MetricOption = None,
    overrides: SetOption = None,
    fresh: FreshOption = False,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    engine: EngineOption = "local",
    allow_native: NativeOption = False,
    store: StoreOption = Path("runs"),
    json: JsonOption = False,
) -> int:
    """Let PART of SCENARIO fail: what that does, with an interval over the seeds."""
    from windtunnel import whatif as asked

    pairs: dict[str, object] = dict(parse_override(text) for text in overrides or [])

    def ask(means: Means) -> Change:
        return asked.fail(scenario, part, at=at, lasts=lasts, overrides=pairs, means=means)

    limits = limits_of(workers, memory=memory, engine=engine)
    return _changed(
        ask, seeds, metrics, allow_native=allow_native, fresh=fresh, limits=limits, store=store, as_json=json
    )


@app.command(context_settings={"ignore_unknown_options": True})
def add(
    hosts: Annotated[int, Argument(metavar="HOSTS", help="How many more, such as `8`.")],
    scenario: ScenarioArgument,
    seeds: SeedsOption = 10,
    metrics: MetricOption = None,
    overrides: SetOption = None,
    fresh: FreshOption = False,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    engine: EngineOption = "local",
    allow_native: NativeOption = False,
    store: StoreOption = Path("runs"),
    json: JsonOption = False,
) -> int:
    """Add HOSTS to SCENARIO: what that does, with an interval over the seeds."""
    from windtunnel import whatif as asked

    pairs: dict[str, object] = dict(parse_override(text) for text in overrides or [])

    def ask(means: Means) -> Change:
        return asked.add(scenario, hosts, overrides=pairs, means=means)

    limits = limits_of(workers, memory=memory, engine=engine)
    return _changed(
        ask, seeds, metrics, allow_native=allow_native, fresh=fresh, limits=limits, store=store, as_json=json
    )


@app.command(name="set")
def set_key(
    key: Annotated[str, Argument(metavar="KEY=VALUE", help="Such as `network.load_balancer=spray`.")],
    scenario: ScenarioArgument,
    seeds: SeedsOption = 10,
    metrics: MetricOption = None,
    overrides: SetOption = None,
    fresh: FreshOption = False,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    engine: EngineOption = "local",
    allow_native: NativeOption = False,
    store: StoreOption = Path("runs"),
    json: JsonOption = False,
) -> int:
    """Set a key of SCENARIO: what that does, with an interval over the seeds."""
    from windtunnel import whatif as asked

    pairs: dict[str, object] = dict(parse_override(text) for text in overrides or [])
    changed: dict[str, object] = dict([parse_override(key)])

    def ask(means: Means) -> Change:
        return asked.change(scenario, changed, overrides=pairs, means=means)

    limits = limits_of(workers, memory=memory, engine=engine)
    return _changed(
        ask, seeds, metrics, allow_native=allow_native, fresh=fresh, limits=limits, store=store, as_json=json
    )


def _changed(
    ask: Callable[[Means], Change],
    seeds: int,
    metrics: list[str] | None,
    *,
    allow_native: bool,
    fresh: bool,
    limits: Limits,
    store: Path,
    as_json: bool,
) -> int:
    """Asks, and prints what a change does."""
    from windtunnel.cli.study_progress import study_progress
    from windtunnel.whatif import Means
    from windtunnel.words import difference_text, figure_text

    with study_progress(0) as progress:
        try:
            means = Means(seeds, tuple(metrics or ()), store, limits, fresh, progress, allow_native)
            found = ask(means)
        except KeyboardInterrupt:
            talk().print(KEPT)
            return INTERRUPTED
    if as_json:
        print_json(json_module.dumps(found.record(), indent=2))
        return DONE
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("figure", overflow="fold")
    for name in ("before", "after", "change", "95% interval"):
        table.add_column(name, justify="right")
    table.add_column("")
    for one in found.differences:
        sign = "+" if one.difference > 0 else "-" if one.difference < 0 else ""
        interval = "–"
        if one.interval is not None:
            interval = " to ".join(
                f"{'-' if end < 0 else ''}{difference_text(one.metric, end)}" for end in one.interval
            )
        table.add_row(
            one.metric, figure_text(one.metric, one.before), figure_text(one.metric, one.after),
            f"{sign}{difference_text(one.metric, one.difference)}", interval,
            "same" if one.is_same else "" if one.is_sure else "unclear",
        )  # fmt: skip
    out().print(table)
    runs = f"{len(found.seeds)} seeds" if len(found.seeds) > 1 else "nothing is drawn: 1 run each"
    out().print(f"{found.what}; {runs}", markup=False, soft_wrap=True)
    if len(found.seeds) > 1 and all(one.interval is None for one in found.differences):
        talk().print(AGREE, markup=False)
    return DONE
