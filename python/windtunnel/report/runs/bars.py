"""Where an iteration of each run goes: a bar a run, all on one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.breakdown import PARTS
from windtunnel.report.html import Raw, text
from windtunnel.text import UNKNOWN, change, duration, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.report.runs.label import Named

STYLE = """<style>
.stack { display: flex; height: 22px; border-radius: 3px; overflow: hidden; min-width: 2px; }
.stack i { display: block; height: 100%; min-width: 1px; box-shadow: inset 0 0 0 .5px #8888; }
.stack i:hover { outline: 2px solid var(--ink); outline-offset: -2px; }
.lane { margin: 10px 0; }
.lane b { font-weight: 600; }
.lane span.figure { color: var(--muted); font-size: 13px; margin-left: 8px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; margin-top: 14px; color: var(--muted); }
</style>"""


def bars(runs: Sequence[Named], jobs: Sequence[dict[str, Any] | None]) -> Raw:
    """Bars of one job in each run, as long as its mean iteration; None where a run lacks it or knows no times."""
    means = [_mean(job) for job in jobs]
    longest = max((mean for mean in means if mean), default=0.0)
    lanes, used = [], set()
    for run, job, mean in zip(runs, jobs, means, strict=True):
        cells = ""
        for part in PARTS if job and mean else ():
            value = part.seconds(job or {})
            if value:
                used.add(part.key)
                said = f"{run.name}: {part.name} {duration(value)}, {percent(value / (mean or 1))} of the iteration"
                width = 100 * value / longest
                cells += f'<i style="width:{width:.3f}%;background:{part.colour}" title="{text(said)}"></i>'
        first = means[0]
        figure = UNKNOWN if mean is None else duration(mean)
        if run is not runs[0] and mean and first:
            figure += ", as the first" if mean == first else f", {change(mean / first - 1)}"
        head = f'<b>{run.mark()}</b><span class="figure">{text(figure)}</span>'
        lanes.append(f'<div class="lane">{head}<div class="stack">{cells}</div></div>')
    legend = "".join(
        f'<span><span class="swatch" style="background:{part.colour}"></span>{text(part.name)}</span>'
        for part in PARTS
        if part.key in used
    )
    return Raw(f'{"".join(lanes)}<div class="legend">{legend}</div>')


def _mean(job: dict[str, Any] | None) -> float | None:
    found = ((job or {}).get("iteration_time_s") or {}).get("mean")
    return None if found is None else float(found)
