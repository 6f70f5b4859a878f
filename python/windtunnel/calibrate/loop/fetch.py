"""What is new at a URL: the part behind an offset where it grows, all of it where it is read as a whole."""

from __future__ import annotations

import http.client
import shutil
import tempfile
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from windtunnel.calibrate.loop.content import TAIL, digest

if TYPE_CHECKING:
    from collections.abc import Iterator

ERRORS = (OSError, http.client.HTTPException, ValueError)
"""What a fetch may end with: no answer, an error's status, half an answer, no URL."""
TIMEOUT_S = 30.0
STAMPS = ("ETag", "Last-Modified", "Content-Length")


def is_url(place: str) -> bool:
    """Whether a place is a URL and no path."""
    return place.startswith(("http://", "https://"))


@contextmanager
def part(url: str, offset: int, tail: str) -> Iterator[tuple[IO[bytes], bytes] | None]:
    """What is served from `offset` on, and the bytes before it, by which it is known again (`tail`, their digest).

    None where another file is served by now: a shorter one, or one with other bytes before the offset.
    """
    known = min(offset, TAIL)
    headers = {"Range": f"bytes={offset - known}-"} if offset else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S) as answer:  # noqa: S310
            if offset and answer.status != http.client.PARTIAL_CONTENT:
                _skip(answer, offset - known)
            before = answer.read(known)
            same = len(before) == known and (not tail or digest(before) == tail)
            yield (answer, before) if same else None
    except urllib.error.HTTPError as error:
        # Nothing stands from there on: what is served is shorter than what was read.
        if not offset or error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        yield None


def _skip(answer: IO[bytes], count: int) -> None:
    while count > 0 and (block := answer.read(min(count, 1 << 20))):
        count -= len(block)


@contextmanager
def whole(url: str, name: str, stamp: str | None) -> Iterator[tuple[Path, str] | None]:
    """All that is served, as a file of this name, and the stamp that it is served with; None where that is `stamp`."""
    with (
        urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer,  # noqa: S310
        tempfile.TemporaryDirectory() as folder,
    ):
        told = [answer.headers.get(key) for key in STAMPS]
        now = repr(told)
        if any(told[:2]) and now == stamp:
            yield None
            return
        path = Path(folder) / (name or "file")
        with path.open("wb") as file:
            shutil.copyfileobj(answer, file)
        yield path, now
