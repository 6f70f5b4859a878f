"""Finding the first difference between two runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl

from synthetic import write_run
from windtunnel import Result
from windtunnel.determinism import first_difference, summary_difference, table_difference

if TYPE_CHECKING:
    from pathlib import Path


def test_equal_runs_have_no_difference(finished_run: Result, tmp_path: Path) -> None:
    again = write_run(tmp_path / "again")
    summary = json.loads((again.path / "summary.json").read_text())
    summary.update(wall_time_s=99.0, cpu_time_s=98.0, peak_memory_bytes=1, peak_rss_bytes=2)
    (again.path / "summary.json").write_text(json.dumps(summary))
    assert first_difference(finished_run, Result(again.path)) is None


def test_the_first_row_that_differs_is_told(finished_run: Result, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other")
    path = other.path / "flows" / "part-00000.parquet"
    flows = pl.read_parquet(path)
    flows[7, "bytes"] = 1
    flows[9, "bytes"] = 1
    flows.write_parquet(path)
    assert first_difference(finished_run, other) == "table `flows`, row 7: bytes 4194304 and 1"


def test_rows_more_and_other_columns() -> None:
    one = pl.DataFrame({"a": [1, 2]})
    assert table_difference("t", one, one.head(1)) == "table `t`: 2 and 1 rows"
    assert str(table_difference("t", one, one.rename({"a": "b"}))).startswith("table `t`: columns")
    lists = pl.DataFrame({"x": [[1.0], [2.0]]})
    assert table_difference("t", lists, pl.DataFrame({"x": [[1.0], [3.0]]})) == "table `t`, row 1: x [2.0] and [3.0]"
    nulls = pl.DataFrame({"x": [None, 1.0]})
    assert table_difference("t", nulls, nulls.clone()) is None


def test_keys_are_named() -> None:
    assert summary_difference({"a": [{"b": 1}]}, {"a": [{"b": 2}]}) == "summary.a[0].b: 1 and 2"
    assert summary_difference({"wall_time_s": 1}, {"wall_time_s": 2}) is None
    assert summary_difference({"a": 1}, {"b": 1}) == "summary: keys ['a'] and ['b']"
