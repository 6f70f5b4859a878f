"""`windtunnel explore`."""

from __future__ import annotations

import json as json_module
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from windtunnel.cli.app import DONE, FAILED, INTERRUPTED
from windtunnel.cli.console import say
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.cli.search_bar import SearchBar
from windtunnel.cli.study_options import (
    EngineOption,
    MemoryOption,
    WorkersOption,
    limits_of,
)
from windtunnel.engine import InputError

if TYPE_CHECKING:
    from windtunnel.explore.advise import Advice
    from windtunnel.explore.prove import Network, Proven
    from windtunnel.explore.search import Found
    from windtunnel.explore.space import Candidate
    from windtunnel.layout.job import Job
    from windtunnel.layout.priced import Answer
    from windtunnel.studies.runner import Limits
    from windtunnel.studies.store import Store

app = Commands()


@app.command()
def explore(
    scenario: Annotated[Path, Argument(help="Scenario file (YAML), `-` for standard input.", metavar="SCENARIO")],
    job: Annotated[str | None, Option(metavar="NAME", help="Which job (default: the first).")] = None,
    gpus: Annotated[
        str | None, Option(metavar="NUMBERS", help="GPUs (default: those of its layout, else all).")
    ] = None,
    tp: Annotated[str | None, Option(metavar="NUMBERS", help="Tensor-parallel degrees.")] = None,
    cp: Annotated[str | None, Option(metavar="NUMBERS", help="Context-parallel degrees.")] = None,
    ep: Annotated[str | None, Option(metavar="NUMBERS", help="Expert-parallel degrees.")] = None,
    pp: Annotated[str | None, Option(metavar="NUMBERS", help="Pipeline stages.")] = None,
    zero: Annotated[str | None, Option(metavar="NUMBERS", help="ZeRO stages (default: 1, 3, own).")] = None,
    replicate: Annotated[
        str | None, Option(metavar="NUMBERS", help="Replicas of shards, HSDP (default: 1, one a building).")
    ] = None,
    order: Annotated[
        str | None, Option(metavar="NAMES", help="pp-out, dp-out (default: both over several buildings).")
    ] = None,
    schedule: Annotated[
        str | None, Option(metavar="NAMES", help="Schedules (default: 1f1b,interleaved,zb-h1,dorapp,zbv).")
    ] = None,
    chunks: Annotated[str | None, Option(metavar="NUMBERS", help="Chunks of a rank (default: to 8).")] = None,
    run_length: Annotated[
        str | None, Option(metavar="NUMBERS", help="Run lengths (default: pp, twice that, all; 0: pp).")
    ] = None,
    micro_batch: Annotated[str | None, Option(metavar="NUMBERS", help="Default: 1,2,4 and the file's.")] = None,
    recompute: Annotated[str | None, Option(metavar="NAMES", help="Default: none,full and the file's.")] = None,
    context_least: Annotated[
        int | None, Option(min=1, help="Tokens of a context-parallel rank at least (default: 2048).")
    ] = None,
    divisors: Annotated[bool, Option("--divisors", help="All divisors, not powers of two alone.")] = False,
    uneven: Annotated[bool, Option("--uneven", help="Try stages with different numbers of layers.")] = False,
    keep: Annotated[
        int | None, Option(min=1, help="Best layouts whose layers are moved (--uneven; default: 1000).")
    ] = None,
    perturb: Annotated[
        int | None, Option(min=1, help="Ways in which the layers of each are moved (default: 100).")
    ] = None,
    ratio: Annotated[
        float | None, Option(min=1.0, help="Longest stage over the shortest at most (default: 3).")
    ] = None,
    budget: Annotated[str | None, Option(metavar="SIZE", help="Memory of a GPU that may be used.")] = None,
    objective: Annotated[
        str | None, Option(help="time, memory, energy or dollars (of a token): rank by it (default: time).")
    ] = None,
    top: Annotated[int, Option(min=1, help="Layouts that are shown.")] = 10,
    prove: Annotated[int | None, Option(min=0, help="Best layouts that are simulated as flows (default: 5).")] = None,
    packet: Annotated[int | None, Option(min=0, help="Of these, as many packet by packet (default: none).")] = None,
    load_balancer: Annotated[
        str | None, Option(metavar="NAMES", help="Load balancers to try packet by packet.")
    ] = None,
    queue_pairs: Annotated[str | None, Option(metavar="NUMBERS", help="Queue pairs to try likewise.")] = None,
    transport: Annotated[str | None, Option(metavar="NAMES", help="Transports to try likewise.")] = None,
    advise: Annotated[
        bool, Option("--advise", help="Try balancing, queue pairs, congestion control and loss recovery by packets.")
    ] = False,
    fabric: Annotated[str, Option(help="`real`, or `ideal`, where NICs alone are shared.")] = "real",
    seed: Annotated[int, Option(help="Of the layers that are moved.")] = 1,
    overrides: Annotated[
        list[str] | None, Option("--set", metavar="PATH=VALUE", help="Set a key of the scenario. Repeatable.")
    ] = None,
    workers: WorkersOption = None,
    time_limit: Annotated[
        float | None,
        Option(min=0.001, metavar="SECONDS", help="Longest run of the proof; the search itself has no limit."),
    ] = None,
    memory: MemoryOption = None,
    engine: EngineOption = "local",
    fresh: Annotated[bool, Option("--fresh", help="Run all anew.")] = False,
    store: Annotated[Path, Option(help="Folder of runs.")] = Path("runs"),
    page: Annotated[Path | None, Option(metavar="FILE", help="Write the page (HTML).")] = None,
    save: Annotated[Path | None, Option(metavar="FILE", help="Write the winner as a scenario (YAML).")] = None,
    settings: Annotated[
        str | None, Option(metavar="NAME", help="Print its settings: megatron, torchtitan, nanotron or nemo.")
    ] = None,
    json: Annotated[bool, Option("--json", help="Print the outcome as JSON and nothing else.")] = False,
) -> int:
    """Search for the best layout of a job, prove it by simulation, and write it down."""
    from windtunnel.cli.option_lists import names, numbers
    from windtunnel.cli.run import parse_override
    from windtunnel.explore.export import FRAMEWORKS
    from windtunnel.explore.outcome import outcome
    from windtunnel.explore.rates import check_objective
    from windtunnel.explore.search import OBJECTIVES, search
    from windtunnel.explore.section import section
    from windtunnel.layout.job import read_job
    from windtunnel.results.folder import check_files
    from windtunnel.source import read_source
    from windtunnel.studies.store import Store

    _one_of("--fabric", fabric, ("real", "ideal"))
    _one_of("--objective", objective, OBJECTIVES)
    _one_of("--settings", settings, FRAMEWORKS)
    check_files({"--page": page, "--save": save})
    read, pairs = read_source(scenario), [parse_override(text) for text in overrides or []]
    given = {
        "job": job, "gpus": numbers("--gpus", gpus, 1), "tp": numbers("--tp", tp, 1), "cp": numbers("--cp", cp, 1),
        "ep": numbers("--ep", ep, 1), "pp": numbers("--pp", pp, 1), "zero": numbers("--zero", zero, 0),
        "replicate": numbers("--replicate", replicate, 1), "order": names(order), "schedule": names(schedule),
        "chunks": numbers("--chunks", chunks, 1), "run_length": numbers("--run-length", run_length, 0),
        "micro_batch": numbers("--micro-batch", micro_batch, 1), "recompute": names(recompute),
        "context_least": context_least, "divisors": divisors or None, "uneven": uneven or None, "keep": keep,
        "perturb": perturb, "ratio": ratio, "budget": budget, "objective": objective, "prove": prove, "packet": packet,
        "advise": advise or None,
    }  # fmt: skip
    limits = limits_of(workers, time_limit, memory=memory, engine=engine)
    wanted = section(read, pairs, given)
    space, how = wanted.space(), wanted.settings(seed=seed, ideal=fabric == "ideal", shown=top)
    objective, flows, packets = wanted.objective, wanted.prove, wanted.packet
    at = wanted.place("gpus")
    asked, *_ = [read_job(read, pairs, wanted.job, number, at=at) for number in wanted.gpus or (None,)]
    check_objective(asked, objective, asked.gpus, at=wanted.place("objective"))
    with Store(store) as opened, SearchBar("asking the cost model") as bar:
        found = search(
            asked, space, how, gpus=wanted.gpus,
            progress=lambda what, done, total: bar.at(f"asking: {what}", done, total),
        )  # fmt: skip
        if not found.rows and not found.stopped:
            raise InputError(f"{asked.source.name}: {found.empty()}")
        ordered = found.ranked(objective)
        rows = _proven(
            ordered, found, asked, opened, objective=objective, flows=max(flows, packets), packets=packets,
            networks=_networks(load_balancer, queue_pairs, transport), ideal=fabric == "ideal",
            limits=limits, fresh=fresh, bar=bar,
        )  # fmt: skip
        # From here on it is the job as the winner lays it out.
        asked = replace(asked, gpus=rows[0].candidate.gpus) if rows else asked
        advice = _advised(asked, rows, found, opened, limits, bar, fresh=fresh) if wanted.advise else None
    if not rows:
        say("interrupted before any layout was found")
        return INTERRUPTED
    record = outcome(asked, found, rows, top=top, objective=objective)
    record["network"] = None if advice is None else advice.record()
    _handed_on(asked, found, rows, record, advice, page=page, save=save, settings=settings)
    if json:
        from windtunnel.cli.console import print_json

        print_json(json_module.dumps(record))
    else:
        _shown(asked, found, rows, record, advice, top=top, settings=settings, advise=wanted.advise)
    if found.stopped:
        say("stopped: this is the best that was found until then; what has run is kept")
        return INTERRUPTED
    return _proof(rows, flows)


