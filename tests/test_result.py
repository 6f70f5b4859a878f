"""Reading a run folder."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

import polars as pl
import pytest

import windtunnel
from windtunnel.breakdown import PARTS

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command
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


DAMAGES = {
    "{}": "`windtunnel` is missing",
    '{"jobs": 3}': "`jobs`: expected a list, found `3`",
    '{"jobs": [{}]}': "`jobs[0].name` is missing",
    '{"jobs": ["a"]}': '`jobs[0]`: expected keys and values, found `"a"`',
    '{"seed": true}': "`seed`: expected a whole number, found `true`",
}


@pytest.mark.parametrize("text", DAMAGES)
def test_commands_tell_what_is_wrong_with_a_summary(
    command: Command, finished_run: Result, tmp_path: Path, text: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished_run.path, folder)
    changed = json.loads(text)
    (folder / "summary.json").write_text(json.dumps({**finished_run.summary, **changed} if changed else {}))
    shutil.copytree(finished_run.path, tmp_path / "whole")
    for arguments in (("report", "run"), ("trace", "run"), ("run", "whole", "--compare", "run")):
        done = command(*arguments, check=2)
        assert done.stderr.startswith(f"error: cannot read `run/summary.json`: {DAMAGES[text]}\n\nhint: has the folder")
    assert not list(folder.glob("report.html"))


def test_commands_tell_what_is_wrong_with_a_table(command: Command, finished_run: Result, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished_run.path, folder)
    (part,) = (folder / "links").glob("part-*.parquet")
    whole = part.read_bytes()
    part.write_bytes(whole[:100])
    assert "cannot read `run/links/part-00000.parquet`: parquet: " in command("report", "run", check=2).stderr
    # The footer is there and the pages are not.
    footer = 8 + int.from_bytes(whole[-8:-4], "little")
    part.write_bytes(b"PAR1" + b"\xff" * (len(whole) - 4 - footer) + whole[-footer:])
    assert command("report", "run", check=2).stderr.startswith("error: cannot read the tables of `run`: ")
    pl.read_parquet(finished_run.path / "links").drop("tier").write_parquet(part)
    done = command("report", "run", check=2)
    assert done.stderr.startswith("error: cannot read the tables of `run`: ")
    assert "tier" in done.stderr
    operations = folder / "operations" / "part-00000.parquet"
    pl.read_parquet(operations).drop("start_ps").write_parquet(operations)
    assert "start_ps" in command("trace", "run", check=2).stderr
