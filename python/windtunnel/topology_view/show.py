"""A topology on the terminal: what it is made of, what it costs, and the answers to what was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from windtunnel.cli.console import out
from windtunnel.text import UNKNOWN, count, counted_words, duration, percent, rate, short_count, size
from windtunnel.topology_view.cells import metres
from windtunnel.topology_view.show_routes import show_check, show_ecmp, show_faults, show_path

if TYPE_CHECKING:
    from rich.console import Console

Record = dict[str, Any]


def show(answer: Record) -> None:
    """Prints an answer of the engine: what was asked, or else what the topology is made of."""
    console = out()
    console.print(_headline(answer))
    if answer["faults"]:
        show_faults(console, answer["faults"])
    for path in answer["paths"] or []:
        show_path(console, path)
    for ecmp in answer["ecmp"] or []:
        show_ecmp(console, ecmp)
    if answer["check"]:
        show_check(console, answer["check"])
    if not (answer["paths"] or answer["ecmp"] or answer["check"]):
        _show_whole(console, answer)


def _show_whole(console: Console, answer: Record) -> None:
    console.print()
    console.print(_figures(answer))
    console.print()
    console.print(_tiers(answer["tiers"]))
    hint = bundle_hint(answer)
    if hint is not None:
        console.print()
        console.print(hint, markup=False, soft_wrap=True)
    if answer["analysis"]:
        console.print()
        console.print(_cables(answer["analysis"]))
    if answer["cost"]:
        console.print()
        _cost(console, answer["cost"])


def bundle_hint(answer: Record) -> str | None:
    """What spares the switches of the top tier of a Clos whose ports are mostly idle; None where nothing does."""
    tiers = answer["tiers"]
    if answer["shape"] != "clos" or len(tiers) < 2:
        return None
    top = tiers[-1]
    used, there = top["ports_down_used"], top["ports_down_used"] + top["ports_down_unused"]
    if not used or 2 * used >= there or not top["switches"]:
        return None
    each = -(-used // top["switches"])
    many = min(top["ports_down"] // each, tiers[-2]["ports_up"])
    fits = [n for n in range(2, many + 1) if tiers[-2]["ports_up"] % n == 0 and top["switches"] % n == 0]
    if not fits:
        return None
    left = top["switches"] // fits[-1]
    return (
        f"hint: {used / there:.0%} of the ports of the {count(top['switches'])} {top['name']} switches are in use; "
        f"`bundle: {fits[-1]}` in that tier puts as many cables to each and needs {counted_words(left, 'switch')}"
    )


def _headline(answer: Record) -> Text:
    text = Text(str(answer["shape"]).replace("_", " "), style="bold")
    counted = (("hosts", "host"), ("gpus", "GPU"), ("switches", "switch"), ("cables", "cable"))
    words = [counted_words(answer[key], word) for key, word in counted]
    if answer["planes"] > 1:
        words.append(f"{answer['planes']} planes")
    text.append("".join(f" · {word}" for word in words), style="dim")
    return text


def _figures(answer: Record) -> Table:
    host, analysis = answer.get("host") or {}, answer.get("analysis") or {}
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    table.add_column(style="dim")
    inside = [
        f"{host[key]} {word}{'s' if host[key] > 1 else ''}"
        for key, word in (("gpus", "GPU"), ("nics", "NIC"))
        if host.get(key)
    ]
    gpus = list(dict.fromkeys(one["gpu"] for one in host.get("by_building") or [])) or [host.get("gpu")]
    named = [name for name in (" and ".join(filter(None, gpus)), host.get("nic")) if name]
    table.add_row(
        "a host", ", ".join(inside) or UNKNOWN, ", ".join([*named, *(["rails"] if host.get("rails") else [])])
    )
    if answer["scale_up_size"] > 1:
        table.add_row("scale-up", f"{answer['scale_up_size']} GPUs a domain", "")
    table.add_row("routing", str(answer.get("routing") or UNKNOWN), _origin(answer))
    per_gpu = analysis.get("bisection_bps_per_gpu")
    table.add_row("bisection", rate(answer["bisection_bps"]), f"{rate(per_gpu)} a GPU" if per_gpu else "")
    latency = duration(answer["diameter_latency_ps"] / 1e12)
    table.add_row("longest path", f"{answer['diameter_links']} links, {latency}", "")
    hops, paths = analysis.get("hops"), analysis.get("paths")
    if hops:
        table.add_row("switches on the way", f"{hops['mean']:.2f} on average, at most {hops['max']}", hops["method"])
    if paths:
        text = f"{_whole(paths['min'])} to {_whole(paths['max'])}, {_whole(paths['mean'])} on average"
        table.add_row("shortest paths", text, paths["method"])
    setup = f"{duration(answer['setup_s'])}, {size(answer['peak_memory_bytes'])}"
    table.add_row("set-up", setup, "to the first packet, with a state for every port")
    return table


def _origin(answer: Record) -> str:
    """Of an imported graph, its file and whether a regular shape is recognised in it."""
    fabric = [row["source"] for row in answer.get("evidence") or [] if row["constant"] == "fabric"]
    return str(fabric[0]) if answer["shape"] == "graph" and fabric else ""


def _whole(number: float) -> str:
    return short_count(number) if number >= 1e6 else f"{number:,.4g}"


def _tiers(tiers: list[Record]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("tier")
    for name in ("switches", "ports down", "up", "in use", "idle", "rate down", "up", "oversubscribed"):
        table.add_column(name, justify="right")
    for tier in tiers:
        ratio = tier["oversubscription"]
        table.add_row(
            Text(tier["name"], style="bold"), count(tier["switches"]), str(tier["ports_down"]), str(tier["ports_up"]),
            count(tier["ports_down_used"]), count(tier["ports_down_unused"]), rate(tier["rate_down_bps"]),
            rate(tier["rate_up_bps"]), f"{ratio:g}:1" if ratio is not None else UNKNOWN,
        )  # fmt: skip
    return table


def _cables(analysis: Record) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("cables")
    for name in ("length", "rate", "count", "in all"):
        table.add_column(name, justify="right")
    for cable in analysis["cables"]:
        table.add_row(
            Text(cable["tier"], style="bold"), metres(cable["length_m"]), rate(cable["rate_bps"]),
            count(cable["count"]), metres(cable["total_m"]),
        )  # fmt: skip
    classes = [c for c in analysis["length_classes"] if c["count"]] if len(analysis["cables"]) > 1 else []
    for i, c in enumerate(classes):
        table.add_row(
            Text(c["class"], style="dim"), "", "", Text(count(c["count"]), style="dim"),
            Text(metres(c["total_m"]), style="dim"), end_section=i == len(classes) - 1,
        )  # fmt: skip
    return table


def _cost(console: Console, cost: Record) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("cost and power")
    table.add_column("by")
    for name in ("count", "US$", "power"):
        table.add_column(name, justify="right")
    for item in _merged(cost["items"]):
        where = item["what"] if item["kind"] == "switch" else f"{item['what']}, {metres(item['length_m'])}"
        each = f" × {item['each']}" if item["each"] > 1 else ""
        table.add_row(
            Text(where, style="bold"), Text(f"{item['sheet'] or UNKNOWN}{each}"), count(item["count"]),
            count(_rounded(item["usd"])), watts(item["power_w"]),
        )  # fmt: skip
    table.add_row(Text("all", style="bold"), "", "", count(_rounded(cost["total_usd"])), watts(cost["power_w"]))
    console.print(table)
    rows = [r for r in cost["evidence"] if r["constant"].split(": ")[-1] in {"price", "power", "price_per_metre"}]
    guessed = sum(row["kind"] == "inferred" for row in rows)
    if rows:
        share = percent(guessed / len(rows)).replace(".0 %", " %")
        console.print(
            f"prices and powers: {guessed} of {len(rows)} figures ({share}) are inferred; `--json` has every source",
            style="dim", markup=False,
        )  # fmt: skip


def _merged(items: list[Record]) -> list[Record]:
    """Items that would be told in the same words as one: switches of a tier that differ in their ports alone."""
    rows: dict[tuple[Any, ...], Record] = {}
    for item in items:
        key = tuple(item.get(name) for name in ("kind", "what", "length_m", "sheet", "each"))
        row = rows.get(key)
        rows[key] = item if row is None else {
            **row, **{name: _sum(row[name], item[name]) for name in ("count", "usd", "power_w")}
        }  # fmt: skip
    return list(rows.values())


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _rounded(usd: float | None) -> float | None:
    return None if usd is None else round(usd)


def watts(power: float | None) -> str:
    """Power in W, kW or MW."""
    if power is None:
        return UNKNOWN
    for scale, unit in ((1e6, "MW"), (1e3, "kW")):
        if power >= scale:
            return f"{power / scale:.4g} {unit}"
    return f"{power:.4g} W"
