"""Tables of the board as an experiment asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.engine import InputError
from windtunnel.experiments.runs import Means, by, means
from windtunnel.validate.board import validate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.validate.board import Board


def board_of(tables: Sequence[str]) -> Board:
    """These tables, predicted and scored; runs are kept where the experiment's are.

    The measurements are where `windtunnel validate` finds them. Raises `InputError` where they or a table are missing.
    """
    given = means()
    if given is None:
        found = validate(tables)
    else:
        # A board is predicted whole: to begin it again for each run that is not known would read its tables as often.
        plain = Means(given.store, given.limits, given.fresh, given.progress, given.read)
        with by(plain):
            found = validate(tables, store=plain.store, limits=plain.limits, fresh=plain.fresh, progress=plain.progress)
    if found.absent:
        raise InputError(f"the folder of measured tables has no `{found.absent[0]}`")
    return found
