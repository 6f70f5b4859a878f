"""Constants of kernels by tiles and waves, fitted on measured kernels of one GPU in one format.

The engine itself prices every row (`windtunnel.engine.kernel_times`), so what is fitted is what a run uses. A fit is
made on all rows (of skewed experts with the first set of draws), and again without each part of the blocks of shapes;
the errors of the parts that a fit has not seen are what is reported and what the validation board shows. Some choices
are not numbers and are tried: the smallest tile a library has, whether it cuts the inner dimension, and of experts
whether skewed ones run by the tile of even ones, or by SGLang's two. So is the share of the cache that operands may
fill and still be found again, on the 16-bit products of a GPU, of whose cache it is a property: all its other kernels
have the same.

Rows whose kernel may have been chosen by the timings of another configuration (`aic_moe.tactics`) are not fitted on.
They are scored. A library's default kernel has the constants of its format, but one tile, the best of all, and a pace
of its own.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.calibrate.fit import fit as least_squares
from windtunnel.engine import InputError
from windtunnel.validate.tables import aic, aic_attention, aic_gemm, aic_moe

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

READERS = (aic_gemm, aic_attention, aic_moe)
FAMILIES = ("gemm", "attention", "decode", "experts")
ATTENTIONS = ("attention", "decode")
FORMATS = (
    "bf16", "bf16_kv8", "bf16_flashinfer", "bf16_kv8_flashinfer", "fp8", "fp8_block", "fp4", "fp4_min_latency",
    *aic_moe.DEFAULTS.values(),
)  # fmt: skip

PRODUCTS = {
    "share": 0.8, "feed": 8e10, "store": 5e10, "fill": 5e-7, "tail": 0.5, "memory": 0.8, "serial": 0.2,
    "launch": 3e-6, "cached": 1.0,
}  # fmt: skip
CUT = {"cut.time": 2e-6, "cut.traffic": 0.3}
CONVERT = {"convert.time": 6e-6, "convert.memory": 0.4, "convert.row": 1e-9}
LEAST = ((16, 64), (64, 64), (128, 128))
EXPERTS = {
    "share": 0.8, "feed": 8e10, "store": 2e11, "fill": 1e-6, "tail": 0.5, "memory": 0.7, "serial": 0.3, "launch": 2e-5,
    "cached": 1.5, "routing.copies": 1.0, "routing.tokens": 2.0, "routing.choice": 5e-10, "routing.expert": 2e-8,
}  # fmt: skip
SELECT = {"routing.select": 2e-5}
FUSED = 16
"""TensorRT-LLM chooses so many experts a token in one kernel."""
TRITON = {"few.rows": 16.0, "few.columns": 32.0, "only.rows": 64.0, "only.columns": 64.0}
"""The tiles of SGLang's Triton kernels where it has no configuration of a shape (`get_default_config`)."""
ATTENTION = {"feed": 1e11, "fill": 5e-7, "tail": 0.3, "memory": 0.8, "serial": 0.3}
CACHED = {"cached": 1.5}
RESIDENT = (0.5, 0.625, 0.75, 1.0)
PREPARE = {"prepare.time": 8e-6, "prepare.passes": 0.5}
LAUNCH = 2e-6
"""Launch of one kernel where rows hold the launches of several."""
ONLY = ((16, 128), (32, 128), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128))
"""Tiles that a default kernel may have."""
PACE = ("share", "feed", "fill", "tail", "memory", "serial")
"""Constants of a default kernel that are its own."""
ROWS = 60
FEW = 40
"""Fewer rows than these are not fitted: `FEW` of a default kernel, of which fewer constants are."""
MOST = {"gemm": 1200, "decode": 1200}
FEWER = 400
"""A fit takes at most so many rows, evenly from all: fewer of experts, which are five draws each, and of attention."""


@dataclass
class Fit:
    """Constants of a GPU, a family of kernels and a format."""

    gpu: str
    family: str
    format: str
    rows: int
    constants: dict[str, float]
    without: list[dict[str, float]]
    """Constants fitted without each part of the blocks."""
    shapes: list[str]
    errors: np.ndarray
    """predicted/measured - 1 of every row by constants that were fitted without it."""
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """Median |error| of rows that a fit has not seen."""
        return float(np.median(np.abs(self.errors)))

    @property
    def p95(self) -> float:
        """95th percentile of it."""
        return float(np.percentile(np.abs(self.errors), 95))


