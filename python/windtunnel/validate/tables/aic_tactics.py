"""Which mixtures of experts TensorRT-LLM ran by its default kernel when `aic-moe` was measured.

TensorRT-LLM times its kernels for a configuration and takes the fastest. The program that made the table
(github.com/ai-dynamo/aiconfigurator, collector/trtllm/collect_moe.py) does so where it finds no file of what was
found before. A file is named by format, hidden features, inner features on a rank and experts on a rank, and one whose
name *begins* so is taken too; the choices in it hold for one number of chosen experts and one parallelism. So of two
configurations with one name the first one is timed, and the other one runs by the library's default kernel, whatever
its distribution.

Which came first follows from the order of the program's cases: a list of all of them, shuffled with seed 42, at the
commit by which the table was made (ae33d91b3, as the commit that published it says). `data/kernels/order.json` has the
places in that order of all cases whose name another configuration has or begins with. The runs were made in several
sessions (the same commit tells of windows that were resumed), and each began without files. Where they began is not
published; `sessions` are the places that explain best which cases of 16 and 8 bits were slow.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from windtunnel.validate.written import written

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DISTRIBUTIONS = ("balanced", "power_law_1.01", "power_law_1.2")
MIN_LATENCY = "_min_latency"
"""Kernels of this kind share the files of their format."""


class Case(NamedTuple):
    """What the program runs at once, for all numbers of tokens."""

    format: str
    shape: str
    """Hidden features, inner features and experts, as `4096x1024x512`."""
    chosen: int
    tp: int
    ep: int
    distribution: str

    @property
    def file(self) -> str:
        """The name of its file."""
        hidden, inter, experts = (int(part) for part in self.shape.split("x"))
        return f"{self.format.removesuffix(MIN_LATENCY)}_{hidden}_{inter // self.tp}_{experts // self.ep}"

    @property
    def choices(self) -> tuple[object, ...]:
        """What a file's content holds for."""
        return self[:5]


def by_default(order: Iterable[tuple[int, Case]], sessions: Sequence[int]) -> frozenset[Case]:
    """The cases that ran by the default kernel, of all those with their places in `order`.

    `sessions`: the places at which a new session began, ascending.
    """
    ordered = sorted(order)
    longer: dict[str, list[str]] = {}
    names = sorted({case.file for _, case in ordered})
    for name in names:
        longer[name] = [other for other in names if other != name and other.startswith(name)]
    found: list[Case] = []
    session, files = -1, dict[str, tuple[object, ...]]()
    for place, case in ordered:
        now = bisect_right(sessions, place)
        if now != session:
            session, files = now, {}
        taken = next((name for name in (case.file, *longer[case.file]) if name in files), None)
        if taken is None:
            files[case.file] = case.choices
        elif files[taken] != case.choices:
            found.append(case)
    return frozenset(found)


@lru_cache(maxsize=16)
def defaults(gpu: str) -> frozenset[Case] | None:
    """The cases that ran by the default kernel on a GPU; None where the order of its runs is not known."""
    record = written("kernels", "order")
    place = record["gpus"].get(gpu)
    if place is None:
        return None
    order: list[tuple[int, Case]] = []
    for form, configurations in record["cases"][place["architecture"]].items():
        for name, places in configurations.items():
            shape, chosen, tp, ep = name.split("/")
            order += [
                (at, Case(form, shape, int(chosen), int(tp[2:]), int(ep[2:]), distribution))
                for at, distribution in zip(places, DISTRIBUTIONS, strict=True)
            ]
    return by_default(order, place["sessions"])
