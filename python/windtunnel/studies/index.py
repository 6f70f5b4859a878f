"""The index's tables: how SQLite has them, and how a run becomes a row."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError
from windtunnel.results.folder import INDEX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = INDEX

VERSION = 3
"""Of the tables below. An index of an older version is made anew from the folders."""

_SCHEMA = """
create table runs (
  id integer primary key,
  recipe text not null unique,
  meaning text,
  content text,
  name text,
  windtunnel text not null,
  build text,
  seed integer,
  fidelity text,
  varied text not null default '{}',
  figures text,
  inputs text not null default '[]',
  tables integer not null default 0,
  state text not null,
  message text,
  wall_s real,
  cpu_s real,
  peak_bytes integer,
  folder text,
  owner text,
  begun real not null
);
create index runs_by_state on runs (state, begun);
create index runs_by_name on runs (name, begun);
create index runs_by_meaning on runs (meaning);
create index runs_by_begun on runs (begun);
create table keys (
  name text not null,
  kind text not null,
  primary key (name, kind)
) without rowid;
create table studies (
  name text primary key,
  points blob not null,
  begun real not null
);
"""

COLUMNS = (
    "recipe", "meaning", "content", "name", "windtunnel", "build", "seed", "fidelity", "varied", "figures", "inputs",
    "tables", "state", "message", "wall_s", "cpu_s", "peak_bytes", "folder", "owner", "begun",
)  # fmt: skip

_JSON = ("varied", "figures", "inputs")
"""Columns of records and lists."""

INSERT = (
    f"insert into runs ({', '.join(COLUMNS)}) values ({', '.join('?' * len(COLUMNS))}) on conflict (recipe) "  # noqa: S608
    f"do update set {', '.join(f'{column} = excluded.{column}' for column in COLUMNS[1:])}"
)
"""Lists a run, or renews what is known of it: its number stays."""


_QUEUED = ("recipe", "name", "windtunnel", "build", "seed", "fidelity", "varied", "owner", "begun")

QUEUE = (
    f"insert into runs ({', '.join(_QUEUED)}, state) values ({', '.join('?' * len(_QUEUED))}, 'queued') "  # noqa: S608
    f"on conflict (recipe) do update set inputs = '[]', tables = 0, "
    f"{', '.join(f'{column} = null' for column in COLUMNS if column not in (*_QUEUED, 'state', 'inputs', 'tables'))}, "
    f"{', '.join(f'{column} = excluded.{column}' for column in (*_QUEUED[1:], 'state'))}"
)
"""Lists a run that is to be run, of which no more is known; what was known of an earlier one is gone."""


KEYS = "insert or ignore into keys (name, kind) values (?, ?)"
"""Remembers that some run has such a key, `varied` or a `figure`: who looks for one need not read all rows for it."""


def opened(root: Path) -> tuple[sqlite3.Connection, bool]:
    """The index in `root`, and whether it is new and has to be filled.

    Raises `InputError` if it is of a newer version, or cannot be used. One that is no database is set aside.
    """
    path = root / NAME
    try:
        db = sqlite3.connect(path, timeout=60, isolation_level=None)
    except sqlite3.OperationalError as error:
        raise InputError(f"cannot use `{path}`: {error}") from None
    try:
        (version,) = db.execute("pragma user_version").fetchone()
        if version > VERSION:
            raise _newer(path, version)
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = normal")
        with writing(db):
            (version,) = db.execute("pragma user_version").fetchone()
            if version > VERSION:
                raise _newer(path, version)
            if version < VERSION:
                _make(db)
    except sqlite3.DatabaseError as error:
        db.close()
        if isinstance(error, sqlite3.OperationalError):
            raise InputError(f"cannot use `{path}`: {error}") from None
        path.rename(path.with_name(f"{NAME}.broken-{time.time_ns()}"))
        return opened(root)
    except BaseException:
        db.close()
        raise
    return db, version < VERSION


def _newer(path: Path, version: int) -> InputError:
    return InputError(
        f"`{path}` is of version {version}, and this Windtunnel knows versions up to {VERSION}\n\n"
        "hint: use a newer Windtunnel, or another store"
    )


def _make(db: sqlite3.Connection) -> None:
    names = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
    for name in names:
        if not name.startswith("sqlite_"):
            db.execute(f'drop table "{name}"')
    for statement in filter(str.strip, _SCHEMA.split(";")):
        db.execute(statement)
    db.execute(f"pragma user_version = {VERSION}")


@contextmanager
def writing(db: sqlite3.Connection) -> Iterator[None]:
    """A transaction that has the right to write from its start: two writers wait instead of failing."""
    db.execute("begin immediate")
    try:
        yield
    except BaseException:
        if db.in_transaction:
            db.execute("rollback")
        raise
    db.execute("commit")


def row(**given: Any) -> tuple[object, ...]:  # noqa: ANN401
    """A row of `runs`; what is not given is null, records and lists are JSON."""
    filled = {"varied": "{}", "inputs": "[]", "tables": 0, **given}
    for column in _JSON:
        value = filled.get(column)
        if value is not None and not isinstance(value, str):
            filled[column] = json.dumps(value)
    return tuple(map(filled.get, COLUMNS))


def signed(seed: int | None) -> int | None:
    """SQLite has signed 64-bit numbers only."""
    return seed - 2**64 if seed is not None and seed >= 2**63 else seed


def unsigned(seed: int | None) -> int | None:
    """The seed that `signed` was given."""
    return seed + 2**64 if seed is not None and seed < 0 else seed
