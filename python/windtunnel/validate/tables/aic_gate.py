"""Which experts TensorRT-LLM's kernels for few tokens chose when `aic-moe` was measured.

The program that made the table (github.com/ai-dynamo/aiconfigurator, collector/trtllm/collect_moe.py) hands over the
choices as logits: one value for a token's experts, a smaller one for all others. Most kernels take the highest. Those
for few tokens (`min_latency`) choose as DeepSeek-V3 does (`DeepseekV3Gate` there, 8 groups of which 4 are kept):
experts lie in groups, the groups with the highest sums of their two highest values are kept, and the highest values in
those are taken. Of equal values the one with the lower index goes first (`TopKRedType` in `RoutingKernelTopK.cuh`). So
a token whose experts lie in eight groups loses half of them and takes the first experts of the groups that are kept:
all tokens take the same ones, and the rank that was timed, which has the first experts, computes much more than was
drawn.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GROUPS = 8
KEPT = 4


def balanced(tokens: int, experts: int, chosen: int) -> list[tuple[int, list[int]]]:
    """How many tokens asked for which experts, evenly (`balanced_logits` in collector/helper.py)."""
    stride = -(-experts // chosen)
    if tokens < stride:
        starts = [(1, token * stride / tokens) for token in range(tokens)]
    else:
        starts = [(-(-(tokens - token) // experts), float(token)) for token in range(min(tokens, experts))]
    return [(count, [int(start + i * stride) % experts for i in range(chosen)]) for count, start in starts]


def in_columns(each: Sequence[int], tokens: int, chosen: int) -> list[tuple[int, list[int]]]:
    """The same of experts that so many tokens ask for each.

    They lie expert by expert, the fullest first, in columns of
    one choice a token (`_assign_experts_from_counts`).
    """
    order = sorted(range(len(each)), key=lambda i: -each[i])
    ends = list(accumulate(each[i] for i in order))
    cuts = sorted({0, tokens, *(end % tokens for end in ends)})
    return [
        (end - start, [order[bisect_right(ends, start + i * tokens)] for i in range(chosen)])
        for start, end in pairwise(cuts)
    ]


def gate(asked: Iterable[int], experts: int, chosen: int) -> list[int]:
    """The experts that a token takes that asked for these."""
    size = experts // GROUPS
    wanted = sorted(set(asked))
    inside = [0] * GROUPS
    for expert in wanted:
        inside[expert // size] += 1
    kept = sorted(sorted(range(GROUPS), key=lambda group: -min(inside[group], 2))[:KEPT])
    taken = [expert for expert in wanted if expert // size in kept]
    others = (expert for group in kept for expert in range(group * size, (group + 1) * size) if expert not in wanted)
    return [*taken, *(expert for expert, _ in zip(others, range(chosen - len(taken)), strict=False))][:chosen]


def rows(asked: Iterable[tuple[int, list[int]]], experts: int, chosen: int) -> tuple[int, ...]:
    """Rows that each expert takes of all tokens."""
    found = [0] * experts
    for count, wanted in asked:
        for expert in gate(wanted, experts, chosen):
            found[expert] += count
    return tuple(found)
