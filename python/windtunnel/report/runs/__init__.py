"""The report of several runs beside each other: one file, drawn by hand, that needs no network to be read."""

from windtunnel.report.runs.page import write_runs_report

__all__ = ["write_runs_report"]
