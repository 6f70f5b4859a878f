"""Mixtures of experts by inference libraries, by GPU and format (github.com/ai-dynamo/aiconfigurator).

The time is that of the rank with most tokens. How many each expert has follows from the stated distribution as the
table's authors draw it: `balanced` is even; `power_law_A` gives each expert a weight of density proportional to its
power -A, from 1 to 0.8 times the tokens (0.01 to 2 where there are fewer choices than experts), and shares the choices
by weight. They draw at random; here each expert has one of evenly spaced quantiles, in an order shuffled once for all.

TensorRT-LLM times its kernels for a configuration and takes the fastest. The program that made the table keeps what was
found in a file named by format, hidden features, inner features on a rank and experts on a rank, and a configuration
takes the first file whose name *begins* with its own (github.com/ai-dynamo/aiconfigurator, collector/trtllm/
collect_moe.py, `cache_path`). So one of two configurations whose names are equal, or of which one begins with the other
(1 and 16 experts), may run by what was found for the other, or by the library's default. `tactics` tells these apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables import aic
from windtunnel.validate.tables.common import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

FILE = "aic_moe.csv.gz"
COLUMNS = (
    "gpu", "dtype", "num_tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "distribution", "latency_ms",
    "kernel",
)  # fmt: skip
TUNED = "moe_torch_flow"
"""TensorRT-LLM's kernels by their names in the table."""
MOST = 0.8
"""Weights of experts reach up to this share of the tokens."""


@lru_cache(maxsize=4096)
def loads(tokens: int, experts: int, chosen: int, ranks: int, distribution: str) -> tuple[int, ...]:
    """Rows of each expert of the rank that has most of them."""
    choices = tokens * chosen
    if distribution == "balanced":
        stride = -(-experts // chosen)
        each = [choices // experts] * experts
        if tokens < stride:
            each = [0] * experts
            for choice in range(chosen):
                for token in range(tokens):
                    each[int(token * stride / tokens + choice * stride) % experts] += 1
        else:
            for token in range(choices % experts):
                each[token] += 1
    else:
        each = _skewed(tokens, experts, choices, float(distribution.rpartition("_")[2]))
    local = experts // ranks
    parts = [tuple(each[rank * local : (rank + 1) * local]) for rank in range(ranks)]
    return max(parts, key=sum)


def _skewed(tokens: int, experts: int, choices: int, power: float) -> list[int]:
    low, high = (1.0, tokens * MOST) if choices > experts else (0.01, 2.0)
    first, last = low ** (1 - power), high ** (1 - power)
    weights = [((last - first) * (i + 0.5) / experts + first) ** (1 / (1 - power)) for i in range(experts)]
    order = sorted(range(experts), key=lambda i: i * 2654435761 % (1 << 32))
    weights = [weights[i] for i in order]
    total = sum(weights)
    each = [min(round(weight / total * choices), tokens) for weight in weights]
    falling = sorted(range(experts), key=lambda i: -weights[i])
    rest, i = choices - sum(each), 0
    while rest != 0:
        expert = falling[i % experts] if rest > 0 else falling[-1 - i % experts]
        if rest > 0 and each[expert] < tokens:
            each[expert] += 1
            rest -= 1
        elif rest < 0 and each[expert] > 0:
            each[expert] -= 1
            rest += 1
        i += 1
    return each


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
        form = place[1] + ("_min_latency" if kind.endswith("min_latency") else "")
        ups = 1 if "nongated" in kind else 2
        each = sorted(Counter(loads(tokens, experts, chosen, ep, distribution)).items())
        shape = f"{hidden}x{inter}x{experts}"
        yield aic.Kernel(
            place[0], "experts", form, (tokens, chosen, hidden, inter // tp, ups, *chain(*each)), shape, shape,
            line.number_in("latency_ms") * 1e-3, f"{kind}/{tokens}/tp{tp}/ep{ep}/{distribution}",
        )  # fmt: skip


def tactics(found: Iterable[aic.Kernel]) -> Callable[[aic.Kernel], str]:
    """Whose timings chose a row's kernel, by the names of all configurations in `found`.

    `own`; `shared` where another configuration's file may have been taken; `fixed` where none are timed (SGLang's
    kernels, and those of 8 bits with a scale a block).
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
        return "shared" if _name(kernel) in shared else "own"

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
    return Row(
        id=f"aic-moe/{kernel.gpu}/{kernel.format}/{kernel.shape}/{tokens}/{tp}-{ep}/{distribution}/{library}",
        system=kernel.gpu,
        measured=kernel.seconds,
        scenario=scenario,
        groups={
            "GPU, format": f"{kernel.gpu}, {kernel.format.removesuffix('_min_latency')}",
            "distribution": distribution,
            "library": library,
            "tactics": tactics,
            "tokens": ">= 1,024" if int(tokens) >= 1024 else "< 1,024",
        },
    )
