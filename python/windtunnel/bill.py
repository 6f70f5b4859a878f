"""What a run's machine costs and draws: dollars and watts of fabric and GPUs, joules and dollars of the run.

The fabric is priced by the engine from data sheets of switches and optics, as `windtunnel topology` has it. A GPU draws
its sheet's board power, all the time: what a run needs at most. What no sheet says is null and never 0: no maker
publishes prices of GPUs, so sheets have estimates of others or none, and NICs, hosts and cooling are not counted. Every
figure names its source.

An hour of the machine is rented for what the scenario says (`prices.gpu_hour`), or is its part of what the machine was
bought for, written off evenly, and of what it draws.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.engine import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from windtunnel.source import Source

REQUEST = json.dumps({"repair": "converged", "price": True})
"""Of a fabric: what it costs. To follow its paths as well (`analyse`) took a second at 4,096 GPUs."""

LARGEST = 16_384
"""GPUs of a fabric that is priced with each run: counting the parts of larger ones takes longer than some runs."""

_FIGURE = (
    r"(?m)^{key}: *\{{value: *(?P<value>[0-9.]+) *(?P<unit>[a-zA-Z]+), *evidence: *(?P<kind>[^,}}]+), *"
    r'source: *"(?P<source>[^"]*)"\}}'
)
"""A figure, as all sheets write it: `power: {value: 700 W, evidence: …, source: "…"}`."""

_UNITS = {"W": 1.0, "kW": 1000.0, "USD": 1.0}

SCENARIO = "the scenario's `topology.host.gpu`"
"""Source of a figure that stands there."""

PRICES = "the scenario's `prices"
"""Begin of the source of a figure that stands there."""

YEARS = 5.0
"""Over which a machine is written off."""

KWH_USD = 0.08
"""Of a kilowatt-hour."""

ASSUMED = (
    {
        "constant": "dollars of the run: 5 years of writing off", "kind": "inferred",
        "source": "Amazon's annual report (10-K) for 2024, of servers from 2025 on; others take 5.5 or 6",
    },
    {
        "constant": "dollars of the run: 0.08 USD a kWh", "kind": "inferred",
        "source": "U.S. Energy Information Administration, Electric Power Annual 2023: industrial customers on average",
    },
)  # fmt: skip
"""Evidence of both, where the scenario does not say them."""

HOUR_S = 3600.0

YEAR_H = 365.25 * 24

Known = tuple[float | None, dict[str, str] | None]
"""A figure of a sheet, and its line of the evidence."""


@dataclass(frozen=True)
class _Stretch:
    """GPUs of one sheet that follow one another, and what one of them draws and costs."""

    gpus: int
    watts: float | None
    usd: float | None


@dataclass(frozen=True)
class _Machine:
    """What is known of a fabric and its GPUs whatever runs there."""

    gpus: int | None
    gpu_w: float | None
    """Of a GPU on average."""
    stretches: tuple[_Stretch, ...]
    """Buildings with GPUs of their own, in the order of their hosts; none where all are alike."""
    fabric_w: float | None
    figures: dict[str, float | None]
    hour_usd: float | None
    """Of all of it."""
    written_off: tuple[float, float] | None
    """Over how many years, and dollars of a kilowatt-hour; None where it is rented."""
    evidence: str
    """As JSON."""


def cost_text(name: str, base: Path, tree: str, summary: dict[str, Any]) -> str | None:
    """`summary.cost` as JSON, of a run of the scenario `name` with this `tree`; None if there is no pricing it.

    Of `summary` it takes `jobs` and `simulated_time_s`. Keys and units are in `docs/results.md`.
    """
    try:
        parts = engine.members(tree, ["topology", "prices"])
        # A file may change between two runs; names of sheets and numbers are what they are.
        known = _machine.__wrapped__ if _names_a_file(parts) else _machine
        machine: _Machine = known(parts, name, base)
    except InputError:
        return None
    cost = machine.figures | {
        "energy_j": _times(machine.figures["power_w"], summary.get("simulated_time_s")),
        "hour_usd": machine.hour_usd,
        "run_usd": _over(_times(machine.hour_usd, summary.get("simulated_time_s")), HOUR_S),
        "jobs": [_job(job, machine, alone=len(summary["jobs"]) == 1) for job in summary["jobs"]],
    }
    return f'{json.dumps(cost)[:-1]}, "evidence": {machine.evidence}}}'


@lru_cache(maxsize=64)
def _machine(text: str, name: str, base: Path) -> _Machine:
    tree = json.loads(text)
    host = (tree.get("topology") or {}).get("host") or {}
    gpus = _gpus(tree, host)
    fabric = _fabric(text, tree, name, base) if gpus is None or gpus <= LARGEST else None
    cost = (fabric or {}).get("cost") or {}
    evidence = [row for row in cost.get("evidence") or [] if row["constant"].endswith((": price", ": power"))]
    named = fabric["host"]["gpu"] if fabric is not None else host.get("gpu")
    each, row = _of_gpu("power", named, host.get("gpu"), base)
    price, of_price = _of_gpu("price", named, host.get("gpu"), base)
    gpus = fabric["gpus"] if fabric is not None else gpus
    stretches, rows = _stretches(fabric, tree, base)
    if stretches:
        each, price = _mean(stretches, "watts"), _mean(stretches, "usd")
    evidence += [one for one in (rows or (row, of_price)) if one is not None]
    gpus_w, fabric_w = _times(each, gpus), cost.get("power_w")
    figures = {
        "fabric_usd": cost.get("total_usd"),
        "gpu_usd": price,
        "gpus_usd": _times(price, gpus),
        "fabric_power_w": fabric_w,
        "gpu_power_w": each,
        "gpus_power_w": gpus_w,
        "power_w": None if gpus_w is None or fabric_w is None else gpus_w + fabric_w,
    }
    hour_usd, of_hours = _hour(tree.get("prices") or {}, gpus, figures)
    kept = [{key: row[key] for key in ("constant", "kind", "source")} for row in [*evidence, *of_hours]]
    prices = tree.get("prices") or {}
    kwh, _ = _given("kwh", prices.get("kwh"), PRICES)
    rented = prices.get("gpu_hour") is not None
    written_off = None if rented else (prices.get("years") or YEARS, KWH_USD if kwh is None else kwh)
    return _Machine(gpus, each, stretches, fabric_w, figures, hour_usd, written_off, json.dumps(kept))


def _stretches(
    fabric: dict[str, Any] | None, tree: dict[str, Any], base: Path
) -> tuple[tuple[_Stretch, ...], list[dict[str, str] | None]]:
    """What GPUs of buildings draw and cost where they differ, and what that rests on, each line once."""
    found = ((fabric or {}).get("host") or {}).get("by_building") or []
    topology = tree.get("topology") or {}
    common, buildings = (topology.get("host") or {}).get("gpu"), topology.get("buildings") or []
    stretches: list[_Stretch] = []
    rows: list[dict[str, str] | None] = []
    for i, one in enumerate(found):
        own = (buildings[i].get("host") or {}).get("gpu") if i < len(buildings) else None
        written, place = (own, f"the scenario's `topology.buildings[{i}].host.gpu`") if own else (common, SCENARIO)
        (watts, of_watts), (usd, of_usd) = (
            _of_gpu(key, one["gpu"], written, base, place) for key in ("power", "price")
        )
        stretches.append(_Stretch(one["gpus"], watts, usd))
        rows += [row for row in (of_watts, of_usd) if row not in rows]
    return tuple(stretches), rows


def _mean(stretches: Sequence[_Stretch], key: str, first: int | None = None) -> float | None:
    """Of a GPU: the mean of all, or of the first so many; None where a sheet of theirs does not say."""
    left = sum(one.gpus for one in stretches) if first is None else first
    count, total = left, 0.0
    for one in stretches:
        taken = min(one.gpus, left)
        value: float | None = getattr(one, key)
        if taken and value is None:
            return None
        total += taken * (value or 0.0)
        left -= taken
    return total / count if count and not left else None


def _hour(
    prices: dict[str, Any], gpus: int | None, figures: dict[str, float | None]
) -> tuple[float | None, list[dict[str, str]]]:
    """Dollars of the machine for an hour, with what they rest on beside its prices and power."""
    rent, _ = _given("gpu_hour", prices.get("gpu_hour"), PRICES)
    if rent is not None:
        row = {"constant": "dollars of the run: rent of a GPU", "kind": "given", "source": f"{PRICES}.gpu_hour`"}
        return _times(rent, gpus), [row]
    kwh, _ = _given("kwh", prices.get("kwh"), PRICES)
    years = prices.get("years")
    bought = _sum(figures["fabric_usd"], figures["gpus_usd"])
    energy = _over(_times(figures["power_w"], KWH_USD if kwh is None else kwh), 1000.0)
    hour = _sum(_over(bought, (YEARS if years is None else years) * YEAR_H), energy)
    if hour is None:
        return None, []
    of_years, of_energy = ASSUMED
    given = [
        {"constant": f"dollars of the run: {key}", "kind": "given", "source": f"{PRICES}.{key}`"}
        for key, value in (("years", years), ("kwh", kwh))
        if value is not None
    ]
    return hour, given + [row for row, said in ((of_years, years), (of_energy, kwh)) if said is None]


def with_bill(text: str, source: Source, overrides: Sequence[tuple[str, str]]) -> tuple[str, dict[str, Any]]:
    """A summary's text with `cost` as its last key, and what it says; all else is as the engine wrote it.

    A run is never lost for its bill: what cannot be priced leaves the text as it is.
    """
    summary: dict[str, Any] = json.loads(text)
    try:
        tree = engine.scenario_tree(source.text, source.name, list(overrides))
    except InputError:
        return text, summary
    cost = cost_text(source.name, source.base, tree, summary)
    return (text, summary) if cost is None else (with_cost(text, cost), {**summary, "cost": json.loads(cost)})


def with_cost(text: str, cost: str) -> str:
    """A summary's text with what `cost_text` says as its last key."""
    return f'{text.rstrip()[:-1]},"cost":{cost}}}'


