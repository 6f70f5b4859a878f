"""Rails: which leaves the ways between two hosts pass where each GPU's NIC hangs on a leaf of its own.

A system may know groups of hosts that share their leaves (`collectives.leaves`), one leaf that lets less out than a
NIC sends (`slow_leaf`: a group and a GPU) and the GPUs that the scheduler gave to runs of fewer than all (`placements`,
a CSV beside the system's file). NCCL sends to a rank by the sender's GPU of that rank's rail where the job has it (PXN,
`NCCL_P2P_PXN_LEVEL=2`), else from the sending rank's own NIC; so a way leaves its leaf between groups, or where the
sending host lacks the rail.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from windtunnel.engine import InputError
from windtunnel.validate.collectives import section
from windtunnel.validate.tables.common import lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from windtunnel.validate.systems import System
    from windtunnel.validate.tables.common import Line

COLUMNS = ("ranks_a_host", "first_host", "second_host", "first_gpus", "second_gpus")


def leaves_a_slow_leaf(system: System, operation: str, hosts: Sequence[int], ranks: int) -> bool:
    """Whether grouped sends of two `hosts` with `ranks` each pass the uplinks of the system's slow leaf.

    False where the system states no such leaf, or does not know which GPUs the run had. Raises `InputError` where its
    file or its placements are wrong.
    """
    slow = section(system, "slow_leaf")
    if slow is None or len(hosts) != 2:
        return False
    place = f"{system.path}: collectives.slow_leaf"
    try:
        group, gpu = int(slow["leaf"]), int(slow["gpu"])
    except (TypeError, KeyError, ValueError) as error:
        raise InputError(f"{place}: expected `leaf` and `gpu`, each a number, found `{slow}`") from error
    groups = section(system, "leaves", [])
    first, second = (next((i for i, leaf in enumerate(groups) if host in leaf), None) for host in hosts)
    gpus = _gpus(system, hosts, ranks)
    if gpus is None:
        return False
    for a, sender, receiver in _ways(operation, *gpus):
        ends = (first, second) if a == 0 else (second, first)
        if ends[0] == ends[1] and sender == receiver:
            continue
        if (ends[0], sender) == (group, gpu) or (ends[1], receiver) == (group, gpu):
            return True
    return False


def _ways(operation: str, first: Sequence[int], second: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Sending host and the GPUs whose NICs send and receive, for every way between the two."""
    for a, mine, theirs in ((0, first, second), (1, second, first)):
        # Ranks fill one host after the other: the last of each sends to the first of the next.
        pairs = [(mine[-1], theirs[0])] if operation == "sendrecv" else [(i, j) for i in mine for j in theirs]
        for sender, receiver in pairs:
            yield a, receiver if receiver in mine else sender, receiver


def _gpus(system: System, hosts: Sequence[int], ranks: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The GPUs of a run on two hosts, by number; None if they are not known."""
    whole = int(system.section("topology")["host"]["gpus"])
    if ranks == whole:
        return tuple(range(whole)), tuple(range(whole))
    file = section(system, "placements")
    if file is None:
        return None
    return _placements(system.path.parent / str(file)).get((ranks, hosts[0], hosts[1]))


@lru_cache(maxsize=8)
def _placements(path: Path) -> Mapping[tuple[int, int, int], tuple[tuple[int, ...], tuple[int, ...]]]:
    found = {}
    for line in lines(path, COLUMNS):
        ranks, first, second = (line.count(column) for column in COLUMNS[:3])
        found[ranks, first, second] = (_numbers(line, "first_gpus", ranks), _numbers(line, "second_gpus", ranks))
    return found


def _numbers(line: Line, column: str, ranks: int) -> tuple[int, ...]:
    text = line.text(column).split()
    if len(text) != ranks or not all(word.isdecimal() for word in text):
        raise InputError(
            f"{line.path}:{line.number}: `{column}`: expected {ranks} numbers of GPUs, found `{line.text(column)}`"
        )
    return tuple(int(word) for word in text)
