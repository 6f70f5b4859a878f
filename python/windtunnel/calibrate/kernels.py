"""Efficiency curves of a GPU from measured kernels.

Rows come from kernel profiles (`kernel,m,n,k,dtype,time`, as scenarios read them) and from Vidur's tables of a layer's
operations (`*_mlp.csv`, perhaps under gzip). Three things are fitted, one after the other:

- the launch: the 10th percentile of kernels that move less than `TINY` bytes, rounded to half a microsecond;
- the share of the memory bandwidth: the median over products of at most `THIN` rows, which read little but a weight;
- the share of the peak that a product reaches against its harmonic size 1/(1/m + 1/n + 1/k): in each octave of the
  size, a line through share against log2 of the size gives the point at the octave's centre.

What the rows do not determine is refused by name: an octave needs `ROWS` rows that are not bound by launch or memory
and differ in size, the curve `OCTAVES` octaves, the others `ROWS` rows. Nothing else of the sheet is touched.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from windtunnel.engine import InputError, nearest, units
from windtunnel.experiments.spec import parse_yaml

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Mapping, Sequence

SHEETS = Path(__file__).resolve().parents[3] / "data" / "gpus"

TINY = 1 << 18
THIN = 16
ROWS = 12
OCTAVES = 3
BOUND = 1.5
"""A product counts for the curve where its time is more than this times what launch or memory would take alone."""

HEADER = ["kernel", "m", "n", "k", "dtype", "time"]
STREAMS = ("norm", "activation", "residual", "rotary", "softmax", "embedding", "cross_entropy", "cross_entropy_part",
           "routing", "permute", "expert_bias", "cast", "optimiser")  # fmt: skip
"""Kernels that move bytes."""
OTHERS = ("attention_forward", "attention_backward", "layer_forward", "layer_backward", "embedding_forward",
          "embedding_backward", "head_forward", "head_backward", "optimiser_layer")  # fmt: skip
"""What a profile may hold too, and nothing here is fitted on."""
KINDS = ("gemm", *STREAMS, *OTHERS)
MORE = "more fields"
"""Where the reader puts what stands behind the last column."""
TIMES = {unit: factor / 1e12 for unit, factor in units("time")}
CURVES = {"fp8": "gemm_fp8", "fp4": "gemm_fp4"}
"""Formats with a curve of their own in a sheet; the others share `gemm`."""
BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp4": 0.5}


class Kernel(NamedTuple):
    """A measured kernel: a product of m by k and k by n, or one that moves bytes (k is 0)."""

    kind: str
    m: int
    n: int
    k: int
    dtype: str
    seconds: float

    @property
    def size(self) -> float:
        """The harmonic size of a product."""
        return 1.0 / (1.0 / self.m + 1.0 / self.n + 1.0 / self.k)

    @property
    def moved(self) -> float:
        """Bytes read and written."""
        width = BYTES[self.dtype]
        if self.kind != "gemm":
            passes = {"norm": 2, "activation": 3, "residual": 3, "embedding": 2, "rotary": 2}.get(self.kind, 2)
            return width * passes * self.m * self.n
        return width * (self.m * self.k + self.k * self.n + self.m * self.n)


@dataclass
class Found:
    """What was fitted, and why the rest was not."""

    gpu: str
    rows: int
    sources: list[str]
    dtype: str = "bf16"
    """Format of the rows, which says whose curve of products theirs is."""
    launch: float | None = None
    memory: float | None = None
    gemm: list[tuple[float, float]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    residuals: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    """Kind → rows, median and 95th percentile of |predicted/measured - 1| with the fitted figures."""


def read(path: Path) -> Iterator[Kernel]:
    """The kernels of a file. Raises `InputError` with file and line."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as raw:
            reader = csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8-sig", newline=""), restkey=MORE)
            names = [name.strip() for name in reader.fieldnames or []]
            reader.fieldnames = names
            if names == HEADER:
                for cells in reader:
                    yield _plain(path, reader.line_num, cells)
            elif "num_tensor_parallel_workers" in names:
                for cells in reader:
                    yield from _vidur(path, reader.line_num, cells)
            else:
                raise InputError(
                    f"{path}:1: neither `{','.join(HEADER)}` nor a table of a layer's operations by Vidur: "
                    f"found {', '.join(names[:6])}"
                )
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise InputError(f"{path}: not a table: {error}") from error


