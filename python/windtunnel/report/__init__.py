"""The report of a run: one HTML file that needs no network, with its figures as SVG."""

from windtunnel.report.page import write_report

__all__ = ["write_report"]
