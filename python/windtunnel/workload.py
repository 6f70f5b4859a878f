"""Workloads written by hand: a builder of the JSON-lines format.

The first line is `{"windtunnel_workload": 1, "ranks": N}`. Then come communicators
(`{"communicator": "dp", "ranks": [0, 1]}`, or `"groups": [[0, 1], [2, 3]]`) and operations, one a line: whose they are
(`"rank"`, or `"ranks"`: a list or `"all"`), an `"id"`, one of

* `"compute": "120 us"`
* `"collective": "all_reduce", "communicator": "dp", "bytes": "64 MiB"`
* `"send": {"to": RANK, "bytes": "1 MiB", "tag": 0}`
* `"receive": {"from": RANK or "any", "tag": 0 or "any"}`

and, where wanted, `"after"` (ids of operations of the same rank that must have finished), `"stream"` and `"dimension"`
(`tp`, `cp`, `ep`, `pp`, `dp`: under what exposed time is booked).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from windtunnel.engine import InputError
from windtunnel.results.folder import write_beside

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Ranks = int | Sequence[int] | Literal["all"]
    Dimension = Literal["tp", "cp", "ep", "pp", "dp", "other"]

FORMAT = 1
"""Version of the format that is written."""
WORLD = "world"
"""The communicator of all ranks in order, which needs no line."""


class Workload:
    """Operations of `ranks` ranks: computations, messages, and collectives on named communicators.

    Every operation is given to one rank, several, or `"all"`, and returns its id, to be named in the `after` of a later
    one; an id may stand for other operations on other ranks. Quantities carry their units (`"120 us"`, `"64 MiB"`).

    >>> step = Workload(ranks=2)
    >>> dp = step.communicator("dp", [0, 1])
    >>> backward = step.compute("all", "120 us")
    >>> _ = step.collective("all", "all_reduce", dp, "64 MiB", after=[backward])
    >>> print(step.text(), end="")
    {"windtunnel_workload": 1, "ranks": 2}
    {"communicator": "dp", "ranks": [0, 1]}
    {"ranks": "all", "id": "compute-0", "compute": "120 us"}
    {"ranks": "all", "id": "all_reduce-1", "collective": "all_reduce", "communicator": "dp", "bytes": "64 MiB", "after": ["compute-0"]}
    """  # noqa: E501

    def __init__(self, ranks: int) -> None:
        if not _is_whole(ranks) or ranks < 1:
            raise InputError(f"ranks: expected a whole number of at least 1, found `{ranks!r}`")
        self.ranks = ranks
        self._lines: list[dict[str, Any]] = [{"windtunnel_workload": FORMAT, "ranks": ranks}]
        self._communicators: set[str] = {WORLD}
        self._owners: dict[str, set[int] | None] = {}
        self._count = 0

    def communicator(self, name: str, ranks: Iterable[int]) -> str:
        """Names a group of ranks, in group order. A rank may be in one communicator of a name only, once.

        `world` has all ranks without being named.
        """
        members = [self._rank(rank) for rank in ranks]
        if name == WORLD:
            raise InputError("communicator `world`: it is there already, with all ranks in order")
        if len(set(members)) != len(members):
            raise InputError(f"communicator `{name}`: a rank is named twice")
        if not members:
            raise InputError(f"communicator `{name}`: it has no rank")
        self._communicators.add(name)
        self._lines.append({"communicator": name, "ranks": members})
        return name

    def compute(
        self,
        ranks: Ranks,
        duration: str,
        *,
        id: str | None = None,  # noqa: A002
        after: Sequence[str] = (),
        stream: int | None = None,
    ) -> str:
        """Computes for `duration`, such as `"120 us"`."""
        return self._add("compute", ranks, {"compute": duration}, id, after, stream, None)

    def collective(
        self,
        ranks: Ranks,
        kind: str,
        communicator: str,
        bytes: str,  # noqa: A002
        *,
        id: str | None = None,  # noqa: A002
        after: Sequence[str] = (),
        stream: int | None = None,
        dimension: Dimension | None = None,
        algorithm: str | None = None,
    ) -> str:
        """Takes part in a collective such as `all_reduce` over `bytes`, such as `"64 MiB"`."""
        if communicator not in self._communicators:
            known = ", ".join(f"`{name}`" for name in sorted(self._communicators)) or "none"
            raise InputError(f"no such communicator: `{communicator}`\n\nhint: there are {known}")
        what = {"collective": kind, "communicator": communicator, "bytes": bytes}
        if algorithm is not None:
            what["algorithm"] = algorithm
        return self._add(kind, ranks, what, id, after, stream, dimension)

    def send(
        self,
        rank: int,
        to: int,
        bytes: str,  # noqa: A002
        *,
        tag: int = 0,
        id: str | None = None,  # noqa: A002
        after: Sequence[str] = (),
        stream: int | None = None,
        dimension: Dimension | None = None,
    ) -> str:
        """Sends a message of `bytes` from `rank` to `to`."""
        what = {"send": {"to": self._rank(to), "bytes": bytes, "tag": tag}}
        return self._add("send", rank, what, id, after, stream, dimension)

    def receive(
        self,
        rank: int,
        source: int | Literal["any"],
        *,
        tag: int | Literal["any"] = 0,
        id: str | None = None,  # noqa: A002
        after: Sequence[str] = (),
        stream: int | None = None,
        dimension: Dimension | None = None,
    ) -> str:
        """Receives a message from `source` at `rank`; its size is the sender's."""
        what = {"receive": {"from": source if source == "any" else self._rank(source), "tag": tag}}
        return self._add("receive", rank, what, id, after, stream, dimension)

    def text(self) -> str:
        """The workload as JSON lines."""
        return "".join(json.dumps(line) + "\n" for line in self._lines)

    def write(self, path: str | Path) -> Path:
        """Writes the workload to `path` and returns it."""
        path = Path(path)
        write_beside(path, self.text().encode())
        return path

    def _add(
        self,
        kind: str,
        ranks: Ranks,
        what: dict[str, Any],
        id: str | None,  # noqa: A002
        after: Sequence[str],
        stream: int | None,
        dimension: Dimension | None,
    ) -> str:
        name = id if id is not None else f"{kind}-{self._count}"
        whose = self._whose(ranks)
        owners = None if ranks == "all" else {whose["rank"]} if "rank" in whose else set(whose["ranks"])
        if name in self._owners:
            others = self._owners[name]
            if owners is None or others is None or owners & others:
                raise InputError(f"two operations have the id `{name}`")
            owners |= others
        if isinstance(after, str):
            raise InputError(f"operation `{name}`: expected a list of ids in `after`, found `{after!r}`")
        for earlier in after:
            if earlier not in self._owners:
                raise InputError(f"operation `{name}`: no earlier operation has the id `{earlier}`")
        line = {**whose, "id": name, **what}
        if after:
            line["after"] = list(after)
        if stream is not None:
            line["stream"] = stream
        if dimension is not None:
            line["dimension"] = dimension
        self._owners[name] = owners
        self._count += 1
        self._lines.append(line)
        return name

    def _whose(self, ranks: Ranks) -> dict[str, Any]:
        if ranks == "all":
            return {"ranks": "all"}
        if isinstance(ranks, int):
            return {"rank": self._rank(ranks)}
        return {"ranks": [self._rank(rank) for rank in ranks]}

    def _rank(self, rank: object) -> int:
        if not _is_whole(rank) or not 0 <= rank < self.ranks:
            raise InputError(f"no such rank: `{rank!r}`, expected 0 to {self.ranks - 1}")
        return rank


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
