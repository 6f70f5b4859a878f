"""The page of a recording: one self-contained HTML file."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from windtunnel.report.html import Raw, card, page, section, table, text
from windtunnel.text import count, duration, size

if TYPE_CHECKING:
    from windtunnel.recording import Explanation

MOST_RANKS = 20
"""Ranks of a group that are listed, those that came last most often first."""
MOST_COLLECTIVES = 15
NAMES = {
    "tp": "tensor parallelism",
    "cp": "context parallelism",
    "ep": "expert parallelism",
    "pp": "pipeline parallelism",
    "dp": "data parallelism",
    "other": "other groups",
}


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole > 0 else "0%"


def _bar(part: float, whole: float, colour: str = "#3b7dd8") -> Raw:
    width = 100 * part / whole if whole > 0 else 0
    return Raw(f'<div class="bar" style="width:{width:.2f}%;background:{colour}"></div>')


def recording_page(found: Explanation) -> str:
    """The page."""
    whole = found.replayed_s
    cards = [
        card("recorded", duration(found.recorded_s) if found.recorded_s else "not said", "the longest rank's steps"),
        card("replayed", duration(whole), f"{found.fidelity} fidelity"),
        card("computation", _share(found.compute_s, whole), "of the replay, on the rank that ends last"),
        card("exposed communication", _share(sum(found.exposed_s.values()), whole), "which nothing hides"),
    ]
    head = Raw(
        f"<h1>{text(found.workload)}</h1><p>{count(found.ranks)} ranks on {count(found.hosts)} hosts of "
        f"{found.gpus_per_host} GPUs</p><div class='cards'>{''.join(cards)}</div>"
    )
    return page(f"{found.workload} explained", head, _time(found), _what_if(found), *_last(found), _bytes(found), _account(found))


def _time(found: Explanation) -> Raw:
    parts = [("computation", found.compute_s)]
    parts += [(f"exposed: {NAMES.get(key, key)}", value) for key, value in found.exposed_s.items() if value > 0]
    parts += [("waiting for stages of a pipeline", found.bubble_s), ("waiting for the last rank", found.straggler_s)]
    parts += [("host and launches", found.host_s)]
    rows = [
        (name, duration(value), _share(value, found.replayed_s), _bar(value, found.replayed_s))
        for name, value in parts
        if value > 0
    ]
    remark = "Of the rank that ends last: what it did, and what each gap waited for. The parts add up to the time."
    return section("Where the time goes", remark, table(["", "time", "share", ""], rows, numbers=[1, 2]))


def _what_if(found: Explanation) -> Raw:
    rows: list[tuple[str, str, str]] = [("as it is", duration(found.replayed_s), "")]
    if found.ideal_fabric_s is not None:
        saved = found.replayed_s - found.ideal_fabric_s
        rows.append(("an ideal fabric: NICs alone are shared", duration(found.ideal_fabric_s), _share(saved, found.replayed_s)))
    rows.append(("no stragglers", duration(found.no_stragglers_s), _share(found.straggler_s, found.replayed_s)))
    computed = found.replayed_s - sum(found.exposed_s.values())
    rows.append(("communication that costs nothing", duration(computed), _share(found.replayed_s - computed, found.replayed_s)))
    remark = (
        "The ideal fabric is simulated. The other two take the parts above away: what they would give at best, as other waits "
        "may appear behind them."
    )
    return section("What would help", remark, table(["", "time", "saved"], rows, numbers=[1, 2]))


def _last(found: Explanation) -> list[Raw]:
    if not found.arrivals:
        remark = "The recording does not say when each rank came to its collectives (docs: who came last)."
        return [section("Who arrives last", remark)]
    sections = []
    by_group = sorted(found.arrivals, key=lambda row: row["group"])
    for group, members in groupby(by_group, key=lambda row: row["group"]):
        rows = sorted(members, key=lambda row: (-row["last"], row["rank"]))
        total = rows[0]["collectives"]
        lines = [
            (
                f"rank {row['rank']}",
                f"{count(row['last'])} of {count(total)}",
                _bar(row["last"], total, "#d9822b"),
                duration(row["held_up_s"]),
                duration(row["waited_s"]),
            )
            for row in rows[:MOST_RANKS]
        ]
        more = f" The first {MOST_RANKS} of {len(rows)} ranks." if len(rows) > MOST_RANKS else ""
        remark = f"By the recorded starts of {count(total)} collectives of group {group}.{more}"
        head = ["", "came last", "", "held up the others by", "waited for others"]
        sections.append(section(f"Who arrives last: {group}", remark, table(head, lines, numbers=[1, 3, 4])))
    return sections


def _bytes(found: Explanation) -> Raw:
    rows = [
        (row["collective"], row["dimension"], count(row["members"]), size(row["bytes"]), count(row["count"]))
        for row in found.collectives[:MOST_COLLECTIVES]
    ]
    head = ["collective", "for", "members", "bytes", "number"]
    places = ""
    if found.bytes_within_hosts is not None and found.bytes_between_hosts is not None:
        total = found.bytes_within_hosts + found.bytes_between_hosts
        places = (
            f"As messages of their algorithms: {size(found.bytes_within_hosts)} within hosts and "
            f"{size(found.bytes_between_hosts)} between them ({_share(found.bytes_between_hosts, total)})."
        )
    return section("What is communicated", places, table(head, rows, numbers=[2, 3, 4]))


def _account(found: Explanation) -> Raw:
    if found.coverage is None:
        return section("What of the recording is here", "No coverage lies beside the workload.")
    rows = [
        (verdict, count(row["operations"]), size(row["bytes"]), duration(row["time_s"]))
        for verdict, row in found.coverage.items()
    ]
    notes = Raw("".join(f"<p>{text(note)}</p>" for note in found.notes))
    return section("What of the recording is here", "", table(["", "number", "bytes", "time"], rows, numbers=[1, 2, 3]), notes)

