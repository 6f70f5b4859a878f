"""A watch: takes what is new in its sources, chunk by chunk, each chunk in one transaction."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.calibrate.loop.content import TAIL, Content, digest, lines_of, packed
from windtunnel.calibrate.loop.drift import Detector
from windtunnel.calibrate.loop.effects import MOST_KINDS, Effects, band_of
from windtunnel.calibrate.loop.fetch import ERRORS, is_url, part, whole
from windtunnel.calibrate.loop.judged import ago, error_of, told
from windtunnel.calibrate.loop.readers import OVER, WHOLE, Aside, Measured, read_line, reader_of
from windtunnel.calibrate.loop.sources import Sources
from windtunnel.engine import InputError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windtunnel.calibrate.loop.content import Line
    from windtunnel.calibrate.loop.drift import Alarm
    from windtunnel.calibrate.loop.ledger import Ledger, Set
    from windtunnel.calibrate.loop.models import Models
    from windtunnel.calibrate.loop.sources import Source

CHUNK = 500
AHEAD_OF_CLOCK = 86_400.0
"""Seconds by which a time may be ahead of this machine's clock."""
BACK = 1.0
"""Seconds by which a time may be before that of the line before: ranks write a little out of order."""
MOST_CLASSES = 1000
"""Classes of flows and jobs of one store: each has constants, and every set has them all."""
LONG = 300
"""Characters of a reason that are kept."""
NAMED = 5
"""Files that are named in one line."""


