"""The store: run folders, and beside them an SQLite index of every run.

Life cycle of a row: `running` (with the process that runs it) → `done`, `refused`, `failed`; a row whose process is
gone is `interrupted`. The folder is placed by a rename before its row says `done`, so a kill between the two leaves a
folder without a row, which `rebuild` finds again, and never a row without its folder.

Invariants: the index holds nothing that the folders of finished runs do not (`rebuild` makes it anew, refusals
excepted); paths in it are relative to the store, so that a store may be moved; several processes may use one store.

Failure modes: an index of a newer version is refused; one that is not a database is set aside and made again.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from windtunnel.engine import InputError
from windtunnel.results.owner import is_gone, owner
from windtunnel.studies.point import Outcome
from windtunnel.studies.recipe import Digests, content_key, engine_build, recipe
from windtunnel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from windtunnel.studies.point import Point

INDEX = "index.sqlite"

POINTS = "points"
"""Folder of the runs of studies, by recipe; runs by name lie beside it."""

VERSION = 1

_SCHEMA = """
create table runs (
  id integer primary key,
  recipe text not null unique,
  content text,
  name text,
  windtunnel text not null,
  build text not null,
  seed integer,
  fidelity text,
  varied text not null,
  figures text,
  inputs text not null default '[]',
  state text not null,
  message text,
  wall_s real,
  cpu_s real,
  peak_bytes integer,
  folder text,
  owner text,
  begun real not null
);
create index runs_by_state on runs (state);
create index runs_by_name on runs (name);
create index runs_by_content on runs (content);
"""

_COLUMNS = (
    "recipe", "content", "name", "windtunnel", "build", "seed", "fidelity", "varied", "figures", "inputs", "state",
    "message", "wall_s", "cpu_s", "peak_bytes", "folder", "begun",
)  # fmt: skip
_INSERT = f"insert or replace into runs ({', '.join(_COLUMNS)}) values ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608


class Store:
    """A folder of runs with its index, made if it is not there. Close it, or use it in a `with`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self._digests = Digests()
        self._db = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the index."""
        self._db.close()

    def _open(self) -> sqlite3.Connection:
        path = self.root / INDEX
        fresh = not path.exists()
        db = sqlite3.connect(path, timeout=60, isolation_level=None)
        try:
            db.execute("pragma journal_mode = wal")
            db.execute("pragma synchronous = normal")
            with _writing(db):
                (version,) = db.execute("pragma user_version").fetchone()
                if version == 0:
                    for statement in filter(str.strip, _SCHEMA.split(";")):
                        db.execute(statement)
                    db.execute(f"pragma user_version = {VERSION}")
        except sqlite3.DatabaseError as error:
            db.close()
            if isinstance(error, sqlite3.OperationalError):
                raise InputError(f"cannot use `{path}`: {error}") from None
            path.rename(path.with_name(f"{INDEX}.broken-{int(time.time())}"))
            return self._open()
        if version > VERSION:
            db.close()
            raise InputError(
                f"`{path}` is of version {version}, and this Windtunnel knows versions up to {VERSION}\n\n"
                "hint: use a newer Windtunnel, or another store"
            )
        if fresh:
            self._fill(db)
        return db

    # What is asked of it

    def find(self, point: Point) -> Outcome | None:
        """The stored result of `point`, if nothing that decided it has changed.

        Refusals and failures are not served: what they depended on is not known.
        """
        row = self._db.execute(
            "select figures, inputs, folder, wall_s, cpu_s from runs where recipe = ? and state = 'done'",
            (recipe(point),),
        ).fetchone()
        if row is None:
            return None
        figures, inputs, folder, wall_s, cpu_s = row
        for name, digest in json.loads(inputs):
            if self._digests.of(point.source.base / name) != digest:
                return None
        place = self.root / folder
        if not (place / "summary.json").is_file():
            return None
        return Outcome("done", json.loads(figures), None, place, wall_s, cpu_s, stored=True)

    def begin(self, point: Point) -> Path:
        """Notes that this process runs `point`, and returns where its folder will be."""
        key = recipe(point)
        place = self.root / POINTS / key[:2] / key
        with _writing(self._db):
            self._db.execute(
                "insert or replace into runs (recipe, windtunnel, build, varied, state, owner, begun) "
                "values (?, ?, ?, ?, 'running', ?, ?)",
                (key, __version__, engine_build(), json.dumps(point.varied), owner(), time.time()),
            )
        return place

    def end(self, point: Point, outcome: Outcome) -> None:
        """Notes what became of `point`, whose folder (if it has one) is in place."""
        self._write([(point, outcome)])

    def _write(self, ended: list[tuple[Point, Outcome]]) -> None:
        rows = [_row(point, outcome, self.root) for point, outcome in ended]
        with _writing(self._db):
            self._db.executemany(
                _INSERT,
                rows,
            )

    def forget(self, point: Point) -> None:
        """Takes out the row of `point`: its run was cut off."""
        with _writing(self._db):
            self._db.execute("delete from runs where recipe = ?", (recipe(point),))

    # The list

    def rows(self, where: str = "", values: tuple[object, ...] = (), limit: int | None = None) -> list[dict[str, Any]]:
        """Runs as records, the newest first; `where` is a condition on columns with `?` for `values`."""
        columns = (
            "id, name, recipe, windtunnel, seed, fidelity, varied, state, message, wall_s, cpu_s, folder, owner, begun"
        )
        text = f"select {columns} from runs {f'where {where}' if where else ''} order by begun desc, id desc"  # noqa: S608
        if limit is not None:
            text += f" limit {int(limit)}"
        names = columns.split(", ")
        found = [dict(zip(names, row, strict=True)) for row in self._db.execute(text, values)]
        for record in found:
            record["varied"] = json.loads(record["varied"])
            if record["state"] == "running" and is_gone(record["owner"] or ""):
                record["state"] = "interrupted"
        return found

    def remove(self, ids: list[int]) -> int:
        """Removes runs and their folders; returns how many there were."""
        count = 0
        for i in ids:
            row = self._db.execute("select folder from runs where id = ?", (i,)).fetchone()
            if row is None:
                continue
            with _writing(self._db):
                self._db.execute("delete from runs where id = ?", (i,))
            if row[0] is not None:
                shutil.rmtree(self.root / row[0], ignore_errors=True)
            count += 1
        return count

    def rebuild(self) -> int:
        """Makes the index anew from the folders; returns how many runs it then lists."""
        with _writing(self._db):
            self._db.execute("delete from runs")
        self._fill(self._db)
        (count,) = self._db.execute("select count(*) from runs").fetchone()
        return int(count)

    def _fill(self, db: sqlite3.Connection) -> None:
        """Lists the folders of finished runs."""
        rows = []
        for manifest in sorted(self.root.glob("**/manifest.json")):
            if any(part.startswith(".") for part in manifest.relative_to(self.root).parts):
                continue
            try:
                record = json.loads(manifest.read_text(encoding="utf-8"))
                summary = json.loads((manifest.parent / "summary.json").read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            if isinstance(record.get("study"), dict):
                rows.append(_row_of_folder(record, summary, manifest.parent.relative_to(self.root)))
        with _writing(db):
            db.executemany(
                _INSERT,
                rows,
            )


def _row(point: Point, outcome: Outcome, root: Path) -> tuple[object, ...]:
    summary = outcome.summary
    folder = None if outcome.folder is None else outcome.folder.relative_to(root).as_posix()
    return (
        recipe(point),
        None if summary is None else content_key(point, list(outcome.inputs)),
        None if summary is None else summary["scenario"],
        __version__,
        engine_build(),
        None if summary is None else _signed(summary["seed"]),
        None if summary is None else summary["fidelity"],
        json.dumps(point.varied),
        None if summary is None else json.dumps(summary),
        json.dumps(outcome.inputs),
        outcome.state,
        outcome.message,
        outcome.wall_s,
        outcome.cpu_s,
        None if summary is None else summary["peak_rss_bytes"],
        folder,
        time.time(),
    )


def _row_of_folder(record: dict[str, Any], summary: dict[str, Any], folder: Path) -> tuple[object, ...]:
    study = record["study"]
    return (
        study["recipe"], study["content"], summary["scenario"], record["windtunnel"], study["build"],
        _signed(summary["seed"]), summary["fidelity"], json.dumps(study["varied"]), json.dumps(summary),
        json.dumps(study["inputs"]), "done", None, summary["wall_time_s"], summary["cpu_time_s"],
        summary["peak_rss_bytes"], folder.as_posix(), study["begun"],
    )  # fmt: skip


def _signed(seed: int) -> int:
    """SQLite has signed 64-bit numbers only."""
    return seed - 2**64 if seed >= 2**63 else seed


@contextmanager
def _writing(db: sqlite3.Connection) -> Iterator[None]:
    """A transaction that has the right to write from its start: two writers wait instead of failing."""
    db.execute("begin immediate")
    try:
        yield
    except BaseException:
        db.execute("rollback")
        raise
    db.execute("commit")
