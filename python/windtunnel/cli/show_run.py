"""The answer of a run on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from windtunnel.breakdown import PARTS
from windtunnel.cli.console import out
from windtunnel.cli.show_compare import show_comparison
from windtunnel.cluster import cluster_figures, size_of
from windtunnel.ideal import against
from windtunnel.ideal import remark as beside_ideal
from windtunnel.text import UNKNOWN, count, duration, energy, percent, power, short_count, size
from windtunnel.unseen import unseen_line

if TYPE_CHECKING:
    from rich.console import Console

    from windtunnel.comparison import Comparison
    from windtunnel.results import Result

BAR = 28
"""Cells of a full bar."""

WHOLE_JOBS = 4
"""Most jobs that are shown one by one; more make a table."""


def show(result: Result, comparison: Comparison | None = None) -> None:
    """Prints what `result` found, and how it differs from another run if that was compared."""
    console = out()
    summary = result.summary
    console.print(_headline(summary))
    jobs = summary["jobs"]
    if len(jobs) <= WHOLE_JOBS:
        for job in jobs:
            _show_job(console, job, summary["fidelity"], headed=len(jobs) > 1)
    else:
        console.print(_job_table(jobs))
    if len(jobs) != 1 or summary["cluster"].get("faults"):
        _show_cluster(console, summary)
    _show_flows(console, summary)
    _show_links(console, summary)
    _show_unseen(console, summary)
    if comparison is not None:
        show_comparison(comparison)
    _show_end(console, result)


def figures(job: dict[str, Any], fidelity: str) -> list[tuple[str, str, str]]:
    """The main figures of a job that was run at `fidelity`: name, value, remark."""
    times = job["iteration_time_s"] or {}
    mean = times.get("mean")
    spread = ""
    if times.get("max") is not None and times["max"] != mean:
        spread = f"p50 {duration(times['p50'])}, p99 {duration(times['p99'])}, max {duration(times['max'])}"
    rows = [("iteration time", duration(mean), spread)]
    ideal = job.get("ideal_iteration_time_s")
    if ideal and mean:
        rows.append(("ideal fabric", duration(ideal), beside_ideal(mean, ideal, fidelity)))
    tokens = job.get("tokens_per_s")
    if tokens is not None:
        rows.append(("tokens/s", count(tokens), f"{count(tokens / job['ranks'])} per GPU"))
    if job.get("mfu") is not None:
        rows.append(("MFU", percent(job["mfu"]), "model FLOPs over peak FLOPs"))
    memory = job.get("memory") or {}
    if job.get("memory_bytes_per_gpu") is not None:
        of = f" of {size(memory['capacity'])}" if memory.get("capacity") else ""
        rows.append(("memory per GPU", f"{size(job['memory_bytes_per_gpu'])}{of}", memory_parts(memory)))
    if job.get("lost_s"):
        rows.append(("lost work", duration(job["lost_s"]), ""))
    if job.get("outside_iterations_s"):
        remark = "loading, checkpoints, restarts, waiting for GPUs"
        rows.append(("outside iterations", duration(job["outside_iterations_s"]), remark))
    return rows


def memory_parts(memory: dict[str, Any]) -> str:
    """What the memory of a GPU holds."""
    parts = [key for key in memory if key not in {"total", "capacity"}]
    return ", ".join(f"{key} {size(memory[key])}" for key in parts if memory[key])


def _show_cluster(console: Console, summary: dict[str, Any]) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    for name, value, remark in cluster_figures(summary):
        table.add_row(name, Text(value, style="bold"), remark)
    console.print()
    console.print(table)


def _headline(summary: dict[str, Any]) -> Text:
    text = Text(str(summary["scenario"]), style="bold")
    words = [f"{summary['fidelity']} fidelity", size_of(summary), f"seed {summary['seed']}"]
    fold = summary.get("fold")
    if isinstance(fold, (int, float)) and fold > 1:
        words.append(f"folded {fold:g}×")
    text.append("".join(f" · {word}" for word in words), style="dim")
    if summary["partial"]:
        text.append(" · PARTIAL", style="bold yellow")
    return text


def _show_job(console: Console, job: dict[str, Any], fidelity: str, *, headed: bool) -> None:
    console.print()
    if headed:
        console.print(Text(f"{job['name']} ({job['ranks']} ranks, {job['state']})", style="bold"))
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    for name, value, remark in figures(job, fidelity):
        table.add_row(name, Text(value, style="bold"), remark)
    console.print(table)
    console.print()
    console.print(_breakdown(job))


def _breakdown(job: dict[str, Any]) -> Table:
    mean = (job["iteration_time_s"] or {}).get("mean")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("where an iteration goes")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    table.add_column("")
    for part in PARTS:
        value = part.seconds(job)
        share = value / mean if value is not None and mean else None
        bar = Text("█" * round(BAR * share), style=part.colour) if share else Text("")
        table.add_row(part.name, duration(value), percent(share), bar, style="" if value else "dim")
    return table


def _job_table(jobs: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("job", "state"):
        table.add_column(name)
    for name in ("ranks", "iteration", "vs ideal", "compute", "exposed", "bubble", "tokens/s", "MFU"):
        table.add_column(name, justify="right")
    for job in jobs:
        mean, ideal = (job["iteration_time_s"] or {}).get("mean"), job.get("ideal_iteration_time_s")
        table.add_row(
            job["name"], job["state"], str(job["ranks"]), duration(mean),
            against(mean, ideal) if mean and ideal else UNKNOWN, duration(job["compute_s"]),
            duration(job["exposed_communication_s"]), duration(job["bubble_s"]), count(job["tokens_per_s"]),
            percent(job["mfu"]),
        )  # fmt: skip
    return table


def _show_flows(console: Console, summary: dict[str, Any]) -> None:
    flows = summary.get("flows") or {}
    if flows.get("count"):
        console.print()
        console.print(
            f"{flows['count']:,} flows: completion mean {duration(flows['fct_mean_s'])}, p50 "
            f"{duration(flows['fct_p50_s'])}, p99 {duration(flows['fct_p99_s'])}, max {duration(flows['fct_max_s'])}"
        )


def _show_unseen(console: Console, summary: dict[str, Any]) -> None:
    line = unseen_line(summary)
    if line is not None:
        console.print()
        console.print(Text(line))


def _show_links(console: Console, summary: dict[str, Any]) -> None:
    links = (summary.get("network") or {}).get("links_most_loaded") or []
    if not links:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("most loaded links", overflow="fold")
    table.add_column("tier")
    table.add_column("utilisation", justify="right")
    table.add_column("carried", justify="right")
    for link in links[:8]:
        table.add_row(Text(link["name"]), link["tier"], percent(link["utilisation"]), size(link["bytes"]))
    console.print()
    console.print(table)


def _show_cost(console: Console, summary: dict[str, Any]) -> None:
    """Dollars, watts and joules, where sheets have them."""
    cost = summary.get("cost") or {}
    parts = []
    if cost.get("fabric_usd") is not None:
        parts.append(f"fabric US$ {count(cost['fabric_usd'])}")
    if cost.get("gpus_usd") is not None:
        parts.append(f"GPUs US$ {count(cost['gpus_usd'])}")
    if cost.get("fabric_power_w") is not None:
        parts.append(f"fabric {power(cost['fabric_power_w'])}")
    if cost.get("gpus_power_w") is not None:
        parts.append(f"GPUs {power(cost['gpus_power_w'])}")
    jobs = cost.get("jobs") or []
    if len(jobs) == 1 and jobs[0]["iteration_energy_j"] is not None:
        parts.append(f"{energy(jobs[0]['iteration_energy_j'])} an iteration")
    if cost.get("hour_usd") is not None:
        parts.append(f"US$ {count(cost['hour_usd'])} an hour")
    if len(jobs) == 1 and jobs[0]["tokens_per_usd"] is not None:
        parts.append(f"{short_count(jobs[0]['tokens_per_usd'])} tokens a US$")
    if parts:
        console.print()
        console.print(f"by data sheets: {', '.join(parts)}", style="dim")


def _show_end(console: Console, result: Result) -> None:
    summary = result.summary
    kinds: dict[str, int] = {}
    for entry in summary.get("evidence") or []:
        kinds[entry["kind"]] = kinds.get(entry["kind"], 0) + 1
    _show_cost(console, summary)
    console.print()
    if kinds:
        parts = ", ".join(f"{n} {name}" for name, n in sorted(kinds.items()))
        console.print(f"constants: {parts}", style="dim")
    events = f", {summary['events']:,} events" if summary.get("events") is not None else ""
    console.print(
        f"simulated {duration(summary['simulated_time_s'])} in {duration(summary['wall_time_s'])}{events}",
        style="dim",
    )
    views = [name for name in ("report.html", "trace.pftrace.gz") if (result.path / name).is_file()]
    text = Text(f"wrote {result.path}/: summary.json, manifest.json, ")
    text.append(", ".join([*views, f"tables {' '.join(result.tables)}"]))
    console.print(text, soft_wrap=True)
