"""What a set is worth on the latest measurements, taking it up, what an alarm says, and the line a day leaves."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.calibrate.loop.drift import Detector

if TYPE_CHECKING:
    import datetime as dt

    from windtunnel.calibrate.loop.drift import Alarm
    from windtunnel.calibrate.loop.ledger import Ledger, Set
    from windtunnel.calibrate.loop.models import Models

RECENT = 500
"""Measurements that a set is judged on when it is taken up."""


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
        if before is not None and before.id == ledger.set(name).id:
            # It was taken already: there is nothing to go back to but what was before it.
            return before
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
        detector.shifts = {}
        detector.forget_sums()
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


def told(alarm: Alarm) -> str:
    """Which constant has moved, or which of several it may be."""
    first, *others = alarm.name.split(" | ")
    if not others:
        return f"{first} has moved by"
    return f"{first} (or {', '.join(others)}, which nothing since then tells from it) has moved by"


def ago(alarm: Alarm) -> str:
    """How many measurements ago, and how many logs, where they are not the same."""
    return f"{alarm.since} measurements" + (f" ({alarm.logs} logs)" if alarm.logs != alarm.since else "")
