"""Fused attention of inference libraries, by GPU and format (github.com/ai-dynamo/aiconfigurator).

Over prompts, causal, and of one token a sequence over the keys in its cache. TensorRT-LLM's times hold what its
operator does first: positions, and keys and values put in the cache. On Blackwell it takes two libraries by the
features of a head and the window; a row is of the one that was measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables import aic
from windtunnel.validate.tables.common import lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

FILE = "aic_attention.csv.gz"
DECODE = "aic_attention_decode.csv.gz"
COLUMNS = ("gpu", "dtype", "kv_dtype", "batch", "heads", "kv_heads", "head_dim", "window", "latency_ms", "kernel")


def kernels(path: Path, table: Table | None = None) -> Iterator[aic.Kernel]:
    """The kernels of a file, over prompts (column `isl`) or of one token a sequence (`kv_len`).

    Those of GPUs without a sheet are counted in `table`.
    """
    for line in lines(path, COLUMNS):
        place = aic.place(line, table)
        if place is None:
            continue
        gpu, form = place
        if form == "bf16" and line.text("kv_dtype") == "fp8":
            form = "bf16_kv8"
        if line.text("kernel").endswith("flashinfer"):
            form += "_flashinfer"
        family, column = ("attention", "isl") if line.optional("isl") else ("decode", "kv_len")
        batch, positions, heads, kv, features = (
            line.count(key) for key in ("batch", column, "heads", "kv_heads", "head_dim")
        )
        window = 0 if line.text("window") == "0" else line.count("window")
        yield aic.Kernel(
            gpu, family, form, (batch, positions, heads, kv, features, window, 1),
            f"{heads}/{kv}x{features}", f"heads {heads}, features {features}",
            line.number_in("latency_ms") * 1e-3, line.text("kernel"),
        )  # fmt: skip


def read(data: Path, systems: Mapping[str, System]) -> Table | None:  # noqa: ARG001
    """Attention over prompts on GPUs with a sheet."""
    return _table("aic-attention", data / "compute_profiles" / FILE)


def read_decode(data: Path, systems: Mapping[str, System]) -> Table | None:  # noqa: ARG001
    """Attention of one token a sequence on GPUs with a sheet."""
    return _table("aic-decode", data / "compute_profiles" / DECODE)


def _table(name: str, path: Path) -> Table | None:
    if not path.is_file():
        return None
    table = Table(name)
    for kernel in kernels(path, table):
        aic.add(table, kernel, _row)
    return table


def _row(kernel: aic.Kernel, scenario: Mapping[str, object]) -> Row:
    batch, positions, heads, kv, features, window, _ = kernel.row
    label = f"{batch}x{positions}/{heads}-{kv}x{features}" + (f"/window-{window}" if window else "")
    table = "aic-attention" if kernel.family == "attention" else "aic-decode"
    return Row(
        id=f"{table}/{kernel.gpu}/{kernel.format}/{label}",
        system=kernel.gpu,
        measured=kernel.seconds,
        scenario=scenario,
        groups={
            "GPU, format": f"{kernel.gpu}, {kernel.format.removesuffix('_flashinfer')}",
            "features": str(features),
            "window": str(window) if window else "none",
            "library": kernel.kind,
        },
    )
