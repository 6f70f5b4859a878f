"""DeepEP's dispatch and combine as AIConfigurator timed them: five kinds of GPU, 1 to 8 hosts, 4 to 24 SMs.

A row is predicted by constants that have seen no run of its GPU. Tokens are dispatched in 8 bits and combined in 16.
The low-latency kernels, which only inference calls, have no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.validate.collectives import Ranks, dispatched
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import lines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

FILE = "aic_deepep.csv.gz"
COLUMNS = (
    "gpu", "mode", "nodes", "gpus", "hidden", "tokens", "topk", "experts", "sms", "dispatch_us", "combine_us",
)  # fmt: skip
LARGE = 2048
"""Tokens of a rank from which bytes outweigh the launch."""
BYTES = {"dispatch": 1, "combine": 2}


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Every row of the kernels that training calls, twice: out and back."""
    path = data / "collectives" / FILE
    if not path.is_file():
        return None
    table = Table("aic-deepep")
    for line in lines(path, COLUMNS):
        gpu = line.text("gpu").removesuffix("_sxm")
        system = systems.get(f"aic-{gpu}")
        if line.text("mode") != "normal":
            table.exclude("low-latency kernels are not modelled: inference calls them")
            continue
        if system is None:
            table.exclude(f"no file of system `aic-{gpu}`")
            continue
        hosts, tokens, top_k = line.count("nodes"), line.count("tokens"), line.count("topk")
        for way, each in BYTES.items():
            shape = f"{line.text('hidden')}-{line.text('experts')}-{top_k}-{line.text('sms')}/{tokens}"
            table.rows.append(
                Row(
                    id=f"aic-deepep/{gpu}/{way}-{hosts}/{shape}",
                    system=system.name,
                    measured=line.number_in(f"{way}_us") * 1e-6,
                    scenario=dispatched(
                        system,
                        tokens * top_k * line.count("hidden") * each,
                        Ranks(hosts, line.count("gpus") // hosts),
                        {
                            "experts": line.count("experts"),
                            "top_k": top_k,
                            "sms": line.count("sms"),
                            "combine": way == "combine",
                        },
                        without=gpu,
                    ),
                    groups={
                        "kind": way,
                        "system": gpu,
                        "scale": f"{hosts} hosts",
                        "size": f">= {LARGE:,} tokens" if tokens >= LARGE else f"< {LARGE:,} tokens",
                    },
                )
            )
    return table
