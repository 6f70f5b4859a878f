"""Run folders: `summary.json`, `manifest.json`, the scenario, and tables as folders of Parquet part files."""

from windtunnel.results.result import Result
from windtunnel.results.writer import TableWriter

__all__ = ["Result", "TableWriter"]