def _plain(path: Path, line: int, cells: Mapping[str, str]) -> Kernel:
    def whole(key: str) -> int:
        text = (cells[key] or "").strip()
        if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < 1 << 64):
            raise InputError(f"{path}:{line}: `{key}`: expected a whole number, found `{text}`")
        return int(text)

    if MORE in cells:
        raise InputError(f"{path}:{line}: expected {len(HEADER)} fields, found {len(HEADER) + len(cells[MORE])}")
    kind = (cells["kernel"] or "").strip()
    if kind not in KINDS:
        near = nearest(kind, list(KINDS))
        hint = f"did you mean `{near}`?" if near else f"there are {', '.join(KINDS)}"
        raise InputError(f"{path}:{line}: `kernel`: no kernel `{kind}`\n\nhint: {hint}")
    dtype, time = (cells["dtype"] or "").strip(), (cells["time"] or "").strip()
    if dtype not in BYTES:
        raise InputError(f"{path}:{line}: `dtype`: expected one of {', '.join(BYTES)}, found `{dtype}`")
    found = re.fullmatch(r"([0-9.eE+-]+)\s*([a-z]+)", time)
    try:
        seconds = float(found[1]) * TIMES[found[2]] if found and found[2] in TIMES else 0.0
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise InputError(f"{path}:{line}: `time`: expected a time such as `12.5 us`, found `{time}`")
    kernel = Kernel(kind, whole("m"), whole("n"), whole("k"), dtype, seconds)
    if kernel.m == 0 or kernel.n == 0 or (kind == "gemm" and kernel.k == 0):
        raise InputError(f"{path}:{line}: a kernel of no size")
    return kernel


