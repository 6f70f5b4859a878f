"""What people call a stream: what it does, where it does one thing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def stream_name(stream: int, operations: Iterable[tuple[str, str, str]]) -> str:
    """`compute`, `host` (launches), or the dimension all messages belong to; its number if its operations differ.

    `operations` are kinds, labels and dimensions.
    """
    seen = set(operations)
    kinds = {kind for kind, _, _ in seen}
    if kinds == {"calc"}:
        return "host" if {label for _, label, _ in seen} == {"launch"} else "compute"
    dimensions = {dimension for _, _, dimension in seen}
    if len(dimensions) == 1 and dimensions != {"other"} and "calc" not in kinds:
        return str(dimensions.pop()).upper()
    return f"stream {stream}"
