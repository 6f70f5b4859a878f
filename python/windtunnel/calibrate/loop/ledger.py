"""Everything that a watch knows, in one SQLite file: measurements, sets of constants, validations, alarms, state.

A set is named by its contents. What belongs together is written in one transaction; the file is readable while a watch
writes. Version 2 of the tables (1 had no `tail` and no `steps`, and is brought forward); a newer one is refused.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import windtunnel
from windtunnel.engine import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

NAME = "calibration.sqlite"
VERSION = 2

_SCHEMA = """
create table sets (
  id text primary key, system text not null, parent text, created real not null, windtunnel text not null,
  why text not null, constants text not null
);
create table adoptions (at real not null, action text not null, id text not null);
create table sources (
  path text primary key, reader text not null, offset integer not null, line integer not null, state text not null,
  head text not null, head_bytes integer not null, tail text not null
);
create index sources_head on sources (head);
create index sources_head_bytes on sources (head_bytes);
create table measurements (
  id integer primary key, source text not null, line integer not null, at real, kind text not null,
  seconds real not null, predicted real not null, set_id text not null, name text unique
);
create table aside (source text not null, line integer not null, reason text not null);
create table alarms (
  at real not null, measurement integer not null, name text not null, step real not null, deviation real not null,
  since integer not null, ahead real not null, proposed text
);
create table validations (
  at real not null, set_id text not null, what text not null, rows integer not null, median real, p95 real
);
create table state (key text primary key, value text not null);
create table steps (key text primary key, value text not null);
"""

_FORWARD = {
    1: """
alter table sources add column tail text not null default '';
create index sources_head on sources (head);
create index sources_head_bytes on sources (head_bytes);
create table steps (key text primary key, value text not null);
"""
}
"""What a version lacks of the next."""


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Set:
    """A set of constants and where it is from."""

    id: str
    system: str
    parent: str | None
    created: float
    why: str
    constants: dict[str, float]


def name_of(system: str, constants: Mapping[str, float]) -> str:
    """A set's name: of its contents."""
    text = json.dumps([system, sorted(constants.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Ledger:
    """The file in `folder`; a context manager."""

    def __init__(self, folder: Path, *, create: bool = True) -> None:
        path = folder / NAME
        if not create and not path.is_file():
            raise InputError(f"{path}: no such file\n\nhint: `windtunnel calibrate watch` makes one")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        try:
            self.db = sqlite3.connect(path, timeout=60, isolation_level=None)
            (version,) = self.db.execute("pragma user_version").fetchone()
        except sqlite3.DatabaseError as error:
            raise InputError(f"{path}: not a store of calibrations: {error}") from None
        if version > VERSION:
            raise InputError(f"{path}: version {version} of the store, and this program knows {VERSION}")
        self.db.execute("pragma journal_mode = wal")
        self.db.execute("pragma synchronous = normal")
        # Some megabytes are enough for tables that are read in order.
        self.db.execute("pragma cache_size = -8000")
        with self.transaction():
            (version,) = self.db.execute("pragma user_version").fetchone()
            if version < VERSION:
                lacking = [_SCHEMA] if version == 0 else [_FORWARD[one] for one in range(version, VERSION)]
                for statement in ";".join(lacking).split(";"):
                    self.db.execute(statement)
                self.db.execute(f"pragma user_version = {VERSION}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing."""
        self.db.execute("begin immediate")
        try:
            yield
        except BaseException:
            self.db.execute("rollback")
            raise
        self.db.execute("commit")

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401
        """A value of the state."""
        row = self.db.execute("select value from state where key = ?", (key,)).fetchone()
        return default if row is None else json.loads(row[0])

    def put(self, key: str, value: object) -> None:
        """Keeps a value of the state."""
        self.db.execute("insert or replace into state values (?, ?)", (key, json.dumps(value)))

    def add(
        self,
        system: str,
        constants: Mapping[str, float],
        why: str,
        parent: str | None = None,
    ) -> Set:
        """Keeps a set; one of equal contents stays as it is."""
        name = name_of(system, constants)
        self.db.execute(
            "insert or ignore into sets values (?, ?, ?, ?, ?, ?, ?)",
            (name, system, parent, time.time(), windtunnel.__version__, why, json.dumps(dict(constants))),
        )
        return self.set(name)

    def set(self, name: str) -> Set:
        """A set by its name or the beginning of it, or `latest`. Raises `InputError` where none or several have it."""
        if name == "latest":
            name = str(self.one("select id from sets order by created desc, rowid desc"))
        rows = self.db.execute(
            "select id, system, parent, created, why, constants from sets where substr(id, 1, ?) = ?",
            (len(name), name),
        ).fetchall()
        if len(rows) != 1:
            known = [row[0] for row in self.db.execute("select id from sets order by created")]
            near = nearest(name, known)
            what = "no set" if not rows else f"{len(rows)} sets"
            hint = f"did you mean `{near}`?" if near else f"there are {', '.join(known) or 'none'}"
            raise InputError(f"{what} `{name}` in {self.folder}\n\nhint: {hint}")
        id_, system, parent, created, why, constants = rows[0]
        return Set(id_, system, parent, created, why, json.loads(constants))

    def sets(self) -> list[Set]:
        """All sets, the oldest first."""
        names = [row[0] for row in self.db.execute("select id from sets order by created, rowid")]
        return [self.set(name) for name in names]

    def current(self) -> Set | None:
        """The set that predictions are made by; none before the first watch."""
        name = self.get("current")
        return None if name is None else self.set(name)

    def adopt(self, name: str, action: str) -> Set:
        """Makes a set the current one."""
        found = self.set(name)
        self.put("current", found.id)
        self.db.execute("insert into adoptions values (?, ?, ?)", (time.time(), action, found.id))
        return found

    def before(self) -> str | None:
        """The set that was current before the last one was adopted; None where none was after the first."""
        stack: list[str] = []
        for action, id_ in self.db.execute("select action, id from adoptions order by rowid"):
            if action == "reverted":
                while len(stack) > 1 and stack[-1] != id_:
                    stack.pop()
            elif action == "grown":
                stack[-1:] = [id_]
            else:
                stack.append(id_)
        return next((id_ for id_ in reversed(stack[:-1]) if id_ != stack[-1]), None)

    def keep_scenarios(self, paths: Mapping[str, str]) -> None:
        """Keeps which scenarios predict the iterations of jobs: where they are, and what is in them."""
        known = self.get("scenarios", {})
        for job, path in paths.items():
            known[job] = {"path": path, "sha256": _digest(Path(path))}
        self.put("scenarios", known)

    def scenarios(self, apart_from: Collection[str] = ()) -> dict[str, str]:
        """Paths of jobs' scenarios. Raises `InputError` for one that is gone or is another by now."""
        found = {}
        for job, kept in self.get("scenarios", {}).items():
            if job in apart_from:
                continue
            path = Path(kept["path"])
            hint = f"hint: `windtunnel calibrate watch … --scenario {job}=FILE` takes another"
            if not path.is_file():
                raise InputError(f"{path}: no such file, and it predicts the iterations of job `{job}`\n\n{hint}")
            if _digest(path) != kept["sha256"]:
                raise InputError(f"{path}: has changed since it predicted the iterations of job `{job}`\n\n{hint}")
            found[job] = str(path)
        return found

    def one(self, query: str, *values: object) -> Any:  # noqa: ANN401
        """The first column of the first row, None where there is none."""
        row = self.db.execute(query, values).fetchone()
        return None if row is None else row[0]
