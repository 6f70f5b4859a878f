"""The page of a study: one self-contained HTML file of all its points, each linked to its run."""

from windtunnel.report.study.page import picture, study_page

__all__ = ["picture", "study_page"]
