"""Peak memory of GPUs: Korthikanti et al. 2022 (figure 1), Zero Bubble, torchtitan, Sailor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.validate.rows import Table
from windtunnel.validate.tables import published, sailor, torchtitan

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """The rows of all three, where their files are in the folder."""
    table = Table("memory")
    for rows in (
        published.rows_of_memory(data, systems),
        published.zero_bubble_memory(data, systems),
        torchtitan.rows_of_memory(data, systems),
        sailor.rows_of_memory(data, systems),
    ):
        for row in rows:
            if isinstance(row, str):
                table.exclude(row)
            else:
                table.fitted |= systems[row.system].fitted
                table.add(row)
    return table if table.rows or table.excluded else None
