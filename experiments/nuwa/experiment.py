"""The slides' columns, for rules and for breadth-first tables, measured by the engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel import engine

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

FAT_TREES = {1024: 16, 3456: 24, 8192: 32, 16000: 40, 27648: 48, 43904: 56, 65536: 64}
"""GPUs → k of the k-ary fat tree, k³/4 hosts."""

MILLION = 1 << 20

RULES, TABLES = "by rule", "by breadth-first tables"

LOOKUPS = 75_000_000
"""Of all GPUs at 65,536; other sizes make as many a GPU."""

TABLE_LIMIT = 256 << 20
"""Bytes of tables that are built; larger ones are extrapolated."""

SLIDES = {
    1024: (2.01, 0.012), 3456: (9.11, 0.02), 8192: (22.88, 0.12), 16000: (59.36, 0.19), 27648: (100.87, 0.43),
    43904: (269.13, 0.93), 65536: (None, 1.12),
}  # fmt: skip
"""Look-up seconds of ns-3-dc and of Nüwa."""


def topology(gpus: int) -> str:
    """A fat tree of `gpus` hosts; 1,048,576 in four tiers, as no even k gives as many."""
    if gpus in FAT_TREES:
        k = FAT_TREES[gpus]
        ports = [k // 2, k // 2, k]
    else:
        ports = [32, 32, 32, 32]
    tiers = ", ".join(f"{{ports_down: {n}, rate: 400 Gbps}}" for n in ports)
    return f"shape: clos\nhosts: {gpus}\ntiers: [{tiers}]\nhost: {{gpus: 1, nics: 1}}\n"


def measure(gpus: int, *, repeats: int = 3, most: int = 25_000_000) -> dict[str, Any]:
    """The engine's measurement of a size, the fastest of a few: others may use the machine.

    At most `most` look-ups are made each time, and their time scaled to all.
    """
    wanted = round(LOOKUPS * gpus / 65536)
    made = min(wanted, most)
    runs = [_measure_once(gpus, made) for _ in range(repeats)]
    for run in runs:
        run["lookup_s"] *= wanted / made
        if run["tables"]["lookup_s"] is not None:
            run["tables"]["lookup_s"] *= wanted / made
    best: dict[str, Any] = runs[0]
    for key in ("setup_s", "lookup_s", "ring_step_s"):
        best[key] = min(run[key] for run in runs)
    for key in ("setup_s", "lookup_s"):
        if best["tables"][key] is not None:
            best["tables"][key] = min(run["tables"][key] for run in runs)
    return best


def _measure_once(gpus: int, lookups: int) -> dict[str, Any]:
    name = f"{gpus} GPUs"
    text = engine.measure_lookups(topology(gpus), name, ".", lookups, tables=True, table_limit=TABLE_LIMIT)
    found: dict[str, Any] = json.loads(text)
    return found


def tables_of(gpus: int, found: dict[str, Any], largest: tuple[int, dict[str, Any]]) -> tuple[float, float, str]:
    """Seconds of set-up and of look-ups by table, and whether they were measured.

    Extrapolated from the largest size that was: a search follows every link, once for each switch with hosts, whose
    number is the bytes of tables over eight times the switches; a look-up is taken to cost the same, which is kind, as
    tables that do not fit the cache are slower.
    """
    tables = found["tables"]
    if tables["setup_s"] is not None:
        return tables["setup_s"], tables["lookup_s"], "measured"

    def work(of: dict[str, Any]) -> float:
        return float(of["tables"]["bytes"]) / of["switches"] * of["links"]

    size, last = largest
    setup_s = last["tables"]["setup_s"] * work(found) / work(last)
    return setup_s, last["tables"]["lookup_s"] * gpus / size, "extrapolated"


def observe(_results: Results, sizes: tuple[int, ...] = (*FAT_TREES, MILLION)) -> dict[str, Any]:
    """Measures every size and gives the tables and the figures of the claims."""
    measured = {gpus: measure(gpus) for gpus in sizes}
    built = {gpus: found for gpus, found in measured.items() if found["tables"]["setup_s"] is not None}
    largest = max(built)
    by_rule, by_table = [], []
    for gpus, found in measured.items():
        setup_s, lookup_s, how = tables_of(gpus, found, (largest, built[largest]))
        slow, fast = SLIDES.get(gpus, (None, None))
        by_rule.append({
            "GPUs": gpus,
            "set-up s": found["setup_s"],
            "memory MB": found["memory_bytes"] / 1e6,
            "look-up s": found["lookup_s"],
            "ns a look-up": found["lookup_s"] / LOOKUPS / gpus * 65536 * 1e9,
            "ring step s": found["ring_step_s"],
            "Nüwa's look-up s": fast,
        })  # fmt: skip
        by_table.append({
            "GPUs": gpus,
            "set-up s": setup_s,
            "tables MB": found["tables"]["bytes"] / 1e6,
            "look-up s": lookup_s,
            "": how,
            "ns-3-dc's look-up s": slow,
        })  # fmt: skip
    first, last = sizes[0], 65536 if 65536 in sizes else sizes[-1]
    each = {gpus: found["lookup_s"] / gpus for gpus, found in measured.items()}
    return {
        RULES: pl.DataFrame(by_rule).with_columns(pl.col(pl.Float64).round_sig_figs(3)),
        TABLES: pl.DataFrame(by_table).with_columns(pl.col(pl.Float64).round_sig_figs(3)),
        **{f"setup_s_{gpus}": found["setup_s"] for gpus, found in measured.items()},
        **{f"lookup_s_{gpus}": found["lookup_s"] for gpus, found in measured.items()},
        **{f"memory_mb_{gpus}": found["memory_bytes"] / 1e6 for gpus, found in measured.items()},
        "growth": each[last] / each[first],
        "worst_ratio": max(found["lookup_s"] / found["tables"]["lookup_s"] for found in built.values()),
        "setup_ratio": built[largest]["tables"]["setup_s"] / built[largest]["setup_s"],
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Seconds of set-up and of look-ups against GPUs, by rule, by table, and from the slides."""
    lines = [
        (RULES, "set-up s", "rules: set-up", "#4c78a8", "--"), (RULES, "look-up s", "rules: look-ups", "#4c78a8", "-"),
        (TABLES, "set-up s", "tables: set-up", "#e45756", "--"),
        (TABLES, "look-up s", "tables: look-ups", "#e45756", "-"),
        (TABLES, "ns-3-dc's look-up s", "slides: ns-3-dc, look-ups", "#9aa5b1", "-"),
        (RULES, "Nüwa's look-up s", "slides: Nüwa, look-ups", "#54a24b", "-"),
    ]  # fmt: skip
    for frame, column, label, colour, style in lines:
        known = observed[frame].filter(pl.col(column).is_not_null())
        axes.plot(known["GPUs"], known[column], marker="o", markersize=3.5, color=colour, linestyle=style, label=label)
    axes.set(xlabel="GPUs", ylabel="seconds", xscale="log", yscale="log")
    axes.legend()
