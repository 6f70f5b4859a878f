"""Run folders: `summary.json`, `manifest.json`, the scenario, and tables as folders of Parquet part files.

The engine writes the tables (`windtunnel.engine.TableWriter`), polars reads them; it is imported by who asks for one.
"""

from windtunnel.results.result import Result

__all__ = ["Result"]