def _vidur(path: Path, line: int, cells: Mapping[str, str]) -> Iterator[Kernel]:
    """The operations of a layer at one number of tokens and ranks; times are medians in milliseconds."""

    def number(key: str) -> float:
        try:
            return float(cells[key])
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{path}:{line}: `{key}`: expected a number, found `{cells.get(key)}`") from None

    def whole(key: str) -> int:
        value = number(key)
        if not 0 <= value < 1 << 64:
            raise InputError(f"{path}:{line}: `{key}`: expected a whole number, found `{cells[key]}`")
        return int(value)

    tokens, ranks = whole("num_tokens"), whole("num_tensor_parallel_workers")
    hidden, width = whole("n_embd"), whole("n_expanded_embd")
    heads, kv = whole("n_head"), whole("n_kv_head")
    if min(tokens, ranks, heads, kv) < 1 or min(hidden, width) < ranks or hidden < heads:
        raise InputError(f"{path}:{line}: a layer of no size")
    head = hidden // heads
    ups = 2 if cells.get("use_gated_mlp", "True") == "True" else 1
    qkv = (heads // ranks + 2 * max(kv // ranks, 1)) * head
    shapes = {
        "attn_pre_proj": ("gemm", qkv, hidden),
        "attn_post_proj": ("gemm", hidden, hidden // ranks),
        "mlp_up_proj": ("gemm", ups * width // ranks, hidden),
        "mlp_down_proj": ("gemm", hidden, width // ranks),
        "input_layernorm": ("norm", hidden, 0),
        "post_attention_layernorm": ("norm", hidden, 0),
        "mlp_act": ("activation", width // ranks, 0),
        "add": ("residual", hidden, 0),
    }
    for name, (kind, n, k) in shapes.items():
        key = f"time_stats.{name}.median"
        if cells.get(key):
            seconds = number(key) * 1e-3
            if 0 < seconds < math.inf:
                yield Kernel(kind, tokens, n, k, "bf16", seconds)


def fit(gpu: str, kernels: Sequence[Kernel], sources: list[str], *, peak: float, bandwidth: float) -> Found:
    """Fits what the rows determine. `peak` in operations and `bandwidth` in bytes a second, of the rows' format."""
    found = Found(gpu, len(kernels), sources, kernels[0].dtype if kernels else "bf16")
    products = [kernel for kernel in kernels if kernel.kind == "gemm"]
    streams = [kernel for kernel in kernels if kernel.kind in STREAMS]
    tiny = [kernel.seconds for kernel in streams if kernel.moved < TINY]
    if len(tiny) >= ROWS:
        found.launch = max(round(float(np.percentile(tiny, 10)) * 2e6) / 2, 0.5) * 1e-6
    else:
        found.refused["launch"] = f"{len(tiny)} rows move less than {TINY >> 10} KiB, {ROWS} are due"
    launch = found.launch or 2e-6
    thin = [k.moved / ((k.seconds - launch) * bandwidth) for k in products if k.m <= THIN and k.seconds > 3 * launch]
    if len(thin) >= ROWS and np.median(thin) <= 1:
        found.memory = round(float(np.median(thin)), 2)
    else:
        found.refused["efficiency.memory"] = (
            f"{len(thin)} products of at most {THIN} rows outlast the launch, {ROWS} are due"
        )
    _curve(found, products, launch, peak, bandwidth * (found.memory or 0.8))
    _residuals(found, kernels, launch, peak, bandwidth)
    if not any(kernel.kind.startswith("attention") for kernel in kernels):
        found.refused["efficiency.attention_forward"] = "no row is of attention"
        found.refused["efficiency.attention_backward"] = "no row is of attention"
    return found


def _curve(found: Found, products: Sequence[Kernel], launch: float, peak: float, reached: float) -> None:
    octaves: dict[int, list[tuple[float, float]]] = {}
    for product in products:
        time = product.seconds - launch
        if time <= BOUND * launch or time <= 1.1 * product.moved / reached:
            continue
        share = 2.0 * product.m * product.n * product.k / (time * peak)
        if 0 < share <= 1:
            size = math.log2(product.size)
            octaves.setdefault(round(size), []).append((size, share))
    for octave, points in sorted(octaves.items()):
        sizes, shares = np.array(points).T
        if len(points) < ROWS or np.ptp(sizes) < 0.25:
            found.refused[f"efficiency.gemm at {2**octave}"] = f"{len(points)} rows within {np.ptp(sizes):.2f} octaves"
            continue
        slope, offset = np.polyfit(sizes, shares, 1)
        found.gemm.append((float(2**octave), round(float(min(max(offset + slope * octave, 1e-3), 1.0)), 3)))
    if len(found.gemm) < OCTAVES:
        found.refused["efficiency.gemm"] = f"{len(found.gemm)} octaves of sizes have rows enough, {OCTAVES} are due"
        found.gemm = []


def share_at(points: Sequence[tuple[float, float]], size: float) -> float:
    """The curve as the engine reads it: linear in log2 of the size, falling with it below the first point."""
    if size <= points[0][0]:
        return points[0][1] * size / points[0][0]
    return float(np.interp(math.log2(size), [math.log2(s) for s, _ in points], [share for _, share in points]))


def _residuals(found: Found, kernels: Sequence[Kernel], launch: float, peak: float, bandwidth: float) -> None:
    reached = bandwidth * (found.memory or 0.8)
    errors: dict[str, list[float]] = {}
    for kernel in kernels:
        if kernel.kind in OTHERS:
            continue
        memory = kernel.moved / reached
        compute = 0.0
        if kernel.kind == "gemm":
            if not found.gemm:
                continue
            compute = 2.0 * kernel.m * kernel.n * kernel.k / (peak * share_at(found.gemm, kernel.size))
        errors.setdefault(kernel.kind, []).append(abs((launch + max(compute, memory)) / kernel.seconds - 1))
    for kind, values in sorted(errors.items()):
        found.residuals[kind] = (len(values), float(np.median(values)), float(np.percentile(values, 95)))


def rewritten(sheet: str, found: Found, today: dt.date) -> str:
    """The text of a sheet with the fitted figures in their places, the others as they were."""
    count, median, tail = found.residuals.get("gemm", (0, 0.0, 0.0))
    source = (
        f"windtunnel calibrate kernels on {', '.join(found.sources)}: {found.rows} rows, {count} products with a "
        f"median residual of {median:.1%} and a 95th percentile of {tail:.1%}; {today.isoformat()}"
    )
    figures: dict[str, str] = {}
    if found.gemm:
        figures[f"  {CURVES.get(found.dtype, 'gemm')}"] = (
            "[" + ", ".join(f"[{size:g}, {share:g}]" for size, share in found.gemm) + "]"
        )
    if found.memory is not None:
        figures["  memory"] = f"{found.memory:g}"
    if found.launch is not None:
        figures["launch"] = f"{found.launch * 1e6:g} us"
    for key, value in figures.items():
        quoted = json.dumps(source, ensure_ascii=False)
        line = f"{key}: {{value: {value}, evidence: measured, source: {quoted}}}"
        sheet, count = re.subn(rf"^{key}: \{{.*$", line.replace("\\", r"\\"), sheet, count=1, flags=re.MULTILINE)
        if count == 0:
            raise InputError(f"sheet of {found.gpu}: `{key.strip()}` is not on a line of its own")
    return sheet


def sheet_path(gpu: str) -> Path:
    """The file of a GPU's sheet, by name or by path. Raises `InputError` with the nearest name."""
    given = Path(gpu)
    if given.suffix == ".yaml":
        if not given.is_file():
            raise InputError(f"{given}: no such file")
        return given
    names = {path.stem: path for path in sorted(SHEETS.glob("*.yaml"))}
    found = names.get(gpu.lower())
    if found is None:
        near = nearest(gpu, list(names))
        hint = f"did you mean `{near}`?" if near else f"there are {', '.join(names)}"
        raise InputError(f"no sheet of GPU `{gpu}`\n\nhint: {hint}")
    return found


def rates(sheet: str, path: Path, dtypes: set[str]) -> tuple[float, float]:
    """Peak in operations and bandwidth in bytes a second of the sheet, in the one format of the rows."""
    if len(dtypes) != 1:
        raise InputError(f"rows of one format are due, found {', '.join(sorted(dtypes)) or 'none'}")
    (dtype,) = dtypes
    record = parse_yaml(sheet, str(path))
    try:
        peak, bandwidth = str(record["peak"][dtype]["value"]), str(record["memory_bandwidth"]["value"])
    except (KeyError, TypeError):
        raise InputError(f"{path}: no `peak.{dtype}` or no `memory_bandwidth`") from None
    return _scaled(peak, {"TFLOPS": 1e12, "PFLOPS": 1e15, "GFLOPS": 1e9}, path), _scaled(
        bandwidth, {"TB/s": 1e12, "GB/s": 1e9}, path
    )


def _scaled(text: str, units: Mapping[str, float], path: Path) -> float:
    number, _, unit = text.partition(" ")
    try:
        value = float(number) * units[unit]
    except (ValueError, KeyError):
        value = 0.0
    if not 0 < value < math.inf:
        raise InputError(f"{path}: expected a number with one of the units {', '.join(units)}, found `{text}`")
    return value


def lines(found: Found) -> list[str]:
    """What was fitted and how well, a line each."""
    told = [f"{found.gpu}: {found.rows} kernels of {', '.join(found.sources)}"]
    if found.launch is not None:
        told.append(f"  launch {found.launch * 1e6:g} us")
    if found.memory is not None:
        told.append(f"  share of the memory bandwidth {found.memory:g}")
    if found.gemm:
        told.append("  share of the peak rate " + ", ".join(f"{share:g} at {size:g}" for size, share in found.gemm))
    for kind, (rows, median, tail) in found.residuals.items():
        told.append(f"  {kind}: {rows} rows, median residual {median:.1%}, 95th percentile {tail:.1%}")
    return told