def _proof(rows: list[Proven], flows: int) -> int:
    """The exit status by the runs that were to prove layouts; says why some gave no time."""
    ran, failed = sum(row.flow_s is not None for row in rows), [row for row in rows if row.message is not None]
    if failed:
        why = (failed[0].message or "").partition("\n")[0]
        say(f"warning: {len(failed)} of {ran + len(failed)} layouts gave no time as flows: {why}")
    return FAILED if flows > 0 and not ran else DONE


def _handed_on(
    job: Job,
    found: Found,
    rows: list[Proven],
    record: dict[str, object],
    advice: Advice | None,
    *,
    page: Path | None,
    save: Path | None,
    settings: str | None,
) -> None:
    """Writes the page and the winner, and says what the framework asked for lacks."""
    from windtunnel.explore.export import scenario as scenario_text
    from windtunnel.explore.frameworks import told
    from windtunnel.explore.page import explorer_page
    from windtunnel.results.folder import write_beside

    if page is not None:
        write_beside(page, explorer_page(job, found, rows, record, advice).encode())
    if save is not None:
        write_beside(save, scenario_text(job, rows[0].candidate, rows[0].network.values()).encode())
    for path in (page, save):
        if path is not None:
            # Folders on the way are made, so a slip of the pen would go unseen.
            say(f"wrote {path}")
    if settings is not None:
        said = told(job, rows[0].candidate, settings)
        record["settings"] = said.record()
        if (warning := said.warning()) is not None:
            say(f"warning: {warning}")


