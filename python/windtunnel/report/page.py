"""The page: main figures, breakdown, figures, tables, evidence, manifest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from windtunnel.breakdown import PART, PARTS
from windtunnel.cluster import cluster_figures, size_of
from windtunnel.ideal import against
from windtunnel.report.html import Raw, card, page, section, table, text
from windtunnel.results.folder import write_beside
from windtunnel.results.rows import Rows, rows_of
from windtunnel.text import UNKNOWN, count, duration, percent, rate, size
from windtunnel.unseen import unseen

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel.results import Result

MOST_JOBS = 4
"""Jobs whose iterations are drawn; the table has all."""

MOST_STEPS = 12
"""Steps of the critical path that are listed."""


def write_report(result: Result, path: Path) -> Path:
    """Writes the report of `result` to `path` and returns it. What a run did not record is left out."""
    summary = result.summary
    jobs = summary["jobs"]
    content: list[str] = [_head(summary)]
    if len(jobs) == 1:
        content.append(_cards(jobs[0]))
    else:
        content.append(_cluster(summary))
    content += _over_time(result)
    if len(jobs) > 1:
        content.append(_jobs(jobs))
    for job in jobs[:MOST_JOBS]:
        content += _job_sections(result, job, named=len(jobs) > 1)
    content += [_unseen(summary), _links(result), _completion(result), _queue_pairs(result)]
    content += [_evidence(summary), _manifest(result)]
    write_beside(path, page(f"{summary['scenario']} · Windtunnel", *content).encode())
    return path


def _head(summary: dict[str, Any]) -> Raw:
    words = [f"{summary['fidelity']} fidelity", size_of(summary), f"seed {summary['seed']}",
             f"Windtunnel {summary['windtunnel']}"]  # fmt: skip
    partial = ""
    if summary["partial"]:
        partial = '<div class="partial">The run was interrupted: this result is partial.</div>'
    return Raw(f"<header><h1>{text(summary['scenario'])}</h1><p>{text(' · '.join(words))}</p></header>{partial}\n")


def _cards(job: dict[str, Any]) -> Raw:
    mean, ideal = (job["iteration_time_s"] or {}).get("mean"), job.get("ideal_iteration_time_s")
    memory = job.get("memory") or {}
    cards = [card("iteration time", duration(mean), f"{job['simulated_iterations']} simulated")]
    if mean and ideal:
        cards.append(card("vs ideal fabric", against(mean, ideal), f"ideal {duration(ideal)}"))
    if job.get("tokens_per_s") is not None:
        tokens = job["tokens_per_s"]
        cards.append(card("tokens/s", count(tokens), f"{count(tokens / job['ranks'])} per GPU"))
    if job.get("mfu") is not None:
        cards.append(card("model FLOPS utilisation", percent(job["mfu"])))
    exposed = job.get("exposed_communication_s")
    if exposed is not None and mean:
        cards.append(card("exposed communication", percent(exposed / mean), duration(exposed)))
    if job.get("memory_bytes_per_gpu") is not None:
        of = f"of {size(memory['capacity'])}" if memory.get("capacity") else ""
        cards.append(card("memory per GPU", size(job["memory_bytes_per_gpu"]), of))
    return Raw(f'<div class="cards">{"".join(cards)}</div>\n')


def _cluster(summary: dict[str, Any]) -> Raw:
    cards = [card(name, value, remark) for name, value, remark in cluster_figures(summary)]
    return Raw(f'<div class="cards">{"".join(cards)}</div>\n')


def _over_time(result: Result) -> list[str]:
    """The calendar's sections, where there is one."""
    usage = _rows(result, "usage")
    if usage is None:
        return []
    from windtunnel.report import timeline  # noqa: PLC0415

    end = float(usage["from_s"][-1] + usage["span_s"][-1])
    remark = "Stranded GPUs are free and enough for the next job, but not where it may have them."
    content: list[str] = [section("The cluster over time", remark, Raw(timeline.usage_chart(usage)))]
    if (placements := _rows(result, "placements")) is not None:
        remark = "A lane is a GPU, a colour a job; colours repeat."
        faults = rows_of(result, "faults") if "faults" in result.tables else None
        if faults is not None:
            remark += " What has failed is violet, a cross is a fault that hit a job."
        content.append(section("Jobs over hosts", remark, Raw(timeline.hosts_chart(placements, end, faults))))
    if (jobs := _rows(result, "jobs")) is not None and jobs.height > MOST_JOBS:
        content.append(section("Waiting", "", Raw(timeline.waiting_chart(jobs))))
    if (heat := _rows(result, "heat")) is not None:
        remark = f"Mean utilisation of the {heat.height:,} most used links outside hosts."
        content.append(section("Links over the calendar", remark, Raw(timeline.heat_chart(heat, end))))
    if (congestion := _rows(result, "congestion")) is not None:
        spans = [until - begin for begin, until in congestion.each("from_s", "until_s")]
        longest = sorted(range(len(spans)), key=lambda i: -spans[i])[:MOST_STEPS]
        cells = [
            [job, duration(begin), duration(until - begin), cause, f"{slowdown:.2f}×"]
            for job, begin, until, cause, slowdown in congestion.take(longest).each(
                "job", "from_s", "until_s", "cause", "slowdown"
            )
        ]
        head = ["job", "from", "for", "cause", "slowdown"]
        remark = (
            f"{congestion.height:,} periods in which a job could not fill the bandwidth between its hosts and their "
            "leaves, and the job that caused each (itself where its own flows meet); the longest."
        )
        content.append(section("Congestion", remark, table(head, cells, [1, 2, 4])))
    return content


