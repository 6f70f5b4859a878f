"""The cost model of the engine: what layouts take, many at once and without a run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from windtunnel import engine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Literal

    from windtunnel.source import Source

    Depth = Literal["line", "apart", "close"]

AT_ONCE = 2048
"""Choices that are answered together, at most: between two lots a search can be stopped, and says where it stands."""
FIRST = 64
"""Choices of the first lot; each that took less than `SHORT_S` is followed by one twice as large."""
SHORT_S = 0.5


@dataclass(frozen=True)
class Answer:
    """What a layout takes; seconds and bytes. `refused` says why it has no time."""

    refused: str | None
    iteration_s: float | None
    least: bool
    """Whether the iteration may take longer: exchanges beside its passes were not followed."""
    compute_s: float
    inside_s: float
    """What tensor, context and expert parallelism make computations wait."""
    data_s: float
    """What gathering parameters, reducing gradients and the optimiser add."""
    pipeline_s: float
    """The pipeline's bubble, and messages between stages."""
    memory_bytes: int
    capacity_bytes: int
    micro_batches: int
    mfu: float
    tokens_per_s: float
    held_s: float = 0.0
    """What a GPU waits on average since others that hold the same stage are slower (`variation.speeds`)."""
    layers: list[int] | None = None
    """Layers of each stage, if they were to be `balanced`."""

    @property
    def fits(self) -> bool:
        """Whether the fullest GPU has room for what it holds."""
        return self.memory_bytes <= self.capacity_bytes

    def limit(self) -> str:
        """What takes most of the iteration beside computations, and its share: `layers`, `data` or `pipeline`."""
        parts = {"layers": self.inside_s, "data": self.data_s, "pipeline": self.pipeline_s}
        name, seconds = max(parts.items(), key=lambda part: part[1])
        whole = self.iteration_s or 1.0
        return "compute" if seconds < 0.02 * whole else f"{name} {seconds / whole:.0%}"


class Estimates:
    """The cost model of one job of a scenario, for one list of choices after another: what lists share is kept.

    As many `threads` as there are cores work answers out unless told otherwise. An answer is the same for any number of
    them, and whatever was asked before and beside it, on other numbers of GPUs too.
    With `ideal` NICs alone are shared.
    """

    def __init__(
        self,
        source: Source,
        overrides: Sequence[tuple[str, str]],
        *,
        job: int = 0,
        ideal: bool = False,
        threads: int | None = None,
    ) -> None:
        self._estimates = engine.Estimates(
            source.text, source.name, str(source.base), list(overrides), {"fidelity": "flow"},
            job=job, ideal=ideal, threads=threads,
        )  # fmt: skip

    def answers(
        self,
        choices: Sequence[Mapping[str, Any]],
        *,
        depth: Depth = "close",
        fitting: bool = False,
        budget_bytes: int | None = None,
        told: Callable[[list[Answer]], None] | None = None,
    ) -> list[Answer]:
        """Answers to `choices`, in their order.

        `told` hears them `AT_ONCE` at a time at most, and what it raises ends the search.

        A choice names `parallelism`, `training`, `micro_batch`, `global_batch` and `layers_per_stage` of the job; what
        it leaves out stays as the scenario has it. With `balanced: true` it leaves the layers of stages to the speeds
        of their GPUs, embedding and head counted, and the answer says which they are.

        A depth of `apart` lets exchanges inside passes meet nothing on
        their links, which is sooner, and off by up to 20% where tensor parallelism spans hosts. `line` is sooner still:
        where exchanges beside passes would be followed (ZeRO 3 above all) the answer is a bound from below, and marked
        `least`. With `fitting` what needs more than a GPU (or `budget_bytes` of it) has its memory told and no time,
        which is sooner too.
        Raises `InputError` for what is wrong with the scenario whatever the layout.
        """
        found: list[Answer] = []

        def tell(text: str) -> None:
            batch = [Answer(**answer) for answer in json.loads(text)["answers"]]
            found.extend(batch)
            if told is not None:
                told(batch)

        lot = min(FIRST, AT_ONCE)
        while len(found) < len(choices):
            asked = {
                "depth": depth, "fitting": fitting, "budget": budget_bytes, "at_once": lot,
                "choices": list(choices[len(found) : len(found) + lot]),
            }  # fmt: skip
            began = perf_counter()
            self._estimates.answers(json.dumps(asked), tell)
            if perf_counter() - began < SHORT_S:
                lot = min(2 * lot, AT_ONCE)
        return found


def answers(
    source: Source,
    overrides: Sequence[tuple[str, str]],
    choices: Sequence[Mapping[str, Any]],
    *,
    job: int = 0,
    ideal: bool = False,
    depth: Depth = "close",
    threads: int | None = None,
) -> list[Answer]:
    """Answers to one list of choices, as `Estimates.answers` gives them."""
    return Estimates(source, overrides, job=job, ideal=ideal, threads=threads).answers(choices, depth=depth)
