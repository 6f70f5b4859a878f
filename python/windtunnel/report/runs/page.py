"""The page: what differs, where iterations go, main figures, completion times, links, and every figure that differs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from windtunnel.comparison import figures_of, knobs_of
from windtunnel.engine import InputError
from windtunnel.report.cdf import Line, cdf, quantiles
from windtunnel.report.html import Raw, page, section, table, text
from windtunnel.report.runs.bars import STYLE, bars
from windtunnel.report.runs.label import MOST, Named, named
from windtunnel.results.folder import write_beside
from windtunnel.text import UNKNOWN, change, count, duration, energy, percent, power, size
from windtunnel.words import figure_text, label

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from windtunnel.results import Result

MOST_JOBS = 6
"""Jobs whose bars are drawn; the figures have all."""

MOST_LINKS = 12

MOST_FIGURES = 400
"""Figures that differ, of the last section."""

Figure = tuple[str, "Callable[[dict[str, Any]], Any]", "Callable[[Any], str]", int]
"""A name, how it is taken from a summary, how it is said, and whether more (1), less (-1) or neither is better."""


def write_runs_report(runs: Sequence[Result], path: Path) -> Path:
    """Writes the report of `runs`, the first of which is what the others are compared with, to `path` and returns it.

    Raises `InputError` for fewer than two or more than eight.
    """
    if not 2 <= len(runs) <= MOST:
        raise InputError(f"expected from 2 to {MOST} runs to compare, found {len(runs)}")
    those = named(runs, path)
    content = [STYLE, _head(those), _knobs(those), *_jobs(those), _main(those), *_completion(those), _links(those)]
    content.append(_all(those))
    title = " and ".join(run.name for run in those) if len(those) == 2 else f"{len(those)} runs"
    write_beside(path, page(f"{title} · Windtunnel", *content).encode())
    return path


def _head(runs: Sequence[Named]) -> Raw:
    rows = []
    for run in runs:
        summary = run.run.summary
        state = "partial" if summary["partial"] else ""
        words = [summary["scenario"], summary["fidelity"], f"seed {summary['seed']}", summary["windtunnel"], state]
        rows.append([run.mark(), *words])
    head = ["run", "scenario", "fidelity", "seed", "Windtunnel", ""]
    title = f"<header><h1>{len(runs)} runs</h1><p>The others are compared with the first.</p></header>"
    return Raw(f"{title}\n{section('Runs', '', table(head, rows))}")


def _knobs(runs: Sequence[Named]) -> str:
    found = knobs_of([run.run for run in runs])
    if found is None:
        return section("What differs", "Not known: a run folder has no `scenario.yaml`.")
    if not found:
        return section("What differs", "Nothing: the runs have the same scenario.")
    rows = [[key, *(_plain(value) for value in values)] for key, values in found]
    return section("What differs", "Keys of the scenario that do not have one value in all runs.", _by_run(runs, rows))


def _jobs(runs: Sequence[Named]) -> list[str]:
    """Bars of each job: of the only one whatever it is called, else by name."""
    mine = [{job["name"]: job for job in run.run.summary["jobs"]} for run in runs]
    if all(len(jobs) == 1 for jobs in mine):
        groups = [("", [next(iter(jobs.values())) for jobs in mine])]
    else:
        names = list(dict.fromkeys(name for jobs in mine for name in jobs))[:MOST_JOBS]
        groups = [(f"{name}: ", [jobs.get(name) for jobs in mine]) for name in names]
    remark = "Bars are as long as the mean iteration; point at a part for its time."
    known = [(head, jobs) for head, jobs in groups if any(((j or {}).get("iteration_time_s") or {}) for j in jobs)]
    return [section(f"{head}Where an iteration goes", remark, bars(runs, jobs)) for head, jobs in known]


def _of_job(key: str) -> Callable[[dict[str, Any]], Any]:
    """A figure of the only job."""

    def take(summary: dict[str, Any]) -> Any:  # noqa: ANN401
        value: Any = summary["jobs"][0] if len(summary["jobs"]) == 1 else None
        for part in key.split("."):
            value = (value or {}).get(part)
        return value

    return take


def _of(*keys: str) -> Callable[[dict[str, Any]], Any]:
    def take(summary: dict[str, Any]) -> Any:  # noqa: ANN401
        value: Any = summary
        for part in keys:
            value = (value or {}).get(part)
        return value

    return take


MAIN: tuple[Figure, ...] = (
    ("iteration time", _of_job("iteration_time_s.mean"), duration, -1),
    ("slowest iteration", _of_job("iteration_time_s.max"), duration, -1),
    ("ideal fabric", _of_job("ideal_iteration_time_s"), duration, 0),
    ("tokens/s", _of_job("tokens_per_s"), count, 1),
    ("MFU", _of_job("mfu"), percent, 1),
    ("exposed communication", _of_job("exposed_communication_s"), duration, -1),
    ("pipeline bubble", _of_job("bubble_s"), duration, -1),
    ("memory per GPU", _of_job("memory_bytes_per_gpu"), size, -1),
    ("makespan", _of("cluster", "makespan_s"), duration, -1),
    ("utilisation of the cluster", _of("cluster", "utilisation"), percent, 1),
    ("waiting, mean", _of("cluster", "waiting_s", "mean"), duration, -1),
    ("goodput", _of("cluster", "goodput"), percent, 1),
    ("flows", _of("flows", "count"), count, 0),
    ("completion, mean", _of("flows", "fct_mean_s"), duration, -1),
    ("completion, p99", _of("flows", "fct_p99_s"), duration, -1),
    ("packets dropped", _of("network", "packets_dropped"), count, -1),
    ("ECN marks", _of("network", "ecn_marked"), count, 0),
    ("sent again", _of("network", "retransmissions"), count, -1),
    ("fabric, US$", _of("cost", "fabric_usd"), count, -1),
    ("GPUs, US$", _of("cost", "gpus_usd"), count, -1),
    ("power", _of("cost", "power_w"), power, -1),
    ("energy of the run", _of("cost", "energy_j"), energy, -1),
    ("an hour of the machine, US$", _of("cost", "hour_usd"), count, -1),
    ("the run, US$", _of("cost", "run_usd"), count, -1),
)  # fmt: skip


def _main(runs: Sequence[Named]) -> str:
    rows = []
    for name, take, say, better in MAIN:
        values = [take(run.run.summary) for run in runs]
        if not any(values):  # unknown, or nothing in all of them
            continue
        known = [value for value in values if value is not None]
        best = (max(known) if better > 0 else min(known)) if better and len(set(known)) > 1 else None
        rows.append([name, *(_cell(value, values[0], say, best=best) for value in values)])
    remark = "Below a figure is how much it is off the first run's; the best is bold."
    return section("Main figures", remark, _by_run(runs, rows))


def _cell(value: Any, first: Any, say: Callable[[Any], str], *, best: Any) -> Raw:  # noqa: ANN401
    if value is None:
        return Raw(UNKNOWN)
    shown = text(say(value))
    shown = f"<strong>{shown}</strong>" if best is not None and value == best else shown
    off = change(value / first - 1) if first and value != first else ""
    return Raw(f'{shown}<br><small style="color:var(--muted)">{off}</small>' if off else shown)


def _completion(runs: Sequence[Named]) -> list[str]:
    for name in ("flows", "messages"):
        found = [(run, times) for run in runs if (times := quantiles(run.run, name)) is not None]
        if len(found) > 1:
            legend = "".join(f"<span>{run.mark()}</span>" for run, _ in found)
            lines = [Line(run.name, run.colour, times, run.dash) for run, times in found]
            drawn = Raw(f'{cdf(lines, name)}<div class="legend">{legend}</div>')
            remark = "From start to last byte: the share that took at most so long; point at a mark for its figures."
            return [section(f"{name.capitalize().removesuffix('s')} completion times", remark, drawn)]
    return []


def _links(runs: Sequence[Named]) -> str:
    used = [
        {link["name"]: link for link in (run.run.summary.get("network") or {}).get("links_most_loaded") or []}
        for run in runs
    ]
    most: dict[str, float] = {}
    for links in used:
        for name, link in links.items():
            most[name] = max(most.get(name, 0.0), link["utilisation"])
    names = sorted(most, key=lambda name: (-most[name], name))[:MOST_LINKS]
    if not names:
        return ""
    rows = [[name, *(percent((links.get(name) or {}).get("utilisation")) for links in used)] for name in names]
    remark = (
        f"Utilisation of the links that are most loaded in some run; {UNKNOWN} where one is not among a run's most."
    )
    return section("Most loaded links", remark, _by_run(runs, rows))


def _all(runs: Sequence[Named]) -> str:
    rows, equal = [], 0
    for group, key, values in figures_of([run.run for run in runs]):
        if all(value == values[0] for value in values):
            equal += 1
        elif not key.startswith("links."):
            rows.append([f"{group}: {label(key)}", *(figure_text(key, value) for value in values)])
    left = len(rows) - MOST_FIGURES
    remark = f"{len(rows):,} figures of the summaries; {equal:,} others are equal in all runs."
    if left > 0:
        remark += f" The last {left:,} are in the runs' `summary.json` alone."
    inner = f"<details><summary>show them</summary>{_by_run(runs, rows[:MOST_FIGURES])}</details>"
    return section("Every figure that differs", remark, Raw(inner if rows else ""))


def _by_run(runs: Sequence[Named], rows: Sequence[Sequence[object]]) -> Raw:
    """A table with a column a run."""
    return table(["", *(run.mark() for run in runs)], rows, range(1, len(runs) + 1))


def _plain(value: Any) -> str:  # noqa: ANN401
    if value is None:
        return UNKNOWN
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
