"""The Perfetto trace, decoded again."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

import windtunnel
from perfetto_reader import Track, read
from windtunnel.results import TableWriter
from windtunnel.trace import write_trace
from windtunnel.trace.perfetto import varint
from windtunnel.trace.timeline import lanes

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel import Result


@pytest.fixture(scope="module")
def tracks(finished_run: Result, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Track]:
    path = write_trace(finished_run, tmp_path_factory.mktemp("trace") / "t.pftrace")
    return read(path.read_bytes())


def test_every_operation_is_a_slice_in_its_place(finished_run: Result, tracks: dict[int, Track]) -> None:
    found = set()
    for track in tracks.values():
        if track.tid is None or track.name == "critical path":
            continue
        process = tracks[track.parent or 0]
        found |= {
            (process.name, track.name, s.arguments["operation"], s.name, s.begin_ns, s.end_ns) for s in track.slices
        }
    expected = set()
    for row in finished_run.operations.iter_rows(named=True):
        process_name = f"pretrain: rank {row['rank']} (stage {row['stage']})"
        stream = "compute" if row["kind"] == "calc" else row["dimension"].upper()
        begin, end = row["start_ps"] // 1000, row["finish_ps"] // 1000
        expected.add((process_name, stream, row["operation"], row["label"], begin, end))
    assert found == expected


def test_categories_say_what_it_is_for(tracks: dict[int, Track]) -> None:
    slices = [s for track in tracks.values() for s in track.slices]
    by_name = {s.name: s.category for s in slices}
    assert by_name["F0.0 layer0"] == "calc"
    assert by_name["all_reduce"] == "tp"
    assert by_name["send to stage 1"] == "pp"


def test_process_and_thread_numbers_are_unique_and_fit(tracks: dict[int, Track]) -> None:
    processes = [t.pid for t in tracks.values() if t.tid is None and t.pid is not None]
    threads = [t.tid for t in tracks.values() if t.tid is not None]
    assert len(set(processes)) == len(processes)
    assert len(set(threads)) == len(threads)
    assert all(0 < number < 2**31 for number in [*processes, *threads])
    assert all(t.pid == tracks[t.parent or 0].pid for t in tracks.values() if t.tid is not None)


def test_the_critical_path_joins_without_a_gap(finished_run: Result, tracks: dict[int, Track]) -> None:
    (path,) = [t for t in tracks.values() if t.name == "critical path"]
    ends = [s.end_ns for s in path.slices]
    assert [s.begin_ns for s in path.slices] == [0, *ends[:-1]]
    assert ends[-1] == finished_run.iterations["finish_ps"].max() // 1000  # type: ignore[operator]
    assert {s.arguments["links"] for s in path.slices if s.category == "dp"} == {"leaf0 -> spine3; spine3 -> leaf1"}


def test_counters_are_percentages_of_the_busiest_links(finished_run: Result, tracks: dict[int, Track]) -> None:
    counters = [t for t in tracks.values() if t.is_counter]
    assert len(counters) == 16
    busiest = finished_run.links.sort("utilisation", descending=True).row(0, named=True)
    (counter,) = [t for t in counters if t.name == f"{busiest['link']} ({busiest['tier']})"]
    assert [value for _, value in counter.counts[:-1]] == pytest.approx([100 * u for u in busiest["utilisation_bins"]])
    assert counter.counts[1][0] == busiest["bin_span_ps"] // 1000


def test_messages_in_flight_together_take_threads_of_their_own(tmp_path: Path) -> None:
    write_operations(tmp_path, start=[0, 1000, 5000, 7000], finish=[5000, 9000, 6000, 7000])
    tracks = read(write_trace(windtunnel.load(tmp_path), tmp_path / "t.pftrace").read_bytes())
    threads = {t.name: [(s.begin_ns, s.end_ns) for s in t.slices] for t in tracks.values() if t.tid is not None}
    assert threads == {"DP": [(0, 5), (5, 6), (7, 7)], "DP (2)": [(1, 9)]}


def test_lanes_are_taken_again_when_they_are_free() -> None:
    assert lanes([0, 1, 2, 5, 6], [5, 2, 8, 6, 7]) == [0, 1, 1, 0, 0]


def test_a_gzipped_trace_is_the_same_bytes_each_time(finished_run: Result, tmp_path: Path) -> None:
    plain = write_trace(finished_run, tmp_path / "t.pftrace").read_bytes()
    first = write_trace(finished_run, tmp_path / "a.gz").read_bytes()
    assert gzip.decompress(first) == plain
    assert write_trace(finished_run, tmp_path / "b.gz").read_bytes() == first


def test_a_run_without_operations_has_no_timeline(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(windtunnel.InputError, match="the run recorded no operations"):
        write_trace(windtunnel.load(tmp_path), tmp_path / "t.gz")


def test_varint() -> None:
    assert [varint(v) for v in (0, 127, 128, 300)] == [b"\x00", b"\x7f", b"\x80\x01", b"\xac\x02"]


def write_operations(folder: Path, start: list[int], finish: list[int]) -> None:
    n = len(start)
    (folder / "summary.json").write_text("{}")
    with TableWriter(folder) as writer:
        writer.sink("operations", {
            "job": ["j"] * n, "label": [""] * n, "kind": ["receive"] * n, "dimension": ["dp"] * n,
            **{name: np.zeros(n, dtype=np.uint32) for name in ("rank", "stage", "iteration", "stream")},
            "operation": np.arange(n, dtype=np.uint32),
            "ready_ps": np.array(start, dtype=np.uint64), "start_ps": np.array(start, dtype=np.uint64),
            "finish_ps": np.array(finish, dtype=np.uint64), "bytes": np.zeros(n, dtype=np.uint64),
        })  # fmt: skip
    assert pl.scan_parquet(folder / "operations" / "*.parquet").select(pl.len()).collect().item() == n
