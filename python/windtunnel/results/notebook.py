"""A result in a notebook: its main figures as HTML, and the figures of its report one by one."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from windtunnel.results.rows import rows_of

if TYPE_CHECKING:
    from windtunnel.results.result import Result


class Drawing:
    """A figure: a notebook shows it, `svg` is its text."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_html_(self) -> str:
        # The page's colours, which a notebook does not have.
        return f'<div style="--ink:currentColor;--muted:gray;--line:#8884;max-width:1040px">{self.svg}</div>'


class Plots:
    """Figures of a run: `waterfall`, `gantt`, `cdf`, `heatmap`, `queue_pairs`.

    Each raises `InputError` if the run lacks its table.
    """

    def __init__(self, result: Result) -> None:
        self._result = result

    def waterfall(self, job: int = 0) -> Drawing:
        """What each simulated iteration of a job is made of."""
        from windtunnel.report.waterfall import waterfall  # noqa: PLC0415

        found = self._result.summary["jobs"][job]
        rows = rows_of(self._result, "iterations", job=found["name"])
        return Drawing(waterfall(rows, found.get("ideal_iteration_time_s")))

    def gantt(self, job: int = 0) -> Drawing:
        """One pipeline of a job in its last iteration."""
        from windtunnel.report.gantt import NEEDED, gantt  # noqa: PLC0415

        name = self._result.summary["jobs"][job]["name"]
        return Drawing(gantt(rows_of(self._result, "operations", NEEDED, job=name, last=True)))

    def cdf(self) -> Drawing:
        """How long flows or messages take."""
        from windtunnel.report.cdf import by_path  # noqa: PLC0415

        table = "flows" if "flows" in self._result.tables else "messages"
        self._result.expect(table)
        return Drawing(by_path(self._result, table))

    def heatmap(self) -> Drawing:
        """Utilisation of the links over time."""
        from windtunnel.report.heatmap import heatmap  # noqa: PLC0415

        self._result.expect("links")
        return Drawing(heatmap(self._result))

    def queue_pairs(self) -> Drawing:
        """Windows, paces, round trips and queues of the queue pairs that were looked at over time."""
        from windtunnel.report.pairs import NEEDED, queue_pairs  # noqa: PLC0415

        return Drawing(queue_pairs(rows_of(self._result, "queue_pairs", NEEDED)))


def result_html(result: Result) -> str:
    """The main figures of a run as a table."""
    from windtunnel.text import duration, percent  # noqa: PLC0415

    summary = result.summary
    head = "".join(f"<th>{name}</th>" for name in ("job", "ranks", "iteration", "ideal fabric", "compute", "MFU"))
    rows = []
    for job in summary["jobs"]:
        cells = (
            job["name"], f"{job['ranks']:,}", duration((job["iteration_time_s"] or {}).get("mean")),
            duration(job["ideal_iteration_time_s"]), duration(job["compute_s"]), percent(job["mfu"]),
        )  # fmt: skip
        rows.append("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>")
    title = f"<b>{escape(str(summary['scenario']))}</b> · {summary['fidelity']} fidelity · seed {summary['seed']}"
    return f"<p>{title}</p><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
