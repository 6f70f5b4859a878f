"""What a search found, on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from windtunnel.cli.console import out, whole
from windtunnel.text import UNKNOWN, duration, percent, size

if TYPE_CHECKING:
    from windtunnel.explore.advise import Advice
    from windtunnel.explore.prove import Proven
    from windtunnel.explore.search import Found
    from windtunnel.layout.job import Job


STOPPED = "stopped: this is the best that was found until then, not the best of the space"
"""Stands beside the table too: who reads the output from a file does not see standard error."""


def show(
    job: Job, found: Found, rows: list[Proven], record: dict[str, Any], advice: Advice | None, *, top: int
) -> None:
    """The best layouts, what the proof changed, what was left out, and the advice if there is any."""
    console = out()
    head = f"{job.own['model']} on {_numbers(found, job)} GPUs: {found.tried:,} layouts, {len(found.rows):,} fit"
    console.print(Text(head, style="bold"))
    if found.stopped:
        console.print(STOPPED, markup=False)
    console.print()
    whole().print(_table(job, rows[:top], record["rows"]))
    proof = record["proof"]
    console.print()
    if proof["proven"]:
        turned = f"{proof['turned']} of {proof['pairs']} pairs came out the other way round"
        mean, most = proof["mean_error"], proof["largest_error"]
        error = f"the cost model was off by {mean:+.1%} in the mean, {most:.1%} at most"
        console.print(f"{proof['proven']} ran as flows: {turned}; {error}", markup=False)
    baseline = record["sailor"]
    if baseline is not None:
        over = f"{baseline['over_best']:.2f} times the best"
        console.print(f"pipelines outermost, 1F1B, no chunks, no context parallelism: {over}", markup=False)
    held = rows[0].answer.held_s / (rows[0].answer.iteration_s or 1.0)
    if held > 0:
        console.print(
            f"a GPU waits {percent(held)} of an iteration on average, for others of its stage are slower and "
            "replicas have equal batches",
            markup=False,
        )
    of_token = []
    if record["energy_j_per_token"] is not None:
        of_token.append(f"{record['energy_j_per_token']:.3g} J a token")
    if record["usd_per_token"] is not None:
        of_token.append(f"{record['usd_per_token'] * 1e6:.3g} US$ a million tokens")
    if of_token:
        console.print(f"the best takes {' and '.join(of_token)}, by the sheets", markup=False)
    left = [*found.accounts.left_out.items(), *found.accounts.refused.items()]
    if found.accounts.too_large:
        left.append(("more memory than a GPU has", found.accounts.too_large))
    for reason, number in sorted(left, key=lambda item: -item[1])[:6]:
        console.print(f"{number:>8,}  left out: {reason}", markup=False, style="dim")
    if advice is not None:
        _advice(advice)


def _numbers(found: Found, job: Job) -> str:
    """Of GPUs, that layouts were found for."""
    return ", ".join(map(str, sorted({row[0].gpus for row in found.rows}))) or str(job.gpus)


def _advice(advice: Advice) -> None:
    """What each setting of the network came to, and what to choose."""
    console = out()
    console.print()
    console.print(Text("Network", style="bold"))
    console.print(advice.traffic.says(), markup=False)
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("knob", "settings"):
        table.add_column(name, no_wrap=True)
    for name in ("time", "over written", "sent again"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    best, own = advice.best(), advice.written.seconds
    for row in advice.rows:
        knob = f"{row.loss:.2%} lost" if row.loss else row.knob
        if row.seconds is None:
            table.add_row(knob, row.name(), UNKNOWN, UNKNOWN, UNKNOWN, (row.message or "")[:60])
            continue
        over = UNKNOWN if not own else f"{row.seconds / own:.2f}"
        again = UNKNOWN if row.retransmissions is None else f"{row.retransmissions:,}"
        table.add_row(knob, row.name(), duration(row.seconds), over, again, "best" if row is best else "")
    console.print(table)
    console.print()
    for sentence in advice.sentences():
        console.print(sentence, markup=False)


def _table(job: Job, rows: list[Proven], records: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    packets = any(row.packet_s is not None for row in rows)
    sizes = [key for key in ("tp", "cp", "ep", "pp", "dp", "zero") if key != "ep" or job.experts]
    several = len({row.candidate.gpus for row in rows}) > 1
    names = ["", "estimate", "flows", *(["packets"] if packets else []), "MFU", "memory"]
    names += [*(["J/token", "US$/M tokens", "GPUs"] if several else []), *sizes]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("order", "schedule", "mb", "recompute", "beside"):
        table.add_column(name, no_wrap=True)
    for i, (row, record) in enumerate(zip(rows, records, strict=True), start=1):
        it = row.candidate
        joules, usd = record["energy_j_per_token"], record["usd_per_token"]
        of_token = [UNKNOWN if joules is None else f"{joules:.3g}", UNKNOWN if usd is None else f"{usd * 1e6:.3g}"]
        schedule = UNKNOWN if it.pp == 1 else it.schedule + (f" {it.chunks}" if it.chunks > 1 else "")
        schedule += f" N {it.run_length}" if it.run_length else ""
        schedule += f" of {min(it.layers)}-{max(it.layers)} layers" if it.layers else ""
        times = [row.answer.iteration_s, row.flow_s, *([row.packet_s] if packets else [])]
        order = it.order + (f" x{it.replicate}" if it.replicate > 1 else "")
        table.add_row(
            str(i), *(UNKNOWN if s is None else duration(s) for s in times), percent(row.answer.mfu),
            size(row.answer.memory_bytes), *([*of_token, str(it.gpus)] if several else []),
            *(str(getattr(it, key)) for key in sizes),
            order if it.pp > 1 or it.replicate > 1 else UNKNOWN, schedule, str(it.micro_batch), it.recompute,
            row.answer.limit(),
        )  # fmt: skip
    return table
