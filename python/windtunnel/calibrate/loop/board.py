"""What a set would do to the validation board: errors of the system's own rows of nccl-tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from windtunnel.calibrate.loop.models import NCCL
from windtunnel.calibrate.nccl import rows_of, whole
from windtunnel.engine import InputError
from windtunnel.validate.board import data_folder
from windtunnel.validate.collectives import Asked, limits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from windtunnel.calibrate.loop.ledger import Set
    from windtunnel.validate.systems import System


def board_errors(system: System, sets: Sequence[Set], data: Path | None) -> list[tuple[int, float, float]]:
    """Rows, median and 95th percentile of the error, by set; empty where the board has no rows of the system."""
    try:
        rows = rows_of(data_folder(data), {system.name: system}).get(system.name)
    except InputError:
        if data is not None:
            raise
        return []
    if rows is None:
        return []
    stated = limits(system)
    variants = [
        whole({n[len(NCCL) :]: v for n, v in one.constants.items() if n.startswith(NCCL)}, stated) for one in sets
    ]
    off = np.abs(np.array(Asked(rows.asked).times(variants)) / np.array(rows.measured) - 1.0)
    return [(off.shape[1], float(np.median(one)), float(np.percentile(one, 95))) for one in off]
