"""The difference of two runs, or more: which keys of the scenario differ, and every figure of the summary.

A key or figure that only one run has is None on the other side; a figure that none has is left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windtunnel import engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windtunnel.results import Result

MACHINE = ("wall_time_s", "cpu_time_s", "peak_memory_bytes", "peak_rss_bytes")
"""Figures of the machine that simulated, never equal in two runs."""

_APART = {
    "windtunnel",
    "scenario",
    "scenario_sha256",
    "inputs",
    "seed",
    "fidelity",
    "evidence",
    "network",
    "jobs",
    "cost",
    *MACHINE,
}
"""Keys of the summary that are no figures, or are taken on their own."""

_REDRAWN = ("detoured", "warnings")
"""Lists of words inside the summary."""


@dataclass(frozen=True)
class Knob:
    """A key of the scenario with other values: YAML values as JSON has them."""

    key: str
    then: Any
    now: Any


@dataclass(frozen=True)
class Metric:
    """A figure that differs. `absolute` is now - then; `relative` that over then, None where then is 0."""

    group: str
    key: str
    then: Any
    now: Any

    @property
    def absolute(self) -> float | None:
        """How much more it is now."""
        if _is_number(self.then) and _is_number(self.now):
            return float(self.now - self.then)
        return None

    @property
    def relative(self) -> float | None:
        """How much more, as a part of what it was."""
        change = self.absolute
        return None if change is None or not self.then else change / abs(self.then)


@dataclass
class Comparison:
    """Two runs beside each other; `then` is the one compared with."""

    then: str
    now: str
    knobs: list[Knob] | None
    """Keys that differ; None if a folder does not hold its scenario."""
    metrics: list[Metric] = field(default_factory=list)
    """Figures that differ, in the order of the summary."""
    equal: list[tuple[str, str]] = field(default_factory=list)
    """Group and key of the figures that do not."""
    machine: list[Metric] = field(default_factory=list)
    """What the runs themselves took."""

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "compared_with": self.then,
            "knobs": None if self.knobs is None else [{"key": k.key, "then": k.then, "now": k.now} for k in self.knobs],
            "metrics": [_record(metric) for metric in self.metrics],
            "equal": [_joined(group, key) for group, key in self.equal],
            "machine": [_record(metric) for metric in self.machine],
        }


def compare(now: Result, then: Result, *, then_name: str | None = None) -> Comparison:
    """Compares run `now` with run `then`, which messages call `then_name` (its folder if that is left out)."""
    runs = [then, now]
    knobs = knobs_of(runs)
    found = Comparison(
        then_name or str(then.path), str(now.path), None if knobs is None else [Knob(key, *pair) for key, pair in knobs]
    )
    for group, key, (old, new) in figures_of(runs):
        if old == new:
            found.equal.append((group, key))
        else:
            found.metrics.append(Metric(group, key, old, new))
    for key in MACHINE:
        found.machine.append(Metric("", key, then.summary.get(key), now.summary.get(key)))
    return found


def knobs_of(runs: Sequence[Result]) -> list[tuple[str, list[Any]]] | None:
    """Keys of the scenario that differ, with the values of each run; None if a folder does not hold its scenario."""
    trees = [_tree(run) for run in runs]
    if any(tree is None for tree in trees):
        return None
    leaves = _beside([dict(_leaves(tree)) for tree in trees])
    found = [(key, values) for key, values in leaves if any(value != values[0] for value in values)]
    return found + _contents([run.summary for run in runs])


def figures_of(runs: Sequence[Result]) -> Iterator[tuple[str, str, list[Any]]]:
    """Group, key and values by run of every figure that some run has, in the order of the last one's summary."""
    for group, parts in _groups([run.summary for run in runs]):
        for key, values in _beside([dict(_figures(part)) for part in parts]):
            if any(value is not None for value in values):
                yield group, key, values


