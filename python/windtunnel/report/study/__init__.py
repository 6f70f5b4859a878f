"""The page of a study: one self-contained HTML file of all its points, each linked to its run."""

from windtunnel.report.study.page import study_page

__all__ = ["study_page"]