def _shown(
    job: Job,
    found: Found,
    rows: list[Proven],
    record: dict[str, object],
    advice: Advice | None,
    *,
    top: int,
    settings: str | None,
    advise: bool,
) -> None:
    from windtunnel.cli.show_explore import show
    from windtunnel.explore.frameworks import told

    show(job, found, rows, record, advice, top=top)
    if advise and advice is None and not found.stopped:
        say("the best layout sends nothing between hosts, so no setting of the network matters")
    if settings is not None:
        print()
        print(told(job, rows[0].candidate, settings).text(), end="")


def _proven(
    ordered: list[tuple[Candidate, Answer]],
    found: Found,
    job: Job,
    store: Store,
    *,
    bar: SearchBar,
    objective: str,
    flows: int,
    packets: int,
    networks: list[Network],
    ideal: bool,
    limits: Limits,
    fresh: bool,
) -> list[Proven]:
    """The layouts in their order, after the best have run; Ctrl-C leaves those that have run first."""
    from windtunnel.explore.prove import Proven, prove

    rows = [Proven(candidate, answer, rank) for rank, (candidate, answer) in enumerate(ordered, start=1)]
    if not rows or found.stopped or not flows:
        return rows

    def told(now: list[Proven]) -> None:
        rows[:] = now

    try:
        return prove(
            job, ordered, store, flows=flows, packets=packets, networks=networks, ideal=ideal, objective=objective,
            limits=limits, fresh=fresh, progress=bar.ran, told=told,
        )  # fmt: skip
    except KeyboardInterrupt:
        found.stopped = True
        return sorted(rows, key=lambda row: row.placed(objective))


def _advised(
    job: Job, rows: list[Proven], found: Found, store: Store, limits: Limits, bar: SearchBar, *, fresh: bool
) -> Advice | None:
    """What to set of the network for the best layout; a search that was stopped has none, nor if Ctrl-C comes here."""
    from windtunnel.explore.advise import advise
    from windtunnel.explore.search import facts_of

    if not rows or found.stopped:
        return None
    facts = facts_of(job)
    host_gpus = int(facts["gpus"]) // max(1, int(facts["hosts"]))
    try:
        return advise(job, rows[0].candidate, host_gpus, store, limits=limits, fresh=fresh, progress=bar.ran)
    except KeyboardInterrupt:
        found.stopped = True
        return None


def _networks(balancers: str | None, pairs: str | None, transports: str | None) -> list[Network]:
    """Every combination of what is named; one of the scenario's own if nothing is."""
    from windtunnel.cli.option_lists import names, numbers
    from windtunnel.explore.prove import Network

    return [
        Network(balancer, number, transport)
        for balancer in names(balancers) or (None,)
        for number in numbers("--queue-pairs", pairs, 1) or (None,)
        for transport in names(transports) or (None,)
    ]


def _one_of(option: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        names = ", ".join(f"`{name}`" for name in known)
        raise InputError(f"{option}: expected one of {names}, found `{value}`")
