"""Tables as folders of part files, which the engine writes and polars reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from windtunnel import engine
from windtunnel.engine import TableWriter
from windtunnel.source import read_source

if TYPE_CHECKING:
    from windtunnel._engine import Columns, Sink

EXAMPLES = Path(__file__).parents[1] / "examples"


def to_frame(columns: Columns) -> pl.DataFrame:
    """What polars itself makes of a batch: a matrix is a list column, NaN is null, coded texts are text."""
    series = []
    for name, values in columns.items():
        if isinstance(values, tuple) and isinstance(values[0], np.ndarray):
            numbers = [int(value) if known else None for value, known in zip(*values, strict=True)]
            column = pl.Series(name, numbers, dtype=pl.UInt64)
        elif isinstance(values, tuple):
            column = pl.Series(name, list(values[0]), dtype=pl.String).gather(values[1])
        elif isinstance(values, np.ndarray) and values.ndim == 2:
            column = pl.Series(name, values.tolist(), dtype=pl.List(pl.Float64))
        elif isinstance(values, list):
            column = pl.Series(name, values, dtype=pl.String)
        else:
            column = pl.Series(name, values)
            column = column.fill_nan(None) if column.dtype.is_float() else column
        series.append(column)
    return pl.DataFrame(series)


def write(folder: Path, batches: list[int], **limits: int) -> list[tuple[str, bytes]]:
    """Writes the numbers from 0 on in batches of the given sizes; returns the files."""
    at = 0
    folder.mkdir()
    with TableWriter(folder, **limits) as tables:
        for rows in batches:
            tables.sink(
                "t", {"n": np.arange(at, at + rows, dtype=np.uint64), "s": [str(i % 5) for i in range(at, at + rows)]}
            )
            at += rows
    return [(path.name, path.read_bytes()) for path in sorted((folder / "t").iterdir())]


def test_the_files_do_not_depend_on_the_batches(tmp_path: Path) -> None:
    limits = {"part_rows": 1000, "group_rows": 300}
    files = write(tmp_path / "a", [2500], **limits)
    assert [name for name, _ in files] == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert write(tmp_path / "b", [1] * 7 + [993, 1499, 1], **limits) == files
    parts = [pl.read_parquet(tmp_path / "a" / "t" / name) for name, _ in files]
    assert [part.height for part in parts] == [1000, 1000, 500]
    assert pl.concat(parts)["n"].to_list() == list(range(2500))
    assert pl.concat(parts)["s"].to_list() == [str(i % 5) for i in range(2500)]
    # Groups are left out by their least and largest values, which must not lose a row.
    scan = pl.scan_parquet(tmp_path / "a" / "t" / "*.parquet")
    assert scan.filter(pl.col("n") == 1299).collect()["n"].to_list() == [1299]


def test_wide_rows_are_written_before_they_fill_memory(tmp_path: Path) -> None:
    with TableWriter(tmp_path, group_values=1500, part_values=1500) as tables:
        for _ in range(4):
            tables.sink("links", {"bins": np.arange(1000.0).reshape((10, 100))})
    assert len(list((tmp_path / "links").iterdir())) > 1
    frame = pl.read_parquet(tmp_path / "links")
    assert frame["bins"].to_list() == 4 * np.arange(1000.0).reshape((10, 100)).tolist()


def test_a_table_without_rows_keeps_its_columns(tmp_path: Path) -> None:
    with TableWriter(tmp_path) as tables:
        tables.sink("t", {"x": np.zeros(0), "name": []})
    assert tables.rows == {"t": 0}
    frame = pl.read_parquet(tmp_path / "t" / "part-00000.parquet")
    assert frame.schema == {"x": pl.Float64, "name": pl.String}


def test_a_batch_without_rows_before_one_with_texts_is_of_texts(tmp_path: Path) -> None:
    with TableWriter(tmp_path) as tables:
        tables.sink("paths", {"label": [], "step": np.array([], np.uint32)})
        tables.sink("paths", {"label": ["send"], "step": np.array([1], np.uint32)})
    assert pl.read_parquet(tmp_path / "paths")["label"].to_list() == ["send"]


def test_batches_that_are_not_alike_are_refused(tmp_path: Path) -> None:
    for other in ({"x": ["a"]}, {"y": np.zeros(1)}, {"x": np.zeros(1), "y": np.zeros(1)}, {}):
        writer = TableWriter(tmp_path)
        writer.sink("t", {"x": np.zeros(2)})
        with pytest.raises(ValueError, match=r"table `t`: batches of a table have the same columns"):
            writer.sink("t", other)
    with pytest.raises(ValueError, match="`y`"):
        TableWriter(tmp_path).sink("t", {"x": np.zeros(2), "y": np.zeros(3)})
    with pytest.raises(TypeError, match=r"t\.x"):
        TableWriter(tmp_path).sink("t", {"x": np.zeros(2, np.int16)})


TEXTS = ["", "a", "spine3 → leaf1", "x" * 300, "b", "\0", "é", *(f"link{i}" for i in range(90))]
DOUBLES = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 5e-324, 1.5]


def batch(rng: np.random.Generator) -> Columns:
    """Rows of every kind of column: some with few values, some with many, some with nothing known."""
    rows, kinds = int(rng.integers(0, 200)), int(rng.integers(1, len(TEXTS)))
    bits = int(rng.integers(1, 64))
    numbers = rng.integers(0, 2**bits, rows, dtype=np.uint64)
    names = [None, *TEXTS[:kinds]]
    doubles = np.where(rng.random(rows) < 0.5, rng.choice(DOUBLES, rows), rng.normal(size=rows))
    return {
        "u32": rng.integers(0, 2 ** min(bits, 32), rows, dtype=np.uint64).astype(np.uint32),
        "u64": numbers * np.uint64(2),
        "f64": doubles,
        "sparse": (numbers, rng.random(rows) < rng.choice([0.0, 0.02, 0.5, 1.0])),
        "text": [TEXTS[i] for i in rng.integers(0, kinds, rows)],
        "coded": (TEXTS[:kinds], rng.integers(0, kinds, rows, dtype=np.uint32)),
        "known": (names, rng.integers(0, rng.integers(1, len(names) + 1), rows, dtype=np.uint32)),
        "runs": np.repeat(rng.integers(0, 9, 1 + rows // 7), 7)[:rows].astype(np.uint32),
        "list": rng.normal(size=(rows, 3)),
    }


@pytest.mark.parametrize("seed", range(40))
def test_polars_reads_what_was_given(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    batches = [batch(rng) for _ in range(rng.integers(1, 5))]
    with TableWriter(tmp_path, group_rows=int(rng.integers(1, 300)), part_rows=300) as tables:
        for one in batches:
            tables.sink("t", one)
    expected = pl.concat([to_frame(one) for one in batches])
    found = pl.concat([pl.read_parquet(path) for path in sorted((tmp_path / "t").iterdir())])
    assert found.schema == expected.schema
    assert found.equals(expected)
    assert tables.rows == {"t": expected.height}
    least, most = expected["u64"].min(), expected["f64"].max()
    scan = pl.scan_parquet(tmp_path / "t" / "*.parquet")
    found_by = (pl.col("u64").eq_missing(least), pl.col("f64").eq_missing(most), pl.col("sparse").is_null())
    for chosen in (*found_by, pl.col("text") == "a"):
        assert scan.filter(chosen).collect().equals(expected.filter(chosen))


def _quiet(*_: object) -> None:
    pass


@pytest.mark.engine
@pytest.mark.parametrize("name", ["lossless-incast", "faults", "llama3-8b-fsdp"])
def test_the_tables_of_a_run_are_what_a_callable_gets(name: str, tmp_path: Path) -> None:
    source = read_source(EXAMPLES / f"{name}.yaml")
    given: dict[str, list[pl.DataFrame]] = {}

    def simulate(sink: Sink) -> None:
        engine.run(source.text, source.name, str(source.base), [], {"threads": 1}, sink, _quiet)

    simulate(lambda table, columns: given.setdefault(table, []).append(to_frame(columns)))
    with TableWriter(tmp_path) as writer:
        simulate(writer)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(given)
    for table, frames in given.items():
        expected, found = pl.concat(frames), pl.read_parquet(tmp_path / table)
        assert found.schema == expected.schema, table
        assert found.equals(expected), table
