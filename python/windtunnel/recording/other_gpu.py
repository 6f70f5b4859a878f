"""Computation of one GPU as that of another: the ratios of their sheets' rates (`windtunnel workload scale --gpu`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from windtunnel.bill import sheet_path
from windtunnel.engine import InputError, names, nearest
from windtunnel.experiments.spec import parse_yaml
from windtunnel.text import duration
from windtunnel.validate.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OPTION = "--gpu"
_FLOPS = {"GFLOPS": 1e9, "TFLOPS": 1e12, "PFLOPS": 1e15}
_WHAT = {
    "products": "products (matrix products, convolutions, attention), by the peak",
    "memory": "all else that computes, by the bandwidth of memory",
    "host": "host, communication and marks, as they are",
}


def factors(text: str, format_: str) -> tuple[float, float]:
    """Factors of products and of what memory bounds, for `FROM=TO` with the peak rates of a format.

    Raises:
        InputError: no such GPU, or a peak that its sheet does not have.

    """
    before, equals, after = text.partition("=")
    if not equals or not before or not after:
        raise InputError(f"{OPTION}: expected `FROM=TO`, found `{text}`\n\nhint: `{OPTION} a100-80=h100-sxm`")
    sheets = [(name, _sheet(name)) for name in (before, after)]
    peaks = [_peak(name, sheet, format_) for name, sheet in sheets]
    memory = [
        quantity(sheet["memory_bandwidth"]["value"], "rate", f"sheet of `{name}`: memory_bandwidth")
        for name, sheet in sheets
    ]
    return peaks[0] / peaks[1], memory[0] / memory[1]


def said(classes: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each class of kernels that there is: how long it took, by which factor it was multiplied."""
    return [
        f"{duration(row['time_s'])} × {row['factor']:.4g}: {row['count']:,} of {_WHAT[row['class']]}"
        for row in classes
        if row["count"]
    ]


def _sheet(name: str) -> dict[str, Any]:
    path = sheet_path(name)
    if path is None:
        known = [known for known, _ in names("gpus")]
        near = nearest(name, known)
        hint = f"did you mean `{near}`?" if near else "`windtunnel list gpus` lists them"
        raise InputError(f"{OPTION}: expected the name of a GPU's sheet, found `{name}`\n\nhint: {hint}")
    sheet: dict[str, Any] = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    return sheet


def _peak(name: str, sheet: Mapping[str, Any], format_: str) -> float:
    peaks = sheet["peak"]
    if format_ not in peaks:
        raise InputError(
            f"--format: expected a format of the sheet of `{name}`, found `{format_}`\n\nhint: it has `"
            + "`, `".join(peaks)
            + "`"
        )
    text = str(peaks[format_]["value"])
    found = re.fullmatch(r"([0-9.]+) *([A-Z]FLOPS)", text)
    if found is None or found[2] not in _FLOPS:
        raise InputError(f"sheet of `{name}`: peak.{format_}: expected a rate such as `989 TFLOPS`, found `{text}`")
    return float(found[1]) * _FLOPS[found[2]]
