"""Files as sources of measurements: each is known again by what stands in it, under whatever name.

A source is known by the digest of its beginning, and by that of what stands before the offset up to which it was read.
A file that begins and goes on as a source does is that source under a new name, or a copy of it: either way it is read
from the source's offset on. Where its name is taken by another file, as rotation does, the source is kept under a name
that no file has until it is met again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windtunnel.calibrate.loop.content import Content, digest
from windtunnel.calibrate.loop.readers import WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from windtunnel.calibrate.loop.ledger import Ledger

BEGINNING = 1 << 10
"""Bytes of each file's beginning that are kept in memory, so that few files are opened to be compared."""
AT_ONCE = 500
"""Digests that one query asks for."""


@dataclass(frozen=True)
class Source:
    """A source as the ledger has it."""

    name: str
    reader: str
    offset: int
    head: str
    head_bytes: int
    tail: str

    def within(self, content: Content) -> bool:
        """Whether a file begins as the source does and holds all of it that was read."""
        if self.head_bytes > len(content.head) or self.offset > content.size:
            return False
        if self.reader in WHOLE and self.offset not in {0, content.size}:
            return False
        if digest(content.head[: self.head_bytes]) != self.head:
            return False
        return not self.tail or digest(content.before(self.offset)) == self.tail


class Sources:
    """The sources of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._beginnings: dict[str, bytes] = {}

    def get(self, name: str) -> Source | None:
        """The source of a name."""
        return next(self._asked("path = ?", name), None)

    def _asked(self, where: str, *values: object) -> Iterator[Source]:
        query = f"select path, reader, offset, head, head_bytes, tail from sources where {where}"  # noqa: S608
        for row in self._ledger.db.execute(query, values).fetchall():
            yield Source(*row)

    def met(self, name: str, content: Content) -> None:
        """A file is there under a name: where that is another's by now, the other is kept under a name of its own."""
        self._beginnings[name] = content.head[:BEGINNING]
        found = self.get(name)
        if found is not None and not found.within(content):
            self.retire(found)

    def retire(self, source: Source) -> None:
        """Keeps a source whose name is another's."""
        aside = f"{source.name} ({source.head[:8] or source.tail[:8]}, {source.offset})"
        with self._ledger.transaction():
            self._ledger.db.execute("update or replace sources set path = ? where path = ?", (aside, source.name))

    def gone(self, names: Collection[str]) -> None:
        """Forgets beginnings of files that are not there."""
        for name in self._beginnings.keys() - set(names):
            del self._beginnings[name]

    def begin(self, name: str, reader: str, content: Content, present: Collection[str]) -> None:
        """Lists a file as a source: one that was met under another name, which no file has now, or a new one."""
        db = self._ledger.db
        renamed = [one for one in self._alike(content, reader, 0) if one.name not in present]
        with self._ledger.transaction():
            if renamed:
                best = max(renamed, key=lambda one: one.offset)
                db.execute("update sources set path = ? where path = ?", (name, best.name))
            else:
                head = (digest(content.head), len(content.head))
                db.execute("insert into sources values (?, ?, 0, 0, '{}', ?, ?, '')", (name, reader, *head))

    def grown(self, source: Source, content: Content) -> None:
        """Takes more of a file's beginning, where there is more by now."""
        if source.head_bytes < len(content.head):
            with self._ledger.transaction():
                self._ledger.db.execute(
                    "update sources set head = ?, head_bytes = ? where path = ?",
                    (digest(content.head), len(content.head), source.name),
                )

    def copied(self, source: Source, content: Content, path_of: Callable[[str], Path]) -> tuple[int, str] | None:
        """Up to which offset a file is a copy of what was read of another, and of which; None where it is of none."""
        found = [
            (one.offset, one.name)
            for one in self._alike(content, source.reader, source.offset)
            if one.name != source.name
        ]
        end = content.size if source.reader in WHOLE else content.last_end()
        if end > source.offset:
            found += [(end, name) for name in self._holding(source, content, end, path_of)]
        return max(found, default=None)

    def _alike(self, content: Content, reader: str, offset: int) -> Iterator[Source]:
        """Sources that were read beyond `offset` and that a file holds."""
        sizes = [
            size
            for (size,) in self._ledger.db.execute(
                "select distinct head_bytes from sources where head_bytes between 1 and ? order by head_bytes",
                (len(content.head),),
            )
        ]
        digests, sum_, at = [], hashlib.sha256(), 0
        for size in sizes:
            sum_.update(content.head[at:size])
            at = size
            digests.append(sum_.hexdigest())
        for first in range(0, len(digests), AT_ONCE):
            some = digests[first : first + AT_ONCE]
            marks = ", ".join("?" * len(some))
            where = f"reader = ? and offset > ? and head in ({marks})"
            yield from (one for one in self._asked(where, reader, offset, *some) if one.within(content))

    def _holding(self, source: Source, content: Content, end: int, path_of: Callable[[str], Path]) -> Iterator[str]:
        """Files that hold all of another, and that were read beyond its end."""
        for name, beginning in self._beginnings.items():
            same = min(len(beginning), len(content.head), end)
            if name == source.name or not same or beginning[:same] != content.head[:same]:
                continue
            other = self.get(name)
            if other is None or other.reader != source.reader or other.offset < end:
                continue
            try:
                holds = Content.of(path_of(name))
            except OSError:
                continue
            known = min(len(content.head), len(holds.head), end)
            alike = holds.head[:known] == content.head[:known] and holds.before(end) == content.before(end)
            if alike and (source.reader not in WHOLE or holds.size == content.size):
                yield name
