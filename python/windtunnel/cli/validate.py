"""`windtunnel validate`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from rich.text import Text

from windtunnel.cli.app import DONE, FAILED, INTERRUPTED
from windtunnel.cli.console import out, print_json, talk
from windtunnel.cli.declare import Commands, Option
from windtunnel.cli.study_options import EngineOption, FreshOption, MemoryOption, WorkersOption, limits_of
from windtunnel.engine import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windtunnel.validate.board import Board
    from windtunnel.validate.since import Moved

app = Commands()

TARGET = Path("runs") / "validation"


@app.command()
def validate(
    tables: Annotated[
        list[str] | None,
        Option("--table", metavar="NAME", help="A table; those of the board if left out. Repeatable."),
    ] = None,
    data: Annotated[
        Path | None, Option(metavar="DIR", help="Folder of measured tables; its `systems/*.yaml` are read first.")
    ] = None,
    quick: Annotated[bool, Option("--quick", help="Every tenth row.")] = False,
    folder: Annotated[Path, Option("--out", metavar="DIR", help="Where rows (CSV) and page (HTML) go.")] = TARGET,
    fresh: FreshOption = False,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    engine: EngineOption = "local",
    store: Annotated[Path, Option(help="Folder of runs.")] = Path("runs"),
    since: Annotated[
        Path | None,
        Option(
            metavar="PATH",
            help="Name the rows that moved by more than 1% since a board (its `--out`) or a file of pins; 1 if any.",
        ),
    ] = None,
    pin: Annotated[
        Path | None, Option(metavar="FILE", help="Write 500 rows with their predictions, for `--since`.")
    ] = None,
    json: Annotated[bool, Option("--json", help="Print JSON and nothing else.")] = False,
    ablated: Annotated[
        str | None,
        Option("--without", metavar="MECHANISM", help="Take a mechanism of the model away; `all`: each in turn."),
    ] = None,
    write: Annotated[
        bool, Option("--write", help="Renew the board of docs/validation.md and the errors that runs show.")
    ] = False,
) -> int:
    """Predict published measurements and say how far off the predictions are; 1 if a row could not be run."""
    from windtunnel.cli.study_progress import study_progress
    from windtunnel.results.folder import check_file, write_beside
    from windtunnel.validate import BOARD, NAMES
    from windtunnel.validate import validate as run_board
    from windtunnel.validate.ablation import EVERY, MECHANISMS
    from windtunnel.validate.output import html, rows_as_they_come, rows_csv
    from windtunnel.validate.since import before, moved, pins

    _known(tables or [], NAMES)
    _known([] if ablated is None else [ablated], (*MECHANISMS, EVERY), "mechanism")

    check_file(folder / "index.html", "--out")
    limits = limits_of(workers, memory=memory, engine=engine)
    check_file(pin, "--pin")
    if ablated == EVERY:
        unheard = json or quick or since is not None or pin is not None or (write and bool(tables))
        asked = {"data": data, "store": store, "limits": limits, "fresh": fresh}
        return _without_each(tables, folder, write=write, unheard=unheard, asked=asked)
    if ablated is not None and (write or pin is not None):
        raise InputError("`--without` predicts what no run gets\n\nhint: leave `--write` and `--pin` out")
    if write and (tables or quick):
        raise InputError("`--write` takes the whole board\n\nhint: leave `--table` and `--quick` out")
    earlier = None if since is None else before(since)
    # Of pinned rows nothing else is predicted.
    only = earlier if since is not None and since.is_file() else None
    with study_progress(0) as progress, rows_as_they_come(folder) as told:
        try:
            board = run_board(
                tables or BOARD,
                data=data,
                quick=quick,
                store=store,
                limits=limits,
                fresh=fresh,
                progress=progress,
                only=only,
                ablated=ablated,
                told=told,
            )
        except KeyboardInterrupt:
            talk().print(f"interrupted: {progress.kept()} predictions are kept; the same command goes on")
            return INTERRUPTED
    if not json:
        progress.say_end()
    for score in board.scores:
        write_beside(folder / f"{score.name}.csv", rows_csv(score).encode())
    write_beside(folder / "index.html", html(board).encode())
    failed = _failed(board)
    if pin is not None:
        write_beside(pin, pins(board).encode())
    changed, gone = ([], []) if earlier is None else moved(board, earlier)
    if write and not failed:
        _renew(board)
    bad = bool(failed or changed or gone)
    if json:
        record = board.record()
        if earlier is not None:
            record |= {"moved": [one.record() for one in changed], "gone": gone}
        print_json(json_module.dumps(record, indent=2))
        return FAILED if bad else DONE
    _show(board, left_out=only is None)
    if earlier is not None:
        _moved(changed, gone, sum(len(rows) for rows in earlier.values()))
    out().print(f"wrote {folder / 'index.html'}", markup=False, soft_wrap=True)
    return FAILED if bad else DONE


def _without_each(
    tables: Sequence[str] | None, folder: Path, *, write: bool, unheard: bool, asked: Mapping[str, Any]
) -> int:
    """What each mechanism buys on samples of tables of training jobs: a table, on the page too if `write`."""
    if unheard:
        raise InputError(
            "`--without all` predicts samples of tables\n\nhint: only `--table`, `--data`, `--out`, `--store`, "
            "`--fresh` and `--workers` go with it, or `--write` for all tables"
        )
    from windtunnel.cli.study_progress import study_progress
    from windtunnel.results.folder import write_beside
    from windtunnel.validate import validate as run_board
    from windtunnel.validate.ablation import MECHANISMS, TABLES, table
    from windtunnel.validate.page import renew_ablations

    _known(tables or [], TABLES)
    boards = {}
    for mechanism in (None, *MECHANISMS):
        with study_progress(0) as progress:
            try:
                board = run_board(tables or TABLES, progress=progress, ablated=mechanism, sampled=True, **asked)
            except KeyboardInterrupt:
                talk().print("interrupted: predictions are kept; the same command goes on")
                return INTERRUPTED
        if _failed(board):
            return FAILED
        boards[mechanism] = board.scores
    text = table(boards.pop(None), {name: scores for name, scores in boards.items() if name is not None})
    folder.mkdir(parents=True, exist_ok=True)
    write_beside(folder / "ablations.md", f"{text}\n".encode())
    out().print(text, markup=False, soft_wrap=True, highlight=False)
    if write:
        talk().print(f"wrote {renew_ablations(text)}", markup=False, soft_wrap=True)
    return DONE


def _show(board: Board, *, left_out: bool) -> None:
    """The board as a table, the facts beside it, and what is not on it."""
    from windtunnel.validate.output import HEAD, cells

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("table")
    for name in HEAD:
        table.add_column(name, justify="right")
    for score in board.scores:
        table.add_row(Text(score.name), *cells(score.figures))
    out().print(table)
    for score in board.scores:
        for fact, value in score.facts.items():
            out().print(Text(f"{score.name}: {fact}: {value:.3f}"))
    if left_out:
        _left_out(board)


def _moved(changed: Sequence[Moved], gone: Sequence[str], all_rows: int) -> None:
    """Rows whose prediction moved, the farthest first, and those that are no more."""
    out().print(f"{len(changed)} of {all_rows} predictions moved by more than 1%", markup=False)
    for one in changed:
        out().print(
            f"  {one.id}: {one.before:.4g} → {one.now:.4g} ({one.change:+.1%}), "
            f"error {one.before / one.measured - 1:+.1%} → {one.now / one.measured - 1:+.1%}",
            markup=False,
            soft_wrap=True,
        )
    for name in gone:
        out().print(f"  {name}: is not predicted any more", markup=False, soft_wrap=True)


def _renew(board: Board) -> None:
    """Writes the board into the page and the errors that runs show."""
    from windtunnel.validate.page import renew

    for path in renew(board):
        talk().print(f"wrote {path}", markup=False, soft_wrap=True)


def _failed(board: Board) -> bool:
    """Whether rows could not be run, which are named; a board that lacks them is not for the page."""
    failed = [f for score in board.scores for f in score.failed]
    for f in failed:
        talk().print(f"{f.row.id} could not be run: {f.reason}", markup=False, soft_wrap=True)
    return bool(failed)


def _left_out(board: Board) -> None:
    """Rows and tables that are not on the board, and why."""
    for score in board.scores:
        for e in score.excluded:
            out().print(Text(f"{score.name}: {e.rows} rows left out: {e.reason}", style="dim"))
    for name in board.absent:
        out().print(Text(f"{name}: its file is not in the folder", style="dim"))


def _known(asked: Sequence[str], names: Sequence[str], what: str = "table") -> None:
    """Refuses a table or mechanism that is not there, with the nearest name."""
    for name in asked:
        if name not in names:
            near = nearest(name, list(names))
            hint = f"did you mean `{near}`?" if near else f"there are {', '.join(names)}"
            raise InputError(f"no such {what}: `{name}`\n\nhint: {hint}")
