"""`windtunnel whatif`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from windtunnel.cli.app import DONE
from windtunnel.cli.console import out, print_json, talk
from windtunnel.cli.run import parse_override

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def whatif() -> None:
    """Compare a scenario with itself, one thing changed."""


@app.command()
def drain(
    part: Annotated[
        str,
        typer.Argument(metavar="PART", help="Name of a switch, host, GPU, NIC, cable, rack or pod, such as `leaf0`."),
    ],
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="Scenario file (YAML).")],
    at: Annotated[str, typer.Option("--at", metavar="TIME", help="When it would begin, such as `2 d`.")],
    lasts: Annotated[str, typer.Option("--for", metavar="TIME", help="How long it lasts, such as `4 h`.")],
    notice: Annotated[str, typer.Option(metavar="TIME", help="How long before jobs would move away.")] = "30 min",
    seeds: Annotated[int, typer.Option(min=2, help="Runs of each option, with as many seeds.")] = 10,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Put every start off by a drawn part of this, such as `1 d`: how much hangs on the instant.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="HOURS", help="Job-hours that may be lost; a hundredth of those it takes if left out."
        ),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="NAME", help="Scheduler, in place of the scenario's.")
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Leave out rows of a job log that have holes, and count them.")
    ] = False,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Set a key of the scenario. Repeatable.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> int:
    """Drain PART of SCENARIO now, later, or after its jobs have moved away: and say whether that is safe."""
    from windtunnel.text import count, duration, percent
    from windtunnel.whatif import drain as compare

    def done(made: int, of: int) -> None:
        if made == of or made % max(1, of // 10) == 0:
            talk().print(f"{made} of {of} runs", style="dim")

    pairs: dict[str, object] = dict(parse_override(text) for text in overrides or [])
    if scheduler is not None:
        pairs["cluster.scheduler"] = scheduler
    if lenient:
        pairs["jobs.lenient"] = True
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
        done=None if json else done,
    )
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
    return DONE