def _job(job: dict[str, Any], machine: _Machine, *, alone: bool) -> dict[str, Any]:
    """Energy and dollars of a job's iterations: its GPUs and as large a part of the fabric.

    Where GPUs differ a job that is `alone` has the first of them, others have such as are mean.
    """
    took = (job["iteration_time_s"] or {}).get("mean")
    each, fabric_w, gpus = machine.gpu_w, machine.fabric_w, machine.gpus
    hour_usd = _over(_times(machine.hour_usd, job["ranks"]), gpus)
    if alone and machine.stretches:
        watts, usd = (_mean(machine.stretches, key, job["ranks"]) for key in ("watts", "usd"))
        mean = _mean(machine.stretches, "usd")
        if machine.written_off is not None:
            years, kwh = machine.written_off
            bought = _over(_times(_sum(usd, _times(mean, -1.0)), job["ranks"]), years * YEAR_H)
            energy = _times(_sum(watts, _times(each, -1.0)), job["ranks"] * kwh / 1000.0)
            hour_usd = _sum(hour_usd, _sum(bought, energy))
        each = watts
    whole = None if each is None or fabric_w is None or not gpus else (each + fabric_w / gpus) * job["ranks"]
    tokens = job.get("tokens_per_s")
    return {
        "name": job["name"],
        "power_w": whole,
        "iteration_energy_j": _times(whole, took),
        "tokens_per_j": None if not tokens or not whole else tokens / whole,
        "iteration_usd": _over(_times(hour_usd, took), HOUR_S),
        "tokens_per_usd": None if not tokens or not hour_usd else tokens * HOUR_S / hour_usd,
    }


