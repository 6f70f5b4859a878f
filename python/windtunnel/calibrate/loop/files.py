"""What a ledger leaves for others: a system's file with its constants, and a page of predicted against measured."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.calibrate.loop.drift import Detector
from windtunnel.calibrate.loop.models import NCCL
from windtunnel.calibrate.loop.seen import seen, shown
from windtunnel.calibrate.nccl import whole
from windtunnel.report.canvas import figure, svg
from windtunnel.report.html import Raw, page, section, table
from windtunnel.results.folder import write_beside

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel.calibrate.loop.ledger import Ledger, Set
    from windtunnel.validate.systems import System

POINTS = 2000
"""Most points of the page's figure."""


def system_file(ledger: Ledger, system: System, one: Set) -> Path:
    """Writes the system with the constants of a set: `network.collectives.system` of a scenario names this file."""
    rows = ledger.db.execute(
        "select rows, median, p95 from validations where set_id = ? order by at desc limit 1", (one.id,)
    ).fetchone()
    told = f"; median error {rows[1]:.1%} of {rows[0]} measurements, 95th percentile {rows[2]:.1%}" if rows else ""
    when = dt.datetime.now(tz=dt.UTC).date().isoformat()
    record = {key: value for key, value in system.record.items() if key != "constants"}
    own = {name[len(NCCL) :]: value for name, value in one.constants.items() if name.startswith(NCCL)}
    others = {name: value for name, value in one.constants.items() if not name.startswith(NCCL)}
    source = f"set {one.id}, adopted on {when} (`windtunnel calibrate adopt`): {one.why}{told}"
    moved = _moved(ledger, one)
    # What no measurement has moved is where it began, and says so.
    begun = f"set {one.id}: as it began, from the system's files, the sheets or a first measurement"
    if own:
        known = ("calibrated", source) if any(name.startswith(NCCL) for name in moved) else ("inferred", begun)
        adopted = {"value": whole(own, {}), "evidence": known[0], "source": known[1]}
        record["collectives"] = {**(record.get("collectives") or {}), "constants": adopted}
    if others:
        record["constants"] = {
            **(system.record.get("constants") or {}),
            **{
                name: {
                    "value": value,
                    "evidence": "calibrated" if name in moved else "inferred",
                    "source": source if name in moved else begun,
                }
                for name, value in others.items()
            },
        }
    path = ledger.folder / "systems" / f"{system.name}.yaml"
    path.parent.mkdir(exist_ok=True)
    # JSON is YAML.
    write_beside(path, (json.dumps(record, indent=1) + "\n").encode())
    return path


def _moved(ledger: Ledger, one: Set) -> set[str]:
    """Constants of a set that have another value than they began with, in the sets that it is from."""
    began: dict[str, float] = dict(one.constants)
    parent = one.parent
    seen = {one.id}
    while parent is not None and parent not in seen:
        seen.add(parent)
        before = ledger.set(parent)
        began |= {name: value for name, value in before.constants.items() if name in began}
        parent = before.parent
    return {name for name, value in one.constants.items() if began[name] != value}


def _day(at: float) -> Any:  # noqa: ANN401 - matplotlib takes dates, and its types do not say so
    return dt.datetime.fromtimestamp(at, tz=dt.UTC)


def _seen(ledger: Ledger, groups: list[str]) -> list[tuple[str, str, str, str]]:
    """Rows of a table: what the measurements so far show of each group."""
    return [
        (one.name, "known together" if " | " in one.name else "told apart", shown(one.needs), shown(one.least))
        for one in seen(Detector.of(ledger.get("detector", {})), groups)
    ]


def write_page(ledger: Ledger) -> Path:
    """Writes `index.html`: predicted over measured by measurement, alarms, sets, and what was put aside."""
    count = int(ledger.one("select count(*) from measurements"))
    every = max(1, -(-count // POINTS))
    rows = ledger.db.execute(
        "select id, predicted / seconds, at from measurements where id % ? = 0 order by id", (every,)
    ).fetchall()
    alarms = ledger.db.execute(
        "select measurement, name, step, deviation, since, proposed, "
        "(select at from measurements where id = measurement) from alarms order by measurement"
    ).fetchall()
    # Over time where all say theirs, else in the order in which they came in.
    dated = bool(rows) and all(row[2] is not None for row in rows)
    fig, axes = figure(3.2)
    axes.axhline(0, color="0.4", linewidth=1)
    if rows:
        axes.scatter([_day(r[2]) if dated else r[0] for r in rows], [100 * (r[1] - 1) for r in rows], s=6, alpha=0.5)
        off = np.array([r[1] - 1 for r in rows])
        low, high = 100 * np.percentile(off, [1, 99])
        axes.set_ylim(min(low, -5) * 1.2, max(high, 5) * 1.2)
    for alarm in alarms:
        if not dated or alarm[6] is not None:
            axes.axvline(_day(alarm[6]) if dated else alarm[0], color="C3", linewidth=1)
    axes.set(xlabel="" if dated else "measurement", ylabel="predicted over measured, %")
    current = ledger.current()
    kinds = ledger.db.execute(
        "select kind, count(*), avg(seconds), avg(predicted / seconds - 1) from measurements group by kind "
        "order by count(*) desc limit 100"
    ).fetchall()
    aside = ledger.db.execute(
        "select source, min(line), reason, count(*) from aside group by source, reason order by count(*) desc limit 100"
    ).fetchall()
    groups = ledger.get("groups", {"told_apart": [], "not_seen": []})
    sections = [
        Raw("<header><h1>Calibration</h1><p>Predictions against what comes in.</p></header>"),
        section("Predicted over measured", "Red: a constant was found to have moved.", svg(fig, "error over time")),
        section(
            "Constants that moved",
            "",
            table(
                ("measurement", "constant", "by", "±", "measurements before", "proposed set"),
                [(a[0], a[1], f"{np.expm1(a[2]):+.1%}", f"{a[3]:.1%}", a[4], a[5]) for a in alarms],
                numbers=(0, 2, 3, 4),
            ),
        ),
        section(
            "Sets",
            f"Predictions go by {current.id if current else 'none'}.",
            table(
                ("set", "from", "why"),
                [(one.id, one.parent or "", one.why) for one in ledger.sets()],
            ),
        ),
        section(
            "What the measurements tell",
            "Logs, and single measurements, as they came: nine steps in ten are found by then.",
            table(
                ("constants", "are", "logs until a step of 3% is found", "at least, by whatever detector"),
                _seen(ledger, groups["told_apart"])
                + [(name, "not seen by any measurement", "", "") for name in groups["not_seen"]],
                numbers=(2, 3),
            ),
        ),
        section(
            "Kinds",
            "",
            table(
                ("kind", "measurements", "mean, s", "predicted over measured"),
                [(" ".join(map(str, json.loads(k[0]))), k[1], f"{k[2]:.4g}", f"{k[3]:+.1%}") for k in kinds],
                numbers=(1, 2, 3),
            ),
        ),
    ]
    if aside:
        sections.append(
            section("Put aside", "", table(("source", "first line", "because", "lines"), aside, numbers=(1, 3)))
        )
    path = ledger.folder / "index.html"
    write_beside(path, page("Windtunnel: calibration", *sections).encode())
    return path
