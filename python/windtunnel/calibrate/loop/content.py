"""What stands in a file, packed or not: its beginning, its size, and its lines from an offset on."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, cast

from windtunnel.calibrate.loop.readers import WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path, PurePath

HEAD = 1 << 20
"""Bytes from the beginning by which a file is known again: of most logs, all. Logs of one cluster begin alike."""
TAIL = 1 << 12
"""Bytes before the offset by which it is known again: what was read is still what stands there."""
LONGEST = 1 << 22
"""Bytes of the longest line that is read: what is longer is no line of a log, and is not kept in memory."""
PACKED = (EOFError, zlib.error, gzip.BadGzipFile)

Line = tuple[bytes | None, int]
"""A line with its end, None for one that is too long, and the offset behind it."""


def digest(data: bytes) -> str:
    """By which bytes are known again; of none it is empty."""
    return hashlib.sha256(data).hexdigest() if data else ""


@dataclass(frozen=True)
class Content:
    """A file as it was when it was looked at. Offsets count unpacked bytes, so that a log that was packed goes on."""

    path: Path
    head: bytes
    size: int
    broken: str | None = None
    """Why a packed file cannot be read to its end: it is being written, or was cut."""

    @classmethod
    def of(cls, path: Path) -> Content:
        """Looks at a file. Raises `OSError` where it cannot be read."""
        if not packed(path):
            with path.open("rb") as file:
                return cls(path, file.read(HEAD), os.fstat(file.fileno()).st_size)
        # A packed file does not tell its size before it is unpacked.
        head, size, broken = b"", 0, None
        with gzip.open(path) as unpacked:
            try:
                while block := unpacked.read1(1 << 16):
                    head += block[: HEAD - len(head)]
                    size += len(block)
            except PACKED as error:
                broken = str(error)
        return cls(path, head, size, broken)

    def before(self, offset: int) -> bytes:
        """The bytes before an offset by which it is known again."""
        begin = max(0, offset - TAIL)
        if offset <= len(self.head):
            return self.head[begin:offset]
        with opened(self.path) as file:
            try:
                file.seek(begin)
                return file.read(offset - begin)
            except PACKED:
                return b""

    def last_end(self) -> int:
        """The offset behind the last line that has its end; 0 where none has."""
        block = self.before(self.size)
        at = block.rfind(b"\n")
        return 0 if at < 0 else self.size - len(block) + at + 1

    def lines(self, reader: str, offset: int) -> Iterator[Line]:
        """Lines from `offset` on; a last one without its end waits, in a packed file only while that is written."""
        with opened(self.path) as file:
            if reader in WHOLE:
                # It is read as a whole once it is there as a whole.
                if offset == 0:
                    try:
                        raw = file.read()
                    except PACKED:
                        raw = b""
                    yield raw, len(raw)
                return
            file.seek(offset)
            yield from lines_of(file, offset, last=packed(self.path))


def lines_of(
    file: IO[bytes], offset: int, *, last: bool = False, open_end: Callable[[], None] | None = None
) -> Iterator[Line]:
    """Lines of what is read from `file`, which stands at `offset`; one without its end only if `last`.

    `open_end` is called where one without its end is left.
    """
    while True:
        try:
            line = file.readline(LONGEST)
        except PACKED:
            return
        long = len(line) == LONGEST and not line.endswith(b"\n")
        size = len(line)
        while long and not line.endswith(b"\n"):
            line = file.readline(LONGEST)
            size += len(line)
            if not line:
                return
        if line and not (line.endswith(b"\n") or last) and open_end is not None:
            open_end()
        if not line or not (line.endswith(b"\n") or last):
            return
        offset += size
        yield None if long else line, offset


def packed(path: PurePath) -> bool:
    """Whether a file's name says that it is packed."""
    return path.suffix == ".gz"


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A file, unpacked."""
    if packed(path):
        with gzip.open(path) as unpacked:
            # It reads as any other file does, and the types of the library do not say so.
            yield cast("IO[bytes]", unpacked)
    else:
        with path.open("rb") as file:
            yield file
