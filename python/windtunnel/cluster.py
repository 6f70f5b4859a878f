"""The cluster's figures in words, for the terminal and the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.text import count, duration, percent

if TYPE_CHECKING:
    from collections.abc import Callable


def size_of(summary: dict[str, Any]) -> str:
    """How much was run: ranks of the jobs in the summary, or how many jobs there were."""
    jobs = summary["jobs"]
    if not jobs:
        return f"{summary['cluster']['jobs']:,} jobs"
    return f"{sum(job['ranks'] for job in jobs):,} ranks"


def cluster_figures(summary: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The main figures of the cluster: name, value, remark."""
    cluster = summary["cluster"]
    total = sum(cluster["gpu_seconds"].values())

    def spread(key: str, show: Callable[[float | None], str]) -> tuple[str, str]:
        found = cluster[key]
        return show(found["mean"]), f"p50 {show(found['p50'])}, p99 {show(found['p99'])}"

    rows = [
        ("makespan", duration(cluster["makespan_s"]), f"{cluster['finished']:,} of {cluster['jobs']:,} jobs ended"),
        ("utilisation", percent(cluster["utilisation"]), ""),
        (
            "stranded",
            percent(cluster["gpu_seconds"]["stranded"] / total if total else None),
            "free, but not for the next job",
        ),
        ("waiting", *spread("waiting_s", duration)),
        ("slowdown", *spread("slowdown", count)),
    ]
    deadlines = cluster.get("deadlines")
    if deadlines:
        met = deadlines["jobs"] - deadlines["missed"]
        late = f"the others {duration(deadlines['late_s']['mean'])} late on average" if deadlines["missed"] else ""
        rows.append(("deadlines met", percent(met / deadlines["jobs"]), late))
    if cluster.get("fragmentation") is not None:
        rows.append(("fragmented", percent(cluster["fragmentation"]), "of the free GPUs are on partly used hosts"))
    if cluster.get("samples_per_s_per_gpu") is not None:
        rows.append(("samples/s per GPU", count(cluster["samples_per_s_per_gpu"]), "of the jobs that ended"))
    congestion = cluster.get("congestion")
    if congestion and congestion["periods"]:
        others = duration(congestion["by_other_jobs_s"])
        rows.append(("congested", duration(congestion["job_seconds"]), f"of jobs' time, {others} by other jobs"))
    rows += _episodes(cluster.get("episodes"))
    if cluster["preemptions"]:
        rows.append(("preemptions", f"{cluster['preemptions']:,}", f"goodput {percent(cluster['goodput'])}"))
    if cluster.get("faults"):
        causes = sorted(cluster["faults"].items(), key=lambda item: -item[1]["interruptions"])
        named = [f"{name} {found['interruptions']:,}" for name, found in causes if found["interruptions"]]
        rows.append(("interruptions", f"{cluster['interruptions']:,}", ", ".join(named)))
        busy, seconds = cluster["gpu_seconds"]["busy"], cluster["busy_gpu_seconds"]
        parts = [
            f"{name} {percent(seconds[name] / busy)}"
            for name in ("lost", "restart", "checkpoint")
            if busy and seconds[name]
        ]
        rows.append(("goodput", percent(cluster["goodput"]), ", ".join(parts)))
        states = cluster["gpu_seconds"]
        failed, draining = (states[name] / total if total else None for name in ("failed", "draining"))
        rows.append(("failed", percent(failed), f"draining {percent(draining)}"))
    skipped = cluster["skipped"]
    if skipped:
        beside = [
            f"{skipped[key]:,} {words}"
            for key, words in (
                ("without_gpus", "without GPUs"),
                ("never_ran", "never ran"),
                ("running", "still ran"),
                ("steps", "steps of jobs"),
            )
            if skipped.get(key)
        ]
        if skipped["rows"] or beside:
            rows.append(("left out", f"{skipped['rows']:,} rows", "; ".join(["with holes", *beside])))
    return rows


def _episodes(episodes: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    """What the network's part cost, where several jobs ran on one."""
    if not episodes or not episodes["begun"]:
        return []
    hits = f"{episodes['memo_hits']:,} memo hits"
    if episodes["memo"] == "symmetric":
        hits += " (symmetric: an approximation)"
    alone = episodes["of_a_job_alone"]
    simulated = f"{episodes['simulated'] - alone:,} simulated"
    if alone:
        # Of one job each, to see its links.
        simulated += f" (+ {alone:,} alone)"
    remark = f"{simulated}, {hits}, {episodes['solves']:,} solves, {episodes['flows']:,} flows"
    return [("episodes", f"{episodes['begun']:,}", remark)]
