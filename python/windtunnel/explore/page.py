"""The page of a search: what won, time against memory, what limits each layout, and what a knob elsewhere would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.explore.export import FRAMEWORKS, settings
from windtunnel.explore.prove import reordering
from windtunnel.explore.search import KNOBS
from windtunnel.report.html import Raw, card, page, section, text
from windtunnel.report.html import table as html_table
from windtunnel.report.study.front import scatter
from windtunnel.report.study.table import PageRow, Table
from windtunnel.text import UNKNOWN, duration, percent, size

if TYPE_CHECKING:
    from windtunnel.explore.advise import Advice
    from windtunnel.explore.prove import Proven
    from windtunnel.explore.search import Found
    from windtunnel.layout.job import Job

SHOWN = 40
DRAWN = 1_500


def explorer_page(
    job: Job, found: Found, rows: list[Proven], outcome: dict[str, Any], advice: Advice | None = None
) -> str:
    """The page as HTML text."""
    best = rows[0]
    marked = Raw('<p class="partial">The search was stopped: this is the best that it had found.</p>')
    head = Raw(
        f"<header><h1>{text(job.own['model'])} on {best.candidate.gpus} GPUs</h1>"
        f"<p>{found.tried:,} layouts asked of the cost model, {len(found.rows):,} fit</p></header>"
        f"{marked if found.stopped else ''}"
    )
    cards = [
        card("iteration", duration(best.best_s), said(best)),
        card("memory", size(best.answer.memory_bytes), f"of {size(best.answer.capacity_bytes)}"),
        card("MFU", percent(best.answer.mfu), best.answer.limit()),
    ]
    energy = outcome.get("energy_j_per_token")
    if energy is not None:
        cards.append(card("energy", f"{energy:.3g} J", "a token, by the sheets' power"))
    usd = outcome.get("usd_per_token")
    if usd is not None:
        cards.append(card("dollars", f"{usd * 1e6:.3g} US$", "a million tokens, by the prices of the sheets"))
    drawn = [
        PageRow(
            {key: value for key, value in candidate.record().items() if value is not None},
            {"iteration_s": answer.iteration_s, "memory_bytes": float(answer.memory_bytes)}, {}, "done", None, None,
        )
        for candidate, answer in [*found.rows[:DRAWN], *found.front()] if not answer.least
    ]  # fmt: skip
    figures = ["iteration_s", "memory_bytes"]
    front = scatter(Table(job.own["model"], list(KNOBS), figures, drawn), *figures)
    parts = [head, Raw(f'<div class="cards">{"".join(cards)}</div>\n'), _best(rows)]
    if front:
        parts.append(
            section(
                "Time against memory",
                "Red: layouts that no other beats in all of time, memory and, of several numbers of GPUs, GPU-seconds.",
                Raw(front),
            )
        )
    parts += [_proof(rows), _knobs(found)]
    if advice is not None:
        parts.append(_network(advice))
    parts.append(_accounts(found))
    for name in FRAMEWORKS:
        told = text(settings(job, best.candidate, name))
        parts.append(section(f"Settings: {name}", "", Raw(f"<pre><code>{told}</code></pre>")))
    return page(f"{job.own['model']}, explored · Windtunnel", *parts)


def said(row: Proven) -> str:
    """Where a time comes from."""
    return ("simulated packet by packet", "simulated as flows", "by the cost model")[row.level]


def _best(rows: list[Proven]) -> str:
    head = ["", "iteration", "flows", "packets", "memory", "limited by", *KNOBS]
    body = []
    for i, row in enumerate(rows[:SHOWN], start=1):
        record = row.candidate.record()
        times = [row.answer.iteration_s, row.flow_s, row.packet_s]
        body.append(
            [i, *(UNKNOWN if s is None else duration(s) for s in times), size(row.answer.memory_bytes),
             row.answer.limit(), *(UNKNOWN if record[key] is None else record[key] for key in KNOBS)]
        )  # fmt: skip
    remark = "The iteration is the cost model's; what was simulated goes before it."
    return section("The best layouts", remark, html_table(head, body, numbers=(0, 1, 2, 3, 4)))


def _proof(rows: list[Proven]) -> str:
    found = reordering(rows)
    if not found["proven"]:
        return section("Proof", "Nothing was simulated.", "")
    mean, largest = found["mean_error"] or 0.0, found["largest_error"] or 0.0
    remark = (
        f"{found['proven']} layouts ran as flows; of {found['pairs']} pairs {found['turned']} came out the other way "
        f"round. The cost model was off by {mean:+.1%} in the mean and by {largest:.1%} at most."
    )
    return section("Proof", remark, "")


def _knobs(found: Found) -> str:
    """The best layout for each value of each knob, beside the best of all."""
    best = found.rows[0][1].iteration_s or 1.0
    body = []
    for key, least in found.by_knob().items():
        times = {row[0].record()[key]: row[1].iteration_s or best for row in least.values()}
        shown = (f"{UNKNOWN if value is None else value}: {time / best:.3g} x" for value, time in times.items())
        body.append([key, ", ".join(shown)])
    remark = "The best layout with each value of a knob over the best of all: what is lost if the knob has to stay."
    return section("One knob at a time", remark, html_table(["knob", "time over the best"], body))


def _network(advice: Advice) -> str:
    """Settings of the network, what each came to, and what to choose."""
    best, own = advice.best(), advice.written.seconds
    body = []
    for row in advice.rows:
        seconds = row.seconds
        told = [UNKNOWN if seconds is None else duration(seconds), UNKNOWN]
        if seconds is not None and own:
            told[1] = f"{seconds / own:.2f}"
        again = UNKNOWN if row.retransmissions is None else row.retransmissions
        note = "best" if row is best else row.message or ""
        body.append([f"{row.loss:.2%} lost" if row.loss else row.knob, row.name(), *told, again, note])
    said = "; ".join(advice.sentences())
    head = ["knob", "settings", "time", "over written", "sent again", ""]
    remark = f"Simulated packet by packet: {advice.traffic.says()}. {said[:1].upper()}{said[1:]}."
    return section("Network", remark, html_table(head, body, numbers=(2, 3, 4)))


def _accounts(found: Found) -> str:
    accounts = found.accounts
    rows = [*accounts.left_out.most_common(), *accounts.refused.most_common()]
    if accounts.too_large:
        rows.append(("more memory than a GPU has", accounts.too_large))
    return section("What was left out", "", html_table(["reason", "layouts"], rows, numbers=(1,)))
