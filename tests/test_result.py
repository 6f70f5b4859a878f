"""Reading a run folder."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl
import pytest

import windtunnel
from windtunnel.breakdown import PARTS

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel import Result


def test_tables_are_polars_frames(finished_run: Result) -> None:
    result = windtunnel.load(finished_run.path)
    assert result.tables == ["critical_path", "flows", "iterations", "jobs", "links", "operations"]
    assert isinstance(result.jobs, pl.DataFrame)
    assert isinstance(result.scan("flows"), pl.LazyFrame)
    assert result.flows.height == result.summary["flows"]["count"]
    assert result.flows.schema["finish_ps"] == pl.UInt64
    assert result.jobs["ranks"].to_list() == [512]


def test_parts_sum_to_the_iteration(finished_run: Result) -> None:
    rows = finished_run.iterations
    parts = sum(rows[part.column] for part in PARTS)
    assert (parts == rows["finish_ps"] - rows["start_ps"]).all()  # type: ignore[union-attr]


def test_a_missing_table_names_those_there_are(finished_run: Result) -> None:
    message = "the run has no table `messages`.*hint: it has `critical_path`, `flows`, "
    with pytest.raises(windtunnel.InputError, match=re.compile(message, re.DOTALL)):
        _ = finished_run.messages


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(windtunnel.InputError, match=r"not a run folder: .* \(a folder without `summary.json`\)"):
        windtunnel.load(tmp_path)
    with pytest.raises(windtunnel.InputError, match=r"\(nothing there\)"):
        windtunnel.load(tmp_path / "absent")


def test_a_damaged_summary(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"windtunnel": ')
    with pytest.raises(windtunnel.InputError, match=r"cannot read `.*summary.json`: Expecting value"):
        _ = windtunnel.load(tmp_path).summary
    (tmp_path / "summary.json").write_text("[]")
    with pytest.raises(windtunnel.InputError, match=r"summary.json`: expected keys and values, found list"):
        _ = windtunnel.load(tmp_path).summary
