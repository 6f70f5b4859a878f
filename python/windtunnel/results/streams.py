"""What people call a stream: what it does, where it does one thing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def stream_name(stream: int, operations: pl.DataFrame) -> str:
    """`compute`, `host` (launches), or the dimension all messages belong to; its number if its `operations` differ."""
    if (operations["kind"] == "calc").all():
        return "host" if (operations["label"] == "launch").all() else "compute"
    dimensions = operations["dimension"].unique()
    if len(dimensions) == 1 and dimensions[0] != "other" and (operations["kind"] != "calc").all():
        return str(dimensions[0]).upper()
    return f"stream {stream}"
