"""What Open MPI's collectives send, round by round, for each of the algorithms that the testbed asks for by name.

A schedule has, for each rank, rounds of messages that it sends and of ranks that it waits for; a rank goes on to its
next round when it has received all of a round. Names and numbers are those of `ompi_info --param coll tuned --level 9`
(4.1); the algorithms are Thakur, Rabenseifner, Gropp 2005 (ring, recursive doubling and halving, Rabenseifner) and
Bruck et al. 1997; what a long message asks was seen on the wire. Ranks are a power of two. Bytes are counted as
nccl-tests does (`docs/collectives.md`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of a collective: what Open MPI calls it, and what this project does."""

    name: str
    parameter: str
    """Of `coll_tuned_*_algorithm`."""
    number: int
    ours: Mapping[str, Any] | None
    """Keys of a collective of ours with the same messages; None where its messages are written down one by one."""


@dataclass
class Round:
    """A round of a rank."""

    sends: list[tuple[int, int]] = field(default_factory=list)
    """To whom, and bytes."""
    receives: list[int] = field(default_factory=list)
    """From whom."""


_STEPS = {"form": "steps"}
SETS: Mapping[str, Mapping[str, Algorithm]] = {
    "ring": {
        "all_reduce": Algorithm("ring", "allreduce", 4, {"algorithm": "ring", **_STEPS}),
        "all_gather": Algorithm("ring", "allgather", 4, {"algorithm": "ring", **_STEPS}),
        "reduce_scatter": Algorithm("ring", "reduce_scatter", 3, {"algorithm": "ring", **_STEPS}),
        "all_to_all": Algorithm("pairwise", "alltoall", 2, {"algorithm": "direct", "outstanding": 1, **_STEPS}),
        "broadcast": Algorithm("binomial", "bcast", 6, None),
        "barrier": Algorithm("bruck", "barrier", 4, {"algorithm": "bruck", **_STEPS}),
    },
    "recursive": {
        "all_reduce": Algorithm("rabenseifner", "allreduce", 6, {"algorithm": "recursive", **_STEPS}),
        "all_gather": Algorithm("recursive doubling", "allgather", 3, {"algorithm": "recursive", **_STEPS}),
        "reduce_scatter": Algorithm("recursive halving", "reduce_scatter", 2, {"algorithm": "recursive", **_STEPS}),
        "all_to_all": Algorithm("linear", "alltoall", 1, {"algorithm": "direct", **_STEPS}),
        "broadcast": Algorithm("linear", "bcast", 1, None),
        "barrier": Algorithm("recursive doubling", "barrier", 3, None),
    },
    "doubling": {
        "all_reduce": Algorithm("recursive doubling", "allreduce", 3, None),
        "all_gather": Algorithm("bruck", "allgather", 2, {"algorithm": "bruck", **_STEPS}),
        "all_to_all": Algorithm("bruck", "alltoall", 3, {"algorithm": "bruck", **_STEPS}),
    },
}
"""Algorithms that one start of `mpirun` can have: one for each collective."""


EAGER = (64 << 10) - 64
"""Bytes that Open MPI sends over TCP without asking (`btl_tcp_eager_limit`, in which its own header has room)."""
QUESTION, ANSWER = 40, 64
"""Bytes of what a longer message asks with, and of the answer: Open MPI's headers, as seen on the wire."""


def schedule(kind: str, algorithm: str, ranks: int, size: int) -> list[list[Round]]:
    """Rounds of each rank. Raises `KeyError` for an algorithm that is not here."""
    return [_ROUNDS[kind, algorithm](rank, ranks, size) for rank in range(ranks)]


def asks(rounds: Sequence[Sequence[Round]]) -> bool:
    """Whether a message of a schedule asks before it goes."""
    return any(size > EAGER for own in rounds for part in own for _, size in part.sends)


@dataclass
class Step:
    """What a rank does once steps before it are over: it sends, receives, computes (no peer) or has a collective."""

    name: str
    kind: str
    """`send`, `receive`, `compute`, `collective`, or a `pause` in which questions that are there are answered first."""
    after: list[str]
    peer: int = -1
    amount: int = 0
    """Bytes, or microseconds."""
    tag: int = 0
    waits: bool = False
    """Whether a send is over when its bytes have left, rather than at once."""


