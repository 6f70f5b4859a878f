"""Tables of the board as an experiment asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.engine import InputError
from windtunnel.experiments.runs import means
from windtunnel.validate.board import validate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.validate.board import Board


def board_of(tables: Sequence[str]) -> Board:
    """These tables, predicted and scored; runs are kept where the experiment's are.

    The measurements are where `windtunnel validate` finds them. Raises `InputError` where they or a table are missing.
    """
    by = means()
    found = (
        validate(tables)
        if by is None
        else validate(tables, store=by.store, limits=by.limits, fresh=by.fresh, progress=by.progress)
    )
    if found.absent:
        raise InputError(f"the folder of measured tables has no `{found.absent[0]}`")
    return found
