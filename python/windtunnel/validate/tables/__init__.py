"""The tables of the board: a reader each, which gives None where the table's file is not in the folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.validate.tables import (
    aic_attention,
    aic_deepep,
    aic_gemm,
    aic_moe,
    aic_nccl,
    deepep,
    dgxc,
    korthikanti,
    m4,
    marin,
    megascale,
    megatron_bridge,
    memory,
    mlperf,
    mosaic,
    nccl,
    pico,
    published,
    sailor,
    torchtitan,
    traces,
    uec,
    ultrascale,
    untold,
    vidur,
    vtrain,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from windtunnel.validate.rows import Table
    from windtunnel.validate.systems import System

READERS: dict[str, Callable[[Path, Mapping[str, System]], Table | None]] = {
    "vtrain-single": vtrain.single,
    "vtrain-multi": vtrain.multi,
    "megatron-sc21": published.megatron_sc21,
    "korthikanti": korthikanti.read,
    "megatron-zero": published.megatron_zero,
    "megascale": megascale.read,
    "zero-bubble": published.zero_bubble,
    "sailor": sailor.read,
    "torchtitan": torchtitan.read,
    "megatron-bridge": megatron_bridge.read,
    "mlperf": mlperf.read,
    "mosaic-mpt": mosaic.read,
    "dgxc": dgxc.read,
    "ultrascale": ultrascale.read,
    "ultrascale-memory": ultrascale.memory,
    "marin": marin.read,
    "no-framework": untold.read,
    "memory": memory.read,
    "nccl-tests": nccl.tests,
    "nccl-scale": nccl.scale,
    "nccl-systems": nccl.unseen,
    "nccl-samples": nccl.samples,
    "aic-nccl": aic_nccl.read,
    "pico": pico.read,
    "deepep": deepep.read,
    "aic-deepep": aic_deepep.read,
    "vidur-network": vidur.read,
    "aic-gemm": aic_gemm.read,
    "aic-attention": aic_attention.read,
    "aic-decode": aic_attention.read_decode,
    "aic-moe": aic_moe.read,
    "traces": traces.read,
    "m4": m4.read,
    "uec": uec.read,
}

NAMES = tuple(READERS)

COSTLY = ("uec",)
"""Tables that take hours: predicted where they are named, and not with the board."""

BOARD = tuple(name for name in NAMES if name not in COSTLY)
