"""Mixtures of experts by inference libraries, by GPU and format (github.com/ai-dynamo/aiconfigurator).

The time is that of the rank with most tokens. How many each expert has follows from the stated distribution as the
table's authors draw it (collector/helper.py, `_generate_power_law_distribution`): `balanced` is even; `power_law_A`
gives each expert a weight of density proportional to its power -A, from 1 to 0.8 times the tokens (0.01 to 2 where
there are fewer choices than experts), and shares the choices by weight. They time five draws and publish the mean.
Theirs have no recorded seed, so this table takes the mean over three times five draws of its own.

Two kernels compute more than this rank's share. SGLang's takes the tokens that chose any expert of the rank and
computes all their choices, those of other ranks by expert 0 (collector/sglang/collect_moe.py,
`build_rank0_local_workload` and `clamp(min=0)`). TensorRT-LLM's Triton kernel for 8 bits with a scale a block, which
RTX PRO 6000 has, computes the choices of all tokens, those of other ranks by the last local expert
(fused_moe_cutlass.py, `clamp(0, local_n - 1)`).

TensorRT-LLM's kernels for few tokens choose experts themselves, and not those that were drawn (`aic_gate`).

The five draws and all repeats use the same weights. What a cache still has of an expert depends on what was touched
since the last draw that met it (`returns`).

TensorRT-LLM times its kernels for powers of two of tokens, whose choices fall on all experts alike, and runs the rows
below the next power by what it found (`tensorrt_llm/_torch/autotuner.py`; `prepareFakeRouterBuffers` in
`moe_kernels.cu`): skewed experts run by the tile that is best for even ones.

TensorRT-LLM times its kernels for a configuration and takes the fastest, where nothing keeps it from it
(`aic_tactics`). Cases that ran by its default kernel have formats of their own, `bf16_default`; `tactics` tells rows
apart.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from functools import lru_cache
from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple

from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables import aic, aic_gate, aic_tactics
from windtunnel.validate.tables.common import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from windtunnel.validate.systems import System

FILE = "aic_moe.csv.gz"
COLUMNS = (
    "gpu", "dtype", "num_tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "distribution", "latency_ms",
    "kernel",
)  # fmt: skip
TUNED = "moe_torch_flow"
"""TensorRT-LLM's kernels by their names in the table."""
SGLANG = "sglang_fused_moe"
TRITON_BLOCK = "triton_fp8_block"
"""The kernels that compute choices of other ranks, by parts of their names."""
MOST = 0.8
"""Weights of experts reach up to this share of the tokens."""
DEFAULTS = {form: f"{form}_default" for form in ("bf16", "fp8", "fp4")}
"""Formats of rows that ran by the library's default kernel. Kernels for few tokens have none that is slower."""
DRAWS = 5
"""Draws of a skewed distribution that are timed one after the other, and averaged."""
SETS = 3
"""So often they are drawn anew."""


class Load(NamedTuple):
    """What the rank with most tokens has of one draw."""

    rows: tuple[int, ...]
    """Of each of its experts."""
    tokens: int
    """Tokens that chose any of them."""