def fit(
    kernels: Sequence[aic.Kernel],
    *,
    launch: float | None = None,
    resident: float | None = None,
    chosen: Fit | None = None,
) -> Fit:
    """Fits the kernels of one GPU, family and format.

    `launch` and `resident`: those of wider formats and other kernels, which are then not fitted. `chosen`: of a
    library's default kernel the fit of its format, where kernels are chosen. Each part is left out of both.
    """
    first = kernels[0]
    seconds = np.array([kernel.seconds for kernel in kernels])
    rows = [kernel.draws[: aic_moe.DRAWS] for kernel in kernels]
    every = [kernel.draws for kernel in kernels]
    parts = np.array([aic.fold(kernel.block) for kernel in kernels])
    everything = np.flatnonzero([kernel.fitted for kernel in kernels])
    most = MOST.get(first.family, FEWER)
    best: tuple[float, dict[str, float], dict[str, float]] | None = None

    def tried(choices: Sequence[tuple[dict[str, float], dict[str, float]]]) -> None:
        nonlocal best
        some = _some(everything, most // 2)
        for fixed, priors in choices:
            found, _ = _fitted(first, rows, seconds, some, fixed, priors)
            cost = float(np.mean(np.minimum(np.abs(np.log(_ask(first, rows, some, found) / seconds[some])), 1.0)))
            if best is None or cost < best[0]:
                best = (cost, fixed, priors)

    if chosen is None:
        choices = _choices(first, kernels, launch, RESIDENT[-1] if resident is None else resident)
    else:
        choices = [_default(chosen.constants, tile) for tile in ONLY]
    if len(choices) == 1 and (resident is not None or first.family == "decode"):
        best = (0.0, *choices[0])
    else:
        tried(choices)
    assert best is not None  # noqa: S101
    if resident is None and first.family != "decode":
        _, fixed, priors = best
        tried([({**fixed, "resident": share}, priors) for share in RESIDENT[:-1]])
    _, fixed, priors = best
    constants, refused = _fitted(first, rows, seconds, _some(everything, most), fixed, priors)
    start = {name: constants.get(name, value) for name, value in priors.items()}
    errors, without = np.zeros(len(rows)), []
    for part in range(aic.FOLDS):
        inside, outside = everything[parts[everything] != part], np.flatnonzero(parts == part)
        held = fixed
        if chosen is not None:
            held, _ = _default(chosen.without[part], (fixed["only.rows"], fixed["only.columns"]))
        found, _ = _fitted(first, rows, seconds, _some(inside, most), held, start) if len(inside) else (constants, {})
        without.append(found)
        if len(outside):
            errors[outside] = _ask(first, every, outside, found) / seconds[outside] - 1
    shapes = sorted({kernel.shape for kernel in kernels})
    return Fit(first.gpu, first.family, first.format, len(everything), constants, without, shapes, errors, refused)


def _choices(
    first: aic.Kernel, kernels: Sequence[aic.Kernel], launch: float | None, resident: float
) -> list[tuple[dict[str, float], dict[str, float]]]:
    """What is held and what is fitted, with its prior, for each way that a library may work."""
    held = {"resident": resident}
    if first.family in ATTENTIONS:
        features = sorted({kernel.row[4] for kernel in kernels})
        shares = {f"share.{count}": 0.6 for count in features}
        cut = {kernel.row[4] for kernel in kernels if 0 < kernel.row[5] < kernel.row[1]}
        if first.family == "decode":
            return [({"launch": LAUNCH}, {**shares, **ATTENTION, **PREPARE})]
        shares |= {f"windowed.{count}": 0.6 for count in sorted(cut)}
        return [({**held, "launch": LAUNCH}, {**shares, **ATTENTION, **CACHED, **PREPARE})]
    if first.family == "experts":
        free = {**held, "least.rows": 16.0, "least.columns": 64.0}
        if first.kind.startswith(aic_moe.SGLANG):
            half = EXPERTS | {"share": 0.5}
            return [(free, half), ({**held, **TRITON}, half)]
        # Where a rank's rows do not say what a tile reaches of the peak, it is what one of a plain product does.
        plain = aic.product(first.gpu, first.format.removesuffix("_min_latency"))
        priors = EXPERTS | {"share": plain.get("share", EXPERTS["share"])}
        if any(kernel.row[1] > FUSED for kernel in kernels):
            priors |= SELECT
        return [(free, priors), ({**free, "timed": 1.0}, priors)]
    priors = dict(PRODUCTS)
    if launch is not None:
        held["launch"] = launch
        priors.pop("launch")
        priors.update(CONVERT)
    found = []
    for rows, columns in LEAST:
        tile = {**held, "least.rows": float(rows), "least.columns": float(columns)}
        found.append((tile, dict(priors)))
        if rows < 128:
            found.append((tile, {**priors, **CUT}))
    return found


def _default(chosen: Mapping[str, float], tile: tuple[float, float]) -> tuple[dict[str, float], dict[str, float]]:
    """What is held and what is fitted of a default kernel with one tile, by the constants of chosen kernels."""
    held = {
        name: value for name, value in chosen.items() if name not in (*PACE, "timed") and not name.startswith("least")
    }
    return {**held, "only.rows": tile[0], "only.columns": tile[1]}, {name: chosen[name] for name in PACE}


def _some(rows: np.ndarray, most: int) -> np.ndarray:
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(int)]


