"""Answers about routes on the terminal: paths hop by hop, equal-cost ports, faults, checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from windtunnel.text import UNKNOWN, count, duration, percent, rate
from windtunnel.topology_view.cells import metres

if TYPE_CHECKING:
    from rich.console import Console

Record = dict[str, Any]

VERDICTS = {
    "legal": ("legal", "green"),
    "detour": ("a detour, for no legal path is left", "yellow"),
    "blackhole": (
        "black hole: the switches that know of the fault have no port left, the others still send there",
        "red",
    ),
    "unreachable": ("unreachable", "red"),
}

SHOWN_SWITCHES = 24
"""Most switches of an equal-cost answer that are listed."""


def show_faults(console: Console, faults: Record) -> None:
    """What is failed, and what is made of it."""
    names = [*(f"switch {name}" for name in faults["switches"]), *(f"link {name}" for name in faults["links"])]
    text = Text(f"failed: {', '.join(names[:8])}{f' and {len(names) - 8} more' if len(names) > 8 else ''}", style="red")
    weighted = ", weighted" if faults["weighted"] else ""
    text.append(f" · repair {faults['repair']}, detours {faults['detour']}{weighted}", style="dim")
    console.print(text)


def show_path(console: Console, path: Record) -> None:
    """A path: a line for each link."""
    console.print()
    words, style = VERDICTS.get(path["verdict"], (path["verdict"], "red"))
    text = Text(f"{path['from']} → {path['to']}", style="bold")
    text.append(
        f" · {path['class']} · {path['balancer']}, NIC {path['nic']}, entropy {path['entropy']} · ", style="dim"
    )
    text.append(words, style=style)
    console.print(text)
    if not path["links"]:
        return
    whole = all(link["share"] == 1.0 for link in path["links"])
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    table.add_column("link", overflow="fold")
    for name in ("tier", "rate", "length", "latency", *([] if whole else ["share"])):
        table.add_column(name, justify="left" if name == "tier" else "right")
    for i, link in enumerate(path["links"]):
        length = metres(link["length_m"]) if link["length_m"] else UNKNOWN
        row = [str(i + 1), Text(link["name"]), link["tier"], rate(link["rate_bps"]), length,
               duration(link["latency_ps"] / 1e12)]  # fmt: skip
        table.add_row(*row, *([] if whole else [percent(link["share"])]))
    console.print(table)
    slowest = min(link["rate_bps"] for link in path["links"])
    console.print(f"latency {duration(path['latency_ps'] / 1e12)}, slowest link {rate(slowest)}", style="dim")


def show_ecmp(console: Console, ecmp: Record) -> None:
    """Equal-cost ports of every switch on the way."""
    console.print()
    words, style = VERDICTS.get(ecmp["verdict"], (ecmp["verdict"], "red"))
    text = Text(f"{ecmp['from']} ⇉ {ecmp['to']}", style="bold")
    text.append(f" · {ecmp['class']} · {count(ecmp['paths'])} paths · ", style="dim")
    text.append(words, style=style)
    console.print(text)
    for plane in ecmp["planes"]:
        if len(ecmp["planes"]) > 1:
            console.print(f"plane {plane['plane']}: {count(plane['paths'])} paths", style="dim")
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("switch")
        for name in ("share", "paths on"):
            table.add_column(name, justify="right")
        table.add_column("equal-cost ports → next (weight)", overflow="fold")
        for switch in plane["switches"][:SHOWN_SWITCHES]:
            table.add_row(
                Text(switch["switch"], style="bold"), percent(switch["share"]), count(switch["paths"]),
                Text(_ports(switch["ports"])),
            )  # fmt: skip
        console.print(table)
        if len(plane["switches"]) > SHOWN_SWITCHES:
            console.print(f"… and {len(plane['switches']) - SHOWN_SWITCHES} more switches", style="dim")


def _ports(ports: list[Record], most: int = 8) -> str:
    even = len({port["weight"] for port in ports}) == 1
    texts = [f"{p['port']} → {p['to']}" + ("" if even else f" ({p['weight']})") for p in ports]
    if len(texts) > most:
        return ", ".join([*texts[: most // 2], f"… {len(texts) - most // 2 - 1} more …", texts[-1]])
    return ", ".join(texts)


def show_check(console: Console, check: Record) -> None:
    """What was compared, and what came out."""
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("check")
    table.add_column("compared", justify="right")
    table.add_column("")
    table.add_column("what", overflow="fold")
    for one in check["checks"]:
        sign = Text("holds", style="green") if one["ok"] else Text("FAILS", style="bold red")
        compared = f"{count(one['compared'])}{'' if one['exhaustive'] else ' drawn'}"
        table.add_row(Text(one["name"], style="bold"), compared, sign, Text(one["what"], style="dim"))
    console.print(table)
    for one in check["checks"]:
        for failure in one["failures"]:
            console.print(Text(f"{one['name']}: {failure}", style="red"))
    pairs = check["pairs"]
    parts = [f"{count(pairs[key])} {key}" for key in ("legal", "detour", "unreachable", "blackhole") if pairs[key]]
    found = f": {', '.join(parts)}" if parts else " to compare"
    console.print(f"{count(pairs['compared'])} pairs of switches{found}", style="dim")
    for key, words in (("detoured", "by a detour"), ("cut_off", "cut off")):
        if pairs.get(key):
            console.print(Text(f"{words}: " + ", ".join(f"{a} → {b}" for a, b in pairs[key]), style="yellow"))