@lru_cache(maxsize=4096)
def loads(
    tokens: int, experts: int, chosen: int, ranks: int, distribution: str, *, gated: bool = False
) -> tuple[Load, ...]:
    """The rank that has most rows, for each draw; a balanced distribution has one.

    `gated`: by kernels that choose experts themselves (`aic_gate`), on the rank that was to have most.
    """
    if distribution == "balanced":
        if gated:
            chose = aic_gate.balanced(tokens, experts, chosen)
            return (Load(aic_gate.rows(chose, experts, chosen)[: experts // ranks], tokens),)
        return (_most(_balanced(tokens, experts, chosen), tokens, ranks),)
    found = []
    for each in _drawn(tokens, experts, chosen, ranks, distribution):
        if gated:
            local = experts // ranks
            start = _fullest(each, local)
            swapped = [*each]
            swapped[:local], swapped[start : start + local] = each[start : start + local], each[:local]
            chose = aic_gate.in_columns(swapped, tokens, chosen)
            found.append(Load(aic_gate.rows(chose, experts, chosen)[:local], tokens))
        else:
            found.append(_most(each, tokens, ranks))
    return tuple(found)


def _drawn(tokens: int, experts: int, chosen: int, ranks: int, distribution: str) -> Iterator[list[int]]:
    """Rows of each expert, draw by draw."""
    choices = tokens * chosen
    power = float(distribution.rpartition("_")[2])
    low, high = (1.0, tokens * MOST) if choices > experts else (0.01, 2.0)
    first, last = low ** (1 - power), high ** (1 - power)
    for draw in range(SETS * DRAWS):
        source = random.Random(f"{tokens} {experts} {chosen} {ranks} {distribution} {draw}")  # noqa: S311
        weights = [((last - first) * source.random() + first) ** (1 / (1 - power)) for _ in range(experts)]
        yield _shared(weights, choices, tokens, ranks)


def _balanced(tokens: int, experts: int, chosen: int) -> list[int]:
    choices, stride = tokens * chosen, -(-experts // chosen)
    each = [choices // experts] * experts
    if tokens < stride:
        each = [0] * experts
        for choice in range(chosen):
            for token in range(tokens):
                each[int(token * stride / tokens + choice * stride) % experts] += 1
    else:
        for token in range(choices % experts):
            each[token] += 1
    return each


def _shared(weights: Sequence[float], choices: int, tokens: int, ranks: int) -> list[int]:
    """Whole choices by weight, of no expert more than there are tokens; what is over or missing goes rank by rank."""
    total = sum(weights)
    each = [round(weight / total * choices) for weight in weights]
    over = sum(max(count - tokens, 0) for count in each)
    each = [min(count, tokens) for count in each]
    _adjust(each, over, 1, tokens, ranks)
    rest = choices - sum(each)
    _adjust(each, abs(rest), 1 if rest > 0 else -1, tokens, ranks)
    return each


def _adjust(each: list[int], steps: int, step: int, tokens: int, ranks: int) -> None:
    """Adds so many steps, one a rank in turn: to its expert with fewest rows, or from that with most."""
    local = len(each) // ranks
    heaps = [[(step * each[i], i) for i in range(rank * local, (rank + 1) * local)] for rank in range(ranks)]
    for heap in heaps:
        heapq.heapify(heap)
    while steps > 0:
        before = steps
        for heap in heaps:
            count, i = heap[0]
            if steps == 0 or count >= (tokens if step > 0 else 0):
                continue
            each[i] += step
            heapq.heapreplace(heap, (count + 1, i))
            steps -= 1
        if steps == before:
            return


def _fullest(each: Sequence[int], local: int) -> int:
    """The first expert of the rank with most rows."""
    return max(range(0, len(each), local), key=lambda first: sum(each[first : first + local]))


def _most(each: Sequence[int], tokens: int, ranks: int) -> Load:
    """The rank with most rows. Choices lie expert by expert, the fullest first, in columns of one choice a token."""
    local = len(each) // ranks
    start = _fullest(each, local)
    order = sorted(range(len(each)), key=lambda i: -each[i])
    ends = accumulate(each[i] for i in order)
    met: list[tuple[int, int]] = []
    for i, end in zip(order, ends, strict=True):
        if start <= i < start + local and each[i]:
            first = (end - each[i]) % tokens
            met.append((first, min(first + each[i], tokens)))
            if first + each[i] > tokens:
                met.append((0, first + each[i] - tokens))
    covered = reached = 0
    for first, end in sorted(met):
        covered += max(end - max(first, reached), 0)
        reached = max(reached, end)
    return Load(tuple(each[start : start + local]), covered)


def computed(found: Iterable[Load], kind: str, tokens: int, chosen: int, ranks: int) -> list[Load]:
    """What a kernel computes of these, with the choices of other ranks where it computes those too."""
    if ranks == 1 or not (kind.startswith(SGLANG) or kind.endswith(TRITON_BLOCK)):
        return [Load(load.rows, tokens) for load in found]
    all_ = []
    for rows, met in found:
        if kind.startswith(SGLANG):
            others = met * chosen - sum(rows)
            all_.append(Load((rows[0] + others, *rows[1:]), met))
        else:
            others = tokens * chosen - sum(rows)
            all_.append(Load((*rows[:-1], rows[-1] + others), tokens))
    return all_


def returns(found: Sequence[Load], hidden: int, inter: int, ups: int, width: float) -> list[list[tuple[int, int]]]:
    """For each draw: bytes between two uses of an expert's weights, and how many of its experts these are of.

    Draws follow each other in a circle. What lies between is what was met since the last draw that met the expert:
    weights, inputs, inner features and results.
    """
    weight = width * hidden * inter * (ups + 1)
    met = [frozenset(i for i, count in enumerate(load.rows) if count) for load in found]
    moved = [2 * load.tokens * hidden + 2 * sum(load.rows) * (ups * inter + hidden) for load in found]
    every = []
    for draw, own in enumerate(met):
        left, between, passed, each = own, own, moved[draw], []
        for earlier in range(draw - 1, draw - 1 - len(found), -1):
            again = left & met[earlier]
            if again:
                each.append((round(weight * len(between) + passed), len(again)))
                left -= again
            between |= met[earlier]
            passed += moved[earlier]
        every.append(each)
    return every


def kernels(path: Path, table: Table | None = None) -> Iterator[aic.Kernel]:
    """The kernels of a file; those of GPUs without a sheet are counted in `table`."""
    for line in lines(path, COLUMNS):
        place = aic.place(line, table)
        if place is None:
            continue
        tokens, hidden, inter, chosen, experts, tp, ep = (
            line.count(key) for key in ("num_tokens", "hidden", "inter", "topk", "experts", "tp", "ep")
        )
        distribution, kind = line.text("distribution"), line.text("kernel")
        if experts % ep or inter % tp:
            if table is not None:
                table.exclude("experts or features are not a multiple of the ranks")
            continue
        form = place[1] + (aic_tactics.MIN_LATENCY if kind.endswith("min_latency") else "")
        ups = 1 if "nongated" in kind else 2
        shape = f"{hidden}x{inter}x{experts}"
        if aic_tactics.Case(form, shape, chosen, tp, ep, distribution) in (aic_tactics.defaults(place[0]) or ()):
            form = DEFAULTS.get(form, form)
        few = kind.endswith("min_latency")
        found = computed(loads(tokens, experts, chosen, ep, distribution, gated=few), kind, tokens, chosen, ep)
        timed = 1 << tokens.bit_length() - 1
        first, *more = (
            (load.tokens, chosen, hidden, inter // tp, ups, timed, experts, len(back), *chain(*back),
             *chain(*sorted(Counter(load.rows).items())))
            for start in range(0, len(found), DRAWS)
            for load, back in zip(
                found[start : start + DRAWS],
                returns(found[start : start + DRAWS], hidden, inter // tp, ups, aic.WIDTHS[place[1]]),
                strict=True,
            )
        )  # fmt: skip
        yield aic.Kernel(
            place[0], "experts", form, first, shape, shape, line.number_in("latency_ms") * 1e-3,
            f"{kind}/{tokens}/tp{tp}/ep{ep}/{distribution}", tuple(more),
        )  # fmt: skip


def tactics(found: Iterable[aic.Kernel]) -> Callable[[aic.Kernel], str]:
    """What chose a row's kernel.

    `own`: timings of its own; `default`: nothing, it is the library's default kernel; `shared`: not known, by the
    names of all configurations in `found` another one's file may have been taken, and the order of the runs is not
    known; `fixed`: none are timed (SGLang's kernels, and those of 8 bits with a scale a block).
    """
    names: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    for kernel in found:
        names[_name(kernel)].add((kernel.shape, kernel.row[1], kernel.row[4], *kernel.kind.split("/")[2:4]))
    shared = {
        name
        for name, configurations in names.items()
        if len(configurations) > 1 or any(other != name and other.startswith(name) for other in names)
    }

    def kind(kernel: aic.Kernel) -> str:
        if not kernel.kind.startswith(TUNED) or kernel.format == "fp8_block":
            return "fixed"
        if kernel.format in DEFAULTS.values():
            return "default"
        unknown = aic_tactics.defaults(kernel.gpu) is None
        return "shared" if unknown and _name(kernel) in shared else "own"

    return kind


def _name(kernel: aic.Kernel) -> str:
    """The part of a file's name that follows the format."""
    experts, ranks = int(kernel.shape.rpartition("x")[2]), int(kernel.kind.split("/")[3].removeprefix("ep"))
    return f"{kernel.row[2]}_{kernel.row[3]}_{experts // ranks}"


def read(data: Path, systems: Mapping[str, System]) -> Table | None:  # noqa: ARG001
    """All kernels of GPUs with a sheet."""
    path = data / "compute_profiles" / FILE
    if not path.is_file():
        return None
    table = Table("aic-moe")
    found = list(kernels(path, table))
    kind = tactics(found)
    for kernel in found:
        aic.add(table, kernel, lambda kernel, scenario: _row(kernel, scenario, kind(kernel)))
    return table


def _row(kernel: aic.Kernel, scenario: Mapping[str, object], tactics: str) -> Row:
    library, tokens, tp, ep, distribution = kernel.kind.split("/")
    form = kernel.format.removesuffix("_default")
    return Row(
        id=f"aic-moe/{kernel.gpu}/{form}/{kernel.shape}/{tokens}/{tp}-{ep}/{distribution}/{library}",
        system=kernel.gpu,
        measured=kernel.seconds,
        scenario=scenario,
        groups={
            "GPU, format": f"{kernel.gpu}, {form.removesuffix('_min_latency')}",
            "distribution": distribution,
            "library": library,
            "tactics": tactics,
            "tokens": ">= 1,024" if int(tokens) >= 1024 else "< 1,024",
        },
    )
