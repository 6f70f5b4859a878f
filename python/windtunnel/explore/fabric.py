"""Fabrics for a job mix: designs of a Clos, what each costs by the sheets, and what the jobs take on it.

A design changes the tiers of the scenario's topology: how oversubscribed the leaves are, the rate above them, how many
cables go to each switch of the top tier (`bundle`), and how many planes there are. What leaves most ports of the top
tier empty is tried with the largest bundle that spares switches too. Every design within the budget is run with all
jobs of the scenario; runs are points of a study, kept in the store. A design's slowdown is the mean over GPUs of what
their jobs take over the least that any design makes them take.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.bill import REQUEST
from windtunnel.engine import InputError
from windtunnel.source import override_text
from windtunnel.studies.point import Point
from windtunnel.studies.runner import Limits, run_points
from windtunnel.topology_view.show import bundle_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windtunnel.source import Source
    from windtunnel.studies.point import Outcome
    from windtunnel.studies.runner import Progress
    from windtunnel.studies.store import Store

EQUAL = 0.001
"""Slowdowns that differ by less are equal."""
TOLD = 3
"""Designs with empty ports that are told at most."""
EMPTY = 0.5
"""A top tier with more than this part of its ports empty is told."""


@dataclass(frozen=True)
class Design:
    """A fabric, and what became of it."""

    values: dict[str, Any]
    """Keys of the scenario that say it."""
    usd: float | None = None
    power_w: float | None = None
    top: tuple[int, int] = (0, 0)
    """Ports of the top tier in use, and all that there are."""
    oversubscribed: float | None = None
    """Ports down over ports up by their rates, where that is most."""
    hint: str | None = None
    job_s: tuple[float, ...] = ()
    """Mean iteration of each job."""
    slowdown: float | None = None
    message: str | None = None
    """Why it has no time."""

    def name(self) -> str:
        """In words."""
        # What is the same in several tiers is said once.
        return ", ".join(dict.fromkeys(_words(key, value) for key, value in self.values.items())) or "as written"

    @property
    def empty(self) -> float:
        """Part of the top tier's ports that nobody uses."""
        used, there = self.top
        return 1.0 - used / there if there else 0.0

    def record(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {
            "values": self.values, "oversubscribed": self.oversubscribed, "fabric_usd": self.usd,
            "power_w": self.power_w, "top_ports_used": self.top[0], "top_ports": self.top[1],
            "job_s": list(self.job_s), "slowdown": self.slowdown, "message": self.message,
        }  # fmt: skip


def _short(key: str) -> str:
    return key.rpartition(".")[2]


def _words(key: str, value: object) -> str:
    if isinstance(value, list):
        return f"{len(value)} {_short(key)}"
    return f"{_short(key)} {value}"


def designs(
    source: Source,
    overrides: Sequence[tuple[str, str]],
    *,
    oversubscription: Sequence[float] = (1, 2, 4),
    rates: Sequence[str] = (),
    planes: Sequence[int] = (),
) -> list[Design]:
    """The designs with their prices, the scenario's own first; a design that cannot be built says why.

    Raises `InputError` where the topology is no Clos of two tiers or more.
    """
    tree = json.loads(engine.scenario_tree(source.text, source.name, list(overrides)))
    topology = tree.get("topology") or {}
    tiers = topology.get("tiers")
    if topology.get("shape") != "clos" or not isinstance(tiers, list) or len(tiers) < 2:
        raise InputError(f"{source.name}: topology: expected a `clos` of two tiers or more, whose tiers can be changed")
    # Without the tiers in the middle, where there are some: what does not fit then is refused.
    fewer = [{"topology.tiers": [tiers[0], tiers[-1]]}] if len(tiers) > 2 else []
    found = [_priced(source, overrides, Design({}))]
    for form in ({}, *fewer):
        found += _of(source, overrides, form, len(form.get("topology.tiers", tiers)), oversubscription, rates, planes)
    return found


def _of(
    source: Source,
    overrides: Sequence[tuple[str, str]],
    form: dict[str, Any],
    tiers: int,
    oversubscription: Sequence[float],
    rates: Sequence[str],
    planes: Sequence[int],
) -> list[Design]:
    """The designs of `tiers` tiers, each with its bundle if that spares switches."""
    above = range(1, tiers)
    below = range(tiers - 1)
    found = []
    choices: list[list[dict[str, Any]]] = [
        [{f"topology.tiers[{tier}].oversubscription": number for tier in below} for number in oversubscription] or [{}],
        [{f"topology.tiers[{tier}].rate": rate for tier in above} for rate in rates] or [{}],
        [{"topology.planes": number} for number in planes] or [{}],
    ]
    for parts in itertools.product(*choices):
        values = {**form, **{key: value for part in parts for key, value in part.items()}}
        design = _priced(source, overrides, Design(values))
        found.append(design)
        bundle = _bundle(design)
        if bundle is not None:
            top = f"topology.tiers[{tiers - 1}].bundle"
            found.append(_priced(source, overrides, Design({**values, top: bundle})))
    return found


def _bundle(design: Design) -> int | None:
    """The largest bundle that spares switches of the top tier."""
    if design.hint is None:
        return None
    return int(design.hint.partition("`bundle: ")[2].partition("`")[0])


def _priced(source: Source, overrides: Sequence[tuple[str, str]], design: Design) -> Design:
    pairs = [(key, override_text(value)) for key, value in design.values.items()]
    try:
        tree = engine.scenario_tree(source.text, source.name, [*overrides, *pairs])
        text = engine.members(tree, ["topology"])
        # Its jobs cost nothing.
        bare = f'{{"windtunnel": 1, "name": "fabric", "fidelity": "job", {text[1:-1]}, "jobs": []}}'
        answer = json.loads(engine.topology(bare, source.name, str(source.base), REQUEST))
    except InputError as error:
        return replace(design, message=str(error).partition("\n")[0])
    cost, top = answer.get("cost") or {}, answer["tiers"][-1]
    used = top["ports_down_used"]
    return replace(
        design, usd=cost.get("total_usd"), power_w=cost.get("power_w"), top=(used, used + top["ports_down_unused"]),
        hint=bundle_hint(answer),
        oversubscribed=max((tier["oversubscription"] or 0.0 for tier in answer["tiers"]), default=None),
    )  # fmt: skip


def tried(
    source: Source,
    overrides: Sequence[tuple[str, str]],
    found: Sequence[Design],
    store: Store,
    *,
    budget_usd: float | None = None,
    limits: Limits | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> list[Design]:
    """The designs after those within the budget have run, the cheapest first."""
    kept = [design for design in found if design.message is None]
    within = [d for d in kept if budget_usd is None or (d.usd is not None and d.usd <= budget_usd)]
    if not within:
        least = min((design.usd for design in kept if design.usd is not None), default=None)
        if budget_usd is None:
            raise InputError(f"{source.name}: no design can be built: {found[0].message}")
        told = "no design has a price" if least is None else f"the cheapest takes US$ {least:,.0f}"
        raise InputError(f"--budget: no fabric for US$ {budget_usd:,.0f}: {told}")
    points = [
        Point(
            source,
            (*overrides, *((key, override_text(value)) for key, value in design.values.items())),
            varied={_short(key): value for key, value in design.values.items()},
        )
        for design in within
    ]
    outcomes = list(run_points(points, store, limits=limits or Limits(), fresh=fresh, progress=progress))
    ran = [_with(design, outcome) for design, outcome in zip(within, outcomes, strict=True)]
    sizes = next((_sizes(outcome) for outcome in outcomes if outcome.summary is not None), [])
    rows = [*_compared(ran, sizes), *(design for design in found if design.message is not None)]
    return sorted(rows, key=lambda row: (row.usd is None, row.usd or 0.0, row.slowdown or 0.0))


def _sizes(outcome: Outcome) -> list[float]:
    summary = outcome.summary or {}
    return [float(job.get("gpus") or job.get("ranks") or 1) for job in summary["jobs"]]


def _with(design: Design, outcome: Outcome) -> Design:
    if outcome.summary is None:
        return replace(design, message=outcome.message)
    if not outcome.summary["jobs"]:
        return replace(design, message="no job of the scenario runs on the fabric")
    means = ((job["iteration_time_s"] or {}).get("mean") for job in outcome.summary["jobs"])
    times = [float(mean) for mean in means if mean is not None]
    if len(times) < len(outcome.summary["jobs"]):
        return replace(design, message="a job did not end")
    return replace(design, job_s=tuple(times))


def _compared(rows: Sequence[Design], sizes: Sequence[float]) -> list[Design]:
    ran = [row.job_s for row in rows if row.job_s]
    least = [min(times) for times in zip(*ran, strict=True)]
    return [
        replace(
            row,
            slowdown=sum(n * s / b for n, s, b in zip(sizes, row.job_s, least, strict=True)) / sum(sizes),
        )
        if row.job_s
        else row
        for row in rows
    ]


def front(rows: Sequence[Design]) -> list[Design]:
    """Designs that no cheaper one is as fast as, the cheapest first."""
    edge: list[Design] = []
    priced = (row for row in rows if row.usd is not None and row.slowdown is not None)
    for row in sorted(priced, key=lambda row: (row.usd or 0.0, row.slowdown or 0.0)):
        if not edge or (row.slowdown or 0.0) < (edge[-1].slowdown or 0.0) * (1.0 - EQUAL):
            edge.append(row)
    return edge


def remarks(rows: Sequence[Design]) -> list[str]:
    """Which designs pay for ports that nobody uses, and what the cheapest costs that blocks nowhere."""
    free = [row for row in rows if row.usd is not None and row.oversubscribed is not None and row.oversubscribed <= 1.0]
    cheapest = min(free, key=lambda row: row.usd or 0.0, default=None)
    found = []
    wasteful = [row for row in rows if row.usd is not None and row.empty > EMPTY]
    # What is written down first, then what costs most.
    for row in sorted(wasteful, key=lambda row: (bool(row.values), -(row.usd or 0.0)))[:TOLD]:
        used, there = row.top
        said = f"`{row.name()}`: {there - used:,} of {there:,} ports of the top tier stay empty"
        if cheapest is not None and cheapest.usd and row.usd and cheapest.usd < row.usd:
            said += f", and it costs {row.usd / cheapest.usd:.2f} times `{cheapest.name()}`, which blocks nowhere"
        found.append(said)
    return found