@dataclass
class Heard:
    """What a scan took in."""

    measurements: int = 0
    aside: int = 0
    alarms: int = 0
    failed: list[str] = field(default_factory=list)
    """What could not be read at all: a folder, a file, a URL."""
    waiting: list[str] = field(default_factory=list)
    """Sources whose last line, or whose trace, has no end yet."""


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
        self._sources = Sources(ledger)
        self._effects: Effects | None = None
        self._stamps: dict[str, tuple[int, int]] = {}
        self._failing: dict[str, str] = {}
        self._back: dict[str, int] = {}
        self._served: dict[str, str] = {}

    def scan(self, place: str) -> Heard:
        """Takes what is new in a folder, a file or at a URL. What cannot be read is said, and is tried again."""
        heard = Heard()
        if is_url(place):
            self._fetched(place, heard)
        else:
            self._files(Path(place), heard)
        for source, times in self._back.items():
            self._told(f"{source}: {times} of its times are before that of the line before; the measurements count")
        self._back = {}
        return heard

    def _files(self, root: Path, heard: Heard) -> None:
        paths = {_name(root, path): path for path in self._listed(root, heard)}
        readers = {name: reader_of(path) for name, path in paths.items()}
        self._unread([name for name, reader in readers.items() if reader is None], heard)
        known = [name for name, reader in readers.items() if reader is not None]
        contents = {}
        # Names that are others' by now are told first: what had them may stand under any other name.
        for name in known:
            try:
                stat = paths[name].stat()
                stamp = (stat.st_size, stat.st_mtime_ns)
                if self._stamps.get(name) != stamp:
                    content = Content.of(paths[name])
                    self._sources.met(name, content)
                    contents[name] = stamp
                self._failing.pop(name, None)
            except OSError as error:
                self._fails(name, error, heard)
        self._sources.gone(known)
        for name, stamp in contents.items():
            reader = readers[name]
            try:
                if reader is not None and self._file(name, paths, reader, set(known), heard):
                    self._stamps[name] = stamp
            except OSError as error:
                self._fails(name, error, heard)

    def _listed(self, root: Path, heard: Heard) -> list[Path]:
        """Files of a folder and of those in it, by their paths."""
        if root.is_file():
            return [root]
        if not root.is_dir():
            self._fails(str(root), FileNotFoundError("no such folder or file"), heard)
            return []
        self._failing.pop(str(root), None)
        found = []

        def refused(error: OSError) -> None:
            self._fails(str(error.filename), error, heard)

        for folder, _, names in os.walk(root, onerror=refused):
            found += [Path(folder) / name for name in names]
        return sorted(path for path in found if not path.is_symlink() or path.is_file())

    def _fails(self, what: str, error: Exception, heard: Heard) -> None:
        """Says once that something cannot be read, until it can be or the reason is another."""
        reason = _plain(getattr(error, "strerror", None) or str(error) or type(error).__name__, LONG)
        heard.failed.append(f"{what}: {reason}")
        if self._failing.get(what) != reason:
            self._failing[what] = reason
            self._told(f"{_plain(what)}: {reason}")

    def _unread(self, names: list[str], heard: Heard) -> None:
        """Names files that no reader takes, each once."""
        db = self.ledger.db
        new = [
            name
            for name in names
            if not PurePosixPath(name).name.startswith(".")
            and not db.execute("select 1 from aside where source = ? and line = 0", (name,)).fetchone()
        ]
        if not new:
            return
        with self.ledger.transaction():
            for name in new:
                self._aside(name, 0, "no reader takes files of this name", heard)
        more = f" and {len(new) - NAMED} more" if len(new) > NAMED else ""
        self._told(f"not read, as no reader takes files of these names: {', '.join(new[:NAMED])}{more}")

    def _file(self, name: str, paths: dict[str, Path], reader: str, present: set[str], heard: Heard) -> bool:
        """Reads what is new in a file; whether all of it was read."""
        content = Content.of(paths[name])
        if not content.size and content.broken is None:
            return True
        if self._sources.get(name) is None:
            self._sources.begin(name, reader, content, present)
        return self._content(name, reader, content, paths.__getitem__, heard)

    def _content(self, name: str, reader: str, content: Content, path_of: Callable[[str], Path], heard: Heard) -> bool:
        source = self._sources.get(name)
        if source is None or (source.offset >= content.size and content.broken is None):
            return True
        copied = self._sources.copied(source, content, path_of)
        if copied is not None and copied[0] > source.offset:
            self._passed(name, reader, content, copied, heard)
        self._sources.grown(source, content)
        offset, at = self.ledger.db.execute("select offset, line from sources where path = ?", (name,)).fetchone()
        tail: bytes | None = content.before(offset)
        lines = content.lines(reader, offset)
        while (found := self._chunk(name, reader, lines, tail, heard)) is not None:
            tail = found[0]
        offset, at = self.ledger.db.execute("select offset, line from sources where path = ?", (name,)).fetchone()
        if content.broken is not None:
            self._broken(name, at + 1, content.broken, heard)
        elif offset < content.size and reader not in WHOLE:
            heard.waiting.append(f"{name}:{at + 1}: has no end yet, and is read once it has")
        return True

    def _broken(self, name: str, line: int, reason: str, heard: Heard) -> None:
        """A packed file that cannot be read to its end: it is tried again once it has changed."""
        said = f"the packed file is cut or still being written ({reason}): it is read on once it has changed"
        heard.waiting.append(f"{name}:{line}: {said}")
        with self.ledger.transaction():
            self.ledger.db.execute("delete from aside where source = ? and reason like 'the packed file%'", (name,))
            self._aside(name, line, said, heard)

    def _passed(self, name: str, reader: str, content: Content, copied: tuple[int, str], heard: Heard) -> None:
        """Passes over what was counted in another file; the lines before what is new say what that means."""
        end, of = copied
        db = self.ledger.db
        offset, number, state = db.execute("select offset, line, state from sources where path = ?", (name,)).fetchone()
        record, counted = json.loads(state), 0
        first = number + 1
        for raw, after in content.lines(reader, offset):
            if after > end:
                break
            number += 1
            found = read_line(reader, _text(raw), record, PurePosixPath(name))
            counted += sum(isinstance(one, Measured) for one in found)
        with self.ledger.transaction():
            if counted:
                self._aside(name, first, f"a copy of {of}", heard)
            db.execute(
                "update sources set offset = ?, line = ?, state = ?, tail = ? where path = ?",
                (end, number, json.dumps(record), digest(content.before(end)), name),
            )

    def _fetched(self, url: str, heard: Heard) -> None:
        path = PurePosixPath(url.partition("?")[0])
        reader = reader_of(path) or "lines"
        try:
            if reader in WHOLE or packed(path):
                self._fetched_whole(url, path.name, reader, heard)
            elif not self._fetched_part(url, reader, heard):
                self._fetched_part(url, reader, heard)
            self._failing.pop(url, None)
        except ERRORS as error:
            self._fails(url, error, heard)

    def _begun(self, url: str, reader: str) -> Source:
        found = self._sources.get(url)
        if found is None:
            with self.ledger.transaction():
                self.ledger.db.execute("insert into sources values (?, ?, 0, 0, '{}', '', 0, '')", (url, reader))
            found = self._sources.get(url)
        assert found is not None  # noqa: S101 - it was listed
        return found

    def _replaced(self, source: Source) -> None:
        self._sources.retire(source)
        self._told(f"{source.name}: another file than before is served: it is read from its beginning")

    def _fetched_part(self, url: str, reader: str, heard: Heard) -> bool:
        """Reads what is new of a file that grows; False where it is another one by now."""
        source = self._begun(url, reader)
        with part(url, source.offset, source.tail) as served:
            if served is None:
                self._replaced(source)
                return False
            answer, before = served
            tail: bytes | None = before

            def open_end() -> None:
                heard.waiting.append(f"{url}: its last line has no end yet, and is read once it has")

            lines = lines_of(answer, source.offset, open_end=open_end)
            while (found := self._chunk(url, reader, lines, tail, heard)) is not None:
                tail = found[0]
        return True

    def _fetched_whole(self, url: str, name: str, reader: str, heard: Heard) -> None:
        """Reads a trace, or what is packed, where it has changed."""
        with whole(url, name, self._served.get(url)) as served:
            if served is None:
                return
            path, stamp = served
            content = Content.of(path)
            source = self._begun(url, reader)
            if not source.within(content):
                self._replaced(source)
                self._begun(url, reader)
            self._content(url, reader, content, Path, heard)
            self._served[url] = stamp

    def _chunk(
        self, name: str, reader: str, lines: Iterator[Line], tail: bytes | None, heard: Heard
    ) -> tuple[bytes | None] | None:
        """Takes up to `CHUNK` lines in one transaction. The bytes before the new offset; None once there are none."""
        taken: list[Line] = []
        for line in lines:
            taken.append(line)
            if len(taken) == CHUNK:
                break
        if not taken:
            return None
        raws = [raw for raw, _ in taken]
        # Behind a line that was too long to be kept it is not known what stands before the offset.
        whole = None if tail is None or None in raws else tail + b"".join(raw for raw in raws if raw is not None)
        tail = None if whole is None else whole[-TAIL:]
        db = self.ledger.db
        said: list[str] = []
        with self.ledger.transaction():
            number, header = db.execute("select line, state from sources where path = ?", (name,)).fetchone()
            state: dict[str, Any] = json.loads(header)
            detector = Detector.of(self.ledger.get("detector", {}))
            if self._effects is None:
                self._effects = Effects(self.ledger, self.models, detector)
            detector.asks(self._effects.known)
            again = False
            for raw, _ in taken:
                number += 1
                found = (
                    [Aside("longer than a line of a log")]
                    if raw is None
                    else read_line(reader, _text(raw), state, PurePosixPath(name))
                )
                again = any(isinstance(one, Aside) and one.again for one in found)
                if reader in WHOLE:
                    # What was said of it while it was written holds no longer.
                    db.execute("delete from aside where source = ? and line = 1", (name,))
                for one in found:
                    if isinstance(one, Aside):
                        self._aside(name, number, one.reason, heard)
                    else:
                        self._guarded(name, number, one, state, detector, heard, said)
                if state.pop(OVER, False):
                    suspected = bool(detector.suspects)
                    self._heard(detector.end(), detector, suspected=suspected, heard=heard, said=said)
            self.ledger.put("detector", detector.record())
            if again:
                heard.waiting.append(f"{name}: is no whole trace, and is read once it has changed")
            else:
                db.execute(
                    "update sources set offset = ?, line = ?, state = ?, tail = ? where path = ?",
                    (taken[-1][1], number, json.dumps(state), digest(tail or b""), name),
                )
        for each in said:
            self._told(each)
        return None if again else (tail,)

    def _guarded(
        self,
        source: str,
        line: int,
        found: Measured,
        state: dict[str, Any],
        detector: Detector,
        heard: Heard,
        said: list[str],
    ) -> None:
        """Takes a measurement; one that no model or no table can hold is put aside, and the others are read."""
        before = (heard.measurements, heard.alarms)
        self.ledger.db.execute("savepoint line")
        try:
            # A name with half a character can be neither kept nor shown.
            "".join(map(str, found.kind)).encode()
            self._dated(source, line, found, state, heard)
            self._take(source, line, found, detector, heard, said)
        except (ValueError, TypeError, ArithmeticError, LookupError, InputError, RunError) as error:
            self.ledger.db.execute("rollback to line")
            heard.measurements, heard.alarms = before
            reason = str(error).partition("\n")[0]
            self._aside(source, line, f"cannot be predicted: {type(error).__name__}: {reason}", heard)
        self.ledger.db.execute("release line")

    def _dated(self, source: str, line: int, found: Measured, state: dict[str, Any], heard: Heard) -> None:
        """Counts times that jump backwards: a clock was set, and days told by it are wrong."""
        if found.at is None:
            return
        if found.at < state.get("at", found.at) - BACK:
            state["back"] = state.get("back", 0) + 1
            self._back[source] = self._back.get(source, 0) + 1
            if state["back"] == 1:
                self._aside(source, line, "its time is before that of the line before: a clock jumped", heard)
        state["at"] = found.at

    def _take(self, source: str, line: int, found: Measured, detector: Detector, heard: Heard, said: list[str]) -> None:
        db = self.ledger.db
        if found.name is not None and self.ledger.one("select 1 from measurements where name = ?", found.name):
            self._aside(source, line, f"{found.name} was counted before", heard)
            return
        kind = list(found.kind)
        refused = self.models.refused(kind, found.gpus)
        if refused is not None:
            self._aside(source, line, refused, heard)
            return
        current = self._with_priors(kind, found.seconds)
        if current is None:
            self._aside(source, line, f"more than {MOST_CLASSES:,} classes of flows and jobs", heard)
            return
        try:
            (predicted,) = self.models.seconds([kind], current.constants, current.id)
        except (InputError, RunError) as error:
            self._aside(source, line, str(error).partition("\n")[0], heard)
            return
        if not (np.isfinite(predicted) and predicted > 0):
            self._aside(source, line, f"no prediction: the model has {predicted} s", heard)
            return
        at = found.at
        if at is not None and at > time.time() + AHEAD_OF_CLOCK:
            self._aside(source, line, "its time is more than a day ahead of this machine's clock: left out", heard)
            at = None
        db.execute(
            "insert into measurements (source, line, at, kind, seconds, predicted, set_id, name) "
            "values (?, ?, ?, ?, ?, ?, ?, ?)",
            (source, line, at, json.dumps(kind), found.seconds, predicted, current.id, found.name),
        )
        heard.measurements += 1
        assert self._effects is not None  # noqa: S101 - a chunk begins by making it
        key = self._effects.standing(kind)
        log = None if found.log is None else f"{source}:{found.log}"
        effects = self._effects.of(kind, key, current)
        suspected = bool(detector.suspects)
        alarm = detector.hear(key, float(np.log(found.seconds / predicted)), effects, log, band_of(kind))
        if self._effects.dropped(key, detector) is not None:
            self._forgotten(said)
        self._heard(alarm, detector, suspected=suspected, heard=heard, said=said)

    def _heard(
        self, alarm: Alarm | None, detector: Detector, *, suspected: bool, heard: Heard, said: list[str]
    ) -> None:
        """Says what the detector has found at the latest measurement, and proposes a set."""
        if alarm is None:
            if detector.suspects and not suspected:
                said.append(
                    f"one of {', '.join(detector.suspects)} has moved: which it is, and by how much, is said when more "
                    "measurements tell them apart"
                )
            return
        heard.alarms += 1
        current = self.ledger.current()
        assert current is not None  # noqa: S101 - what was measured was predicted by it
        db, number = self.ledger.db, int(self.ledger.one("select max(id) from measurements"))
        proposed = self._propose(current, detector)
        db.execute(
            "insert into alarms values (?, ?, ?, ?, ?, ?, ?, ?)",
            (time.time(), number, alarm.name, alarm.step, alarm.deviation, alarm.since, alarm.ahead, proposed.id),
        )
        before, after = (error_of(self.ledger, self.models, one, alarm.since) for one in (current, proposed))
        said.append(
            f"{told(alarm)} {np.expm1(alarm.step):+.1%} (± {alarm.deviation:.1%}), {ago(alarm)} ago: "
            f"set {proposed.id} is proposed, median error since then {before[1]:.1%}, with it {after[1]:.1%}; "
            f"`windtunnel calibrate adopt {proposed.id}` takes it"
        )

    def _forgotten(self, said: list[str]) -> None:
        """Counts kinds whose baselines went for others, and says so at the first."""
        count = self.ledger.get("forgotten", 0) + 1
        self.ledger.put("forgotten", count)
        if count == 1:
            said.append(
                f"more than {MOST_KINDS:,} kinds of measurements: the baselines of those not heard of for longest go, "
                "and are learnt anew when they come again"
            )

    def _with_priors(self, kind: list[Any], seconds: float) -> Set | None:
        """The current set, with what a new kind needs: a set of its own, as no constant is changed by it.

        None where there are too many classes.
        """
        current = self.ledger.current()
        assert current is not None  # noqa: S101 - a watch begins by adopting one
        lacking = {n: v for n, v in self.models.priors(kind, seconds).items() if n not in current.constants}
        if not lacking or all(n.startswith("first.") for n in lacking):
            return current
        if sum(name.startswith(("rate.", "pace.")) for name in current.constants) >= MOST_CLASSES:
            return None
        grown = self.ledger.add(
            current.system,
            {**current.constants, **lacking},
            f"{current.id} with {', '.join(lacking)}",
            current.id,
        )
        return self.ledger.adopt(grown.id, "grown")

    def _propose(self, current: Set, detector: Detector) -> Set:
        """The current set with the steps that were raised: of a group its strongest constant takes it."""
        values = dict(current.constants)
        for group, step in detector.shifts.items():
            name = group.partition(" | ")[0]
            if name in values:
                values[name] *= float(np.exp(step))
        steps = [f"{name} {np.expm1(step):+.2%}" for name, step in sorted(detector.shifts.items())]
        why = ", ".join(steps) or "as before, for what was raised is taken back"
        return self.ledger.add(current.system, values, f"proposed: {why}", current.id)

    def _aside(self, source: str, line: int, reason: str, heard: Heard) -> None:
        self.ledger.db.execute("insert into aside values (?, ?, ?)", (source, line, _plain(reason, LONG)))
        heard.aside += 1


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace").rstrip("\r\n")


def _plain(text: str, most: int | None = None) -> str:
    """What a table and a terminal can hold: no halves of characters, no controls, and perhaps no more than `most`."""
    kept = text if most is None or len(text) <= most else f"{text[:most]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in kept)


def _name(root: Path, path: Path) -> str:
    return _plain(path.name if path == root else path.relative_to(root).as_posix())
