"""A watch: takes what is new in its sources, chunk by chunk, each chunk in one transaction."""

from __future__ import annotations

import hashlib
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.calibrate.loop.drift import Detector, groups
from windtunnel.calibrate.loop.readers import Aside, Measured, new_lines, read_line, reader_of
from windtunnel.engine import InputError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator

    from windtunnel.calibrate.loop.ledger import Ledger, Set
    from windtunnel.calibrate.loop.models import Models

CHUNK = 500
HEAD = 1 << 20
"""Bytes from the beginning by which a file is known again: of most logs, all. Logs of one cluster begin alike."""
MOST_KINDS = 400
"""Kinds that groups of constants are judged on: those seen first."""
RECENT = 500
"""Measurements that a proposal's effect is told on."""
AHEAD_OF_CLOCK = 86_400.0
"""Seconds by which a time may be ahead of this machine's clock."""


@dataclass
class Heard:
    """What a scan took in."""

    measurements: int = 0
    aside: int = 0
    alarms: int = 0


class Watch:
    """Measurements of one system into one ledger."""

    def __init__(self, ledger: Ledger, models: Models, told: Callable[[str], None]) -> None:
        self.ledger, self.models, self._told = ledger, models, told
        with ledger.transaction():
            current = ledger.current()
            if current is None:
                given = ledger.add(models.system.name, models.first(), f"as {models.system.path.name} has it")
                ledger.adopt(given.id, "begun")
            elif current.system != models.system.name:
                raise InputError(
                    f"{ledger.folder} is of system `{current.system}`, not `{models.system.name}`\n\n"
                    "hint: a system has a store of its own, `--store DIR`"
                )
        self._groups: tuple[str, int, dict[str, dict[str, float]]] | None = None

    def scan(self, place: str) -> Heard:
        """Takes what is new in a folder, a file or at a URL."""
        heard = Heard()
        if place.startswith(("http://", "https://")):
            self._fetched(place, heard)
            return heard
        root = Path(place)
        if not root.exists():
            raise InputError(f"{root}: no such folder or file")
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            reader = reader_of(path)
            if path.is_file() and reader is not None:
                self._file(path, path.relative_to(root).as_posix() if root.is_dir() else path.name, reader, heard)
        return heard

    def _file(self, path: Path, name: str, reader: str, heard: Heard) -> None:
        if not self._known(path, name, reader, heard):
            return
        while True:
            offset = int(self.ledger.one("select offset from sources where path = ?", name))
            lines = new_lines(path, reader, offset)
            if not self._chunk(name, reader, lines, heard):
                return

    def _known(self, path: Path, name: str, reader: str, heard: Heard) -> bool:
        """Lists a file as a source, or finds that it is one already, by its beginning. False for a copy of another."""
        db = self.ledger.db
        with path.open("rb") as file:
            head = file.read(HEAD)
        row = db.execute("select head, head_bytes, offset from sources where path = ?", (name,)).fetchone()
        if row is not None:
            same = row[1] <= len(head) and _digest(head[: row[1]]) == row[0]
            if same and path.stat().st_size >= row[2]:
                if row[1] < len(head):
                    with self.ledger.transaction():
                        db.execute(
                            "update sources set head = ?, head_bytes = ? where path = ?",
                            (_digest(head), len(head), name),
                        )
                return True
            with self.ledger.transaction():
                # Another file under an old name: a log that was rotated.
                db.execute("delete from sources where path = ?", (name,))
        if not head:
            return False
        for other, digest, size in db.execute("select path, head, head_bytes from sources").fetchall():
            if 0 < size <= len(head) and _digest(head[:size]) == digest:
                there = (path.parent / PurePosixPath(other).name).exists()
                if there and size < len(head):
                    # It begins as the other does, and goes on: two runs with the same first lines.
                    continue
                with self.ledger.transaction():
                    if there:
                        if not self.ledger.one("select 1 from aside where source = ?", name):
                            self._aside(name, 0, f"a copy of {other}", heard)
                        return False
                    # It was renamed, as rotation does: it goes on where it was.
                    db.execute("update sources set path = ? where path = ?", (name, other))
                return True
        with self.ledger.transaction():
            db.execute("insert into sources values (?, ?, 0, 0, '{}', ?, ?)", (name, reader, _digest(head), len(head)))
        return True

    def _fetched(self, url: str, heard: Heard) -> None:
        reader = reader_of(PurePosixPath(url.partition("?")[0])) or "lines"
        with self.ledger.transaction():
            self.ledger.db.execute("insert or ignore into sources values (?, ?, 0, 0, '{}', '', 0)", (url, reader))
        offset = int(self.ledger.one("select offset from sources where path = ?", url))
        request = urllib.request.Request(url, headers={"Range": f"bytes={offset}-"})  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                if answer.status != 206 and offset:
                    answer.read(offset)

                def lines() -> Iterator[tuple[str, int]]:
                    at = offset
                    for line in answer:
                        if not line.endswith(b"\n"):
                            return
                        at += len(line)
                        yield line.decode("utf-8", "replace").rstrip("\r\n"), at

                found = lines()
                while self._chunk(url, reader, found, heard):
                    pass
        except urllib.error.HTTPError as error:
            if error.code != 416:
                self._told(f"{url}: {error}")
        except OSError as error:
            self._told(f"{url}: {error}")

    def _chunk(self, name: str, reader: str, lines: Iterator[tuple[str, int]], heard: Heard) -> bool:
        """Takes up to `CHUNK` lines in one transaction; False once there are none."""
        taken = []
        for line in lines:
            taken.append(line)
            if len(taken) == CHUNK:
                break
        if not taken:
            return False
        db = self.ledger.db
        said: list[str] = []
        with self.ledger.transaction():
            number, header = db.execute("select line, state from sources where path = ?", (name,)).fetchone()
            state: dict[str, Any] = json.loads(header)
            detector = Detector.of(self.ledger.get("detector", {}))
            for text, _ in taken:
                number += 1
                for found in read_line(reader, text, state, PurePosixPath(name)):
                    if isinstance(found, Aside):
                        self._aside(name, number, found.reason, heard)
                    else:
                        self._take(name, number, found, detector, heard, said)
            self.ledger.put("detector", detector.record())
            db.execute(
                "update sources set offset = ?, line = ?, state = ? where path = ?",
                (taken[-1][1], number, json.dumps(state), name),
            )
        for each in said:
            self._told(each)
        return True

    def _take(self, source: str, line: int, found: Measured, detector: Detector, heard: Heard, said: list[str]) -> None:
        db = self.ledger.db
        if found.name is not None and self.ledger.one("select 1 from measurements where name = ?", found.name):
            self._aside(source, line, f"{found.name} was counted before", heard)
            return
        kind = list(found.kind)
        current = self._with_priors(kind, found.seconds)
        try:
            (predicted,) = self.models.seconds([kind], current.constants, current.id)
        except InputError as error:
            self._aside(source, line, str(error).partition("\n")[0], heard)
            return
        at = found.at
        if at is not None and at > time.time() + AHEAD_OF_CLOCK:
            self._aside(source, line, "its time is more than a day ahead of this machine's clock: left out", heard)
            at = None
        number = db.execute(
            "insert into measurements (source, line, at, kind, seconds, predicted, set_id, name) "
            "values (?, ?, ?, ?, ?, ?, ?, ?)",
            (source, line, at, json.dumps(kind), found.seconds, predicted, current.id, found.name),
        ).lastrowid
        heard.measurements += 1
        effects = self._effects(kind, current, detector)
        alarm = detector.hear(json.dumps(kind), float(np.log(found.seconds / predicted)), effects)
        if alarm is None:
            return
        heard.alarms += 1
        proposed = self._propose(current, detector)
        db.execute(
            "insert into alarms values (?, ?, ?, ?, ?, ?, ?, ?)",
            (time.time(), number, alarm.name, alarm.step, alarm.deviation, alarm.since, alarm.ahead, proposed.id),
        )
        before, after = (error_of(self.ledger, self.models, one, alarm.since) for one in (current, proposed))
        said.append(
            f"{alarm.name} has moved by {np.expm1(alarm.step):+.1%} (± {alarm.deviation:.1%}), {alarm.since} "
            f"measurements ago: set {proposed.id} is proposed, median error since then {before[1]:.1%}, with "
            f"it {after[1]:.1%}; `windtunnel calibrate adopt {proposed.id}` takes it"
        )

    def _with_priors(self, kind: list[Any], seconds: float) -> Set:
        """The current set, with what a new kind needs: a set of its own, as no constant is changed by it."""
        current = self.ledger.current()
        assert current is not None  # noqa: S101 - a watch begins by adopting one
        lacking = {n: v for n, v in self.models.priors(kind, seconds).items() if n not in current.constants}
        if not lacking or all(n.startswith("first.") for n in lacking):
            return current
        grown = self.ledger.add(
            current.system,
            {**current.constants, **lacking},
            f"{current.id} with {', '.join(lacking)}",
            current.id,
        )
        return self.ledger.adopt(grown.id, "grown")

    def _effects(self, kind: list[Any], current: Set, detector: Detector) -> dict[str, float]:
        """What a step in each group of constants does to a kind."""
        key = json.dumps(kind)
        kinds = list(detector.kinds)[:MOST_KINDS]
        if self._groups is None or self._groups[0] != current.id or self._groups[1] != len(kinds):
            every = [self.models.effects(json.loads(k), current.constants, current.id) for k in kinds]
            columns = {name: [e.get(name, 0.0) for e in every] for name in {n for e in every for n in e}}
            found, weak = groups({name: columns[name] for name in sorted(columns)})
            # What is known of the measurements says what they tell.
            self.ledger.put("groups", {"told_apart": sorted(found), "not_seen": weak})
            by_kind = {k: {n: float(c[i]) for n, c in found.items() if c[i]} for i, k in enumerate(kinds)}
            self._groups = (current.id, len(kinds), by_kind)
        known = self._groups[2].get(key)
        return known if known is not None else {}

    def _propose(self, current: Set, detector: Detector) -> Set:
        """The current set with the steps that were raised: of a group its strongest constant takes it."""
        values = dict(current.constants)
        for group, step in detector.shifts.items():
            name = group.partition(" | ")[0]
            if name in values:
                values[name] *= float(np.exp(step))
        why = ", ".join(f"{name} {np.expm1(step):+.2%}" for name, step in sorted(detector.shifts.items()))
        return self.ledger.add(current.system, values, f"proposed: {why}", current.id)

    def _aside(self, source: str, line: int, reason: str, heard: Heard) -> None:
        self.ledger.db.execute("insert into aside values (?, ?, ?)", (source, line, reason))
        heard.aside += 1


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def error_of(ledger: Ledger, models: Models, one: Set, latest: int) -> tuple[int, float, float]:
    """Rows, median and 95th percentile of |predicted/measured - 1| by a set, of the latest measurements."""
    rows = ledger.db.execute("select kind, seconds from measurements order by id desc limit ?", (latest,)).fetchall()
    kept = [(json.loads(kind), seconds) for kind, seconds in rows]
    known = [(kind, seconds) for kind, seconds in kept if models.priors(kind, seconds).keys() <= one.constants.keys()]
    if not known:
        return 0, float("nan"), float("nan")
    found = models.seconds([kind for kind, _ in known], one.constants, one.id)
    off = np.abs(np.array(found) / np.array([seconds for _, seconds in known]) - 1.0)
    return len(known), float(np.median(off)), float(np.percentile(off, 95))


