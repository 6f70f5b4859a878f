"""Where a search stands, on a terminal: candidates that are asked for, then points of the round that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from windtunnel.studies.runner import Progress as Where


class SearchBar:
    """A bar on standard error, begun with what the search does first."""

    def __init__(self, first: str) -> None:
        self._first = first

    def __enter__(self) -> Self:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from windtunnel.cli.console import talk

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=talk(), transient=True, disable=not talk().is_terminal)
        self._task = self._bar.add_task(self._first, total=None)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def at(self, what: str, done: int, total: int) -> None:
        """So many of `total` are done of what goes on."""
        self._bar.update(self._task, description=what, completed=done, total=total)

    def ran(self, where: Where) -> None:
        """What the runner tells."""
        self.at("running", where.done, where.total)