def _rows(result: Result, name: str) -> Rows | None:
    """The rows of a table; None where the run has none."""
    if name not in result.tables:
        return None
    found = rows_of(result, name)
    return found if found.height else None


def _jobs(jobs: list[dict[str, Any]]) -> Raw:
    rows = []
    for job in jobs:
        mean, ideal = (job["iteration_time_s"] or {}).get("mean"), job.get("ideal_iteration_time_s")
        rows.append([
            job["name"], job["state"], count(job["ranks"]), duration(mean),
            against(mean, ideal) if mean and ideal else UNKNOWN,
            duration(job["exposed_communication_s"]), duration(job["bubble_s"]), count(job["tokens_per_s"]),
            percent(job["mfu"]),
        ])  # fmt: skip
    head = ["job", "state", "ranks", "iteration", "vs ideal", "exposed", "bubble", "tokens/s", "MFU"]
    return section("Jobs", "", table(head, rows, range(2, 9)))


def _job_sections(result: Result, job: dict[str, Any], *, named: bool) -> list[str]:
    from windtunnel.report.gantt import NEEDED, gantt  # noqa: PLC0415
    from windtunnel.report.waterfall import waterfall  # noqa: PLC0415

    prefix = f"{job['name']}: " if named else ""
    content: list[str] = [
        section(
            f"{prefix}Where an iteration goes",
            "Every moment of the critical path belongs to one part; the parts sum to the iteration time.",
            _breakdown(job),
        )
    ]
    rows = rows_of(result, "iterations", job=job["name"]) if "iterations" in result.tables else None
    if rows is not None and rows.height:
        remark = "What each simulated iteration is made of; point at a part for its time."
        content.append(section(f"{prefix}Iterations", remark, Raw(waterfall(rows, job.get("ideal_iteration_time_s")))))
    if "operations" in result.tables:
        rows = rows_of(result, "operations", NEEDED, job=job["name"], last=True)
        if rows.height and (chart := gantt(rows)):
            remark = (
                f"{rows.height:,} operations of the recorded ranks in iteration {rows['iteration'][0]}, by pipeline "
                "stage and stream; the trace shows each operation."
            )
            title = "One pipeline" if max(rows["stage"]) else "What the recorded ranks do"
            content.append(section(f"{prefix}{title}", remark, Raw(chart)))
    # Of an iteration that was undone there are several.
    path = rows_of(result, "critical_path", job=job["name"], last=True) if "critical_path" in result.tables else None
    if path is not None and path.height:
        content.append(_critical_path(path, prefix))
    return content


def _breakdown(job: dict[str, Any]) -> Raw:
    mean = (job["iteration_time_s"] or {}).get("mean")
    rows = []
    none = [part.name for part in PARTS if part.seconds(job) == 0]
    for part in PARTS:
        value = part.seconds(job)
        if value == 0:
            continue
        share = value / mean if value is not None and mean else None
        swatch = Raw(f'<span class="swatch" style="background:{part.colour}"></span>{text(part.name)}')
        width = f"{100 * (share or 0):.2f}%"
        bar = Raw(f'<div class="bar" style="width:{width};background:{part.colour}"></div>' if value else "")
        rows.append([swatch, duration(value), percent(share), bar])
    memory = job.get("memory") or {}
    extra = ""
    if memory.get("total"):
        parts = [[key, size(value)] for key, value in memory.items() if key not in {"total", "capacity"}]
        parts += [["total", size(memory["total"])], ["capacity", size(memory.get("capacity"))]]
        extra = f'<div class="narrow"><h3>Memory of a GPU</h3>{table([], parts, [1])}</div>'
    if none:
        extra = f'<p style="color:var(--muted);margin:10px 0 0">Nothing: {text(", ".join(none))}.</p>{extra}'
    return Raw(
        table(["part", "time", "share", ""], rows, [1, 2]).replace("<th></th>", '<th style="width:50%"></th>') + extra
    )