def _ask(
    first: aic.Kernel, rows: Sequence[Sequence[Sequence[int]]], some: np.ndarray, constants: Mapping[str, float]
) -> np.ndarray:
    (found,) = aic.ask_draws(first.gpu, first.family, first.format, [rows[i] for i in some], [constants])
    return np.array(found)


def _fitted(
    first: aic.Kernel,
    rows: Sequence[Sequence[Sequence[int]]],
    seconds: np.ndarray,
    some: np.ndarray,
    fixed: Mapping[str, float],
    priors: Mapping[str, float],
) -> tuple[dict[str, float], dict[str, str]]:
    asked = aic.asker(first.gpu, first.family, first.format, [rows[i] for i in some])

    def predict(sets: list[dict[str, float]]) -> np.ndarray:
        return np.array(asked([{**fixed, **priors, **one} for one in sets]))

    names = list(priors)
    found = least_squares(names, list(priors.values()), seconds[some].tolist(), [1.0] * len(some), predict)
    values = {**fixed, **priors, **found.values}
    return {name: _rounded(name, value) for name, value in values.items()}, found.refused


LISTS = ("share", "windowed")
"""Shares by features of a head."""
SIZES = ("least", "only", "few")
"""Tiles by rows and columns."""
SHARES = ("share", "windowed", "tail", "memory", "serial", "cut.traffic", "convert.memory")


def _rounded(name: str, value: float) -> float:
    if name.startswith(SHARES) and not name.startswith("tail"):
        value = min(value, 1.0)
    if name == "cached":
        value = max(value, 1.0)
    return float(f"{value:.4g}")


def read(gpu: str, paths: Sequence[Path]) -> list[aic.Kernel]:
    """The kernels of one GPU in tables of measured kernels. Raises `InputError` for a file that is none of them."""
    found: list[aic.Kernel] = []
    for path in paths:
        reader = table_of(path)
        if reader is None:
            raise InputError(f"{path}:1: not a table of products, attention or mixtures of experts by GPU")
        rows = list(reader.kernels(path))
        if reader is aic_moe:
            kind = aic_moe.tactics(rows)
            rows = [kernel._replace(fitted=kind(kernel) != "shared") for kernel in rows]
        found += [kernel for kernel in rows if kernel.gpu.lower() == gpu.lower()]
    if not found:
        raise InputError(f"no row of GPU `{gpu}`\n\nhint: the tables call GPUs {', '.join(aic.SHEETS)}")
    return found


def table_of(path: Path) -> ModuleType | None:
    """The reader of a table of measured kernels by GPU, by its columns."""
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig") if path.suffix == ".gz" else path.open(encoding="utf-8") as file
        ):
            names = {name.strip() for name in file.readline().split(",")}
    except (OSError, EOFError, UnicodeDecodeError, zlib.error):
        return None
    return next((module for module in READERS if names.issuperset(module.COLUMNS)), None)


def fit_all(kernels: Iterable[aic.Kernel]) -> Iterator[Fit]:
    """Fits every family and format that has rows enough.

    Formats narrower than 16 bits take the launch of those, and all take the share of the cache that the first found, or
    that of the sheet's products where there are no rows of products. A default kernel takes what it has of the other
    kernels of its format.
    """
    found_of: dict[str, Fit] = {}
    groups: dict[tuple[str, str], list[aic.Kernel]] = {}
    gpus = dict[str, None]()
    for kernel in kernels:
        groups.setdefault((kernel.family, kernel.format), []).append(kernel)
        gpus[kernel.gpu] = None
    launch: float | None = None
    resident = (
        None
        if ("gemm", "bf16") in groups
        else next((aic.product(gpu, "bf16").get("resident", 1.0) for gpu in gpus), None)
    )
    for family, form in sorted(groups, key=lambda key: (FAMILIES.index(key[0]), FORMATS.index(key[1]))):
        group = groups[family, form]
        chosen = found_of.get(form.removesuffix("_default")) if form in aic_moe.DEFAULTS.values() else None
        if sum(kernel.fitted for kernel in group) < (ROWS if chosen is None else FEW):
            continue
        narrow = family == "gemm" and form != "bf16"
        found = fit(group, launch=launch if narrow else None, resident=resident, chosen=chosen)
        if family == "experts":
            found_of[form] = found
        resident = resident or found.constants.get("resident")
        if (family, form) == ("gemm", "bf16"):
            launch = found.constants["launch"]
        yield found


