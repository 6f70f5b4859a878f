"""What the tables of measured kernels share: GPUs and formats by their names there, and blocks of shapes.

The kernels are those of inference libraries on one GPU (github.com/ai-dynamo/aiconfigurator). Constants of a GPU and a
format are fitted on one half of them (`windtunnel calibrate kernels`). A row whose shape a fit saw is predicted with
constants that were fitted without its block; any other row with those of the GPU's sheet.
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from windtunnel import engine
from windtunnel.experiments.spec import parse_yaml
from windtunnel.validate.written import DATA, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from windtunnel.validate.rows import Row, Table
    from windtunnel.validate.tables.common import Line

SHEETS = {
    "a100_sxm": "A100-80",
    "h100_sxm": "H100-SXM",
    "h200_sxm": "H200",
    "b200_sxm": "B200",
    "gb200": "GB200",
    "gb300": "GB300",
    "l40s": "L40S",
    "rtx_pro_6000_server": "RTX-PRO-6000",
}
FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "fp4"}
WIDTHS = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "fp4": 0.5}
"""Bytes a number."""
FOLDS = 5
"""Blocks of shapes are left out in so many parts."""


class Kernel(NamedTuple):
    """A measured kernel: what the engine is asked (`kernel_times`), and the shape by which rows are kept together."""

    gpu: str
    family: str
    format: str
    row: tuple[int, ...]
    shape: str
    """What is equal in rows of which a fit has seen all or none."""
    block: str
    """What is left out together: shapes like this one."""
    seconds: float
    kind: str = ""
    more: tuple[tuple[int, ...], ...] = ()
    """Further draws of what is random in a row; the time is the mean over `row` and these."""
    fitted: bool = True
    """Whether constants may be fitted on it. Every row is scored."""

    @property
    def draws(self) -> tuple[tuple[int, ...], ...]:
        """All of them."""
        return (self.row, *self.more)


@lru_cache(maxsize=32)
def sheet_text(gpu: str) -> str:
    """The text of a GPU's sheet."""
    return (DATA / "gpus" / f"{gpu.lower()}.yaml").read_text(encoding="utf-8")


@lru_cache(maxsize=32)
def _kernels(gpu: str) -> Mapping[str, Any]:
    kernels: dict[str, Any] = parse_yaml(sheet_text(gpu), f"{gpu.lower()}.yaml").get("kernels") or {}
    return kernels


def cache(gpu: str) -> float:
    """Bytes of a GPU's last-level cache."""
    number, unit = str(_kernels(gpu)["cache"]["value"]).split()
    return float(number) * {"MB": 1e6, "MiB": 2**20}[unit]


def product(gpu: str, form: str) -> Mapping[str, Any]:
    """Constants of a GPU's products in a format; none where the sheet has none."""
    found = (_kernels(gpu).get("gemm") or {}).get(form) or {}
    constants: dict[str, Any] = found.get("value") or {}
    return constants


def known(gpu: str, family: str, form: str) -> bool:
    """Whether the GPU's sheet has constants of a family of kernels in a format."""
    return form in (_kernels(gpu).get(family) or {})


def fits(gpu: str) -> Mapping[str, Any]:
    """How a GPU's constants were fitted: by family and format the shapes, and the constants without each part."""
    return written("kernels", gpu.lower())


def fold(block: str) -> int:
    """The part in which a block is left out, by its name alone."""
    value = 2166136261
    for byte in block.encode():
        value = (value ^ byte) * 16777619 % (1 << 32)
    return (value >> 8) % FOLDS


def octave(number: int) -> int:
    """The power of two that is nearest by ratio, as an exponent."""
    return round(math.log2(number))


def scenario(kernel: Kernel) -> dict[str, Any]:
    """The question of a row, with constants that were fitted without it where a fit has seen its shape."""
    asked: dict[str, Any] = {
        "gpu": kernel.gpu, "family": kernel.family, "format": kernel.format, "row": kernel.row,
    }  # fmt: skip
    if kernel.more:
        asked["more"] = kernel.more
    fitted = (fits(kernel.gpu).get(kernel.family) or {}).get(kernel.format)
    if fitted is not None and kernel.shape in _shapes(kernel.gpu, kernel.family, kernel.format):
        asked["constants"] = fitted["without"][fold(kernel.block)]
    return {"kernel": asked}


@lru_cache(maxsize=256)
def _shapes(gpu: str, family: str, form: str) -> frozenset[str]:
    return frozenset(fits(gpu)[family][form]["shapes"])


def add(table: Table, kernel: Kernel, row: Callable[[Kernel, Mapping[str, Any]], Row]) -> None:
    """Takes a kernel into a table, if its GPU's sheet has constants for it."""
    if not known(kernel.gpu, kernel.family, kernel.format):
        table.exclude(f"`{kernel.gpu}` has no constants of `{kernel.family}` in `{kernel.format}`")
        return
    table.rows.append(row(kernel, scenario(kernel)))


def place(line: Line, table: Table | None) -> tuple[str, str] | None:
    """The sheet and the format of a line, or None where there is none."""
    gpu, form = SHEETS.get(line.text("gpu")), FORMATS.get(line.text("dtype"))
    if gpu is not None and form is not None:
        return gpu, form
    if table is not None:
        table.exclude(f"no sheet of GPU `{line.text('gpu')}`" if gpu is None else f"format `{line.text('dtype')}`")
    return None


def times(asked: Sequence[Mapping[str, Any]]) -> list[float]:
    """Seconds of many kernels, asked of the engine by GPU, family, format and constants together."""
    groups: dict[str, list[int]] = {}
    for i, one in enumerate(asked):
        key = json.dumps([one["gpu"], one["family"], one["format"], one.get("constants")])
        groups.setdefault(key, []).append(i)
    found = [0.0] * len(asked)
    for key, members in groups.items():
        gpu, family, form, constants = json.loads(key)
        drawn = [(asked[i]["row"], *asked[i].get("more", ())) for i in members]
        (seconds,) = ask_draws(gpu, family, form, drawn, [constants] if constants else [])
        for i, value in zip(members, seconds, strict=True):
            found[i] = value
    return found


def ask_draws(
    gpu: str,
    family: str,
    form: str,
    drawn: Sequence[Sequence[Sequence[int]]],
    constants: Sequence[Mapping[str, float]],
) -> list[list[float]]:
    """Mean seconds over the draws of each row, under each of `constants` (`ask`)."""
    return asker(gpu, family, form, drawn)(constants)


def asker(
    gpu: str, family: str, form: str, drawn: Sequence[Sequence[Sequence[int]]]
) -> Callable[[Sequence[Mapping[str, float]]], list[list[float]]]:
    """The same for many questions about the same rows, which are put into text once."""
    starts = [0, *accumulate(len(draws) for draws in drawn)]
    rows = json.dumps([list(row) for draws in drawn for row in draws])
    head = json.dumps({"sheet": sheet_text(gpu), "family": family, "format": form})[:-1]

    def asked(constants: Sequence[Mapping[str, float]]) -> list[list[float]]:
        values = json.dumps([list(one.items()) for one in constants])
        found = json.loads(engine.kernel_times(f'{head}, "rows": {rows}, "constants": {values}}}'))["times"]
        return [[sum(times[a:b]) / (b - a) for a, b in pairwise(starts)] for times in found]

    return asked


def ask(
    gpu: str, family: str, form: str, rows: Iterable[Sequence[int]], constants: Sequence[Mapping[str, float]]
) -> list[list[float]]:
    """Seconds of rows under each of `constants`, those of the sheet if there are none."""
    return ask_draws(gpu, family, form, [(row,) for row in rows], constants)
