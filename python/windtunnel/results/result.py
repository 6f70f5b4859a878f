"""A finished run, read from its folder."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from windtunnel.engine import InputError
from windtunnel.source import read_text


class Result:
    """What a run found: its summary, its manifest, and its tables as polars frames.

    A table is read on first use and kept. `scan` gives a lazy frame instead, for tables larger than memory.
    """

    def __init__(self, path: Path | str) -> None:
        """Opens the run folder `path`. Raises `InputError` if it is none."""
        self.path = Path(path)
        if not (self.path / "summary.json").is_file():
            found = "a folder without `summary.json`" if self.path.is_dir() else "nothing there"
            raise InputError(
                f"not a run folder: `{self.path}` ({found})\n\nhint: give the folder that `windtunnel run` printed"
            )

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The summary; keys and units are in `docs/results.md`."""
        return self._json("summary.json")

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """How the run was made: version, scenario hash, seed, options, machine, wall time, rows per table."""
        return self._json("manifest.json")

    @cached_property
    def scenario(self) -> str | None:
        """The scenario as it was given, without overrides; None if the folder does not hold it."""
        path = self.path / "scenario.yaml"
        return read_text(path) if path.is_file() else None

    @cached_property
    def tables(self) -> list[str]:
        """Names of the tables the run wrote, sorted."""
        return sorted(p.name for p in self.path.iterdir() if p.is_dir() and any(p.glob("part-*.parquet")))

    def scan(self, table: str) -> pl.LazyFrame:
        """`table`, unread. Raises `InputError` if the run did not write it."""
        if table not in self.tables:
            raise InputError(
                f"the run has no table `{table}`: `{self.path}`\n\n"
                f"hint: it has {', '.join(f'`{name}`' for name in self.tables) or 'none'}"
            )
        return pl.scan_parquet(self.path / table / "part-*.parquet")

    def table(self, table: str) -> pl.DataFrame:
        """`table`, read. Raises `InputError` if the run did not write it."""
        return self.scan(table).collect()

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """One row per job."""
        return self.table("jobs")

    @cached_property
    def iterations(self) -> pl.DataFrame:
        """One row per job and simulated iteration, with the breakdown of its time in ps."""
        return self.table("iterations")

    @cached_property
    def critical_path(self) -> pl.DataFrame:
        """The steps of each iteration's critical path, in order."""
        return self.table("critical_path")

    @cached_property
    def operations(self) -> pl.DataFrame:
        """Operations of the ranks that were recorded: one pipeline in its last iteration, or all with `--full`."""
        return self.table("operations")

    @cached_property
    def flows(self) -> pl.DataFrame:
        """One row per finished flow (flow fidelity)."""
        return self.table("flows")

    @cached_property
    def messages(self) -> pl.DataFrame:
        """One row per delivered message (message fidelity)."""
        return self.table("messages")

    @cached_property
    def links(self) -> pl.DataFrame:
        """One row per link that carried anything."""
        return self.table("links")

    @cached_property
    def usage(self) -> pl.DataFrame:
        """The cluster over time, in at most 512 bins: parts of the GPUs by state, waiting and running jobs."""
        return self.table("usage")

    @cached_property
    def placements(self) -> pl.DataFrame:
        """One row per stay of a job on neighbouring GPUs of a host; of logs every k-th host if they are long."""
        return self.table("placements")

    @cached_property
    def heat(self) -> pl.DataFrame:
        """Utilisation of the most used links over the calendar (flow fidelity, several jobs)."""
        return self.table("heat")

    @cached_property
    def congestion(self) -> pl.DataFrame:
        """Periods in which a job could not fill its hosts' bandwidth, and the job that caused each (flow fidelity)."""
        return self.table("congestion")

    def __repr__(self) -> str:
        summary = self.summary
        return f"Result({summary.get('scenario')!r}, fidelity={summary.get('fidelity')!r}, path={str(self.path)!r})"

    def _json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            value: Any = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read `{path}`: {error}") from error
        if not isinstance(value, dict):
            raise InputError(f"cannot read `{path}`: expected keys and values, found {type(value).__name__}")
        found: dict[str, Any] = value
        return found
