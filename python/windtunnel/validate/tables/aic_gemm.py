"""Matrix products of inference libraries, by GPU and format (github.com/ai-dynamo/aiconfigurator)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables import aic
from windtunnel.validate.tables.common import lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

FILE = "aic_gemm.csv.gz"
COLUMNS = ("gpu", "dtype", "m", "n", "k", "latency_ms")


def kernels(path: Path, table: Table | None = None) -> Iterator[aic.Kernel]:
    """The products of a file; those of GPUs without a sheet are counted in `table`."""
    for line in lines(path, COLUMNS):
        place = aic.place(line, table)
        if place is None:
            continue
        m, n, k = (line.count(key) for key in ("m", "n", "k"))
        block = f"n 2^{aic.octave(n)}, k 2^{aic.octave(k)}"
        yield aic.Kernel(place[0], "gemm", place[1], (m, n, k), f"{n}x{k}", block, line.number_in("latency_ms") * 1e-3)


def read(data: Path, systems: Mapping[str, System]) -> Table | None:  # noqa: ARG001
    """All products of GPUs with a sheet."""
    path = data / "compute_profiles" / FILE
    if not path.is_file():
        return None
    table = Table("aic-gemm")
    for kernel in kernels(path, table):
        aic.add(table, kernel, _row)
    return table


def _row(kernel: aic.Kernel, scenario: Mapping[str, object]) -> Row:
    m, n, k = kernel.row
    return Row(
        id=f"aic-gemm/{kernel.gpu}/{kernel.format}/{m}x{n}x{k}",
        system=kernel.gpu,
        measured=kernel.seconds,
        scenario=scenario,
        groups={
            "GPU, format": f"{kernel.gpu}, {kernel.format}",
            "size": "all at least 1,024" if min(m, n, k) >= 1024 else "rows fewer than 64" if m < 64 else "others",
        },
    )