def _tree(run: Result) -> Any | None:  # noqa: ANN401
    """What was simulated: the scenario with overrides, seed and fidelity in their places."""
    if run.scenario is None:
        return None
    pairs = [(key, value) for key, _, value in (text.partition("=") for text in run.manifest.get("overrides", []))]
    tree = json.loads(engine.scenario_tree(run.scenario, str(run.path / "scenario.yaml"), pairs))
    if not isinstance(tree, dict):
        return None
    # Options go before keys; a seed that is left out is 0.
    tree["seed"], tree["fidelity"] = run.summary.get("seed"), run.summary.get("fidelity")
    if run.manifest.get("options", {}).get("full"):
        tree["--full"] = True
    return tree


def _contents(summaries: Sequence[dict[str, Any]]) -> list[tuple[str, list[Any]]]:
    """Files and sheets that all runs read under one name, with other contents: the first digits of their digests."""
    known = [{one["name"]: one["sha256"][:12] for one in summary.get("inputs") or []} for summary in summaries]
    shared = sorted(set(known[0]).intersection(*known[1:]))
    found = [(f"contents of {name}", [digests[name] for digests in known]) for name in shared]
    return [(name, digests) for name, digests in found if len(set(digests)) > 1]


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Paths, as `--set` writes them, and values; a list of plain values is one value."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


def _groups(summaries: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Parts of the summaries by name: each job, the network, flows, the cluster, the run."""
    jobs = [{job["name"]: job for job in summary.get("jobs") or []} for summary in summaries]
    if all(len(mine) == 1 for mine in jobs):
        yield f"job {next(iter(jobs[-1]))}", [next(iter(mine.values())) for mine in jobs]
    else:
        for name in dict.fromkeys(name for mine in jobs for name in mine):
            yield f"job {name}", [mine.get(name, {}) for mine in jobs]
    yield "network", [_network(summary) for summary in summaries]
    yield "cost", [_cost(summary) for summary in summaries]
    tops = [{key: value for key, value in summary.items() if key not in _APART} for summary in summaries]
    keys = dict.fromkeys(key for top in tops for key in top)
    for key in [key for key in keys if any(isinstance(top.get(key), dict) for top in tops)]:
        yield key, [top.pop(key, None) or {} for top in tops]
    yield "run", tops


def _cost(summary: dict[str, Any]) -> dict[str, Any]:
    """Dollars, watts and joules, those of jobs by name; where they come from is no figure."""
    cost = {key: value for key, value in (summary.get("cost") or {}).items() if key != "evidence"}
    jobs = cost.pop("jobs", None) or []
    return {**cost, "jobs": {job["name"]: job for job in jobs}}


def _network(summary: dict[str, Any]) -> dict[str, Any]:
    """The network's figures, its most loaded links by name."""
    network = dict(summary.get("network") or {})
    links = network.pop("links_most_loaded", None) or []
    network["links"] = {link["name"]: {"utilisation": link["utilisation"]} for link in links}
    return network


def _figures(values: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if key == "name" or key in _REDRAWN:
            continue
        where = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            yield from _figures(value, where)
        else:
            yield where, value


def _beside(records: Sequence[dict[str, Any]]) -> list[tuple[str, list[Any]]]:
    """Keys, those of the last record first, with the value of each record or None."""
    keys = dict.fromkeys(key for record in reversed(records) for key in record)
    return [(key, [record.get(key) for record in records]) for key in keys]


def _record(metric: Metric) -> dict[str, Any]:
    return {
        "key": _joined(metric.group, metric.key),
        "then": metric.then,
        "now": metric.now,
        "absolute": metric.absolute,
        "relative": metric.relative,
    }


def _joined(group: str, key: str) -> str:
    """`job a` and `compute_s` as `jobs.a.compute_s`."""
    if group.startswith("job "):
        return f"jobs.{group.removeprefix('job ')}.{key}"
    return f"{group}.{key}" if group not in {"", "run"} else key


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