def taken(ledger: Ledger, models: Models, name: str, action: str) -> Set:
    """Adopts a set: predictions and the detector go by it from now on. Its validation is kept."""
    with ledger.transaction():
        before = ledger.current()
        found = ledger.adopt(name, action)
        detector = Detector.of(ledger.get("detector", {}))
        for key, learnt in detector.kinds.items():
            kind = json.loads(key)
            if before is not None and models.priors(kind, 1.0).keys() <= found.constants.keys():
                # A kind's residuals move by what the sets differ; steps that were raised are in its baseline now.
                steps = models.effects(kind, before.constants, before.id)
                learnt[1] += sum(s * steps.get(g.partition(" | ")[0], 0.0) for g, s in detector.shifts.items())
                (old,), (new,) = (models.seconds([kind], one.constants, one.id) for one in (before, found))
                learnt[1] += float(np.log(old / new))
        detector.shifts, detector.sums, detector.window, detector.waiting = {}, {}, [], []
        ledger.put("detector", detector.record())
        rows, median, p95 = error_of(ledger, models, found, RECENT)
        if rows:
            ledger.db.execute(
                "insert into validations values (?, ?, ?, ?, ?, ?)",
                (time.time(), found.id, f"the latest {RECENT} measurements", rows, median, p95),
            )
    return found


def day_line(ledger: Ledger, now: dt.datetime) -> str:
    """What there is to say of all that came in since the line before."""
    since = ledger.get("told", {"measurements": 0, "aside": 0, "alarms": 0})
    counts = {table: int(ledger.one(f"select count(*) from {table}")) for table in since}  # noqa: S608
    new = {table: counts[table] - since[table] for table in counts}
    off = [
        abs(p / s - 1)
        for p, s in ledger.db.execute(
            "select predicted, seconds from measurements order by id desc limit ?", (min(new["measurements"], 10_000),)
        )
    ]
    ledger.put("told", counts)
    error = f"median error {np.median(off):.1%}" if off else "nothing to predict"
    moved = f"{new['alarms']} constants moved" if new["alarms"] else "no constant has moved"
    aside = f", {new['aside']} lines put aside" if new["aside"] else ""
    current = ledger.current()
    return (
        f"{now:%Y-%m-%d}  {new['measurements']:,} measurements{aside}, {error}, {moved}; "
        f"set {current.id if current else 'none'}"
    )