def _critical_path(last: Rows, prefix: str) -> Raw:
    """The longest steps of the critical path of one iteration."""
    spans = [finish - start for start, finish in last.each("start_ps", "finish_ps")]
    steps = last["step"]
    longest = last.take(sorted(range(last.height), key=lambda i: (-spans[i], steps[i]))[:MOST_STEPS])
    cells = []
    for row in longest.records():
        part = PART.get(row["category"])
        swatch = f'<span class="swatch" style="background:{part.colour}"></span>' if part else ""
        name = Raw(f"{swatch}{text(part.name if part else row['category'])}")
        cells.append(
            [
                count(row["step"]),
                name,
                row["label"],
                count(row["rank"]),
                duration((row["finish_ps"] - row["start_ps"]) / 1e12),
                row["links"],
            ]
        )
    return section(
        f"{prefix}Longest steps of the critical path",
        f"The critical path of iteration {last['iteration'][0]} has {last.height:,} steps; these take longest.",
        table(["step", "part", "operation", "rank", "time", "links"], cells, [0, 3, 4]),
    )


def _unseen(summary: dict[str, Any]) -> str:
    phrases = unseen(summary)
    if phrases is None:
        return ""
    remark = (
        "Flows are fluids without packets and queues. Where none of this happens, both fidelities agree within 3%, "
        "but for messages of few packets."
    )
    items = "".join(f"<li>{text(phrase)}</li>" for phrase in phrases)
    content = f"<ul>{items}</ul>" if items else "<p>Nothing: no loss, pause, mark or queue.</p>"
    return section("What flow fidelity would not see", remark, content)


def _links(result: Result) -> str:
    top = (result.summary.get("network") or {}).get("links_most_loaded") or []
    content = []
    rates = {}
    if "links" in result.tables:
        from windtunnel.report.heatmap import heatmap  # noqa: PLC0415

        if chart := heatmap(result):
            content.append(Raw(chart))
        named = rows_of(result, "links", ["name", "rate_bps"], among=("name", [link["name"] for link in top]))
        rates = dict(named.each("name", "rate_bps"))
    if top:
        rows = [
            [
                link["name"],
                link["tier"],
                rate(rates.get(link["name"])),
                percent(link["utilisation"]),
                size(link["bytes"]),
            ]
            for link in top
        ]
        head = ["most loaded links", "tier", "rate", "utilisation", "carried"]
        content.append(table(head, rows, [2, 3, 4]))
    if not content:
        return ""
    return section("Links", "Utilisation of every link that carried anything, over the simulated time.", *content)


def _completion(result: Result) -> str:
    from windtunnel.report.cdf import by_path  # noqa: PLC0415

    for name in ("flows", "messages"):
        if chart := by_path(result, name):
            title = f"{name.capitalize().removesuffix('s')} completion times"
            remark = (
                "From start to last byte, by how far they go: the share that took at most so long; point at a mark."
            )
            return section(title, remark, Raw(chart))
    return ""


def _queue_pairs(result: Result) -> str:
    from windtunnel.report.pairs import NEEDED, queue_pairs  # noqa: PLC0415
    from windtunnel.results.rows import rows_of  # noqa: PLC0415

    if "queue_pairs" not in result.tables or not (chart := queue_pairs(rows_of(result, "queue_pairs", NEEDED))):
        return ""
    remark = "What was asked for by `results.queue_pairs`, at most eight of them; windows are dashed."
    return section("Queue pairs over time", remark, Raw(chart))


def _evidence(summary: dict[str, Any]) -> str:
    entries = summary.get("evidence") or []
    if not entries:
        return ""
    rows = [[entry["constant"], entry["kind"], entry["source"]] for entry in entries]
    remark = "Where the constants come from: measured, calibrated, from a data sheet, or inferred."
    return section("Evidence", remark, table(["constant", "how it is known", "source"], rows))


OF_THE_MACHINE = ("command", "finished", "wall_time_s", "machine", "threads")
"""Entries of the manifest and its options that tell when, where and how: equal runs have equal reports, so these are in
the file alone."""


def _manifest(result: Result) -> Raw:
    entries = {key: value for key, value in result.manifest.items() if key not in OF_THE_MACHINE}
    if isinstance(options := entries.get("options"), dict):
        entries["options"] = {key: value for key, value in options.items() if key not in OF_THE_MACHINE}
    rows = [[key, Raw(f"<code>{text(_plain(value))}</code>")] for key, value in entries.items()]
    remark = "What it takes to run this again. `scenario.yaml` and `manifest.json`, which says when and where it ran, "
    remark += "lie beside this file."
    return section("Manifest", remark, table([], rows))


def _plain(value: object) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
