"""What an iteration's time is made of: the parts in their order, with names and colours, used by every view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DIMENSIONS = ("tp", "cp", "ep", "pp", "dp", "other")
"""Dimensions of parallelism, in the order of the result keys."""


@dataclass(frozen=True)
class Part:
    """A part of the iteration: its key in `critical_path.category`, its name and its colour."""

    key: str
    name: str
    colour: str

    @property
    def column(self) -> str:
        """Column of `iterations`, in ps."""
        return f"exposed_{self.key}_ps" if self.key in DIMENSIONS else f"{self.key}_ps"

    def seconds(self, job: dict[str, Any]) -> float | None:
        """The part's seconds in an entry of `summary.jobs`."""
        if self.key in DIMENSIONS:
            value = (job.get("exposed_s") or {}).get(self.key)
        else:
            value = job.get(f"{self.key}_s")
        return None if value is None else float(value)


PARTS = (
    Part("compute", "compute", "#566370"),
    Part("tp", "exposed TP", "#de7b22"),
    Part("cp", "exposed CP", "#ffd00c"),
    Part("ep", "exposed EP", "#5912a5"),
    Part("pp", "exposed PP", "#148353"),
    Part("dp", "exposed DP", "#9f3104"),
    Part("other", "exposed other", "#411a00"),
    Part("bubble", "pipeline bubble", "#d5d8dd"),
    Part("straggler", "stragglers", "#2eaaff"),
    Part("host", "host", "#964aa9"),
)
"""All parts; they sum to the iteration time."""

PART = {part.key: part for part in PARTS}
"""Parts by key."""
