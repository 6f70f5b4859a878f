"""Tables as folders of part files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from windtunnel.results import TableWriter, writer

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def write(folder: Path, batches: list[int]) -> list[tuple[str, bytes]]:
    """Writes the numbers from 0 on in batches of the given sizes; returns the files."""
    at = 0
    with TableWriter(folder) as tables:
        for rows in batches:
            tables.sink(
                "t", {"n": np.arange(at, at + rows, dtype=np.uint64), "s": [str(i) for i in range(at, at + rows)]}
            )
            at += rows
    return [(path.name, path.read_bytes()) for path in sorted((folder / "t").iterdir())]


def test_the_files_do_not_depend_on_the_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PART_ROWS", 1000)
    files = write(tmp_path / "a", [2500])
    assert [name for name, _ in files] == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert write(tmp_path / "b", [1] * 7 + [993, 1499, 1]) == files
    parts = [pl.read_parquet(tmp_path / "a" / "t" / name) for name, _ in files]
    assert [part.height for part in parts] == [1000, 1000, 500]
    assert pl.concat(parts)["n"].to_list() == list(range(2500))


def test_wide_rows_are_written_before_they_fill_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PART_BYTES", 10_000)
    with TableWriter(tmp_path) as tables:
        for _ in range(4):
            tables.sink("links", {"bins": np.zeros((10, 100))})
    assert len(list((tmp_path / "links").iterdir())) > 1
    assert pl.scan_parquet(tmp_path / "links" / "*.parquet").select(pl.len()).collect().item() == 40


def test_matrices_are_list_columns_and_nan_is_null(tmp_path: Path) -> None:
    with TableWriter(tmp_path) as tables:
        tables.sink("t", {"x": np.array([1.0, np.nan]), "bins": np.array([[1.0, 2.0], [3.0, 4.0]])})
    frame = pl.read_parquet(tmp_path / "t" / "part-00000.parquet")
    assert frame.schema == {"x": pl.Float64, "bins": pl.List(pl.Float64)}
    assert frame["x"].to_list() == [1.0, None]
    assert frame["bins"].to_list() == [[1.0, 2.0], [3.0, 4.0]]


def test_a_table_without_rows_keeps_its_columns(tmp_path: Path) -> None:
    with TableWriter(tmp_path) as tables:
        tables.sink("t", {"x": np.zeros(0), "name": []})
    assert tables.rows == {"t": 0}
    assert pl.read_parquet(tmp_path / "t" / "part-00000.parquet").columns == ["x", "name"]


def test_a_batch_without_rows_before_one_with_texts_is_of_texts(tmp_path: Path) -> None:
    with TableWriter(tmp_path) as tables:
        tables.sink("paths", {"label": [], "step": np.array([], np.uint32)})
        tables.sink("paths", {"label": ["send"], "step": np.array([1], np.uint32)})
    assert pl.read_parquet(tmp_path / "paths")["label"].to_list() == ["send"]