def _fabric(text: str, tree: dict[str, Any], name: str, base: Path) -> dict[str, Any] | None:
    """The topology as the engine counts and prices it; None where a scenario has none."""
    if "topology" not in tree:
        return None
    # Its jobs cost nothing.
    bare = f'{{"windtunnel": 1, "name": "fabric", "fidelity": "job", {text[1:-1]}, "jobs": []}}'
    try:
        found: dict[str, Any] = json.loads(engine.topology(bare, name, str(base), REQUEST))
    except InputError:
        return None
    return found


@lru_cache(maxsize=64)
def _names_a_file(text: str) -> bool:
    return re.search(r'"[^" ]*[./\\][^" ]*[a-zA-Z][^" ]*"', text) is not None


def _gpus(tree: Any, host: dict[str, Any]) -> int | None:  # noqa: ANN401
    hosts, each = (tree.get("topology") or {}).get("hosts"), host.get("gpus", 1)
    return hosts * each if isinstance(hosts, int) and isinstance(each, int) else None


def _times(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a * b


def _over(a: float | None, b: float | None) -> float | None:
    return None if a is None or not b else a / b


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _of_gpu(key: str, named: object, written: object, base: Path, place: str = SCENARIO) -> Known:
    """A figure of a GPU by its sheet: one that comes along, a file of one's own, or one that derives from either."""
    if isinstance(written, dict):
        if key in written:
            return _given(key, written[key], place)
        written = written.get("sheet")
        named = written
    if isinstance(written, str) and _is_path(written) and (base / written).is_file():
        return _of_file(key, written, base)
    if not isinstance(named, str):
        return None, None
    path = sheet_path(named)
    return (None, None) if path is None else _of_shipped(key, path)


def _of_file(key: str, written: str, base: Path) -> Known:
    path = base / written
    tree = json.loads(engine.scenario_tree(path.read_text(encoding="utf-8"), str(path), []))
    if isinstance(tree, dict) and "sheet" in tree:
        return _of_gpu(key, None, tree, path.parent, f"`{written}`")
    return _of_sheet(key, path, path.read_text(encoding="utf-8"))


def _given(key: str, figure: object, place: str) -> Known:
    """A figure that is given in place of a sheet's."""
    said = figure if isinstance(figure, dict) else {"value": figure}
    found = re.fullmatch(r" *([0-9.]+) *([a-zA-Z]+) *", str(said.get("value")))
    if found is None or found[2] not in _UNITS:
        return None, None
    kind, source = said.get("evidence", "given"), said.get("source", place)
    return float(found[1]) * _UNITS[found[2]], {"constant": f"GPU: {key}", "kind": str(kind), "source": str(source)}


@cache
def _sheets() -> dict[str, Path]:
    """Sheets of GPUs by stem and by name, which differ in case alone."""
    from windtunnel.shipped import data  # noqa: PLC0415

    return {path.stem.lower(): path for path in sorted((data() / "gpus").glob("*.yaml"))}


def _is_path(name: str) -> bool:
    """Whether a sheet is a file of one's own, by its name, as the engine tells them."""
    return "/" in name or name.lower().endswith((".yaml", ".json"))


def sheet_path(name: str) -> Path | None:
    """The file of a GPU's sheet that comes along, by its stem or name; None if there is none."""
    return _sheets().get(name.lower())


def sheet_digest(name: str) -> str | None:
    """SHA-256 of such a sheet as this process has read it for its bills; None if there is none."""
    path = sheet_path(name)
    return None if path is None else _shipped(path)[1]


@cache
def _shipped(path: Path) -> tuple[str, str]:
    import hashlib  # noqa: PLC0415 - OpenSSL's, which a single run has no use for

    content = path.read_bytes()
    return content.decode(), hashlib.sha256(content).hexdigest()


@cache
def _of_shipped(key: str, path: Path) -> Known:
    return _of_sheet(key, path, _shipped(path)[0])


def _of_sheet(key: str, path: Path, text: str) -> Known:
    found = re.search(_FIGURE.format(key=key), text)
    if found is None:
        return None, None
    name = re.search(r"(?m)^name: *(.+)$", text)
    constant = f"GPU {name[1] if name is not None else path.stem}: {key}"
    value = float(found["value"]) * _UNITS[found["unit"]]
    return value, {"constant": constant, "kind": found["kind"].strip(), "source": found["source"]}
