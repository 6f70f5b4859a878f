"""The store: run folders, and beside them an SQLite index of every run.

Life cycle of a row: `queued` → `running` (with the process that runs it) → `done`, `refused`, `failed`; one whose
process is gone is `interrupted`. The folder is placed by a rename before its row says `done`, so a kill between the two
leaves a folder whose row is behind; the next to ask for that point finds the folder and notes it.

Invariants: the index holds nothing that the folders of finished runs do not (`rebuild` makes it anew, refusals and
failures excepted); paths in it are relative to the store, so that a store may be moved; several processes may use one
store; no name of a study or scenario becomes a path here, folders of points are named by hashes.

Failure modes: an index of a newer version is refused; one that is not a database is set aside and made again; one of
an older version is made anew from the folders.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from windtunnel.engine import InputError
from windtunnel.results.owner import owner
from windtunnel.studies import folders, index, listing
from windtunnel.studies.inputs import unchanged
from windtunnel.studies.listing import ATTEMPT, BY_NAME
from windtunnel.studies.point import Outcome, first_line
from windtunnel.studies.recipe import Digests, build, content_key, meaning, recipe
from windtunnel.studies.said import said
from windtunnel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from windtunnel.studies.executor import Answer
    from windtunnel.studies.filters import Asked
    from windtunnel.studies.point import Point, State

POINTS = "points"
"""Folder of the runs of studies, by recipe; runs by name lie beside it."""

STAMP = 8
"""Bytes of a recipe by which a study remembers its points."""


Ended = tuple["Point", "Answer"]
"""A point, and how its run ended."""


class Store:
    """A folder of runs with its index, made if it is not there. Close it, or use it in a `with`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        if root.is_file():
            raise InputError(f"cannot use `{root}` as a store: expected a folder, found a file")
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot use `{root}` as a store: {error.strerror}") from None
        self._digests = Digests()
        self._owner = owner()
        self._known: set[tuple[str, str]] = set()
        self._db, fresh = index.opened(root)
        if fresh:
            self._fill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the index."""
        self._db.close()

    # What is asked of it

    def place(self, point: Point, root: Path | None = None) -> Path:
        """Where the folder of `point` is, or will be, from the store's root, however that is written."""
        return (root or self.root) / _place(recipe(point))

    def find(self, point: Point, *, tables: bool = False) -> Outcome | None:
        """The stored result of `point`, if nothing that decided it has changed, with tables if those are asked for.

        Refusals and failures are not served: what they depended on is not known.
        """
        (found,) = self.find_all([point], tables=tables)
        return found

    def find_all(self, points: Sequence[Point], *, tables: bool = False) -> Iterator[Outcome | None]:
        """`find` of each, in order."""
        (others,) = self._db.execute("select count(*) from runs where build = ?", (build(),)).fetchone()
        for point in points:
            key = recipe(point)
            found = self._served(point, "recipe", key, tables=tables) or self._adopted(point, key, tables=tables)
            if found is None and others:
                found = self._meant(point, tables=tables)
            yield found

    def inputs(self, folder: Path) -> str:
        """The files that the run in `folder` of the store read, with their digests, as JSON."""
        try:
            place = folder.relative_to(self.root).as_posix()
        except ValueError:
            place = folder.resolve().relative_to(self.root.resolve()).as_posix()
        found = self._db.execute("select inputs from runs where folder = ?", (place,)).fetchone()
        return "[]" if found is None else str(found[0])

    def unchanged(self, base: Path, inputs: str) -> bool:
        """Whether the files of `inputs`, whose names count from `base`, are as they were."""
        return unchanged(json.loads(inputs), base, self._digests)

    def _served(self, point: Point, column: str, key: str, *, tables: bool) -> Outcome | None:
        rows = self._db.execute(
            f"select inputs, folder, wall_s, cpu_s, peak_bytes from runs where {column} = ? and state = 'done' "  # noqa: S608
            "and tables >= ? order by tables desc",
            (key, int(tables)),
        ).fetchall()
        for inputs, folder, wall_s, cpu_s, peak in rows:
            if inputs != "[]" and not unchanged(json.loads(inputs), point.source.base, self._digests):
                continue
            text = folders.summary_text(f"{self.root}/{folder}")
            if text is not None:
                return Outcome("done", text, None, self.root / folder, wall_s, cpu_s, stored=True, peak_bytes=peak)
        return None

    def _meant(self, point: Point, *, tables: bool) -> Outcome | None:
        """The result of a text that means the same."""
        try:
            return self._served(point, "meaning", meaning(point), tables=tables)
        except InputError:
            return None

    def _adopted(self, point: Point, key: str, *, tables: bool) -> Outcome | None:
        """The result whose folder is in its place, though the index does not know it: its process was killed then."""
        if not os.path.isdir(f"{self.root}/{_place(key)}"):  # noqa: PTH112 - asked of every point
            return None
        place = self.place(point)
        (known,) = self._db.execute("select count(*) from runs where recipe = ? and state = 'done'", (key,)).fetchone()
        row = None if known else self._row_of(place)
        if row is None:
            return None
        with index.writing(self._db):
            self._insert([row])
        return self._served(point, "recipe", key, tables=tables)

    def queue(self, points: Sequence[Point]) -> None:
        """Notes that this process is going to run `points`."""
        self.sweep()
        now, code = time.time(), build()
        rows = []
        for point in points:
            own = said(point)
            rows.append(
                (recipe(point), own["name"], __version__, code, index.signed(own["seed"]), own["fidelity"],
                 json.dumps(point.varied), self._owner, now)
            )  # fmt: skip
        with index.writing(self._db):
            self._db.executemany(index.QUEUE, rows)
            self._know("varied", (point.varied for point in points))

    def note(self, begun: Sequence[Point], ended: Sequence[Ended], *, tables: bool = False) -> None:
        """Notes runs that have begun, and what became of those that ended, whose folders (with tables?) are there."""
        now = time.time()
        with index.writing(self._db):
            self._db.executemany(
                "update runs set state = 'running', owner = ?, begun = ? where recipe = ?",
                [(self._owner, now, recipe(point)) for point in begun],
            )
            self._insert([self._row(*one, tables=tables) for one in ended])

    def _know(self, kind: str, records: Iterable[Mapping[str, object]]) -> None:
        """Remembers keys that are new to this process."""
        new = {(key, kind) for record in records for key in record} - self._known
        if new:
            self._db.executemany(index.KEYS, sorted(new))
            self._known |= new

    def forget(self, points: Sequence[Point]) -> None:
        """Takes out the rows of `points` that this process queued or began: their runs were cut off."""
        with index.writing(self._db):
            self._db.executemany(
                "delete from runs where recipe = ? and owner = ? and state in ('queued', 'running')",
                [(recipe(point), self._owner) for point in points],
            )

    def sweep(self) -> None:
        """Removes what processes that are gone have left in the making."""
        folders.sweep(self.root / POINTS)

    def begin_study(self, name: str, points: Sequence[Point]) -> tuple[int, list[Point]] | None:
        """Remembers a study's points; how many it had the last time, and those of them that stay, if they differ."""
        stamps = [hashlib.sha256(recipe(point).encode()).digest()[:STAMP] for point in points]
        last = self._db.execute("select points from studies where name = ?", (name,)).fetchone()
        with index.writing(self._db):
            self._db.execute(
                "insert or replace into studies (name, points, begun) values (?, ?, ?)",
                (name, b"".join(stamps), time.time()),
            )
        if last is None:
            return None
        before = {last[0][i : i + STAMP] for i in range(0, len(last[0]), STAMP)}
        if before == set(stamps):
            return None
        return len(before), [point for point, stamp in zip(points, stamps, strict=True) if stamp in before]

    # The list

    def rows(self, where: str = "", values: tuple[object, ...] = (), limit: int | None = None) -> list[dict[str, Any]]:
        """Runs as records, the newest first; `where` is a condition on columns with `?` for `values`."""
        return list(listing.records(self._db, where, values, limit))

    def listed(self, what: Asked, limit: int | None = None) -> list[dict[str, Any]]:
        """As `rows`, of those that a filter asks for."""
        return list(listing.records(self._db, what.where, what.values, limit, what.state))

    def listed_json(self, what: Asked, limit: int | None = None) -> str:
        """As `listed`, as a JSON list."""
        return listing.json_text(self._db, what.where, what.values, limit, what.state)

    def keys(self) -> list[tuple[str, str]]:
        """Keys that were varied in some run and figures of some run, each with its kind, `varied` or `figure`."""
        return list(self._db.execute("select name, kind from keys order by name"))

    def lose(self, number: int) -> None:
        """Notes that the folder of run `number` is gone."""
        with index.writing(self._db):
            self._db.execute(
                "update runs set state = 'interrupted', message = 'its folder is gone', folder = null where id = ?",
                (number,),
            )

    def remove(self, ids: Sequence[int]) -> int:
        """Removes runs and their folders; returns how many there were."""
        import shutil

        count = 0
        for begin in range(0, len(ids), 256):
            some = [(i,) for i in ids[begin : begin + 256]]
            for one in some:
                found = self._db.execute("select folder from runs where id = ?", one).fetchone()
                count += found is not None
                if found and found[0] and (self.root / found[0]).resolve().is_relative_to(self.root.resolve()):
                    # The folder first: a row without one is put right by who asks, a folder without one stays.
                    shutil.rmtree(self.root / found[0], ignore_errors=True)
            with index.writing(self._db):
                self._db.executemany("delete from runs where id = ?", some)
        return count

    def add(self, folder: Path) -> None:
        """Lists a finished run whose folder is in the store, under its readable name."""
        row = self._row_of(folder)
        if row is not None:
            with index.writing(self._db):
                self._insert([row])
                self._db.execute("delete from runs where recipe = ?", (f"{ATTEMPT}{folder.name}",))

    def add_failure(self, place: str, point: Point, state: State, message: str, begun: float, wall_s: float) -> None:
        """Lists a run by name that has no folder, which would be called `place`, until one has."""
        own = said(point)
        row = index.row(
            **{**own, "seed": index.signed(own["seed"])}, recipe=f"{ATTEMPT}{place}", windtunnel=__version__,
            build=build(), state=state, message=first_line(message), wall_s=wall_s, begun=begun,
        )  # fmt: skip
        with index.writing(self._db):
            self._insert([row])

    def _insert(self, rows: Sequence[tuple[object, ...]]) -> None:
        self._db.executemany(index.INSERT, rows)
        for kind, column in (("varied", "varied"), ("figure", "figures")):
            at = index.COLUMNS.index(column)
            self._know(kind, (json.loads(str(row[at] or "{}")) for row in rows))

    def rebuild(self) -> int:
        """Makes the index anew from the folders; returns how many runs it then lists."""
        with index.writing(self._db):
            self._db.execute("delete from runs")
        self._fill()
        (count,) = self._db.execute("select count(*) from runs").fetchone()
        return int(count)

    def _fill(self) -> None:
        """Lists the folders of finished runs."""
        rows = [row for folder in folders.finished(self.root) if (row := self._row_of(folder)) is not None]
        with index.writing(self._db):
            self._insert(rows)

    def _row(self, point: Point, answer: Answer, *, tables: bool) -> tuple[object, ...]:
        key = recipe(point)
        given: dict[str, Any]
        if answer.state == "done":
            given = {
                **answer.listed,
                "meaning": answer.meaning,
                "content": content_key(answer.meaning or "", answer.inputs),
                "folder": _place(key),
                "tables": int(tables),
            }
        else:
            given = said(point)
            given["seed"] = index.signed(given["seed"])
        return index.row(
            recipe=key, windtunnel=__version__, build=build(), varied=point.varied,
            inputs=answer.inputs, state=answer.state, message=first_line(answer.message), wall_s=answer.wall_s,
            cpu_s=answer.cpu_s,
            begun=answer.begun or time.time(), **given,
        )  # fmt: skip

    def _row_of(self, folder: Path) -> tuple[object, ...] | None:
        """The row of a finished run, of a study or by name; None if `folder` is none."""
        found = folders.read(folder)
        if found is None:
            return None
        record, summary = found
        place = folder.relative_to(self.root).as_posix()
        given: dict[str, Any] = {
            **folders.columns(summary), "windtunnel": str(record.get("windtunnel")), "state": "done", "folder": place,
            "wall_s": summary.get("wall_time_s"), "cpu_s": summary.get("cpu_time_s"),
        }  # fmt: skip
        if summary.get("partial"):
            given |= {"state": "interrupted", "message": "a partial result"}
        study = record.get("study")
        if isinstance(study, dict):
            given |= {key: study.get(key) for key in ("recipe", "meaning", "content", "build", "varied", "inputs")}
            given |= {"tables": int(bool(study.get("tables"))), "begun": study.get("begun")}
        else:
            # A run by name is what lies in its folder now, whatever its inputs.
            given |= {"recipe": f"{BY_NAME}{place}", "begun": folders.modified(folder) - (given["wall_s"] or 0.0)}
        whole = isinstance(given["recipe"], str) and isinstance(given["begun"], int | float)
        return index.row(**given) if whole else None


def _place(key: str) -> str:
    return f"{POINTS}/{key[:2]}/{key}"


def list_run(folder: Path, *, anyway: bool) -> str | None:
    """Lists a run by name in the store that its folder is in: in a new one if `anyway`, else in one that is there.

    A run does not fail because it cannot be listed: why not is returned.
    """
    if not anyway and not (folder.parent / index.NAME).is_file():
        return None
    try:
        with Store(folder.parent) as store:
            store.add(folder)
    except (InputError, sqlite3.Error, OSError) as error:
        return f"`{folder}` is not listed: {str(error).partition(chr(10))[0]}"
    return None


def list_failure(root: Path, place: str, point: Point, state: State, message: str, begun: float, wall_s: float) -> None:
    """Lists a run by name that was refused or failed, in a store that is there. What hinders that is not told."""
    if not (root / index.NAME).is_file():
        return
    with suppress(InputError, sqlite3.Error, OSError), Store(root) as store:
        store.add_failure(place, point, state, message, begun, wall_s)


def is_full(error: sqlite3.Error) -> bool:
    """Whether the index could not be written because no space is left."""
    return "full" in str(error) or "disk I/O" in str(error)