def steps(rounds: Sequence[Sequence[Round]], name: str, tag: int, last: list[list[str]]) -> list[list[Step]]:
    """Rounds as steps of each rank, after its `last` ones, which become those of the last round.

    A message that is longer than `EAGER` asks, and goes when it has been answered; a rank answers when it has come to
    the round in which it receives. Question, answer and message go by one connection in the order in which they were
    given to it: an answer waits behind a message that goes the same way, so that one that asks a little later than the
    other goes only when the other has gone.
    """
    sizes: dict[tuple[int, int], list[int]] = {}
    for rank, own in enumerate(rounds):
        for part in own:
            for to, size in part.sends:
                sizes.setdefault((rank, to), []).append(size)
    found: list[list[Step]] = []
    for rank, own in enumerate(rounds):
        mine: list[Step] = []
        heard: dict[int, int] = {}
        for turn, part in enumerate(own):
            before, ends = last[rank], []
            for of in part.receives:
                size = sizes[of, rank][heard.get(of, 0)]
                heard[of] = heard.get(of, 0) + 1
                here = f"{name}.{turn}.from{of}"
                if size > EAGER:
                    mine.append(Step(f"{here}q", "receive", before, of, QUESTION, tag + 1))
                    mine.append(Step(f"{here}a", "send", [f"{here}q"], of, ANSWER, tag + 2))
                mine.append(Step(here, "receive", [f"{here}a"] if size > EAGER else before, of, size, tag))
                ends.append(here)
            for to, size in part.sends:
                here = f"{name}.{turn}.to{to}"
                if size > EAGER:
                    mine.append(Step(f"{here}p", "pause", before))
                    mine.append(Step(f"{here}q", "send", [f"{here}p"], to, QUESTION, tag + 1))
                    mine.append(Step(f"{here}a", "receive", [f"{here}p"], to, ANSWER, tag + 2))
                    mine.append(Step(here, "send", [f"{here}a"], to, size, tag, waits=True))
                else:
                    mine.append(Step(here, "send", before, to, size, tag))
                ends.append(here)
            last[rank] = ends or before
        found.append(mine)
    return found


def _exchange(peers: Sequence[tuple[int, int, int]]) -> list[Round]:
    """Rounds with one message each way: to whom, from whom, bytes."""
    return [Round([(to, size)], [source]) for to, source, size in peers]


def _bits(ranks: int) -> range:
    return range(ranks.bit_length() - 1)


def _ring(times: int) -> Any:  # noqa: ANN401
    return lambda rank, n, size: _exchange([((rank + 1) % n, (rank - 1) % n, size // n)] * (times * (n - 1)))


def _doubling(rank: int, n: int, size: int) -> list[Round]:
    return _exchange([(rank ^ 1 << k, rank ^ 1 << k, size) for k in _bits(n)])


def _gather(rank: int, n: int, size: int) -> list[Round]:
    return _exchange([(rank ^ 1 << k, rank ^ 1 << k, size // n << k) for k in _bits(n)])


def _scatter(rank: int, n: int, size: int) -> list[Round]:
    return _exchange([(rank ^ 1 << k, rank ^ 1 << k, size // n << k) for k in reversed(_bits(n))])


def _rabenseifner(rank: int, n: int, size: int) -> list[Round]:
    """Half of the vector with the nearest, a quarter with the next but one; then the way back."""
    halves = [(rank ^ 1 << k, rank ^ 1 << k, size >> (k + 1)) for k in _bits(n)]
    return _exchange(halves + halves[::-1])


def _bruck_gather(rank: int, n: int, size: int) -> list[Round]:
    return _exchange([((rank - (1 << k)) % n, (rank + (1 << k)) % n, size // n << k) for k in _bits(n)])


def _bruck(rank: int, n: int, size: int) -> list[Round]:
    """Half of all blocks in each round."""
    return _exchange([((rank + (1 << k)) % n, (rank - (1 << k)) % n, size // 2) for k in _bits(n)])


def _dissemination(rank: int, n: int, _: int) -> list[Round]:
    return _exchange([((rank + (1 << k)) % n, (rank - (1 << k)) % n, 1) for k in _bits(n)])


def _pairwise(rank: int, n: int, size: int) -> list[Round]:
    return _exchange([((rank + k) % n, (rank - k) % n, size // n) for k in range(1, n)])


def _linear(rank: int, n: int, size: int) -> list[Round]:
    others = range(1, n)
    return [Round([((rank + k) % n, size // n) for k in others], [(rank - k) % n for k in others])]


def _binomial(rank: int, n: int, size: int) -> list[Round]:
    """A rank hears from the one without its highest bit, and sends to those with a higher one, nearest first."""
    children = [(rank | 1 << k, size) for k in _bits(n) if 1 << k > rank]
    heard = [Round([], [rank ^ 1 << (rank.bit_length() - 1)])] if rank else []
    return [*heard, *_in_turn(children)]


def _in_turn(sends: Sequence[tuple[int, int]]) -> list[Round]:
    """Blocking sends: one that does not ask first is over at once, and the next waits for one that does."""
    if not sends or sends[0][1] <= EAGER:
        return [Round(list(sends), [])] if sends else []
    return [Round([send], []) for send in sends]


def _from_root(rank: int, n: int, size: int) -> list[Round]:
    return [Round([], [0])] if rank else [Round([(k, size) for k in range(1, n)], [])]


_ROUNDS: Mapping[tuple[str, str], Any] = {
    ("all_reduce", "ring"): _ring(2),
    ("all_gather", "ring"): _ring(1),
    ("reduce_scatter", "ring"): _ring(1),
    ("all_to_all", "pairwise"): _pairwise,
    ("broadcast", "binomial"): _binomial,
    ("broadcast", "linear"): _from_root,
    ("barrier", "bruck"): _dissemination,
    ("all_reduce", "rabenseifner"): _rabenseifner,
    ("all_gather", "recursive doubling"): _gather,
    ("reduce_scatter", "recursive halving"): _scatter,
    ("all_to_all", "linear"): _linear,
    ("all_to_all", "bruck"): _bruck,
    ("barrier", "recursive doubling"): lambda rank, n, _: _doubling(rank, n, 1),
    ("all_reduce", "recursive doubling"): _doubling,
    ("all_gather", "bruck"): _bruck_gather,
}
