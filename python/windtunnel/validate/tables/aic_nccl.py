"""NCCL on 2, 4 and 8 GPUs of one host, A100 to GB300, as AIConfigurator timed it (`aic-nccl`).

Bytes are the full vector, as nccl-tests counts them; a row of the file is the mean of `repeats` measurements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.validate.collectives import Ranks, question
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

FILE = "aic_nccl.csv.gz"
COLUMNS = ("gpu", "op", "dtype", "gpus", "bytes", "latency_ms", "nccl")
LARGE = 1 << 20
NARROW, SUMS = {"int8"}, {"all_reduce", "reduce_scatter"}


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Every row, by constants that have seen none of so many GPUs of its host."""
    folder = data / "collectives"
    if not (folder / FILE).is_file():
        return None
    table = Table("aic-nccl")
    table.rows = list(rows(folder, systems, table))
    return table


def scale_of(gpus: int) -> str:
    """The scale of a row."""
    return f"{gpus} ranks on 1"


def summed_by_gpus(operation: str, dtype: str) -> list[tuple[str, str]]:
    """NCCL's environment: integers of 8 bits are not summed in NVLink's switches.

    `ncclNvlsSupported` of github.com/NVIDIA/nccl v2.27.3-1 src/include/device.h.
    """
    return [("NCCL_NVLS_ENABLE", "0")] if dtype in NARROW and operation in SUMS else []


def rows(folder: Path, systems: Mapping[str, System], table: Table) -> Iterator[Row]:
    """The rows of a folder; those of GPUs without a file are counted in `table`."""
    for line in lines(folder / FILE, COLUMNS):
        gpu = line.text("gpu").removesuffix("_sxm")
        system = systems.get(f"aic-{gpu}")
        if system is None:
            table.exclude(f"no file of system `aic-{gpu}`")
            continue
        operation, gpus, size = line.text("op"), line.count("gpus"), line.count("bytes")
        kind = line.text("dtype")
        asked = question(
            system,
            operation,
            size,
            Ranks(1, gpus),
            [("NCCL_VERSION", line.text("nccl")), *summed_by_gpus(operation, kind)],
            without=scale_of(gpus),
        )
        yield Row(
            id=f"aic-nccl/{gpu}/{operation}-{gpus}/{kind}/{size}",
            system=system.name,
            measured=line.number_in("latency_ms") * 1e-3,
            scenario=asked,
            groups={
                "size": ">= 1 MiB" if size >= LARGE else "< 1 MiB",
                "kind": operation,
                "scale": scale_of(gpus),
            },
        )
