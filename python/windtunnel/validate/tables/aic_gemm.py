"""Matrix products of inference libraries, by GPU and format (github.com/ai-dynamo/aiconfigurator).

A product is repeated, and its operands may still be in the cache. The program that made the table takes as many weights
in turn as it needs to exceed the cache, but at most five of TensorRT-LLM's (collector/trtllm/collect_gemm.py,
`outside_loop_count`): weights of less than a fifth of the cache stay in it, and so do weights that are just as large as
the cache or a whole part of it. Of SGLang's (A100) six products with operands of their own take turns.
"""

from __future__ import annotations

import math
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
WEIGHTS = 5
"""TensorRT-LLM's weights that take turns, at most."""
PRODUCTS = 6
"""SGLang's products that take turns, at most, and the share of the memory that they may fill."""
BUDGET = 0.45 * 80 * 2**30


def touched(gpu: str, form: str, library: str, m: int, n: int, k: int) -> int:
    """Bytes between two uses of the same operand."""
    width = aic.WIDTHS[form]
    if library.startswith("sglang"):
        one = 2 * (m * k + n * k + m * n)
        return one * max(1, min(PRODUCTS, int(BUDGET / one)))
    weight = max(1, int(width * n * k))
    count = max(1, min(WEIGHTS, math.ceil(aic.cache(gpu) / weight)))
    inputs = 2 * m * k + (width * m * k if width < 2 else 0)
    return int(count * weight + inputs + 2 * m * n)


def kernels(path: Path, table: Table | None = None) -> Iterator[aic.Kernel]:
    """The products of a file; those of GPUs without a sheet are counted in `table`."""
    for line in lines(path, COLUMNS):
        place = aic.place(line, table)
        if place is None:
            continue
        m, n, k = (line.count(key) for key in ("m", "n", "k"))
        block = f"n 2^{aic.octave(n)}, k 2^{aic.octave(k)}"
        row = (m, n, k, touched(*place, line.optional("source") or "", m, n, k))
        yield aic.Kernel(place[0], "gemm", place[1], row, f"{n}x{k}", block, line.number_in("latency_ms") * 1e-3)


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
    m, n, k, _ = kernel.row
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