def rewritten(sheet: str, fits: Iterable[Fit], names: Sequence[str], today: dt.date) -> str:
    """The text of a sheet with fitted constants in its section `kernels`, the rest as it was."""
    head, mark, rest = sheet.partition("\nkernels:\n")
    if not mark:
        raise InputError("the sheet has no section `kernels` with `sms` and `cache`")
    block = list(itertools.takewhile(lambda line: line.startswith("  "), rest.splitlines()))
    after = rest.splitlines()[len(block) :]
    plain = [line for line in block if re.match(r"  (sms|cache|flash): ", line)]
    kept: dict[str, dict[str, str]] = {family: {} for family in FAMILIES}
    family = ""
    for line in block:
        if found := re.fullmatch(r"  (\w+):", line):
            family = found[1]
        elif found := re.match(r"    (\w+): ", line):
            kept.setdefault(family, {})[found[1]] = line
    for one in fits:
        source = (
            f"windtunnel calibrate kernels on {', '.join(names)} (github.com/ai-dynamo/aiconfigurator@095f58a): "
            f"{one.rows} rows; by blocks of shapes that a fit has not seen, median error {one.median:.1%}, "
            f"95th percentile {one.p95:.1%}; {today.isoformat()}"
        )
        value = shown(one.family, one.constants)
        kept[one.family][one.format] = (
            f"    {one.format}: {{value: {value}, evidence: calibrated, source: {json.dumps(source)}}}"
        )
    lines = plain
    for family, formats in kept.items():
        if formats:
            lines.append(f"  {family}:")
            lines += [formats[form] for form in sorted(formats, key=FORMATS.index)]
    return head + mark + "\n".join([*lines, *after]) + "\n"


def shown(family: str, constants: Mapping[str, float]) -> str:
    """Constants as a sheet has them."""
    parts: dict[str, dict[str, str]] = {"": {}}
    if family in ATTENTIONS:
        for kind in LISTS:
            found = [name.split(".") for name in constants if name.startswith(f"{kind}.")]
            shares = sorted((int(features), constants[f"{kind}.{features}"]) for _, features in found)
            if shares:
                parts[""][kind] = "[" + ", ".join(f"[{features}, {value:g}]" for features, value in shares) + "]"
    for name, value in constants.items():
        first, _, second = name.partition(".")
        if first in {*SIZES, "timed"} or (family in ATTENTIONS and first in LISTS):
            continue
        text = f"{value:g}"
        if (second or first) in {"feed", "store"}:
            text = f"{float(f'{value / 1e9:.4g}'):.12g} GB/s"
        elif (second or first) in {"fill", "launch", "time", "expert", "choice", "select", "row"}:
            text = f"{float(f'{value * 1e9:.4g}'):.12g} ns"
        if second:
            parts.setdefault(first, {})[second] = text
        elif not (value == 1 and first in {"cached", "resident"}):
            parts[""][name] = text
    parts[""] |= _sizes(constants)
    inner = [f"{name}: {text}" for name, text in parts.pop("").items()]
    inner += [
        f"{name}: {{{', '.join(f'{key}: {text}' for key, text in entries.items())}}}" for name, entries in parts.items()
    ]
    return "{" + ", ".join(inner) + "}"


def _sizes(constants: Mapping[str, float]) -> dict[str, str]:
    """Tiles, and what they are chosen by."""
    found = {
        tile: f"[{constants[f'{tile}.rows']:g}, {constants[f'{tile}.columns']:g}]"
        for tile in SIZES
        if f"{tile}.rows" in constants
    }
    return found | ({"timed": "true"} if "timed" in constants else {})


def record(old: Mapping[str, Any], fits: Iterable[Fit]) -> dict[str, Any]:
    """What the board needs of fits: the shapes that they saw, and the constants without each part of the blocks."""
    found = {family: dict(formats) for family, formats in old.items()}
    for one in fits:
        found.setdefault(one.family, {})[one.format] = {
            "rows": one.rows,
            "median_abs_error": round(one.median, 4),
            "p95_abs_error": round(one.p95, 4),
            "shapes": one.shapes,
            "without": one.without,
        }
    return found


def text_of(record: Mapping[str, Any]) -> str:
    """A record as a file has it: a line for each family and format."""
    parts = []
    for family in sorted(record):
        inner = ",\n".join(f'  "{form}": {json.dumps(record[family][form])}' for form in sorted(record[family]))
        parts.append(f'"{family}": {{\n{inner}\n}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def lines(found: Fit) -> Iterator[str]:
    """What was fitted and how well."""
    yield (
        f"{found.gpu} {found.family} {found.format}: {found.rows} rows; of blocks left out: median error "
        f"{found.median:.1%}, 95th percentile {found.p95:.1%}"
    )
    yield f"  {shown(found.family, found.constants)}"
    for name, reason in sorted(found.refused.items()):
        yield f"  refused {name}: {reason}"
