"""A finished run, read from its folder."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError
from windtunnel.results.rows import MissingColumnError
from windtunnel.source import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from windtunnel.results.notebook import Plots

_KEYS = {
    "windtunnel": str, "scenario": str, "fidelity": str, "seed": int, "partial": bool,
    "jobs": list, "network": object, "flows": object, "cluster": dict, "evidence": list,
}  # fmt: skip
"""Keys that every summary has."""

_KINDS = {str: "a text", int: "a whole number", bool: "true or false", list: "a list", dict: "keys and values"}

_JOB_KEYS = (
    "name", "state", "ranks", "iterations", "simulated_iterations", "iteration_time_s", "ideal_iteration_time_s",
    "compute_s", "exposed_s", "exposed_communication_s", "bubble_s", "straggler_s", "host_s",
    "tokens_per_s", "mfu", "memory_bytes_per_gpu", "lost_s",
)  # fmt: skip
"""Keys that each of its jobs has."""

DAMAGED = "hint: has the folder been changed, or copied in part? `windtunnel run` writes it anew"


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

    def check(self) -> None:
        """Raises `InputError` if the summary is not one that a run has written: of a folder that somebody gives."""
        for key, kind in _KEYS.items():
            self._expect(self.summary, key, kind)
        for index, job in enumerate(self.summary["jobs"]):
            if not isinstance(job, dict):
                self._complain(f"jobs[{index}]", "keys and values", job)
            for key in _JOB_KEYS:
                self._expect(job, key, str if key == "name" else object, f"jobs[{index}].")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Within it, what is wrong with a table is an `InputError`: of a folder that somebody gives."""
        try:
            yield
        except Exception as error:
            pl = sys.modules.get("polars")  # which loads slowly, and is not needed for all tables
            polars = pl is not None and isinstance(error, pl.exceptions.PolarsError)
            if not polars and not isinstance(error, MissingColumnError):
                raise
            reason = str(error).partition("\n")[0].strip()
            raise InputError(f"cannot read the tables of `{self.path}`: {reason}\n\n{DAMAGED}") from error

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

    def expect(self, table: str) -> None:
        """Raises `InputError` if the run did not write `table`."""
        if table not in self.tables:
            raise InputError(
                f"the run has no table `{table}`: `{self.path}`\n\n"
                f"hint: it has {', '.join(f'`{name}`' for name in self.tables) or 'none'}"
            )

    def scan(self, table: str) -> pl.LazyFrame:
        """`table`, unread. Raises `InputError` if the run did not write it."""
        self.expect(table)
        import polars as pl  # noqa: PLC0415

        for part in sorted((self.path / table).glob("part-*.parquet")):
            try:
                pl.read_parquet_schema(part)
            except pl.exceptions.PolarsError as error:
                reason = str(error).partition("\n")[0].strip()
                raise InputError(f"cannot read `{part}`: {reason}\n\n{DAMAGED}") from error
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

    @cached_property
    def plot(self) -> Plots:
        """Figures of the report one by one: `result.plot.waterfall()`; a notebook shows them."""
        from windtunnel.results.notebook import Plots  # noqa: PLC0415

        return Plots(self)

    def _repr_html_(self) -> str:
        from windtunnel.results.notebook import result_html  # noqa: PLC0415

        return result_html(self)

    def __repr__(self) -> str:
        summary = self.summary
        return f"Result({summary.get('scenario')!r}, fidelity={summary.get('fidelity')!r}, path={str(self.path)!r})"

    def _expect(self, values: dict[str, Any], key: str, kind: type, place: str = "") -> None:
        if key not in values:
            raise InputError(f"cannot read `{self.path / 'summary.json'}`: `{place}{key}` is missing\n\n{DAMAGED}")
        value = values[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self._complain(f"{place}{key}", _KINDS[kind], value)

    def _complain(self, place: str, expected: str, value: object) -> None:
        found = json.dumps(value)
        found = found if len(found) <= 40 else f"{found[:40]}…"
        message = f"`{place}`: expected {expected}, found `{found}`"
        raise InputError(f"cannot read `{self.path / 'summary.json'}`: {message}\n\n{DAMAGED}")

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
